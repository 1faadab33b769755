//! Kernel fast path beside a worker that does not answer, and reloads meanwhile.

use crate::fastpath::{FASTPATH, config, counts, numbered, packets, sessions, show, wait};
use crate::harness::{Daemon, NAT64, in_lab, network};
use gatun_testkit::topology::SERVER;
use gatun_testkit::{Process, Topology, echo};
use rustix::process::Signal;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

/// Stops a thread of a process by ptrace(2), until its standard input ends.
const STOP_THREAD: &str = "
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
process, name = sys.argv[1:]
seize, interrupt, every_thread = 0x4206, 0x4207, 0x40000000
threads = os.listdir(f'/proc/{process}/task')
thread = next(int(t) for t in threads if open(f'/proc/{process}/task/{t}/comm').read().strip() == name)
for request in (seize, interrupt):
    if libc.ptrace(request, thread, None, None) < 0: raise OSError(ctypes.get_errno(), 'ptrace')
os.waitpid(thread, every_thread)
print('stopped', flush=True)
sys.stdin.read()
";

/// Worker that stands still until this value is dropped.
fn stop_worker(daemon: &Daemon, name: &str) -> (ChildStdin, Process) {
    let mut command = Command::new("python3");
    command.args(["-c", STOP_THREAD, &daemon.process.id().to_string(), name]).stdout(Stdio::piped());
    let (process, input) = Process::start_with_input(&mut command).unwrap();
    let is_stopped = || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", daemon.process.id())).unwrap();
        threads.flatten().any(|thread| {
            let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
            status.contains(&format!("Name:\t{name}\n")) && status.contains("State:\tt")
        })
    };
    gatun_testkit::wait_until("the worker to stop", Duration::from_secs(10), is_stopped).unwrap();
    (input, process)
}

#[test]
fn a_reload_of_pools_is_refused_while_a_worker_does_not_answer_and_the_kernel_goes_on() {
    let name = "a_reload_of_pools_is_refused_while_a_worker_does_not_answer_and_the_kernel_goes_on";
    in_lab(&format!("fastpath_stuck::{name}"), || {
        let net = network();
        let _server = echo(&net.server).unwrap();
        let daemon = Daemon::start(&net, &config());
        let flow = numbered(&net, "60", "5151");
        wait("the flow in the kernel", 5, || packets("translated") > 100);
        let stopped = stop_worker(&daemon, "worker-0");
        let other = config().replace("192.0.2.1", "192.0.2.9");
        let said = daemon.reload(&other, "a worker does not answer");
        assert!(!said.contains("reload: done"), "{said}");
        // Nothing has changed: the kernel has the session, and translates.
        let before = packets("translated");
        wait("packets in the kernel", 5, || packets("translated") > before + 500);
        assert_eq!(sessions(), 1);
        drop(stopped);
        daemon.reload(&other, "reload: done");
        wait("the flow with its new address", 5, || sessions() == 1);
        flow.signal(Signal::TERM).unwrap();
        counts(flow);
        daemon.stop(Signal::TERM);
    });
}

/// Flows from eight hosts, which are those of two workers.
fn flows(net: &Topology) -> Process {
    let script = "
import socket, sys, time
all = []
for host in range(3, 11):
    u = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    u.bind(('2001:db8:1::%x' % host, 5151)); all.append(u)
while True:
    for u in all: u.sendto(b'0', (sys.argv[1], 7777))
    time.sleep(0.005)
";
    for n in 3..11 {
        net.client.ip(&format!("-6 address add 2001:db8:1::{n:x}/64 dev eth0 nodad")).unwrap();
    }
    Process::start(&mut net.client.python(script, &[SERVER])).unwrap()
}

#[test]
fn switching_off_beside_a_worker_that_does_not_answer_ends_in_time_and_says_so() {
    let name = "switching_off_beside_a_worker_that_does_not_answer_ends_in_time_and_says_so";
    in_lab(&format!("fastpath_stuck::{name}"), || {
        let net = network();
        let _server = echo(&net.server).unwrap();
        let config = format!(
            "[[port]]\ndevice = \"nat64\"\nqueues = 2\n{FASTPATH}{}",
            NAT64.replace("\"192.0.2.1\"", "\"192.0.2.0/30\"").replace("192.0.2.1:5002", "192.0.2.2:5002")
        );
        let daemon = Daemon::start(&net, &config);
        let flows = flows(&net);
        wait("the flows in the kernel", 10, || sessions() == 8 && packets("translated") > 1000);
        let stopped = stop_worker(&daemon, "worker-1");
        let off = config.replace("kernel = \"auto\"", "kernel = \"off\"");
        let said = daemon.reload(&off, "reload: done");
        // The sessions of both workers have left the kernel, which needs no answer.
        let line = "fastpath: a worker has not taken sessions of the kernel back for 5 s after the reload; \
                    their ports stay unused until it does";
        assert!(said.contains(line), "{said}");
        assert_eq!(sessions(), 0, "{}", show("fastpath"));
        let before = packets("translated");
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(packets("translated"), before);
        drop(stopped);
        wait("released sessions", 5, || {
            let listed = show("sessions");
            let all = listed.as_array().unwrap();
            all.len() >= 8 && all.iter().all(|session| session["offloaded"] == false)
        });
        daemon.reload(&config, "reload: done");
        wait("the flows in the kernel again", 10, || sessions() == 8);
        drop(flows);
        daemon.stop(Signal::TERM);
    });
}
