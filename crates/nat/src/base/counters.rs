//! Counters of the engine. At all times `rx == forwarded + passed + replied + dropped + held`.

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
    /// One packet.
    #[inline]
    pub fn one(bytes: usize) -> Count {
        Count { packets: 1, bytes: bytes as u64 }
    }

    /// The rest without `other`.
    pub fn less(self, other: Count) -> Count {
        Count {
            packets: self.packets.saturating_sub(other.packets),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    /// One more packet.
    #[inline]
    pub fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

/// Packets of a subscriber, a public address or a pool that were translated, each way. One that is turned round is
/// outbound for its sender and inbound for its receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, zerocopy::FromZeros)]
pub struct Traffic {
    /// From inside.
    pub outbound: Count,
    /// To the inside.
    pub inbound: Count,
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Traffic) {
        self.outbound += other.outbound;
        self.inbound += other.inbound;
    }
}

impl Traffic {
    /// Both ways together.
    pub fn total(&self) -> Count {
        let mut total = self.outbound;
        total += self.inbound;
        total
    }
}

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Direction {
    /// From IPv6 to IPv4.
    SixToFour = 0,
    /// From IPv4 to IPv6.
    FourToSix = 1,
    /// From IPv4 to IPv4, either way.
    FourToFour = 2,
}

impl Direction {
    /// Their number.
    pub const COUNT: usize = 3;
}

/// The counters of one engine.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Packets given to the engine.
    pub rx: Count,
    /// Translated and sent on, hairpinned ones too. A packet that left as several fragments is one.
    pub forwarded: Count,
    /// Not for the translator.
    pub passed: Count,
    /// Answered: with an ICMP error that was sent (the reason is in `drops` too) or an echo reply.
    pub replied: Count,
    /// Dropped without an answer.
    pub dropped: Count,
    /// Kept at this moment: a gauge.
    pub held: u64,
    /// By direction and reason. Their sum is `dropped` and those of `replied` that are errors.
    pub drops: [[Count; DropReason::COUNT]; Direction::COUNT],
    /// By direction: `forwarded`, split.
    pub translated: [Count; Direction::COUNT],
    /// Of `forwarded`: turned round inside, from an inside host to an inside host.
    pub hairpinned: Count,
    /// Of `replied`: echo replies.
    pub echo_replies: u64,
    /// ICMP errors made and sent.
    pub icmp_errors_sent: u64,
    /// ICMP errors not made, because all together reached `icmp.rate`.
    pub icmp_errors_limited: u64,
    /// ICMP errors not made, because their receiver reached `icmp.rate_per_source`.
    pub icmp_errors_limited_per_source: u64,
    /// ICMP errors not made, because they are switched off or may not answer such a packet.
    pub icmp_errors_suppressed: u64,
    /// Further packets made by the engine: fragments of a packet that was cut.
    pub fragments_made: u64,
    /// Probes sent to established TCP connections whose time was up (RFC 6146 3.5.2.2).
    pub probes_sent: u64,
    /// Sessions ended on request, before their time.
    pub sessions_cleared: u64,
    /// Messages that told of a path to an IPv4 host that carries less than 1260 bytes.
    pub path_mtus_learnt: u64,
    /// Hosts that were forgotten for another, because `limits.path_mtus_max` was reached.
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
            drops: [[Count::default(); DropReason::COUNT]; Direction::COUNT],
            translated: [Count::default(); Direction::COUNT],
            hairpinned: Count::default(),
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
    /// One more packet translated. [`Counters::forwarded`] follows at the end of the burst.
    #[inline]
    pub(crate) fn add_translated(&mut self, direction: Direction, bytes: usize, hairpinned: bool) {
        if let Some(count) = self.translated.get_mut(direction as usize) {
            count.add(bytes);
        }
        if hairpinned {
            self.hairpinned.add(bytes);
        }
    }

    /// Packets that were not forwarded.
    pub(crate) fn add_dropped(&mut self, direction: Direction, reason: DropReason, count: Count) {
        let by_reason = self.drops.get_mut(direction as usize);
        if let Some(all) = by_reason.and_then(|by_reason| by_reason.get_mut(reason as usize)) {
            *all += count;
        }
    }

    /// Counts what a burst has in common: `rx` packets received, and the sum of those translated. Packet
    /// by packet it would be two more loads and stores.
    pub(crate) fn end_burst(&mut self, rx: Count) {
        self.rx += rx;
        self.forwarded = Count::default();
        self.translated.iter().for_each(|&count| self.forwarded += count);
    }

    /// Packets refused: with an ICMP error or silently, as the reasons in `drops` count them.
    pub fn refused(&self) -> Count {
        let mut all = Count::default();
        self.drops.iter().flatten().for_each(|&count| all += count);
        all
    }

    /// Of `replied`: packets refused with an ICMP error.
    pub fn rejected(&self) -> Count {
        self.refused().less(self.dropped)
    }

    /// Of `replied`: echo requests to the translator.
    pub fn echoes(&self) -> Count {
        self.replied.less(self.rejected())
    }

    /// Whether every received packet has exactly one fate.
    pub fn conserved(&self) -> bool {
        self.rx.packets
            == self.forwarded.packets
                + self.passed.packets
                + self.replied.packets
                + self.dropped.packets
                + self.held
    }
}
