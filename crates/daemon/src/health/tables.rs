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
pub(super) fn divide(networks: &[Prefix], Roles { backup, absent }: &Roles) -> [Vec<Prefix>; 2] {
    let mut divided = [Vec::new(), Vec::new()];
    let mut rest = networks.to_vec();
    while let Some(network) = rest.pop() {
        let is_in = |list: &[Prefix]| list.iter().any(|outer| outer.contains(network));
        let (is_backup, is_absent) = (is_in(backup), is_in(absent));
        let has_part = |list: &[Prefix]| list.iter().any(|inner| network.contains(*inner));
        let is_mixed = !is_backup && !is_absent && (has_part(backup) || has_part(absent));
        match network.halves().filter(|_| is_mixed) {
            Some(halves) => rest.extend(halves),
            None if is_absent => {}
            None => divided[usize::from(is_backup)].push(network),
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
        let roles = |backup: &str, absent: &str| Roles { backup: prefixes(backup), absent: prefixes(absent) };
        assert_eq!(divide(&networks, &roles("", "")), [networks.clone(), vec![]]);
        let [own, backup] = divide(&networks, &roles("192.0.2.16/28", ""));
        assert_eq!((own, backup), (prefixes("192.0.2.0/28 2001:db8:64::/96"), prefixes("192.0.2.16/28")));
        assert_eq!(divide(&networks, &roles("0.0.0.0/0 ::/0", "")), [vec![], networks.clone()]);
        // Of a cluster's addresses, a node announces those of its shards.
        let [own, backup] = divide(&networks, &roles("192.0.2.8/29", "192.0.2.16/28 192.0.2.4/31"));
        assert_eq!(own, prefixes("192.0.2.0/30 192.0.2.6/31 2001:db8:64::/96"));
        assert_eq!(backup, prefixes("192.0.2.8/29"));
    }
}
