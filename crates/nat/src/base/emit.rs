//! Packets that the engine makes itself: further fragments, released packets, probes and late errors. They
//! stay in one arena until the caller has drained them.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use gatun_wire::rfc7915::fragment;
use gatun_wire::{DropReason, HEADROOM, Packet};

/// Upper bound of the bytes that one received packet can cause: 64 KB cut into fragments of 1280 bytes, or as
/// many held fragments released, each with headroom.
const WORST_CASE: usize = 512 << 10;
const ARENA: usize = 4 * WORST_CASE;
const ENTRIES: usize = 4096;
const ENTRIES_WORST_CASE: usize = ENTRIES / 4;

/// Packet made by the engine: a further fragment, a released packet, a probe or a late ICMP error.
#[derive(Debug)]
pub struct Emitted<'a> {
    /// Index in the burst of the packet after which this one is sent, so that a flow keeps its order. It is
    /// 0 for packets from [`crate::Nat::expire`].
    pub after: usize,
    /// The packet, with [`gatun_wire::HEADROOM`] in front.
    pub packet: Packet<'a>,
}

struct EmittedRange {
    after: usize,
    start: usize,
    len: usize,
    realm: u8,
}

pub(crate) struct Emit {
    arena: Box<[u8]>,
    used: usize,
    entries: Vec<EmittedRange>,
    /// Index in the burst of the current packet.
    pub(crate) after: usize,
}

impl Emit {
    pub(crate) fn new() -> Self {
        Emit {
            arena: vec![0; ARENA].into_boxed_slice(),
            used: 0,
            entries: Vec::with_capacity(ENTRIES),
            after: 0,
        }
    }

    /// Returns whether there is room to process another packet.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.used == 0
            || (ARENA - self.used >= WORST_CASE && ENTRIES - self.entries.len() >= ENTRIES_WORST_CASE)
    }

    /// Adds a packet, given in two parts, to a realm.
    ///
    /// # Errors
    ///
    /// Returns `emit_full` if there is no room.
    pub(crate) fn push(&mut self, realm: u8, head: &[u8], tail: &[u8]) -> Result<(), DropReason> {
        let start = self.used + HEADROOM;
        let middle = start + head.len();
        let end = middle + tail.len();
        if self.entries.len() == ENTRIES {
            return Err(DropReason::EmitFull);
        }
        let room = self.arena.get_mut(start..end).ok_or(DropReason::EmitFull)?;
        let (a, b) = room.split_at_mut(head.len());
        a.copy_from_slice(head);
        b.copy_from_slice(tail);
        self.entries.push(EmittedRange { after: self.after, start, len: end - start, realm });
        self.used = end;
        Ok(())
    }

    /// Cuts a translated packet into fragments of at most `max` bytes. The first stays in `packet`; the
    /// others are added. Returns the number of the others.
    ///
    /// # Errors
    ///
    /// Same as [`fragment::split6`], and `emit_full`.
    pub(crate) fn cut(&mut self, packet: &mut Packet<'_>, max: u32) -> Result<u64, DropReason> {
        let mut pieces = 0;
        let realm = packet.realm;
        let push = |head: &[u8], tail: &[u8]| {
            pieces += 1;
            self.push(realm, head, tail)
        };
        match packet.bytes().first().map(|b| b >> 4) {
            Some(6) => fragment::split6(packet, max, push)?,
            _ => fragment::split4(packet, max, push)?,
        }
        Ok(pieces)
    }

    /// Like [`cut`](Self::cut), but also adds the first fragment, before the others.
    ///
    /// # Errors
    ///
    /// Same as [`cut`](Self::cut).
    pub(crate) fn push_cut(&mut self, packet: &mut Packet<'_>, max: u32) -> Result<u64, DropReason> {
        let first = self.entries.len();
        let pieces = self.cut(packet, max)?;
        self.push(packet.realm, packet.bytes(), &[])?;
        if let Some(added) = self.entries.get_mut(first..) {
            added.rotate_right(1);
        }
        Ok(pieces)
    }

    /// Drains all packets, in order.
    pub(crate) fn drain(&mut self, mut send: impl FnMut(Emitted<'_>)) {
        for e in self.entries.drain(..) {
            let Some(buf) = self.arena.get_mut(e.start - HEADROOM..e.start + e.len) else { continue };
            if let Some(mut packet) = Packet::new(buf, HEADROOM, e.len) {
                packet.realm = e.realm;
                send(Emitted { after: e.after, packet });
            }
        }
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_out_in_order_with_headroom_and_the_arena_is_free_again() {
        let mut emit = Emit::new();
        for i in 0..3u8 {
            emit.after = usize::from(i);
            emit.push(0, &[i; 40], &[0xee; 100]).unwrap();
        }
        let mut seen = Vec::new();
        emit.drain(|e| {
            assert_eq!(e.packet.headroom(), HEADROOM);
            seen.push((e.after, e.packet.bytes()[0], e.packet.len()));
        });
        assert_eq!(seen, [(0, 0, 140), (1, 1, 140), (2, 2, 140)]);
        assert_eq!(emit.used, 0);
    }

    #[test]
    fn a_full_arena_refuses_packets_and_keeps_its_own() {
        let mut emit = Emit::new();
        let big = vec![0u8; 60_000];
        let mut fit = 0;
        while emit.push(0, &[], &big).is_ok() {
            fit += 1;
        }
        assert!(fit >= WORST_CASE / 60_200);
        assert!(!emit.has_room());
        let mut seen = 0;
        emit.drain(|_| seen += 1);
        assert_eq!(seen, fit);
        assert!(emit.has_room());
    }
}
