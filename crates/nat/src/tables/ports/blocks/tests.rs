use crate::Instant;
use crate::StaticBindingError;
use crate::base::plan::*;
use crate::base::rng::Rng;
use crate::tables::pool4::*;
use core::net::Ipv4Addr;
use gatun_wire::DropReason;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::vec;
use std::vec::Vec;

const UDP: Transport = Transport::Udp;
const START: Instant = Instant(1_000_000);
const MINUTE_MS: u64 = 60_000;

fn plan(addresses: u32, ports: (u16, u16), blocks: Blocks) -> Pool4 {
    let first = Ipv4Addr::new(192, 0, 2, 0);
    let last = Ipv4Addr::from(u32::from(first) + addresses - 1);
    Pool4 {
        ranges: vec![PoolRange { first, last, ports, transports: [true; 3] }],
        allocation: Allocation::Blocks(blocks),
        ..Pool4::default()
    }
}

fn terms() -> Blocks {
    Blocks { size: 64, per_subscriber: 2, ..Blocks::default() }
}

/// Test bed: a pool, its subscribers, and a clock.
struct Bed {
    pool: Pool4State,
    rng: Rng,
    now: Instant,
    holdings: Vec<Holdings>,
}

impl Bed {
    fn new(plan: &Pool4) -> Self {
        let pool = Pool4State::new(plan, true).unwrap();
        Bed { pool, rng: Rng::new([7; 4]), now: START, holdings: Vec::new() }
    }

    fn request(&mut self, subscriber: u32, transport: Transport, inside_port: u16) -> PortRequest {
        self.holdings.resize(self.holdings.len().max(subscriber as usize + 1), Holdings::NONE);
        let spread = u64::from(subscriber).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let draws = [self.rng.next_u32(), self.rng.next_u32()];
        PortRequest { transport, inside_port, spread, subscriber, prefix: subscriber.into(), shard: 0, draws }
    }

    fn take(&mut self, subscriber: u32, transport: Transport) -> Result<Grant, DropReason> {
        let wanted = self.request(subscriber, transport, 4000);
        let holdings = &mut self.holdings[subscriber as usize];
        let grant = self.pool.allocate(&mut self.rng, self.now, &wanted, holdings)?;
        if holdings.paired().is_none() {
            holdings.pair(grant.address_ix);
        }
        Ok(grant)
    }

    fn give_back(&mut self, subscriber: u32, transport: Transport, ix: u32, port: u16) -> Option<PortBlock> {
        let holdings = &mut self.holdings[subscriber as usize];
        self.pool.release(self.now, transport, ix, port, Some(holdings)).expect("the port was used")
    }

    fn pass_ms(&mut self, ms: u64) {
        self.now = self.now.plus_ms(ms);
        while let Some(owner) = self.pool.lingered(self.now) {
            self.pool.end_lingering(self.now, &mut self.holdings[owner as usize]);
        }
        self.pool.expire(self.now, usize::MAX);
    }

    fn blocks(&self) -> BlockUsage {
        self.pool.block_usage().unwrap()
    }
}

fn block_of(grant: &Grant, size: u16) -> (u32, u16) {
    (grant.address_ix, grant.port / size)
}

// proves: PBA-1, PBA-2, R68-4
#[test]
fn a_full_first_block_gets_a_second_one_and_a_quota_of_two_refuses_a_third() {
    let mut bed = Bed::new(&plan(4, (1024, 65_535), terms()));
    let grants: Vec<Grant> = (0..128).map(|_| bed.take(5, UDP).unwrap()).collect();
    assert!(grants.iter().all(|g| g.address_ix == grants[0].address_ix), "both on the same address");
    for (half, grants) in grants.chunks(64).enumerate() {
        assert!(grants.iter().all(|g| block_of(g, 64) == block_of(&grants[0], 64)));
        let new: Vec<_> = grants.iter().filter_map(|g| g.new_block).collect();
        assert_eq!(new.len(), 1, "half {half} begins with a new block");
        let first = grants[0].port & !63;
        let block = PortBlock {
            address_ix: grants[0].address_ix,
            first,
            last: first + 63,
            transports: [true; 3],
            at: START,
        };
        assert_eq!(grants[0].new_block, Some(block));
    }
    let ports: BTreeSet<u16> = grants.iter().map(|g| g.port).collect();
    assert_eq!(ports.len(), 128);
    assert_eq!(bed.take(5, UDP), Err(DropReason::SubscriberBlockQuota));
    assert!(bed.take(5, Transport::Tcp).unwrap().new_block.is_none(), "the same blocks serve TCP");
    assert_eq!(bed.blocks(), BlockUsage { total: 4 * 1008, owned: 2, lingering: 0, held: 0 });
}

// proves: PBA-1, R68-8
#[test]
fn an_empty_block_lingers_for_its_subscriber_and_is_then_held_down_for_two_minutes() {
    let all_of_it = Blocks { size: 16_384, linger_ms: MINUTE_MS as u32, ..terms() };
    let mut bed = Bed::new(&plan(1, (16_384, 32_767), all_of_it));
    let grant = bed.take(1, UDP).unwrap();
    assert_eq!(bed.give_back(1, UDP, 0, grant.port), None);
    assert_eq!(bed.take(2, UDP), Err(DropReason::BlockNone));
    bed.pass_ms(MINUTE_MS - 64);
    assert_eq!(bed.blocks().lingering, 1);
    // The owner comes back; when all its ports have ended, the time starts again.
    let again = bed.take(1, UDP).unwrap();
    assert!(again.new_block.is_none() && bed.blocks().lingering == 0);
    bed.pass_ms(10 * MINUTE_MS);
    assert_eq!(bed.give_back(1, UDP, 0, again.port), None);
    bed.pass_ms(MINUTE_MS - 64);
    assert_eq!((bed.blocks().owned, bed.holdings[1].blocks()), (1, [1, 0, 0]));
    bed.pass_ms(128);
    assert_eq!((bed.blocks().owned, bed.blocks().held), (0, 1));
    assert_eq!(bed.holdings[1].blocks(), [0; 3]);
    assert_eq!(bed.take(2, UDP), Err(DropReason::HoldDownAll));
    bed.pass_ms(2 * MINUTE_MS - 64);
    assert_eq!(bed.take(2, UDP), Err(DropReason::HoldDownAll));
    bed.pass_ms(128);
    assert_eq!(bed.blocks(), BlockUsage { total: 1, ..BlockUsage::default() });
    assert!(bed.take(2, UDP).unwrap().new_block.is_some());
}

// proves: R68-8
#[test]
fn blocks_of_tcp_alone_and_pools_that_filter_by_address_need_no_hold_down() {
    let split = Blocks { linger_ms: 0, protocols: BlockProtocols::Split, ..terms() };
    let mut bed = Bed::new(&plan(1, (1024, 65_535), split));
    for (transport, held) in [(Transport::Tcp, 0), (UDP, 1), (Transport::Icmp, 2)] {
        let grant = bed.take(1, transport).unwrap();
        let mut only = [false; 3];
        only[transport as usize] = true;
        assert_eq!(grant.new_block.unwrap().transports, only);
        let ended = bed.give_back(1, transport, grant.address_ix, grant.port).unwrap();
        assert_eq!((ended.first, ended.transports), (grant.port & !63, only));
        assert_eq!(bed.blocks().held, held, "{transport:?}");
    }
    let mut bed = Bed::new(&plan(1, (1024, 65_535), Blocks { linger_ms: 0, ..terms() }));
    bed.pool = Pool4State::new(&plan(1, (1024, 65_535), Blocks { linger_ms: 0, ..terms() }), false).unwrap();
    let grant = bed.take(1, UDP).unwrap();
    bed.give_back(1, UDP, 0, grant.port);
    assert_eq!(bed.blocks().held, 0);
}

// proves: R68-8
#[test]
fn no_more_ports_are_held_down_than_the_list_has_room_for() {
    let few = HoldDown { ms: 120_000, ports_max: 3 * 64 + 5 };
    let mut bed = Bed::new(&plan(1, (1024, 65_535), Blocks { linger_ms: 0, hold: few, ..terms() }));
    for subscriber in 0..10 {
        let grant = bed.take(subscriber, UDP).unwrap();
        bed.give_back(subscriber, UDP, 0, grant.port);
        assert_eq!(bed.blocks().held, u64::from(subscriber + 1).min(3));
    }
}

#[test]
fn a_block_for_a_static_binding_ends_no_hold_down_of_another() {
    let few = HoldDown { ms: 120_000, ports_max: 2 * 64 };
    let mut bed = Bed::new(&plan(1, (1024, 65_535), Blocks { linger_ms: 0, hold: few, ..terms() }));
    for subscriber in 0..2 {
        let grant = bed.take(subscriber, UDP).unwrap();
        bed.give_back(subscriber, UDP, 0, grant.port);
    }
    let owned = bed.take(2, UDP).unwrap();
    let held = bed.blocks().held;
    assert!(bed.pool.release(bed.now, UDP, 0, owned.port, None).is_some());
    let place = (UDP, 0, owned.port);
    assert!(bed.pool.clear_block(bed.now, place, Some(&mut bed.holdings[2])).is_some());
    assert_eq!((held, bed.blocks().held, bed.blocks().owned), (2, 2, 0));
    assert_eq!(bed.holdings[2].blocks(), [0; 3]);
}

// proves: R68-13, R68-3
#[test]
fn every_port_of_a_pool_of_odd_ranges_is_given_before_the_first_failure() {
    let range = |first: &str, last: &str, ports| PoolRange {
        first: first.parse().unwrap(),
        last: last.parse().unwrap(),
        ports,
        transports: [true; 3],
    };
    let plan = Pool4 {
        ranges: vec![
            range("203.0.113.9", "203.0.113.9", (1024, 2047)),
            range("192.0.2.0", "192.0.2.2", (2048, 4095)),
            range("192.0.2.2", "192.0.2.2", (32_768, 33_023)),
        ],
        allocation: Allocation::Blocks(Blocks { size: 256, per_subscriber: 2, ..Blocks::default() }),
        ..Pool4::default()
    };
    let mut bed = Bed::new(&plan);
    let total = 1024 + 3 * 2048 + 256;
    assert_eq!(bed.pool.usage(UDP), Usage { used: 0, total });
    let mut given = BTreeSet::new();
    let mut subscriber = 0;
    loop {
        match bed.take(subscriber, UDP) {
            Ok(grant) => assert!(given.insert((grant.address_ix, grant.port))),
            Err(DropReason::SubscriberBlockQuota) => subscriber += 1,
            Err(reason) => {
                assert_eq!(reason, DropReason::BlockNone);
                break;
            }
        }
    }
    assert_eq!(given.len() as u64, total);
    assert_eq!(bed.pool.usage(UDP), Usage { used: total, total });
    let by_address: Vec<Usage> = (0..4).map(|ix| bed.pool.address_usage(UDP, ix)).collect();
    assert_eq!(by_address.iter().map(|u| u.used).collect::<Vec<_>>(), [2048, 2048, 2304, 1024]);
    assert!(by_address.iter().all(|u| u.used == u.total));
}

// proves: PBA-2, R78-4
#[test]
fn without_a_free_block_soft_pairing_changes_the_address_and_hard_pairing_does_not() {
    for pairing in [Pairing::Soft, Pairing::Hard] {
        let one_each = Pool4 { pairing, ..plan(2, (1024, 1151), terms()) };
        let mut bed = Bed::new(&one_each);
        // Two blocks an address: both get one block there.
        for subscriber in [1, 2] {
            bed.request(subscriber, UDP, 0);
            bed.holdings[subscriber as usize].pair(1);
            (0..64).for_each(|_| assert_eq!(bed.take(subscriber, UDP).unwrap().address_ix, 1));
        }
        let next = bed.take(1, UDP).map(|g| g.address_ix);
        let expected = if pairing == Pairing::Soft { Ok(0) } else { Err(DropReason::BlockNone) };
        assert_eq!(next, expected);
        assert_eq!(bed.pool.counters().pairing_broken, u64::from(pairing == Pairing::Soft));
    }
}

#[test]
fn a_port_freed_in_an_older_block_is_found_again() {
    let mut bed = Bed::new(&plan(1, (1024, 65_535), terms()));
    let grants: Vec<Grant> = (0..128).map(|_| bed.take(0, UDP).unwrap()).collect();
    for freed in [grants[3], grants[70], grants[5]] {
        bed.give_back(0, UDP, 0, freed.port);
        let again = bed.take(0, UDP).unwrap();
        assert_eq!((again.port, again.new_block), (freed.port, None));
    }
}

// proves: R47-4
#[test]
fn parity_is_kept_within_the_block_while_it_lasts() {
    let mut bed = Bed::new(&Pool4 { port_parity: true, ..plan(1, (1024, 65_535), terms()) });
    for n in 0..64 {
        let wanted = bed.request(0, UDP, 5001);
        let grant = bed.pool.allocate(&mut bed.rng, START, &wanted, &mut bed.holdings[0]).unwrap();
        assert_eq!(grant.port % 2 == 1, n < 32, "the {n}th is {}", grant.port);
    }
}

// proves: PBA-1
#[test]
fn a_static_port_keeps_its_whole_block_from_subscribers() {
    let mut bed = Bed::new(&plan(1, (1024, 1279), terms()));
    let address = Ipv4Addr::new(192, 0, 2, 0);
    bed.pool.reserve(Transport::Tcp, address, 1100).unwrap();
    bed.pool.reserve(Transport::Tcp, address, 1101).unwrap();
    bed.pool.reserve(UDP, address, 443).unwrap();
    assert_eq!(bed.pool.reserve(UDP, address, 443), Err(StaticBindingError::Taken));
    assert_eq!(bed.pool.usage(UDP), Usage { used: 0, total: 3 * 64 });
    for subscriber in 0..3 {
        let grant = bed.take(subscriber, UDP).unwrap();
        assert!(!(1088..1152).contains(&grant.port), "{}", grant.port);
        assert_eq!(bed.pool.block_owner(UDP, 0, grant.port), Some(subscriber));
    }
    assert_eq!(bed.take(3, UDP), Err(DropReason::BlockNone));
    assert_eq!(bed.pool.block_owner(UDP, 0, 1100), None);
    let taken = bed.holdings.iter().map(|h| h.blocks()[0]).sum::<u16>();
    assert_eq!(taken, 3);
}

#[test]
fn a_static_port_of_one_protocol_does_not_hide_split_blocks_of_others() {
    let terms = Blocks { protocols: BlockProtocols::Split, ..terms() };
    let mut bed = Bed::new(&plan(1, (1024, 1087), terms));
    bed.pool.reserve(Transport::Tcp, Ipv4Addr::new(192, 0, 2, 0), 1024).unwrap();
    assert_eq!(bed.take(0, Transport::Tcp), Err(DropReason::PoolEmpty));
    bed.take(0, UDP).unwrap();
    assert_eq!(bed.pool.usage(UDP), Usage { used: 1, total: 64 });
}

#[test]
fn a_certain_port_is_claimed_only_in_an_own_or_free_block() {
    let mut bed = Bed::new(&plan(1, (1024, 1279), terms()));
    let address = Ipv4Addr::new(192, 0, 2, 0);
    let own = bed.take(1, UDP).unwrap().port;
    let claim = |bed: &mut Bed, subscriber: u32, port| {
        let wanted = bed.request(subscriber, UDP, 7);
        let holdings = &mut bed.holdings[subscriber as usize];
        bed.pool.claim_for(START, (address, port), &wanted, holdings).map(|g| g.new_block.is_some())
    };
    assert_eq!(claim(&mut bed, 1, own), None, "it is used");
    assert_eq!(claim(&mut bed, 1, own ^ 1), Some(false));
    assert_eq!(claim(&mut bed, 2, own ^ 2), None, "the block of another subscriber");
    let elsewhere = if own < 1152 { 1200 } else { 1030 };
    assert_eq!(claim(&mut bed, 2, elsewhere), Some(true));
    assert_eq!(bed.holdings[2].blocks(), [1, 0, 0]);
    assert_eq!(claim(&mut bed, 2, 80), None, "not in the pool");
}

// proves: R68-15, PBA-1
#[test]
fn the_block_of_a_subscriber_cannot_be_guessed() {
    let mut counts = vec![0u32; 1024];
    let mut bed =
        Bed::new(&plan(1, (0, 65_535), Blocks { linger_ms: 0, hold: HoldDown::default(), ..terms() }));
    for _ in 0..100 * counts.len() {
        let grant = bed.take(0, Transport::Icmp).unwrap();
        counts[usize::from(grant.port / 64)] += 1;
        bed.give_back(0, Transport::Icmp, 0, grant.port);
    }
    let chi2: f64 = counts.iter().map(|&c| (f64::from(c) - 100.0).powi(2) / 100.0).sum();
    assert!((chi2 - 1023.0).abs() < 5.0 * (2.0 * 1023.0f64).sqrt(), "{chi2}");
}

// proves: R74-2, R68-8
#[test]
fn a_deterministic_subscriber_has_its_own_block_first_and_then_the_overflow() {
    let deterministic = Deterministic {
        inside: vec![Net6::new("::".parse().unwrap(), 125).unwrap()],
        subscriber_len: 128,
        overflow_per_address: 1,
        blocks: Blocks { size: 64, per_subscriber: 1, ..Blocks::default() },
    };
    let plan =
        Pool4 { allocation: Allocation::Deterministic(deterministic), ..plan(2, (1024, 1343), terms()) };
    let formula = DeterministicMap::new(&plan).unwrap().unwrap();
    let mut bed = Bed::new(&plan);
    assert_eq!(bed.pool.usage(UDP).total, 2 * 5 * 64);
    for subscriber in 0..8u32 {
        let (address, (first, last)) = formula.forward(u128::from(subscriber).into()).unwrap();
        for _ in 0..64 {
            let grant = bed.take(subscriber, UDP).unwrap();
            assert_eq!(bed.pool.address(grant.address_ix), address);
            assert!((first..=last).contains(&grant.port) && grant.new_block.is_none());
        }
    }
    // There are two overflow blocks, one per address. The first subscribers that ask get them, and the event
    // reports it.
    let more = bed.take(3, UDP).unwrap();
    assert_eq!((more.address_ix, more.new_block.unwrap().first), (0, 1280));
    assert_eq!(
        bed.take(9, UDP).unwrap().new_block.unwrap().first,
        1280,
        "the subscriber is not in the formula"
    );
    assert_eq!(bed.take(4, UDP), Err(DropReason::BlockNone));
    assert_eq!(bed.pool.usage(UDP).used, 8 * 64 + 2);
    // Own ports can be used again at once, and never leave their subscriber.
    let (address, (first, _)) = formula.forward(5u128.into()).unwrap();
    let ix = bed.pool.address_ix(address).unwrap();
    assert_eq!(bed.give_back(5, UDP, ix, first + 7), None);
    assert_eq!(bed.take(5, UDP).unwrap().port, first + 7);
}

#[test]
fn impossible_plans_are_refused() {
    for size in [0, 16, 100, 32_768] {
        let error =
            Pool4State::new(&plan(1, (1024, 65_535), Blocks { size, ..terms() }), true).err().unwrap();
        assert_eq!(error, PoolError::BlockSize(size));
    }
    let mut tcp_only = plan(1, (1024, 65_535), terms());
    tcp_only.ranges[0].transports = [true, false, false];
    let mut bed = Bed::new(&tcp_only);
    bed.take(1, Transport::Tcp).unwrap();
    assert_eq!(bed.take(1, UDP), Err(DropReason::PoolEmpty));
    let mut nothing = Bed::new(&Pool4 { ranges: vec![], ..tcp_only });
    assert_eq!(nothing.take(1, UDP), Err(DropReason::PoolEmpty));
}

/// Step of a history: 0 takes a port, 1 gives it back, 2 lets time pass.
type Step = (u8, u32, u8, prop::sample::Index);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    // proves: PBA-1, R68-8, R47-3, R53-7
    #[test]
    fn blocks_are_never_shared_held_for_their_time_and_all_come_back(
        steps in prop::collection::vec((0..7u8, 0..12u32, 0..3u8, any::<prop::sample::Index>()), 1..600),
        split in any::<bool>(),
        linger in any::<bool>(),
        size_shift in 5..7u32,
    ) {
        let steps: Vec<Step> = steps;
        let size = 1u16 << size_shift;
        let terms = Blocks {
            size,
            per_subscriber: 2,
            linger_ms: if linger { 10_000 } else { 0 },
            hold: HoldDown { ms: 20_000, ports_max: u32::MAX },
            protocols: if split { BlockProtocols::Split } else { BlockProtocols::Shared },
        };
        let mut bed = Bed::new(&plan(2, (1024, 1024 + 6 * 64 - 1), terms));
        let mut used: BTreeMap<(usize, u32, u16), u32> = BTreeMap::new();
        let group = |t: usize| if split { t } else { 0 };
        // Indexed by block: its last owner, and the last time that the owner used a port of it.
        let mut seen: BTreeMap<(usize, u32, u16), (u32, Instant)> = BTreeMap::new();
        for (what, subscriber, t, which) in steps {
            let t = usize::from(t);
            match what {
                0..=3 => if let Ok(grant) = bed.take(subscriber, Transport::ALL[t]) {
                    let key = (group(t), grant.address_ix, grant.port / size);
                    prop_assert!(used.insert((t, grant.address_ix, grant.port), subscriber).is_none());
                    if let Some((owner, until)) = seen.insert(key, (subscriber, bed.now))
                        && owner != subscriber
                    {
                        let others = used.iter().any(|(&(t, ix, port), &s)| {
                            (group(t), ix, port / size) == key && s != subscriber
                        });
                        prop_assert!(!others, "a block of two");
                        let exempt = split && t == 0;
                        prop_assert!(exempt || bed.now.since_ms(until) >= 20_000);
                    }
                },
                4..=5 if !used.is_empty() => {
                    let (&(t, ix, port), &owner) = used.iter().nth(which.index(used.len())).unwrap();
                    used.remove(&(t, ix, port));
                    bed.give_back(owner, Transport::ALL[t], ix, port);
                    seen.insert((group(t), ix, port / size), (owner, bed.now));
                }
                4..=5 => {}
                _ => bed.pass_ms(1000 << which.index(5)),
            }
            for (t, transport) in Transport::ALL.into_iter().enumerate() {
                let count = used.keys().filter(|k| k.0 == t).count() as u64;
                prop_assert_eq!(bed.pool.usage(transport).used, count);
                let by_address: u64 = (0..2).map(|ix| bed.pool.address_usage(transport, ix).used).sum();
                prop_assert_eq!(by_address, count);
            }
            let owned: u64 = bed.holdings.iter().flat_map(|h| h.blocks()).map(u64::from).sum();
            prop_assert_eq!(bed.blocks().owned, owned);
            prop_assert!(bed.holdings.iter().flat_map(|h| h.blocks()).all(|n| n <= 2));
        }
        for ((t, ix, port), owner) in used {
            bed.give_back(owner, Transport::ALL[t], ix, port);
        }
        bed.pass_ms(40_000);
        bed.pass_ms(40_000);
        let counters = *bed.pool.counters();
        prop_assert_eq!(counters.ports_allocated, counters.ports_released);
        prop_assert_eq!(counters.blocks_allocated, counters.blocks_released);
        let total = bed.blocks().total;
        prop_assert_eq!(bed.blocks(), BlockUsage { total, ..BlockUsage::default() });
        prop_assert!(bed.holdings.iter().all(|h| h.blocks() == [0; 3]));
    }
}
