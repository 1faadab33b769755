//! A port, made ready from its settings.

use crate::address::{Key, Range, is_link_local, solicited_node};
use crate::bytes::{v4, v6};
use crate::check::has_ipv6;
use crate::frame::{Door, Tags, Template, kind};
use crate::{Mac, Prefix, Settings, mld, ndp, settings};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses of a port that are announced one by one, at most. Those of larger prefixes are answered for only.
pub(crate) const ANNOUNCED_MAX: usize = 1024;

/// A bit that no device's number has.
const NO_DEVICE: u16 = 0x100;

/// A port.
pub(crate) struct Port {
    pub(crate) device: u8,
    /// The same, or more than any device's number where a packet's realm has to be looked up.
    short_device: u16,
    /// Of IPv4 packets, and of IPv6 ones.
    realms: [u8; 2],
    pub(crate) mac: Mac,
    pub(crate) tags: Tags,
    door: Door,
    pub(crate) template: Template,
    pub(crate) mtu: usize,
    /// Addresses whose pings are answered here: this host's, and not the engine's.
    hosts4: Vec<Ipv4Addr>,
    hosts6: Vec<Ipv6Addr>,
    /// What ARP and neighbour discovery answer for, sorted, none inside another.
    claimed: Vec<Range>,
    /// What is on the link.
    links: Vec<Prefix>,
    pub(crate) link_local: Ipv6Addr,
    /// What is announced.
    pub(crate) announced: Vec<Key>,
    /// Groups of the announced addresses.
    pub(crate) groups: Vec<Ipv6Addr>,
}

impl Port {
    pub(crate) fn new(port: &settings::Port, settings: &Settings) -> Port {
        let mut own = port.addresses.clone();
        let given = own.iter().find_map(|p| match p.addr {
            IpAddr::V6(a) if is_link_local(a) => Some(a),
            _ => None,
        });
        let link_local = given.unwrap_or_else(|| port.mac.link_local());
        if has_ipv6(port) && given.is_none() {
            own.push(Prefix { addr: IpAddr::V6(link_local), len: 64 });
        }
        let of_engine = |addr| settings.engine.iter().any(|p| p.contains(addr));
        let hosts = || own.iter().map(|p| p.addr).filter(|a| !of_engine(*a));
        let announced = announced(&own, &port.answers);
        Port {
            device: port.device,
            short_device: u16::from(port.device) | if port.realms == [0; 2] { 0 } else { NO_DEVICE },
            realms: port.realms,
            mac: port.mac,
            tags: Tags::new(&port.tags),
            door: Door::new(port.mac, &port.tags),
            template: Template::new(port.mac, &port.tags),
            mtu: port.mtu as usize,
            hosts4: hosts().filter_map(|a| if let IpAddr::V4(a) = a { Some(a) } else { None }).collect(),
            hosts6: hosts().filter_map(|a| if let IpAddr::V6(a) = a { Some(a) } else { None }).collect(),
            claimed: join(own.iter().map(|p| Prefix::host(p.addr)).chain(port.answers.iter().copied())),
            links: own,
            link_local,
            groups: groups(&announced),
            announced,
        }
    }

    /// Whether an address is this port's: its own, or one that it answers for.
    #[inline]
    pub(crate) fn claims(&self, key: Key) -> bool {
        let after = self.claimed.partition_point(|r| r.first <= key.0);
        self.claimed.get(after.wrapping_sub(1)).is_some_and(|r| r.contains(key))
    }

    /// Where the engine's packet begins in a frame that came in by a device; `None` where the frame is anything else, or
    /// has to be looked at more closely.
    /// [`of_realm`](Self::of_realm) is for ports of realms.
    #[inline]
    pub(crate) fn engines_packet(&self, device: u8, frame: &[u8]) -> Option<usize> {
        if self.short_device != u16::from(device) {
            return None;
        }
        self.behind_door(frame).map(|_| self.door.len)
    }

    /// The same of a port of realms, and the packet's.
    pub(crate) fn of_realm(&self, device: u8, frame: &[u8]) -> Option<(usize, u8)> {
        if self.short_device != u16::from(device) | NO_DEVICE {
            return None;
        }
        self.behind_door(frame).map(|kind| (self.door.len, self.realm(kind)))
    }

    /// The realm of packets of this type.
    pub(crate) fn realm(&self, kind: u16) -> u8 {
        let [four, six] = self.realms;
        if kind == kind::IPV4 { four } else { six }
    }

    /// The type of the engine's packet in a frame.
    #[inline]
    fn behind_door(&self, frame: &[u8]) -> Option<u16> {
        let kind = self.door.kind_of(frame);
        let packet = frame.get(self.door.len..)?;
        let is_engines = match kind {
            kind::IPV4 => !self.is_for_host4(packet),
            kind::IPV6 => !(ndp::is_discovery(packet) || self.is_for_host6(packet)),
            _ => false,
        };
        is_engines.then_some(kind)
    }

    /// Whether an IPv4 packet is for this host, and not for the engine.
    #[inline]
    pub(crate) fn is_for_host4(&self, packet: &[u8]) -> bool {
        v4(packet, 16).is_some_and(|dst| self.hosts4.contains(&dst))
    }

    /// The same for IPv6.
    #[inline]
    pub(crate) fn is_for_host6(&self, packet: &[u8]) -> bool {
        v6(packet, 24).is_some_and(|dst| self.hosts6.contains(&dst))
    }

    /// Whether an address is one of the link's.
    pub(crate) fn is_on_link(&self, key: Key) -> bool {
        self.links.iter().any(|p| p.contains(key.address()))
    }

    /// Which address to ask for a neighbour from: the one on its network, or any.
    pub(crate) fn source4(&self, target: Ipv4Addr) -> Ipv4Addr {
        let mine = |p: &Prefix| match p.addr {
            IpAddr::V4(a) => Some(a),
            IpAddr::V6(_) => None,
        };
        let near = self.links.iter().filter(|p| p.contains(IpAddr::V4(target))).find_map(mine);
        near.or_else(|| self.links.iter().find_map(mine)).unwrap_or(Ipv4Addr::UNSPECIFIED)
    }
}

/// The ranges of prefixes, those next to each other joined.
fn join(prefixes: impl Iterator<Item = Prefix>) -> Vec<Range> {
    let mut ranges: Vec<Range> = prefixes.map(|p| Range::of(&p)).collect();
    ranges.sort_unstable_by_key(|r| r.first);
    ranges.dedup_by(|next, kept| {
        let joins = next.first <= kept.last.saturating_add(1);
        if joins {
            kept.last = kept.last.max(next.last);
        }
        joins
    });
    ranges
}

/// This host's addresses, and those of the prefixes that are small enough.
fn announced(own: &[Prefix], answers: &[Prefix]) -> Vec<Key> {
    let mut keys: Vec<Key> = own.iter().map(|p| Key::of(p.addr)).collect();
    for range in answers.iter().map(Range::of) {
        let room = ANNOUNCED_MAX.saturating_sub(keys.len()) as u128;
        if range.last - range.first < room {
            keys.extend((range.first..=range.last).map(Key));
        }
    }
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn groups(announced: &[Key]) -> Vec<Ipv6Addr> {
    let mut groups: Vec<Ipv6Addr> =
        announced.iter().filter(|k| !k.is_mapped()).map(|k| solicited_node(Ipv6Addr::from(k.0))).collect();
    groups.sort_unstable();
    groups.dedup();
    groups.truncate(mld::GROUPS_MAX);
    groups
}
