//! Connections between holders, and what a holder does with a packet.

use super::scenario::Scenario;
use super::state::{Body, HOLD, LEASE, PORTS, Packet, RANGES, READY, Report, State};
use gatun_cluster::record::Part;
use gatun_peer::ownership::{Arrival, Entry, Inbound, Knowledge, Port, Range, Resumption, Rules};

/// Rules of the pair, which are all in force.
fn rules() -> Rules {
    Rules::default()
}

impl State {
    /// Connects the holders of a shard: both forget earlier connections.
    pub(super) fn connect(&mut self, shard: u8, (one, other): (u8, u8)) {
        let processes = [self.node(one).process, self.node(other).process];
        let between = self.shard_mut(shard);
        between.connection += 1;
        let connection = between.connection;
        // Nobody would accept these any more.
        between.packets.retain(|packet| {
            let ends = (packet.from.min(packet.to), packet.from.max(packet.to));
            ends != (one, other)
        });
        let mut knew = [false; 2];
        for (place, (node, process)) in [(one, processes[1]), (other, processes[0])].into_iter().enumerate() {
            let holder = self.holder_mut(shard, node);
            holder.link = Some(connection);
            if holder.peer_process != process {
                holder.peer_process = process;
                holder.inbound = Inbound::default();
            }
            knew[place] = holder.inbound != Inbound::default();
        }
        [one, other].into_iter().for_each(|node| self.begin_without_state(shard, node));
        for (from, knows) in [(one, knew[1]), (other, knew[0])] {
            self.resume(shard, from, knows);
        }
    }

    /// The owner of a shard begins without state, if the other holder is connected and has none either.
    pub(super) fn begin_without_state(&mut self, shard: u8, node: u8) {
        let holder = self.holder(shard, node);
        let Some(other) = holder.other(node).map(|other| self.holder(shard, other)) else { return };
        let is_connected = holder.link.is_some() && holder.link == other.link;
        if holder.part(node) == Part::Owner && is_connected && !other.is_settled {
            self.holder_mut(shard, node).is_settled = true;
        }
    }

    /// Sends what the other holder lacks, after a connection has been opened.
    fn resume(&mut self, shard: u8, from: u8, knows_stream: bool) {
        let Some(to) = self.holder(shard, from).other(from) else { return };
        let expected = knows_stream.then(|| self.holder(shard, to).inbound.next());
        let holder = self.holder_mut(shard, from);
        match holder.out.resume(expected) {
            Resumption::Walk => {}
            Resumption::Log => {
                let entries: Vec<_> = holder.out.log().cloned().collect();
                entries.into_iter().for_each(|entry| self.send(shard, from, Body::Entry(entry)));
            }
        }
        self.acknowledge(shard, from);
    }

    /// Sends the whole state.
    pub(super) fn walk(&mut self, shard: u8, from: u8) {
        let holder = self.holder_mut(shard, from);
        let epoch = holder.known.as_ref().map_or(0, |record| record.epoch);
        let state = Report::State(holder.ports.map(|port| port.user()));
        let seen = holder.inbound.accepted();
        let entry = holder.out.push_walk(seen, (epoch, state)).clone();
        holder.ports = holder.ports.map(|port| port.told(entry.number));
        self.send(shard, from, Body::Entry(entry));
        self.acknowledge(shard, from);
    }

    /// Appends a change to a holder's stream. Returns the number of its record.
    pub(super) fn push(&mut self, shard: u8, from: u8, told: Report) -> Option<u64> {
        let holder = self.holder_mut(shard, from);
        let epoch = holder.known.as_ref().map_or(0, |record| record.epoch);
        let seen = holder.inbound.accepted();
        let entry = holder.out.push(seen, (epoch, told)).cloned();
        let number = entry.as_ref().map(|entry| entry.number);
        if let Some(entry) = entry {
            self.send(shard, from, Body::Entry(entry));
        }
        number
    }

    pub(super) fn send(&mut self, shard: u8, from: u8, body: Body) {
        let holder = self.holder(shard, from);
        if let (Some(connection), Some(to)) = (holder.link, holder.other(from)) {
            self.shard_mut(shard).packets.push(Packet { from, to, connection, body });
        }
    }

    /// Acknowledges all that a holder has handled and answered.
    fn acknowledge(&mut self, shard: u8, from: u8) {
        let holder = self.holder_mut(shard, from);
        if !holder.inbound.answered(&rules(), &holder.out) {
            return;
        }
        let (handled, after) = (holder.inbound.handled(), holder.out.last());
        if handled > 0 {
            self.send(shard, from, Body::Acknowledged { handled, after });
        }
    }

    /// Gives a packet to its receiver. `keeps` lets it keep a mapping that the other holder has ended.
    pub(super) fn deliver(&mut self, scenario: &Scenario, shard: u8, place: u8, keeps: bool) {
        let Packet { from, to, connection, body } = self.shard_mut(shard).packets.remove(place.into());
        let holder = self.holder_mut(shard, to);
        if holder.link != Some(connection) || holder.other(to) != Some(from) {
            return;
        }
        match body {
            Body::Entry(entry) => self.handle(shard, to, entry, keeps),
            Body::Acknowledged { handled, after } => match holder.inbound.is_after(&rules(), after) {
                true => self.acknowledged(shard, to, handled),
                false => holder.link = None,
            },
            Body::Asked { ago } => {
                if let Some(is_owner) = self.promise(scenario, shard, to, from) {
                    self.send(shard, to, Body::Promised { ago, is_owner });
                }
            }
            Body::Promised { ago, is_owner } => {
                if is_owner {
                    holder.promise_left = holder.promise_left.max(LEASE.saturating_sub(ago));
                }
                holder.hold_left = holder.hold_left.max(HOLD.saturating_sub(ago));
                self.use_rights(scenario, shard, to);
            }
        }
    }

    fn handle(&mut self, shard: u8, to: u8, entry: Entry<(u32, Report)>, keeps: bool) {
        let Entry { number, seen, record: (epoch, told) } = entry;
        let holder = self.holder_mut(shard, to);
        let is_walk = matches!(told, Report::State(_));
        if !holder.is_settled && !is_walk {
            return;
        }
        match holder.inbound.accept(&rules(), number, is_walk) {
            Arrival::Next => {}
            Arrival::Known => return,
            Arrival::Gap => {
                holder.link = None;
                return;
            }
        }
        let own = holder.known.as_ref().map_or(0, |record| record.epoch);
        let is_older = |port: usize| epoch < own && RANGES[port] == Range::Shared;
        match told {
            Report::Begun { port, user } => {
                let port = usize::from(port);
                holder.ports[port] = holder.ports[port].begun(&rules(), user, seen, is_older(port));
            }
            Report::Ended { port, user } if keeps && holder.ports[usize::from(port)].user() == Some(user) => {
                self.left.ports -= 1;
                self.begin(shard, to, port, user);
            }
            Report::Ended { port, user } => {
                let one = &mut holder.ports[usize::from(port)];
                *one = one.ended(&rules(), user);
            }
            Report::State(users) => {
                for (port, user) in users.into_iter().enumerate() {
                    holder.ports[port] = holder.ports[port].walked(&rules(), user, seen, is_older(port));
                }
                holder.is_settled = true;
            }
        }
        self.end_again(shard, to);
        self.acknowledge(shard, to);
    }

    /// Tells the ends again that a beginning has crossed.
    fn end_again(&mut self, shard: u8, node: u8) {
        for port in 0..PORTS as u8 {
            let place = usize::from(port);
            if let Port::Freed { user, told: None } = self.holder(shard, node).ports[place] {
                let told = self.push(shard, node, Report::Ended { port, user });
                self.holder_mut(shard, node).ports[place] = Port::Freed { user, told };
            }
        }
    }

    /// Notes what the other holder has acknowledged.
    fn acknowledged(&mut self, shard: u8, to: u8, number: u64) {
        let record = self.shard(shard).record.clone();
        let holder = self.holder_mut(shard, to);
        if !holder.out.acknowledge(number) {
            return;
        }
        let before = holder.ports;
        holder.ports = holder.ports.map(|port| port.acknowledged(number));
        let after = holder.ports;
        let is_ready = record.is_some_and(|record| record.phase() == Some(READY) && record.owner.node == to);
        for port in (0..PORTS).filter(|_| is_ready) {
            let is_new = after[port].is_acknowledged() && !before[port].is_acknowledged();
            let one = self.shard_mut(shard);
            if is_new && one.ended[port] != after[port].user() {
                one.safe[port] = after[port].user();
            }
        }
    }

    /// Assigns a port, or keeps it although the other holder has ended the mapping.
    pub(super) fn begin(&mut self, shard: u8, node: u8, port: u8, user: u8) {
        let number = self.push(shard, node, Report::Begun { port, user });
        let peer = number.map_or(Knowledge::Unaware, Knowledge::Told);
        self.shard_mut(shard).ended[usize::from(port)] = None;
        self.holder_mut(shard, node).ports[usize::from(port)] = Port::Held { user, peer };
    }
}
