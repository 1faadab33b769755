//! World of a cluster: packets at any box, links that break, faults, and checks after each step.

use crate::boxes::{Life, Machine, Process, SHARDS, Variant, WORKERS, name};
use crate::engines::check_ports;
use crate::server::Server;
use gatun_cluster::coordination::ClusterOrder;
use gatun_cluster::node::{ClusterStatus, Places};
use gatun_cluster::record::{NodeName, Phase, ShardRecord};
use gatun_nat::Instant;
use gatun_nat::plan::Transport;
use gatun_nat::redirect::Place;
use gatun_nat::rng::Rng;
use gatun_nat::tcp_fsm::TcpState;
use gatun_testkit::packet::endpoints;
use gatun_testkit::packet::text::{tcp4, udp4};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

/// Connection between two boxes, the lower one first.
#[derive(Default)]
struct Connection {
    /// Bytes on their way to each side.
    bytes: [Vec<u8>; 2],
    is_open: [bool; 2],
    is_cut: bool,
}

pub type Flow = (Transport, (Ipv4Addr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16));

pub struct World {
    variant: Variant,
    pub machines: Vec<Machine>,
    server: Rc<RefCell<Server>>,
    now_ms: u64,
    rng: Rng,
    connections: HashMap<(usize, usize), Connection>,
    /// Flows that were seen: public address and port, server, protocol.
    seen: Vec<(Ipv4Addr, u16, String, u16, Transport)>,
    pub log: Vec<String>,
}

/// Public ports of inside ends.
type Bound = HashMap<(Transport, (Ipv6Addr, u16)), (Ipv4Addr, u16)>;

/// Returns whether an inside end has another public port.
fn contradicts(bound: &Bound, (transport, outside, _, inside): &Flow) -> bool {
    bound.get(&(*transport, *inside)).is_some_and(|other| other != outside)
}

/// Time of a step without faults, ms.
const STEP_MS: u64 = 5;
/// Remaining lifetime of a session that has to survive a check, ms.
const LIVES_MS: u32 = 30_000;

fn pair(one: usize, other: usize) -> (usize, usize) {
    (one.min(other), one.max(other))
}

impl World {
    pub fn new(seed: u64, variant: Variant) -> World {
        let server = Rc::new(RefCell::new(Server::default()));
        server.borrow_mut().now_ms = 1_000;
        let mut rng = Rng::new([seed, 5, 6, 7]);
        let mut machines = vec![];
        for number in 0..variant.nodes {
            let rate = rng.below(21) as i64 - 10;
            machines.push(Machine::new(&server, number, &variant, rate, 1_000));
        }
        let all = (0..variant.nodes).flat_map(|one| (one + 1..variant.nodes).map(move |other| (one, other)));
        let connections = all.map(|ends| (ends, Connection::default())).collect();
        World { variant, machines, server, now_ms: 1_000, rng, connections, seen: vec![], log: vec![] }
    }

    fn below(&mut self, n: usize) -> usize {
        self.rng.below(n as u32) as usize
    }

    fn note(&mut self, text: impl Into<String>) {
        self.log.push(format!("{} {}", self.now_ms, text.into()));
    }

    fn two(&mut self) -> (usize, usize) {
        let one = self.below(self.variant.nodes);
        let other = self.below(self.variant.nodes - 1);
        (one, if other >= one { other + 1 } else { other })
    }

    /// Does something.
    ///
    /// # Errors
    /// Returns the broken promise.
    pub fn step(&mut self) -> Result<(), String> {
        let number = self.below(self.variant.nodes);
        match self.below(100) {
            0..30 => self.packet_out(),
            30..42 => self.packet_in(),
            42..60 => {
                let (worker, budget) = (self.below(WORKERS), 1 + self.below(40));
                self.work(number, worker, budget);
            }
            60..76 => self.turn(number),
            76..90 => {
                let (to, from) = self.two();
                let len = 1 + self.below(3_000);
                self.carry(from, to, len);
            }
            90..96 => {
                let ms = if self.below(12) == 0 { 600 } else { self.below(60) as u64 };
                self.pass(ms);
            }
            96 | 97 => self.fault(),
            _ => self.everything(),
        }
        self.check()
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        self.server.borrow_mut().turn(self.now_ms);
    }

    fn packet_out(&mut self) {
        let at = self.below(self.variant.nodes);
        let host = format!("10.0.{}.1", self.below(12));
        let port = 4_000 + self.below(2) as u16;
        let server = format!("198.51.100.{}", 1 + self.below(3));
        let packet = match self.below(6) {
            0 | 1 => udp4(&host, port, &server, 53, b"x"),
            2 | 3 => tcp4(&host, port, &server, 80, "S", b""),
            4 => tcp4(&host, port, &server, 80, "A", b"data"),
            _ => tcp4(&host, port, &server, 80, "R", b""),
        };
        self.send(at, &packet);
    }

    fn packet_in(&mut self) {
        if self.seen.is_empty() {
            return;
        }
        let which = self.below(self.seen.len());
        let (address, port, server, server_port, transport) = self.seen[which].clone();
        let at = self.below(self.variant.nodes);
        let address = address.to_string();
        let packet = match (transport, self.below(4)) {
            (Transport::Tcp, 0) => tcp4(&server, server_port, &address, port, "A", b"answer"),
            (Transport::Tcp, _) => tcp4(&server, server_port, &address, port, "SA", b""),
            _ => udp4(&server, server_port, &address, port, b"y"),
        };
        self.send(at, &packet);
    }

    /// Lets a packet arrive at a box. Returns whether somebody has forwarded it.
    pub fn send(&mut self, at: usize, packet: &[u8]) -> bool {
        if !self.machines[at].runs() {
            return false;
        }
        let Some((place, shard)) = self.machines[at].place(packet) else { return false };
        let to = match place {
            Place::Here => at,
            Place::Node(to) => usize::from(to),
            Place::Nowhere => return false,
        };
        let is_cut = to != at && self.connections[&pair(at, to)].is_cut;
        if is_cut || !self.machines[to].runs() {
            return false;
        }
        let now_ms = self.now_ms;
        let Some(forwarded) = self.machines[to].packet(now_ms, packet, shard, to != at) else { return false };
        let ends = endpoints(&forwarded);
        if let Ok(source) = ends.src.to_string().parse::<Ipv4Addr>()
            && source.octets()[0] == 192
        {
            let transport = if ends.dport == 53 { Transport::Udp } else { Transport::Tcp };
            self.note(format!("{to} out {transport:?} {source}:{} -> {}", ends.sport, ends.dst));
            self.seen.push((source, ends.sport, ends.dst.to_string(), ends.dport, transport));
            if self.seen.len() > 40 {
                self.seen.remove(0);
            }
        }
        true
    }

    fn work(&mut self, number: usize, worker: usize, budget: usize) {
        let machine = &mut self.machines[number];
        let now = Instant(machine.now(self.now_ms));
        if machine.runs()
            && let Some(process) = &mut machine.process
        {
            process.slots.workers.work(worker, now, budget);
        }
    }

    fn turn(&mut self, number: usize) {
        let now_ms = self.now_ms;
        self.machines[number].turn(now_ms);
        if !self.machines[number].runs() {
            return;
        }
        for other in (0..self.variant.nodes).filter(|other| *other != number) {
            let machine = &mut self.machines[number];
            let member_number = machine.member_of(other);
            let Some(process) = &mut machine.process else { return };
            let member = process.node.member(member_number);
            let mut bytes = vec![];
            member.exchange.take_output(&mut bytes);
            let wants_close = member.take_close().is_some();
            let ends = pair(number, other);
            let to = usize::from(other == ends.1);
            if let Some(connection) = self.connections.get_mut(&ends)
                && connection.is_open == [true; 2]
            {
                connection.bytes[to].extend(bytes);
            }
            if wants_close {
                self.close(number, other);
            }
        }
        let Some(process) = &mut self.machines[number].process else { return };
        let events = process.node.take_events();
        events.into_iter().for_each(|event| self.note(format!("{number}: {}", event.text)));
    }

    /// Carries some bytes.
    fn carry(&mut self, from: usize, to: usize, len: usize) {
        let ends = pair(from, to);
        let (side, of_sender) = if to == ends.1 { (1, 0) } else { (0, 1) };
        let Some(connection) = self.connections.get_mut(&ends) else { return };
        let machine = &mut self.machines[to];
        if connection.is_cut || !machine.runs() || !connection.is_open[side] {
            return;
        }
        let (now, number) = (machine.now(self.now_ms), machine.member_of(from));
        let Some(process) = &mut machine.process else { return };
        let member = process.node.member(number);
        if !member.may_receive() {
            return;
        }
        let bytes = &mut connection.bytes[side];
        let some: Vec<u8> = bytes.drain(..len.min(bytes.len())).collect();
        let is_last = bytes.is_empty() && !connection.is_open[of_sender];
        let result = member.exchange.receive(now, &some, &mut member.inbox);
        if let Err(error) = &result {
            let text = format!("{to} from {from}: {error}");
            self.note(text);
        }
        if result.is_err() || is_last {
            self.close(to, from);
        }
    }

    /// A box closes its connection to another one.
    fn close(&mut self, number: usize, other: usize) {
        let machine = &mut self.machines[number];
        let (now, member) = (machine.now(self.now_ms), machine.member_of(other));
        if let Some(process) = &mut machine.process {
            process.node.member(member).exchange.close(now);
        }
        let ends = pair(number, other);
        let side = usize::from(number == ends.1);
        if let Some(connection) = self.connections.get_mut(&ends) {
            connection.is_open[side] = false;
            connection.bytes[side].clear();
        }
    }

    fn connect(&mut self, one: usize, other: usize) {
        let (first, second) = pair(one, other);
        let Some(connection) = self.connections.get_mut(&(first, second)) else { return };
        let run = [first, second].iter().all(|number| self.machines[*number].runs());
        if connection.is_cut || connection.is_open != [false; 2] || !run {
            return;
        }
        *connection = Connection { is_open: [true; 2], ..Connection::default() };
        for (number, other) in [(first, second), (second, first)] {
            let machine = &mut self.machines[number];
            let (now, member) = (machine.now(self.now_ms), machine.member_of(other));
            if let Some(process) = &mut machine.process {
                let member = process.node.member(member);
                let is_settled = member.is_settled();
                member.exchange.open(now, is_settled);
            }
        }
    }

    fn fault(&mut self) {
        let number = self.below(self.variant.nodes);
        let (one, other) = self.two();
        let now_ms = self.now_ms;
        match self.below(22) {
            0..6 => self.connect(one, other),
            6 => {
                self.note(format!("break at {one} to {other}"));
                if self.below(2) == 0
                    && let Some(connection) = self.connections.get_mut(&pair(one, other))
                {
                    connection.bytes = Default::default();
                }
                self.close(one, other);
            }
            7 => {
                let Some(connection) = self.connections.get_mut(&pair(one, other)) else { return };
                connection.is_cut ^= true;
                let is_cut = connection.is_cut;
                self.note(format!("{one} and {other}: cut {is_cut}"));
                self.close(one, other);
                self.close(other, one);
            }
            8 => {
                self.machines[number].client.is_cut ^= true;
                let is_cut = self.machines[number].client.is_cut;
                self.note(format!("{number} and etcd: cut {is_cut}"));
            }
            9 => {
                let is_away = !self.server.borrow().is_away;
                self.server.borrow_mut().is_away = is_away;
                self.note(format!("etcd away {is_away}"));
            }
            10 => self.machines[number].client.delay_ms = 2 + 150 * (other as u64 % 2),
            11 => self.machines[number].client.loses_next = true,
            12 | 13 if self.machines[number].runs() => {
                self.note(format!("stop {number}"));
                self.machines[number].end(now_ms, |_| Life::Stopped);
                self.closed_by(number);
            }
            14 if self.machines[number].runs() => {
                self.note(format!("kill {number}"));
                self.machines[number].end(now_ms, Life::Killed);
                self.closed_by(number);
            }
            15 if self.machines[number].runs() => {
                self.note(format!("off {number}"));
                self.machines[number].end(now_ms, |_| Life::Off);
                self.closed_by(number);
            }
            16..20 => self.come_back(number),
            20 | 21 => self.isolate(number),
            _ => {}
        }
    }

    /// A box loses all others and the coordinator.
    fn isolate(&mut self, number: usize) {
        self.note(format!("{number} is alone"));
        self.machines[number].client.is_cut = true;
        for other in (0..self.variant.nodes).filter(|other| *other != number) {
            if let Some(connection) = self.connections.get_mut(&pair(number, other)) {
                connection.is_cut = true;
            }
            self.close(number, other);
            self.close(other, number);
        }
    }

    /// Nothing passes between a box and the others any more, and nobody is told. `is_alone`: it does not
    /// reach the coordinator either.
    pub fn cut(&mut self, number: usize, is_alone: bool) {
        self.note(format!("{number} is cut off"));
        self.machines[number].client.is_cut |= is_alone;
        for (ends, connection) in &mut self.connections {
            connection.is_cut |= ends.0 == number || ends.1 == number;
        }
    }

    /// A box stops, and nobody is told.
    pub fn stop(&mut self, number: usize) {
        let now_ms = self.now_ms;
        self.note(format!("{number} stops"));
        self.machines[number].end(now_ms, |_| Life::Stopped);
    }

    /// Packets get lost at a box, or do not any more.
    pub fn set_broken(&mut self, number: usize, is_broken: bool) {
        self.note(format!("{number} is broken: {is_broken}"));
        if let Some(process) = &mut self.machines[number].process {
            process.node.set_broken(is_broken);
        }
    }

    /// Lets time pass until each shard has its holders again.
    ///
    /// # Errors
    /// A promise is broken.
    pub fn settle(&mut self) -> Result<(), String> {
        self.until("agreement", |world| world.is_whole() && world.is_quiet())
    }

    /// The coordinator stands still, or goes on.
    pub fn coordinator_away(&mut self, is_away: bool) {
        self.server.borrow_mut().is_away = is_away;
    }

    /// Lets time pass without other faults.
    ///
    /// # Errors
    /// A promise is broken.
    pub fn wait(&mut self, ms: u64) -> Result<(), String> {
        let end = self.now_ms + ms;
        while self.now_ms < end {
            self.everything();
            self.check()?;
        }
        Ok(())
    }

    /// Places of the shards, as a box knows them.
    pub fn places(&self, number: usize) -> Places {
        let process = self.machines[number].process.as_ref();
        process.and_then(|process| process.slots.places.clone()).unwrap_or(Places::NONE)
    }

    /// The others close their connections to a box that is gone.
    fn closed_by(&mut self, number: usize) {
        let is_stopped = matches!(self.machines[number].life, Life::Stopped);
        for other in (0..self.variant.nodes).filter(|other| *other != number) {
            self.close(other, number);
            if !is_stopped {
                self.close(number, other);
            }
        }
    }

    fn come_back(&mut self, number: usize) {
        if !self.machines[number].runs() {
            self.note(format!("{number} is back"));
            let server = Rc::clone(&self.server);
            let (variant, now_ms) = (self.variant, self.now_ms);
            self.machines[number].come_back(&server, &variant, now_ms);
        }
    }

    /// Checks that no public port has two inside hosts, and that each log fits together.
    pub fn check(&self) -> Result<(), String> {
        let mut processes = self.machines.iter().filter_map(|machine| machine.process.as_ref());
        processes.try_for_each(|process| process.slots.workers.check_logs())?;
        check_ports(self.machines.iter().map(|machine| machine.translations(self.now_ms)))
    }

    fn everything(&mut self) {
        self.pass(STEP_MS);
        for number in 0..self.variant.nodes {
            (0..WORKERS).for_each(|worker| self.work(number, worker, 1_000));
            self.turn(number);
            for from in (0..self.variant.nodes).filter(|from| *from != number) {
                self.carry(from, number, usize::MAX);
            }
        }
    }

    /// Lets time pass without faults until something is so.
    ///
    /// # Errors
    /// It is not so within a bound, or a promise is broken.
    fn until(&mut self, what: &str, is_so: impl Fn(&World) -> bool) -> Result<(), String> {
        let begin = self.now_ms;
        let mut quiet = 0;
        for round in 0.. {
            if round % 10 == 0 {
                let all: Vec<_> = self.connections.keys().copied().collect();
                all.into_iter().for_each(|(one, other)| self.connect(one, other));
                quiet = if is_so(self) { quiet + 1 } else { 0 };
                if quiet > 2 {
                    return Ok(());
                }
            }
            if self.now_ms > begin + 20_000 {
                break;
            }
            self.everything();
            self.check()?;
            let halves: Vec<_> =
                self.connections.iter().filter(|(_, one)| one.is_open[0] != one.is_open[1]).collect();
            let halves: Vec<_> = halves.into_iter().map(|(ends, _)| *ends).collect();
            for (one, other) in halves {
                self.close(one, other);
                self.close(other, one);
            }
        }
        Err(format!("{what}: not within 20 s\n{}", self.shown()))
    }

    fn shown(&self) -> String {
        let mut text = String::new();
        for (number, machine) in self.machines.iter().enumerate() {
            let Some(status) = self.status(number) else { continue };
            let quarantined = machine.process.as_ref().map_or(0, |one| one.slots.workers.quarantined());
            text += &format!("{number}: {quarantined} ports wait\n");
            for (shard, one) in status.shards.iter().enumerate() {
                let record = one.record.as_ref().map(ToString::to_string).unwrap_or_default();
                text += &format!(
                    "  {shard}: {record}: {:?} state {} connected {} synced {} assigns {} translates {}\n",
                    one.order,
                    one.has_state,
                    one.is_connected,
                    one.is_synced,
                    one.may_assign,
                    one.translate_ms
                );
            }
            for member in &status.members {
                text += &format!("  {}: {} {:?}\n", member.name, member.is_open, member.counters);
            }
        }
        text
    }

    /// Ends all faults, and lets the boxes agree.
    ///
    /// # Errors
    /// They do not, within a bound.
    pub fn heal(&mut self) -> Result<(), String> {
        self.note("heal");
        self.connections.values_mut().for_each(|connection| connection.is_cut = false);
        self.server.borrow_mut().is_away = false;
        for number in 0..self.variant.nodes {
            self.come_back(number);
            let client = &mut self.machines[number].client;
            (client.is_cut, client.delay_ms, client.loses_next) = (false, 2, false);
        }
        // A process that was stopped has not looked at its clock.
        self.check()?;
        for _ in 0..60 {
            self.packet_out();
            self.packet_in();
            self.everything();
            self.check()?;
        }
        self.until("agreement", |world| world.is_whole() && world.is_quiet())?;
        let mut processes = self.machines.iter().filter_map(|machine| machine.process.as_ref());
        processes.try_for_each(|process| process.slots.workers.check_tables())
    }

    fn status(&self, number: usize) -> Option<ClusterStatus> {
        let machine = &self.machines[number];
        Some(machine.process.as_ref()?.node.status(machine.now(self.now_ms)))
    }

    fn record(&self, shard: u8) -> Option<ShardRecord<NodeName>> {
        let key = format!("/gatun/c/shards/{shard:03}");
        self.server.borrow().value(&key)?.parse().ok()
    }

    fn number(&self, node: &NodeName) -> Option<usize> {
        (0..self.variant.nodes).find(|number| name(*number) == *node)
    }

    /// Returns the numbers of a shard's owner and its ready backup.
    fn holders(&self, shard: u8) -> Option<(usize, usize)> {
        let record = self.record(shard).filter(|record| record.phase() == Some(Phase::Ready))?;
        let backup = record.backup.as_ref()?;
        Some((self.number(&record.owner.node)?, self.number(&backup.seat.node)?))
    }

    /// Returns whether each shard has an owner that assigns ports, and a ready backup.
    fn is_whole(&self) -> bool {
        (0..SHARDS as u8).all(|shard| {
            let place = usize::from(shard);
            self.holders(shard).is_some_and(|(owner, backup)| {
                let of = |number| self.status(number).map(|status| status.shards[place].clone());
                let both = (of(owner), of(backup));
                let is_synced = |one: &gatun_cluster::node::HeldShard| one.is_synced && one.translate_ms > 0;
                matches!(both, (Some(a), Some(b)) if a.may_assign && is_synced(&a) && is_synced(&b))
            })
        })
    }

    fn is_quiet(&self) -> bool {
        (0..self.variant.nodes).filter(|number| self.machines[*number].runs()).all(|number| {
            let Some(status) = self.status(number) else { return false };
            let waiting = |one: &gatun_cluster::node::MemberStatus| {
                one.counters.ends_waiting + one.counters.records_waiting
            };
            let contradictions: usize = status.members.iter().map(|one| one.counters.contradictions).sum();
            let quarantined =
                self.machines[number].process.as_ref().map_or(0, |one| one.slots.workers.quarantined());
            status.members.iter().all(|one| waiting(one) == 0) && quarantined <= contradictions
        })
    }

    /// Returns the sessions of a box in a shard that do not end soon and that the other holder has to know.
    fn known(&self, number: usize, shard: u8) -> BTreeSet<Flow> {
        let Some(Process { slots, .. }) = &self.machines[number].process else { return BTreeSet::new() };
        let all = slots.workers.sessions().into_iter();
        let counts = all.filter(|session| {
            slots.workers.steering.shard_of_address(session.outside.0) == Some(shard)
                && session.tcp == Some(TcpState::Established)
                && session.expires_ms > LIVES_MS
        });
        counts.map(|one| (one.transport, one.outside, one.remote, one.inside)).collect()
    }

    /// Returns all sessions of a box.
    fn all(&self, number: usize) -> BTreeSet<Flow> {
        let Some(Process { slots, .. }) = &self.machines[number].process else { return BTreeSet::new() };
        let all = slots.workers.sessions().into_iter();
        all.map(|one| (one.transport, one.outside, one.remote, one.inside)).collect()
    }

    /// Returns the sessions of datagrams in a shard of a box that do not end before a move does.
    fn young(&self, number: usize, shard: u8) -> Vec<Flow> {
        let Some(Process { slots, .. }) = &self.machines[number].process else { return vec![] };
        let all = slots.workers.sessions().into_iter();
        let counts = all.filter(|session| {
            slots.workers.steering.shard_of_address(session.outside.0) == Some(shard)
                && session.transport == Transport::Udp
                && session.expires_ms > 15_000
        });
        counts.map(|one| (one.transport, one.outside, one.remote, one.inside)).collect()
    }

    /// Returns the sessions of a box that do not end soon, or only when the other holder has ended them.
    fn lives(&self, number: usize) -> BTreeSet<Flow> {
        let Some(Process { slots, .. }) = &self.machines[number].process else { return BTreeSet::new() };
        let all = slots.workers.sessions().into_iter();
        let counts = all.filter(|session| {
            let is_open = session.tcp == Some(TcpState::Established);
            is_open && (session.is_standby || session.expires_ms > LIVES_MS)
        });
        counts.map(|one| (one.transport, one.outside, one.remote, one.inside)).collect()
    }

    /// Returns the public ports of a box's inside ends.
    fn bound(&self, number: usize) -> Bound {
        self.all(number).iter().map(|(transport, out, _, inside)| ((*transport, *inside), *out)).collect()
    }

    /// Checks that both holders of each shard have the same sessions, unless they contradict.
    ///
    /// # Errors
    /// A session is missing.
    pub fn check_known(&self) -> Result<(), String> {
        for shard in 0..SHARDS as u8 {
            let Some((owner, backup)) = self.holders(shard) else { return Err("no holders".to_owned()) };
            for (here, there) in [(owner, backup), (backup, owner)] {
                let (other, bound) = (self.all(there), self.bound(there));
                for flow in self.known(here, shard) {
                    if !other.contains(&flow) && !contradicts(&bound, &flow) {
                        return Err(format!("{there} does not know {flow:?} of {here}\n{}", self.shown()));
                    }
                }
            }
        }
        Ok(())
    }

    /// Connections that both holders of each shard know.
    fn safe(&self) -> Vec<(u8, Flow)> {
        let mut safe = vec![];
        for shard in 0..SHARDS as u8 {
            if let Some((owner, backup)) = self.holders(shard) {
                let there = self.lives(backup);
                let both = self.known(owner, shard).into_iter().filter(|flow| there.contains(flow));
                safe.extend(both.map(|flow| (shard, flow)));
            }
        }
        safe
    }

    /// Checks that the owners of shards have connections.
    fn check_kept(&self, flows: &[(u8, Flow)]) -> Result<(), String> {
        for (shard, flow) in flows {
            let owner = self.record(*shard).and_then(|record| self.number(&record.owner.node));
            if !owner.is_some_and(|owner| self.all(owner).contains(flow)) {
                return Err(format!("{flow:?} of shard {shard} is lost at {owner:?}\n{}", self.shown()));
            }
        }
        Ok(())
    }

    /// A box loses its power. Checks that the others then have its connections, and the right to its ports.
    ///
    /// # Errors
    /// A connection is lost, or a shard has no owner.
    pub fn survive(&mut self, number: usize) -> Result<(), String> {
        let safe = self.safe();
        self.note(format!("power of {number}"));
        let now_ms = self.now_ms;
        self.machines[number].end(now_ms, |_| Life::Off);
        self.closed_by(number);
        self.until("survivors", |world| {
            (0..SHARDS as u8).all(|shard| {
                let owner = world.record(shard).and_then(|record| world.number(&record.owner.node));
                let Some(status) = owner.filter(|owner| *owner != number).and_then(|one| world.status(one))
                else {
                    return false;
                };
                status.shards[usize::from(shard)].may_assign
            })
        })?;
        self.check_kept(&safe)
    }

    /// A box gives its shards away.
    ///
    /// # Errors
    /// A connection is lost, or the box keeps a shard.
    pub fn drain(&mut self, number: usize) -> Result<(), String> {
        // Some sessions are so young that the backup does not know them.
        (0..20).for_each(|_| self.packet_out());
        let mut safe = self.safe();
        for shard in 0..SHARDS as u8 {
            let Some((owner, backup)) = self.holders(shard) else { continue };
            let (bound, there) = (self.bound(backup), self.all(backup));
            // One that has had packets at both may be near its end at the backup.
            let moves = |flow: &Flow| !contradicts(&bound, flow) && !there.contains(flow);
            safe.extend(self.young(owner, shard).into_iter().filter(moves).map(|flow| (shard, flow)));
        }
        self.order(number, ClusterOrder::Drain(name(number)))?;
        self.until("drain", |world| {
            let has = |shard: u8| {
                world.holders(shard).is_none_or(|(owner, backup)| owner == number || backup == number)
            };
            !(0..SHARDS as u8).any(has) && world.is_whole()
        })?;
        self.check_kept(&safe)?;
        self.order(number, ClusterOrder::Undrain(name(number)))?;
        self.heal()
    }

    fn order(&mut self, number: usize, order: ClusterOrder) -> Result<(), String> {
        self.note(order.to_string());
        let mut result = Ok(());
        // A node that has just lost its watch says so.
        for _ in 0..200 {
            let now = self.machines[number].now(self.now_ms);
            let Machine { process, client, .. } = &mut self.machines[number];
            let Some(process) = process else { break };
            result = process.node.order(now, &order, client).map(|_| ());
            if result.is_ok() {
                break;
            }
            self.everything();
            self.check()?;
        }
        result
    }
}
