//! Networks that a box announces as backup.

use super::addresses::Layout;
use gatun_config::PairMode;
use gatun_io_tun::Prefix;
use gatun_nat::plan::Net4;
use gatun_peer::ownership::Epoch;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Returns the networks of the other box. The translation prefixes belong to both boxes if each owns public
/// addresses.
pub(super) fn backup(mode: PairMode, layout: &Layout, epochs: &[Epoch]) -> Vec<Prefix> {
    let owns = |epoch: &Epoch| epoch.owner == layout.me;
    match mode {
        PairMode::ActiveStandby if epochs.iter().all(owns) => Vec::new(),
        PairMode::ActiveStandby => everything(),
        PairMode::ActiveActive if !epochs.iter().any(owns) => everything(),
        PairMode::ActiveActive => {
            let of_other = |shard: usize| epochs.get(shard).is_some_and(|epoch| !owns(epoch));
            let ranges = layout.ranges.iter().filter(|range| of_other(range.shard));
            let networks = ranges.flat_map(|range| Net4::covering(range.first, range.last));
            networks.map(|net| Prefix { addr: net.addr.into(), len: net.len }).collect()
        }
    }
}

fn everything() -> Vec<Prefix> {
    let (four, six) = (Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into());
    vec![Prefix { addr: four, len: 0 }, Prefix { addr: six, len: 0 }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_peer::member::AddressRange;
    use gatun_peer::ownership::Member;

    fn epoch(owner: Member) -> Epoch {
        Epoch { number: 1, owner }
    }

    #[test]
    fn a_box_backs_what_the_other_one_owns() {
        let range = |first: u8, last: u8, shard| AddressRange {
            first: Ipv4Addr::new(192, 0, 2, first),
            last: Ipv4Addr::new(192, 0, 2, last),
            ports: (1024, 65535),
            shard,
        };
        let layout =
            Layout { me: Member::First, own_ports: 1, ranges: vec![range(0, 7, 0), range(8, 15, 1)] };
        let (first, second) = (epoch(Member::First), epoch(Member::Second));
        let of = |mode, epochs: &[Epoch]| backup(mode, &layout, epochs);
        assert_eq!(of(PairMode::ActiveStandby, &[first]), []);
        assert_eq!(of(PairMode::ActiveStandby, &[second]), everything());
        let half = Prefix { addr: Ipv4Addr::new(192, 0, 2, 8).into(), len: 29 };
        assert_eq!(of(PairMode::ActiveActive, &[first, second]), [half]);
        assert_eq!(of(PairMode::ActiveActive, &[first, first]), []);
        assert_eq!(of(PairMode::ActiveActive, &[second, second]), everything());
    }
}
