//! Devices that exist at start: left by a killed daemon, or owned by another program.

use crate::harness::{CREATE, Daemon, NAT64, SIIT, in_lab, network, ping};
use gatun_testkit::Topology;
use gatun_testkit::topology::SERVER;
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const STATE: &str = "/run/gatun/state";
const LEFT: &str = "taken over from an earlier gatun";

fn kill(net: &Topology, mut daemon: Daemon) {
    daemon.process.signal(Signal::KILL).unwrap();
    daemon.process.wait(Duration::from_secs(10)).unwrap();
    net.translator.run("ip link show nat64").expect("the device stays");
}

/// Starts a daemon on a device that was left over, and stops it, which removes the device.
fn follows(net: &Topology, config: &str) {
    let daemon = Daemon::start(net, config);
    assert!(daemon.stderr().contains(LEFT), "{}", daemon.stderr());
    assert!(ping(&net.client, 3, SERVER, ""), "{}", daemon.stderr());
    daemon.stop(Signal::TERM);
    assert!(net.translator.run("ip link show nat64").is_err(), "the device is still there");
}

#[test]
fn a_device_left_over_by_a_daemon_of_another_mount_namespace_is_taken_over() {
    in_lab("leftover::a_device_left_over_by_a_daemon_of_another_mount_namespace_is_taken_over", || {
        let net = network();
        let config = format!("{CREATE}{NAT64}");
        // The state directory is a mount that ends with the namespace.
        let daemon = Daemon::spawn_under(&net, &["unshare", "--mount", "--propagation=private"], &config);
        daemon.says("translating with");
        assert!(ping(&net.client, 1, SERVER, ""));
        kill(&net, daemon);
        assert!(!Path::new(&format!("{STATE}/names.json")).exists(), "nothing is known of it here");
        follows(&net, &config);
        // The next daemon keeps no sessions, so its device does not stay.
        kill(&net, Daemon::start(&net, &config));
        follows(&net, &format!("{CREATE}queues = 1\n{SIIT}"));
        kill(&net, Daemon::start(&net, &config));
        let mut stateless = Daemon::start(&net, &format!("{CREATE}queues = 2\n{SIIT}"));
        assert!(ping(&net.client, 1, SERVER, ""));
        stateless.process.signal(Signal::KILL).unwrap();
        stateless.process.wait(Duration::from_secs(10)).unwrap();
        assert!(net.translator.run("ip link show nat64").is_err(), "the device is still there");
    });
}

#[test]
fn a_device_left_over_is_taken_over_when_the_state_directory_is_gone() {
    in_lab("leftover::a_device_left_over_is_taken_over_when_the_state_directory_is_gone", || {
        let net = network();
        let config = format!("{CREATE}{NAT64}");
        kill(&net, Daemon::start(&net, &config));
        // Where it may, a daemon mounts memory there.
        let _ = gatun_testkit::output(Command::new("umount").arg(STATE));
        fs::remove_dir_all(STATE).unwrap();
        follows(&net, &config);
    });
}

#[test]
fn a_device_left_over_is_taken_over_when_names_json_is_corrupt() {
    in_lab("leftover::a_device_left_over_is_taken_over_when_names_json_is_corrupt", || {
        let net = network();
        let config = format!("{CREATE}{NAT64}");
        let names = format!("{STATE}/names.json");
        for corrupt in [&b""[..], b"{", b"\xff\xfe\x00", b"{\"generation\":-1}", b"[[[[[[[["] {
            kill(&net, Daemon::start(&net, &config));
            fs::write(&names, corrupt).unwrap();
            follows(&net, &config);
        }
    });
}

#[test]
fn a_device_left_over_loses_the_routes_of_the_previous_configuration() {
    in_lab("leftover::a_device_left_over_loses_the_routes_of_the_previous_configuration", || {
        let net = network();
        let config = format!("{CREATE}{NAT64}");
        kill(&net, Daemon::start(&net, &config));
        net.translator.ip("route add 203.0.113.99/32 dev nat64").unwrap();
        let daemon = Daemon::start(&net, &config.replace("192.0.2.1", "192.0.2.7"));
        assert!(ping(&net.client, 1, SERVER, ""));
        let routes = net.translator.run("ip route show dev nat64").unwrap();
        assert!(routes.contains("192.0.2.7 ") && !routes.contains("192.0.2.1 "), "{routes}");
        assert!(routes.contains("203.0.113.99 "), "it was set by hand: {routes}");
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn the_device_of_another_program_is_never_taken_over() {
    in_lab("leftover::the_device_of_another_program_is_never_taken_over", || {
        let net = network();
        let config = format!("{CREATE}{NAT64}");
        kill(&net, Daemon::start(&net, &config));
        // The state directory still has the name, but the device belongs to another program.
        net.translator.ip("link del nat64").unwrap();
        net.translator.ip("tuntap add dev nat64 mode tun").unwrap();
        for alias in ["", "made by hand", "made by gatun's neighbour"] {
            let mut command = net.translator.command("ip");
            gatun_testkit::run(command.args(["link", "set", "nat64", "alias", alias])).unwrap();
            let shown = || net.translator.run("ip -details link show nat64").unwrap();
            let before = shown();
            let ended = Daemon::spawn(&net, &config, &[]).wait();
            assert!(!ended.success && ended.stderr.contains("was not created by gatun"), "{}", ended.stderr);
            assert_eq!(shown(), before);
        }
        // Neither is the device of a running daemon.
        net.translator.ip("link del nat64").unwrap();
        let first = Daemon::start(&net, &config);
        let second =
            Daemon::spawn(&net, &format!("{config}[state]\ndirectory = \"/run/other\"\n"), &[]).wait();
        assert!(second.stderr.contains("another gatun already runs"), "{}", second.stderr);
        assert!(ping(&net.client, 1, SERVER, ""));
        first.stop(Signal::TERM);
    });
}
