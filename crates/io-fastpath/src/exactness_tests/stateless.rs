//! Stateless instances: random packets between mapped, embedded and special addresses, the engine beside.

use super::*;
use crate::stateless::{Mapping, Network, Stateless, StatelessPlan, Ways};
use crate::table::{StatelessTraffic, Traffic};
use gatun_nat::plan::{Eam, Hairpin, Net4, Net6, Siit};

const OWN4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 129);

fn eam(v4: &str, v6: &str) -> Eam {
    let (addr4, len4) = v4.split_once('/').unwrap();
    let (addr6, len6) = v6.split_once('/').unwrap();
    Eam {
        v4: Net4 { addr: addr4.parse().unwrap(), len: len4.parse().unwrap() },
        v6: Net6 { addr: addr6.parse().unwrap(), len: len6.parse().unwrap() },
    }
}

/// Mappings of hosts and networks, with suffixes of different lengths. The last one changes no checksum.
fn eamt() -> Vec<Eam> {
    vec![
        eam("203.0.113.10/32", "2001:db8:a::10/128"),
        eam("203.0.113.64/26", "2001:db8:b::/122"),
        eam("198.51.100.0/24", "2001:db8:c::/64"),
        eam("10.20.0.0/16", "2001:db8:d:0:ff00::/72"),
        eam("203.0.113.77/32", "2001:db8:e::/64"),
        eam("203.0.113.78/32", "2001:db8:0:0:8000::/65"),
        eam("11.22.33.44/32", "0b16:212c::/128"),
        eam("127.0.0.5/32", "2001:db8:10::5/128"),
        eam("9.0.0.0/8", "2001:db8::9:0:0/96"),
    ]
}

fn prefix(text: &str, len: u8) -> Prefix64 {
    Prefix64::new(text.parse().unwrap(), len).unwrap()
}

fn siit(pool6: Vec<Prefix64>, eamt: Vec<Eam>, hairpin: Hairpin) -> Siit {
    Siit { name: "s".into(), pool6, eamt, hairpin, ..Siit::default() }
}

/// The program's form of a plan, as the daemon makes it.
fn stateless_plan(plan: &Plan) -> StatelessPlan {
    let four = |net: &Net4| Network { address: net.addr, len: net.len };
    let six = |net: &Net6| Network { address: net.addr, len: net.len };
    let instance = |siit: &Siit| Stateless {
        ways: match plan.is_only_from_ipv6(siit) {
            true => Ways::FromIpv6,
            false => Ways::Both,
        },
        settings: siit.settings,
        pool6: siit.pool6.clone(),
        mappings: siit.eamt.iter().map(|eam| Mapping { v4: four(&eam.v4), v6: six(&eam.v6) }).collect(),
        well_known_non_global: siit.wkp_non_global,
    };
    let (left4, left6) = plan.kept_from_siit();
    let (left4, left6) = (left4.iter().map(four).collect(), left6.iter().map(six).collect());
    StatelessPlan { instances: plan.siit.iter().map(instance).collect(), left4, left6 }
}

impl Pair {
    fn stateless(at: At, siit: Vec<Siit>, own6: Option<Ipv6Addr>) -> Pair {
        let (prefix, settings) = (prefix("2001:db8:64::", 96), Settings::default());
        let plan = Plan { siit, own4: Some(OWN4), own6, ..plan(prefix, settings) };
        let mut pair = Pair::of(at, &plan, prefix, settings);
        pair.kernel.table.set_stateless(&stateless_plan(&plan)).unwrap();
        pair
    }
}

/// End of a packet.
#[derive(Clone, Copy, Debug)]
enum End {
    /// An address of a mapping, by the suffix.
    Mapped(usize, u32),
    /// An IPv4 address, behind a prefix if the packet is IPv6.
    Four(Ipv4Addr, usize),
    /// An IPv6 address; its IPv4 packet has another one.
    Six(u128),
}

const EMBEDDED: [Ipv4Addr; 10] = [
    Ipv4Addr::new(8, 8, 8, 8),
    Ipv4Addr::new(1, 2, 3, 4),
    OWN4,
    POOL,
    PRIVATE,
    Ipv4Addr::new(192, 168, 1, 1),
    Ipv4Addr::new(224, 0, 0, 1),
    Ipv4Addr::new(255, 255, 255, 255),
    Ipv4Addr::new(240, 0, 0, 1),
    Ipv4Addr::new(203, 0, 113, 10),
];

impl End {
    fn six(self, siit: &[Siit]) -> Ipv6Addr {
        let eamt = eamt();
        match self {
            End::Mapped(at, suffix) => {
                let Eam { v4, v6 } = eamt[at % eamt.len()];
                let bits = 32 - u32::from(v4.len);
                let suffix = u128::from(suffix) & ((1 << bits) - 1);
                let shift = 128 - u32::from(v6.len) - bits;
                // Bits behind the suffix do not matter.
                let behind = u128::from(at as u64 % 5) & 1u128.checked_shl(shift).map_or(0, |bit| bit - 1);
                (u128::from(v6.addr) | suffix.checked_shl(shift).unwrap_or(0) | behind).into()
            }
            End::Four(address, at) => {
                let mut prefixes: Vec<Prefix64> = siit.iter().flat_map(|siit| &siit.pool6).copied().collect();
                prefixes.push(prefix("2001:db8:64::", 96));
                prefixes[at % prefixes.len()].embed(address)
            }
            End::Six(address) => address.into(),
        }
    }

    fn four(self) -> Ipv4Addr {
        let eamt = eamt();
        match self {
            End::Mapped(at, suffix) => {
                let v4 = eamt[at % eamt.len()].v4;
                let bits = 32 - u32::from(v4.len);
                (u32::from(v4.addr) | (u64::from(suffix) & ((1u64 << bits) - 1)) as u32).into()
            }
            End::Four(address, _) => address,
            End::Six(address) => Ipv4Addr::from(address as u32),
        }
    }
}

fn end() -> impl Strategy<Value = End> {
    let special = [1u128, 0xfe80 << 112 | 1, 0xff02 << 112 | 1, 0x2001_0db8 << 96 | 0x99 << 64 | 1];
    prop_oneof![
        6 => (0usize..eamt().len(), any::<u32>()).prop_map(|(at, suffix)| End::Mapped(at, suffix)),
        4 => (prop::sample::select(EMBEDDED.to_vec()), any::<usize>()).prop_map(|(a, at)| End::Four(a, at)),
        2 => (any::<u32>(), any::<usize>()).prop_map(|(a, at)| End::Four(a.into(), at)),
        1 => prop::sample::select(special.to_vec()).prop_map(End::Six),
    ]
}

fn packet_between(made: &Made, from: End, to: End, siit: &[Siit]) -> Vec<u8> {
    match made.outbound {
        true => made.six_between((from.six(siit), 4000), (to.six(siit), 443)),
        false => made.four((from.four(), 4000), (to.four(), 443)),
    }
}

/// Traffic by the program, as the test counts it.
fn add(sum: &mut StatelessTraffic, packet: &[u8]) {
    let direction = if packet[0] >> 4 == 6 { &mut sum.from_ipv6 } else { &mut sum.from_ipv4 };
    *direction = Traffic { packets: direction.packets + 1, bytes: direction.bytes + packet.len() as u64 };
}

#[test]
fn packets_between_mapped_hosts_and_the_internet_are_translated_both_ways() {
    if let Some(why) = refusal() {
        return gatun_testkit::skip(&why);
    }
    let lengths = [96u8, 64, 56, 48, 40, 32];
    for (len, at_hook) in lengths.into_iter().flat_map(|len| At::ALL.map(|at| (len, at))) {
        let siit = vec![siit(vec![prefix("2001:df0::", len)], eamt(), Hairpin::Intrinsic)];
        let mut pair = Pair::stateless(at_hook, siit.clone(), None);
        let internet = End::Four(EMBEDDED[0], 0);
        let mut sum = StatelessTraffic::default();
        // The fourth are inside hosts of NAT44, and the eighth is illegal.
        for at in [0, 1, 2, 4, 5, 6, 8] {
            for suffix in [0, 1, 0x1234_5678, u32::MAX] {
                for (outbound, tcp) in [(true, true), (true, false), (false, true), (false, false)] {
                    let made = Made { outbound, tcp, payload: 1200, dont_fragment: tcp, ..PLAIN };
                    let mapped = End::Mapped(at, suffix);
                    let (from, to) = if outbound { (mapped, internet) } else { (internet, mapped) };
                    let packet = packet_between(&made, from, to, &siit);
                    let (hit, sent) = pair.compare(&made, &packet).unwrap();
                    assert!(hit && sent.is_some(), "{len} {made:?} {from:?} {to:?}");
                    add(&mut sum, &packet);
                }
            }
        }
        assert_eq!(pair.kernel.table.stateless_traffic(0).unwrap(), sum);
        assert_eq!(pair.stateless_counters(0).of(Reason::Hit), 2 * sum.from_ipv6.packets);
    }
}

/// Instances that a random test chooses among.
fn instances() -> impl Strategy<Value = Vec<Siit>> {
    let pool6 = (any::<bool>(), any::<bool>(), prop::sample::select(vec![96u8, 64, 56, 48, 40, 32]));
    let hairpin = prop::sample::select(vec![Hairpin::Off, Hairpin::Simple, Hairpin::Intrinsic]);
    let instance = (pool6, hairpin, any::<[bool; 3]>());
    (prop::collection::vec(instance, 1..3), any::<u16>(), any::<bool>()).prop_map(|(chosen, mapped, own)| {
        let mut all = eamt();
        if own {
            all.push(eam("192.0.2.128/25", "2001:db8:f::/120"));
        }
        let count = chosen.len();
        let chosen = chosen.into_iter().enumerate();
        type Chosen = (usize, ((bool, bool, u8), Hairpin, [bool; 3]));
        let make = |(number, ((well_known, other, len), hairpin, [denied4, denied6, non_global])): Chosen| {
            let mut pool6 = Vec::new();
            if well_known {
                pool6.push(Prefix64::WELL_KNOWN);
            }
            if other {
                pool6.insert(usize::from(len) % (pool6.len() + 1), prefix("2001:df0::", len));
            }
            let of_this = |at: usize| mapped >> at & 1 == 1 && (at + number).is_multiple_of(count);
            let eamt = all.iter().enumerate().filter(|(at, _)| of_this(*at)).map(|(_, eam)| *eam).collect();
            let net4 = Net4 { addr: Ipv4Addr::new(203, 0, 113, 72), len: 29 };
            let net6 = Net6 { addr: "2001:db8:c:0:10::".parse().unwrap(), len: 76 };
            Siit {
                denylist4: if denied4 { vec![net4] } else { vec![] },
                denylist6: if denied6 { vec![net6] } else { vec![] },
                wkp_non_global: non_global,
                ..siit(pool6, eamt, hairpin)
            }
        };
        chosen.map(make).collect()
    })
}

proptest! {
    #![proptest_config(property_config())]
    #[test]
    fn random_stateless_packets_become_the_bytes_of_the_engine_or_stay_as_they_are(
        siit in instances(),
        own6 in prop::sample::select(vec![None, Some("2001:df0::c000:2fe"), Some("2001:db8:b::5")]),
        at in prop::sample::select(At::ALL.to_vec()),
        history in prop::collection::vec((made(), end(), end()), 60..200),
    ) {
        if let Some(why) = refusal() {
            gatun_testkit::skip(&why);
            return Ok(());
        }
        let mut pair = Pair::stateless(at, siit.clone(), own6.map(|own6| own6.parse().unwrap()));
        let mut sum = StatelessTraffic::default();
        let hits = |pair: &Pair| {
            let of = |number| pair.stateless_counters(number).of(Reason::Hit);
            of(0) + of(1)
        };
        for (made, from, to) in history {
            let made = made.at(at);
            let packet = packet_between(&made, from, to, &siit);
            let before = hits(&pair);
            pair.compare(&made, &packet)?;
            if hits(&pair) > before {
                add(&mut sum, &packet[..packet.len() - interface::padding(at, &packet)]);
            }
        }
        let [a, b] = [0, 1].map(|number| pair.kernel.table.stateless_traffic(number).unwrap());
        let both = |a: Traffic, b: Traffic| {
            Traffic { packets: a.packets + b.packets, bytes: a.bytes + b.bytes }
        };
        prop_assert_eq!(both(a.from_ipv6, b.from_ipv6), sum.from_ipv6);
        prop_assert_eq!(both(a.from_ipv4, b.from_ipv4), sum.from_ipv4);
    }
}

#[test]
fn all_mappings_are_replaced_at_once() {
    if let Some(why) = refusal() {
        return gatun_testkit::skip(&why);
    }
    let siit = |n: usize| vec![siit(vec![prefix("2001:df0::", 96)], eamt()[n..=n].to_vec(), Hairpin::Off)];
    let mut pair = Pair::stateless(At::Device, siit(0), None);
    let (first, second) = (End::Mapped(0, 0), End::Mapped(4, 0));
    let internet = End::Four(EMBEDDED[0], 0);
    let translates = |pair: &mut Pair, host: End| {
        let packet = packet_between(&PLAIN, host, internet, &siit(0));
        pair.run(&packet, 0).0 == TRANSLATED
    };
    assert!(translates(&mut pair, first) && !translates(&mut pair, second));
    for round in 0..5 {
        let plan = Plan { siit: siit(if round % 2 == 0 { 4 } else { 0 }), ..Plan::default() };
        let set = pair.kernel.table.set_stateless(&stateless_plan(&plan)).unwrap();
        assert_eq!((set.mappings, set.left), (1, 0));
        assert_eq!(translates(&mut pair, first), round % 2 == 1);
        assert_eq!(translates(&mut pair, second), round % 2 == 0);
    }
    // A path with a small MTU: the engine fragments what leaves without DF.
    let control = pair.kernel.table.control();
    let of = |payload| packet_between(&Made { payload, ..PLAIN }, second, internet, &siit(0));
    control.set_smallest_path(Some(900));
    let results = [872, 873, 1232, 1233].map(|payload| pair.run(&of(payload), 0).0 == TRANSLATED);
    assert_eq!(results, [true, false, false, true]);
    // None at all: the other generation is empty, too.
    pair.kernel.table.set_stateless(&StatelessPlan::default()).unwrap();
    assert!(!translates(&mut pair, first) && !translates(&mut pair, second));
}

#[test]
fn many_mappings_are_set_and_removed() {
    if let Some(why) = refusal() {
        return gatun_testkit::skip(&why);
    }
    let mapping = |n: u32| Mapping {
        v4: Network { address: Ipv4Addr::from(0x1400_0000 + n), len: 32 },
        v6: Network { address: Ipv6Addr::from(0x2001_0db8_0020 << 80 | u128::from(n)), len: 128 },
    };
    let plan = |count: u32| StatelessPlan {
        instances: vec![Stateless {
            ways: Ways::Both,
            settings: Settings::default(),
            pool6: vec![prefix("2001:df0::", 96)],
            mappings: (0..count).map(mapping).collect(),
            well_known_non_global: false,
        }],
        ..StatelessPlan::default()
    };
    let mut pair = Pair::new(well_known(), Settings::default());
    for count in [20_000, 30_000, 5_000] {
        let set = pair.kernel.table.set_stateless(&plan(count)).unwrap();
        assert_eq!(set.mappings, count as usize);
        let mut translates = |n: u32| {
            let host = Ipv6Addr::from(0x2001_0db8_0020 << 80 | u128::from(n));
            let to = prefix("2001:df0::", 96).embed(EMBEDDED[0]);
            pair.run(&PLAIN.six_between((host, 4000), (to, 443)), 0).0 == TRANSLATED
        };
        assert!(translates(0) && translates(count - 1) && !translates(count));
    }
}
