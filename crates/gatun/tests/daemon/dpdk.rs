//! The daemon on DPDK devices without huge pages: packet sockets between kernel stacks, and memifs with the
//! other end in this process.

use crate::harness::{Daemon, counter, network, ping, tcp_copy};
use crate::memory::difference;
use crate::processors::{are_several, assert_alone};
use gatun_ether::Mac;
use gatun_io_dpdk::{DeviceConfig, Dpdk, DpdkConfig, EalConfig, HugePages, Ports};
use gatun_testkit::topology::SERVER;
use gatun_testkit::traffic::frames::FrameDevices;
use gatun_testkit::traffic::{Family, Generator, Load, Protocols, Sizes, Spec, Stage, Traffic, Until};
use gatun_testkit::{Namespace, Process, Topology};
use rustix::process::Signal;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub(crate) const PACKET_SOCKETS: &str = r#"
[dpdk]
huge_pages = "never"
[[port]]
name = "inside"
backend = "dpdk"
device = "net_af_packet0,iface=inside"
addresses = ["2001:db8:1::64/64", "100.64.0.64/24"]
[[port]]
name = "outside"
backend = "dpdk"
device = "net_af_packet1,iface=outside"
addresses = ["198.51.100.64/24"]
[[pool]]
prefixes = ["192.0.2.1"]
[[nat64]]
pool6 = "2001:db8:64::/96"
[[nat44]]
inside = ["100.64.0.0/10"]
"#;

/// Like `in_lab`, if DPDK can run. One test at a time, because DPDK workers need their processors
/// exclusively.
pub(crate) fn in_dpdk_lab(test: &str, body: fn()) {
    in_dpdk_lab_with(test, || None, body);
}

/// Like `in_dpdk_lab`; `missing` returns a reason why the test cannot run.
pub(crate) fn in_dpdk_lab_with(test: &str, missing: fn() -> Option<String>, body: fn()) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    gatun_testkit::run_test(test, || gatun_testkit::refusal_but_to_root("DPDK").or_else(missing), body);
}

/// Takes addresses and offloads from a device of the translator.
pub(crate) fn silence(net: &Topology, device: &str) {
    net.translator.ip(&format!("address flush dev {device}")).unwrap();
    net.translator.sysctl(&format!("net.ipv6.conf.{device}.disable_ipv6"), "1").unwrap();
    net.translator.run(&format!("ethtool -K {device} tso off gso off gro off")).unwrap();
}

/// Default network with a silent kernel on the translator, because packet sockets pass all packets to the
/// kernel, too.
pub(crate) fn silent_network() -> Topology {
    let net = network();
    ["inside", "outside"].iter().for_each(|device| silence(&net, device));
    net.translator.sysctl("net.ipv4.ip_forward", "0").unwrap();
    // Segments of 64 KB do not fit into a packet socket's frames.
    for (host, device) in [(&net.client, "eth0"), (&net.server, "eth0")] {
        host.run(&format!("ethtool -K {device} tso off gso off gro off")).unwrap();
    }
    net.client.address("eth0", "100.64.0.2/24").unwrap();
    net.client.ip("route add 2001:db8:64::/96 via 2001:db8:1::64").unwrap();
    net.client.ip("route add default via 100.64.0.64").unwrap();
    net.server.ip("route add 192.0.2.0/24 via 198.51.100.64").unwrap();
    net
}

/// Packet buffers are part of the figure.
#[test]
fn a_ready_daemon_on_dpdk_uses_the_memory_that_check_predicts() {
    in_dpdk_lab("dpdk::a_ready_daemon_on_dpdk_uses_the_memory_that_check_predicts", || {
        let net = silent_network();
        assert_eq!(difference(&net, "DPDK", PACKET_SOCKETS), None);
    });
}

fn copy(from: &Namespace, to: &Namespace, port: u16, server: &str) {
    tcp_copy(from, to, &format!("TCP4-LISTEN:{port},reuseaddr"), &format!("{server}:{port}"));
}

/// A processor without SSE4, such as qemu's default model.
#[test]
fn an_old_processor_runs_every_command_except_dpdk_ports() {
    in_dpdk_lab("dpdk::an_old_processor_runs_every_command_except_dpdk_ports", || {
        const LACKS: &str = "this processor lacks SSE4.2 and POPCNT";
        let net = network();
        let on_old = |words: &[&str]| {
            let mut command = net.translator.command("qemu-x86_64");
            command.args(["-cpu", "Conroe", env!("CARGO_BIN_EXE_gatun")]).args(words);
            let output = gatun_testkit::output(&mut command).expect("qemu-x86_64 (scripts/setup)");
            let text =
                [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            // `None` means that a signal ended it.
            (output.status.code().unwrap_or_else(|| panic!("{words:?}: {text:?}")), text.concat())
        };
        let file = "/run/old.toml";
        std::fs::write(file, PACKET_SOCKETS).unwrap();
        assert_eq!(on_old(&["check", file]).0, 0);
        let (_, without) = on_old(&["doctor"]);
        assert!(without.contains("no configuration") && !without.contains(LACKS), "{without}");
        let (code, with) = on_old(&["doctor", file]);
        assert!(code == 1 && with.contains(LACKS), "{code}: {with}");
        let (code, refused) = on_old(&["run", file]);
        assert!(code == 1 && refused.contains(LACKS), "{code}: {refused}");
    });
}

#[test]
fn nat64_and_nat44_carry_kernel_traffic_over_packet_sockets() {
    in_dpdk_lab("dpdk::nat64_and_nat44_carry_kernel_traffic_over_packet_sockets", || {
        let net = silent_network();
        let daemon = Daemon::start(&net, PACKET_SOCKETS);
        assert!(daemon.stderr().contains("driver net_af_packet, one queue"), "{}", daemon.stderr());
        assert!(ping(&net.client, 3, SERVER, ""), "NAT64: {}", daemon.stderr());
        assert!(ping(&net.client, 3, "198.51.100.2", ""), "NAT44");
        assert!(ping(&net.client, 2, "100.64.0.64", "") && ping(&net.client, 2, "2001:db8:1::64", ""));
        copy(&net.client, &net.server, 5001, &format!("TCP6:[{SERVER}]"));
        copy(&net.client, &net.server, 5002, "TCP4:198.51.100.2");
        let ended = daemon.stop(Signal::TERM);
        // Checksums and segments that the kernels leave to devices without that support.
        assert!(counter(&ended.stdout, "checksums_finished") > 100, "{}", ended.stdout);
    });
}

const SOCKET: &str = "/run/memif.sock";

fn mac(number: u8, role: &str) -> [u8; 6] {
    [2, 0, 0, 0, if role == "client" { 0xa } else { 0xe }, number]
}

fn memif(number: u8, role: &str) -> String {
    let zero_copy = if role == "client" { "yes" } else { "no" };
    let mac = Mac(mac(number, role));
    format!(
        "net_memif{number},role={role},id={number},zero-copy={zero_copy},rsize=10,bsize=2176,mac={mac},socket={SOCKET},socket-abstract=no"
    )
}

fn memif_config() -> String {
    format!(
        r#"
[dpdk]
huge_pages = "never"
[[port]]
name = "inside"
backend = "dpdk"
device = "{}"
addresses = ["2001:db8:1::64/64"]
routes = ["2001:db8:8000::/33 via 2001:db8:1::2"]
neighbours = ["2001:db8:1::2 at {}"]
[[port]]
name = "outside"
backend = "dpdk"
device = "{}"
addresses = ["198.51.100.64/24"]
routes = ["198.19.0.0/16 via 198.51.100.2"]
neighbours = ["198.51.100.2 at {}"]
[[pool]]
prefixes = ["192.0.2.0/28"]
[[nat64]]
pool6 = "2001:db8:64::/96"
"#,
        memif(0, "client"),
        Mac(mac(0, "server")),
        memif(1, "client"),
        Mac(mac(1, "server")),
    )
}

type Ends = Generator<FrameDevices<Ports>>;

/// Other ends of both memifs, and DPDK's environment, which has to outlive them.
fn ends() -> (Ends, Dpdk) {
    let device = |number| DeviceConfig { device: memif(number, "server"), mtu: None };
    let eal = EalConfig { huge_pages: HugePages::Never, ..EalConfig::default() };
    let config = DpdkConfig { devices: vec![device(0), device(1)], queues: 1, eal };
    let mut dpdk = Dpdk::open(&config, || Ok(())).unwrap_or_else(|e| panic!("{e}"));
    let traffic = Traffic::new(Spec {
        family: Family::V6,
        subscribers: 512,
        flows_per_subscriber: 16,
        protocols: Protocols::Udp,
        sizes: Sizes::Imix,
        seed: 1,
    });
    let devices = FrameDevices(dpdk.workers.pop().unwrap());
    (Generator::new(devices, traffic, mac(0, "server"), mac(0, "client")), dpdk)
}

/// Sends until the stage is over, and checks that every packet returns undamaged.
fn assert_all_return(
    (generator, daemon): (&mut Ends, &Daemon),
    until: Until,
    goes_on: impl FnMut(&mut Ends, u64, f64) -> bool,
) -> Stage {
    assert!(generator.wait_until_open(Duration::from_secs(10)), "{}", daemon.stderr());
    let stage = generator.stage(Load::InFlight(256), until, goes_on);
    let faults = [stage.lost(), stage.tally.damaged(), stage.refused];
    assert_eq!(faults, [0; 3], "{stage:?}\n{}", daemon.stderr());
    assert_eq!(stage.reflected, stage.tx, "{stage:?}");
    stage
}

#[test]
fn every_packet_returns_over_memif_also_after_a_killed_daemon() {
    in_dpdk_lab("dpdk::every_packet_returns_over_memif_also_after_a_killed_daemon", || {
        let net = network();
        let (mut generator, dpdk) = ends();
        for round in 0..2 {
            let daemon = Daemon::start(&net, &memif_config());
            assert_all_return((&mut generator, &daemon), Until::Packets(10_000), |_, _, _| true);
            if round == 0 {
                // Kill it during traffic.
                generator.idle(Duration::from_millis(10));
                daemon.process.signal(Signal::KILL).unwrap();
                assert!(!daemon.wait().success);
                generator.idle(Duration::from_millis(200));
                continue;
            }
            daemon.stop(Signal::TERM);
        }
        drop(generator);
        drop(dpdk);
    });
}

#[test]
fn a_stopped_and_continued_daemon_loses_no_packet_in_the_rings() {
    in_dpdk_lab("dpdk::a_stopped_and_continued_daemon_loses_no_packet_in_the_rings", || {
        let net = network();
        let (mut generator, dpdk) = ends();
        let daemon = Daemon::start(&net, &memif_config());
        assert_all_return((&mut generator, &daemon), Until::Packets(5_000), |_, _, _| true);
        // Stop all threads during traffic. The rings have room for two windows of packets, which the
        // generator sends meanwhile.
        const STOPPED_NS: u64 = 300_000_000;
        let (mut stopped, mut goes_on) = (None, false);
        let all = Until::Elapsed(Duration::from_secs(60));
        let stage = assert_all_return((&mut generator, &daemon), all, |_, now_ns, _| {
            let since = *stopped.get_or_insert_with(|| {
                daemon.process.signal(Signal::STOP).unwrap();
                now_ns
            });
            if !goes_on && now_ns >= since + STOPPED_NS {
                daemon.process.signal(Signal::CONT).unwrap();
                goes_on = true;
            }
            !goes_on || now_ns < since + 2 * STOPPED_NS
        });
        assert!(stage.tally.received > 1_000, "it goes on: {stage:?}");
        assert_all_return((&mut generator, &daemon), Until::Packets(5_000), |_, _, _| true);
        daemon.stop(Signal::TERM);
        drop(generator);
        drop(dpdk);
    });
}

#[test]
fn pools_addresses_and_routes_change_under_traffic() {
    in_dpdk_lab("dpdk::pools_addresses_and_routes_change_under_traffic", || {
        let net = silent_network();
        let daemon = Daemon::start(&net, PACKET_SOCKETS);
        assert!(ping(&net.client, 1, SERVER, ""), "{}", daemon.stderr());
        let mut command = net.client.command("ping");
        command.args(["-q", "-i", "0.005", "-c", "400", "-W", "2", SERVER]).stdout(Stdio::piped());
        let steady = Process::start(&mut command).unwrap();
        let other = PACKET_SOCKETS.replace("[\"192.0.2.1\"]", "[\"198.51.100.66\"]");
        let other = other.replace("[\"198.51.100.64/24\"]", "[\"198.51.100.64/24\", \"198.51.100.70/24\"]");
        assert!(!ping(&net.server, 1, "198.51.100.70", "-W 1"));
        let said = daemon.reload(&other, "reload: done; ended: ");
        assert!(said.contains("port outside: its addresses\n"), "{said}");
        assert!(ping(&net.server, 1, "198.51.100.70", "") && ping(&net.client, 1, "198.51.100.2", ""));
        let (status, output) = steady.output(Duration::from_secs(20)).unwrap();
        // The address of a pool is gone before an answer that is on its way.
        let arrived = [" 400 received", " 399 received"].iter().any(|count| output.contains(count));
        assert!(status.success() && arrived, "{output}\n{}", daemon.stderr());
        let neighbours = net.server.run("ip neigh show 198.51.100.66").unwrap();
        assert!(neighbours.contains("lladdr"), "{neighbours}");
        let said = daemon.reload(
            &other.replace("huge_pages", "eal = [\"--log-level=info\"]\nhuge_pages"),
            "nothing has changed",
        );
        assert!(said.contains("needs a restart: [dpdk], or ports"), "{said}");
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn no_other_thread_uses_the_processor_of_a_worker() {
    in_dpdk_lab("dpdk::no_other_thread_uses_the_processor_of_a_worker", || {
        if !are_several() {
            return;
        }
        let net = silent_network();
        let daemon = Daemon::start(&net, PACKET_SOCKETS);
        assert!(ping(&net.client, 1, SERVER, ""), "{}", daemon.stderr());
        assert_alone(&daemon);
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn invalid_devices_stop_the_daemon_with_a_correction() {
    in_dpdk_lab("dpdk::invalid_devices_stop_the_daemon_with_a_correction", || {
        let net = network();
        let config = PACKET_SOCKETS.replace("iface=inside", "iface=nowhere");
        let ended = Daemon::spawn(&net, &config, &[]).wait();
        assert!(!ended.success);
        assert!(
            ended.stderr.contains("DPDK has no device 'net_af_packet0,iface=nowhere'"),
            "{}",
            ended.stderr
        );
        let config = PACKET_SOCKETS.replace("device = \"net_af", "queues = 3\ndevice = \"net_af");
        let config = config.replace("[\"192.0.2.1\"]", "[\"192.0.2.0/29\"]");
        let ended = Daemon::spawn(&net, &config, &[]).wait();
        assert!(ended.stderr.contains("has 1 queue, but 3 are needed: write queues = 1"), "{}", ended.stderr);
    });
}
