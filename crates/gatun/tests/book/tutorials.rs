//! Tests that follow each tutorial: every command runs, in order, in network namespaces, and its output is
//! compared with the text. See `steps.rs` for the blocks.
//!
//! A tutorial has no hidden comments. Each block is run, saved as a file, or is a picture (`text`).

use crate::shell::Shell;
use crate::steps::{self, Step};
use crate::{read, root};
use std::collections::BTreeSet;

/// Runs a test in a sandbox; `programs` have to be installed.
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
    for step in steps::steps(&read(document)) {
        let Step::Block(block, None) = step else { panic!("{document} hides something: {step:?}") };
        let is_known =
            block.language == "text" || steps::has_commands(&block) || steps::file_name(&block).is_some();
        assert!(is_known, "{document}:{}: a file's first line is `# NAME`", block.line);
        steps::take(&mut shell, document, &block, None);
    }
    let left = shell.step("ip netns list; ls; ls /etc/netns").unwrap().text;
    assert_eq!(left.trim(), "", "{document} cleans up behind itself");
}

#[test]
fn the_first_five_minutes_work() {
    follow("the_first_five_minutes_work", &["ping", "python3", "curl"], || {
        read_and_do("docs/tutorials/start.md");
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
fn a_p4_switch_translates_a_download_while_gatun_is_killed() {
    follow(
        "a_p4_switch_translates_a_download_while_gatun_is_killed",
        &["ethtool", "python3", "curl"],
        || {
            read_and_do("docs/tutorials/p4.md");
        },
    );
}

#[test]
fn a_router_takes_the_other_of_two_boxes() {
    follow("a_router_takes_the_other_of_two_boxes", &["bird", "python3", "curl"], || {
        read_and_do("docs/tutorials/two-boxes.md");
    });
}

#[test]
fn a_download_survives_a_box_of_a_pair() {
    follow("a_download_survives_a_box_of_a_pair", &["bird", "python3", "curl"], || {
        read_and_do("docs/tutorials/pair.md");
    });
}

#[test]
fn a_download_survives_a_node_of_a_cluster() {
    let programs = ["bird", "etcd", "etcdctl", "python3", "curl"];
    follow("a_download_survives_a_node_of_a_cluster", &programs, || {
        read_and_do("docs/tutorials/cluster.md");
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
