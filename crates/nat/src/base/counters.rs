//! Counters of the engine. At all times `rx == forwarded + passed + replied + dropped + held + redirected`.

use crate::base::redirect::NODES_MAX;
use core::ops::AddAssign;
use gatun_wire::DropReason;

/// Packets and their bytes (as received, from the IP header on).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, zerocopy::FromZeros)]
pub struct Count {
    /// Packets. A super-packet is one.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

impl AddAssign for Count {
    #[inline]
    fn add_assign(&mut self, other: Count) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

impl Count {
    /// Counts one packet.
    #[inline]
    pub fn one(bytes: usize) -> Count {
        Count { packets: 1, bytes: bytes as u64 }
    }

    /// Subtracts `other`.
    pub fn less(self, other: Count) -> Count {
        Count {
            packets: self.packets.saturating_sub(other.packets),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    /// Counts one more packet.
    #[inline]
    pub fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

/// Translated packets of a subscriber, a public address or a pool, in each direction. A hairpinned packet is
/// outbound for its sender and inbound for its receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, zerocopy::FromZeros)]
pub struct Traffic {
    /// Packets from inside.
    pub outbound: Count,
    /// Packets to the inside.
    pub inbound: Count,
}

/// Totals to which the fast path adds each packet, with the fields of [`Traffic`]. Packets and bytes are
/// apart: side by side, a compiler adds them as a vector, which takes more than twice the instructions.
#[derive(Clone, Copy, Debug, Default, zerocopy::FromZeros)]
pub(crate) struct TrafficTotals {
    /// Packets from inside, and to the inside; `bytes` has the same order.
    packets: [u64; 2],
    bytes: [u64; 2],
}

impl TrafficTotals {
    /// Counts one packet from inside.
    #[inline(always)]
    pub(crate) fn add_outbound(&mut self, bytes: usize) {
        self.packets[0] += 1;
        self.bytes[0] += bytes as u64;
    }

    /// Counts one packet to the inside.
    #[inline(always)]
    pub(crate) fn add_inbound(&mut self, bytes: usize) {
        self.packets[1] += 1;
        self.bytes[1] += bytes as u64;
    }

    /// Converts the totals to [`Traffic`].
    pub(crate) fn traffic(&self) -> Traffic {
        let [outbound, inbound] = self.packets;
        let [outbound_bytes, inbound_bytes] = self.bytes;
        Traffic {
            outbound: Count { packets: outbound, bytes: outbound_bytes },
            inbound: Count { packets: inbound, bytes: inbound_bytes },
        }
    }
}

impl AddAssign<Traffic> for TrafficTotals {
    fn add_assign(&mut self, Traffic { outbound, inbound }: Traffic) {
        self.packets[0] += outbound.packets;
        self.packets[1] += inbound.packets;
        self.bytes[0] += outbound.bytes;
        self.bytes[1] += inbound.bytes;
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Traffic) {
        self.outbound += other.outbound;
        self.inbound += other.inbound;
    }
}

impl Traffic {
    /// Sum of both directions.
    pub fn total(&self) -> Count {
        let mut total = self.outbound;
        total += self.inbound;
        total
    }
}

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Direction {
    /// Packets from IPv6 to IPv4.
    SixToFour = 0,
    /// Packets from IPv4 to IPv6.
    FourToSix = 1,
    /// Packets from IPv4 to IPv4, in either direction.
    FourToFour = 2,
}

impl Direction {
    /// Number of variants.
    pub const COUNT: usize = 3;
}

/// The counters of one engine.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Packets given to the engine.
    pub rx: Count,
    /// Packets translated and sent, hairpinned ones included. A packet that left as several fragments counts
    /// once.
    pub forwarded: Count,
    /// Packets that are not for the translator.
    pub passed: Count,
    /// Packets answered with an ICMP error or an echo reply. The reason for an error is also in `drops`.
    pub replied: Count,
    /// Packets dropped without an answer.
    pub dropped: Count,
    /// Gauge: packets held at this moment.
    pub held: u64,
    /// Packets sent to the node of the cluster that translates them. A packet that left as several fragments
    /// counts once.
    pub redirected: Count,
    /// Same as `redirected`, by the index of the node.
    pub redirected_to: [Count; NODES_MAX],
    /// Refused packets by direction and reason. Their sum is `dropped` plus the errors in `replied`.
    pub drops: [[Count; DropReason::COUNT]; Direction::COUNT],
    /// Translated packets by direction; their sum is `forwarded`.
    pub translated: [Count; Direction::COUNT],
    /// Part of `forwarded`: hairpinned packets, from an inside host to an inside host.
    pub hairpinned: Count,
    /// Part of `rx` and of `forwarded`: packets that a fast path outside the engine has translated.
    pub offloaded: Count,
    /// Part of `replied`: echo replies.
    pub echo_replies: u64,
    /// ICMP errors sent by the translator.
    pub icmp_errors_sent: u64,
    /// ICMP errors not sent because all errors together reached `icmp.rate`.
    pub icmp_errors_limited: u64,
    /// ICMP errors not sent because their receiver reached `icmp.rate_per_source`.
    pub icmp_errors_limited_per_source: u64,
    /// ICMP errors not sent because they are switched off or must not answer such a packet.
    pub icmp_errors_suppressed: u64,
    /// Further packets made by the engine when it fragments a packet.
    pub fragments_made: u64,
    /// Probes sent to established TCP connections whose lifetime expired (RFC 6146 3.5.2.2).
    pub probes_sent: u64,
    /// Sessions ended on request, before they expired.
    pub sessions_cleared: u64,
    /// Messages that reported a path MTU below 1260 bytes to an IPv4 host.
    pub path_mtus_learnt: u64,
    /// Hosts evicted from the path MTU table because `limits.path_mtus_max` was reached.
    pub path_mtus_evicted: u64,
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            rx: Count::default(),
            forwarded: Count::default(),
            passed: Count::default(),
            replied: Count::default(),
            dropped: Count::default(),
            held: 0,
            redirected: Count::default(),
            redirected_to: [Count::default(); NODES_MAX],
            drops: [[Count::default(); DropReason::COUNT]; Direction::COUNT],
            translated: [Count::default(); Direction::COUNT],
            hairpinned: Count::default(),
            offloaded: Count::default(),
            echo_replies: 0,
            icmp_errors_sent: 0,
            icmp_errors_limited: 0,
            icmp_errors_limited_per_source: 0,
            icmp_errors_suppressed: 0,
            fragments_made: 0,
            probes_sent: 0,
            sessions_cleared: 0,
            path_mtus_learnt: 0,
            path_mtus_evicted: 0,
        }
    }
}

impl Counters {
    /// Counts one translated packet. [`Counters::end_burst`] updates [`Counters::forwarded`].
    #[inline]
    pub(crate) fn add_translated(&mut self, direction: Direction, bytes: usize, hairpinned: bool) {
        if let Some(count) = self.translated.get_mut(direction as usize) {
            count.add(bytes);
        }
        if hairpinned {
            self.hairpinned.add(bytes);
        }
    }

    /// Counts packets that a fast path outside the engine has received and translated.
    pub(crate) fn credit(&mut self, direction: Direction, count: Count) {
        self.rx += count;
        self.forwarded += count;
        self.offloaded += count;
        if let Some(translated) = self.translated.get_mut(direction as usize) {
            *translated += count;
        }
    }

    /// Packets that a fast path outside the engine has received: translated or dropped.
    pub fn received_outside(&self) -> u64 {
        let dropped = self.drops.iter().filter_map(|drops| drops.get(DropReason::KernelWrite as usize));
        self.offloaded.packets + dropped.map(|count| count.packets).sum::<u64>()
    }

    /// Counts packets that were not forwarded.
    pub(crate) fn add_dropped(&mut self, direction: Direction, reason: DropReason, count: Count) {
        let by_reason = self.drops.get_mut(direction as usize);
        if let Some(all) = by_reason.and_then(|by_reason| by_reason.get_mut(reason as usize)) {
            *all += count;
        }
    }

    /// Counts the bytes of a packet as it is received; [`end_burst`](Self::end_burst) counts the packet.
    #[inline(always)]
    pub(crate) fn receive(&mut self, bytes: usize) {
        self.rx.bytes += bytes as u64;
    }

    /// Counts the packets received and the sum of those translated, once for the whole burst. Counting them
    /// for each packet would cost more loads and stores.
    pub(crate) fn end_burst(&mut self, packets: usize) {
        self.rx.packets += packets as u64;
        self.forwarded = Count::default();
        self.translated.iter().for_each(|&count| self.forwarded += count);
    }

    /// Counts a packet that is sent to another node.
    #[inline]
    pub(crate) fn add_redirected(&mut self, node: u8, bytes: usize) {
        self.redirected.add(bytes);
        if let Some(count) = self.redirected_to.get_mut(usize::from(node)) {
            count.add(bytes);
        }
    }

    /// Packets refused with an ICMP error or silently, as the reasons in `drops` count them.
    pub fn refused(&self) -> Count {
        let mut all = Count::default();
        self.drops.iter().flatten().for_each(|&count| all += count);
        all
    }

    /// Part of `replied`: packets refused with an ICMP error.
    pub fn rejected(&self) -> Count {
        self.refused().less(self.dropped)
    }

    /// Part of `replied`: echo requests to the translator.
    pub fn echoes(&self) -> Count {
        self.replied.less(self.rejected())
    }

    /// Returns whether every received packet has exactly one fate.
    pub fn conserved(&self) -> bool {
        self.rx.packets
            == self.forwarded.packets
                + self.passed.packets
                + self.replied.packets
                + self.dropped.packets
                + self.held
                + self.redirected.packets
    }
}
