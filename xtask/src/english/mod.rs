//! Plain English: greppable patterns that readers stumble over.
//!
//! `cargo xtask english` counts them for each folder, `--list` prints each, and `--check` compares the counts
//! with `xtask/english.toml`, which only shrinks.

mod sentences;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

const ALLOWED: &str = "xtask/english.toml";

/// First words of a clause, where a summary or a heading needs a noun or a verb.
const CLAUSES: [&str; 12] = [
    "What ",
    "Who ",
    "Whom ",
    "Whose ",
    "How ",
    "Where ",
    "Whatever ",
    "Whoever ",
    "Wherever ",
    "All of ",
    "All that ",
    "As much ",
];

/// Words with a better replacement: the field's term, or a grammatical form.
const WORDS: [(&str, &str); 8] = [
    ("6to4", "v6>v4, unless it means RFC 3056"),
    ("4to6", "v4>v6"),
    ("short way", "fast path"),
    ("general way", "slow path"),
    ("nobody is there", "stdin is not a terminal"),
    ("that is no name", "invalid name"),
    ("is told of", "is reported, is logged"),
    ("are told of", "are reported, are logged"),
];

/// Nouns that say nothing about a translator, as names of types, traits and modules. The replacements are the
/// names that the project chose for such things.
const NOUNS: [(&str, &str); 14] = [
    ("Estate", "StateDir"),
    ("Taking", "StateLock"),
    ("Hearers", "EventSinks"),
    ("Roster", "Subscribers"),
    ("Knock", "InboundQuery"),
    ("Letterbox", "DeviceEvents"),
    ("Succession", "EthernetHandover"),
    ("Speech", "Announcements"),
    ("Saying", "LogLine"),
    ("Desk", "the noun of the RFC"),
    ("Told", "Reported"),
    ("Kept", "Persisted"),
    ("Herald", "Announcements"),
    ("Heirs", "the next process"),
];

#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    file: String,
    line: usize,
    rule: &'static str,
    text: String,
}

/// Prints the counts, or each finding if `each` is true.
pub(crate) fn print(root: &Path, each: bool) -> Result<(), String> {
    let findings = read(root)?;
    if each {
        findings.iter().for_each(|f| println!("{}:{}: {}: {}", f.file, f.line, f.rule, f.text));
    }
    print!("{}", table(&counts(&findings)));
    Ok(())
}

/// Compares the counts with the allowed ones.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let findings = read(root)?;
    let text = fs::read_to_string(root.join(ALLOWED)).map_err(|error| format!("{ALLOWED}: {error}"))?;
    let allowed: BTreeMap<String, usize> =
        toml::from_str(&text).map_err(|error| format!("{ALLOWED}: {error}"))?;
    let faults = compare(&counts(&findings), &allowed);
    if faults.is_empty() {
        println!("english: {} findings, as allowed", findings.len());
        return Ok(());
    }
    Err(format!("{}\nxtask english: cargo xtask english --list shows each", faults.join("\n")))
}

fn compare(counts: &BTreeMap<String, usize>, allowed: &BTreeMap<String, usize>) -> Vec<String> {
    let folders: std::collections::BTreeSet<_> = counts.keys().chain(allowed.keys()).collect();
    let of = |map: &BTreeMap<String, usize>, folder: &str| map.get(folder).copied().unwrap_or(0);
    let faults = folders.into_iter().filter_map(|folder| {
        let (count, allowed) = (of(counts, folder), of(allowed, folder));
        match count.cmp(&allowed) {
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => Some(format!("{folder}: {count} findings, {allowed} are allowed")),
            std::cmp::Ordering::Less => {
                Some(format!("{ALLOWED}: {folder} has only {count} findings now: lower {allowed}"))
            }
        }
    });
    faults.collect()
}

/// Findings for each folder: a crate, or a top-level folder or file.
fn counts(findings: &[Finding]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for finding in findings {
        let mut parts = finding.file.split('/');
        let folder = match (parts.next(), parts.next()) {
            (Some(first @ ("crates" | "testkit" | "docs")), Some(second)) => format!("{first}/{second}"),
            (Some(first), _) => first.to_owned(),
            (None, _) => continue,
        };
        *counts.entry(folder).or_default() += 1;
    }
    counts
}

fn table(counts: &BTreeMap<String, usize>) -> String {
    let mut text = String::new();
    for (folder, count) in counts {
        let _ = writeln!(text, "\"{folder}\" = {count}");
    }
    text
}

fn read(root: &Path) -> Result<Vec<Finding>, String> {
    let output = Command::new("git")
        .args(["ls-files", "*.rs", "*.md", "*.c", "*.h", "scripts/*"])
        .current_dir(root)
        .output();
    let output = output.map_err(|error| format!("git: {error}"))?;
    let mut findings = Vec::new();
    for file in String::from_utf8_lossy(&output.stdout).lines().filter(|file| is_read(file)) {
        let Ok(text) = fs::read_to_string(root.join(file)) else { continue };
        findings.extend(look(file, &text));
    }
    Ok(findings)
}

/// Returns true if a file is searched: this one lists the words, and the change log has old names.
fn is_read(file: &str) -> bool {
    file != "xtask/src/english/mod.rs" && file != "CHANGELOG.md" && !file.starts_with("docs/rfc/")
}

fn look(file: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_comment = false;
    let mut in_fence = false;
    for (i, line) in text.lines().enumerate() {
        let mut add = |rule, text: &str| {
            findings.push(Finding { file: file.into(), line: i + 1, rule, text: text.trim().into() });
        };
        let trimmed = line.trim_start();
        if file.ends_with(".md") {
            in_fence ^= line.starts_with("```");
            let heading = line.trim_start_matches('#').trim_start();
            let is_heading = line.starts_with('#') && !in_fence;
            if is_heading && !heading.starts_with("How to ") && is_clause(heading) {
                add("heading", line);
            }
        } else {
            let comment = trimmed.strip_prefix("///").or_else(|| trimmed.strip_prefix("//!"));
            if let Some(summary) = comment.filter(|_| !in_comment)
                && is_clause(summary.trim_start())
            {
                add("summary", line);
            }
            in_comment = comment.is_some();
        }
        if is_named_by_allegory(trimmed) {
            add("name", line);
        }
        for (word, _) in WORDS.iter().filter(|(word, _)| has_word(line, word) && !line.contains("3056")) {
            add("word", &format!("{word}: {trimmed}"));
        }
    }
    let long = sentences::long(file, text).into_iter();
    findings.extend(long.map(|(line, text)| Finding { file: file.into(), line, rule: "length", text }));
    findings
}

/// Returns true if a line defines a type, a trait or a module whose name is one of the [`NOUNS`].
fn is_named_by_allegory(line: &str) -> bool {
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    let is_definition = words.any(|word| ["struct", "enum", "trait", "type", "mod"].contains(&word));
    let name = words.next().filter(|_| is_definition && !line.starts_with("//")).unwrap_or_default();
    NOUNS.iter().any(|(noun, _)| name.eq_ignore_ascii_case(noun))
}

fn is_clause(text: &str) -> bool {
    CLAUSES.iter().any(|first| text.starts_with(first))
}

/// Returns true if a line has the text as a whole word.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(|c| is_part(c) || c == '.')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(file: &str, text: &str) -> Vec<(usize, &'static str)> {
        look(file, text).into_iter().map(|finding| (finding.line, finding.rule)).collect()
    }

    #[test]
    fn a_summary_that_is_a_clause_is_found_and_its_other_lines_are_not() {
        let text = "/// What it does.\n/// How so.\nfn f() {}\n/// Opens a session.\n/// Where it fits.\nfn g() {}\n//! Whose.\n";
        assert_eq!(rules("a.rs", text), [(1, "summary")]);
        assert_eq!(rules("a.rs", "//! Whose it is.\n"), [(1, "summary")]);
    }

    #[test]
    fn a_heading_that_is_a_clause_is_found_outside_blocks() {
        assert_eq!(rules("a.md", "# What is lost\n```sh\n# What\n```\n## How to add\n"), [(1, "heading")]);
    }

    #[test]
    fn a_word_is_found_but_not_in_names_and_not_beside_its_rfc() {
        assert_eq!(rules("a.md", "the 6to4 column\n6to4 (RFC 3056)\n`icmp_6to4.rs`\n"), [(1, "word")]);
    }

    #[test]
    fn a_type_with_an_allegorical_name_is_found() {
        assert_eq!(rules("a.rs", "pub(crate) struct Estate {\nmod letterbox;\n"), [(1, "name"), (2, "name")]);
        assert_eq!(rules("a.rs", "/// The mod estate.\nstruct StateDir;\nlet estate = 1;\n"), []);
    }

    #[test]
    fn counts_above_or_below_the_allowed_ones_are_faults() {
        let map = |n: usize| BTreeMap::from([("crates/a".to_owned(), n)]);
        assert_eq!(compare(&map(2), &map(2)), [""; 0]);
        assert_eq!(compare(&map(3), &map(2)), ["crates/a: 3 findings, 2 are allowed"]);
        assert_eq!(compare(&BTreeMap::new(), &map(2)).len(), 1);
    }
}
