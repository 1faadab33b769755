//! Synthetic packet for a flow that a query describes: all checksums and lengths are right, the payload is
//! zeros.

use crate::query::{BadRequest, Query};
use gatun_nat::plan::Transport;
use gatun_wire::{Prefix64, checksum, proto};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Defaults of a packet.
const BYTES: u16 = 100;
const SOURCE_PORT: u16 = 50_000;
const DESTINATION_PORT: u16 = 443;
const HOPS: u8 = 64;

/// A flow, and one packet of it.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    source_port: u16,
    destination_port: u16,
    protocol: Transport,
    flags: u8,
    bytes: u16,
    hops: u8,
    may_fragment: bool,
}

impl Flow {
    /// # Errors
    /// Returns an error if the query is invalid.
    pub(crate) fn read(query: &Query) -> Result<Flow, BadRequest> {
        let address = |name: &str| {
            let address: Option<IpAddr> = query.parse(name, "an address")?;
            address.ok_or_else(|| BadRequest::new(format!("'{name}' is missing"), ""))
        };
        let protocol = query.protocol()?.ok_or_else(|| BadRequest::new("'protocol' is missing", ""))?;
        let flow = Flow {
            source: address("source")?,
            destination: address("destination")?,
            source_port: query.parse("source_port", "a port")?.unwrap_or(SOURCE_PORT),
            destination_port: query.parse("destination_port", "a port")?.unwrap_or(DESTINATION_PORT),
            protocol,
            flags: flags(query.get("flags").unwrap_or("S"))?,
            bytes: query.parse("bytes", "a length")?.unwrap_or(BYTES),
            hops: query.parse("hops", "a number up to 255")?.unwrap_or(HOPS),
            may_fragment: query.parse("fragments", "true or false")?.unwrap_or(false),
        };
        let least = flow.headers();
        if usize::from(flow.bytes) < least {
            return Err(BadRequest::new(
                format!("bytes: {} is less than the length of the headers, {least}", flow.bytes),
                "",
            ));
        }
        if query.get("flags").is_some() && flow.protocol != Transport::Tcp {
            return Err(BadRequest::new("flags: only TCP has flags", "leave them out"));
        }
        Ok(flow)
    }

    /// Returns true if the destination is IPv4 and the source IPv6: it then needs a translation prefix.
    pub(crate) fn needs_prefix(&self) -> bool {
        self.source.is_ipv6() && self.destination.is_ipv4()
    }

    /// Embeds an IPv4 destination in a prefix.
    pub(crate) fn put_behind(&mut self, prefix: &Prefix64) {
        if let IpAddr::V4(address) = self.destination {
            self.destination = prefix.embed(address).into();
        }
        self.bytes = self.bytes.max(self.headers() as u16);
    }

    fn headers(&self) -> usize {
        let l4 = if self.protocol == Transport::Tcp { 20 } else { 8 };
        l4 + if self.source.is_ipv6() { 40 } else { 20 }
    }

    /// Builds the packet.
    ///
    /// # Errors
    /// Returns an error if source and destination are of different families.
    pub(crate) fn packet(&self) -> Result<Vec<u8>, BadRequest> {
        match (self.source, self.destination) {
            (IpAddr::V6(source), IpAddr::V6(destination)) => Ok(self.packet6(source, destination)),
            (IpAddr::V4(source), IpAddr::V4(destination)) => Ok(self.packet4(source, destination)),
            _ => Err(BadRequest::new(
                "source and destination are of different families",
                "from outside, give a public address; from inside, one in a translation prefix",
            )),
        }
    }

    fn packet6(&self, source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
        let payload_len = self.bytes - 40;
        let next = match self.protocol {
            Transport::Tcp => proto::TCP,
            Transport::Udp => proto::UDP,
            Transport::Icmp => proto::ICMPV6,
        };
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend(payload_len.to_be_bytes());
        packet.extend([next, self.hops]);
        packet.extend(source.octets());
        packet.extend(destination.octets());
        let addresses: Vec<u8> = packet[8..40].to_vec();
        let pseudo = checksum::pseudo(&addresses, payload_len.into(), next);
        packet.extend(self.transport(payload_len.into(), 128, pseudo));
        packet
    }

    fn packet4(&self, source: Ipv4Addr, destination: Ipv4Addr) -> Vec<u8> {
        let l4_len = self.bytes - 20;
        let next = match self.protocol {
            Transport::Tcp => proto::TCP,
            Transport::Udp => proto::UDP,
            Transport::Icmp => proto::ICMP,
        };
        let mut packet = vec![0x45, 0];
        packet.extend(self.bytes.to_be_bytes());
        packet.extend([0, 1, if self.may_fragment { 0 } else { 0x40 }, 0, self.hops, next, 0, 0]);
        packet.extend(source.octets());
        packet.extend(destination.octets());
        let sum = !checksum::sum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        let addresses: Vec<u8> = packet[12..20].to_vec();
        let pseudo = match self.protocol {
            Transport::Icmp => 0,
            _ => checksum::pseudo(&addresses, l4_len.into(), next),
        };
        packet.extend(self.transport(l4_len.into(), 8, pseudo));
        packet
    }

    /// Transport header and payload; `echo` is the ICMP type of an echo request.
    fn transport(&self, len: usize, echo: u8, pseudo: u16) -> Vec<u8> {
        let [source, destination] = [self.source_port, self.destination_port].map(u16::to_be_bytes);
        let (mut l4, at) = match self.protocol {
            Transport::Tcp => {
                let mut l4 = [source, destination].concat();
                l4.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, self.flags, 0x20, 0, 0, 0, 0, 0]);
                (l4, 16)
            }
            Transport::Udp => {
                let len = u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
                ([source, destination, len, [0, 0]].concat(), 6)
            }
            Transport::Icmp => (vec![echo, 0, 0, 0, source[0], source[1], 0, 1], 2),
        };
        l4.resize(len, 0);
        let sum = !checksum::add(checksum::sum(&l4), pseudo);
        // A computed zero is written as all ones (RFC 768).
        let sum = if sum == 0 && self.protocol == Transport::Udp { u16::MAX } else { sum };
        l4[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        l4
    }
}

fn flags(text: &str) -> Result<u8, BadRequest> {
    let mut bits = 0;
    for letter in text.chars() {
        bits |= match letter.to_ascii_uppercase() {
            'F' => 1,
            'S' => 2,
            'R' => 4,
            'P' => 8,
            'A' => 16,
            'U' => 32,
            other => {
                let what = format!("flags: '{}' is not a TCP flag", other.escape_default());
                return Err(BadRequest::new(what, "letters of SAFRPU"));
            }
        };
    }
    Ok(bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};

    fn flow(query: &str) -> Result<Flow, BadRequest> {
        let endpoint = gatun_api::paths::find("GET", "/v1/explain").unwrap();
        Flow::read(&Query::read(endpoint, query)?)
    }

    #[test]
    fn packets_have_right_checksums_and_lengths() {
        for (source, destination) in [("2001:db8::1", "64:ff9b::1"), ("100.64.0.1", "198.51.100.7")] {
            for protocol in ["tcp", "udp", "icmp"] {
                for bytes in [100, 101, 1400] {
                    let query = format!(
                        "source={source}&destination={destination}&protocol={protocol}&bytes={bytes}&source_port=7"
                    );
                    let packet = flow(&query).unwrap().packet().unwrap();
                    assert_eq!(packet.len(), bytes);
                    let sliced = SlicedPacket::from_ip(&packet).unwrap();
                    let transport = sliced.transport.unwrap();
                    match (sliced.net.unwrap(), &transport) {
                        (NetSlice::Ipv4(ip), transport) => {
                            let ip = ip.header().to_header();
                            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                            assert!(ip.dont_fragment);
                            match transport {
                                TransportSlice::Udp(u) => assert_eq!(
                                    u.checksum(),
                                    u.to_header().calc_checksum_ipv4(&ip, u.payload()).unwrap()
                                ),
                                TransportSlice::Tcp(t) => assert_eq!(
                                    t.checksum(),
                                    t.to_header().calc_checksum_ipv4(&ip, t.payload()).unwrap()
                                ),
                                TransportSlice::Icmpv4(i) => {
                                    assert_eq!(i.checksum(), i.icmp_type().calc_checksum(i.payload()));
                                }
                                other => panic!("{other:?}"),
                            }
                        }
                        (NetSlice::Ipv6(ip), transport) => {
                            let ip = ip.header().to_header();
                            match transport {
                                TransportSlice::Udp(u) => assert_eq!(
                                    u.checksum(),
                                    u.to_header().calc_checksum_ipv6(&ip, u.payload()).unwrap()
                                ),
                                TransportSlice::Tcp(t) => assert_eq!(
                                    t.checksum(),
                                    t.to_header().calc_checksum_ipv6(&ip, t.payload()).unwrap()
                                ),
                                TransportSlice::Icmpv6(i) => {
                                    assert!(i.is_checksum_valid(ip.source, ip.destination));
                                }
                                other => panic!("{other:?}"),
                            }
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn invalid_flows_are_refused_with_the_reason() {
        let both = "source=2001:db8::1&destination=64:ff9b::1";
        for (query, part) in [
            ("destination=::1&protocol=udp", "missing parameter 'source'"),
            ("source=x&destination=::1&protocol=udp", "is not an address"),
            (&format!("{both}&protocol=sctp"), "not one of tcp, udp, icmp"),
            (&format!("{both}&protocol=tcp&flags=SX"), "'X' is not a TCP flag"),
            (&format!("{both}&protocol=udp&flags=S"), "only TCP"),
            (&format!("{both}&protocol=tcp&bytes=59"), "less than the length of the headers, 60"),
            (&format!("{both}&protocol=tcp&bytes=70000"), "is not a length"),
        ] {
            let wrong = flow(query).err().unwrap();
            assert!(wrong.what.contains(part), "{query}: {}", wrong.what);
        }
        let families = "source=100.64.0.1&destination=64:ff9b::1&protocol=udp";
        assert!(flow(families).unwrap().packet().is_err());
    }
}
