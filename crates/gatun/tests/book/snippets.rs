//! Settings of other programs that the documents show are given to these programs' own checkers.

use crate::{markdown, read, root};
use std::process::Command;

/// How a file of that name is checked: the beginning of its name, then the checker.
const CHECKERS: [(&str, &[&str]); 4] = [
    ("unbound", &["unbound-checkconf"]),
    ("named", &["named-checkconf"]),
    ("radvd", &["radvd", "-c", "-C"]),
    ("bird", &["bird", "-p", "-c"]),
];

/// A checker's answer to a text, or `None` where it is not installed.
fn check(checker: &[&str], name: &str, text: &str) -> Option<Result<(), String>> {
    let file = std::env::temp_dir().join(format!("gatun-book-{}-{name}", std::process::id()));
    std::fs::write(&file, text).expect("the file can be written");
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("env")
        .arg(format!("PATH={path}:/usr/sbin:/sbin"))
        .args(checker)
        .arg(&file)
        .output()
        .expect("env is there");
    std::fs::remove_file(&file).expect("the file can be removed");
    let said = [output.stdout, output.stderr].concat();
    match output.status.code() {
        Some(0) => Some(Ok(())),
        // What env says of a program that is not there.
        Some(127) => None,
        _ => Some(Err(String::from_utf8_lossy(&said).into_owned())),
    }
}

/// Checks all files that are for one program, and that its checker finds a fault at all.
fn all_of(kind: &str) {
    let (_, checker) = CHECKERS.iter().find(|(name, _)| *name == kind).expect("a checker");
    let blocks = markdown::blocks(&read("docs/neighbours.md"));
    let files: Vec<_> = blocks
        .iter()
        .filter_map(|block| Some((block.text.lines().next()?.strip_prefix("# ")?, block)))
        .filter(|(name, _)| name.starts_with(kind))
        .collect();
    assert!(!files.is_empty(), "docs/neighbours.md has nothing for {kind}");
    for (name, block) in files {
        match check(checker, name, &block.text) {
            None => return gatun_testkit::skip(&format!("the program `{}` is missing", checker[0])),
            Some(answer) => assert_eq!(answer, Ok(()), "docs/neighbours.md:{}", block.line),
        }
        let broken = format!("{}\n}} nonsense {{\n", block.text);
        assert!(check(checker, name, &broken).is_some_and(|answer| answer.is_err()), "{kind} finds no fault");
    }
}

#[test]
fn unbound_takes_the_settings_that_are_shown_for_it() {
    all_of("unbound");
}

#[test]
fn bind_takes_the_settings_that_are_shown_for_it() {
    all_of("named");
}

#[test]
fn radvd_takes_the_settings_that_are_shown_for_it() {
    all_of("radvd");
}

#[test]
fn bird_takes_the_settings_that_are_shown_for_it() {
    all_of("bird");
}

#[test]
fn gatun_check_takes_every_example_and_every_configuration_of_a_document() {
    let examples = std::fs::read_dir(root().join("examples")).expect("the folder is there");
    let examples = examples.map(|entry| entry.expect("the folder can be read").path());
    let mut texts: Vec<_> = examples
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .map(|path| (path.display().to_string(), std::fs::read_to_string(&path).expect("it can be read")))
        .collect();
    assert!(texts.len() >= 3);
    // Pieces of files, about one key, are shown elsewhere.
    for document in ["README.md", "docs/xdp.md"] {
        let blocks = markdown::blocks(&read(document)).into_iter().filter(|block| block.language == "toml");
        texts.extend(blocks.map(|block| (format!("{document}:{}", block.line), block.text)));
    }
    for (name, text) in texts {
        let answer = check(&[env!("CARGO_BIN_EXE_gatun"), "check"], "gatun.toml", &text);
        assert_eq!(answer, Some(Ok(())), "{name}");
    }
}
