//! Stateless translation: the controller's entries of mappings and prefixes, and packets between mapped,
//! embedded and special addresses.

use crate::entries::action;
use crate::packets::*;
use crate::pair::*;
use gatun_nat::plan::{Eam, Hairpin, Net4, Net6, Plan, Siit};
use gatun_p4_controller::connection::{KeyField, StaticEntry};
use gatun_p4_controller::stateless::StatelessView;
use gatun_p4_switch::{Match, Switch};
use gatun_wire::Prefix64;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Own addresses of the Ethernet host.
const HOST: [IpAddr; 3] = [IpAddr::V4(OUTSIDE_OWN4), IpAddr::V4(INSIDE_OWN4), IpAddr::V6(INSIDE_OWN6)];
const TABLES: [&str; 4] = ["mapped_dst6", "mapped_src6", "mapped_dst4", "mapped_src4"];

/// Replaces the entries of all stateless instances.
pub(crate) fn install(switch: &mut Switch, plan: &Plan, smallest_path: Option<u16>) {
    let view = StatelessView { plan, excluded: &[], host: &HOST, mtu: 9000, smallest_path };
    let entries = view.entries().entries;
    for name in TABLES {
        let full = format!("gatun_lookup_{name}");
        let table = switch.table(&full).unwrap();
        let field = |(_, field): &(&str, KeyField)| match *field {
            KeyField::Ternary { value, mask } => (value, mask),
            KeyField::Exact(_) => panic!("{full} has masks"),
        };
        let of = |entry: &StaticEntry| Match {
            key: entry.key.iter().map(field).collect(),
            priority: entry.priority as u32,
            action: action(switch, &full, &format!("gatun_lookup_{}", entry.action)),
            data: entry.arguments.iter().map(|(_, value)| *value).collect(),
        };
        let entries: Vec<Match> = entries.iter().filter(|entry| entry.table == name).map(of).collect();
        switch.fill(table, &entries).unwrap();
    }
}

pub(crate) fn eam(v4: &str, v6: &str) -> Eam {
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

pub(crate) fn prefix(text: &str, len: u8) -> Prefix64 {
    Prefix64::new(text.parse().unwrap(), len).unwrap()
}

fn pair(siit: &[Siit], own6: Option<Ipv6Addr>) -> Pair {
    let (prefix, settings) = (prefix("2001:db8:64::", 96), gatun_wire::Settings::default());
    let plan = Plan { siit: siit.to_vec(), own6, ..plan(prefix, settings) };
    let mut pair = Pair::of(&plan, prefix, settings);
    install(&mut pair.switch, &plan, None);
    pair
}

pub(crate) fn siit(pool6: Vec<Prefix64>, eamt: Vec<Eam>, hairpin: Hairpin) -> Siit {
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

/// Frame between two ends, and its port.
fn frame(made: &Made, from: End, to: End, siit: &[Siit]) -> (usize, Vec<u8>) {
    match made.outbound {
        true => (INSIDE, from_inside(&made.six_between((from.six(siit), 4000), (to.six(siit), 443)))),
        false => (OUTSIDE, from_outside(&made.four((from.four(), 4000), (to.four(), 443)))),
    }
}

#[test]
fn packets_between_mapped_hosts_and_the_internet_are_translated_both_ways() {
    for len in [96u8, 64, 56, 48, 40, 32] {
        let siit = vec![siit(vec![prefix("2001:df0::", len)], eamt(), Hairpin::Intrinsic)];
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

#[test]
fn the_controller_gets_the_first_segments_of_a_mapped_host_and_the_switch_the_others() {
    let siit = vec![siit(vec![prefix("2001:df0::", 96)], eamt(), Hairpin::Off)];
    let mut pair = pair(&siit, None);
    let (host, internet) = (End::Mapped(0, 0), End::Four(EMBEDDED[0], 0));
    for outbound in [true, false] {
        let (from, to) = if outbound { (host, internet) } else { (internet, host) };
        for flags in [SYN, SYN | ACK, FIN | ACK, RST, RST | ACK] {
            let made = Made { outbound, protocol: Protocol::Tcp, flags, ..PLAIN };
            let (port, frame) = frame(&made, from, to, &siit);
            let fate = pair.compare(port, &frame).0;
            let is_right = match flags & SYN {
                0 => matches!(fate, Fate::Sent(..)),
                _ => fate == Fate::Controller(2),
            };
            assert!(is_right, "{made:?} {fate:02x?}");
        }
    }
}

/// Instances that a random test chooses.
fn instances() -> impl Strategy<Value = Vec<Siit>> {
    let pool6 = (any::<[bool; 2]>(), prop::sample::select(vec![96u8, 64, 56, 48, 40, 32]));
    let hairpin = prop::sample::select(vec![Hairpin::Off, Hairpin::Simple, Hairpin::Intrinsic]);
    let instance = (pool6, hairpin, any::<[bool; 3]>());
    (prop::collection::vec(instance, 1..3), any::<u16>()).prop_map(|(chosen, mapped)| {
        let count = chosen.len();
        let make = |(number, ((prefixes, len), hairpin, flags)): (usize, ((_, u8), Hairpin, [bool; 3]))| {
            let ([well_known, other], [denied4, denied6, wkp_non_global]): ([bool; 2], _) = (prefixes, flags);
            let mut pool6 = if well_known { vec![Prefix64::WELL_KNOWN] } else { vec![] };
            if other {
                pool6.insert(usize::from(len) % (pool6.len() + 1), prefix("2001:df0::", len));
            }
            let of_this = |at: usize| mapped >> at & 1 == 1 && (at + number).is_multiple_of(count);
            let all = eamt().into_iter().enumerate();
            let eamt = all.filter(|(at, _)| of_this(*at)).map(|(_, eam)| eam).collect();
            let net4 = Net4 { addr: Ipv4Addr::new(203, 0, 113, 72), len: 29 };
            let net6 = Net6 { addr: "2001:db8:c:0:10::".parse().unwrap(), len: 76 };
            Siit {
                denylist4: if denied4 { vec![net4] } else { vec![] },
                denylist6: if denied6 { vec![net6] } else { vec![] },
                wkp_non_global,
                ..siit(pool6, eamt, hairpin)
            }
        };
        chosen.into_iter().enumerate().map(make).collect()
    })
}

#[test]
fn a_small_path_gives_packets_that_may_be_cut_to_the_engine_and_removed_mappings_translate_nothing() {
    let siit = vec![siit(vec![prefix("2001:df0::", 96)], eamt(), Hairpin::Off)];
    let mut pair = pair(&siit, None);
    let plan = Plan { siit: siit.clone(), ..plan(well_known(), gatun_wire::Settings::default()) };
    let (host, internet) = (End::Mapped(0, 0), End::Four(EMBEDDED[0], 0));
    let sends = |pair: &mut Pair, payload| {
        let (port, frame) = frame(&Made { payload, ..PLAIN }, host, internet, &siit);
        pair.switch.put(port, &frame).unwrap();
        pair.switch.turn();
        let sent = pair.switch.take(OUTSIDE).is_some();
        assert_eq!(pair.switch.take(0).is_some(), !sent);
        sent
    };
    install(&mut pair.switch, &plan, Some(900));
    assert_eq!([872, 873, 1232, 1233].map(|payload| sends(&mut pair, payload)), [true, false, false, true]);
    install(&mut pair.switch, &Plan { siit: Vec::new(), ..plan }, None);
    assert!(!sends(&mut pair, 100));
}

proptest! {
    #![proptest_config(crate::sessions::property_config())]
    #[test]
    fn random_stateless_packets_become_the_bytes_of_the_engine_or_go_to_the_controller(
        siit in instances(),
        own6 in prop::sample::select(vec![None, Some("2001:df0::c000:2fe"), Some("2001:db8:b::5")]),
        history in prop::collection::vec((made(), end(), end()), 60..200),
    ) {
        let mut pair = pair(&siit, own6.map(|own6| own6.parse().unwrap()));
        for (made, from, to) in history {
            let (port, frame) = frame(&made, from, to, &siit);
            pair.compare(port, &frame);
        }
    }
}
