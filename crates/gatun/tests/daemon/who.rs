//! Holder of a public port by the daemon's state and by its log, which agree.

use crate::harness::{CREATE, Daemon, gatun, in_lab, network};
use rustix::process::Signal;
use std::time::{Duration, Instant};

const STORE: &str = "/run/gatun-who-test/store";

/// A pool by formula, a pool by chance, and an address mapping.
fn config() -> String {
    format!(
        "{CREATE}
[[pool]]
name = \"det\"
prefixes = \"192.0.2.1\"
allocation = {{ kind = \"deterministic\", inside = [\"100.64.0.0/29\"], size = 1024 }}
[[nat44]]
name = \"homes\"
pool = \"det\"
inside = [\"100.64.0.0/29\"]
[[pool]]
name = \"any\"
prefixes = \"192.0.2.2\"
[[nat64]]
name = \"lab\"
pool = \"any\"
pool6 = \"2001:db8:64::/96\"
[[siit]]
name = \"dc\"
eam = [{{ v4 = \"192.0.2.9\", v6 = \"2001:db8:5::9\" }}, {{ v4 = \"192.0.2.16/29\", v6 = \"2001:db8:6::/64\" }}]
[log]
directory = \"{STORE}\"
"
    )
}

/// Exit status and text of `gatun who`.
fn who(arguments: &[&str]) -> (i32, String) {
    let output = gatun(["who"].into_iter().chain(arguments.iter().copied()));
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

/// Asks the log once it has the configuration. (That there is no holder is proven only for the time before
/// its last receipt.)
fn who_had(end: &str) -> (i32, String) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let (code, text) = who(&[end, "--at", "0s ago", "--store", STORE]);
        if code != 3 || Instant::now() > deadline {
            return (code, text);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_daemon_and_its_log_name_the_same_holder() {
    in_lab("who::the_daemon_and_its_log_name_the_same_holder", || {
        let net = network();
        let daemon = Daemon::start(&net, &config());
        for (end, code, now, then) in [
            (
                "192.0.2.1:2100",
                0,
                "belong to subscriber 100.64.0.1/32 (homes); no binding at this moment",
                "subscriber 100.64.0.1/32 of homes",
            ),
            (
                "192.0.2.9:80",
                0,
                "192.0.2.9 is mapped one to one to 2001:db8:5::9 (siit `dc`)",
                "2001:db8:5::9",
            ),
            (
                "192.0.2.18:80",
                0,
                "mapped one to one to 2001:db8:6:0:4000::/67 (siit `dc`)",
                "2001:db8:6:0:4000::/67",
            ),
            ("192.0.2.2:40000", 1, "port 40000 is not in use", ""),
            ("203.0.113.1:80", 1, "203.0.113.1 is not in a pool, and no mapping covers it", ""),
        ] {
            let (live_code, live) = who(&[end]);
            assert!(live.contains(now), "{end}: {live}");
            assert_eq!(live_code, code, "{end}: {live}");
            if code == 0 {
                let (past_code, past) = who_had(end);
                assert!(past_code == 0 && past.contains(then), "{end}: {past}");
            }
        }
        // Only the daemon's configuration gives these answers, so another one gives others.
        daemon.reload(&config().replace("2001:db8:5::9", "2001:db8:5::10"), "reload: done");
        assert!(who(&["192.0.2.9:80"]).1.contains("2001:db8:5::10"));
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_prefix_that_covers_an_address_leaves_its_host_unknown() {
    in_lab("who::a_prefix_that_covers_an_address_leaves_its_host_unknown", || {
        let net = network();
        let config = format!("{CREATE}[[siit]]\nname = \"dc\"\npool6 = \"2001:db8:64::/96\"\n");
        let daemon = Daemon::start(&net, &config);
        let (code, text) = who(&["198.51.100.7:80"]);
        assert!(
            code == 3 && text.contains("UNKNOWN: 198.51.100.7 has no mapping; siit `dc`"),
            "{code} {text}"
        );
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn without_an_answer_the_holder_is_unknown() {
    let missing = "/nonexistent/gatun.sock";
    for arguments in [
        &["192.0.2.1:80", "--socket", missing][..],
        &["192.0.2.1:80", "--at", "1h ago", "--store", "/nonexistent"],
        &["192.0.2.1:80", "--at", "1h ago", "--socket", missing],
    ] {
        let (code, text) = who(arguments);
        assert!(code == 3 && text.contains("UNKNOWN"), "{arguments:?}: {code} {text}");
    }
    assert_eq!(who(&["192.0.2.1:80", "-o", "csv"]).0, 2);
    let verified = gatun(["log", "verify", "--store", "/nonexistent"]);
    let text = String::from_utf8(verified.stderr).unwrap();
    assert!(verified.status.code() == Some(3) && text.contains("UNKNOWN"), "{text}");
}
