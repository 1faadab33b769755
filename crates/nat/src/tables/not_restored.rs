//! Reasons why a session of another process is not taken over.

/// Why a session cannot be had again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NotRestored {
    /// Its time was up meanwhile.
    Over,
    /// Its instance is there no more, or serves its inside host or its prefix no longer.
    NotServed,
    /// Its public address or port is not its pool's any more, or another subscriber's.
    NotInPool,
    /// It is there already.
    There,
    /// Its inside end has another public one, or its port is shared by another subscriber's.
    Taken,
    /// A table is full.
    Full,
}

impl NotRestored {
    /// All reasons.
    pub const ALL: [NotRestored; 6] = [
        NotRestored::Over,
        NotRestored::NotServed,
        NotRestored::NotInPool,
        NotRestored::There,
        NotRestored::Taken,
        NotRestored::Full,
    ];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            NotRestored::Over => "over",
            NotRestored::NotServed => "not_served",
            NotRestored::NotInPool => "not_in_pool",
            NotRestored::There => "there",
            NotRestored::Taken => "taken",
            NotRestored::Full => "full",
        }
    }

    /// In words that go on from a number of sessions.
    pub fn help(self) -> &'static str {
        match self {
            NotRestored::Over => "whose time was up",
            NotRestored::NotServed => "of instances, hosts or prefixes that are served no longer",
            NotRestored::NotInPool => "whose public address or port is not their pool's any more",
            NotRestored::There => "that were there already",
            NotRestored::Taken => "whose inside port has another public one by now",
            NotRestored::Full => "for which a table has no room",
        }
    }
}
