//! Properties of a member, and its rights to ports.

use crate::ownership::{Epoch, Member, Rules, Timing};
use gatun_nat::standby::PortRight;
use std::net::Ipv4Addr;

/// Consecutive public addresses with the same ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// First address.
    pub first: Ipv4Addr,
    /// Last address.
    pub last: Ipv4Addr,
    /// First and last port of the pool.
    pub ports: (u16, u16),
    /// Number of the shard, an index of [`MemberSettings::shards`].
    pub shard: usize,
}

/// Properties of a member.
#[derive(Clone, Debug)]
pub struct MemberSettings {
    /// Member.
    pub me: Member,
    /// Owner of each shard when a pair begins.
    pub shards: Vec<Member>,
    /// Public addresses.
    pub addresses: Vec<AddressRange>,
    /// Ports at each end of an address's ports that only one of the members ever assigns.
    pub own_ports: u16,
    /// Time without a connection after which lifetimes of the other member's sessions begin, ms.
    pub away_ms: u64,
    /// Time after which sessions of the other member that contradict own ones are tried again, ms.
    pub again_ms: u64,
    /// Lengths of waits.
    pub timing: Timing,
    /// Pause after which a member of a pair asks the other one before it goes on, ms: the operator may have
    /// declared it gone. 0 means that it never asks.
    pub fence_ms: u32,
    /// Hash of the configuration that both have in common.
    pub revision: u64,
    /// Rules in force: all, except in a proof that one is needed.
    pub rules: Rules,
}

/// State of a member that outlives its process, if the sessions do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedStanding {
    /// Latest epoch of each shard.
    pub epochs: Vec<Epoch>,
    /// True if the member had its whole state.
    pub is_settled: bool,
    /// True if the operator had said that the other member is gone.
    pub is_peer_gone: bool,
}

impl AddressRange {
    /// Ports that a member may assign, as one interval: its own ones at one end, with the shared ones in the
    /// middle if it owns them.
    pub fn right(&self, rules: &Rules, me: Member, own_ports: u16, is_owner: bool) -> PortRight {
        let (first, last) = self.ports;
        let own = own_ports.min((last - first) / 2);
        let has_shared = is_owner || !rules.owner_assigns;
        let (first, last) = match me {
            _ if !rules.own_range && has_shared => (first, last),
            _ if own == 0 && !has_shared => return PortRight::NONE,
            Member::First if has_shared => (first, last - own),
            Member::First => (first, first + own - 1),
            Member::Second if has_shared => (first + own, last),
            Member::Second => (last - own + 1, last),
        };
        PortRight { first, last, is_owner }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_both_members_never_overlap() {
        let range = AddressRange { first: [0; 4].into(), last: [0; 4].into(), ports: (1024, 2023), shard: 0 };
        let rules = Rules::default();
        let right = |me, is_owner| {
            let right = range.right(&rules, me, 100, is_owner);
            (right.first, right.last)
        };
        assert_eq!((right(Member::First, true), right(Member::Second, false)), ((1024, 1923), (1924, 2023)));
        assert_eq!((right(Member::First, false), right(Member::Second, true)), ((1024, 1123), (1124, 2023)));
        let none = range.right(&rules, Member::First, 0, false);
        assert_eq!(none, PortRight::NONE);
        assert_eq!(range.right(&rules, Member::Second, 0, true).first, 1024);
    }
}
