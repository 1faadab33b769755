//! Port log, written by a daemon and queried with and without one.

use crate::harness::{CREATE, Daemon, NAT64, in_lab, network, ping};
use gatun_testkit::topology::SERVER;
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn config(store: &str, subscriber: &str) -> String {
    let blocks = NAT64.replacen(
        "prefixes = \"192.0.2.1\"\n",
        "name = \"res\"\nprefixes = \"192.0.2.1\"\nallocation = \"blocks\"\n",
        1,
    );
    let blocks =
        blocks.replacen("name = \"lab\"", &format!("name = \"lab\"\nsubscriber = \"{subscriber}\""), 1);
    format!("{CREATE}{blocks}[log]\ndirectory = \"{store}\"\n")
}

fn gatun(arguments: &[&str]) -> (bool, String, String) {
    let output = crate::harness::gatun(arguments.iter().copied());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

/// Lines of the log, once they have an event of that name.
fn lines(store: &str, event: &str) -> Vec<Value> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let (_, out, _) = gatun(&["log", "show", "--store", store]);
        let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        if lines.iter().any(|line| line["event"] == event) {
            return lines;
        }
        assert!(Instant::now() < deadline, "no {event} in {out}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn event(lines: &[Value], name: &str) -> Value {
    lines.iter().find(|line| line["event"] == name).unwrap().clone()
}

fn wait_for_configurations(store: &str, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let all = lines(store, "block_assigned");
        if all.iter().filter(|line| line["mark"] == "config").count() == count {
            return;
        }
        assert!(Instant::now() < deadline, "not {count} configurations in {all:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn who(store: &str, port: u64, at: &str) -> Value {
    let (_, out, err) =
        gatun(&["who", &format!("192.0.2.1:{port}"), "--at", at, "--store", store, "-o", "json"]);
    serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"))
}

// proves: R68-16
#[test]
fn the_holder_of_a_port_is_known_while_a_daemon_runs_after_it_was_killed_and_after_the_next_one() {
    in_lab(
        "log::the_holder_of_a_port_is_known_while_a_daemon_runs_after_it_was_killed_and_after_the_next_one",
        || {
            let net = network();
            let store = "/run/gatun-log-test/store";
            let daemon = Daemon::start(&net, &config(store, "/64"));
            assert!(ping(&net.client, 2, SERVER, ""));
            let logged = lines(store, "block_assigned");
            let block = event(&logged, "block_assigned");
            assert_eq!((&block["instance"], &block["pool"]), (&"lab".into(), &"res".into()), "{block}");
            let (time, port) =
                (block["time"].as_str().unwrap(), block["outside_ports"][0].as_u64().unwrap() + 7);
            let answer = who(store, port, time);
            assert_eq!(answer["holders"][0]["subscriber"], "2001:db8:1::/64", "{answer}");
            assert_eq!((&answer["holders"][0]["certain"], &answer["pool"]), (&true.into(), &"res".into()));
            // The log records the new configuration.
            let said = daemon.reload(
                &config(store, "/64").replace("[log]", "[limits]\nsessions_per_subscriber = 99\n[log]"),
                "reload: done",
            );
            assert!(!said.contains("needs a restart"), "{said}");
            wait_for_configurations(store, 2);
            daemon.process.signal(Signal::KILL).unwrap();
            drop(daemon);
            let kept = || {
                let answer = who(store, port, time);
                assert_eq!(answer["holders"][0]["subscriber"], "2001:db8:1::/64", "{answer}");
            };
            kept();
            let daemon = Daemon::start(&net, &config(store, "/64"));
            daemon.says("restored 1 session of the previous process");
            kept();
            let ended = daemon.stop(Signal::TERM);
            assert!(ended.stderr.contains("sealed, SHA-256"), "{}", ended.stderr);
            kept();
            let (_, text, _) = gatun(&["who", &format!("192.0.2.1:{port}"), "--at", time, "--store", store]);
            assert!(text.contains("subscriber 2001:db8:1::/64 of lab"), "{text}");
            // The next process has taken it over; then it ended with that.
            assert!(text.contains(" to 20") && !text.contains("no record of the end"), "{text}");

            let (well, out, _) = gatun(&["log", "verify", "--store", store]);
            assert!(well && out.contains("\nunchanged; head "), "{out}");
            wait_for_configurations(store, 3);
            // The log is unchanged; now change it.
            let segment = std::fs::read_dir(store)
                .unwrap()
                .map(|e| e.unwrap().path())
                .find(|p| p.extension().is_some_and(|e| e == "segment"));
            let mut bytes = std::fs::read(segment.as_ref().unwrap()).unwrap();
            bytes[30] ^= 1;
            std::fs::write(segment.unwrap(), bytes).unwrap();
            let (well, out, _) = gatun(&["log", "verify", "--store", store]);
            assert!(!well && out.contains("FAULT: "), "{out}");
        },
    );
}

// proves: R68-16
#[test]
fn holdings_that_a_restart_drops_or_moves_end_in_the_log() {
    in_lab("log::holdings_that_a_restart_drops_or_moves_end_in_the_log", || {
        let net = network();
        let store = "/run/gatun-log-kept/store";
        let with = |size: u16| {
            let allocation = format!("allocation = {{ kind = \"blocks\", size = {size} }}");
            let blocks = config(store, "/64").replacen("allocation = \"blocks\"", &allocation, 1);
            format!("{blocks}bindings = true\n")
        };
        let daemon = Daemon::start(&net, &with(512));
        assert!(ping(&net.client, 2, SERVER, ""));
        let binding = event(&lines(store, "binding_created"), "binding_created");
        let port = binding["outside_port"].as_u64().unwrap();
        daemon.process.signal(Signal::KILL).unwrap();
        drop(daemon);
        // The session is now in a block of another size, and the other half of the old block has no holder.
        let daemon = Daemon::start(&net, &with(256));
        let all = lines(store, "binding_kept");
        let (old, new) = (event(&all, "block_assigned"), event(&all, "block_kept"));
        let first = |block: &Value| block["outside_ports"][0].as_u64().unwrap();
        assert_eq!((first(&old), first(&new)), (port & !511, port & !255), "{all:?}");
        let now = new["time"].as_str().unwrap();
        let answer = who(store, port, now);
        let holders = answer["holders"].as_array().unwrap();
        let by = |kind: &str| -> Vec<&Value> { holders.iter().filter(|h| h["by"] == kind).collect() };
        let (blocks, bindings) = (by("block"), by("binding"));
        assert_eq!((blocks.len(), bindings.len()), (1, 1), "{answer}");
        assert_eq!((&blocks[0]["certain"], &blocks[0]["from"]), (&true.into(), &new["time"]), "{answer}");
        // The binding has continued since before the restart.
        assert_eq!(
            (&bindings[0]["certain"], &bindings[0]["from"]),
            (&true.into(), &binding["time"]),
            "{answer}"
        );
        let nobody = who(store, port ^ 256, now);
        assert_eq!(nobody["holders"].as_array().unwrap().len(), 0, "{nobody}");
        daemon.stop(Signal::TERM);
    });
}

fn status() -> Value {
    let (_, out, err) = gatun(&["show", "status", "-o", "json"]);
    serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"))
}

fn every_command_reports_that_the_log_cannot_be_written() {
    let trouble = &status()["troubles"][0];
    assert_eq!((&trouble["urgency"], &trouble["part"]), (&"bad".into(), &"log".into()), "{trouble}");
    let what = "the log cannot be written: ";
    let (_, shown, _) = gatun(&["show", "status"]);
    assert!(shown.contains(&format!("needs attention: {what}")), "{shown}");
    let (_, log, _) = gatun(&["show", "log"]);
    assert!(log.contains("CANNOT BE WRITTEN: ") && log.contains("No space left on device"), "{log}");
    let (_, top, _) = gatun(&["top", "--once"]);
    assert!(top.contains(&format!("NEEDS ATTENTION: {what}")), "{top}");
    let (well, doctor, _) = gatun(&["doctor", "--quiet"]);
    assert!(!well && doctor.contains(&format!("WRONG log: {what}")), "{doctor}");
    // Red on a terminal, unless NO_COLOR is set.
    let on_a_terminal = |more: &str| {
        let line = format!("{more} {} show status", env!("CARGO_BIN_EXE_gatun"));
        let mut script = Command::new("script");
        gatun_testkit::run(script.args(["--quiet", "--command", &line, "/dev/null"])).unwrap()
    };
    let red = format!("\u{1b}[1;31mneeds attention: {what}");
    assert!(on_a_terminal("").contains(&red) && !on_a_terminal("NO_COLOR=1").contains("\u{1b}["));
}

#[test]
fn a_log_that_cannot_be_written_is_refused_at_the_start_and_reported_later_while_packets_continue() {
    in_lab(
        "log::a_log_that_cannot_be_written_is_refused_at_the_start_and_reported_later_while_packets_continue",
        || {
            let net = network();
            let mut refused = Daemon::spawn(&net, &config("/proc/gatun", "/64"), &[]);
            assert!(!refused.process.wait(Duration::from_secs(10)).unwrap().success());
            assert!(refused.stderr().contains("[log]: cannot write to /proc/gatun"), "{}", refused.stderr());
            // A full disk.
            let place = Path::new("/run/gatun-log-full");
            std::fs::create_dir_all(place).unwrap();
            gatun_testkit::run(
                Command::new("mount").args(["-t", "tmpfs", "-o", "size=4k", "none"]).arg(place),
            )
            .unwrap();
            std::fs::write(place.join("filler"), [0; 4096]).unwrap();
            let daemon = Daemon::start(&net, &config("/run/gatun-log-full/store", "/64"));
            assert!(ping(&net.client, 2, SERVER, ""));
            let deadline = Instant::now() + Duration::from_secs(5);
            while !daemon.stderr().contains("translation continues, records wait") {
                assert!(Instant::now() < deadline, "{}", daemon.stderr());
                std::thread::sleep(Duration::from_millis(20));
            }
            every_command_reports_that_the_log_cannot_be_written();
            // Once there is room, what has waited is written.
            gatun_testkit::run(Command::new("mount").args(["-o", "remount,size=1m"]).arg(place)).unwrap();
            lines("/run/gatun-log-full/store", "block_assigned");
            let is_well = || status()["troubles"].as_array().unwrap().is_empty();
            gatun_testkit::wait_until("nothing needs attention", Duration::from_secs(5), is_well).unwrap();
            let ended = daemon.stop(Signal::TERM);
            assert!(ended.stderr.contains("log: writing again"), "{}", ended.stderr);
        },
    );
}

#[test]
fn a_shorter_retention_applies_once_it_is_confirmed() {
    in_lab("log::a_shorter_retention_applies_once_it_is_confirmed", || {
        let net = network();
        let store = "/run/gatun-log-less/store";
        let all = config(store, "/64");
        for _ in 0..2 {
            let daemon = Daemon::start(&net, &all);
            assert!(ping(&net.client, 1, SERVER, ""));
            lines(store, "block_assigned");
            daemon.stop(Signal::TERM);
        }
        let segments = || {
            let files = std::fs::read_dir(store).unwrap().map(|e| e.unwrap().path());
            files.filter(|file| file.extension().is_some_and(|e| e == "segment")).count()
        };
        let daemon = Daemon::start(&net, &all);
        daemon.says(" sealed, SHA-256");
        let before = segments();
        assert!(before >= 2, "{before}");
        let less = format!("{all}retention = \"1s\"\nsize_max = \"1 MiB\"\n");
        std::fs::write("/run/less.toml", &less).unwrap();
        // Deleted records could not be restored by a rollback.
        let (good, out, err) = gatun(&["config", "apply", "/run/less.toml", "--yes", "--confirm", "60s"]);
        let what = "[log]: retention unlimited -> 1s: older records are deleted";
        assert!(good && [&out, &err].iter().any(|text| text.contains(what)), "{out}{err}");
        std::thread::sleep(Duration::from_millis(1_500));
        assert_eq!(segments(), before);
        assert!(gatun(&["config", "rollback", "--yes"]).0);
        let said = daemon.reload(&less, "removed by the retention setting");
        assert!(said.contains(what) && said.contains("[log]: size_max unlimited -> 1.0 MiB"), "{said}");
        let is_gone = || segments() == 0;
        gatun_testkit::wait_until("all segments are gone", Duration::from_secs(10), is_gone).unwrap();
        assert!(ping(&net.client, 1, SERVER, ""));
        let said = daemon.reload(&all, "reload: done");
        assert!(said.contains("[log]: retention 1s -> unlimited"), "{said}");
        daemon.stop(Signal::TERM);
        assert!(gatun(&["log", "verify", "--store", store]).0);
    });
}

/// Opens a session from each of so many addresses of the client: as many subscribers.
fn open_from(net: &gatun_testkit::Topology, subscribers: u32) {
    const SEND: &str = "
import socket, sys
for n in range(int(sys.argv[1])):
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IPV6, 78, 1)  # IPV6_FREEBIND
    s.bind(('2001:db8:1::1:%x' % n, 0))
    s.sendto(b'x', (sys.argv[2], 9))
";
    net.client.ip("-6 route add local 2001:db8:1::1:0/112 dev lo").unwrap();
    let mut python = net.client.command("/usr/bin/python3");
    let output = gatun_testkit::output(python.args(["-c", SEND, &subscribers.to_string(), SERVER])).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_reload_that_replaces_a_pool_logs_the_end_of_every_block() {
    in_lab("log::a_reload_that_replaces_a_pool_logs_the_end_of_every_block", || {
        const SUBSCRIBERS: u32 = 2000;
        let net = network();
        let store = "/run/gatun-log-test/store";
        let events = "[events]\nfile = \"/run/gatun-log-test/events\"\n";
        let config = config(store, "/128")
            .replace("\"192.0.2.1\"", "\"192.0.2.32/27\"")
            .replace("allocation = \"blocks\"", "allocation = { kind = \"blocks\", size = 64 }")
            .replace("192.0.2.1:5002", "192.0.2.32:5002")
            + events;
        let daemon = Daemon::start(&net, &config);
        open_from(&net, SUBSCRIBERS);
        let count = |event: &str| {
            let (_, out, _) = gatun(&["log", "show", "--store", store]);
            let is = |line: &&str| line.contains(&format!("\"event\":\"{event}\""));
            u32::try_from(out.lines().filter(is).count()).unwrap()
        };
        let wait = |event: &str| {
            gatun_testkit::wait_until(event, Duration::from_secs(10), || count(event) >= SUBSCRIBERS)
                .unwrap();
        };
        wait("block_assigned");
        daemon.reload(&config.replace("192.0.2.32", "192.0.2.64"), "reload: done");
        wait("block_released");
        assert_eq!((count("block_assigned"), count("block_released")), (SUBSCRIBERS, SUBSCRIBERS));
        assert_eq!(count("events_lost"), 0);
        daemon.stop(Signal::TERM);
    });
}
