//! Network, boxes and client of `pair`, and faults while numbered packets pass.

use crate::middle::{Gatun, Place, Programs};
use crate::scenario::probe::{Outcome, Probe, ProbeLoad, QUIET, echo};
use anyhow::Context as _;
use gatun_testkit::pair::SERVER;
use gatun_testkit::{PairNetwork, Process, wait_until};
use rustix::process::Signal;
use std::time::Duration;

/// One of the public addresses.
pub(super) const PUBLIC: &str = "192.0.2.1";
/// Time limit of programs to begin and to end.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

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
    pub(super) load: ProbeLoad,
}

impl Fault {
    /// Fault during which the second box translates alone.
    pub(super) const fn new(name: &'static str, begin: Act, end: Act) -> Fault {
        Fault { name, begin, end, used: 1, running: &[1], gap_max_ms: None, is_lossless: false }
    }
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
        let _echo = echo(&net)?;
        let mut lab = Lab { net, setup, boxes: [None, None], _echo };
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
        let mut probe = Probe::start(&self.net, &self.setup.load)?;
        std::thread::sleep(QUIET);
        probe.next()?;
        (fault.begin)(self)?;
        self.net.wait_until_used(fault.used, PUBLIC).with_context(|| fault.name)?;
        std::thread::sleep(hold);
        (self.setup.examine)(fault.running).with_context(|| fault.name)?;
        probe.next()?;
        (fault.end)(self)?;
        (self.setup.settle)().with_context(|| fault.name)?;
        (self.setup.examine)(&[0, 1]).with_context(|| fault.name)?;
        self.net.wait_until_used(0, PUBLIC).with_context(|| fault.name)?;
        std::thread::sleep(QUIET);
        probe.end().with_context(|| fault.name)
    }
}
