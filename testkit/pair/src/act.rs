//! Actions that are possible in a state, and the next state.

use super::scenario::{ProcessState, Scenario, TIMING};
use super::state::{
    Action, Body, Change, Message, MessageKind, PLACES, PORTS, RANGES, Shard, Side, State, WrongClock,
};
use gatun_peer::ownership::{Epoch, Port};

/// Messages between the members of a shard and the coordinator at a time.
const MESSAGES: usize = 2;

/// Adds the possible actions.
pub(super) fn possible(scenario: &Scenario, state: &State, actions: &mut Vec<Action>) {
    for node in 0..scenario.nodes {
        of_node(scenario, state, node, actions);
    }
    for shard in 0..scenario.shards.len() as u8 {
        of_network(scenario, state, shard, actions);
        for side in 0..2 {
            if state.is_alive(scenario, shard, side) {
                of_member(scenario, state, shard, side, actions);
                if scenario.is_cluster {
                    of_cluster_member(scenario, state, shard, side, actions);
                }
            }
        }
    }
    if state.has_timer(scenario) {
        actions.push(Action::Tick { wrong: None });
        let clocks = (0..scenario.shards.len() as u8).flat_map(|shard| [(shard, 0), (shard, 1)]);
        for (shard, side) in clocks.filter(|_| state.left.drift > 0) {
            for is_fast in [false, true] {
                actions.push(Action::Tick { wrong: Some(WrongClock { shard, side, is_fast }) });
            }
        }
    }
}

fn of_node(scenario: &Scenario, state: &State, node: u8, actions: &mut Vec<Action>) {
    let one = &state.nodes[usize::from(node)];
    let left = &state.left;
    match one.life {
        ProcessState::Alive => {
            if left.crashes > 0 {
                actions.extend(scenario.lives.iter().map(|life| Action::Crash { node, life: *life }));
            }
            if left.changes > 0 {
                actions.push(Action::Reload { node });
            }
        }
        ProcessState::Stopped | ProcessState::Killed | ProcessState::Off => {
            actions.push(Action::Return { node })
        }
    }
    if scenario.is_cluster && left.cuts > 0 && !one.is_cut {
        actions.push(Action::CutCoordinator { node });
    }
    if one.is_cut {
        actions.push(Action::HealCoordinator { node });
    }
}

fn of_network(scenario: &Scenario, state: &State, shard: u8, actions: &mut Vec<Action>) {
    let one = state.shard(shard);
    if one.is_cut {
        actions.push(Action::Heal { shard });
    } else {
        for to in (0..2).filter(|to| state.is_alive(scenario, shard, *to)) {
            of_queue(state, shard, to, actions);
        }
        let are_alive = [0, 1].iter().all(|side| state.is_alive(scenario, shard, *side));
        if are_alive && state.left.connects > 0 && one.sides.iter().all(|side| side.link.is_none()) {
            actions.push(Action::Connect { shard });
        }
        if state.left.cuts > 0 {
            actions.push(Action::Cut { shard });
        }
    }
    for (place, message) in (0u8..).zip(&one.messages) {
        let node = &state.nodes[usize::from(scenario.node(shard, message.side))];
        let arrives = message.kind != MessageKind::Granted || node.life == ProcessState::Alive;
        if !node.is_cut && arrives {
            actions.push(Action::DeliverMessage { shard, place });
        }
        if state.left.losses > 0 {
            actions.push(Action::LoseMessage { shard, place });
        }
    }
}

/// Adds the deliveries of a queue: the oldest packet of each connection, or a packet that overtakes others.
fn of_queue(state: &State, shard: u8, to: u8, actions: &mut Vec<Action>) {
    let mut seen = vec![];
    for (place, packet) in (0u8..).zip(&state.shard(shard).queues[usize::from(to)]) {
        let is_first = !seen.contains(&packet.connection);
        if state.left.losses > 0 {
            actions.push(Action::Lose { shard, to, place });
        } else if !is_first {
            continue;
        }
        seen.push(packet.connection);
        actions.push(Action::Deliver { shard, to, place, keeps: false });
        let Body::Entry(entry) = &packet.body else { continue };
        let Change::Ended { port, user } = entry.record.change else { continue };
        let is_held = state.side(shard, to).ports[usize::from(port)].user() == Some(user);
        if is_held && state.left.ports > 0 {
            actions.push(Action::Deliver { shard, to, place, keeps: true });
        }
    }
}

fn of_member(scenario: &Scenario, state: &State, shard: u8, side: u8, actions: &mut Vec<Action>) {
    let member = state.side(shard, side);
    let standing = member.standing(scenario, side);
    let rules = &scenario.rules;
    for port in 0..scenario.ports {
        let place = usize::from(port);
        if state.left.ports == 0 {
            break;
        }
        if member.ports[place] == Port::Free && standing.may_assign(rules, RANGES[place]) {
            // The next user is always another one: the same one cannot break a promise.
            let user = state.shard(shard).next_users[place];
            actions.push(Action::Assign { shard, side, port, user });
        }
        if member.ports[place].user().is_some() && standing.may_act(rules) {
            actions.push(Action::End { shard, side, port });
        }
    }
    if member.link.is_some() && (state.left.breaks > 0 || state.is_broken(scenario, shard, side)) {
        actions.push(Action::Break { shard, side });
    }
    if member.link.is_some() && member.out.needs_walk() && standing.may_act(rules) {
        actions.push(Action::Walk { shard, side });
    }
    if state.left.changes > 0 && member.link.is_some() && { standing }.release(rules).is_some() {
        actions.push(Action::Release { shard, side });
    }
    let peer_is_off = state.life(scenario, shard, 1 - side) == ProcessState::Off;
    if peer_is_off && !member.peer_is_gone && member.word_left.is_none() {
        actions.push(Action::Word { shard, side });
    }
}

fn of_cluster_member(scenario: &Scenario, state: &State, shard: u8, side: u8, actions: &mut Vec<Action>) {
    let member = state.side(shard, side);
    let standing = member.standing(scenario, side);
    if !standing.may_act(&scenario.rules) {
        return;
    }
    let is_owner = standing.epoch.owner == standing.me;
    let messages = &state.shard(shard).messages;
    let has_message = messages.iter().any(|message| message.side == side);
    if messages.len() < MESSAGES
        && !has_message
        && !state.nodes[usize::from(scenario.node(shard, side))].is_cut
    {
        let coordinator = &state.shard(shard).coordinator;
        let may_renew = coordinator.expired_for.is_none() || coordinator.epoch != member.epoch;
        if is_owner && may_renew && member.lease_left < TIMING.lease_ms as u8 {
            actions.push(Action::Renew { shard, side });
        }
        let expired = coordinator.expired_for;
        let may_claim = !is_owner || member.lease_left == 0;
        if may_claim && state.left.grants > 0 && TIMING.may_grant(&scenario.rules, expired.map(u32::from)) {
            actions.push(Action::Claim { shard, side });
        }
    }
    let queue = &state.shard(shard).queues[usize::from(1 - side)];
    let has_asked = |body: &Body| matches!(body, Body::Asked { .. } | Body::Promised { .. });
    let is_asking =
        queue.iter().chain(&state.shard(shard).queues[usize::from(side)]).any(|p| has_asked(&p.body));
    if is_owner && member.link.is_some() && !is_asking && member.promise_left == 0 && state.left.promises > 0
    {
        actions.push(Action::Ask { shard, side });
    }
}

impl State {
    /// Returns whether anything changes as time passes.
    fn has_timer(&self, scenario: &Scenario) -> bool {
        // The coordinator's leases always end.
        scenario.is_cluster
            || self.nodes.iter().any(|node| node.kernel_left > 0)
            || self.shards.iter().any(|shard| shard.sides.iter().any(Side::has_timer))
    }

    /// Carries an action out.
    pub(super) fn act(&mut self, scenario: &Scenario, action: Action) {
        match action {
            Action::Assign { shard, side, port, user } => {
                self.left.ports -= 1;
                self.shard_mut(shard).next_users[usize::from(port)] = 1 - user;
                self.begin(shard, side, port, user);
            }
            Action::End { shard, side, port } => {
                self.left.ports -= 1;
                self.end(scenario, shard, side, port);
            }
            Action::Lose { shard, to, place } => {
                self.left.losses -= 1;
                self.shard_mut(shard).queues[usize::from(to)].remove(place.into());
            }
            Action::Deliver { shard, to, place, keeps } => {
                self.left.losses -= u8::from(self.overtakes(shard, to, place));
                self.left.ports -= u8::from(keeps);
                self.deliver(scenario, shard, to, place, keeps);
            }
            Action::Break { shard, side } => {
                self.left.breaks -= u8::from(!self.is_broken(scenario, shard, side));
                self.side_mut(shard, side).link = None;
            }
            Action::Connect { shard } => {
                self.left.connects -= 1;
                self.connect(scenario, shard);
            }
            Action::Walk { shard, side } => self.walk(scenario, shard, side),
            Action::Release { shard, side } => self.release(scenario, shard, side),
            Action::Word { shard, side } => {
                self.side_mut(shard, side).word_left = Some(TIMING.word_ms(&scenario.rules) as u8);
                self.believe(scenario, shard, side);
            }
            Action::Reload { node } => self.reload(scenario, node),
            Action::Crash { node, life } => self.crash(scenario, node, life),
            Action::Return { node } => self.come_back(scenario, node),
            Action::Cut { shard } => {
                self.left.cuts -= 1;
                self.shard_mut(shard).is_cut = true;
            }
            Action::CutCoordinator { node } => {
                self.left.cuts -= 1;
                self.nodes[usize::from(node)].is_cut = true;
            }
            Action::Heal { shard } => self.shard_mut(shard).is_cut = false,
            Action::HealCoordinator { node } => self.nodes[usize::from(node)].is_cut = false,
            Action::Renew { shard, side } => self.write(shard, side, MessageKind::Renew),
            Action::Claim { shard, side } => self.write(shard, side, MessageKind::Claim),
            Action::Ask { shard, side } => {
                self.left.promises -= 1;
                self.send(shard, side, Body::Asked { ago: 0 });
            }
            Action::DeliverMessage { shard, place } => self.deliver_message(scenario, shard, place),
            Action::LoseMessage { shard, place } => {
                self.left.losses -= 1;
                self.shard_mut(shard).messages.remove(place.into());
            }
            Action::Tick { wrong } => self.tick(scenario, wrong),
        }
        self.drop_packets(scenario);
    }

    /// Drops packets of connections that their receiver has closed: nobody would accept them any more.
    fn drop_packets(&mut self, scenario: &Scenario) {
        if !scenario.rules.one_connection {
            return;
        }
        let State { nodes, shards, .. } = self;
        for (shard, members) in shards.iter_mut().zip(&scenario.shards) {
            let Shard { sides, queues, .. } = shard;
            for ((queue, side), node) in queues.iter_mut().zip(sides).zip(members) {
                let life = nodes[usize::from(*node)].life;
                let runs = matches!(life, ProcessState::Alive | ProcessState::Stopped);
                queue.retain(|packet| runs && side.link == Some(packet.connection));
            }
        }
    }

    /// Returns whether a member closes its connection without another fault: its other end is closed, or an
    /// acknowledgement does not come.
    fn is_broken(&self, scenario: &Scenario, shard: u8, side: u8) -> bool {
        let runs =
            matches!(self.life(scenario, shard, 1 - side), ProcessState::Alive | ProcessState::Stopped);
        let is_half_open = self.side(shard, side).link != self.side(shard, 1 - side).link;
        let is_overdue = self.side(shard, side).out.log().len() > 0
            && self.shard(shard).queues.iter().all(|queue| queue.is_empty());
        !runs || is_half_open || is_overdue
    }

    /// Returns whether an earlier packet of the same connection waits.
    fn overtakes(&self, shard: u8, to: u8, place: u8) -> bool {
        let queue = &self.shard(shard).queues[usize::from(to)];
        let place = usize::from(place);
        queue[..place].iter().any(|packet| packet.connection == queue[place].connection)
    }

    fn release(&mut self, scenario: &Scenario, shard: u8, side: u8) {
        self.left.changes -= 1;
        let member = self.side_mut(shard, side);
        let mut standing = member.standing(scenario, side);
        if let Some(epoch) = standing.release(&scenario.rules) {
            member.epoch = epoch;
            self.push(shard, side, Change::Note);
        }
    }

    /// Uses the operator's word if its time has come.
    fn believe(&mut self, scenario: &Scenario, shard: u8, side: u8) {
        let member = self.side_mut(shard, side);
        if member.word_left != Some(0) {
            return;
        }
        let mut standing = member.standing(scenario, side);
        standing.seize();
        member.word_left = None;
        member.epoch = standing.epoch;
        member.is_settled = standing.is_settled;
        member.peer_is_gone = standing.peer_is_gone;
        member.ports = member.ports.map(|port| port.peer_gone());
        member.out.restart();
        if scenario.rules.close_with_word {
            member.link = None;
        }
    }

    fn reload(&mut self, scenario: &Scenario, node: u8) {
        self.left.changes -= 1;
        for (shard, side) in scenario.members(node) {
            let member = self.side_mut(shard, side);
            let own = 1 - member.revision.own();
            member.revision.change(own, None);
            let number = self.push(shard, side, Change::Note);
            if let Some(number) = number {
                self.side_mut(shard, side).revision.told(number);
            }
        }
    }

    fn crash(&mut self, scenario: &Scenario, node: u8, life: ProcessState) {
        self.left.crashes -= 1;
        self.nodes[usize::from(node)].life = life;
        self.nodes[usize::from(node)].kernel_left = TIMING.kernel_ms as u8;
        for (shard, side) in scenario.members(node) {
            let other = self.side(shard, 1 - side);
            let other_is_whole =
                self.life(scenario, shard, 1 - side) != ProcessState::Off && other.is_settled;
            let member = self.side_mut(shard, side);
            member.kernel = member.translations(scenario, side);
            if life == ProcessState::Off {
                member.ports = [Port::Free; PORTS];
                member.is_settled = false;
                if !other_is_whole {
                    self.shard_mut(shard).safe = [None; PORTS];
                }
            }
        }
    }

    fn come_back(&mut self, scenario: &Scenario, node: u8) {
        let was = self.nodes[usize::from(node)].life;
        // Another process has to expect that the one before has made a promise.
        let promised_left = if scenario.is_cluster { TIMING.promise_ms(&scenario.rules) as u8 } else { 0 };
        self.nodes[usize::from(node)].life = ProcessState::Alive;
        self.nodes[usize::from(node)].kernel_left = 0;
        for (shard, side) in scenario.members(node) {
            let member = self.side_mut(shard, side);
            member.kernel = [None; PLACES];
            match was {
                ProcessState::Alive => {}
                ProcessState::Stopped => {
                    self.believe(scenario, shard, side);
                    self.revoke(scenario, shard, side);
                }
                ProcessState::Killed => {
                    let cold = Side::cold(scenario, member.process + 1);
                    member.revision.restarted();
                    *member = Side {
                        epoch: member.epoch,
                        is_settled: member.is_settled,
                        peer_is_gone: member.peer_is_gone,
                        revision: member.revision,
                        ports: member.ports.map(|port| port.restarted()),
                        promised_left,
                        ..cold
                    };
                    self.revoke(scenario, shard, side);
                }
                ProcessState::Off => {
                    *member = Side { promised_left, ..Side::cold(scenario, member.process + 1) };
                }
            }
        }
    }

    fn write(&mut self, shard: u8, side: u8, kind: MessageKind) {
        let epoch = self.side(shard, side).epoch;
        self.shard_mut(shard).messages.push(Message { side, kind, epoch, ago: 0 });
    }

    fn deliver_message(&mut self, scenario: &Scenario, shard: u8, place: u8) {
        let State { shards, left, .. } = &mut *self;
        let one = &mut shards[usize::from(shard)];
        let message = one.messages.remove(place.into());
        let coordinator = &mut one.coordinator;
        let me = super::state::member(message.side);
        let grants = match message.kind {
            MessageKind::Renew => coordinator.epoch == message.epoch && coordinator.expired_for.is_none(),
            MessageKind::Claim => {
                let expired = coordinator.expired_for.map(u32::from);
                let may = coordinator.epoch.number == message.epoch.number
                    && left.grants > 0
                    && TIMING.may_grant(&scenario.rules, expired);
                if may {
                    left.grants -= 1;
                    coordinator.epoch = Epoch { number: message.epoch.number + 1, owner: me };
                }
                may
            }
            MessageKind::Granted => {
                self.granted(scenario, shard, message);
                return;
            }
        };
        let epoch = coordinator.epoch;
        if grants {
            coordinator.lease_left = TIMING.lease_ms as u8;
            coordinator.expired_for = None;
        }
        let is_news = grants || epoch.number > message.epoch.number || epoch.owner == me;
        if is_news {
            // Without a lease: another epoch is in force, or the own one has expired and has to be claimed.
            let ago = if grants { message.ago } else { u8::MAX };
            one.messages.push(Message { kind: MessageKind::Granted, epoch, ago, ..message });
        }
    }

    fn granted(&mut self, scenario: &Scenario, shard: u8, message: Message) {
        let side = message.side;
        let member = self.side_mut(shard, side);
        let is_new = message.epoch.number > member.epoch.number;
        member.learn(scenario, side, message.epoch);
        if member.epoch == message.epoch && message.epoch.owner == super::state::member(side) {
            member.lease_left = member.lease_left.max(TIMING.left_ms(message.ago.into()) as u8);
        }
        if is_new {
            self.push(shard, side, Change::Note);
        }
        self.revoke(scenario, shard, side);
    }

    fn tick(&mut self, scenario: &Scenario, wrong: Option<WrongClock>) {
        self.left.drift -= u8::from(wrong.is_some());
        for node in &mut self.nodes {
            node.kernel_left = node.kernel_left.saturating_sub(1);
        }
        for shard in 0..self.shards.len() as u8 {
            self.shard_mut(shard).tick();
            for side in 0..2 {
                let ticks = match wrong {
                    Some(clock) if (clock.shard, clock.side) == (shard, side) => 2 * u8::from(clock.is_fast),
                    _ => 1,
                };
                self.side_mut(shard, side).tick(ticks);
                if self.is_alive(scenario, shard, side) {
                    self.believe(scenario, shard, side);
                    self.revoke(scenario, shard, side);
                }
            }
        }
        // Without its kernel, a process that does not run translates nothing.
        for node in 0..scenario.nodes {
            if self.nodes[usize::from(node)].kernel_left == 0 {
                for (shard, side) in scenario.members(node) {
                    self.side_mut(shard, side).kernel = [None; PLACES];
                }
            }
        }
    }
}

/// Limit of the time since the end of a lease: longer than each wait.
const EXPIRED_MAX: u8 = 4;

impl Shard {
    /// Lets a tick pass for the coordinator and for messages on their way.
    fn tick(&mut self) {
        let coordinator = &mut self.coordinator;
        match coordinator.expired_for {
            Some(ticks) => coordinator.expired_for = Some((ticks + 1).min(EXPIRED_MAX)),
            None => {
                coordinator.lease_left = coordinator.lease_left.saturating_sub(1);
                coordinator.expired_for = (coordinator.lease_left == 0).then_some(0);
            }
        }
        let lease = TIMING.lease_ms as u8;
        for message in &mut self.messages {
            message.ago = message.ago.saturating_add(1).min(lease);
        }
        for packet in self.queues.iter_mut().flatten() {
            if let Body::Asked { ago } | Body::Promised { ago } = &mut packet.body {
                *ago = (*ago + 1).min(lease);
            }
        }
    }
}

impl Side {
    fn has_timer(&self) -> bool {
        self.lease_left > 0 || self.promise_left > 0 || self.promised_left > 0 || self.word_left.is_some()
    }

    fn tick(&mut self, ticks: u8) {
        for left in [&mut self.lease_left, &mut self.promise_left, &mut self.promised_left] {
            *left = left.saturating_sub(ticks);
        }
        self.word_left = self.word_left.map(|left| left.saturating_sub(ticks));
    }

    /// Adopts a newer epoch.
    pub(super) fn learn(&mut self, scenario: &Scenario, side: u8, epoch: Epoch) {
        let mut standing = self.standing(scenario, side);
        standing.learn(epoch);
        if standing.epoch != self.epoch {
            self.epoch = standing.epoch;
            self.lease_left = 0;
            self.promise_left = 0;
        }
    }
}

impl Scenario {
    /// Returns the members that a node is.
    pub(super) fn members(&self, node: u8) -> Vec<(u8, u8)> {
        let shards = (0u8..).zip(&self.shards);
        shards
            .flat_map(|(shard, nodes)| (0u8..).zip(nodes).map(move |(side, one)| (shard, side, *one)))
            .filter(|(_, _, one)| *one == node)
            .map(|(shard, side, _)| (shard, side))
            .collect()
    }
}
