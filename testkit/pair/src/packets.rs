//! Connections between members, and what a member does with a packet.

use super::scenario::{Scenario, TIMING};
use super::state::{Body, Change, PORTS, Packet, RANGES, Record, State};
use gatun_peer::ownership::{Arrival, Entry, Epoch, Inbound, Knowledge, Member, Port, Range, Resumption};

impl State {
    /// Connects the two members of a shard: both forget earlier connections.
    pub(super) fn connect(&mut self, scenario: &Scenario, shard: u8) {
        let one = self.shard_mut(shard);
        one.connection += 1;
        let connection = one.connection;
        if scenario.rules.one_connection {
            // Nobody would accept these any more.
            one.queues.iter_mut().for_each(Vec::clear);
        }
        let processes = [one.sides[0].process, one.sides[1].process];
        for (side, peer_process) in one.sides.iter_mut().zip([processes[1], processes[0]]) {
            side.link = Some(connection);
            side.peer_is_gone = false;
            side.word_left = None;
            if side.peer_process != peer_process {
                side.peer_process = peer_process;
                side.inbound = Inbound::default();
            }
        }
        if one.sides.iter().all(|side| !side.is_settled) {
            // Neither has state: the first start of a pair.
            for side in &mut one.sides {
                side.is_settled = true;
                side.epoch = Epoch { number: 1, owner: Member::First };
            }
        }
        for from in [0, 1] {
            self.resume(scenario, shard, from);
        }
    }

    /// Sends what the other member lacks, after a connection has been opened.
    fn resume(&mut self, scenario: &Scenario, shard: u8, from: u8) {
        let expected = {
            let other = self.side(shard, 1 - from);
            let knows_stream = other.inbound != Inbound::default();
            knows_stream.then(|| other.inbound.next())
        };
        let side = self.side_mut(shard, from);
        match side.out.resume(expected) {
            Resumption::Walk => {}
            Resumption::Log => {
                let entries: Vec<_> = side.out.log().cloned().collect();
                entries.into_iter().for_each(|entry| self.send(shard, from, Body::Entry(entry)));
            }
        }
        self.acknowledge(scenario, shard, from);
    }

    /// Sends the whole state.
    pub(super) fn walk(&mut self, scenario: &Scenario, shard: u8, from: u8) {
        let side = self.side_mut(shard, from);
        let change = Change::State(side.ports.map(|port| port.user()));
        let record = Record { epoch: side.epoch, revision: side.revision.own(), change };
        let seen = side.inbound.accepted();
        let entry = side.out.push_walk(seen, record).clone();
        for port in &mut side.ports {
            *port = port.told(entry.number);
        }
        side.revision.told(entry.number);
        self.send(shard, from, Body::Entry(entry));
        self.acknowledge(scenario, shard, from);
    }

    /// Appends a change to a member's stream. Returns the number of its record.
    pub(super) fn push(&mut self, shard: u8, from: u8, change: Change) -> Option<u64> {
        let side = self.side_mut(shard, from);
        let record = Record { epoch: side.epoch, revision: side.revision.own(), change };
        let seen = side.inbound.accepted();
        let entry = side.out.push(seen, record).cloned();
        let number = entry.as_ref().map(|entry| entry.number);
        if let Some(entry) = entry {
            self.send(shard, from, Body::Entry(entry));
        }
        number
    }

    pub(super) fn send(&mut self, shard: u8, from: u8, body: Body) {
        if let Some(connection) = self.side(shard, from).link {
            self.shard_mut(shard).queues[usize::from(1 - from)].push(Packet { connection, body });
        }
    }

    /// Acknowledges all that a member has handled and answered.
    fn acknowledge(&mut self, scenario: &Scenario, shard: u8, from: u8) {
        let side = self.side_mut(shard, from);
        if !side.inbound.answered(&scenario.rules, &side.out) {
            return;
        }
        let handled = side.inbound.handled();
        if handled > 0 {
            let after = self.side(shard, from).out.last();
            self.send(shard, from, Body::Acknowledged { handled, after });
        }
    }

    /// Gives a packet to a member. `keeps` lets it keep a mapping that the other one has ended.
    pub(super) fn deliver(&mut self, scenario: &Scenario, shard: u8, to: u8, place: u8, keeps: bool) {
        let packet = self.shard_mut(shard).queues[usize::from(to)].remove(place.into());
        let side = self.side_mut(shard, to);
        if scenario.rules.one_connection && side.link != Some(packet.connection) {
            return;
        }
        match packet.body {
            Body::Entry(entry) => self.handle(scenario, shard, to, entry, keeps),
            Body::Acknowledged { handled, after } => {
                if side.inbound.is_after(&scenario.rules, after) {
                    self.acknowledged(shard, to, handled);
                } else {
                    side.link = None;
                }
            }
            Body::Asked { ago } => {
                let standing = side.standing(scenario, to);
                if side.is_settled && standing.epoch.owner != standing.me {
                    side.promised_left = TIMING.promise_ms(&scenario.rules) as u8;
                    self.send(shard, to, Body::Promised { ago });
                }
            }
            Body::Promised { ago } => {
                side.promise_left = side.promise_left.max(TIMING.left_ms(ago.into()) as u8);
            }
        }
    }

    fn handle(&mut self, scenario: &Scenario, shard: u8, to: u8, entry: Entry<Record>, keeps: bool) {
        let rules = &scenario.rules;
        let Entry { number, seen, record } = entry;
        let side = self.side_mut(shard, to);
        let is_walk = matches!(record.change, Change::State(_));
        let may_read = side.standing(scenario, to).may_act(rules) || is_walk;
        if !may_read {
            return;
        }
        match side.inbound.accept(rules, number, is_walk) {
            Arrival::Next => {}
            Arrival::Known => return,
            Arrival::Gap => {
                side.link = None;
                return;
            }
        }
        let is_older = |side_epoch: Epoch, port: usize| {
            record.epoch.number < side_epoch.number && RANGES[port] == Range::Shared
        };
        match record.change {
            Change::Begun { port, user } => {
                let port = usize::from(port);
                side.ports[port] = side.ports[port].begun(rules, user, seen, is_older(side.epoch, port));
            }
            Change::Ended { port, user } if keeps && side.ports[usize::from(port)].user() == Some(user) => {
                self.begin(shard, to, port, user);
            }
            Change::Ended { port, user } => {
                let one = &mut side.ports[usize::from(port)];
                *one = one.ended(rules, user);
            }
            Change::State(users) => {
                for (port, user) in users.into_iter().enumerate() {
                    let is_older = is_older(side.epoch, port);
                    side.ports[port] = side.ports[port].walked(rules, user, seen, is_older);
                }
                side.is_settled = true;
            }
            Change::Note => {}
        }
        let side = self.side_mut(shard, to);
        side.learn(scenario, to, record.epoch);
        side.revision.heard(rules, record.revision, seen);
        self.revoke(scenario, shard, to);
        self.end_again(shard, to);
        self.acknowledge(scenario, shard, to);
    }

    /// Tells the ends again that a beginning has crossed.
    fn end_again(&mut self, shard: u8, side: u8) {
        for port in 0..PORTS as u8 {
            let place = usize::from(port);
            if let Port::Freed { user, told: None } = self.side(shard, side).ports[place] {
                let told = self.push(shard, side, Change::Ended { port, user });
                self.side_mut(shard, side).ports[place] = Port::Freed { user, told };
            }
        }
    }

    /// Notes what the other member has acknowledged.
    fn acknowledged(&mut self, shard: u8, to: u8, number: u64) {
        let one = self.shard_mut(shard);
        let users = one.sides[usize::from(1 - to)].ports.map(|port| port.user());
        let side = &mut one.sides[usize::from(to)];
        if !side.out.acknowledge(number) {
            return;
        }
        for ((port, safe), user) in side.ports.iter_mut().zip(&mut one.safe).zip(users) {
            let was = *port;
            *port = port.acknowledged(number);
            // Unless the other member has ended it since.
            if port.is_acknowledged() && !was.is_acknowledged() && port.user() == user {
                *safe = user;
            }
        }
    }

    /// Assigns a port, or keeps it although the other member has ended the mapping.
    pub(super) fn begin(&mut self, shard: u8, side: u8, port: u8, user: u8) {
        let number = self.push(shard, side, Change::Begun { port, user });
        let peer = number.map_or(Knowledge::Unaware, Knowledge::Told);
        self.side_mut(shard, side).ports[usize::from(port)] = Port::Held { user, peer };
    }

    /// Ends a mapping.
    pub(super) fn end(&mut self, scenario: &Scenario, shard: u8, side: u8, port: u8) {
        let place = usize::from(port);
        let Some(user) = self.side(shard, side).ports[place].user() else { return };
        let number = if self.side(shard, side).ports[place] == (Port::Held { user, peer: Knowledge::Unaware })
        {
            None
        } else {
            self.push(shard, side, Change::Ended { port, user })
        };
        let one = self.shard_mut(shard);
        let member = &mut one.sides[usize::from(side)];
        member.ports[place] = member.ports[place].end(&scenario.rules, member.peer_is_gone, number);
        one.safe[place] = None;
    }

    /// Ends the mappings that a member without a right must not translate.
    pub(super) fn revoke(&mut self, scenario: &Scenario, shard: u8, side: u8) {
        let member = self.side(shard, side);
        if !member.standing(scenario, side).must_revoke(&scenario.rules) {
            return;
        }
        for port in 0..PORTS as u8 {
            let one = &self.side(shard, side).ports[usize::from(port)];
            if RANGES[usize::from(port)] == Range::Shared && one.user().is_some() && !one.is_acknowledged() {
                self.end(scenario, shard, side, port);
            }
        }
    }
}
