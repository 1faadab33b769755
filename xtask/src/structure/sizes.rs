//! Sizes of functions and files, parameters, columns.

use super::rules::{At, Rules};
use super::source::Source;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Places beyond a limit, with their sizes.
type Found = BTreeMap<String, usize>;

fn keep_greatest(found: &mut Found, at: String, size: usize) {
    let known = found.entry(at).or_default();
    *known = size.max(*known);
}

fn functions(sources: &[Source], limit: usize, size: fn(&super::source::Function) -> usize) -> Found {
    let mut found = Found::new();
    for source in sources {
        for function in source.functions.iter().filter(|function| size(function) > limit) {
            keep_greatest(&mut found, format!("{}::{}", source.path, function.name), size(function));
        }
    }
    found
}

fn files(sources: &[Source], limit: usize) -> Found {
    let large = sources.iter().filter(|source| source.lines > limit);
    large.map(|source| (source.path.clone(), source.lines)).collect()
}

/// Differences between the found sizes and the allowed ones.
fn compare(what: &str, limit: usize, found: &Found, allowed: &[At]) -> Vec<String> {
    let mut faults = Vec::new();
    let known: BTreeMap<&str, usize> = allowed.iter().map(|entry| (entry.at.as_str(), entry.is)).collect();
    for (at, size) in found {
        match known.get(at.as_str()) {
            None => faults.push(format!("{at}: {size} {what}, more than {limit}")),
            Some(allowed) if size > allowed => {
                faults.push(format!(
                    "{at}: {size} {what}, more than the {allowed} that structure.toml allows it"
                ));
            }
            Some(_) => {}
        }
    }
    let stale = known.keys().filter(|at| !found.contains_key(**at));
    faults.extend(
        stale.map(|at| format!("structure.toml: {at} has at most {limit} {what} now: remove its entry")),
    );
    faults
}

pub(crate) fn faults(root: &Path, sources: &[Source], rules: &Rules) -> Result<Vec<String>, String> {
    let (limits, allowed) = (&rules.limits, &rules.allowed);
    let long = functions(sources, limits.function_lines, |function| function.lines);
    let mut faults = compare("lines", limits.function_lines, &long, &allowed.functions);
    let wide = functions(sources, limits.parameters, |function| function.parameters);
    faults.extend(compare("parameters", limits.parameters, &wide, &allowed.parameters));
    let large = files(sources, limits.file_lines);
    faults.extend(compare("lines of code", limits.file_lines, &large, &allowed.files));
    let width = max_width(root)?;
    let wide: Vec<_> = sources.iter().flat_map(|source| wide_lines(source, width)).collect();
    match wide.len().cmp(&allowed.columns) {
        Ordering::Equal => {}
        Ordering::Greater if allowed.columns == 0 => faults.extend(wide),
        Ordering::Greater => {
            faults.push(format!(
                "{} lines are wider than {width} columns, {} are allowed",
                wide.len(),
                allowed.columns
            ));
        }
        Ordering::Less => faults.push(format!(
            "structure.toml: only {} lines are wider than {width} columns now: lower `columns`",
            wide.len()
        )),
    }
    Ok(faults)
}

/// rustfmt's column limit.
fn max_width(root: &Path) -> Result<usize, String> {
    #[derive(serde::Deserialize)]
    struct Rustfmt {
        max_width: usize,
    }
    let text = std::fs::read_to_string(root.join("rustfmt.toml"))
        .map_err(|error| format!("rustfmt.toml: {error}"))?;
    let rustfmt: Rustfmt = toml::from_str(&text).map_err(|error| format!("rustfmt.toml: {error}"))?;
    Ok(rustfmt.max_width)
}

/// Lines beyond the column limit: rustfmt leaves comments and macros. String literals may be longer, because
/// nobody finds a message that is broken in two.
fn wide_lines(source: &Source, width: usize) -> Vec<String> {
    let lines = source.text.lines().enumerate().map(|(i, line)| (i + 1, line));
    let wide =
        lines.filter(|(number, line)| line.chars().count() > width && !source.literals.contains(number));
    wide.map(|(number, line)| {
        format!("{}:{number}: {} columns, more than {width}", source.path, line.chars().count())
    })
    .collect()
}

/// Violations of the limits as entries of structure.toml.
pub(crate) fn list(sources: &[Source], rules: &Rules) -> String {
    let limits = &rules.limits;
    let tables = [
        ("functions", functions(sources, limits.function_lines, |function| function.lines)),
        ("parameters", functions(sources, limits.parameters, |function| function.parameters)),
        ("files", files(sources, limits.file_lines)),
    ];
    let mut text = String::new();
    for (name, found) in tables {
        for (at, size) in found {
            let _ = writeln!(text, "[[allowed.{name}]]\nat = \"{at}\"\nis = {size}\nwhy = \"\"\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::source::sample;
    use super::*;

    fn at(at: &str, is: usize) -> At {
        At { at: at.into(), is, why: "w".into() }
    }

    #[test]
    fn a_long_function_is_a_fault_unless_its_size_is_allowed() {
        let body = "    g();\n".repeat(80);
        let sources = [sample(&["a"], &format!("fn f() {{\n{body}}}\n"))];
        let found = functions(&sources, 70, |function| function.lines);
        assert_eq!(compare("lines", 70, &found, &[]), ["src/a.rs::f: 82 lines, more than 70"]);
        assert_eq!(compare("lines", 70, &found, &[at("src/a.rs::f", 82)]), [""; 0]);
        assert_eq!(
            compare("lines", 70, &found, &[at("src/a.rs::f", 75)]),
            ["src/a.rs::f: 82 lines, more than the 75 that structure.toml allows it"]
        );
        assert_eq!(
            compare("lines", 70, &Found::new(), &[at("src/a.rs::f", 82)]),
            ["structure.toml: src/a.rs::f has at most 70 lines now: remove its entry"]
        );
    }

    #[test]
    fn a_long_comment_is_a_fault_and_a_long_string_is_not() {
        let long = "x".repeat(120);
        let source = sample(&["a"], &format!("// {long}\nconst A: &str = \"{long}\";\n"));
        assert_eq!(wide_lines(&source, 110), ["src/a.rs:1: 123 columns, more than 110"]);
    }
}
