//! The commands about configuration, as a user runs them.

use std::path::PathBuf;
use std::process::{Command, Output};

fn gatun(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gatun")).args(args).output().unwrap()
}

fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("gatun-cli-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn what_init_writes_is_what_check_accepts_and_nothing_is_written_over() {
    let dir = scratch("init");
    for mode in ["nat64", "siit"] {
        let file = dir.join(format!("{mode}.toml"));
        let file = file.to_str().unwrap();
        let written = gatun(&["init", "--mode", mode, "--output", file]);
        assert!(written.status.success(), "{written:?}");
        let checked = gatun(&["check", file]);
        assert!(checked.status.success(), "{checked:?}");
        assert!(String::from_utf8_lossy(&checked.stdout).starts_with(&format!("{file}: OK\n")));
        assert!(checked.stderr.is_empty(), "{checked:?}");
        let again = gatun(&["init", "--mode", mode, "--output", file]);
        assert_eq!(again.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&again.stderr).contains("--force"));
        assert!(gatun(&["init", "--mode", mode, "--output", file, "--force"]).status.success());
    }
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn check_says_all_errors_one_a_line_and_exits_with_1() {
    let dir = scratch("check");
    let file = dir.join("bad.toml");
    std::fs::write(&file, "[[nat64]]\npool6 = \"64:ff9b::/95\"\nsubscribr = \"/64\"\n").unwrap();
    let checked = gatun(&["check", file.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(1));
    let said = String::from_utf8(checked.stderr).unwrap();
    assert!(said.contains("bad.toml:2:9: error: "), "{said}");
    assert!(said.contains("bad.toml:3:1: error: unknown key `subscribr`"), "{said}");
    assert!(said.ends_with("3 errors\n"), "{said}");
    let json = gatun(&["check", "--json", file.to_str().unwrap()]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&json["ok"], json["problems"].as_array().map(Vec::len)),
        (&serde_json::json!(false), Some(3))
    );
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn completions_and_manual_pages_are_made_for_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = String::from_utf8(gatun(&["completions", shell]).stdout).unwrap();
        assert!(script.contains("translate") && script.contains("check"), "{shell}");
    }
    let dir = scratch("man");
    assert!(gatun(&["man", dir.to_str().unwrap()]).status.success());
    for page in ["gatun.1", "gatun-run.1", "gatun-check.1", "gatun-init.1", "gatun-translate.1"] {
        assert!(dir.join(page).exists(), "{page}");
    }
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn help_shows_examples_and_version_the_version() {
    let help = String::from_utf8(gatun(&["--help"]).stdout).unwrap();
    assert!(help.contains("Examples:"), "{help}");
    let version = String::from_utf8(gatun(&["--version"]).stdout).unwrap();
    assert_eq!(version, format!("gatun {}\n", env!("CARGO_PKG_VERSION")));
}
