//! Short histories in which engine and model once differed.
#![allow(missing_docs)]

use gatun_model::drive::Op::{Clock, Expire, In, Out, Reload};
use gatun_model::drive::PacketDefect::None as Whole;
use gatun_model::drive::Proto::{Echo, Udp, UdpZero};
use gatun_model::drive::{Form, Op, Target, run};

const PLAIN: Form = Form { ttl: 64, tos: 0, len: 5, df: false, door: 0, astray: 0, twist: Whole, cut: None };

fn replay(world: u64, seed: u64, history: &[Op]) {
    if let Err(failure) = run(world, seed, history) {
        panic!("step {}: {}", failure.step, failure.what);
    }
}

#[test]
fn static_bindings_of_a_reload_take_their_blocks_one_by_one() {
    let history = [
        Out { proto: UdpZero, host: 0, port: 1, remote: 5, rport: 1, form: Form { door: 4, ..PLAIN } },
        Reload { seed: 4_242_030_466_393_459_850 },
        Out { proto: Udp, host: 2, port: 3, remote: 0, rport: 1, form: PLAIN },
        Reload { seed: 15_254_816_934_995_010_372 },
        Out { proto: UdpZero, host: 1, port: 1, remote: 0, rport: 2, form: Form { door: 4, ..PLAIN } },
        Reload { seed: 7_038_901_570_969_026_378 },
        Clock { ms: 174_860 },
        Out { proto: Udp, host: 1, port: 3, remote: 3, rport: 2, form: PLAIN },
        Expire { budget: u32::MAX },
        // Two blocks of at most two are held down, one of them in the way of the first static binding. The
        // block that ends for the second one fits in its place, so the other one stays held down.
        Reload { seed: 5_226_360_595_060_535_495 },
    ];
    replay(1_002_291, 1_002_291, &history);
}

#[test]
fn a_session_keeps_a_prefix_that_was_allowed_when_it_was_opened_from_outside() {
    let target = Target::Of { door: 5, host: 2, port: 1 };
    let history = [
        Reload { seed: 8_854_324_795_383_390_044 },
        Out { proto: Echo(true), host: 2, port: 1, remote: 5, rport: 2, form: PLAIN },
        Clock { ms: 73_816 },
        // Too long for the link to the inside: no packet shows the prefix that the engine has chosen.
        In {
            proto: Echo(true),
            target,
            remote: 4,
            rport: 2,
            form: Form { len: 2600, df: true, door: 5, ..PLAIN },
        },
        Reload { seed: 11_476_221_365_368_115_549 },
        Out { proto: Echo(true), host: 2, port: 1, remote: 4, rport: 1, form: PLAIN },
    ];
    replay(77_001_923, 77_001_923, &history);
}
