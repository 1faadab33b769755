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
            NotRestored::Over => "that had expired",
            NotRestored::NotServed => "of instances, hosts or prefixes that are no longer served",
            NotRestored::NotInPool => "whose public address or port is no longer in its pool",
            NotRestored::There => "that existed already",
            NotRestored::Taken => "whose inside port now has another public port",
            NotRestored::Full => "for which a table is full",
        }
    }
}
