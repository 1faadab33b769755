//! Notifications to systemd, and its units.

use crate::harness::{CREATE, Daemon, NAT64, in_lab, network};
use rustix::process::Signal;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::{Duration, Instant};

const UNITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");

/// Receives the next notification.
fn told(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 1024];
    let n = socket.recv(&mut buffer).expect("something is told");
    String::from_utf8(buffer[..n].to_vec()).unwrap()
}

/// Receives the next notification that begins with `what`; skips watchdog messages.
fn told_of(socket: &UnixDatagram, what: &str) -> String {
    loop {
        let message = told(socket);
        if message != "WATCHDOG=1" || what == message {
            assert!(message.starts_with(what), "{message}");
            return message;
        }
    }
}

#[test]
fn systemd_is_notified_of_start_reload_stop_and_watchdog() {
    in_lab("service::systemd_is_notified_of_start_reload_stop_and_watchdog", || {
        let net = network();
        let socket = UnixDatagram::bind("/run/notify").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let config = format!("{CREATE}{NAT64}");
        let environment = [("NOTIFY_SOCKET", "/run/notify"), ("WATCHDOG_USEC", "200000")];
        let daemon = Daemon::spawn_in(&net, &config, &[], (None, None), &environment);
        assert_eq!(told(&socket), "READY=1\nSTATUS=translating with 1 worker");
        // A separate thread writes the log.
        gatun_testkit::wait_until("the log", Duration::from_secs(5), || {
            daemon.stderr().contains("translating with 1 worker")
        })
        .unwrap();
        let begin = Instant::now();
        (0..5).for_each(|_| drop(told_of(&socket, "WATCHDOG=1")));
        assert!(begin.elapsed() >= Duration::from_millis(400), "the notifications are too frequent");
        daemon.reload(&format!("{config}[timeouts]\nudp = \"7m\"\n"), "reload: done");
        assert!(told_of(&socket, "RELOADING=1\n").contains("MONOTONIC_USEC="));
        told_of(&socket, "READY=1\n");
        // The daemon goes on without the reader.
        daemon.process.signal(Signal::TERM).unwrap();
        told_of(&socket, "STOPPING=1\n");
        assert!(daemon.wait().success);
        drop(socket);
        let mut deaf = Daemon::spawn_in(&net, &config, &[], (None, None), &environment);
        gatun_testkit::wait_until("a start", Duration::from_secs(5), || {
            deaf.stderr().contains("translating with")
        })
        .unwrap();
        assert!(deaf.process.ended().is_none());
        deaf.stop(Signal::TERM);
    });
}

#[test]
fn the_units_are_valid_and_restrictive() {
    if let Some(why) = gatun_testkit::missing(&[("systemd-analyze", "systemd")]) {
        return gatun_testkit::skip(&why);
    }
    let analyze = |args: &[&str]| {
        let output =
            gatun_testkit::output(Command::new("systemd-analyze").args(args).current_dir(UNITS)).unwrap();
        let said = [output.stdout, output.stderr].map(|out| String::from_utf8(out).unwrap()).concat();
        (output.status.success(), said)
    };
    let (_, said) = analyze(&[
        "verify",
        "--man=no",
        "gatun.service",
        "run-gatun-state.mount",
        "run-gatun-fastpath.mount",
    ]);
    let odd = said.lines().filter(|line| !line.contains("Command /usr/bin/gatun is not executable"));
    assert_eq!(odd.collect::<Vec<_>>(), Vec::<&str>::new());
    // 0 is fully restricted, 100 unrestricted.
    let (content, said) = analyze(&["security", "--offline=true", "--threshold=40", "gatun.service"]);
    assert!(content, "{said}");
}

#[test]
fn the_unit_permits_the_sandbox_and_the_package_reloads_systemd() {
    let unit = std::fs::read_to_string(format!("{UNITS}/gatun.service")).unwrap();
    let calls: Vec<&str> = unit
        .lines()
        .filter_map(|line| line.strip_prefix("SystemCallFilter="))
        .flat_map(str::split_whitespace)
        .collect();
    // @system-service contains none of these.
    for call in ["seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"] {
        assert!(calls.contains(&call), "{call} is not in {calls:?}");
    }
    // systemd drops root's rights before the program starts.
    let value = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    assert_eq!((value("User"), value("Group")), (Some("gatun"), Some("gatun")));
    assert_eq!(value("AmbientCapabilities"), value("CapabilityBoundingSet"));
    for right in ["CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE", "CAP_SETUID", "CAP_SETPCAP"] {
        assert!(!value("CapabilityBoundingSet").unwrap().contains(right), "{right}");
    }
    let users = std::fs::read_to_string(format!("{UNITS}/gatun.sysusers")).unwrap();
    assert!(users.lines().any(|line| line.starts_with("u gatun - ")), "{users}");
    // Without this directory cargo-deb silently omits the scripts.
    let manifest = include_str!("../../Cargo.toml");
    assert!(manifest.contains("\nmaintainer-scripts = \"../../packaging/debian\"\n"));
    for script in ["postinst", "prerm", "postrm"] {
        let text = std::fs::read_to_string(format!("{UNITS}/debian/{script}")).unwrap();
        assert!(text.contains("\n#DEBHELPER#\n"), "{script}");
    }
}
