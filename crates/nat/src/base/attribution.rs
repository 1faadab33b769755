//! Attribution of packets: the instance that a packet counts for, its direction there, and its inside hosts.

/// The instance that a packet counts for.
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

/// An inside host: the subscriber and the public address whose counters have its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Party {
    /// Number of the subscriber; none's for a static binding without a session.
    pub(crate) subscriber: u32,
    /// Number of the public address in the instance's pool.
    pub(crate) address_ix: u32,
    /// Number of the instance.
    pub(crate) instance: u8,
}

/// The inside hosts of a packet: one, or two if the packet is hairpinned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parties {
    pub(crate) sender: Option<Party>,
    pub(crate) receiver: Option<Party>,
}

/// The instance that a packet counts for, its direction there, and its inside hosts as far as they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attribution {
    pub(crate) account: Account,
    /// True for a packet to the inside. For a stateless instance: true for a packet to IPv6.
    pub(crate) is_inbound: bool,
    pub(crate) parties: Parties,
}

/// The inside hosts of a datagram, kept for its later fragments. By then, another subscriber may have the
/// number of the subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatagramParties {
    pub(crate) parties: Parties,
    /// Marks of the sender's and the receiver's subscribers.
    pub(crate) marks: [Option<u32>; 2],
}

impl Parties {
    const NONE: Parties = Parties { sender: None, receiver: None };
}

impl Attribution {
    /// Attribution of a packet that belongs to no instance.
    pub(crate) const NONE: Attribution =
        Attribution { account: Account::Nobody, is_inbound: false, parties: Parties::NONE };

    /// Attributes a packet from the inside. For a stateless instance: a packet from IPv6.
    pub(crate) fn outbound(account: Account) -> Attribution {
        Attribution { account, is_inbound: false, parties: Parties::NONE }
    }

    /// Attributes a packet to the inside. For a stateless instance: a packet from IPv4.
    pub(crate) fn inbound(account: Account) -> Attribution {
        Attribution { account, is_inbound: true, parties: Parties::NONE }
    }

    /// Records the inside host that sent the packet.
    #[inline]
    pub(crate) fn sent_by(&mut self, party: Party) {
        self.parties.sender = Some(party);
    }

    /// Records the inside host that the packet is for.
    #[inline]
    pub(crate) fn meant_for(&mut self, party: Party) {
        self.parties.receiver = Some(party);
    }
}
