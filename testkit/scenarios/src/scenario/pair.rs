//! `pair`: two boxes with BIRD, and faults of one of them while numbered packets pass.

use super::RunOptions;
use crate::middle::{Gatun, Place, Programs};
use crate::report::{Report, Table, group};
use anyhow::Context as _;
use gatun_testkit::pair::SERVER;
use gatun_testkit::{PairNetwork, Process, wait_until};
use rustix::process::Signal;
use serde::Deserialize;
use std::io::Write as _;
use std::process::{ChildStdin, Stdio};
use std::time::Duration;

const ABOUT: &str = "Two boxes translate the same prefix without sessions (SIIT), and BIRD on them announces the routes of [announce] to two routers. A \
client sends a numbered datagram each millisecond in several flows, and keeps TCP connections open; a server echoes all. The first box fails in several ways, and comes back.";

/// Public address of the client.
const PUBLIC: &str = "192.0.2.1";
const PORT: &str = "7";
/// Time limit of programs to begin and to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time without a fault before each one, and after its end.
const QUIET: Duration = Duration::from_secs(2);

/// Fault of the first box, and what ends it.
struct Fault {
    name: &'static str,
    begin: fn(&mut Lab<'_>) -> anyhow::Result<()>,
    end: fn(&mut Lab<'_>) -> anyhow::Result<()>,
}

const FAULTS: [Fault; 5] = [
    Fault { name: "kill -9, then a new process", begin: |lab| lab.kill(), end: |lab| lab.start(0) },
    Fault {
        name: "SIGSTOP, then SIGCONT",
        begin: |lab| lab.signal(Signal::STOP),
        end: |lab| lab.signal(Signal::CONT),
    },
    Fault { name: "links cut, then restored", begin: |lab| lab.cut(false), end: |lab| lab.cut(true) },
    Fault {
        name: "SIGSTOP with links cut, then both undone",
        begin: |lab| lab.signal(Signal::STOP).and_then(|()| lab.cut(false)),
        end: |lab| lab.signal(Signal::CONT).and_then(|()| lab.cut(true)),
    },
    Fault { name: "orderly stop, then a new process", begin: |lab| lab.stop(), end: |lab| lab.start(0) },
];

/// Report of the client.
#[derive(Deserialize)]
struct Outcome {
    phases: Vec<Phase>,
    /// TCP connections that have ended, or whose last bytes were not echoed.
    ended: u64,
}

#[derive(Deserialize)]
struct Phase {
    sent: u64,
    lost: u64,
    gap_ms: f64,
    received: u64,
}

pub(crate) fn run(options: &RunOptions) -> anyhow::Result<Report> {
    let mut report = Report::new("pair", ABOUT);
    if let Some(why) = gatun_testkit::missing(&[("bird", "bird2"), ("python3", "python3")]) {
        report.not_run.push(why);
        return Ok(report);
    }
    let hold = options.length(5.0);
    let (flows, connections) = if options.brief { (4, 4) } else { (64, 100) };
    let mut lab = Lab::new(&options.programs)?;
    let mut rows = Vec::new();
    for fault in &FAULTS {
        let outcome = lab.during(fault, hold, (options.flows.unwrap_or(flows), connections))?;
        let [before, away, back] = &outcome.phases[..] else {
            anyhow::bail!("{}: {} phases, not three", fault.name, outcome.phases.len());
        };
        let sent = outcome.phases.iter().map(|phase| phase.sent).sum();
        rows.push(vec![
            fault.name.to_owned(),
            group(sent),
            // Those on their way at the beginning of the fault were sent before it.
            group(before.lost + away.lost),
            format!("{:.0}", away.gap_ms),
            group(back.lost),
            format!("{:.0}", back.gap_ms),
            group(outcome.ended),
        ]);
        report.check_once(
            away.received > 0 && back.received > 0,
            "packets passed during each fault and after it",
        );
        report.check_once(outcome.ended == 0, "no TCP connection ended");
    }
    report.tables.push(Table {
        title: format!("Faults of the box that translates ({connections} TCP connections each)"),
        header: [
            "fault",
            "sent",
            "lost, fault",
            "longest gap, ms",
            "lost, return",
            "longest gap, ms",
            "connections ended",
        ]
        .map(Into::into)
        .to_vec(),
        rows,
    });
    report.notes.push(
        "BFD: 3 x 50 ms. `stall` is one second, so a stopped daemon is noticed after one second; cut links are noticed by BIRD at once.".into(),
    );
    Ok(report)
}

/// Both boxes, and an echo server.
struct Lab<'p> {
    net: PairNetwork,
    programs: &'p Programs,
    boxes: [Option<Gatun>; 2],
    _echo: Process,
}

impl<'p> Lab<'p> {
    fn new(programs: &'p Programs) -> anyhow::Result<Lab<'p>> {
        let net = PairNetwork::new()?;
        let echo =
            Process::start(net.server.python(include_str!("pair/echo.py"), &[PORT]).stdout(Stdio::null()))?;
        let mut lab = Lab { net, programs, boxes: [None, None], _echo: echo };
        lab.start(0)?;
        lab.start(1)?;
        lab.net.wait_until_used(0, PUBLIC)?;
        let ping = || lab.net.client.run(&format!("ping -c 1 -W 1 {SERVER}")).is_ok();
        wait_until("the client reaches the server", PATIENCE, ping)?;
        Ok(lab)
    }

    fn start(&mut self, number: usize) -> anyhow::Result<()> {
        // The second box stands by: its routes have a longer path.
        let tables = ["table = 186\nbackup_table = 187", "table = 187\nbackup_table = 186"][number];
        let config = format!(
            "[[siit]]\npool6 = \"2001:db8:64::/96\"\neam = [{{ v4 = \"{PUBLIC}\", v6 = \"{}\" }}]\n[state]\ndirectory = \"off\"\n\
             [api]\nlisten = \"unix:/run/gatun-{number}.sock\"\n[announce]\nreturn_after = \"1s\"\n{tables}\n",
            gatun_testkit::pair::CLIENT
        );
        let name = format!("box-{number}");
        let started = Gatun::start(&self.net.boxes[number], Place::Anywhere, self.programs, &name, &config)?;
        self.boxes[number] = Some(started);
        Ok(())
    }

    fn first(&mut self) -> anyhow::Result<&mut Gatun> {
        self.boxes[0].as_mut().context("the first box does not run")
    }

    fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        Ok(self.first()?.signal(signal)?)
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        Ok(self.boxes[0].take().context("the first box does not run")?.kill()?)
    }

    fn stop(&mut self) -> anyhow::Result<()> {
        self.boxes[0].take().context("the first box does not run")?.stop()?;
        Ok(())
    }

    fn cut(&mut self, is_up: bool) -> anyhow::Result<()> {
        Ok(self.net.cut(0, is_up)?)
    }

    /// Sends packets before a fault, while it lasts, and after it.
    fn during(
        &mut self,
        fault: &Fault,
        hold: Duration,
        (flows, connections): (u32, u32),
    ) -> anyhow::Result<Outcome> {
        let server = "2001:db8:64::c633:6402";
        let arguments = [server.to_owned(), PORT.to_owned(), flows.to_string(), connections.to_string()];
        let arguments = arguments.each_ref().map(String::as_str);
        let mut probe = self.net.client.python(include_str!("pair/probe.py"), &arguments);
        let (probe, mut phases) = Process::start_with_input(probe.stdout(Stdio::piped()))?;
        let next = |phases: &mut ChildStdin| phases.write_all(b"next\n").context("the client has ended");
        std::thread::sleep(QUIET);
        next(&mut phases)?;
        (fault.begin)(self)?;
        self.net.wait_until_used(1, PUBLIC).with_context(|| fault.name)?;
        std::thread::sleep(hold);
        next(&mut phases)?;
        (fault.end)(self)?;
        self.net.wait_until_used(0, PUBLIC).with_context(|| fault.name)?;
        std::thread::sleep(QUIET);
        drop(phases);
        let (status, said) = probe.output(PATIENCE)?;
        anyhow::ensure!(status.success(), "{}: the client failed: {said}", fault.name);
        serde_json::from_str(&said).with_context(|| format!("{}: {said}", fault.name))
    }
}
