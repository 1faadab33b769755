//! Network, boxes and client of `pair`, and faults while numbered packets pass.

use super::kernel;
use crate::middle::{Gatun, Programs};
use crate::port_users::Silence;
use crate::scenario::goals::Goals;
use crate::scenario::lag::Lag;
use crate::scenario::probe::{self, Outcome, Probe, ProbeLoad, QUIET, echo};
use crate::scenario::upgrade::Builds;
use anyhow::Context as _;
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
    /// Box that packets use during the fault; none if they use both or neither.
    pub(super) used: Option<usize>,
    /// Boxes that run during the fault.
    pub(super) running: &'static [usize],
    pub(super) goals: Goals,
    /// True if a brief run plays it.
    pub(super) is_brief: bool,
    /// True if both boxes run the former program before it, and the new one after it.
    pub(super) from_former: bool,
}

/// Properties of the boxes of a run.
pub(super) struct Setup<'p> {
    pub(super) programs: &'p Programs,
    /// Builds of a rolling upgrade.
    pub(super) builds: Option<&'p Builds>,
    /// Configuration of a box, without `[fastpath]`, and the socket of its API.
    pub(super) config: fn(usize) -> String,
    pub(super) socket: fn(usize) -> String,
    /// Sessions of each client that the kernel has before a fault; `None` without the fast path.
    pub(super) in_kernel: Option<u64>,
    /// Waits until both boxes are ready for a fault.
    pub(super) settle: fn() -> anyhow::Result<()>,
    /// Removes the state of a box that does not run, and sets its log aside.
    pub(super) forget: fn(usize) -> anyhow::Result<()>,
    /// Examines running boxes, during a fault and after it.
    pub(super) examine: fn(&[usize]) -> anyhow::Result<()>,
    pub(super) load: ProbeLoad,
}

impl Fault {
    /// Fault during which the second box translates alone.
    pub(super) const fn new(name: &'static str, begin: Act, end: Act) -> Fault {
        Fault {
            name,
            begin,
            end,
            used: Some(1),
            running: &[1],
            goals: Goals::NONE,
            is_brief: false,
            from_former: false,
        }
    }

    /// Work on both boxes, after which the first one translates as before.
    pub(super) const fn of_both(name: &'static str, begin: Act, end: Act) -> Fault {
        Fault { used: Some(0), running: &[0, 1], goals: Goals::PLANNED, ..Fault::new(name, begin, end) }
    }
}

/// Name of a box's files, without their endings.
fn file(number: usize) -> String {
    format!("box-{number}")
}

/// Both boxes, and an echo server.
pub(super) struct Lab<'p> {
    pub(super) net: PairNetwork,
    setup: Setup<'p>,
    /// Programs with the build that boxes start with.
    started: Programs,
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
        let (started, _echo) = (setup.programs.clone(), echo(&net)?);
        let mut lab = Lab { net, setup, started, boxes: [None, None], silences: Vec::new(), _echo };
        lab.start_both()?;
        Ok(lab)
    }

    fn start_both(&mut self) -> anyhow::Result<()> {
        self.start(0)?;
        self.start(1)?;
        (self.setup.settle)()?;
        self.net.wait_until_used(0, PUBLIC)?;
        Ok(wait_until("the client reaches the server", PATIENCE, || self.ping())?)
    }

    /// Opens a session. Returns whether the server answers.
    pub(super) fn ping(&self) -> bool {
        self.net.client.run(&format!("ping -c 1 -W 1 {SERVER}")).is_ok()
    }

    /// Stops both boxes, and starts them with the former program. The pair begins anew, since that program
    /// need not read what the new one has written.
    fn start_former(&mut self, builds: &Builds) -> anyhow::Result<()> {
        for number in [0, 1] {
            self.stop(number)?;
            (self.setup.forget)(number)?;
        }
        self.started = self.setup.programs.former().context("there is no former program")?;
        self.start_both()?;
        builds.all_former(&self.sockets())
    }

    /// Has boxes start with the new program again.
    pub(super) fn use_new_program(&mut self) {
        self.started = self.setup.programs.clone();
    }

    pub(super) fn start(&mut self, number: usize) -> anyhow::Result<()> {
        self.start_with_flags(number, &[])
    }

    pub(super) fn start_with_flags(&mut self, number: usize, flags: &[&str]) -> anyhow::Result<()> {
        let (host, config) = (&self.net.boxes[number], self.with_kernel(number, (self.setup.config)(number)));
        let named = (&file(number)[..], flags);
        self.boxes[number] = Some(Gatun::start_with_flags(host, &self.started, named, &config)?);
        Ok(())
    }

    /// Changes the configuration of a box by a reload.
    pub(super) fn reload(&self, number: usize, config: String) -> anyhow::Result<()> {
        let gatun = self.boxes[number].as_ref().context("the box does not run")?;
        Ok(gatun.reload(&self.started, &file(number), &self.with_kernel(number, config))?)
    }

    fn with_kernel(&self, number: usize, config: String) -> String {
        if self.setup.in_kernel.is_some() { config + &kernel::section(number) } else { config }
    }

    fn sockets(&self) -> [String; 2] {
        [0, 1].map(self.setup.socket)
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

    pub(super) fn stop(&mut self, number: usize) -> anyhow::Result<()> {
        self.boxes[number].take().context("the box does not run")?.stop()?;
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
        let lag = Lag::measure(&self.net, &self.sockets(), &self.setup.load.hosts, is_brief)?;
        probe.next()?;
        probe.next()?;
        probe.end()?;
        Ok(lag)
    }

    /// Opens connections while another client runs, and expects that all of them go on.
    pub(super) fn open(&self, connections: u32) -> anyhow::Result<()> {
        probe::open(&self.net, &self.setup.load, connections)
    }

    /// Sends packets before a fault, while it lasts, and after it.
    pub(super) fn play(&mut self, fault: &Fault, hold: Duration) -> anyhow::Result<Outcome> {
        let builds = self.setup.builds.filter(|_| fault.from_former);
        if let Some(builds) = builds {
            self.start_former(builds).with_context(|| fault.name)?;
        }
        let outcome = self.during(fault, hold)?;
        builds.map_or(Ok(()), |builds| builds.all_new(&self.sockets())).with_context(|| fault.name)?;
        Ok(outcome)
    }

    fn during(&mut self, fault: &Fault, hold: Duration) -> anyhow::Result<Outcome> {
        let mut probe = Probe::start(&self.net, &self.setup.load)?;
        std::thread::sleep(QUIET);
        if let Some(sessions) = self.setup.in_kernel {
            kernel::wait_until_used(&(self.setup.socket)(0), sessions).with_context(|| fault.name)?;
        }
        probe.next()?;
        (fault.begin)(self).with_context(|| fault.name)?;
        if let Some(used) = fault.used {
            self.net.wait_until_used(used, PUBLIC).with_context(|| fault.name)?;
        }
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
