//! Boxes without sessions: the second one translates what the first one did.

use super::lab::{Fault, PUBLIC};
use rustix::process::Signal;

pub(super) const FAULTS: [Fault; 5] = [
    Fault::new("kill -9, then a new process", |lab| lab.kill(), |lab| lab.start(0)),
    Fault::new("SIGSTOP, then SIGCONT", |lab| lab.signal(Signal::STOP), |lab| lab.signal(Signal::CONT)),
    Fault::new("links cut, then restored", |lab| lab.cut(false), |lab| lab.cut(true)),
    Fault::new(
        "SIGSTOP with links cut, then both undone",
        |lab| lab.signal(Signal::STOP).and_then(|()| lab.cut(false)),
        |lab| lab.signal(Signal::CONT).and_then(|()| lab.cut(true)),
    ),
    Fault::new("orderly stop, then a new process", |lab| lab.stop(), |lab| lab.start(0)),
];

/// Configuration of a box. The second one stands by: its routes have a longer path.
pub(super) fn config(number: usize) -> String {
    let tables = ["table = 186\nbackup_table = 187", "table = 187\nbackup_table = 186"][number];
    format!(
        "[[siit]]\npool6 = \"2001:db8:64::/96\"\neam = [{{ v4 = \"{PUBLIC}\", v6 = \"{}\" }}]\n[state]\ndirectory = \"off\"\n\
         [api]\nlisten = \"unix:/run/gatun-{number}.sock\"\n[announce]\nreturn_after = \"1s\"\n{tables}\n",
        gatun_testkit::pair::CLIENT
    )
}
