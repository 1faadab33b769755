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
    /// Whether it goes to the inside; of a stateless instance, to IPv6.
    pub(crate) is_inbound: bool,
}

impl Attribution {
    /// Of a packet that belongs to no instance.
    pub(crate) const NOBODY: Attribution = Attribution { account: Account::Nobody, is_inbound: false };

    /// Of a packet from the inside, or, of a stateless instance, from IPv6.
    pub(crate) fn outbound(account: Account) -> Attribution {
        Attribution { account, is_inbound: false }
    }

    /// Of a packet to the inside, or, of a stateless instance, from IPv4.
    pub(crate) fn inbound(account: Account) -> Attribution {
        Attribution { account, is_inbound: true }
    }
}
