//! Sessions over restarts: after a kill or a stop, with another configuration, and with several workers.

use crate::harness::{CREATE, Daemon, NAT64, in_lab, network, ping, program};
use gatun_testkit::topology::SERVER;
use gatun_testkit::{Process, Topology, echo};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const STATE: &str = "/run/gatun/state";
const GO_ON: &str = "of the previous process in";

/// For a number of seconds, sends a datagram per millisecond, and lines through a TCP connection, each after
/// the echo of the previous one. Prints the longest time without an answer to a datagram, and the number of
/// echoed lines.
const TALK: &str = "
import socket, sys, threading, time
server, seconds = sys.argv[1], float(sys.argv[2])
end = time.monotonic() + seconds
u = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); u.bind(('', 5151)); u.settimeout(0.2)
t = socket.create_connection((server, 7777), timeout=20)
def send():
    while time.monotonic() < end:
        u.sendto(b'x', (server, 7777)); time.sleep(0.001)
threading.Thread(target=send, daemon=True).start()
lines, longest, last = [0], 0.0, None
def talk():
    while time.monotonic() < end:
        t.sendall(b'12345678'); got = b''
        while len(got) < 8:
            more = t.recv(8 - len(got))
            if not more: return
            got += more
        lines[0] += 1; time.sleep(0.001)
talker = threading.Thread(target=talk); talker.start()
while time.monotonic() < end:
    try: u.recvfrom(2048)
    except TimeoutError: continue
    now = time.monotonic()
    if last is not None: longest = max(longest, now - last)
    last = now
answered = end - last < 1
talker.join()
print(longest * 1000, lines[0], answered)
";

/// Sends 300 datagrams from different ports.
const SESSIONS: &str = "
import socket, sys
for port in range(300):
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.bind(('', 20000 + port)); s.sendto(b'hello', (sys.argv[1], 9000 + port % 7))
";

/// Sessions: inside, outside and remote endpoints.
fn sessions() -> BTreeSet<String> {
    let output =
        gatun_testkit::output(Command::new(program()).args(["show", "sessions", "-o", "ndjson"])).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let all = text.lines().map(|line| {
        let mut session: Value = serde_json::from_str(line).unwrap();
        for moving in ["expires_ms", "tcp_state", "worker"] {
            session.as_object_mut().unwrap().remove(moving);
        }
        session.to_string()
    });
    all.collect()
}

fn made(net: &Topology) {
    gatun_testkit::run(&mut net.client.python(SESSIONS, &[SERVER])).unwrap();
    assert!(ping(&net.client, 2, SERVER, ""));
}

/// Number of restored sessions in the daemon's log, once all are restored.
fn taken_over(daemon: &Daemon) -> Option<usize> {
    let said = daemon.says(GO_ON);
    let line = said.lines().find(|line| line.contains(GO_ON))?;
    line.split_whitespace().find_map(|word| word.replace(',', "").parse().ok())
}

fn kill(mut daemon: Daemon) {
    daemon.process.signal(Signal::KILL).unwrap();
    daemon.process.wait(Duration::from_secs(10)).unwrap();
}

#[test]
fn the_daemon_after_a_killed_one_restores_every_session() {
    in_lab("restart::the_daemon_after_a_killed_one_restores_every_session", || {
        let net = network();
        let _server = echo(&net.server).unwrap();
        let mut daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}"));
        made(&net);
        let talk = Process::start(net.client.python(TALK, &[SERVER, "4"]).stdout(Stdio::piped())).unwrap();
        gatun_testkit::wait_until("the connection", Duration::from_secs(5), || sessions().len() >= 303)
            .unwrap();
        for round in 0..3 {
            std::thread::sleep(Duration::from_millis(400));
            let before = sessions();
            assert_eq!(before.len(), 303, "{before:?}");
            kill(daemon);
            net.translator.run("ip link show nat64").expect("the device stays");
            daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}"));
            assert_eq!(taken_over(&daemon), Some(303), "round {round}: {}", daemon.stderr());
            assert!(sessions() == before, "round {round}");
        }
        let (status, said) = talk.output(Duration::from_secs(15)).unwrap();
        assert!(status.success());
        let words: Vec<&str> = said.split_whitespace().collect();
        let lines: u32 = words[1].parse().unwrap();
        assert!(lines > 100 && words[2] == "True", "{said}");
        eprintln!("longest time without an answer over three kills: {} ms", words[0]);
        assert_eq!(sessions().len(), 303, "nobody had to open another session");
        // A clean stop removes the device, and the sessions are still restored.
        daemon.stop(Signal::TERM);
        assert!(net.translator.run("ip link show nat64").is_err(), "the device is still there");
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}"));
        assert_eq!(taken_over(&daemon), Some(303), "{}", daemon.stderr());
        kill(daemon);
        let mut daemon = Daemon::spawn(&net, &format!("{CREATE}{NAT64}"), &["--forget"]);
        gatun_testkit::wait_until("a new beginning", Duration::from_secs(5), || {
            daemon.stderr().contains("translating with")
        })
        .unwrap();
        assert!(daemon.process.ended().is_none());
        assert!(sessions().is_empty() && !daemon.stderr().contains(GO_ON));
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn several_workers_restore_their_own_sessions() {
    in_lab("restart::several_workers_restore_their_own_sessions", || {
        let net = network();
        let with = |queues: u32, pool: &str| {
            format!(
                "[[port]]\ndevice = \"nat64\"\nqueues = {queues}\n[[pool]]\nprefixes = {pool}\n\
                 [[nat64]]\npool6 = \"2001:db8:64::/96\"\nsubscriber = \"/128\"\n"
            )
        };
        let config = |queues| with(queues, "\"192.0.2.0/28\"");
        for n in 3..40 {
            net.client.ip(&format!("-6 address add 2001:db8:1::{n:x}/64 dev eth0 nodad")).unwrap();
        }
        let mut daemon = Daemon::start(&net, &config(2));
        for n in 3..40 {
            assert!(ping(&net.client, 1, SERVER, &format!("-I 2001:db8:1::{n:x}")));
        }
        for round in 1..3 {
            let before = sessions();
            assert_eq!(before.len(), 37 * round);
            kill(daemon);
            daemon = Daemon::start(&net, &config(2));
            assert!(sessions() == before, "round {round}: {}", daemon.stderr());
            for n in 3..40 {
                // Each has its own identifier, so each opens a session.
                assert!(ping(&net.client, 1, SERVER, &format!("-I 2001:db8:1::{n:x}")));
            }
        }
        // More addresses, before and after the existing ones: at a restart, and by a reload.
        let before = sessions();
        kill(daemon);
        daemon = Daemon::start(&net, &with(2, "[\"192.0.2.0/28\", \"192.0.2.64/28\"]"));
        assert!(sessions() == before, "{}", daemon.stderr());
        let more = with(2, "[\"192.0.1.0/27\", \"192.0.2.0/28\", \"192.0.2.64/28\"]");
        // On reserved huge pages, a pool has no spare room (docs/how-to/reload.md).
        let has_room = fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap().trim() == "0";
        daemon.reload(&more, if has_room { "reload: done" } else { "reload: " });
        assert!(sessions() == before);
        kill(daemon);
        daemon = Daemon::start(&net, &with(2, "[\"192.0.1.0/27\", \"192.0.2.0/28\"]"));
        assert!(sessions() == before, "{}", daemon.stderr());
        kill(daemon);
        // Another number of workers redistributes subscribers: those whose address moved to another worker
        // start again.
        let daemon = Daemon::start(&net, &config(1));
        assert_eq!(taken_over(&daemon), Some(sessions().len()), "{}", daemon.stderr());
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn sessions_that_cannot_be_restored_are_reported_and_do_not_prevent_a_start() {
    in_lab("restart::sessions_that_cannot_be_restored_are_reported_and_do_not_prevent_a_start", || {
        let net = network();
        let config = format!("{CREATE}{NAT64}");
        let daemon = Daemon::start(&net, &config);
        made(&net);
        daemon.stop(Signal::TERM);
        let records = || {
            let all = fs::read_dir(STATE).unwrap().flatten().map(|entry| entry.path());
            all.filter(|path| path.to_str().unwrap().contains("sessions.")).collect::<Vec<_>>()
        };
        // Format of another version.
        let file = records().pop().expect("there are records");
        let mut bytes = fs::read(&file).unwrap();
        bytes[8] = 99;
        fs::write(&file, &bytes).unwrap();
        let daemon = Daemon::start(&net, &config);
        assert!(
            daemon
                .stderr()
                .contains("cannot restore sessions of the previous process: unsupported layout 99"),
            "{}",
            daemon.stderr()
        );
        assert_eq!(sessions().len(), 0);
        made(&net);
        kill(daemon);
        // Killed during its start: files that names.json does not list.
        fs::write(format!("{STATE}/sessions.99.0"), b"begun").unwrap();
        let daemon = Daemon::start(&net, &config);
        assert_eq!(sessions().len(), 301, "{}", daemon.stderr());
        gatun_testkit::wait_until("what was left to be cleared away", Duration::from_secs(5), || {
            records().len() == 1
        })
        .unwrap();
        // A second daemon in the same directory does not change it.
        let mut second = Daemon::spawn(
            &net,
            &config.replace("device = \"nat64\"", "device = \"other\"\nroutes = false"),
            &[],
        );
        gatun_testkit::wait_until("the second one", Duration::from_secs(5), || {
            second.stderr().contains("is in use by another running gatun")
        })
        .unwrap();
        second.process.signal(Signal::KILL).unwrap();
        second.process.wait(Duration::from_secs(5)).unwrap();
        assert_eq!(sessions().len(), 301);
        // The pool has changed.
        kill(daemon);
        let other = config.replace("192.0.2.1", "192.0.2.7");
        let daemon = Daemon::start(&net, &other);
        daemon.says("301 sessions whose public address or port is no longer in its pool");
        kill(daemon);
        // An unreadable names.json is ignored.
        fs::write(format!("{STATE}/names.json"), b"{").unwrap();
        let daemon = Daemon::start(&net, &config);
        assert_eq!(sessions().len(), 0);
        daemon.stop(Signal::TERM);
    });
}

/// Snapshot of `count` UDP sessions of silent hosts with 16 sessions each.
fn many(count: u32) -> String {
    let head = format!(
        "{{\"gatun_snapshot\":1,\"names\":{{\"generation\":0,\"workers\":1,\"instances\":[{{\"kind\":\"nat64\",\
         \"name\":\"lab\",\"prefixes\":[\"2001:db8:64::/96\"]}}],\"steering\":[1,2,3,4]}},\
         \"sessions\":{count}}}\n"
    );
    let line = |n: u32| {
        let (host, flow) = (n / 16, n % 16);
        // Four hosts share an address with consecutive ports; the next four use the next address.
        let (address, port) = (host / 4 % 250, 1024 + (host / 1000 * 4 + host % 4) * 16 + flow);
        format!(
            "{{\"instance\":0,\"pool6\":0,\"protocol\":\"udp\",\"inside\":[\"2001:db8:{:x}:{:x}::1\",{}],\
             \"outside\":[\"192.0.2.{address}\",{port}],\"remote\":[\"198.51.100.9\",53],\
             \"state\":\"TRANS\",\"expires_ms\":300000,\"shares_port\":false}}\n",
            9 + (host >> 16),
            host & 0xffff,
            1000 + flow
        )
    };
    (0..count).fold(head, |text, n| text + &line(n))
}

fn load(snapshot: &str) {
    fs::write("/run/many", snapshot).unwrap();
    gatun_testkit::run(Command::new(program()).args(["snapshot", "load", "/run/many"])).unwrap();
}

/// Configuration for these sessions.
const FOR_MANY: &str = "[[port]]\ndevice = \"nat64\"\n[[pool]]\nprefixes = \"192.0.2.0/24\"\n\
    [[nat64]]\nname = \"lab\"\npool6 = \"2001:db8:64::/96\"\n\
    [limits]\nsessions_max = 2300000\nsubscribers_max = 200000\n";

/// Session counter, without a list of sessions.
fn session_count() -> u64 {
    let gatun = |args: &[&str]| gatun_testkit::output(Command::new(program()).args(args)).unwrap().stdout;
    let status: Value = serde_json::from_slice(&gatun(&["show", "status", "-o", "json"])).unwrap();
    status["sessions"].as_u64().unwrap()
}

/// The same with 2,097,152 sessions: `scripts/bench-restart`.
#[test]
fn packets_pass_while_other_sessions_are_restored() {
    in_lab("restart::packets_pass_while_other_sessions_are_restored", || {
        let many_sessions = match std::env::var("GATUN_RESTART_SESSIONS") {
            Ok(count) => count.parse().unwrap(),
            Err(_) => 200_000,
        };
        let net = network();
        let _server = echo(&net.server).unwrap();
        load(&many(many_sessions));
        let mut daemon = Daemon::start(&net, FOR_MANY);
        assert_eq!(taken_over(&daemon), Some(many_sessions as usize));
        let talk = Process::start(net.client.python(TALK, &[SERVER, "8"]).stdout(Stdio::piped())).unwrap();
        let all = u64::from(many_sessions) + 2;
        gatun_testkit::wait_until("the connection", Duration::from_secs(5), || session_count() >= all)
            .unwrap();
        for round in 0..3 {
            std::thread::sleep(Duration::from_millis(500));
            let begin = Instant::now();
            kill(daemon);
            let gone = begin.elapsed();
            daemon = Daemon::start(&net, FOR_MANY);
            eprintln!("gone after {gone:.1?}, translating again after {:.1?}", begin.elapsed());
            // A new session during the restore.
            assert!(ping(&net.client, 1, SERVER, ""), "round {round}: {}", daemon.stderr());
            assert_eq!(taken_over(&daemon), Some(all as usize + round), "{}", daemon.stderr());
            daemon.stderr().lines().filter(|line| line.contains(" ms")).for_each(|line| {
                eprintln!("{line}");
            });
        }
        let (status, said) = talk.output(Duration::from_secs(20)).unwrap();
        assert!(status.success());
        let words: Vec<&str> = said.split_whitespace().collect();
        assert!(words[2] == "True", "{said}");
        eprintln!("longest time without an answer over three kills with {all} sessions: {} ms", words[0]);
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn daemons_killed_during_a_restore_lose_no_session() {
    in_lab("restart::daemons_killed_during_a_restore_lose_no_session", || {
        let net = network();
        load(&many(300_000));
        let mut at_once = 0;
        for after_ms in [0, 5, 20, 50, 100, 0, 150, 10] {
            let daemon = Daemon::start(&net, FOR_MANY);
            std::thread::sleep(Duration::from_millis(after_ms));
            kill(daemon);
            let names = fs::read_to_string(format!("{STATE}/names.json")).unwrap();
            let names: Value = serde_json::from_str(&names).unwrap();
            at_once += usize::from(names["earlier"].is_array());
        }
        assert!(at_once > 1, "too few were killed while they restored sessions");
        let save = ["snapshot", "save", "/run/saved"];
        let saved = gatun_testkit::output(Command::new(program()).args(save)).unwrap();
        assert_eq!(String::from_utf8_lossy(&saved.stderr), "300,000 sessions saved\n");
        let daemon = Daemon::start(&net, FOR_MANY);
        assert_eq!(taken_over(&daemon), Some(300_000), "{}", daemon.stderr());
        assert!(!daemon.stderr().contains("not restored: "), "{}", daemon.stderr());
        assert_eq!(session_count(), 300_000);
        let files = || fs::read_dir(STATE).unwrap().flatten().count();
        gatun_testkit::wait_until("old files to go", Duration::from_secs(5), || files() == 3).unwrap();
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn state_is_kept_in_the_configured_directory_or_not_at_all() {
    in_lab("restart::state_is_kept_in_the_configured_directory_or_not_at_all", || {
        let net = network();
        let config = |state: &str| format!("{CREATE}{NAT64}[state]\ndirectory = \"{state}\"\n");
        let daemon = Daemon::start(&net, &config("off"));
        made(&net);
        kill(daemon);
        assert!(net.translator.run("ip link show nat64").is_err(), "nobody would use the device again");
        assert!(!fs::exists(STATE).unwrap());
        let daemon = Daemon::start(&net, &config("/run/elsewhere"));
        made(&net);
        kill(daemon);
        let daemon = Daemon::start(&net, &config("/run/elsewhere"));
        assert_eq!(taken_over(&daemon), Some(301));
        let said = daemon.reload(&config("off"), "nothing has changed");
        assert!(said.contains("needs a restart: [state]"), "{said}");
        kill(daemon);
        fs::write("/run/file", "").unwrap();
        let mut daemon = Daemon::spawn(&net, &config("/run/file/state"), &[]);
        assert!(!daemon.process.wait(Duration::from_secs(5)).unwrap().success());
        let said = daemon.stderr();
        assert!(said.contains("[state] directory: cannot create /run/file/state: "), "{said}");
    });
}

#[test]
fn a_snapshot_moves_sessions_to_another_host() {
    in_lab("restart::a_snapshot_moves_sessions_to_another_host", || {
        let net = network();
        let config = format!("{CREATE}{NAT64}");
        let gatun = |args: &str| {
            let output = gatun_testkit::output(Command::new(program()).args(args.split(' '))).unwrap();
            (output.status.success(), String::from_utf8(output.stderr).unwrap())
        };
        assert!(gatun("snapshot save /run/snapshot").1.contains("no saved sessions of gatun"));
        let daemon = Daemon::start(&net, &config);
        made(&net);
        let before = sessions();
        assert_eq!(gatun("snapshot save /run/snapshot"), (true, "301 sessions saved\n".to_owned()));
        let (loaded, said) = gatun("snapshot load /run/snapshot");
        assert!(!loaded && said.contains("is in use by another running gatun"), "{said}");
        assert!(sessions() == before, "the daemon goes on");
        daemon.stop(Signal::TERM);
        // The other host has no state.
        for entry in fs::read_dir(STATE).unwrap().flatten() {
            fs::remove_file(entry.path()).unwrap();
        }
        let text = fs::read_to_string("/run/snapshot").unwrap();
        for (wrong, why) in [
            (String::new(), "is empty"),
            ("{}\n".to_owned(), ":1: not a snapshot"),
            (
                text.replacen("\"gatun_snapshot\":1", "\"gatun_snapshot\":2", 1),
                "unsupported snapshot version 2",
            ),
            (text.lines().take(100).collect::<Vec<_>>().join("\n"), "301 sessions expected, 99 found"),
            (text.replacen("\"icmp\"", "\"igmp\"", 1), "unknown protocol \"igmp\""),
            (text.replacen("\"instance\":0", "\"instance\":300", 1), ":2: not a session"),
        ] {
            fs::write("/run/wrong", wrong).unwrap();
            let (loaded, said) = gatun("snapshot load /run/wrong");
            assert!(!loaded && said.contains(why), "{why}: {said}");
        }
        assert!(!fs::exists(format!("{STATE}/names.json")).unwrap(), "a wrong one changes nothing");
        assert_eq!(
            gatun("snapshot load /run/snapshot"),
            (true, "301 sessions loaded; the next gatun run restores them\n".to_owned())
        );
        let daemon = Daemon::start(&net, &config);
        assert_eq!(taken_over(&daemon), Some(301), "{}", daemon.stderr());
        assert!(sessions() == before);
        daemon.stop(Signal::TERM);
    });
}
