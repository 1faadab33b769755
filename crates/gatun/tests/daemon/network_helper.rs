//! Network helper: the only process that keeps a capability, and the requests that it accepts.

use crate::harness::{CREATE, Daemon, NAT64, in_lab, network, ping, status_line};
use gatun_api::client::Client;
use gatun_api::types::{Part, Status, Urgency};
use gatun_testkit::Topology;
use gatun_testkit::topology::SERVER;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair, sockopt,
};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Empty capability set in /proc/PID/status.
const NONE: &str = "0000000000000000";
/// CAP_NET_ADMIN alone, in /proc/PID/status.
const NET_ADMIN: &str = "0000000000001000";

/// Children of a process.
pub(crate) fn children_of(pid: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let process: u32 = entry.unwrap().file_name().to_string_lossy().parse().ok()?;
        // The parent is the second field after the name.
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let parent: u32 = stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()?;
        (parent == pid).then_some(process)
    });
    processes.collect()
}

/// Helper of a daemon: its only child.
fn helper_of(pid: u32) -> u32 {
    let children = children_of(pid);
    assert_eq!(children.len(), 1, "{children:?}");
    assert_eq!(status_line(children[0], "Name"), "gatun-network");
    children[0]
}

fn until(what: &str, is: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn kill(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

fn runs(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn status() -> Status {
    Client::new(gatun_api::SOCKET).get("/v1/status").unwrap()
}

#[test]
fn the_helper_keeps_one_capability_and_no_file_and_ends_with_the_daemon() {
    in_lab("network_helper::the_helper_keeps_one_capability_and_no_file_and_ends_with_the_daemon", || {
        let net = network();
        for (port, wanted) in [("", NET_ADMIN), ("routes = false\n", NONE)] {
            for end in [Signal::TERM, Signal::KILL] {
                let mut daemon = Daemon::start(&net, &format!("{CREATE}{port}{NAT64}"));
                let helper = helper_of(daemon.process.id());
                for (set, wanted) in
                    [("CapEff", wanted), ("CapPrm", wanted), ("CapInh", NONE), ("CapAmb", NONE)]
                {
                    assert_eq!(status_line(helper, set), wanted, "{set}");
                }
                for (line, wanted) in [("NoNewPrivs", "1"), ("Seccomp", "2"), ("Threads", "1")] {
                    assert_eq!(status_line(helper, line), wanted, "{line}");
                }
                // The channel, netlink sockets, and descriptors inherited from the test: no file of the
                // daemon.
                for fd in fs::read_dir(format!("/proc/{helper}/fd")).unwrap() {
                    let target = fs::read_link(fd.unwrap().path()).unwrap();
                    let is_file = target.is_absolute() && target != Path::new("/dev/null");
                    let is_log = target.file_name().is_some_and(|name| name == "err");
                    assert!(!is_file || is_log, "{}", target.display());
                }
                // Signals that a terminal or systemd sends to all processes of the daemon.
                for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::USR1] {
                    kill(helper, signal);
                }
                // Without routes, no packet arrives.
                assert!(wanted == NONE || ping(&net.client, 1, SERVER, ""));
                assert!(runs(helper), "{}", daemon.stderr());
                daemon.process.signal(end).unwrap();
                daemon.process.wait(Duration::from_secs(10)).unwrap();
                until("the helper ends with the daemon", || !runs(helper));
            }
        }
    });
}

#[test]
fn packets_continue_without_the_helper_and_its_end_is_reported() {
    in_lab("network_helper::packets_continue_without_the_helper_and_its_end_is_reported", || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}"));
        assert_eq!(status().troubles, []);
        let helper = helper_of(daemon.process.id());
        kill(helper, Signal::KILL);
        let said = daemon.says("the network helper has ended");
        assert!(said.contains("signal: 9") && said.contains("restart gatun"), "{said}");
        // No zombie is left.
        until("it is reaped", || !fs::exists(format!("/proc/{helper}")).unwrap());
        assert!(ping(&net.client, 3, SERVER, ""));
        let troubles = status().troubles;
        assert_eq!(troubles.len(), 1, "{troubles:?}");
        assert_eq!((troubles[0].urgency, troubles[0].part), (Urgency::Bad, Part::Network));
        assert!(troubles[0].what.contains("network helper"), "{troubles:?}");
        let doctor =
            gatun_testkit::output(net.translator.command(env!("CARGO_BIN_EXE_gatun")).arg("doctor")).unwrap();
        let doctor = String::from_utf8(doctor.stdout).unwrap();
        assert!(doctor.contains("network helper has ended"), "{doctor}");
        // A reload that needs the helper reports the missing part and applies the rest.
        let more = "routes = [\"64:ff9b::/96\", \"203.0.113.0/24\", \"198.18.0.0/15\"]\n";
        let said = daemon.reload(&format!("{CREATE}{more}{NAT64}"), "are unchanged");
        assert!(said.contains("the network helper does not answer"), "{said}");
        assert!(ping(&net.client, 1, SERVER, ""));
        daemon.stop(Signal::TERM);
    });
}

/// Helper with this test as its daemon; the test sends what code in a worker could send.
struct Asked {
    child: Child,
    channel: OwnedFd,
}

impl Asked {
    fn new(net: &Topology) -> Asked {
        let (channel, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        sockopt::set_socket_timeout(&channel, sockopt::Timeout::Recv, Some(Duration::from_secs(10))).unwrap();
        let mut command = net.translator.command(env!("CARGO_BIN_EXE_gatun"));
        let child = command.arg("network-helper").stdin(Stdio::from(theirs)).spawn().unwrap();
        Asked { child, channel }
    }

    /// Started helper for the device `nat64`.
    fn started(net: &Topology) -> Asked {
        let asked = Asked::new(net);
        for message in [
            r#"{"Begin":{"user":null,"sandboxed":true}}"#,
            r#"{"Device":{"name":"nat64","precede_routes":false}}"#,
            r#"{"Prefixes":{"device":0,"routes":true,"prefixes":[["198.18.0.0",15]]}}"#,
            r#""Start""#,
        ] {
            asked.say(message);
        }
        assert!(asked.hear().contains("Ready"));
        asked
    }

    fn say(&self, message: &str) {
        // If the helper has ended, `hear` reports the reason.
        let _ = send(&self.channel, message.as_bytes(), SendFlags::NOSIGNAL);
    }

    fn hear(&self) -> String {
        let mut bytes = vec![0; 64 << 10];
        let (len, _) = recv(&self.channel, &mut bytes[..], RecvFlags::empty()).unwrap();
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    }

    /// Waits for the helper to end because of a request, and returns its message.
    fn refuses(mut self) -> String {
        let why = self.hear();
        assert!(why.contains("Failed"), "{why}");
        assert!(!self.child.wait().unwrap().success());
        why
    }
}

#[test]
fn a_worker_can_only_request_routes_of_its_own_device() {
    in_lab("network_helper::a_worker_can_only_request_routes_of_its_own_device", || {
        let net = network();
        net.translator.ip("tuntap add dev nat64 mode tun").unwrap();
        net.translator.ip("link set nat64 up").unwrap();
        let routes = || net.translator.run("ip route").unwrap();
        let before = routes();
        // Allowed: routes of its own device, to networks without a host route.
        let asked = Asked::started(&net);
        asked.say(r#"{"Prefixes":{"device":0,"routes":true,"prefixes":[["198.19.0.0",16]]}}"#);
        asked.say(r#"{"Apply":{"device":0}}"#);
        let line = asked.hear();
        assert!(line.contains("1 route added"), "{line}");
        asked.say(r#"{"Prefixes":{"device":0,"routes":true,"prefixes":[["198.51.100.0",24]]}}"#);
        asked.say(r#"{"Apply":{"device":0}}"#);
        let why = asked.hear();
        assert!(why.contains("precede_routes") && why.contains("198.51.100.0/24"), "{why}");
        drop(asked);
        // Another device, user or mode is refused after start.
        for message in [
            r#"{"Device":{"name":"inside","precede_routes":true}}"#,
            r#"{"Begin":{"user":[0,0],"sandboxed":false}}"#,
            r#""Start""#,
            r#"{"Apply":{"device":1}}"#,
            r#"{"Prefixes":{"device":1,"routes":true,"prefixes":[["198.18.0.0",15]]}}"#,
            r#"{"Prefixes":{"device":0,"routes":true,"prefixes":[["198.18.0.0",33]]}}"#,
            r#"{"Run":"/bin/sh"}"#,
            "no message",
        ] {
            let asked = Asked::started(&net);
            asked.say(message);
            asked.refuses();
        }
        // Gatun only uses TUN devices.
        let asked = Asked::new(&net);
        for message in [
            r#"{"Begin":{"user":null,"sandboxed":true}}"#,
            r#"{"Device":{"name":"inside","precede_routes":true}}"#,
            r#""Start""#,
        ] {
            asked.say(message);
        }
        assert!(asked.refuses().contains("inside"));
        // The host's routes are unchanged.
        let now = routes();
        assert!(before.lines().all(|route| now.contains(route.trim())), "{before} {now}");
    });
}

#[test]
fn the_helper_does_nothing_when_started_by_hand() {
    let (_ours, stream) = UnixStream::pair().unwrap();
    for stdin in [Stdio::null(), Stdio::from(OwnedFd::from(stream))] {
        let output = gatun_testkit::output(
            Command::new(env!("CARGO_BIN_EXE_gatun")).arg("network-helper").stdin(stdin),
        )
        .unwrap();
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains("`gatun run` starts this command"));
    }
}
