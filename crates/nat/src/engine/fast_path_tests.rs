//! Test of the fast path against the slow path: two engines that differ in nothing else.

use crate::Instant;
use crate::Nat;
use crate::Verdict;
use crate::base::plan::{self, Plan, Pool4, PoolRange, Transport};
use crate::path::fast_path::{self, SessionOpen};
use crate::path::look_ahead::{self, Hint, SessionOpens};
use crate::path::state::Core;
use crate::path::translate::translate;
use crate::tables::feed::{FeedPolicy, FeedReader, SessionScope, channel};
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::hdr::ipv4;
use gatun_wire::{Checksum, Packet, Prefix64, Settings, checksum, proto};
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const POOL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PRIVATE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);
const SYN: u8 = 2;

fn prefix(len: u8) -> Prefix64 {
    Prefix64::new(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), len).unwrap()
}

fn engine(prefix_len: u8, settings: Settings, inbound_refresh: bool, ports_max: u32, realm: u8) -> Nat {
    let range = PoolRange { first: POOL, last: POOL, ports: (1024, 65_535), transports: [true; 3] };
    // Half of the histories have flows that share ports: those to the port that all flows use.
    let overload = if inbound_refresh { vec![(Transport::Udp, 443), (Transport::Tcp, 443)] } else { vec![] };
    let plan = Plan {
        own4: Some(POOL),
        own6: Some(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)),
        pools: vec![Pool4 { name: "p".into(), ranges: vec![range], overload, ..Pool4::default() }],
        nat64: vec![plan::Nat64 {
            name: "n".into(),
            pool6: vec![prefix(prefix_len)],
            realm,
            inbound_refresh,
            settings,
            ..plan::Nat64::default()
        }],
        nat44: vec![plan::Nat44 {
            name: "p".into(),
            inside: vec![plan::Net4 { addr: Ipv4Addr::new(10, 0, 0, 0), len: 8 }],
            realm,
            inbound_refresh,
            mtu: settings.mtu4,
            mss_max: settings.mss_max,
            ..plan::Nat44::default()
        }],
        limits: plan::Limits { ports_per_subscriber: ports_max, ..plan::Limits::default() },
        ..Plan::default()
    };
    Nat::new(&plan, [1, 2, 3, 4]).unwrap()
}

/// Packet to be made: its flow, its direction, and its oddities.
#[derive(Clone, Debug)]
struct Made {
    outbound: bool,
    /// True for a packet of an IPv4 host inside.
    private: bool,
    tcp: bool,
    port: u8,
    server: u8,
    flags: u8,
    tos: u8,
    ttl: u8,
    dont_fragment: bool,
    payload: usize,
    odd: Odd,
    later_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Odd {
    Nothing,
    TrailingBytes,
    CutOff,
    NoChecksum,
    WrongChecksum,
    WrongHeader,
    Fragment,
    Partial,
    NoHeadroom,
    ToThePool,
    NonZeroSuffix,
}

const PLAIN: Made = Made {
    outbound: true,
    private: false,
    tcp: false,
    port: 0,
    server: 1,
    flags: SYN,
    tos: 0,
    ttl: 64,
    dont_fragment: false,
    payload: 30,
    odd: Odd::Nothing,
    later_ms: 0,
};

fn made() -> impl Strategy<Value = Made> {
    use Odd::*;
    let odd = prop_oneof![
        12 => Just(Nothing),
        10 => prop::sample::select(vec![TrailingBytes, CutOff, NoChecksum, WrongChecksum, WrongHeader, Fragment, Partial,
            NoHeadroom, ToThePool, NonZeroSuffix]),
    ];
    let flags = prop_oneof![4 => Just(0x10u8), 2 => Just(SYN), 1 => any::<u8>()];
    let payload = prop_oneof![4 => 0usize..64, 1 => 1180usize..1500];
    let ttl = prop_oneof![6 => Just(64u8), 1 => 0u8..3];
    let later = prop_oneof![6 => Just(0u64), 2 => 1u64..200, 1 => 200_000u64..400_000];
    (
        (any::<bool>(), any::<bool>(), any::<bool>(), 0u8..3, 0u8..3, flags),
        (any::<u8>(), ttl, any::<bool>(), payload, odd, later),
    )
        .prop_map(
            |(
                (outbound, private, tcp, port, server, flags),
                (tos, ttl, dont_fragment, payload, odd, later_ms),
            )| {
                Made {
                    outbound,
                    private,
                    tcp,
                    port,
                    server,
                    flags,
                    tos,
                    ttl,
                    dont_fragment,
                    payload,
                    odd,
                    later_ms,
                }
            },
        )
}

impl Made {
    fn server(&self) -> (Ipv4Addr, u16) {
        match self.odd {
            Odd::ToThePool if self.outbound => (POOL, 2000),
            _ => (Ipv4Addr::new(198, 51, 100, self.server), 443),
        }
    }

    fn client(&self) -> (Ipv6Addr, u16) {
        (Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 5), 5000 + u16::from(self.port))
    }

    fn transport(&self, src_port: u16, dst_port: u16) -> Vec<u8> {
        let mut l4 = vec![0u8; if self.tcp { 20 } else { 8 }];
        l4[..2].copy_from_slice(&src_port.to_be_bytes());
        l4[2..4].copy_from_slice(&dst_port.to_be_bytes());
        l4.extend((0..self.payload).map(|i| i as u8));
        if self.tcp {
            (l4[12], l4[13]) = (0x50, self.flags);
            // Adds an MSS option unless the port is the first.
            if l4.len() >= 24 && self.port > 0 {
                l4[12] = 0x60;
                l4[20..24].copy_from_slice(&[2, 4, self.port * 5, self.tos]);
            }
        } else {
            let len = l4.len() as u16;
            l4[4..6].copy_from_slice(&len.to_be_bytes());
        }
        l4
    }

    fn with_checksum(&self, mut l4: Vec<u8>, addresses: &[u8]) -> Vec<u8> {
        let at = if self.tcp { 16 } else { 6 };
        let pseudo = checksum::pseudo(addresses, l4.len() as u32, self.protocol());
        let sum = match self.odd {
            Odd::NoChecksum => return l4,
            Odd::Partial => pseudo,
            Odd::WrongChecksum => !checksum::add(pseudo, checksum::sum(&l4)) ^ 0x0101,
            _ => !checksum::add(pseudo, checksum::sum(&l4)),
        };
        l4[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        l4
    }

    fn protocol(&self) -> u8 {
        if self.tcp { proto::TCP } else { proto::UDP }
    }

    fn six(&self, pool6: &Prefix64) -> Vec<u8> {
        let (server, client) = (self.server(), self.client());
        let mut dst = pool6.embed(server.0).octets();
        if self.odd == Odd::NonZeroSuffix && pool6.len() != 96 {
            dst[15] = 1;
        }
        self.six_between(client, (dst.into(), server.1))
    }

    fn six_between(&self, from: (Ipv6Addr, u16), to: (Ipv6Addr, u16)) -> Vec<u8> {
        let addresses = [from.0.octets(), to.0.octets()].concat();
        let l4 = self.with_checksum(self.transport(from.1, to.1), &addresses);
        let mut p = vec![0x60 | self.tos >> 4, self.tos << 4 | 5, 6, 7, 0, 0, self.protocol(), self.ttl];
        p[4..6].copy_from_slice(&(l4.len() as u16).to_be_bytes());
        if self.odd == Odd::WrongHeader {
            p[0] ^= 0x10;
        }
        p.extend(addresses);
        if self.odd == Odd::Fragment {
            p[4..6].copy_from_slice(&(l4.len() as u16 + 8).to_be_bytes());
            p[6] = proto::FRAGMENT;
            p.extend([self.protocol(), 0, 0, 1, 0, 0, 0, 9]);
        }
        p.extend(l4);
        p
    }

    fn four(&self, outside: (Ipv4Addr, u16)) -> Vec<u8> {
        self.four_between(self.server(), outside)
    }

    fn four_between(&self, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Vec<u8> {
        let addresses = [from.0.octets(), to.0.octets()].concat();
        let l4 = self.with_checksum(self.transport(from.1, to.1), &addresses);
        let flags = match self.odd {
            Odd::Fragment => ipv4::MF,
            _ if self.dont_fragment => ipv4::DF,
            _ => 0,
        };
        let mut p = vec![0x45, self.tos, 0, 0, 0, 7, 0, 0, self.ttl, self.protocol(), 0, 0];
        p[2..4].copy_from_slice(&(l4.len() as u16 + 20).to_be_bytes());
        p[6..8].copy_from_slice(&flags.to_be_bytes());
        p.extend(addresses);
        ipv4::set_checksum(&mut p);
        if self.odd == Odd::WrongHeader {
            p[11] ^= 1;
        }
        p.extend(l4);
        p
    }

    fn headroom(&self) -> usize {
        if self.odd == Odd::NoHeadroom { 8 } else { gatun_wire::HEADROOM }
    }

    fn buffer(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        match self.odd {
            Odd::TrailingBytes => bytes.extend([1, 2, 3]),
            Odd::CutOff => bytes.truncate(bytes.len() - 1),
            _ => {}
        }
        let mut buffer = vec![0; self.headroom()];
        buffer.extend(bytes);
        buffer
    }

    fn packet<'b>(&self, buffer: &'b mut [u8]) -> Packet<'b> {
        let (at, len) = (self.headroom(), buffer.len() - self.headroom());
        let l4_at = if buffer[at] >> 4 == 4 { 20 } else { 40 };
        let mut packet = Packet::new(buffer, at, len).unwrap();
        if self.odd == Odd::Partial {
            packet.offload.checksum =
                Checksum::Partial { start: l4_at, offset: if self.tcp { 16 } else { 6 } };
        }
        packet
    }
}

/// Properties of a packet that the test compares.
fn seen<'p>(packet: &'p Packet<'_>) -> (usize, &'p [u8], gatun_wire::Offload, u8) {
    (packet.start(), packet.bytes(), packet.offload, packet.realm)
}

/// Returns source address and port of a translated packet.
fn outside_of(packet: &[u8]) -> (Ipv4Addr, u16) {
    let address = <[u8; 4]>::try_from(&packet[12..16]).unwrap();
    (address.into(), u16::from_be_bytes([packet[20], packet[21]]))
}

/// Gives the packet to one engine after the usual look-ahead, and to the other without any look-ahead.
fn compare(
    with_fast_path: &mut Nat,
    without: &mut Nat,
    now: Instant,
    (made, realm): (&Made, u8),
    bytes: Vec<u8>,
) -> Result<(Verdict, Vec<u8>), TestCaseError> {
    let (mut a, mut b) = (made.buffer(bytes.clone()), made.buffer(bytes));
    let (mut verdict_a, mut verdict_b) = (Verdict::Pass, Verdict::Pass);
    let (mut a, mut b) = ([made.packet(&mut a)], [made.packet(&mut b)]);
    (a[0].realm, b[0].realm) = (realm, realm);
    with_fast_path.process(now, &mut a, core::slice::from_mut(&mut verdict_a));
    let verdict = core::slice::from_mut(&mut verdict_b);
    let (core, mut none) = (&mut without.core, SessionOpens::default());
    core.state.tables.now = now;
    translate(core, now, &mut b, (&[Hint::None], &mut none), verdict);
    let ([a], [b]) = (a, b);
    prop_assert_eq!(verdict_a, verdict_b, "{:?}", made);
    prop_assert_eq!(seen(&a), seen(&b), "{:?}", made);
    let counters = |nat: &Nat| std::format!("{:?} {:?}", nat.counters(), nat.occupancy());
    prop_assert_eq!(counters(with_fast_path), counters(without));
    prop_assert!(with_fast_path.instance_stats().eq(without.instance_stats()));
    prop_assert!(with_fast_path.conserved_by_instance() && with_fast_path.conserved_by_address());
    prop_assert!(with_fast_path.pool_stats().eq(without.pool_stats()));
    prop_assert!(with_fast_path.subscriber_stats(0..u32::MAX).eq(without.subscriber_stats(0..u32::MAX)));
    Ok((verdict_a, a.bytes().to_vec()))
}

proptest! {
    /// Checks that verdicts, bytes, counters and tables are the same on both paths.
    #[test]
    fn fast_path_and_slow_path_have_the_same_results(
        prefix_len in prop::sample::select(vec![96u8, 96, 64, 40, 32]),
        tos in prop::option::of(any::<u8>()),
        mtu4 in prop::sample::select(vec![1500u32, 1260, 100]),
        mtu6 in prop::sample::select(vec![1500u32, 1280]),
        mss_max in prop::sample::select(vec![gatun_wire::mss::ANY, 1400, 28]),
        inbound_refresh in any::<bool>(),
        ports_max in prop::sample::select(vec![2u32, 1000]),
        realm in prop::sample::select(vec![0u8, 3]),
        stray in 0usize..60,
        counted in prop::option::of((0u8..4, 0u8..4)),
        history in prop::collection::vec(made(), 1..60),
    ) {
        let settings = Settings {
            tos_6to4: tos,
            traffic_class_4to6: tos,
            mtu4,
            mtu6,
            mss_max,
            ..Settings::default()
        };
        let mut with_fast_path = engine(prefix_len, settings, inbound_refresh, ports_max, realm);
        let mut without = engine(prefix_len, settings, inbound_refresh, ports_max, realm);
        let mut readers = counted.map(|(packets, tcp_packets)| {
            [&mut with_fast_path, &mut without].map(|nat| attach(nat, packets, tcp_packets))
        });
        let mut outside = [(POOL, 2000u16); 12];
        let mut now = Instant(1_000);
        for (number, made) in history.into_iter().enumerate() {
            now = now.plus_ms(made.later_ms);
            // The packet comes from inside, unless it arrives on another port.
            let from = if made.outbound && number != stray { realm } else { 0 };
            let flow = usize::from(made.port) * 4 + usize::from(made.tcp) * 2 + usize::from(made.private);
            let known = &mut outside[flow];
            let bytes = match (made.outbound, made.private) {
                (true, false) => made.six(&prefix(prefix_len)),
                (true, true) => made.four_between((PRIVATE, made.client().1), made.server()),
                (false, _) => made.four(*known),
            };
            let (verdict, sent) = compare(&mut with_fast_path, &mut without, now, (&made, from), bytes)?;
            prop_assert_eq!(records(&with_fast_path), records(&without), "{:?}", made);
            if let Some([fast, slow]) = &mut readers {
                prop_assert!(std::iter::from_fn(|| fast.next()).eq(std::iter::from_fn(|| slow.next())));
            }
            if verdict == Verdict::Forward && made.outbound {
                *known = outside_of(&sent);
            }
        }
    }
}

/// Attaches a feed of established sessions.
fn attach(nat: &mut Nat, packets: u8, tcp_packets: u8) -> FeedReader {
    let sessions = SessionScope::Established;
    let policy = FeedPolicy { sessions, packets, tcp_packets, ..FeedPolicy::default() };
    let (feed, reader) = channel(policy, 1000, 0);
    nat.attach_feed(Some(feed.into()));
    reader
}

/// Handles a packet by the fast path. Returns whether it has.
fn fast<const FED: bool>(core: &mut Core, now: Instant, packet: &mut Packet<'_>, hint: &Hint) -> bool {
    match hint {
        Hint::Session(hint) => fast_path::outbound6::<FED>(core, now, packet, hint),
        Hint::Session44(hint) => fast_path::outbound4::<FED>(core, now, packet, hint),
        Hint::Binding(hint) => fast_path::inbound::<FED>(core, now, packet, hint).is_some(),
        other => panic!("no hint of a session: {other:?}"),
    }
}

/// Lists all sessions in full.
fn records(nat: &Nat) -> std::string::String {
    let tables = &nat.core.state.tables;
    (1..tables.high()).map(|id| std::format!("{:?}\n", tables.get(id))).collect()
}

/// Checks that plain packets take the fast path. If every packet took the slow path, the test above would
/// prove nothing.
#[test]
fn plain_packets_of_a_live_session_take_the_fast_path() {
    let kinds = [(false, false), (true, false), (false, true), (true, true)];
    for ((tcp, private), is_counted) in kinds.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let mut nat = engine(96, Settings::default(), true, 10, 0);
        // Packets that are counted for the feed take the fast path, too.
        let _reader = is_counted.then(|| attach(&mut nat, 100, 100));
        let now = Instant(1_000);
        let (mut hints, mut verdicts) = ([Hint::None], [Verdict::Pass]);
        let mut outside = (POOL, 0);
        // The first outbound packet opens the session; the first inbound TCP packet changes its state.
        for (outbound, flags, is_plain) in
            [(true, SYN, false), (false, SYN, !tcp), (true, 0x10, true), (false, 0x10, true), (true, 1, !tcp)]
        {
            let made = Made { outbound, flags, tcp, ..PLAIN };
            let bytes = match (outbound, private) {
                (true, true) => made.four_between((PRIVATE, 5000), made.server()),
                (true, false) => made.six(&prefix(96)),
                (false, _) => made.four(outside),
            };
            let mut buffer = made.buffer(bytes);
            let mut burst = [made.packet(&mut buffer)];
            let opens = look_ahead::look(&nat.core, &burst, &mut hints);
            let mut openings = SessionOpens::default();
            look_ahead::session_opens(&nat.core, &burst, &hints, &mut openings);
            let opening = openings.take(0, &nat.core.state.tables);
            assert_eq!(opening.is_some(), opens, "{made:?}");
            let packet = &mut burst[0];
            let done = match (&hints[0], opening) {
                (Hint::Session(hint), Some(opening)) => {
                    let opened = fast_path::open6(&mut nat.core, now, packet, hint, opening);
                    assert!(matches!(opened, SessionOpen::Done), "{made:?}");
                    false
                }
                (Hint::Session44(hint), Some(opening)) => {
                    let opened = fast_path::open4(&mut nat.core, now, packet, hint, opening);
                    assert!(matches!(opened, SessionOpen::Done), "{made:?}");
                    false
                }
                (hint, _) if is_counted => fast::<true>(&mut nat.core, now, packet, hint),
                (hint, _) => fast::<false>(&mut nat.core, now, packet, hint),
            };
            assert_eq!(done, is_plain, "{made:?}");
            assert_eq!(opens, outbound && flags == SYN);
            if !done && !opens {
                let mut none = SessionOpens::default();
                translate(&mut nat.core, now, &mut burst, (&[Hint::None], &mut none), &mut verdicts);
                assert_eq!(verdicts, [Verdict::Forward]);
            }
            if outbound {
                outside = outside_of(burst[0].bytes());
            }
        }
    }
}

/// Few addresses, so that mappings overlap and packets match the mappings, the prefixes and the denylist.
fn address4() -> impl Strategy<Value = Ipv4Addr> {
    prop_oneof![
        6 => (0u8..4, 0u8..4).prop_map(|(a, b)| Ipv4Addr::new(8, 8, a, b)),
        2 => (0u8..4).prop_map(|b| Ipv4Addr::new(198, 51, 100, b)),
        1 => any::<u32>().prop_map(Ipv4Addr::from),
    ]
}

fn address6(prefixes: Vec<Prefix64>) -> impl Strategy<Value = Ipv6Addr> {
    let embedded = (prop::sample::select(prefixes), address4()).prop_map(|(p, a)| p.embed(a));
    let mapped = (0u16..3, 0u16..4).prop_map(|(a, b)| Ipv6Addr::new(0x2001, 0xdb8, 0xe, a, 0, 0, 0, b));
    prop_oneof![4 => embedded, 4 => mapped, 1 => any::<u128>().prop_map(Ipv6Addr::from)]
}

fn mapping() -> impl Strategy<Value = plan::Eam> {
    let v6 =
        prop::sample::select(vec![Ipv6Addr::new(0x2001, 0xdb8, 0xe, 0, 0, 0, 0, 0), prefix(96).address()]);
    (0u8..4, 0u8..4, v6, 0u16..3, 0u16..4, 28u8..=32, 0u8..60).prop_map(|(a, b, v6, c, d, len4, more)| {
        let len6 = 128 - (32 - len4) - more / 15 * 16;
        let v4 = u32::from(Ipv4Addr::new(8, 8, a, b)) & u32::MAX << (32 - len4);
        let v6 = u128::from(v6) | u128::from(c) << 64 | u128::from(d);
        let v6 = v6 & u128::MAX << (128 - len6);
        plan::Eam {
            v4: plan::Net4 { addr: v4.into(), len: len4 },
            v6: plan::Net6 { addr: v6.into(), len: len6 },
        }
    })
}

fn siit(eamt: &[plan::Eam], pool6: Vec<Prefix64>, hairpin: plan::Hairpin, denied: bool) -> plan::Siit {
    let mut kept: Vec<plan::Eam> = vec![];
    for e in eamt {
        if kept.iter().all(|k| k.v4 != e.v4 && k.v6 != e.v6) {
            kept.push(*e);
        }
    }
    let denied4 = plan::Net4 { addr: Ipv4Addr::new(8, 8, 1, 0), len: 31 };
    let denied6 = plan::Net6 { addr: Ipv6Addr::new(0x2001, 0xdb8, 0xe, 1, 0, 0, 0, 2), len: 127 };
    plan::Siit {
        name: "s".into(),
        pool6,
        eamt: kept,
        hairpin,
        denylist4: if denied { vec![denied4] } else { vec![] },
        denylist6: if denied { vec![denied6] } else { vec![] },
        ..plan::Siit::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// The same test with two stateless instances, the first of them with or without a prefix.
    #[test]
    fn stateless_fast_path_and_slow_path_have_the_same_results(
        first in prop::collection::vec(mapping(), 0..8),
        second in prop::collection::vec(mapping(), 0..8),
        first_has_prefix in any::<bool>(),
        hairpin in prop::sample::select(vec![plan::Hairpin::Off, plan::Hairpin::Simple, plan::Hairpin::Intrinsic]),
        mss_max in prop::sample::select(vec![gatun_wire::mss::ANY, 1400]),
        denied in any::<bool>(),
        history in prop::collection::vec(
            (made(), address4(), address4(), address6(vec![prefix(96), prefix(64), Prefix64::WELL_KNOWN]),
                address6(vec![prefix(96), prefix(64), Prefix64::WELL_KNOWN])),
            1..40,
        ),
    ) {
        let pool6 = if first_has_prefix { vec![prefix(96), Prefix64::WELL_KNOWN] } else { vec![] };
        let mut plan = Plan {
            siit: vec![siit(&first, pool6, hairpin, denied), siit(&second, vec![prefix(64)], hairpin, false)],
            ..Plan::default()
        };
        plan.siit.iter_mut().for_each(|siit| siit.settings.mss_max = mss_max);
        let mut with_fast_path = Nat::new(&plan, [1, 2, 3, 4]).unwrap();
        let mut without = Nat::new(&plan, [1, 2, 3, 4]).unwrap();
        for (made, src4, dst4, src6, dst6) in history {
            let bytes = if made.outbound {
                made.six_between((src6, 5), (dst6, 6))
            } else {
                made.four_between((src4, 5), (dst4, 6))
            };
            let _ = compare(&mut with_fast_path, &mut without, Instant(1_000), (&made, 0), bytes)?;
        }
    }
}

#[test]
fn plain_packets_of_mapped_hosts_take_the_fast_path() {
    let eam = plan::Eam {
        v4: plan::Net4 { addr: Ipv4Addr::new(8, 8, 1, 2), len: 32 },
        v6: plan::Net6 { addr: Ipv6Addr::new(0x2001, 0xdb8, 0xe, 0, 0, 0, 0, 1), len: 128 },
    };
    for tcp in [false, true] {
        let made = Made { tcp, flags: 0x10, ..PLAIN };
        let plan = Plan {
            siit: vec![siit(&[eam], vec![prefix(96)], plan::Hairpin::Intrinsic, false)],
            ..Plan::default()
        };
        let mut nat = Nat::new(&plan, [1, 2, 3, 4]).unwrap();
        let server = Ipv4Addr::new(198, 51, 100, 7);
        let out = made.six_between((eam.v6.addr, 5), (prefix(96).embed(server), 6));
        let back = made.four_between((server, 6), (eam.v4.addr, 5));
        for bytes in [out, back] {
            let mut buffer = made.buffer(bytes);
            let mut burst = [made.packet(&mut buffer)];
            let mut hints = [Hint::None];
            look_ahead::look(&nat.core, &burst, &mut hints);
            assert!(match &hints[0] {
                Hint::Stateless6(hint) =>
                    fast_path::stateless6(&mut nat.core, Instant(0), &mut burst[0], hint),
                Hint::Stateless4(hint) => fast_path::stateless4(&mut nat.core, &mut burst[0], hint),
                _ => false,
            });
        }
    }
}
