//! Reasons why a session of another process is not restored.

/// Reason why a session cannot be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RestoreError {
    /// The session expired meanwhile.
    Expired,
    /// Its instance no longer exists, or no longer serves its inside host or its prefix.
    NotServed,
    /// Its public address or port is no longer in its pool, or belongs to another subscriber.
    NotInPool,
    /// The session already exists.
    Exists,
    /// Its inside end has another public end, or another subscriber shares its port.
    Conflict,
    /// A table is full.
    Full,
}

impl RestoreError {
    /// All reasons.
    pub const ALL: [RestoreError; 6] = [
        RestoreError::Expired,
        RestoreError::NotServed,
        RestoreError::NotInPool,
        RestoreError::Exists,
        RestoreError::Conflict,
        RestoreError::Full,
    ];

    /// Name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            RestoreError::Expired => "expired",
            RestoreError::NotServed => "not_served",
            RestoreError::NotInPool => "not_in_pool",
            RestoreError::Exists => "exists",
            RestoreError::Conflict => "conflict",
            RestoreError::Full => "full",
        }
    }

    /// Text that continues after a number of sessions.
    pub fn help(self) -> &'static str {
        match self {
            RestoreError::Expired => "that had expired",
            RestoreError::NotServed => "of instances, hosts or prefixes that are no longer served",
            RestoreError::NotInPool => "whose public address or port is no longer in its pool",
            RestoreError::Exists => "that existed already",
            RestoreError::Conflict => "whose inside port now has another public port",
            RestoreError::Full => "for which a table is full",
        }
    }
}
