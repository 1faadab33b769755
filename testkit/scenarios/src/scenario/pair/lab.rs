//! Network, boxes and client of `pair`, and faults while numbered packets pass.

use super::kernel;
use crate::middle::{Gatun, Programs};
use crate::port_users::Silence;
use crate::scenario::goals::Goals;
use crate::scenario::lag::Lag;
use crate::scenario::probe::{Outcome, Probe, ProbeLoad, QUIET, echo};
use anyhow::{Context as _, ensure};
use gatun_testkit::pair::{SERVER, Way};
use gatun_testkit::{PairNetwork, Process, wait_until};
use rustix::process::Signal;
use std::time::Duration;

/// One of the public addresses.
pub(super) const PUBLIC: &str = "192.0.2.1";
/// Time limit of programs to begin and to end.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// All ways between a box and the routers.
pub(super) const BOTH: [Way; 2] = [Way::ToRouters, Way::FromRouters];

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
    pub(super) goals: Goals,
}

/// Properties of the boxes of a run.
pub(super) struct Setup<'p> {
    pub(super) programs: &'p Programs,
    /// Configuration of a box, without `[fastpath]`, and the socket of its API.
    pub(super) config: fn(usize) -> String,
    pub(super) socket: fn(usize) -> String,
    /// Sessions of each client that the kernel has before a fault; `None` without the fast path.
    pub(super) in_kernel: Option<u64>,
    /// Waits until both boxes are ready for a fault.
    pub(super) settle: fn() -> anyhow::Result<()>,
    /// Examines running boxes, during a fault and after it.
    pub(super) examine: fn(&[usize]) -> anyhow::Result<()>,
    pub(super) load: ProbeLoad,
}

impl Fault {
    /// Fault during which the second box translates alone.
    pub(super) const fn new(name: &'static str, begin: Act, end: Act) -> Fault {
        Fault { name, begin, end, used: 1, running: &[1], goals: Goals::NONE }
    }
}

/// Both boxes, and an echo server.
pub(super) struct Lab<'p> {
    pub(super) net: PairNetwork,
    setup: Setup<'p>,
    boxes: [Option<Gatun>; 2],
    /// Times after which killed boxes translated nothing more.
    silences: Vec<Silence>,
    _echo: Process,
}

impl<'p> Lab<'p> {
    pub(super) fn new(net: PairNetwork, setup: Setup<'p>) -> anyhow::Result<Lab<'p>> {
        for host in &setup.load.hosts {
            net.client.address("eth0", &format!("{host}/64"))?;
        }
        let _echo = echo(&net)?;
        let mut lab = Lab { net, setup, boxes: [None, None], silences: Vec::new(), _echo };
        lab.start(0)?;
        lab.start(1)?;
        (lab.setup.settle)()?;
        lab.net.wait_until_used(0, PUBLIC)?;
        let ping = || lab.net.client.run(&format!("ping -c 1 -W 1 {SERVER}")).is_ok();
        wait_until("the client reaches the server", PATIENCE, ping)?;
        Ok(lab)
    }

    pub(super) fn start(&mut self, number: usize) -> anyhow::Result<()> {
        self.start_with_flags(number, &[])
    }

    pub(super) fn start_with_flags(&mut self, number: usize, flags: &[&str]) -> anyhow::Result<()> {
        let (mut config, name) = ((self.setup.config)(number), format!("box-{number}"));
        if self.setup.in_kernel.is_some() {
            config += &kernel::section(number);
        }
        let (host, programs) = (&self.net.boxes[number], self.setup.programs);
        self.boxes[number] = Some(Gatun::start_with_flags(host, programs, (&name, flags), &config)?);
        Ok(())
    }

    fn first(&mut self) -> anyhow::Result<&mut Gatun> {
        self.boxes[0].as_mut().context("the first box does not run")
    }

    pub(super) fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        Ok(self.first()?.signal(signal)?)
    }

    pub(super) fn kill(&mut self) -> anyhow::Result<()> {
        self.boxes[0].take().context("the first box does not run")?.kill()?;
        let lease_s = if self.setup.in_kernel.is_some() { kernel::LEASE_S } else { 0 };
        self.silences.push(Silence::in_seconds(0, lease_s)?);
        Ok(())
    }

    pub(super) fn stop(&mut self) -> anyhow::Result<()> {
        self.boxes[0].take().context("the first box does not run")?.stop()?;
        Ok(())
    }

    /// Stops all, and returns the network, and the times after which killed boxes translated nothing more.
    pub(super) fn end(self) -> anyhow::Result<(PairNetwork, Vec<Silence>)> {
        for gatun in self.boxes.into_iter().flatten() {
            gatun.stop()?;
        }
        Ok((self.net, self.silences))
    }

    pub(super) fn cut(&mut self, is_up: bool) -> anyhow::Result<()> {
        Ok(self.net.cut(0, is_up)?)
    }

    /// Loses packets between the first box and the routers, while the links keep their carrier.
    pub(super) fn lose(&mut self, ways: &[Way], is_lost: bool) -> anyhow::Result<()> {
        Ok(ways.iter().try_for_each(|way| self.net.lose(0, *way, is_lost))?)
    }

    /// Measures how far the second box lags behind, while a client has all its connections.
    pub(super) fn lag(&self, is_brief: bool) -> anyhow::Result<Lag> {
        let mut probe = Probe::start(&self.net, &self.setup.load)?;
        let sockets = [0, 1].map(self.setup.socket);
        let lag = Lag::measure(&self.net, &sockets, &self.setup.load.hosts, is_brief)?;
        probe.next()?;
        probe.next()?;
        probe.end()?;
        Ok(lag)
    }

    /// Opens connections while another client runs, and expects that all of them go on.
    pub(super) fn open(&self, connections: u32) -> anyhow::Result<()> {
        let load = ProbeLoad { connections, flows: 1, ..self.setup.load.clone() };
        let mut probe = Probe::start(&self.net, &load)?;
        probe.next()?;
        probe.next()?;
        let outcome = probe.end()?;
        ensure!(outcome.ended + outcome.strange == 0, "new connections ended: {}", outcome.why.join(", "));
        Ok(())
    }

    /// Sends packets before a fault, while it lasts, and after it.
    pub(super) fn during(&mut self, fault: &Fault, hold: Duration) -> anyhow::Result<Outcome> {
        let mut probe = Probe::start(&self.net, &self.setup.load)?;
        std::thread::sleep(QUIET);
        if let Some(sessions) = self.setup.in_kernel {
            kernel::wait_until_used(&(self.setup.socket)(0), sessions).with_context(|| fault.name)?;
        }
        probe.next()?;
        (fault.begin)(self).with_context(|| fault.name)?;
        self.net.wait_until_used(fault.used, PUBLIC).with_context(|| fault.name)?;
        std::thread::sleep(hold);
        (self.setup.examine)(fault.running).with_context(|| fault.name)?;
        probe.next()?;
        (fault.end)(self).with_context(|| fault.name)?;
        (self.setup.settle)().with_context(|| fault.name)?;
        (self.setup.examine)(&[0, 1]).with_context(|| fault.name)?;
        self.net.wait_until_used(0, PUBLIC).with_context(|| fault.name)?;
        std::thread::sleep(QUIET);
        probe.end().with_context(|| fault.name)
    }
}
