//! The TCP state machine of RFC 6146 3.5.2.2, as pure functions.
//!
//! NAT44 uses the same machine: V6 stands for its inside, V4 for its outside.
//!
//! CLOSED has no variant: it is the absence of a session. [`open`] leaves it, and [`on_timeout`] defines the
//! end of a state. State and lifetime are separate results, because RFC 6146 changes either without the
//! other.

use gatun_wire::DropReason;

/// State of a TCP session.
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
    /// A reset came, or a probe was sent: the connection may be over.
    Trans = 6,
}

impl TcpState {
    /// Returns whether both sides have closed the connection, or a reset has.
    pub const fn is_closed(self) -> bool {
        matches!(self, TcpState::V4FinV6FinRcv | TcpState::Trans)
    }
}

/// Side that a segment comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Side {
    /// Packets from the inside host.
    V6 = 0,
    /// Packets from the remote host.
    V4 = 1,
}

/// Class of a segment's flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Segment {
    /// SYN, with or without ACK.
    Syn = 0,
    /// FIN.
    Fin = 1,
    /// RST.
    Rst = 2,
    /// None of these.
    Other = 3,
}

/// Change of a session's remaining lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lifetime {
    /// No change.
    Keep,
    /// It is set to TCP_EST.
    Established,
    /// It is set to TCP_TRANS, or to the lifetime of opening connections (RFC 7857 2.1).
    PartialOpen,
    /// It is set to TCP_TRANS, or to the lifetime of connections that both sides have closed (RFC 7857 2.1).
    Closing,
    /// It is set to TCP_TRANS.
    Transitory,
    /// It is set to TCP_INCOMING_SYN.
    IncomingSyn,
}

/// Action for a session whose lifetime expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimeoutAction {
    /// Gatun deletes the session.
    Delete,
    /// Gatun sends a probe to the endpoints, and the session goes on as [`after_probe`] defines.
    Probe,
}

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const URG: u8 = 0x20;

/// Classifies a segment's flags (the header's 14th byte) for the machine.
///
/// # Errors
///
/// [`DropReason::TcpInvalidFlags`] for combinations that only scanners send: SYN with FIN, SYN with RST, no
/// flag at all, and FIN, PSH, URG without ACK ("Xmas"). They must never create state. See
/// [`classify_existing`] for existing sessions.
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

/// Classifies a segment of an existing session. The endpoints judge odd combinations there, so the translator
/// does not drop them. Segments on which the endpoints would not act are [`Segment::Other`]: they pass, and
/// neither open nor close anything.
///
/// - RST counts with any other flags, because receivers look at it before SYN and FIN (RFC 9293 3.10.7.4).
/// - SYN with FIN counts as neither: no receiver opens or closes on it.
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

/// RFC 6146 3.5.2.2, CLOSED: returns the state after a SYN that creates a session. If filtering requires that
/// a SYN from IPv4 is held, its lifetime is [`Lifetime::IncomingSyn`] instead.
pub const fn open(side: Side) -> (TcpState, Lifetime) {
    match side {
        // "V6 SYN: ... The state of the session is moved to V6 INIT", lifetime TCP_TRANS.
        Side::V6 => (TcpState::V6Init, Lifetime::PartialOpen),
        // "V4 SYN: ... The state is moved to V4 INIT", lifetime TCP_TRANS.
        Side::V4 => (TcpState::V4Init, Lifetime::PartialOpen),
    }
}

/// RFC 6146 3.5.2.2: handles a segment of an existing session. `rst_during_fin` is not part of the RFC: a
/// reset after one FIN then moves the session to TRANS, so that it ends soon.
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
        (V6Init, V6, Syn) => (V6Init, Lifetime::PartialOpen),
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
        (V4FinRcv, V6, Fin) => (V4FinV6FinRcv, Lifetime::Closing),
        // Deviates if configured (A61-42): RFC 6146 gives a session that was reset here TCP_EST.
        (V4FinRcv | V6FinRcv, V4 | V6, Rst) if rst_during_fin => (Trans, Lifetime::Transitory),
        // Deviates (decision 0034): RFC 6146 gives it TCP_EST; under RFC 7857 7.1 a reset extends no
        // lifetime.
        (V4FinRcv | V6FinRcv, V4 | V6, Rst) => (state, Lifetime::Keep),
        // Deviates (decision 0034): RFC 6146 leaves the state unchanged. The endpoints open the connection
        // again, and the FIN seen does not belong to the new connection.
        (V4FinRcv | V6FinRcv, V4 | V6, Syn) => (Established, Lifetime::Established),
        // "If any packet other than the V6 FIN is received ... at least TCP_EST. ... unchanged."
        (V4FinRcv, V6, Other) => (V4FinRcv, Lifetime::Established),
        (V4FinRcv, V4, Fin | Other) => (V4FinRcv, Lifetime::Established),

        // V6 FIN RCV: "If a V4 FIN packet is received ... TCP_TRANS ... moved to V4 FIN + V6 FIN RCV."
        (V6FinRcv, V4, Fin) => (V4FinV6FinRcv, Lifetime::Closing),
        // "If any packet other than the V4 FIN is received ... at least TCP_EST. ... unchanged."
        (V6FinRcv, V4, Other) => (V6FinRcv, Lifetime::Established),
        (V6FinRcv, V6, Fin | Other) => (V6FinRcv, Lifetime::Established),

        // Deviates (decision 0034): RFC 6146 leaves state and lifetime unchanged, and would cut the
        // connection that is opened again (RFC 9293 3.10.7.4, TIME-WAIT; RFC 5382 REQ-2).
        (V4FinV6FinRcv, V4 | V6, Syn) => open(side),
        // V4 FIN + V6 FIN RCV: "All packets are translated and forwarded", nothing else.
        (V4FinV6FinRcv, V4 | V6, Fin | Rst | Other) => (V4FinV6FinRcv, Lifetime::Keep),

        // TRANS: "If a packet other than a RST packet is received ... TCP_EST ... moved to ESTABLISHED."
        (Trans, V4 | V6, Syn | Fin | Other) => (Established, Lifetime::Established),
        // A reset changes nothing, so a forged one costs nothing while data flows.
        (Trans, V4 | V6, Rst) => (Trans, Lifetime::Keep),
    }
}

/// Returns whether a segment reopens a connection that one or both sides have closed (decision 0034).
pub const fn reopens(state: TcpState, segment: Segment) -> bool {
    use TcpState::{V4FinRcv, V4FinV6FinRcv, V6FinRcv};
    matches!(state, V4FinRcv | V6FinRcv | V4FinV6FinRcv) && matches!(segment, Segment::Syn)
}

/// RFC 6146 3.5.2.2: returns the action for a session whose lifetime expired.
pub const fn on_timeout(state: TcpState) -> TimeoutAction {
    use TcpState::{Established, Trans, V4FinRcv, V4FinV6FinRcv, V4Init, V6FinRcv, V6Init};
    match state {
        // "If the lifetime expires ... a probe packet SHOULD be sent to at least one of the endpoints."
        Established => TimeoutAction::Probe,
        // The others are deleted; a SYN held for V4 INIT also gets an answer.
        V4Init | V6Init | V4FinRcv | V6FinRcv | V4FinV6FinRcv | Trans => TimeoutAction::Delete,
    }
}

/// Returns the lifetime of a connection in a state of which only that is known.
pub const fn lifetime_of(state: TcpState) -> Lifetime {
    match state {
        TcpState::V4Init | TcpState::V6Init => Lifetime::PartialOpen,
        TcpState::Established | TcpState::V4FinRcv | TcpState::V6FinRcv => Lifetime::Established,
        TcpState::V4FinV6FinRcv => Lifetime::Closing,
        TcpState::Trans => Lifetime::Transitory,
    }
}

/// RFC 6146 3.5.2.2, ESTABLISHED: after the probe the session is in TRANS, with a lifetime of TCP_TRANS.
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

    /// Converts a number, as `self as u8` gives it, to its state.
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

    /// Name in RFC 6146.
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

/// Mermaid diagram for `docs/reference/tcp-states.md`, generated from the machine.
#[cfg(test)]
mod diagram {
    use super::*;
    use std::collections::BTreeMap;
    use std::format;
    use std::string::String;
    use std::vec::Vec;

    const SIDES: [(Side, &str); 2] = [(Side::V4, "V4"), (Side::V6, "V6")];
    const SEGMENTS: [(Segment, &str); 4] =
        [(Segment::Syn, "SYN"), (Segment::Fin, "FIN"), (Segment::Rst, "RST"), (Segment::Other, "other")];

    fn lifetime(l: Lifetime) -> &'static str {
        match l {
            Lifetime::Keep => "lifetime kept",
            Lifetime::Established => "TCP_EST",
            Lifetime::PartialOpen => "TCP_TRANS (partial open)",
            Lifetime::Closing => "TCP_TRANS (closing)",
            Lifetime::Transitory => "TCP_TRANS",
            Lifetime::IncomingSyn => "TCP_INCOMING_SYN",
        }
    }

    /// Edges of the machine. Edges that differ only in their segment are merged.
    fn edges(rst_during_fin: bool) -> BTreeMap<(&'static str, &'static str, &'static str), Vec<String>> {
        let mut edges: BTreeMap<_, Vec<String>> = BTreeMap::new();
        for state in TcpState::ALL {
            for (segment, segment_name) in SEGMENTS {
                let from = |side| step(state, side, segment, rst_during_fin);
                let mut add = |(next, life): (TcpState, Lifetime), label| {
                    edges.entry((state.name(), next.name(), lifetime(life))).or_default().push(label);
                };
                if from(Side::V4) == from(Side::V6) {
                    add(from(Side::V4), format!("any {segment_name}"));
                } else {
                    for (side, name) in SIDES {
                        add(from(side), format!("{name} {segment_name}"));
                    }
                }
            }
        }
        edges
    }

    pub(crate) fn mermaid() -> String {
        let mut out = String::from("stateDiagram-v2\n");
        for (side, name) in SIDES {
            let (state, life) = open(side);
            out += &format!("    [*] --> {}: {name} SYN / {}\n", state.name(), lifetime(life));
        }
        let (state, v4) = (open(Side::V4).0.name(), lifetime(Lifetime::IncomingSyn));
        out += &format!("    [*] --> {state}: V4 SYN that must be held / {v4}\n");
        for ((from, to, life), labels) in edges(false) {
            out += &format!("    {from} --> {to}: {} / {life}\n", labels.join(", "));
        }
        let plain = edges(false);
        for ((from, to, life), labels) in edges(true) {
            let before = plain.get(&(from, to, life));
            let new: Vec<_> = labels.into_iter().filter(|l| before.is_none_or(|b| !b.contains(l))).collect();
            if !new.is_empty() {
                out += &format!("    {from} --> {to}: {} if rst_during_fin / {life}\n", new.join(", "));
            }
        }
        for state in TcpState::ALL {
            let from = state.name();
            out += &match on_timeout(state) {
                TimeoutAction::Delete => format!("    {from} --> [*]: time is up\n"),
                TimeoutAction::Probe => {
                    let (to, life) = after_probe();
                    format!("    {from} --> {}: time is up, probe sent / {}\n", to.name(), lifetime(life))
                }
            };
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::tcp_fsm::{Lifetime as L, Segment as Seg, TcpState as S};
    use std::collections::BTreeSet;
    use std::path::PathBuf;
    use std::vec::Vec;
    use std::{env, format, fs};

    const SEGMENTS: [Segment; 4] = [Seg::Syn, Seg::Fin, Seg::Rst, Seg::Other];
    const SIDES: [Side; 2] = [Side::V6, Side::V4];

    /// Results of a state for (V6 SYN, V6 FIN, V6 RST, V6 other, V4 SYN, V4 FIN, V4 RST, V4 other).
    fn row(state: TcpState) -> Vec<(TcpState, Lifetime)> {
        SIDES.iter().flat_map(|&side| SEGMENTS.map(|segment| step(state, side, segment, false))).collect()
    }

    // proves: T61-CLOSED
    #[test]
    fn a_syn_opens_into_its_sides_init_state() {
        assert_eq!(open(Side::V6), (S::V6Init, L::PartialOpen));
        assert_eq!(open(Side::V4), (S::V4Init, L::PartialOpen));
    }

    // proves: T61-V4_INIT
    #[test]
    fn v4_init_is_left_by_a_v6_syn_alone() {
        let stay = (S::V4Init, L::Keep);
        let est = (S::Established, L::Established);
        assert_eq!(row(S::V4Init), [est, stay, stay, stay, stay, stay, stay, stay]);
        assert_eq!(on_timeout(S::V4Init), TimeoutAction::Delete);
    }

    // proves: T61-V6_INIT
    #[test]
    fn v6_init_is_left_by_a_v4_syn_alone_and_another_v6_syn_renews_it() {
        let stay = (S::V6Init, L::Keep);
        let est = (S::Established, L::Established);
        assert_eq!(row(S::V6Init), [(S::V6Init, L::PartialOpen), stay, stay, stay, est, stay, stay, stay]);
        assert_eq!(on_timeout(S::V6Init), TimeoutAction::Delete);
    }

    // proves: T61-ESTABLISHED
    #[test]
    fn established_is_renewed_except_by_fin_and_rst_and_probes_before_its_end() {
        let renew = (S::Established, L::Established);
        let (fin6, fin4) = ((S::V6FinRcv, L::Keep), (S::V4FinRcv, L::Keep));
        let rst = (S::Trans, L::Transitory);
        assert_eq!(row(S::Established), [renew, fin6, rst, renew, renew, fin4, rst, renew]);
        assert_eq!(on_timeout(S::Established), TimeoutAction::Probe);
        assert_eq!(after_probe(), (S::Trans, L::Transitory));
    }

    // proves: T61-V4_FIN_RCV
    #[test]
    fn v4_fin_rcv_waits_for_the_v6_fin() {
        let (renew, stay) = ((S::V4FinRcv, L::Established), (S::V4FinRcv, L::Keep));
        let (both, again) = ((S::V4FinV6FinRcv, L::Closing), (S::Established, L::Established));
        assert_eq!(row(S::V4FinRcv), [again, both, stay, renew, again, renew, stay, renew]);
        assert_eq!(on_timeout(S::V4FinRcv), TimeoutAction::Delete);
    }

    // proves: T61-V6_FIN_RCV
    #[test]
    fn v6_fin_rcv_waits_for_the_v4_fin() {
        let (renew, stay) = ((S::V6FinRcv, L::Established), (S::V6FinRcv, L::Keep));
        let (both, again) = ((S::V4FinV6FinRcv, L::Closing), (S::Established, L::Established));
        assert_eq!(row(S::V6FinRcv), [again, renew, stay, renew, again, both, stay, renew]);
        assert_eq!(on_timeout(S::V6FinRcv), TimeoutAction::Delete);
    }

    // proves: T61-V4_FIN_V6_FIN_RCV
    #[test]
    fn after_both_fins_only_a_syn_changes_the_state() {
        let stay = (S::V4FinV6FinRcv, L::Keep);
        let (again6, again4) = (open(Side::V6), open(Side::V4));
        assert_eq!(row(S::V4FinV6FinRcv), [again6, stay, stay, stay, again4, stay, stay, stay]);
        assert_eq!(on_timeout(S::V4FinV6FinRcv), TimeoutAction::Delete);
    }

    // proves: T61-TRANS
    #[test]
    fn any_segment_except_a_reset_returns_trans_to_established() {
        let back = (S::Established, L::Established);
        let stay = (S::Trans, L::Keep);
        assert_eq!(row(S::Trans), [back, back, stay, back, back, back, stay, back]);
        assert_eq!(on_timeout(S::Trans), TimeoutAction::Delete);
    }

    // proves: A61-42
    #[test]
    fn a_reset_after_one_fin_shortens_the_lifetime_only_if_configured() {
        for state in S::ALL {
            for (side, segment) in SIDES.iter().flat_map(|&side| SEGMENTS.map(|s| (side, s))) {
                let (plain, asked) = (step(state, side, segment, false), step(state, side, segment, true));
                if matches!(state, S::V4FinRcv | S::V6FinRcv) && segment == Seg::Rst {
                    assert_eq!(plain, (state, L::Keep));
                    assert_eq!(asked, (S::Trans, L::Transitory));
                } else {
                    assert_eq!(plain, asked, "{state:?} {side:?} {segment:?}");
                }
            }
        }
    }

    // proves: R78-8
    #[test]
    fn a_reset_extends_no_life_in_any_state() {
        for state in S::ALL {
            for (side, during_fin) in SIDES.iter().flat_map(|&side| [(side, false), (side, true)]) {
                let lifetime = step(state, side, Seg::Rst, during_fin).1;
                assert!(matches!(lifetime, L::Keep | L::Transitory), "{state:?} {side:?} {lifetime:?}");
            }
        }
    }

    // proves: R53-2
    #[test]
    fn every_order_of_two_syns_ends_established() {
        for first in SIDES {
            let other = if first == Side::V6 { Side::V4 } else { Side::V6 };
            let again = step(open(first).0, first, Seg::Syn, false).0;
            assert_eq!(again, open(first).0, "a retransmitted SYN changes nothing");
            assert_eq!(step(again, other, Seg::Syn, false).0, S::Established);
        }
    }

    // proves: A61-43
    #[test]
    fn all_256_flag_combinations_are_classified() {
        for flags in 0..=255u8 {
            let (fin, syn, rst) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
            let (psh, ack, urg) = (flags & 8 != 0, flags & 16 != 0, flags & 32 != 0);
            let null = !(fin || syn || rst || psh || ack || urg);
            let xmas = fin && psh && urg && !ack && !rst;
            let expected = if syn && (fin || rst) || null || xmas {
                Err(DropReason::TcpInvalidFlags)
            } else if rst {
                Ok(Seg::Rst)
            } else if syn {
                Ok(Seg::Syn)
            } else if fin {
                Ok(Seg::Fin)
            } else {
                Ok(Seg::Other)
            };
            assert_eq!(classify(flags), expected, "{flags:#04x}");
            match classify(flags) {
                Ok(segment) => assert_eq!(classify_existing(flags), segment),
                Err(_) if rst => assert_eq!(classify_existing(flags), Seg::Rst),
                Err(_) => assert_eq!(classify_existing(flags), Seg::Other),
            }
        }
    }

    #[test]
    fn numbers_and_states_match() {
        for n in 0..=255u8 {
            assert_eq!(TcpState::from_u8(n).map(|s| s as u8), (n < 7).then_some(n));
        }
        let names: BTreeSet<_> = S::ALL.map(S::name).into();
        assert_eq!(names.len(), S::ALL.len());
    }

    #[test]
    fn published_tcp_state_diagram_matches_the_machine() {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/tcp-states.md");
        let text = format!(
            "# The TCP state machine of stateful sessions\n\n\
             RFC 6146 3.5.2.2, drawn from `crates/nat/src/base/tcp_fsm.rs` by its tests; do not edit.\n\
             `UPDATE_DOCS=1 cargo test -p gatun-nat published_tcp_state_diagram` updates it.\n\n\
             Label of an edge: segment / new lifetime of the session. CLOSED is `[*]`.\n\n\
             ```mermaid\n{}```\n",
            diagram::mermaid()
        );
        if env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&path, &text).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap_or_default(), text, "stale: set UPDATE_DOCS=1");
    }
}
