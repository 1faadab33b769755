//! tayga 0.9.2, an independent translator: compared with Gatun on the same packets, and as a CLAT in front of
//! Gatun.

use crate::harness::{CREATE, Daemon, NAT64, counter, in_lab_with, network, ping, tcp_copy};
use gatun_testkit::topology::SERVER4;
use gatun_testkit::{Namespace, Process};
use rustix::process::Signal;
use std::process::{Command, Stdio};

fn missing() -> Option<String> {
    gatun_testkit::missing(&[("tayga", "tayga")])
}

fn missing_with_scapy() -> Option<String> {
    let scapy = Command::new("/usr/bin/python3").args(["-c", "import scapy"]).stderr(Stdio::null()).status();
    let lacks = || "python3 has no scapy (Debian: python3-scapy)".to_owned();
    missing().or_else(|| (!scapy.is_ok_and(|status| status.success())).then(lacks))
}

/// Both translators get the oracle's packets. A list has the reason for each difference.
#[test]
fn gatun_and_tayga_translate_alike_except_listed_differences() {
    in_lab_with(
        "tayga::gatun_and_tayga_translate_alike_except_listed_differences",
        missing_with_scapy,
        || {
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/oracle/tayga.py");
            let mut compare = Command::new("/usr/bin/python3");
            let output = gatun_testkit::output(compare.args([script, env!("CARGO_BIN_EXE_gatun")])).unwrap();
            let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
            println!("{said}");
            assert!(output.status.success() && said.contains("Ran 9 tests"), "both differ: see above");
        },
    );
}

const CLAT: &str = "\
tun-device clat
ipv4-addr 192.0.0.2
ipv6-addr 2001:db8:464::2
prefix 2001:db8:64::/96
map 192.0.0.1 2001:db8:464::1
data-dir /run/clat
";

/// Starts tayga on the client, which has IPv4 programs and an IPv6-only network.
fn start_clat(client: &Namespace) -> Process {
    std::fs::create_dir("/run/clat").unwrap();
    std::fs::write("/run/clat.conf", CLAT).unwrap();
    client.run("tayga --mktun -c /run/clat.conf").unwrap();
    client.sysctl("net.ipv6.conf.all.forwarding", "1").unwrap();
    client.ip("link set clat up mtu 1480").unwrap();
    client.address("clat", "192.0.0.1/32").unwrap();
    client.ip("route add default dev clat").unwrap();
    client.ip("-6 route add 2001:db8:464::/64 dev clat").unwrap();
    let mut command = client.command("tayga");
    command.args(["-d", "-c", "/run/clat.conf"]).stdout(Stdio::null()).stderr(Stdio::null());
    Process::start(&mut command).unwrap()
}

// proves: XLAT-1
/// 464XLAT (RFC 6877): tayga translates statelessly at the client, Gatun statefully for the provider.
#[test]
fn ipv4_programs_behind_tayga_as_clat_reach_ipv4_servers_behind_gatun_as_plat() {
    in_lab_with(
        "tayga::ipv4_programs_behind_tayga_as_clat_reach_ipv4_servers_behind_gatun_as_plat",
        missing,
        || {
            let net = network();
            net.translator.ip("-6 route add 2001:db8:464::/64 via 2001:db8:1::2").unwrap();
            let mut clat = start_clat(&net.client);
            let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}"));
            assert!(ping(&net.client, 3, SERVER4, ""), "{}", daemon.stderr());
            assert!(ping(&net.client, 3, SERVER4, "-s 1200"), "{}", daemon.stderr());
            tcp_copy(&net.client, &net.server, "TCP4-LISTEN:5001,reuseaddr", &format!("TCP4:{SERVER4}:5001"));
            // Behind a link with a smaller MTU: a Packet Too Big from one translator is a Fragmentation
            // Needed from the other.
            tcp_copy(&net.client, &net.server, "TCP4-LISTEN:5003,reuseaddr", "TCP4:203.0.113.2:5003");
            // The TTL expires at the router, and its answer passes both translators.
            let hops = net.client.run("traceroute -n -q 1 -w 2 -m 6 203.0.113.2").unwrap();
            assert!(hops.contains("10.64.0.2") && hops.contains("203.0.113.2"), "{hops}");
            assert!(clat.ended().is_none());
            let ended = daemon.stop(Signal::TERM);
            assert!(counter(&ended.stdout, "forwarded, IPv6 to IPv4") > 1_000, "{}", ended.stdout);
        },
    );
}
