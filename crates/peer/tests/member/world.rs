//! World of a pair: packets, a link that breaks, boxes that stop and die, and checks after each step.

use crate::engines::check_ports;
use crate::node::{KERNEL_MS, Life, Node, Process, Variant, WORKERS};
use gatun_nat::Instant;
use gatun_nat::plan::Transport;
use gatun_nat::rng::Rng;
use gatun_nat::tcp_fsm::TcpState;
use gatun_peer::ownership::Member;
use gatun_testkit::packet::endpoints;
use gatun_testkit::packet::text::{tcp4, udp4};
use std::collections::{BTreeSet, HashMap};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Connection between the boxes.
#[derive(Default)]
struct Connection {
    /// Bytes on their way to each side.
    bytes: [Vec<u8>; 2],
    is_open: [bool; 2],
}

/// Kinds of faults that a seed has.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub kills: bool,
    pub power: bool,
    pub breaks: bool,
    pub releases: bool,
}

pub struct World {
    pub variant: Variant,
    pub faults: Faults,
    pub nodes: [Node; 2],
    pub now: Instant,
    rng: Rng,
    connection: Connection,
    is_split: bool,
    /// Flows that were seen: public address and port, server, protocol.
    seen: Vec<(Ipv4Addr, u16, String, u16, Transport)>,
    pub log: Vec<String>,
}

pub type Flow = (Transport, (Ipv4Addr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16));

impl World {
    pub fn new(seed: u64, variant: Variant, faults: Faults) -> World {
        let nodes = [Member::First, Member::Second].map(|me| Node::new(me, &variant));
        World {
            variant,
            faults,
            nodes,
            now: Instant(1_000_000),
            rng: Rng::new([seed, 1, 2, 3]),
            connection: Connection::default(),
            is_split: false,
            seen: vec![],
            log: vec![],
        }
    }

    fn below(&mut self, n: u32) -> usize {
        self.rng.below(n) as usize
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.rng.below(one_in) == 0
    }

    fn note(&mut self, text: impl Into<String>) {
        self.log.push(format!("{} {}", self.now.0, text.into()));
    }

    /// Does something.
    ///
    /// # Errors
    /// Returns the broken promise.
    pub fn step(&mut self) -> Result<(), String> {
        match self.below(100) {
            0..30 => self.packet_out(),
            30..45 => self.packet_in(),
            45..65 => {
                let (node, worker, budget) = (self.below(2), self.below(WORKERS as u32), 1 + self.below(40));
                self.work(node, worker, budget);
            }
            65..78 => {
                let node = self.below(2);
                self.turn(node);
            }
            78..92 => {
                let (to, len) = (self.below(2), 1 + self.below(3_000));
                self.carry(to, len);
            }
            92..97 => {
                let ms = if self.chance(12) { 2_000 } else { self.below(40) as u64 };
                self.now = self.now.plus_ms(ms);
            }
            _ => self.fault(),
        }
        self.check()
    }

    fn packet_out(&mut self) {
        let node = if self.chance(4) { 1 } else { 0 };
        let host = format!("10.0.{}.1", self.below(9));
        let port = 4_000 + self.below(2) as u16;
        let server = format!("198.51.100.{}", 1 + self.below(3));
        let packet = match self.below(5) {
            0 | 1 => udp4(&host, port, &server, 53, b"x"),
            2 => tcp4(&host, port, &server, 80, "S", b""),
            3 => tcp4(&host, port, &server, 80, "A", b"data"),
            _ => tcp4(&host, port, &server, 80, "R", b""),
        };
        self.send(node, &packet);
    }

    fn packet_in(&mut self) {
        if self.seen.is_empty() {
            return;
        }
        let at = self.below(self.seen.len() as u32);
        let (address, port, server, server_port, transport) = self.seen[at].clone();
        let node = self.below(2);
        let address = address.to_string();
        let packet = match (transport, self.below(3)) {
            (Transport::Tcp, 0) => tcp4(&server, server_port, &address, port, "A", b"answer"),
            (Transport::Tcp, _) => tcp4(&server, server_port, &address, port, "SA", b""),
            _ => udp4(&server, server_port, &address, port, b"y"),
        };
        self.send(node, &packet);
    }

    /// Gives a packet to a box. Returns whether it was forwarded.
    pub fn send(&mut self, node: usize, packet: &[u8]) -> bool {
        if !self.nodes[node].runs() {
            return false;
        }
        let now = self.now;
        let Some(process) = &mut self.nodes[node].process else { return false };
        let Some(forwarded) = process.workers.packet(now, packet) else { return false };
        let ends = endpoints(&forwarded);
        if let Ok(source) = ends.src.to_string().parse::<Ipv4Addr>()
            && source.octets()[0] == 192
        {
            let transport = if ends.dport == 53 { Transport::Udp } else { Transport::Tcp };
            self.note(format!("{node} out {transport:?} {source}:{} -> {}", ends.sport, ends.dst));
            self.seen.push((source, ends.sport, ends.dst.to_string(), ends.dport, transport));
            if self.seen.len() > 40 {
                self.seen.remove(0);
            }
        }
        true
    }

    pub fn work(&mut self, node: usize, worker: usize, budget: usize) {
        let now = self.now;
        if self.nodes[node].runs()
            && let Some(process) = &mut self.nodes[node].process
        {
            process.workers.work(worker, now, budget);
        }
    }

    pub fn turn(&mut self, side: usize) {
        let now = self.now.0;
        let node = &mut self.nodes[side];
        if !node.runs() {
            return;
        }
        let Some(process) = &mut node.process else { return };
        process.member.turn(now, &mut process.workers);
        if let Some(saved) = process.member.take_unsaved() {
            node.saved = Some(saved);
        }
        let mut bytes = vec![];
        process.member.exchange.take_output(&mut bytes);
        let wants_close = process.member.take_close().is_some();
        if self.connection.is_open[side] && self.connection.is_open[1 - side] {
            self.connection.bytes[1 - side].extend(bytes);
        }
        if wants_close {
            self.close(side);
        }
    }

    /// Carries some bytes to a side.
    pub fn carry(&mut self, to: usize, len: usize) {
        let node = &mut self.nodes[to];
        if self.is_split || !node.runs() || !self.connection.is_open[to] {
            return;
        }
        let Some(process) = &mut node.process else { return };
        if !process.member.may_receive() {
            return;
        }
        let bytes = &mut self.connection.bytes[to];
        let some: Vec<u8> = bytes.drain(..len.min(bytes.len())).collect();
        let is_last = bytes.is_empty() && !self.connection.is_open[1 - to];
        let now = self.now.0;
        let member = &mut process.member;
        let result = member.exchange.receive(now, &some, &mut member.inbox);
        if result.is_err() || is_last {
            self.close(to);
        }
    }

    pub fn close(&mut self, side: usize) {
        let now = self.now.0;
        if let Some(process) = &mut self.nodes[side].process {
            process.member.exchange.close(now);
        }
        self.connection.is_open[side] = false;
        self.connection.bytes[side].clear();
    }

    pub fn connect(&mut self) {
        let now = self.now.0;
        if self.is_split || self.connection.is_open != [false; 2] || !self.nodes.iter().all(Node::runs) {
            return;
        }
        self.connection = Connection { is_open: [true; 2], ..Connection::default() };
        for node in &mut self.nodes {
            if let Some(Process { member, .. }) = &mut node.process {
                member.exchange.open(now, member.is_settled());
            }
        }
        self.note("connect");
    }

    fn fault(&mut self) {
        let side = self.below(2);
        match self.below(16) {
            0..5 => self.connect(),
            5 if self.faults.breaks => {
                self.note(format!("break at {side}"));
                // What is on its way may be lost.
                if self.chance(2) {
                    self.connection.bytes[1 - side].clear();
                }
                self.close(side);
            }
            6 if self.faults.breaks => {
                self.is_split ^= true;
                let split = self.is_split;
                self.note(format!("split {split}"));
            }
            7 if self.faults.breaks && self.chance(2) => {
                if let Life::Runs = self.nodes[side].life {
                    self.nodes[side].life = Life::Stopped;
                    self.note(format!("stop {side}"));
                }
            }
            8 if self.faults.kills => {
                self.note(format!("kill {side}"));
                self.kill(side, true);
            }
            9 if self.faults.power && self.chance(3) => {
                self.note(format!("off {side}"));
                self.kill(side, false);
            }
            10 | 11 => self.come_back(side),
            12 if self.faults.power => self.word(side),
            13 if self.faults.releases => {
                if let Some(process) = &mut self.nodes[side].process {
                    let released = process.member.release().is_ok();
                    self.note(format!("release {side} {released}"));
                }
            }
            _ => {}
        }
    }

    pub fn kill(&mut self, side: usize, keeps_state: bool) {
        let now = self.now;
        self.nodes[side].kill(now, keeps_state);
        self.connection.is_open[side] = false;
        self.connection.bytes[side].clear();
    }

    pub fn come_back(&mut self, side: usize) {
        let (now, variant) = (self.now, self.variant);
        match self.nodes[side].life {
            Life::Runs => return,
            Life::Stopped => self.nodes[side].life = Life::Runs,
            Life::Killed(..) | Life::Off => self.nodes[side].start(&variant, now),
        }
        self.note(format!("{side} is back"));
    }

    /// The operator's word, which is true: the other box is off.
    pub fn word(&mut self, side: usize) {
        let now = self.now.0;
        if !matches!(self.nodes[1 - side].life, Life::Off) {
            return;
        }
        if let Some(process) = &mut self.nodes[side].process {
            let taken = process.member.take_over(now).is_ok();
            self.note(format!("word to {side}: {taken}"));
        }
    }

    /// Checks that no public port has two inside hosts, and that each log fits together.
    pub fn check(&self) -> Result<(), String> {
        let mut processes = self.nodes.iter().filter_map(|node| node.process.as_ref());
        processes.try_for_each(|process| process.workers.check_logs())?;
        check_ports(self.nodes.iter().map(|node| node.translations(self.now)))
    }

    /// Ends all faults, and lets the boxes agree.
    ///
    /// # Errors
    /// They do not, within a bound.
    pub fn heal(&mut self) -> Result<(), String> {
        self.note("heal");
        self.is_split = false;
        (0..2).for_each(|side| self.come_back(side));
        let mut quiet = 0;
        for round in 0..4_000 {
            if round % 50 == 0 {
                self.connect();
            }
            self.everything()?;
            // Records wait for others, acknowledgements for records, and refused sessions for another try.
            quiet = if self.is_quiet() { quiet + 1 } else { 0 };
            if quiet > 25 {
                let mut processes = self.nodes.iter().filter_map(|node| node.process.as_ref());
                return processes.try_for_each(|process| process.workers.check_tables());
            }
            // Half of a connection notices that the other one is gone.
            if self.connection.is_open[0] != self.connection.is_open[1] {
                (0..2).for_each(|side| self.close(side));
            }
        }
        let statuses: Vec<_> = self.statuses();
        let quarantined: Vec<_> =
            self.nodes.iter().flat_map(|node| &node.process).map(|one| one.workers.quarantined()).collect();
        Err(format!("no agreement: {quarantined:?} ports wait, {statuses:?}"))
    }

    fn statuses(&self) -> Vec<gatun_peer::member::PairStatus> {
        let processes = self.nodes.iter().filter_map(|node| node.process.as_ref());
        processes.map(|process| process.member.status(self.now.0)).collect()
    }

    pub fn everything(&mut self) -> Result<(), String> {
        self.now = self.now.plus_ms(2);
        for side in 0..2 {
            (0..WORKERS).for_each(|worker| self.work(side, worker, 1_000));
            self.turn(side);
            self.carry(side, usize::MAX);
        }
        self.check()
    }

    fn is_quiet(&self) -> bool {
        let is_quiet = |process: &Process| {
            let one = process.member.status(self.now.0);
            let counters = &one.counters;
            // A contradiction may reserve a port.
            one.is_synced
                && counters.ends_waiting == 0
                && counters.records_waiting == 0
                && process.workers.quarantined() <= counters.contradictions
        };
        self.nodes.iter().all(|node| node.process.as_ref().is_some_and(is_quiet))
    }

    /// Returns the sessions of a box that the other one has to know.
    pub fn known(&self, side: usize) -> BTreeSet<Flow> {
        let Some(process) = &self.nodes[side].process else { return BTreeSet::new() };
        let all = process.workers.sessions().into_iter();
        let counts = all.filter(|session| match session.tcp {
            Some(state) => state == TcpState::Established && session.expires_ms > 2_000,
            None => self.variant.packets <= 1 && session.expires_ms > 2_000,
        });
        counts.map(|one| (one.transport, one.outside, one.remote, one.inside)).collect()
    }

    /// Returns the sessions of a box that do not end soon, or only when the other one has ended them.
    fn standby(&self, side: usize) -> BTreeSet<Flow> {
        let Some(process) = &self.nodes[side].process else { return BTreeSet::new() };
        let all = process.workers.sessions().into_iter();
        let counts = all.filter(|session| {
            let is_open = session.tcp.is_none_or(|state| state == TcpState::Established);
            is_open && (session.is_standby || session.expires_ms > 1_000)
        });
        counts.map(|one| (one.transport, one.outside, one.remote, one.inside)).collect()
    }

    /// Returns all sessions of a box.
    pub fn all(&self, side: usize) -> BTreeSet<Flow> {
        let Some(process) = &self.nodes[side].process else { return BTreeSet::new() };
        let all = process.workers.sessions().into_iter();
        all.map(|one| (one.transport, one.outside, one.remote, one.inside)).collect()
    }

    /// The first box loses its power, and the operator says so. Checks that the second one then has the first
    /// one's connections and assigns all ports.
    ///
    /// # Errors
    /// A connection is lost, or a port of another member is used too early.
    pub fn survive(&mut self) -> Result<(), String> {
        // A session that has had packets at both may be near its end there.
        let (known, lives) = (self.known(0), self.standby(1));
        self.kill(0, false);
        self.close(1);
        for ms in 0..u64::from(KERNEL_MS) + 100 {
            if ms == 3 {
                self.word(1);
            }
            self.now = self.now.plus_ms(1);
            (0..WORKERS).for_each(|worker| self.work(1, worker, 1_000));
            self.turn(1);
            self.check()?;
        }
        for flow in known.iter().filter(|flow| lives.contains(flow)) {
            let (transport, outside, remote, _) = flow;
            let (to, from) = (outside.0.to_string(), remote.0.to_string());
            let packet = match transport {
                Transport::Tcp => tcp4(&from, remote.1, &to, outside.1, "A", b"answer"),
                _ => udp4(&from, remote.1, &to, outside.1, b"y"),
            };
            if !self.send(1, &packet) {
                return Err(format!("{flow:?} is lost"));
            }
        }
        let owns = self.statuses()[0].epochs.iter().all(|epoch| epoch.owner == Member::Second);
        if owns { Ok(()) } else { Err("the survivor does not own all".to_owned()) }
    }

    /// Checks that each box has the sessions of the other one, unless they contradict its own.
    ///
    /// # Errors
    /// A session is missing.
    pub fn check_known(&self) -> Result<(), String> {
        for side in 0..2 {
            let other = self.all(1 - side);
            let bound: HashMap<_, _> =
                other.iter().map(|(t, out, _, inside)| ((*t, *inside), *out)).collect();
            for flow in self.known(side) {
                let (transport, outside, _, inside) = flow;
                let contradicts = bound.get(&(transport, inside)).is_some_and(|out| *out != outside);
                if !other.contains(&flow) && !contradicts {
                    let counters: Vec<_> = self.statuses().iter().map(|one| one.counters).collect();
                    return Err(format!("{} does not know {flow:?}: {counters:?}", 1 - side));
                }
            }
        }
        Ok(())
    }
}
