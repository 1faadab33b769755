//! Translation of a burst's packets, one by one, to their counted verdicts.

use super::answer;
use super::fast_path::{self, SessionOpen};
use super::look_ahead::{Hint, SessionHint, SessionOpens};
use super::path_mtu::{self, PathNote};
use super::slow_path;
use super::state::{Core, EngineState};
use super::super_packet::{self, has_to_be_cut};
use super::{restore, rules::Rules};
use crate::base::attribution::{Account, Attribution};
use crate::base::counters::Direction;
use crate::base::outcome::{Outcome, Refusal};
use crate::base::step::Step;
use crate::base::tally::Slot;
use crate::base::time::Instant;
use crate::base::verdict::{Reply, Verdict};
use crate::tables::bib::SessionRequest;
use crate::tables::session::NONE;
use gatun_wire::{DropReason, Packet, Whole};

/// Direction, received length, and attribution of a packet, to be counted at its end.
#[derive(Clone, Copy)]
pub(super) struct Received {
    pub(super) direction: Direction,
    pub(super) bytes: usize,
    pub(super) attribution: Attribution,
}

/// The last pass over a burst: translates each packet to its counted verdict. Returns the number of processed
/// packets.
#[inline(always)]
pub(crate) fn translate(
    core: &mut Core,
    now: Instant,
    burst: &mut [Packet<'_>],
    (hints, opens): (&[Hint], &mut SessionOpens),
    verdicts: &mut [Verdict],
) -> usize {
    if !core.rules.ruled && !core.state.tables.is_fed() {
        return translate_as::<false, false>(core, now, burst, (hints, opens), verdicts);
    }
    translate_specially(core, now, burst, (hints, opens), verdicts)
}

// Not inlined: more calls in `Nat::process` cost all bursts ten instructions.
#[inline(never)]
fn translate_specially(
    core: &mut Core,
    now: Instant,
    burst: &mut [Packet<'_>],
    hints: (&[Hint], &mut SessionOpens),
    verdicts: &mut [Verdict],
) -> usize {
    match (core.rules.ruled, core.state.tables.is_fed()) {
        (false, _) => translate_as::<false, true>(core, now, burst, hints, verdicts),
        (true, false) => translate_as::<true, false>(core, now, burst, hints, verdicts),
        (true, true) => translate_as::<true, true>(core, now, burst, hints, verdicts),
    }
}

/// Same as [`translate`]. `RULED` has the same meaning as in the look-ahead: without realms, the fast path
/// does not touch them. Without `FED`, the state feed has no consumer, and the fast path has no code that
/// counts packets of a session.
#[inline(never)]
fn translate_as<const RULED: bool, const FED: bool>(
    core: &mut Core,
    now: Instant,
    burst: &mut [Packet<'_>],
    (hints, opens): (&[Hint], &mut SessionOpens),
    verdicts: &mut [Verdict],
) -> usize {
    let mut done = 0;
    // The fast path emits nothing.
    let mut has_room = core.state.emit.has_room();
    for ((packet, hint), verdict) in burst.iter_mut().zip(hints).zip(verdicts) {
        if !has_room {
            break;
        }
        let bytes = packet.len();
        core.state.counters.receive(bytes);
        *verdict = match fast::<FED>(core, now, packet, hint) {
            Some(slot) => {
                if RULED {
                    packet.realm = realm_of(&core.rules, slot);
                }
                core.state.tally.add(slot, bytes);
                Verdict::Forward
            }
            None => {
                core.state.emit.after = done;
                let request = opens.take(done, &core.state.tables);
                let verdict = not_at_once::<RULED>(core, now, packet, (hint, request));
                has_room = core.state.emit.has_room();
                verdict
            }
        };
        done += 1;
    }
    let EngineState { tally, counters, tables, .. } = &mut core.state;
    tally.end_burst(counters, |instance, traffic| tables.count_pooled(instance, traffic));
    core.state.counters.end_burst(done);
    if FED {
        core.state.tables.feed_counted();
    }
    done
}

/// Translates a packet of a live session or of a stateless instance. Returns its slot of the counters; `None`
/// if it has to take the slow path.
#[inline(always)]
fn fast<const FED: bool>(
    core: &mut Core,
    now: Instant,
    packet: &mut Packet<'_>,
    hint: &Hint,
) -> Option<Slot> {
    match hint {
        // Without a record, no session can continue.
        Hint::Session(SessionHint { record: NONE, .. })
        | Hint::Session44(SessionHint { record: NONE, .. })
        | Hint::None => None,
        Hint::Session(hint) => {
            fast_path::outbound6::<FED>(core, now, packet, hint).then(|| Slot::outbound(hint.owner.instance))
        }
        Hint::Session44(hint) => {
            fast_path::outbound4::<FED>(core, now, packet, hint).then(|| Slot::outbound(hint.owner.instance))
        }
        Hint::Binding(hint) => fast_path::inbound::<FED>(core, now, packet, hint).map(Slot::inbound),
        Hint::Stateless6(hint) => {
            fast_path::stateless6(core, now, packet, hint).then(|| Slot::stateless6(hint.instance))
        }
        Hint::Stateless4(hint) => {
            fast_path::stateless4(core, packet, hint).then(|| Slot::stateless4(hint.instance))
        }
    }
}

/// Handles a packet without a live session: it opens one, or takes the slow path.
#[inline(never)]
fn not_at_once<const RULED: bool>(
    core: &mut Core,
    now: Instant,
    packet: &mut Packet<'_>,
    (hint, request): (&Hint, Option<&SessionRequest>),
) -> Verdict {
    let bytes = packet.len();
    if core.state.tables.inheritance.is_some() {
        restore::for_packet(core, now, packet.bytes());
        return slow(core, now, packet);
    }
    let (direction, instance, opened) = match (hint, request) {
        (Hint::Session(hint), Some(request)) => {
            (Direction::SixToFour, hint.owner.instance, fast_path::open6(core, now, packet, hint, request))
        }
        (Hint::Session44(hint), Some(request)) => {
            (Direction::FourToFour, hint.owner.instance, fast_path::open4(core, now, packet, hint, request))
        }
        _ => return slow(core, now, packet),
    };
    match opened {
        SessionOpen::Done => {
            if RULED {
                packet.realm = 0;
            }
            core.state.tally.add(Slot::outbound(instance), bytes);
            Verdict::Forward
        }
        SessionOpen::Refused(reason) => {
            let attribution = Attribution::outbound(Account::Stateful(instance));
            refuse(core, now, packet, Received { direction, bytes, attribution }, reason.into())
        }
        SessionOpen::SlowPath => slow(core, now, packet),
    }
}

/// Translates any packet by the slow path to its counted verdict.
#[inline(never)]
pub(crate) fn slow(core: &mut Core, now: Instant, packet: &mut Packet<'_>) -> Verdict {
    let bytes = packet.len();
    let direction = core.classifier().direction(packet);
    let note = PathNote::of(packet, &core.state.paths);
    // An instance sets the realm of a packet that it writes for a host in a realm. An unchanged packet
    // returns to the realm that it came from.
    let realm = core::mem::take(&mut packet.realm);
    let Outcome { attribution, result } = match slow_path::translate(core, now, packet, realm) {
        Outcome { result: Err(refusal), .. } if has_to_be_cut(packet, refusal.reason) => {
            super_packet::one_by_one(core, now, packet, realm)
        }
        Outcome { attribution, result: Ok(step) } => {
            let step = path_mtu::apply(&mut core.state, now, packet, note, step);
            Outcome { attribution, result: Ok(step) }
        }
        refused => refused,
    };
    let received = Received { direction, bytes, attribution };
    match result {
        Ok(step) => {
            if step == Step::Echo {
                packet.realm = realm;
            }
            count(core, packet, received, step)
        }
        Err(refusal) => {
            packet.realm = realm;
            refuse(core, now, packet, received, refusal)
        }
    }
}

/// Returns the realm of a packet that the fast path has translated.
fn realm_of(rules: &Rules, slot: Slot) -> u8 {
    let instance = slot.inside_of().and_then(|number| rules.get(number));
    instance.map_or(0, |instance| instance.policy().realm)
}

/// Counts a packet after the step of its instance.
fn count(core: &mut Core, packet: &mut Packet<'_>, received: Received, step: Step) -> Verdict {
    let state = &mut core.state;
    let Received { direction, bytes, attribution } = received;
    match step {
        Step::Forward { whole, hairpinned } => {
            if let Whole::Split(max) = whole {
                match state.emit.cut(packet, max) {
                    Ok(pieces) => state.counters.fragments_made += pieces,
                    Err(reason) => return drop_packet(core, received, reason),
                }
            }
            state.count_forwarded(attribution, direction, bytes, hairpinned);
            Verdict::Forward
        }
        Step::Pass => {
            state.counters.passed.add(bytes);
            state.tally.passed(attribution.account, bytes);
            Verdict::Pass
        }
        // The table that holds the packet has counted it.
        Step::Held => Verdict::Held,
        Step::Echo => {
            state.counters.replied.add(bytes);
            state.counters.echo_replies += 1;
            state.tally.echo(attribution.account, bytes);
            Verdict::Reply(Reply::Echo)
        }
        Step::Lost(reason) => drop_packet(core, received, reason),
    }
}

/// Counts a packet that is dropped without an answer.
fn drop_packet(core: &mut Core, received: Received, reason: DropReason) -> Verdict {
    let Received { direction, bytes, attribution } = received;
    core.state.counters.dropped.add(bytes);
    core.state.count_drop(attribution.account, direction, reason, bytes);
    Verdict::Drop(reason)
}

/// Drops a packet, and answers it if its reason has an answer.
#[cold]
pub(super) fn refuse(
    core: &mut Core,
    now: Instant,
    packet: &mut Packet<'_>,
    received: Received,
    refusal: Refusal,
) -> Verdict {
    let Received { direction, bytes, attribution } = received;
    if !answer::send(core, now, packet, direction, refusal) {
        return drop_packet(core, received, refusal.reason);
    }
    core.state.counters.replied.add(bytes);
    core.state.counters.icmp_errors_sent += 1;
    core.state.count_drop(attribution.account, direction, refusal.reason, bytes);
    Verdict::Reply(Reply::Error(refusal.reason))
}
