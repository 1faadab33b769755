//! Reload by SIGHUP under traffic.

use crate::harness::{CREATE, Daemon, NAT64, gatun, in_lab, network, ping, tcp_copy};
use gatun_testkit::Process;
use gatun_testkit::topology::SERVER;
use rustix::process::Signal;
use serde_json::Value;
use std::time::Duration;

const EVENTS: &str = r#"
[events]
file = "stdout"
kinds = ["session_created", "session_deleted"]
"#;

/// Configuration with these public addresses and further settings.
fn config(addresses: &str, more: &str) -> String {
    format!(
        "{CREATE}[[pool]]\nname = \"res\"\nprefixes = {addresses}\n[[nat64]]\nname = \"lab\"\n\
         pool6 = \"2001:db8:64::/96\"\n{more}{EVENTS}"
    )
}

#[test]
fn flows_continue_over_a_reload_and_those_of_a_removed_address_end() {
    const NAME: &str = "reload::flows_continue_over_a_reload_and_those_of_a_removed_address_end";
    in_lab(NAME, || {
        let net = network();
        let one = config("[\"192.0.2.1\"]", "");
        let daemon = Daemon::start(&net, &one);
        // The client gets its public address while there is only one.
        assert!(ping(&net.client, 3, SERVER, ""));
        // A flow during the whole test: a ping every 20 ms.
        let line = format!("ping -q -i 0.02 -W 2 -c 150 {SERVER} > /run/flow");
        let mut flow = Process::start(net.client.command("sh").args(["-c", &line])).unwrap();
        let two = config("[\"192.0.2.1\", \"192.0.2.4\"]", "[limits]\nsessions_per_subscriber = 10\n");
        let said = daemon.reload(&two, "reload: done");
        assert!(said.contains("pool \"res\": added 192.0.2.4 (1 address)"), "{said}");
        assert!(said.contains("sessions_per_subscriber: 16384 -> 10"), "{said}");
        assert!(said.contains("ended: 0 sessions, 0 bindings, 0 port blocks"), "{said}");
        let routed = |address: &str| net.translator.run("ip route show dev nat64").unwrap().contains(address);
        assert!(routed("192.0.2.4") && routed("192.0.2.1"));
        tcp_copy(&net.client, &net.server, "TCP-LISTEN:5001", &format!("TCP:[{SERVER}]:5001"));
        assert!(flow.wait(Duration::from_secs(20)).unwrap().success());
        let text = std::fs::read_to_string("/run/flow").unwrap();
        assert!(text.contains("150 received"), "{text}");
        // Its address is removed: it ends, and starts again from the other one.
        let said = daemon.reload(&config("[\"192.0.2.4\"]", ""), "reload: done");
        assert!(said.contains("ends: pool \"res\": all sessions and bindings of 192.0.2.1"), "{said}");
        assert!(!said.contains(" 0 sessions"), "{said}");
        assert!(routed("192.0.2.4") && !routed("192.0.2.1"));
        assert!(ping(&net.client, 3, SERVER, ""));
        let ended = daemon.stop(Signal::TERM);
        let lines = ended.stdout.lines().filter(|line| line.starts_with('{'));
        let events: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
        let of = |event: &str, outside: &str| {
            events.iter().filter(|e| e["event"] == event && e["outside"] == outside).count()
        };
        assert!(of("session_deleted", "192.0.2.1") >= 2, "{events:?}");
        assert_eq!(of("session_created", "192.0.2.1"), of("session_deleted", "192.0.2.1"));
        assert_eq!((of("session_created", "192.0.2.4"), of("session_deleted", "192.0.2.4")), (1, 0));
    });
}

#[test]
fn workers_that_share_a_translator_reload_together_under_traffic() {
    in_lab("reload::workers_that_share_a_translator_reload_together_under_traffic", || {
        let net = network();
        let shared = |addresses: &str, more: &str| {
            config(addresses, more).replace("[[pool]]", "queues = 2\n[[pool]]").replace(EVENTS, "")
        };
        let two = shared("[\"192.0.2.1\", \"192.0.2.2\"]", "");
        let daemon = Daemon::start(&net, &two);
        assert!(daemon.stderr().contains("translating with 2 workers"), "{}", daemon.stderr());
        // Subscribers of both workers, each with a flow during the whole test.
        let hosts: Vec<String> = (1..9).map(|n| format!("2001:db8:1:{n}::5")).collect();
        for host in &hosts {
            net.client.address("eth0", &format!("{host}/128")).unwrap();
            net.translator.ip(&format!("-6 route add {host} via 2001:db8:1::2")).unwrap();
        }
        // Each gets its public address while there are only two, and the kernel knows all neighbours.
        assert!(hosts.iter().all(|host| ping(&net.client, 2, SERVER, &format!("-I {host}"))));
        let flows: Vec<String> = hosts
            .iter()
            .map(|host| format!("ping -D -I {host} -i 0.02 -W 2 -c 200 {SERVER} > /run/flow-{host} &"))
            .collect();
        let line = flows.join(" ") + " wait";
        let mut flow = Process::start(net.client.command("sh").args(["-c", &line])).unwrap();
        let six = "[\"192.0.2.1\", \"192.0.2.2\", \"192.0.2.5-192.0.2.8\"]";
        let said = daemon.reload(&shared(six, "[timeouts]\nudp = \"3m\"\n"), "reload: done");
        assert!(said.contains("added 192.0.2.5-192.0.2.8 (4 addresses)"), "{said}");
        assert!(said.contains("ended: 0 sessions, 0 bindings, 0 port blocks"), "{said}");
        let three = "[\"192.0.2.1\", \"192.0.2.2\", \"192.0.2.5\"]";
        let said = daemon.reload(&shared(three, "[limits]\nsessions_per_subscriber = 100\n"), "reload: done");
        assert!(said.contains("ended: 0 sessions, 0 bindings, 0 port blocks"), "{said}");
        // All or nothing: the second worker would have no address.
        let said = daemon.reload(&shared("[\"192.0.2.1\", \"192.0.2.5\"]", ""), "nothing has changed");
        assert!(
            said.contains("worker 1 of 2 would have no address") || said.contains("worker 0 of 2"),
            "{said}"
        );
        assert!(flow.wait(Duration::from_secs(20)).unwrap().success());
        // TCP super-packets may fill the rings between workers and cost a ping, so TCP runs after the pings.
        tcp_copy(&net.client, &net.server, "TCP-LISTEN:5001", &format!("TCP:[{SERVER}]:5001"));
        let ended = daemon.stop(Signal::TERM);
        for host in &hosts {
            let text = std::fs::read_to_string(format!("/run/flow-{host}")).unwrap();
            let lost: Vec<u32> = (1..=200).filter(|n| !text.contains(&format!("icmp_seq={n} "))).collect();
            assert!(lost.is_empty(), "{host}: {lost:?} lost\n{text}\n{}\n{}", ended.stderr, ended.stdout);
        }
    });
}

#[test]
fn a_rejected_reload_is_logged_at_the_lowest_log_level() {
    in_lab("reload::a_rejected_reload_is_logged_at_the_lowest_log_level", || {
        let net = network();
        let same = format!("{CREATE}{NAT64}");
        let daemon = Daemon::start(&net, &same);
        assert!(gatun(["log-level", "error"]).status.success());
        let wrong = same.replace("192.0.2.1\"\n[[nat64]]", "192.0.2.300\"\nsise = 3\n[[nat64]]");
        let said = daemon.reload(&wrong, "the configuration has errors; nothing has changed");
        assert!(
            said.contains("gatun.toml:") && said.contains("192.0.2.300") && said.contains("sise"),
            "{said}"
        );
        // More errors than lines that may wait in the log queue.
        let many = (0..60).map(|n| format!("wrong{n} = 1\n")).collect::<String>();
        let said =
            daemon.reload(&format!("{same}[limits]\n{many}"), "the configuration has errors; nothing has");
        assert!(said.matches("unknown key").count() >= 20 && said.contains(" more\n"), "{said}");
        let elsewhere = same.replace("device = \"nat64\"", "device = \"nat64\"\nmtu = 1400");
        let said = daemon.reload(&elsewhere, "needs a restart; nothing has changed");
        assert!(said.contains("needs a restart: ") && said.contains("precede_routes or MTU"), "{said}");
        // An accepted reload is not logged at this level.
        let before = daemon.stderr().len();
        std::fs::write(daemon.file(), format!("{same}[limits]\nports_per_subscriber = 7\n")).unwrap();
        daemon.process.signal(Signal::HUP).unwrap();
        let is_new = || {
            let shown = gatun(["show", "config"]);
            String::from_utf8(shown.stdout).unwrap().contains("ports_per_subscriber = 7")
        };
        gatun_testkit::wait_until("the new configuration", Duration::from_secs(10), is_new).unwrap();
        assert_eq!(&daemon.stderr()[before..], "");
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn invalid_unchanged_or_restart_only_configurations_change_nothing() {
    in_lab("reload::invalid_unchanged_or_restart_only_configurations_change_nothing", || {
        let net = network();
        let same = format!("{CREATE}{NAT64}");
        let daemon = Daemon::start(&net, &same);
        assert!(ping(&net.client, 2, SERVER, ""));
        daemon.reload(&same, "reload: no changes");
        let wrong = same.replace("192.0.2.1\"\n[[nat64]]", "192.0.2.300\"\nsise = 3\n[[nat64]]");
        let said = daemon.reload(&wrong, "the configuration has errors; nothing has changed");
        assert!(
            said.contains("192.0.2.300") && said.contains("sise") && said.contains("gatun.toml:"),
            "{said}"
        );
        let larger = format!("{same}[limits]\nsessions_max = 999999\nports_per_subscriber = 7\n");
        let said = daemon.reload(&larger, "needs a restart; nothing has changed");
        assert!(said.contains("sessions_max = 999999: the tables have room for 262,144"), "{said}");
        let elsewhere = same.replace("device = \"nat64\"", "device = \"nat64\"\nmtu = 1400");
        let said = daemon.reload(&elsewhere, "nothing has changed");
        assert!(said.contains("its device, mode, queues, offload, udp_gro, precede_routes or MTU"), "{said}");
        // Two signals at once: the second reload finds no changes, or both become one.
        let limits = format!("{same}[limits]\nports_per_subscriber = 7\n");
        daemon.process.signal(Signal::HUP).unwrap();
        daemon.reload(&limits, "reload: done");
        daemon.reload(&limits, "reload: no changes");
        assert!(ping(&net.client, 2, SERVER, ""));
        daemon.stop(Signal::TERM);
    });
}
