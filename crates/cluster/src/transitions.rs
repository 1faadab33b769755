//! Changes of a shard's record. Each function returns the new record, or `None` if the change is not allowed
//! now. The caller writes it by compare-and-swap: if the record is still the one that it was made from, and,
//! where a function says so, if the registration of another node is absent.
//!
//! | change | by | function |
//! |---|---|---|
//! | the first record | first node of the target | [`create`] |
//! | a backup is chosen | owner | [`choose_backup`] |
//! | the backup has everything | owner | [`ready`] |
//! | the backup is away | owner | [`not_ready`] |
//! | the backup has to leave | owner | [`leaving`] |
//! | the backup leaves | backup | [`leave`] |
//! | a dead backup is removed | owner | [`remove`] |
//! | a dead owner is replaced | ready backup | [`claim`] |
//! | an owner that translates nothing is replaced | backup, or any node if there is none | [`take`] |
//! | the owner gives the shard away | owner | [`release`] |
//! | an owner without state gives it away | owner | [`yield_to_backup`] |

use crate::record::{Backup, Part, Phase, Seat, ShardRecord};
use crate::rules::ClusterRules;
use crate::timing::ClusterTiming;

/// Knowledge of a node about another holder that it wants to replace. Times are ms of its own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Absence {
    /// Time since it first saw that the registration is absent; `None` if it is there or unknown.
    pub absent_ms: Option<u32>,
    /// Remaining time of the own promise not to claim the other one's shards.
    pub promised_claim_ms: u32,
    /// Remaining time of the own promise not to remove it.
    pub promised_removal_ms: u32,
    /// Time since the operator has said that the node is off and has lost its state.
    pub gone_ms: Option<u32>,
}

impl Absence {
    /// Returns whether the node has no right to shared ports any more, and translates no mapping that its
    /// backup does not know.
    pub fn has_lost_right(&self, rules: &ClusterRules, timing: &ClusterTiming) -> bool {
        self.is_gone(rules, timing)
            || self.is_absent(rules, timing.claim_ms(rules))
                && (self.promised_claim_ms == 0 || !rules.promise)
    }

    /// Returns whether the node translates nothing any more.
    pub fn has_lost_hold(&self, rules: &ClusterRules, timing: &ClusterTiming) -> bool {
        self.is_gone(rules, timing)
            || self.is_absent(rules, timing.removal_ms(rules))
                && (self.promised_removal_ms == 0 || !rules.promise)
    }

    fn is_absent(&self, rules: &ClusterRules, for_ms: u32) -> bool {
        self.absent_ms.is_some_and(|ms| ms >= for_ms) || !rules.absent
    }

    /// The kernel of a node that is off may translate until its lease ends.
    fn is_gone(&self, rules: &ClusterRules, timing: &ClusterTiming) -> bool {
        self.gone_ms.is_some_and(|ms| ms >= timing.margin_ms(rules))
    }
}

/// The first record of a shard that nobody has any state of.
pub fn create<N: PartialEq>(owner: N) -> ShardRecord<N> {
    ShardRecord { epoch: 1, owner: Seat { node: owner, since: 1 }, backup: None }
}

/// The owner wants another node as its backup.
pub fn choose_backup<N: Clone + PartialEq>(
    record: &ShardRecord<N>,
    me: &N,
    node: N,
) -> Option<ShardRecord<N>> {
    let may = record.part(me) == Part::Owner && record.backup.is_none() && node != *me;
    let since = record.next_epoch().filter(|_| may)?;
    let seat = Seat { node, since };
    Some(ShardRecord { epoch: since, backup: Some(Backup { seat, phase: Phase::Filling }), ..record.clone() })
}

/// The backup has everything. `is_synced`: both have acknowledged each other's whole state on the present
/// connection. `has_right`: the owner has a lease or a promise, which it needs from now on.
pub fn ready<N: Clone + PartialEq>(
    rules: &ClusterRules,
    record: &ShardRecord<N>,
    me: &N,
    (is_synced, has_right): (bool, bool),
) -> Option<ShardRecord<N>> {
    let may = record.part(me) == Part::Owner
        && record.phase() == Some(Phase::Filling)
        && (is_synced || !rules.synced)
        && (has_right || !rules.right);
    may.then(|| record.with_phase(Phase::Ready)).flatten()
}

/// The backup may lack something from now on, so it may not claim the shard. In return, the owner needs
/// neither lease nor promise.
pub fn not_ready<N: Clone + PartialEq>(record: &ShardRecord<N>, me: &N) -> Option<ShardRecord<N>> {
    let may = record.part(me) == Part::Owner && record.phase() == Some(Phase::Ready);
    may.then(|| record.with_phase(Phase::Filling)).flatten()
}

/// The owner wants another backup. `has_state`: an owner that has lost its state needs that of the backup.
pub fn leaving<N: Clone + PartialEq>(
    rules: &ClusterRules,
    record: &ShardRecord<N>,
    me: &N,
    has_state: bool,
) -> Option<ShardRecord<N>> {
    let may = record.part(me) == Part::Owner && (has_state || !rules.state_first);
    may.then(|| record.with_phase(Phase::Leaving)).flatten()
}

/// The backup leaves. `has_dropped`: it translates nothing of the shard and has none of its sessions.
pub fn leave<N: Clone + PartialEq>(
    rules: &ClusterRules,
    record: &ShardRecord<N>,
    me: &N,
    has_dropped: bool,
) -> Option<ShardRecord<N>> {
    let may = record.part(me) == Part::Backup(Phase::Leaving) && (has_dropped || !rules.drop_first);
    may.then(|| record.alone())
}

/// The owner removes a backup that translates nothing any more. The write compares that the backup's
/// registration is absent.
pub fn remove<N: Clone + PartialEq>(
    (rules, timing): (&ClusterRules, &ClusterTiming),
    record: &ShardRecord<N>,
    me: &N,
    absence: &Absence,
) -> Option<ShardRecord<N>> {
    let may =
        record.part(me) == Part::Owner && record.backup.is_some() && absence.has_lost_hold(rules, timing);
    may.then(|| record.alone())
}

/// The backup owns the shard, because the owner has lost its right. The former owner is a backup that does
/// not have everything. The write compares that the owner's registration is absent.
pub fn claim<N: Clone + PartialEq>(
    (rules, timing): (&ClusterRules, &ClusterTiming),
    record: &ShardRecord<N>,
    me: &N,
    absence: &Absence,
) -> Option<ShardRecord<N>> {
    let is_ready = match record.part(me) {
        Part::Backup(phase) => phase == Phase::Ready || !rules.ready,
        Part::Owner | Part::None => return None,
    };
    let may = is_ready && absence.has_lost_right(rules, timing);
    may.then(|| record.exchanged(Phase::Filling)).flatten()
}

/// The node owns the shard, because the owner translates nothing any more. The backup may do that, whatever
/// it has; any node may if there is no backup. The write compares that the owner's registration is absent.
pub fn take<N: Clone + PartialEq>(
    (rules, timing): (&ClusterRules, &ClusterTiming),
    record: &ShardRecord<N>,
    me: &N,
    absence: &Absence,
) -> Option<ShardRecord<N>> {
    let may = match record.part(me) {
        Part::Backup(_) => true,
        Part::None => record.backup.is_none(),
        Part::Owner => false,
    };
    let epoch = record.next_epoch().filter(|_| may && absence.has_lost_hold(rules, timing))?;
    let since = record.since(me).unwrap_or(epoch);
    Some(ShardRecord { epoch, owner: Seat { node: me.clone(), since }, backup: None })
}

/// The owner gives the shard to its backup. `is_told`: it assigns no shared port any more, and the backup has
/// acknowledged all its mappings.
pub fn release<N: Clone + PartialEq>(
    rules: &ClusterRules,
    record: &ShardRecord<N>,
    me: &N,
    is_told: bool,
) -> Option<ShardRecord<N>> {
    let may = record.part(me) == Part::Owner
        && record.phase() == Some(Phase::Ready)
        && (is_told || !rules.told_first);
    may.then(|| record.exchanged(Phase::Ready)).flatten()
}

/// An owner that has lost its state gives the shard to its backup, which has everything. It has not assigned
/// or translated anything since its start.
pub fn yield_to_backup<N: Clone + PartialEq>(
    record: &ShardRecord<N>,
    me: &N,
    has_state: bool,
) -> Option<ShardRecord<N>> {
    let may = record.part(me) == Part::Owner && record.phase() == Some(Phase::Ready) && !has_state;
    may.then(|| record.exchanged(Phase::Filling)).flatten()
}

/// Returns whether the owner of a shard needs a lease or a promise for shared ports: somebody could claim the
/// shard.
pub fn needs_right<N: Clone + PartialEq>(rules: &ClusterRules, record: &ShardRecord<N>) -> bool {
    rules.right && record.phase() == Some(Phase::Ready)
}
