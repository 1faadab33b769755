//! The TCP state machine of RFC 6146 3.5.2.2, as pure functions.
//!
//! CLOSED has no variant: it is the absence of a session. [`open`] leaves it, and [`on_timeout`] says how
//! a state ends. State and lifetime are separate results, because RFC 6146 changes either without the other.

use gatun_wire::DropReason;

/// A session's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TcpState {
    /// A SYN came from IPv4.
    V4Init = 0,
    /// A SYN came from IPv6.
    V6Init = 1,
    /// SYNs came from both sides.
    Established = 2,
    /// A FIN came from IPv4.
    V4FinRcv = 3,
    /// A FIN came from IPv6.
    V6FinRcv = 4,
    /// FINs came from both sides.
    V4FinV6FinRcv = 5,
    /// A reset came, or a probe was sent: it may be over, or not.
    Trans = 6,
}

/// Where a segment comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Side {
    /// From the inside host.
    V6 = 0,
    /// From the remote host.
    V4 = 1,
}

/// What the machine makes of a segment's flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Segment {
    /// SYN, with or without ACK.
    Syn = 0,
    /// FIN.
    Fin = 1,
    /// RST.
    Rst = 2,
    /// Neither.
    Other = 3,
}

/// What happens to the time that a session has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lifetime {
    /// Nothing.
    Keep,
    /// It is set to TCP_EST.
    Established,
    /// It is set to TCP_TRANS.
    Transitory,
    /// It is set to TCP_INCOMING_SYN.
    IncomingSyn,
}

/// What to do with a session whose time is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnTimeout {
    /// It goes.
    Delete,
    /// Its endpoints are asked with a probe, and it goes on as [`after_probe`] says.
    Probe,
}

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const URG: u8 = 0x20;

/// What a segment's flags (the header's 14th byte) mean to the machine.
///
/// # Errors
/// [`DropReason::TcpInvalidFlags`] for combinations that no stack sends and scanners do: SYN with FIN,
/// SYN with RST, no flag at all, and FIN, PSH, URG without ACK ("Xmas"). They must never make state; see
/// [`classify_existing`] for sessions that exist.
pub const fn classify(flags: u8) -> Result<Segment, DropReason> {
    const SYN_FIN: u8 = SYN | FIN;
    const SYN_RST: u8 = SYN | RST;
    const XMAS: u8 = FIN | PSH | URG;
    let invalid = flags & SYN_FIN == SYN_FIN
        || flags & SYN_RST == SYN_RST
        || flags & (FIN | SYN | RST | PSH | ACK | URG) == 0
        || flags & (XMAS | SYN | RST | ACK) == XMAS;
    if invalid { Err(DropReason::TcpInvalidFlags) } else { Ok(classify_existing(flags)) }
}

/// As [`classify`], for a session that exists: there the endpoints are the judges of odd combinations, and
/// a translator that drops what it finds odd stands in the way. What they would not act on is
/// [`Segment::Other`]: it may pass, and neither opens nor closes anything.
///
/// - RST counts whatever is beside it: receivers look at it before SYN and FIN (RFC 9293 3.10.7.4).
/// - SYN with FIN is neither: no receiver opens or closes by it.
/// - FIN, PSH, URG without ACK is dropped by receivers (RFC 9293 3.10.7.4, fifth), so it closes nothing.
pub const fn classify_existing(flags: u8) -> Segment {
    const XMAS: u8 = FIN | PSH | URG;
    if flags & RST != 0 {
        Segment::Rst
    } else if flags & (SYN | FIN) == SYN {
        Segment::Syn
    } else if flags & (SYN | FIN) == FIN && flags & (XMAS | ACK) != XMAS {
        Segment::Fin
    } else {
        Segment::Other
    }
}

/// RFC 6146 3.5.2.2, CLOSED: the state after a SYN that makes a session. A SYN from IPv4 that has to be
/// held, because filtering does not let it in, has [`Lifetime::IncomingSyn`] instead.
pub const fn open(side: Side) -> (TcpState, Lifetime) {
    match side {
        // "V6 SYN: ... The state of the session is moved to V6 INIT", lifetime TCP_TRANS.
        Side::V6 => (TcpState::V6Init, Lifetime::Transitory),
        // "V4 SYN: ... The state is moved to V4 INIT", lifetime TCP_TRANS.
        Side::V4 => (TcpState::V4Init, Lifetime::Transitory),
    }
}

/// RFC 6146 3.5.2.2: a segment of an existing session. `rst_during_fin` is no part of the RFC: a reset
/// after one FIN then moves the session to TRANS, so that it ends soon.
pub const fn step(
    state: TcpState,
    side: Side,
    segment: Segment,
    rst_during_fin: bool,
) -> (TcpState, Lifetime) {
    use Segment::{Fin, Other, Rst, Syn};
    use Side::{V4, V6};
    use TcpState::{Established, Trans, V4FinRcv, V4FinV6FinRcv, V4Init, V6FinRcv, V6Init};
    match (state, side, segment) {
        // V4 INIT: "If a V6 SYN is received ... the state is moved to ESTABLISHED ... at least TCP_EST."
        (V4Init, V6, Syn) => (Established, Lifetime::Established),
        // "If the packet is other than V6 SYN ... The state of the TCP session remains unchanged."
        (V4Init, V6, Fin | Rst | Other) => (V4Init, Lifetime::Keep),
        (V4Init, V4, Syn | Fin | Rst | Other) => (V4Init, Lifetime::Keep),

        // V6 INIT: "If a V4 SYN is received (with or without the ACK flag set) ... ESTABLISHED."
        (V6Init, V4, Syn) => (Established, Lifetime::Established),
        // "If a V6 SYN packet is received ... lifetime ... at least TCP_TRANS. The state remains unchanged."
        (V6Init, V6, Syn) => (V6Init, Lifetime::Transitory),
        // "If the packet is other than V4 SYN or V6 SYN ... The state remains unchanged."
        (V6Init, V6 | V4, Fin | Rst | Other) => (V6Init, Lifetime::Keep),

        // ESTABLISHED: "If a V4 FIN packet is received ... the state is moved to V4 FIN RCV."
        (Established, V4, Fin) => (V4FinRcv, Lifetime::Keep),
        // "If a V6 FIN packet is received ... the state is moved to V6 FIN RCV."
        (Established, V6, Fin) => (V6FinRcv, Lifetime::Keep),
        // "If a V4 RST or a V6 RST packet is received ... set to TCP_TRANS and ... moved to TRANS."
        (Established, V4 | V6, Rst) => (Trans, Lifetime::Transitory),
        // "If any other packet is received ... at least TCP_EST. The state remains unchanged."
        (Established, V4 | V6, Syn | Other) => (Established, Lifetime::Established),

        // V4 FIN RCV: "If a V6 FIN packet is received ... TCP_TRANS ... moved to V4 FIN + V6 FIN RCV."
        (V4FinRcv, V6, Fin) => (V4FinV6FinRcv, Lifetime::Transitory),
        // Deviates where asked to (A61-42): RFC 6146 gives a session that was reset here TCP_EST.
        (V4FinRcv | V6FinRcv, V4 | V6, Rst) if rst_during_fin => (Trans, Lifetime::Transitory),
        // "If any packet other than the V6 FIN is received ... at least TCP_EST. ... unchanged."
        (V4FinRcv, V6, Syn | Rst | Other) => (V4FinRcv, Lifetime::Established),
        (V4FinRcv, V4, Syn | Fin | Rst | Other) => (V4FinRcv, Lifetime::Established),

        // V6 FIN RCV: "If a V4 FIN packet is received ... TCP_TRANS ... moved to V4 FIN + V6 FIN RCV."
        (V6FinRcv, V4, Fin) => (V4FinV6FinRcv, Lifetime::Transitory),
        // "If any packet other than the V4 FIN is received ... at least TCP_EST. ... unchanged."
        (V6FinRcv, V4, Syn | Rst | Other) => (V6FinRcv, Lifetime::Established),
        (V6FinRcv, V6, Syn | Fin | Rst | Other) => (V6FinRcv, Lifetime::Established),

        // V4 FIN + V6 FIN RCV: "All packets are translated and forwarded", nothing else.
        (V4FinV6FinRcv, V4 | V6, Syn | Fin | Rst | Other) => (V4FinV6FinRcv, Lifetime::Keep),

        // TRANS: "If a packet other than a RST packet is received ... TCP_EST ... moved to ESTABLISHED."
        (Trans, V4 | V6, Syn | Fin | Other) => (Established, Lifetime::Established),
        // A reset changes nothing, so a forged one costs nothing while data flows.
        (Trans, V4 | V6, Rst) => (Trans, Lifetime::Keep),
    }
}

/// RFC 6146 3.5.2.2: what to do when a session's time is up.
pub const fn on_timeout(state: TcpState) -> OnTimeout {
    use TcpState::{Established, Trans, V4FinRcv, V4FinV6FinRcv, V4Init, V6FinRcv, V6Init};
    match state {
        // "If the lifetime expires ... a probe packet SHOULD be sent to at least one of the endpoints."
        Established => OnTimeout::Probe,
        // The others are deleted; a SYN held for V4 INIT is answered besides.
        V4Init | V6Init | V4FinRcv | V6FinRcv | V4FinV6FinRcv | Trans => OnTimeout::Delete,
    }
}

/// RFC 6146 3.5.2.2, ESTABLISHED: after the probe the session is in TRANS, with TCP_TRANS to live.
pub const fn after_probe() -> (TcpState, Lifetime) {
    (TcpState::Trans, Lifetime::Transitory)
}

impl TcpState {
    /// All states, in the order of their numbers.
    pub const ALL: [TcpState; 7] = [
        TcpState::V4Init,
        TcpState::V6Init,
        TcpState::Established,
        TcpState::V4FinRcv,
        TcpState::V6FinRcv,
        TcpState::V4FinV6FinRcv,
        TcpState::Trans,
    ];

    /// The state of a number, as `self as u8` gives it.
    #[inline]
    pub const fn from_u8(n: u8) -> Option<TcpState> {
        match n {
            0 => Some(TcpState::V4Init),
            1 => Some(TcpState::V6Init),
            2 => Some(TcpState::Established),
            3 => Some(TcpState::V4FinRcv),
            4 => Some(TcpState::V6FinRcv),
            5 => Some(TcpState::V4FinV6FinRcv),
            6 => Some(TcpState::Trans),
            _ => None,
        }
    }

    /// RFC 6146's name for it.
    pub const fn name(self) -> &'static str {
        match self {
            TcpState::V4Init => "V4_INIT",
            TcpState::V6Init => "V6_INIT",
            TcpState::Established => "ESTABLISHED",
            TcpState::V4FinRcv => "V4_FIN_RCV",
            TcpState::V6FinRcv => "V6_FIN_RCV",
            TcpState::V4FinV6FinRcv => "V4_FIN_V6_FIN_RCV",
            TcpState::Trans => "TRANS",
        }
    }
}
