//! Counters of a backend.

use gatun_wire::counted_kinds;
use std::ops::AddAssign;

counted_kinds! {
    /// Reason why a device did not accept a packet.
    TxError {
        Full, "tx_full", "The device's queue was full (EAGAIN, ENOBUFS).";
        Invalid, "tx_invalid", "The kernel refused the packet as malformed (EINVAL).";
        Down, "tx_down", "The device is down (EIO, ENETDOWN): set its link up, and its routes return.";
        TooLong, "tx_too_long", "The packet is longer than the device allows (EMSGSIZE).";
        NoMemory, "tx_no_memory", "The kernel had no memory for the packet (ENOMEM).";
        NoHeadroom, "tx_no_headroom", "The buffer has no room for the device's header. This is a defect: please report it.";
        Gone, "tx_gone", "The device was removed (EBADFD, ENODEV).";
        Other, "tx_other", "Another error; the last one is shown next to the counters.";
    }
}

counted_kinds! {
    /// Reason why received data could not be passed on.
    RxError {
        ShortHeader, "rx_short_header", "The data is shorter than the device's own header.";
        BadHeader, "rx_bad_header", "The device's header contradicts itself or the packet.";
        UnknownSegmentation, "rx_unknown_gso", "The packet uses a segmentation offload that Gatun did not enable.";
        Truncated, "rx_truncated", "The packet is longer than the receive buffer.";
        RingFull, "rx_ring_full", "The receive ring was full: the worker is too slow for the load.";
        NoFrame, "rx_no_frame", "The device had no free receive buffer: the worker is too slow for the load.";
    }
}

/// Counter that only some backends have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedCounter {
    /// Name in metrics and logs.
    pub name: &'static str,
    /// Help text for operators.
    pub help: &'static str,
    /// Value.
    pub count: u64,
}

/// Packets and bytes of one backend. Bytes count from the IP header on. A super-packet counts as one packet.
///
/// A backend of Ethernet devices counts sent data in frames, from the Ethernet header on, including its own
/// frames (ARP, neighbour discovery, answered pings). It counts received data as packets for the worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets passed to the worker.
    pub rx_packets: u64,
    /// Bytes of these packets.
    pub rx_bytes: u64,
    /// Super-packets among them (TSO, USO).
    pub rx_super_packets: u64,
    /// Received data that was not passed on, by [`RxError`].
    pub rx_errors: [u64; RxError::COUNT],
    /// Packets that the device accepted.
    pub tx_packets: u64,
    /// Bytes of these packets.
    pub tx_bytes: u64,
    /// Super-packets among them.
    pub tx_super_packets: u64,
    /// Packets that the device did not accept, by [`TxError`].
    pub tx_errors: [u64; TxError::COUNT],
    /// Last system error behind [`TxError::Other`].
    pub tx_last_os_error: Option<i32>,
    /// Sent frames that the backend made itself.
    pub tx_own: u64,
    /// Frames that the backend made itself and the device did not accept. Not included in `tx_errors`, as
    /// far as the device reports it immediately.
    pub tx_own_refused: u64,
    /// Packets that were given to the backend and reached no device: dropped, or queued. `named` has the
    /// reasons.
    pub tx_withheld: u64,
    /// Additional counters of this kind of backend.
    pub named: Vec<NamedCounter>,
}

impl Stats {
    /// Counts a frame that a device did not accept. `is_own` means that the backend made it itself.
    pub fn refuse(&mut self, reason: TxError, is_own: bool) {
        match is_own {
            true => self.tx_own_refused += 1,
            false => self.tx_errors[reason as usize] += 1,
        }
    }

    /// Packets given to the device: accepted or refused.
    pub fn tx_attempts(&self) -> u64 {
        self.tx_packets + self.tx_errors.iter().sum::<u64>()
    }

    /// Packets that the worker gave to the backend, by their outcome.
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
