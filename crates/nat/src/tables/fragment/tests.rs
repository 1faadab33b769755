//! Fragments in every order, overlaps, floods, timeouts, and the sum of all outcomes.

use super::*;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_testkit::packet::{V4, V6};
use gatun_wire::HEADROOM;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::vec;
use std::vec::Vec;

const LIFETIME_MS: u32 = 2_000;
const NOW: Instant = Instant(1_000_000);

/// Translation of the first fragment.
type Memo = u32;

fn table(change: impl FnOnce(&mut Limits)) -> Fragments<Memo> {
    let mut limits = Limits { fragment_entries_max: 16, fragment_bytes_max: 64 << 10, ..Limits::default() };
    change(&mut limits);
    Fragments::new(&limits, [1, 2, 3, 4]).unwrap()
}

/// Packet as received: its bytes, and the contents of its headers.
#[derive(Clone, Debug)]
struct Given {
    bytes: Vec<u8>,
    fragment: Fragment,
}

/// Part of a datagram.
#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    v6: bool,
    source: u16,
    id: u32,
    offset: u16,
    more: bool,
    data: &'a [u8],
}

impl Part<'_> {
    fn build(self) -> Given {
        let Part { offset, more, data, .. } = self;
        let source = u32::from(self.source);
        if self.v6 {
            let from = Ipv6Addr::from(0x2001_0db8 << 96 | u128::from(source));
            let to = Ipv6Addr::from(0x2001_0db8_0001_u128 << 80 | 1);
            let bytes = V6 { fragment: Some((offset, more, self.id)), ..V6::new(from, to) }.raw(17, data);
            let fragment = Fragment::of6(0, &Ipv6View::parse(&bytes).unwrap()).unwrap();
            return Given { bytes, fragment };
        }
        let (from, to) = (Ipv4Addr::from(0xc612_0000 | source), Ipv4Addr::new(203, 0, 113, 1));
        let header = V4 { df: false, id: self.id as u16, offset, mf: more, ..V4::new(from, to) };
        let bytes = header.raw(17, data);
        let fragment = Fragment::of4(0, &Ipv4View::parse(&bytes).unwrap()).unwrap();
        Given { bytes, fragment }
    }
}

fn datagram(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 256) as u8).collect()
}

/// A datagram cut in pieces of `step` bytes.
fn cut(v6: bool, source: u16, id: u32, data: &[u8], step: usize) -> Vec<Given> {
    let part = |(i, d): (usize, &[u8])| {
        let offset = (i * step) as u16;
        Part { v6, source, id, offset, more: usize::from(offset) + d.len() < data.len(), data: d }.build()
    };
    data.chunks(step).enumerate().map(part).collect()
}

impl Given {
    fn with_packet<T>(&self, f: impl FnOnce(&Packet<'_>) -> T) -> T {
        let mut buf = vec![0xa5; HEADROOM + self.bytes.len()];
        buf[HEADROOM..].copy_from_slice(&self.bytes);
        f(&Packet::new(&mut buf, HEADROOM, self.bytes.len()).unwrap())
    }

    fn later(&self, table: &mut Fragments<Memo>, now: Instant) -> FragmentAction<Memo> {
        self.with_packet(|p| table.later(now, &self.fragment, LIFETIME_MS, p))
    }

    fn first(&self, table: &mut Fragments<Memo>, memo: Memo) -> Result<u32, DropReason> {
        table.first(NOW, &self.fragment, LIFETIME_MS, memo)
    }

    fn collect(&self, table: &mut Fragments<Memo>, memo: Memo) -> Result<bool, DropReason> {
        self.with_packet(|p| table.collect(NOW, &self.fragment, LIFETIME_MS, p, memo))
    }

    /// Returns the bytes and offsets of the released fragments.
    fn release(&self, table: &mut Fragments<Memo>) -> Vec<(Vec<u8>, Memo, Option<Datagram>)> {
        let mut all = Vec::new();
        table.release(NOW, &self.fragment, |r| {
            assert!(r.packet.headroom() >= HEADROOM);
            all.push((r.packet.bytes().to_vec(), r.memo, r.datagram));
        });
        all
    }
}

fn ended(table: &mut Fragments<Memo>) -> Vec<(DropReason, u64)> {
    let mut all = Vec::new();
    table.take_ended(|e| all.push((e.reason, e.count.packets)));
    all
}

#[track_caller]
fn assert_empty(table: &Fragments<Memo>) {
    assert_eq!((table.held(), table.len(), table.sources.len()), (0, 0, 0));
    assert_eq!(table.slots.free_count(), table.slots.all());
    assert_eq!((table.free.len(), table.unaccepted), (table.entries.len(), 0));
}

fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![vec![]];
    }
    let with = |p: &Vec<usize>, at: usize| {
        let mut p = p.clone();
        p.insert(at, n - 1);
        p
    };
    permutations(n - 1).iter().flat_map(|p| (0..n).map(move |at| with(p, at))).collect()
}

// proves: A61-6, A61-7, R47-14
#[test]
fn four_fragments_in_each_of_their_orders_all_get_the_firsts_translation() {
    let data = datagram(4_000);
    for v6 in [false, true] {
        for order in permutations(4) {
            let mut table = table(|_| ());
            let parts = cut(v6, 1, 77, &data, 1_200);
            let mut out: Vec<Vec<u8>> = Vec::new();
            for &i in &order {
                let part = &parts[i];
                if i == 0 {
                    let waiting = part.first(&mut table, 42).unwrap();
                    assert_eq!(u64::from(waiting), table.held());
                    out.push(part.bytes.clone());
                    let released = part.release(&mut table);
                    assert_eq!(released.len(), waiting as usize);
                    assert!(released.is_sorted_by_key(|(bytes, ..)| offset_of(v6, bytes)));
                    for (bytes, memo, datagram) in released {
                        assert_eq!((memo, datagram), (42, None));
                        out.push(bytes);
                    }
                } else {
                    match part.later(&mut table, NOW) {
                        FragmentAction::Known(memo) => {
                            assert_eq!(memo, 42);
                            out.push(part.bytes.clone());
                        }
                        FragmentAction::Held => assert!(!out.iter().any(|o| offset_of(v6, o) == 0)),
                        other => panic!("{other:?}"),
                    }
                }
            }
            let out: BTreeSet<_> = out.into_iter().collect();
            assert_eq!(out, parts.iter().map(|p| p.bytes.clone()).collect(), "{order:?}");
            assert_empty(&table);
            assert!(ended(&mut table).is_empty());
        }
    }
}

fn offset_of(v6: bool, bytes: &[u8]) -> u16 {
    let at = if v6 { 42 } else { 6 };
    let field = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    if v6 { field & !7 } else { field << 3 }
}

/// The plain sum of 16-bit words.
fn naive_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| u32::from(*b));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

// proves: A61-8
#[test]
fn a_datagram_without_checksum_is_held_until_it_is_whole_and_comes_with_its_sum() {
    for (len, order) in
        [3_601, 4_000, 3_999].into_iter().flat_map(|l| permutations(4).into_iter().map(move |o| (l, o)))
    {
        let data = datagram(len);
        let parts = cut(false, 1, 77, &data, 1_200);
        let mut table = table(|_| ());
        for (n, &i) in order.iter().enumerate() {
            let last = n == 3;
            if i == 0 {
                assert_eq!(parts[0].collect(&mut table, 9), Ok(last));
            } else {
                let expected = if last && order[..n].contains(&0) {
                    FragmentAction::Complete
                } else {
                    FragmentAction::Held
                };
                assert_eq!(parts[i].later(&mut table, NOW), expected);
            }
            assert_eq!(table.held(), n as u64 + 1);
            if !last {
                assert!(parts[i].release(&mut table).is_empty(), "the datagram is not complete yet");
            }
        }
        let released = parts[2].release(&mut table);
        let whole = Datagram { len: len as u32, sum: naive_sum(&data) };
        for ((bytes, memo, datagram), part) in released.iter().zip(&parts) {
            assert_eq!((bytes, *memo, *datagram), (&part.bytes, 9, Some(whole)));
        }
        assert_eq!(released.len(), 4);
        assert_empty(&table);
    }
}

// proves: A61-8
#[test]
fn a_datagram_without_checksum_that_finds_no_room_is_dropped_as_a_whole() {
    let mut table = table(|l| l.fragment_bytes_max = 8 * 512);
    let parts = cut(false, 1, 77, &datagram(4_800), 1_200);
    assert_eq!(parts[0].collect(&mut table, 9), Ok(false));
    assert_eq!(parts[1].later(&mut table, NOW), FragmentAction::Held);
    assert_eq!(parts[2].later(&mut table, NOW), FragmentAction::Drop(DropReason::FragmentMemory));
    assert_eq!(ended(&mut table), [(DropReason::FragmentMemory, 2)]);
    assert_eq!(parts[3].later(&mut table, NOW), FragmentAction::Drop(DropReason::FragmentMemory));
    assert_eq!(table.held(), 0);
    table.expire(NOW.plus_ms(LIFETIME_MS.into()), usize::MAX);
    assert_empty(&table);
}

fn part(source: u16, id: u32, offset: u16, more: bool, data: &[u8]) -> Given {
    Part { v6: false, source, id, offset, more, data }.build()
}

// proves: A61-9
#[test]
fn an_overlap_ends_the_whole_datagram_until_its_time_is_up() {
    let data = datagram(1_600);
    // The first fragment is known: fragments after the overlap are dropped too.
    let mut known = table(|_| ());
    assert_eq!(part(1, 7, 0, true, &data[..800]).first(&mut known, 1), Ok(0));
    let overlapping = part(1, 7, 792, true, &data[..80]);
    assert_eq!(overlapping.later(&mut known, NOW), FragmentAction::Drop(DropReason::FragmentOverlap));
    let good = part(1, 7, 800, false, &data[..800]);
    assert_eq!(good.later(&mut known, NOW), FragmentAction::Drop(DropReason::FragmentOverlap));
    assert_eq!(part(1, 7, 0, true, &data[..800]).first(&mut known, 1), Err(DropReason::FragmentOverlap));
    // Afterwards the identification may be used again.
    let after = NOW.plus_ms(LIFETIME_MS.into());
    assert_eq!(good.later(&mut known, after), FragmentAction::Held);

    // The first fragment is not known yet: the held fragments are dropped, and the first one too.
    let mut waiting = table(|_| ());
    assert_eq!(part(1, 7, 800, false, &data[..800]).later(&mut waiting, NOW), FragmentAction::Held);
    assert_eq!(part(1, 7, 0, true, &data[..808]).first(&mut waiting, 1), Err(DropReason::FragmentOverlap));
    assert_eq!(ended(&mut waiting), [(DropReason::FragmentOverlap, 1)]);
    // Two last fragments that disagree are an overlap too.
    let mut ends = table(|_| ());
    assert_eq!(part(1, 7, 800, false, &data[..100]).later(&mut ends, NOW), FragmentAction::Held);
    let other_end = part(1, 7, 1_600, false, &data[..100]);
    assert_eq!(other_end.later(&mut ends, NOW), FragmentAction::Drop(DropReason::FragmentOverlap));
}

// proves: A61-9
#[test]
fn a_fragment_that_the_network_doubled_does_no_harm() {
    let parts = cut(false, 1, 7, &datagram(3_000), 1_000);
    let mut table = table(|_| ());
    assert_eq!(parts[1].later(&mut table, NOW), FragmentAction::Held);
    assert_eq!(parts[1].later(&mut table, NOW), FragmentAction::Drop(DropReason::FragmentOverlap));
    assert_eq!(parts[0].first(&mut table, 5), Ok(1));
    assert_eq!(parts[0].first(&mut table, 5), Err(DropReason::FragmentOverlap));
    assert_eq!(parts[0].release(&mut table).len(), 1);
    assert_eq!(parts[2].later(&mut table, NOW), FragmentAction::Known(5));
    assert_empty(&table);
}

#[test]
fn a_fragment_of_wrong_length_is_dropped_alone() {
    // The parser refuses some of these itself; the table must not depend on that.
    let wrong = |offset, more, len: usize| {
        let mut given = part(1, 7, 0, true, &vec![0; len.next_multiple_of(8)]);
        given.fragment.info = FragmentInfo { offset, more, id: 7 };
        given.fragment.total_len = given.fragment.header_len + len as u32;
        given
    };
    let mut table = table(|_| ());
    assert_eq!(wrong(0, true, 804).first(&mut table, 1), Err(DropReason::BadLength));
    assert_eq!(wrong(8, true, 0).later(&mut table, NOW), FragmentAction::Drop(DropReason::BadLength));
    assert_eq!(wrong(65_528, false, 8).later(&mut table, NOW), FragmentAction::Drop(DropReason::BadLength));
    assert_empty(&table);
    assert_eq!(wrong(65_528, false, 7).later(&mut table, NOW), FragmentAction::Held);
}

// proves: A61-7
#[test]
fn datagrams_that_differ_in_any_part_of_the_key_are_apart() {
    let data = datagram(64);
    let base = part(1, 7, 8, true, &data);
    let mut others = vec![part(2, 7, 8, true, &data), part(1, 8, 8, true, &data)];
    others.push(Part { v6: true, source: 1, id: 7, offset: 8, more: true, data: &data }.build());
    let keyed = |change: fn(&mut Key)| {
        let mut given = base.clone();
        change(&mut given.fragment.key);
        given
    };
    others.push(keyed(|k| k.dst += 1));
    others.push(keyed(|k| k.proto = 6));
    others.push(keyed(|k| k.instance = 1));
    others.push(keyed(|k| k.direction = Direction::SixToFour));
    let mut table = table(|_| ());
    assert_eq!(base.later(&mut table, NOW), FragmentAction::Held);
    for (n, other) in others.iter().enumerate() {
        assert_eq!(other.later(&mut table, NOW), FragmentAction::Held, "{n}");
        assert_eq!(table.len(), n + 2);
    }
}

#[test]
fn an_atomic_fragment_is_not_a_fragment() {
    let (src, dst) = (Ipv6Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED);
    let bytes = V6 { fragment: Some((0, false, 1)), ..V6::new(src, dst) }.raw(17, &[0; 16]);
    assert!(Fragment::of6(0, &Ipv6View::parse(&bytes).unwrap()).is_none());
}

// proves: A61-6
#[test]
fn fragments_may_come_over_the_whole_of_their_time_and_not_later() {
    let parts = cut(false, 1, 7, &datagram(3_000), 1_000);
    let mut table = table(|_| ());
    let last_moment = NOW.plus_ms(u64::from(LIFETIME_MS) - 1);
    assert_eq!(parts[0].first(&mut table, 5), Ok(0));
    assert_eq!(parts[1].later(&mut table, last_moment), FragmentAction::Known(5));
    table.expire(last_moment, 1_000);
    assert_eq!(table.len(), 1);
    // Without a sweep, an expired datagram counts as a new one.
    let over = NOW.plus_ms(LIFETIME_MS.into());
    assert_eq!(parts[2].later(&mut table, over), FragmentAction::Held);
    assert_eq!(ended(&mut table), []);
    table.expire(over.plus_ms(LIFETIME_MS.into()), 1_000);
    assert_eq!(ended(&mut table), [(DropReason::FragmentTimeout, 1)]);
    assert_empty(&table);
}

#[test]
fn a_sweep_looks_at_no_more_records_than_its_budget() {
    let mut table = table(|l| l.fragment_entries_max = 100);
    for id in 0..50 {
        assert_eq!(part(id, 1, 8, true, &[0; 8]).later(&mut table, NOW), FragmentAction::Held);
    }
    let over = NOW.plus_ms(LIFETIME_MS.into());
    let mut sweeps = 0;
    while table.held() > 0 {
        let before = table.held();
        table.expire(over, 10);
        assert!(before - table.held() <= 10);
        sweeps += 1;
        assert!(sweeps <= 10, "ten sweeps see all hundred records");
    }
    assert_eq!(ended(&mut table), [(DropReason::FragmentTimeout, 50)]);
    assert_empty(&table);
}

#[test]
fn fragments_of_a_refused_first_fragment_are_dropped() {
    let parts = cut(true, 1, 7, &datagram(3_000), 1_000);
    let mut table = table(|_| ());
    assert_eq!(parts[1].later(&mut table, NOW), FragmentAction::Held);
    table.refuse(NOW, &parts[0].fragment, LIFETIME_MS);
    assert_eq!(parts[2].later(&mut table, NOW), FragmentAction::Drop(DropReason::FragmentOrphan));
    let mut told = Vec::new();
    table.take_ended(|e| told.push(e));
    let count = Count { packets: 1, bytes: parts[1].bytes.len() as u64 };
    let (direction, reason) = (Direction::SixToFour, DropReason::FragmentOrphan);
    let expected = Ended { direction, instance: 0, reason, count };
    assert_eq!(told, [expected]);
}

#[test]
fn a_refused_first_fragment_is_remembered_before_the_others_come() {
    let parts = cut(true, 1, 7, &datagram(3_000), 1_000);
    let mut table = table(|_| ());
    table.refuse(NOW, &parts[0].fragment, LIFETIME_MS);
    for part in &parts[1..] {
        assert_eq!(part.later(&mut table, NOW), FragmentAction::Drop(DropReason::FragmentOrphan));
    }
}

// proves: A61-6, R47-14
#[test]
fn a_flood_from_many_sources_leaves_room_for_datagrams_that_begin_with_their_first_fragment() {
    let mut table = table(|_| ());
    // A datagram of another source is waiting before the flood begins.
    let early = cut(false, 9_999, 1, &datagram(2_000), 1_000);
    assert_eq!(early[1].later(&mut table, NOW), FragmentAction::Held);
    let mut dropped = 0;
    for source in 0..1_000 {
        match part(source, 1, 8, true, &[0; 8]).later(&mut table, NOW) {
            FragmentAction::Held => {}
            FragmentAction::Drop(DropReason::FragmentMemory) => dropped += 1,
            other => panic!("{other:?}"),
        }
        let (held, size) = (table.held(), table.entries.len());
        assert!(held <= 12 && size == 16, "at most three quarters, and no growth");
        // Other sources go on, in order, at every moment of the flood.
        let parts = cut(false, 20_000 + source, 1, &datagram(2_000), 1_000);
        assert_eq!(parts[0].first(&mut table, 3), Ok(0));
        assert_eq!(parts[1].later(&mut table, NOW), FragmentAction::Known(3));
    }
    assert_eq!(dropped, 1_000 - 11);
    assert_eq!(early[0].first(&mut table, 4), Ok(1));
    assert_eq!(early[0].release(&mut table).len(), 1, "the earlier datagram was not evicted");
    table.expire(NOW.plus_ms(LIFETIME_MS.into()), 1_000);
    assert_eq!(ended(&mut table), [(DropReason::FragmentTimeout, 11)]);
    assert_empty(&table);
}

// proves: R47-14
#[test]
fn a_flood_from_one_source_takes_no_more_than_its_share() {
    let mut table = table(|l| {
        l.fragment_entries_max = 100;
        l.fragments_per_source = 10;
    });
    for id in 0..50 {
        let _ = part(1, id, 8, true, &[0; 8]).later(&mut table, NOW);
    }
    // Each datagram and each held fragment counts.
    assert_eq!(table.held(), 5);
    for id in 100..150 {
        let refused = part(1, id, 0, true, &[0; 8]).first(&mut table, 1);
        assert_eq!(refused, Err(DropReason::FragmentTooMany));
    }
    assert_eq!(part(2, 1, 8, true, &[0; 8]).later(&mut table, NOW), FragmentAction::Held);
    // The source can use its share again when the time is up.
    let over = NOW.plus_ms(LIFETIME_MS.into());
    table.expire(over, 1_000);
    assert_empty(&table);
    assert_eq!(part(1, 1, 8, true, &[0; 8]).later(&mut table, over), FragmentAction::Held);
}

#[test]
fn the_number_of_fragments_of_one_datagram_is_bounded() {
    let mut table = table(|l| l.fragments_per_source = 10_000);
    assert_eq!(part(1, 7, 0, true, &[0; 8]).first(&mut table, 1), Ok(0));
    for i in 1..128 {
        assert_eq!(part(1, 7, i * 16, true, &[0; 8]).later(&mut table, NOW), FragmentAction::Known(1));
    }
    let one_more = part(1, 7, 128 * 16, true, &[0; 8]).later(&mut table, NOW);
    assert_eq!(one_more, FragmentAction::Drop(DropReason::FragmentTooMany));
}

#[test]
fn fragments_of_every_size_come_back_byte_by_byte() {
    let mut table = table(|l| l.fragment_bytes_max = 256 << 10);
    for (id, len) in [8, 480, 488, 496, 1_472, 8_952, 65_000].into_iter().enumerate() {
        let data = datagram(len);
        for v6 in [false, true] {
            let parts = [
                Part { v6, source: 1, id: id as u32, offset: 0, more: true, data: &data[..8] }.build(),
                Part { v6, source: 1, id: id as u32, offset: 8, more: false, data: &data }.build(),
            ];
            assert_eq!(parts[1].later(&mut table, NOW), FragmentAction::Held);
            assert_eq!(parts[0].first(&mut table, 1), Ok(1));
            let released = parts[0].release(&mut table);
            assert_eq!(released.len(), 1);
            assert_eq!(released[0].0, parts[1].bytes);
        }
    }
    assert_empty(&table);
}

#[test]
fn a_table_without_room_at_all_refuses_everything() {
    let mut table = table(|l| {
        l.fragment_entries_max = 0;
        l.fragment_bytes_max = 0;
    });
    let given = part(1, 1, 8, true, &[0; 8]);
    assert_eq!(given.later(&mut table, NOW), FragmentAction::Drop(DropReason::FragmentMemory));
    assert_eq!(part(1, 1, 0, true, &[0; 8]).first(&mut table, 1), Err(DropReason::FragmentMemory));
    table.expire(NOW, 10);
    assert_empty(&table);
}

/// Operation on a table.
#[derive(Clone, Debug)]
enum Action {
    First { source: u16, id: u32, units: u16 },
    Collect { source: u16, id: u32, units: u16 },
    Refuse { source: u16, id: u32 },
    Later { source: u16, id: u32, offset: u16, units: u16, more: bool },
    Release { source: u16, id: u32 },
    Wait { ms: u64 },
    Expire { budget: usize },
}

fn action() -> impl Strategy<Value = Action> {
    let who = || (0u16..4, 0u32..3);
    prop_oneof![
        2 => (who(), 1u16..4).prop_map(|((source, id), units)| Action::First { source, id, units }),
        1 => (who(), 1u16..4).prop_map(|((source, id), units)| Action::Collect { source, id, units }),
        1 => who().prop_map(|(source, id)| Action::Refuse { source, id }),
        8 => (who(), 0u16..6, 1u16..150, any::<bool>()).prop_map(|((source, id), offset, units, more)|
            Action::Later { source, id, offset: offset * 8 + 8, units, more }),
        3 => who().prop_map(|(source, id)| Action::Release { source, id }),
        1 => (0u64..1_500).prop_map(|ms| Action::Wait { ms }),
        1 => (0usize..10).prop_map(|budget| Action::Expire { budget }),
    ]
}

proptest! {
    // proves: A61-6, R47-14
    #[test]
    fn every_held_packet_ends_exactly_once(
        actions in proptest::collection::vec(action(), 0..300),
        entries in 0u32..10,
        chunks in 0u32..16,
        per_source in 0u32..8,
    ) {
        let mut table = table(|l| {
            l.fragment_entries_max = entries;
            l.fragment_bytes_max = chunks * 512;
            l.fragments_per_source = per_source;
        });
        let data = datagram(2_000);
        let mut now = NOW;
        // Packets and bytes that were accepted, released, or reported as dropped.
        let (mut taken, mut gone) = (Count::default(), Count::default());
        for action in actions {
            match action {
                Action::First { source, id, units } => {
                    let given = part(source, id, 0, true, &data[..usize::from(units) * 8]);
                    let _ = table.first(now, &given.fragment, LIFETIME_MS, 1);
                }
                Action::Collect { source, id, units } => {
                    let given = part(source, id, 0, true, &data[..usize::from(units) * 8]);
                    let result = given.with_packet(|p| table.collect(now, &given.fragment, LIFETIME_MS, p, 1));
                    if result.is_ok() {
                        taken.add(given.bytes.len());
                    }
                }
                Action::Refuse { source, id } => {
                    let given = part(source, id, 0, true, &data[..8]);
                    table.refuse(now, &given.fragment, LIFETIME_MS);
                }
                Action::Later { source, id, offset, units, more } => {
                    let given = part(source, id, offset, more, &data[..usize::from(units) * 8]);
                    let action = given.later(&mut table, now);
                    if matches!(action, FragmentAction::Held | FragmentAction::Complete) {
                        taken.add(given.bytes.len());
                    }
                }
                Action::Release { source, id } => {
                    let given = part(source, id, 0, true, &data[..8]);
                    table.release(now, &given.fragment, |r| gone.add(r.packet.len()));
                }
                Action::Wait { ms } => now = now.plus_ms(ms),
                Action::Expire { budget } => table.expire(now, budget),
            }
            table.take_ended(|e| gone += e.count);
            prop_assert_eq!(taken.packets - gone.packets, table.held());
        }
        table.expire(now.plus_ms(LIFETIME_MS.into()), entries as usize);
        table.take_ended(|e| gone += e.count);
        prop_assert_eq!(taken, gone);
        assert_empty(&table);
    }
}

#[test]
fn a_record_has_the_documented_size() {
    assert!(size_of::<StoredDatagram<[u64; 8]>>() <= 720, "{}", size_of::<StoredDatagram<[u64; 8]>>());
}
