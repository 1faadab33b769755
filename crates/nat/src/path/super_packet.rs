//! Super-packets that cannot be translated as one packet: a UDP super-packet without DF whose datagrams do
//! not fit the IPv6 side. A device cuts a super-packet into datagrams, but no device fragments each of these.
//! So Gatun cuts it here and translates each datagram on its own.

use super::slow_path;
use super::state::{Core, Scratch};
use crate::base::attribution::Attribution;
use crate::base::outcome::Outcome;
use crate::base::step::Step;
use crate::base::time::Instant;
use gatun_wire::segment;
use gatun_wire::{DropReason, HEADROOM, Packet, Segmentation, Whole};

/// Returns whether a packet was refused only because it is a super-packet.
pub(crate) fn has_to_be_cut(packet: &Packet<'_>, reason: DropReason) -> bool {
    reason == DropReason::Unfragmentable && packet.offload.segmentation != Segmentation::None
}

/// Translates a super-packet datagram by datagram. The first packet that leaves replaces the super-packet,
/// and the others are emitted. The outcome of the first datagram is that of the super-packet.
#[cold]
pub(crate) fn one_by_one(core: &mut Core, now: Instant, packet: &mut Packet<'_>, realm: u8) -> Outcome {
    let mut scratch = core::mem::replace(&mut core.scratch, Scratch::none());
    let outcome = each_datagram(core, now, packet, realm, &mut scratch);
    core.scratch = scratch;
    outcome
}

fn each_datagram(
    core: &mut Core,
    now: Instant,
    packet: &mut Packet<'_>,
    realm: u8,
    scratch: &mut Scratch,
) -> Outcome {
    let Scratch { datagram: room, first } = scratch;
    let mut attribution = Attribution::NONE;
    let (mut first_len, mut to_realm) = (0, 0);
    for index in 0..segment::count(packet) {
        let written = write_datagram(packet, index, room);
        let mut datagram = match written {
            Ok(datagram) => datagram,
            Err(reason) => return Outcome::new(attribution, Err(reason)),
        };
        let outcome = slow_path::translate(core, now, &mut datagram, realm);
        attribution = outcome.attribution;
        let sent = outcome.result.and_then(|step| Ok(leave(core, &mut datagram, step, index == 0)?));
        match sent {
            Err(refusal) if index == 0 => return Outcome::new(attribution, Err(refusal)),
            // It has the flow and the size of the first one, so only the buffers can be full.
            Err(_) => break,
            Ok(()) if index == 0 => {
                (first_len, to_realm) = (datagram.len(), datagram.realm);
                let Some(place) = first.get_mut(..first_len) else {
                    return Outcome::new(attribution, Err(DropReason::NoHeadroom));
                };
                place.copy_from_slice(datagram.bytes());
            }
            Ok(()) => {}
        }
    }
    let replaced = packet.replace(first.get(..first_len).unwrap_or_default());
    if replaced.is_ok() {
        packet.realm = to_realm;
    }
    Outcome::new(attribution, replaced.map(|()| Step::forward(Whole::Yes)))
}

/// Writes one of a super-packet's datagrams to the scratch buffer.
fn write_datagram<'s>(
    packet: &Packet<'_>,
    index: usize,
    room: &'s mut [u8],
) -> Result<Packet<'s>, DropReason> {
    let out = room.get_mut(HEADROOM..).unwrap_or_default();
    let len = segment::write(packet, index, out)?;
    Packet::new(room, HEADROOM, len).ok_or(DropReason::NoHeadroom)
}

/// Emits a translated datagram. Of the first datagram, it emits all fragments except the first one.
fn leave(core: &mut Core, datagram: &mut Packet<'_>, step: Step, is_first: bool) -> Result<(), DropReason> {
    let emit = &mut core.state.emit;
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
    core.state.counters.fragments_made += made;
    Ok(())
}
