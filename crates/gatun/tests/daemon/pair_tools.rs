//! Commands and metrics about a pair of boxes: `gatun peer`, `gatun doctor`, `gatun show`. None of them shows a
//! key.

use crate::harness::{CREATE, Daemon, NAT64, gatun, has_users, in_lab, network, program};
use crate::pair::{STANDBY, certificates, kill, lab, peer, socket, start, until, until_synced};
use gatun_api::types::{Peer, PeerMember, PeerState};
use gatun_testkit::{PairNetwork, wait_until};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::process::Output;
use std::time::Duration;

/// Runs a command at a box. Returns the exit status, and what it has written.
pub(crate) fn at(net: &PairNetwork, number: usize, args: &str) -> (i32, String) {
    let mut command = net.boxes[number].command(program());
    command.args(args.split_whitespace()).args(["--socket", &socket(number)]);
    let Output { status, stdout, stderr } = gatun_testkit::output(&mut command).unwrap();
    let text = [stdout, stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    (status.code().unwrap(), text)
}

pub(crate) fn metrics(number: usize) -> String {
    let client = gatun_api::client::Client::new(socket(number));
    let mut text = String::new();
    std::io::Read::read_to_string(&mut client.open("GET", "/metrics", &[]).unwrap(), &mut text).unwrap();
    text
}

#[test]
fn a_lost_box_is_reported_everywhere_and_an_operator_takes_over() {
    lab("pair_tools::a_lost_box_is_reported_everywhere_and_an_operator_takes_over", || {
        certificates(STANDBY.pki);
        let net = PairNetwork::new().unwrap();
        let first = start(&net, 0, STANDBY);
        let mut second = start(&net, 1, STANDBY);
        until_synced();
        assert_eq!(at(&net, 0, "peer status --quiet"), (0, String::new()));
        let (_, found) = at(&net, 0, "doctor");
        assert!(found.contains("both boxes have the same sessions"), "{found}");
        let text = metrics(0);
        assert!(
            text.contains("\ngatun_peer_synced 1\n") && text.contains("\ngatun_peer_connected 1\n"),
            "{text}"
        );
        assert!(text.contains("\ngatun_peer_shard_owned{shard=\"0\"} 1\n"), "{text}");
        let (status, said) = at(&net, 0, "peer takeover --yes");
        assert!(status == 1 && said.contains("the peer is connected"), "{said}");

        kill(&mut second);
        until(0, "the connection is lost", |peer| peer.state == PeerState::Alone);
        let (status, said) = at(&net, 0, "peer status");
        assert!(status == 1 && said.contains("member a: NOT connected to"), "{said}");
        let (_, said) = at(&net, 0, "show status");
        assert!(said.contains("needs attention: the other box of the pair is not connected"), "{said}");
        let (status, found) = at(&net, 0, "doctor");
        assert!(status == 1 && found.contains("WRONG peer: not connected to"), "{found}");
        assert!(metrics(0).contains("\ngatun_peer_connected 0\n"));
        let (status, said) = at(&net, 0, "peer release");
        assert!(status == 1 && said.contains("the peer is not connected"), "{said}");
        let (status, said) = at(&net, 0, "peer drill");
        assert!(status == 1 && said.contains("state: alone"), "{said}");

        let (status, said) = at(&net, 0, "peer takeover --yes");
        assert!(status == 0 && said == "this box owns all public addresses\n", "{said}");
        assert!(peer(0).peer_gone && metrics(0).contains("\ngatun_peer_gone 1\n"));
        no_secrets(&net, &first);
    });
}

/// Logs, API and commands show nothing of the private key.
fn no_secrets(net: &PairNetwork, daemon: &Daemon) {
    let key = std::fs::read_to_string(format!("{}/a/key.pem", STANDBY.pki)).unwrap();
    let line = key.lines().find(|line| !line.starts_with("-----")).unwrap();
    let client = gatun_api::client::Client::new(socket(0));
    let api: serde_json::Value = client.get("/v1/peer").unwrap();
    let shown = [
        daemon.stderr(),
        at(net, 0, "config show").1,
        at(net, 0, "show status -o json").1,
        metrics(0),
        api.to_string(),
    ];
    for text in shown {
        assert!(text.len() > 10 && !text.contains(line) && !text.contains("PRIVATE"), "{text}");
    }
}

#[test]
fn a_new_certificate_is_used_without_a_break_of_the_connection() {
    lab("pair_tools::a_new_certificate_is_used_without_a_break_of_the_connection", || {
        certificates(STANDBY.pki);
        let net = PairNetwork::new().unwrap();
        let boxes = [0, 1].map(|number| start(&net, number, STANDBY));
        until_synced();
        let before = peer(0);
        let pki = STANDBY.pki;
        let renewed = gatun(
            format!("peer renew {pki}/authority {pki}/a {pki}/b --days 10").split(' ').collect::<Vec<_>>(),
        );
        assert!(renewed.status.success(), "{}", String::from_utf8_lossy(&renewed.stderr));
        for daemon in &boxes {
            daemon.process.signal(rustix::process::Signal::HUP).unwrap();
        }
        for number in 0..2 {
            until(number, "the new certificate is in use", |peer| {
                peer.certificate_end_s < before.certificate_end_s
            });
            assert_eq!(peer(number).state, PeerState::Synced);
        }
        assert_eq!(peer(0).counters.connections, before.counters.connections);
        // Its end is near.
        let (_, said) = at(&net, 0, "show status");
        assert!(said.contains("the certificate of the pair ends in "), "{said}");
        let (_, found) = at(&net, 0, "doctor");
        assert!(found.contains("the certificate of the pair ends in "), "{found}");
    });
}

#[test]
fn the_user_of_the_daemon_reads_the_certificates_at_start_and_after_renew() {
    in_lab("pair_tools::the_user_of_the_daemon_reads_the_certificates_at_start_and_after_renew", || {
        if !has_users() {
            return gatun_testkit::skip("a user namespace with one user cannot switch: run it as root");
        }
        certificates("/run/pki");
        let net = network();
        let config = format!(
            "{CREATE}{NAT64}[state]\ndirectory = \"off\"\n\
             [peer]\nmember = \"a\"\nlisten = \"127.0.0.1:7464\"\ndirectory = \"/run/pki/a\"\n"
        );
        let as_user = ["--user", "65534:65533"];
        let refused = Daemon::spawn(&net, &config, &as_user).wait();
        let why =
            "[peer] /run/pki/a/ca.pem: Permission denied (os error 13): the user that gatun runs as must";
        assert!(!refused.success && refused.stderr.contains(why), "{}", refused.stderr);

        let files = ["ca.pem", "certificate.pem", "key.pem"].map(|name| format!("/run/pki/a/{name}"));
        for path in files.iter().map(String::as_str).chain(["/run/pki", "/run/pki/a"]) {
            chown(path, Some(65534), Some(65533)).unwrap();
        }
        chown(&files[2], Some(65534), Some(65532)).unwrap();
        let daemon = Daemon::spawn(&net, &config, &as_user);
        daemon.says("translating with");
        let end = || {
            let peer: Peer = gatun_api::client::Client::new(gatun_api::SOCKET).get("/v1/peer").unwrap();
            peer.certificate_end_s.unwrap()
        };
        let before = end();
        let renewed = gatun(["peer", "renew", "/run/pki/authority", "/run/pki/a", "--days", "10"]);
        assert!(renewed.status.success(), "{}", String::from_utf8_lossy(&renewed.stderr));
        let key = fs::metadata(&files[2]).unwrap();
        assert_eq!((key.uid(), key.gid(), key.mode() & 0o777), (65534, 65532, 0o600));
        daemon.process.signal(rustix::process::Signal::HUP).unwrap();
        let waited = wait_until("the new certificate is in use", Duration::from_secs(30), || end() < before);
        assert!(waited.is_ok(), "{}", daemon.stderr());
    });
}

#[test]
fn a_box_that_runs_is_never_to_be_taken_over() {
    lab("pair_tools::a_box_that_runs_is_never_to_be_taken_over", || {
        certificates(STANDBY.pki);
        certificates("/run/other-pki");
        let net = PairNetwork::new().unwrap();
        let _first = start(&net, 0, STANDBY);
        until(0, "it waits", |peer| peer.state == PeerState::Waiting && peer.reason.is_some());
        for command in ["doctor", "peer status"] {
            let (_, said) = at(&net, 0, command);
            assert!(said.contains("gatun peer takeover"), "{said}");
        }
        let mut other = STANDBY;
        other.pki = "/run/other-pki";
        let _strange = start(&net, 1, other);
        until(0, "the certificates differ", |peer| {
            peer.reason.as_ref().is_some_and(|why| why.contains("certificate"))
        });
        for command in ["doctor", "peer status"] {
            let (_, said) = at(&net, 0, command);
            assert!(said.contains("assigns no ports") && !said.contains("takeover"), "{said}");
        }
    });
}

#[test]
fn a_release_that_cannot_be_saved_is_refused() {
    lab("pair_tools::a_release_that_cannot_be_saved_is_refused", || {
        certificates(STANDBY.pki);
        let net = PairNetwork::new().unwrap();
        let _boxes = [0, 1].map(|number| start(&net, number, STANDBY));
        until_synced();
        // Nothing can be written in the place of a directory.
        let file = "/run/gatun-0/state/peer.json";
        std::fs::remove_file(file).unwrap();
        std::fs::create_dir(file).unwrap();
        let (status, said) = at(&net, 0, "peer release");
        assert!(status == 1 && said.contains("cannot write peer.json"), "{said}");
        for number in 0..2 {
            let peer = peer(number);
            assert_eq!((peer.state, peer.shards[0].owner), (PeerState::Synced, PeerMember::A));
        }
        std::fs::remove_dir(file).unwrap();
        let (status, said) = at(&net, 0, "peer release");
        assert!(status == 0 && said.contains("owns all public addresses"), "{said}");
        until(1, "b owns all", |peer| peer.shards[0].owner == PeerMember::B);
    });
}
