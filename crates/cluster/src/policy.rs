//! Next change that a node makes to a shard: which of the allowed [`transitions`](crate::transitions) brings
//! the shard closer to its [`Target`].
//!
//! Safety does not depend on it. Each node decides for the shards that it owns, and for those whose owner it
//! replaces, so no two nodes have to agree.

use crate::record::{Part, Phase, ShardRecord};
use crate::rules::ClusterRules;
use crate::target::Target;
use crate::timing::ClusterTiming;
use crate::transitions::{
    Absence, choose_backup, claim, create, leave, leaving, not_ready, ready, release, remove, take,
    yield_to_backup,
};

/// Change of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// [`create`]
    Create,
    /// [`choose_backup`]
    ChooseBackup,
    /// [`ready`]
    Ready,
    /// [`not_ready`]
    NotReady,
    /// [`leaving`]
    Leaving,
    /// [`leave`]
    Leave,
    /// [`remove`]
    Remove,
    /// [`claim`]
    Claim,
    /// [`take`]
    Take,
    /// [`release`]
    Release,
    /// [`yield_to_backup`]
    Yield,
}

impl Change {
    /// Returns whether the write compares that the registration of the other holder is absent.
    pub fn needs_absence(self) -> bool {
        matches!(self, Change::Remove | Change::Claim | Change::Take)
    }
}

/// Next thing that a node does for a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<N> {
    /// Nothing.
    Nothing,
    /// It writes another record.
    Write(Change, ShardRecord<N>),
    /// It stops assigning shared ports, and tells the backup everything: it will release the shard.
    Tell,
    /// It drops all that it has of the shard: it will leave.
    Drop,
}

/// Facts about a shard that a node knows.
#[derive(Clone, Debug)]
pub struct Facts<'a, N> {
    /// The node.
    pub me: &'a N,
    /// Nodes that should have the shard.
    pub target: Option<&'a Target<N>>,
    /// Absence of the other holder; of the owner, if this node is none.
    pub absence: Absence,
    /// True if the other holder is registered and connected.
    pub is_other_here: bool,
    /// True if the connection to the other holder was lost for long.
    pub is_other_away: bool,
    /// True if both have acknowledged each other's whole state.
    pub is_synced: bool,
    /// True if this node has a lease or a promise.
    pub has_right: bool,
    /// True if this node has the shard's state.
    pub has_state: bool,
    /// True if it assigns no shared port any more, and the backup has acknowledged everything.
    pub is_told: bool,
    /// True if it has dropped everything.
    pub has_dropped: bool,
    /// True if the node may begin another move of a shard.
    pub may_move: bool,
}

/// Returns what a node does next for a shard. `is_here` tells whether a node can become a backup now.
pub fn next<N: Clone + PartialEq>(
    (rules, timing): (&ClusterRules, &ClusterTiming),
    record: Option<&ShardRecord<N>>,
    facts: &Facts<'_, N>,
    is_here: &dyn Fn(&N) -> bool,
) -> Next<N> {
    let Some(record) = record else {
        return match facts.target {
            Some(target) if target.first == *facts.me => {
                Next::Write(Change::Create, create(facts.me.clone()))
            }
            _ => Next::Nothing,
        };
    };
    let write =
        |change: Change, record: Option<ShardRecord<N>>| record.map(|record| Next::Write(change, record));
    let me = facts.me;
    let step = match record.part(me) {
        Part::Owner => of_owner((rules, timing), record, facts, is_here),
        Part::Backup(Phase::Leaving) if !facts.has_dropped => Some(Next::Drop),
        Part::Backup(Phase::Leaving) => write(Change::Leave, leave(rules, record, me, facts.has_dropped)),
        Part::Backup(_) => {
            let claimed = claim((rules, timing), record, me, &facts.absence);
            // Without the state, it waits until the owner translates nothing any more.
            write(Change::Claim, claimed.filter(|_| facts.has_state))
                .or_else(|| write(Change::Take, take((rules, timing), record, me, &facts.absence)))
        }
        Part::None if facts.target.is_some_and(|target| target.first == *me) => {
            write(Change::Take, take((rules, timing), record, me, &facts.absence))
        }
        Part::None => None,
    };
    step.unwrap_or(Next::Nothing)
}

fn of_owner<N: Clone + PartialEq>(
    (rules, timing): (&ClusterRules, &ClusterTiming),
    record: &ShardRecord<N>,
    facts: &Facts<'_, N>,
    is_here: &dyn Fn(&N) -> bool,
) -> Option<Next<N>> {
    let me = facts.me;
    let write =
        |change: Change, record: Option<ShardRecord<N>>| record.map(|record| Next::Write(change, record));
    let yielded = write(Change::Yield, yield_to_backup(record, me, facts.has_state));
    let removed = || write(Change::Remove, remove((rules, timing), record, me, &facts.absence));
    if let Some(step) = yielded.or_else(removed) {
        return Some(step);
    }
    if !facts.has_state {
        return None;
    }
    let Some(backup) = &record.backup else {
        let target = facts.target?;
        let node =
            [Some(&target.first), target.second.as_ref()].into_iter().flatten().find(|node| *node != me)?;
        return is_here(node)
            .then(|| write(Change::ChooseBackup, choose_backup(record, me, node.clone())))?;
    };
    if backup.phase == Phase::Ready && facts.is_other_away {
        return write(Change::NotReady, not_ready(record, me));
    }
    if let Some(step) = facts.target.and_then(|target| to_target(rules, record, facts, target, is_here)) {
        return Some(step);
    }
    match backup.phase {
        Phase::Filling => write(Change::Ready, ready(rules, record, me, (facts.is_synced, facts.has_right))),
        Phase::Ready | Phase::Leaving => None,
    }
}

/// Returns the owner's next step to the target, if the backup is here.
fn to_target<N: Clone + PartialEq>(
    rules: &ClusterRules,
    record: &ShardRecord<N>,
    facts: &Facts<'_, N>,
    target: &Target<N>,
    is_here: &dyn Fn(&N) -> bool,
) -> Option<Next<N>> {
    let me = facts.me;
    let backup = record.backup.as_ref().filter(|_| facts.is_other_here)?;
    let keeps_backup = target.contains(&backup.seat.node);
    let keeps_me =
        target.first == *me || target.second.as_ref() == Some(me) && target.first != backup.seat.node;
    match backup.phase {
        Phase::Ready if keeps_backup && !keeps_me => {
            let released = release(rules, record, me, facts.is_told);
            Some(released.map_or(Next::Tell, |record| Next::Write(Change::Release, record)))
        }
        Phase::Ready | Phase::Filling if !keeps_backup && facts.may_move => {
            let missing = [Some(&target.first), target.second.as_ref()].into_iter().flatten();
            let has_next = missing.filter(|node| *node != me).any(is_here);
            has_next
                .then(|| leaving(rules, record, me, facts.has_state))
                .flatten()
                .map(|record| Next::Write(Change::Leaving, record))
        }
        _ => None,
    }
}
