//! Form of a state without its history.
//!
//! The rules only compare numbers of records, of epochs, of writes, of registrations, of connections and of
//! processes. So only their distances count, or whether they are the latest. The two users of a port are
//! alike: the one that gets it next is the first one. Packets of different ways have no order.

use super::state::{Body, Holder, Node, PORTS, Packet, Report, Shard, State, Write};
use gatun_cluster::record::{Seat, ShardRecord};
use gatun_pair_model::ProcessState;
use gatun_pair_model::canonical::{distance, entry, inbound, number, option, outbound, port, users};

fn runs(node: &Node) -> bool {
    matches!(node.life, ProcessState::Alive | ProcessState::Stopped)
}

impl State {
    /// Appends everything that decides the future of the state, except for its budgets.
    pub(super) fn canonical(&self, bytes: &mut Vec<u8>) {
        for (node, registration) in self.nodes.iter().zip(&self.registrations) {
            bytes.extend([node.life as u8, node.kernel_left, node.is_cut.into(), registration.lease_left]);
            option(bytes, node.gone_for);
            if !runs(node) {
                continue;
            }
            bytes.extend([node.is_stale, node.is_read, node.is_registered].map(u8::from));
            bytes.extend([node.lease_left, node.boot_left]);
            for (seen, registration) in node.seen.iter().zip(&self.registrations) {
                option(bytes, seen.absent_for);
                bytes.push((seen.number == registration.number).into());
            }
        }
        bytes.push(self.cuts.len() as u8);
        bytes.extend(self.cuts.iter().flat_map(|(one, other)| [one, other]));
        for shard in &self.shards {
            View::new(self, shard).shard(bytes);
        }
    }
}

/// Shard in a state.
struct View<'s> {
    state: &'s State,
    shard: &'s Shard,
    /// Newest epoch that somebody knows.
    newest: u32,
}

impl<'s> View<'s> {
    fn new(state: &'s State, shard: &'s Shard) -> View<'s> {
        let known = shard.holders.iter().flat_map(Holder::records);
        let written = shard.writes.iter().map(|write| &write.record);
        let newest = known.chain(written).chain(&shard.record).map(|record| record.epoch).max();
        View { state, shard, newest: newest.unwrap_or(0) }
    }

    fn shard(&self, bytes: &mut Vec<u8>) {
        self.option_record(self.shard.record.as_ref(), bytes);
        for (node, holder) in (0u8..).zip(&self.shard.holders) {
            self.kept(node, holder, bytes);
            if runs(self.state.node(node)) {
                self.running(node, holder, bytes);
            }
        }
        let mut packets: Vec<&Packet> = self.shard.packets.iter().collect();
        packets.sort_by_key(|packet| (packet.from, packet.to, packet.connection));
        bytes.push(packets.len() as u8);
        packets.into_iter().for_each(|packet| self.packet(packet, bytes));
        let mut writes: Vec<Vec<u8>> = self.shard.writes.iter().map(|write| self.write(write)).collect();
        writes.sort_unstable();
        bytes.push(writes.len() as u8);
        writes.iter().for_each(|write| bytes.extend(write));
        users(bytes, &self.shard.next_users, &self.shard.safe);
        users(bytes, &self.shard.next_users, &self.shard.ended);
    }

    /// Returns whether two nodes know each other as holders, and since when: their streams belong together.
    fn is_pair(&self, one: u8, other: u8) -> bool {
        let knows = |node: u8, other: u8| {
            let known = self.shard.holders[usize::from(node)].known.as_ref();
            known
                .filter(|record| record.other(&node) == Some(&other))
                .map(|record| (record.since(&one), record.since(&other)))
        };
        knows(one, other).is_some() && knows(one, other) == knows(other, one)
    }

    /// Last numbers of the streams of a node and of another one; 0 if these do not belong together.
    fn last(&self, node: u8, other: Option<u8>) -> (u64, u64) {
        let last = |node: u8| self.shard.holders[usize::from(node)].out.last();
        other.filter(|other| self.is_pair(node, *other)).map_or((0, 0), |other| (last(node), last(other)))
    }

    /// 0 is older than all others, however many there were.
    fn epoch(&self, epoch: u32, bytes: &mut Vec<u8>) {
        bytes.push((epoch > 0).into());
        if epoch > 0 {
            distance(bytes, self.newest.into(), epoch.into());
        }
    }

    fn seat(&self, seat: &Seat<u8>, bytes: &mut Vec<u8>) {
        bytes.push(seat.node);
        self.epoch(seat.since, bytes);
    }

    fn option_record(&self, record: Option<&ShardRecord<u8>>, bytes: &mut Vec<u8>) {
        bytes.push(record.is_some().into());
        if let Some(record) = record {
            self.record(record, bytes);
        }
    }

    fn record(&self, record: &ShardRecord<u8>, bytes: &mut Vec<u8>) {
        self.epoch(record.epoch, bytes);
        self.seat(&record.owner, bytes);
        bytes.push(record.backup.as_ref().map_or(u8::MAX, |backup| backup.phase as u8));
        if let Some(backup) = &record.backup {
            self.seat(&backup.seat, bytes);
        }
    }

    /// State of a holder that outlives its process, and its kernel. A process that has ended has no numbers.
    fn kept(&self, node: u8, holder: &Holder, bytes: &mut Vec<u8>) {
        let last = self.last(node, holder.other(node)).0;
        let is_running = runs(self.state.node(node));
        users(bytes, &self.shard.next_users, &holder.kernel);
        self.option_record(holder.known.as_ref(), bytes);
        self.option_record(holder.pending.as_ref(), bytes);
        bytes.extend([holder.revision == self.shard.revision, holder.is_settled].map(u8::from));
        for (one, first) in holder.ports.iter().zip(&self.shard.next_users) {
            port(bytes, last, *first, &if is_running { *one } else { one.restarted() });
        }
    }

    fn running(&self, node: u8, holder: &Holder, bytes: &mut Vec<u8>) {
        let last = self.last(node, holder.other(node));
        bytes.push(holder.gives.into());
        outbound(bytes, &holder.out, last, |bytes, (epoch, report)| self.report(*epoch, report, bytes));
        inbound(bytes, last.1, &holder.inbound);
        option(bytes, holder.link.map(|link| self.shard.connection.wrapping_sub(link)));
        let is_of = |of: &Node| u8::from(holder.peer_process == of.process);
        bytes.extend(self.state.nodes.iter().map(is_of));
        bytes.extend([holder.hold_left, holder.promise_left, holder.promised_claim, holder.promised_removal]);
    }

    fn report(&self, epoch: u32, report: &Report, bytes: &mut Vec<u8>) {
        self.epoch(epoch, bytes);
        let user = |port: u8, user: u8| user ^ self.shard.next_users[usize::from(port)];
        match *report {
            Report::Begun { port, user: one } => bytes.extend([0, port, user(port, one)]),
            Report::Ended { port, user: one } => bytes.extend([1, port, user(port, one)]),
            Report::State(all) => {
                bytes.push(2);
                users(bytes, &self.shard.next_users, &all[..PORTS]);
            }
        }
    }

    fn packet(&self, packet: &Packet, bytes: &mut Vec<u8>) {
        let last = self.last(packet.from, Some(packet.to));
        bytes.extend([packet.from, packet.to, self.shard.connection.wrapping_sub(packet.connection)]);
        match &packet.body {
            Body::Entry(one) => {
                bytes.push(0);
                entry(bytes, one, last, |bytes, (epoch, report)| self.report(*epoch, report, bytes));
            }
            Body::Acknowledged { handled, after } => {
                bytes.push(1);
                number(bytes, last.1, Some(*handled));
                number(bytes, last.0, Some(*after));
            }
            Body::Asked { ago } => bytes.extend([2, *ago]),
            Body::Promised { ago, is_owner } => bytes.extend([3, *ago, (*is_owner).into()]),
        }
    }

    fn write(&self, write: &Write) -> Vec<u8> {
        let mut bytes = vec![write.by, write.change as u8, (write.revision == self.shard.revision).into()];
        self.record(&write.record, &mut bytes);
        if let Some((node, number)) = write.absent {
            let is_last = self.state.registrations[usize::from(node)].number == number;
            bytes.extend([node, is_last.into()]);
        }
        users(&mut bytes, &self.shard.next_users, &write.users);
        bytes
    }
}
