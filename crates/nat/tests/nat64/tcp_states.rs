//! The TCP machine of RFC 6146 3.5.2.2, as seen from outside: which segments pass, and until when.

use super::common::*;
use super::{OTHER6, POOL6, SERVER6, T};
use gatun_nat::plan::Filtering;
use gatun_nat::{Plan, Verdict};
use gatun_wire::DropReason;

const EST_S: u64 = 7_440;
const TRANS_S: u64 = 240;

/// A connection from the client's port 5000 to the server's port 80.
struct Line {
    bed: Bed,
    port: u16,
}

impl Line {
    /// Plays a history: `6SA` is a segment with SYN and ACK from IPv6, `4F` one with FIN from IPv4, and `+9`
    /// is nine seconds. `x` is a SYN from the client's port to another server, which makes its binding. All
    /// segments must pass, and nothing else must be sent.
    fn play(plan: &Plan, history: &str) -> Line {
        let mut line = Line { bed: Bed::new(plan), port: 0 };
        for word in history.split_whitespace() {
            let (kind, rest) = word.split_at(1);
            match kind {
                "6" => line.port = line.send_inside(SERVER6, 80, rest),
                "4" => line.send_outside(rest),
                "x" => line.port = line.send_inside(OTHER6, 81, "S"),
                "+" => {
                    let sent = line.bed.pass_ms(rest.parse::<u64>().unwrap() * 1000);
                    assert!(sent.is_empty(), "{history}: {sent:02x?}");
                }
                other => panic!("{other}"),
            }
        }
        line
    }

    fn send_inside(&mut self, server6: &str, port: u16, flags: &str) -> u16 {
        let out = self.bed.send(&tcp6(CLIENT, 5000, server6, port, flags, b""));
        assert!(out.emitted.is_empty());
        ends(out.forwarded()).sport
    }

    fn send_outside(&mut self, flags: &str) {
        let out = self.bed.send(&tcp4(SERVER, 80, T, self.port, flags, b""));
        assert!(out.emitted.is_empty());
        assert_eq!(ends(out.forwarded()).dport, 5000);
    }

    fn verdict_outside(&mut self) -> Verdict {
        self.bed.send(&tcp4(SERVER, 80, T, self.port, "A", b"")).verdict
    }
}

/// Checks that a history's session lives for `after_s` more seconds and no longer, and that so many probes
/// are sent.
fn ends_after(history: &str, after_s: u64, probes: usize) {
    ends_after_with(&plan_with(POOL6), history, after_s, probes);
}

fn ends_after_with(plan: &Plan, history: &str, after_s: u64, probes: usize) {
    let mut before = Line::play(plan, history);
    before.bed.pass_ms(after_s * 1000 - 1_000);
    assert_eq!(before.verdict_outside(), Verdict::Forward, "{history}: still there");

    let mut after = Line::play(plan, history);
    let sent = after.bed.pass_ms(after_s * 1000 + 10_000);
    assert_eq!(sent.len(), probes, "{history}: probes");
    assert_eq!(after.verdict_outside(), Verdict::Drop(DropReason::NoBib), "{history}: gone");
    assert_eq!(after.bed.nat.occupancy(), Default::default(), "{history}");

    // A late sweep makes no visible difference.
    if probes == 0 && !history.contains('x') {
        let mut unswept = Line::play(plan, history);
        unswept.bed.now = unswept.bed.now.plus_ms(after_s * 1000 + 200);
        assert_eq!(unswept.verdict_outside(), Verdict::Drop(DropReason::NoBib), "{history}: unswept");
    }
}

const ESTABLISHED: &str = "6S 4SA 6A";

fn established(history: &str, after_s: u64, probes: usize) {
    ends_after(&format!("{ESTABLISHED} {history}"), after_s, probes);
}

// proves: T61-CLOSED, R53-5
#[test]
fn a_syn_from_inside_opens_for_the_transitory_time() {
    ends_after("6S", TRANS_S, 0);
}

// proves: T61-CLOSED
#[test]
fn a_syn_from_outside_opens_through_a_binding() {
    let line = Line::play(&plan_with(POOL6), "x +100 4S");
    assert_eq!(line.bed.nat.occupancy().sessions, 2);
    ends_after("x +100 4S", TRANS_S, 0);
}

// proves: T61-CLOSED
#[test]
fn without_a_binding_nothing_but_a_syn_passes_and_no_state_is_made() {
    for flags in ["A", "FA", "F", "R", "RA", "PA", "PAU"] {
        let mut bed = Bed::nat64(POOL6);
        let out = bed.send(&tcp6(CLIENT, 5000, SERVER6, 80, flags, b"x"));
        assert_eq!(out.verdict, Verdict::Drop(DropReason::NonSynClosed), "{flags} from inside");
        let out = bed.send(&tcp4(SERVER, 80, T, 5000, flags, b"x"));
        assert_eq!(out.verdict, Verdict::Drop(DropReason::NoBib), "{flags} from outside");
        assert_eq!(bed.nat.occupancy(), Default::default(), "{flags}");
        assert!(bed.pass_ms(10_000).is_empty());
    }
}

// proves: T61-CLOSED
#[test]
fn with_a_binding_other_segments_pass_and_make_no_session() {
    for flags in ["A", "FA", "R", "RA", "PA"] {
        let mut line = Line::play(&plan_with(POOL6), "x");
        let bound = line.port;
        assert_eq!(line.send_inside(SERVER6, 80, flags), bound, "{flags}: by the binding");
        line.send_outside(flags);
        assert_eq!(line.bed.nat.occupancy().sessions, 1, "{flags}");
        // They do not extend anything either: the binding ends with its only session.
        line.bed.pass_ms(TRANS_S * 1000 + 10_000);
        assert_eq!(line.bed.nat.occupancy(), Default::default(), "{flags}");
    }
}

// proves: A61-43
#[test]
fn senseless_flags_never_make_state() {
    for flags in ["SF", "SFA", "SR", "SRA", "", "FPU", "SFRPAU"] {
        let mut bed = Bed::nat64(POOL6);
        let out = bed.send(&tcp6(CLIENT, 5000, SERVER6, 80, flags, b""));
        assert_eq!(out.verdict, Verdict::Drop(DropReason::TcpInvalidFlags), "{flags} from inside");
        let out = bed.send(&tcp4(SERVER, 80, T, 5000, flags, b""));
        assert_eq!(out.verdict, Verdict::Drop(DropReason::NoBib), "{flags} to no binding");
        assert_eq!(bed.nat.occupancy(), Default::default(), "{flags}");

        let mut line = Line::play(&plan_with(POOL6), "x");
        let sessions = line.bed.nat.occupancy();
        let invalid = Verdict::Drop(DropReason::TcpInvalidFlags);
        let out = line.bed.send(&tcp4(SERVER, 80, T, line.port, flags, b""));
        assert_eq!(out.verdict, invalid, "{flags} to a binding");
        let out = line.bed.send(&tcp6(CLIENT, 5000, SERVER6, 80, flags, b""));
        assert_eq!(out.verdict, invalid, "{flags} through a binding");
        assert_eq!(line.bed.nat.occupancy(), sessions, "{flags}");
    }
}

// proves: T61-CLOSED, R53-4
#[test]
fn without_external_tcp_a_syn_from_outside_is_dropped_silently() {
    let mut plan = plan_with(POOL6);
    plan.nat64[0].external_tcp = false;
    plan.icmp.suppressed.clear(); // as a configuration file without `suppress` has it
    let mut line = Line::play(&plan, "x");
    for port in [line.port, line.port ^ 1] {
        let out = line.bed.send(&tcp4(SERVER, 80, T, port, "S", b""));
        assert_eq!(out.verdict, Verdict::Drop(DropReason::ExternalSynPolicy));
    }
    assert!(line.bed.pass_ms(10_000).is_empty());
    assert_eq!(line.bed.nat.occupancy().sessions, 1);
    // Connections from inside still work.
    Line::play(&plan, "6S 4SA 6A 4PA 6FA 4FA 6A");
}

// proves: T61-V4_INIT
#[test]
fn v4_init_is_changed_by_a_syn_from_inside_alone() {
    ends_after("x +100 4S +100 4S", TRANS_S - 100, 0);
    ends_after("x +100 4S +50 4A 4R 4FA 4PA 6A 6R 6FA 6PA", TRANS_S - 50, 0);
    ends_after("x +100 4S 6SA", EST_S + TRANS_S, 1);
    ends_after("x +100 4S +100 6S", EST_S + TRANS_S, 1);
}

// proves: T61-V6_INIT
#[test]
fn v6_init_is_renewed_by_its_syn_and_left_by_the_others() {
    ends_after("6S +100 6S", TRANS_S, 0);
    ends_after("6S +100 6A 6R 6FA 6PA 4A 4R 4FA 4PA", TRANS_S - 100, 0);
    ends_after("6S +100 4SA", EST_S + TRANS_S, 1);
    ends_after("6S +100 4S", EST_S + TRANS_S, 1);
}

// proves: T61-ESTABLISHED, R53-5
#[test]
fn established_is_renewed_by_data_from_either_side_and_probes_at_its_end() {
    established("", EST_S + TRANS_S, 1);
    for data in ["6A", "6PA", "6S", "4A", "4PA", "4SA"] {
        established(&format!("+1000 {data}"), EST_S + TRANS_S, 1);
    }
}

// proves: T61-ESTABLISHED
#[test]
fn a_fin_leaves_the_time_as_it_is_and_ends_without_probe() {
    established("+1000 4FA", EST_S - 1000, 0);
    established("+1000 6FA", EST_S - 1000, 0);
}

// proves: T61-ESTABLISHED, R78-2
#[test]
fn a_reset_leaves_an_established_connection_four_minutes() {
    for rst in ["4R", "4RA", "6R", "6RA"] {
        established(&format!("+1000 {rst}"), TRANS_S, 0);
    }
}

// proves: T61-V4_FIN_RCV
#[test]
fn after_a_fin_from_outside_data_starts_the_established_time() {
    for other in ["6A", "6PA", "4A", "4FA"] {
        established(&format!("4FA +1000 {other}"), EST_S, 0);
    }
    established("4FA +1000 6FA", TRANS_S, 0);
}

// proves: T61-V6_FIN_RCV
#[test]
fn after_a_fin_from_inside_data_starts_the_established_time() {
    for other in ["4A", "4PA", "6A", "6FA"] {
        established(&format!("6FA +1000 {other}"), EST_S, 0);
    }
    established("6FA +1000 4FA", TRANS_S, 0);
}

// proves: T61-V4_FIN_V6_FIN_RCV
#[test]
fn after_both_fins_everything_passes_and_nothing_but_a_syn_extends_anything() {
    let all = "6A 4A 6PA 4PA 6FA 4FA 6R 4R";
    established(&format!("4FA 6FA +100 {all}"), TRANS_S - 100, 0);
    established(&format!("6FA 4FA +100 {all}"), TRANS_S - 100, 0);
}

// proves: R78-8, T61-V4_FIN_RCV, T61-V6_FIN_RCV
#[test]
fn a_reset_extends_the_life_of_no_session_that_one_side_has_closed() {
    for fin in ["4FA", "6FA"] {
        for rst in ["4R", "4RA", "6R", "6RA"] {
            established(&format!("{fin} +1000 {rst}"), EST_S - 1000, 0);
        }
    }
}

// proves: R53-2, R53-5
#[test]
fn a_connection_that_is_opened_again_while_its_session_closes_lives_as_a_new_one() {
    // From either side, with the FINs in either order. A late segment of the old connection has no effect.
    for fins in ["6FA 4FA 6A", "4FA 6FA 4A"] {
        for (syn, answer) in [("6S", "4SA 6A"), ("4S", "6SA 4A"), ("6S 4S", "6SA 4SA")] {
            established(&format!("{fins} +61 {syn} {answer} 6PA 4PA"), EST_S + TRANS_S, 1);
            established(&format!("{fins} +61 {syn} 6FA 4FA {answer} 4PA"), EST_S + TRANS_S, 1);
            // It closes as any other connection.
            established(&format!("{fins} +61 {syn} {answer} +300 6FA +300 4FA"), TRANS_S, 0);
        }
        // Data keeps it alive for a long time.
        let data = "+3000 6PA 4A ".repeat(5);
        Line::play(&plan_with(POOL6), &format!("{ESTABLISHED} {fins} +61 6S 4SA 6A {data}"));
        // An unanswered SYN gets the lifetime of an opening connection, once.
        established(&format!("{fins} +61 6S"), TRANS_S, 0);
        established(&format!("{fins} +61 4S +100 4S"), TRANS_S - 100, 0);
    }
}

// proves: R53-2
#[test]
fn a_connection_that_is_opened_again_after_a_reset_or_one_fin_lives_as_a_new_one() {
    for end in ["4R", "6R", "6FA", "4FA", "6FA 4R", "4FA 6R"] {
        for (syn, answer) in [("6S", "4SA 6A"), ("4S", "6SA 4A")] {
            established(&format!("{end} +61 {syn} {answer}"), EST_S + TRANS_S, 1);
            // The FIN of the old connection does not count for the new one: only one side's FIN has come.
            established(&format!("{end} +61 {syn} {answer} 4FA +1000 6PA"), EST_S, 0);
            established(&format!("{end} +61 {syn} {answer} 6FA +1000 4PA"), EST_S, 0);
        }
    }
}

// proves: R78-7
#[test]
fn a_remote_host_that_opens_again_and_again_keeps_no_session_alive() {
    let mut plan = plan_with(POOL6);
    plan.nat64[0].inbound_refresh = false;
    ends_after_with(&plan, &format!("{ESTABLISHED} 6FA 4FA +61 4S +61 4S"), TRANS_S - 122, 0);
    ends_after_with(&plan, &format!("{ESTABLISHED} 4FA +1000 4S 4FA +1000 4S 4FA"), EST_S - 2000, 0);
    // The inside host's answer keeps it alive.
    ends_after_with(&plan, &format!("{ESTABLISHED} 6FA 4FA +61 4S 6SA"), EST_S + TRANS_S, 1);
}

// proves: T61-CLOSED, R53-4
#[test]
fn without_external_tcp_a_closed_connection_is_opened_again_from_inside_alone() {
    let mut plan = plan_with(POOL6);
    plan.nat64[0].external_tcp = false;
    let closed = format!("{ESTABLISHED} 6FA 4FA 6A +61");
    let mut line = Line::play(&plan, &closed);
    let out = line.bed.send(&tcp4(SERVER, 80, T, line.port, "S", b""));
    assert_eq!(out.verdict, Verdict::Drop(DropReason::ExternalSynPolicy));
    line.send_outside("FA");
    ends_after_with(&plan, &format!("{closed} 6S 4SA 6A"), EST_S + TRANS_S, 1);
    ends_after_with(&plan, &format!("{closed} 6S 4S 6SA"), EST_S + TRANS_S, 1);
}

// proves: T61-TRANS, R78-2, R53-10
#[test]
fn data_brings_a_reset_connection_back_and_further_resets_change_nothing() {
    established("4R +100 4R 6R 4RA 6RA", TRANS_S - 100, 0);
    for sign_of_life in ["6A", "4A", "6S", "4S", "6FA", "4FA"] {
        established(&format!("4R +100 {sign_of_life}"), EST_S + TRANS_S, 1);
    }
}

// proves: A61-42
#[test]
fn a_reset_after_a_fin_can_shorten_the_time() {
    let mut plan = plan_with(POOL6);
    plan.nat64[0].rst_during_fin = true;
    for (history, after_s) in [
        ("4FA +1000 4R", TRANS_S),
        ("4FA +1000 6R", TRANS_S),
        ("6FA +1000 4R", TRANS_S),
        ("6FA +1000 6R", TRANS_S),
        ("6FA +1000 6A", EST_S),
        ("6FA 4FA +100 6R", TRANS_S - 100),
    ] {
        ends_after_with(&plan, &format!("{ESTABLISHED} {history}"), after_s, 0);
    }
}

// proves: T61-ESTABLISHED
#[test]
fn the_probe_is_an_empty_segment_from_the_server_with_nothing_but_ack() {
    let mut line = Line::play(&plan_with(POOL6), ESTABLISHED);
    let sent = line.bed.pass_ms(EST_S * 1000 + 6_000);
    let mut expected = Vec::new();
    etherparse::PacketBuilder::ipv6(v6(SERVER6).octets(), v6(CLIENT).octets(), 64)
        .tcp(80, 5000, 0, 0)
        .ack(0)
        .write(&mut expected, &[])
        .unwrap();
    assert_eq!(sent, [expected]);
    assert_eq!(line.bed.nat.counters().probes_sent, 1);
    // The client's answer shows that the connection is alive.
    line.send_inside(SERVER6, 80, "A");
    line.bed.pass_ms(EST_S * 1000 - 1_000);
    line.send_outside("PA");
}

// proves: T61-ESTABLISHED
#[test]
fn a_packet_of_another_flow_does_not_answer_the_probe() {
    let mut plan = plan_with(POOL6);
    plan.nat64[0].filtering = Filtering::AddressDependent;
    let mut line = Line::play(&plan, ESTABLISHED);
    line.bed.now = line.bed.now.plus_ms(EST_S * 1000);
    // Another port of the server is admitted because its address is known, but does not show that this
    // connection is alive.
    line.bed.through(&tcp4(SERVER, 8080, T, line.port, "S", b""));
    assert_eq!(line.bed.pass_ms(6_000).len(), 1, "a probe");
}

// proves: T61-TRANS
#[test]
fn a_reset_that_answers_the_probe_lets_the_connection_end() {
    let mut line = Line::play(&plan_with(POOL6), ESTABLISHED);
    assert_eq!(line.bed.pass_ms(EST_S * 1000 + 6_000).len(), 1);
    line.send_inside(SERVER6, 80, "R");
    assert!(line.bed.pass_ms(TRANS_S * 1000 + 5_000).is_empty());
    assert_eq!(line.bed.nat.occupancy(), Default::default());
}

// proves: A61-41, R53-2
#[test]
fn syns_that_cross_establish_a_connection() {
    let line = Line::play(&plan_with(POOL6), "6S 4S 6SA 4SA 6A 4A 6PA 4PA");
    assert_eq!(line.bed.nat.counters().icmp_errors_sent, 0);
    assert_eq!(line.bed.nat.occupancy().sessions, 1);
    ends_after("6S 4S 6SA 4SA", EST_S + TRANS_S, 1);
}

// proves: R53-2, R53-1
#[test]
fn either_side_may_open_half_close_and_reopen() {
    let plan = plan_with(POOL6);
    Line::play(&plan, "6S 4SA 6A 6PA 4FA 6A 6PA 4A 6FA 4A");
    Line::play(&plan, "x 4S 6SA 4A 4PA 6FA 4A 4PA 6A 4FA 6A");
    // The same endpoints again: after TIME-WAIT, and while the session is still closing.
    Line::play(&plan, "6S 4SA 6A 6FA 4FA 6A +300 6S 4SA 6A 6PA 4PA");
    Line::play(&plan, "6S 4RA +1 6S 4SA 6A 4PA");
}

// proves: R53-5, R78-1
#[test]
fn tcp_lifetimes_are_configurable() {
    let mut plan = plan_with(POOL6);
    plan.nat64[0].timeouts.tcp_established_ms = 600_000;
    plan.nat64[0].timeouts.tcp_transitory_ms = 30_000;
    plan.nat64[0].timeouts.tcp_partial_open_ms = 40_000;
    plan.nat64[0].timeouts.tcp_closing_ms = 50_000;
    ends_after_with(&plan, "6S", 40, 0);
    ends_after_with(&plan, "6S 4SA 6A", 630, 1);
    ends_after_with(&plan, "6S 4SA 6A 4R", 30, 0);
    ends_after_with(&plan, "6S 4SA 6A 6FA 4FA", 50, 0);
}
