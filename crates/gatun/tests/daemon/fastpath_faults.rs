//! Faults of the kernel fast path: refusals of the kernel, other programs at the device, changes while
//! packets pass. Packets are translated in every case, and each fault is reported.

use crate::fastpath::{
    FASTPATH, config, counts, hook, is_accounted, kill, numbered, packets, sessions, show, translated_beyond,
    wait,
};
use crate::harness::{CREATE, Daemon, NAT64, SIIT, gatun, in_lab, network, program, tcp_copy};
use crate::nat44::{NAT44, private, steer};
use gatun_testkit::topology::SERVER;
use gatun_testkit::{Process, Topology, echo};
use rustix::process::Signal;
use std::process::Command;
use std::time::Instant;

const PINS: &str = "/run/gatun/fastpath/nat64";

/// Beginning of a script that calls bpf(2).
const BPF: &str = "
import ctypes, os, platform, socket, struct, sys
BPF = {'x86_64': 321, 'aarch64': 280}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
def bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes, 128)
    got = libc.syscall(BPF, command, buffer, 128)
    if got < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return got
";

/// Freezes maps, so that the kernel refuses every later change by a process.
const FREEZE: &str = "
for name in sys.argv[1:]:
    path = ctypes.create_string_buffer(name.encode())
    get, freeze = 7, 22
    bpf(freeze, struct.pack('I', bpf(get, struct.pack('Q', ctypes.addressof(path)))))
";

fn freeze(maps: &[&str]) {
    let files: Vec<String> = maps.iter().map(|map| format!("{PINS}/{map}")).collect();
    gatun_testkit::run(Command::new("python3").args(["-c", &format!("{BPF}{FREEZE}")]).args(files)).unwrap();
}

/// Checks that every place that an operator looks at reports a text.
fn is_reported(text: &str) {
    let troubles = &show("status")["troubles"];
    assert!(troubles[0]["part"] == "fastpath", "{troubles}");
    assert!(troubles[0]["what"].as_str().unwrap().contains(text), "{troubles}");
    let (shown, doctor) = (gatun(["show", "fastpath"]), gatun(["doctor", "--quiet"]));
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains(text), "{shown}");
    let said = String::from_utf8(doctor.stdout).unwrap();
    assert!(!doctor.status.success() && said.contains("WRONG fastpath: ") && said.contains(text), "{said}");
}

/// Value of `gatun_fastpath_up` in the metrics.
fn is_up() -> bool {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--unix-socket", "/run/gatun/api.sock", "http://localhost/metrics"]);
    let metrics = gatun_testkit::run(&mut curl).unwrap();
    let line = metrics.lines().find(|line| line.starts_with("gatun_fastpath_up "));
    line.unwrap_or_else(|| panic!("{metrics}")).ends_with(" 1")
}

fn copy(net: &Topology) {
    tcp_copy(&net.client, &net.server, "TCP4-LISTEN:5001,reuseaddr", &format!("TCP6:[{SERVER}]:5001"));
}

fn detach(net: &Topology, daemon: &Daemon) {
    let mut command = net.translator.command(program());
    let output = gatun_testkit::output(command.args(["fastpath", "detach"]).arg(daemon.file())).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Attaches a program before all others at the egress of a device: it returns TC_ACT_OK, so others do not see
/// the packet. Ends with standard input.
const FIRST: &str = "
load, create, sched_cls, tcx_egress, before = 5, 28, 3, 47, 8
code = ctypes.create_string_buffer(struct.pack('QQ', 0xb7, 0x95))
license = ctypes.create_string_buffer(b'GPL')
program = bpf(load, struct.pack('IIQQ', sched_cls, 2, ctypes.addressof(code), ctypes.addressof(license)))
link = bpf(create, struct.pack('IIII', program, socket.if_nametoindex(sys.argv[1]), tcx_egress, before))
print('attached', flush=True)
sys.stdin.read()
";

/// Waits until the program is at its device again, and a flow in the kernel.
fn is_attached_again(times: u64) {
    let before = packets("translated");
    wait("the program at its device", 10, || {
        let fastpath = show("fastpath");
        fastpath["state"] == "on" && fastpath["attached_again"] == times
    });
    wait("the flow in the kernel", 5, || packets("translated") > before + 100);
}

#[test]
fn a_program_that_is_detached_meanwhile_is_reported_and_attached_again() {
    in_lab("fastpath_faults::a_program_that_is_detached_meanwhile_is_reported_and_attached_again", || {
        let net = network();
        let _server = echo(&net.server).unwrap();
        let daemon = Daemon::start(&net, &config());
        let flow = numbered(&net, "14", "5151");
        wait("the flow in the kernel", 5, || packets("translated") > 100);
        assert!(is_up());
        detach(&net, &daemon);
        daemon.says("somebody has detached it");
        daemon.says(&format!("kernel fast path: attached to its device by {} again", hook()));
        is_attached_again(1);
        // The next process finds the tables.
        let pins = net.translator.run(&format!("ls {PINS}")).unwrap();
        assert!(pins.contains("entries"), "{pins}");
        let (sent, back) = counts(flow);
        assert!(sent > 1000 && sent == back, "{back} of {sent}");
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_program_that_another_one_keeps_packets_from_moves_before_it() {
    in_lab("fastpath_faults::a_program_that_another_one_keeps_packets_from_moves_before_it", || {
        let net = network();
        let _server = echo(&net.server).unwrap();
        let daemon = Daemon::start(&net, &config());
        let flow = numbered(&net, "10", "5151");
        wait("the flow in the kernel", 5, || packets("translated") > 100);
        if hook() == "clsact" {
            return is_bypassed_at_clsact(&net, &daemon);
        }
        let mut command = net.translator.python(&format!("{BPF}{FIRST}"), &["nat64"]);
        let (other, input) = Process::start_with_input(&mut command).unwrap();
        daemon.says("the program does not see the packets of its device");
        is_attached_again(1);
        let doctor = String::from_utf8(gatun(["doctor"]).stdout).unwrap();
        assert!(doctor.contains("attached it again 1 time"), "{doctor}");
        let (sent, back) = counts(flow);
        assert!(sent > 1000 && sent == back, "{back} of {sent}");
        drop((input, other));
        daemon.stop(Signal::TERM);
    });
}

/// A filter of clsact cannot move before one that has the first priority: it is used when that one is gone.
fn is_bypassed_at_clsact(net: &Topology, daemon: &Daemon) {
    let tc = |verb: &str, what: &str| {
        net.translator.run(&format!("tc filter {verb} dev nat64 egress pref 1 {what}")).unwrap()
    };
    tc("add", "protocol all matchall action pass");
    daemon.says("the program does not see the packets of its device");
    tc("del", "");
    wait("the flow in the kernel", 60, is_up);
}

#[test]
fn a_detached_program_is_reported_as_long_as_it_is_not_wanted_back() {
    in_lab("fastpath_faults::a_detached_program_is_reported_as_long_as_it_is_not_wanted_back", || {
        let net = network();
        let _server = echo(&net.server).unwrap();
        let daemon = Daemon::start(&net, &config());
        let off = config().replace("kernel = \"auto\"", "kernel = \"off\"");
        daemon.reload(&off, "reload: done");
        detach(&net, &daemon);
        std::thread::sleep(std::time::Duration::from_secs(3));
        assert_eq!(show("fastpath")["attached_again"], 0);
        daemon.reload(&config(), "reload: done");
        let flow = numbered(&net, "4", "5151");
        is_attached_again(1);
        let (sent, back) = counts(flow);
        assert_eq!(sent, back);
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_daemon_whose_helper_has_ended_reports_a_detached_program() {
    in_lab("fastpath_faults::a_daemon_whose_helper_has_ended_reports_a_detached_program", || {
        let net = network();
        let _server = echo(&net.server).unwrap();
        let daemon = Daemon::start(&net, &config());
        let started = daemon.says("helper of the kernel fast path: process ");
        let number = started.split("helper of the kernel fast path: process ").nth(1).unwrap();
        let pid: i32 = number.split(',').next().unwrap().parse().unwrap();
        let rights = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(rights.contains("CapEff:\t0000000000001000\n"), "CAP_NET_ADMIN alone: {rights}");
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        daemon.says("the helper of the kernel fast path has ended");
        wait("the report", 5, || show("fastpath")["error"].is_string());
        is_reported("is not attached again");
        // Without a link, packets tell the daemon.
        let flow = numbered(&net, "6", "5151");
        wait("the flow in the kernel", 5, || packets("translated") > 100);
        detach(&net, &daemon);
        wait("the report", 5, || show("fastpath")["state"] == "unavailable");
        is_reported("somebody has detached it");
        assert!(!is_up());
        let explained = gatun(["explain", "[2001:db8:1::2]:5151", &format!("[{SERVER}]:7777"), "udp"]);
        let explained = String::from_utf8(explained.stdout).unwrap();
        let why =
            "Gatun translates its packets, because the kernel does not: the program is not at its device";
        assert!(explained.contains(why), "{explained}");
        let (sent, back) = counts(flow);
        assert_eq!(sent, back);
        copy(&net);
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_kernel_that_refuses_the_program_is_reported() {
    in_lab("fastpath_faults::a_kernel_that_refuses_the_program_is_reported", || {
        let net = network();
        let _server = echo(&net.server).unwrap();
        let flow = {
            let daemon = Daemon::start(&net, &config());
            let flow = numbered(&net, "6", "5151");
            wait("the flow in the kernel", 5, || packets("translated") > 100);
            kill(daemon);
            flow
        };
        // Without CAP_PERFMON, the verifier allows no arithmetic with pointers.
        let wrapper = ["setpriv", "--bounding-set", "-perfmon,-sys_admin"];
        let daemon = Daemon::spawn_under(&net, &wrapper, &config());
        let said = daemon.says("translating with");
        let line = "kernel fast path: not available, Gatun translates all packets itself: ";
        assert!(said.contains(line) && said.contains("the kernel refuses the program"), "{said}");
        is_reported("the kernel refuses the program");
        // The former program would have translated until the end of its lease.
        let links = net.translator.run("ls /run/gatun/fastpath").unwrap();
        assert!(!links.contains("nat64"), "{links}");
        let (sent, back) = counts(flow);
        assert_eq!(sent, back);
        copy(&net);
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_kernel_that_refuses_other_settings_translates_nothing_by_the_former_ones() {
    in_lab(
        "fastpath_faults::a_kernel_that_refuses_other_settings_translates_nothing_by_the_former_ones",
        || {
            let net = network();
            let _server = echo(&net.server).unwrap();
            let daemon = Daemon::start(&net, &config());
            let flow = numbered(&net, "6", "5151");
            wait("the flow in the kernel", 5, || packets("translated") > 100);
            freeze(&["instances"]);
            let other = config().replace("name = \"lab\"\n", "name = \"lab\"\nmtu4 = 1400\n");
            daemon.reload(&other, "reload: done");
            wait("the report", 1, || show("fastpath")["state"] == "unavailable" && sessions() == 0);
            is_reported("setting an instance");
            let before = packets("translated");
            let (sent, back) = counts(flow);
            assert_eq!(sent, back);
            assert_eq!(packets("translated"), before);
            daemon.stop(Signal::TERM);
        },
    );
}

/// Pins another map in place of one: an array of four bytes.
const OTHER_MAP: &str = "
os.remove(sys.argv[1])
create, pin, array = 0, 6, 2
path = ctypes.create_string_buffer(sys.argv[1].encode())
bpf(pin, struct.pack('QI', ctypes.addressof(path), bpf(create, struct.pack('IIII', array, 4, 4, 1))))
";

/// Writes another number of the layout.
const OTHER_LAYOUT: &str = "
look_up, update, get = 1, 2, 7
path = ctypes.create_string_buffer(sys.argv[1].encode())
control = bpf(get, struct.pack('Q', ctypes.addressof(path)))
key, value = ctypes.create_string_buffer(4), ctypes.create_string_buffer(4096)
element = struct.pack('IIQQQ', control, 0, ctypes.addressof(key), ctypes.addressof(value), 0)
bpf(look_up, element)
value[0:4] = struct.pack('I', 999)
bpf(update, element)
";

#[test]
fn tables_that_cannot_be_used_are_replaced_without_a_command() {
    in_lab("fastpath_faults::tables_that_cannot_be_used_are_replaced_without_a_command", || {
        let net = network();
        let _server = echo(&net.server).unwrap();
        let python = |script: &str, map: &str| {
            let file = format!("{PINS}/{map}");
            gatun_testkit::run(Command::new("python3").args(["-c", &format!("{BPF}{script}"), &file]))
                .unwrap();
        };
        let spoiled: [(&dyn Fn(), &str); 4] = [
            (&|| freeze(&["instances"]), "map instances: somebody has frozen it"),
            (&|| freeze(&["entries", "control"]), "map entries: somebody has frozen it"),
            (&|| python(OTHER_MAP, "idents"), "map idents: type and sizes are"),
            (&|| python(OTHER_LAYOUT, "control"), "map control: layout 999 instead of"),
        ];
        for (spoil, why) in spoiled {
            let daemon = Daemon::start(&net, &config());
            let flow = numbered(&net, "120", "5151");
            wait("the flow in the kernel", 5, || packets("translated") > 100);
            kill(daemon);
            spoil();
            let daemon = Daemon::start(&net, &config());
            let said = daemon.says("kernel fast path: attached to nat64");
            let line = format!("the tables of the previous process are replaced: {why}");
            assert!(said.contains(&line), "{said}");
            wait("the flow in the kernel", 5, || packets("translated") > 100);
            assert_eq!(show("fastpath")["state"], "on");
            flow.signal(Signal::TERM).unwrap();
            assert!(counts(flow).1 > 100);
            daemon.stop(Signal::TERM);
        }
    });
}

#[test]
fn a_kernel_that_refuses_mappings_leaves_them_to_the_engine() {
    in_lab("fastpath_faults::a_kernel_that_refuses_mappings_leaves_them_to_the_engine", || {
        let net = network();
        // Only tables with sessions are pinned.
        let sessions = "[[pool]]\nprefixes = \"192.0.2.33\"\n[[nat64]]\npool6 = \"2001:db8:65::/96\"\n";
        let with = |more: &str| {
            let siit = SIIT.replace("eam = [", &format!("eam = [{more}"));
            format!("{CREATE}{FASTPATH}{siit}{sessions}")
        };
        let daemon = Daemon::start(&net, &with(""));
        copy(&net);
        let translated = translated_beyond(100);
        freeze(&["siit4_first", "siit4_second", "siit6_first", "siit6_second"]);
        daemon.reload(&with("{ v4 = \"192.0.2.3\", v6 = \"2001:db8:1::3\" }, "), "reload: done");
        wait("the report", 2, || show("fastpath")["error"].is_string());
        is_reported("Gatun translates the packets of [[siit]] itself");
        copy(&net);
        wait("packets beside the kernel", 5, || packets("no_entry") > 100);
        assert_eq!(packets("translated"), translated, "{}", show("fastpath"));
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_daemon_after_a_removed_device_translates_in_the_kernel_again() {
    let test = "fastpath_faults::a_daemon_after_a_removed_device_translates_in_the_kernel_again";
    in_lab(test, || {
        let net = network();
        let _server = echo(&net.server).unwrap();
        let daemon = Daemon::start(&net, &config());
        let flow = numbered(&net, "12", "5151");
        wait("the flow in the kernel", 5, || packets("translated") > 100);
        net.translator.ip("link del nat64").unwrap();
        let ended = daemon.wait();
        assert!(!ended.success && ended.stderr.contains("was it removed?"), "{}", ended.stderr);
        let daemon = Daemon::start(&net, &config());
        wait("the flow in the kernel again", 8, || packets("translated") > 100);
        let (sent, back) = counts(flow);
        assert!(back > 200 && back < sent, "{back} of {sent}");
        is_accounted();
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn another_filter_of_the_device_stays_and_gets_what_is_not_translated() {
    in_lab("fastpath_faults::another_filter_of_the_device_stays_and_gets_what_is_not_translated", || {
        let net = network();
        let _server = echo(&net.server).unwrap();
        net.translator.ip("tuntap add dev nat64 mode tun").unwrap();
        net.translator.run("tc qdisc add dev nat64 clsact").unwrap();
        let attach = "[[port]]\ndevice = \"nat64\"\nmode = \"attach\"\nqueues = 1\n";
        let daemon = Daemon::start(&net, &format!("{attach}{FASTPATH}{NAT64}"));
        let flow = numbered(&net, "8", "5151");
        // The directions become fast one after the other.
        wait("both directions in the kernel", 5, || {
            let (passed, translated) = (packets("pending"), packets("translated"));
            std::thread::sleep(std::time::Duration::from_millis(100));
            packets("translated") > translated + 50 && packets("pending") == passed
        });
        // A program of one instruction: it returns TC_ACT_SHOT.
        let mut filter = net.translator.command("tc");
        filter.args("filter add dev nat64 egress pref 60000 bpf da bytecode".split_whitespace());
        gatun_testkit::run(filter.arg("1,6 0 0 2")).unwrap();
        assert_eq!(counts(numbered(&net, "0.5", "5152")).1, 0, "a new flow meets the filter");
        let (sent, back) = counts(flow);
        assert_eq!(sent, back);
        daemon.stop(Signal::TERM);
        let filters = net.translator.run("tc filter show dev nat64 egress").unwrap();
        assert!(filters.contains("pref 60000") && !filters.contains("gatun"), "{filters}");
    });
}

#[test]
fn switching_off_and_on_under_load_loses_no_packet() {
    in_lab("fastpath_faults::switching_off_and_on_under_load_loses_no_packet", || {
        let net = network();
        let _server = echo(&net.server).unwrap();
        let on = config();
        let off = on.replace("kernel = \"auto\"", "kernel = \"off\"");
        let daemon = Daemon::start(&net, &on);
        let flows: Vec<Process> = (0..8).map(|n| numbered(&net, "8", &(5151 + n).to_string())).collect();
        for _ in 0..4 {
            let before = packets("translated");
            wait("the flows in the kernel", 5, || sessions() == 8 && packets("translated") > before + 100);
            daemon.reload(&off, "reload: done");
            wait("no session in the kernel", 1, || sessions() == 0);
            daemon.reload(&on, "reload: done");
        }
        for flow in flows {
            let (sent, back) = counts(flow);
            assert!(sent > 1000 && sent == back, "{back} of {sent}");
        }
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_host_that_is_no_longer_served_is_not_translated_by_the_kernel() {
    in_lab("fastpath_faults::a_host_that_is_no_longer_served_is_not_translated_by_the_kernel", || {
        const SEND: &str = "
import socket, time
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind(('', 5151))
end = time.monotonic() + 6
while time.monotonic() < end: u.sendto(b'x', ('198.51.100.2', 7777)); time.sleep(0.001)
";
        let (net, _second) = private();
        let _server = echo(&net.server).unwrap();
        let with = |inside: &str| {
            let nat44 = NAT44.replace("\"100.64.0.0/10\"", inside).replace("100.64.0.2:", "100.64.1.2:");
            format!("{CREATE}{FASTPATH}{nat44}")
        };
        let daemon = Daemon::start(&net, &with("\"100.64.0.0/24\", \"100.64.1.0/24\""));
        steer(&net);
        let _flow = Process::start(&mut net.client.python(SEND, &[])).unwrap();
        wait("the flow in the kernel", 5, || packets("translated") > 100);
        daemon.reload(&with("\"100.64.1.0/24\""), "reload: done");
        let begin = Instant::now();
        wait("no session in the kernel", 1, || sessions() == 0);
        println!("{:.1?} after the answer", begin.elapsed());
        let (translated, passed) = (packets("translated"), packets("no_entry"));
        wait("its packets", 2, || packets("no_entry") > passed + 100);
        assert_eq!(packets("translated"), translated);
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn limits_and_drained_addresses_hold_for_new_sessions_and_the_kernel_keeps_the_others() {
    in_lab(
        "fastpath_faults::limits_and_drained_addresses_hold_for_new_sessions_and_the_kernel_keeps_the_others",
        || {
            let net = network();
            let _server = echo(&net.server).unwrap();
            let daemon = Daemon::start(&net, &config());
            let flow = numbered(&net, "7", "5151");
            wait("the flow in the kernel", 5, || packets("translated") > 100);
            let stays = |what: &str| {
                let before = packets("translated");
                let (_, back) = counts(numbered(&net, "0.5", "5152"));
                assert_eq!(back, 0, "{what}");
                wait(what, 2, || sessions() == 1 && packets("translated") > before + 100);
            };
            let drained = gatun(["drain", "192.0.2.1"]);
            assert!(drained.status.success(), "{}", String::from_utf8_lossy(&drained.stderr));
            stays("the flow of a drained address");
            assert!(gatun(["undrain", "192.0.2.1"]).status.success());
            daemon.reload(&format!("{}[limits]\nsessions_per_subscriber = 1\n", config()), "reload: done");
            stays("the flow of a subscriber at its limit");
            let (sent, back) = counts(flow);
            assert_eq!(sent, back);
            daemon.stop(Signal::TERM);
        },
    );
}

#[test]
fn a_daemon_with_a_clock_of_its_own_translates_without_the_kernel() {
    in_lab("fastpath_faults::a_daemon_with_a_clock_of_its_own_translates_without_the_kernel", || {
        let net = network();
        // Before Linux 6.4, a process that has called unshare for time cannot start others with vfork.
        let mut holder = net.translator.command("unshare");
        holder.args(["--time", "--monotonic", "100000", "sleep", "60"]);
        let holder = Process::start(&mut holder).unwrap();
        let namespace = format!("/proc/{}/ns/time_for_children", holder.id());
        let is_other = || {
            let of = |name: &str| std::fs::read_link(name).ok();
            of(&namespace).is_some_and(|other| Some(other) != of("/proc/self/ns/time"))
        };
        wait("the namespace", 10, is_other);
        let wrapper = ["nsenter", &format!("--time={namespace}")];
        let daemon = Daemon::spawn_under(&net, &wrapper, &config());
        daemon.says("translating with");
        is_reported("a time namespace");
        copy(&net);
        daemon.stop(Signal::TERM);
    });
}

/// Maps the table of sessions, asks a process to read its configuration again, and reads the table as soon as its
/// log has the answer. Prints the number of entries with an address before, and at the answer.
const ENTRIES_AT_ANSWER: &str = "
import mmap, signal, time
path, log, process, address = sys.argv[1:]
name = ctypes.create_string_buffer(path.encode())
get, info, size = 7, 15, 128
table = bpf(get, struct.pack('Q', ctypes.addressof(name)))
about = ctypes.create_string_buffer(80)
bpf(info, struct.pack('IIQ', table, 80, ctypes.addressof(about)))
_, _, _, value, count = struct.unpack('5I', about[:20])
assert value == size, value
pages = (size * count + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE
entries = mmap.mmap(table, pages, mmap.MAP_SHARED, mmap.PROT_READ)
address = socket.inet_aton(address)
def used():
    every = (entries[at:at + 20] for at in range(0, size * count, size))
    return sum(entry[8] & 1 and address in (entry[12:16], entry[16:20]) for entry in every)
before = used()
log = os.open(log, os.O_RDONLY)
os.lseek(log, 0, os.SEEK_END)
os.kill(int(process), signal.SIGHUP)
said, end = b'', time.monotonic() + 10
while b'reload: done' not in said:
    assert time.monotonic() < end, said
    said += os.read(log, 65536)
print(before, used())
";

#[test]
fn the_kernel_has_no_session_of_a_removed_pool_when_the_reload_answers() {
    in_lab("fastpath_faults::the_kernel_has_no_session_of_a_removed_pool_when_the_reload_answers", || {
        let net = network();
        let _server = echo(&net.server).unwrap();
        let config = format!("{CREATE}{FASTPATH}sessions_max = 64\n{NAT64}");
        let daemon = Daemon::start(&net, &config);
        let flows: Vec<Process> = (0..20).map(|n| numbered(&net, "8", &(5151 + n).to_string())).collect();
        wait("the flows in the kernel", 6, || sessions() == 20);
        let other = config.replace("192.0.2.1", "192.0.2.9");
        std::fs::write(daemon.file(), other).unwrap();
        let (entries, log) = (format!("{PINS}/entries"), daemon.file().with_file_name("err"));
        let mut command = Command::new("python3");
        command.args(["-c", &format!("{BPF}{ENTRIES_AT_ANSWER}"), &entries]).arg(log);
        let said = gatun_testkit::run(command.args([&daemon.process.id().to_string(), "192.0.2.1"])).unwrap();
        // Each session has two entries.
        assert_eq!(said.trim(), "40 0");
        wait("the flows with their new address", 5, || sessions() == 20);
        flows.into_iter().for_each(|flow| _ = counts(flow));
        daemon.stop(Signal::TERM);
    });
}
