//! Engines with their workers' queues, and the manager's access to them.

use gatun_nat::feed::{
    Action, Command, CommandOutcome, FeedPolicy, FeedReader, SessionChange, SessionId, SessionRecord,
    SessionScope, channel,
};
use gatun_nat::plan::{self, PoolRange, StaticBinding, Transport};
use gatun_nat::session_file::{InheritedSessions, Renumbering, SavedSessions, SessionFile, SessionFilter};
use gatun_nat::{FeedCursor, Instant, Nat, Plan};
use gatun_offload::{Engine, Page};
use gatun_wire::Prefix64;
use gatun_worker::jobs::SubmitError;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::rc::Rc;

/// Sessions are offered after few packets.
const POLICY: FeedPolicy = FeedPolicy {
    sessions: SessionScope::Established,
    bindings: false,
    blocks: false,
    paths: false,
    packets: 2,
    tcp_packets: 1,
};
/// Records of a ring, by seed: so few that some are lost.
const RINGS: [usize; 3] = [6, 8, 12];
/// Records of a page: so few that a walk takes several.
const PAGE: usize = 5;
/// Time of day at the engine's time 0, ms.
const ZERO_MS: u64 = 5_000_000;

/// An engine and its worker's queues.
pub(super) struct Shard {
    pub(super) nat: Nat,
    /// The present plan and the other one.
    pub(super) plans: [Plan; 2],
    file: File,
    pub(super) now: Instant,
    /// Batches, with the generation of the manager that sent them.
    pub(super) queue: VecDeque<(u64, Vec<Command>)>,
    handled: VecDeque<Vec<Command>>,
    /// Requested part of a walk.
    read: Option<FeedCursor>,
    page: Option<Page>,
    /// Number of batches for which there is room.
    pub(super) room: usize,
    /// Generation of the manager's feed.
    pub(super) generation: u64,
    /// Records of a ring.
    ring: usize,
    /// Packets that this engine got directly, and by credits.
    pub(super) direct: u64,
    pub(super) credited: u64,
    /// Packets whose credit the engine refused.
    pub(super) refused: u64,
}

/// The manager's access to an engine.
pub(super) struct Link {
    shard: Rc<RefCell<Shard>>,
    reader: FeedReader,
    generation: u64,
}

/// Prefixes of the NAT64 instance.
pub(super) fn prefix(n: u8) -> Prefix64 {
    let address = Ipv6Addr::new(0x2001, 0xdb8, 0x64 + u16::from(n), 0, 0, 0, 0, 0);
    Prefix64::new(address, 96).expect("a valid length")
}

/// Public address `n` of an engine.
pub(super) fn public(shard: u8, n: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, 1 + 128 * shard + n)
}

/// Two plans of an engine: a NAT64 instance and a NAT44 instance that share a pool of few ports. The second
/// plan has one address and one prefix less, and a static binding.
fn plans(shard: u8, seed: u64) -> [Plan; 2] {
    let filtering = match seed % 2 {
        0 => plan::Filtering::EndpointIndependent,
        _ => plan::Filtering::AddressDependent,
    };
    let inbound_refresh = !seed.is_multiple_of(3);
    let nat64 = plan::Nat64 {
        name: "six".into(),
        pool6: vec![prefix(0), prefix(1)],
        subscriber_len: 128,
        filtering,
        inbound_refresh,
        ..plan::Nat64::default()
    };
    let inside = plan::Net4::new(Ipv4Addr::new(10, 0, shard, 0), 24);
    let nat44 = plan::Nat44 {
        name: "four".into(),
        inside: inside.into_iter().collect(),
        filtering,
        inbound_refresh,
        ..plan::Nat44::default()
    };
    let range = |last| PoolRange {
        first: public(shard, 0),
        last: public(shard, last),
        ports: (2048, 2051),
        transports: [true; 3],
    };
    let pool =
        |last| plan::Pool4 { name: "pool".into(), ranges: vec![range(last)], ..plan::Pool4::default() };
    let mut first = Plan { pools: vec![pool(1)], nat64: vec![nat64], nat44: vec![nat44], ..Plan::default() };
    first.limits.sessions_max = 40;
    let mut second = first.clone();
    second.pools = vec![pool(0)];
    second.nat64[0].pool6 = vec![prefix(1)];
    second.nat44[0].static_bindings = vec![StaticBinding {
        transport: Transport::Udp,
        inside: (Ipv4Addr::new(10, 0, shard, 1).to_ipv6_mapped(), 5001),
        outside: (public(shard, 0), 2049),
    }];
    [first, second]
}

fn session_file(plan: &Plan) -> File {
    let fd = memfd_create("sessions", MemfdFlags::CLOEXEC).expect("memory for a file");
    ftruncate(&fd, SessionFile::bytes(plan)).expect("memory for a file");
    File::from(fd)
}

fn engine(plan: &Plan, file: &File, seed: u64) -> Nat {
    let records = SessionFile::new(file.as_fd(), plan, ZERO_MS).expect("a new file");
    Nat::with_session_file(plan, [seed, 2, 3, 4], Some(records)).expect("the plan is sound")
}

impl Shard {
    pub(super) fn new(number: u8, seed: u64, now: Instant) -> Shard {
        let plans = plans(number, seed);
        let file = session_file(&plans[0]);
        let nat = engine(&plans[0], &file, seed);
        Shard {
            nat,
            plans,
            file,
            now,
            queue: VecDeque::new(),
            handled: VecDeque::new(),
            read: None,
            page: None,
            room: 100,
            generation: 0,
            ring: RINGS[(seed % 3) as usize],
            direct: 0,
            credited: 0,
            refused: 0,
        }
    }

    /// Kills the engine, and starts another one that inherits its sessions.
    pub(super) fn restart(&mut self) {
        let file = session_file(&self.plans[0]);
        let mut nat = engine(&self.plans[0], &file, self.now.0 | 1);
        let left = SavedSessions::read(self.file.as_fd(), ZERO_MS + self.now.0).expect("its own file");
        // Prefixes are numbered anew.
        let had = self.nat.prefixes(0).to_vec();
        let number = |prefix| nat.prefixes(0).iter().position(|new| new == prefix).map(|n| n as u8);
        let of64 = (0, had.iter().map(number).collect());
        let numbers = Renumbering { instances: vec![Some(of64), Some((1, vec![]))] };
        let inherited = InheritedSessions { records: left, numbers };
        let found = nat.finder().find(inherited, &SessionFilter::All).expect("memory");
        nat.inherit(self.now, vec![found]);
        (self.nat, self.file) = (nat, file);
        (self.direct, self.credited) = (0, 0);
        self.queue.clear();
    }

    /// Handles some commands.
    pub(super) fn handle(&mut self, mut budget: usize, check: &mut dyn FnMut(&Shard, &Command)) {
        while budget > 0
            && let Some((generation, mut batch)) = self.queue.pop_front()
        {
            budget = budget.saturating_sub(batch.len().max(1));
            for command in &mut batch {
                check(self, command);
                let mut one = [*command];
                self.nat.offload(self.now, &mut one);
                *command = one[0];
                if let Action::Credit(traffic) = command.action {
                    match command.outcome {
                        CommandOutcome::Done => self.credited += traffic.total().packets,
                        _ => self.refused += traffic.total().packets,
                    }
                }
            }
            if generation == self.generation {
                self.handled.push_back(batch);
            }
        }
    }

    /// Packets in credits that wait.
    pub(super) fn queued(&self) -> u64 {
        let packets = |command: &Command| match command.action {
            Action::Credit(traffic) => traffic.total().packets,
            _ => 0,
        };
        self.queue.iter().flat_map(|(_, batch)| batch).map(packets).sum()
    }

    /// Does the requested part of a walk. As in a worker, not before all sessions are restored.
    pub(super) fn walk(&mut self) {
        if self.nat.is_inheriting() {
            return;
        }
        if let Some(mut at) = self.read.take() {
            let mut found = Vec::with_capacity(PAGE);
            let since = self.nat.read_feed(&mut at, &POLICY, 2, &mut found);
            let until = self.nat.read_feed(&mut at, &POLICY, 7, &mut found);
            self.page = Some(Page { at, found, since, until });
        }
    }

    /// Marked sessions, and ended ones in quarantine.
    pub(super) fn marked(&self) -> Vec<SessionRecord> {
        let (mut at, mut all) = (FeedCursor::default(), Vec::new());
        while !at.is_done() {
            let mut some = Vec::with_capacity(16);
            self.nat.read_feed(&mut at, &FeedPolicy::default(), 64, &mut some);
            all.extend(some);
        }
        // Without a policy, established sessions are reported as closing.
        for record in &mut all {
            if record.change == SessionChange::Closing && self.is_offered(record.id) {
                record.change = SessionChange::Established;
            }
        }
        all
    }

    fn is_offered(&self, id: SessionId) -> bool {
        let (mut at, mut found) = (FeedCursor::default(), Vec::with_capacity(1000));
        self.nat.read_feed(&mut at, &POLICY, usize::MAX, &mut found);
        found.iter().any(|record| record.id == id && record.change == SessionChange::Established)
    }

    /// Attaches the feed of another manager.
    pub(super) fn attach(shard: &Rc<RefCell<Shard>>, generation: u64) -> Link {
        let mut this = shard.borrow_mut();
        let (feed, reader) = channel(POLICY, this.ring, generation);
        this.nat.attach_feed(Some(feed.into()));
        (this.generation, this.read, this.page) = (generation, None, None);
        this.handled.clear();
        drop(this);
        Link { shard: Rc::clone(shard), reader, generation }
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.queue.is_empty() && self.handled.is_empty() && self.read.is_none() && self.page.is_none()
    }
}

impl Engine for Link {
    type Stream = FeedReader;

    fn stream(&mut self) -> &mut FeedReader {
        &mut self.reader
    }

    fn submit(&mut self, commands: Vec<Command>) -> Result<(), SubmitError> {
        let mut shard = self.shard.borrow_mut();
        if shard.queue.len() >= shard.room {
            return Err(SubmitError::Busy);
        }
        shard.queue.push_back((self.generation, commands));
        Ok(())
    }

    fn handled(&mut self) -> Option<Vec<Command>> {
        self.shard.borrow_mut().handled.pop_front()
    }

    fn read(&mut self, at: FeedCursor, _: usize) -> Result<(), SubmitError> {
        let mut shard = self.shard.borrow_mut();
        if shard.room == 0 {
            return Err(SubmitError::Busy);
        }
        shard.read = Some(at);
        Ok(())
    }

    fn page(&mut self) -> Option<Page> {
        self.shard.borrow_mut().page.take()
    }
}
