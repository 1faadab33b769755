//! Commands for a running daemon: explain, doctor, events, top, trace and drain.

use crate::harness::{CREATE, Daemon, NAT64, in_lab, network, ping};
use gatun_testkit::topology::{CLIENT, SERVER, SERVER4};
use gatun_testkit::{Process, Topology};
use rustix::process::Signal;
use serde_json::Value;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const BIN: &str = env!("CARGO_BIN_EXE_gatun");

pub(crate) fn gatun(args: &str) -> Output {
    crate::harness::gatun(args.split_whitespace())
}

/// Output and exit status of a command.
fn said(args: &str) -> (String, i32) {
    let output = gatun(args);
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.is_empty(), "gatun {args}: {err}");
    (String::from_utf8(output.stdout).unwrap(), output.status.code().unwrap())
}

fn json(args: &str) -> Value {
    let text = said(&format!("{args} -o json")).0;
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("gatun {args}: {e}: {text}"))
}

#[test]
fn explain_predicts_the_fate_and_changes_nothing() {
    in_lab("operate::explain_predicts_the_fate_and_changes_nothing", || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}[limits]\nsessions_per_subscriber = 1\n"));
        let question = format!("explain {CLIENT} {SERVER4} icmp");
        let (text, code) = said(&question);
        assert_eq!(code, 0, "{text}");
        for part in [
            &format!("icmp [{CLIENT}]:50000 -> [{SERVER}]:50000, 100 bytes\nforwarded: icmp 192.0.2.1:?"),
            &format!("-> {SERVER4}:?, 80 bytes"),
            "is in 2001:db8:64::/96 of nat64 'lab' and embeds 198.51.100.2",
            "which has no state yet: 0 of 1 session",
            "it opens a session on 192.0.2.1, random port (",
        ] {
            assert!(text.contains(part), "'{part}' is not in {text}");
        }
        let (text, code) = said(&format!("explain {SERVER4}:5 192.0.2.1:5002 tcp"));
        assert!(code == 0 && text.contains("-> [2001:db8:1::2]:5002"), "{text}");
        assert_eq!(json("show status")["sessions"], 0);
        // An unrelated packet may arrive in between.
        let is_same = || said("drops").0 == said("show drops").0;
        gatun_testkit::wait_until("the same answer", std::time::Duration::from_secs(5), is_same).unwrap();
        assert!(ping(&net.client, 1, SERVER, ""));
        // One session exists, and the limit allows no other.
        let told = json(&question);
        assert_eq!((&told["fate"], &told["reason"]), (&"dropped".into(), &"sub_sess_quota".into()), "{told}");
        assert_eq!(told["answer"], serde_json::json!({ "kind": 1, "code": 1, "mtu": null }));
        let (text, code) = said(&question);
        assert_eq!(code, 1);
        for part in [
            "dropped: sub_sess_quota\n",
            "1 of 1 session",
            "limits.sessions_per_subscriber",
            "RFC 6888 REQ-4",
        ] {
            assert!(text.contains(part), "'{part}' is not in {text}");
        }
        assert!(!ping(&net.client, 1, SERVER, "-W 1"));
        let drops = said("drops").0;
        assert!(
            drops.contains("sub_sess_quota") && drops.contains("limits.sessions_per_subscriber"),
            "{drops}"
        );
        // Packets from outside to a port without a binding.
        assert_eq!(json(&format!("explain {SERVER4}:5 192.0.2.1:5003 udp"))["reason"], "no_bib");
        assert_eq!(json(&format!("explain {SERVER4}:5 192.0.2.1:5003 tcp"))["fate"], "held");
        daemon.stop(Signal::TERM);
    });
}

/// Problems that the doctor finds in the translator's namespace, one per line, and its exit status.
pub(crate) fn doctor(net: &Topology, args: &str) -> (Vec<String>, i32) {
    let output =
        gatun_testkit::output(net.translator.command(BIN).arg("doctor").args(args.split_whitespace()))
            .unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(err.is_empty(), "{err}");
    let wrong = out.lines().filter(|line| line.starts_with("WRONG")).map(str::to_owned).collect();
    (wrong, output.status.code().unwrap())
}

/// Breaks something, expects a finding of the doctor, and repairs it.
fn broken(net: &Topology, broken: &str, mended: &str, says: &str) {
    net.translator.run(broken).unwrap();
    let (wrong, code) = doctor(net, "");
    assert!(code == 1 && wrong.iter().any(|line| line.contains(says)), "{broken}: no '{says}' in {wrong:#?}");
    net.translator.run(mended).unwrap();
    assert_eq!(doctor(net, ""), (vec![], 0), "after {mended}");
}

#[test]
fn the_doctor_reports_each_injected_fault() {
    in_lab("operate::the_doctor_reports_each_injected_fault", || {
        let net = network();
        // Without a daemon.
        let file = "/run/gatun-doctor.toml";
        std::fs::write(file, format!("{CREATE}{NAT64}")).unwrap();
        assert_eq!(doctor(&net, file), (vec![], 0));
        net.translator.sysctl("net.ipv6.conf.all.forwarding", "0").unwrap();
        assert!(doctor(&net, file).0[0].contains("the kernel does not forward IPv6"));
        net.translator.sysctl("net.ipv6.conf.all.forwarding", "1").unwrap();

        let nat44 = "[[nat44]]\nname = \"cgn\"\ninside = \"100.64.0.0/24\"\n";
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}{nat44}"));
        net.translator.sysctl("net.ipv4.conf.all.rp_filter", "0").unwrap();
        net.translator.sysctl("net.ipv4.conf.nat64.rp_filter", "0").unwrap();
        assert_eq!(doctor(&net, ""), (vec![], 0));
        let sysctl = |key: &str, value: u8| format!("sysctl -qw net.{key}={value}");
        broken(
            &net,
            &sysctl("ipv4.ip_forward", 0),
            &sysctl("ipv4.ip_forward", 1),
            "the kernel does not forward IPv4",
        );
        broken(
            &net,
            &sysctl("ipv6.conf.all.forwarding", 0),
            &sysctl("ipv6.conf.all.forwarding", 1),
            "the kernel does not forward IPv6",
        );
        broken(
            &net,
            &sysctl("ipv4.conf.nat64.rp_filter", 1),
            &sysctl("ipv4.conf.nat64.rp_filter", 0),
            "nat64 has a strict reverse path filter",
        );
        broken(
            &net,
            "ip route replace 192.0.2.1/32 via 198.51.100.2",
            "ip route replace 192.0.2.1/32 dev nat64",
            "traffic to 192.0.2.1/32 goes to outside, not to nat64",
        );
        broken(
            &net,
            // Gatun restores a route that is only deleted.
            "ip -6 route add unreachable 2001:db8:64::/96 metric 1",
            "ip -6 route del unreachable 2001:db8:64::/96 metric 1",
            "traffic to 2001:db8:64::/96 goes nowhere",
        );
        broken(
            &net,
            "ip address add 192.0.2.1/32 dev lo",
            "ip address del 192.0.2.1/32 dev lo",
            "192.0.2.1 of pool 'pool1' is an address of this host",
        );
        broken(
            &net,
            "ip link set nat64 mtu 1400",
            "ip link set nat64 mtu 1500",
            "nat64 has MTU 1400, the configuration 1500",
        );
        broken(
            &net,
            "ip link set small mtu 1000",
            "ip link set small mtu 1400",
            "small has MTU 1000; IPv6 needs 1280",
        );
        daemon.stop(Signal::TERM);
        assert_eq!(doctor(&net, "").1, 0, "nobody answers: that is no fault of the machine's");
    });
}

#[test]
fn the_doctor_checks_a_name_server_for_dns64() {
    in_lab("operate::the_doctor_checks_a_name_server_for_dns64", || {
        const SERVER: &str = "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('198.51.100.2', 53))
print('up', flush=True)
while True:
    q, who = s.recvfrom(512)
    records = [bytes.fromhex(h) for h in sys.argv[1:]]
    answer = q[:2] + b'\\x81\\x80' + q[4:6] + len(records).to_bytes(2, 'big') + bytes(4) + q[12:]
    for r in records:
        answer += b'\\xc0\\x0c\\x00\\x1c\\x00\\x01' + bytes(4) + b'\\x00\\x10' + r
    s.sendto(answer, who)
";
        let net = network();
        let file = "/run/gatun-dns64.toml";
        std::fs::write(file, format!("{CREATE}{NAT64}")).unwrap();
        let ask = format!("{file} --dns64 198.51.100.2");
        assert!(doctor(&net, &ask).0[0].contains("198.51.100.2 does not answer"));
        for (record, says) in [
            ("20010db80064000000000000c00000aa", None),
            (
                "0064ff9b0000000000000000c00000aa",
                Some("synthesises 64:ff9b::c000:aa, which is in none of the"),
            ),
            ("", Some("is not a DNS64")),
        ] {
            let mut command = net.server.command("python3");
            command.args(["-c", SERVER]).args(Some(record).filter(|r| !r.is_empty()));
            let server = Process::start(command.stdout(std::process::Stdio::piped())).unwrap();
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
            while !net.server.run("ss -Hlun").unwrap().contains("198.51.100.2:53") {
                assert!(std::time::Instant::now() < deadline, "no name server");
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            let (wrong, code) = doctor(&net, &ask);
            match says {
                None => assert_eq!((wrong, code), (vec![], 0)),
                Some(says) => assert!(code == 1 && wrong[0].contains(says), "{wrong:?}"),
            }
            drop(server);
        }
    });
}

/// Waits until a file contains `part`.
fn wait_for(path: &str, part: &str) -> String {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if text.contains(part) {
            return text;
        }
        assert!(Instant::now() < deadline, "no '{part}' in {text}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Starts `gatun` with its output in a file.
fn started(args: &str, file: &str) -> Process {
    let mut command = Command::new(BIN);
    command.args(args.split_whitespace()).stdout(std::fs::File::create(file).unwrap());
    Process::start(&mut command).unwrap()
}

#[test]
fn events_are_followed_and_top_shows_rates_and_subscribers() {
    in_lab("operate::events_are_followed_and_top_shows_rates_and_subscribers", || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}"));
        let refused = gatun("show events --follow");
        assert!(
            String::from_utf8(refused.stderr).unwrap().contains("events are switched off: write an [events]")
        );
        daemon.stop(Signal::TERM);
        let events = "[events]\nfile = \"/run/events\"\nkinds = [\"binding_created\", \"session_created\"]\n";
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}{events}"));
        let first = started("show events --follow", "/run/followed");
        let second = started("show events --follow -o ndjson", "/run/followed.json");
        // Both have to be connected before the events: earlier events are not sent.
        let deadline = Instant::now() + Duration::from_secs(10);
        while !["/run/followed", "/run/followed.json"]
            .iter()
            .all(|file| std::fs::read_to_string(file).unwrap().contains("session_created"))
        {
            assert!(ping(&net.client, 1, SERVER, ""));
            assert!(Instant::now() < deadline);
        }
        let text = wait_for("/run/followed", "session_created");
        assert!(text.contains("binding_created") && text.contains("instance=lab"), "{text}");
        let json = wait_for("/run/followed.json", "session_created");
        let line: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
        assert_eq!((&line["instance"], &line["worker"]), (&"lab".into(), &0.into()), "{line}");
        // The log has the same events.
        wait_for("/run/events", json.lines().next().unwrap());
        drop((first, second));
        let top = said("top --once").0;
        for part in
            ["every packet is accounted for", "Mbit/s", "pool1", CLIENT.trim_end_matches('2'), "nat64"]
        {
            assert!(top.contains(part), "'{part}' is not in {top}");
        }
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_trace_has_packets_before_and_after_translation_and_ends() {
    in_lab("operate::a_trace_has_packets_before_and_after_translation_and_ends", || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}"));
        let mut traced = started(
            &format!("trace --subscriber {CLIENT} --protocol icmp --count 4 -o ndjson"),
            "/run/traced",
        );
        let mut other = None;
        let deadline = Instant::now() + Duration::from_secs(20);
        while traced.ended().is_none() {
            assert!(Instant::now() < deadline, "{}", std::fs::read_to_string("/run/traced").unwrap());
            assert!(ping(&net.client, 1, SERVER, "-s 100"));
            if std::fs::metadata("/run/traced").unwrap().len() > 0
                && traced.ended().is_none()
                && other.is_none()
            {
                other = Some(gatun("trace --seconds 1"));
            }
        }
        if let Some(other) = other.filter(|other| !other.status.success()) {
            assert!(String::from_utf8(other.stderr).unwrap().contains("another trace is running"));
        }
        let text = std::fs::read_to_string("/run/traced").unwrap();
        let packets: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(packets.len(), 4, "{text}");
        let out = packets.iter().find(|p| p["packet"]["source"] == CLIENT).unwrap();
        assert_eq!(
            (&out["fate"], &out["becomes"]["destination"]),
            (&"forwarded".into(), &SERVER4.into()),
            "{out}"
        );
        assert_eq!((&out["before_bytes"], &out["after_bytes"]), (&148.into(), &128.into()), "{out}");
        assert!(
            out["before"].as_str().unwrap().starts_with("60")
                && out["after"].as_str().unwrap().starts_with("45")
        );
        let back = packets.iter().find(|p| p["packet"]["source"] == SERVER4).unwrap();
        assert_eq!(back["becomes"]["destination"], CLIENT, "{back}");
        // Dropped packets have their reason, also in a file that an independent program reads.
        let mut written =
            started("trace --remote 198.51.100.9 --count 2 --write /run/trace.pcapng", "/run/nothing");
        while written.ended().is_none() {
            assert!(Instant::now() < deadline + Duration::from_secs(20));
            ping(&net.client, 1, "2001:db8:64::c633:6409", "-t 2 -W 1");
        }
        let read = "-r /run/trace.pcapng -T fields -e frame.comment -e ipv6.dst";
        let read = gatun_testkit::run(Command::new("tshark").args(read.split_whitespace())).unwrap();
        assert!(
            read.contains("dropped (ttl), answered") && read.contains("2001:db8:64::c633:6409"),
            "{read}"
        );
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_drained_address_keeps_its_bindings_and_gets_no_new_ones() {
    in_lab("operate::a_drained_address_keeps_its_bindings_and_gets_no_new_ones", || {
        let net = network();
        let two = NAT64.replace("prefixes = \"192.0.2.1\"", "prefixes = \"192.0.2.0/31\"");
        let daemon = Daemon::start(&net, &format!("{CREATE}{two}"));
        assert!(ping(&net.client, 1, SERVER, ""));
        let paired =
            json(&format!("where {CLIENT}"))["subscribers"][0]["address"].as_str().unwrap().to_owned();
        let other = if paired == "192.0.2.0" { "192.0.2.1" } else { "192.0.2.0" };
        assert_eq!(said(&format!("drain {paired}")).0, "1 address drained\n");
        let deadline = Instant::now() + Duration::from_secs(10);
        while !daemon.stderr().contains("drained 1 address:") {
            assert!(Instant::now() < deadline, "{}", daemon.stderr());
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(said("show addresses").0.contains("none: drained"));
        // New bindings use another address; existing ones continue.
        let told = json(&format!("explain {CLIENT} {SERVER4} udp"));
        assert_eq!(told["opening"]["address"], other, "{told}");
        assert_eq!(json(&format!("show sessions --outside {paired}")).as_array().unwrap().len(), 1);
        assert!(ping(&net.client, 1, SERVER, ""));
        assert_eq!(json(&format!("show sessions --outside {other}")).as_array().unwrap().len(), 1);
        assert_eq!(said("drain --pool pool1").0, "1 address drained\n", "the other one alone is new");
        assert_eq!(json(&format!("explain {CLIENT} {SERVER4} udp"))["reason"], "addr_ports_empty");
        assert_eq!(said("undrain --pool pool1").0, "2 addresses no longer drained\n");
        assert_eq!(json(&format!("explain {CLIENT} {SERVER4} udp"))["fate"], "forwarded");
        let wrong = gatun("drain 203.0.113.9");
        assert!(String::from_utf8(wrong.stderr).unwrap().contains("no public address matches"));
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn an_address_stays_drained_over_a_restart_while_it_is_in_a_pool() {
    in_lab("operate::an_address_stays_drained_over_a_restart_while_it_is_in_a_pool", || {
        let net = network();
        let with = |prefixes: &str| {
            let pool = NAT64.replace("prefixes = \"192.0.2.1\"", &format!("prefixes = {prefixes}"));
            format!("{CREATE}{pool}")
        };
        let (eight, four) = (with("\"192.0.2.0/29\""), with("\"192.0.2.0/30\""));
        let drained = || {
            let all = json("show addresses");
            let drained = all.as_array().unwrap().iter().filter(|address| address["drained"] == true);
            drained.map(|address| address["address"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let restart = |mut daemon: Daemon, config: &str| {
            daemon.process.signal(Signal::KILL).unwrap();
            daemon.process.wait(Duration::from_secs(10)).unwrap();
            Daemon::start(&net, config)
        };
        let mut daemon = Daemon::start(&net, &eight);
        assert!(ping(&net.client, 1, SERVER, ""));
        let paired =
            json(&format!("where {CLIENT}"))["subscribers"][0]["address"].as_str().unwrap().to_owned();
        said("drain --pool pool1");
        said("undrain 192.0.2.4");
        let all_but_4 =
            ["192.0.2.0", "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.5", "192.0.2.6", "192.0.2.7"];
        daemon = restart(daemon, &eight);
        assert_eq!(drained(), all_but_4);
        assert_eq!(json(&format!("show sessions --outside {paired}")).as_array().unwrap().len(), 1);
        assert_eq!(json("show status")["sessions_waiting"], 0);
        let mut scrape = Command::new("curl");
        scrape.args(["--silent", "--unix-socket", "/run/gatun/api.sock", "http://localhost/metrics"]);
        assert!(gatun_testkit::run(&mut scrape).unwrap().contains("gatun_sessions_restored_total 1\n"));
        assert!(ping(&net.client, 1, SERVER, ""));
        // In one of eight cases, the first session is there as well.
        let there = 1 + usize::from(paired == "192.0.2.4");
        assert_eq!(json("show sessions --outside 192.0.2.4").as_array().unwrap().len(), there);
        // A drained address that leaves the pool is forgotten, at a reload and at a restart.
        daemon.reload(&four, "reload: done");
        daemon.reload(&eight, "reload: done");
        daemon = restart(daemon, &eight);
        assert_eq!(drained(), all_but_4[..4]);
        daemon = restart(daemon, &four);
        daemon = restart(daemon, &eight);
        assert_eq!(drained(), all_but_4[..4]);
        said("undrain --pool pool1");
        daemon = restart(daemon, &eight);
        assert!(drained().is_empty());
        daemon.stop(Signal::TERM);
    });
}
