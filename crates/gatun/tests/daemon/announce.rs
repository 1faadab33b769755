//! [announce]: routes for a routing daemon, which exist while the daemon is healthy.

use crate::harness::{CREATE, Daemon, NAT64, SIIT, in_lab, in_lab_with, network, ping, program};
use crate::network_helper::children_of;
use gatun_testkit::topology::SERVER;
use gatun_testkit::{Namespace, Process, Topology, missing, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::time::Duration;

const WAIT_MAX: Duration = Duration::from_secs(20);

/// A busy machine must not look like a stalled worker.
const ANNOUNCE: &str = "[announce]\nstall = \"2s\"\nreturn_after = \"500ms\"\n";

fn config() -> String {
    format!("{CREATE}{NAT64}{ANNOUNCE}")
}

/// Destinations of the routes in a table, IPv4 first.
fn routes(host: &Namespace, table: u32) -> Vec<String> {
    let of = |family: &str| {
        // The kernel has no such table before its first route.
        let listed = gatun_testkit::output(
            host.command("ip").args([family, "route", "show", "table"]).arg(table.to_string()),
        );
        let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
        listed.lines().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    [of("-4"), of("-6")].concat()
}

fn until_routes(host: &Namespace, table: u32, wanted: &[&str]) {
    let waited = wait_until("routes", WAIT_MAX, || routes(host, table) == wanted);
    assert!(waited.is_ok(), "table {table}: {:?}, wanted {wanted:?}", routes(host, table));
}

/// Exit status and output of `gatun health`.
fn health(net: &Topology) -> (bool, String) {
    let output = gatun_testkit::output(net.translator.command(program()).arg("health")).unwrap();
    (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

const BOTH: [&str; 2] = ["192.0.2.1", "2001:db8:64::/96"];

#[test]
fn routes_vanish_with_a_killed_daemon_while_its_device_stays() {
    in_lab("announce::routes_vanish_with_a_killed_daemon_while_its_device_stays", || {
        let net = network();
        let mut daemon = Daemon::start(&net, &config());
        until_routes(&net.translator, 186, &BOTH);
        assert_eq!(routes(&net.translator, 187), [""; 0]);
        wait_until("it says so", WAIT_MAX, || {
            health(&net)
                == (
                    true,
                    "healthy\nannounced: 2 routes in table 186 (own), 0 routes in table 187 (backup)\n"
                        .into(),
                )
        })
        .unwrap();
        assert!(ping(&net.client, 1, SERVER, ""));
        daemon.process.signal(Signal::KILL).unwrap();
        daemon.process.wait(WAIT_MAX).unwrap();
        // The kernel has deleted the device before the process could be reaped.
        assert_eq!(routes(&net.translator, 186), [""; 0]);
        assert!(net.translator.run("ip link show gatun-routes").is_err());
        net.translator.run("ip link show nat64").unwrap();
        assert!(!health(&net).0);
        // The next one announces again.
        let daemon = Daemon::start(&net, &config());
        until_routes(&net.translator, 186, &BOTH);
        let said = daemon.stop(Signal::TERM).stderr;
        assert_eq!(routes(&net.translator, 186), [""; 0]);
        // It has withdrawn them before its workers ended, so that packets take other ways meanwhile.
        assert!(said.contains("announce: all routes are withdrawn"), "{said}");
    });
}

#[test]
fn routes_are_withdrawn_while_a_port_is_down_or_the_daemon_is_stopped() {
    in_lab("announce::routes_are_withdrawn_while_a_port_is_down_or_the_daemon_is_stopped", || {
        let net = network();
        let daemon = Daemon::start(&net, &config());
        until_routes(&net.translator, 186, &BOTH);
        net.translator.ip("link set nat64 down").unwrap();
        until_routes(&net.translator, 186, &[]);
        let (is_healthy, said) = health(&net);
        assert!(!is_healthy && said.contains("ports: interface nat64 is down"), "{said}");
        assert!(said.contains("routes are withdrawn"), "{said}");
        net.translator.ip("link set nat64 up").unwrap();
        until_routes(&net.translator, 186, &BOTH);
        daemon.says("health: the daemon is healthy again");
        // The helper notices a stopped daemon.
        daemon.process.signal(Signal::STOP).unwrap();
        until_routes(&net.translator, 186, &[]);
        daemon.process.signal(Signal::CONT).unwrap();
        until_routes(&net.translator, 186, &BOTH);
        let said = daemon.stderr();
        assert!(said.contains("stood still") || said.contains("no sign of life"), "{said}");
        // Somebody sets the marker device down.
        net.translator.ip("link set gatun-routes down").unwrap();
        daemon.says("somebody set their device down");
        until_routes(&net.translator, 186, &BOTH);
        daemon.stop(Signal::TERM);
    });
}

/// Sends a datagram from each of some ports.
const OPEN: &str = "
import socket, sys
for port in range(5000, 5000 + int(sys.argv[2])):
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.bind(('', port))
    s.sendto(b'x', (sys.argv[1], 9))
";

#[test]
fn an_exhausted_pool_is_reported_and_withdraws_the_routes_only_if_configured() {
    in_lab("announce::an_exhausted_pool_is_reported_and_withdraws_the_routes_only_if_configured", || {
        let net = network();
        let pool = "[[pool]]\nname = \"few\"\nprefixes = \"192.0.2.1\"\nports = \"2000-2003\"\n";
        let nat64 = "[[nat64]]\npool6 = \"2001:db8:64::/96\"\n";
        for withdraws in [false, true] {
            // The next daemon is to have no sessions.
            let announce =
                format!("{ANNOUNCE}withdraw_exhausted = {withdraws}\n[state]\ndirectory = \"off\"\n");
            let daemon = Daemon::start(&net, &format!("{CREATE}{pool}{nat64}{announce}"));
            until_routes(&net.translator, 186, &BOTH);
            net.client.python(OPEN, &[SERVER, "8"]).status().unwrap();
            let reason = "pools: pool few has no free port";
            wait_until("it says so", WAIT_MAX, || health(&net).1.contains(reason)).unwrap();
            let routes = if withdraws { &[][..] } else { &BOTH };
            until_routes(&net.translator, 186, routes);
            let (is_healthy, said) = health(&net);
            assert_eq!((is_healthy, said.starts_with("healthy\n")), (!withdraws, !withdraws), "{said}");
            daemon.stop(Signal::TERM);
        }
    });
}

/// Stops one thread of a process until standard input ends.
const STOP_THREAD: &str = "
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
tid = int(sys.argv[1])
assert libc.ptrace(16, tid, None, None) == 0, os.strerror(ctypes.get_errno())
os.waitpid(tid, 0x40000000)
print('stopped', flush=True)
sys.stdin.read()
assert libc.ptrace(17, tid, None, None) == 0
";

/// Number of the thread with this name.
fn thread(pid: u32, name: &str) -> String {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|entry| entry.unwrap());
    let mut threads = threads.filter(|thread| {
        fs::read_to_string(thread.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
    });
    threads.next().unwrap().file_name().into_string().unwrap()
}

#[test]
fn routes_are_withdrawn_while_a_worker_stalls_or_without_a_helper() {
    in_lab("announce::routes_are_withdrawn_while_a_worker_stalls_or_without_a_helper", || {
        let net = network();
        let daemon = Daemon::start(&net, &config());
        until_routes(&net.translator, 186, &BOTH);
        let worker = thread(daemon.process.id(), "worker-0");
        let (tracer, input) =
            Process::start_with_input(&mut net.translator.python(STOP_THREAD, &[&worker])).unwrap();
        until_routes(&net.translator, 186, &[]);
        let (is_healthy, said) = health(&net);
        assert!(!is_healthy && said.contains("workers: worker 0 does not answer"), "{said}");
        drop(input);
        until_routes(&net.translator, 186, &BOTH);
        let (status, said) = tracer.output(WAIT_MAX).unwrap();
        assert!(status.success(), "{said}");
        // Two helpers: one for the device, and one for these routes. Without it, nobody could withdraw them.
        let helpers = children_of(daemon.process.id());
        assert_eq!(helpers.len(), 2, "{helpers:?}");
        for helper in helpers {
            kill_process(Pid::from_raw(helper as i32).unwrap(), Signal::KILL).unwrap();
        }
        until_routes(&net.translator, 186, &[]);
        wait_until("the reason", WAIT_MAX, || health(&net).1.contains("the network helper has ended"))
            .unwrap();
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_reload_changes_the_networks() {
    in_lab("announce::a_reload_changes_the_networks", || {
        let net = network();
        let daemon = Daemon::start(&net, &config());
        until_routes(&net.translator, 186, &BOTH);
        let wider = config().replace("prefixes = \"192.0.2.1\"", "prefixes = \"192.0.2.0/30\"");
        daemon.reload(&wider, "reload: done");
        until_routes(&net.translator, 186, &["192.0.2.0/30", "2001:db8:64::/96"]);
        daemon
            .reload(&wider.replace("[announce]", "[announce]\ntable = 1000"), "needs a restart: [announce]");
        daemon.stop(Signal::TERM);
        // Another table, with mappings and own addresses.
        let daemon =
            Daemon::start(&net, &format!("{CREATE}{SIIT}[announce]\ntable = 1000\nbackup_table = 1001\n"));
        until_routes(
            &net.translator,
            1000,
            &["192.0.2.1", "192.0.2.14", "2001:db8:64::/96", "2001:db8:ffff::1"],
        );
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn routes_are_withdrawn_while_a_tracked_route_is_missing() {
    in_lab("announce::routes_are_withdrawn_while_a_tracked_route_is_missing", || {
        let net = network();
        let ip = |what: &str| net.translator.ip(&format!("route {what}")).unwrap();
        let config = format!("{}tracked_routes = [\"198.18.7.0/24\", \"2001:db8:77::/48\"]\n", config());
        let daemon = Daemon::start(&net, &config);
        let says = |what: &str| {
            let said = wait_until("it says so", WAIT_MAX, || health(&net).1.contains(what));
            assert!(said.is_ok(), "{what}: {}", health(&net).1);
        };
        says(
            "ports: the main table has no route to 198.18.7.0/24\n  ports: the main table has no route to 2001:db8:77::/48",
        );
        assert_eq!(routes(&net.translator, 186), [""; 0]);
        // Only a route to the very network counts, and only one that packets can take.
        ip("add 198.18.7.0/25 dev lo");
        ip("add blackhole 198.18.7.0/24 metric 100");
        ip("add 2001:db8:77::/48 dev lo");
        says("healthy\n  ports: the main table has no route to 198.18.7.0/24\nroutes are withdrawn");
        ip("add 198.18.7.0/24 dev lo metric 10");
        until_routes(&net.translator, 186, &BOTH);
        // Another route takes its place: it is never missing.
        for (next, last) in [(20, 10), (30, 20), (40, 30)] {
            ip(&format!("add 198.18.7.0/24 dev lo metric {next}"));
            ip(&format!("del 198.18.7.0/24 dev lo metric {last}"));
            assert_eq!(routes(&net.translator, 186), BOTH);
        }
        assert!(health(&net).0);
        ip("del 198.18.7.0/24 dev lo metric 40");
        until_routes(&net.translator, 186, &[]);
        ip("add 198.18.7.0/24 dev lo");
        until_routes(&net.translator, 186, &BOTH);
        // A route goes with its link, and the kernel does not announce that.
        let lines = ["link add spare type veth peer name other", "link set spare up", "link set other up"];
        lines.iter().for_each(|line| net.translator.ip(line).unwrap());
        ip("replace 198.18.7.0/24 dev spare");
        assert!(health(&net).0);
        net.translator.ip("link del spare").unwrap();
        until_routes(&net.translator, 186, &[]);
        daemon.stop(Signal::TERM);
    });
}

/// BIRD of the translator: `[announce]` of docs/how-to/announce.md, with one neighbour.
const BIRD: &str = r#"
router id 10.64.0.1;
ipv4 table gatun4;
ipv6 table gatun6;
protocol device { scan time 1; }
protocol kernel own4 { kernel table 186; learn; scan time 1; ipv4 { table gatun4; import all; export none; }; }
protocol bfd { interface "*" { interval 50 ms; multiplier 3; }; }
protocol bgp upstream {
    local 10.64.0.1 as 64496;
    neighbor 10.64.0.2 as 64497;
    bfd on;
    connect retry time 1; connect delay time 1; error wait time 1, 2;
    ipv4 { table gatun4; import none; export all; next hop self; };
}
"#;

/// BIRD of the router.
const ROUTER: &str = r#"
router id 10.64.0.2;
protocol device { scan time 1; }
protocol kernel { ipv4 { import none; export all; }; }
protocol bfd { interface "*" { interval 50 ms; multiplier 3; }; }
protocol bgp downstream {
    local 10.64.0.2 as 64497;
    neighbor 10.64.0.1 as 64496;
    bfd on;
    connect retry time 1; connect delay time 1; error wait time 1, 2;
    ipv4 { import all; export none; };
}
"#;

fn bird(host: &Namespace, name: &str, config: &str) -> Process {
    let file = format!("/run/{name}.conf");
    fs::write(&file, config).unwrap();
    // BIRD's own place: `gatun doctor` asks there.
    fs::create_dir_all("/run/bird").unwrap();
    let control = format!("/run/bird/{name}.ctl");
    Process::start(host.command("bird").args(["-f", "-c", &file, "-s", &control])).unwrap()
}

#[test]
fn bird_announces_the_routes_to_another_bird_and_withdraws_them() {
    let bird_is_missing = || missing(&[("bird", "bird2")]);
    let test = "announce::bird_announces_the_routes_to_another_bird_and_withdraws_them";
    in_lab_with(test, bird_is_missing, || {
        let net = network();
        let _birds = [bird(&net.translator, "bird", BIRD), bird(&net.router, "far", ROUTER)];
        let mut daemon = Daemon::start(&net, &config());
        let is_known = || {
            let routes = net.router.run("ip route").unwrap();
            routes.lines().any(|route| route.starts_with("192.0.2.1 via 10.64.0.1 "))
        };
        wait_until("the router learns the pool", WAIT_MAX, is_known).unwrap();
        let doctor = || {
            let doctor = gatun_testkit::output(net.translator.command(program()).args(["doctor"]));
            String::from_utf8(doctor.unwrap().stdout).unwrap()
        };
        let said = doctor();
        assert!(said.contains("1 route set for a routing daemon") || said.contains("2 routes set"), "{said}");
        assert!(said.contains("BIRD has learnt routes to gatun-routes"), "{said}");
        assert!(!said.contains("BFD sessions"), "{said}");
        net.translator.ip("link set nat64 down").unwrap();
        wait_until("the router forgets it", WAIT_MAX, || !is_known()).unwrap();
        net.translator.ip("link set nat64 up").unwrap();
        wait_until("the router learns it again", WAIT_MAX, is_known).unwrap();
        daemon.process.signal(Signal::KILL).unwrap();
        daemon.process.wait(WAIT_MAX).unwrap();
        wait_until("the router forgets it with the daemon", WAIT_MAX, || !is_known()).unwrap();
    });
}

#[cfg(feature = "xdp")]
#[test]
fn ports_on_interfaces_withdraw_the_routes_without_a_carrier() {
    use crate::xdp::{CONFIG, in_xdp_lab, xdp_network};
    in_xdp_lab("announce::ports_on_interfaces_withdraw_the_routes_without_a_carrier", || {
        let net = xdp_network();
        let daemon = Daemon::start(&net, &format!("{CONFIG}{ANNOUNCE}"));
        let all = ["192.0.2.1", "198.51.100.65", "2001:db8:64::/96"];
        until_routes(&net.translator, 186, &all);
        // The other end of the cable.
        net.server.ip("link set eth0 down").unwrap();
        until_routes(&net.translator, 186, &[]);
        let (is_healthy, said) = health(&net);
        assert!(!is_healthy && said.contains("interface outside has no carrier"), "{said}");
        net.server.ip("link set eth0 up").unwrap();
        until_routes(&net.translator, 186, &all);
        daemon.process.signal(Signal::KILL).unwrap();
        until_routes(&net.translator, 186, &[]);
    });
}

#[cfg(feature = "dpdk")]
#[test]
fn a_daemon_with_dpdk_ports_announces_routes() {
    use crate::dpdk::{PACKET_SOCKETS, in_dpdk_lab, silent_network};
    in_dpdk_lab("announce::a_daemon_with_dpdk_ports_announces_routes", || {
        let net = silent_network();
        let daemon = Daemon::start(&net, &format!("{PACKET_SOCKETS}{ANNOUNCE}"));
        until_routes(&net.translator, 186, &BOTH);
        daemon.process.signal(Signal::STOP).unwrap();
        until_routes(&net.translator, 186, &[]);
        daemon.process.signal(Signal::CONT).unwrap();
        until_routes(&net.translator, 186, &BOTH);
        daemon.process.signal(Signal::KILL).unwrap();
        until_routes(&net.translator, 186, &[]);
    });
}
