//! What is counted: a fate for every frame, and what happened besides.

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

/// Counters by kind.
pub trait Count<Kind> {
    /// One more.
    fn count(&mut self, what: Kind);
    /// How many.
    fn of(&self, what: Kind) -> u64;
}

counted! {
    /// What a received frame was answered with, in its own buffer.
    Answer {
        Arp, "arp_reply", "An ARP request for an address of this port, answered.";
        Advertisement, "neighbour_advertisement", "A neighbour solicitation for an address of this port, answered.";
        Echo4, "echo_reply4", "A ping to an IPv4 address of this port, answered.";
        Echo6, "echo_reply6", "A ping to an IPv6 address of this port, answered.";
    }
}

counted! {
    /// What a received frame told that was for this port alone, and needs no answer in its place.
    Taken {
        ArpReply, "arp_reply_taken", "An ARP reply to this port.";
        Advertisement, "neighbour_advertisement_taken", "A neighbour advertisement to this port, or to all hosts.";
        MulticastQuery, "mld_query", "A query of a multicast router or snooping switch: this port's groups are reported soon.";
        Conflict, "conflict_taken", "Somebody else says that it has an address of this port: see address_conflict.";
    }
}

counted! {
    /// Why a received frame is none of ours: the backend may pass it to the kernel.
    Foreign {
        OtherMac, "other_mac", "To another device's address: the device is promiscuous, or a switch floods.";
        OtherVlan, "other_vlan", "With VLAN tags that no port of this device has, or without those that it should have.";
        OtherType, "other_ethertype", "Neither IPv4, IPv6 nor ARP: LLDP, spanning tree and the like.";
        Group, "group", "An IP packet to a multicast or broadcast address: only unicast is translated.";
        OwnAddress, "own_address", "To an address of this port, but no ping: nothing listens here.";
        ArpOther, "arp_other", "ARP between others, or about an address that is not this port's.";
        NdpOther, "ndp_other", "Neighbour discovery about an address that is not this port's.";
        Router, "router_message", "A router's advertisement, redirect or its solicitation: not obeyed and not answered.";
    }
}

counted! {
    /// Why a received frame was dropped.
    Dropped {
        Runt, "runt", "Shorter than its Ethernet header and tags.";
        SourceMac, "source_mac", "From a multicast or broadcast address, or from none: no device sends so.";
        Looped, "looped", "From this port's own address: a loop, or another device that has the same.";
        ArpMalformed, "arp_malformed", "ARP that is too short, not for IPv4 on Ethernet, or neither request nor reply.";
        ArpAddress, "arp_address", "ARP whose sender has an address that no host may have.";
        NdpHopLimit, "ndp_hop_limit", "Neighbour discovery with a hop limit below 255: it has come through a router (RFC 4861 7.1).";
        NdpChecksum, "ndp_checksum", "Neighbour discovery, or a multicast query, with a wrong checksum.";
        NdpMalformed, "ndp_malformed", "Neighbour discovery that is too short, has another code or impossible addresses (RFC 4861 7.1).";
        NdpOptions, "ndp_options", "Neighbour discovery with an option of length zero, one that is cut off, or too many of them.";
        MldMalformed, "mld_malformed", "A multicast query that is too short, or not from the link (RFC 3810 5.1.14, 6.2).";
        EchoMalformed, "echo_malformed", "A ping to this port with wrong lengths, checksums or addresses.";
        NoRoom, "no_room", "The buffer has no room behind the frame for its answer: a backend's defect.";
    }
}

counted! {
    /// Why a packet that was to be sent was dropped.
    Unsent {
        NotIp, "not_ip", "Neither IPv4 nor IPv6, or cut off.";
        NoRoute, "unrouted", "No port has a route to the destination: add one, for example a default route.";
        ToOurselves, "to_ourselves", "To an address of a port, or one that is answered for there: it would come back.";
        Broadcast, "broadcast", "To the broadcast address of a port's network (RFC 2644).";
        TooLarge, "too_large", "Larger than the port's MTU: the engine's MTU for that side is too high.";
        NoHeadroom, "no_room_in_front", "No room in front for the Ethernet header: a backend's defect.";
        NeighbourFailed, "neighbour_failed", "The next hop has not answered lately; it is asked again after a while.";
        NeighboursFull, "neighbours_full", "As many neighbours as the limit are in use.";
        UnresolvedFull, "unresolved_full", "As many neighbours as the limit are being asked for: a scan, most likely.";
        Unholdable, "unholdable", "The next hop is being asked for, and the packet is too large to be kept (a super-packet).";
        WaitingOverflow, "waiting_overflow", "Was kept for a next hop that had not yet answered, and gave way to a later packet.";
        WaitingFailed, "waiting_failed", "Was kept for a next hop that did not answer.";
    }
}

counted! {
    /// What happened besides the fates of frames.
    Note {
        ArpRequest, "arp_requests_sent", "ARP requests for next hops.";
        Solicitation, "solicitations_sent", "Neighbour solicitations for next hops.";
        Announcement, "announcements_sent", "Gratuitous ARP and unsolicited advertisements of this host's addresses.";
        Probe, "probes_sent", "Questions at start whether somebody else has this host's addresses.";
        GroupReport, "mld_reports_sent", "Reports of multicast groups, for switches that snoop.";
        Conflict, "address_conflict", "Somebody else says that it has an address of a port, or is about to take it: see the last one's MAC.";
        Defence, "address_defended", "Announcements because of a conflict, at most one in ten seconds on a port (RFC 5227 2.4).";
        NeighbourMoved, "neighbour_moved", "A neighbour has another MAC than before: a take-over, or spoofing.";
        NeighbourFailed, "neighbour_lost", "A neighbour did not answer when asked.";
        NeighbourEvicted, "neighbour_evicted", "A neighbour that was not in use gave its place to another.";
        NotLearnt, "neighbour_not_learnt", "Somebody who asked for this port was not noted: as many neighbours as the limit are in use.";
        HeardLost, "heard_lost", "News of a neighbour for other workers that was not fetched in time.";
    }
}

/// What one [`Ether`](crate::Ether) has counted. Always, with `sum` over an array:
///
/// ```text
/// received = packets + sum(answers) + sum(taken) + sum(foreign) + sum(dropped)
/// to_send  = sent + released + waiting + sum(unsent)
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames received.
    pub received: u64,
    /// Of these: IP packets for the engine.
    pub packets: u64,
    /// Answered, by [`Answer`].
    pub answers: [u64; Answer::COUNT],
    /// Understood and done with, by [`Taken`].
    pub taken: [u64; Taken::COUNT],
    /// None of ours, by [`Foreign`].
    pub foreign: [u64; Foreign::COUNT],
    /// Dropped, by [`Dropped`].
    pub dropped: [u64; Dropped::COUNT],
    /// Packets that were to be sent.
    pub to_send: u64,
    /// Of these: sent at once.
    pub sent: u64,
    /// Kept until the next hop was known, then sent.
    pub released: u64,
    /// Kept at present.
    pub waiting: u64,
    /// Dropped, by [`Unsent`].
    pub unsent: [u64; Unsent::COUNT],
    /// What happened besides, by [`Note`].
    pub notes: [u64; Note::COUNT],
}

impl Stats {
    /// Whether every frame has one fate.
    pub fn add_up(&self) -> bool {
        let sum = |counters: &[u64]| counters.iter().sum::<u64>();
        let fates = sum(&self.answers) + sum(&self.taken) + sum(&self.foreign) + sum(&self.dropped);
        self.received == self.packets + fates
            && self.to_send == self.sent + self.released + self.waiting + sum(&self.unsent)
    }

    /// Every counter with its name and its sentence.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let flat = [
            ("ether_received", "Frames received.", self.received),
            ("ether_packets", "Frames whose IP packet went to the engine.", self.packets),
            ("ether_to_send", "Packets to be sent.", self.to_send),
            ("ether_sent", "Packets sent at once.", self.sent),
            ("ether_released", "Packets sent when their next hop was known.", self.released),
            ("ether_waiting", "Packets kept at present until their next hop is known.", self.waiting),
        ];
        macro_rules! rows {
            ($kind:ident, $counters:expr) => {
                $kind::ALL.iter().zip($counters).map(|(kind, n)| (kind.name(), kind.help(), n))
            };
        }
        flat.into_iter()
            .chain(rows!(Answer, self.answers))
            .chain(rows!(Taken, self.taken))
            .chain(rows!(Foreign, self.foreign))
            .chain(rows!(Dropped, self.dropped))
            .chain(rows!(Unsent, self.unsent))
            .chain(rows!(Note, self.notes))
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
        add(&mut self.taken, &other.taken);
        add(&mut self.foreign, &other.foreign);
        add(&mut self.dropped, &other.dropped);
        add(&mut self.unsent, &other.unsent);
        add(&mut self.notes, &other.notes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_every_counter_has_a_sentence() {
        let stats = Stats::default();
        let names: BTreeSet<_> = stats.rows().map(|(name, ..)| name).collect();
        assert_eq!(names.len(), stats.rows().count());
        // They stand beside the engine's in tables.
        assert!(gatun_wire::DropReason::ALL.iter().all(|reason| !names.contains(reason.name())));
        for (name, help, _) in stats.rows() {
            assert!(help.ends_with('.'), "{name}: {help}");
        }
    }
}
