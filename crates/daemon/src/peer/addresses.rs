//! Public addresses of a pair: their ports, and their owner when the pair begins. The same for the shards of
//! a cluster.

use gatun_config::{PairMode, Peer, PeerMember};
use gatun_nat::Plan;
use gatun_nat::plan::PoolRange;
use gatun_nat::workers::{Shares, Steering};
use gatun_peer::member::AddressRange;
use gatun_peer::ownership::Member;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Returns the steering of the workers, also of a single one. `shared` is that of several.
///
/// # Errors
/// Returns an error if the plan cannot be divided.
pub(crate) fn steering(shared: Option<&Arc<Steering>>, plan: &Plan) -> Result<Arc<Steering>, String> {
    match shared {
        Some(steering) => Ok(Arc::clone(steering)),
        // A single worker has all subscribers, by any hash.
        None => {
            let shares = Shares::new(plan, 1, [0; 4]).map_err(|error| error.to_string())?;
            Ok(Arc::new(shares.steering))
        }
    }
}

/// Division of the public ports between the boxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(super) me: Member,
    pub(super) own_ports: u16,
    pub(super) ranges: Vec<AddressRange>,
}

impl Layout {
    pub(crate) fn new(peer: &Peer, plan: &Plan, steering: &Steering) -> Layout {
        let me = match peer.member {
            PeerMember::A => Member::First,
            PeerMember::B => Member::Second,
        };
        let ranges = whole(plan).into_iter().flat_map(|pool| match peer.mode {
            PairMode::ActiveStandby => pool,
            PairMode::ActiveActive => halves(&pool, steering),
        });
        Layout { me, own_ports: peer.own_ports, ranges: ranges.collect() }
    }

    /// Owner of each shard when the pair begins.
    pub(super) fn shards(mode: PairMode) -> Vec<Member> {
        match mode {
            PairMode::ActiveStandby => vec![Member::First],
            PairMode::ActiveActive => vec![Member::First, Member::Second],
        }
    }

    /// Returns an address whose ports this layout divides in another way: while one box has this layout and
    /// the other one has `before`, a port could have two owners.
    pub(crate) fn conflict(&self, before: &Layout) -> Option<String> {
        if (self.me, self.own_ports) != (before.me, before.own_ports) {
            return Some("`member` or `own_ports`".to_owned());
        }
        let differs = |one: &AddressRange, other: &AddressRange| {
            one.first <= other.last
                && other.first <= one.last
                && (one.ports, one.shard) != (other.ports, other.shard)
        };
        let found = self.ranges.iter().find(|one| before.ranges.iter().any(|other| differs(one, other)));
        found.map(|range| format!("the ports or the owner of {}", range.first))
    }
}

/// Public addresses of a cluster's shards.
pub(crate) fn by_shard(plan: &Plan, steering: &Steering) -> Vec<AddressRange> {
    let whole: Vec<AddressRange> = whole(plan).into_iter().flatten().collect();
    let cut = |(first, last, shard): (Ipv4Addr, Ipv4Addr, u16)| {
        let parts = whole.iter().filter_map(move |range| within(range, first, last));
        parts.map(move |part| AddressRange { shard: shard.into(), ..part })
    };
    let mut ranges: Vec<AddressRange> = steering.address_shares().into_iter().flat_map(cut).collect();
    ranges.sort_unstable_by_key(|range| range.first);
    ranges
}

/// Addresses of each pool of the instances.
fn whole(plan: &Plan) -> Vec<Vec<AddressRange>> {
    let mut pools: Vec<usize> = plan.pools_of_instances().collect();
    pools.sort_unstable();
    pools.dedup();
    let pools = pools.into_iter().filter_map(|number| plan.pools.get(number));
    pools.map(|pool| widest(&pool.ranges)).collect()
}

/// Each address once, with all its ports. Ranges of one port are those of static bindings, which need no
/// right, beside others.
fn widest(ranges: &[PoolRange]) -> Vec<AddressRange> {
    let (single, wide): (Vec<&PoolRange>, Vec<&PoolRange>) =
        ranges.iter().partition(|range| range.ports.0 == range.ports.1);
    let mut found: Vec<AddressRange> = Vec::new();
    for range in wide.into_iter().chain(single) {
        let is_single = range.ports.0 == range.ports.1;
        let mut parts = vec![(u32::from(range.first), u32::from(range.last))];
        for known in &mut found {
            let (first, last) = (u32::from(known.first), u32::from(known.last));
            let overlaps = parts.iter().any(|part| part.0 <= last && first <= part.1);
            if overlaps && !is_single {
                known.ports = (known.ports.0.min(range.ports.0), known.ports.1.max(range.ports.1));
            }
            parts = parts.into_iter().flat_map(|part| outside(part, (first, last))).collect();
        }
        let part = |(first, last): (u32, u32)| AddressRange {
            first: first.into(),
            last: last.into(),
            ports: range.ports,
            shard: 0,
        };
        found.extend(parts.into_iter().map(part));
    }
    found.sort_unstable_by_key(|range| range.first);
    found
}

/// Parts of a run of addresses that are not in another one.
fn outside((first, last): (u32, u32), (from, to): (u32, u32)) -> Vec<(u32, u32)> {
    if last < from || to < first {
        return vec![(first, last)];
    }
    let before = (first < from).then(|| (first, from - 1));
    let after = (to < last).then(|| (to + 1, last));
    before.into_iter().chain(after).collect()
}

/// Gives the first half of each worker's addresses to the first shard, and the rest to the second one.
fn halves(ranges: &[AddressRange], steering: &Steering) -> Vec<AddressRange> {
    let mut shares = steering.address_shares();
    shares.sort_unstable_by_key(|(first, _, worker)| (*worker, *first));
    let mut divided = Vec::new();
    for of_worker in shares.chunk_by(|one, other| one.2 == other.2) {
        let parts: Vec<AddressRange> = of_worker
            .iter()
            .flat_map(|(first, last, _)| ranges.iter().filter_map(|range| within(range, *first, *last)))
            .collect();
        let count: u64 = parts.iter().map(size).sum();
        let mut left = count.div_ceil(2);
        for part in parts {
            let first_shard = left.min(size(&part));
            left -= first_shard;
            let split = u64::from(u32::from(part.first)) + first_shard;
            if first_shard > 0 {
                divided.push(AddressRange { last: address(split - 1), shard: 0, ..part });
            }
            if first_shard < size(&part) {
                divided.push(AddressRange { first: address(split), shard: 1, ..part });
            }
        }
    }
    divided.sort_unstable_by_key(|range| range.first);
    divided
}

fn address(number: u64) -> Ipv4Addr {
    u32::try_from(number).unwrap_or(u32::MAX).into()
}

fn size(range: &AddressRange) -> u64 {
    u64::from(u32::from(range.last) - u32::from(range.first)) + 1
}

fn within(range: &AddressRange, first: Ipv4Addr, last: Ipv4Addr) -> Option<AddressRange> {
    let (first, last) = (range.first.max(first), range.last.min(last));
    (first <= last).then_some(AddressRange { first, last, ..*range })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_nat::plan::{Nat44, Pool4};

    fn range(first: u8, last: u8, ports: (u16, u16)) -> PoolRange {
        let address = |n| Ipv4Addr::new(192, 0, 2, n);
        PoolRange { first: address(first), last: address(last), ports, transports: [true; 3] }
    }

    fn layout(ranges: Vec<PoolRange>, mode: PairMode, workers: usize) -> Layout {
        let pool = Pool4 { name: "p".into(), ranges, ..Pool4::default() };
        let plan = Plan { pools: vec![pool], nat44: vec![Nat44::default()], ..Plan::default() };
        let steering = Shares::new(&plan, workers, [1; 4]).unwrap().steering;
        let peer = Peer {
            member: PeerMember::A,
            mode,
            listen: None,
            connect: None,
            api: None,
            directory: "/".into(),
            own_ports: 100,
            packets: 3,
            dead_after_ms: 1_000,
            away_after_ms: 10_000,
        };
        Layout::new(&peer, &plan, &steering)
    }

    /// First and last number of the address, its ports, and its shard.
    fn listed(layout: &Layout) -> Vec<(u8, u8, (u16, u16), usize)> {
        let number = |address: Ipv4Addr| address.octets()[3];
        layout.ranges.iter().map(|r| (number(r.first), number(r.last), r.ports, r.shard)).collect()
    }

    #[test]
    fn each_address_has_one_interval_of_ports() {
        let ranges = vec![
            range(5, 5, (80, 80)),
            range(0, 7, (1024, 2000)),
            range(4, 9, (3000, 4000)),
            range(20, 20, (443, 443)),
        ];
        let all = listed(&layout(ranges, PairMode::ActiveStandby, 1));
        assert_eq!(all, [(0, 7, (1024, 4000), 0), (8, 9, (3000, 4000), 0), (20, 20, (443, 443), 0)]);
    }

    #[test]
    fn each_worker_has_addresses_of_both_boxes() {
        let ranges = || vec![range(0, 7, (1024, 2000))];
        let all = listed(&layout(ranges(), PairMode::ActiveActive, 1));
        assert_eq!(all, [(0, 3, (1024, 2000), 0), (4, 7, (1024, 2000), 1)]);
        let ports = (1024, 2000);
        let all = listed(&layout(ranges(), PairMode::ActiveActive, 2));
        assert_eq!(all, [(0, 1, ports, 0), (2, 3, ports, 1), (4, 5, ports, 0), (6, 7, ports, 1)]);
    }

    #[test]
    fn each_shard_has_its_addresses() {
        let ranges = vec![range(0, 5, (1024, 2000)), range(2, 2, (443, 443))];
        let pool = Pool4 { name: "p".into(), ranges, ..Pool4::default() };
        let plan =
            Plan { shards: Some(4), pools: vec![pool], nat44: vec![Nat44::default()], ..Plan::default() };
        let steering = Shares::new(&plan, 2, [1; 4]).unwrap().steering;
        let found = by_shard(&plan, &steering);
        let of = |number: u8| {
            let address = Ipv4Addr::new(192, 0, 2, number);
            let range = found.iter().find(|range| range.first <= address && address <= range.last).unwrap();
            (range.shard, range.ports)
        };
        let ports = (1024, 2000);
        let wanted = [(0, ports), (0, ports), (1, ports), (2, ports), (2, ports), (3, ports)];
        assert_eq!([0, 1, 2, 3, 4, 5].map(of), wanted);
        assert_eq!(found.iter().map(size).sum::<u64>(), 6);
    }

    #[test]
    fn a_layout_that_divides_an_address_in_another_way_is_found() {
        let of = |last, ports, mode| layout(vec![range(0, last, ports)], mode, 1);
        let standby = PairMode::ActiveStandby;
        let before = of(3, (1024, 2000), standby);
        assert_eq!(of(7, (1024, 2000), standby).conflict(&before), None);
        assert_eq!(of(1, (1024, 2000), standby).conflict(&before), None);
        assert!(of(3, (1024, 2001), standby).conflict(&before).is_some());
        let before = of(3, (1024, 2000), PairMode::ActiveActive);
        // Addresses 2 and 3 would move to the first box.
        assert!(of(7, (1024, 2000), PairMode::ActiveActive).conflict(&before).unwrap().contains("192.0.2.0"));
        let other = Layout { own_ports: 99, ..before.clone() };
        assert!(other.conflict(&before).unwrap().contains("own_ports"));
    }
}
