//! ICMP errors that answer dropped packets.

use super::classify::Classifier;
use super::icmp_reply;
use super::rules::Rules;
use super::state::Core;
use crate::base::counters::Direction;
use crate::base::outcome::Refusal;
use crate::base::time::Instant;
use gatun_wire::icmp_error::{self, Message};
use gatun_wire::{DropReason, Packet};

/// Returns the ICMP error that a reason causes, even if the error may not be sent.
pub(crate) fn message(
    classifier: Classifier<'_, '_>,
    packet: &Packet<'_>,
    direction: Direction,
    refusal: Refusal,
) -> Option<Message> {
    let (settings, bytes, reason) = (classifier.settings(packet), packet.bytes(), refusal.reason);
    let mut message = match direction {
        Direction::FourToFour => icmp_reply::for_nat44(reason, bytes, classifier.mtu44(packet), &settings),
        Direction::SixToFour => icmp_reply::for_ipv6(reason, bytes, &settings),
        Direction::FourToSix => icmp_reply::for_ipv4(reason, bytes, &settings),
    }?;
    if icmp_reply::is_quota(reason) {
        message.code = classifier.rules.quota_code(direction).unwrap_or(message.code);
    }
    message.word = refusal.mtu.unwrap_or(message.word);
    Some(message)
}

/// Returns whether an error may answer the packet at all and is not switched off.
pub(crate) fn may_answer(rules: &Rules, packet: &[u8], direction: Direction, reason: DropReason) -> bool {
    let allowed = match direction {
        Direction::SixToFour => icmp_reply::may_answer6(packet),
        Direction::FourToSix | Direction::FourToFour => icmp_reply::may_answer4(packet),
    };
    allowed && !rules.is_suppressed(reason)
}

/// Replaces the packet with the ICMP error that its refusal causes. Returns whether there is an error to
/// send.
pub(crate) fn send(
    core: &mut Core,
    now: Instant,
    packet: &mut Packet<'_>,
    direction: Direction,
    refusal: Refusal,
) -> bool {
    let (classifier, reason) = (core.classifier(), refusal.reason);
    let Some(message) = message(classifier, packet, direction, refusal) else { return false };
    let allowed = may_answer(classifier.rules, packet.bytes(), direction, reason);
    let (settings, source) = (classifier.settings(packet), classifier.error_source(packet));
    let Core { rules, state, .. } = core;
    if !allowed {
        state.counters.icmp_errors_suppressed += 1;
        return false;
    }
    if !state.may_send_error(now, source, icmp_reply::is_too_big(reason)) {
        return false;
    }
    let (own4, own6) = icmp_reply::sources(reason, packet.bytes(), (rules.own4, rules.own6));
    let made = match (direction, own6, own4) {
        (Direction::SixToFour, Some(own6), _) => icmp_error::error6(packet, own6, message).is_ok(),
        (Direction::FourToSix | Direction::FourToFour, _, Some(own4)) => {
            let id = state.idents.next(u64::from(u32::from(own4)) << 32);
            icmp_error::error4(packet, own4, message, id, settings.icmp4_error_max).is_ok()
        }
        // There is no address to send the error from.
        _ => false,
    };
    state.counters.icmp_errors_suppressed += u64::from(!made);
    made
}
