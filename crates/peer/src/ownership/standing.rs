//! Rights of a member in a shard.

use super::rules::Rules;

/// One of the two members of a shard, in the order of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Member {
    /// Owner of the shard in the first epoch.
    First,
    /// Its backup.
    Second,
}

impl Member {
    /// Returns the other member.
    pub fn other(self) -> Member {
        match self {
            Member::First => Member::Second,
            Member::Second => Member::First,
        }
    }

    /// Returns its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Member::First => "a",
            Member::Second => "b",
        }
    }
}

/// Part of the public ports of a shard. A port belongs to one range in every configuration of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Range {
    /// Ports of the owner, whoever that is.
    Shared,
    /// Ports that only this member ever assigns: it needs nobody for it, also in a split network.
    Of(Member),
}

/// Generation of the ownership. A higher number replaces a lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch {
    /// Number, from 1 on; 0 for a member that knows none.
    pub number: u32,
    /// Owner.
    pub owner: Member,
}

impl Epoch {
    /// Highest number. No record and no file has a higher one.
    pub const NUMBER_MAX: u32 = u32::MAX - 1;

    /// Returns the next epoch, which has this owner. `None` after the last one.
    fn next(self, owner: Member) -> Option<Epoch> {
        let number = self.number.checked_add(1).filter(|number| *number <= Epoch::NUMBER_MAX)?;
        Some(Epoch { number, owner })
    }
}

/// Source of an owner's right to the shared range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Authority {
    /// Pair: ownership changes by a release or by the operator's word, and never by time.
    Pair,
    /// Cluster: the coordinator grants epochs.
    Cluster {
        /// The coordinator's lease has not expired.
        is_leased: bool,
        /// The other member's promise to assign nothing has not expired.
        is_promised: bool,
        /// An own promise, from the time as backup, has not expired.
        has_promised: bool,
    },
}

/// Knowledge of a member about itself and a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Standing {
    /// The member.
    pub me: Member,
    /// Latest epoch that it knows.
    pub epoch: Epoch,
    /// False after a start without state, until it has read the other member's state or knows that there is
    /// none.
    pub is_settled: bool,
    /// True if the operator has said that the other member is off and has lost its state.
    pub peer_is_gone: bool,
    /// Source of its right.
    pub authority: Authority,
}

impl Standing {
    /// Returns whether the member may act at all: translate, assign ports, send its state.
    pub fn may_act(&self, rules: &Rules) -> bool {
        self.is_settled || !rules.wait_for_state
    }

    /// Returns whether the member owns the shared range at this moment.
    pub fn has_right(&self, rules: &Rules) -> bool {
        let owns = self.epoch.owner == self.me;
        match self.authority {
            Authority::Pair => owns,
            Authority::Cluster { is_leased, is_promised, has_promised } => {
                owns && (is_leased || is_promised || !rules.lease) && !(has_promised && rules.keep_promise)
            }
        }
    }

    /// Returns whether the member may assign a free port of a range.
    pub fn may_assign(&self, rules: &Rules, range: Range) -> bool {
        self.may_act(rules)
            && match range {
                Range::Shared => self.has_right(rules) || !rules.owner_assigns,
                Range::Of(member) => member == self.me || !rules.own_range,
            }
    }

    /// Returns whether the member has to end the mappings of the shared range that the other one has not
    /// acknowledged: another owner may assign their ports. In a pair the right never expires; a member that
    /// learns of another owner has released the shard after these mappings were sent.
    pub fn must_revoke(&self, rules: &Rules) -> bool {
        rules.revoke && matches!(self.authority, Authority::Cluster { .. }) && !self.has_right(rules)
    }

    /// Gives the shard to the other member. Returns the epoch to send, after the records of all own
    /// mappings, or `None` if the member does not own the shard or has no peer.
    pub fn release(&mut self, rules: &Rules) -> Option<Epoch> {
        let has_peer = !self.peer_is_gone && self.authority == Authority::Pair;
        if !self.may_act(rules) || !self.has_right(rules) || !has_peer {
            return None;
        }
        self.epoch = self.epoch.next(self.me.other())?;
        Some(self.epoch)
    }

    /// Becomes the only member, because the operator has said that the other one is off and has lost its
    /// state, and its kernel's lease has ended. The caller closes the connection. In a cluster the
    /// coordinator grants ownership, and the word frees only ports that wait for the other member.
    pub fn seize(&mut self) {
        self.peer_is_gone = true;
        self.is_settled = true;
        if self.authority == Authority::Pair {
            let last = Epoch { owner: self.me, ..self.epoch };
            self.epoch = self.epoch.next(self.me).unwrap_or(last);
        }
    }

    /// Adopts an epoch that the other member or the coordinator has sent, if it is newer.
    pub fn learn(&mut self, epoch: Epoch) {
        if epoch.number > self.epoch.number {
            self.epoch = epoch;
        }
    }
}

/// Revision of the configuration, for mappings that need no owner: static bindings and deterministic ports.
/// Both members compute them, so both translate them, as long as they use the same revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Revision {
    /// Revision that this member uses: a hash of the sections that both must have in common.
    own: u64,
    /// True if the other member has used the same revision, knowing that this one does.
    is_agreed: bool,
    /// Number of the record that tells the other member of the revision.
    told: Option<u64>,
}

impl Revision {
    /// Creates the state after a start with a revision that nobody has agreed to.
    pub fn new(own: u64) -> Revision {
        Revision { own, is_agreed: false, told: None }
    }

    /// Returns the revision that this member uses.
    pub fn own(&self) -> u64 {
        self.own
    }

    /// Returns whether the other member has used the same revision, knowing that this one does.
    pub fn is_agreed(&self) -> bool {
        self.is_agreed
    }

    /// Returns the number of the record that tells the other member of the revision.
    pub fn report(&self) -> Option<u64> {
        self.told
    }

    /// Uses another revision. The mappings that it changes have ended before. `told` is the number of the
    /// record that reports it.
    pub fn change(&mut self, own: u64, told: Option<u64>) {
        if own != self.own {
            *self = Revision { own, is_agreed: false, told };
        }
    }

    /// A record with the whole state, with this number, tells the other member.
    pub fn told(&mut self, number: u64) {
        self.told = Some(number);
    }

    /// The process has restarted with its state, without the numbers of its records.
    pub fn restarted(&mut self) {
        self.told = None;
    }

    /// Notes the revision that the other member has reported when it had accepted all records up to `seen`.
    /// A report that has crossed the own one on its way means nothing: the other member may have changed its
    /// revision since.
    pub fn heard(&mut self, rules: &Rules, of_peer: u64, seen: u64) {
        let knows_own = self.told.is_some_and(|told| told <= seen) || !rules.agree_in_turn;
        self.is_agreed |= of_peer == self.own && knows_own;
    }

    /// Returns whether mappings that the own revision has changed may begin.
    pub fn may_begin(&self, rules: &Rules, standing: &Standing) -> bool {
        standing.may_act(rules) && (standing.peer_is_gone || self.is_agreed || !rules.agree)
    }
}
