//! Lifetimes of mappings: RFC 4787 4.3, RFC 5382 5, RFC 5508 3.2, RFC 7857 2 and 7.

use super::common::*;
use super::{A, OTHER, ROUTER, SERVER, T, plan44};
use gatun_nat::plan::{Timeouts, Transport};
use gatun_nat::{Plan, Verdict};
use gatun_wire::DropReason;

const GONE: Verdict = Verdict::Drop(DropReason::NoBib);

// proves: R47-5, R47-6, R78-7
#[test]
fn a_udp_session_lives_five_minutes_and_only_inside_packets_extend_it_by_default() {
    assert_eq!(Timeouts::default().udp_ms, 300_000);
    for (inbound_refresh, expected) in [(false, GONE), (true, Verdict::Forward)] {
        let mut plan = plan44();
        plan.nat44[0].inbound_refresh = inbound_refresh;
        let mut bed = Bed::new(&plan);
        let port = bed.through(&udp4(A, 5000, SERVER, 53, b"x")).sport;
        bed.pass_ms(200_000);
        bed.through(&udp4(SERVER, 53, T, port, b"x"));
        bed.pass_ms(200_000);
        assert_eq!(bed.send(&udp4(SERVER, 53, T, port, b"x")).verdict, expected);
    }
    let mut bed = Bed::new(&plan44());
    let port = bed.through(&udp4(A, 5000, SERVER, 53, b"x")).sport;
    for _ in 0..3 {
        bed.pass_ms(290_000);
        assert_eq!(bed.through(&udp4(A, 5000, SERVER, 53, b"x")).sport, port);
    }
    bed.pass_ms(310_000);
    assert_eq!(bed.nat.occupancy(), Default::default());
}

// proves: R47-6, R78-7
#[test]
fn a_stranger_cannot_keep_a_mapping_alive_by_its_filter() {
    let mut bed = Bed::new(&plan44());
    let port = bed.through(&udp4(A, 5000, SERVER, 53, b"x")).sport;
    for n in 0..40 {
        let _ = bed.send(&udp4(OTHER, 1000 + n % 3, T, port, b"x"));
        bed.pass_ms(20_000);
    }
    assert_eq!(bed.send(&udp4(OTHER, 1000, T, port, b"x")).verdict, GONE);
}

/// Plays a connection to a server, through one session: `i` and `o` before the flags tell which side sends.
fn play(plan: &Plan, history: &str) -> (Bed, u16) {
    let mut bed = Bed::new(plan);
    let mut port = 0;
    for step in history.split(' ') {
        match step.split_at(1) {
            ("i", flags) => port = bed.through(&tcp4(A, 5000, SERVER, 80, flags, b"")).sport,
            (_, flags) => {
                bed.through(&tcp4(SERVER, 80, T, port, flags, b""));
            }
        }
    }
    (bed, port)
}

/// Checks that the session of a history lives for so many seconds and no longer, and that so many probes are
/// sent.
fn lives(plan: &Plan, history: &str, seconds: u64, probes: usize) {
    let alive = |bed: &mut Bed, port| bed.send(&tcp4(SERVER, 80, T, port, "A", b"")).verdict;
    let (mut bed, port) = play(plan, history);
    bed.pass_ms(seconds * 1000 - 1000);
    assert_eq!(alive(&mut bed, port), Verdict::Forward, "{history}");
    let (mut bed, port) = play(plan, history);
    let sent = bed.pass_ms(seconds * 1000 + 10_000);
    assert_eq!(sent.len(), probes, "{history}");
    for probe in &sent {
        let e = ends(probe);
        let (src, dst) = (v4(SERVER).into(), v4(A).into());
        assert_eq!(e, Ends { src, dst, sport: 80, dport: 5000 }, "{history}");
    }
    assert_eq!(alive(&mut bed, port), GONE, "{history}");
}

// proves: R53-5, R78-1, R78-2
#[test]
fn connections_live_as_long_as_their_state_says() {
    let plan = plan44();
    lives(&plan, "iS", 240, 0);
    lives(&plan, "iS oSA iA", 7_440 + 240, 1);
    lives(&plan, "iS oSA iA iFA", 7_440, 0);
    lives(&plan, "iS oSA iA iFA oFA", 240, 0);
    lives(&plan, "iS oSA iA oR", 240, 0);
    lives(&plan, "iS oSA iA iR", 240, 0);
    // Data shows that the endpoints ignored the reset.
    lives(&plan, "iS oSA iA oR iA", 7_440 + 240, 1);
    let mut plan = plan44();
    plan.nat44[0].timeouts.tcp_partial_open_ms = 30_000;
    plan.nat44[0].timeouts.tcp_closing_ms = 40_000;
    plan.nat44[0].timeouts.tcp_transitory_ms = 50_000;
    lives(&plan, "iS", 30, 0);
    lives(&plan, "iS oSA iA iFA oFA", 40, 0);
    lives(&plan, "iS oSA iA oR", 50, 0);
}

// proves: R53-2, R53-5
#[test]
fn a_connection_that_is_opened_again_while_its_session_closes_lives_as_a_new_one() {
    let plan = plan44();
    for fins in ["iFA oFA iA", "oFA iFA oA"] {
        for syns in ["iS oSA iA", "oS iSA oA", "iS oS iSA oSA"] {
            lives(&plan, &format!("iS oSA iA {fins} {syns}"), 7_440 + 240, 1);
        }
        let (mut bed, port) = play(&plan, &format!("iS oSA iA {fins}"));
        bed.pass_ms(61_000);
        bed.through(&tcp4(A, 5000, SERVER, 80, "S", b""));
        bed.through(&tcp4(SERVER, 80, T, port, "SA", b""));
        for _ in 0..20 {
            bed.pass_ms(200_000);
            bed.through(&tcp4(A, 5000, SERVER, 80, "A", b""));
            assert_eq!(bed.through(&tcp4(SERVER, 80, T, port, "PA", b"x")).dport, 5000);
        }
    }
    for end in ["oR", "iR", "iFA oR", "iFA", "oFA"] {
        lives(&plan, &format!("iS oSA iA {end} iS oSA iA"), 7_440 + 240, 1);
        lives(&plan, &format!("iS oSA iA {end} oS iSA oA"), 7_440 + 240, 1);
    }
}

// proves: R78-8, R47-6
#[test]
fn resets_from_inside_extend_no_life() {
    // In any state, a reset never extends the remaining lifetime.
    for (history, seconds) in
        [("iS", 240), ("iS oSA iA iFA", 7_440), ("iS oSA iA oR", 240), ("iS oSA iA iFA oFA", 240)]
    {
        let (mut bed, port) = play(&plan44(), history);
        bed.pass_ms(100_000);
        bed.through(&tcp4(A, 5000, SERVER, 80, "R", b""));
        bed.pass_ms(seconds * 1000 - 100_000 + 10_000);
        assert_eq!(bed.send(&tcp4(SERVER, 80, T, port, "A", b"")).verdict, GONE, "{history}");
    }
    // Neither does a reset without a session that goes through the binding to another host.
    let (mut bed, port) = play(&plan44(), "iS");
    for _ in 0..5 {
        bed.pass_ms(50_000);
        if bed.send(&tcp4(OTHER, 99, T, port, "A", b"")).verdict == Verdict::Forward {
            bed.through(&tcp4(A, 5000, OTHER, 99, "R", b""));
        }
    }
    assert_eq!(bed.nat.occupancy().sessions, 0);
}

// proves: R53-5, R78-7
#[test]
fn a_connection_that_only_the_outside_keeps_talking_on_ends_and_one_that_is_acknowledged_does_not() {
    let (mut bed, port) = play(&plan44(), "iS oSA iA");
    for _ in 0..20 {
        let _ = bed.send(&tcp4(SERVER, 80, T, port, "PA", b"x"));
        bed.pass_ms(600_000);
    }
    assert_eq!(bed.send(&tcp4(SERVER, 80, T, port, "A", b"")).verdict, GONE);
    let (mut bed, port) = play(&plan44(), "iS oSA iA");
    for _ in 0..20 {
        bed.through(&tcp4(SERVER, 80, T, port, "PA", b"x"));
        bed.through(&tcp4(A, 5000, SERVER, 80, "A", b""));
        bed.pass_ms(600_000);
    }
    assert_eq!(bed.nat.occupancy().sessions, 1);
}

// proves: R55-2, R78-12
#[test]
fn echo_lives_sixty_seconds_and_the_mapping_goes_with_its_last_session() {
    let mut bed = Bed::new(&plan44());
    let id = bed.through(&echo4(A, SERVER, true, 7, b"x")).sport;
    bed.pass_ms(59_000);
    assert_eq!(bed.through(&echo4(A, OTHER, true, 7, b"x")).sport, id);
    bed.pass_ms(30_000);
    assert_eq!(bed.nat.occupancy().sessions, 1);
    bed.through(&echo4(OTHER, T, false, id, b"x"));
    bed.pass_ms(40_000);
    assert_eq!(bed.nat.occupancy(), Default::default());
}

// proves: R78-7
#[test]
fn a_strangers_session_is_bounded_by_the_last_of_the_bindings_own_not_by_its_first() {
    let mut bed = Bed::new(&plan44());
    let sessions = |bed: &Bed| bed.nat.occupancy().sessions;
    let port = bed.through(&udp4(A, 1000, SERVER, 9, b"x")).sport;
    bed.pass_ms(200_000);
    bed.through(&udp4(A, 1000, OTHER, 9, b"x"));
    bed.pass_ms(90_000);
    bed.through(&udp4(ROUTER, 9, T, port, b"from a stranger"));
    assert_eq!(sessions(&bed), 3);
    bed.pass_ms(30_000);
    assert_eq!(sessions(&bed), 2, "the first session has ended, and that of the other host has not");
    // A further session of another host changes nothing: the binding ends with the second session.
    bed.through(&udp4(ROUTER, 10, T, port, b"from another"));
    bed.pass_ms(190_000);
    assert_eq!((sessions(&bed), bed.nat.occupancy().bindings), (0, 0));
}

// proves: R78-7
#[test]
fn a_static_binding_needs_no_session_and_bounds_none() {
    let mut plan = plan44();
    plan.nat44[0].static_bindings = vec![gatun_nat::plan::StaticBinding {
        transport: Transport::Udp,
        inside: (v4(A).to_ipv6_mapped(), 53),
        outside: (v4(T), 53),
    }];
    // This holds for any number of sessions. If there are many, only the newest are looked at.
    for others in [1, 100] {
        let mut bed = Bed::new(&plan);
        for port in 0..others {
            bed.through(&udp4(SERVER, 1000 + port, T, 53, b"x"));
        }
        bed.pass_ms(290_000);
        bed.through(&udp4(OTHER, 1000, T, 53, b"x"));
        bed.pass_ms(100_000);
        assert_eq!(bed.nat.occupancy().sessions, 1, "of {others}");
    }
}
