//! Writes of packets to a TUN device, with their counters.

use crate::vnet;
use gatun_io::{Stats, TxError};
use gatun_wire::{Packet, Segmentation};
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::OwnedFd;

/// Writer of one queue.
pub(crate) struct DeviceWriter {
    pub(crate) fd: OwnedFd,
    pub(crate) stats: Stats,
}

impl DeviceWriter {
    /// Creates the writer of the queue `fd`.
    pub(crate) fn new(fd: OwnedFd) -> DeviceWriter {
        DeviceWriter { fd, stats: Stats::default() }
    }

    /// Writes a packet and counts it.
    pub(crate) fn write(&mut self, packet: &mut Packet<'_>) {
        let written = vnet::prepend(packet).and_then(|at| {
            let end = packet.start() + packet.len();
            let written = rustix::io::write(&self.fd, &packet.buffer_mut()[at..end]);
            written.map_err(|e| self.tx_error(e))
        });
        match written {
            Ok(_) => {
                self.count(packet.len());
                self.stats.tx_super_packets += u64::from(packet.offload.segmentation != Segmentation::None);
            }
            Err(reason) => self.stats.tx_errors[reason as usize] += 1,
        }
    }

    /// Counts a packet of `len` bytes that the device accepted.
    pub(crate) fn count(&mut self, len: usize) {
        self.stats.tx_packets += 1;
        self.stats.tx_bytes += len as u64;
    }

    /// Writes the concatenation of `parts`, which begins with the device's header.
    pub(crate) fn write_parts(&mut self, parts: &[IoSlice<'_>]) -> Result<(), TxError> {
        rustix::io::writev(&self.fd, parts).map(drop).map_err(|e| self.tx_error(e))
    }

    fn tx_error(&mut self, e: Errno) -> TxError {
        let reason = tx_error(e);
        if reason == TxError::Other {
            self.stats.tx_last_os_error = Some(e.raw_os_error());
        }
        reason
    }
}

fn tx_error(e: Errno) -> TxError {
    match e {
        Errno::AGAIN | Errno::NOBUFS => TxError::Full,
        Errno::INVAL => TxError::Invalid,
        Errno::IO | Errno::NETDOWN => TxError::Down,
        Errno::MSGSIZE => TxError::TooLong,
        Errno::NOMEM => TxError::NoMemory,
        Errno::BADFD | Errno::NODEV => TxError::Gone,
        _ => TxError::Other,
    }
}
