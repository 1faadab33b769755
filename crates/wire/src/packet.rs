//! A packet: a borrowed buffer with room in front, and what a device left undone about it.
//!
//! ```text
//!   buf:  [ headroom ......... | IP header | transport | payload | tailroom ]
//!                              ^ start                           ^ end
//! ```
//! Headers grow and shrink at `start`; the payload never moves.

use crate::hdr::put16;
use crate::{DropReason, checksum};

/// Bytes of room in front that a backend leaves for a received packet: enough for IPv4 to IPv6 with a
/// Fragment header (+28) or an ICMP error's headers (+48), and [`DEVICE_ROOM`] before these.
pub const HEADROOM: usize = 128;

/// Bytes in front of a packet that is to be sent, for the device's own header. No translation takes them; a backend
/// checks where it is built that its header is no longer.
pub const DEVICE_ROOM: usize = 32;

/// Bytes of room behind a received packet: for a packet that grows by more than the headroom has.
pub const TAILROOM: usize = 64;

/// The most that translation makes a packet grow by. An ICMPv4 error that quotes a header alone, and an extension
/// behind it, has it padded to 128 bytes as ICMPv6 error (RFC 4884 4): 28 + 20 bytes become 48 + 128.
pub const GROWTH_MAX: usize = 128;

const _: () = assert!(HEADROOM >= DEVICE_ROOM + 48 && HEADROOM - DEVICE_ROOM + TAILROOM >= GROWTH_MAX);

/// The state of the transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// The field holds what the sender's stack, or the wire, gave.
    #[default]
    Complete,
    /// The field holds only the folded, uncomplemented sum of the pseudo-header; whoever sends the
    /// packet at last adds the bytes from `start` on and stores the complement at `start + offset`.
    /// Both in bytes, `start` from the packet's first byte.
    Partial {
        /// Where the summed bytes begin: the transport header.
        start: u16,
        /// Where the checksum field stands in the transport header (TCP 16, UDP 6).
        offset: u16,
    },
}

/// Whether the packet stands for many packets of one flow, to be cut by the device (TSO, USO).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Segmentation {
    /// One packet as it is.
    #[default]
    None,
    /// TCP segments of `size` payload bytes each, but the last.
    Tcp {
        /// Payload bytes of a segment (the MSS).
        size: u16,
        /// The first segment alone keeps CWR (the device's ECN mode).
        ecn: bool,
    },
    /// UDP datagrams of `size` payload bytes each, but the last.
    Udp {
        /// Payload bytes of a datagram.
        size: u16,
    },
}

/// What is left for a device to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The transport checksum's state.
    pub checksum: Checksum,
    /// Whether the device cuts the packet.
    pub segmentation: Segmentation,
}

/// A packet that begins with its IP header, in a borrowed buffer.
#[derive(Debug)]
pub struct Packet<'b> {
    buf: &'b mut [u8],
    start: usize,
    end: usize,
    /// What is left for a device to do.
    pub offload: Offload,
    /// The address realm (RFC 2663 2.1) that it came from, and, once it is translated, the one that it goes to: 0 is
    /// what all links have in common whose addresses are told apart by nothing else.
    pub realm: u8,
}

impl<'b> Packet<'b> {
    /// A packet of `len` bytes at `start` in `buf`; `None` where they do not lie inside it.
    #[inline]
    pub fn new(buf: &'b mut [u8], start: usize, len: usize) -> Option<Self> {
        let end = start.checked_add(len)?;
        (end <= buf.len()).then_some(Packet { buf, start, end, offload: Offload::default(), realm: 0 })
    }

    /// The same with a device's leftovers.
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

    /// Where the packet begins in its buffer.
    #[inline]
    pub fn start(&self) -> usize {
        self.start
    }

    /// The packet.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.buf.get(self.start..self.end).unwrap_or_else(|| nothing())
    }

    /// The packet, to be changed.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.buf.get_mut(self.start..self.end).unwrap_or_else(|| nothing_mut())
    }

    /// The whole buffer: a backend writes its own header before [`start`](Self::start).
    #[inline]
    pub fn buffer_mut(&mut self) -> &mut [u8] {
        self.buf
    }

    /// Moves the beginning by `delta` bytes: negative takes headroom, positive gives it back.
    /// The bytes that come in are whatever the buffer held.
    ///
    /// # Errors
    /// [`DropReason::NoHeadroom`] where the buffer ends; the packet is unchanged.
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

    /// Bytes free in front.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.start
    }

    /// Cuts the packet to at most `len` bytes.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.end = self.end.min(self.start + len);
    }

    /// Lets the packet be `len` bytes long, taking tailroom where it grows.
    ///
    /// # Errors
    /// [`DropReason::NoHeadroom`] where the buffer is too short; the packet is unchanged.
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

    /// Replaces the whole packet by `new`, whatever is left for a device to do included. Where it is
    /// longer, headroom is taken first, but for [`DEVICE_ROOM`], then tailroom.
    ///
    /// # Errors
    /// [`DropReason::NoHeadroom`] where the buffer is too short; the packet is unchanged.
    pub fn replace(&mut self, new: &[u8]) -> Result<(), DropReason> {
        let start = self.end.saturating_sub(new.len()).max(self.start.min(DEVICE_ROOM));
        let end = start + new.len();
        let place = self.buf.get_mut(start..end).ok_or(DropReason::NoHeadroom)?;
        place.copy_from_slice(new);
        (self.start, self.end) = (start, end);
        self.offload = Offload::default();
        Ok(())
    }

    /// Finishes a partial checksum, as a device would; nothing where it is complete.
    /// A result of zero is stored as all ones, which UDP demands (RFC 768) and TCP cannot tell apart.
    pub fn complete_checksum(&mut self) {
        let Checksum::Partial { start, offset } = self.offload.checksum else { return };
        let Some(covered) = self.bytes_mut().get_mut(usize::from(start)..) else { return };
        let sum = !checksum::sum(covered);
        put16(covered, usize::from(offset), if sum == 0 { 0xffff } else { sum });
        self.offload.checksum = Checksum::Complete;
    }

    /// Makes room for a header of `new` bytes in place of the first `old` ones, and ends the packet `rest`
    /// bytes behind it. The new header's bytes are whatever the buffer held.
    ///
    /// # Errors
    /// `bad_len` where the packet ends before, `no_headroom` where the buffer begins too late; the packet
    /// is unchanged then.
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

/// What a packet outside its buffer would be: there is none, and a branch that is never taken costs less
/// than the choice between two slices.
#[cold]
fn nothing() -> &'static [u8] {
    &[]
}

#[cold]
fn nothing_mut() -> &'static mut [u8] {
    &mut []
}
