//! Events of the daemon, and memory checks before its start.

use crate::harness::{CREATE, Daemon, NAT64, in_lab, network, ping};
use gatun_testkit::topology::SERVER;
use rustix::process::Signal;
use serde_json::Value;
use std::process::Command;
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
fn a_full_disk_stops_events_but_not_packets() {
    in_lab("events::a_full_disk_stops_events_but_not_packets", || {
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
fn tables_that_exceed_memory_are_refused_before_a_device_is_created() {
    in_lab("events::tables_that_exceed_memory_are_refused_before_a_device_is_created", || {
        let net = network();
        let huge = "[[pool]]\nprefixes = \"198.18.0.0/15\"\n[[nat64]]\npool6 = \"2001:db8:64::/96\"\n\
                    [limits]\nsessions_max = 268435456\nsubscribers_max = 268435456\n";
        let mut daemon = Daemon::spawn(&net, &format!("{CREATE}{huge}"), &[]);
        let status = daemon.process.wait(Duration::from_secs(10)).unwrap();
        assert!(!status.success());
        let stderr = daemon.stderr();
        assert!(
            stderr.contains(" of memory, and the machine has ") && stderr.contains("sessions_max"),
            "{stderr}"
        );
        assert!(net.translator.ip("link show dev nat64").is_err(), "no device was left, or ever made");
    });
}

#[test]
fn a_reload_starts_moves_and_stops_events() {
    in_lab("events::a_reload_starts_moves_and_stops_events", || {
        let net = network();
        let none = format!("{CREATE}{NAT64}");
        let to = |file: &str| format!("{none}{}", EVENTS.replace("stdout", file));
        let daemon = Daemon::start(&net, &none);
        let show = || {
            gatun_testkit::output(
                Command::new(env!("CARGO_BIN_EXE_gatun")).args(["show", "events", "--follow"]),
            )
            .unwrap()
        };
        let refused = String::from_utf8(show().stderr).unwrap();
        assert!(refused.contains("events are switched off"), "{refused}");
        assert!(ping(&net.client, 1, SERVER, ""));
        let files = ["one", "two"].map(|name| daemon.file().with_file_name(name).display().to_string());
        let lines = |file: &str| std::fs::read_to_string(file).unwrap_or_default().lines().count();
        for (n, file) in files.iter().enumerate() {
            let told = daemon.reload(&to(file), "reload: done");
            assert!(told.contains(&format!("[events]: written to {file}")), "{told}");
            assert!(ping(&net.client, 1, SERVER, ""));
            let wait = || lines(file) > 1;
            gatun_testkit::wait_until("an event", Duration::from_secs(10), wait).unwrap();
            assert_eq!((n, lines(&files[0])), (n, 2), "the first file does not have two lines");
        }
        // A pipe without a reader is refused without a wait.
        let pipe = daemon.file().with_file_name("pipe").display().to_string();
        gatun_testkit::run(Command::new("mkfifo").arg(&pipe)).unwrap();
        let told = daemon.reload(&to(&pipe), "nothing has changed");
        assert!(told.contains("[events]: cannot write to"), "{told}");
        let told = daemon.reload(&to("/proc/gatun"), "nothing has changed");
        assert!(told.contains("[events]: cannot write to /proc/gatun"), "{told}");
        let told = daemon.reload(&to(&files[1]).replace("kinds", "ring = 128\nkinds"), "nothing has changed");
        assert!(told.contains("events: ring"), "{told}");
        let told = daemon.reload(&none, "reload: done");
        assert!(told.contains("no longer written to") && told.contains("are no longer made"), "{told}");
        assert!(ping(&net.client, 1, SERVER, ""));
        let refused = String::from_utf8(show().stderr).unwrap();
        assert!(refused.contains("events are switched off"), "{refused}");
        daemon.stop(Signal::TERM);
        assert_eq!(lines(&files[1]), 2);
    });
}
