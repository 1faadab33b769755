//! Every command of a tutorial is given, in order, on one machine's namespaces, and the screen compared with what the
//! tutorial says it shows.
//!
//! - a block `sh` is given as it is, and no command of it may fail;
//! - a block `console` has commands behind `$ `, each followed by what it shows;
//! - any other block whose first line is `# NAME` is a file of that name;
//! - blocks `text` are pictures. Nothing else is allowed.

use crate::markdown::{self, Block};
use crate::shell::Shell;
use crate::{read, root, screen};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long the screen may take to show what is told: what was started a moment ago may not be up yet.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs a test in a sandbox, with programs that have to be there.
fn follow(test: &str, programs: &[&str], body: fn()) {
    let missing = || {
        let missing = programs.iter().find(|program| gatun_testkit::find_program(program).is_none())?;
        Some(format!("the program `{missing}` is missing"))
    };
    let refusal = || gatun_testkit::refusal_but_to_root("a tutorial").or_else(missing);
    gatun_testkit::run_test(&format!("tutorials::{test}"), refusal, body);
}

fn read_and_do(document: &str) {
    let mut shell = Shell::new().unwrap();
    shell.step("mkdir -p /etc/netns").unwrap();
    for block in markdown::blocks(&read(document)) {
        let at = format!("{document}:{}", block.line);
        match block.language.as_str() {
            "text" => {}
            "sh" => {
                let shown = shell.step(&block.text).unwrap();
                assert!(shown.failed.is_empty(), "{at}: failed: {}\n{}", shown.failed, shown.text);
            }
            "console" => talk(&mut shell, &at, &block.text),
            _ => shell.save(file_name(&at, &block), &block.text).unwrap(),
        }
    }
    let left = shell.step("ip netns list; ls; ls /etc/netns").unwrap().text;
    assert_eq!(left.trim(), "", "{document} cleans up behind itself");
}

fn file_name<'a>(at: &str, block: &'a Block) -> &'a str {
    let first = block.text.lines().next().and_then(|line| line.strip_prefix("# "));
    first.unwrap_or_else(|| panic!("{at}: a file's first line is `# NAME`")).trim()
}

/// Commands with what each shows.
fn dialogue(text: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            found.push((command.to_owned(), String::new()));
        } else {
            let (command, told) = found.last_mut().expect("a block of console begins with a command");
            let part = if goes_on { command } else { told };
            if !part.is_empty() {
                part.push('\n');
            }
            part.push_str(line);
        }
        goes_on = (goes_on || line.starts_with("$ ")) && line.ends_with('\\');
    }
    found
}

fn talk(shell: &mut Shell, at: &str, text: &str) {
    for (command, told) in dialogue(text) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let shown = shell.step(&command).unwrap().text;
            if screen::is_as_told(&told, &shown) {
                break;
            }
            assert!(Instant::now() < deadline, "{at}: {command}\n--- is to show\n{told}\n--- shows\n{shown}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn the_first_five_minutes_go_as_they_are_told() {
    follow("the_first_five_minutes_go_as_they_are_told", &["ping", "python3", "curl"], || {
        read_and_do("docs/start.md");
    });
}

#[test]
fn a_campus_reaches_ipv4_through_unbound_and_gatun() {
    let programs = ["unbound", "dig", "python3", "curl"];
    follow("a_campus_reaches_ipv4_through_unbound_and_gatun", &programs, || {
        read_and_do("docs/tutorials/campus.md");
    });
}

#[test]
fn a_home_reaches_ipv4_from_a_network_without_it() {
    follow(
        "a_home_reaches_ipv4_from_a_network_without_it",
        &["radvd", "unbound", "nft", "python3", "curl"],
        || {
            read_and_do("docs/tutorials/home.md");
        },
    );
}

#[test]
fn a_provider_knows_from_its_log_who_had_a_port() {
    follow("a_provider_knows_from_its_log_who_had_a_port", &["socat"], || {
        read_and_do("docs/tutorials/isp.md");
    });
}

// proves: XLAT-1
#[test]
fn a_program_of_ipv4_alone_passes_a_clat_and_a_plat() {
    follow("a_program_of_ipv4_alone_passes_a_clat_and_a_plat", &["python3", "curl", "traceroute"], || {
        read_and_do("docs/tutorials/464xlat.md");
    });
}

#[test]
fn ipv4_clients_reach_the_ipv6_servers_of_a_data_centre() {
    follow("ipv4_clients_reach_the_ipv6_servers_of_a_data_centre", &["python3", "curl"], || {
        read_and_do("docs/tutorials/data-centre.md");
    });
}

#[test]
fn every_tutorial_is_followed_by_a_test() {
    let tests = include_str!("tutorials.rs");
    let folder = std::fs::read_dir(root().join("docs/tutorials")).unwrap();
    let there: BTreeSet<_> = folder.map(|entry| entry.unwrap().file_name()).collect();
    assert!(!there.is_empty());
    for file in there {
        let call = format!("read_and_do(\"docs/tutorials/{}\")", file.to_string_lossy());
        assert!(tests.contains(&call), "no test follows docs/tutorials/{}", file.to_string_lossy());
    }
}

#[test]
fn a_dialogue_is_commands_and_what_they_show() {
    let text = "$ one \\\n  and a half\nshown\nmore\n$ two\n$ three\nend\n";
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(
        dialogue(text),
        [pair("one \\\n  and a half", "shown\nmore"), pair("two", ""), pair("three", "end")]
    );
}
