//! Port: run-time form of a port's settings.

use crate::address::{Key, Range, is_link_local, solicited_node};
use crate::bytes::{v4, v6};
use crate::check::has_ipv6;
use crate::frame::{HeaderMatch, LEN_MAX, Tags, Template, kind};
use crate::outcome::FrameOrigin;
use crate::{Mac, Prefix, Settings, arp, mld, ndp, settings};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Largest number of addresses that a port announces one by one. Addresses of larger prefixes are only
/// answered for.
pub(crate) const ANNOUNCED_MAX: usize = 1024;

/// Shortest Ethernet frame without its checksum.
const FRAME_MIN: usize = 60;
const FRAME_MAX: usize = LEN_MAX + mld::REPORT_MAX;

/// Bit that is set in no device number.
const NO_DEVICE: u16 = 0x100;

/// Callback for a frame to send: device, bytes and origin.
pub(crate) type Emit<'a> = dyn FnMut(u8, &[u8], FrameOrigin) + 'a;

/// Port.
pub(crate) struct Port {
    pub(crate) device: u8,
    /// Device number for the fast path. Larger than any device number if the realm of packets has to be
    /// looked up.
    short_device: u16,
    /// Realms of IPv4 and IPv6 packets.
    realms: [u8; 2],
    pub(crate) mac: Mac,
    pub(crate) tags: Tags,
    header: HeaderMatch,
    pub(crate) template: Template,
    pub(crate) mtu: usize,
    /// Addresses whose pings are answered here: those of this host that are not the engine's.
    hosts4: Vec<Ipv4Addr>,
    hosts6: Vec<Ipv6Addr>,
    /// Ranges that ARP and neighbour discovery answer for, sorted and disjoint.
    claimed: Vec<Range>,
    /// Prefixes on the link.
    links: Vec<Prefix>,
    pub(crate) link_local: Ipv6Addr,
    /// Addresses that are announced.
    pub(crate) announced: Vec<Key>,
    /// Groups of the announced addresses.
    pub(crate) groups: Vec<Ipv6Addr>,
}

impl Port {
    pub(crate) fn new(port: &settings::PortSettings, settings: &Settings) -> Port {
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
            header: HeaderMatch::new(port.mac, &port.tags),
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

    /// Checks whether an address belongs to this port: its own, or one that it answers for.
    #[inline]
    pub(crate) fn claims(&self, key: Key) -> bool {
        let after = self.claimed.partition_point(|r| r.first <= key.0);
        self.claimed.get(after.wrapping_sub(1)).is_some_and(|r| r.contains(key))
    }

    /// Offset of the engine's packet in a frame received from a device. `None` for all other frames and for
    /// those that need a closer look.
    /// [`of_realm`](Self::of_realm) is for ports with realms.
    #[inline]
    pub(crate) fn engines_packet(&self, device: u8, frame: &[u8]) -> Option<usize> {
        if self.short_device != u16::from(device) {
            return None;
        }
        self.payload_kind(frame).map(|_| self.header.len)
    }

    /// Offset of the engine's packet and its realm, for a port with realms.
    pub(crate) fn of_realm(&self, device: u8, frame: &[u8]) -> Option<(usize, u8)> {
        if self.short_device != u16::from(device) | NO_DEVICE {
            return None;
        }
        self.payload_kind(frame).map(|kind| (self.header.len, self.realm(kind)))
    }

    /// Realm of packets with this ethertype.
    pub(crate) fn realm(&self, kind: u16) -> u8 {
        let [four, six] = self.realms;
        if kind == kind::IPV4 { four } else { six }
    }

    /// Ethertype of the engine's packet in a frame.
    #[inline]
    fn payload_kind(&self, frame: &[u8]) -> Option<u16> {
        let kind = self.header.kind_of(frame);
        let packet = frame.get(self.header.len..)?;
        let is_engines = match kind {
            kind::IPV4 => !self.is_for_host4(packet),
            kind::IPV6 => !(ndp::is_discovery(packet) || self.is_for_host6(packet)),
            _ => false,
        };
        is_engines.then_some(kind)
    }

    /// Checks whether an IPv4 packet is for this host rather than the engine.
    #[inline]
    pub(crate) fn is_for_host4(&self, packet: &[u8]) -> bool {
        v4(packet, 16).is_some_and(|dst| self.hosts4.contains(&dst))
    }

    /// Checks the same for IPv6.
    #[inline]
    pub(crate) fn is_for_host6(&self, packet: &[u8]) -> bool {
        v6(packet, 24).is_some_and(|dst| self.hosts6.contains(&dst))
    }

    /// Checks whether an address is on the link.
    pub(crate) fn is_on_link(&self, key: Key) -> bool {
        self.links.iter().any(|p| p.contains(key.address()))
    }

    /// Source address for ARP requests for a neighbour: the port's address on the same network, or any.
    pub(crate) fn source4(&self, target: Ipv4Addr) -> Ipv4Addr {
        let mine = |p: &Prefix| match p.addr {
            IpAddr::V4(a) => Some(a),
            IpAddr::V6(_) => None,
        };
        let near = self.links.iter().filter(|p| p.contains(IpAddr::V4(target))).find_map(mine);
        near.or_else(|| self.links.iter().find_map(mine)).unwrap_or(Ipv4Addr::UNSPECIFIED)
    }
}

impl Port {
    pub(crate) fn emit(&self, dst: Mac, kind: u16, packet: &[u8], emit: &mut Emit<'_>) {
        let mut frame = [0; FRAME_MAX];
        let len = self.template.len + packet.len();
        self.template.write(&mut frame, dst, kind);
        crate::bytes::put(&mut frame, self.template.len, packet);
        emit(self.device, frame.get(..len.max(FRAME_MIN)).unwrap_or_default(), FrameOrigin::Own);
    }

    /// Announces an address: RFC 5227 2.3; RFC 4861 7.2.6.
    pub(crate) fn announce(&self, key: Key, emit: &mut Emit<'_>) -> bool {
        match key.address() {
            IpAddr::V4(own) => self.emit(Mac::BROADCAST, kind::ARP, &arp::request(self.mac, own, own), emit),
            IpAddr::V6(own) => {
                let advertisement = ndp::advertisement(self.mac, own, None);
                self.emit(Mac::of_group(ndp::ALL_NODES), kind::IPV6, &advertisement, emit);
            }
        }
        true
    }

    /// Probes for an address: RFC 5227 2.1.1; RFC 4862 5.4.2.
    pub(crate) fn probe(&self, key: Key, emit: &mut Emit<'_>) -> bool {
        match key.address() {
            IpAddr::V4(own) => {
                let probe = arp::request(self.mac, Ipv4Addr::UNSPECIFIED, own);
                self.emit(Mac::BROADCAST, kind::ARP, &probe, emit);
            }
            IpAddr::V6(own) => {
                let group = Mac::of_group(crate::address::solicited_node(own));
                self.emit(group, kind::IPV6, &ndp::probe(own), emit);
            }
        }
        true
    }

    /// Reports the groups: RFC 3810 5.2. Returns false if there is no group.
    pub(crate) fn report_groups(&self, asked: bool, emit: &mut Emit<'_>) -> bool {
        let mut report = [0; mld::REPORT_MAX];
        let len = mld::write_report(&mut report, self.link_local, &self.groups, asked);
        if let Some(report) = report.get(..len).filter(|r| !r.is_empty()) {
            self.emit(Mac::of_group(mld::ALL_ROUTERS), kind::IPV6, report, emit);
        }
        len > 0
    }
}

/// Ranges of the prefixes. Adjacent ranges are joined.
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

/// Addresses to announce: this host's own, and those of prefixes that are small enough.
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
