//! Stateless translation: entries of mappings and prefixes, and packets between mapped, embedded and special
//! addresses.
//!
//! Tables with masks have one order, by priority. The engine has another: what it keeps for itself, then the
//! longest mapping, then prefixes. So a rule's kind is the greater part of its priority. An address behind a
//! prefix can be one that the engine keeps, or that has a mapping. Entries of the embedded addresses give
//! those packets to the controller.

use crate::entries::{action, halves, mask6, tos};
use crate::packets::*;
use crate::pair::*;
use gatun_nat::plan::{Eam, Hairpin, Net4, Net6, Plan, Siit};
use gatun_p4_switch::{Match, Switch};
use gatun_wire::{Prefix64, Settings};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

const INSTANCE: u64 = 1;

/// Priorities of rules, to which the length of the prefix is added.
const BY_PREFIX: u16 = 1_000;
const EMBEDDED_RULE: u16 = 2_000;
const MAPPED: u16 = 3_000;
const KEPT: u16 = 4_000;

const ILLEGAL4: [([u8; 4], u8); 5] =
    [([0; 4], 8), ([127, 0, 0, 0], 8), ([169, 254, 0, 0], 16), ([224, 0, 0, 0], 4), ([255; 4], 32)];
const ILLEGAL6: [(u128, u8); 3] = [(0, 127), (0xfe80 << 112, 10), (0xff << 120, 8)];

#[derive(Clone, Copy)]
enum Meaning {
    Controller,
    Mapped(Eam),
    Prefix(Prefix64),
}

/// Network of IPv6 addresses: bits under the mask.
#[derive(Clone, Copy)]
struct Rule6 {
    bits: u128,
    mask: u128,
    priority: u16,
    meaning: Meaning,
}

#[derive(Clone, Copy)]
struct Rule4 {
    bits: u32,
    len: u8,
    priority: u16,
    meaning: Meaning,
}

fn mask4(len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
}

fn low(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

impl Rule4 {
    fn new(address: Ipv4Addr, len: u8, kind: u16, meaning: Meaning) -> Rule4 {
        let bits = u32::from(address) & mask4(len);
        Rule4 { bits, len, priority: kind + u16::from(len), meaning }
    }

    fn overlaps(&self, other: &Rule4) -> bool {
        (self.bits ^ other.bits) & mask4(self.len.min(other.len)) == 0
    }
}

impl Rule6 {
    fn new(bits: u128, len: u8, kind: u16, meaning: Meaning) -> Rule6 {
        let mask = mask6(len);
        Rule6 { bits: bits & mask, mask, priority: kind + u16::from(len), meaning }
    }

    fn overlaps(&self, other: &Rule6) -> bool {
        (self.bits ^ other.bits) & self.mask & other.mask == 0
    }

    /// The rule of an IPv4 network behind a prefix.
    fn embedded(prefix: &Prefix64, rule: &Rule4) -> Rule6 {
        let zero = u128::from(prefix.embed(Ipv4Addr::UNSPECIFIED));
        let network = u128::from(prefix.embed(rule.bits.into()));
        let mask = u128::from(prefix.embed(mask4(rule.len).into())) ^ zero | mask6(prefix.len());
        Rule6 {
            bits: network & mask,
            mask,
            priority: EMBEDDED_RULE + u16::from(rule.len),
            meaning: Meaning::Controller,
        }
    }
}

/// Rules of a plan with one stateless instance.
fn rules(plan: &Plan) -> (Vec<Rule4>, Vec<Rule6>) {
    let siit = &plan.siit[0];
    let keep4 = |address: Ipv4Addr, len: u8| Rule4::new(address, len, KEPT, Meaning::Controller);
    let keep6 = |bits: u128, len: u8| Rule6::new(bits, len, KEPT, Meaning::Controller);
    let mut kept4: Vec<Rule4> = ILLEGAL4.map(|(address, len)| keep4(address.into(), len)).into();
    kept4.extend([POOL, OWN4, OUTSIDE_OWN4, INSIDE_OWN4].map(|address| keep4(address, 32)));
    kept4.extend(plan.nat44.iter().flat_map(|nat| &nat.inside).map(|net| keep4(net.addr, net.len)));
    kept4.extend(siit.denylist4.iter().map(|net| keep4(net.addr, net.len)));
    let mut kept6: Vec<Rule6> = ILLEGAL6.map(|(bits, len)| keep6(bits, len)).into();
    kept6.push(keep6(INSIDE_OWN6.into(), 128));
    kept6.extend(plan.own6.map(|own| keep6(own.into(), 128)));
    kept6.extend(siit.denylist6.iter().map(|net| keep6(net.addr.into(), net.len)));
    let stateful = plan.nat64.iter().flat_map(|nat| &nat.pool6);
    kept6.extend(stateful.map(|prefix| keep6(prefix.address().into(), prefix.len())));

    let (mut rules4, mut rules6) = (kept4.clone(), kept6.clone());
    for eam in &siit.eamt {
        let four = Rule4::new(eam.v4.addr, eam.v4.len, MAPPED, Meaning::Mapped(*eam));
        let six = Rule6::new(eam.v6.addr.into(), eam.v6.len, MAPPED, Meaning::Mapped(*eam));
        let is_touched =
            kept4.iter().any(|kept| kept.overlaps(&four)) || kept6.iter().any(|kept| kept.overlaps(&six));
        let meaning = if is_touched { Meaning::Controller } else { Meaning::Mapped(*eam) };
        rules4.push(Rule4 { meaning, ..four });
        rules6.push(Rule6 { meaning, ..six });
    }
    for prefix in &siit.pool6 {
        rules6.extend(rules4.iter().map(|rule| Rule6::embedded(prefix, rule)));
        rules6.push(Rule6::new(prefix.address().into(), prefix.len(), BY_PREFIX, Meaning::Prefix(*prefix)));
    }
    if let Some(first) = siit.pool6.first() {
        rules4.push(Rule4::new(Ipv4Addr::UNSPECIFIED, 0, BY_PREFIX, Meaning::Prefix(*first)));
    }
    (rules4, rules6)
}

/// Arguments `base`, `left`, `right`, `mask_hi`, `shift`, `mask_lo` of an address of IPv4.
fn to4(meaning: Meaning) -> [u64; 6] {
    match meaning {
        Meaning::Mapped(eam) => {
            let suffix = 32 - u32::from(eam.v4.len);
            let shift = 128 - u32::from(eam.v6.len) - suffix;
            let (base, mask) = (u64::from(u32::from(eam.v4.addr) & mask4(eam.v4.len)), low(suffix));
            match shift {
                64.. => [base, 0, u64::from(shift) - 64, mask, 0, 0],
                0 => [base, 0, 0, 0, 0, mask],
                _ => {
                    let of_low = mask & low(64 - shift);
                    [base, 64 - u64::from(shift), 0, mask & !of_low, shift.into(), of_low]
                }
            }
        }
        Meaning::Prefix(prefix) => match u32::from(prefix.len()) {
            96.. => [0, 0, 0, 0, 0, low(32)],
            64 => [0, 0, 0, 0, 24, low(32)],
            len => {
                let high = 64 - len; // bits of the address in the first half
                let of_low = low(32 - high);
                [0, u64::from(32 - high), 0, low(32) & !of_low, (24 + high).into(), of_low]
            }
        },
        Meaning::Controller => unreachable!("the controller translates"),
    }
}

/// Arguments `base_hi`, `mask_hi`, `left`, `right`, `base_lo`, `mask_lo`, `shift` of an address of IPv6.
fn to6(meaning: Meaning) -> [u64; 7] {
    match meaning {
        Meaning::Mapped(eam) => {
            let suffix = 32 - u32::from(eam.v4.len);
            let shift = 128 - u32::from(eam.v6.len) - suffix;
            let [high, lower] = halves((u128::from(eam.v6.addr) & mask6(eam.v6.len)).into());
            let mask = low(suffix);
            match shift {
                64.. => [high, mask, u64::from(shift) - 64, 0, lower, 0, 0],
                0 => [high, 0, 0, 0, lower, mask, 0],
                _ => [high, mask, 0, 64 - u64::from(shift), lower, mask, shift.into()],
            }
        }
        Meaning::Prefix(prefix) => {
            let [high, lower] = halves(prefix.address());
            match u32::from(prefix.len()) {
                96.. => [high, 0, 0, 0, lower, low(32), 0],
                64 => [high, 0, 0, 0, lower, low(32), 24],
                len => {
                    let of_high = 64 - len;
                    let of_low = low(32 - of_high);
                    [high, low(32) & !of_low, 0, (32 - of_high).into(), lower, of_low, (24 + of_high).into()]
                }
            }
        }
        Meaning::Controller => unreachable!("the controller translates"),
    }
}

/// Limits and TOS of a direction, the counter, and the number of the instance.
fn rest(limits: [u32; 2], constant: Option<u8>) -> Vec<u64> {
    let [max, max_df] = limits.map(u64::from);
    [&[max, max_df][..], &tos(constant), &[0, INSTANCE]].concat()
}

/// Key, priority and action of an entry with masks; without an action the controller's.
type Entry<'a> = (Vec<(u64, u64)>, u16, Option<(&'a str, Vec<u64>)>);

/// Fills a table with masks.
fn fill(switch: &mut Switch, name: &str, rules: Vec<Entry<'_>>) {
    let table = switch.table(name).unwrap();
    let entry = |(key, priority, translation): Entry<'_>| {
        let (of, data) = translation.unwrap_or(("gatun_lookup_controller", Vec::new()));
        Match { key, priority: priority.into(), action: action(switch, name, of), data }
    };
    let entries: Vec<Match> = rules.into_iter().map(entry).collect();
    switch.fill(table, &entries).unwrap();
}

fn install(switch: &mut Switch, plan: &Plan) {
    let siit = &plan.siit[0];
    let settings = &siit.settings;
    let (rules4, rules6) = rules(plan);
    let is_translated = |meaning: Meaning| !matches!(meaning, Meaning::Controller);
    let limits4 = rest([settings.mtu4; 2], settings.tos_6to4);
    let without_df = settings.mtu6.min(settings.lowest_ipv6_mtu);
    let limits6 = rest([without_df, settings.mtu6], settings.traffic_class_4to6);
    for (name, of, rest) in [
        ("gatun_lookup_mapped_dst6", "gatun_lookup_dst_by6", &limits4[..]),
        ("gatun_lookup_mapped_src6", "gatun_lookup_src_by6", &[INSTANCE]),
    ] {
        let rule = |rule: &Rule6| {
            let (bits, mask) = (halves(rule.bits.into()), halves(rule.mask.into()));
            let data = is_translated(rule.meaning).then(|| (of, [&to4(rule.meaning)[..], rest].concat()));
            (bits.into_iter().zip(mask).collect(), rule.priority, data)
        };
        fill(switch, name, rules6.iter().map(rule).collect());
    }
    // A router sends packets back to a simple hairpin: the engine has all packets from IPv4.
    let from4 = if siit.hairpin == Hairpin::Simple { &[][..] } else { &rules4 };
    for (name, of, rest) in [
        ("gatun_lookup_mapped_dst4", "gatun_lookup_dst_by4", &limits6[..]),
        ("gatun_lookup_mapped_src4", "gatun_lookup_src_by4", &[INSTANCE]),
    ] {
        let rule = |rule: &Rule4| {
            let key = vec![(rule.bits.into(), mask4(rule.len).into())];
            let data = is_translated(rule.meaning).then(|| (of, [&to6(rule.meaning)[..], rest].concat()));
            (key, rule.priority, data)
        };
        fill(switch, name, from4.iter().map(rule).collect());
    }
}

fn eam(v4: &str, v6: &str) -> Eam {
    let (addr4, len4) = v4.split_once('/').unwrap();
    let (addr6, len6) = v6.split_once('/').unwrap();
    Eam {
        v4: Net4 { addr: addr4.parse().unwrap(), len: len4.parse().unwrap() },
        v6: Net6 { addr: addr6.parse().unwrap(), len: len6.parse().unwrap() },
    }
}

/// Mappings of hosts and networks, with suffixes of different lengths: in one half, and in both. The seventh
/// changes no checksum.
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
        eam("20.0.0.0/12", "2001:db8:f000::/54"),
    ]
}

fn prefix(text: &str, len: u8) -> Prefix64 {
    Prefix64::new(text.parse().unwrap(), len).unwrap()
}

fn pair(siit: &Siit, own6: Option<Ipv6Addr>) -> Pair {
    let (prefix, settings) = (prefix("2001:db8:64::", 96), Settings::default());
    let plan = Plan { siit: vec![siit.clone()], own6, ..plan(prefix, settings) };
    let mut pair = Pair::of(&plan, prefix, settings);
    install(&mut pair.switch, &plan);
    pair
}

fn siit(pool6: Vec<Prefix64>, eamt: Vec<Eam>, hairpin: Hairpin) -> Siit {
    Siit { name: "s".into(), pool6, eamt, hairpin, ..Siit::default() }
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
    fn six(self, siit: &Siit) -> Ipv6Addr {
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
                let mut prefixes = siit.pool6.clone();
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

/// Frame between two ends, and its port.
fn frame(made: &Made, from: End, to: End, siit: &Siit) -> (usize, Vec<u8>) {
    match made.outbound {
        true => (INSIDE, from_inside(&made.six_between((from.six(siit), 4000), (to.six(siit), 443)))),
        false => (OUTSIDE, from_outside(&made.four((from.four(), 4000), (to.four(), 443)))),
    }
}

#[test]
fn packets_between_mapped_hosts_and_the_internet_are_translated_both_ways() {
    for len in [96u8, 64, 56, 48, 40, 32] {
        let siit = siit(vec![prefix("2001:df0::", len)], eamt(), Hairpin::Intrinsic);
        let mut pair = pair(&siit, None);
        let internet = End::Four(EMBEDDED[0], 0);
        // The fourth are inside hosts of NAT44, and the eighth is illegal.
        for at in [0, 1, 2, 4, 5, 6, 8, 9] {
            for suffix in [0, 1, 0x1234_5678, u32::MAX] {
                for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Echo] {
                    for outbound in [true, false] {
                        let dont_fragment = protocol == Protocol::Tcp;
                        let made =
                            Made { outbound, protocol, payload: 1200, dont_fragment, tos: 0x5a, ..PLAIN };
                        let mapped = End::Mapped(at, suffix);
                        let (from, to) = if outbound { (mapped, internet) } else { (internet, mapped) };
                        let (port, frame) = frame(&made, from, to, &siit);
                        let (fate, _) = pair.compare(port, &frame);
                        let other = if outbound { OUTSIDE } else { INSIDE };
                        let is_sent = matches!(fate, Fate::Sent(port, _) if port == other);
                        assert!(is_sent, "{len} {made:?} {from:?} {to:?} {fate:02x?}");
                    }
                }
            }
        }
    }
}

/// An instance that a random test chooses.
fn instance() -> impl Strategy<Value = Siit> {
    let len = prop::sample::select(vec![96u8, 64, 56, 48, 40, 32]);
    let hairpin = prop::sample::select(vec![Hairpin::Off, Hairpin::Simple, Hairpin::Intrinsic]);
    (any::<[bool; 2]>(), len, hairpin, any::<[bool; 2]>(), any::<u16>()).prop_map(
        |([other, first], len, hairpin, [denied4, denied6], mapped)| {
            let mut pool6 = vec![prefix("2001:df0::", len)];
            if other {
                pool6.insert(usize::from(first), prefix("2001:df1::", 96));
            }
            let chosen = eamt().into_iter().enumerate().filter(|(at, _)| mapped >> at & 1 == 1);
            let net4 = Net4 { addr: Ipv4Addr::new(203, 0, 113, 72), len: 29 };
            let net6 = Net6 { addr: "2001:db8:c:0:10::".parse().unwrap(), len: 76 };
            Siit {
                denylist4: if denied4 { vec![net4] } else { vec![] },
                denylist6: if denied6 { vec![net6] } else { vec![] },
                ..siit(pool6, chosen.map(|(_, eam)| eam).collect(), hairpin)
            }
        },
    )
}

proptest! {
    #![proptest_config(crate::sessions::property_config())]
    #[test]
    fn random_stateless_packets_become_the_bytes_of_the_engine_or_go_to_the_controller(
        siit in instance(),
        own6 in prop::sample::select(vec![None, Some("2001:db8:b::5")]),
        history in prop::collection::vec((made(), end(), end()), 60..200),
    ) {
        let mut pair = pair(&siit, own6.map(|own6| own6.parse().unwrap()));
        for (made, from, to) in history {
            let (port, frame) = frame(&made, from, to, &siit);
            pair.compare(port, &frame);
        }
    }
}
