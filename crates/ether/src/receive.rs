//! Frames that are not packets for the engine.

use crate::address::{Key, is_link_local};
use crate::ether::{Ether, UPDATES_MAX};
use crate::frame::{Header, kind, write_reply_header};
use crate::neighbour::{LinkLayerInfo, MacChange, NeighbourUpdate};
use crate::outcome::{Conflict, Received};
use crate::stats::Count as _;
use crate::{Answer, Consumed, Dropped, EtherEvent, Foreign, Mac, arp, echo, mld, ndp};
use core::net::IpAddr;
use gatun_wire::Packet;

type Fate = Result<Received, Dropped>;

impl Ether {
    /// Next update that the other workers should [`apply`](Self::apply_update), oldest first, or `None`.
    /// Recorded only with [`Settings::shares`](crate::Settings::shares); only the newest are kept.
    pub fn next_update(&mut self) -> Option<NeighbourUpdate> {
        self.updates.pop_front()
    }

    /// Applies an update from another worker.
    pub fn apply_update(&mut self, now_ms: u64, update: NeighbourUpdate) {
        self.learn(now_ms, update);
    }

    /// Handles a frame to this port's MAC that is not an IP packet.
    #[cold]
    pub(crate) fn look_at_other(
        &mut self,
        now_ms: u64,
        port: u8,
        header: Header,
        frame: &mut Packet<'_>,
    ) -> Fate {
        match header.kind {
            kind::ARP => self.on_arp(now_ms, port, header, frame),
            _ => Ok(Received::Foreign(Foreign::OtherType)),
        }
    }

    /// Handles a frame to a multicast or the broadcast address.
    #[cold]
    pub(crate) fn look_at_group(
        &mut self,
        now_ms: u64,
        port: u8,
        header: Header,
        frame: &mut Packet<'_>,
    ) -> Fate {
        let packet = frame.bytes().get(header.len..).unwrap_or_default();
        match header.kind {
            kind::IPV6 if ndp::is_discovery(packet) => self.on_discovery(now_ms, port, header, frame),
            kind::IPV6 if mld::is_query(packet) => {
                let delay_max_ms = mld::read_query(packet)?;
                let random = self.neighbours.random(now_ms, port.into());
                self.announcements.report(now_ms, port, delay_max_ms, random);
                Ok(Received::Consumed(Consumed::MulticastQuery))
            }
            // RFC 1122 3.3.6: a packet to a link-layer group is not forwarded, whatever its IP address.
            kind::IPV4 | kind::IPV6 => Ok(Received::Foreign(Foreign::Group)),
            _ => self.look_at_other(now_ms, port, header, frame),
        }
    }

    /// Handles an IPv4 packet for this host.
    #[cold]
    pub(crate) fn on_own4(&mut self, port: u8, header: Header, frame: &mut Packet<'_>) -> Fate {
        let bytes = frame.bytes_mut();
        let packet = bytes.get_mut(header.len..).unwrap_or_default();
        if !echo::is_request4(packet) {
            return Ok(Received::Foreign(Foreign::OwnAddress));
        }
        echo::answer4(packet)?;
        write_reply_header(bytes, header.src, self.mac_of(port));
        Ok(Received::Reply(Answer::Echo4))
    }

    /// Handles an IPv6 packet for this host, or neighbour discovery.
    #[cold]
    pub(crate) fn on_own6(&mut self, now_ms: u64, port: u8, header: Header, frame: &mut Packet<'_>) -> Fate {
        let bytes = frame.bytes_mut();
        let packet = bytes.get_mut(header.len..).unwrap_or_default();
        if ndp::is_discovery(packet) {
            return self.on_discovery(now_ms, port, header, frame);
        }
        if !echo::is_request6(packet) {
            return Ok(Received::Foreign(Foreign::OwnAddress));
        }
        echo::answer6(packet)?;
        write_reply_header(bytes, header.src, self.mac_of(port));
        Ok(Received::Reply(Answer::Echo6))
    }

    /// Handles ARP: RFC 826, "Packet Reception"; RFC 5227.
    fn on_arp(&mut self, now_ms: u64, number: u8, header: Header, frame: &mut Packet<'_>) -> Fate {
        let bytes = frame.bytes_mut();
        let body = bytes.get_mut(header.len..).unwrap_or_default();
        let message = arp::Message::read(body)?;
        let Some(port) = self.ports.get(usize::from(number)) else { return Err(Dropped::Runt) };
        if message.sender_mac == port.mac {
            return Err(Dropped::Looped);
        }
        let (sender, target) = (Key::v4(message.sender), Key::v4(message.target));
        let ours = port.claims(target);
        if port.claims(sender) {
            // RFC 5227 2.4.
            self.on_conflict(now_ms, number, sender, message.sender_mac);
            return Ok(Received::Consumed(Consumed::Conflict));
        }
        if ours && message.is_request {
            arp::write_reply(body, &message, port.mac);
            write_reply_header(bytes, message.sender_mac, port.mac);
        }
        if message.is_probe() {
            if ours {
                self.note_conflict(number, target, message.sender_mac);
            }
        } else {
            // "If the pair <protocol type, sender protocol address> is already in my translation table,
            // update".
            let solicited = ours && !message.is_request;
            let info = LinkLayerInfo { mac: Some(message.sender_mac), solicited, overrides: true };
            self.publish_update(now_ms, NeighbourUpdate { port: number, key: sender, info });
            if ours && message.is_request {
                self.glean(now_ms, number, sender, message.sender_mac);
            }
        }
        Ok(match (ours, message.is_request) {
            (true, true) => Received::Reply(Answer::Arp),
            (true, false) => Received::Consumed(Consumed::ArpReply),
            (false, _) => Received::Foreign(Foreign::ArpOther),
        })
    }

    /// Handles neighbour discovery: RFC 4861 7.2.
    fn on_discovery(&mut self, now_ms: u64, port: u8, header: Header, frame: &mut Packet<'_>) -> Fate {
        let packet = frame.bytes().get(header.len..).unwrap_or_default();
        if ndp::is_of_routers(packet) {
            return Ok(Received::Foreign(Foreign::Router));
        }
        let message = ndp::Message::read(packet)?;
        match message.is_solicitation {
            true => self.on_solicitation(now_ms, port, header, &message, frame),
            false => Ok(self.on_advertisement(now_ms, port, header, &message)),
        }
    }

    /// Handles a solicitation: RFC 4861 7.2.3 and 7.2.4.
    fn on_solicitation(
        &mut self,
        now_ms: u64,
        number: u8,
        header: Header,
        message: &ndp::Message,
        frame: &mut Packet<'_>,
    ) -> Fate {
        let Some(port) = self.ports.get(usize::from(number)) else { return Err(Dropped::Runt) };
        let (src, target) = (Key::v6(message.src), Key::v6(message.target));
        if !port.claims(target) {
            return Ok(Received::Foreign(Foreign::NdpOther));
        }
        if port.claims(src) {
            self.on_conflict(now_ms, number, src, message.mac.unwrap_or(header.src));
            return Ok(Received::Consumed(Consumed::Conflict));
        }
        let asks = (!message.src.is_unspecified()).then_some(message.src);
        let to =
            if asks.is_some() { message.mac.unwrap_or(header.src) } else { Mac::of_group(ndp::ALL_NODES) };
        let answer = ndp::advertisement(port.mac, message.target, asks);
        frame.resize(header.len + answer.len()).map_err(|_| Dropped::NoRoom)?;
        write_reply_header(frame.bytes_mut(), to, port.mac);
        crate::bytes::put(frame.bytes_mut(), header.len, &answer);
        match (asks, message.mac) {
            // RFC 4862 5.4.3: another host is about to take the address.
            (None, _) => self.note_conflict(number, target, header.src),
            (Some(_), Some(mac)) => {
                let info = LinkLayerInfo { mac: Some(mac), solicited: false, overrides: true };
                self.publish_update(now_ms, NeighbourUpdate { port: number, key: src, info });
                self.glean(now_ms, number, src, mac);
            }
            (Some(_), None) => {}
        }
        Ok(Received::Reply(Answer::Advertisement))
    }

    /// Handles an advertisement: RFC 4861 7.2.5.
    fn on_advertisement(
        &mut self,
        now_ms: u64,
        number: u8,
        header: Header,
        message: &ndp::Message,
    ) -> Received {
        let key = Key::v6(message.target);
        if self.ports.get(usize::from(number)).is_some_and(|p| p.claims(key)) {
            self.on_conflict(now_ms, number, key, message.mac.unwrap_or(header.src));
            return Received::Consumed(Consumed::Conflict);
        }
        let info =
            LinkLayerInfo { mac: message.mac, solicited: message.solicited, overrides: message.overrides };
        self.publish_update(now_ms, NeighbourUpdate { port: number, key, info });
        Received::Consumed(Consumed::Advertisement)
    }

    fn publish_update(&mut self, now_ms: u64, update: NeighbourUpdate) {
        self.learn(now_ms, update);
        if !self.shares {
            return;
        }
        if self.updates.len() >= UPDATES_MAX {
            self.updates.pop_front();
            self.stats.events.count(EtherEvent::UpdateLost);
        }
        self.updates.push_back(update);
    }

    fn learn(&mut self, now_ms: u64, update: NeighbourUpdate) {
        if self.neighbours.learn(now_ms, update.port, update.key, update.info) == MacChange::Moved {
            self.stats.events.count(EtherEvent::NeighbourMoved);
        }
    }

    /// Adds a host on the link that asked for one of our addresses.
    fn glean(&mut self, now_ms: u64, number: u8, key: Key, mac: Mac) {
        let Some(port) = self.ports.get(usize::from(number)) else { return };
        if port.is_on_link(key) && !is_local(key) && !self.neighbours.glean(now_ms, number, key, mac) {
            self.stats.events.count(EtherEvent::NotLearnt);
        }
    }

    fn on_conflict(&mut self, now_ms: u64, port: u8, key: Key, mac: Mac) {
        self.note_conflict(port, key, mac);
        self.announcements.defend(now_ms, port, key);
    }

    fn note_conflict(&mut self, port: u8, key: Key, mac: Mac) {
        self.stats.events.count(EtherEvent::Conflict);
        self.conflict = Some(Conflict { port: port.into(), address: key.address(), mac });
    }

    fn mac_of(&self, port: u8) -> Mac {
        self.ports.get(usize::from(port)).map_or_else(Mac::default, |p| p.mac)
    }
}

/// Checks for a link-local address. Packets are never sent to one unless it is a next hop, which has its own
/// entry.
fn is_local(key: Key) -> bool {
    matches!(key.address(), IpAddr::V6(a) if is_link_local(a))
}
