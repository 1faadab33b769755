//! Registrations, and how nodes learn and write records.

use super::scenario::{Scenario, TIMING};
use super::state::{Action, HOLD, Holder, LEASE, PORTS, RANGES, State, Way, Write};
use gatun_cluster::policy::Change;
use gatun_cluster::record::{Part, Seat, ShardRecord};
use gatun_cluster::transitions;
use gatun_pair_model::ProcessState;
use gatun_peer::ownership::{Port, Range, Rules};

impl State {
    pub(super) fn register(&mut self, node: u8) {
        let registration = &mut self.registrations[usize::from(node)];
        // The same instance takes over a registration that is still there.
        registration.number += 1;
        registration.lease_left = LEASE;
        let one = self.node_mut(node);
        (one.is_registered, one.is_read, one.lease_left) = (true, false, 0);
    }

    pub(super) fn renew(&mut self, node: u8) {
        let registration = &mut self.registrations[usize::from(node)];
        let lives = registration.lease_left > 0;
        if lives {
            registration.lease_left = LEASE;
        }
        let one = self.node_mut(node);
        match lives {
            true => one.lease_left = LEASE,
            false => (one.is_registered, one.is_read, one.lease_left) = (false, false, 0),
        }
        for shard in (0..self.shards.len() as u8).filter(|_| lives) {
            let holder = self.holder_mut(shard, node);
            if holder.part(node) != Part::None {
                holder.hold_left = HOLD;
            }
        }
    }

    /// Reads the map and all registrations.
    pub(super) fn see(&mut self, scenario: &Scenario, node: u8) {
        for (place, registration) in self.registrations.clone().into_iter().enumerate() {
            let seen = &mut self.node_mut(node).seen[place];
            let is_same = seen.number == registration.number;
            seen.number = registration.number;
            seen.absent_for = match registration.lease_left {
                0 if is_same => seen.absent_for.or(Some(0)),
                0 => Some(0),
                _ => None,
            };
        }
        for shard in 0..self.shards.len() as u8 {
            self.learn(scenario, shard, node);
        }
        let one = self.node_mut(node);
        one.is_read = one.is_registered;
    }

    /// Learns the record of a shard.
    pub(super) fn learn(&mut self, scenario: &Scenario, shard: u8, node: u8) {
        let (record, revision) = (self.shard(shard).record.clone(), self.shard(shard).revision);
        let rules = &scenario.rules;
        let holder = self.holder_mut(shard, node);
        if holder.revision != revision {
            (holder.pending, holder.gives) = (None, false);
        }
        let before = std::mem::replace(&mut holder.known, record);
        holder.revision = revision;
        let now = holder.known.clone();
        let seat = |record: &Option<ShardRecord<u8>>, node: Option<u8>| {
            let (record, node) = (record.as_ref()?, node?);
            Some(Seat { node, since: if rules.since { record.since(&node)? } else { 0 } })
                .filter(|_| record.part(&node) != Part::None)
        };
        let other =
            |record: &Option<ShardRecord<u8>>| record.as_ref().and_then(|one| one.other(&node).copied());
        if seat(&before, Some(node)) != seat(&now, Some(node)) {
            // A process that has restarted without its state knows no record.
            self.drop_all(shard, node);
        } else if seat(&before, other(&before)) != seat(&now, other(&now)) {
            self.holder_mut(shard, node).forget_peer();
        }
        self.begin_without_state(shard, node);
        self.use_rights(scenario, shard, node);
    }

    /// Drops all that a node has of a shard.
    pub(super) fn drop_all(&mut self, shard: u8, node: u8) {
        let holder = self.holder_mut(shard, node);
        let Holder { known, revision, pending, .. } = holder.clone();
        *holder = Holder { known, revision, pending, ..Holder::cold() };
    }

    /// Does what the rights of a running process demand.
    pub(super) fn use_rights(&mut self, scenario: &Scenario, shard: u8, node: u8) {
        let holder = self.holder_mut(shard, node);
        if holder.part(node) == Part::Owner && holder.other(node).is_none() {
            // Nobody else has anything of the shard.
            holder.is_settled = true;
        }
        let is_revoked = self.holder(shard, node).part(node) == Part::Owner
            && !self.has_right(scenario, shard, node)
            && scenario.rules.revoke;
        for port in (0..scenario.ports).filter(|_| is_revoked) {
            let one = self.holder(shard, node).ports[usize::from(port)];
            if RANGES[usize::from(port)] == Range::Shared && one.user().is_some() && !one.is_acknowledged() {
                self.end(shard, node, port);
            }
        }
    }

    /// Writes a record.
    pub(super) fn write(&mut self, scenario: &Scenario, action: Action) {
        let Action::Write { shard, node, change, backup, way } = action else { return };
        let Some(record) = self.changed(scenario, (shard, node), change, backup) else { return };
        let holder = self.holder(shard, node);
        let of = match change {
            Change::Remove => holder.other(node),
            _ => holder.known.as_ref().map(|known| known.owner.node),
        };
        let number = |of: u8| self.node(node).seen[usize::from(of)].number;
        let is_compared =
            change.needs_absence() && self.absence(shard, node, of.unwrap_or(0)).gone_ms.is_none();
        let absent = of.filter(|_| is_compared).map(|of| (of, number(of)));
        let is_unknown = |(range, port): (&Range, &Port<u8>)| {
            *range == Range::Shared && port.user().is_some() && !port.is_acknowledged()
        };
        let harms = change == Change::Release && RANGES.iter().zip(&holder.ports).any(is_unknown);
        let users = holder.ports.map(|port| port.user());
        let write =
            Write { record: record.clone(), revision: holder.revision, absent, change, by: node, users };
        self.has_harmed |= harms;
        self.left.writes -= 1;
        self.left.late -= u8::from(way != Way::Answered);
        self.holder_mut(shard, node).pending = Some(record);
        // Rights change before the coordinator knows.
        self.use_rights(scenario, shard, node);
        match way {
            Way::Late => self.shard_mut(shard).writes.push(write),
            Way::Answered | Way::Unanswered => self.arrive(scenario, shard, &write),
        }
        if way == Way::Answered {
            // Also the refusal of a write tells the present record.
            self.holder_mut(shard, node).pending = None;
            self.learn(scenario, shard, node);
        }
    }

    /// A write arrives at the coordinator.
    pub(super) fn arrive(&mut self, scenario: &Scenario, shard: u8, write: &Write) {
        let rules = &scenario.rules;
        let is_absent = write.absent.is_none_or(|(node, number)| {
            let registration = self.registrations[usize::from(node)];
            registration.lease_left == 0 && registration.number == number || !rules.absent
        });
        let one = self.shard_mut(shard);
        if one.revision != write.revision && rules.compare || !is_absent {
            return;
        }
        one.record = Some(write.record.clone());
        one.revision += 1;
        self.note_safe(shard, write);
    }

    /// Notes the mappings that a ready backup has, and forgets those that a change may lose.
    fn note_safe(&mut self, shard: u8, write: &Write) {
        match write.change {
            Change::Ready => {
                for (port, user) in write.users.into_iter().enumerate() {
                    // Both may have lost it since the write was sent.
                    let nodes = 0..self.nodes.len() as u8;
                    let is_left = user
                        .is_some_and(|user| nodes.into_iter().any(|node| self.has(shard, node, port, user)));
                    let one = self.shard_mut(shard);
                    one.safe[port] = user.filter(|_| is_left && user != one.ended[port]);
                }
            }
            Change::Take => {
                let users = self.holder(shard, write.by).ports.map(|port| port.user());
                for (safe, user) in self.shard_mut(shard).safe.iter_mut().zip(users) {
                    *safe = safe.filter(|_| *safe == user);
                }
            }
            // From now on, the owner alone has them (decision 0107), and it may have died since it sent this.
            Change::Leaving if self.node(write.by).life == ProcessState::Off => {
                self.shard_mut(shard).safe = [None; PORTS];
            }
            _ => {}
        }
    }

    /// Ends a mapping.
    pub(super) fn end(&mut self, shard: u8, node: u8, port: u8) {
        let place = usize::from(port);
        let holder = self.holder(shard, node);
        let Port::Held { user, peer } = holder.ports[place] else { return };
        let is_alone = holder.other(node).is_none();
        let number = match peer {
            gatun_peer::ownership::Knowledge::Unaware => None,
            _ => self.push(shard, node, super::state::Report::Ended { port, user }),
        };
        let holder = self.holder_mut(shard, node);
        holder.ports[place] = holder.ports[place].end(&Rules::default(), is_alone, number);
        let one = self.shard_mut(shard);
        (one.safe[place], one.ended[place]) = (None, Some(user));
    }

    /// Makes a promise to another holder. Returns whether this node knows it as the owner; `None` if it does
    /// not know it as a holder.
    pub(super) fn promise(&mut self, scenario: &Scenario, shard: u8, node: u8, to: u8) -> Option<bool> {
        let holder = self.holder_mut(shard, node);
        if !holder.records().all(|record| record.other(&node) == Some(&to)) {
            return None;
        }
        holder.promised_removal = TIMING.promised_removal_ms(&scenario.rules) as u8;
        let is_owner = holder.records().all(|record| record.part(&to) == Part::Owner);
        if is_owner || !scenario.rules.promise_to_owner {
            holder.promised_claim = TIMING.promised_claim_ms(&scenario.rules) as u8;
        }
        Some(is_owner || !scenario.rules.promise_to_owner)
    }

    /// The first record of a shard.
    pub(super) fn create(&mut self, shard: u8, owner: u8) {
        let one = self.shard_mut(shard);
        one.record = Some(transitions::create(owner));
        one.revision = 1;
    }
}
