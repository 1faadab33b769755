//! Actions that are possible in a state.

use super::scenario::{Scenario, TIMING};
use super::state::{Action, Body, READY, Report, State, Way, WrongClock};
use gatun_cluster::policy::Change;
use gatun_cluster::record::{Part, Phase, ShardRecord};
use gatun_cluster::transitions;
use gatun_pair_model::ProcessState;
use gatun_peer::ownership::Port;

/// All changes of a record that a node can make.
const CHANGES: [Change; 10] = [
    Change::ChooseBackup,
    Change::Ready,
    Change::NotReady,
    Change::Leaving,
    Change::Leave,
    Change::Remove,
    Change::Claim,
    Change::Take,
    Change::Release,
    Change::Yield,
];

/// Adds the possible actions.
pub(super) fn possible(scenario: &Scenario, state: &State, actions: &mut Vec<Action>) {
    for node in 0..scenario.nodes {
        of_node(scenario, state, node, actions);
    }
    for shard in 0..scenario.shards.len() as u8 {
        of_network(scenario, state, shard, actions);
        for node in (0..scenario.nodes).filter(|node| state.acts(*node)) {
            of_holder(scenario, state, (shard, node), actions);
            of_records(scenario, state, (shard, node), actions);
        }
    }
    actions.push(Action::Tick { wrong: None });
    for node in (0..scenario.nodes).filter(|_| state.left.drift > 0) {
        for is_fast in [false, true] {
            actions.push(Action::Tick { wrong: Some(WrongClock { node, is_fast }) });
        }
    }
}

fn of_node(scenario: &Scenario, state: &State, node: u8, actions: &mut Vec<Action>) {
    let (one, left) = (state.node(node), &state.left);
    match one.life {
        ProcessState::Alive if left.crashes > 0 => {
            actions.extend(scenario.lives.iter().map(|life| Action::Crash { node, life: *life }));
        }
        ProcessState::Alive => {}
        life => {
            actions.push(Action::Return { node });
            if life == ProcessState::Off && left.words > 0 && one.gone_for.is_none() {
                actions.push(Action::Word { node });
            }
        }
    }
    if one.is_stale {
        actions.push(Action::Turn { node });
    }
    match one.is_cut {
        true => actions.push(Action::HealCoordinator { node }),
        false if left.cuts > 0 => actions.push(Action::CutCoordinator { node }),
        false => {}
    }
    for other in node + 1..scenario.nodes {
        match state.is_between(node, other) {
            false => actions.push(Action::Heal { nodes: (node, other) }),
            true if left.cuts > 0 => actions.push(Action::Cut { nodes: (node, other) }),
            true => {}
        }
    }
    if one.is_cut || !state.acts(node) {
        return;
    }
    actions.push(Action::See { node });
}

fn of_network(scenario: &Scenario, state: &State, shard: u8, actions: &mut Vec<Action>) {
    let one = state.shard(shard);
    for place in 0..one.writes.len() as u8 {
        actions.push(Action::Arrive { shard, place });
    }
    let mut seen = vec![];
    for (place, packet) in (0u8..).zip(&one.packets) {
        let way = (packet.from, packet.to, packet.connection);
        let is_first = !seen.contains(&way);
        if state.left.losses > 0 {
            actions.push(Action::Lose { shard, place });
        } else if !is_first {
            continue;
        }
        seen.push(way);
        if !state.is_between(packet.from, packet.to) || !state.acts(packet.to) {
            continue;
        }
        actions.push(Action::Deliver { shard, place, keeps: false });
        let Body::Entry(entry) = &packet.body else { continue };
        let Report::Ended { port, user } = entry.record.1 else { continue };
        let is_held = state.holder(shard, packet.to).ports[usize::from(port)].user() == Some(user);
        if is_held && state.left.ports > 0 && state.has_hold(scenario, shard, packet.to) {
            actions.push(Action::Deliver { shard, place, keeps: true });
        }
    }
    for node in 0..scenario.nodes {
        let Some(other) = state.holder(shard, node).other(node).filter(|other| node < *other) else {
            continue;
        };
        if state.left.connects > 0 && state.may_connect(scenario, shard, (node, other)) {
            actions.push(Action::Connect { shard, nodes: (node, other) });
        }
    }
}

fn of_holder(scenario: &Scenario, state: &State, (shard, node): (u8, u8), actions: &mut Vec<Action>) {
    let holder = state.holder(shard, node);
    for port in (0..scenario.ports).filter(|_| state.left.ports > 0) {
        let place = usize::from(port);
        if holder.ports[place] == Port::Free && state.may_assign(scenario, shard, node, place) {
            let user = state.shard(shard).next_users[place];
            actions.push(Action::Assign { shard, node, port, user });
        }
        if holder.ports[place].user().is_some() && state.has_hold(scenario, shard, node) {
            actions.push(Action::End { shard, node, port });
        }
    }
    let Some(other) = holder.other(node) else { return };
    if holder.link.is_some() {
        if state.left.breaks > 0 || state.is_broken(shard, (node, other)) {
            actions.push(Action::Break { shard, node });
        }
        if holder.out.needs_walk() && holder.is_settled {
            actions.push(Action::Walk { shard, node });
        }
        let has_asked = |body: &Body| matches!(body, Body::Asked { .. } | Body::Promised { .. });
        let is_asking = state.shard(shard).packets.iter().any(|packet| has_asked(&packet.body));
        if state.left.promises > 0 && !is_asking {
            actions.push(Action::Ask { shard, node });
        }
    }
    let may_give = holder.part(node) == Part::Owner && !holder.gives && state.left.writes > 0;
    if holder.gives && holder.pending.is_none() {
        actions.push(Action::Keep { shard, node });
    }
    if may_give && holder.link.is_some() && holder.known.as_ref().and_then(ShardRecord::phase) == Some(READY)
    {
        actions.push(Action::Give { shard, node });
    }
    // A write whose result is not known may have made it the owner.
    let is_leaving = holder.part(node) == Part::Backup(Phase::Leaving) && holder.is_settled;
    if is_leaving && holder.pending.is_none() {
        actions.push(Action::Drop { shard, node });
    }
}

fn of_records(scenario: &Scenario, state: &State, (shard, node): (u8, u8), actions: &mut Vec<Action>) {
    let one = state.node(node);
    let is_writing = state.holder(shard, node).pending.is_some();
    if one.is_cut || !one.is_read || is_writing || state.left.writes == 0 {
        return;
    }
    for change in CHANGES {
        let others = match change {
            Change::ChooseBackup => 0..scenario.nodes,
            _ => 0..1,
        };
        for backup in others {
            if state.changed(scenario, (shard, node), change, backup).is_none() {
                continue;
            }
            actions.push(Action::Write { shard, node, change, backup, way: Way::Answered });
            if state.left.late > 0 {
                actions.push(Action::Write { shard, node, change, backup, way: Way::Unanswered });
                actions.push(Action::Write { shard, node, change, backup, way: Way::Late });
            }
        }
    }
}

impl State {
    /// Returns the record that a node may write.
    pub(super) fn changed(
        &self,
        scenario: &Scenario,
        (shard, node): (u8, u8),
        change: Change,
        backup: u8,
    ) -> Option<ShardRecord<u8>> {
        let holder = self.holder(shard, node);
        let record = holder.known.as_ref()?;
        let by = (&scenario.rules, &TIMING);
        let absence = |of: u8| self.absence(shard, node, of);
        let owner = record.owner.node;
        match change {
            Change::Create => None,
            Change::ChooseBackup => transitions::choose_backup(record, &node, backup),
            Change::Ready => {
                let facts = (holder.is_synced(), self.has_time(shard, node));
                transitions::ready(by.0, record, &node, facts).filter(|_| holder.is_settled)
            }
            Change::NotReady => transitions::not_ready(record, &node),
            Change::Leaving => transitions::leaving(by.0, record, &node, holder.is_settled),
            Change::Leave => transitions::leave(by.0, record, &node, !holder.is_settled),
            Change::Remove => transitions::remove(by, record, &node, &absence(record.other(&node).copied()?)),
            Change::Claim => {
                transitions::claim(by, record, &node, &absence(owner)).filter(|_| holder.is_settled)
            }
            Change::Take => transitions::take(by, record, &node, &absence(owner)),
            Change::Release => {
                let is_told = holder.gives && holder.is_synced();
                transitions::release(by.0, record, &node, is_told).filter(|_| holder.is_settled)
            }
            Change::Yield => transitions::yield_to_backup(record, &node, holder.is_settled),
        }
    }

    /// Returns whether a node has a lease or a promise.
    pub(super) fn has_time(&self, shard: u8, node: u8) -> bool {
        self.node(node).lease_left > 0 || self.holder(shard, node).promise_left > 0
    }

    /// Returns whether two nodes can connect for a shard: both know both as holders, and since when.
    pub(super) fn may_connect(&self, scenario: &Scenario, shard: u8, (one, other): (u8, u8)) -> bool {
        let holds = |node: u8, other: u8| {
            let holder = self.holder(shard, node);
            let phase = holder.known.as_ref().and_then(ShardRecord::phase);
            holder.other(node) == Some(other) && holder.link.is_none() && phase != Some(Phase::Leaving)
        };
        let since = |node: u8| {
            let known = self.holder(shard, node).known.as_ref();
            known.map(|record| (record.since(&one), record.since(&other)))
        };
        let agree = since(one) == since(other) || !scenario.rules.since;
        let act = self.acts(one) && self.acts(other);
        act && agree && self.is_between(one, other) && holds(one, other) && holds(other, one)
    }

    /// Returns whether a node closes its connection without another fault: its other end is closed, or an
    /// acknowledgement does not come.
    pub(super) fn is_broken(&self, shard: u8, (node, other): (u8, u8)) -> bool {
        let runs = matches!(self.node(other).life, ProcessState::Alive | ProcessState::Stopped);
        let holder = self.holder(shard, node);
        let is_half_open = holder.link != self.holder(shard, other).link;
        let is_overdue = holder.out.log().len() > 0 && self.shard(shard).packets.is_empty();
        !runs || is_half_open || is_overdue
    }
}
