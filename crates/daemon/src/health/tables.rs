//! Division of the announced networks into those that this box owns and those that it backs.

use gatun_config::Network;
use gatun_io_tun::Prefix;

/// Converts a network of the configuration.
pub(super) fn prefix(network: Network) -> Prefix {
    match network {
        Network::V4(net) => Prefix { addr: net.addr.into(), len: net.len },
        Network::V6(net) => Prefix { addr: net.addr.into(), len: net.len },
    }
}

/// Divides `networks`: the second list has all addresses inside `backup`. A network that has addresses of
/// both kinds is split.
pub(super) fn divide(networks: &[Prefix], backup: &[Prefix]) -> [Vec<Prefix>; 2] {
    let mut divided = [Vec::new(), Vec::new()];
    let mut rest = networks.to_vec();
    while let Some(network) = rest.pop() {
        let is_backup = backup.iter().any(|outer| outer.contains(network));
        let is_mixed = !is_backup && backup.iter().any(|inner| network.contains(*inner));
        match network.halves().filter(|_| is_mixed) {
            Some(halves) => rest.extend(halves),
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
        assert_eq!(divide(&networks, &[]), [networks.clone(), vec![]]);
        let [own, backup] = divide(&networks, &prefixes("192.0.2.16/28"));
        assert_eq!((own, backup), (prefixes("192.0.2.0/28 2001:db8:64::/96"), prefixes("192.0.2.16/28")));
        assert_eq!(divide(&networks, &prefixes("0.0.0.0/0 ::/0")), [vec![], networks]);
    }
}
