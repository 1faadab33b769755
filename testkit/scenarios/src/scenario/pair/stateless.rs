//! Boxes without sessions: the second one translates what the first one did.

use super::lab::{BOTH, Fault, PUBLIC};
use crate::scenario::goals::Goals;
use gatun_testkit::pair::{TRACKED, Way};
use rustix::process::Signal;

pub(super) const FAULTS: [Fault; 8] = [
    Fault {
        goals: Goals::KILLED,
        is_brief: true,
        ..Fault::new("kill -9, then a new process", |lab| lab.kill(), |lab| lab.start(0))
    },
    Fault::new("SIGSTOP, then SIGCONT", |lab| lab.signal(Signal::STOP), |lab| lab.signal(Signal::CONT)),
    Fault::new("links cut, then restored", |lab| lab.cut(false), |lab| lab.cut(true)),
    Fault::new(
        "SIGSTOP with links cut, then both undone",
        |lab| lab.signal(Signal::STOP).and_then(|()| lab.cut(false)),
        |lab| lab.signal(Signal::CONT).and_then(|()| lab.cut(true)),
    ),
    Fault {
        goals: Goals::KILLED,
        ..Fault::new("orderly stop, then a new process", |lab| lab.stop(0), |lab| lab.start(0))
    },
    Fault::new(
        "packets to the routers lost without a cut, then not",
        |lab| lab.lose(&[Way::ToRouters], true),
        |lab| lab.lose(&[Way::ToRouters], false),
    ),
    Fault::new(
        "packets from the routers lost without a cut, then not",
        |lab| lab.lose(&[Way::FromRouters], true),
        |lab| lab.lose(&[Way::FromRouters], false),
    ),
    Fault {
        goals: Goals::SILENT,
        ..Fault::new(
            "packets both ways lost without a cut, then not",
            |lab| lab.lose(&BOTH, true),
            |lab| lab.lose(&BOTH, false),
        )
    },
];

/// Socket of a box's API.
pub(super) fn socket(number: usize) -> String {
    format!("/run/gatun-{number}.sock")
}

/// Configuration of a box. The second one stands by: its routes have a longer path.
pub(super) fn config(number: usize) -> String {
    let tables = ["table = 186\nbackup_table = 187", "table = 187\nbackup_table = 186"][number];
    format!(
        "[[siit]]\npool6 = \"2001:db8:64::/96\"\neam = [{{ v4 = \"{PUBLIC}\", v6 = \"{}\" }}]\n[state]\ndirectory = \"off\"\n\
         [api]\nlisten = \"unix:{}\"\n[announce]\ntracked_routes = {TRACKED:?}\nreturn_after = \"1s\"\n{tables}\n",
        gatun_testkit::pair::CLIENT,
        socket(number)
    )
}
