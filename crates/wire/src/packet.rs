//! Packet in a borrowed buffer with headroom, and the work that is left for a device.
//!
//! ```text
//!   buf:  [ headroom ......... | IP header | transport | payload | tailroom ]
//!                              ^ start                           ^ end
//! ```
//! Headers grow and shrink at `start`. The payload never moves.

use crate::hdr::put16;
use crate::{DropReason, checksum};

/// Headroom in bytes that a backend leaves before a received packet: enough for IPv4 to IPv6 with a Fragment
/// header (+28) or the headers of an ICMP error (+48), with [`DEVICE_ROOM`] before them.
pub const HEADROOM: usize = 128;

/// Bytes before a packet to be sent, for the device's own header. No translation uses them. Each backend
/// checks at compile time that its header fits.
pub const DEVICE_ROOM: usize = 32;

/// Bytes after a received packet, for packets that grow by more than the headroom.
pub const TAILROOM: usize = 64;

/// Largest growth of a packet by translation. An ICMPv4 error that quotes only a header, followed by an
/// extension, has its quotation padded to 128 bytes in the ICMPv6 error (RFC 4884 4): 28 + 20 bytes become 48
/// + 128.
pub const GROWTH_MAX: usize = 128;

const _: () = assert!(HEADROOM >= DEVICE_ROOM + 48 && HEADROOM - DEVICE_ROOM + TAILROOM >= GROWTH_MAX);

/// State of the transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// The field holds the checksum from the sender's stack or the wire.
    #[default]
    Complete,
    /// The field holds only the folded, uncomplemented sum of the pseudo-header. The final sender adds the
    /// bytes from `start` on and stores the complement at `start + offset`. Both are in bytes; `start` counts
    /// from the packet's first byte.
    Partial {
        /// Start of the summed bytes: the transport header.
        start: u16,
        /// Offset of the checksum field in the transport header (TCP 16, UDP 6).
        offset: u16,
    },
}

/// Segmentation offload: the packet contains many packets of one flow, which the device cuts (TSO, USO).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Segmentation {
    /// A single packet.
    #[default]
    None,
    /// TCP segments of `size` payload bytes each; the last one may be shorter.
    Tcp {
        /// Payload bytes of a segment (the MSS).
        size: u16,
        /// Only the first segment keeps CWR (the device's ECN mode).
        ecn: bool,
    },
    /// UDP datagrams of `size` payload bytes each; the last one may be shorter.
    Udp {
        /// Payload bytes of a datagram.
        size: u16,
    },
}

/// Work that is left for a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// State of the transport checksum.
    pub checksum: Checksum,
    /// Segmentation by the device.
    pub segmentation: Segmentation,
}

impl Offload {
    /// Offset in the transport header of the field of a partial checksum. `None` for a complete checksum, and
    /// if the partial one belongs to a packet further inside (a tunnel's).
    ///
    /// # Errors
    /// `bad_len` if the field would lie in the IP header, which is about to be replaced.
    #[inline]
    pub(crate) fn partial_field(&self, l4_offset: usize) -> Result<Option<usize>, DropReason> {
        match self.checksum {
            Checksum::Complete => Ok(None),
            Checksum::Partial { start, .. } if usize::from(start) < l4_offset => Err(DropReason::BadLength),
            Checksum::Partial { start, offset } if usize::from(start) == l4_offset => {
                Ok(Some(usize::from(offset)))
            }
            Checksum::Partial { .. } => Ok(None),
        }
    }
}

/// Packet in a borrowed buffer. It begins with its IP header.
#[derive(Debug)]
pub struct Packet<'b> {
    buf: &'b mut [u8],
    start: usize,
    end: usize,
    /// Work that is left for a device.
    pub offload: Offload,
    /// Address realm (RFC 2663 2.1) that the packet came from or, after translation, goes to. 0 is the
    /// common realm of all links that do not reuse each other's addresses.
    pub realm: u8,
}

impl<'b> Packet<'b> {
    /// Creates a packet of `len` bytes at `start` in `buf`. Returns `None` if they do not lie inside it.
    #[inline]
    pub fn new(buf: &'b mut [u8], start: usize, len: usize) -> Option<Self> {
        let end = start.checked_add(len)?;
        (end <= buf.len()).then_some(Packet { buf, start, end, offload: Offload::default(), realm: 0 })
    }

    /// Like [`new`](Self::new), with offloads from a device.
    #[inline]
    pub fn with_offload(buf: &'b mut [u8], start: usize, len: usize, offload: Offload) -> Option<Self> {
        let mut packet = Self::new(buf, start, len)?;
        packet.offload = offload;
        Some(packet)
    }

    /// Length in bytes, from the IP header on.
    #[inline]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Offset of the packet in its buffer.
    #[inline]
    pub fn start(&self) -> usize {
        self.start
    }

    /// Bytes of the packet.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.buf.get(self.start..self.end).unwrap_or_else(|| nothing())
    }

    /// Bytes of the packet, mutable.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.buf.get_mut(self.start..self.end).unwrap_or_else(|| nothing_mut())
    }

    /// Whole buffer. A backend writes its own header before [`start`](Self::start).
    #[inline]
    pub fn buffer_mut(&mut self) -> &mut [u8] {
        self.buf
    }

    /// Moves the start by `delta` bytes: negative uses headroom, positive returns it. Added bytes have
    /// whatever value the buffer held.
    ///
    /// # Errors
    /// [`DropReason::NoHeadroom`] if the buffer ends there. The packet is unchanged then.
    #[inline]
    pub fn shift_start(&mut self, delta: isize) -> Result<(), DropReason> {
        match self.start.checked_add_signed(delta) {
            Some(start) if start <= self.end => {
                self.start = start;
                Ok(())
            }
            _ => Err(DropReason::NoHeadroom),
        }
    }

    /// Free bytes before the packet.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.start
    }

    /// Cuts the packet to at most `len` bytes.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.end = self.end.min(self.start + len);
    }

    /// Sets the length to `len` bytes. Uses tailroom if the packet grows.
    ///
    /// # Errors
    /// [`DropReason::NoHeadroom`] if the buffer is too short. The packet is unchanged then.
    #[inline]
    pub fn resize(&mut self, len: usize) -> Result<(), DropReason> {
        match self.start.checked_add(len) {
            Some(end) if end <= self.buf.len() => {
                self.end = end;
                Ok(())
            }
            _ => Err(DropReason::NoHeadroom),
        }
    }

    /// Replaces the whole packet by `new` and clears its offloads. If `new` is longer, it uses headroom
    /// first, except [`DEVICE_ROOM`], then tailroom.
    ///
    /// # Errors
    /// [`DropReason::NoHeadroom`] if the buffer is too short. The packet is unchanged then.
    pub fn replace(&mut self, new: &[u8]) -> Result<(), DropReason> {
        let start = self.end.saturating_sub(new.len()).max(self.start.min(DEVICE_ROOM));
        let end = start + new.len();
        let place = self.buf.get_mut(start..end).ok_or(DropReason::NoHeadroom)?;
        place.copy_from_slice(new);
        (self.start, self.end) = (start, end);
        self.offload = Offload::default();
        Ok(())
    }

    /// Completes a partial checksum as a device would. Does nothing if it is complete.
    /// A result of zero is stored as all ones: UDP requires this (RFC 768), and TCP treats both alike.
    pub fn complete_checksum(&mut self) {
        let Checksum::Partial { start, offset } = self.offload.checksum else { return };
        let Some(covered) = self.bytes_mut().get_mut(usize::from(start)..) else { return };
        let sum = !checksum::sum(covered);
        put16(covered, usize::from(offset), if sum == 0 { 0xffff } else { sum });
        self.offload.checksum = Checksum::Complete;
    }

    /// Makes room for a header of `new` bytes in place of the first `old` ones, and ends the packet `rest`
    /// bytes after it. The new header's bytes have whatever value the buffer held.
    ///
    /// # Errors
    /// `bad_len` if the packet ends earlier, `no_headroom` if there is not enough headroom. The packet is
    /// unchanged then.
    #[inline(always)]
    pub(crate) fn replace_header(&mut self, old: usize, new: usize, rest: usize) -> Result<(), DropReason> {
        let middle = self.start + old;
        let end = middle + rest;
        if end > self.end {
            return Err(DropReason::BadLength);
        }
        self.start = middle.checked_sub(new).ok_or(DropReason::NoHeadroom)?;
        self.end = end;
        if let Checksum::Partial { start, .. } = &mut self.offload.checksum {
            *start = start.saturating_add_signed(new as i16 - old as i16);
        }
        Ok(())
    }
}

/// Fallback for a packet outside its buffer. This never happens, and a branch that is never taken is cheaper
/// than a choice between two slices.
#[cold]
fn nothing() -> &'static [u8] {
    &[]
}

#[cold]
fn nothing_mut() -> &'static mut [u8] {
    &mut []
}
