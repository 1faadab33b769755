//! Clocks that jump, and sweeps that are rare.

use super::common::*;
use super::{OTHER6, POOL6, SERVER6, T};
use gatun_nat::{Instant, Verdict};
use gatun_wire::DropReason;

fn client(n: u32) -> String {
    format!("2001:db8:1::{:x}", n + 1)
}

#[test]
fn a_clock_jump_back_ends_nothing_early_and_keeps_nothing_forever() {
    let mut bed = Bed::nat64(POOL6);
    bed.pass_ms(1_000_000_000);
    let port = bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x")).sport;
    let syn = tcp4(SERVER, 80, T, 7000, "S", b"");
    assert_eq!(bed.send(&syn).verdict, Verdict::Held);
    bed.now = Instant(5);
    bed.through(&udp4(SERVER, 53, T, port, b"x"));
    assert_eq!(bed.pass_ms(6_500).len(), 1, "the held SYN is answered in time");
    bed.pass_ms(290_000);
    bed.through(&udp4(SERVER, 53, T, port, b"x"));
    bed.pass_ms(306_000);
    assert_eq!(bed.nat.occupancy(), Default::default());
    let late = bed.send(&udp4(SERVER, 53, T, port, b"x"));
    assert_eq!(late.verdict, Verdict::Drop(DropReason::NoBib));
}

#[test]
fn a_clock_jump_ahead_ends_expired_sessions_only() {
    for leap in [100_000_000, 1 << 38, 1 << 40, 1 << 50, u64::MAX - 1_100_000_000] {
        let mut bed = Bed::nat64(POOL6);
        let port = bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x")).sport;
        bed.now = bed.now.plus_ms(leap);
        let late = bed.send(&udp4(SERVER, 53, T, port, b"x"));
        assert_eq!(late.verdict, Verdict::Drop(DropReason::NoBib), "{leap}");
        // After that, time passes as usual.
        let port = bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x")).sport;
        bed.pass_ms(299_000);
        bed.through(&udp4(SERVER, 53, T, port, b"x"));
        bed.pass_ms(306_000);
        assert_eq!(bed.nat.occupancy(), Default::default(), "{leap}");
    }
}

#[test]
fn the_last_instant_does_no_harm() {
    let mut bed = Bed::nat64(POOL6);
    bed.now = Instant(u64::MAX);
    let port = bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x")).sport;
    bed.through(&tcp6(CLIENT, 5000, SERVER6, 53, "S", b"x"));
    bed.through(&udp4(SERVER, 53, T, port, b"x"));
    assert_eq!(bed.send(&tcp4(SERVER, 80, T, 7000, "S", b"")).verdict, Verdict::Held);
    bed.expire(usize::MAX);
    bed.now = Instant(0);
    bed.through(&udp4(SERVER, 53, T, port, b"x"));
    bed.pass_ms(306_000);
    assert_eq!(bed.nat.occupancy(), Default::default());
}

#[test]
fn an_engine_may_begin_at_any_time() {
    for start in [0, 1, 63, 1 << 32, 1 << 38, (1 << 38) - 100_000, 1_763_760_000_000] {
        let mut bed = Bed::nat64(POOL6);
        bed.now = Instant(start);
        let port = bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x")).sport;
        bed.pass_ms(299_000);
        bed.through(&udp4(SERVER, 53, T, port, b"x"));
        bed.pass_ms(306_000);
        assert_eq!(bed.nat.occupancy(), Default::default(), "{start}");
    }
}

#[test]
fn tiny_budgets_end_everything_in_the_end() {
    for budget in [1, 3] {
        let mut bed = Bed::nat64(POOL6);
        for n in 0..300 {
            bed.through(&udp6(&client(n), 5000, SERVER6, 53, b"x"));
        }
        bed.now = bed.now.plus_ms(300_100);
        for _ in 0..2_000 {
            bed.now = bed.now.plus_ms(50);
            let before = bed.nat.occupancy().sessions;
            bed.expire(budget);
            assert!(before - bed.nat.occupancy().sessions <= budget);
        }
        assert_eq!(bed.nat.occupancy(), Default::default(), "{budget}");
    }
}

#[test]
fn no_budget_ends_nothing_and_harms_nothing() {
    let mut bed = Bed::nat64(POOL6);
    let port = bed.through(&udp6(CLIENT, 5000, SERVER6, 53, b"x")).sport;
    bed.now = bed.now.plus_ms(400_000);
    for _ in 0..10 {
        bed.now = bed.now.plus_ms(10_000);
        bed.expire(0);
    }
    assert_eq!(bed.nat.occupancy().sessions, 1);
    let late = bed.send(&udp4(SERVER, 53, T, port, b"x"));
    assert_eq!(late.verdict, Verdict::Drop(DropReason::NoBib), "even without a sweep");
}

#[test]
fn a_sweep_ends_expired_sessions_within_seconds_for_any_steps() {
    for step_ms in [1u64, 7, 100, 1_000, 60_000] {
        let mut bed = Bed::nat64(POOL6);
        for n in 0..200 {
            bed.through(&udp6(&client(n), 5000, SERVER6, 53, b"x"));
        }
        bed.now = bed.now.plus_ms(290_000);
        bed.expire(usize::MAX);
        assert_eq!(bed.nat.occupancy().sessions, 200);
        let mut waited = 0;
        while waited < 15_000 {
            bed.now = bed.now.plus_ms(step_ms);
            waited += step_ms;
            bed.expire(usize::MAX);
        }
        assert_eq!(bed.nat.occupancy(), Default::default(), "steps of {step_ms} ms");
    }
}

#[test]
fn the_time_until_the_next_sweep_depends_on_the_state() {
    let mut bed = Bed::nat64(POOL6);
    let idle = bed.expire(100);
    bed.through(&udp6(CLIENT, 5000, OTHER6, 53, b"x"));
    let busy = bed.expire(100);
    assert_eq!(bed.send(&tcp4(SERVER, 80, T, 7000, "S", b"")).verdict, Verdict::Held);
    let held = bed.expire(100);
    assert!(held < busy && busy < idle, "{held} {busy} {idle}");
}
