//! Transport protocols with state.

use gatun_wire::proto;

/// A transport protocol with state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Transport {
    /// TCP.
    Tcp = 0,
    /// UDP.
    Udp = 1,
    /// ICMP echo; ports are identifiers.
    Icmp = 2,
}

impl Transport {
    /// All transports, in the order of their numbers.
    pub const ALL: [Transport; 3] = [Transport::Tcp, Transport::Udp, Transport::Icmp];

    /// Name in configuration, API, metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
            Transport::Icmp => "icmp",
        }
    }

    /// Finds a transport by name.
    pub fn named(name: &str) -> Option<Transport> {
        Transport::ALL.into_iter().find(|transport| transport.name() == name)
    }

    /// Returns a bit set of transports, as [`of_bits`](Self::of_bits) reads it.
    pub fn bits(transports: impl IntoIterator<Item = Transport>) -> u8 {
        transports.into_iter().fold(0, |bits, transport| bits | 1 << transport as u8)
    }

    /// Iterates over the transports in a bit set; bit `n` stands for number `n`.
    pub fn of_bits(bits: u8) -> impl Iterator<Item = Transport> {
        Transport::ALL.into_iter().filter(move |&transport| bits & 1 << transport as u8 != 0)
    }

    /// Returns an array that is true for this transport alone.
    pub(crate) fn alone(self) -> [bool; 3] {
        core::array::from_fn(|t| t == self as usize)
    }

    /// Returns this transport's entry of an array that has one for each.
    #[inline(always)]
    pub(crate) fn of<T>(self, all: &[T; 3]) -> &T {
        let [tcp, ..] = all;
        all.get(self as usize).unwrap_or(tcp)
    }

    /// Mutable version of [`of`](Self::of).
    #[inline(always)]
    pub(crate) fn of_mut<T>(self, all: &mut [T; 3]) -> &mut T {
        let [tcp, udp, icmp] = all;
        match self {
            Transport::Tcp => tcp,
            Transport::Udp => udp,
            Transport::Icmp => icmp,
        }
    }

    /// Protocol number in an IPv4 header.
    pub(crate) const fn ip_protocol(self) -> u8 {
        match self {
            Transport::Tcp => proto::TCP,
            Transport::Udp => proto::UDP,
            Transport::Icmp => proto::ICMP,
        }
    }
}
