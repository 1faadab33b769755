//! A process goes on with the sessions of the one before: of one that was stopped, replaced, or killed.

use super::output::Output;
use super::state::{self, Directory, InstanceNames, Names, NoRoom};
use super::{ANSWER_MAX, Settings, User};
use gatun_nat::kept::{Finder, Found, Keep, Kept, Legacy, Mine, NotRestored, Numbers, Progress, Unreadable};
use gatun_nat::workers::{Shares, Steering};
use gatun_nat::{BuildError, Nat, Plan};
use gatun_wire::Prefix64;
use gatun_worker::mailbox::RestoreStatus;
use gatun_worker::{Clock, Handle};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeSet;
use std::fs::File;
use std::net::Ipv4Addr;
use std::num::NonZeroUsize;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

/// Interval at which workers are asked whether all sessions are restored.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Answers that a worker may stay without, one after the other, until it is taken for ended.
const SILENT_MAX: u32 = 3;
/// Records that are looked at at a time where no packet waits.
const AT_ONCE: usize = 1 << 16;

/// Addresses of a drained range that are looked at: more are in no pool.
const DRAINED_MAX: usize = 1 << 20;

/// Saved sessions of this process and of the previous one.
pub(super) struct SessionStore {
    directory: Directory,
    /// Contents of `names.json`.
    names: Names,
    before: Option<Names>,
    /// Bytes of memory that the files of processes before have.
    left_bytes: u64,
    /// The clock that goes on from process to process, at this one's time zero, ms.
    zero_ms: u64,
}

/// Sessions of the process before, which the engines have from now on.
pub(super) struct RestoredSessions {
    begin: Instant,
    /// Number of sessions, including expired ones.
    sessions: u64,
    /// Time until the engines could translate for them.
    found: Duration,
    unread: Vec<String>,
}

/// The clock that goes on from process to process, ms.
pub fn clock_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000 + now.tv_nsec as u64 / 1_000_000
}

/// Finds the place for the sessions of `workers` engines for `plan`, and what is there; `clock` is the engines'. `None`
/// where nothing is to be kept. With `forget`, as if no process had been before.
///
/// # Errors
/// If the place that the configuration names cannot be had. That the usual one cannot is only `said`.
pub(super) fn open(
    settings: &Settings,
    user: Option<&User>,
    (clock, forget): (Clock, bool),
    said: &mut Vec<String>,
) -> anyhow::Result<Option<SessionStore>> {
    let (plan, workers) = (&settings.plan, settings.ports.workers() as u64);
    if !plan.is_stateful() {
        return Ok(None);
    }
    // Shares of the workers are together somewhat more than the whole.
    let bytes = Keep::bytes(plan).saturating_mul(if workers > 1 { 2 } else { 1 });
    match state::open(&settings.state, bytes, user)? {
        None => Ok(None),
        Some(Ok(directory)) => Ok(Some(SessionStore::new(directory, clock, forget))),
        Some(Err(why)) => {
            said.push(format!("a restart will end all sessions: {why}"));
            Ok(None)
        }
    }
}

impl SessionStore {
    /// `clock` is the engines'. With `forget`, as if no process had been before.
    fn new(directory: Directory, clock: Clock, forget: bool) -> SessionStore {
        let zero_ms = clock_ms().saturating_sub(clock.now().0);
        let before = directory.names();
        let generation = before.as_ref().map_or(0, |before| before.generation + 1);
        let names = Names { generation, ..Names::default() };
        let before = before.filter(|_| !forget);
        // Of processes killed while they started: their memory is needed now.
        directory.remove_all_but(before.as_ref().unwrap_or(&Names::default()));
        let left_bytes = before.as_ref().map_or(0, |before| directory.trim(before));
        SessionStore { directory, names, before, left_bytes, zero_ms }
    }

    /// This process's records.
    pub(super) fn files(&self) -> Vec<File> {
        let all = 0..self.names.workers;
        all.filter_map(|worker| self.directory.records(self.names.generation, worker).ok()).collect()
    }

    /// Bytes of memory that go back where the sessions of processes before are given up.
    pub(super) fn left_bytes(&self) -> u64 {
        self.left_bytes
    }

    /// Gives up the sessions of processes before, and their memory.
    pub(super) fn give_up(&mut self) {
        (self.before, self.left_bytes) = (None, 0);
        self.directory.remove_all_but(&Names::default());
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

    /// Creates the storage for the sessions of one worker's engine.
    ///
    /// # Errors
    /// If there is no room.
    pub(super) fn keep(&mut self, plan: &Plan) -> anyhow::Result<Keep> {
        let no_room = |e: NoRoom| {
            let fit = match Keep::sessions_in(plan, e.free) {
                0 => String::new(),
                n => format!("write sessions_max in [limits] so that each worker has no more than {n}, "),
            };
            anyhow::anyhow!(
                "{e}: {fit}give the file system more room, or write directory = \"off\" in [state]"
            )
        };
        let bytes = Keep::bytes(plan);
        let file = self.directory.new_records(self.names.generation, self.names.workers, bytes);
        let file = file.map_err(no_room)?;
        self.names.workers += 1;
        Ok(Keep::new(file.as_fd(), plan, self.zero_ms)?)
    }

    /// Gives the new engines the sessions of the process before; `steering` says whose they are where there are several.
    pub(super) fn take_over(
        &self,
        plan: &Plan,
        engines: &mut [Nat],
        steering: Option<&Steering>,
        clock: Clock,
    ) -> Option<RestoredSessions> {
        let before = self.before.as_ref()?;
        let begin = Instant::now();
        let (left, mut unread) = self.left(before, plan);
        let mut found = Vec::new();
        for (worker, nat) in engines.iter().enumerate() {
            let is_mine = |instance, inside, outside| {
                // What is nobody's is the first one's to refuse.
                let owner = steering.and_then(|all| all.owner_of_session(instance, inside, outside));
                owner.unwrap_or(0) == worker
            };
            let mine = Mine::Of { is_mine: &is_mine, strangers: worker == 0 };
            found.push(find_all(nat.finder(), &left, &mine, &mut unread));
        }
        for (nat, found) in engines.iter_mut().zip(found) {
            nat.inherit(clock.now(), found);
        }
        let sessions = engines.iter().map(|nat| nat.progress().left).sum();
        let unread = unread.into_iter().collect();
        Some(RestoredSessions { begin, sessions, found: begin.elapsed(), unread })
    }

    /// Sessions of previous processes, split into one part per processor, and why some cannot be read.
    fn left(&self, before: &Names, plan: &Plan) -> (Vec<Legacy>, BTreeSet<String>) {
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let now = instances(plan);
        let (mut left, mut unread) = (Vec::new(), BTreeSet::new());
        for names in before.sources() {
            let numbers = numbers(&names.instances, &now);
            for worker in 0..names.workers {
                let file = self.directory.records(names.generation, worker).map_err(|e| e.to_string());
                let kept = file.and_then(|file| self.kept(&file, processors).map_err(|e| e.to_string()));
                match kept {
                    Ok(parts) => {
                        left.extend(parts.into_iter().map(|kept| Legacy { kept, numbers: numbers.clone() }));
                    }
                    Err(why) => {
                        unread.insert(why);
                    }
                }
            }
        }
        (left, unread)
    }

    /// Records of a process before, in up to `parts` parts.
    fn kept(&self, file: &File, parts: usize) -> Result<Vec<Kept>, Unreadable> {
        let copied = || Ok(vec![Kept::read(file.as_fd(), clock_ms())?]);
        match self.is_gradual() {
            // It may live on in a child of it that has nothing to do with sessions.
            true => match Kept::take_over(file.as_fd(), clock_ms(), parts) {
                Err(Unreadable::InUse) => copied(),
                parts => parts,
            },
            false => copied(),
        }
    }

    /// Whether sessions are put back while packets come: not where memory had to be reserved for the records, as there
    /// may be no more of it than for two processes', nor where several processes were killed while they did so.
    fn is_gradual(&self) -> bool {
        let earlier = self.before.as_ref().map_or(0, |before| before.earlier.len());
        self.directory.has_room_for_several() && earlier < state::EARLIER_MAX
    }

    /// From now on the sessions of this process are those that the next one takes over; and those of processes before,
    /// as long as they are not back. Where that has to be over before the first packet, it is done here.
    ///
    /// # Errors
    /// If that cannot be written.
    pub(super) fn begin(&mut self, plan: &Plan, engines: &mut [Nat], clock: Clock) -> anyhow::Result<()> {
        self.names.instances = instances(plan);
        self.drain_again(engines);
        let is_gradual = self.is_gradual();
        match self.before.take() {
            Some(before) if is_gradual => {
                self.names.earlier = before.sources().cloned().collect();
                for names in &mut self.names.earlier {
                    (names.earlier, names.drained) = (Vec::new(), Vec::new());
                }
            }
            _ => {
                for nat in engines {
                    while !nat.put_back(clock.now(), AT_ONCE) {
                        std::thread::yield_now();
                    }
                }
            }
        }
        self.write()?;
        self.directory.remove_all_but(&self.names);
        Ok(())
    }

    /// Drains what the process before had drained, where it is still in a pool.
    fn drain_again(&mut self, engines: &mut [Nat]) {
        let before = self.before.as_ref().map_or(&[][..], |before| &before.drained);
        let addresses = before.iter().flat_map(|&(first, last)| {
            (u32::from(first)..=u32::from(last)).take(DRAINED_MAX).map(Ipv4Addr::from)
        });
        let drained = addresses.filter(|&address| engines.iter_mut().any(|nat| nat.drain(address)));
        self.names.drained = ranges(drained.collect());
    }

    /// From now on these are the addresses that get no new bindings.
    ///
    /// # Errors
    /// If that cannot be written.
    pub(super) fn drained(&mut self, addresses: Vec<Ipv4Addr>) -> anyhow::Result<()> {
        let drained = ranges(addresses);
        if drained == self.names.drained {
            return Ok(());
        }
        self.names.drained = drained;
        self.write()
    }

    /// Records that all sessions of previous processes are restored.
    ///
    /// # Errors
    /// If that cannot be written: then the next process looks through their files for nothing.
    pub(super) fn all_are_back(&mut self) -> anyhow::Result<()> {
        self.names.earlier = Vec::new();
        self.write()?;
        self.directory.remove_all_but(&self.names);
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

/// Addresses as the first and the last of each range.
fn ranges(mut addresses: Vec<Ipv4Addr>) -> Vec<(Ipv4Addr, Ipv4Addr)> {
    addresses.sort_unstable();
    let mut ranges: Vec<(Ipv4Addr, Ipv4Addr)> = Vec::new();
    for address in addresses {
        match ranges.last_mut() {
            Some((_, last)) if u32::from(*last).checked_add(1) == Some(address.into()) => *last = address,
            _ => ranges.push((address, address)),
        }
    }
    ranges
}

/// A worker's records.
///
/// # Errors
/// If they cannot be read.
pub fn read(file: &File) -> Result<Kept, String> {
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

/// The sessions of an engine in each part of what was left, found side by side.
fn find_all(
    finder: Finder<'_>,
    parts: &[Legacy],
    mine: &Mine<'_>,
    unread: &mut BTreeSet<String>,
) -> Vec<Found> {
    std::thread::scope(|scope| {
        let each = parts.iter().map(|part| scope.spawn(move || finder.find(part.clone(), mine)));
        let threads: Vec<_> = each.collect();
        let mut found = Vec::new();
        for thread in threads {
            match thread.join() {
                Ok(Ok(part)) => found.push(part),
                Ok(Err(error)) => {
                    unread.insert(error.to_string());
                }
                Err(_) => {
                    unread.insert("a thread that looked through them has ended".to_owned());
                }
            }
        }
        found
    })
}

/// The numbers of a process before, in another one's.
pub fn numbers(before: &[InstanceNames], now: &[InstanceNames]) -> Numbers {
    let of = |old: &InstanceNames| {
        let same = |new: &InstanceNames| (&new.kind, &new.name) == (&old.kind, &old.name);
        let number = now.iter().position(same)?;
        let has = &now.get(number)?.prefixes;
        let place = |prefix| u8::try_from(has.iter().position(|has| has == prefix)?).ok();
        Some((u8::try_from(number).ok()?, old.prefixes.iter().map(place).collect()))
    };
    Numbers { instances: before.iter().map(of).collect() }
}

impl RestoredSessions {
    /// Whether anything is taken over.
    pub(super) fn is_some(&self) -> bool {
        self.sessions > 0
    }

    /// Says what was found.
    pub(super) fn tell(&self, output: &Output) {
        let ms = self.found.as_secs_f64() * 1e3;
        output.log(&format!("{} sessions of the process before, found in {ms:.1} ms", self.sessions));
        for why in &self.unread {
            output.log(&format!("sessions of the process before cannot be taken over: {why}"));
        }
    }

    /// Starts a thread that says when all are back, and calls `done`.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn watch(
        self,
        workers: Vec<Handle>,
        output: Output,
        done: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        let body = move || {
            let mut all = Progress::default();
            for worker in &workers {
                match wait_for(worker) {
                    Some(one) => all += one,
                    None => return,
                }
            }
            let ms = self.begin.elapsed().as_secs_f64() * 1e3;
            let n = all.restored;
            output.log(&format!("{n} sessions of the process before go on, taken over in {ms:.1} ms"));
            for (why, n) in NotRestored::ALL.into_iter().zip(all.not).filter(|(_, n)| *n > 0) {
                // Whoever was killed between two stores has left a session in two files: it goes on.
                if why != NotRestored::There {
                    output.log(&format!("{n} sessions {} do not", why.help()));
                }
            }
            done();
        };
        std::thread::Builder::new().name("takeover".into()).spawn(body).map(drop)
    }
}

/// Waits until a worker has restored its sessions; `None` if the worker has ended.
fn wait_for(worker: &Handle) -> Option<Progress> {
    let mut silent = 0;
    while silent < SILENT_MAX {
        match worker.restore_status(ANSWER_MAX) {
            Some(RestoreStatus { progress, over: Some(spent) }) => {
                drop(spent);
                return Some(progress);
            }
            Some(_) => {
                silent = 0;
                std::thread::sleep(LOOK_EVERY);
            }
            None => silent += 1,
        }
    }
    None
}
