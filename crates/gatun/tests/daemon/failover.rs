//! Two boxes, and routers that learn by BGP which of them translates.

use crate::harness::{CREATE, Daemon, in_lab_with, ping};
use gatun_testkit::pair::SERVER;
use gatun_testkit::{PairNetwork, missing};
use rustix::process::Signal;
use std::time::Duration;

/// Public address of the client.
const PUBLIC: &str = "192.0.2.1";

/// A box: its networks are in table 186, or in 187 if it stands by. Stateless, so no box needs the other's
/// sessions.
fn start(net: &PairNetwork, number: usize) -> Daemon {
    let tables = ["table = 186\nbackup_table = 187", "table = 187\nbackup_table = 186"][number];
    let config = format!(
        "{CREATE}[[siit]]\npool6 = \"2001:db8:64::/96\"\neam = [{{ v4 = \"{PUBLIC}\", v6 = \"2001:db8:1::2\" }}]\n\
         [state]\ndirectory = \"/run/gatun-{number}/state\"\n[api]\nlisten = \"unix:/run/gatun-{number}/api.sock\"\n\
         [announce]\nstall = \"2s\"\nreturn_after = \"500ms\"\n{tables}\n"
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
