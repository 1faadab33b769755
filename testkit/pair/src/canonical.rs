//! Form of a state without its history.
//!
//! The rules only compare numbers of records, of epochs, of connections and of processes. So only their
//! distances count. The two users of a port are alike: the one that gets it next is the first one.

use super::scenario::{ProcessState, Scenario};
use super::state::{Body, Change, Message, PLACES, PORTS, Packet, Record, Shard, Side, State};
use gatun_peer::ownership::{Entry, Epoch, Inbound, Knowledge, Outbound, Port};

/// Appends a distance of numbers, which is small.
pub fn distance(bytes: &mut Vec<u8>, from: u64, number: u64) {
    bytes.push(from.wrapping_sub(number) as u8);
}

/// Appends a number of a stream, if there is one. `last` is the stream's last number.
pub fn number(bytes: &mut Vec<u8>, last: u64, number: Option<u64>) {
    bytes.push(number.is_some().into());
    distance(bytes, last, number.unwrap_or(last));
}

/// Appends the state of a port, whose users are counted from `first`, in a stream with this last number.
pub fn port(bytes: &mut Vec<u8>, last: u64, first: u8, port: &Port<u8>) {
    match *port {
        Port::Free => bytes.push(0),
        Port::Held { user, peer } => {
            let (kind, told) = match peer {
                Knowledge::Unaware => (1, None),
                Knowledge::Unsure => (2, None),
                Knowledge::Told(told) => (3, Some(told)),
                Knowledge::Aware => (4, None),
            };
            bytes.extend([kind, user ^ first]);
            number(bytes, last, told);
        }
        Port::Freed { user, told } => {
            bytes.extend([5, user ^ first]);
            number(bytes, last, told);
        }
    }
}

/// Appends users of ports, counted from the user that gets each port next.
pub fn users(bytes: &mut Vec<u8>, first: &[u8], users: &[Option<u8>]) {
    let first = first.iter().chain(std::iter::repeat(&0));
    bytes.extend(users.iter().zip(first).map(|(user, first)| user.map_or(u8::MAX, |user| user ^ first)));
}

/// Appends the position in a stream with this last number.
pub fn inbound(bytes: &mut Vec<u8>, last: u64, inbound: &Inbound) {
    let is_known = *inbound != Inbound::default();
    bytes.push(is_known.into());
    if is_known {
        distance(bytes, last, inbound.next());
        number(bytes, last, Some(inbound.handled()).filter(|handled| *handled > 0));
    }
}

/// Appends a stream with its log, and each record of the log by `record`. `other` is the last number of the
/// other stream.
pub fn outbound<R>(
    bytes: &mut Vec<u8>,
    out: &Outbound<R>,
    (last, other): (u64, u64),
    record: impl Fn(&mut Vec<u8>, &R),
) {
    bytes.extend([out.needs_walk().into(), out.log().len() as u8]);
    distance(bytes, last, out.acknowledged());
    out.log().for_each(|one| entry(bytes, one, (last, other), &record));
}

/// Appends a record with its numbers.
pub fn entry<R>(
    bytes: &mut Vec<u8>,
    entry: &Entry<R>,
    (last, other): (u64, u64),
    record: impl Fn(&mut Vec<u8>, &R),
) {
    distance(bytes, last, entry.number);
    // 0 is less than all numbers, however many there were.
    number(bytes, other, Some(entry.seen).filter(|seen| *seen > 0));
    record(bytes, &entry.record);
}

/// Appends a number, if there is one, which is less than the greatest.
pub fn option(bytes: &mut Vec<u8>, value: Option<u8>) {
    bytes.push(value.map_or(u8::MAX, |value| value));
}

impl State {
    /// Appends everything that decides the future of the state, except for its budgets. The number of grants
    /// is no mere budget: without any, the coordinator refuses.
    pub(super) fn canonical(&self, scenario: &Scenario, bytes: &mut Vec<u8>) {
        for node in &self.nodes {
            bytes.extend([node.life as u8, node.kernel_left, node.is_cut.into()]);
        }
        for (shard, number) in self.shards.iter().zip(0..) {
            let lives = [0, 1].map(|side| self.life(scenario, number, side));
            shard.canonical(scenario, lives, bytes);
        }
        bytes.push(self.left.grants);
    }
}

impl Shard {
    fn canonical(&self, scenario: &Scenario, lives: [ProcessState; 2], bytes: &mut Vec<u8>) {
        let last = [0, 1].map(|side| self.sides[side as usize].out.last());
        let coordinated = if scenario.is_cluster { self.coordinator.epoch.number } else { 0 };
        let newest = self.sides.iter().map(|side| side.epoch.number).fold(coordinated, u32::max);
        let view = View { shard: self, newest };
        for (side, place) in self.sides.iter().zip(0..) {
            view.kept(side, lives[place], last[place], bytes);
            if matches!(lives[place], ProcessState::Alive | ProcessState::Stopped) {
                view.running(side, (last[place], last[1 - place]), &self.sides[1 - place], bytes);
            }
        }
        for (queue, to) in self.queues.iter().zip(0..) {
            bytes.push(queue.len() as u8);
            queue.iter().for_each(|packet| view.packet(packet, (last[1 - to], last[to]), bytes));
        }
        bytes.extend([self.is_cut.into(), self.messages.len() as u8]);
        // They may arrive in any order.
        let mut messages: Vec<Vec<u8>> = self.messages.iter().map(|message| view.message(message)).collect();
        messages.sort_unstable();
        messages.iter().for_each(|message| bytes.extend(message));
        if scenario.is_cluster {
            view.epoch(self.coordinator.epoch, bytes);
            bytes.push(self.coordinator.lease_left);
            option(bytes, self.coordinator.expired_for);
        }
        users(bytes, &self.next_users, &self.safe);
    }
}

/// Shard, and the newest epoch that somebody knows.
struct View<'s> {
    shard: &'s Shard,
    newest: u32,
}

impl View<'_> {
    /// 0 is older than all others, however many there were.
    fn epoch(&self, epoch: Epoch, bytes: &mut Vec<u8>) {
        bytes.extend([epoch.owner as u8, (epoch.number > 0).into()]);
        if epoch.number > 0 {
            distance(bytes, self.newest.into(), epoch.number.into());
        }
    }

    fn link(&self, link: Option<u8>, bytes: &mut Vec<u8>) {
        option(bytes, link.map(|link| self.shard.connection.wrapping_sub(link)));
    }

    /// State of a member that outlives its process, and its kernel. A process that has ended has no numbers.
    fn kept(&self, side: &Side, life: ProcessState, last: u64, bytes: &mut Vec<u8>) {
        users(bytes, &self.shard.next_users, &side.kernel[..PLACES]);
        let mut revision = side.revision;
        let is_running = matches!(life, ProcessState::Alive | ProcessState::Stopped);
        if life == ProcessState::Off {
            return;
        }
        if !is_running {
            revision.restarted();
        }
        self.epoch(side.epoch, bytes);
        bytes.extend([side.is_settled, side.peer_is_gone].map(u8::from));
        bytes.extend([revision.own() as u8, revision.is_agreed().into()]);
        number(bytes, last, revision.report());
        for (one, first) in side.ports.iter().zip(&self.shard.next_users) {
            port(bytes, last, *first, &if is_running { *one } else { one.restarted() });
        }
    }

    /// State of a process. `last` has the last numbers of its own stream and of the other member's.
    fn running(&self, side: &Side, last: (u64, u64), other: &Side, bytes: &mut Vec<u8>) {
        option(bytes, side.word_left);
        outbound(bytes, &side.out, last, |bytes, one| self.record(one, bytes));
        inbound(bytes, last.1, &side.inbound);
        self.link(side.link, bytes);
        bytes.push((side.peer_process == other.process).into());
        bytes.extend([side.lease_left, side.promise_left, side.promised_left]);
    }

    fn message(&self, message: &Message) -> Vec<u8> {
        let mut bytes = vec![message.side, message.kind as u8, message.ago];
        self.epoch(message.epoch, &mut bytes);
        bytes
    }

    fn record(&self, record: &Record, bytes: &mut Vec<u8>) {
        self.epoch(record.epoch, bytes);
        bytes.push(record.revision as u8);
        let user = |port: u8, user: u8| user ^ self.shard.next_users[usize::from(port)];
        match record.change {
            Change::Begun { port, user: one } => bytes.extend([0, port, user(port, one)]),
            Change::Ended { port, user: one } => bytes.extend([1, port, user(port, one)]),
            Change::State(all) => {
                bytes.push(2);
                users(bytes, &self.shard.next_users, &all[..PORTS]);
            }
            Change::Note => bytes.push(3),
        }
    }

    /// `last` has the last numbers of its sender's stream and of its receiver's.
    fn packet(&self, packet: &Packet, last: (u64, u64), bytes: &mut Vec<u8>) {
        self.link(Some(packet.connection), bytes);
        match &packet.body {
            Body::Entry(one) => {
                bytes.push(0);
                entry(bytes, one, last, |bytes, one| self.record(one, bytes));
            }
            Body::Acknowledged { handled, after } => {
                bytes.push(1);
                distance(bytes, last.1, *handled);
                distance(bytes, last.0, *after);
            }
            Body::Asked { ago } => bytes.extend([2, *ago]),
            Body::Promised { ago } => bytes.extend([3, *ago]),
        }
    }
}
