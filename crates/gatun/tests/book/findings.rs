//! Tables of the findings of `gatun doctor` in the documents, compared with the code: each finding of a pair,
//! a cluster and announced routes has its words in a table, and tables have no others.

use crate::read;

/// Heading above each table.
const HEADING: &str = "### Findings of gatun doctor";
/// Pages, each with the files that have its findings. Of a file, the findings with a word count.
const PAGES: [(&str, &[(&str, &str)]); 3] = [
    (
        "docs/how-to/cluster.md",
        &[("cluster.rs", ""), ("mtu.rs", "tunnel"), ("peer.rs", "certificate"), ("peer.rs", "clocks")],
    ),
    ("docs/how-to/pair.md", &[("peer.rs", "")]),
    ("docs/how-to/announce.md", &[("announce.rs", "")]),
];

/// Texts of the findings that the code can make, without details after a colon. `{}` stands for anything.
fn patterns(code: &str) -> Vec<String> {
    let code = in_one_line(code.split("#[cfg(test)]").next().unwrap_or_default());
    let calls = ["Finding::wrong(", "Finding::note("];
    let texts = calls.into_iter().flat_map(|call| code.match_indices(call)).map(|(at, call)| {
        let (_, second) = code[at + call.len()..].split_once(',').expect("a finding has three arguments");
        let text = match second.trim_start().starts_with("what,") {
            true => code[..at].rsplit_once("let what =").map_or("", |(before, _)| &code[before.len() + 10..]),
            false => second,
        };
        let is_text = ["\"", "format!("].iter().any(|start| text.trim_start().starts_with(start));
        assert!(is_text, "this test finds no text of the finding {}", &code[at..code.len().min(at + 100)]);
        text.split('"').nth(1).unwrap_or_default()
    });
    texts.map(without_details).collect()
}

/// Joins the lines of each text.
fn in_one_line(code: &str) -> String {
    let (mut all, mut is_continued) = (String::new(), false);
    for line in code.lines() {
        let line = if is_continued { line.trim_start() } else { line };
        is_continued = line.ends_with('\\');
        all += line.strip_suffix('\\').unwrap_or(line);
        all += if is_continued { "" } else { "\n" };
    }
    all
}

/// Beginning of a text, without a reason after a colon, which a placeholder behind a word may have, too.
fn without_details(text: &str) -> String {
    let mut text = text.split(": ").next().unwrap_or_default();
    while let Some((before, _)) = text.strip_suffix('}').and_then(|text| text.rsplit_once('{'))
        && before.ends_with(|last: char| last.is_alphabetic() || last == '}')
    {
        text = before;
    }
    text.to_owned()
}

/// Returns whether words are those of a pattern, with something in place of each placeholder.
fn fits(words: &str, pattern: &str) -> bool {
    let Some((piece, rest)) = pattern.split_once('{') else { return words == pattern };
    let (_, rest) = rest.split_once('}').expect("a placeholder ends");
    let Some(words) = words.strip_prefix(piece) else { return false };
    words.char_indices().skip(1).any(|(at, _)| fits(&words[at..], rest))
        || rest.is_empty() && !words.is_empty()
}

/// Words between backquotes in the first column of the table below the heading.
fn documented(page: &str) -> Vec<String> {
    let (_, section) = page.split_once(HEADING).expect("the heading is there");
    let rows = section.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// Patterns without words, and words without a pattern.
fn faults(patterns: &[String], documented: &[String]) -> Vec<String> {
    let is_missing = |pattern: &&String| !documented.iter().any(|words| fits(words, pattern));
    let is_unknown = |words: &&String| !patterns.iter().any(|pattern| fits(words, pattern));
    let missing = patterns.iter().filter(is_missing).map(|pattern| format!("no row has '{pattern}'"));
    let unknown = documented.iter().filter(is_unknown).map(|words| format!("no finding says '{words}'"));
    missing.chain(unknown).collect()
}

#[test]
fn tables_of_findings_are_those_of_the_code() {
    for (page, files) in PAGES {
        let of_file = |(file, word): &(&str, &str)| {
            let all = patterns(&read(&format!("crates/gatun/src/doctor/{file}")));
            let some: Vec<_> = all.into_iter().filter(|pattern| pattern.contains(word)).collect();
            assert!(!some.is_empty(), "{file} has no finding with '{word}'");
            some
        };
        let patterns: Vec<_> = files.iter().flat_map(of_file).collect();
        let faults = faults(&patterns, &documented(&read(page)));
        assert!(faults.is_empty(), "{page}: {}", faults.join("\n"));
    }
}

#[test]
fn findings_that_are_added_or_renamed_are_detected() {
    let code = "let what = format!(\"node {} is \\\n    away{why}\", 1);\nFinding::note(CHECK, what, fix);\n\
                Finding::wrong(\n    CHECK,\n    format!(\"{a} ends in {}: soon\", 2),\n    \"x\",\n)\n\
                #[cfg(test)]\nFinding::note(CHECK, \"of a test\", fix)";
    let found = patterns(code);
    assert_eq!(found, ["{a} ends in {}", "node {} is away"]);
    let words = |all: &[&str]| all.iter().map(|words| (*words).to_owned()).collect::<Vec<_>>();
    let page =
        format!("{HEADING}\n\n| a | b |\n|---|---|\n| `node b is away`, `it ends in 3` | `c` |\n\n| `d` |");
    assert_eq!(documented(&page), ["node b is away", "it ends in 3"]);
    assert!(faults(&found, &documented(&page)).is_empty());
    assert_eq!(faults(&found, &words(&["it ends in 3"])), ["no row has 'node {} is away'"]);
    let renamed = words(&["node b is away", "it ends in 3", "node b is gone"]);
    assert_eq!(faults(&found, &renamed), ["no finding says 'node b is gone'"]);
    assert!(!fits("node  away", "node {} is away") && !fits("node b is away now", "node {} is away"));
}
