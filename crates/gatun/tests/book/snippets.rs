//! Settings of other programs in the documents are checked by these programs.

use crate::{markdown, read, root};
use std::process::Command;

/// Checkers by the beginning of the file's name.
const CHECKERS: [(&str, &[&str]); 5] = [
    ("unbound", &["unbound-checkconf"]),
    ("named", &["named-checkconf"]),
    ("radvd", &["radvd", "-c", "-C"]),
    ("bird", &["bird", "-p", "-c"]),
    ("keepalived", &["keepalived", "-t", "-f"]),
];

/// Result of a checker for a text; `None` if it is not installed.
fn check(checker: &[&str], name: &str, text: &str) -> Option<Result<(), String>> {
    let file = std::env::temp_dir().join(format!("gatun-book-{}-{name}", std::process::id()));
    std::fs::write(&file, text).expect("the file can be written");
    let path = std::env::var("PATH").unwrap_or_default();
    let output = gatun_testkit::output(
        Command::new("env").arg(format!("PATH={path}:/usr/sbin:/sbin")).args(checker).arg(&file),
    )
    .expect("env is there");
    std::fs::remove_file(&file).expect("the file can be removed");
    let said = [output.stdout, output.stderr].concat();
    match output.status.code() {
        Some(0) => Some(Ok(())),
        // Exit status of `env` for a program that does not exist.
        Some(127) => None,
        _ => Some(Err(String::from_utf8_lossy(&said).into_owned())),
    }
}

/// Checks all files for one program, and that its checker detects an error.
fn all_of(kind: &str) {
    let (_, checker) = CHECKERS.iter().find(|(name, _)| *name == kind).expect("a checker");
    let blocks =
        ["docs/how-to/neighbours.md", "docs/how-to/announce.md"].map(|page| markdown::blocks(&read(page)));
    let blocks = blocks.concat();
    let files: Vec<_> = blocks
        .iter()
        .filter_map(|block| Some((block.text.lines().next()?.strip_prefix("# ")?, block)))
        .filter(|(name, _)| name.starts_with(kind))
        .collect();
    assert!(!files.is_empty(), "no page has anything for {kind}");
    for (name, block) in files {
        match check(checker, name, &block.text) {
            None => return gatun_testkit::skip(&format!("the program `{}` is missing", checker[0])),
            Some(answer) => assert_eq!(answer, Ok(()), "{name}, line {}", block.line),
        }
        let broken = format!("{}\n}} nonsense {{\n", block.text);
        assert!(check(checker, name, &broken).is_some_and(|answer| answer.is_err()), "{kind} finds no fault");
    }
}

#[test]
fn unbound_accepts_its_settings() {
    all_of("unbound");
}

#[test]
fn bind_accepts_its_settings() {
    all_of("named");
}

#[test]
fn radvd_accepts_its_settings() {
    all_of("radvd");
}

#[test]
fn bird_accepts_its_settings() {
    all_of("bird");
}

/// A network may move from the own table to the backup table: a routing daemon that does not learn both would
/// withdraw it.
#[test]
fn bird_learns_both_tables_of_each_family_wherever_it_learns_one() {
    let folders =
        ["docs/tutorials", "docs/how-to"].map(|folder| std::fs::read_dir(root().join(folder)).unwrap());
    let pages = folders.into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut found = 0;
    for page in pages {
        for block in markdown::blocks(&std::fs::read_to_string(&page).unwrap()) {
            let learnt = |table: &str, family: &str| {
                let lines = block.text.lines().filter(|line| line.contains("learn;"));
                lines.filter(|line| line.contains(table) && line.contains(family)).count()
            };
            let counts = ["ipv4 {", "ipv6 {"]
                .map(|family| [learnt("kernel table 186;", family), learnt("kernel table 187;", family)]);
            if counts.iter().flatten().sum::<usize>() > 0 {
                assert_eq!(counts, [[1; 2]; 2], "{}, line {}", page.display(), block.line);
                found += 1;
            }
        }
    }
    assert!(found >= 4, "{found} configurations");
}

#[test]
fn keepalived_accepts_its_settings() {
    all_of("keepalived");
}

#[test]
fn gatun_check_accepts_every_example_and_documented_configuration() {
    let examples = std::fs::read_dir(root().join("examples")).expect("the folder is there");
    let examples = examples.map(|entry| entry.expect("the folder can be read").path());
    let mut texts: Vec<_> = examples
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .map(|path| (path.display().to_string(), std::fs::read_to_string(&path).expect("it can be read")))
        .collect();
    assert!(texts.len() >= 3);
    // Other blocks show parts of a file, for one key.
    for document in ["docs/how-to/dpdk.md", "docs/how-to/xdp.md"] {
        let blocks = markdown::blocks(&read(document)).into_iter().filter(|block| block.language == "toml");
        texts.extend(blocks.map(|block| (format!("{document}:{}", block.line), block.text)));
    }
    for (name, text) in texts {
        let answer = check(&[env!("CARGO_BIN_EXE_gatun"), "check"], "gatun.toml", &text);
        assert_eq!(answer, Some(Ok(())), "{name}");
    }
}
