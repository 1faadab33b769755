//! Entry point: received frames, packets to send, and timers.

use crate::address::Key;
use crate::announcements::{Announcement, Announcements};
use crate::frame::{self, Header, kind};
use crate::neighbour::{NeighbourCache, NeighbourState, NeighbourTask, NeighbourUpdate, NextHopAction};
use crate::outcome::{Conflict, FrameOrigin, NeighbourReport, Received, RouteReport, Sent, Way};
use crate::pending::{PendingPackets, Queued};
use crate::port::{Emit, Port};
use crate::routes::{Prefixes, RouteTarget, Routes};
use crate::stats::Count as _;
use crate::{
    Dropped, EtherEvent, Foreign, Limits, Mac, Prefix, Problem, Settings, Stats, Unsent, arp, check, ndp,
    settings,
};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use gatun_wire::hdr::{ipv4, ipv6};
use gatun_wire::{Packet, Segmentation};

/// Host functions at all ports, for one worker. See the [crate documentation](crate).
pub struct Ether {
    /// Settings from which the ports are made.
    pub(crate) settings: Settings,
    pub(crate) ports: Vec<Port>,
    routes4: Routes<u32>,
    routes6: Routes<u128>,
    /// Routes of the realms from 1 on.
    realms: Vec<(Routes<u32>, Routes<u128>)>,
    pub(crate) neighbours: NeighbourCache,
    pub(crate) waiting: PendingPackets,
    pub(crate) announcements: Announcements,
    pub(crate) updates: VecDeque<NeighbourUpdate>,
    pub(crate) shares: bool,
    /// Next time to check for updates from other workers, for packets that wait here.
    listen_ms: u64,
    pub(crate) conflict: Option<Conflict>,
    pub(crate) stats: Stats,
}

/// Largest number of updates kept for other workers.
pub(crate) const UPDATES_MAX: usize = 64;
/// Interval at which a worker with waiting packets checks for such updates: the answer may have arrived at an
/// awake worker.
const LISTEN_MS: u64 = 5;

impl Ether {
    /// Creates the host functions. `seed` must be secret: it keeps others from predicting which addresses
    /// collide in the neighbour cache. All memory is allocated here.
    ///
    /// # Errors
    /// Returns an error if settings are invalid: all of them, with corrections.
    pub fn new(settings: &Settings, limits: &Limits, seed: [u64; 4]) -> Result<Ether, Vec<Problem>> {
        check::check(settings, limits)?;
        let mut neighbours = NeighbourCache::new(limits, seed);
        for (port, number) in settings.ports.iter().zip(0u8..) {
            port.neighbours.iter().for_each(|n| neighbours.fix(number, Key::of(n.addr), n.mac));
        }
        let (routes4, routes6) = table(settings, 0, &mut neighbours);
        let last_realm = settings.ports.iter().flat_map(|port| port.realms).max().unwrap_or(0);
        let realms = (1..=last_realm).map(|realm| table(settings, realm, &mut neighbours)).collect();
        let packet_max = settings.ports.iter().map(|p| p.mtu).max().unwrap_or(0);
        Ok(Ether {
            settings: settings.clone(),
            ports: settings.ports.iter().map(|p| Port::new(p, settings)).collect(),
            routes4,
            routes6,
            realms,
            neighbours,
            waiting: PendingPackets::new(limits, packet_max as usize),
            announcements: Announcements::new(settings.ports.len(), settings.announces),
            updates: VecDeque::with_capacity(UPDATES_MAX),
            shares: settings.shares,
            listen_ms: u64::MAX,
            conflict: None,
            stats: Stats::default(),
        })
    }

    /// Handles a frame received from `device`. `frame` begins with the Ethernet header. The buffer should
    /// have [`ANSWER_ROOM`](crate::ANSWER_ROOM) bytes after the frame, and enough room before it that the
    /// payload of the frame has [`gatun_wire::HEADROOM`].
    #[inline]
    pub fn receive(&mut self, now_ms: u64, device: u8, frame: &mut Packet<'_>) -> Received {
        self.stats.received = self.stats.received.wrapping_add(1);
        // Fast path. `look` handles all frames, including those that the fast path handles.
        let plain = self.ports.iter().find_map(|port| port.engines_packet(device, frame.bytes()));
        if let Some(header_len) = plain
            && frame.shift_start(header_len as isize).is_ok()
        {
            self.stats.packets = self.stats.packets.wrapping_add(1);
            return Received::Packet;
        }
        if !self.realms.is_empty() && self.receive_of_realm(device, frame) {
            return Received::Packet;
        }
        self.receive_other(now_ms, device, frame)
    }

    /// Fast path of ports with realms.
    fn receive_of_realm(&mut self, device: u8, frame: &mut Packet<'_>) -> bool {
        let found = self.ports.iter().find_map(|port| port.of_realm(device, frame.bytes()));
        let Some((header_len, realm)) = found else { return false };
        if frame.shift_start(header_len as isize).is_err() {
            return false;
        }
        frame.realm = realm;
        self.stats.packets = self.stats.packets.wrapping_add(1);
        true
    }

    #[cold]
    fn receive_other(&mut self, now_ms: u64, device: u8, frame: &mut Packet<'_>) -> Received {
        let fate = self.look(now_ms, device, frame).unwrap_or_else(Received::Drop);
        match fate {
            Received::Packet => self.stats.packets = self.stats.packets.wrapping_add(1),
            Received::Reply(answer) => self.stats.answers.count(answer),
            Received::Consumed(consumed) => self.stats.consumed.count(consumed),
            Received::Foreign(foreign) => self.stats.foreign.count(foreign),
            Received::Drop(dropped) => self.stats.dropped.count(dropped),
        }
        fate
    }

    fn look(&mut self, now_ms: u64, device: u8, frame: &mut Packet<'_>) -> Result<Received, Dropped> {
        let header = Header::read(frame.bytes()).ok_or(Dropped::Runt)?;
        let found = self.ports.iter().zip(0u8..).find(|(p, _)| p.device == device && p.tags == header.tags);
        let Some((port, number)) = found else {
            return Ok(Received::Foreign(Foreign::OtherVlan));
        };
        if !header.src.is_unicast() {
            return Err(Dropped::SourceMac);
        }
        if header.src == port.mac {
            return Err(Dropped::Looped);
        }
        if header.dst != port.mac {
            return match header.dst.is_group() {
                true => self.look_at_group(now_ms, number, header, frame),
                false => Ok(Received::Foreign(Foreign::OtherMac)),
            };
        }
        let packet = frame.bytes().get(header.len..).unwrap_or_default();
        let is_engines = match header.kind {
            kind::IPV4 => !port.is_for_host4(packet),
            kind::IPV6 => !(port.is_for_host6(packet) || ndp::is_discovery(packet)),
            _ => return self.look_at_other(now_ms, number, header, frame),
        };
        if is_engines {
            let moved = frame.shift_start(header.len as isize);
            frame.realm = port.realm(header.kind);
            return moved.map(|()| Received::Packet).map_err(|_| Dropped::Runt);
        }
        match header.kind {
            kind::IPV4 => self.on_own4(number, header, frame),
            _ => self.on_own6(now_ms, number, header, frame),
        }
    }

    /// Prepends the Ethernet header to an IP packet, or queues a copy until the next hop is known.
    #[inline]
    pub fn transmit(&mut self, now_ms: u64, packet: &mut Packet<'_>) -> Sent {
        self.stats.to_send = self.stats.to_send.wrapping_add(1);
        if let Some(device) = self.send_at_once(now_ms, packet) {
            self.stats.sent = self.stats.sent.wrapping_add(1);
            return Sent::Frame { device };
        }
        self.transmit_other(now_ms, packet)
    }

    /// Fast path: nearly all packets go to a known neighbour. Returns `None` and changes nothing otherwise;
    /// [`send`](Self::send) handles these packets.
    #[inline]
    fn send_at_once(&mut self, now_ms: u64, packet: &mut Packet<'_>) -> Option<u8> {
        let (key, kind) = destination(packet.bytes())?;
        let (number, neighbour) = match self.target(key, kind, packet.realm) {
            RouteTarget::Gateway { port, neighbour } => (port, neighbour),
            RouteTarget::OnLink { port } => (port, self.neighbours.find(port, key)?),
            RouteTarget::NoRoute | RouteTarget::Own | RouteTarget::Broadcast => return None,
        };
        let port = self.ports.get(usize::from(number)).filter(|port| packet.len() <= port.mtu)?;
        let mac = self.neighbours.ready(now_ms, neighbour)?;
        packet.shift_start(-(port.template.len as isize)).ok()?;
        port.template.write(packet.bytes_mut(), mac, kind);
        Some(port.device)
    }

    #[inline]
    fn target(&mut self, key: Key, kind: u16, realm: u8) -> RouteTarget {
        if realm != 0 {
            return self.target_in(key, kind, realm);
        }
        match kind {
            kind::IPV4 => self.routes4.find(key.0 as u32),
            _ => self.routes6.find(key.0),
        }
    }

    fn target_in(&mut self, key: Key, kind: u16, realm: u8) -> RouteTarget {
        let Some((routes4, routes6)) = self.realms.get_mut(usize::from(realm).wrapping_sub(1)) else {
            return RouteTarget::NoRoute;
        };
        match kind {
            kind::IPV4 => routes4.find(key.0 as u32),
            _ => routes6.find(key.0),
        }
    }

    #[cold]
    fn transmit_other(&mut self, now_ms: u64, packet: &mut Packet<'_>) -> Sent {
        match self.send(now_ms, packet) {
            Ok(sent) => {
                if let Sent::Frame { .. } = sent {
                    self.stats.sent = self.stats.sent.wrapping_add(1);
                }
                sent
            }
            Err(reason) => {
                self.stats.unsent.count(reason);
                Sent::Drop(reason)
            }
        }
    }

    fn send(&mut self, now_ms: u64, packet: &mut Packet<'_>) -> Result<Sent, Unsent> {
        let (key, kind) = destination(packet.bytes()).ok_or(Unsent::NotIp)?;
        let (number, neighbour) = match self.target(key, kind, packet.realm) {
            RouteTarget::Gateway { port, neighbour } => (port, Some(neighbour)),
            RouteTarget::OnLink { port } => (port, None),
            RouteTarget::Own => return Err(Unsent::ToOurselves),
            RouteTarget::Broadcast => return Err(Unsent::Broadcast),
            RouteTarget::NoRoute => return Err(Unsent::NoRoute),
        };
        let port = self.ports.get(usize::from(number)).ok_or(Unsent::NoRoute)?;
        if packet.len() > port.mtu && packet.offload.segmentation == Segmentation::None {
            return Err(Unsent::TooLarge);
        }
        let neighbour = match neighbour {
            Some(neighbour) => neighbour,
            None => self.neighbours.want(now_ms, number, key)?,
        };
        match self.neighbours.way(now_ms, neighbour) {
            NextHopAction::Send(mac) => {
                let room = -(port.template.len as isize);
                packet.shift_start(room).map_err(|_| Unsent::NoHeadroom)?;
                port.template.write(packet.bytes_mut(), mac, kind);
                Ok(Sent::Frame { device: port.device })
            }
            NextHopAction::Wait => self.keep(now_ms, neighbour, packet),
            NextHopAction::Drop(reason) => Err(reason),
        }
    }

    fn keep(&mut self, now_ms: u64, neighbour: u32, packet: &mut Packet<'_>) -> Result<Sent, Unsent> {
        if packet.offload.segmentation != Segmentation::None {
            return Err(Unsent::Unholdable);
        }
        packet.complete_checksum();
        self.keep_bytes(now_ms, neighbour, packet.bytes()).map(|()| Sent::Held)
    }

    pub(crate) fn keep_bytes(&mut self, now_ms: u64, neighbour: u32, packet: &[u8]) -> Result<(), Unsent> {
        let waiting = self.neighbours.get(neighbour).map_or(0, |n| n.waiting);
        match self.waiting.keep(neighbour, waiting, packet) {
            Queued::Refused => return Err(Unsent::Unholdable),
            Queued::Added => self.stats.waiting += 1,
            Queued::Replaced(oldest) => {
                self.stats.unsent.count(Unsent::WaitingOverflow);
                if let Some(n) = self.neighbours.get_mut(oldest) {
                    n.waiting = n.waiting.saturating_sub(1);
                }
            }
        }
        if let Some(n) = self.neighbours.get_mut(neighbour) {
            n.waiting = n.waiting.saturating_add(1);
        }
        if self.shares {
            self.listen_ms = self.listen_ms.min(now_ms.saturating_add(LISTEN_MS));
        }
        Ok(())
    }

    /// Time at which [`poll`](Self::poll) has work, in milliseconds of the clock passed to the other calls;
    /// `u64::MAX` for never. Cheap enough to call after each burst.
    #[inline]
    pub fn due_ms(&self) -> u64 {
        self.neighbours.due_ms().min(self.announcements.due_ms()).min(self.listen_ms)
    }

    /// Does the work that is due: solicits neighbours, sends packets that waited, announces addresses. Calls
    /// `emit` with each frame, its device and its origin.
    pub fn poll(&mut self, now_ms: u64, emit: &mut Emit<'_>) {
        while let Some(task) = self.neighbours.next_task(now_ms) {
            self.do_task(task, emit);
        }
        while let Some(announcement) = self.announcements.next(now_ms, &self.ports) {
            self.send_announcement(announcement, emit);
        }
        let listens = self.shares && self.stats.waiting > 0;
        self.listen_ms = if listens { now_ms.saturating_add(LISTEN_MS) } else { u64::MAX };
    }

    /// Announces all addresses twice, after a take-over from another host that had them.
    pub fn announce(&mut self, now_ms: u64) {
        self.announcements.announce(now_ms);
    }

    /// Changes the MAC of a device. Replies contain the new MAC from now on.
    pub fn set_mac(&mut self, device: u8, mac: Mac) {
        let of_device = |port: &&mut settings::PortSettings| port.device == device && port.mac != mac;
        if !mac.is_unicast()
            || self.settings.ports.iter_mut().filter(of_device).map(|port| port.mac = mac).count() == 0
        {
            return;
        }
        self.ports = self.settings.ports.iter().map(|port| Port::new(port, &self.settings)).collect();
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats.clone();
        if let Some(evicted) = stats.events.get_mut(EtherEvent::NeighbourEvicted as usize) {
            *evicted = self.neighbours.evicted;
        }
        stats
    }

    /// Last host that claimed one of our addresses.
    pub fn conflict(&self) -> Option<Conflict> {
        self.conflict
    }

    /// Known neighbours.
    pub fn neighbours(&self) -> impl Iterator<Item = NeighbourReport> {
        self.neighbours.iter().map(|n| NeighbourReport {
            port: n.port.into(),
            address: n.key.address(),
            mac: (!matches!(
                n.state,
                NeighbourState::Unknown | NeighbourState::Incomplete | NeighbourState::Failed
            ))
            .then_some(n.mac),
            state: n.state,
        })
    }

    /// Verifies known neighbours as if packets went to them, because a switch sends packets that this `Ether`
    /// does not see. Those that do not answer are forgotten.
    pub fn verify_neighbours(&mut self, now_ms: u64) {
        self.neighbours.verify_all(now_ms);
    }

    fn do_task(&mut self, task: NeighbourTask, emit: &mut Emit<'_>) {
        match task {
            NeighbourTask::SolicitMulticast { port, key } => self.ask(port, key, None, emit),
            NeighbourTask::SolicitUnicast { port, key, mac } => self.ask(port, key, Some(mac), emit),
            NeighbourTask::Release { neighbour, port, mac } => self.release(neighbour, port, mac, emit),
            NeighbourTask::Fail { neighbour } => {
                self.stats.events.count(EtherEvent::NeighbourFailed);
                let lost = self.waiting.forget(neighbour);
                self.stats.waiting = self.stats.waiting.saturating_sub(lost);
                if let Some(n) = self.stats.unsent.get_mut(Unsent::WaitingFailed as usize) {
                    *n = n.wrapping_add(lost);
                }
                self.nobody_waits(neighbour);
            }
        }
    }

    fn release(&mut self, neighbour: u32, port: u8, mac: Mac, emit: &mut Emit<'_>) {
        let Some(port) = self.ports.get(usize::from(port)) else { return };
        let mut released = 0;
        self.waiting.release(neighbour, |bytes| {
            let kind = match bytes.get(frame::LEN_MAX) {
                Some(first) if first >> 4 == 4 => kind::IPV4,
                _ => kind::IPV6,
            };
            if let Some(frame) = bytes.get_mut(frame::LEN_MAX - port.template.len..) {
                port.template.write(frame, mac, kind);
                emit(port.device, frame, FrameOrigin::Packet);
            }
            released += 1;
        });
        self.stats.released = self.stats.released.wrapping_add(released);
        self.stats.waiting = self.stats.waiting.saturating_sub(released);
        self.nobody_waits(neighbour);
    }

    fn nobody_waits(&mut self, neighbour: u32) {
        if let Some(n) = self.neighbours.get_mut(neighbour) {
            n.waiting = 0;
        }
    }

    /// Solicits a neighbour, by multicast or directly.
    fn ask(&mut self, port: u8, key: Key, it: Option<Mac>, emit: &mut Emit<'_>) {
        let Some(port) = self.ports.get(usize::from(port)) else { return };
        match key.address() {
            IpAddr::V4(target) => {
                let request = arp::request(port.mac, port.source4(target), target);
                port.emit(it.unwrap_or(Mac::BROADCAST), kind::ARP, &request, emit);
                self.stats.events.count(EtherEvent::ArpRequest);
            }
            IpAddr::V6(target) => {
                let dst = if it.is_some() { target } else { crate::address::solicited_node(target) };
                let request = ndp::solicitation(port.mac, port.link_local, dst, target);
                port.emit(it.unwrap_or(Mac::of_group(dst)), kind::IPV6, &request, emit);
                self.stats.events.count(EtherEvent::Solicitation);
            }
        }
    }

    fn send_announcement(&mut self, announcement: Announcement, emit: &mut Emit<'_>) {
        let (number, note) = match announcement {
            Announcement::Groups { port, .. } => (port, EtherEvent::GroupReport),
            Announcement::Probe { port, .. } => (port, EtherEvent::Probe),
            Announcement::Announce { port, .. } => (port, EtherEvent::Announcement),
            Announcement::Defend { port, .. } => (port, EtherEvent::Defence),
        };
        let Some(port) = self.ports.get(usize::from(number)) else { return };
        let is_sent = match announcement {
            Announcement::Groups { asked, .. } => port.report_groups(asked, emit),
            Announcement::Probe { key, .. } => port.probe(key, emit),
            Announcement::Announce { key, .. } | Announcement::Defend { key, .. } => port.announce(key, emit),
        };
        if is_sent {
            self.stats.events.count(note);
        }
    }
}

/// Destination of an IP packet, and its ethertype.
#[inline]
fn destination(packet: &[u8]) -> Option<(Key, u16)> {
    match packet.first()? >> 4 {
        4 => {
            let head = packet.first_chunk::<{ ipv4::LEN }>()?;
            Some((Key::v4(crate::bytes::v4(head, 16)?), kind::IPV4))
        }
        6 => {
            let head = packet.first_chunk::<{ ipv6::LEN }>()?;
            Some((Key::v6(crate::bytes::v6(head, 24)?), kind::IPV6))
        }
        _ => None,
    }
}

/// Routes of a realm over all ports. Next hops get permanent entries in the neighbour cache.
fn table(settings: &Settings, realm: u8, neighbours: &mut NeighbourCache) -> (Routes<u32>, Routes<u128>) {
    let [four, six] = prefixes(settings, realm, neighbours);
    (four.routes(Key::v4(Ipv4Addr::UNSPECIFIED), |n| n as u32), six.routes(Key(0), |n| n))
}

/// Prefixes of a realm, IPv4 and IPv6.
fn prefixes(settings: &Settings, realm: u8, neighbours: &mut NeighbourCache) -> [Prefixes; 2] {
    let mut routes = [Prefixes::default(), Prefixes::default()];
    let mut add = |prefix: Prefix, target: RouteTarget| {
        let (family, more) = if prefix.addr.is_ipv4() { (0, 96) } else { (1, 0) };
        if let Some(routes) = routes.get_mut(family) {
            routes.add(Key::of(prefix.addr), prefix.len.saturating_add(more), target);
        }
    };
    let is_here = |port: &settings::PortSettings, prefix: &Prefix| port.realm_of(prefix.addr) == realm;
    // Of equal prefixes, the first one added stays.
    for port in &settings.ports {
        for own in port.addresses.iter().filter(|own| is_here(port, own)) {
            add(Prefix::host(own.addr), RouteTarget::Own);
            for edge in edges(own) {
                add(Prefix::host(IpAddr::V4(edge)), RouteTarget::Broadcast);
            }
        }
    }
    UNROUTABLE.into_iter().for_each(|prefix| add(prefix, RouteTarget::NoRoute));
    for (port, number) in settings.ports.iter().zip(0u8..) {
        for route in port.routes.iter().filter(|route| is_here(port, &route.to)) {
            let gateway = |via| neighbours.pin(number, Key::of(via));
            let target = match route.via.map(gateway) {
                None => RouteTarget::OnLink { port: number },
                Some(Some(neighbour)) => RouteTarget::Gateway { port: number, neighbour },
                Some(None) => continue, // `check` has verified that there is room
            };
            add(route.to, target);
        }
        let is_a_link =
            |own: &&Prefix| !UNROUTABLE.iter().any(|n| n.contains(own.addr)) && is_here(port, own);
        for own in port.addresses.iter().filter(is_a_link) {
            add(*own, RouteTarget::OnLink { port: number });
        }
    }
    for port in &settings.ports {
        for answered in port.answers.iter().filter(|answered| is_here(port, answered)) {
            add(*answered, RouteTarget::Own);
        }
    }
    routes
}

/// Routes of packets without a realm, as an [`Ether`] with these settings uses them.
pub fn route_reports(settings: &Settings) -> Vec<RouteReport> {
    let mut neighbours = NeighbourCache::new(&Limits::default(), [0; 4]);
    let both = prefixes(settings, 0, &mut neighbours);
    let families = both.iter().zip([96, 0]);
    let all = families.flat_map(|(prefixes, more)| prefixes.iter().map(move |route| (more, route)));
    let report = |(more, (first, len, target)): (u8, (Key, u8, RouteTarget))| {
        let way = match target {
            RouteTarget::NoRoute | RouteTarget::Own | RouteTarget::Broadcast => Way::Nowhere,
            RouteTarget::OnLink { port } => Way::OnLink { port: port.into() },
            RouteTarget::Gateway { port, neighbour } => {
                let gateway = neighbours.get(neighbour).map(|neighbour| neighbour.key.address());
                gateway.map_or(Way::Nowhere, |gateway| Way::Via { port: port.into(), gateway })
            }
        };
        let addr = if more == 0 { IpAddr::V6(Ipv6Addr::from(first.0)) } else { first.address() };
        RouteReport { to: Prefix { addr, len: len.saturating_sub(more) }, way }
    };
    all.map(report).collect()
}

/// Destinations without a route: multicast and broadcast; ::ffff:0:0/96, which never appears on a wire;
/// link-local addresses, which exist on every link and therefore need a port.
const UNROUTABLE: [Prefix; 5] = [
    Prefix { addr: IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), len: 4 },
    Prefix { addr: IpAddr::V4(Ipv4Addr::BROADCAST), len: 32 },
    Prefix { addr: IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), len: 8 },
    Prefix { addr: IpAddr::V6(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0)), len: 96 },
    Prefix { addr: IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), len: 10 },
];

/// First and last address of an IPv4 network, if they are not hosts (RFC 3021).
fn edges(own: &Prefix) -> impl Iterator<Item = Ipv4Addr> {
    let edges = match own.addr {
        IpAddr::V4(a) if own.len < 31 => {
            let host = u32::MAX.checked_shr(u32::from(own.len)).unwrap_or(0);
            Some([u32::from(a) & !host, u32::from(a) | host])
        }
        _ => None,
    };
    edges.into_iter().flatten().map(Ipv4Addr::from)
}

#[cfg(test)]
mod tests;
