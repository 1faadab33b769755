//! Division of the announced networks into those that this box owns, those that it backs, and others.

use super::Roles;
use gatun_config::Network;
use gatun_io_tun::Prefix;

/// Converts a network of the configuration.
pub(super) fn prefix(network: Network) -> Prefix {
    match network {
        Network::V4(net) => Prefix { addr: net.addr.into(), len: net.len },
        Network::V6(net) => Prefix { addr: net.addr.into(), len: net.len },
    }
}

/// Divides `networks`: the first list has those that this box owns, the second one those that it backs, and
/// absent ones are in none. A network that has addresses of several kinds is split.
pub(super) fn divide(networks: &[Prefix], roles: &Roles) -> [Vec<Prefix>; 2] {
    let lists = [&roles.own, &roles.backup, &roles.absent];
    let rest = usize::from(roles.is_worse);
    let mut divided = [Vec::new(), Vec::new()];
    let mut open = networks.to_vec();
    while let Some(network) = open.pop() {
        let list = lists.iter().rposition(|list| list.iter().any(|outer| outer.contains(network)));
        let is_mixed =
            list.is_none() && lists.iter().any(|list| list.iter().any(|inner| network.contains(*inner)));
        match network.halves().filter(|_| is_mixed) {
            Some(halves) => open.extend(halves),
            None => divided.get_mut(list.unwrap_or(rest)).into_iter().for_each(|list| list.push(network)),
        }
    }
    divided.iter_mut().for_each(|list| list.sort_unstable());
    divided
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes(text: &str) -> Vec<Prefix> {
        let prefix = |text: &str| {
            let (addr, len) = text.split_once('/').unwrap();
            Prefix { addr: addr.parse().unwrap(), len: len.parse().unwrap() }
        };
        text.split_whitespace().map(prefix).collect()
    }

    #[test]
    fn networks_are_split_between_owner_and_backup() {
        let networks = prefixes("192.0.2.0/27 2001:db8:64::/96");
        let roles = |backup: &str, absent: &str| Roles {
            backup: prefixes(backup),
            absent: prefixes(absent),
            ..Roles::default()
        };
        assert_eq!(divide(&networks, &roles("", "")), [networks.clone(), vec![]]);
        let [own, backup] = divide(&networks, &roles("192.0.2.16/28", ""));
        assert_eq!((own, backup), (prefixes("192.0.2.0/28 2001:db8:64::/96"), prefixes("192.0.2.16/28")));
        assert_eq!(divide(&networks, &roles("0.0.0.0/0 ::/0", "")), [vec![], networks.clone()]);
        // Of a cluster's addresses, a node announces those of its shards.
        let [own, backup] = divide(&networks, &roles("192.0.2.8/29", "192.0.2.16/28 192.0.2.4/31"));
        assert_eq!(own, prefixes("192.0.2.0/30 192.0.2.6/31 2001:db8:64::/96"));
        assert_eq!(backup, prefixes("192.0.2.8/29"));
    }
    #[test]
    fn a_node_without_a_way_to_all_others_announces_what_is_not_its_own_as_the_backup() {
        let networks = prefixes("10.0.8.1/32 192.0.2.0/28 2001:db8:64::/96");
        let roles = Roles {
            own: prefixes("10.0.8.1/32 192.0.2.0/30"),
            backup: prefixes("192.0.2.4/30"),
            absent: prefixes("192.0.2.8/29"),
            is_worse: true,
        };
        let [own, backup] = divide(&networks, &roles);
        assert_eq!(own, prefixes("10.0.8.1/32 192.0.2.0/30"));
        assert_eq!(backup, prefixes("192.0.2.4/30 2001:db8:64::/96"));
        let [own, backup] = divide(&networks, &Roles { is_worse: false, ..roles });
        assert_eq!(own, prefixes("10.0.8.1/32 192.0.2.0/30 2001:db8:64::/96"));
        assert_eq!(backup, prefixes("192.0.2.4/30"));
    }
}
