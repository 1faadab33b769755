//! Moves of flows into the kernel, and their packets that left behind a later one.
//!
//! The kernel's packets have identifications of their own, so the server knows who has translated a packet.
//! A move reorders if a packet of Gatun arrives behind one of the kernel. `GATUN_MOVES=4000` counts more.

use crate::fastpath::{FASTPATH, show};
use crate::harness::{Daemon, NAT64, in_lab, network};
use gatun_testkit::Process;
use gatun_testkit::topology::SERVER;
use rustix::process::Signal;
use std::process::Stdio;
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
    let listens = || net.server.run("ss -Hlnu").is_ok_and(|sockets| sockets.contains(":7777 "));
    gatun_testkit::wait_until("the server", Duration::from_secs(30), listens).unwrap();
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
