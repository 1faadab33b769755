//! The simulated world: a queue of timed tasks, the packets that they cause, and the engine.

use super::Options;
use super::chance::{busy, exponential};
use super::ledger::{Invariant, Ledger};
use super::packets::{End, Kind, behind_prefix, read, write};
use super::people::{Activity, App, AttackKind, HARMS, Shape, Subscriber, anybody, game, page, peer};
use super::plan::{POOL, addresses, plan};
use super::report::Report;
use crate::drive::rng::Rng;
use gatun_nat::plan::Transport;
use gatun_nat::{BURST, EventReader, Instant, Nat, Reply, Verdict};
use gatun_wire::{HEADROOM, Packet};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::{IpAddr, Ipv4Addr};

/// All tasks run at multiples of this: a burst has the packets of one moment.
const STEP_MS: u64 = 5;
const BUFFER: usize = 256;
const MINUTE_MS: u64 = 60_000;
const SWEEP_MS: u64 = 100;

const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 1;
const RST: u8 = 4;

/// A task of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    /// The engine ends what is due.
    Sweep,
    /// Gauges are read, and the ledger is compared with the engine.
    Look,
    /// A subscriber reads a page.
    Page(u32),
    /// A subscriber continues its other activity.
    Activity(u32),
    /// A router restarts.
    Restart(u32),
    /// A flow continues.
    Flow(u32),
    /// An outside host tries ports.
    Outsider,
}

/// A flow, from its first packet to its last.
#[derive(Clone, Debug)]
struct Flow {
    subscriber: u32,
    epoch: u16,
    shape: Shape,
    from: End,
    /// Its outside address and port; `None` until a packet has come out.
    outside: Option<(Ipv4Addr, u16)>,
    refused: bool,
    ends_ms: u64,
    steps: u32,
}

/// Cause of a packet, and its expected fate.
#[derive(Clone, Copy, Debug)]
enum Sent {
    /// Packet of a flow from inside: it must leave.
    Out(u32),
    /// Packet of a flow to the inside: it must arrive.
    In(u32),
    /// Packet of an attacker: any fate is right.
    Attack,
    /// Packet of an outside host: any fate is right.
    Stranger,
}

/// An observation: time, outside address, port, and their subscriber.
type Seen = (u64, u32, u16, u32);

/// The simulation.
pub struct World {
    options: Options,
    nat: Nat,
    events: Option<EventReader>,
    r: Rng,
    now_ms: u64,
    queue: BinaryHeap<Reverse<(u64, u64, Task)>>,
    order: u64,
    people: Vec<Subscriber>,
    flows: Vec<Flow>,
    free: Vec<u32>,
    /// Flows that are free when the waiting packets are sent.
    leaving: Vec<u32>,
    memory: Vec<u8>,
    waiting: Vec<(usize, Sent)>,
    ledger: Ledger,
    seen: Vec<Seen>,
    packets: u64,
    report: Report,
    refused: HashMap<(&'static str, &'static str), u64>,
    arrives: Invariant,
    conserved: Invariant,
    books: Invariant,
    others: Invariant,
}

impl World {
    /// Makes a world with all its subscribers, before the first task.
    ///
    /// # Errors
    /// Returns an error if memory is short.
    pub fn new(options: Options) -> Result<Self, String> {
        let plan = plan(options.subscribers, options.per_address);
        let mut nat = Nat::new(&plan, [options.seed, 2, 3, 4]).map_err(|e| e.to_string())?;
        let mut r = Rng::new(options.seed);
        let attackers = options.attackers;
        let habit = |n: u32, r: &mut Rng| match r.below(20) {
            _ if n < attackers => Activity::Harms(HARMS[n as usize % HARMS.len()]),
            0 => Activity::Shares,
            1 | 2 => Activity::Plays,
            _ => Activity::Reads,
        };
        let people = (0..options.subscribers)
            .map(|n| {
                let habit = habit(n, &mut r);
                Subscriber::new(n, n / 4 % 2 == 0, habit, &mut r)
            })
            .collect();
        let start_ms = u64::from(options.start_hour) * 3_600_000;
        let mut world = World {
            events: nat.take_events(),
            nat,
            r,
            now_ms: start_ms,
            queue: BinaryHeap::new(),
            order: 0,
            people,
            flows: Vec::new(),
            free: Vec::new(),
            leaving: Vec::new(),
            memory: vec![0; BUFFER * BURST],
            waiting: Vec::new(),
            ledger: Ledger::default(),
            seen: Vec::new(),
            packets: 0,
            report: Report::default(),
            refused: HashMap::new(),
            arrives: Invariant::default(),
            conserved: Invariant::default(),
            books: Invariant::default(),
            others: Invariant::default(),
            options,
        };
        world.begin();
        Ok(world)
    }

    fn begin(&mut self) {
        self.after(0, Task::Sweep);
        self.after(MINUTE_MS, Task::Look);
        self.after(1_000, Task::Outsider);
        for n in 0..self.options.subscribers {
            let first = self.r.below(300_000);
            self.after(first, Task::Page(n));
            if self.people[n as usize].habit != Activity::Reads {
                self.after(first + 10_000, Task::Activity(n));
            }
            if self.r.one_in(8) {
                // One router in eight restarts, within six hours.
                let at = self.r.below(6 * 3_600_000);
                self.after(at, Task::Restart(n));
            }
        }
    }

    fn after(&mut self, ms: u64, task: Task) {
        let at = (self.now_ms + ms).div_ceil(STEP_MS) * STEP_MS;
        self.order += 1;
        self.queue.push(Reverse((at, self.order, task)));
    }

    /// Runs until the end, and then until all state has ended. Calls `progress` with the completed share,
    /// from 0 to 1.
    pub fn run(mut self, mut progress: impl FnMut(f64, u64, usize)) -> Report {
        let start_ms = self.now_ms;
        let end_ms = start_ms + self.options.simulated_ms;
        while let Some(Reverse((at, _, task))) = self.queue.pop() {
            if at >= end_ms {
                break;
            }
            if at > self.now_ms {
                self.flush();
                self.now_ms = at;
            }
            if task == Task::Look {
                let done = (at - start_ms) as f64 / self.options.simulated_ms as f64;
                progress(done, self.packets, self.nat.occupancy().sessions);
            }
            self.happen(task);
        }
        self.flush();
        self.now_ms = end_ms;
        self.look();
        let at_end = self.nat.occupancy();
        self.report.sessions_end = at_end.sessions;
        self.silence();
        progress(1.0, self.packets, 0);
        self.finish()
    }

    fn happen(&mut self, task: Task) {
        match task {
            Task::Sweep => {
                self.sweep();
                self.after(SWEEP_MS, Task::Sweep);
            }
            Task::Look => {
                self.look();
                self.after(MINUTE_MS, Task::Look);
            }
            Task::Page(n) => {
                for shape in page(&mut self.r) {
                    let soon = self.r.below(1_500);
                    self.open(n, shape, soon);
                }
                let mean = self.options.page_every_s * 1_000.0 / busy(self.now_ms % 86_400_000);
                let next = exponential(&mut self.r, mean) as u64 + 1_000;
                self.after(next, Task::Page(n));
            }
            Task::Activity(n) => self.habit(n),
            Task::Restart(n) => {
                self.people[n as usize].epoch += 1;
                // All devices reconnect at once.
                for _ in 0..4 {
                    let soon = 20_000 + self.r.below(10_000);
                    self.after(soon, Task::Page(n));
                }
                self.report.restarts += 1;
            }
            Task::Flow(n) => self.go_on(n),
            Task::Outsider => self.outsider(),
        }
    }

    fn habit(&mut self, n: u32) {
        match self.people[n as usize].habit {
            Activity::Reads => {}
            Activity::Shares => {
                let shape = peer(&mut self.r);
                self.open(n, shape, 0);
                let next = exponential(&mut self.r, 4_000.0) as u64;
                self.after(next, Task::Activity(n));
            }
            Activity::Plays => {
                let shape = game(&mut self.r);
                self.open(n, shape, 0);
                let next = exponential(&mut self.r, 3_600_000.0) as u64;
                self.after(shape.life_ms + next, Task::Activity(n));
            }
            Activity::Harms(harm) => {
                for _ in 0..20 {
                    self.harm(n, harm);
                }
                self.after(100, Task::Activity(n));
            }
        }
    }

    /// Sends one packet of an attack.
    fn harm(&mut self, n: u32, harm: AttackKind) {
        let device = self.r.any() as u8;
        let port = self.people[n as usize].port();
        let random = 1024 + self.r.below(64_000) as u16;
        let (kind, port, to) = match harm {
            AttackKind::SynFlood => (Kind::Tcp(SYN), port, (Ipv4Addr::new(151, 101, 1, 1), 80)),
            AttackKind::Scan => (Kind::Tcp(SYN), port, (anybody(&mut self.r), random % 1024)),
            AttackKind::RandomPorts => (Kind::Udp, random, (anybody(&mut self.r), self.r.any() as u16 | 1)),
            AttackKind::Fragments => (Kind::Piece(self.r.any() as u16), 0, (anybody(&mut self.r), 0)),
        };
        let from = (self.people[n as usize].address(device), port);
        self.send(kind, from, self.towards(n, to), Sent::Attack);
    }

    /// An outside host tries a few ports of the pool.
    fn outsider(&mut self) {
        for _ in 0..10 {
            let address = u32::from(POOL)
                + self.r.below(addresses(self.options.subscribers, self.options.per_address).into()) as u32;
            let to = (Ipv4Addr::from(address).into(), 1024 + self.r.below(64_000) as u16);
            let from = (IpAddr::V4(anybody(&mut self.r)), 40_000 + self.r.below(20_000) as u16);
            let kind = if self.r.one_in(2) { Kind::Tcp(SYN) } else { Kind::Udp };
            self.send(kind, from, to, Sent::Stranger);
        }
        self.after(200, Task::Outsider);
    }

    /// A remote end as a subscriber reaches it.
    fn towards(&self, n: u32, (a, port): (Ipv4Addr, u16)) -> End {
        if self.people[n as usize].six { (behind_prefix(a).into(), port) } else { (a.into(), port) }
    }

    fn open(&mut self, n: u32, shape: Shape, in_ms: u64) {
        let person = &mut self.people[n as usize];
        let device = self.r.small(3);
        // Peers use one port; every other flow has its own.
        let port = if shape.app == App::Peer { 6881 } else { person.port() };
        let from = (person.address(if shape.app == App::Peer { 0 } else { device }), port);
        let flow = Flow {
            subscriber: n,
            epoch: person.epoch,
            shape,
            from,
            outside: None,
            refused: false,
            ends_ms: self.now_ms + in_ms + shape.life_ms,
            steps: 0,
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.flows[number as usize] = flow;
                number
            }
            None => {
                self.flows.push(flow);
                self.flows.len() as u32 - 1
            }
        };
        self.report.flows += 1;
        self.after(in_ms, Task::Flow(number));
    }

    /// Sends the next packet of a flow; every other one is an answer.
    fn go_on(&mut self, number: u32) {
        let Flow { subscriber, epoch, refused, outside, ends_ms, steps, shape, .. } =
            self.flows[number as usize];
        let forgotten = self.people[subscriber as usize].epoch != epoch;
        if forgotten || refused || (steps > 0 && outside.is_none()) {
            self.leaving.push(number);
            return;
        }
        self.flows[number as usize].steps += 1;
        let over = self.now_ms >= ends_ms && steps >= 2;
        let tcp = matches!(shape.app, App::Web | App::Push);
        let rtt = 10 + self.r.below(120);
        if over {
            match steps % 4 {
                _ if !tcp => self.leaving.push(number),
                0 | 1 if self.r.one_in(8) => {
                    self.send_out(number, Kind::Tcp(RST | ACK));
                    self.leaving.push(number);
                }
                _ if self.r.one_in(12) => self.leaving.push(number), // a device that went away
                _ if ends_ms == 0 => {
                    self.send_in(number, Kind::Tcp(FIN | ACK));
                    self.leaving.push(number);
                }
                _ => {
                    self.send_out(number, Kind::Tcp(FIN | ACK));
                    self.flows[number as usize].ends_ms = 0;
                    self.after(rtt, Task::Flow(number));
                }
            }
            return;
        }
        let answer = steps % 2 == 1;
        let kind = match shape.app {
            App::Web | App::Push if steps == 0 => Kind::Tcp(SYN),
            App::Web | App::Push if steps == 1 => Kind::Tcp(SYN | ACK),
            App::Web | App::Push => Kind::Tcp(ACK),
            App::Ping => Kind::Echo(!answer),
            _ => Kind::Udp,
        };
        match answer {
            true => self.send_in(number, kind),
            false => self.send_out(number, kind),
        }
        let wait = match answer {
            _ if steps == 0 || !answer => rtt,
            _ => shape.gap_ms.min(ends_ms.saturating_sub(self.now_ms)).max(STEP_MS),
        };
        self.after(wait, Task::Flow(number));
    }

    fn send_out(&mut self, number: u32, kind: Kind) {
        let flow = &self.flows[number as usize];
        let to = self.towards(flow.subscriber, flow.shape.remote);
        self.send(kind, flow.from, to, Sent::Out(number));
    }

    fn send_in(&mut self, number: u32, kind: Kind) {
        let flow = &self.flows[number as usize];
        let Some((address, port)) = flow.outside else { return };
        let remote = (flow.shape.remote.0.into(), flow.shape.remote.1);
        let from = if matches!(kind, Kind::Echo(_)) { (remote.0, port) } else { remote };
        self.send(kind, from, (address.into(), port), Sent::In(number));
    }

    fn send(&mut self, kind: Kind, from: End, to: End, sent: Sent) {
        let at = self.waiting.len() * BUFFER + HEADROOM;
        let len = write(&mut self.memory[at..], kind, from, to);
        self.waiting.push((len, sent));
        if self.waiting.len() == BURST {
            self.flush();
        }
    }

    /// Gives the waiting packets to the engine, and checks the results.
    fn flush(&mut self) {
        if self.waiting.is_empty() {
            self.free.append(&mut self.leaving);
            return;
        }
        let waiting = std::mem::take(&mut self.waiting);
        let mut memory = std::mem::take(&mut self.memory);
        let buffers = memory.chunks_exact_mut(BUFFER).zip(&waiting);
        let mut burst: Vec<Packet<'_>> =
            buffers.filter_map(|(buf, &(len, _))| Packet::new(buf, HEADROOM, len)).collect();
        let mut verdicts = [Verdict::Pass; BURST];
        let done = self.nat.process(Instant(self.now_ms), &mut burst, &mut verdicts);
        self.packets += done as u64;
        self.conserved.hold(done == waiting.len() && self.nat.counters().conserved(), || {
            format!("{done} of {} packets processed: {:?}", waiting.len(), self.nat.counters())
        });
        self.nat.drain_emitted(|_| ());
        self.read_events();
        for ((packet, verdict), &(_, sent)) in burst.iter().zip(verdicts).zip(&waiting).take(done) {
            self.became(sent, verdict, packet.bytes());
        }
        self.memory = memory;
        self.waiting = waiting;
        self.waiting.clear();
        self.free.append(&mut self.leaving);
    }

    fn read_events(&mut self) {
        let Some(events) = &mut self.events else { return };
        while let Some(event) = events.next() {
            self.ledger.note(&event);
        }
    }

    /// Checks the fate of a packet.
    fn became(&mut self, sent: Sent, verdict: Verdict, bytes: &[u8]) {
        let refusal = match verdict {
            Verdict::Forward => None,
            Verdict::Drop(reason) | Verdict::Reply(Reply::Error(reason)) => Some(reason.name()),
            Verdict::Held => Some("held"),
            Verdict::Pass | Verdict::Redirect | Verdict::Reply(Reply::Echo) => Some("not translated"),
        };
        let (whose, number, out) = match sent {
            Sent::Attack => ("attackers", None, true),
            Sent::Stranger => ("outside", None, false),
            Sent::Out(n) => (self.whose(n), Some(n), true),
            Sent::In(n) => (self.whose(n), Some(n), false),
        };
        if let Some(reason) = refusal {
            *self.refused.entry((whose, reason)).or_default() += 1;
        }
        let Some(number) = number else { return };
        if whose == "subscribers" {
            self.others.hold(refusal.is_none(), || format!("{sent:?}: {verdict:?} at {}", self.now_ms));
        }
        if refusal.is_some() {
            self.flows[number as usize].refused = true;
            return;
        }
        let ends = read(bytes);
        match out {
            true => self.left(number, ends),
            false => self.arrived(number, ends),
        }
    }

    fn whose(&self, flow: u32) -> &'static str {
        let person = &self.people[self.flows[flow as usize].subscriber as usize];
        if matches!(person.habit, Activity::Harms(_)) { "attackers" } else { "subscribers" }
    }

    /// Checks a packet of a flow that has left: its outside end is the earlier one, and the one of the
    /// events.
    fn left(&mut self, number: u32, ends: Option<(End, End)>) {
        let flow = &mut self.flows[number as usize];
        let outside = match ends {
            Some(((IpAddr::V4(a), port), _)) => Some((a, port)),
            _ => None,
        };
        let same = outside.is_some() && flow.outside.is_none_or(|before| Some(before) == outside);
        let flow = flow.clone();
        self.arrives.hold(same, || format!("{flow:?} left as {ends:?}"));
        let Some((address, port)) = outside else { return };
        self.flows[number as usize].outside = Some((address, port));
        let transport = self.transport_of(flow.shape.app);
        let person = &self.people[flow.subscriber as usize];
        let inside: u128 = match flow.from.0 {
            IpAddr::V4(a) => a.to_ipv6_mapped().into(),
            IpAddr::V6(a) => a.into(),
        };
        let instance = if person.six { 0 } else { 1 };
        let told = self.ledger.who_has((u32::from(address), port, transport as u8));
        let truth = Some((instance, inside, flow.from.1));
        self.books.hold(told == truth, || format!("{flow:?} left as {ends:?}, by the events {told:x?}"));
        if self.r.one_in(64) {
            self.seen.push((self.now_ms, u32::from(address), port, flow.subscriber));
        }
    }

    fn arrived(&mut self, number: u32, ends: Option<(End, End)>) {
        let flow = &self.flows[number as usize];
        let there = ends.map(|(_, to)| to);
        self.arrives.hold(there == Some(flow.from), || format!("{flow:?}: an answer arrived as {ends:?}"));
    }

    fn transport_of(&self, app: App) -> Transport {
        match app {
            App::Web | App::Push => Transport::Tcp,
            App::Ping => Transport::Icmp,
            _ => Transport::Udp,
        }
    }

    fn sweep(&mut self) {
        self.flush();
        self.nat.expire(Instant(self.now_ms), usize::MAX);
        self.nat.drain_emitted(|_| ());
        self.read_events();
    }

    /// Reads gauges, and compares the ledger with the engine.
    fn look(&mut self) {
        self.flush();
        let there = self.nat.occupancy();
        let (sessions, bindings, subscribers) = self.ledger.occupancy();
        let same = (there.sessions, there.bindings, there.subscribers) == (sessions, bindings, subscribers);
        self.books.hold(same, || format!("{there:?}, and by the events {sessions} {bindings} {subscribers}"));
        let lost = self.nat.events_lost();
        self.books.hold(lost == 0, || format!("{lost} events were lost"));
        let pool = &self.nat.pools()[0];
        let used: u64 = Transport::ALL.iter().map(|&t| pool.usage(t).used).sum();
        self.books.hold(used == bindings as u64, || format!("{used} ports used, {bindings} bound"));
        let blocks = pool.block_usage().unwrap_or_default();
        let owned = self.ledger.blocks_owned();
        self.books.hold(blocks.owned == owned as u64, || format!("{blocks:?}, by the events {owned}"));
        self.report.look(self.now_ms, there, blocks, &self.ledger);
    }

    /// Lets hours pass without packets: all state ends, every port and block comes back.
    fn silence(&mut self) {
        for _ in 0..3 * 3_600 {
            self.now_ms += 1_000;
            self.sweep();
        }
        let there = self.nat.occupancy();
        let blocks = self.nat.pools()[0].block_usage().unwrap_or_default();
        let counters = self.nat.pools()[0].counters();
        let nothing =
            there == Default::default() && (blocks.owned, blocks.lingering, blocks.held) == (0, 0, 0);
        let balanced = counters.ports_allocated == counters.ports_released
            && counters.blocks_allocated == counters.blocks_released;
        let mut back = Invariant::default();
        back.hold(nothing && balanced, || format!("after silence: {there:?}, {blocks:?}, {counters:?}"));
        back.hold(self.ledger.occupancy() == (0, 0, 0), || {
            format!("by the events: {:?}", self.ledger.occupancy())
        });
        self.report.invariant("every port and block comes back", back);
    }

    fn finish(mut self) -> Report {
        let mut had = Invariant::default();
        for &(at_ms, address, port, n) in &self.seen {
            let person = &self.people[n as usize];
            let truth = Some((if person.six { 0 } else { 1 }, person.prefix()));
            let answer = self.ledger.who_had(address, port, at_ms);
            had.hold(answer == truth, || {
                format!("{address:x}:{port} at {at_ms}: {answer:x?}, expected {truth:x?}")
            });
        }
        let Ledger { unshared, in_own_block, paired, quotas, held_down, in_order, events, .. } = self.ledger;
        let mut report = self.report;
        report.invariant("the block log names the owner of ADDRESS:PORT at a time", had);
        report.invariant("no outside address and port has two owners at a time", unshared);
        report.invariant("every port lies in a block of its subscriber", in_own_block);
        report.invariant("a subscriber has one public address", paired);
        report.invariant("quotas of sessions, ports and blocks hold", quotas);
        report.invariant("released blocks are held down for two minutes", held_down);
        report.invariant("events come in order, and none is lost", in_order);
        report.invariant("packets arrive unchanged at their destination", self.arrives);
        report.invariant("every packet has one fate", self.conserved);
        report.invariant("replayed events equal the engine's state", self.books);
        report.invariant("attackers cost other subscribers no packet", self.others);
        report.events = events;
        report.packets = self.packets;
        let mut refused: Vec<_> = self.refused.drain().map(|((whose, why), n)| (whose, why, n)).collect();
        refused.sort_by_key(|&(whose, _, n)| (whose, Reverse(n)));
        report.refused = refused;
        report.options = self.options;
        report
    }
}
