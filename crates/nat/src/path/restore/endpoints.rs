//! Hosts and public ports in the headers of a packet and in the packet that an ICMP error quotes. Reading
//! more of them than the packet needs does no harm.

use crate::path::query::Query;
use core::net::{IpAddr, Ipv4Addr};
use gatun_wire::rfc3022::icmp_error;
use gatun_wire::rfc7915::icmp_6to4;
use gatun_wire::{Ipv4View, Ipv6View, L4};

/// Source, destination and transport header.
type Headers<L4> = (IpAddr, IpAddr, L4);

/// Endpoints of a packet, and of the packet that it quotes.
#[derive(Default)]
pub(super) struct Ends {
    addresses: [Option<IpAddr>; 4],
    ports: [u16; 4],
}

impl Ends {
    /// Reads the endpoints of a packet as far as possible.
    pub(super) fn of(packet: &[u8]) -> Ends {
        let mut ends = Ends::default();
        match packet.first().map(|b| b >> 4) {
            Some(6) => {
                let Ok(view) = Ipv6View::parse(packet) else { return ends };
                let l4 = view.l4(packet).ok();
                let quoted = || icmp_6to4::embedded(packet, &view).ok();
                let quoted =
                    || quoted().map(|inner| (inner.view.src.into(), inner.view.dst.into(), inner.l4));
                ends.read((view.src.into(), view.dst.into(), l4), quoted);
            }
            Some(4) => {
                let Ok(view) = Ipv4View::parse(packet) else { return ends };
                let l4 = view.l4(packet).ok();
                let quoted = || icmp_error::embedded(packet, &view).ok();
                let quoted =
                    || quoted().map(|inner| (inner.view.src.into(), inner.view.dst.into(), inner.l4));
                ends.read((view.src.into(), view.dst.into(), l4), quoted);
            }
            _ => {}
        }
        ends
    }

    /// Reads a packet's source, destination and transport, and those of the packet that it quotes.
    fn read(&mut self, (src, dst, l4): Headers<Option<L4>>, quoted: impl FnOnce() -> Option<Headers<L4>>) {
        (self.addresses[0], self.addresses[1]) = (Some(src), Some(dst));
        match l4 {
            Some(L4::IcmpError { .. }) => {
                if let Some((src, dst, l4)) = quoted() {
                    (self.addresses[2], self.addresses[3]) = (Some(src), Some(dst));
                    self.read_ports(2, l4);
                }
            }
            Some(l4) => self.read_ports(0, l4),
            None => {}
        }
    }

    /// Reads the ports. The identifier of an echo message is the port of both ends.
    fn read_ports(&mut self, at: usize, l4: L4) {
        let (out, back) = (Query::of(l4, true), Query::of(l4, false));
        if let (Some(out), Some(back)) = (out, back) {
            let places = self.ports.get_mut(at..).unwrap_or_default().iter_mut();
            places.zip([out.src_port, back.dst_port]).for_each(|(place, port)| *place = port);
        }
    }

    /// Iterates over the addresses that may be inside hosts.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.into_iter().flatten()
    }

    /// Iterates over the addresses that may be public ones, with their ports. `embedded` returns the IPv4
    /// address that an IPv6 address contains.
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
