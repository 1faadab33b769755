//! Flows as the tables of a switch have them: an entry for each direction.

use gatun_nat::plan::Transport;
use gatun_offload::OffloadedFlow;
use gatun_wire::checksum::{Delta, add, sum};
use gatun_wire::proto;
use std::net::IpAddr;

/// Packets from inside, or to the inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From inside.
    Outbound,
    /// To the inside.
    Inbound,
}

impl Direction {
    /// Both directions.
    pub const ALL: [Direction; 2] = [Direction::Outbound, Direction::Inbound];

    /// Both directions as a set.
    pub(crate) const BOTH: u8 = Direction::Outbound.bit() | Direction::Inbound.bit();

    /// Position in pairs of directions.
    pub fn index(self) -> usize {
        self as usize
    }

    /// Bit in a set of directions.
    pub(crate) const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Key of a table entry: source, destination and protocol of packets as they arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Source address and port.
    pub source: (IpAddr, u16),
    /// Destination address and port.
    pub destination: (IpAddr, u16),
    /// Protocol.
    pub transport: Transport,
}

/// Source and destination of packets from inside before translation, and of packets to the inside before it.
fn before(flow: &OffloadedFlow, direction: Direction) -> [(IpAddr, u16); 2] {
    let of = &flow.session.flow;
    match direction {
        Direction::Outbound => {
            let inside = match flow.remote6 {
                Some(_) => IpAddr::V6(of.inside.0),
                None => of.inside.0.to_canonical(),
            };
            let remote = flow.remote6.map_or(IpAddr::V4(of.remote.0), IpAddr::V6);
            [(inside, of.inside.1), (remote, of.remote.1)]
        }
        Direction::Inbound => {
            [(IpAddr::V4(of.remote.0), of.remote.1), (IpAddr::V4(of.outside.0), of.outside.1)]
        }
    }
}

/// Key of the entry for a direction of a flow.
pub fn key(flow: &OffloadedFlow, direction: Direction) -> Key {
    let [source, destination] = before(flow, direction);
    Key { source, destination, transport: flow.session.flow.transport }
}

/// Source and destination of the packets after translation.
pub fn translated(flow: &OffloadedFlow, direction: Direction) -> [(IpAddr, u16); 2] {
    // The translation of one direction is the inverse of the other's.
    let other = match direction {
        Direction::Outbound => Direction::Inbound,
        Direction::Inbound => Direction::Outbound,
    };
    let [source, destination] = before(flow, other);
    [destination, source]
}

/// Change of the transport checksum by the addresses and ports. That of ICMP covers no addresses, and that of
/// ICMPv6 covers a protocol number that ICMP has not; the length stays out of both.
pub fn delta(flow: &OffloadedFlow, direction: Direction) -> Delta {
    let is_ping = flow.session.flow.transport == Transport::Icmp;
    let total = |ends: [(IpAddr, u16); 2]| {
        let begin = if is_ping && ends[0].0.is_ipv6() { proto::ICMPV6.into() } else { 0 };
        ends.iter().fold(begin, |total, (address, port)| {
            let of_address = match address {
                IpAddr::V4(_) if is_ping => 0,
                IpAddr::V4(address) => sum(&address.octets()),
                IpAddr::V6(address) => sum(&address.octets()),
            };
            add(add(total, of_address), *port)
        })
    };
    Delta::of(total(before(flow, direction)), total(translated(flow, direction)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_nat::feed::{Flow, SessionId};

    fn nat64() -> OffloadedFlow {
        let flow = Flow {
            inside: ("2001:db8::5".parse().unwrap(), 5000),
            outside: ("192.0.2.1".parse().unwrap(), 4000),
            remote: ("198.51.100.7".parse().unwrap(), 443),
            transport: Transport::Tcp,
            instance: 0,
        };
        let remote6 = Some("64:ff9b::c633:6407".parse().unwrap());
        let session = SessionId { record: 7, flow };
        OffloadedFlow { session, worker: 0, epoch: 1, remote6, path_mtu: None }
    }

    #[test]
    fn the_translation_of_one_direction_is_the_inverse_of_the_others() {
        let flow = nat64();
        assert_eq!(
            translated(&flow, Direction::Outbound),
            [("192.0.2.1".parse().unwrap(), 4000), ("198.51.100.7".parse().unwrap(), 443)]
        );
        assert_eq!(
            key(&flow, Direction::Inbound),
            Key {
                source: ("198.51.100.7".parse().unwrap(), 443),
                destination: ("192.0.2.1".parse().unwrap(), 4000),
                transport: Transport::Tcp,
            }
        );
        assert_eq!(
            translated(&flow, Direction::Inbound)[1],
            ("2001:db8::5".parse::<IpAddr>().unwrap(), 5000)
        );
        let there = delta(&flow, Direction::Outbound);
        let both = there.plus(delta(&flow, Direction::Inbound));
        assert_eq!(both.apply(0x1234), 0x1234);
    }

    #[test]
    fn a_delta_of_a_ping_leaves_out_the_addresses_of_ipv4() {
        let mut flow = nat64();
        (flow.session.flow.transport, flow.session.flow.remote.1) = (Transport::Icmp, 0);
        let [inside, remote] = before(&flow, Direction::Outbound);
        let message = |id: u16| [&id.to_be_bytes()[..], b"the rest of the message"].concat();
        let (IpAddr::V6(inside6), IpAddr::V6(remote6)) = (inside.0, remote.0) else { panic!("{inside:?}") };
        let pseudo = [&inside6.octets()[..], &remote6.octets(), &[0, 58]].concat();
        let old = !sum(&[pseudo, message(5000)].concat());
        let new = !sum(&message(4000));
        assert_eq!(delta(&flow, Direction::Outbound).apply(old), new);
        assert_eq!(delta(&flow, Direction::Inbound).apply(new), old);
        // NAT44: the identifier alone.
        flow.session.flow.inside.0 = "::ffff:10.0.0.5".parse().unwrap();
        flow.remote6 = None;
        assert_eq!(delta(&flow, Direction::Outbound).apply(!sum(&message(5000))), new);
    }

    #[test]
    fn a_delta_turns_the_checksum_of_one_pseudo_header_into_the_others() {
        let flow = nat64();
        let checksum = |ends: [(IpAddr, u16); 2]| {
            let mut bytes = Vec::new();
            for (address, port) in ends {
                match address {
                    IpAddr::V4(address) => bytes.extend(address.octets()),
                    IpAddr::V6(address) => bytes.extend(address.octets()),
                }
                bytes.extend(port.to_be_bytes());
            }
            bytes.extend(b"the rest of the packet");
            !sum(&bytes)
        };
        for direction in Direction::ALL {
            let (old, new) = (checksum(before(&flow, direction)), checksum(translated(&flow, direction)));
            assert_eq!(delta(&flow, direction).apply(old), new);
        }
    }
}
