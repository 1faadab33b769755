//! Network, boxes and client of `pair`, and faults while numbered packets pass.

use crate::middle::{Gatun, Place, Programs};
use crate::report::{Table, group};
use anyhow::Context as _;
use gatun_testkit::pair::SERVER;
use gatun_testkit::{PairNetwork, Process, wait_until};
use rustix::process::Signal;
use serde::Deserialize;
use std::io::Write as _;
use std::path::Path;
use std::process::{ChildStdin, Stdio};
use std::time::Duration;

/// One of the public addresses.
pub(super) const PUBLIC: &str = "192.0.2.1";
const PORT: &str = "7";
/// Time limit of programs to begin and to end.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Time limit for the client's connections.
const OPEN_MAX: Duration = Duration::from_secs(120);
/// File that the client makes once its connections are open; /run belongs to the sandbox.
const READY: &str = "/run/pair-ready";
/// Time without a fault before each one, and after its end.
const QUIET: Duration = Duration::from_secs(2);

/// Action on both boxes.
pub(super) type Act = fn(&mut Lab<'_>) -> anyhow::Result<()>;

/// Fault of the first box, and what ends it.
pub(super) struct Fault {
    pub(super) name: &'static str,
    pub(super) begin: Act,
    pub(super) end: Act,
    /// Box that packets use during the fault.
    pub(super) used: usize,
    /// Boxes that run during the fault.
    pub(super) running: &'static [usize],
    /// Longest gap that a quiet machine should have, ms.
    pub(super) gap_max_ms: Option<f64>,
    /// True if no packet may be lost at its beginning.
    pub(super) is_lossless: bool,
}

/// Properties of the boxes of a run.
pub(super) struct Setup<'p> {
    pub(super) programs: &'p Programs,
    /// Configuration of a box.
    pub(super) config: fn(usize) -> String,
    /// Waits until both boxes are ready for a fault.
    pub(super) settle: fn() -> anyhow::Result<()>,
    /// Examines running boxes, during a fault and after it.
    pub(super) examine: fn(&[usize]) -> anyhow::Result<()>,
    /// Flows of datagrams, and TCP connections.
    pub(super) flows: u32,
    pub(super) connections: u32,
}

/// Report of the client.
#[derive(Deserialize)]
pub(super) struct Outcome {
    phases: [Phase; 3],
    /// TCP connections that have ended, or whose last bytes were not echoed.
    pub(super) ended: u64,
}

#[derive(Deserialize)]
pub(super) struct Phase {
    sent: u64,
    lost: u64,
    gap_ms: f64,
    received: u64,
}

impl Outcome {
    /// Lost packets of the fault. Those on their way at its beginning were sent before it.
    pub(super) fn lost(&self) -> u64 {
        let [before, away, _] = &self.phases;
        before.lost + away.lost
    }

    /// Longest gap of the fault, ms. It may begin with a packet that was answered before.
    pub(super) fn gap_ms(&self) -> f64 {
        self.phases[0].gap_ms.max(self.phases[1].gap_ms)
    }

    /// Returns whether packets passed during the fault and after it.
    pub(super) fn goes_on(&self) -> bool {
        self.phases[1..].iter().all(|phase| phase.received > 0)
    }

    fn row(&self, fault: &Fault) -> Vec<String> {
        let [_, _, back] = &self.phases;
        vec![
            fault.name.to_owned(),
            group(self.phases.iter().map(|phase| phase.sent).sum()),
            group(self.lost()),
            format!("{:.0}", self.gap_ms()),
            group(back.lost),
            format!("{:.0}", back.gap_ms),
            group(self.ended),
        ]
    }
}

impl Fault {
    /// Fault during which the second box translates alone.
    pub(super) const fn new(name: &'static str, begin: Act, end: Act) -> Fault {
        Fault { name, begin, end, used: 1, running: &[1], gap_max_ms: None, is_lossless: false }
    }
}

/// Table of the outcomes of faults.
pub(super) fn table(title: String, outcomes: &[(&Fault, Outcome)]) -> Table {
    let header = [
        "fault",
        "sent",
        "lost, fault",
        "longest gap, ms",
        "lost, return",
        "longest gap, ms",
        "connections ended",
    ];
    let rows = outcomes.iter().map(|(fault, outcome)| outcome.row(fault)).collect();
    Table { title, header: header.map(Into::into).to_vec(), rows }
}

/// Both boxes, and an echo server.
pub(super) struct Lab<'p> {
    pub(super) net: PairNetwork,
    setup: Setup<'p>,
    boxes: [Option<Gatun>; 2],
    _echo: Process,
}

impl<'p> Lab<'p> {
    pub(super) fn new(net: PairNetwork, setup: Setup<'p>) -> anyhow::Result<Lab<'p>> {
        let echo = Process::start(net.server.python(include_str!("echo.py"), &[PORT]).stdout(Stdio::null()))?;
        let mut lab = Lab { net, setup, boxes: [None, None], _echo: echo };
        lab.start(0)?;
        lab.start(1)?;
        (lab.setup.settle)()?;
        lab.net.wait_until_used(0, PUBLIC)?;
        let ping = || lab.net.client.run(&format!("ping -c 1 -W 1 {SERVER}")).is_ok();
        wait_until("the client reaches the server", PATIENCE, ping)?;
        Ok(lab)
    }

    pub(super) fn start(&mut self, number: usize) -> anyhow::Result<()> {
        let (config, name) = ((self.setup.config)(number), format!("box-{number}"));
        let host = &self.net.boxes[number];
        self.boxes[number] = Some(Gatun::start(host, Place::Anywhere, self.setup.programs, &name, &config)?);
        Ok(())
    }

    fn first(&mut self) -> anyhow::Result<&mut Gatun> {
        self.boxes[0].as_mut().context("the first box does not run")
    }

    pub(super) fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        Ok(self.first()?.signal(signal)?)
    }

    pub(super) fn kill(&mut self) -> anyhow::Result<()> {
        Ok(self.boxes[0].take().context("the first box does not run")?.kill()?)
    }

    pub(super) fn stop(&mut self) -> anyhow::Result<()> {
        self.boxes[0].take().context("the first box does not run")?.stop()?;
        Ok(())
    }

    /// Stops all, and returns the network.
    pub(super) fn end(self) -> anyhow::Result<PairNetwork> {
        for gatun in self.boxes.into_iter().flatten() {
            gatun.stop()?;
        }
        Ok(self.net)
    }

    pub(super) fn cut(&mut self, is_up: bool) -> anyhow::Result<()> {
        Ok(self.net.cut(0, is_up)?)
    }

    /// Sends packets before a fault, while it lasts, and after it.
    pub(super) fn during(&mut self, fault: &Fault, hold: Duration) -> anyhow::Result<Outcome> {
        let Setup { flows, connections, .. } = self.setup;
        let server = "2001:db8:64::c633:6402";
        let (flows, connections) = (flows.to_string(), connections.to_string());
        let arguments = [server, PORT, &flows, &connections, READY];
        // It is there if this is not the first fault.
        let _ = std::fs::remove_file(READY);
        let mut probe = self.net.client.python(include_str!("probe.py"), &arguments);
        let (probe, mut phases) = Process::start_with_input(probe.stdout(Stdio::piped()))?;
        let next = |phases: &mut ChildStdin| phases.write_all(b"next\n").context("the client has ended");
        wait_until("the client's connections are open", OPEN_MAX, || Path::new(READY).exists())?;
        std::thread::sleep(QUIET);
        next(&mut phases)?;
        (fault.begin)(self)?;
        self.net.wait_until_used(fault.used, PUBLIC).with_context(|| fault.name)?;
        std::thread::sleep(hold);
        (self.setup.examine)(fault.running).with_context(|| fault.name)?;
        next(&mut phases)?;
        (fault.end)(self)?;
        (self.setup.settle)().with_context(|| fault.name)?;
        (self.setup.examine)(&[0, 1]).with_context(|| fault.name)?;
        self.net.wait_until_used(0, PUBLIC).with_context(|| fault.name)?;
        std::thread::sleep(QUIET);
        drop(phases);
        let (status, said) = probe.output(PATIENCE)?;
        anyhow::ensure!(status.success(), "{}: the client failed: {said}", fault.name);
        serde_json::from_str(&said).with_context(|| format!("{}: {said}", fault.name))
    }
}
