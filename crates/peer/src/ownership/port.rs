//! State of one public port, or of one block of ports, at a member.

use super::rules::Rules;

/// Knowledge of the other member about a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Knowledge {
    /// It does not know the mapping: no record was made.
    Unaware,
    /// It may know the mapping: it may have been told by the process that had the state before.
    Unsure,
    /// The record with this number tells it.
    Told(u64),
    /// It knows the mapping.
    Aware,
}

/// State of a port at a member. `U` is its user: a subscriber, for a block; an inside host, for a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Port<U> {
    /// Nobody uses it, as far as this member knows.
    #[default]
    Free,
    /// A user has it; the member translates its packets.
    Held {
        /// User.
        user: U,
        /// Knowledge of the other member.
        peer: Knowledge,
    },
    /// The mapping has ended here. The other member may still translate it.
    Freed {
        /// Former user.
        user: U,
        /// Number of the record that tells the other member; `None` if there is no such record yet.
        told: Option<u64>,
    },
}

impl<U: Copy + PartialEq> Port<U> {
    /// Returns the user for whom the member translates packets of the port.
    pub fn user(&self) -> Option<U> {
        match *self {
            Port::Held { user, .. } => Some(user),
            Port::Free | Port::Freed { .. } => None,
        }
    }

    /// Returns whether the other member has acknowledged the mapping.
    pub fn is_acknowledged(&self) -> bool {
        matches!(self, Port::Held { peer: Knowledge::Aware, .. })
    }

    /// Ends the mapping at this member. `told` is the number of the record that reports the end. Returns
    /// `Free` if the other member cannot know the mapping.
    pub fn end(self, rules: &Rules, peer_is_gone: bool, told: Option<u64>) -> Port<U> {
        match self {
            Port::Held { peer: Knowledge::Unaware, .. } => Port::Free,
            Port::Held { .. } if peer_is_gone || !rules.wait_for_release => Port::Free,
            Port::Held { user, .. } => Port::Freed { user, told },
            Port::Free | Port::Freed { .. } => self,
        }
    }

    /// The other member has handled all records up to a number.
    pub fn acknowledged(self, number: u64) -> Port<U> {
        match self {
            Port::Held { user, peer: Knowledge::Told(told) } if told <= number => {
                Port::Held { user, peer: Knowledge::Aware }
            }
            Port::Freed { told: Some(told), .. } if told <= number => Port::Free,
            _ => self,
        }
    }

    /// A record that contains the whole state, with this number, tells the other member: by the mapping, or
    /// by its absence.
    pub fn told(self, number: u64) -> Port<U> {
        match self {
            Port::Held { user, peer: Knowledge::Unaware | Knowledge::Unsure | Knowledge::Told(_) } => {
                Port::Held { user, peer: Knowledge::Told(number) }
            }
            Port::Freed { user, .. } => Port::Freed { user, told: Some(number) },
            Port::Free | Port::Held { .. } => self,
        }
    }

    /// The other member is gone, and knows nothing.
    pub fn peer_gone(self) -> Port<U> {
        match self {
            Port::Held { user, .. } => Port::Held { user, peer: Knowledge::Unaware },
            Port::Free | Port::Freed { .. } => Port::Free,
        }
    }

    /// The process has restarted with its state, without the numbers of its records.
    pub fn restarted(self) -> Port<U> {
        match self {
            Port::Held { user, .. } => Port::Held { user, peer: Knowledge::Unsure },
            Port::Freed { user, .. } => Port::Freed { user, told: None },
            Port::Free => Port::Free,
        }
    }

    /// The other member has reported a mapping, when it had accepted all records up to `seen`. `is_older`
    /// is true if the report belongs to an older epoch than the one that this member knows.
    ///
    /// If both have ended or begun the port meanwhile: a mapping that the other one keeps although it knows
    /// of the end begins again. One that has crossed the end on its way does not, and the end has to be told
    /// again: the result then is `Freed` without a number. A mapping of a newer epoch replaces one that was
    /// never acknowledged.
    pub fn begun(self, rules: &Rules, user: U, seen: u64, is_older: bool) -> Port<U> {
        let aware = Port::Held { user, peer: Knowledge::Aware };
        match self {
            Port::Free => aware,
            Port::Held { user: other, .. } | Port::Freed { user: other, .. } if other != user => {
                if is_older && rules.newer_epoch_wins { self } else { aware }
            }
            Port::Held { .. } => aware,
            Port::Freed { told, .. } => {
                let knows_end = told.is_some_and(|told| told <= seen);
                match knows_end || !rules.end_wins {
                    true => aware,
                    false if rules.end_again => Port::Freed { user, told: None },
                    false => self,
                }
            }
        }
    }

    /// The other member has ended the mapping of a user.
    pub fn ended(self, rules: &Rules, of: U) -> Port<U> {
        match self {
            Port::Held { user, .. } if user == of || !rules.newer_epoch_wins => Port::Free,
            _ => self,
        }
    }

    /// The other member has sent its whole state, when it had accepted all records up to `seen`: with this
    /// user of the port, or with none. Otherwise as [`Port::begun`]. A mapping that it once knew, and does
    /// not have, has ended there.
    pub fn walked(self, rules: &Rules, user: Option<U>, seen: u64, is_older: bool) -> Port<U> {
        match (user, self) {
            (Some(user), _) => self.begun(rules, user, seen, is_older),
            (None, Port::Held { peer: Knowledge::Aware, .. }) => Port::Free,
            (None, Port::Held { peer: Knowledge::Told(told), .. }) if told <= seen => Port::Free,
            (None, _) => self,
        }
    }
}
