//! What the README shows has to work.

use std::path::Path;
use std::process::Command;

fn readme() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    std::fs::read_to_string(path).expect("README.md is part of the repository")
}

/// The contents of the fenced blocks of one language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let open = format!("```{language}\n");
    text.split(&open)
        .skip(1)
        .filter_map(|rest| rest.split_once("```"))
        .map(|(block, _)| block.to_owned())
        .collect()
}

#[test]
fn gatun_check_accepts_every_configuration_of_the_readme() {
    let blocks = blocks(&readme(), "toml");
    assert!(blocks.len() >= 2, "the README shows a stateful and a stateless configuration");
    for (i, block) in blocks.iter().enumerate() {
        let file = std::env::temp_dir().join(format!("gatun-readme-{}-{i}.toml", std::process::id()));
        std::fs::write(&file, block).expect("the file can be written");
        let output = Command::new(env!("CARGO_BIN_EXE_gatun")).arg("check").arg(&file).output();
        let output = output.expect("gatun starts");
        std::fs::remove_file(&file).expect("the file can be removed");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{block}\n{said}");
    }
}

#[test]
fn every_command_that_the_readme_names_exists() {
    let text = readme();
    let mut named = 0;
    for rest in text.split("gatun ").skip(1) {
        let name: String = rest.chars().take_while(char::is_ascii_lowercase).collect();
        if matches!(name.as_str(), "check" | "run" | "init" | "translate") {
            let status = Command::new(env!("CARGO_BIN_EXE_gatun")).args([&name, "--help"]).output();
            assert!(status.expect("gatun starts").status.success(), "gatun {name}");
            named += 1;
        }
    }
    assert!(named >= 4, "the README names gatun's commands");
    let makefile = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Makefile"));
    let makefile = makefile.expect("the Makefile is part of the repository");
    for target in ["demo", "test"] {
        assert!(
            text.contains(&format!("make {target}")) && makefile.contains(&format!("\n{target}:")),
            "make {target}"
        );
    }
}

#[test]
fn every_file_that_the_readme_links_to_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for link in
        readme().split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link.to_owned())
    {
        assert!(root.join(&link).exists(), "{link}");
    }
}
