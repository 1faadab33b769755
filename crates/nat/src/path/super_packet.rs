//! Super-packets that cannot be translated as one: a UDP super-packet without DF whose datagrams do not
//! fit the IPv6 side. A device cuts it into datagrams, but each of these has to be fragmented, and no
//! device does that. So it is cut here, and each datagram is translated on its own.

use crate::base::step::Step;
use crate::base::time::Instant;
use crate::engine::Core;
use alloc::boxed::Box;
use alloc::vec;
use gatun_wire::rfc7915::segment;
use gatun_wire::{DropReason, HEADROOM, Packet, Segmentation, Whole};

/// A datagram with its headers, and room for larger ones.
const ROOM: usize = HEADROOM + 65_535 + HEADROOM;

/// Room for the datagram at work, and for the first packet that leaves.
pub(crate) struct Scratch {
    datagram: Box<[u8]>,
    first: Box<[u8]>,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Scratch { datagram: vec![0; ROOM].into(), first: vec![0; ROOM].into() }
    }
}

/// Whether a packet was refused only because it is a super-packet.
pub(crate) fn has_to_be_cut(packet: &Packet<'_>, reason: DropReason) -> bool {
    reason == DropReason::Unfragmentable && packet.offload.segmentation != Segmentation::None
}

impl Core {
    /// Translates a super-packet datagram by datagram: the first packet that leaves takes its place, the
    /// others are emitted. Its fate is its first datagram's.
    ///
    /// # Errors
    /// Why the first datagram was dropped.
    #[cold]
    pub(crate) fn one_by_one(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_>,
        realm: u8,
    ) -> Result<Step, DropReason> {
        let mut scratch =
            core::mem::replace(&mut self.scratch, Scratch { datagram: [].into(), first: [].into() });
        let done = self.each_datagram(now, packet, realm, &mut scratch);
        self.scratch = scratch;
        done
    }

    fn each_datagram(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_>,
        realm: u8,
        scratch: &mut Scratch,
    ) -> Result<Step, DropReason> {
        let (mut first_len, mut to_realm) = (0, 0);
        for index in 0..segment::count(packet) {
            let out = scratch.datagram.get_mut(HEADROOM..).unwrap_or_default();
            let len = segment::write(packet, index, out)?;
            let mut datagram =
                Packet::new(&mut scratch.datagram, HEADROOM, len).ok_or(DropReason::NoHeadroom)?;
            let step = self.dispatch(now, &mut datagram, realm);
            let sent = step.and_then(|step| self.leave(&mut datagram, step, index == 0));
            match sent {
                Err(reason) if index == 0 => return Err(reason),
                // Of the same flow and size as the first: only the buffers can have come to an end.
                Err(_) => break,
                Ok(()) if index == 0 => {
                    (first_len, to_realm) = (datagram.len(), datagram.realm);
                    let place = scratch.first.get_mut(..first_len).ok_or(DropReason::NoHeadroom)?;
                    place.copy_from_slice(datagram.bytes());
                }
                Ok(()) => {}
            }
        }
        packet.replace(scratch.first.get(..first_len).unwrap_or_default())?;
        packet.realm = to_realm;
        Ok(Step::forward(Whole::Yes))
    }

    /// Emits a translated datagram; of the first one, all pieces but the first.
    fn leave(&mut self, datagram: &mut Packet<'_>, step: Step, is_first: bool) -> Result<(), DropReason> {
        let emit = &mut self.shared.emit;
        let made = match step {
            Step::Forward { whole: Whole::Yes, .. } if is_first => 0,
            Step::Forward { whole: Whole::Yes, .. } => {
                emit.push(datagram.realm, datagram.bytes(), &[]).map(|()| 0)?
            }
            Step::Forward { whole: Whole::Split(max), .. } if is_first => emit.cut(datagram, max)?,
            Step::Forward { whole: Whole::Split(max), .. } => emit.push_cut(datagram, max)?,
            Step::Lost(reason) => return Err(reason),
            Step::Held | Step::Echo | Step::Pass => return Err(DropReason::Unfragmentable),
        };
        self.shared.counters.fragments_made += made;
        Ok(())
    }
}
