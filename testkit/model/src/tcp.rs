//! The TCP state machine of RFC 6146 3.5.2.2, in the RFC's order.

/// States of an existing session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum State {
    V4Init,
    V6Init,
    Established,
    V4Fin,
    V6Fin,
    BothFin,
    Trans,
}

impl State {
    /// All states.
    pub const ALL: [State; 7] = [
        State::V4Init,
        State::V6Init,
        State::Established,
        State::V4Fin,
        State::V6Fin,
        State::BothFin,
        State::Trans,
    ];
}

impl Segment {
    /// All segment types.
    pub const ALL: [Segment; 4] = [Segment::Syn, Segment::Fin, Segment::Rst, Segment::Other];
}

/// Type of a segment for the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Segment {
    Syn,
    Fin,
    Rst,
    Other,
}

/// A new lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Timer {
    Keep,
    Established,
    /// TCP_TRANS of an opening connection (RFC 7857 2.1).
    Opening,
    /// TCP_TRANS of a connection that both sides closed (RFC 7857 2.1).
    Closing,
    /// TCP_TRANS otherwise.
    Transitory,
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;
const URG: u8 = 32;

/// A61-43: SYN with FIN or RST, no flags at all, and FIN with PSH and URG without ACK never make state.
pub fn is_senseless(flags: u8) -> bool {
    let has = |f| flags & f != 0;
    (has(SYN) && (has(FIN) || has(RST)))
        || flags & 0x3f == 0
        || (has(FIN) && has(PSH) && has(URG) && !has(ACK) && !has(SYN) && !has(RST))
}

/// Type of a segment of an existing session. RFC 6146 knows only single flags. Choice for combinations: a
/// receiver looks at RST first (RFC 9293 3.10.7.4); SYN with FIN neither opens nor closes; FIN, PSH, URG
/// without ACK is dropped by receivers, so it does not close.
pub fn segment(flags: u8) -> Segment {
    let has = |f| flags & f != 0;
    if has(RST) {
        Segment::Rst
    } else if has(SYN) && has(FIN) {
        Segment::Other
    } else if has(SYN) {
        Segment::Syn
    } else if has(FIN) && !is_senseless(flags) {
        Segment::Fin
    } else {
        Segment::Other
    }
}

/// Next state, and effect on the lifetime.
pub fn step(state: State, from_inside: bool, segment: Segment, rst_during_fin: bool) -> (State, Timer) {
    let from_outside = !from_inside;
    match state {
        State::V4Init => {
            if from_inside && segment == Segment::Syn {
                return (State::Established, Timer::Established);
            }
            (state, Timer::Keep)
        }
        State::V6Init => {
            if segment == Segment::Syn {
                if from_outside {
                    return (State::Established, Timer::Established);
                }
                return (state, Timer::Opening);
            }
            (state, Timer::Keep)
        }
        State::Established => match segment {
            Segment::Fin if from_outside => (State::V4Fin, Timer::Keep),
            Segment::Fin => (State::V6Fin, Timer::Keep),
            Segment::Rst => (State::Trans, Timer::Transitory),
            _ => (state, Timer::Established),
        },
        State::V4Fin | State::V6Fin => {
            // A61-42: not in RFC 6146.
            if segment == Segment::Rst && rst_during_fin {
                return (State::Trans, Timer::Transitory);
            }
            // Choice (decision 0034): a reset extends no lifetime, and a SYN reopens what one side had
            // closed.
            match segment {
                Segment::Rst => return (state, Timer::Keep),
                Segment::Syn => return (State::Established, Timer::Established),
                Segment::Fin | Segment::Other => {}
            }
            let awaited_from_inside = state == State::V4Fin;
            if segment == Segment::Fin && from_inside == awaited_from_inside {
                return (State::BothFin, Timer::Closing);
            }
            (state, Timer::Established)
        }
        // Choice (decision 0034): a SYN reopens the connection, as it would without a session.
        State::BothFin if segment == Segment::Syn && from_inside => (State::V6Init, Timer::Opening),
        State::BothFin if segment == Segment::Syn => (State::V4Init, Timer::Opening),
        State::BothFin => (state, Timer::Keep),
        State::Trans => {
            if segment == Segment::Rst {
                return (state, Timer::Keep);
            }
            (State::Established, Timer::Established)
        }
    }
}
