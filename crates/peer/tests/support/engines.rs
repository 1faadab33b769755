//! Engines of a box's workers in virtual time: they execute requests when the world says so.
#![allow(dead_code)]

mod log;

use gatun_mem::BorrowedFd;
use gatun_nat::feed::{FeedPolicy, FeedReader, Flow, Record, SessionScope, channel};
use gatun_nat::inspect::{PortCursor, Selection, SessionCursor, SessionInfo};
use gatun_nat::plan::{Plan, Transport};
use gatun_nat::session_file::{InheritedSessions, Renumbering, SavedSessions, SessionFile, SessionFilter};
use gatun_nat::standby::{Fence, PeerAction, PeerCommand};
use gatun_nat::workers::{Shares, Steering};
use gatun_nat::{FeedCursor, Instant, Nat, Sequence, Verdict};
use gatun_peer::member::{EngineAnswer, EngineRequest, Engines};
use gatun_peer::records::RecordQueues;
use gatun_wire::{HEADROOM, Packet};
use gatun_worker::standby::WalkPart;
use log::{EVENTS, PortLog};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::sync::Arc;

const ZERO_MS: u64 = 5_000_000;
/// All boxes have the same hash of subscribers.
const SEED: [u64; 4] = [11, 12, 13, 14];

fn file(plan: &Plan) -> File {
    let fd = memfd_create("sessions", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, SessionFile::bytes(plan)).unwrap();
    File::from(fd)
}

fn fd(file: &File) -> BorrowedFd<'_> {
    file.as_fd()
}

/// Public port, and its inside host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Translation {
    /// Protocol, address and port, as one number: these are sorted after each step of a history.
    place: u64,
    inside: (Ipv6Addr, u16),
}

impl Translation {
    fn new(transport: Transport, (address, port): (Ipv4Addr, u16), inside: (Ipv6Addr, u16)) -> Translation {
        let place = (transport as u64) << 48 | u64::from(u32::from(address)) << 16 | u64::from(port);
        Translation { place, inside }
    }

    pub fn address(&self) -> Ipv4Addr {
        Ipv4Addr::from((self.place >> 16) as u32)
    }
}

/// Checks that no public port has two inside hosts in all boxes together.
///
/// # Errors
/// Names the first one that has.
pub fn check_ports(boxes: impl Iterator<Item = Vec<Translation>>) -> Result<(), String> {
    let mut all = Vec::with_capacity(1_000);
    for (at, some) in boxes.enumerate() {
        all.extend(some.into_iter().map(|one| (one, at)));
    }
    all.sort_unstable_by_key(|(one, _)| one.place);
    let double =
        all.windows(2).find(|two| two[0].0.place == two[1].0.place && two[0].0.inside != two[1].0.inside);
    double.map_or(Ok(()), |two| {
        let [(one, at), (other, there)] = [two[0], two[1]];
        let (transport, address, port) = (one.place >> 48, one.address(), one.place as u16);
        let (user, user_there) = (one.inside, other.inside);
        Err(format!(
            "{address}:{port} of protocol {transport} has {user:?} at {at}, and {user_there:?} at {there}"
        ))
    })
}

/// Engine of a worker, and the requests to it, each of a member.
pub struct Worker {
    pub nat: Nat,
    feed: FeedReader,
    log: PortLog,
    file: File,
    queue: VecDeque<(usize, EngineRequest)>,
    /// Executed commands of the first request.
    done: usize,
    /// Fences of shards.
    fences: Vec<Fence>,
}

impl Worker {
    fn execute(nat: &mut Nat, fences: &mut [Fence], now: Instant, commands: &mut [PeerCommand]) {
        nat.standby(now, commands);
        for command in commands {
            if let PeerAction::Until(shards, fence) = command.action {
                shards.iter().for_each(|shard| fences[usize::from(shard)] = fence);
            }
        }
    }
}

/// Workers of a box, as one of the members sees them.
pub struct Workers {
    pub all: Vec<Worker>,
    pub steering: Arc<Steering>,
    /// Answers to each member.
    answers: Vec<VecDeque<(usize, EngineAnswer)>>,
    records: RecordQueues,
    member: usize,
}

/// Requests of a member that wait for a worker, at most.
const QUEUE_MAX: usize = 1;

impl Engines for Workers {
    fn workers(&self) -> usize {
        self.all.len()
    }

    fn owner(&self, flow: &Flow) -> Option<usize> {
        self.steering.owner_of_session(flow.instance, flow.inside.0, flow.outside.0)
    }

    fn owner_of_address(&self, address: Ipv4Addr) -> Option<usize> {
        self.steering.owner_of_address(address)
    }

    fn submit(&mut self, worker: usize, request: EngineRequest) -> Result<(), EngineRequest> {
        let member = self.member;
        let queue = &mut self.all[worker].queue;
        if queue.iter().filter(|(of, _)| *of == member).count() >= QUEUE_MAX {
            return Err(request);
        }
        queue.push_back((member, request));
        Ok(())
    }

    fn answer(&mut self) -> Option<(usize, EngineAnswer)> {
        self.answers[self.member].pop_front()
    }

    fn next_record(&mut self, worker: usize) -> Option<(Sequence, Record)> {
        let Workers { all, records, steering, member, .. } = self;
        records.next((*member, worker), steering, &mut || all[worker].feed.next())
    }
}

impl Workers {
    /// Creates engines with a number of workers and members. Sessions are told after some packets; a feed has
    /// room for some records.
    pub fn new(
        plan: &Plan,
        (workers, members): (usize, usize),
        (packets, ring): (u8, usize),
        generation: u64,
    ) -> Workers {
        let shares = Shares::new(&Plan { events: EVENTS, ..plan.clone() }, workers, SEED).unwrap();
        let policy = FeedPolicy { sessions: SessionScope::Established, packets, ..FeedPolicy::default() };
        let mut all: Vec<Worker> = Vec::new();
        for (n, plan) in (0u64..).zip(&shares.plans) {
            let file = file(plan);
            let records = SessionFile::new(fd(&file), plan, ZERO_MS).unwrap();
            let seed = [n, generation, 3, 4];
            let mut nat = match all.first() {
                None => Nat::with_session_file(plan, seed, Some(records)).unwrap(),
                Some(first) => first.nat.sibling(plan, seed, Some(records)).unwrap(),
            };
            nat.begin_standby();
            let (feed, reader) = channel(policy, ring, generation);
            nat.attach_peer_feed(Some(Box::new(feed)));
            let fences = vec![Fence::default(); 256];
            let log = PortLog::new(&mut nat);
            all.push(Worker { nat, feed: reader, log, file, queue: VecDeque::new(), done: 0, fences });
        }
        let mut records = RecordQueues::new(workers, ring);
        let answers = (0..members).map(|_| {
            records.add_member();
            VecDeque::new()
        });
        let answers = answers.collect();
        Workers { all, steering: Arc::new(shares.steering), answers, records, member: 0 }
    }

    /// Turns to a member.
    pub fn of(&mut self, member: usize) -> &mut Workers {
        self.member = member;
        self
    }

    pub fn assign(&mut self, shard: u8, member: Option<usize>) {
        self.records.assign(shard, member);
    }

    /// Executes a command at once.
    pub fn order(&mut self, now: Instant, action: PeerAction) {
        for Worker { nat, log, fences, .. } in &mut self.all {
            Worker::execute(nat, fences, now, &mut [PeerCommand::new(action)]);
            log.read();
        }
    }

    /// Inherits the sessions of a killed process.
    pub fn inherit(&mut self, now: Instant, before: Vec<File>) {
        for (worker, left) in self.all.iter_mut().zip(before) {
            let records = SavedSessions::read(fd(&left), ZERO_MS + now.0).unwrap();
            let numbers = Renumbering { instances: vec![Some((0, vec![]))] };
            let inherited = InheritedSessions { records, numbers };
            let found = worker.nat.finder().find(inherited, &SessionFilter::All).unwrap();
            worker.nat.inherit(now, vec![found]);
            while !worker.nat.restore_some(now, 1_000) {}
            worker.log.read();
        }
    }

    /// Executes a part of the first request to a worker.
    pub fn work(&mut self, worker: usize, now: Instant, budget: usize) {
        self.work_on(worker, now, budget);
        self.all[worker].log.read();
    }

    fn work_on(&mut self, worker: usize, now: Instant, budget: usize) {
        let Worker { nat, queue, done, fences, .. } = &mut self.all[worker];
        nat.expire(now, budget);
        let answer = match queue.front_mut().map(|(_, request)| request) {
            None => return,
            Some(EngineRequest::Commands(commands)) => {
                let end = commands.len().min(*done + budget);
                Worker::execute(nat, fences, now, &mut commands[*done..end]);
                *done = end;
                if end < commands.len() {
                    return;
                }
                *done = 0;
                let commands: Vec<PeerCommand> = std::mem::take(commands);
                EngineAnswer::Commands(commands)
            }
            Some(EngineRequest::Page(shards, at)) => {
                let (mut at, mut found): (FeedCursor, _) = (*at, Vec::with_capacity(budget));
                let until = nat.walk_standby(now, *shards, &mut at, 1_000, &mut found);
                let parts = vec![WalkPart { end: found.len(), until }];
                EngineAnswer::Page { at, found, parts }
            }
            Some(EngineRequest::Pass(pass, shards, at)) => {
                let mut at = *at;
                nat.pass_standby(now, (*pass, *shards), &mut at, budget);
                EngineAnswer::Pass(at)
            }
        };
        let member = queue.pop_front().map_or(0, |(member, _)| member);
        self.answers[member].push_back((worker, answer));
    }

    /// Returns whether packets of a public address are not translated any more.
    pub fn is_fenced(&self, now: Instant, address: Ipv4Addr) -> bool {
        let (worker, shard) = (self.owner_of_address(address), self.steering.shard_of_address(address));
        let fence = worker.zip(shard).map(|(worker, shard)| self.all[worker].fences[usize::from(shard)]);
        fence.and_then(|fence| fence.translate).is_some_and(|until| now >= until)
    }

    /// Returns the public ports of all sessions, several times if a host has several sessions. A walk over
    /// bindings looks at all ports of the addresses, which took three quarters of the time of a history.
    pub fn translations(&self) -> Vec<Translation> {
        self.sessions().iter().map(|one| Translation::new(one.transport, one.outside, one.inside)).collect()
    }

    /// Checks that the tables of ports have the bindings of the sessions, and no others.
    ///
    /// # Errors
    /// Names the bindings in one of both.
    pub fn check_tables(&self) -> Result<(), String> {
        let mut found = Vec::with_capacity(1_000);
        for worker in &self.all {
            worker.nat.read_bindings(
                &mut PortCursor::default(),
                &Selection::default(),
                1_000_000,
                &mut found,
            );
        }
        let bound = found.iter().map(|one| Translation::new(one.transport, one.outside, one.inside));
        let (bound, used) = (bound.collect::<BTreeSet<_>>(), self.translations().into_iter().collect());
        let differ: Vec<_> = bound.symmetric_difference(&used).collect();
        if !differ.is_empty() {
            return Err(format!("in one table alone: {differ:?}"));
        }
        let mut logged = BTreeSet::new();
        for worker in &self.all {
            logged.extend(worker.log.check()?.iter().copied());
        }
        let differ: Vec<_> = bound.symmetric_difference(&logged).collect();
        if differ.is_empty() { Ok(()) } else { Err(format!("in the table or in the log alone: {differ:?}")) }
    }

    /// Checks the logs of all workers.
    ///
    /// # Errors
    /// Names the first contradiction.
    pub fn check_logs(&self) -> Result<(), String> {
        self.all.iter().try_for_each(|worker| worker.log.check().map(|_| ()))
    }

    /// Returns all sessions.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let mut found = Vec::with_capacity(2_000);
        for worker in &self.all {
            worker.nat.read_sessions(
                &mut SessionCursor::default(),
                &Selection::default(),
                1_000_000,
                &mut found,
            );
        }
        found
    }

    /// Number of ports that wait for the other member.
    pub fn quarantined(&self) -> usize {
        self.all.iter().map(|worker| worker.nat.occupancy().quarantined).sum()
    }

    /// Gives a packet to its worker. Returns it if it was forwarded.
    pub fn packet(&mut self, now: Instant, packet: &[u8]) -> Option<Vec<u8>> {
        let worker = self.steering.owner(packet, 0).unwrap_or(0);
        let mut buf = vec![0; HEADROOM + packet.len() + 64];
        buf[HEADROOM..HEADROOM + packet.len()].copy_from_slice(packet);
        let mut burst = [Packet::new(&mut buf, HEADROOM, packet.len()).unwrap()];
        let mut verdicts = [Verdict::Pass];
        let Worker { nat, log, .. } = &mut self.all[worker];
        nat.process(now, &mut burst, &mut verdicts);
        let forwarded = (verdicts[0] == Verdict::Forward).then(|| burst[0].bytes().to_vec());
        nat.drain_emitted(|_| {});
        log.read();
        forwarded
    }

    pub fn files(self) -> Vec<File> {
        self.all.into_iter().map(|worker| worker.file).collect()
    }
}
