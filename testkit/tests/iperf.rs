//! Measurements with iperf3, and with stand-ins that are busy, fail or hang.

use gatun_testkit::{Error, Iperf, Namespace, missing, refusal, run_test};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

fn in_lab(test: &str, body: fn()) {
    let needed = || missing(&[("iperf3", "iperf3"), ("ss", "iproute2")]);
    run_test(test, || refusal().or_else(needed), body);
}

/// Two connected hosts; /run belongs to the sandbox.
fn hosts() -> (Namespace, Namespace) {
    let (client, server) = (Namespace::new("client").unwrap(), Namespace::new("server").unwrap());
    client.connect("eth0", &server, "eth0").unwrap();
    client.address("eth0", "198.51.100.1/24").unwrap();
    server.address("eth0", "198.51.100.2/24").unwrap();
    (client, server)
}

/// A program that runs `script` as the client, and iperf3 otherwise.
fn stand_in(script: &str) -> String {
    let path = "/run/stand-in".to_owned();
    let text = format!("#!/bin/sh\ncase \"$*\" in *-c*) {script} ;; esac\nexec iperf3 \"$@\"\n");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn measure(program: &str, max: Duration) -> Result<String, Error> {
    let (client, server) = hosts();
    let arguments = "-c 198.51.100.2 -t 1 --connect-timeout 3000";
    Iperf { program, server: &server, client: &client, arguments, max }.measure()
}

const BUSY: &str = "echo x >>/run/asked; [ $(wc -l </run/asked) -gt TIMES ] || \
    { echo '{ \"error\": \"error - the server is busy running a test. try again later\" }'; exit 1; }";

#[test]
fn a_server_that_is_busy_twice_is_asked_a_third_time() {
    in_lab("a_server_that_is_busy_twice_is_asked_a_third_time", || {
        let json = measure(&stand_in(&BUSY.replace("TIMES", "2")), Duration::from_secs(20)).unwrap();
        assert!(json.contains("\"sum_received\""), "{json}");
        assert_eq!(fs::read_to_string("/run/asked").unwrap().lines().count(), 3);
    });
}

#[test]
fn a_server_that_stays_busy_is_an_error_after_four_attempts() {
    in_lab("a_server_that_stays_busy_is_an_error_after_four_attempts", || {
        let Error(why) =
            measure(&stand_in(&BUSY.replace("TIMES", "99")), Duration::from_secs(20)).unwrap_err();
        assert!(why.contains("the server is busy") && why.ends_with("(4 attempts)"), "{why}");
    });
}

#[test]
fn another_failure_is_not_retried_and_keeps_its_message() {
    in_lab("another_failure_is_not_retried_and_keeps_its_message", || {
        let fails = "echo x >>/run/asked; echo '{ \"error\": \"out of ideas\" }'; exit 1";
        let Error(why) = measure(&stand_in(fails), Duration::from_secs(20)).unwrap_err();
        assert!(why.contains("out of ideas") && !why.contains("attempts"), "{why}");
        assert_eq!(fs::read_to_string("/run/asked").unwrap().lines().count(), 1);
    });
}

#[test]
fn a_client_that_hangs_is_killed_and_reported() {
    in_lab("a_client_that_hangs_is_killed_and_reported", || {
        let begin = Instant::now();
        let Error(why) = measure(&stand_in("exec sleep 60"), Duration::from_secs(1)).unwrap_err();
        assert!(why.contains("still running after 1 s"), "{why}");
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    });
}

#[test]
fn measurements_in_a_row_meet_no_busy_server_on_a_busy_machine() {
    in_lab("measurements_in_a_row_meet_no_busy_server_on_a_busy_machine", || {
        let hog = || {
            gatun_testkit::Process::start(
                std::process::Command::new("sh").args(["-c", "while :; do :; done"]),
            )
        };
        let _hogs: Vec<_> = (0..4).map(|_| hog().unwrap()).collect();
        let (client, server) = hosts();
        let max = Duration::from_secs(30);
        for arguments in
            ["-c 198.51.100.2 -n 1M", "-c 198.51.100.2 -n 1M -R", "-c 198.51.100.2 -n 1M -P 10"].repeat(3)
        {
            let run = Iperf { program: "iperf3", server: &server, client: &client, arguments, max };
            run.measure().unwrap_or_else(|e| panic!("{arguments}: {e}"));
        }
    });
}
