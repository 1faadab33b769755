//! Restoration of the sessions of the previous process, which was stopped, replaced or killed.

use super::output::Output;
use super::state::{self, Directory, InstanceNames, Names, NoRoom};
use super::{ANSWER_MAX, Settings, User};
use gatun_nat::session_file::{
    FoundSessions, InheritedSessions, Renumbering, RestoreError, RestoreProgress, SavedSessions, SessionFile,
    SessionFileError, SessionFilter, SessionFinder,
};
use gatun_nat::workers::{Shares, Steering};
use gatun_nat::{BuildError, Nat, Plan};
use gatun_wire::Prefix64;
use gatun_wire::text::counted;
use gatun_worker::mailbox::RestoreStatus;
use gatun_worker::{Clock, Handle, since_boot};
use std::collections::BTreeSet;
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::Ipv4Addr;
use std::num::NonZeroUsize;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

/// Interval at which workers are asked if all sessions are restored.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Number of consecutive missing answers after which a worker counts as ended.
const SILENT_MAX: u32 = 3;
/// Number of records examined by one call if no packets wait.
const AT_ONCE: usize = 1 << 16;

/// Largest number of addresses of a drained range: no pool has more.
const DRAINED_MAX: usize = 1 << 20;

/// Saved sessions of this process and of the previous one.
pub(super) struct SessionStore {
    directory: Directory,
    /// Contents of `names.json`.
    names: Names,
    before: Option<Names>,
    /// Memory in bytes of the files of previous processes.
    left_bytes: u64,
    /// Value of the clock of all processes at this process's time zero, ms.
    zero_ms: u64,
}

/// Sessions that the engines have inherited from the previous process.
pub(super) struct RestoredSessions {
    begin: Instant,
    /// Number of sessions, including expired ones.
    sessions: u64,
    /// Time until the engines could translate for them.
    found: Duration,
    unread: Vec<String>,
}

/// Clock that continues from process to process, ms. Like that of the workers, it counts the time for which
/// the host was suspended.
pub fn clock_ms() -> u64 {
    since_boot().as_millis() as u64
}

/// Opens the store for the sessions of `workers` engines with `plan`, including saved sessions. `clock` is
/// the engines'. `None` if no sessions are saved. With `forget`, saved sessions are ignored.
///
/// # Errors
/// Returns an error if the configured directory cannot be used. If only the default directory cannot be used,
/// `said` gets a line.
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
    // The workers' shares together are larger than the whole.
    let bytes = SessionFile::bytes(plan).saturating_mul(if workers > 1 { 2 } else { 1 });
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
    /// Creates a store. `clock` is the engines'. With `forget`, saved sessions are ignored.
    fn new(directory: Directory, clock: Clock, forget: bool) -> SessionStore {
        let zero_ms = clock_ms().saturating_sub(clock.now().0);
        let before = directory.names();
        let generation = before.as_ref().map_or(0, |before| before.generation + 1);
        let names = Names { generation, ..Names::default() };
        let before = before.filter(|_| !forget);
        // Removes files of processes that were killed while they started: their memory is needed now.
        directory.remove_all_but(before.as_ref().unwrap_or(&Names::default()));
        let left_bytes = before.as_ref().map_or(0, |before| directory.trim(before));
        SessionStore { directory, names, before, left_bytes, zero_ms }
    }

    /// Files of this process's records.
    pub(super) fn files(&self) -> Vec<File> {
        let all = 0..self.names.workers;
        all.filter_map(|worker| self.directory.records(self.names.generation, worker).ok()).collect()
    }

    /// Returns true if the kernel's sessions of the previous process can be sessions of these instances and
    /// pools.
    pub(super) fn fits(&self, plan: &Plan) -> bool {
        let before = self.before.as_ref().and_then(|before| before.offloaded);
        before == Some(self.hash(plan))
    }

    /// Hash of everything that gives a session in the kernel its meaning.
    fn hash(&self, plan: &Plan) -> u64 {
        let mut hasher = DefaultHasher::new();
        // All settings are in this text. One that does not matter costs a new start of the kernel's table.
        let plan = format!("{:?} {:?} {:?}", plan.pools, plan.nat64, plan.nat44);
        (plan, self.names.workers).hash(&mut hasher);
        hasher.finish()
    }

    /// Records that the kernel has sessions of these instances and pools only. `None`: of unknown ones.
    ///
    /// # Errors
    /// Returns an error if the names cannot be written.
    pub(super) fn set_offloaded(&mut self, plan: Option<&Plan>) -> anyhow::Result<()> {
        let offloaded = plan.map(|plan| self.hash(plan));
        if offloaded == self.names.offloaded {
            return Ok(());
        }
        self.names.offloaded = offloaded;
        self.write()
    }

    /// Memory in bytes that is freed if the sessions of previous processes are discarded.
    pub(super) fn left_bytes(&self) -> u64 {
        self.left_bytes
    }

    /// Gives up the sessions of previous processes and frees their memory.
    pub(super) fn give_up(&mut self) {
        (self.before, self.left_bytes) = (None, 0);
        self.directory.remove_all_but(&Names::default());
    }

    /// Directory of the files.
    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Generation of this process's files.
    pub(super) fn generation(&self) -> u64 {
        self.names.generation
    }

    /// Generation of the files of the process whose sessions this one inherits.
    pub(super) fn generation_before(&self) -> Option<u64> {
        self.before.as_ref().map(|before| before.generation)
    }

    /// Divides a plan among workers. If their number is unchanged, each gets the share that has its sessions.
    /// `common` is the key that all boxes of a pair or a cluster have. A cluster's shards keep their
    /// addresses whatever the number of workers.
    ///
    /// # Errors
    /// Like [`Shares::new`].
    pub(super) fn share(
        &mut self,
        plan: &Plan,
        workers: usize,
        seed: [u64; 4],
        common: Option<[u64; 4]>,
    ) -> Result<Shares, BuildError> {
        let is_same = |before: &&Names| common.is_none_or(|key| before.steering == key);
        let parts = |before: &Names| before.address_shares.iter().map(|share| share.2).max().map(usize::from);
        let fits = |before: &&Names| match plan.shards {
            Some(shards) => parts(before) == Some(usize::from(shards) - 1),
            None => before.workers == workers,
        };
        let before = self.before.as_ref().filter(fits).filter(is_same);
        let seed = common.unwrap_or(seed);
        self.names.steering = before.map_or(seed, |before| before.steering);
        let address_shares = before.map_or(&[][..], |before| &before.address_shares);
        let shares = Shares::as_before(plan, workers, self.names.steering, address_shares)?;
        self.names.address_shares = shares.steering.address_shares();
        Ok(shares)
    }

    /// Creates the storage for the sessions of one worker's engine.
    ///
    /// # Errors
    /// Returns an error if there is no room.
    pub(super) fn session_file(&mut self, plan: &Plan) -> anyhow::Result<SessionFile> {
        let no_room = |e: NoRoom| {
            let fit = match SessionFile::sessions_in(plan, e.free) {
                0 => String::new(),
                n => format!("write sessions_max in [limits] so that each worker has no more than {n}, "),
            };
            anyhow::anyhow!(
                "{e}: {fit}give the file system more room, or write directory = \"off\" in [state]"
            )
        };
        let bytes = SessionFile::bytes(plan);
        let file = self.directory.new_records(self.names.generation, self.names.workers, bytes);
        let file = file.map_err(no_room)?;
        self.names.workers += 1;
        Ok(SessionFile::new(file.as_fd(), plan, self.zero_ms)?)
    }

    /// Gives the new engines the sessions of the previous process. `steering` determines the owner of each
    /// session if there are several workers.
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
            let is_own = |instance, inside, outside| {
                // The first worker refuses sessions without an owner.
                let owner = steering.and_then(|all| all.owner_of_session(instance, inside, outside));
                owner.unwrap_or(0) == worker
            };
            let filter = SessionFilter::Of { is_own: &is_own, unserved: worker == 0 };
            found.push(find_all(nat.finder(), &left, &filter, &mut unread));
        }
        for (nat, found) in engines.iter_mut().zip(found) {
            nat.inherit(clock.now(), found);
        }
        let sessions = engines.iter().map(|nat| nat.progress().left).sum();
        let unread = unread.into_iter().collect();
        Some(RestoredSessions { begin, sessions, found: begin.elapsed(), unread })
    }

    /// Sessions of previous processes, split into one part per processor, and the reasons why some cannot be
    /// read.
    fn left(&self, before: &Names, plan: &Plan) -> (Vec<InheritedSessions>, BTreeSet<String>) {
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let now = instances(plan);
        let (mut left, mut unread) = (Vec::new(), BTreeSet::new());
        for names in before.sources() {
            let numbers = numbers(&names.instances, &now);
            for worker in 0..names.workers {
                let file = self.directory.records(names.generation, worker).map_err(|e| e.to_string());
                let records =
                    file.and_then(|file| self.records(&file, processors).map_err(|e| e.to_string()));
                match records {
                    Ok(parts) => {
                        left.extend(
                            parts
                                .into_iter()
                                .map(|records| InheritedSessions { records, numbers: numbers.clone() }),
                        );
                    }
                    Err(why) => {
                        unread.insert(why);
                    }
                }
            }
        }
        (left, unread)
    }

    /// Records of a previous process, in up to `parts` parts.
    fn records(&self, file: &File, parts: usize) -> Result<Vec<SavedSessions>, SessionFileError> {
        let copied = || Ok(vec![SavedSessions::read(file.as_fd(), clock_ms())?]);
        match self.is_gradual() {
            // A child of that process may hold the file open without using it.
            true => match SavedSessions::take_over(file.as_fd(), clock_ms(), parts) {
                Err(SessionFileError::InUse) => copied(),
                parts => parts,
            },
            false => copied(),
        }
    }

    /// Returns true if sessions are restored while packets arrive. Not if the memory of the records is
    /// reserved and limited to two processes, and not after several processes were killed during a
    /// restoration.
    fn is_gradual(&self) -> bool {
        let earlier = self.before.as_ref().map_or(0, |before| before.earlier.len());
        self.directory.has_room_for_several() && earlier < state::EARLIER_MAX
    }

    /// Makes this process's sessions, and the previous ones that are not restored yet, those that the next
    /// process finds. If sessions must be restored before the first packet, this is done here.
    ///
    /// # Errors
    /// Returns an error if the names cannot be written.
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
                    while !nat.restore_some(clock.now(), AT_ONCE) {
                        std::thread::yield_now();
                    }
                }
            }
        }
        self.write()?;
        self.directory.remove_all_but(&self.names);
        Ok(())
    }

    /// Drains the addresses that the previous process had drained, if they are still in a pool.
    fn drain_again(&mut self, engines: &mut [Nat]) {
        let before = self.before.as_ref().map_or(&[][..], |before| &before.drained);
        let addresses = before.iter().flat_map(|&(first, last)| {
            (u32::from(first)..=u32::from(last)).take(DRAINED_MAX).map(Ipv4Addr::from)
        });
        let drained = addresses.filter(|&address| engines.iter_mut().any(|nat| nat.drain(address)));
        self.names.drained = ranges(drained.collect());
    }

    /// Sets the addresses that get no new bindings.
    ///
    /// # Errors
    /// Returns an error if the names cannot be written.
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
    /// Returns an error if the names cannot be written. Then the next process does not find the sessions.
    pub(super) fn all_restored(&mut self) -> anyhow::Result<()> {
        self.names.earlier = Vec::new();
        self.write()?;
        self.directory.remove_all_but(&self.names);
        Ok(())
    }

    /// Adds the names of another plan before engines change to it. `steering` is the next one, if there are
    /// several workers.
    pub(super) fn add(&mut self, plan: &Plan, steering: Option<&Steering>) -> anyhow::Result<()> {
        self.names.address_shares = steering.map(Steering::address_shares).unwrap_or_default();
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
        written.map_err(|e| anyhow::anyhow!("[state]: cannot write state metadata: {e}"))
    }
}

/// Ranges of consecutive addresses, each with its first and last one.
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

/// Reads the records of a worker.
///
/// # Errors
/// Returns an error if they cannot be read.
pub fn read(file: &File) -> Result<SavedSessions, String> {
    SavedSessions::read(file.as_fd(), clock_ms()).map_err(|e| e.to_string())
}

fn instances(plan: &Plan) -> Vec<InstanceNames> {
    let prefixes = |prefixes: &[Prefix64]| prefixes.iter().map(Prefix64::to_string).collect();
    let of64 = plan.nat64.iter().map(|n| ("nat64", &n.name, prefixes(&n.pool6)));
    let of44 = plan.nat44.iter().map(|n| ("nat44", &n.name, Vec::new()));
    let all = of64.chain(of44);
    all.map(|(kind, name, prefixes)| InstanceNames { kind: kind.to_owned(), name: name.clone(), prefixes })
        .collect()
}

/// Finds an engine's sessions in each part, in parallel.
fn find_all(
    finder: SessionFinder<'_>,
    parts: &[InheritedSessions],
    filter: &SessionFilter<'_>,
    unread: &mut BTreeSet<String>,
) -> Vec<FoundSessions> {
    std::thread::scope(|scope| {
        let each = parts.iter().map(|part| scope.spawn(move || finder.find(part.clone(), filter)));
        let threads: Vec<_> = each.collect();
        let mut found = Vec::new();
        for thread in threads {
            match thread.join() {
                Ok(Ok(part)) => found.push(part),
                Ok(Err(error)) => {
                    unread.insert(error.to_string());
                }
                Err(_) => {
                    unread.insert(
                        "a thread that searched for them panicked: this is a defect, please report it"
                            .to_owned(),
                    );
                }
            }
        }
        found
    })
}

/// Mapping of a previous process's numbers to the present ones.
pub fn numbers(before: &[InstanceNames], now: &[InstanceNames]) -> Renumbering {
    let of = |old: &InstanceNames| {
        let same = |new: &InstanceNames| (&new.kind, &new.name) == (&old.kind, &old.name);
        let number = now.iter().position(same)?;
        let has = &now.get(number)?.prefixes;
        let place = |prefix| u8::try_from(has.iter().position(|has| has == prefix)?).ok();
        Some((u8::try_from(number).ok()?, old.prefixes.iter().map(place).collect()))
    };
    Renumbering { instances: before.iter().map(of).collect() }
}

impl RestoredSessions {
    /// Returns true if there are sessions to restore.
    pub(super) fn is_some(&self) -> bool {
        self.sessions > 0
    }

    /// Logs what was found.
    pub(super) fn tell(&self, output: &Output) {
        let ms = self.found.as_secs_f64() * 1e3;
        output.log(&format!("found {} in {ms:.1} ms", counted(self.sessions, "saved session")));
        for why in &self.unread {
            output.log(&format!("cannot restore sessions of the previous process: {why}"));
        }
    }

    /// Starts a thread that logs when all sessions are restored, and calls `done`, with false if some were
    /// lost.
    ///
    /// # Errors
    /// Returns an error if no thread can be started.
    pub(super) fn watch(
        self,
        workers: Vec<Handle>,
        output: Output,
        done: impl FnOnce(bool) + Send + 'static,
    ) -> std::io::Result<()> {
        let body = move || {
            let mut all = RestoreProgress::default();
            for worker in &workers {
                match wait_for(worker) {
                    Some(one) => all += one,
                    None => return,
                }
            }
            let ms = self.begin.elapsed().as_secs_f64() * 1e3;
            let n = all.restored;
            output.log(&format!("restored {} of the previous process in {ms:.1} ms", counted(n, "session")));
            for (why, n) in RestoreError::ALL.into_iter().zip(all.not).filter(|(_, n)| *n > 0) {
                // A process killed between two stores leaves a session in two files. The session continues.
                if why != RestoreError::Exists {
                    output.log(&format!("not restored: {} {}", counted(n, "session"), why.help()));
                }
            }
            let is_lost = |(why, n): (RestoreError, u64)| {
                n > 0 && !matches!(why, RestoreError::Exists | RestoreError::Expired)
            };
            let has_lost = RestoreError::ALL.into_iter().zip(all.not).any(is_lost);
            done(!has_lost && self.unread.is_empty());
        };
        std::thread::Builder::new().name("takeover".into()).spawn(body).map(drop)
    }
}

/// Waits until a worker has restored its sessions; `None` if the worker has ended.
fn wait_for(worker: &Handle) -> Option<RestoreProgress> {
    let mut silent = 0;
    while silent < SILENT_MAX {
        match worker.restore_status(ANSWER_MAX) {
            Some(RestoreStatus { progress, over: Some(finished) }) => {
                drop(finished);
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
