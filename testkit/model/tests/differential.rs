//! Engine and model agree on every verdict, byte, counter and table of the same histories.
#![allow(missing_docs)]

use gatun_model::coverage::Coverage;
use gatun_model::drive::{history, run, shrink, workers};
use gatun_model::tcp::{Segment, State};
use gatun_wire::DropReason::{self, *};

const HISTORIES: u64 = 240;
const STEPS: usize = 4_000;

/// Drop reasons that the histories must reach.
const REACHED: [DropReason; 56] = [
    ShortL3,
    BadVersion,
    BadHeaderLength,
    BadLength,
    BadL3Checksum,
    BadL4Checksum,
    L4Truncated,
    SourceRoute,
    ExtensionChainTooLong,
    RoutingSegmentsLeft,
    ExtensionAfterFragment,
    AuthenticationHeader,
    SourceMartian,
    DestinationNotPool6,
    WellKnownNonGlobal,
    NotInPool,
    SourceNotAllowed,
    NoBib,
    NoSession,
    AddressDependentFilter,
    AddressPortDependentFilter,
    DestinationMartian,
    PoolEmpty,
    BlockNone,
    HoldDownAll,
    SubscriberBlockQuota,
    SubscriberRate,
    ExternalSynPolicy,
    SynStoreFull,
    SynHeldAlready,
    SynExpired,
    SynWasAnswered,
    NonSynClosed,
    TcpInvalidFlags,
    SessionTableFull,
    SessionTableReserved,
    SubscriberTableFull,
    PortsExhausted,
    SubscriberPortQuota,
    SubscriberSessionQuota,
    IcmpUnknownType,
    IcmpErrorNoState,
    TtlExceeded,
    TooBig6,
    TooBig4,
    ZeroUdpChecksum,
    FragmentTimeout,
    FragmentOverlap,
    FragmentTiny,
    FragmentTooMany,
    FragmentMemory,
    FragmentIcmp,
    FragmentOrphan,
    OwnUdp,
    OwnProtocol,
    OwnOther,
];

/// Marks that they must reach.
const MARKS: [&str; 17] = [
    "a fragmented ping is translated between the families",
    "a source exceeds its rate of ICMP errors",
    "a held fragment follows the first one",
    "a datagram is collected for its checksum",
    "a flow joins a shared port",
    "a new port is shared",
    "a subscriber has more shared ports than a new flow searches",
    "a plan changes",
    "a session ends by a change",
    "a block is taken away by a change",
    "a static binding begins",
    "a packet from a realm leaves",
    "a packet from outside goes to a realm",
    "a packet is hairpinned to another realm",
    "hosts of two realms with one address have bindings of one port",
    "a host chooses among instances of one prefix",
    "an inside address in another realm belongs to no instance",
];

// proves: A61-20, A61-21, A61-22, A61-23, A61-24, A61-25, A61-40, A61-43, A61-50, A61-51, A61-63, A61-64
// proves: T61-CLOSED, T61-V4_INIT, T61-V6_INIT, T61-ESTABLISHED, T61-V4_FIN_RCV, T61-V6_FIN_RCV
// proves: T61-V4_FIN_V6_FIN_RCV, T61-TRANS, R47-1, R47-3, R47-4, R47-11, R47-14, R68-11, R78-4
#[test]
fn engine_and_model_agree_on_seeded_histories() {
    let mut reached = vec![0u64; DropReason::COUNT];
    let (mut coverage, mut hairpins, mut probes) = (Coverage::default(), 0, 0);
    for seed in 0..HISTORIES {
        let steps = history(seed, STEPS);
        let outcome = run(seed, seed, &steps).unwrap_or_else(|_| {
            let (short, failure) = shrink::shrink(seed, seed, &steps);
            panic!("\n{}", shrink::as_test(seed, seed, &short, &failure))
        });
        for way in &outcome.counters.drops {
            reached.iter_mut().zip(way).for_each(|(sum, count)| *sum += count.packets);
        }
        hairpins += outcome.counters.hairpinned.packets;
        probes += outcome.counters.probes_sent;
        coverage.add(&outcome.coverage);
    }
    assert!(hairpins > 0 && probes > 0);
    for reason in REACHED {
        assert!(reached[reason as usize] > 0, "{} was not reached", reason.name());
    }
    for what in MARKS {
        assert!(coverage.marked(what), "{what}: was not reached");
    }
    for state in State::ALL {
        for segment in Segment::ALL {
            for from_inside in [false, true] {
                assert!(coverage.saw(state, from_inside, segment), "{state:?} {segment:?} {from_inside}");
            }
        }
    }
    for state in [State::V4Init, State::V6Init, State::Established] {
        assert!(coverage.opened(state), "{state:?}");
    }
}

// proves: R47-1, R47-2, R47-9, R68-4
#[test]
fn workers_and_their_models_agree_and_are_one_translator() {
    let (mut coverage, mut shared) = (Coverage::default(), 0);
    for seed in 0..60 {
        let steps = history(seed, 2_000);
        let outcome = workers::run(seed, seed, &steps).unwrap_or_else(|_| {
            let (short, failure) = shrink::shrink_with(&steps, |ops| workers::run(seed, seed, ops).map(drop));
            panic!("\n{}", shrink::as_test(seed, seed, &short, &failure))
        });
        if let Some(outcome) = outcome {
            shared += 1;
            coverage.add(&outcome.coverage);
        }
    }
    assert!(shared > 30, "{shared} universes can be shared");
    for what in [
        "a packet is handed over to another worker",
        "workers change together",
        "running workers refuse a plan",
        "a session ends by a change",
        "hosts of two realms with one address have bindings of one port",
        "a packet is hairpinned to another realm",
    ] {
        assert!(coverage.marked(what), "{what}: was not reached");
    }
}

#[test]
fn a_difference_is_found_and_shrunk() {
    // The model runs another universe, so it must differ.
    let steps = history(7, 200);
    assert!(run(7, 7, &steps).is_ok());
    let (short, failure) = shrink::shrink_with(&steps, |ops| match ops.len() {
        0..3 => Ok(()),
        n => Err(gatun_model::drive::Failure { step: n - 1, what: "three or more steps".into() }),
    });
    assert_eq!((short.len(), failure.step), (3, 2));
    assert!(shrink::as_test(7, 7, &short, &failure).contains("replay(7, 7, &history)"));
}
