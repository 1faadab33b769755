//! Words of the names of types and metrics: each is defined in the glossary, or is listed as a word that
//! needs no definition.
//!
//! `cargo xtask glossary` compares the names with `docs/reference/glossary.md` and `xtask/words.toml`. A
//! listed word that no name has, or that the glossary defines, is a fault, so the list only has words in use.

use crate::structure;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const GLOSSARY: &str = "docs/reference/glossary.md";
const METRICS: &str = "docs/reference/metrics.md";
const WORDS: &str = "xtask/words.toml";

/// Words that the glossary does not define.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Words {
    /// Terms of programming, with their usual meaning.
    programming: Vec<String>,
    /// Names of protocols, programs, and parts of the kernel, its libraries and packets.
    systems: Vec<String>,
    /// Words of the language, with their usual meaning.
    language: Vec<String>,
}

/// Words of names, each with the names that have it.
type Named = BTreeMap<String, BTreeSet<String>>;

/// Compares the names of types and metrics with the glossary and the list of words.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let named = named(root)?;
    let glossary = terms(&read(root, GLOSSARY)?);
    let words: Words = toml::from_str(&read(root, WORDS)?).map_err(|error| format!("{WORDS}: {error}"))?;
    let faults = faults(&named, &glossary, &words);
    if faults.is_empty() {
        println!(
            "glossary: {} words of names, {} of them in the glossary",
            named.len(),
            defined(&named, &glossary)
        );
        return Ok(());
    }
    Err(format!("{}\nxtask glossary: {} faults", faults.join("\n"), faults.len()))
}

fn read(root: &Path, file: &str) -> Result<String, String> {
    fs::read_to_string(root.join(file)).map_err(|error| format!("{file}: {error}"))
}

fn named(root: &Path) -> Result<Named, String> {
    let mut named = Named::new();
    for (name, file) in structure::types(root)? {
        for word in camel_case(&name) {
            named.entry(word).or_default().insert(format!("{name} ({file})"));
        }
    }
    for metric in metrics(&read(root, METRICS)?) {
        for word in metric.split('_').skip(1) {
            named.entry(word.to_owned()).or_default().insert(metric.clone());
        }
    }
    Ok(named)
}

fn defined(named: &Named, glossary: &BTreeSet<String>) -> usize {
    named.keys().filter(|word| glossary.contains(&stem(word))).count()
}

fn faults(named: &Named, glossary: &BTreeSet<String>, words: &Words) -> Vec<String> {
    let listed = [&words.programming, &words.systems, &words.language];
    let mut faults = Vec::new();
    let mut all = BTreeSet::new();
    let used: BTreeSet<String> = named.keys().map(|word| stem(word)).collect();
    for word in listed.into_iter().flatten() {
        let stem = stem(word);
        if !used.contains(&stem) {
            faults.push(format!("{WORDS}: no type and no metric has `{word}` in its name"));
        } else if glossary.contains(&stem) {
            faults.push(format!("{WORDS}: `{word}` is in the glossary"));
        }
        if !all.insert(stem) {
            faults.push(format!("{WORDS}: `{word}` is listed twice"));
        }
    }
    let is_known = |word: &str| glossary.contains(&stem(word)) || all.contains(&stem(word));
    faults.extend(named.iter().filter(|(word, _)| !is_known(word)).map(|(word, names)| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        format!("`{word}` is neither in {GLOSSARY} nor in {WORDS}: {}", names.join(", "))
    }));
    faults
}

/// Stems of the terms in the first column of the glossary, and of the accepted abbreviations.
fn terms(glossary: &str) -> BTreeSet<String> {
    let rows = glossary.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    // `fast path` and `hand-over` are terms of two words, `fastpath` and `handover` their forms in names.
    let forms = rows.flat_map(|(first, _)| [first.replace('-', " "), first.replace(['-', ' '], "")]);
    let terms = forms
        .flat_map(|form| form.split(|c: char| !c.is_alphanumeric()).map(str::to_owned).collect::<Vec<_>>());
    let abbreviations = glossary.lines().skip_while(|line| !line.starts_with("Accepted abbreviations"));
    let abbreviations = abbreviations.flat_map(|line| line.split('`').skip(1).step_by(2).map(str::to_owned));
    terms.chain(abbreviations).filter(|word| !word.is_empty()).map(|word| stem(&word)).collect()
}

/// Names of the metrics in the first column of their page.
fn metrics(page: &str) -> Vec<String> {
    let names = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    names.map(|(name, _)| name.to_owned()).filter(|name| name.starts_with("gatun_")).collect()
}

/// Words of a name in camel case, in lower case. Numbers and single letters are no words.
fn camel_case(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let letters: Vec<char> = name.chars().collect();
    for (i, &letter) in letters.iter().enumerate() {
        let before = i.checked_sub(1).and_then(|at| letters.get(at));
        let after = letters.get(i + 1);
        let begins = letter.is_uppercase()
            && (before.is_none_or(|c| !c.is_uppercase()) || after.is_some_and(|c| c.is_lowercase()));
        let begins = begins || before.is_some_and(|c| c.is_numeric() != letter.is_numeric());
        if begins || words.is_empty() {
            words.push(String::new());
        }
        words.last_mut().expect("a word").extend(letter.to_lowercase());
    }
    words.retain(|word| word.len() > 1 && !word.starts_with(|c: char| c.is_numeric()));
    words
}

/// A word without the ending of its form: `restored` and `restore` have one stem.
fn stem(word: &str) -> String {
    let word = word.to_lowercase();
    if let Some(short) = word.strip_suffix("ies").filter(|short| short.len() > 2) {
        return format!("{short}y");
    }
    let ending = ["ing", "ed", "es", "s", "e"].iter().find(|ending| word.ends_with(*ending));
    let Some(short) = ending.and_then(|ending| word.strip_suffix(ending)).filter(|short| short.len() > 2)
    else {
        return word;
    };
    let mut short = short.to_owned();
    let last = short.chars().next_back();
    // `dropped`: the last letter is doubled before the ending.
    if short.chars().rev().nth(1) == last && last.is_some_and(|c| !"aeiouls".contains(c)) {
        short.pop();
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_into_words() {
        assert_eq!(camel_case("PathMtuTable"), ["path", "mtu", "table"]);
        assert_eq!(camel_case("SIITInstance"), ["siit", "instance"]);
        assert_eq!(camel_case("Nat64Class4"), ["nat", "class"]);
    }

    #[test]
    fn forms_of_a_word_have_one_stem() {
        for (a, b) in
            [("restored", "restore"), ("fragments", "fragment"), ("dropped", "drop"), ("steering", "steer")]
        {
            assert_eq!(stem(a), stem(b));
        }
        assert_eq!(stem("queue"), stem("queues"));
        assert_eq!(stem("party"), stem("parties"));
        assert_ne!(stem("session"), stem("segment"));
    }

    #[test]
    fn terms_are_the_first_column_and_the_abbreviations() {
        let page = "| word | meaning | source |\n|---|---|---|\n| EAM, EAMT | mapping | RFC |\n| fast path, hand-over | passing | |\n\nAccepted abbreviations in code: `mtu`.\n";
        let terms = terms(page);
        assert!(
            ["eam", "eamt", "path", "fastpath", "hand", "handover", "mtu"]
                .iter()
                .all(|word| terms.contains(&stem(word)))
        );
        assert!(!terms.contains("mapping"));
    }

    #[test]
    fn a_metric_is_read_from_its_row() {
        assert_eq!(metrics("| `gatun_a_b` | gauge | `x` | Text `gatun_c`. |\n| `other` |\n"), ["gatun_a_b"]);
    }

    #[test]
    fn unknown_unused_and_defined_words_are_faults() {
        let named = Named::from([
            ("pool".into(), ["Pool (a.rs)".into()].into()),
            ("crew".into(), ["Crew (b.rs)".into()].into()),
        ]);
        let glossary = BTreeSet::from([stem("pool")]);
        let words = |list: &[&str]| Words {
            language: list.iter().map(|word| (*word).into()).collect(),
            ..Words::default()
        };
        assert_eq!(faults(&named, &glossary, &words(&["crew"])), [""; 0]);
        assert_eq!(faults(&named, &glossary, &words(&[])).len(), 1);
        assert_eq!(
            faults(&named, &glossary, &words(&["crew", "pool"])),
            ["xtask/words.toml: `pool` is in the glossary"]
        );
        assert_eq!(
            faults(&named, &glossary, &words(&["crew", "ship"])),
            ["xtask/words.toml: no type and no metric has `ship` in its name"]
        );
    }
}
