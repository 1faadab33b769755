//! Neighbour discovery (RFC 4861): solicitations and advertisements.
//!
//! ```text
//!   IPv6 header, hop limit 255
//!   0 type 135 or 136 | 1 code 0 | 2 checksum | 4 flags R S O, reserved | 8 target | 24 options
//!   option:  0 kind | 1 length in units of eight bytes | 2 ...
//! ```

use crate::address::{is_host6, solicited_node};
use crate::bytes::{array, mac, put, v6};
use crate::{Dropped, Mac};
use core::net::Ipv6Addr;
use gatun_wire::hdr::{get16, icmpv6, ipv6};
use gatun_wire::{checksum, proto};

const ROUTER_SOLICITATION: u8 = 133;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;

/// Hop limit of neighbour discovery: proves that no router forwarded the packet (RFC 4861 7.1.1).
const HOP_LIMIT: u8 = 255;
/// Message length in bytes without options.
const LEN: usize = 24;
const FLAGS: usize = 4;
const TARGET: usize = 8;
/// Largest number of options that are parsed. Eight kinds are known; a message with more options than this is
/// an attack.
const OPTIONS_MAX: usize = 32;
const OPTION_UNIT: usize = 8;
const SOURCE_LINK_LAYER: u8 = 1;
const TARGET_LINK_LAYER: u8 = 2;

/// We are a router (RFC 4861 4.4, R), so that hosts that use us as a router continue to do so.
const IS_ROUTER: u8 = 0x80;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

/// Length in bytes of a packet with a link-layer option: header, message, option.
pub(crate) const PACKET_LEN: usize = ipv6::LEN + LEN + OPTION_UNIT;

/// Checks whether a packet is a message of neighbour or router discovery.
#[inline]
pub(crate) fn is_discovery(packet: &[u8]) -> bool {
    packet.get(ipv6::NEXT_HEADER) == Some(&proto::ICMPV6)
        && packet.get(ipv6::LEN).is_some_and(|kind| (ROUTER_SOLICITATION..=REDIRECT).contains(kind))
}

/// Checks for a router message: a solicitation, an advertisement or a redirect.
pub(crate) fn is_of_routers(packet: &[u8]) -> bool {
    let kind = packet.get(ipv6::LEN).copied().unwrap_or(0);
    is_discovery(packet) && !(NEIGHBOUR_SOLICITATION..=NEIGHBOUR_ADVERTISEMENT).contains(&kind)
}

/// Parsed neighbour solicitation or advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) is_solicitation: bool,
    /// Unspecified while a host checks if the target is free (RFC 4862 5.4).
    pub(crate) src: Ipv6Addr,
    pub(crate) target: Ipv6Addr,
    /// MAC of the sender (solicitation) or the target (advertisement).
    pub(crate) mac: Option<Mac>,
    pub(crate) solicited: bool,
    pub(crate) overrides: bool,
}

impl Message {
    /// Reads a packet whose next header is ICMPv6 and whose type is neighbour solicitation or advertisement.
    /// Follows RFC 4861 7.1.1 and 7.1.2 line by line.
    pub(crate) fn read(packet: &[u8]) -> Result<Message, Dropped> {
        let head: [u8; ipv6::LEN] = array(packet, 0).ok_or(Dropped::NdpMalformed)?;
        let (src, dst) = (v6(&head, 8), v6(&head, 24));
        let (Some(src), Some(dst)) = (src, dst) else { return Err(Dropped::NdpMalformed) };
        let len = get16(&head, ipv6::PAYLOAD_LEN).map_or(0, usize::from);
        let message = packet.get(ipv6::LEN..).and_then(|m| m.get(..len)).ok_or(Dropped::NdpMalformed)?;
        // "The IP Hop Limit field has a value of 255".
        if head.get(7) != Some(&HOP_LIMIT) {
            return Err(Dropped::NdpHopLimit);
        }
        // "ICMP length (derived from the IP length) is 24 or more octets", "ICMP Code is 0".
        let (Some([kind, code]), Some(target)) = (array(message, 0), v6(message, TARGET)) else {
            return Err(Dropped::NdpMalformed);
        };
        // "ICMP Checksum is valid."
        if !sum_is_right(&head, message) {
            return Err(Dropped::NdpChecksum);
        }
        let is_solicitation = kind == NEIGHBOUR_SOLICITATION;
        let wanted = if is_solicitation { SOURCE_LINK_LAYER } else { TARGET_LINK_LAYER };
        let mac = read_options(message.get(LEN..).unwrap_or_default(), wanted)?;
        let flags = message.get(FLAGS).copied().unwrap_or(0);
        let message = Message {
            is_solicitation,
            src,
            target,
            mac,
            solicited: !is_solicitation && flags & SOLICITED != 0,
            overrides: is_solicitation || flags & OVERRIDE != 0,
        };
        let possible = code == 0 && is_host6(target) && message.addresses_are_possible(dst);
        possible.then_some(message).ok_or(Dropped::NdpMalformed)
    }

    fn addresses_are_possible(&self, dst: Ipv6Addr) -> bool {
        if !self.is_solicitation {
            // "If the IP Destination Address is a multicast address the Solicited flag is zero."
            return is_host6(self.src) && !(dst.is_multicast() && self.solicited);
        }
        // "If the IP source address is the unspecified address, the IP destination address is a
        // solicited-node multicast address" and "there is no source link-layer address option".
        match self.src.is_unspecified() {
            true => dst == solicited_node(self.target) && self.mac.is_none(),
            false => is_host6(self.src),
        }
    }
}

/// Verifies the checksum of an ICMPv6 message.
pub(crate) fn sum_is_right(head: &[u8; ipv6::LEN], message: &[u8]) -> bool {
    let addresses = head.get(ipv6::ADDRESSES..).unwrap_or_default();
    let pseudo = checksum::pseudo(addresses, message.len() as u32, proto::ICMPV6);
    checksum::add(pseudo, checksum::sum(message)) == 0xffff
}

/// Walks the options for a MAC (RFC 4861 4.6.1). Skips other options: "Options not recognized are ignored".
fn read_options(mut options: &[u8], wanted: u8) -> Result<Option<Mac>, Dropped> {
    let mut found = None;
    for _ in 0..OPTIONS_MAX {
        if options.is_empty() {
            return Ok(found);
        }
        let [kind, units] = array(options, 0).ok_or(Dropped::NdpOptions)?;
        // "All included options have a length that is greater than zero."
        let len = usize::from(units) * OPTION_UNIT;
        if len == 0 || len > options.len() {
            return Err(Dropped::NdpOptions);
        }
        if kind == wanted {
            // One unit on Ethernet (RFC 2464 6). The MAC must not be a group.
            let mac = mac(options, 2).filter(|m| len == OPTION_UNIT && m.is_unicast());
            found = found.or(Some(mac.ok_or(Dropped::NdpOptions)?));
        }
        options = options.get(len..).unwrap_or_default();
    }
    if options.is_empty() { Ok(found) } else { Err(Dropped::NdpOptions) }
}

/// Advertisement: the reply to a solicitation (RFC 4861 7.2.4), or an unsolicited one (7.2.6).
pub(crate) fn advertisement(our_mac: Mac, target: Ipv6Addr, to: Option<Ipv6Addr>) -> [u8; PACKET_LEN] {
    // The target is our own address, not a proxied one, so the advertisement overrides. If the asker has no
    // address yet, or if nobody asked, it goes to all nodes and is not solicited ("the Solicited flag MUST be
    // set to zero").
    let flags = IS_ROUTER | OVERRIDE | if to.is_some() { SOLICITED } else { 0 };
    let dst = to.unwrap_or(ALL_NODES);
    packet(NEIGHBOUR_ADVERTISEMENT, flags, target, (target, dst), Some((TARGET_LINK_LAYER, our_mac)))
}

/// ff02::1.
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Solicitation for a neighbour: to its group, or to itself (RFC 4861 7.2.2, 7.3.3).
pub(crate) fn solicitation(our_mac: Mac, src: Ipv6Addr, dst: Ipv6Addr, target: Ipv6Addr) -> [u8; PACKET_LEN] {
    packet(NEIGHBOUR_SOLICITATION, 0, target, (src, dst), Some((SOURCE_LINK_LAYER, our_mac)))
}

/// Probe that checks if an address is free (RFC 4862 5.4.2). It has no option, so it is shorter.
pub(crate) fn probe(target: Ipv6Addr) -> [u8; PACKET_LEN - OPTION_UNIT] {
    let addresses = (Ipv6Addr::UNSPECIFIED, solicited_node(target));
    let mut probe = packet(NEIGHBOUR_SOLICITATION, 0, target, addresses, None);
    let short = probe.first_chunk_mut().copied();
    short.unwrap_or([0; PACKET_LEN - OPTION_UNIT])
}

fn packet(
    kind: u8,
    flags: u8,
    target: Ipv6Addr,
    (src, dst): (Ipv6Addr, Ipv6Addr),
    option: Option<(u8, Mac)>,
) -> [u8; PACKET_LEN] {
    let len = LEN + option.map_or(0, |_| OPTION_UNIT);
    let mut packet = [0; PACKET_LEN];
    if let Some(head) = packet.first_chunk_mut() {
        let payload_len = len as u16;
        let header = ipv6::Header {
            traffic_class: 0,
            payload_len,
            next_header: proto::ICMPV6,
            hop_limit: HOP_LIMIT,
            src,
            dst,
        };
        header.write(head);
    }
    put(&mut packet, ipv6::LEN, &[kind]);
    put(&mut packet, ipv6::LEN + FLAGS, &[flags]);
    put(&mut packet, ipv6::LEN + TARGET, &target.octets());
    if let Some((option, mac)) = option {
        put(&mut packet, ipv6::LEN + LEN, &[option, 1]);
        put(&mut packet, ipv6::LEN + LEN + 2, &mac.0);
    }
    let whole = ipv6::LEN + len;
    if let Some(packet) = packet.get_mut(..whole) {
        icmpv6::set_checksum(packet, ipv6::LEN);
    }
    packet
}
