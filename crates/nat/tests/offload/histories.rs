//! Random histories of packets, time, ends, reloads and restarts with a manager that handles records and
//! commands late, loses them, or dies.
//!
//! Invariants: each entry of the target has a marked session, or its quarantined port; no other inside end
//! gets the port of an entry.

use crate::common::*;
use crate::restart::{file, heir_of, with_session_file};
use crate::*;
use gatun_nat::feed::Flow;
use gatun_nat::inspect::{Selection, SessionCursor, SessionInfo};
use gatun_nat::plan::{Allocation, Blocks, Filtering, StaticBinding};
use gatun_nat::reconfigure::Change;
use gatun_nat::{ClearCursor, Extent, Sequence, Verdict};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;

const FLAGS: [&str; 5] = ["S", "SA", "A", "FA", "R"];

#[derive(Clone, Debug)]
enum Op {
    /// Packet from a client's port to a server: TCP with `flags`, or UDP.
    Out {
        client: u8,
        port: u8,
        server: u8,
        flags: Option<u8>,
    },
    /// Packet from a server to a public port.
    In {
        server: u8,
        port: u8,
        flags: Option<u8>,
    },
    Pass {
        ms: u32,
    },
    Sweep,
    /// Ends the sessions of a client's port, or all sessions.
    Clear {
        port: Option<u8>,
        bindings: bool,
    },
    /// Applies the other plan, or continues its application.
    Reload,
    /// Kills the engine; another one inherits its sessions.
    Restart,
    /// Restores some inherited sessions.
    PutBack,
    /// The manager reads some records; the flows that it is asked about are alive or not.
    Read {
        records: u8,
        alive: bool,
    },
    /// Some commands reach the engine, and their results the manager.
    Handle {
        commands: u8,
    },
    /// Kills the manager and its unsent commands, and starts another one.
    Kill,
}

fn op() -> impl Strategy<Value = Op> {
    let flags = || prop_oneof![2 => Just(None), 3 => (0..5u8).prop_map(Some), 2 => Just(Some(0))];
    prop_oneof![
        10 => (0..3u8, 0..3u8, 0..2u8, flags())
            .prop_map(|(client, port, server, flags)| Op::Out { client, port, server, flags }),
        8 => (0..2u8, 0..8u8, prop_oneof![Just(None), Just(Some(1)), (0..5u8).prop_map(Some)])
            .prop_map(|(server, port, flags)| Op::In { server, port, flags }),
        3 => prop_oneof![0..10_000u32, 0..400_000u32, Just(7_500_000u32)].prop_map(|ms| Op::Pass { ms }),
        4 => Just(Op::Sweep),
        2 => (prop::option::of(0..3u8), any::<bool>()).prop_map(|(port, bindings)| Op::Clear { port, bindings }),
        2 => Just(Op::Reload),
        1 => Just(Op::Restart),
        2 => Just(Op::PutBack),
        8 => (1..20u8, any::<bool>()).prop_map(|(records, alive)| Op::Read { records, alive }),
        8 => (1..20u8).prop_map(|commands| Op::Handle { commands }),
        1 => Just(Op::Kill),
    ]
}

/// State of a session for the manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// A mark was requested.
    Wanted,
    /// The target has an entry.
    Installed,
}

struct Manager {
    reader: FeedReader,
    known: BTreeMap<SessionId, Known>,
    commands: VecDeque<Command>,
    /// Place in the stream before which records are older than the state read.
    read_until: Option<Sequence>,
    resync: bool,
}

struct World {
    bed: Bed,
    plans: [Plan; 2],
    file: File,
    manager: Manager,
    /// Entries of the fast path, which survive every process.
    target: BTreeSet<Flow>,
    generation: u64,
}

/// One or two addresses with few ports, with or without a static binding.
fn plans(blocks: bool, filtering: Filtering) -> [Plan; 2] {
    let mut plan = both_kinds();
    plan.pools = vec![pool(T, "192.0.2.2", (2048, if blocks { 2048 + 127 } else { 2048 + 3 }))];
    if blocks {
        let blocks = Blocks { size: 32, per_subscriber: 2, linger_ms: 5_000, ..Blocks::default() };
        plan.pools[0].allocation = Allocation::Blocks(blocks);
    }
    (plan.nat44[0].filtering, plan.nat64[0].filtering) = (filtering, filtering);
    plan.limits.sessions_max = 40;
    let mut other = plan.clone();
    other.pools[0].ranges[0].last = v4(T);
    let binding = |outside| StaticBinding {
        transport: Transport::Udp,
        inside: (v4("10.0.0.1").to_ipv6_mapped(), 5001),
        outside: (v4(T), outside),
    };
    other.nat44[0].static_bindings = vec![binding(2049)];
    [plan, other]
}

const POLICY: FeedPolicy = FeedPolicy { packets: 2, tcp_packets: 1, ..ESTABLISHED };

impl World {
    fn new(blocks: bool, filtering: Filtering) -> World {
        let plans = plans(blocks, filtering);
        let file = file(&plans[0]);
        let mut bed = with_session_file(&plans[0], &file, 1);
        let manager = Manager::attach(&mut bed, 0);
        World { bed, plans, file, manager, target: BTreeSet::new(), generation: 0 }
    }

    fn play(&mut self, op: &Op) {
        match *op {
            Op::Out { client, port, server, flags } => {
                let (from, port) = (format!("10.0.0.{client}"), 5000 + u16::from(port));
                let to = format!("198.51.100.{}", server + 1);
                self.send(&match flags {
                    None => udp4(&from, port, &to, 80, b"x"),
                    Some(flags) => tcp4(&from, port, &to, 80, FLAGS[usize::from(flags)], b""),
                });
            }
            Op::In { server, port, flags } => {
                let from = format!("198.51.100.{}", server + 1);
                let to = if port % 2 == 0 { T } else { "192.0.2.2" };
                let port = 2048 + u16::from(port / 2);
                self.send(&match flags {
                    None => udp4(&from, 80, to, port, b"x"),
                    Some(flags) => tcp4(&from, 80, to, port, FLAGS[usize::from(flags)], b""),
                });
            }
            Op::Pass { ms } => self.bed.now = self.bed.now.plus_ms(ms.into()),
            Op::Sweep => self.sweep(),
            Op::Clear { port, bindings } => {
                let inside_port = port.map(|port| 5000 + u16::from(port));
                let which = Selection { inside_port, ..Selection::default() };
                let extent = if bindings { Extent::Binding } else { Extent::Session };
                let mut at = ClearCursor::default();
                // The end waits for a slow reader.
                for _ in 0..50 {
                    self.bed.nat.clear(self.bed.now, &mut at, &which, extent, 1000);
                }
            }
            Op::Reload => self.reload(),
            Op::Restart => self.restart(),
            Op::PutBack => _ = self.bed.nat.restore_some(self.bed.now, 5),
            Op::Read { records, alive } => self.read(records.into(), alive),
            Op::Handle { commands } => self.handle(commands.into()),
            Op::Kill => self.kill(),
        }
        self.holds();
    }

    fn send(&mut self, packet: &[u8]) {
        let mut buf = vec![0xa5; 128 + packet.len() + 64];
        buf[128..128 + packet.len()].copy_from_slice(packet);
        let mut burst = [gatun_wire::Packet::new(&mut buf, 128, packet.len()).unwrap()];
        let mut verdicts = [Verdict::Pass];
        assert_eq!(self.bed.nat.process(self.bed.now, &mut burst, &mut verdicts), 1);
        self.bed.emitted();
    }

    fn sweep(&mut self) {
        for _ in 0..5 {
            self.bed.now = self.bed.now.plus_ms(1_000);
            self.bed.nat.expire(self.bed.now, 1000);
            self.bed.emitted();
        }
    }

    fn reload(&mut self) {
        if self.bed.nat.is_settling() {
            return;
        }
        let [now, then] = &self.plans;
        let mut change = Change::prepare(&self.bed.nat.outline(), now, then).unwrap();
        self.bed.nat.apply(self.bed.now, &mut change).unwrap();
        self.plans.swap(0, 1);
    }

    fn restart(&mut self) {
        if self.bed.nat.is_settling() {
            return;
        }
        let next = file(&self.plans[0]);
        self.bed = heir_of(&self.plans[0], (&self.file, &self.bed), &next);
        self.file = next;
        self.kill();
    }

    fn kill(&mut self) {
        self.generation += 1;
        self.manager = Manager::attach(&mut self.bed, self.generation);
        self.manager.resync = true;
    }

    fn read(&mut self, records: usize, alive: bool) {
        // The worker does no jobs before all sessions are restored.
        if self.manager.resync && !self.bed.nat.is_inheriting() {
            self.resync();
        }
        for _ in 0..records {
            // Records of the stream are only meaningful with the state before them.
            if self.manager.resync {
                break;
            }
            let Some((at, record)) = self.manager.reader.next() else { break };
            assert_eq!(at.generation, self.generation);
            let is_old = self.manager.read_until.is_some_and(|until| at.number < until.number);
            match record {
                Record::Session(_) if is_old => {}
                Record::Session(session) => self.told(&session, alive),
                Record::Lost(_) | Record::PlanChanged => self.manager.resync |= !is_old,
                other => panic!("{other:?}"),
            }
        }
    }

    fn told(&mut self, session: &SessionRecord, alive: bool) {
        let id = session.id;
        let is_known = self.manager.known.contains_key(&id);
        match session.change {
            SessionChange::Established if is_known => {}
            SessionChange::Established => {
                self.manager.known.insert(id, Known::Wanted);
                self.manager.order(id, Action::Mark(Ownership { epoch: 1, offload: Offload::Pending }));
            }
            SessionChange::Asked if alive => self.manager.order(id, Action::Seen([Some(0), None])),
            SessionChange::Asked | SessionChange::Closing | SessionChange::Ended => self.remove(id),
            SessionChange::Opened => panic!("nobody asked for it"),
        }
    }

    /// Removes the entry first, then releases the port.
    fn remove(&mut self, id: SessionId) {
        if self.manager.known.remove(&id) != Some(Known::Wanted) {
            self.target.remove(&id.flow);
        }
        self.manager.order(id, Action::Released);
    }

    /// Reads all state, and makes the target consistent with it.
    fn resync(&mut self) {
        let (mut at, mut all, mut until) = (FeedCursor::default(), Vec::new(), None);
        while !at.is_done() {
            let mut some = Vec::with_capacity(7);
            until = self.bed.nat.read_feed(&mut at, &POLICY, 10, &mut some);
            all.extend(some);
        }
        (self.manager.read_until, self.manager.resync) = (until, false);
        let wanted: BTreeMap<SessionId, &SessionRecord> = all.iter().map(|s| (s.id, s)).collect();
        let flows: BTreeSet<Flow> = wanted
            .values()
            .filter(|s| s.change == SessionChange::Established && s.ownership.offload != Offload::Engine)
            .map(|s| s.id.flow)
            .collect();
        self.target.retain(|flow| flows.contains(flow));
        self.manager.known.retain(|id, _| wanted.contains_key(id));
        for (id, session) in wanted {
            let is_marked = session.ownership.offload != Offload::Engine;
            match (session.change, is_marked) {
                (SessionChange::Established, true) if self.target.contains(&id.flow) => {
                    self.manager.known.insert(id, Known::Installed);
                }
                // The command may not have arrived yet.
                (SessionChange::Established, _) if self.manager.known.get(&id) == Some(&Known::Wanted) => {}
                (SessionChange::Established, false) => self.told(session, false),
                (_, true) => {
                    self.manager.known.remove(&id);
                    self.manager.order(id, Action::Released);
                }
                (change, false) => panic!("{change:?} without a mark"),
            }
        }
    }

    fn handle(&mut self, commands: usize) {
        let n = commands.min(self.manager.commands.len());
        let mut batch: Vec<Command> = self.manager.commands.drain(..n).collect();
        self.bed.nat.offload(self.bed.now, &mut batch);
        for command in batch {
            let (id, is_done) = (command.id, command.outcome == CommandOutcome::Done);
            let Action::Mark(_) = command.action else { continue };
            match self.manager.known.get(&id) {
                // The earlier session of the flow may still exist; the engine then translates this one.
                Some(Known::Wanted) if is_done && !self.clashes(id.flow) => {
                    self.manager.known.insert(id, Known::Installed);
                    self.target.insert(id.flow);
                }
                Some(Known::Wanted) if is_done => self.remove(id),
                Some(Known::Wanted) => _ = self.manager.known.remove(&id),
                _ => {}
            }
        }
    }

    fn clashes(&self, flow: Flow) -> bool {
        let same = |other: &Flow| {
            let key = |flow: &Flow| (flow.transport, flow.instance, flow.inside, flow.remote);
            key(other) == key(&flow)
        };
        self.target.iter().any(same)
    }

    fn sessions(&self) -> Vec<SessionInfo> {
        let (mut at, mut all) = (SessionCursor::default(), Vec::with_capacity(1000));
        self.bed.nat.read_sessions(&mut at, &Selection::default(), usize::MAX, &mut all);
        assert!(at.done);
        all
    }

    fn holds(&self) {
        let nat = &self.bed.nat;
        assert!(nat.counters().conserved() && nat.conserved_by_instance());
        let sessions = self.sessions();
        let kept: BTreeSet<Flow> =
            present(&self.bed, &FeedPolicy::default()).iter().map(|s| s.id.flow).collect();
        for flow in &self.target {
            assert!(kept.contains(flow) || nat.is_inheriting(), "an entry outlives its binding: {flow:?}");
            for s in sessions.iter().filter(|s| (s.transport, s.outside) == (flow.transport, flow.outside)) {
                assert_eq!((s.instance, s.inside), (flow.instance, flow.inside), "its port is another's");
            }
        }
        let ended = present(&self.bed, &FeedPolicy::default());
        let ended = ended.iter().filter(|s| s.change == SessionChange::Ended).count();
        assert_eq!(ended, nat.occupancy().quarantined);
        assert_eq!(sessions.len(), nat.occupancy().sessions);
    }

    /// Lets the manager finish its work. Then no session, port or subscriber is left.
    fn end(&mut self) {
        while self.bed.nat.is_inheriting() {
            self.bed.nat.restore_some(self.bed.now, 100);
        }
        for _ in 0..4 {
            self.bed.now = self.bed.now.plus_ms(7_500_000);
            for _ in 0..8 {
                self.sweep();
                self.read(1000, false);
                self.handle(1000);
                self.holds();
            }
        }
        assert!(!self.bed.nat.is_settling());
        assert!(self.target.is_empty() && self.manager.known.is_empty(), "{:?}", self.manager.known);
        let there = self.bed.nat.occupancy();
        let statics = self.plans[0].nat44[0].static_bindings.len();
        assert_eq!((there.sessions, there.quarantined, there.bindings), (0, 0, statics));
        for transport in Transport::ALL {
            let used = if transport == Transport::Udp { statics as u64 } else { 0 };
            let usage = self.bed.nat.pools()[0].usage(transport);
            assert!(usage.used <= used, "{transport:?} {usage:?}");
        }
        assert_eq!(there.subscribers, 0);
    }
}

impl Manager {
    fn attach(bed: &mut Bed, generation: u64) -> Manager {
        // The ring is so short that records are lost.
        let (feed, reader) = channel(POLICY, 12, generation);
        bed.nat.attach_feed(Some(feed.into()));
        let (known, commands) = (BTreeMap::new(), VecDeque::new());
        Manager { reader, known, commands, read_until: None, resync: false }
    }

    fn order(&mut self, id: SessionId, action: Action) {
        self.commands.push_back(Command::new(id, action));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn no_entry_outlives_its_binding_and_no_port_of_an_entry_is_given_to_another(
        blocks in any::<bool>(),
        by_address in any::<bool>(),
        ops in prop::collection::vec(op(), 0..300),
    ) {
        let filtering =
            if by_address { Filtering::AddressDependent } else { Filtering::EndpointIndependent };
        let mut world = World::new(blocks, filtering);
        for op in &ops {
            world.play(op);
        }
        world.end();
    }
}
