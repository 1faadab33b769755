//! A process goes on with the sessions of the one before: of one that was stopped, replaced, or killed.

use super::outlet::Output;
use super::state::{self, Directory, InstanceNames, Names};
use super::{Settings, User};
use gatun_nat::kept::{Keep, Kept, NotRestored, Saved};
use gatun_nat::workers::{Shares, Steering};
use gatun_nat::{BuildError, Nat, Plan};
use gatun_wire::Prefix64;
use gatun_worker::Clock;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

/// Where this process's sessions are, and what it found of the one before.
pub(super) struct Estate {
    directory: Directory,
    /// What is written there.
    names: Names,
    before: Option<Names>,
    /// TUN devices that the process before has made.
    devices_left: Vec<String>,
    /// The clock that goes on from process to process, at this one's time zero, ms.
    zero_ms: u64,
}

/// What was taken over.
#[derive(Debug, Default)]
pub(super) struct Taken {
    sessions: u64,
    not: BTreeMap<NotRestored, u64>,
    unread: Vec<String>,
    took: Duration,
}

/// The clock that goes on from process to process, ms.
pub(crate) fn clock_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000 + now.tv_nsec as u64 / 1_000_000
}

/// Finds the place for the sessions of `workers` engines for `plan`, and what is there; `clock` is the engines'. `None`
/// where nothing is to be kept. With `forget`, as if no process had been before.
///
/// # Errors
/// Where the place that the configuration names cannot be had. That the usual one cannot is only `said`.
pub(super) fn open(
    settings: &Settings,
    user: Option<&User>,
    (clock, forget): (Clock, bool),
    said: &mut Vec<String>,
) -> anyhow::Result<Option<Estate>> {
    let (plan, workers) = (&settings.plan, settings.ports.workers() as u64);
    if !plan.is_stateful() {
        return Ok(None);
    }
    // Shares of the workers are together somewhat more than the whole.
    let bytes = Keep::bytes(plan).saturating_mul(if workers > 1 { 2 } else { 1 });
    match state::open(&settings.state, bytes, user)? {
        None => Ok(None),
        Some(Ok(directory)) => Ok(Some(Estate::new(directory, clock, forget))),
        Some(Err(why)) => {
            said.push(format!("a restart will end all sessions: {why}"));
            Ok(None)
        }
    }
}

impl Estate {
    /// `clock` is the engines'. With `forget`, as if no process had been before.
    fn new(directory: Directory, clock: Clock, forget: bool) -> Estate {
        let zero_ms = clock_ms().saturating_sub(clock.now().0);
        let before = directory.names();
        let generation = before.as_ref().map_or(0, |before| before.generation + 1);
        let names = Names { generation, ..Names::default() };
        let devices_left = before.as_ref().map(|before| before.devices.clone()).unwrap_or_default();
        Estate { directory, names, before: before.filter(|_| !forget), devices_left, zero_ms }
    }

    /// Shares a plan among workers as before, so that each finds its sessions; if there are as many as before.
    ///
    /// # Errors
    /// What [`Shares::new`] says.
    pub(super) fn share(
        &mut self,
        plan: &Plan,
        workers: usize,
        seed: [u64; 4],
    ) -> Result<Shares, BuildError> {
        let before = self.before.as_ref().filter(|before| before.workers == workers);
        self.names.steering = before.map_or(seed, |before| before.steering);
        let dealt = before.map_or(&[][..], |before| &before.dealt);
        let shares = Shares::as_before(plan, workers, self.names.steering, dealt)?;
        self.names.dealt = shares.steering.dealt();
        Ok(shares)
    }

    /// Where the engine of a worker is to have its sessions.
    ///
    /// # Errors
    /// Where there is no room.
    pub(super) fn keep(&mut self, plan: &Plan) -> anyhow::Result<Keep> {
        let no_room = |e: &dyn std::fmt::Display| {
            anyhow::anyhow!(
                "no room in memory to keep the sessions for the next process ({e}): lower sessions_max in \
                 [limits], or write directory = \"off\" in [state]"
            )
        };
        let bytes = Keep::bytes(plan);
        let file = self.directory.new_records(self.names.generation, self.names.workers, bytes);
        let file = file.map_err(|e| no_room(&e))?;
        self.names.workers += 1;
        Keep::new(file.as_fd(), plan, self.zero_ms).map_err(|e| no_room(&e))
    }

    /// TUN devices that the process before has made.
    pub(super) fn devices_left(&self) -> &[String] {
        &self.devices_left
    }

    /// Puts the sessions of the process before into the new engines; `steering` says whose they are where there are
    /// several.
    pub(super) fn take_over(
        &self,
        plan: &Plan,
        engines: &mut [Nat],
        steering: Option<&Steering>,
        clock: Clock,
    ) -> Option<Taken> {
        let before = self.before.as_ref()?;
        let begin = Instant::now();
        let mut taken = Taken::default();
        let files = (0..before.workers).map(|worker| self.directory.records(before.generation, worker));
        let mut kept = Vec::new();
        for file in files {
            match file.map_err(|e| e.to_string()).and_then(|file| read(&file)) {
                Ok(records) => kept.push(records),
                Err(why) => taken.unread.push(why),
            }
        }
        let numbers = Numbers::new(before, plan, engines.first());
        std::thread::scope(|scope| {
            let (kept, numbers) = (&kept, &numbers);
            let each = engines.iter_mut().enumerate().map(|(worker, nat)| {
                scope.spawn(move || {
                    // What is nobody's is the first one's to refuse.
                    let owner = |saved: &Saved| {
                        steering?.owner_of_session(saved.instance, saved.inside.0, saved.outside.0)
                    };
                    let mine = |saved: Option<&Saved>| saved.and_then(owner).unwrap_or(0) == worker;
                    let sessions = kept.iter().flat_map(Kept::sessions);
                    restore(nat, clock, sessions, numbers, mine)
                })
            });
            let threads: Vec<_> = each.collect();
            for thread in threads {
                // A thread that panicked has restored what it has.
                if let Ok(some) = thread.join() {
                    taken.sessions += some.sessions;
                    some.not.iter().for_each(|(why, n)| *taken.not.entry(*why).or_default() += n);
                }
            }
        });
        taken.took = begin.elapsed();
        Some(taken)
    }

    /// From now on the sessions of this process are those that the next one takes over.
    ///
    /// # Errors
    /// Where that cannot be written.
    pub(super) fn begin(&mut self, plan: &Plan, devices: Vec<String>) -> anyhow::Result<()> {
        self.names.devices = devices;
        self.names.instances = instances(plan);
        self.write()?;
        self.before = None;
        self.directory.remove_all_but(self.names.generation);
        Ok(())
    }

    /// Before engines change to another plan: what is new has the numbers that they will give it. `steering` is how
    /// packets will find workers, where there are several.
    pub(super) fn add(&mut self, plan: &Plan, steering: Option<&Steering>) -> anyhow::Result<()> {
        self.names.dealt = steering.map(Steering::dealt).unwrap_or_default();
        for new in instances(plan) {
            let same = |old: &&mut InstanceNames| (&old.kind, &old.name) == (&new.kind, &new.name);
            match self.names.instances.iter_mut().find(same) {
                Some(old) => {
                    let more = new.prefixes.into_iter().filter(|prefix| !old.prefixes.contains(prefix));
                    let more: Vec<String> = more.collect();
                    old.prefixes.extend(more);
                }
                None => self.names.instances.push(new),
            }
        }
        self.write()
    }

    fn write(&self) -> anyhow::Result<()> {
        let written = self.directory.set_names(&self.names);
        written.map_err(|e| anyhow::anyhow!("[state]: what records mean cannot be written: {e}"))
    }
}

/// A worker's records.
pub(crate) fn read(file: &File) -> Result<Kept, String> {
    Kept::read(file.as_fd(), clock_ms()).map_err(|e| e.to_string())
}

fn instances(plan: &Plan) -> Vec<InstanceNames> {
    let prefixes = |prefixes: &[Prefix64]| prefixes.iter().map(Prefix64::to_string).collect();
    let of64 = plan.nat64.iter().map(|n| ("nat64", &n.name, prefixes(&n.pool6)));
    let of44 = plan.nat44.iter().map(|n| ("nat44", &n.name, Vec::new()));
    let all = of64.chain(of44);
    all.map(|(kind, name, prefixes)| InstanceNames { kind: kind.to_owned(), name: name.clone(), prefixes })
        .collect()
}

/// The numbers of the process before, in this one's.
struct Numbers {
    /// By number of the instance: its number now, and those of its prefixes.
    instances: Vec<Option<(u8, Vec<Option<u8>>)>>,
}

impl Numbers {
    fn new(before: &Names, plan: &Plan, nat: Option<&Nat>) -> Numbers {
        let now = instances(plan);
        let of = |old: &InstanceNames| {
            let same = |new: &InstanceNames| (&new.kind, &new.name) == (&old.kind, &old.name);
            let number = u8::try_from(now.iter().position(same)?).ok()?;
            let has: Vec<String> = nat?.prefixes(number).iter().map(Prefix64::to_string).collect();
            let place = |prefix| u8::try_from(has.iter().position(|has| has == prefix)?).ok();
            Some((number, old.prefixes.iter().map(place).collect()))
        };
        Numbers { instances: before.instances.iter().map(of).collect() }
    }

    /// A session by the numbers of now; `None` where its instance or prefix is there no more.
    fn translate(&self, saved: Saved) -> Option<Saved> {
        let (instance, prefixes) = self.instances.get(usize::from(saved.instance))?.as_ref()?;
        let pool6 = match prefixes.is_empty() {
            true => 0,
            false => (*prefixes.get(usize::from(saved.pool6))?)?,
        };
        Some(Saved { instance: *instance, pool6, ..saved })
    }
}

fn restore(
    nat: &mut Nat,
    clock: Clock,
    sessions: impl Iterator<Item = Saved>,
    numbers: &Numbers,
    mine: impl Fn(Option<&Saved>) -> bool,
) -> Taken {
    let mut taken = Taken::default();
    let mut not_served = 0;
    let known = sessions.filter_map(|saved| {
        let known = numbers.translate(saved);
        not_served += u64::from(known.is_none() && mine(None));
        known.filter(|saved| mine(Some(saved)))
    });
    nat.restore_all(
        || clock.now(),
        known,
        |restored| match restored {
            Ok(()) => taken.sessions += 1,
            Err(why) => *taken.not.entry(why).or_default() += 1,
        },
    );
    if not_served > 0 {
        *taken.not.entry(NotRestored::NotServed).or_default() += not_served;
    }
    taken
}

impl Taken {
    /// Whether anything was taken over.
    pub(super) fn is_some(&self) -> bool {
        self.sessions > 0
    }

    /// Says it in the log.
    pub(super) fn tell(&self, output: &Output) {
        let ms = self.took.as_secs_f64() * 1e3;
        output.log(&format!(
            "{} sessions of the process before go on, taken over in {ms:.1} ms",
            self.sessions
        ));
        for (why, n) in &self.not {
            output.log(&format!("{n} sessions {} do not", why.help()));
        }
        for why in &self.unread {
            output.log(&format!("sessions of the process before cannot be taken over: {why}"));
        }
    }
}
