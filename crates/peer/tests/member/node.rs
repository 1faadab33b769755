//! Box of a pair: a member and the engines of its workers, which execute requests when the world says so.

use gatun_mem::BorrowedFd;
use gatun_nat::feed::{FeedPolicy, FeedReader, Flow, Record, SessionScope, channel};
use gatun_nat::inspect::{BindingInfo, PortCursor, Selection, SessionCursor, SessionInfo};
use gatun_nat::plan::{self, Net4, Plan, PoolRange};
use gatun_nat::session_file::{InheritedSessions, Renumbering, SavedSessions, SessionFile, SessionFilter};
use gatun_nat::standby::PeerCommand;
use gatun_nat::workers::Shares;
use gatun_nat::{FeedCursor, Instant, Nat, Sequence, Verdict};
use gatun_peer::member::{
    AddressRange, EngineAnswer, EngineRequest, Engines, Member, MemberSettings, SavedStanding,
};
use gatun_peer::ownership::{self, Rules, Timing};
use gatun_peer::wire::{Exchange, Settings};
use gatun_wire::{HEADROOM, Packet};
use gatun_worker::standby::WalkPart;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::collections::VecDeque;
use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::sync::Arc;

pub const WORKERS: usize = 2;
pub const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
pub const KERNEL_MS: u32 = 300;
const ZERO_MS: u64 = 5_000_000;
/// Both boxes have the same hash of subscribers.
const SEED: [u64; 4] = [11, 12, 13, 14];

/// Settings that vary between seeds.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    pub rules: Rules,
    /// Packets after which a UDP session is told.
    pub packets: u8,
    /// Size of port blocks, if ports come in blocks.
    pub blocks: Option<u16>,
    /// True if each member owns one of the addresses.
    pub is_active_active: bool,
    /// Groups in the log of the exchange.
    pub log_max: usize,
    /// Records in the ring of a feed.
    pub ring: usize,
}

impl Variant {
    /// Ports of each address, and ports that belong to each member: few, so that they are used again soon.
    fn ports(&self) -> ((u16, u16), u16) {
        match self.blocks {
            None => ((1024, 1047), 5),
            Some(size) => ((1024, 1023 + 4 * size), size),
        }
    }
}

pub fn plan(variant: &Variant) -> Plan {
    let nat44 = plan::Nat44 {
        name: "home".into(),
        inside: vec![Net4::new(Ipv4Addr::new(10, 0, 0, 0), 8).unwrap()],
        timeouts: plan::Timeouts {
            udp_ms: 5_000,
            tcp_established_ms: 20_000,
            tcp_transitory_ms: 3_000,
            tcp_partial_open_ms: 3_000,
            tcp_closing_ms: 3_000,
            ..plan::Timeouts::default()
        },
        ..plan::Nat44::default()
    };
    let ranges = [PoolRange {
        first: ADDRESSES[0],
        last: ADDRESSES[1],
        ports: variant.ports().0,
        transports: [true; 3],
    }];
    let mut pool = plan::Pool4 { name: "pool".into(), ranges: ranges.to_vec(), ..plan::Pool4::default() };
    if let Some(size) = variant.blocks {
        let blocks = plan::Blocks { size, per_subscriber: 9, linger_ms: 1_000, ..plan::Blocks::default() };
        pool.allocation = plan::Allocation::Blocks(blocks);
    }
    let mut plan = Plan { pools: vec![pool], nat44: vec![nat44], ..Plan::default() };
    plan.limits.sessions_max = 400;
    plan.limits.subscribers_max = 64;
    plan.limits.syn_store_max = 16;
    plan.limits.path_mtus_max = 16;
    plan.limits.fragment_entries_max = 16;
    plan
}

fn file(plan: &Plan) -> File {
    let fd = memfd_create("sessions", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, SessionFile::bytes(plan)).unwrap();
    File::from(fd)
}

fn fd(file: &File) -> BorrowedFd<'_> {
    file.as_fd()
}

/// Engine of a worker, and the requests to it.
pub struct Worker {
    pub nat: Nat,
    feed: FeedReader,
    file: File,
    queue: VecDeque<EngineRequest>,
    /// Executed commands of the first request.
    done: usize,
}

/// Workers of a box.
pub struct Workers {
    pub all: Vec<Worker>,
    steering: Arc<gatun_nat::workers::Steering>,
    answers: VecDeque<(usize, EngineAnswer)>,
}

/// Requests that wait for a worker, at most.
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
        let queue = &mut self.all[worker].queue;
        if queue.len() >= QUEUE_MAX {
            return Err(request);
        }
        queue.push_back(request);
        Ok(())
    }

    fn answer(&mut self) -> Option<(usize, EngineAnswer)> {
        self.answers.pop_front()
    }

    fn next_record(&mut self, worker: usize) -> Option<(Sequence, Record)> {
        self.all[worker].feed.next()
    }
}

impl Workers {
    fn new(variant: &Variant, generation: u64) -> Workers {
        let shares = Shares::new(&plan(variant), WORKERS, SEED).unwrap();
        let policy = FeedPolicy {
            sessions: SessionScope::Established,
            packets: variant.packets,
            ..FeedPolicy::default()
        };
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
            let (feed, reader) = channel(policy, variant.ring, generation);
            nat.attach_peer_feed(Some(Box::new(feed)));
            all.push(Worker { nat, feed: reader, file, queue: VecDeque::new(), done: 0 });
        }
        Workers { all, steering: Arc::new(shares.steering), answers: VecDeque::new() }
    }

    /// Inherits the sessions of a killed process.
    fn inherit(&mut self, now: Instant, before: Vec<File>) {
        for (worker, left) in self.all.iter_mut().zip(before) {
            let records = SavedSessions::read(fd(&left), ZERO_MS + now.0).unwrap();
            let numbers = Renumbering { instances: vec![Some((0, vec![]))] };
            let inherited = InheritedSessions { records, numbers };
            let found = worker.nat.finder().find(inherited, &SessionFilter::All).unwrap();
            worker.nat.inherit(now, vec![found]);
            while !worker.nat.restore_some(now, 1_000) {}
        }
    }

    /// Executes a part of the first request to a worker.
    pub fn work(&mut self, worker: usize, now: Instant, budget: usize) {
        let Worker { nat, queue, done, .. } = &mut self.all[worker];
        nat.expire(now, budget);
        let answer = match queue.front_mut() {
            None => return,
            Some(EngineRequest::Commands(commands)) => {
                let end = commands.len().min(*done + budget);
                nat.standby(now, &mut commands[*done..end]);
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
        queue.pop_front();
        self.answers.push_back((worker, answer));
    }

    /// Returns all bindings.
    pub fn bindings(&self) -> Vec<BindingInfo> {
        let mut found = Vec::with_capacity(1_000);
        for worker in &self.all {
            worker.nat.read_bindings(
                &mut PortCursor::default(),
                &Selection::default(),
                1_000_000,
                &mut found,
            );
        }
        found
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
        let nat = &mut self.all[worker].nat;
        nat.process(now, &mut burst, &mut verdicts);
        let forwarded = (verdicts[0] == Verdict::Forward).then(|| burst[0].bytes().to_vec());
        nat.drain_emitted(|_| {});
        forwarded
    }

    fn files(self) -> Vec<File> {
        self.all.into_iter().map(|worker| worker.file).collect()
    }
}

/// Process of a box.
pub struct Process {
    pub member: Member,
    pub workers: Workers,
}

/// Life of a box.
pub enum Life {
    Runs,
    /// It does nothing, but its kernel and its memory are there.
    Stopped,
    /// Killed: its sessions and its standing are there.
    Killed(Vec<File>, Option<SavedStanding>),
    /// Off: nothing is there.
    Off,
}

/// Box.
pub struct Node {
    pub me: ownership::Member,
    pub life: Life,
    pub process: Option<Process>,
    /// Standing that has been saved.
    pub saved: Option<SavedStanding>,
    /// Translations of a killed process that the kernel still makes, until a time.
    pub kernel: (Vec<BindingInfo>, u64),
    generation: u64,
}

impl Node {
    pub fn new(me: ownership::Member, variant: &Variant) -> Node {
        let mut node =
            Node { me, life: Life::Off, process: None, saved: None, kernel: (vec![], 0), generation: 0 };
        node.start(variant, Instant(0));
        node
    }

    pub fn runs(&self) -> bool {
        matches!(self.life, Life::Runs)
    }

    /// Starts a process after a kill, or without state.
    pub fn start(&mut self, variant: &Variant, now: Instant) {
        self.generation += 1;
        let mut workers = Workers::new(variant, self.generation * 2 + self.me as u64);
        let saved = match std::mem::replace(&mut self.life, Life::Runs) {
            Life::Killed(files, saved) => {
                workers.inherit(now, files);
                saved
            }
            _ => None,
        };
        let process = 1_000 * (1 + self.me as u64) + self.generation;
        let settings = Settings {
            log_max: variant.log_max,
            rules: variant.rules,
            ..Settings::new(self.me, "box", process, vec![])
        };
        let (first, second) = (ownership::Member::First, ownership::Member::Second);
        let shards = if variant.is_active_active { vec![first, second] } else { vec![first] };
        let range = |n: usize| AddressRange {
            first: ADDRESSES[n],
            last: ADDRESSES[n],
            ports: variant.ports().0,
            shard: n.min(shards.len() - 1),
        };
        let settings_of_member = MemberSettings {
            me: self.me,
            addresses: vec![range(0), range(1)],
            shards,
            own_ports: variant.ports().1,
            away_ms: 3_000,
            again_ms: 20,
            timing: Timing { lease_ms: 0, kernel_ms: KERNEL_MS, drift_ms: 50 },
            revision: 1,
            rules: variant.rules,
        };
        let member = Member::new(settings_of_member, Exchange::new(settings), saved);
        self.process = Some(Process { member, workers });
        self.kernel = (vec![], 0);
    }

    /// Kills the process. Its kernel goes on for a while.
    pub fn kill(&mut self, now: Instant, keeps_state: bool) {
        let Some(process) = self.process.take() else { return };
        self.kernel = (process.workers.bindings(), now.0 + u64::from(KERNEL_MS));
        self.life = match keeps_state {
            true => Life::Killed(process.workers.files(), self.saved.clone()),
            false => Life::Off,
        };
        if !keeps_state {
            self.saved = None;
        }
    }

    /// Returns the translations that packets can find in the box.
    pub fn translations(&self, now: Instant) -> Vec<BindingInfo> {
        let mut all = self.process.as_ref().map(|process| process.workers.bindings()).unwrap_or_default();
        if now.0 < self.kernel.1 {
            all.extend_from_slice(&self.kernel.0);
        }
        all
    }
}
