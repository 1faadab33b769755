//! What the daemon tells of its state, and what it does before it has any.

use crate::harness::{CREATE, Daemon, NAT64, in_lab, network, ping};
use gatun_lab::topology::SERVER;
use rustix::process::Signal;
use serde_json::Value;
use std::time::Duration;

const EVENTS: &str = r#"
[events]
file = "stdout"
kinds = ["session_created", "session_deleted", "binding_created", "block_assigned"]
"#;

// proves: LOG-5, R68-16
#[test]
fn events_come_out_as_json_a_line_each() {
    in_lab("events::events_come_out_as_json_a_line_each", || {
        let net = network();
        let blocks = NAT64.replacen(
            "prefixes = \"192.0.2.1\"\n",
            "name = \"res\"\nprefixes = \"192.0.2.1\"\nallocation = \"blocks\"\n",
            1,
        );
        let daemon = Daemon::start(&net, &format!("{CREATE}{blocks}{EVENTS}"));
        assert!(ping(&net.client, 2, SERVER, ""));
        let ended = daemon.stop(Signal::TERM);
        let lines = ended.stdout.lines().filter(|line| line.starts_with('{'));
        let events: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
        let kinds: Vec<&str> = events.iter().map(|e| e["event"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["block_assigned", "binding_created", "session_created"], "{}", ended.stdout);
        for e in &events {
            assert_eq!(
                (&e["instance"], &e["pool"], &e["outside"]),
                (&"lab".into(), &"res".into(), &"192.0.2.1".into())
            );
            let time = e["time"].as_str().unwrap();
            assert!(time.starts_with("20") && time.ends_with('Z') && time.len() == 24, "{time}");
        }
        let block = &events[0];
        assert_eq!(block["subscriber"], "2001:db8:1::/64");
        assert_eq!(block["protocols"], serde_json::json!(["tcp", "udp", "icmp"]));
        let ports = [&block["outside_ports"][0], &block["outside_ports"][1]].map(|p| p.as_u64().unwrap());
        assert_eq!((ports[0] % 256, ports[1] - ports[0]), (0, 255));
        let session = &events[2];
        assert_eq!((&session["inside"], &session["protocols"][0]), (&"2001:db8:1::2".into(), &"icmp".into()));
        assert!((ports[0]..=ports[1]).contains(&session["outside_port"].as_u64().unwrap()));
        assert!(session.get("remote").is_none(), "nobody asked for destinations");
    });
}

#[test]
fn a_full_disk_stops_events_and_not_packets_and_is_told() {
    in_lab("events::a_full_disk_stops_events_and_not_packets_and_is_told", || {
        let net = network();
        let full = EVENTS.replace("\"stdout\"", "\"/dev/full\"");
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}{full}"));
        assert!(ping(&net.client, 2, SERVER, ""));
        let ended = daemon.stop(Signal::TERM);
        let said = |text: &str| assert!(ended.stderr.contains(text), "{}", ended.stderr);
        said("events: cannot write to /dev/full: No space left on device");
        said("events: the last 2 are missing in /dev/full");
    });
}

#[test]
fn tables_that_cannot_be_had_are_refused_before_a_device_is_made() {
    in_lab("events::tables_that_cannot_be_had_are_refused_before_a_device_is_made", || {
        let net = network();
        let huge = "[[pool]]\nprefixes = \"198.18.0.0/15\"\n[[nat64]]\npool6 = \"2001:db8:64::/96\"\n\
                    [limits]\nsessions_max = 268435456\nsubscribers_max = 268435456\n";
        let mut daemon = Daemon::spawn(&net, &format!("{CREATE}{huge}"), &[]);
        let status = daemon.process.wait(Duration::from_secs(10)).unwrap();
        assert!(!status.success());
        let stderr = daemon.stderr();
        assert!(
            stderr.contains("the tables of 1 worker need") && stderr.contains("sessions_max"),
            "{stderr}"
        );
        assert!(net.translator.ip("link show dev nat64").is_err(), "no device was left, or ever made");
    });
}
