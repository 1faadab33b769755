//! Start, signals, privileges, and devices that exist or disappear.

use crate::harness::{CREATE, Daemon, NAT64, SIIT, counter, has_users, in_lab, network, ping, status_line};
use gatun_testkit::Topology;
use gatun_testkit::topology::{PUBLIC, SERVER};
use rustix::process::Signal;
use std::fs;
use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

#[test]
fn sigterm_and_sigint_stop_it_cleanly_and_remove_the_device() {
    in_lab("lifecycle::sigterm_and_sigint_stop_it_cleanly_and_remove_the_device", || {
        let net = network();
        for signal in [Signal::TERM, Signal::INT] {
            let daemon = Daemon::start(&net, &format!("{CREATE}{SIIT}"));
            assert!(ping(&net.client, 3, SERVER, ""));
            net.translator.run("ip link show nat64").unwrap();
            let ended = daemon.stop(signal);
            assert!(ended.stdout.contains("final counters"), "{}", ended.stdout);
            assert!(counter(&ended.stdout, "received") >= 6, "{}", ended.stdout);
            assert!(net.translator.run("ip link show nat64").is_err(), "the device is still there");
        }
    });
}

#[test]
fn sigusr1_prints_the_counters_and_drop_reasons() {
    in_lab("lifecycle::sigusr1_prints_the_counters_and_drop_reasons", || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}{SIIT}"));
        assert!(ping(&net.client, 3, SERVER, ""));
        // Routed to the device, but in no mapping.
        net.translator.ip("route add 192.0.2.9/32 dev nat64").unwrap();
        assert!(!ping(&net.server, 1, "192.0.2.9", ""));
        daemon.process.signal(Signal::USR1).unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        while !daemon.stdout().contains("accounted for") {
            assert!(Instant::now() < deadline, "{}", daemon.stdout());
            std::thread::sleep(Duration::from_millis(10));
        }
        let text = daemon.stdout();
        assert!(counter(&text, "forwarded, IPv6 to IPv4") >= 3, "{text}");
        assert!(text.contains("what it means"), "{text}");
        // The configuration does not name the instance. A packet to an address in no mapping belongs to no
        // instance.
        assert!(counter(&text, "siit ") >= 3 && counter(&text, "(no instance)") == 0, "{text}");
        assert!(ping(&net.client, 3, SERVER, ""), "it goes on");
        daemon.stop(Signal::TERM);
    });
}

/// Empty capability set in /proc/PID/status.
const NONE: &str = "0000000000000000";

/// Full pipe without an active reader.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let size = rustix::pipe::fcntl_getpipe_size(&writer).unwrap();
    writer.write_all(&vec![b'x'; size]).unwrap();
    (reader, writer)
}

#[test]
fn a_blocked_reader_delays_neither_packets_nor_the_stop() {
    in_lab("lifecycle::a_blocked_reader_delays_neither_packets_nor_the_stop", || {
        let net = network();
        for both in [false, true] {
            let (mut reader, writer) = full_pipe();
            let err = both.then(|| writer.try_clone().unwrap().into());
            let config = format!("{CREATE}{SIIT}");
            let daemon = Daemon::spawn_to(&net, &config, &[], Some(writer.into()), err);
            let deadline = Instant::now() + Duration::from_secs(10);
            while !ping(&net.client, 1, SERVER, "") {
                assert!(Instant::now() < deadline, "no packet crosses: {}", daemon.stderr());
            }
            for _ in 0..20 {
                daemon.process.signal(Signal::USR1).unwrap();
                assert!(ping(&net.client, 1, SERVER, ""));
            }
            let stop = Instant::now();
            daemon.process.signal(Signal::TERM).unwrap();
            let ended = daemon.wait();
            let ms = stop.elapsed().as_millis();
            assert!(ms < 3_000, "{ms} ms from the signal to the end");
            // Missing final counters are an error, reported if standard error is read.
            assert!(!ended.success);
            let told = ended.stderr.contains("standard output lacks the final counters (nobody reads it)");
            assert_eq!(told, !both, "{}", ended.stderr);
            if !both {
                assert!(ended.stderr.contains("received ") && ended.stderr.contains(", held 0"));
                assert!(ended.stderr.contains("counters are not printed"), "{}", ended.stderr);
            }
            let mut piped = Vec::new();
            reader.read_to_end(&mut piped).unwrap();
            assert!(piped.iter().all(|byte| *byte == b'x'), "nobody read, and yet there was room");
        }
    });
}

#[test]
fn a_late_reader_gets_every_table() {
    in_lab("lifecycle::a_late_reader_gets_every_table", || {
        let net = network();
        let (mut reader, writer) = full_pipe();
        let daemon = Daemon::spawn_to(&net, &format!("{CREATE}{SIIT}"), &[], Some(writer.into()), None);
        let deadline = Instant::now() + Duration::from_secs(10);
        while !ping(&net.client, 1, SERVER, "") {
            assert!(Instant::now() < deadline, "no packet crosses: {}", daemon.stderr());
        }
        daemon.process.signal(Signal::USR1).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        daemon.process.signal(Signal::TERM).unwrap();
        let mut piped = String::new();
        reader.read_to_string(&mut piped).unwrap();
        assert_eq!(piped.matches("every packet received is accounted for").count(), 2, "{piped}");
        assert!(daemon.wait().success);
    });
}

#[test]
fn no_thread_has_or_gains_a_capability_after_start() {
    in_lab("lifecycle::no_thread_has_or_gains_a_capability_after_start", || {
        let net = network();
        for port in ["", "routes = false\n"] {
            let daemon = Daemon::start(&net, &format!("{CREATE}{port}{SIIT}"));
            let pid = daemon.process.id();
            for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
                let tid = task.unwrap().file_name().to_string_lossy().parse().unwrap();
                for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
                    assert_eq!(status_line(tid, set), NONE, "{set} of thread {tid}");
                }
                assert_eq!(status_line(tid, "NoNewPrivs"), "1", "thread {tid}");
            }
            daemon.stop(Signal::TERM);
        }
    });
}

#[test]
fn it_switches_to_the_given_user() {
    in_lab("lifecycle::it_switches_to_the_given_user", || {
        if !has_users() {
            return gatun_testkit::skip("a user namespace with one user cannot switch: run it as root");
        }
        let net = network();
        let mut daemon = Daemon::spawn(&net, &format!("{CREATE}{SIIT}"), &["--user", "65534:65533"]);
        let deadline = Instant::now() + Duration::from_secs(5);
        while !daemon.stderr().contains("translating with") {
            assert!(daemon.process.ended().is_none() && Instant::now() < deadline, "{}", daemon.stderr());
            std::thread::sleep(Duration::from_millis(5));
        }
        let pid = daemon.process.id();
        assert_eq!(status_line(pid, "Uid"), "65534\t65534\t65534\t65534");
        assert_eq!(status_line(pid, "Gid"), "65533\t65533\t65533\t65533");
        assert_eq!(status_line(pid, "Groups"), "65533");
        assert!(ping(&net.client, 3, SERVER, ""));
        // As any user, it restores routes.
        down_and_up(&net, &daemon);
        assert!(ping(&net.client, 3, SERVER, ""), "{}", daemon.stderr());
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn it_attaches_to_persistent_devices_and_leaves_them() {
    in_lab("lifecycle::it_attaches_to_persistent_devices_and_leaves_them", || {
        let net = network();
        let attach = format!("{CREATE}mode = \"attach\"\nqueues = 1\n{SIIT}");
        for flags in ["", "multi_queue", "vnet_hdr", "vnet_hdr multi_queue"] {
            net.translator.ip(&format!("tuntap add dev nat64 mode tun {flags}")).unwrap();
            let daemon = Daemon::start(&net, &attach);
            assert!(daemon.stderr().contains("attached"), "{}", daemon.stderr());
            assert!(ping(&net.client, 3, SERVER, ""), "with '{flags}'");
            daemon.stop(Signal::TERM);
            net.translator.run("ip link show nat64").unwrap();
            net.translator.ip("link del nat64").unwrap();
        }
    });
}

#[test]
fn an_unsuitable_device_is_refused_with_a_remedy() {
    in_lab("lifecycle::an_unsuitable_device_is_refused_with_a_remedy", || {
        let net = network();
        let refused = |port: &str, wanted: &[&str]| {
            let ended = Daemon::spawn(&net, &format!("{CREATE}{port}\n{SIIT}"), &[]).wait();
            assert!(!ended.success);
            wanted.iter().for_each(|w| assert!(ended.stderr.contains(w), "'{w}' in {}", ended.stderr));
        };
        refused("mode = \"attach\"", &["does not exist", "ip tuntap add dev nat64"]);
        net.translator.ip("tuntap add dev nat64 mode tun").unwrap();
        refused("", &["exists", "mode = \"attach\""]);
        refused("mode = \"attach\"\nqueues = 2", &["one queue", "multi_queue"]);
        net.translator.ip("link del nat64").unwrap();
        net.translator.ip("link add nat64 type bridge").unwrap();
        refused("mode = \"attach\"", &["not a TUN device"]);
    });
}

#[test]
fn a_second_instance_on_the_same_device_is_refused() {
    in_lab("lifecycle::a_second_instance_on_the_same_device_is_refused", || {
        let net = network();
        net.translator.ip("tuntap add dev nat64 mode tun multi_queue").unwrap();
        let attach = format!("{CREATE}mode = \"attach\"\nqueues = 1\n{SIIT}");
        let first = Daemon::start(&net, &attach);
        let second = Daemon::spawn(&net, &attach, &[]).wait();
        assert!(!second.success && second.stderr.contains("another gatun already runs"), "{}", second.stderr);
        assert!(ping(&net.client, 3, SERVER, ""), "the first one is not affected");
        first.stop(Signal::TERM);
    });
}

#[test]
fn a_removed_device_stops_it_with_an_error_and_the_counters() {
    in_lab("lifecycle::a_removed_device_stops_it_with_an_error_and_the_counters", || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}queues = 2\n{SIIT}"));
        assert!(ping(&net.client, 3, SERVER, ""));
        net.translator.ip("link del nat64").unwrap();
        let ended = daemon.wait();
        assert!(!ended.success);
        assert!(ended.stderr.contains("was it removed?"), "{}", ended.stderr);
        assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
        assert!(
            ended.stdout.contains("final counters") && ended.stdout.contains("accounted for"),
            "{}",
            ended.stdout
        );
    });
}

/// Sets the device's link down and up, and waits until the daemon has noticed both.
fn down_and_up(net: &Topology, daemon: &Daemon) {
    let notices = |text: &str| daemon.stderr().matches(text).count();
    let before = notices("link is up again");
    net.translator.ip("link set nat64 down").unwrap();
    net.translator.ip("link set nat64 up").unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    while notices("link is up again") == before {
        assert!(Instant::now() < deadline, "{}", daemon.stderr());
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(notices("link is down"), before + 1, "{}", daemon.stderr());
}

#[test]
fn routes_and_addresses_are_restored_after_the_link_was_down() {
    in_lab("lifecycle::routes_and_addresses_are_restored_after_the_link_was_down", || {
        let net = network();
        let port = "addresses = [\"2001:db8:9::1/64\", \"192.0.2.77/32\"]\n";
        let daemon = Daemon::start(&net, &format!("{CREATE}{port}{SIIT}"));
        let routes = || {
            let [v4, v6] =
                ["-4", "-6"].map(|family| net.translator.run(&format!("ip {family} route")).unwrap());
            let mut lines: Vec<String> = (v4 + &v6).lines().map(|line| line.trim().to_owned()).collect();
            lines.sort();
            lines
        };
        let addresses = || net.translator.run("ip -brief -6 address show dev nat64 scope global").unwrap();
        let before = (routes(), addresses());
        assert!(ping(&net.client, 3, SERVER, ""));
        for _ in 0..5 {
            down_and_up(&net, &daemon);
            assert_eq!((routes(), addresses()), before);
        }
        assert!(ping(&net.client, 3, SERVER, "") && ping(&net.server, 3, PUBLIC, ""));
        // A route set meanwhile by somebody else is kept.
        net.translator.ip("link set nat64 down").unwrap();
        net.translator.ip("route add 192.0.2.1/32 dev outside").unwrap();
        net.translator.ip("link set nat64 up").unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        while !daemon.stderr().contains("left unchanged, because others have set them: 1 route") {
            assert!(Instant::now() < deadline, "{}", daemon.stderr());
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(net.translator.run("ip route get 192.0.2.1").unwrap().contains("dev outside"));
        assert!(!ping(&net.server, 1, PUBLIC, "") && ping(&net.client, 1, "2001:db8:9::1", ""));
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_missed_link_change_is_detected_after_lost_kernel_messages() {
    in_lab("lifecycle::a_missed_link_change_is_detected_after_lost_kernel_messages", || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}{SIIT}"));
        assert!(ping(&net.client, 1, SERVER, ""));
        // While stopped it reads nothing, so the kernel's messages overflow its socket buffer.
        daemon.process.signal(Signal::STOP).unwrap();
        for state in ["down", "up"].repeat(200) {
            net.translator.ip(&format!("link set nat64 {state}")).unwrap();
        }
        daemon.process.signal(Signal::CONT).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while !ping(&net.client, 1, SERVER, "") {
            assert!(Instant::now() < deadline, "{}", daemon.stderr());
        }
        daemon.stop(Signal::TERM);
    });
}

/// Wake-ups of all threads of a process, and their processor time in ns.
fn work_of(process: u32) -> (u64, u64) {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let work = tasks.map(|task| {
        let read = |file| fs::read_to_string(task.as_ref().unwrap().path().join(file)).unwrap();
        let (status, times) = (read("status"), read("schedstat"));
        let wakeups = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        let number = |text: &str| text.trim().parse::<u64>().unwrap();
        (number(wakeups), number(times.split(' ').next().unwrap()))
    });
    work.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

#[test]
fn an_idle_daemon_sleeps() {
    in_lab("lifecycle::an_idle_daemon_sleeps", || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}{SIIT}"));
        assert!(ping(&net.client, 3, SERVER, ""));
        let before = work_of(daemon.process.id());
        std::thread::sleep(Duration::from_secs(2));
        let after = work_of(daemon.process.id());
        // About ten each second: threads that look at something regularly.
        let wakeups = after.0 - before.0;
        assert!(wakeups <= 60, "{wakeups} wake-ups in two seconds");
        // A thread that never sleeps has no wake-ups.
        let used_ms = (after.1 - before.1) / 1_000_000;
        assert!(used_ms < 400, "{used_ms} ms of processor time in two seconds");
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn more_workers_than_public_addresses_are_refused_with_a_correction() {
    in_lab("lifecycle::more_workers_than_public_addresses_are_refused_with_a_correction", || {
        let net = network();
        let ended = Daemon::spawn(&net, &format!("{CREATE}queues = 2\n{NAT64}"), &[]).wait();
        for part in ["has 1 address for 2 workers", "queues = 1"] {
            assert!(!ended.success && ended.stderr.contains(part), "{}", ended.stderr);
        }
    });
}
