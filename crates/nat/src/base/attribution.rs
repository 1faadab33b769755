//! Attribution of packets: the instance that a packet counts for, and its direction there.

/// The party that a packet counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    /// No instance.
    Nobody,
    /// The stateful instance of this number.
    Stateful(u8),
    /// The stateless instance of this number.
    Stateless(usize),
    /// The instance that alone uses the pool of this number, or no instance.
    Pool(usize),
}

/// The party that a packet counts for, and its direction there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attribution {
    pub(crate) account: Account,
    /// True for a packet to the inside. For a stateless instance: true for a packet to IPv6.
    pub(crate) is_inbound: bool,
}

impl Attribution {
    /// Attribution of a packet that belongs to no instance.
    pub(crate) const NOBODY: Attribution = Attribution { account: Account::Nobody, is_inbound: false };

    /// Attributes a packet from the inside. For a stateless instance: a packet from IPv6.
    pub(crate) fn outbound(account: Account) -> Attribution {
        Attribution { account, is_inbound: false }
    }

    /// Attributes a packet to the inside. For a stateless instance: a packet from IPv4.
    pub(crate) fn inbound(account: Account) -> Attribution {
        Attribution { account, is_inbound: true }
    }
}
