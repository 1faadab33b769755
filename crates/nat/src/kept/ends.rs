//! Whose sessions a packet may belong to: all hosts and public ports that it names, outside and inside an ICMP error.
//! More than it will turn out to need does no harm.

use crate::stateful::Query;
use core::net::{IpAddr, Ipv4Addr};
use gatun_wire::rfc3022::icmp_error;
use gatun_wire::rfc7915::icmp_6to4;
use gatun_wire::{Ipv4View, Ipv6View, L4};

/// The ends of a packet, and of the one that it quotes.
#[derive(Default)]
pub(super) struct Ends {
    addresses: [Option<IpAddr>; 4],
    ports: [u16; 4],
}

impl Ends {
    /// The ends of a packet so far as it can be read.
    pub(super) fn of(packet: &[u8]) -> Ends {
        let mut ends = Ends::default();
        match packet.first().map(|b| b >> 4) {
            Some(6) => ends.read6(packet),
            Some(4) => ends.read4(packet),
            _ => {}
        }
        ends
    }

    fn read6(&mut self, packet: &[u8]) {
        let Ok(view) = Ipv6View::parse(packet) else { return };
        (self.addresses[0], self.addresses[1]) = (Some(view.src.into()), Some(view.dst.into()));
        match view.l4(packet) {
            Ok(L4::IcmpError { .. }) => {
                if let Ok(inner) = icmp_6to4::embedded(packet, &view) {
                    let about = inner.view;
                    (self.addresses[2], self.addresses[3]) = (Some(about.src.into()), Some(about.dst.into()));
                    self.read_ports(2, inner.l4);
                }
            }
            Ok(l4) => self.read_ports(0, l4),
            Err(_) => {}
        }
    }

    fn read4(&mut self, packet: &[u8]) {
        let Ok(view) = Ipv4View::parse(packet) else { return };
        (self.addresses[0], self.addresses[1]) = (Some(view.src.into()), Some(view.dst.into()));
        match view.l4(packet) {
            Ok(L4::IcmpError { .. }) => {
                if let Ok(inner) = icmp_error::embedded(packet, &view) {
                    let about = inner.view;
                    (self.addresses[2], self.addresses[3]) = (Some(about.src.into()), Some(about.dst.into()));
                    self.read_ports(2, inner.l4);
                }
            }
            Ok(l4) => self.read_ports(0, l4),
            Err(_) => {}
        }
    }

    /// The identifier of an echo message is the port of either end.
    fn read_ports(&mut self, at: usize, l4: L4) {
        let (out, back) = (Query::of(l4, true), Query::of(l4, false));
        if let (Some(out), Some(back)) = (out, back) {
            self.ports[at] = out.src_port;
            self.ports[at + 1] = back.dst_port;
        }
    }

    /// Addresses that are hosts' inside, perhaps.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.into_iter().flatten()
    }

    /// Addresses that are public ones, perhaps, with the ports they have there; `embedded` gives the one that stands
    /// in an IPv6 address.
    pub(super) fn public(
        &self,
        embedded: impl Fn(core::net::Ipv6Addr) -> Option<Ipv4Addr>,
    ) -> impl Iterator<Item = (Ipv4Addr, u16)> {
        self.addresses.into_iter().zip(self.ports).filter_map(move |(address, port)| {
            let address = match address? {
                IpAddr::V4(address) => address,
                IpAddr::V6(address) => embedded(address)?,
            };
            Some((address, port))
        })
    }
}
