//! Division of the public ports, as text for etcd: what all nodes must have in common, so that no port has
//! two users.

use super::ClusterSettings;
use gatun_peer::member::AddressRange;
use sha2::{Digest as _, Sha256};
use std::net::Ipv4Addr;

/// Returns the division, a line `NAME=VALUE` for each part. `authority` is the fingerprint of the
/// certificate that the key of the subscribers' hash comes from. `ranges` are sorted.
pub(super) fn division(node: &ClusterSettings, authority: &str, ranges: &[AddressRange]) -> String {
    let cluster = &node.cluster;
    let text = |range: &AddressRange| format!("{}-{}:{:?}", range.first, range.last, range.ports);
    let of_shards: String = ranges.iter().map(|range| format!("{}@{}\n", text(range), range.shard)).collect();
    [
        format!("shards={}", cluster.shards),
        format!("own_ports={}", cluster.own_ports),
        format!("lease_ms={}", cluster.lease_ms),
        format!("hold_ms={}", cluster.hold_ms),
        format!("addresses={}", addresses(ranges)),
        format!("addresses_of_shards={}", hexadecimal(&Sha256::digest(of_shards))),
        format!("ca.pem={authority}"),
    ]
    .join("\n")
}

/// SHA-256 of a certificate in DER, as `openssl x509 -fingerprint -sha256` has it, without colons.
pub(super) fn fingerprint(der: &[u8]) -> String {
    hexadecimal(&Sha256::digest(der))
}

/// Runs of addresses with the same ports, of whatever shard.
fn addresses(ranges: &[AddressRange]) -> String {
    let mut runs: Vec<(Ipv4Addr, Ipv4Addr, (u16, u16))> = Vec::new();
    for range in ranges {
        match runs.last_mut() {
            Some(run)
                if run.2 == range.ports && u32::from(run.1).checked_add(1) == Some(range.first.into()) =>
            {
                run.1 = range.last;
            }
            _ => runs.push((range.first, range.last, range.ports)),
        }
    }
    let text = |(first, last, (low, high)): &(_, _, (u16, u16))| format!("{first}-{last}:{low}-{high}");
    runs.iter().map(text).collect::<Vec<_>>().join(",")
}

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::tests::settings;

    #[test]
    fn a_division_names_what_nodes_must_have_in_common() {
        let range = |first: u8, last: u8, shard| AddressRange {
            first: [192, 0, 2, first].into(),
            last: [192, 0, 2, last].into(),
            ports: (1024, 65535),
            shard,
        };
        let (two, four) = (settings("a", 2), settings("a", 4));
        let ranges = [range(0, 127, 0), range(128, 255, 1)];
        let text = division(&two, "f1", &ranges);
        assert!(text.starts_with("shards=2\nown_ports="), "{text}");
        assert!(text.contains("\naddresses=192.0.2.0-192.0.2.255:1024-65535\n"), "{text}");
        assert!(text.ends_with("\nca.pem=f1"), "{text}");
        // The name of the node is no part of it.
        assert_eq!(division(&settings("b", 2), "f1", &ranges), text);
        let ports = AddressRange { ports: (1025, 65535), ..ranges[1] };
        let others = [
            division(&four, "f1", &ranges),
            division(&two, "f2", &ranges),
            division(&two, "f1", &[ranges[0], ports]),
            division(&two, "f1", &[range(0, 126, 0), range(127, 255, 1)]),
        ];
        for other in others {
            assert_ne!(other, text);
        }
    }
}
