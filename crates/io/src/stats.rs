//! What a backend counts.

use gatun_wire::counted_kinds;
use std::ops::AddAssign;

counted_kinds! {
    /// Why a device did not take a packet.
    TxError {
        Full, "tx_full", "The device's queue was full (EAGAIN, ENOBUFS).";
        Invalid, "tx_invalid", "The kernel refused the packet as malformed (EINVAL).";
        Down, "tx_down", "The device is down (EIO, ENETDOWN): set its link up, and its routes return.";
        TooLong, "tx_too_long", "Longer than the device takes (EMSGSIZE).";
        NoMemory, "tx_no_memory", "The kernel had no memory for the packet (ENOMEM).";
        NoHeadroom, "tx_no_headroom", "No room in front for the device's header.";
        Gone, "tx_gone", "The device was removed (EBADFD, ENODEV).";
        Other, "tx_other", "Another error; the last one is named beside the counters.";
    }
}

counted_kinds! {
    /// Why something that a device gave could not be handed on.
    RxError {
        ShortHeader, "rx_short_header", "Shorter than the device's own header.";
        BadHeader, "rx_bad_header", "The device's header contradicts itself or the packet.";
        UnknownSegmentation, "rx_unknown_gso", "A kind of segmentation offload that was not asked for.";
        Truncated, "rx_truncated", "Longer than the receive buffer.";
        RingFull, "rx_ring_full", "The receive ring was full: the worker does not keep up.";
        NoFrame, "rx_no_frame", "The device had no free buffer to receive into: the worker does not keep up.";
    }
}

/// A count that one kind of backend has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name used in metrics and logs.
    pub name: &'static str,
    /// One sentence for an operator.
    pub help: &'static str,
    /// How many.
    pub count: u64,
}

/// Packets and bytes of one backend. Bytes count from the IP header on; a super-packet is one packet.
///
/// A backend of Ethernet devices counts what it sends as frames, from their Ethernet header on and those of its own
/// (ARP, neighbour discovery, pings answered) included; what it receives, once it is a packet for the worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets handed to the worker.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Of these, packets that stand for several (TSO, USO).
    pub rx_super_packets: u64,
    /// What was received and not handed on, by [`RxError`].
    pub rx_errors: [u64; RxError::COUNT],
    /// Packets that the device took.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Of these, packets that stand for several.
    pub tx_super_packets: u64,
    /// Packets that the device did not take, by [`TxError`].
    pub tx_errors: [u64; TxError::COUNT],
    /// The last system error behind [`TxError::Other`].
    pub tx_last_os_error: Option<i32>,
    /// Of what was sent: frames that the backend made itself.
    pub tx_own: u64,
    /// Frames that the backend made itself and the device did not take: not among `tx_errors`, as far as the device says
    /// so when it is given them.
    pub tx_own_refused: u64,
    /// Packets that were given to the backend and came to no device: dropped, or kept for now. `named` says why.
    pub tx_withheld: u64,
    /// What this kind of backend counts beside.
    pub named: Vec<Named>,
}

impl Stats {
    /// Counts a frame that a device did not take; `is_own`: that the backend made itself.
    pub fn refuse(&mut self, reason: TxError, is_own: bool) {
        match is_own {
            true => self.tx_own_refused += 1,
            false => self.tx_errors[reason as usize] += 1,
        }
    }

    /// Packets given to the device: taken or refused.
    pub fn tx_attempts(&self) -> u64 {
        self.tx_packets + self.tx_errors.iter().sum::<u64>()
    }

    /// Packets that the worker gave to the backend, by what became of them.
    pub fn tx_given(&self) -> u64 {
        (self.tx_attempts() + self.tx_withheld).saturating_sub(self.tx_own)
    }
}

impl AddAssign<&Stats> for Stats {
    fn add_assign(&mut self, other: &Stats) {
        self.rx_packets += other.rx_packets;
        self.rx_bytes += other.rx_bytes;
        self.rx_super_packets += other.rx_super_packets;
        self.tx_packets += other.tx_packets;
        self.tx_bytes += other.tx_bytes;
        self.tx_super_packets += other.tx_super_packets;
        self.rx_errors.iter_mut().zip(other.rx_errors).for_each(|(a, b)| *a += b);
        self.tx_errors.iter_mut().zip(other.tx_errors).for_each(|(a, b)| *a += b);
        self.tx_own += other.tx_own;
        self.tx_own_refused += other.tx_own_refused;
        self.tx_withheld += other.tx_withheld;
        for named in &other.named {
            match self.named.iter_mut().find(|own| own.name == named.name) {
                Some(own) => own.count += named.count,
                None => self.named.push(*named),
            }
        }
        self.tx_last_os_error = other.tx_last_os_error.or(self.tx_last_os_error);
    }
}
