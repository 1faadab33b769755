//! Whose a packet is, for the counters of subscribers and public addresses.

/// A subscriber and a public address of its instance's pool: where packets of one side are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// Number of the subscriber; nobody's for a static binding without a session.
    pub(crate) subscriber: u32,
    /// Number of the public address in the instance's pool.
    pub(crate) address_ix: u32,
    /// Number of the instance.
    pub(crate) instance: u8,
}

/// The inside hosts of a packet: one, or two where it is turned round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parties {
    /// Who sent it.
    pub(crate) sender: Option<Account>,
    /// Who gets it.
    pub(crate) receiver: Option<Account>,
}
