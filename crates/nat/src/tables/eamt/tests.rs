//! Test of the table against the definition: try every entry, take the longest.

use super::*;
use crate::base::plan::{Net4, Net6};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn eam(v4: &str, v6: &str) -> Eam {
    let split = |s: &str| -> (std::string::String, u8) {
        let (a, l) = s.split_once('/').unwrap();
        (a.into(), l.parse().unwrap())
    };
    let ((a4, l4), (a6, l6)) = (split(v4), split(v6));
    Eam { v4: Net4::new(a4.parse().unwrap(), l4).unwrap(), v6: Net6::new(a6.parse().unwrap(), l6).unwrap() }
}

fn v4(s: &str) -> Ipv4Addr {
    s.parse().unwrap()
}

fn v6(s: &str) -> Ipv6Addr {
    s.parse().unwrap()
}

/// Example table of RFC 7757 3.2: hosts, networks, unequal suffixes.
fn sample() -> Eamt {
    Eamt::build(&[
        eam("192.0.2.1/32", "2001:db8:aaaa::/128"),
        eam("192.0.2.2/32", "2001:db8:bbbb::b/128"),
        eam("192.0.2.16/28", "2001:db8:cccc::/124"),
        eam("192.0.2.128/26", "2001:db8:dddd::/64"),
        eam("192.0.2.192/29", "2001:db8:eeee:8::/62"),
        eam("192.0.2.224/31", "64:ff9b::/127"),
    ])
    .unwrap()
}

// proves: A77-1
#[test]
fn an_ipv4_suffix_follows_the_ipv6_prefix_and_zeroes_follow_the_suffix() {
    let t = sample();
    for (a, expected) in [
        ("192.0.2.1", "2001:db8:aaaa::"),
        ("192.0.2.2", "2001:db8:bbbb::b"),
        ("192.0.2.16", "2001:db8:cccc::"),
        ("192.0.2.24", "2001:db8:cccc::8"),
        ("192.0.2.31", "2001:db8:cccc::f"),
        ("192.0.2.128", "2001:db8:dddd::"),
        ("192.0.2.152", "2001:db8:dddd:0:6000::"),
        ("192.0.2.183", "2001:db8:dddd:0:dc00::"),
        ("192.0.2.191", "2001:db8:dddd:0:fc00::"),
        ("192.0.2.193", "2001:db8:eeee:8:8000::"),
        ("192.0.2.199", "2001:db8:eeee:b:8000::"),
        ("192.0.2.225", "64:ff9b::1"),
    ] {
        assert_eq!(t.v4_to_v6(v4(a)), Some(v6(expected)), "{a}");
        assert_eq!(t.v6_to_v4(v6(expected)), Some(v4(a)), "{expected}");
    }
    for unmapped in ["192.0.2.0", "192.0.2.32", "192.0.2.127", "192.0.2.200", "192.0.3.1"] {
        assert_eq!(t.v4_to_v6(v4(unmapped)), None, "{unmapped}");
        assert!(!t.covers_v4(v4(unmapped)));
    }
}

// proves: A77-2
#[test]
fn bits_behind_the_mapped_ipv6_suffix_are_ignored() {
    let t = sample();
    assert_eq!(t.v6_to_v4(v6("2001:db8:dddd:0:dfff:ffff:ffff:ffff")), Some(v4("192.0.2.183")));
    assert_eq!(t.v6_to_v4(v6("2001:db8:eeee:9:1::1")), Some(v4("192.0.2.194")));
    assert_eq!(t.v6_to_v4(v6("2001:db8:dddd:1::")), None);
}

// proves: A77-3
#[test]
fn an_ipv6_suffix_shorter_than_the_ipv4_suffix_is_refused() {
    let good = eam("192.0.2.0/26", "2001:db8::/64");
    let equal = eam("198.51.100.0/24", "2001:db8:1::/120");
    let short = eam("203.0.113.0/24", "2001:db8:2::/121");
    assert!(Eamt::build(&[good, equal]).is_ok());
    let error = Eamt::build(&[good, equal, short]).unwrap_err();
    assert_eq!(error, EamtError::SuffixTooShort { index: 2 });
}

#[test]
fn a_prefix_given_twice_is_refused_with_both_places() {
    let list = [
        eam("192.0.2.1/32", "2001:db8::1/128"),
        eam("192.0.2.2/32", "2001:db8::2/128"),
        eam("192.0.2.1/32", "2001:db8::3/128"),
    ];
    assert_eq!(Eamt::build(&list).unwrap_err(), EamtError::DuplicateV4 { first: 0, second: 2 });
    let list = [
        eam("192.0.2.1/32", "2001:db8::1/128"),
        eam("192.0.2.2/32", "2001:db8::2/128"),
        eam("192.0.2.3/32", "2001:db8::2/128"),
    ];
    assert_eq!(Eamt::build(&list).unwrap_err(), EamtError::DuplicateV6 { first: 1, second: 2 });
}

// proves: A77-5
#[test]
fn each_side_resolves_overlaps_by_its_own_longest_prefix() {
    let list = [
        eam("192.0.2.0/24", "2001:db8:0:1::/64"),
        eam("192.0.2.7/32", "2001:db8:ffff::7/128"),
        eam("198.51.100.0/24", "2001:db8:0:1:7::/80"),
    ];
    let t = Eamt::build(&list).unwrap();
    assert_eq!(t.v4_to_v6(v4("192.0.2.7")), Some(v6("2001:db8:ffff::7")));
    assert_eq!(t.v4_to_v6(v4("192.0.2.8")), Some(v6("2001:db8:0:1:800::")));
    // 192.0.2.0 maps back through the /64; all addresses under 2001:db8:0:1:7::/80 map through the other
    // entry.
    assert_eq!(t.v6_to_v4(v6("2001:db8:0:1::")), Some(v4("192.0.2.0")));
    assert_eq!(t.v6_to_v4(v6("2001:db8:0:1:7:900::")), Some(v4("198.51.100.9")));
    // This is asymmetric by design: the /32 has taken 192.0.2.7 from the /24 on one side only.
    assert_eq!(t.v6_to_v4(v6("2001:db8:0:1:700::")), Some(v4("192.0.2.7")));
    assert_eq!(
        overlaps(&list, usize::MAX),
        [Overlap { v6: false, inner: 1, outer: 0 }, Overlap { v6: true, inner: 2, outer: 0 }]
    );
}

#[test]
fn the_whole_of_ipv4_can_be_one_entry() {
    let t = Eamt::build(&[eam("0.0.0.0/0", "2001:db8::/32")]).unwrap();
    assert_eq!(t.v4_to_v6(v4("192.0.2.33")), Some(v6("2001:db8:c000:221::")));
    assert_eq!(t.v6_to_v4(v6("2001:db8:c000:221:ffff::")), Some(v4("192.0.2.33")));
    let t = Eamt::build(&[eam("192.0.2.1/32", "::/0")]).unwrap();
    assert_eq!(t.v6_to_v4(v6("2001:db8::1")), Some(v4("192.0.2.1")));
    assert_eq!(t.v4_to_v6(v4("192.0.2.1")), Some(v6("::")));
    let empty = Eamt::build(&[]).unwrap();
    assert!(empty.is_empty() && empty.v4_to_v6(v4("192.0.2.1")).is_none());
}

// proves: A77-1, A77-2
#[test]
fn a_million_hosts_are_found_within_the_documented_memory() {
    const N: u32 = 1_000_000;
    let host = |i: u32| Eam {
        v4: Net4 { addr: Ipv4Addr::from(0x0b00_0000 + i), len: 32 },
        v6: Net6 { addr: Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(i) << 64 | 1), len: 128 },
    };
    let list: Vec<Eam> = (0..N).map(host).collect();
    let t = Eamt::build(&list).unwrap();
    assert_eq!(t.len(), N as usize);
    assert!(t.memory_bytes() <= (N as usize + 100) * BYTES_PER_ENTRY + (1 << 16) / 8);
    assert!(overlaps(&list, 10).is_empty());
    for e in &list {
        assert_eq!(t.v4_to_v6(e.v4.addr), Some(e.v6.addr));
        assert_eq!(t.v6_to_v4(e.v6.addr), Some(e.v4.addr));
    }
    assert_eq!(t.v4_to_v6(Ipv4Addr::from(0x0b00_0000 + N)), None);
    // Searches stay short for any pattern of keys: few buckets are full.
    for table in t.by_v4.iter().chain(&t.by_v6) {
        let full = table.tags.iter().filter(|&&w| zero_bytes(w) == 0).count();
        assert!(full * 4 < table.tags.len(), "{full} of {}", table.tags.len());
    }
}

/// Longest match by looking at every entry.
fn naive_v4_to_v6(list: &[Eam], a: Ipv4Addr) -> Option<Ipv6Addr> {
    let e = list.iter().filter(|e| e.v4.contains(a)).max_by_key(|e| e.v4.len)?;
    let mut bits = u128::from(e.v6.addr);
    for i in 0..32 - e.v4.len {
        let from_left = e.v4.len + i;
        let bit = u32::from(a) >> (31 - from_left) & 1;
        bits |= u128::from(bit) << (127 - (e.v6.len + i));
    }
    Some(Ipv6Addr::from(bits))
}

fn naive_v6_to_v4(list: &[Eam], a: Ipv6Addr) -> Option<Ipv4Addr> {
    let e = list.iter().filter(|e| e.v6.contains(a)).max_by_key(|e| e.v6.len)?;
    let mut bits = u32::from(e.v4.addr);
    for i in 0..32 - e.v4.len {
        let bit = (u128::from(a) >> (127 - (e.v6.len + i)) & 1) as u32;
        bits |= bit << (31 - (e.v4.len + i));
    }
    Some(Ipv4Addr::from(bits))
}

/// Entries in a small corner of the address spaces, so that they overlap.
fn entries() -> impl Strategy<Value = Vec<Eam>> {
    let one = (0u32..=32, any::<u32>(), 0u32..=96, any::<u128>()).prop_map(|(len4, a4, slack, a6)| {
        let len6 = (len4 + slack.min(96)).min(128) as u8;
        let a4 = 0xc000_0200 | a4 & 0x0300_00ff;
        let a6 = 0x2001_0db8_u128 << 96 | a6 & (0x3_u128 << 64 | 0xff_u128 << 56 | 0xf);
        Eam {
            v4: Net4 { addr: Ipv4Addr::from(a4 & mask4(len4 as u8)), len: len4 as u8 },
            v6: Net6 { addr: Ipv6Addr::from(a6 & mask6(len6)), len: len6 },
        }
    });
    proptest::collection::vec(one, 0..60).prop_map(|list| {
        let mut v4 = BTreeMap::new();
        let mut v6 = BTreeMap::new();
        list.into_iter().filter(|e| v4.insert(e.v4, ()).is_none() && v6.insert(e.v6, ()).is_none()).collect()
    })
}

proptest! {
    // proves: A77-1, A77-2, A77-3, A77-5
    #[test]
    fn every_look_up_agrees_with_a_linear_search(
        list in entries(),
        picks in proptest::collection::vec((any::<prop::sample::Index>(), any::<u32>(), any::<u128>()), 1..50),
    ) {
        // The filter may drop an entry because of one side only. The other side then has no entry, and the rest
        // has no duplicates.
        let t = Eamt::build(&list).unwrap();
        for (i, noise4, noise6) in picks {
            let (a4, a6) = match list.get(i.index(list.len().max(1))) {
                Some(e) => (
                    u32::from(e.v4.addr) ^ noise4 & (!mask4(e.v4.len) | 1 << (noise4 % 32)),
                    u128::from(e.v6.addr) ^ noise6 & (!mask6(e.v6.len) | 1 << (noise6 % 128)),
                ),
                None => (noise4, noise6),
            };
            let (a4, a6) = (Ipv4Addr::from(a4), Ipv6Addr::from(a6));
            prop_assert_eq!(t.v4_to_v6(a4), naive_v4_to_v6(&list, a4));
            prop_assert_eq!(t.v6_to_v4(a6), naive_v6_to_v4(&list, a6));
            prop_assert_eq!(t.covers_v4(a4), naive_v4_to_v6(&list, a4).is_some());
        }
    }

    // proves: A77-5
    #[test]
    fn overlaps_are_exactly_the_entries_inside_another(list in entries()) {
        let found = overlaps(&list, usize::MAX);
        for (inner, e) in list.iter().enumerate() {
            let closest4 = list.iter().enumerate()
                .filter(|(i, o)| *i != inner && o.v4.contains(e.v4.addr) && o.v4.len < e.v4.len)
                .max_by_key(|(_, o)| o.v4.len).map(|(i, _)| i);
            let closest6 = list.iter().enumerate()
                .filter(|(i, o)| *i != inner && o.v6.contains(e.v6.addr) && o.v6.len < e.v6.len)
                .max_by_key(|(_, o)| o.v6.len).map(|(i, _)| i);
            for (v6, closest) in [(false, closest4), (true, closest6)] {
                let told = found.iter().find(|o| o.v6 == v6 && o.inner == inner).map(|o| o.outer);
                prop_assert_eq!(told, closest);
            }
        }
        prop_assert!(overlaps(&list, 2).len() <= 2);
    }
}
