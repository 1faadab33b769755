//! Requests of a node to the engines: links, rights and fences of shards, and passes over their sessions.
//! Fences have to be renewed in time, so a pass is done in parts.

use super::shard::{Grant, ShardState, Share};
use super::{Node, NodeEngines};
use gatun_nat::feed::Record;
use gatun_nat::standby::{Fence, OutsideFlow, PeerAction, PeerCommand, PeerLink, PortRight, StandbySweep};
use gatun_nat::{FeedCursor, Instant, ShardSet};
use gatun_peer::member::{
    AddressRange, EngineAnswer, EngineRequest, Engines, OpenRequests, for_all, parts_of_pass,
};
use gatun_peer::ownership::Rules;

/// Thing that the engines do for the node.
enum Work {
    Setup(Vec<(u8, Grant)>),
    Part,
    /// Ends of sessions that the other holders of these shards may not know.
    Revoke(ShardSet),
}

/// Pass over all sessions of some shards.
struct RunningSweep {
    sweep: StandbySweep,
    shards: ShardSet,
    cursors: Vec<FeedCursor>,
    /// Numbers of times that each member had read its feeds when the pass was done.
    reads: Option<Vec<u64>>,
}

/// Requests of a node to the engines.
#[derive(Default)]
pub(super) struct ShardRequests {
    requests: OpenRequests,
    work: Option<Work>,
    pass: Option<RunningSweep>,
}

impl Node {
    /// Takes the engines' answers. Returns whether something is done.
    pub(super) fn keeper_turn(&mut self, now_ms: u64, engines: &mut dyn Engines) -> bool {
        for worker in 0..engines.workers() {
            while let Some((_, record)) = engines.next_record(worker) {
                if record == Record::PlanChanged {
                    self.plan_changed();
                    self.look_ms = now_ms;
                }
            }
        }
        let keeper = &mut self.keeper;
        keeper.requests.submit_again(engines);
        while let Some((worker, answer)) = keeper.requests.answer(engines) {
            if let (EngineAnswer::Pass(at), Some(pass)) = (answer, &mut keeper.pass) {
                pass.cursors[worker] = at;
            }
        }
        if !keeper.requests.is_empty() {
            return false;
        }
        match keeper.work.take() {
            None => return false,
            Some(Work::Setup(grants)) => {
                for (shard, grant) in grants {
                    self.shards[usize::from(shard)].engine = Some(grant);
                }
            }
            Some(Work::Part) => {}
            Some(Work::Revoke(shards)) => self.revoked(shards),
        }
        true
    }

    /// Begins what is next.
    pub(super) fn keeper_begins(&mut self, now_ms: u64, engines: &mut dyn NodeEngines) {
        if self.keeper.work.is_some() {
            return;
        }
        let own = self.others.len();
        if self.begin_setup(engines.of(own)) {
            return;
        }
        if self.keeper.pass.is_none() {
            self.keeper.pass = self.next_pass(engines.of(own).workers());
        }
        let Some(pass) = &mut self.keeper.pass else { return };
        let parts = parts_of_pass(pass.sweep, pass.shards, &pass.cursors);
        if !parts.is_empty() {
            self.keeper.work = Some(Work::Part);
            self.keeper.requests.submit(engines.of(own), parts);
            return;
        }
        // The records of before are read before anything of the shards is forgotten.
        let reads =
            pass.reads.get_or_insert_with(|| self.others.iter().map(|other| other.member.reads()).collect());
        if reads.iter().zip(&self.others).any(|(before, other)| other.member.reads() <= *before) {
            return;
        }
        if let Some(RunningSweep { sweep, shards, .. }) = self.keeper.pass.take() {
            self.passed(sweep, shards, engines.of(own));
            self.look_ms = now_ms;
        }
    }

    /// Passes links, rights and fences to the engines, if they have changed.
    fn begin_setup(&mut self, engines: &mut dyn Engines) -> bool {
        let differs = |state: &ShardState| state.is_unset || state.engine != Some(state.wanted);
        let changed: Vec<(u8, Grant)> = (0..=u8::MAX)
            .zip(&self.shards)
            .filter(|(_, state)| differs(state))
            .map(|(shard, state)| (shard, state.wanted))
            .collect();
        if changed.is_empty() {
            return false;
        }
        let mut commands = Vec::new();
        for link in [PeerLink::Away, PeerLink::Live] {
            let shards = changed.iter().filter(|(_, grant)| grant.link == link);
            let shards: ShardSet = shards.map(|(shard, _)| *shard).collect();
            if !shards.is_empty() {
                commands.push(PeerCommand::new(PeerAction::Link(shards, link)));
            }
        }
        for range in &self.addresses {
            let Some(state) = self.shards.get_mut(range.shard) else { continue };
            let is_same = state.engine.is_some_and(|grant| grant.share == state.wanted.share);
            if !is_same || state.is_unset {
                let right = right(range, state.wanted.share, self.own_ports);
                commands.push(PeerCommand::new(PeerAction::Right(range.first, range.last, right)));
            }
        }
        let mut times: Vec<_> =
            changed.iter().map(|(_, grant)| (grant.assign_until, grant.translate_until)).collect();
        times.sort_unstable();
        times.dedup();
        for (assign, translate) in times {
            let same = |(_, grant): &&(u8, Grant)| {
                (grant.assign_until, grant.translate_until) == (assign, translate)
            };
            let shards = changed.iter().filter(same).map(|(shard, _)| *shard).collect();
            let end = |ms: u64| (ms != u64::MAX).then_some(Instant(ms));
            let fence = Fence { assign: end(assign), translate: end(translate) };
            commands.push(PeerCommand::new(PeerAction::Until(shards, fence)));
        }
        changed.iter().for_each(|(shard, _)| self.shards[usize::from(*shard)].is_unset = false);
        self.keeper.work = Some(Work::Setup(changed));
        let requests = for_all(&*engines, &commands);
        self.keeper.requests.submit(engines, requests);
        true
    }

    /// Returns the next pass: several shards with the same need are one.
    fn next_pass(&self, workers: usize) -> Option<RunningSweep> {
        type Need = fn(&ShardState) -> bool;
        let needs: [(StandbySweep, Need); 3] = [
            (StandbySweep::Revoke, |state| state.needs_revoke && state.is_lowered()),
            (StandbySweep::Drop, |state| state.needs_drop),
            (StandbySweep::ForgetPeer, |state| state.needs_forget || state.needs_fresh),
        ];
        needs.into_iter().find_map(|(sweep, need)| {
            let due = (0..=u8::MAX).zip(&self.shards).filter(|(_, state)| need(state) && state.is_quiet());
            let shards: ShardSet = due.map(|(shard, _)| shard).collect();
            let cursors = vec![FeedCursor::default(); workers];
            (!shards.is_empty()).then_some(RunningSweep { sweep, shards, cursors, reads: None })
        })
    }

    /// A pass is done, and its records are read.
    fn passed(&mut self, sweep: StandbySweep, shards: ShardSet, engines: &mut dyn Engines) {
        if sweep == StandbySweep::Revoke {
            self.begin_revoke(shards, engines);
            return;
        }
        for (number, other) in self.others.iter_mut().enumerate() {
            let assigned = |shard: &u8| self.shards[usize::from(*shard)].assigned == Some(number);
            other.member.forget(shards.iter().filter(assigned).collect());
        }
        for shard in shards.iter() {
            let drops = self.coordination.shard(shard).order == crate::coordination::Order::Drop;
            let state = &mut self.shards[usize::from(shard)];
            if sweep == StandbySweep::Drop {
                (state.needs_drop, state.has_dropped) = (false, drops);
            }
            (state.needs_forget, state.needs_fresh) = (false, false);
        }
    }

    /// Ends the sessions that the other holders were told of and have not acknowledged. They are told again.
    fn begin_revoke(&mut self, shards: ShardSet, engines: &mut dyn Engines) {
        let mut known = vec![ShardSet::NONE; self.others.len()];
        for shard in shards.iter() {
            let state = &mut self.shards[usize::from(shard)];
            match state.assigned.filter(|number| !self.others[*number].member.unsure().contains(shard)) {
                Some(number) => known[number].insert(shard),
                // Nobody knows which ones: the shard waits for a right.
                None => state.is_unsure = true,
            }
        }
        let mut lists = vec![Vec::new(); engines.workers()];
        for (other, shards) in self.others.iter().zip(known).filter(|(_, shards)| !shards.is_empty()) {
            let flows = other.member.unacknowledged(shards).into_iter();
            for flow in flows.filter(|flow| !self.keeps(flow)) {
                if let Some(worker) = engines.owner_of_address(flow.outside.0) {
                    lists[worker].push(PeerCommand::new(PeerAction::Revoke(flow)));
                }
            }
        }
        let some = lists.into_iter().enumerate().filter(|(_, commands)| !commands.is_empty());
        let requests: Vec<_> =
            some.map(|(worker, commands)| (worker, EngineRequest::Commands(commands))).collect();
        self.keeper.work = Some(Work::Revoke(shards));
        self.keeper.requests.submit(engines, requests);
    }

    /// Returns whether a flow has a port that the node has a right to.
    fn keeps(&self, flow: &OutsideFlow) -> bool {
        let (address, port) = flow.outside;
        let range = self.addresses.iter().find(|range| (range.first..=range.last).contains(&address));
        range.zip(range.and_then(|range| self.shards.get(range.shard))).is_some_and(|(range, state)| {
            let right = right(range, state.wanted.share, self.own_ports);
            (right.first..=right.last).contains(&port)
        })
    }

    fn revoked(&mut self, shards: ShardSet) {
        for shard in shards.iter() {
            let state = &mut self.shards[usize::from(shard)];
            (state.needs_revoke, state.claimable_until) = (false, None);
        }
    }
}

/// Right to the ports of some addresses.
fn right(range: &AddressRange, share: Share, own_ports: u16) -> PortRight {
    let of = |side, is_owner| range.right(&Rules::default(), side, own_ports, is_owner);
    match share {
        Share::None => PortRight::NONE,
        Share::Own(side) => of(side, false),
        Share::Shared(side) => of(side, true),
        Share::All => PortRight { first: range.ports.0, last: range.ports.1, is_owner: true },
    }
}
