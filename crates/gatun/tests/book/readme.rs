//! What the README shows has to work.

use crate::shell::Shell;
use crate::{markdown, read};
use std::process::Command;

fn readme() -> String {
    read("README.md")
}

#[test]
fn gatun_check_accepts_every_configuration_of_the_readme() {
    let blocks = markdown::blocks(&readme()).into_iter().filter(|block| block.language == "toml");
    let blocks: Vec<_> = blocks.map(|block| block.text).collect();
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

/// The lines of the README's blocks of commands, without comments.
fn commands() -> Vec<String> {
    let blocks = markdown::blocks(&readme()).into_iter().filter(|block| block.language == "sh");
    let text: String = blocks.map(|block| block.text).collect();
    text.lines().map(|line| line.split('#').next().unwrap_or_default().trim().to_owned()).collect()
}

#[test]
fn every_command_of_the_readme_works_with_every_configuration_of_it() {
    let test = "readme::every_command_of_the_readme_works_with_every_configuration_of_it";
    gatun_testkit::run_test(test, gatun_testkit::refusal, || {
        let configurations = markdown::blocks(&readme()).into_iter().filter(|block| block.language == "toml");
        let mut shell = Shell::new().unwrap();
        for configuration in configurations {
            shell.save("gatun.toml", &configuration.text).unwrap();
            for command in commands() {
                give(&mut shell, &command);
            }
        }
    });
}

/// Gives a command as the tests have it: built, and as root.
fn give(shell: &mut Shell, command: &str) {
    if let Some(target) = command.strip_prefix("make ") {
        assert!(read("Makefile").contains(&format!("\n{target}:")), "{command}");
        return;
    }
    // What it does has been done already.
    if command == "cargo build --release" {
        return;
    }
    let command = command.trim_start_matches("sudo ");
    let command = command.strip_prefix("target/release/").unwrap_or_else(|| panic!("not tried: {command}"));
    let mut step = |line: &str| {
        let shown = shell.step(line).unwrap();
        assert!(shown.failed.is_empty(), "{line}: {}\n{}", shown.failed, shown.text);
    };
    if !command.starts_with("gatun run ") {
        return step(command);
    }
    // Until Ctrl-C.
    step(&format!("{command} >log 2>&1 &"));
    step("for i in $(seq 100); do grep -q 'translating with' log && break; sleep 0.1; done; cat log");
    step("grep -q 'translating with' log; gatun show status; kill %%; wait %%");
}
