//! Moves of flows into the kernel, and their packets that left behind a later one.
//!
//! The kernel's packets have identifications of their own, so the server knows who has translated a packet.
//! A move reorders if a packet of Gatun arrives behind one of the kernel. `GATUN_MOVES=4000` counts more.

use crate::fastpath::{FASTPATH, config, packets, show};
use crate::harness::{Daemon, NAT64, in_lab, network};
use gatun_testkit::topology::SERVER;
use gatun_testkit::{Process, Topology};
use rustix::process::Signal;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Sends datagrams of several flows at a time, 2,000 of each per second. Prints how many came back, and how
/// many of these behind a later one. The flows are from eight addresses.
const SEND: &str = "
import os, socket, struct, sys, time
flows, packets, together, receive_buffer = int(sys.argv[2]), 300, 4, 33 # SO_RCVBUFFORCE
# A thread that changes its processor has its packets in two queues of the kernel.
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
back = behind = 0
for first in range(0, flows, together):
    sockets = []
    for flow in range(first, first + together):
        u = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        u.bind(('2001:db8:1::%x' % (3 + flow % 8), 0)); u.connect((sys.argv[1], 7777))
        u.setsockopt(socket.SOL_SOCKET, receive_buffer, 1 << 20); sockets.append(u)
    begin = time.monotonic()
    for number in range(packets):
        for place, u in enumerate(sockets): u.send(struct.pack('!II', first + place, number))
        time.sleep(max(0, begin + (number + 1) / 2000 - time.monotonic()))
    time.sleep(0.02)
    for u in sockets:
        u.setblocking(False); most = -1
        try:
            while True:
                number, = struct.unpack('!I', u.recv(100)); back += 1
                behind += number < most; most = max(most, number)
        except BlockingIOError: pass
        u.close()
print(back, behind)
";

/// Answers datagrams with numbers of its own. At the end it prints how many flows moved to the kernel, and how
/// many packets of Gatun came behind one of the kernel. A third number is that of others behind a later one.
const ANSWER: &str = "
import os, signal, socket, struct, sys
step, first = int(sys.argv[1]), int(sys.argv[2])
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP); raw.settimeout(0.1)
raw.setsockopt(socket.SOL_SOCKET, 33, 8 << 20) # SO_RCVBUFFORCE
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.bind(('', 7777))
flows, moves, behind, other, over = {}, 0, 0, 0, []
signal.signal(signal.SIGTERM, lambda *_: over.append(True))
print('ready', flush=True)
while not over:
    try: packet = raw.recv(2048)
    except TimeoutError: continue
    (ident,), (port, to) = struct.unpack('!H', packet[4:6]), struct.unpack('!HH', packet[20:24])
    if to != 7777: continue
    number, at = struct.unpack('!II', packet[28:36])
    by_kernel = ident % step == first
    flow = flows.setdefault(number, [-1, False, False, 0])
    if by_kernel and not flow[2]: flow[2] = True; moves += 1
    if at < flow[0]:
        if flow[1] and not by_kernel: behind += 1
        else: other += 1
    else: flow[0], flow[1] = at, by_kernel
    udp.sendto(struct.pack('!I', flow[3]), (socket.inet_ntoa(packet[12:16]), port)); flow[3] += 1
print(moves, behind, other)
";

fn flows() -> u64 {
    std::env::var("GATUN_MOVES").map_or(200, |flows| flows.parse().unwrap())
}

fn numbers(said: &str) -> Vec<u64> {
    said.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn wait_for_server(net: &Topology) {
    let listens = || net.server.run("ss -Hlnu").is_ok_and(|sockets| sockets.contains(":7777 "));
    gatun_testkit::wait_until("the server", Duration::from_secs(30), listens).unwrap();
}

/// Moves of flows between this many workers and the kernel.
fn moves(workers: u16) {
    let net = network();
    for n in 3..11 {
        net.client.ip(&format!("-6 address add 2001:db8:1::{n:x}/64 dev eth0 nodad")).unwrap();
    }
    // The kernel has the identifications behind those of the workers.
    let step = (workers + 1).next_power_of_two();
    let mut answer = net.server.python(ANSWER, &[&step.to_string(), &workers.to_string()]);
    let server = Process::start(answer.stdout(Stdio::piped())).unwrap();
    wait_for_server(&net);
    let daemon = Daemon::start(
        &net,
        &format!(
            "[[port]]\ndevice = \"nat64\"\nqueues = {workers}\n{FASTPATH}{}",
            NAT64.replace("\"192.0.2.1\"", "\"192.0.2.0/30\"").replace("192.0.2.1:5002", "192.0.2.2:5002")
        ),
    );
    let flows = flows();
    let sent = gatun_testkit::run(&mut net.client.python(SEND, &[SERVER, &flows.to_string()])).unwrap();
    let fastpath = show("fastpath");
    server.signal(Signal::TERM).unwrap();
    let (status, said) = server.output(Duration::from_secs(10)).unwrap();
    assert!(status.success(), "{said}");
    let late = &fastpath["instances"][0]["moved_late"];
    println!(
        "{workers} workers, {flows} flows: moved, behind one of the kernel, other behind: {}; \
         back, behind: {}; moved late: {late}",
        said.trim(),
        sent.trim()
    );
    let said = numbers(&said);
    // A flow ends before it would move in any case.
    assert!(said[0] * 2 > flows, "{said:?} {fastpath}");
    assert!(said[1] * 1000 <= said[0].max(1000), "{said:?} {fastpath}");
    daemon.stop(Signal::TERM);
}

#[test]
fn a_move_from_one_worker_to_the_kernel_reorders_nothing() {
    in_lab("fastpath_moves::a_move_from_one_worker_to_the_kernel_reorders_nothing", || moves(1));
}

#[test]
fn a_move_from_two_workers_to_the_kernel_reorders_nothing() {
    in_lab("fastpath_moves::a_move_from_two_workers_to_the_kernel_reorders_nothing", || moves(2));
}

/// Sends datagrams as fast as it can for 600 ms, on one processor, and prints their number.
const FLOOD: &str = "
import os, socket, sys, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
u = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); u.connect((sys.argv[1], 7777))
end, sent = time.monotonic() + 0.6, 0
while time.monotonic() < end:
    for _ in range(32): u.send(bytes(64))
    sent += 32
print(sent)
";

/// Lets a thread of the daemon run on the sender's processor only, with a tenth of its weight.
const SLOW_DOWN: &str = "
import os, sys
process, name = sys.argv[1:]
threads = os.listdir(f'/proc/{process}/task')
thread = next(int(t) for t in threads if open(f'/proc/{process}/task/{t}/comm').read().strip() == name)
os.sched_setaffinity(thread, {min(os.sched_getaffinity(0))})
os.setpriority(os.PRIO_PROCESS, thread, 10)
";

#[test]
fn a_flow_faster_than_its_worker_moves_soon_because_the_device_drops_packets() {
    let name = "a_flow_faster_than_its_worker_moves_soon_because_the_device_drops_packets";
    in_lab(&format!("fastpath_moves::{name}"), || {
        let net = network();
        let socket = "import socket, time; u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); \
                      u.bind(('', 7777)); time.sleep(60)";
        let _server = Process::start(&mut net.server.python(socket, &[])).unwrap();
        wait_for_server(&net);
        let daemon = Daemon::start(&net, &config());
        let process = daemon.process.id().to_string();
        gatun_testkit::run(Command::new("python3").args(["-c", SLOW_DOWN, &process, "worker-0"])).unwrap();
        // Milliseconds that a flow was pending, if it moved while packets waited in the queue. Otherwise it
        // moves when the worker has emptied the queue, or after 250 ms. A busy machine makes some longer.
        let pending_ms = || {
            let late = || show("fastpath")["instances"][0]["moved_late"].as_u64().unwrap();
            let (pending, before) = (packets("pending"), late());
            let sent = gatun_testkit::run(&mut net.client.python(FLOOD, &[SERVER])).unwrap();
            // The counters are read a few times a second.
            std::thread::sleep(Duration::from_millis(500));
            let (pending, late) = (packets("pending") - pending, late() - before);
            println!("{} sent, {pending} pending, {late} late", sent.trim());
            (late > 0).then(|| pending * 600 / numbers(&sent)[0])
        };
        let all: Vec<Option<u64>> = std::iter::repeat_with(pending_ms).take(5).collect();
        assert!(all.iter().flatten().any(|pending_ms| *pending_ms < 125), "{all:?}");
        daemon.stop(Signal::TERM);
    });
}
