//! Counters: one fate for every frame, and further events.

macro_rules! counted {
    ($(#[$doc:meta])* $kind:ident { $($variant:ident, $name:literal, $help:literal;)* }) => {
        gatun_wire::counted_kinds! { $(#[$doc])* $kind { $($variant, $name, $help;)* } }

        impl Count<$kind> for [u64; $kind::COUNT] {
            fn count(&mut self, what: $kind) {
                if let Some(n) = self.get_mut(what as usize) {
                    *n = n.wrapping_add(1);
                }
            }

            fn of(&self, what: $kind) -> u64 {
                self.get(what as usize).copied().unwrap_or(0)
            }
        }
    };
}

/// Counters indexed by kind.
pub trait Count<Kind> {
    /// Adds one.
    fn count(&mut self, what: Kind);
    /// Value of the counter.
    fn of(&self, what: Kind) -> u64;
}

counted! {
    /// Replies made from a received frame, in its own buffer.
    Answer {
        Arp, "arp_reply", "Answered an ARP request for an address of this port.";
        Advertisement, "neighbour_advertisement", "Answered a neighbour solicitation for an address of this port.";
        Echo4, "echo_reply4", "Answered a ping to an IPv4 address of this port.";
        Echo6, "echo_reply6", "Answered a ping to an IPv6 address of this port.";
    }
}

counted! {
    /// Received frames that were for this port itself and need no reply in the same buffer.
    Consumed {
        ArpReply, "arp_reply_received", "An ARP reply to this port.";
        Advertisement, "neighbour_advertisement_received", "A neighbour advertisement to this port, or to all hosts.";
        MulticastQuery, "mld_query", "A query from a multicast router or snooping switch: Gatun reports this port's groups soon.";
        Conflict, "conflict_received", "Another host claims an address of this port: see address_conflict.";
    }
}

counted! {
    /// Reasons why a received frame is not for us. The backend may pass it to the kernel.
    Foreign {
        OtherMac, "other_mac", "A frame to another device's MAC: the device is promiscuous, or a switch floods.";
        OtherVlan, "other_vlan", "The VLAN tags match no port of this device.";
        OtherType, "other_ethertype", "Neither IPv4, IPv6 nor ARP: for example LLDP or spanning tree.";
        Group, "group", "An IP packet to a multicast or broadcast address: only unicast is translated.";
        OwnAddress, "own_address", "A packet to an address of this port that is not a ping: Gatun has no other service there.";
        ArpOther, "arp_other", "ARP between other hosts, or about an address that is not this port's.";
        NdpOther, "ndp_other", "Neighbour discovery about an address that is not this port's.";
        Router, "router_message", "A router advertisement, redirect or router solicitation: Gatun neither obeys nor answers it.";
    }
}

counted! {
    /// Reasons why a received frame was dropped.
    Dropped {
        Runt, "runt", "The frame is shorter than its Ethernet header and tags.";
        SourceMac, "source_mac", "The source MAC is multicast, broadcast or zero, which is invalid.";
        Looped, "looped", "The source MAC is this port's own: a loop, or another device with the same MAC.";
        ArpMalformed, "arp_malformed", "The ARP message is too short, not for IPv4 on Ethernet, or neither a request nor a reply.";
        ArpAddress, "arp_address", "The sender address of the ARP message is one that no host may have.";
        NdpHopLimit, "ndp_hop_limit", "The hop limit of neighbour discovery is below 255: it came through a router (RFC 4861 7.1).";
        NdpChecksum, "ndp_checksum", "The checksum of neighbour discovery or of a multicast query is wrong.";
        NdpMalformed, "ndp_malformed", "Neighbour discovery is too short, has a nonzero code or invalid addresses (RFC 4861 7.1).";
        NdpOptions, "ndp_options", "Neighbour discovery has an option of length zero, a truncated option, or too many options.";
        MldMalformed, "mld_malformed", "The multicast query is too short, or not from the link (RFC 3810 5.1.14, 6.2).";
        EchoMalformed, "echo_malformed", "A ping to this port has wrong lengths, checksums or addresses.";
        NoRoom, "no_room", "The buffer has no room after the frame for its reply. This is a defect of the backend: please report it.";
    }
}

counted! {
    /// Reasons why a packet to send was dropped.
    Unsent {
        NotIp, "not_ip", "The packet is neither IPv4 nor IPv6, or its header is truncated.";
        NoRoute, "unrouted", "No port has a route to the destination: add one, for example a default route.";
        ToOurselves, "to_ourselves", "The destination is an address of a port, or one that the port answers for: the packet would come back.";
        Broadcast, "broadcast", "The destination is the broadcast address of a port's network (RFC 2644).";
        TooLarge, "too_large", "The packet is larger than the port's MTU: lower the engine's MTU for that side.";
        NoHeadroom, "no_room_in_front", "The buffer has no room for the Ethernet header. This is a defect of the backend: please report it.";
        NeighbourFailed, "neighbour_failed", "The next hop did not answer. Gatun tries again later.";
        NeighboursFull, "neighbours_full", "The neighbour table is full, and all its entries are in use.";
        UnresolvedFull, "unresolved_full", "Too many neighbours are being resolved at once. Most likely this is a scan.";
        Unholdable, "unholdable", "The next hop is being resolved, and the packet is too large to wait (a super-packet).";
        WaitingOverflow, "waiting_overflow", "The packet waited for its next hop, and a later packet replaced it.";
        WaitingFailed, "waiting_failed", "The packet waited for a next hop that did not answer.";
    }
}

counted! {
    /// Events besides the fates of frames.
    EtherEvent {
        ArpRequest, "arp_requests_sent", "ARP requests for next hops.";
        Solicitation, "solicitations_sent", "Neighbour solicitations for next hops.";
        Announcement, "announcements_sent", "Gratuitous ARP and unsolicited advertisements of this host's addresses.";
        Probe, "probes_sent", "Probes at start that check whether another host has this host's addresses.";
        GroupReport, "mld_reports_sent", "Reports of multicast groups, for snooping switches.";
        Conflict, "address_conflict", "Another host has or wants an address of a port; the MAC of the last one is shown.";
        Defence, "address_defended", "Announcements that defend an address in a conflict, at most one in ten seconds per port (RFC 5227 2.4).";
        NeighbourMoved, "neighbour_moved", "The MAC of a neighbour changed: a failover, or spoofing.";
        NeighbourFailed, "neighbour_lost", "A neighbour did not answer.";
        NeighbourEvicted, "neighbour_evicted", "An unused neighbour was evicted for another one.";
        NotLearnt, "neighbour_not_learnt", "A host that asked for this port was not added: the neighbour table is full.";
        UpdateLost, "neighbour_updates_lost", "A neighbour update for other workers was lost: they did not fetch it in time.";
    }
}

/// Counters of one [`Ether`](crate::Ether). With `sum` over an array, always:
///
/// ```text
/// received = packets + sum(answers) + sum(taken) + sum(foreign) + sum(dropped)
/// to_send  = sent + released + waiting + sum(unsent)
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames received.
    pub received: u64,
    /// Received frames whose IP packet went to the engine.
    pub packets: u64,
    /// Answered, by [`Answer`].
    pub answers: [u64; Answer::COUNT],
    /// Consumed, by [`Consumed`].
    pub consumed: [u64; Consumed::COUNT],
    /// Received frames that are not for us, by [`Foreign`].
    pub foreign: [u64; Foreign::COUNT],
    /// Dropped, by [`Dropped`].
    pub dropped: [u64; Dropped::COUNT],
    /// Packets to send.
    pub to_send: u64,
    /// Packets to send that were sent immediately.
    pub sent: u64,
    /// Sent after waiting for the next hop.
    pub released: u64,
    /// Waiting at present.
    pub waiting: u64,
    /// Dropped, by [`Unsent`].
    pub unsent: [u64; Unsent::COUNT],
    /// Further events, by [`EtherEvent`].
    pub events: [u64; EtherEvent::COUNT],
}

impl Stats {
    /// Checks that every frame has exactly one fate.
    pub fn add_up(&self) -> bool {
        let sum = |counters: &[u64]| counters.iter().sum::<u64>();
        let fates = sum(&self.answers) + sum(&self.consumed) + sum(&self.foreign) + sum(&self.dropped);
        self.received == self.packets + fates
            && self.to_send == self.sent + self.released + self.waiting + sum(&self.unsent)
    }

    /// All counters with name and help text.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let flat = [
            ("ether_received", "Frames received.", self.received),
            ("ether_packets", "Frames whose IP packet went to the engine.", self.packets),
            ("ether_to_send", "Packets to send.", self.to_send),
            ("ether_sent", "Packets sent immediately.", self.sent),
            ("ether_released", "Packets sent after waiting for their next hop.", self.released),
            ("ether_waiting", "Packets that are waiting for their next hop.", self.waiting),
        ];
        macro_rules! rows {
            ($kind:ident, $counters:expr) => {
                $kind::ALL.iter().zip($counters).map(|(kind, n)| (kind.name(), kind.help(), n))
            };
        }
        flat.into_iter()
            .chain(rows!(Answer, self.answers))
            .chain(rows!(Consumed, self.consumed))
            .chain(rows!(Foreign, self.foreign))
            .chain(rows!(Dropped, self.dropped))
            .chain(rows!(Unsent, self.unsent))
            .chain(rows!(EtherEvent, self.events))
    }
}

impl core::ops::AddAssign<&Stats> for Stats {
    fn add_assign(&mut self, other: &Stats) {
        fn add(mine: &mut [u64], theirs: &[u64]) {
            mine.iter_mut().zip(theirs).for_each(|(a, b)| *a = a.wrapping_add(*b));
        }
        self.received += other.received;
        self.packets += other.packets;
        self.to_send += other.to_send;
        self.sent += other.sent;
        self.released += other.released;
        self.waiting += other.waiting;
        add(&mut self.answers, &other.answers);
        add(&mut self.consumed, &other.consumed);
        add(&mut self.foreign, &other.foreign);
        add(&mut self.dropped, &other.dropped);
        add(&mut self.unsent, &other.unsent);
        add(&mut self.events, &other.events);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_every_counter_has_a_help_text() {
        let stats = Stats::default();
        let names: BTreeSet<_> = stats.rows().map(|(name, ..)| name).collect();
        assert_eq!(names.len(), stats.rows().count());
        // They are shown next to the engine's counters in tables.
        assert!(gatun_wire::DropReason::ALL.iter().all(|reason| !names.contains(reason.name())));
        for (name, help, _) in stats.rows() {
            assert!(help.ends_with('.'), "{name}: {help}");
        }
    }
}
