//! Reasons why a session of another process is not restored.

/// Reason why a session cannot be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NotRestored {
    /// The session expired meanwhile.
    Over,
    /// Its instance no longer exists, or no longer serves its inside host or its prefix.
    NotServed,
    /// Its public address or port is no longer in its pool, or belongs to another subscriber.
    NotInPool,
    /// The session already exists.
    There,
    /// Its inside end has another public end, or another subscriber shares its port.
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

    /// Name in metrics.
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

    /// Text that continues after a number of sessions.
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
