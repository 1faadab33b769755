//! State of a shard at a node, and what has to happen next.

use super::saved::SavedShard;
use super::{Node, NodeEngines, side};
use crate::coordination::{CoordinationSettings, Order, Rights, ShardStatus};
use crate::record::{NodeName, Part, Phase, ShardRecord};
use crate::transitions::needs_right;
use gatun_nat::standby::PeerLink;
use gatun_peer::member::SharedShard;
use gatun_peer::ownership::Member as Side;

/// Ports that the node may assign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    None,
    /// Its own range.
    Own(Side),
    /// Its own range, and that of the owner.
    Shared(Side),
    /// All: nobody else holds the shard.
    All,
}

impl Share {
    fn has_shared(self) -> bool {
        matches!(self, Share::Shared(_) | Share::All)
    }
}

/// Rights of the engines to a shard. Times are ends, ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) link: PeerLink,
    pub(super) share: Share,
    pub(super) assign_until: u64,
    pub(super) translate_until: u64,
}

const NOTHING: Grant =
    Grant { link: PeerLink::Away, share: Share::None, assign_until: 0, translate_until: 0 };

/// State of a shard.
#[derive(Debug)]
pub(super) struct ShardState {
    seat: u64,
    relation: u64,
    pub(super) has_state: bool,
    pub(super) has_dropped: bool,
    /// Everything has to be dropped.
    pub(super) needs_drop: bool,
    /// The knowledge of a former holder has to be forgotten.
    pub(super) needs_forget: bool,
    /// The same, because the other holder has lost its state.
    pub(super) needs_fresh: bool,
    /// Mappings that the other holder does not know have to end: it may own the shard.
    pub(super) needs_revoke: bool,
    /// Member that has been told of the relation.
    related: Option<usize>,
    /// Member whose present work may concern the shard.
    leaving: Option<(usize, u64)>,
    /// Slot that gets the records.
    pub(super) assigned: Option<usize>,
    /// Time at which the other holder was connected last, or became one.
    pub(super) joined_ms: u64,
    /// Number of the last connection in the relation.
    joins: u64,
    /// Rights that the engines have.
    pub(super) engine: Option<Grant>,
    pub(super) wanted: Grant,
    /// True if the engines have lost it, because of another plan.
    pub(super) is_unset: bool,
    /// End of the time for which the node may go on with mappings that the backup does not know, if it may
    /// have some.
    pub(super) claimable_until: Option<u64>,
    /// True if the backup could claim the shard at the last look.
    was_claimable: bool,
    /// True if nobody knows which mappings the backup does not know.
    pub(super) is_unsure: bool,
    /// Things that the next process needs to know, as of the last look.
    noted: (bool, bool, bool),
    /// The backup has acknowledged everything, for a release.
    was_told: bool,
}

impl ShardState {
    /// State in a process that has just started. `number` tells the numbers of the other nodes.
    pub(super) fn new(
        now_ms: u64,
        of: &CoordinationSettings,
        saved: &SavedShard,
        number: &dyn Fn(&NodeName) -> Option<usize>,
    ) -> ShardState {
        let pending = saved.pending.as_ref().map(|(record, _)| record);
        let mut records = saved.record.iter().chain(pending);
        let other = saved.record.as_ref().and_then(|record| record.other(&of.me));
        let could_be_claimed = |record: &ShardRecord<NodeName>| {
            record.part(&of.me) == Part::Owner && needs_right(&of.rules, record)
        };
        ShardState {
            seat: 0,
            relation: 0,
            has_state: saved.has_state,
            has_dropped: false,
            needs_drop: !saved.has_state,
            needs_forget: saved.has_state && saved.needs_forget,
            needs_fresh: false,
            needs_revoke: false,
            related: None,
            leaving: None,
            assigned: other.and_then(number),
            joined_ms: now_ms,
            joins: 0,
            engine: None,
            wanted: NOTHING,
            is_unset: false,
            claimable_until: None,
            was_claimable: false,
            noted: (false, false, false),
            // Its records may have been on their way. A backup assigns ports of its own range alone.
            is_unsure: saved.has_state && (saved.is_unsure || records.any(could_be_claimed)),
            was_told: false,
        }
    }

    /// Returns what the next process needs to know: whether the node has the state, whether the other holder
    /// may own the shard without all of it, and whether something has to be forgotten.
    pub(super) fn saved(&self) -> (bool, bool, bool) {
        let is_unsure = self.is_unsure || self.needs_revoke || self.claimable_until.is_some();
        (self.has_state, is_unsure, self.needs_forget || self.needs_fresh)
    }

    /// Returns whether the engines assign no shared port.
    pub(super) fn is_lowered(&self) -> bool {
        self.engine.is_some_and(|grant| !grant.share.has_shared())
    }

    /// Returns whether the engines assign shared ports.
    pub(super) fn may_assign(&self, now_ms: u64) -> bool {
        self.engine.is_some_and(|grant| grant.share.has_shared() && now_ms < grant.assign_until)
    }

    /// Time for which the engines translate, ms.
    pub(super) fn translate_ms(&self, now_ms: u64) -> u64 {
        let until = self.engine.filter(|_| self.has_state).map_or(0, |grant| grant.translate_until);
        until.saturating_sub(now_ms)
    }

    pub(super) fn translates(&self, now_ms: u64) -> bool {
        self.translate_ms(now_ms) > 0
    }

    /// Returns whether the engines have link and ports as wanted. Fences change all the time.
    fn is_set(&self) -> bool {
        let same = |grant: &Grant| (grant.link, grant.share) == (self.wanted.link, self.wanted.share);
        self.engine.as_ref().is_some_and(same) && !self.is_unset
    }

    /// Returns whether a pass over the shard's sessions may begin.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_set() && self.leaving.is_none()
    }

    fn is_clean(&self) -> bool {
        !self.needs_drop && !self.needs_forget && self.leaving.is_none()
    }
}

/// Record, rights and relation of a shard at one moment.
struct Look {
    status: ShardStatus,
    rights: Rights,
    /// Number of the other holder, if the configuration has it.
    number: Option<usize>,
    /// Side of this node, if there is another holder.
    side: Option<Side>,
    phase: Option<Phase>,
    shared: SharedShard,
}

impl Node {
    /// Relation to the other holder of a shard.
    pub(super) fn shared(&self, shard: u8) -> SharedShard {
        let related = self.shards[usize::from(shard)].related;
        related.map(|number| self.others[number].member.shared(shard)).unwrap_or_default()
    }

    /// Another plan: the engines have no rights, and know no link.
    pub(super) fn plan_changed(&mut self) {
        self.shards.iter_mut().for_each(|state| state.is_unset = true);
    }

    /// Follows the record and the rights of a shard.
    pub(super) fn follow(&mut self, now_ms: u64, shard: u8, engines: &mut dyn NodeEngines) {
        let look = self.look_at(shard);
        self.note_record(now_ms, shard, &look);
        self.note_state(now_ms, shard, &look);
        self.note_unsure(shard, &look);
        self.note_claim(now_ms, shard, &look);
        self.shards[usize::from(shard)].wanted = self.wanted(now_ms, shard, &look);
        self.relate(now_ms, shard, &look, engines);
        let state = &mut self.shards[usize::from(shard)];
        let saved = state.saved();
        self.version += u64::from(std::mem::replace(&mut state.noted, saved) != saved);
    }

    fn look_at(&self, shard: u8) -> Look {
        let (status, rights) = (self.coordination.shard(shard), self.coordination.rights(shard));
        let me = &self.coordination.settings().me;
        let other = status.record.as_ref().and_then(|record| record.other(me));
        let number = other.and_then(|name| self.others.iter().position(|other| other.name == *name));
        let side = other.map(|other| side(me, other));
        let phase = status.record.as_ref().and_then(|record| record.phase());
        Look { number, side, phase, shared: self.shared(shard), status, rights }
    }

    /// Notes what another record has ended.
    fn note_record(&mut self, now_ms: u64, shard: u8, look: &Look) {
        let state = &mut self.shards[usize::from(shard)];
        if state.seat != look.status.seat {
            state.seat = look.status.seat;
            (state.needs_drop, state.has_state) = (true, false);
        }
        if state.relation != look.status.relation {
            state.relation = look.status.relation;
            (state.needs_forget, state.needs_fresh) = (true, false);
            (state.joined_ms, state.joins) = (now_ms, 0);
        }
        match look.status.order {
            Order::Drop if !state.has_dropped => (state.needs_drop, state.has_state) = (true, false),
            Order::Drop => {}
            Order::Keep | Order::Tell => state.has_dropped = false,
        }
        if state.needs_drop {
            (state.claimable_until, state.needs_revoke) = (None, false);
            (state.is_unsure, state.was_told) = (false, false);
        }
    }

    /// Notes whether the node has the shard's state.
    fn note_state(&mut self, now_ms: u64, shard: u8, look: &Look) {
        let state = &mut self.shards[usize::from(shard)];
        let shared = &look.shared;
        if shared.is_joined {
            state.joined_ms = now_ms;
        }
        if shared.is_joined && state.joins != shared.joins {
            state.joins = shared.joins;
            state.needs_fresh |= !shared.has_state_there && state.has_state;
        }
        if state.has_state || state.needs_drop {
            return;
        }
        let owns = look.rights.part == Part::Owner;
        let is_first = owns && shared.is_joined && !shared.has_state_there;
        let is_alone = owns && look.side.is_none();
        state.has_state = is_alone || is_first || shared.is_received && shared.is_reserved;
    }

    /// Finds out what the process before this one may have told in vain.
    fn note_unsure(&mut self, shard: u8, look: &Look) {
        let state = &mut self.shards[usize::from(shard)];
        if !state.is_unsure {
            return;
        }
        let is_known = match state.assigned {
            Some(number) => !self.others[number].member.unsure().contains(shard),
            // The configuration may lack the other holder.
            None => look.side.is_none(),
        };
        match look.rights.part {
            _ if is_known => state.is_unsure = false,
            // Nobody could claim it.
            Part::Owner if !look.rights.can_be_claimed => state.is_unsure = false,
            // The other holder has claimed it with all that it knew, and may have assigned ports of the rest.
            Part::Backup(_) if look.shared.is_joined => {
                state.is_unsure = false;
                if look.shared.has_state_there {
                    (state.needs_drop, state.has_state) = (true, false);
                }
            }
            Part::Owner | Part::Backup(_) => {}
            Part::None => state.is_unsure = false,
        }
    }

    /// Time before the end of a right in which its consequences are drawn, ms.
    fn lead_ms(&self) -> u64 {
        u64::from(self.coordination.settings().timing.timing.lease_ms / 16)
    }

    /// Notes whether somebody else may own the shard, so that what it does not know has to end.
    fn note_claim(&mut self, now_ms: u64, shard: u8, look: &Look) {
        let (lead_ms, rules) = (self.lead_ms(), self.coordination.settings().rules);
        let state = &mut self.shards[usize::from(shard)];
        let Look { rights, status, shared, .. } = look;
        if status.order == Order::Tell {
            state.was_told |= shared.is_told && state.is_lowered();
        } else if rights.part == Part::Owner {
            state.was_told = false;
        }
        let could_be_claimed = std::mem::replace(&mut state.was_claimable, rights.can_be_claimed);
        match rights.part {
            Part::Owner if rights.can_be_claimed => {
                // Lowered engines have what they assigned before it could be claimed.
                let may_have_untold = state.has_state && !(could_be_claimed && state.is_lowered());
                if state.claimable_until.is_some() || may_have_untold {
                    state.claimable_until = Some(rights.keep_until);
                }
                let is_over = state.claimable_until.is_some_and(|until| until <= now_ms + lead_ms);
                state.needs_revoke |= is_over && !state.is_unsure && rules.revoke;
            }
            // Nobody else can claim it.
            Part::Owner if look.side.is_none() => (state.claimable_until, state.needs_revoke) = (None, false),
            Part::Owner if !state.needs_revoke => state.claimable_until = None,
            Part::Owner => {}
            Part::Backup(_) if state.claimable_until.is_some() => {
                match state.was_told {
                    true => state.claimable_until = None,
                    false => state.needs_revoke |= rules.revoke,
                }
                state.was_told = false;
            }
            Part::Backup(_) => {}
            Part::None => (state.claimable_until, state.needs_revoke) = (None, false),
        }
    }

    /// Returns what the engines should be allowed.
    fn wanted(&mut self, now_ms: u64, shard: u8, look: &Look) -> Grant {
        let (lead_ms, rules) = (self.lead_ms(), self.coordination.settings().rules);
        let tried = |number: usize| {
            let member = &self.others[number].member;
            member.has_tried(shard) && member.shared(shard).is_reserved
        };
        let is_reserved = look.number.is_none_or(tried);
        let state = &mut self.shards[usize::from(shard)];
        let Look { rights, status, phase, shared, .. } = look;
        let is_live = state.is_clean()
            && !state.needs_fresh
            && state.related.is_some()
            && state.joins > 0
            && state.joins == shared.joins
            && *phase != Some(Phase::Leaving)
            && now_ms < state.joined_ms + self.away_ms;
        let link = if is_live { PeerLink::Live } else { PeerLink::Away };
        if !state.has_state || rights.part == Part::None || state.needs_drop || status.order == Order::Drop {
            return Grant { link, ..NOTHING };
        }
        let owns = rights.part == Part::Owner;
        let may_share = owns
            && now_ms + lead_ms < rights.assign_until
            && status.order != Order::Tell
            && !state.needs_revoke
            && is_reserved;
        let is_raised = owns && !rules.lower_first && *phase != Some(Phase::Ready);
        let share = match look.side {
            None => Share::All,
            Some(_) if is_raised => Share::All,
            Some(side) if may_share => Share::Shared(side),
            Some(side) => Share::Own(side),
        };
        if share.has_shared() && owns && rights.can_be_claimed {
            state.claimable_until.get_or_insert(rights.keep_until);
        }
        let is_limited = (state.claimable_until.is_some() || state.is_unsure) && rules.revoke;
        let mut translate_until = match rights.part {
            Part::Owner if is_limited => rights.keep_until.min(rights.translate_until),
            Part::Backup(_) if state.is_unsure => 0,
            _ => rights.translate_until,
        };
        if state.needs_revoke {
            translate_until = translate_until.min(state.engine.map_or(0, |grant| grant.translate_until));
        }
        let assign_until = if share.has_shared() { rights.assign_until } else { translate_until };
        if !rules.fence {
            return Grant { link, share, assign_until: u64::MAX, translate_until: u64::MAX };
        }
        Grant { link, share, assign_until: assign_until.min(translate_until), translate_until }
    }

    /// Begins or ends the relation to the other holder.
    fn relate(&mut self, now_ms: u64, shard: u8, look: &Look, engines: &mut dyn NodeEngines) {
        let rules = self.coordination.settings().rules;
        let seats = look.number.and_then(|number| self.seats(shard, number));
        let state = &mut self.shards[usize::from(shard)];
        if let Some((number, begun)) = state.leaving
            && self.others[number].member.is_done(begun)
        {
            state.leaving = None;
        }
        let is_low = state.engine.is_some_and(|grant| grant.share != Share::All || !rules.lower_first);
        let wants = seats.is_some() && look.phase != Some(Phase::Leaving);
        let is_over = !wants || state.needs_drop || state.needs_forget;
        if is_over && let Some(number) = state.related.take() {
            let member = &mut self.others[number].member;
            member.set_live(shard, false);
            member.report_all(shard, false);
            member.set_relation(now_ms, shard, None, false);
            state.leaving = Some((number, member.begun()));
        }
        if state.is_clean() && state.assigned != look.number {
            state.assigned = look.number;
            engines.assign(shard, look.number);
        }
        let Some(number) = look.number.filter(|_| !is_over && is_low && state.is_clean()) else { return };
        state.related = Some(number);
        let reports = look.status.order == Order::Tell && state.is_lowered();
        let member = &mut self.others[number].member;
        member.set_relation(now_ms, shard, seats, state.has_state);
        let is_live = state.engine.is_some_and(|grant| grant.link == PeerLink::Live)
            && state.wanted.link == PeerLink::Live
            && state.joins == member.shared(shard).joins;
        member.set_live(shard, is_live);
        member.report_all(shard, reports);
    }

    /// Gives the records of all shards to their slots, once.
    pub(super) fn assign_first(&mut self, engines: &mut dyn NodeEngines) {
        if self.places.is_none() {
            for (shard, state) in (0..=u8::MAX).zip(&self.shards) {
                engines.assign(shard, state.assigned);
            }
        }
    }
}
