//! Two boxes, and routers that learn by BGP which of them translates.

use crate::harness::{CREATE, Daemon, in_lab_with, ping, program};
use gatun_testkit::pair::{SERVER, TRACKED, Way};
use gatun_testkit::{PairNetwork, missing, wait_until};
use rustix::process::Signal;
use std::time::Duration;

/// Public address of the client.
const PUBLIC: &str = "192.0.2.1";

/// A box: its networks are in table 186, or in 187 if it stands by. Stateless, so no box needs the other's
/// sessions.
fn start(net: &PairNetwork, number: usize) -> Daemon {
    start_with(net, number, "")
}

/// The same with further settings of `[announce]`.
fn start_with(net: &PairNetwork, number: usize, more: &str) -> Daemon {
    let tables = ["table = 186\nbackup_table = 187", "table = 187\nbackup_table = 186"][number];
    let config = format!(
        "{CREATE}[[siit]]\npool6 = \"2001:db8:64::/96\"\neam = [{{ v4 = \"{PUBLIC}\", v6 = \"2001:db8:1::2\" }}]\n\
         [state]\ndirectory = \"/run/gatun-{number}/state\"\n[api]\nlisten = \"unix:/run/gatun-{number}/api.sock\"\n\
         [announce]\nstall = \"2s\"\nreturn_after = \"500ms\"\n{more}{tables}\n"
    );
    Daemon::start_in(&net.boxes[number], &config)
}

#[test]
fn packets_take_the_other_box_after_each_fault_and_return() {
    let bird_is_missing = || missing(&[("bird", "bird2")]);
    let test = "failover::packets_take_the_other_box_after_each_fault_and_return";
    in_lab_with(test, bird_is_missing, || {
        let net = PairNetwork::new().unwrap();
        let mut first = start(&net, 0);
        let _second = start(&net, 1);
        let is_at = |number: usize, what: &str| {
            let used = net.wait_until_used(number, PUBLIC);
            assert!(used.is_ok(), "{what}: {used:?}");
            assert!(ping(&net.client, 3, SERVER, ""), "{what}");
        };
        is_at(0, "at the start");
        first.process.signal(Signal::KILL).unwrap();
        first.process.wait(Duration::from_secs(10)).unwrap();
        is_at(1, "after kill -9");
        let first = start(&net, 0);
        is_at(0, "after a restart");
        first.process.signal(Signal::STOP).unwrap();
        is_at(1, "while the daemon is stopped");
        first.process.signal(Signal::CONT).unwrap();
        is_at(0, "after it goes on");
        net.cut(0, false).unwrap();
        is_at(1, "while its links are cut");
        net.cut(0, true).unwrap();
        is_at(0, "after the links are back");
        first.stop(Signal::TERM);
        is_at(1, "after a stop");
    });
}

#[test]
fn a_box_whose_links_carry_nothing_withdraws_its_routes() {
    let bird_is_missing = || missing(&[("bird", "bird2")]);
    let test = "failover::a_box_whose_links_carry_nothing_withdraws_its_routes";
    in_lab_with(test, bird_is_missing, || {
        let net = PairNetwork::new().unwrap();
        let _first = start_with(&net, 0, &format!("tracked_routes = {TRACKED:?}\n"));
        let _second = start(&net, 1);
        net.wait_until_used(0, PUBLIC).unwrap();
        let health = || {
            let asked = ["health", "--socket", "/run/gatun-0/api.sock"];
            let output = gatun_testkit::output(net.boxes[0].command(program()).args(asked)).unwrap();
            String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
        };
        for way in [Way::ToRouters, Way::FromRouters] {
            net.lose(0, way, true).unwrap();
            net.wait_until_used(1, PUBLIC).unwrap();
            assert!(ping(&net.client, 3, SERVER, ""), "{way:?}");
            let is_said = || {
                let said = health();
                said.contains("routes are withdrawn")
                    && TRACKED.iter().all(|to| said.contains(&format!("the main table has no route to {to}")))
            };
            let waited = wait_until("the box notices it", Duration::from_secs(10), is_said);
            assert!(waited.is_ok(), "{way:?}: {}", health());
            net.lose(0, way, false).unwrap();
            net.wait_until_used(0, PUBLIC).unwrap();
            assert!(ping(&net.client, 3, SERVER, ""), "{way:?}");
            assert!(health().starts_with("healthy\n"), "{}", health());
        }
    });
}
