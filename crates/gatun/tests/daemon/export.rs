//! Events to collectors: one that starts late, and some that are added, changed and removed under traffic.

use crate::harness::{CREATE, Daemon, NAT64, in_lab, network, ping};
use gatun_testkit::topology::SERVER;
use gatun_testkit::{Process, Topology, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(10);

// proves: LOG-5, LOG-4
#[test]
fn a_collector_that_comes_later_gets_what_was_spooled_and_metrics_tell_of_it() {
    in_lab("export::a_collector_that_comes_later_gets_what_was_spooled_and_metrics_tell_of_it", || {
        let net = network();
        net.translator.ip("link set lo up").unwrap();
        let export = "[[export]]\nname = \"siem\"\nto = \"tcp:127.0.0.1:601\"\nformat = \"json\"\n\
                      kinds = [\"binding_created\"]\nspool = \"/run/gatun-spool-test\"\n";
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}{export}"));
        assert!(ping(&net.client, 2, SERVER, ""));
        let deadline = Instant::now() + Duration::from_secs(10);
        let metrics = || {
            let line = "curl -s --unix-socket /run/gatun/api.sock http://gatun/metrics";
            net.translator.run(line).unwrap()
        };
        let is_spooled = |metrics: &str| {
            metrics.contains("gatun_export_waiting_events{export=\"siem\"} 0\n")
                && !metrics.contains("gatun_export_spool_bytes{export=\"siem\"} 0\n")
        };
        while !is_spooled(&metrics()) {
            assert!(Instant::now() < deadline, "{}", metrics());
            std::thread::sleep(Duration::from_millis(20));
        }
        let got = "/run/gatun-export-test";
        let collector = ["-u", "TCP-LISTEN:601", &format!("CREATE:{got}")];
        let _collector = Process::start(net.translator.command("socat").args(collector)).unwrap();
        while !std::fs::read_to_string(got).unwrap_or_default().contains("\"event\":\"binding_created\"") {
            assert!(Instant::now() < deadline, "{}", daemon.stderr());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(metrics().contains("gatun_export_lost_events_total{export=\"siem\"} 0"), "{}", metrics());
        let ended = daemon.stop(Signal::TERM);
        let said = |what: &str| assert!(ended.stderr.contains(what), "{}", ended.stderr);
        said("export siem: cannot connect to tcp:127.0.0.1:601");
        said("events are spooled");
        said("export siem: connected to tcp:127.0.0.1:601 again");
    });
}

fn said(args: &[&str]) -> (bool, String) {
    let output = crate::harness::gatun(args.iter().copied());
    let text = [output.stderr, output.stdout].map(|text| String::from_utf8(text).unwrap()).concat();
    (output.status.success(), text)
}

fn metrics(net: &Topology) -> String {
    net.translator.run("curl -s --unix-socket /run/gatun/api.sock http://gatun/metrics").unwrap()
}

/// Opens sessions from the client one by one, until the file /run/enough exists.
fn sessions(net: &Topology) -> Process {
    let line = format!("while [ ! -e /run/enough ]; do ping -q -c 1 -W 5 {SERVER} || echo lost; done");
    Process::start(net.client.command("sh").args(["-c", &format!("({line}) > /run/pings")])).unwrap()
}

/// Outside ports of `session_created` events in a file.
fn begun(file: &str) -> Vec<u64> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    let lines = whole.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|e| e["event"] == "session_created").map(|e| e["outside_port"].as_u64().unwrap()).collect()
}

/// The same from nfcapd's files, read by nfdump.
fn collected(directory: &str) -> Vec<u64> {
    let (nfdump, sort) = (&mut Command::new("nfdump"), ["-q", "-o", "json", "-R", directory]);
    let output = gatun_testkit::output(nfdump.env("TZ", "UTC").args(sort)).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let records: Vec<Value> =
        serde_json::from_str(&format!("[{}]", text.trim().trim_matches(['[', ']']))).unwrap_or_default();
    let created = records.iter().filter(|r| r["nat_event"] == "NAT64 session create");
    created.map(|r| r["src_xlt_port"].as_str().unwrap().parse().unwrap()).collect()
}

fn listen(net: &Topology, port: u16, file: &str) -> Process {
    let arguments = ["-u".to_owned(), format!("TCP-LISTEN:{port}"), format!("CREATE:{file}")];
    let process = Process::start(net.translator.command("socat").args(arguments)).unwrap();
    let listens = || net.translator.run("ss -Hltn").unwrap().contains(&format!(":{port} "));
    wait_until("the collector", SOON, listens).unwrap();
    process
}

// proves: LOG-2, LOG-5
#[test]
fn collectors_come_change_and_go_while_packets_flow_and_the_others_lose_nothing() {
    in_lab("export::collectors_come_change_and_go_while_packets_flow_and_the_others_lose_nothing", || {
        let net = network();
        net.translator.ip("link set lo up").unwrap();
        let (kept, truth) = ("/run/gatun-nfcapd", "/run/gatun-truth");
        let places = ["/run/gatun-siem-1", "/run/gatun-siem-2"];
        fs::create_dir(kept).unwrap();
        // nfcapd keeps shared memory keyed by the directory's inode, and leaves it behind when it is killed.
        let nfcapd = ["-i", "nfcapd", "-b", "127.0.0.1", "-p", "4739", "-t", "2", "-w", kept];
        let nfcapd = Process::start(net.translator.command("unshare").args(nfcapd)).unwrap();
        let listens = || net.translator.run("ss -Hlun").unwrap().contains(":4739 ");
        wait_until("nfcapd", SOON, listens).unwrap();
        let kinds = "kinds = [\"session_created\", \"session_deleted\"]\n";
        let flows = format!(
            "[[export]]\nname = \"flows\"\nto = \"udp:127.0.0.1:4739\"\ndestinations = true\n{kinds}"
        );
        let one = format!("{CREATE}{NAT64}[events]\nfile = \"{truth}\"\n{kinds}{flows}");
        let siem = |port: u16| {
            format!("[[export]]\nname = \"siem\"\nto = \"tcp:127.0.0.1:{port}\"\nformat = \"json\"\n{kinds}")
        };
        let daemon = Daemon::start(&net, &one);
        let mut pings = sessions(&net);
        wait_until("sessions", SOON, || begun(truth).len() > 5).unwrap();
        // Add a collector at a port unknown at start.
        let _first = listen(&net, 7001, places[0]);
        let two = format!("{one}{}", siem(7001));
        fs::write("/run/two.toml", &two).unwrap();
        let (good, text) = said(&["config", "diff", "/run/two.toml"]);
        assert!(good && text.contains("[[export]] siem: tcp:127.0.0.1:7001 is a new collector"), "{text}");
        let (good, text) = said(&["config", "apply", "/run/two.toml", "--yes"]);
        assert!(good && text.contains("ended: 0 sessions, 0 bindings, 0 port blocks"), "{text}");
        wait_until("the new one hears", SOON, || begun(places[0]).len() > 5).unwrap();
        // Move it to another port.
        let _second = listen(&net, 7002, places[1]);
        let told = daemon.reload(&format!("{one}{}", siem(7002)), "reload: done");
        assert!(told.contains("[[export]] siem: to tcp:127.0.0.1:7001 -> tcp:127.0.0.1:7002"), "{told}");
        assert!(!told.contains("[[export]] flows"), "{told}");
        wait_until("it hears elsewhere", SOON, || begun(places[1]).len() > 5).unwrap();
        assert!(metrics(&net).contains("gatun_export_connected{export=\"siem\"} 1"), "{}", metrics(&net));
        // Reduce its kinds over the same connection, then remove it.
        let fewer = siem(7002).replace(", \"session_deleted\"", "");
        let told = daemon.reload(&format!("{one}{fewer}"), "reload: done");
        assert!(told.contains("[[export]] siem: kinds: its connection stays"), "{told}");
        let before = begun(places[1]).len();
        wait_until("it hears on", SOON, || begun(places[1]).len() > before + 5).unwrap();
        let told = daemon.reload(&one, "reload: done");
        assert!(told.contains("[[export]] siem: tcp:127.0.0.1:7002 is removed"), "{told}");
        assert!(!metrics(&net).contains("siem") && metrics(&net).contains("{export=\"flows\"}"));
        let heard = begun(truth).len();
        wait_until("packets flow on", SOON, || begun(truth).len() > heard + 5).unwrap();
        fs::write("/run/enough", "").unwrap();
        assert!(pings.wait(SOON).unwrap().success());
        assert!(!fs::read_to_string("/run/pings").unwrap().contains("lost"));
        let ended = daemon.stop(Signal::TERM);
        assert!(!ended.stderr.contains("are lost"), "{}", ended.stderr);
        let all = begun(truth);
        wait_until("nfcapd has written", SOON, || collected(kept).len() >= all.len()).unwrap();
        drop(nfcapd);
        let mut got = collected(kept);
        let mut sorted = all.clone();
        [&mut got, &mut sorted].into_iter().for_each(|ports| ports.sort_unstable());
        assert_eq!(got, sorted, "what went on has lost something");
        // Both places together have all events between its start and its end.
        let heard: Vec<u64> = places.iter().flat_map(|place| begun(place)).collect();
        let from = all.iter().position(|port| *port == heard[0]).unwrap();
        assert_eq!(heard, all[from..from + heard.len()]);
        assert!(from > 0 && from + heard.len() < all.len(), "{from}, {} of {}", heard.len(), all.len());
        let output = gatun_testkit::output(Command::new("nfdump").args(["-I", "-R", kept])).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let failures = text.lines().find(|line| line.starts_with("Sequence failures")).unwrap();
        assert!(failures.ends_with(": 0"), "{text}");
    });
}

// proves: LOG-4
#[test]
fn a_collector_that_cannot_be_had_changes_nothing_and_one_that_goes_keeps_its_spool() {
    in_lab(
        "export::a_collector_that_cannot_be_had_changes_nothing_and_one_that_goes_keeps_its_spool",
        || {
            let net = network();
            net.translator.ip("link set lo up").unwrap();
            let one = format!("{CREATE}{NAT64}");
            let kinds = "kinds = [\"binding_created\"]\nformat = \"json\"\n";
            let export = |name: &str, port: u16, more: &str| {
                format!("[[export]]\nname = \"{name}\"\nto = \"tcp:127.0.0.1:{port}\"\n{kinds}{more}")
            };
            let daemon = Daemon::start(&net, &one);
            let _good = listen(&net, 7001, "/run/gatun-good");
            // Together with a valid collector and another address.
            let bad = export("bad", 7002, "spool = \"/proc/gatun\"\n");
            let both =
                format!("{one}{}{bad}", export("good", 7001, "")).replace("192.0.2.1\"\n", "192.0.2.4\"\n");
            let both = both.replace("192.0.2.1:5002", "192.0.2.4:5002");
            fs::write("/run/both.toml", &both).unwrap();
            let why = "[[export]] bad: cannot use its spool /proc/gatun";
            let (good, text) = said(&["config", "diff", "/run/both.toml"]);
            assert!(!good && text.contains(why), "{text}");
            let (good, text) = said(&["config", "apply", "/run/both.toml", "--yes"]);
            assert!(!good && text.contains(why), "{text}");
            let told = daemon.reload(&both, "nothing has changed");
            assert!(told.contains(why), "{told}");
            assert!(ping(&net.client, 1, SERVER, ""));
            assert!(!metrics(&net).contains("export=") && net.translator.run("ss -Htn").unwrap().is_empty());
            assert!(net.translator.run("ip route show dev nat64").unwrap().contains("192.0.2.1"));
            // A log needs a restart.
            let told = daemon
                .reload(&format!("{one}[log]\ndirectory = \"/run/gatun-log\"\n"), "nothing has changed");
            assert!(told.contains("needs a restart: [log]: on, off or its directory"), "{told}");
            assert!(fs::metadata("/run/gatun-log").is_err());
            // An absent collector with a spool beside the configuration. The next collector of its name gets
            // the spool.
            let spool = daemon.file().parent().unwrap().join("spool");
            let spool = format!("spool = \"{}\"\n", spool.display());
            let told = daemon.reload(&format!("{one}{}", export("siem", 7003, &spool)), "reload: done");
            assert!(told.contains("events: binding_created are made"), "{told}");
            assert!(ping(&net.client, 1, SERVER, "") && ping(&net.client, 1, SERVER, ""));
            let is_spooled = || {
                let metrics = metrics(&net);
                metrics.contains("gatun_export_waiting_events{export=\"siem\"} 0\n")
                    && !metrics.contains("gatun_export_spool_bytes{export=\"siem\"} 0\n")
            };
            wait_until("the spool", SOON, is_spooled).unwrap();
            daemon.reload(&one, "remain in the spool in");
            assert!(ping(&net.client, 1, SERVER, ""));
            let _late = listen(&net, 7004, "/run/gatun-late");
            daemon.reload(&format!("{one}{}", export("siem", 7004, &spool)), "reload: done");
            assert!(ping(&net.client, 1, SERVER, ""));
            let lines = || fs::read_to_string("/run/gatun-late").unwrap_or_default().lines().count();
            wait_until("what was spooled, and what is new", SOON, || lines() >= 3).unwrap();
            daemon.stop(Signal::TERM);
            assert_eq!(lines(), 3, "none of when there was no collector");
        },
    );
}
