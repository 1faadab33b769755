//! Kernel fast path: established sessions are translated in the kernel, and everything else stays true.

use crate::harness::{CREATE, Daemon, NAT64, SIIT, gatun, in_lab, network, program, tcp_copy};
use crate::nat44::{NAT44, private, steer};
use gatun_testkit::topology::SERVER;
use gatun_testkit::{Process, Topology, echo};
use rustix::process::Signal;
use serde_json::Value;
use std::process::Stdio;
use std::time::Duration;

pub(crate) const FASTPATH: &str = "[fastpath]\nkernel = \"auto\"\nudp_packets = 3\n";

/// Sends numbered datagrams from one port, one per millisecond, for a number of seconds or until it gets a
/// SIGTERM. Prints how many were sent, how many came back, and how many of these behind a later one. It stays
/// on one processor: otherwise the kernel may reorder.
const NUMBERED: &str = "
import os, signal, socket, sys, threading, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
server, seconds, port = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
u = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
u.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
u.bind(('', port)); u.settimeout(1)
back, sent = set(), 0
def receive():
    global late
    most = -1
    while True:
        try: number = int(u.recvfrom(2048)[0])
        except TimeoutError:
            if done: return
            continue
        back.add(number)
        late += number < most
        most = max(most, number)
done, late = False, 0
receiver = threading.Thread(target=receive); receiver.start()
end = time.monotonic() + seconds
def stop(*_):
    global end
    end = 0
signal.signal(signal.SIGTERM, stop)
while time.monotonic() < end:
    u.sendto(b'%d' % sent, (server, 7777)); sent += 1; time.sleep(0.001)
done = True
receiver.join()
print(sent, len(back), late)
";

/// Sends numbered words in a connection for a number of seconds, and compares what comes back.
const CONNECTION: &str = "
import socket, sys, time
one = socket.create_connection((sys.argv[1], 7777), timeout=10)
end, number = time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < end:
    word = number.to_bytes(8, 'big') * 100
    one.sendall(word)
    back = b''
    while len(back) < len(word):
        got = one.recv(len(word) - len(back))
        assert got, 'closed'
        back += got
    assert back == word, number
    number += 1
    time.sleep(0.002)
print(number)
";

/// Sends datagrams from many ports, several from each, and counts the answers.
const MANY: &str = "
import socket, sys, time
all = []
for port in range(40):
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.bind(('', 20000 + port)); s.settimeout(2); all.append(s)
back = 0
for round in range(20):
    for s in all:
        s.sendto(b'%d' % round, (sys.argv[1], 7777)); s.recvfrom(100); back += 1
    time.sleep(0.02)
print(back)
";

/// Starts a flow of numbered datagrams from a port.
pub(crate) fn numbered(net: &Topology, seconds: &str, port: &str) -> Process {
    let mut command = net.client.python(NUMBERED, &[SERVER, seconds, port]);
    Process::start(command.stdout(Stdio::piped())).unwrap()
}

/// Numbers of datagrams sent and returned.
pub(crate) fn counts(flow: Process) -> (u64, u64) {
    let numbers = all_counts(flow);
    (numbers[0], numbers[1])
}

/// Numbers of datagrams sent, returned, and returned behind a later one.
fn all_counts(flow: Process) -> Vec<u64> {
    let (status, said) = flow.output(Duration::from_secs(20)).unwrap();
    assert!(status.success(), "{said}");
    said.split_whitespace().map(|word| word.parse().unwrap()).collect()
}

pub(crate) fn show(what: &str) -> Value {
    let output = gatun(["show", what, "-o", "json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    serde_json::from_str(&text).unwrap()
}

/// Sum over the instances of the packets that are translated, or of those that were passed for a reason.
pub(crate) fn packets(of: &str) -> u64 {
    let fastpath = show("fastpath");
    let instances = fastpath["instances"].as_array().unwrap();
    let one = |instance: &Value| match of {
        "translated" => instance["translated"].as_u64().unwrap(),
        reason => {
            let passed = instance["passed"].as_array().unwrap().iter();
            passed
                .filter(|counter| counter["name"] == reason)
                .map(|counter| counter["value"].as_u64().unwrap())
                .sum()
        }
    };
    instances.iter().map(one).sum()
}

pub(crate) fn sessions() -> u64 {
    show("fastpath")["sessions"].as_u64().unwrap()
}

/// Number of translated packets, more than a number, once no more follow. The daemon reads it from the kernel
/// a few times a second.
pub(crate) fn translated_beyond(at_least: u64) -> u64 {
    let is_settled = || {
        let before = packets("translated");
        std::thread::sleep(Duration::from_millis(500));
        before > at_least && packets("translated") == before
    };
    wait("the packets in the kernel, and their end", 10, is_settled);
    packets("translated")
}

pub(crate) fn wait(what: &str, seconds: u64, is: impl Fn() -> bool) {
    let waited = gatun_testkit::wait_until(what, Duration::from_secs(seconds), is);
    assert!(waited.is_ok(), "{what}: {}", show("fastpath"));
}

pub(crate) fn kill(mut daemon: Daemon) {
    daemon.process.signal(Signal::KILL).unwrap();
    daemon.process.wait(Duration::from_secs(10)).unwrap();
}

/// Hook that the daemon uses on this kernel (docs/reference/kernels.md).
pub(crate) fn hook() -> &'static str {
    if gatun_testkit::linux() >= (6, 6) { "tcx" } else { "clsact" }
}

pub(crate) fn config() -> String {
    format!("{CREATE}{FASTPATH}{NAT64}")
}

/// Waits until the kernel's packets are in every count. They are credited in rounds of a second.
pub(crate) fn is_accounted() {
    let packets_of = |value: &Value| value["packets"].as_u64().unwrap();
    let is_so = || {
        let (status, instances) = (show("status"), show("instances"));
        let each = instances.as_array().unwrap().iter();
        let sum: u64 = each.map(|i| packets_of(&i["outbound"]) + packets_of(&i["inbound"])).sum();
        let offloaded = packets_of(&status["offloaded"]);
        status["packets_accounted"] == true
            && offloaded == packets("translated")
            && sum == packets_of(&status["forwarded"])
    };
    let waited = gatun_testkit::wait_until("every packet in the counts", Duration::from_secs(10), is_so);
    assert!(waited.is_ok(), "{} {} {}", show("status"), show("instances"), show("fastpath"));
}

#[test]
fn established_sessions_are_translated_in_the_kernel_until_they_end() {
    in_lab("fastpath::established_sessions_are_translated_in_the_kernel_until_they_end", || {
        let net = network();
        let _server = echo(&net.server).unwrap();
        let daemon = Daemon::start(&net, &config());
        daemon.says(&format!("kernel fast path: attached to nat64 by {}", hook()));
        tcp_copy(&net.client, &net.server, "TCP4-LISTEN:5001", &format!("TCP6:[{SERVER}]:5001"));
        let of_tcp = translated_beyond(100);
        assert!(packets("tcp_flags") >= 1, "a FIN is the engine's: {}", show("fastpath"));
        wait("the end of the connection", 5, || sessions() == 0);
        let (sent, back) = counts(numbered(&net, "2", "5151"));
        assert_eq!(sent, back);
        wait("the datagrams", 2, || packets("translated") > of_tcp + sent);
        assert_eq!(sessions(), 1, "{}", show("fastpath"));
        let listed = show("sessions");
        let udp = listed.as_array().unwrap().iter().find(|session| session["protocol"] == "udp");
        assert_eq!(udp.unwrap()["offloaded"], true, "{listed}");
        let explained = gatun(["explain", "[2001:db8:1::2]:5151", &format!("[{SERVER}]:7777"), "udp"]);
        let explained = String::from_utf8(explained.stdout).unwrap();
        assert!(explained.contains("the kernel translates its packets"), "{explained}");
        is_accounted();
        let top = String::from_utf8(gatun(["top", "--once"]).stdout).unwrap();
        let offloaded = show("status")["offloaded"]["packets"].as_u64().unwrap();
        let since = format!(", {} since the start", gatun_wire::text::counted(offloaded, "packet"));
        let is_told = |line: &str| line.contains("in the kernel  ") && line.ends_with(&since);
        assert!(top.lines().any(is_told), "{offloaded}: {top}");
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_killed_daemons_connection_goes_on_and_its_flow_loses_no_packet() {
    in_lab("fastpath::a_killed_daemons_connection_goes_on_and_its_flow_loses_no_packet", || {
        let net = network();
        let _server = echo(&net.server).unwrap();
        let mut daemon = Daemon::start(&net, &config());
        let flow = numbered(&net, "6", "5151");
        let mut connection = net.client.python(CONNECTION, &[SERVER, "6"]);
        let connection = Process::start(connection.stdout(Stdio::piped())).unwrap();
        for _ in 0..3 {
            wait("both in the kernel", 5, || sessions() == 2 && packets("translated") > 100);
            kill(daemon);
            std::thread::sleep(Duration::from_millis(300));
            daemon = Daemon::start(&net, &config());
            daemon.says("2 sessions of the previous process stay");
        }
        let (sent, back) = counts(flow);
        assert!(sent > 1000 && sent == back, "{back} of {sent}");
        let (status, words) = connection.output(Duration::from_secs(20)).unwrap();
        assert!(status.success() && words.trim().parse::<u64>().unwrap() > 100, "{words}");
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_stopped_process_does_not_translate_after_its_lease() {
    in_lab("fastpath::a_stopped_process_does_not_translate_after_its_lease", || {
        let net = network();
        let _server = echo(&net.server).unwrap();
        let config = format!("{CREATE}{FASTPATH}lease = \"1s\"\n{NAT64}");
        let daemon = Daemon::start(&net, &config);
        let flow = numbered(&net, "6", "5151");
        wait("the flow in the kernel", 5, || packets("translated") > 100);
        daemon.process.signal(Signal::STOP).unwrap();
        std::thread::sleep(Duration::from_millis(2500));
        daemon.process.signal(Signal::CONT).unwrap();
        wait("counted packets", 2, || packets("lease_over") > 500);
        let before = packets("translated");
        wait("the kernel again", 5, || packets("translated") > before + 100);
        counts(flow);
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn sessions_leave_the_kernel_when_they_are_cleared_or_their_pool_changes() {
    in_lab("fastpath::sessions_leave_the_kernel_when_they_are_cleared_or_their_pool_changes", || {
        let net = network();
        let _server = echo(&net.server).unwrap();
        let daemon = Daemon::start(&net, &config());
        let flow = numbered(&net, "9", "5151");
        wait("the flow in the kernel", 5, || packets("translated") > 100);
        // A cleared session begins again with its next packet, and has to be established again.
        let removed = show("fastpath")["removed"].as_u64().unwrap();
        let cleared = gatun(["clear", "sessions", "--inside-port", "5151", "--yes"]);
        assert!(cleared.status.success(), "{}", String::from_utf8_lossy(&cleared.stderr));
        wait("the removal", 1, || show("fastpath")["removed"].as_u64().unwrap() > removed);
        wait("the flow in the kernel again", 5, || sessions() == 1);
        let removed = show("fastpath")["removed"].as_u64().unwrap();
        let other = config()
            .replace("prefixes = \"192.0.2.1\"", "prefixes = \"192.0.2.9\"")
            .replace("outside = \"192.0.2.1:5002\"", "outside = \"192.0.2.9:5002\"");
        daemon.reload(&other, "reload: done");
        wait("the removal", 1, || show("fastpath")["removed"].as_u64().unwrap() > removed);
        wait("the flow with its new address", 5, || sessions() == 1);
        // Off and on again.
        let off = other.replace("kernel = \"auto\"", "kernel = \"off\"");
        daemon.reload(&off, "reload: done");
        wait("no session in the kernel", 1, || sessions() == 0 && show("fastpath")["state"] == "off");
        let before = packets("translated");
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(packets("translated"), before);
        daemon.reload(&other, "reload: done");
        wait("the flow in the kernel once more", 5, || packets("translated") > before + 100);
        counts(flow);
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn flows_beyond_a_full_table_are_translated_by_the_engine() {
    in_lab("fastpath::flows_beyond_a_full_table_are_translated_by_the_engine", || {
        let net = network();
        let _server = echo(&net.server).unwrap();
        let daemon = Daemon::start(&net, &format!("{CREATE}{FASTPATH}sessions_max = 16\n{NAT64}"));
        let said = gatun_testkit::run(&mut net.client.python(MANY, &[SERVER])).unwrap();
        assert_eq!(said.trim(), "800");
        wait("refusals", 2, || show("fastpath")["refused_full"].as_u64().unwrap() > 0);
        wait("a full table", 2, || sessions() == 16);
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_program_that_is_left_is_detached_by_a_command() {
    in_lab("fastpath::a_program_that_is_left_is_detached_by_a_command", || {
        let net = network();
        let daemon = Daemon::start(&net, &config());
        let file = daemon.file();
        kill(daemon);
        let detach = |file: &str| {
            let mut command = net.translator.command(program());
            gatun_testkit::output(command.args(["fastpath", "detach", file])).unwrap()
        };
        let first = detach(file.to_str().unwrap());
        assert!(String::from_utf8_lossy(&first.stdout).contains("the program is detached"), "{first:?}");
        let second = detach(file.to_str().unwrap());
        assert!(String::from_utf8_lossy(&second.stdout).contains("there are no tables"), "{second:?}");
    });
}

#[test]
fn a_daemon_without_rights_says_why_and_translates_itself() {
    in_lab("fastpath::a_daemon_without_rights_says_why_and_translates_itself", || {
        let net = network();
        let wrapper = ["setpriv", "--bounding-set", "-bpf,-perfmon,-sys_admin"];
        let daemon = Daemon::spawn_under(&net, &wrapper, &config());
        let said = daemon.says("translating with");
        assert!(
            said.contains("kernel fast path: not available, Gatun translates all packets itself"),
            "{said}"
        );
        assert_eq!(show("fastpath")["state"], "unavailable");
        tcp_copy(&net.client, &net.server, "TCP4-LISTEN:5001", &format!("TCP6:[{SERVER}]:5001"));
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn sessions_of_several_workers_move_to_the_kernel() {
    in_lab("fastpath::sessions_of_several_workers_move_to_the_kernel", || {
        let net = network();
        let _server = echo(&net.server).unwrap();
        let config = format!(
            "[[port]]\ndevice = \"nat64\"\nqueues = 2\n{FASTPATH}{}",
            NAT64.replace("\"192.0.2.1\"", "\"192.0.2.0/30\"").replace("192.0.2.1:5002", "192.0.2.2:5002")
        );
        for n in 3..11 {
            net.client.ip(&format!("-6 address add 2001:db8:1::{n:x}/64 dev eth0 nodad")).unwrap();
        }
        let daemon = Daemon::start(&net, &config);
        let from = |n: u32| {
            let script =
                NUMBERED.replace("u.bind(('', port))", &format!("u.bind(('2001:db8:1::{n:x}', port))"));
            let mut command = net.client.python(&script, &[SERVER, "3", "5151"]);
            Process::start(command.stdout(Stdio::piped())).unwrap()
        };
        let flows: Vec<Process> = (3..11).map(from).collect();
        wait("the flows in the kernel", 5, || sessions() == 8);
        let before = packets("translated");
        wait("their packets", 5, || packets("translated") > before + 1000);
        for flow in flows {
            // No packet overtakes those that went to a worker before it.
            let numbers = all_counts(flow);
            assert_eq!((numbers[0], numbers[2]), (numbers[1], 0));
        }
        is_accounted();
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_device_that_was_down_translates_in_the_kernel_again() {
    in_lab("fastpath::a_device_that_was_down_translates_in_the_kernel_again", || {
        let net = network();
        let _server = echo(&net.server).unwrap();
        let daemon = Daemon::start(&net, &config());
        let flow = numbered(&net, "4", "5151");
        wait("the flow in the kernel", 5, || packets("translated") > 100);
        net.translator.ip("link set nat64 down").unwrap();
        std::thread::sleep(Duration::from_millis(200));
        net.translator.ip("link set nat64 up").unwrap();
        let before = packets("translated");
        wait("the flow in the kernel again", 5, || packets("translated") > before + 100);
        counts(flow);
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn private_ipv4_is_translated_in_the_kernel_and_an_instance_can_be_left_out() {
    in_lab("fastpath::private_ipv4_is_translated_in_the_kernel_and_an_instance_can_be_left_out", || {
        let (net, _second) = private();
        let with = |more: &str| {
            let nat44 = NAT44.replace("name = \"lab\"\n", &format!("name = \"lab\"\n{more}"));
            format!("{CREATE}{FASTPATH}{nat44}")
        };
        let daemon = Daemon::start(&net, &with(""));
        steer(&net);
        let copy =
            || tcp_copy(&net.client, &net.server, "TCP4-LISTEN:5001,reuseaddr", "TCP4:198.51.100.2:5001");
        copy();
        let translated = translated_beyond(100);
        daemon.reload(&with("fastpath = false\n"), "reload: done");
        let passed = packets("no_entry");
        copy();
        wait("the packets beside the kernel", 5, || packets("no_entry") > passed + 100);
        assert_eq!(packets("translated"), translated, "{}", show("fastpath"));
        daemon.stop(Signal::TERM);
    });
}

/// Sentences of `gatun explain` about a stateless packet, and of `gatun trace` about ten.
fn stateless_ways(net: &Topology) -> (String, String) {
    let said = |arguments: &[&str]| String::from_utf8(gatun(arguments.iter().copied()).stdout).unwrap();
    let explained = said(&["explain", "[2001:db8:1::2]:5151", &format!("[{SERVER}]:7777"), "udp"]);
    let flow = numbered(net, "20", "5151");
    let traced = said(&["trace", "--port", "5151", "--count", "10"]);
    flow.signal(Signal::TERM).unwrap();
    counts(flow);
    (explained, traced)
}

#[test]
fn a_stateless_instance_is_translated_in_the_kernel_and_counted() {
    in_lab("fastpath::a_stateless_instance_is_translated_in_the_kernel_and_counted", || {
        let net = network();
        let with = |more: &str| {
            let siit = SIIT.replace("[[siit]]\n", &format!("[[siit]]\nname = \"lab\"\n{more}"));
            format!("[[port]]\ndevice = \"nat64\"\nqueues = 1\n{FASTPATH}{siit}")
        };
        let daemon = Daemon::start(&net, &with(""));
        let copy = || {
            tcp_copy(&net.client, &net.server, "TCP4-LISTEN:5001,reuseaddr", &format!("TCP6:[{SERVER}]:5001"))
        };
        copy();
        translated_beyond(100);
        is_accounted();
        let (ways, traced) = stateless_ways(&net);
        assert!(ways.contains("the kernel translates plain TCP and UDP packets of this instance"), "{ways}");
        let says = "the kernel translated plain packets of this instance until the trace began";
        assert!(traced.matches(says).count() >= 10, "{traced}");
        let translated = translated_beyond(100);
        daemon.reload(&with("fastpath = false\n"), "reload: done");
        let (ways, traced) = stateless_ways(&net);
        assert!(!ways.contains("kernel") && !traced.contains("kernel"), "{ways}{traced}");
        let passed = packets("no_entry");
        copy();
        wait("the packets beside the kernel", 5, || packets("no_entry") > passed + 100);
        assert_eq!(packets("translated"), translated, "{}", show("fastpath"));
        daemon.reload(&with(""), "reload: done");
        copy();
        wait("the packets", 2, || packets("translated") > translated + 100);
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_trace_sees_the_packets_of_a_session_that_the_kernel_had() {
    in_lab("fastpath::a_trace_sees_the_packets_of_a_session_that_the_kernel_had", || {
        let net = network();
        let _server = echo(&net.server).unwrap();
        let daemon = Daemon::start(&net, &config());
        let flow = numbered(&net, "8", "5151");
        let other = numbered(&net, "8", "5152");
        wait("the flows in the kernel", 5, || sessions() == 2 && packets("translated") > 200);
        let traced = gatun(["trace", "--inside", "2001:db8:1::2", "--port", "5151", "--count", "300"]);
        assert!(traced.status.success(), "{}", String::from_utf8_lossy(&traced.stderr));
        let traced = String::from_utf8(traced.stdout).unwrap();
        assert!(traced.matches("5151").count() >= 300, "{traced}");
        let says = traced.matches("the kernel translated its packets for ").count();
        // The first ones may have been on their way.
        assert!(says >= 290 && traced.contains("until the trace began"), "{traced}");
        // A public port or a time may contain these digits.
        let mut numbers = traced.split(|c: char| !c.is_ascii_digit());
        assert!(numbers.all(|number| number != "5152"), "{traced}");
        wait("the traced flow in the kernel again", 5, || sessions() == 2);
        for flow in [flow, other] {
            let (sent, back) = counts(flow);
            assert_eq!(sent, back);
        }
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn the_next_daemon_removes_sessions_that_are_not_its_own() {
    in_lab("fastpath::the_next_daemon_removes_sessions_that_are_not_its_own", || {
        let net = network();
        let _server = echo(&net.server).unwrap();
        let daemon = Daemon::start(&net, &config());
        let flow = numbered(&net, "6", "5151");
        wait("the flow in the kernel", 5, || packets("translated") > 100);
        kill(daemon);
        // A pool more: its sessions could not be told from those of the other.
        let other = config().replace("prefixes = \"192.0.2.1\"", "prefixes = [\"192.0.2.1\", \"192.0.2.4\"]");
        let daemon = Daemon::start(&net, &other);
        daemon.says("1 session of the previous process removed");
        wait("the flow in the kernel again", 5, || sessions() == 1);
        kill(daemon);
        // Without kept sessions, their ports are free: the former program must not translate any more.
        let pins = std::path::Path::new("/run/gatun/fastpath/nat64");
        assert!(pins.exists());
        let forgetful = format!("{other}[state]\ndirectory = \"off\"\n");
        let daemon = Daemon::start(&net, &forgetful);
        assert!(!pins.exists());
        wait("the flow in the kernel once more", 5, || sessions() == 1);
        daemon.stop(Signal::TERM);
        let daemon = Daemon::start(&net, &other);
        wait("the flow in pinned tables", 5, || sessions() == 1);
        kill(daemon);
        // Without a fast path, nothing of it is left.
        let off = other.replace("kernel = \"auto\"", "kernel = \"off\"");
        let daemon = Daemon::start(&net, &off);
        assert!(!pins.exists());
        wait("released sessions", 5, || {
            let listed = show("sessions");
            listed.as_array().unwrap().iter().all(|session| session["offloaded"] == false)
        });
        counts(flow);
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_program_whose_tables_are_in_another_directory_is_detached_at_the_start() {
    in_lab("fastpath::a_program_whose_tables_are_in_another_directory_is_detached_at_the_start", || {
        let net = network();
        let _server = echo(&net.server).unwrap();
        let elsewhere = config().replace("[fastpath]\n", "[fastpath]\ndirectory = \"/run/gatun/other\"\n");
        let off = config().replace("kernel = \"auto\"", "kernel = \"off\"");
        let says = |daemon: &Daemon, directory: &str| {
            // Before Linux 6.6, there is no link: the filter is replaced, or deleted.
            if hook() == "tcx" {
                daemon.says(&format!(
                    "detached the program of an earlier process, whose tables were in {directory}"
                ));
            }
        };
        let daemon = Daemon::start(&net, &config());
        let flow = numbered(&net, "120", "5151");
        wait("the flow in the kernel", 5, || packets("translated") > 100);
        kill(daemon);
        let daemon = Daemon::start(&net, &elsewhere);
        says(&daemon, "/run/gatun/fastpath");
        // The former program would translate the packets until its lease expires, after ten seconds.
        wait("the flow in other tables", 5, || sessions() == 1 && packets("translated") > 100);
        kill(daemon);
        let daemon = Daemon::start(&net, &off);
        says(&daemon, "/run/gatun/other");
        let received = || show("status")["received"]["packets"].as_u64().unwrap();
        wait("the flow in the engine", 5, || received() > 1000);
        flow.signal(Signal::TERM).unwrap();
        counts(flow);
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn sessions_stay_in_the_kernel_over_a_stop_if_configured() {
    in_lab("fastpath::sessions_stay_in_the_kernel_over_a_stop_if_configured", || {
        let net = network();
        let _server = echo(&net.server).unwrap();
        net.translator.ip("tuntap add dev nat64 mode tun").unwrap();
        let attach = "[[port]]\ndevice = \"nat64\"\nmode = \"attach\"\nqueues = 1\n";
        let config = format!("{attach}{FASTPATH}on_stop = \"keep\"\n{NAT64}");
        let daemon = Daemon::start(&net, &config);
        let flow = numbered(&net, "10", "5151");
        wait("the flow in the kernel", 5, || packets("translated") > 100);
        daemon.stop(Signal::TERM);
        std::thread::sleep(Duration::from_millis(300));
        let daemon = Daemon::start(&net, &config);
        daemon.says("1 session of the previous process stay");
        let (sent, back) = counts(flow);
        assert!(sent > 1000 && sent == back, "{back} of {sent}");
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_created_device_goes_at_a_stop_and_the_next_daemon_finds_its_sessions_in_the_kernel() {
    let name = "a_created_device_goes_at_a_stop_and_the_next_daemon_finds_its_sessions_in_the_kernel";
    in_lab(&format!("fastpath::{name}"), || {
        let net = network();
        let _server = echo(&net.server).unwrap();
        let config = format!("{CREATE}{FASTPATH}on_stop = \"keep\"\n{NAT64}");
        let daemon = Daemon::start(&net, &config);
        let mut check = net.translator.command(program());
        let checked = gatun_testkit::output(check.arg("check").arg(daemon.file())).unwrap();
        let checked = String::from_utf8_lossy(&checked.stderr).into_owned();
        assert!(checked.contains("a stop by SIGTERM removes it"), "{checked}");
        let flow = numbered(&net, "60", "5151");
        wait("the flow in the kernel", 5, || packets("translated") > 100);
        daemon.stop(Signal::TERM);
        assert!(net.translator.ip("link show nat64").is_err());
        let daemon = Daemon::start(&net, &config);
        daemon.says("1 session of the previous process stay");
        let before = packets("translated");
        wait("the flow in the kernel again", 5, || packets("translated") > before + 100);
        flow.signal(Signal::TERM).unwrap();
        counts(flow);
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_daemon_of_another_user_removes_its_tables_at_its_end() {
    in_lab("fastpath::a_daemon_of_another_user_removes_its_tables_at_its_end", || {
        let net = network();
        let daemon = Daemon::spawn(&net, &config(), &["--user", "65534:65534"]);
        daemon.says("translating with");
        daemon.says("kernel fast path: attached");
        let pins = std::path::Path::new("/run/gatun/fastpath/nat64");
        assert!(pins.join("entries").exists());
        tcp_copy(&net.client, &net.server, "TCP4-LISTEN:5001", &format!("TCP6:[{SERVER}]:5001"));
        let pid = daemon.process.id();
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        for thread in threads {
            let status = std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
            assert!(status.contains("CapPrm:\t0000000000000000"), "{status}");
        }
        daemon.stop(Signal::TERM);
        assert_eq!(pins.read_dir().unwrap().count(), 0, "nothing is left but an empty folder");
    });
}

#[test]
fn a_second_daemon_leaves_the_tables_of_the_first() {
    in_lab("fastpath::a_second_daemon_leaves_the_tables_of_the_first", || {
        let net = network();
        let daemon = Daemon::start(&net, &config());
        let other = "[api]\nlisten = \"off\"\n[state]\ndirectory = \"off\"\n[[port]]\ndevice = \"other\"\nroutes = false\n";
        let second = Daemon::start(&net, &format!("{other}{FASTPATH}{NAT64}"));
        second.says("another daemon uses it");
        second.stop(Signal::TERM);
        tcp_copy(&net.client, &net.server, "TCP4-LISTEN:5001", &format!("TCP6:[{SERVER}]:5001"));
        translated_beyond(100);
        daemon.stop(Signal::TERM);
    });
}
