//! The one entry to all of it: a frame received, a packet to send, time that passes.

use crate::address::Key;
use crate::frame::{self, Header, kind};
use crate::neighbour::{Neighbours, State, Task, Way};
use crate::port::Port;
use crate::routes::{Prefixes, Routes, Target};
use crate::speech::{Saying, Speech};
use crate::stats::Count as _;
use crate::waiting::{Kept, Waiting};
use crate::{
    Answer, Dropped, Foreign, Heard, Limits, Mac, Note, Prefix, Problem, Settings, Stats, Taken, Unsent, arp,
    check, mld, ndp, settings,
};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use gatun_wire::hdr::{ipv4, ipv6};
use gatun_wire::{Packet, Segmentation};

/// What became of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Received {
    /// The packet now begins with its IP header, behind what was the frame's: give it to the engine. Padding may
    /// follow it.
    Packet,
    /// The frame is now an answer: send it by the device that it came from.
    Reply(Answer),
    /// Nothing is left to do with it. Ask [`Ether::due_ms`]: packets may go now.
    Taken(Taken),
    /// None of ours, and unchanged: the backend may pass it to the kernel.
    Foreign(Foreign),
    /// Gone, and why.
    Drop(Dropped),
}

/// What became of a packet that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// The packet is now a frame: send it by this device.
    Frame {
        /// The backend's number of the device.
        device: u8,
    },
    /// A copy is kept until the next hop is known; the buffer is free.
    Held,
    /// Gone, and why.
    Drop(Unsent),
}

/// Somebody else who says that it has an address of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Number of the port in the settings.
    pub port: usize,
    /// The address.
    pub address: IpAddr,
    /// Who says so.
    pub mac: Mac,
}

/// A neighbour, for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighbourReport {
    /// Number of the port in the settings.
    pub port: usize,
    /// Its address.
    pub address: IpAddr,
    /// Its MAC, where it is known.
    pub mac: Option<Mac>,
    /// How sure that is.
    pub state: State,
}

/// Whose a frame is that [`Ether::poll`] gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The host's own: a question, an announcement, a report.
    Own,
    /// That of a packet that has waited for a neighbour.
    Packet,
}

/// Takes a frame to be sent: its device, its bytes, and whose it is.
type Emit<'a> = dyn FnMut(u8, &[u8], Whose) + 'a;

/// The manners of a host at all of its ports, for one worker. See the [crate's page](crate).
pub struct Ether {
    /// What the ports are made of.
    pub(crate) settings: Settings,
    pub(crate) ports: Vec<Port>,
    routes4: Routes<u32>,
    routes6: Routes<u128>,
    /// Those of realms from 1 on.
    realms: Vec<(Routes<u32>, Routes<u128>)>,
    pub(crate) neighbours: Neighbours,
    pub(crate) waiting: Waiting,
    pub(crate) speech: Speech,
    pub(crate) heard: VecDeque<Heard>,
    pub(crate) shares: bool,
    /// When to look next whether another worker has news that packets here wait for.
    listen_ms: u64,
    pub(crate) conflict: Option<Conflict>,
    pub(crate) stats: Stats,
}

/// News for other workers that are kept until they are fetched.
pub(crate) const HEARD_MAX: usize = 64;
/// How often a worker that packets wait at looks for such news: the answer may have come to one that is awake.
const LISTEN_MS: u64 = 5;
/// The shortest frame on an Ethernet, without its checksum.
const FRAME_MIN: usize = 60;
const FRAME_MAX: usize = frame::LEN_MAX + mld::REPORT_MAX;

impl Ether {
    /// `seed` keeps others from guessing which addresses fall together in the table of neighbours: nobody must know
    /// it. All memory is taken here.
    ///
    /// # Errors
    /// Everything in the settings that cannot be, with what to write instead.
    pub fn new(settings: &Settings, limits: &Limits, seed: [u64; 4]) -> Result<Ether, Vec<Problem>> {
        check::check(settings, limits)?;
        let mut neighbours = Neighbours::new(limits, seed);
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
            waiting: Waiting::new(limits, packet_max as usize),
            speech: Speech::new(settings.ports.len(), settings.speaks),
            heard: VecDeque::with_capacity(HEARD_MAX),
            shares: settings.shares,
            listen_ms: u64::MAX,
            conflict: None,
            stats: Stats::default(),
        })
    }

    /// Looks at a frame that came in by `device`. `frame` begins with the Ethernet header; the buffer should have
    /// [`ANSWER_ROOM`](crate::ANSWER_ROOM) bytes behind it, and so much before it that what follows the header has
    /// [`gatun_wire::HEADROOM`].
    #[inline]
    pub fn receive(&mut self, now_ms: u64, device: u8, frame: &mut Packet<'_>) -> Received {
        self.stats.received = self.stats.received.wrapping_add(1);
        // The short way. What it does not know, `look` does, and whatever it knows, `look` knows, too.
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

    /// The short way of ports whose packets have realms.
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
            Received::Taken(taken) => self.stats.taken.count(taken),
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

    /// Puts the Ethernet header before an IP packet, or keeps a copy until that can be done.
    #[inline]
    pub fn transmit(&mut self, now_ms: u64, packet: &mut Packet<'_>) -> Sent {
        self.stats.to_send = self.stats.to_send.wrapping_add(1);
        if let Some(device) = self.send_at_once(now_ms, packet) {
            self.stats.sent = self.stats.sent.wrapping_add(1);
            return Sent::Frame { device };
        }
        self.transmit_other(now_ms, packet)
    }

    /// The short way: nearly all packets go to a neighbour that is known. `None` with nothing done where anything is not so;
    /// [`send`](Self::send) says what.
    #[inline]
    fn send_at_once(&mut self, now_ms: u64, packet: &mut Packet<'_>) -> Option<u8> {
        let (key, kind) = destination(packet.bytes())?;
        let (number, neighbour) = match self.target(key, kind, packet.realm) {
            Target::Gateway { port, neighbour } => (port, neighbour),
            Target::OnLink { port } => (port, self.neighbours.find(port, key)?),
            Target::Nowhere | Target::Ourselves | Target::Broadcast => return None,
        };
        let port = self.ports.get(usize::from(number)).filter(|port| packet.len() <= port.mtu)?;
        let mac = self.neighbours.ready(now_ms, neighbour)?;
        packet.shift_start(-(port.template.len as isize)).ok()?;
        port.template.write(packet.bytes_mut(), mac, kind);
        Some(port.device)
    }

    #[inline]
    fn target(&mut self, key: Key, kind: u16, realm: u8) -> Target {
        if realm != 0 {
            return self.target_in(key, kind, realm);
        }
        match kind {
            kind::IPV4 => self.routes4.find(key.0 as u32),
            _ => self.routes6.find(key.0),
        }
    }

    fn target_in(&mut self, key: Key, kind: u16, realm: u8) -> Target {
        let Some((routes4, routes6)) = self.realms.get_mut(usize::from(realm).wrapping_sub(1)) else {
            return Target::Nowhere;
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
            Target::Gateway { port, neighbour } => (port, Some(neighbour)),
            Target::OnLink { port } => (port, None),
            Target::Ourselves => return Err(Unsent::ToOurselves),
            Target::Broadcast => return Err(Unsent::Broadcast),
            Target::Nowhere => return Err(Unsent::NoRoute),
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
            Way::Send(mac) => {
                let room = -(port.template.len as isize);
                packet.shift_start(room).map_err(|_| Unsent::NoHeadroom)?;
                port.template.write(packet.bytes_mut(), mac, kind);
                Ok(Sent::Frame { device: port.device })
            }
            Way::Wait => self.keep(now_ms, neighbour, packet),
            Way::Drop(reason) => Err(reason),
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
            Kept::No => return Err(Unsent::Unholdable),
            Kept::Yes => self.stats.waiting += 1,
            Kept::Instead(oldest) => {
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

    /// When [`poll`](Self::poll) has something to do: milliseconds of the clock that the other calls are told;
    /// `u64::MAX` for never. Cheap: look after each burst.
    #[inline]
    pub fn due_ms(&self) -> u64 {
        self.neighbours.due_ms().min(self.speech.due_ms()).min(self.listen_ms)
    }

    /// Does what is due: asks for neighbours, lets packets go that waited, announces. `emit` is given each frame to be
    /// sent, with its device and whose it is.
    pub fn poll(&mut self, now_ms: u64, emit: &mut Emit<'_>) {
        while let Some(task) = self.neighbours.next_task(now_ms) {
            self.do_task(task, emit);
        }
        while let Some(saying) = self.speech.next_saying(now_ms, &self.ports) {
            self.say(saying, emit);
        }
        let listens = self.shares && self.stats.waiting > 0;
        self.listen_ms = if listens { now_ms.saturating_add(LISTEN_MS) } else { u64::MAX };
    }

    /// Announces all addresses, twice: after a take-over from another host that had them.
    pub fn announce(&mut self, now_ms: u64) {
        self.speech.announce(now_ms);
    }

    /// A device has another address from now on: whoever is asked for it tells this one.
    pub fn set_mac(&mut self, device: u8, mac: Mac) {
        let of_device = |port: &&mut settings::Port| port.device == device && port.mac != mac;
        if !mac.is_unicast()
            || self.settings.ports.iter_mut().filter(of_device).map(|port| port.mac = mac).count() == 0
        {
            return;
        }
        self.ports = self.settings.ports.iter().map(|port| Port::new(port, &self.settings)).collect();
    }

    /// What was counted.
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats.clone();
        if let Some(evicted) = stats.notes.get_mut(Note::NeighbourEvicted as usize) {
            *evicted = self.neighbours.evicted;
        }
        stats
    }

    /// Who said last that it has an address of ours.
    pub fn conflict(&self) -> Option<Conflict> {
        self.conflict
    }

    /// The neighbours that are known.
    pub fn neighbours(&self) -> impl Iterator<Item = NeighbourReport> {
        self.neighbours.iter().map(|n| NeighbourReport {
            port: n.port.into(),
            address: n.key.address(),
            mac: (!matches!(n.state, State::Unknown | State::Incomplete | State::Failed)).then_some(n.mac),
            state: n.state,
        })
    }

    fn do_task(&mut self, task: Task, emit: &mut Emit<'_>) {
        match task {
            Task::AskAll { port, key } => self.ask(port, key, None, emit),
            Task::AskIt { port, key, mac } => self.ask(port, key, Some(mac), emit),
            Task::Release { neighbour, port, mac } => self.release(neighbour, port, mac, emit),
            Task::GiveUp { neighbour } => {
                self.stats.notes.count(Note::NeighbourFailed);
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
                emit(port.device, frame, Whose::Packet);
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

    /// Asks for a neighbour: all, or it alone.
    fn ask(&mut self, port: u8, key: Key, it: Option<Mac>, emit: &mut Emit<'_>) {
        let Some(port) = self.ports.get(usize::from(port)) else { return };
        match key.address() {
            IpAddr::V4(target) => {
                let request = arp::request(port.mac, port.source4(target), target);
                port.emit(it.unwrap_or(Mac::BROADCAST), kind::ARP, &request, emit);
                self.stats.notes.count(Note::ArpRequest);
            }
            IpAddr::V6(target) => {
                let dst = if it.is_some() { target } else { crate::address::solicited_node(target) };
                let request = ndp::solicitation(port.mac, port.link_local, dst, target);
                port.emit(it.unwrap_or(Mac::of_group(dst)), kind::IPV6, &request, emit);
                self.stats.notes.count(Note::Solicitation);
            }
        }
    }

    fn say(&mut self, saying: Saying, emit: &mut Emit<'_>) {
        let (number, note) = match saying {
            Saying::Groups { port, .. } => (port, Note::GroupReport),
            Saying::Probe { port, .. } => (port, Note::Probe),
            Saying::Announce { port, .. } => (port, Note::Announcement),
            Saying::Defend { port, .. } => (port, Note::Defence),
        };
        let Some(port) = self.ports.get(usize::from(number)) else { return };
        let said = match saying {
            Saying::Groups { asked, .. } => port.report_groups(asked, emit),
            Saying::Probe { key, .. } => port.probe(key, emit),
            Saying::Announce { key, .. } | Saying::Defend { key, .. } => port.announce(key, emit),
        };
        if said {
            self.stats.notes.count(note);
        }
    }
}

impl Port {
    fn emit(&self, dst: Mac, kind: u16, packet: &[u8], emit: &mut Emit<'_>) {
        let mut frame = [0; FRAME_MAX];
        let len = self.template.len + packet.len();
        self.template.write(&mut frame, dst, kind);
        crate::bytes::put(&mut frame, self.template.len, packet);
        emit(self.device, frame.get(..len.max(FRAME_MIN)).unwrap_or_default(), Whose::Own);
    }

    /// RFC 5227 2.3; RFC 4861 7.2.6.
    fn announce(&self, key: Key, emit: &mut Emit<'_>) -> bool {
        match key.address() {
            IpAddr::V4(own) => self.emit(Mac::BROADCAST, kind::ARP, &arp::request(self.mac, own, own), emit),
            IpAddr::V6(own) => {
                let told = ndp::advertisement(self.mac, own, None);
                self.emit(Mac::of_group(ndp::ALL_NODES), kind::IPV6, &told, emit);
            }
        }
        true
    }

    /// RFC 5227 2.1.1; RFC 4862 5.4.2.
    fn probe(&self, key: Key, emit: &mut Emit<'_>) -> bool {
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

    /// RFC 3810 5.2. False where there is no group.
    fn report_groups(&self, asked: bool, emit: &mut Emit<'_>) -> bool {
        let mut report = [0; mld::REPORT_MAX];
        let len = mld::write_report(&mut report, self.link_local, &self.groups, asked);
        if let Some(report) = report.get(..len).filter(|r| !r.is_empty()) {
            self.emit(Mac::of_group(mld::ALL_ROUTERS), kind::IPV6, report, emit);
        }
        len > 0
    }
}

/// Where an IP packet goes, and its Ethernet type.
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

/// The routes of a realm, by whatever ports; next hops get their places among the neighbours.
fn table(settings: &Settings, realm: u8, neighbours: &mut Neighbours) -> (Routes<u32>, Routes<u128>) {
    let [four, six] = prefixes(settings, realm, neighbours);
    (four.routes(Key::v4(Ipv4Addr::UNSPECIFIED), |n| n as u32), six.routes(Key(0), |n| n))
}

/// The routes of a realm, IPv4 and IPv6.
fn prefixes(settings: &Settings, realm: u8, neighbours: &mut Neighbours) -> [Prefixes; 2] {
    let mut routes = [Prefixes::default(), Prefixes::default()];
    let mut add = |prefix: Prefix, target: Target| {
        let (family, more) = if prefix.addr.is_ipv4() { (0, 96) } else { (1, 0) };
        if let Some(routes) = routes.get_mut(family) {
            routes.add(Key::of(prefix.addr), prefix.len.saturating_add(more), target);
        }
    };
    let is_here = |port: &settings::Port, prefix: &Prefix| port.realm_of(prefix.addr) == realm;
    // What comes first stays, where prefixes are the same.
    for port in &settings.ports {
        for own in port.addresses.iter().filter(|own| is_here(port, own)) {
            add(Prefix::host(own.addr), Target::Ourselves);
            for edge in edges(own) {
                add(Prefix::host(IpAddr::V4(edge)), Target::Broadcast);
            }
        }
    }
    NOWHERE.into_iter().for_each(|prefix| add(prefix, Target::Nowhere));
    for (port, number) in settings.ports.iter().zip(0u8..) {
        for route in port.routes.iter().filter(|route| is_here(port, &route.to)) {
            let gateway = |via| neighbours.pin(number, Key::of(via));
            let target = match route.via.map(gateway) {
                None => Target::OnLink { port: number },
                Some(Some(neighbour)) => Target::Gateway { port: number, neighbour },
                Some(None) => continue, // `check` has seen to it that there is room
            };
            add(route.to, target);
        }
        let is_a_link = |own: &&Prefix| !NOWHERE.iter().any(|n| n.contains(own.addr)) && is_here(port, own);
        for own in port.addresses.iter().filter(is_a_link) {
            add(*own, Target::OnLink { port: number });
        }
    }
    for port in &settings.ports {
        for answered in port.answers.iter().filter(|answered| is_here(port, answered)) {
            add(*answered, Target::Ourselves);
        }
    }
    routes
}

/// Where no packet goes by a route: to groups; to ::ffff:0:0/96, which is on no wire; to link-local addresses, which are on
/// every link and so on none in particular.
const NOWHERE: [Prefix; 5] = [
    Prefix { addr: IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), len: 4 },
    Prefix { addr: IpAddr::V4(Ipv4Addr::BROADCAST), len: 32 },
    Prefix { addr: IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), len: 8 },
    Prefix { addr: IpAddr::V6(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0)), len: 96 },
    Prefix { addr: IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), len: 10 },
];

/// An IPv4 network's first and last address, where they are no hosts' (RFC 3021).
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
