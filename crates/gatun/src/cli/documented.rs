//! Tests of the documents against the command line: docs/reference/cli.md is generated from it, and every
//! command that a document shows exists.

use super::Cli;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser as _};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Page with the help of every command.
fn page() -> String {
    let mut cli = Cli::command().term_width(100);
    cli.build();
    let mut page = "# Commands\n\nThis page is generated from the program's grammar, like `gatun help COMMAND`, `gatun completions` and the\nmanual \
        pages.\n"
        .to_owned();
    help_of(&mut cli, "gatun", &mut page);
    page
}

fn help_of(command: &mut clap::Command, name: &str, page: &mut String) {
    let help = command.render_long_help().to_string();
    let lines: Vec<_> = help.lines().map(str::trim_end).collect();
    write!(page, "\n## {name}\n\n```text\n{}\n```\n", lines.join("\n").trim_end()).unwrap();
    for sub in command.get_subcommands_mut().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        let name = format!("{name} {}", sub.get_name());
        help_of(sub, &name, page);
    }
}

#[test]
fn the_page_of_commands_is_up_to_date() {
    let file = docs().join("reference/cli.md");
    if std::env::var_os("GATUN_BLESS").is_some() {
        fs::write(&file, page()).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == page(),
        "docs/reference/cli.md is out of date: GATUN_BLESS=1 cargo test -p gatun documented"
    );
}

/// Width of a terminal on which help reads well.
const COLUMNS: usize = 80;

/// Indented lines, such as examples, do not survive a wrap; paragraphs are one line each.
#[test]
fn indented_lines_of_help_fit_a_terminal() {
    fn visit(command: &clap::Command, wide: &mut Vec<String>) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines = help.lines().filter(|line| line.starts_with(' ') && line.len() > COLUMNS);
        wide.extend(lines.map(|line| format!("{}: {line}", command.get_name())));
        command.get_subcommands().for_each(|command| visit(command, wide));
    }
    let mut wide = Vec::new();
    visit(&Cli::command(), &mut wide);
    assert_eq!(wide, [""; 0], "lines of help wider than {COLUMNS} columns");
}

/// Help and documents name the capabilities that the daemon uses for AF_XDP and for the kernel fast path, and
/// no others.
#[cfg(feature = "xdp")]
#[test]
fn the_rights_that_help_and_documents_name_are_those_that_the_daemon_uses() {
    let used: std::collections::BTreeSet<String> = gatun_daemon::capabilities_of_xdp().collect();
    let named = |text: &str| -> std::collections::BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_uppercase() && c != '_');
        words.filter(|word| word.starts_with("CAP_")).map(str::to_owned).collect()
    };
    let cli = Cli::command();
    let help = cli.find_subcommand("run").unwrap().get_after_help().unwrap().to_string();
    let fastpath: std::collections::BTreeSet<String> = gatun_daemon::capabilities_of_fastpath().collect();
    assert_eq!(named(&help), &used | &fastpath, "{help}");
    let page = fs::read_to_string(docs().join("how-to/xdp.md")).unwrap();
    assert_eq!(named(&page), used, "docs/how-to/xdp.md");
    let page = fs::read_to_string(docs().join("how-to/fastpath.md")).unwrap();
    assert_eq!(named(&page), fastpath, "docs/how-to/fastpath.md");
    for backend in ["AF_XDP", "DPDK"] {
        assert!(help.contains(backend), "{backend}");
    }
}

/// Words of a `gatun` command in a document, without prompt, redirections and comments; `None` for other
/// commands.
fn words(line: &str) -> Option<Vec<String>> {
    let mut line = line.trim_start().trim_start_matches(['$', '#']).trim_start();
    while let Some(rest) = line.strip_prefix("sudo ").or_else(|| inside_namespace(line)) {
        line = rest;
    }
    let line = line.strip_prefix("target/release/").unwrap_or(line);
    // After these come another command, a comment, or a column with the purpose.
    let ends = [" && ", " || ", " | ", " >", " 2>", " &", " # ", "  "];
    let end = ends.iter().filter_map(|end| line.find(end)).min().unwrap_or(line.len());
    let line = without_substitutions(&line[..end]);
    line.starts_with("gatun ").then(|| split(&line))
}

/// Words of a line. Quotes keep blanks together.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut quote) = (vec![String::new()], None);
    for c in line.chars() {
        match quote {
            Some(end) if c == end => quote = None,
            None if c == '"' || c == '\'' => quote = Some(c),
            None if c.is_whitespace() => words.push(String::new()),
            _ => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Line with `X` in place of `$(command)` and `$variable`.
fn without_substitutions(line: &str) -> String {
    let mut parts = line.split('$');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = match part.strip_prefix('(') {
            Some(part) => part.split_once(')').map_or("", |(_, rest)| rest),
            None => part.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_'),
        };
        text.push('X');
        text.push_str(rest);
    }
    text
}

fn inside_namespace(line: &str) -> Option<&str> {
    line.strip_prefix("ip netns exec ")?.split_once(' ').map(|(_, rest)| rest)
}

/// True if the only error is a placeholder for a value, such as HASH.
fn is_placeholder(error: &clap::Error) -> bool {
    match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => value.chars().all(|c| c.is_ascii_uppercase()),
        _ => false,
    }
}

/// Lines with commands in the code blocks of a document.
fn shown(text: &str) -> Vec<&str> {
    let mut language = None;
    let mut lines = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("```"), language) {
            (Some(word), None) => language = Some(word.trim()),
            (Some(_), Some(_)) => language = None,
            (None, Some("sh")) => lines.push(line),
            (None, Some("console")) => lines.extend(line.starts_with('$').then_some(line)),
            (None, Some(_)) => {}
            (None, None) => lines.extend(line.strip_prefix("    ")),
        }
    }
    lines
}

#[test]
fn commands_in_documents_parse() {
    // tests/book runs most of them; this test covers the rest as well.
    let folders = ["tutorials", "how-to", "reference", "explanation"].map(|folder| docs().join(folder));
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths.filter(|path| path.extension().is_some_and(|e| e == "md")).collect();
    files.push(docs().join("../README.md"));
    let mut count = 0;
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for words in shown(&text).into_iter().filter_map(words) {
            if let Err(error) = Cli::try_parse_from(&words) {
                let is_fine = is_placeholder(&error) || error.kind() == ErrorKind::DisplayVersion;
                assert!(is_fine, "{}: {}\n{error}", file.display(), words.join(" "));
            }
            count += 1;
        }
    }
    assert!(count > 30, "{count} commands");
}

#[test]
fn commands_are_extracted_from_lines() {
    let found = |line| words(line).map(|words| words.join(" "));
    assert_eq!(found("sudo target/release/gatun check a.toml  # so").as_deref(), Some("gatun check a.toml"));
    assert_eq!(
        found("$ ip netns exec isp gatun run a.toml >log 2>&1 &").as_deref(),
        Some("gatun run a.toml")
    );
    assert_eq!(found("systemctl restart gatun"), None);
    assert_eq!(
        found("$ gatun who $seen --at $(date -u +%FT%TZ) || echo $?").as_deref(),
        Some("gatun who X --at X")
    );
    assert!(Cli::try_parse_from(words("gatun shwo status").unwrap()).is_err());
}
