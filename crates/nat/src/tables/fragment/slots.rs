//! Copies of held packets, in chains of chunks from a fixed store.

use alloc::vec;
use alloc::vec::Vec;
use gatun_mem::{Footprint, HugeVec, OutOfMemory};
use gatun_wire::{FragmentInfo, HEADROOM, Offload, Packet};

/// Bytes of a chunk: a full Ethernet frame takes three, a small fragment wastes little.
pub(super) const CHUNK: usize = 512;

/// No chunk.
pub(super) const NONE: u32 = u32::MAX;

/// The largest packet that can be held: no IPv6 packet is longer, and a fragment is never a super-packet.
const PACKET_MAX: usize = 40 + 65_535;

/// State of a held packet, stored with its first chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// Bytes from the IP header on.
    pub(super) len: u32,
    /// Its place in the datagram.
    pub(super) info: FragmentInfo,
    /// Offload work that the device left undone.
    pub(super) offload: Offload,
    /// The first chunk of the datagram's next held packet, or [`NONE`].
    pub(super) next: u32,
}

const NOTHING: Held = Held {
    len: 0,
    info: FragmentInfo { offset: 0, more: false, id: 0 },
    offload: Offload {
        checksum: gatun_wire::Checksum::Complete,
        segmentation: gatun_wire::Segmentation::None,
    },
    next: NONE,
};

/// The store.
#[derive(Debug)]
pub(super) struct Slots {
    chunks: HugeVec<[u8; CHUNK]>,
    /// Next chunk of each chunk's packet, or of the free list.
    links: Vec<u32>,
    held: Vec<Held>,
    free: u32,
    free_count: usize,
    /// Buffer in which a released packet is assembled.
    scratch: Vec<u8>,
}

impl Slots {
    /// Creates a store for `bytes` bytes, in whole chunks.
    pub(super) fn new(bytes: usize) -> Result<Slots, OutOfMemory> {
        let count = (bytes / CHUNK).min(NONE as usize - 1);
        let links = (1..=count as u32).map(|i| if i as usize == count { NONE } else { i }).collect();
        Ok(Slots {
            chunks: HugeVec::new(count)?,
            links,
            held: vec![NOTHING; count],
            free: if count == 0 { NONE } else { 0 },
            free_count: count,
            scratch: vec![0; HEADROOM + PACKET_MAX],
        })
    }

    /// Memory use of [`Slots::new`].
    pub(super) fn footprint(bytes: usize) -> Footprint {
        let count = bytes / CHUNK;
        let beside = count * (size_of::<u32>() + size_of::<Held>()) + HEADROOM + PACKET_MAX;
        HugeVec::<[u8; CHUNK]>::footprint(count) + Footprint::of_bytes(beside as u64)
    }

    /// Copies a packet, and returns its first chunk. Returns `None` if it does not fit.
    pub(super) fn store(&mut self, bytes: &[u8], info: FragmentInfo, offload: Offload) -> Option<u32> {
        if bytes.is_empty() || bytes.len() > PACKET_MAX || bytes.len().div_ceil(CHUNK) > self.free_count {
            return None;
        }
        let head = self.free;
        let mut last = NONE;
        for part in bytes.chunks(CHUNK) {
            last = self.free;
            if let Some(place) = self.chunks.get_mut(last as usize).and_then(|c| c.get_mut(..part.len())) {
                place.copy_from_slice(part);
            }
            self.free = self.link(last);
            self.free_count -= 1;
        }
        if let Some(link) = self.links.get_mut(last as usize) {
            *link = NONE;
        }
        if let Some(held) = self.held.get_mut(head as usize) {
            *held = Held { len: bytes.len() as u32, info, offload, next: NONE };
        }
        Some(head)
    }

    /// Returns the state of the packet whose first chunk is `head`.
    pub(super) fn get(&self, head: u32) -> Option<&Held> {
        self.held.get(head as usize)
    }

    /// Mutable version of [`get`](Self::get), to link the packet.
    pub(super) fn get_mut(&mut self, head: u32) -> Option<&mut Held> {
        self.held.get_mut(head as usize)
    }

    /// Assembles a packet with headroom and frees its chunks.
    pub(super) fn take(&mut self, head: u32) -> Option<Packet<'_>> {
        let held = *self.get(head)?;
        let len = held.len as usize;
        let mut chunk = head;
        for place in self.scratch.get_mut(HEADROOM..HEADROOM + len)?.chunks_mut(CHUNK) {
            place.copy_from_slice(self.chunks.get(chunk as usize)?.get(..place.len())?);
            chunk = self.links.get(chunk as usize).copied().unwrap_or(NONE);
        }
        self.release(head);
        Packet::with_offload(&mut self.scratch, HEADROOM, len, held.offload)
    }

    /// Frees a packet's chunks.
    pub(super) fn release(&mut self, head: u32) {
        let mut last = head;
        let mut count = 1;
        while self.link(last) != NONE {
            last = self.link(last);
            count += 1;
        }
        if let Some(link) = self.links.get_mut(last as usize) {
            *link = self.free;
            self.free = head;
            self.free_count += count;
        }
    }

    /// Number of chunks not in use.
    #[cfg(test)]
    pub(super) fn free_count(&self) -> usize {
        self.free_count
    }

    /// Number of all chunks.
    #[cfg(test)]
    pub(super) fn all(&self) -> usize {
        self.links.len()
    }

    fn link(&self, chunk: u32) -> u32 {
        self.links.get(chunk as usize).copied().unwrap_or(NONE)
    }
}
