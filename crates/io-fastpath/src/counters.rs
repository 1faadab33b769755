//! Counters of the program, by reason.

use crate::layout::REASONS;

/// Fate of a packet, in the order of `enum reason` in `bpf/layout.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Reason {
    /// Translated.
    Hit,
    /// No session has its addresses and ports.
    NoEntry,
    /// The lease has expired.
    LeaseOver,
    /// The session is of another epoch.
    OtherEpoch,
    /// The engine may still have packets of the session.
    Pending,
    /// An earlier packet was a FIN or RST.
    Closing,
    /// Neither TCP nor UDP behind an IP header of fixed length, or headers that contradict the packet.
    NotPlain,
    /// A fragment.
    Fragment,
    /// The TTL or hop limit expires.
    HopLimit,
    /// A SYN, FIN or RST.
    TcpFlags,
    /// UDP without a checksum.
    NoChecksum,
    /// A super-packet of UDP datagrams.
    SuperDatagram,
    /// Larger than the MTU of the next hop or of the path.
    TooLarge,
    /// The kernel refused to make room for the new header.
    Refused,
    /// In addition to a hit: the session was pending for `pending_max`, or the device's queue dropped
    /// packets. Packets may be reordered.
    MovedLate,
    /// Dropped because the kernel refused to write.
    Dropped,
    /// XDP: the kernel knows no next hop at an interface with the program.
    NoNextHop,
    /// XDP: once a second, so that the kernel verifies its neighbours.
    Neighbour,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; REASONS] = [
        Reason::Hit,
        Reason::NoEntry,
        Reason::LeaseOver,
        Reason::OtherEpoch,
        Reason::Pending,
        Reason::Closing,
        Reason::NotPlain,
        Reason::Fragment,
        Reason::HopLimit,
        Reason::TcpFlags,
        Reason::NoChecksum,
        Reason::SuperDatagram,
        Reason::TooLarge,
        Reason::Refused,
        Reason::MovedLate,
        Reason::Dropped,
        Reason::NoNextHop,
        Reason::Neighbour,
    ];

    /// Name for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Hit => "hit",
            Reason::NoEntry => "no_entry",
            Reason::LeaseOver => "lease_over",
            Reason::OtherEpoch => "other_epoch",
            Reason::Pending => "pending",
            Reason::Closing => "closing",
            Reason::NotPlain => "not_plain",
            Reason::Fragment => "fragment",
            Reason::HopLimit => "hop_limit",
            Reason::TcpFlags => "tcp_flags",
            Reason::NoChecksum => "no_checksum",
            Reason::SuperDatagram => "super_datagram",
            Reason::TooLarge => "too_large",
            Reason::Refused => "refused",
            Reason::MovedLate => "moved_late",
            Reason::Dropped => "dropped",
            Reason::NoNextHop => "no_next_hop",
            Reason::Neighbour => "neighbour",
        }
    }
}

/// Packets by [`Reason`], since the maps were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters(pub(crate) [u64; REASONS]);

impl Counters {
    /// Packets of a reason.
    pub fn of(&self, reason: Reason) -> u64 {
        self.0[reason as usize]
    }

    pub(crate) fn sum(processors: &[u64]) -> Counters {
        let mut sum = Counters::default();
        for one in processors.chunks_exact(REASONS) {
            sum.0.iter_mut().zip(one).for_each(|(to, from)| *to += from);
        }
        sum
    }
}

/// Number of processors that the kernel reserves memory for: `possible` is the text of
/// `/sys/devices/system/cpu/possible`, such as `0-3` or `0,2-5`.
pub(crate) fn processors(possible: &str) -> Option<usize> {
    let last = possible.trim().rsplit([',', '-']).next()?;
    last.parse::<usize>().ok().map(|last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn possible_processors_are_counted_up_to_the_last() {
        for (text, count) in [("0\n", Some(1)), ("0-3\n", Some(4)), ("0,2-5\n", Some(6)), ("\n", None)] {
            assert_eq!(processors(text), count, "{text:?}");
        }
    }

    #[test]
    fn reasons_are_in_the_order_of_the_header() {
        let header = include_str!("../bpf/layout.h");
        let list = header.split("enum reason {").nth(1).unwrap().split('}').next().unwrap();
        let names =
            list.lines().filter_map(|line| line.split(',').next().map(str::trim)).filter(|n| !n.is_empty());
        let names: Vec<String> = names.map(str::to_lowercase).collect();
        let ours: Vec<&str> = Reason::ALL.iter().map(|reason| reason.name()).chain(["reasons"]).collect();
        assert_eq!(names, ours);
        assert!(Reason::ALL.iter().enumerate().all(|(i, reason)| *reason as usize == i));
    }
}
