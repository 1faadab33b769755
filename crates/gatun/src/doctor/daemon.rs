//! Whether a daemon answers, and whether what it tells is in order.

use super::Finding;
use gatun_api::client::{Client, Error};
use gatun_api::types::{Bound, Part, Sandbox, Status, Urgency, Worker};

const CHECK: &str = "daemon";

/// What a daemon says, and its process number where there is one.
pub(super) fn examine(client: &Client) -> (Vec<Finding>, Option<u32>) {
    let status: Status = match client.get("/v1/status") {
        Ok(status) => status,
        Err(error @ Error::Connect(..)) => {
            let fix = "systemctl start gatun, or gatun run FILE; --socket PATH where it listens elsewhere";
            return (vec![Finding::note(CHECK, error.to_string(), fix)], None);
        }
        Err(error) => return (vec![Finding::wrong(CHECK, error.to_string(), "see the daemon's log")], None),
    };
    let mut findings = vec![Finding::ok(CHECK, format!("runs, process {}", status.pid))];
    if status.workers_silent > 0 {
        let what = format!("{} of {} workers do not answer", status.workers_silent, status.workers);
        findings.push(Finding::wrong(CHECK, what, "see the daemon's log; restart it, and report the defect"));
    } else if !status.adds_up {
        let what = "some packets are not accounted for";
        findings.push(Finding::wrong(CHECK, what, "report it, with `gatun show counters --zeros`"));
    }
    findings.extend(log(&status));
    findings.push(sandbox(&status.sandbox));
    findings.push(super::system::pages(&status.pages));
    findings.extend(losses(client));
    (findings, Some(status.pid))
}

/// What is wrong with the log of who had which port.
fn log(status: &Status) -> impl Iterator<Item = Finding> {
    let troubles = status.troubles.iter().filter(|trouble| trouble.part == Part::Log);
    troubles.map(|trouble| match trouble.urgency {
        Urgency::Bad => {
            let fix = "df -h DIRECTORY of [log]; make room, or set size_max or a shorter retention";
            Finding::wrong("log", trouble.what.clone(), fix)
        }
        Urgency::Warning => Finding::note(
            "log",
            trouble.what.clone(),
            "a faster disk, or `allocation = \"blocks\"` for fewer records; gatun log show has the time of the loss",
        ),
    })
}

/// Whether the kernel keeps it from what it does not need.
fn sandbox(sandbox: &Sandbox) -> Finding {
    let missing = sandbox.missing.join("; ");
    match sandbox.state {
        Bound::Whole => Finding::ok(CHECK, "it is bound by a sandbox".to_owned()),
        Bound::Partly => Finding::note(
            CHECK,
            format!("it is bound by a sandbox, of which this kernel lacks a part: {missing}"),
            "Linux 6.12 has all of it; docs/kernels.md says what each kernel lacks",
        ),
        Bound::Not => Finding::note(
            CHECK,
            format!("it runs without a sandbox: {missing}"),
            "start it without --no-sandbox, on a kernel that has seccomp and Landlock; nothing around it may forbid them",
        ),
    }
}

/// What is lost beside translation: the machine does not keep up.
fn losses(client: &Client) -> Vec<Finding> {
    let workers: Vec<Worker> = client.get("/v1/workers").unwrap_or_default();
    let mut findings = Vec::new();
    for worker in workers.iter().filter(|worker| worker.handed_lost > 0) {
        let what =
            format!("worker {} lost {} packets that others handed it", worker.number, worker.handed_lost);
        findings.push(Finding::note(
            CHECK,
            what,
            "it does not keep up: more queues, or fewer other programs on its core",
        ));
    }
    findings
}
