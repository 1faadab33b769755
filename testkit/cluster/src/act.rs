//! The state after an action.

use super::scenario::{Scenario, TIMING};
use super::state::{
    Action, Body, HOLD, Holder, LEASE, Node, PORTS, READY, Registration, Seen, Shard, State, Way, WrongClock,
};
use gatun_cluster::policy::Change;
use gatun_cluster::record::{Part, ShardRecord};
use gatun_pair_model::ProcessState;
use gatun_peer::ownership::Port;

/// Limit of counted ticks: longer than each wait.
pub(super) const TICKS_MAX: u8 =
    TIMING.hold_ms as u8 + TIMING.timing.kernel_ms as u8 + TIMING.timing.drift_ms as u8;

impl State {
    /// Returns the state after a regular start of all nodes.
    pub(super) fn initial(scenario: &Scenario) -> State {
        let nodes = usize::from(scenario.nodes);
        let node = Node {
            life: ProcessState::Alive,
            is_stale: false,
            kernel_left: 0,
            is_cut: false,
            is_read: false,
            is_registered: false,
            lease_left: 0,
            boot_left: 0,
            seen: vec![Seen::default(); nodes],
            process: 1,
            gone_for: None,
        };
        let shard = Shard {
            record: None,
            revision: 0,
            holders: vec![Holder::cold(); nodes],
            packets: vec![],
            connection: 0,
            writes: vec![],
            next_users: [0; PORTS],
            safe: [None; PORTS],
            ended: [None; PORTS],
        };
        let mut state = State {
            nodes: vec![node; nodes],
            registrations: vec![Registration { lease_left: 0, number: 0 }; nodes],
            shards: vec![shard; scenario.shards.len()],
            cuts: vec![],
            has_harmed: false,
            left: super::scenario::Bounds { writes: u8::MAX, connects: u8::MAX, ..scenario.bounds },
        };
        for (shard, holders) in (0u8..).zip(&scenario.shards) {
            state.create(shard, holders[0]);
        }
        for node in 0..scenario.nodes {
            state.keep_registered(scenario, node);
            state.renew(node);
        }
        for (shard, [owner, backup]) in (0u8..).zip(scenario.shards.clone()) {
            state.begin_pair(scenario, shard, (owner, backup));
        }
        for node in 0..scenario.nodes {
            state.see(scenario, node);
            state.keep_registered(scenario, node);
        }
        state.left = scenario.bounds;
        state
    }

    fn begin_pair(&mut self, scenario: &Scenario, shard: u8, (owner, backup): (u8, u8)) {
        let way = Way::Answered;
        self.write(scenario, Action::Write { shard, node: owner, change: Change::ChooseBackup, backup, way });
        self.learn(scenario, shard, backup);
        self.connect(shard, (owner.min(backup), owner.max(backup)));
        for node in [owner, backup] {
            self.walk(shard, node);
            while !self.shard(shard).packets.is_empty() {
                self.deliver(scenario, shard, 0, false);
            }
        }
        self.write(scenario, Action::Write { shard, node: owner, change: Change::Ready, backup: 0, way });
        self.learn(scenario, shard, backup);
    }

    /// Carries an action out.
    pub(super) fn act(&mut self, scenario: &Scenario, action: Action) {
        match action {
            Action::Assign { shard, node, port, user } => {
                self.left.ports -= 1;
                self.shard_mut(shard).next_users[usize::from(port)] = 1 - user;
                self.begin(shard, node, port, user);
            }
            Action::End { shard, node, port } => {
                self.left.ports -= 1;
                self.end(shard, node, port);
            }
            Action::Deliver { shard, place, keeps } => {
                self.left.losses -= u8::from(self.overtakes(shard, place));
                self.deliver(scenario, shard, place, keeps);
            }
            Action::Lose { shard, place } => {
                self.left.losses -= 1;
                self.shard_mut(shard).packets.remove(place.into());
            }
            Action::Break { shard, node } => {
                let other = self.holder(shard, node).other(node).unwrap_or(node);
                self.left.breaks -= u8::from(!self.is_broken(shard, (node, other)));
                self.holder_mut(shard, node).link = None;
            }
            Action::Connect { shard, nodes } => {
                self.left.connects -= 1;
                self.connect(shard, nodes);
            }
            Action::Walk { shard, node } => self.walk(shard, node),
            Action::Ask { shard, node } => {
                self.left.promises -= 1;
                self.send(shard, node, Body::Asked { ago: 0 });
            }
            Action::Give { shard, node } => self.holder_mut(shard, node).gives = true,
            Action::Keep { shard, node } => self.holder_mut(shard, node).gives = false,
            Action::Drop { shard, node } => self.drop_all(shard, node),
            Action::Write { .. } => self.write(scenario, action),
            Action::Arrive { shard, place } => {
                let write = self.shard_mut(shard).writes.remove(place.into());
                self.arrive(scenario, shard, &write);
            }
            _ => self.act_of_node(scenario, action),
        }
        self.drop_packets();
    }

    /// Drops packets of connections that their receiver has closed: nobody would accept them any more.
    fn drop_packets(&mut self) {
        let State { nodes, shards, .. } = self;
        for Shard { holders, packets, .. } in shards {
            packets.retain(|packet| {
                let to = usize::from(packet.to);
                let runs = matches!(nodes[to].life, ProcessState::Alive | ProcessState::Stopped);
                runs && holders[to].link == Some(packet.connection)
            });
        }
    }

    fn act_of_node(&mut self, scenario: &Scenario, action: Action) {
        match action {
            Action::See { node } => self.see(scenario, node),
            Action::Crash { node, life } => self.crash(scenario, node, life),
            Action::Return { node } => self.come_back(scenario, node),
            Action::Turn { node } => {
                self.node_mut(node).is_stale = false;
                self.use_all_rights(scenario, node);
            }
            Action::Word { node } => {
                self.left.words -= 1;
                self.node_mut(node).gone_for = Some(0);
            }
            Action::Cut { nodes } => {
                self.left.cuts -= 1;
                self.cuts.push(nodes);
                self.cuts.sort_unstable();
            }
            Action::Heal { nodes } => self.cuts.retain(|cut| *cut != nodes),
            Action::CutCoordinator { node } => {
                self.left.cuts -= 1;
                self.node_mut(node).is_cut = true;
            }
            Action::HealCoordinator { node } => self.node_mut(node).is_cut = false,
            Action::Tick { wrong } => self.tick(scenario, wrong),
            _ => {}
        }
    }

    /// Returns whether an earlier packet of the same connection waits.
    fn overtakes(&self, shard: u8, place: u8) -> bool {
        let (packets, place) = (&self.shard(shard).packets, usize::from(place));
        let way = |packet: &super::state::Packet| (packet.from, packet.to, packet.connection);
        packets[..place].iter().any(|packet| way(packet) == way(&packets[place]))
    }

    fn use_all_rights(&mut self, scenario: &Scenario, node: u8) {
        for shard in 0..self.shards.len() as u8 {
            self.use_rights(scenario, shard, node);
        }
    }

    fn crash(&mut self, scenario: &Scenario, node: u8, life: ProcessState) {
        self.left.crashes -= 1;
        for shard in 0..self.shards.len() as u8 {
            let kernel = self.users(scenario, shard, node);
            self.holder_mut(shard, node).kernel = kernel;
            if life == ProcessState::Off {
                self.lose_state(shard, node);
            }
        }
        let one = self.node_mut(node);
        (one.life, one.is_stale, one.kernel_left) = (life, false, TIMING.timing.kernel_ms as u8);
        if matches!(life, ProcessState::Killed | ProcessState::Off) {
            (one.is_registered, one.is_read, one.lease_left) = (false, false, 0);
        }
    }

    /// The node loses its power. A ready backup has all that is safe.
    fn lose_state(&mut self, shard: u8, node: u8) {
        let kernel = self.holder(shard, node).kernel;
        let one = self.shard(shard);
        let part = one.record.as_ref().map_or(Part::None, |record| record.part(&node));
        let other = one.record.as_ref().and_then(|record| record.other(&node).copied());
        let is_whole =
            |node: u8| self.node(node).life != ProcessState::Off && self.holder(shard, node).is_settled;
        let is_saved =
            one.record.as_ref().and_then(ShardRecord::phase) == Some(READY) && other.is_some_and(is_whole);
        if part != Part::None && !is_saved {
            self.shard_mut(shard).safe = [None; PORTS];
        }
        *self.holder_mut(shard, node) = Holder { kernel, ..Holder::cold() };
    }

    fn come_back(&mut self, scenario: &Scenario, node: u8) {
        let promised = TIMING.promised_claim_ms(&scenario.rules) as u8;
        let one = self.node_mut(node);
        let was = std::mem::replace(&mut one.life, ProcessState::Alive);
        (one.kernel_left, one.gone_for) = (0, None);
        match was {
            ProcessState::Alive => {}
            ProcessState::Stopped => one.is_stale = true,
            ProcessState::Killed | ProcessState::Off => {
                one.process += 1;
                one.boot_left = promised;
                one.seen.fill(Seen::default());
            }
        }
        for shard in 0..self.shards.len() as u8 {
            let holder = self.holder_mut(shard, node);
            holder.kernel = [None; PORTS];
            if was == ProcessState::Killed {
                *holder = Holder {
                    known: holder.known.clone(),
                    revision: holder.revision,
                    pending: holder.pending.clone(),
                    is_settled: holder.is_settled,
                    ports: holder.ports.map(Port::restarted),
                    ..Holder::cold()
                };
            }
        }
        if was == ProcessState::Killed {
            self.use_all_rights(scenario, node);
        }
    }

    fn tick(&mut self, scenario: &Scenario, wrong: Option<WrongClock>) {
        self.left.drift -= u8::from(wrong.is_some());
        for registration in &mut self.registrations {
            registration.lease_left = registration.lease_left.saturating_sub(1);
        }
        for node in 0..scenario.nodes {
            let ticks = match wrong {
                Some(clock) if clock.node == node => 2 * u8::from(clock.is_fast),
                _ => 1,
            };
            self.node_mut(node).tick(ticks);
            for shard in 0..self.shards.len() as u8 {
                self.holder_mut(shard, node).tick(ticks);
                if self.acts(node) {
                    self.use_rights(scenario, shard, node);
                }
                // Without its kernel, a process that does not run translates nothing.
                if self.node(node).kernel_left == 0 {
                    self.holder_mut(shard, node).kernel = [None; PORTS];
                }
            }
        }
        for node in 0..scenario.nodes {
            self.keep_registered(scenario, node);
        }
        for packet in self.shards.iter_mut().flat_map(|shard| &mut shard.packets) {
            if let Body::Asked { ago } | Body::Promised { ago, .. } = &mut packet.body {
                *ago = (*ago + 1).min(LEASE.max(HOLD));
            }
        }
    }
}

impl State {
    /// A node renews its registration and reads the map all the time, unless it is cut off or stopped.
    fn keep_registered(&mut self, scenario: &Scenario, node: u8) {
        if !self.acts(node) || self.node(node).is_cut {
            return;
        }
        if self.node(node).is_registered {
            self.renew(node);
        }
        if !self.node(node).is_registered {
            self.register(node);
        }
        self.see(scenario, node);
    }
}

impl Node {
    fn tick(&mut self, ticks: u8) {
        self.kernel_left = self.kernel_left.saturating_sub(1);
        self.lease_left = self.lease_left.saturating_sub(ticks);
        self.boot_left = self.boot_left.saturating_sub(ticks);
        let seen = self.seen.iter_mut().map(|seen| &mut seen.absent_for);
        for counted in seen.chain([&mut self.gone_for]).flatten() {
            *counted = (*counted + ticks).min(TICKS_MAX);
        }
    }
}

impl Holder {
    fn tick(&mut self, ticks: u8) {
        for left in [
            &mut self.hold_left,
            &mut self.promise_left,
            &mut self.promised_claim,
            &mut self.promised_removal,
        ] {
            *left = left.saturating_sub(ticks);
        }
    }
}
