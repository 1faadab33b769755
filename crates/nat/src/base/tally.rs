//! Packet counters of each instance.
//!
//! Every packet with a final verdict is counted in one row: that of its instance. The row for unattributed
//! packets counts packets of no instance, and packets whose instance cannot be determined. So over all rows,
//! `outbound + inbound + passed + echoes + drops`, plus `held`, equals the packets received.
//!
//! The fast path counts a packet and its bytes in two words, in the slot that the session record names. The
//! rows and totals get the sums once a burst. That step visits each instance: with a hundred of them, it
//! costs some six instructions a packet.

use crate::base::attribution::{Account, Attribution};
use crate::base::counters::{Count, Counters, Direction, Traffic};
use crate::base::plan::Plan;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use gatun_wire::DropReason;

/// Slots of stateful and stateless instances: instance numbers are bytes, and there are two directions.
const SLOTS: usize = 512;

/// Kind of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceKind {
    /// Stateful, IPv6 inside (RFC 6146).
    Nat64,
    /// Stateful, private IPv4 inside.
    Nat44,
    /// Stateless (RFC 7915).
    Siit,
}

impl InstanceKind {
    /// Name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            InstanceKind::Nat64 => "nat64",
            InstanceKind::Nat44 => "nat44",
            InstanceKind::Siit => "siit",
        }
    }

    /// Direction of packets from inside, and of packets to the inside.
    fn directions(self) -> [Direction; 2] {
        match self {
            InstanceKind::Nat64 | InstanceKind::Siit => [Direction::SixToFour, Direction::FourToSix],
            InstanceKind::Nat44 => [Direction::FourToFour; 2],
        }
    }
}

/// Packets of one instance, or of none. A super-packet counts once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceCounters {
    /// Packets translated and sent from inside; for a stateless instance, from IPv6.
    pub outbound: Count,
    /// Packets translated and sent to the inside; for a stateless instance, from IPv4.
    pub inbound: Count,
    /// Part of `outbound`: packets hairpinned to an inside host of this instance or another.
    pub hairpinned: Count,
    /// Packets passed unchanged.
    pub passed: Count,
    /// Answered echo requests to the translator itself.
    pub echoes: Count,
    /// Packets not forwarded, by reason, with or without an ICMP error.
    pub drops: [Count; DropReason::COUNT],
}

impl Default for InstanceCounters {
    fn default() -> Self {
        InstanceCounters {
            outbound: Count::default(),
            inbound: Count::default(),
            hairpinned: Count::default(),
            passed: Count::default(),
            echoes: Count::default(),
            drops: [Count::default(); DropReason::COUNT],
        }
    }
}

impl InstanceCounters {
    /// Sum of all packets.
    pub fn all(&self) -> Count {
        let mut all = self.dropped();
        [self.outbound, self.inbound, self.passed, self.echoes].into_iter().for_each(|count| all += count);
        all
    }

    /// Packets that were not forwarded.
    pub fn dropped(&self) -> Count {
        let mut all = Count::default();
        self.drops.iter().for_each(|&count| all += count);
        all
    }

    /// Adds the counters of another worker.
    pub fn add(&mut self, other: &InstanceCounters) {
        self.outbound += other.outbound;
        self.inbound += other.inbound;
        self.hairpinned += other.hairpinned;
        self.passed += other.passed;
        self.echoes += other.echoes;
        self.drops.iter_mut().zip(&other.drops).for_each(|(a, b)| *a += *b);
    }
}

/// Number of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row(u16);

/// Row and direction where the fast path counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u16);

impl Slot {
    /// Slot of packets from the inside of a stateful instance.
    #[inline(always)]
    pub(crate) fn outbound(instance: u8) -> Slot {
        Slot(u16::from(instance) << 1)
    }

    /// Slot of packets to the inside of a stateful instance.
    #[inline(always)]
    pub(crate) fn inbound(instance: u8) -> Slot {
        Slot(u16::from(instance) << 1 | 1)
    }

    /// Stateful instance to whose inside the packets go, if any.
    pub(crate) fn inside_of(self) -> Option<u8> {
        let is_inbound = usize::from(self.0) < SLOTS && self.0 & 1 == 1;
        is_inbound.then_some((self.0 >> 1) as u8)
    }

    /// Slot of packets from IPv6 of a stateless instance.
    #[inline(always)]
    pub(crate) fn stateless6(instance: u8) -> Slot {
        Slot(SLOTS as u16 | u16::from(instance) << 1)
    }

    /// Slot of packets from IPv4 of a stateless instance.
    #[inline(always)]
    pub(crate) fn stateless4(instance: u8) -> Slot {
        Slot(SLOTS as u16 | u16::from(instance) << 1 | 1)
    }
}

/// Kind and name of an instance.
pub(crate) struct Identity {
    pub(crate) kind: InstanceKind,
    pub(crate) name: Arc<str>,
}

/// Rows of one engine: stateful instances by number, then stateless ones, then the row for unattributed
/// packets.
pub(crate) struct Tally {
    identities: Vec<Identity>,
    rows: Vec<InstanceCounters>,
    /// Row for packets of no instance.
    unattributed: InstanceCounters,
    first_siit: u16,
    /// Indexed by pool: the instance that alone uses it, or no instance.
    of_pool: Vec<Row>,
    burst: BurstCounts,
}

/// Counts of the current burst, indexed by slot. Packets and bytes are apart, so that each is added to
/// in place.
struct BurstCounts {
    packets: [u32; 2 * SLOTS],
    bytes: [u32; 2 * SLOTS],
}

impl Tally {
    pub(crate) fn new(plan: &Plan) -> Tally {
        let of = |kind| move |name: &alloc::string::String| Identity { kind, name: name.as_str().into() };
        let of64 = plan.nat64.iter().map(|n| &n.name).map(of(InstanceKind::Nat64));
        let of44 = plan.nat44.iter().map(|n| &n.name).map(of(InstanceKind::Nat44));
        let stateless = plan.siit.iter().map(|s| &s.name).map(of(InstanceKind::Siit));
        let identities: Vec<Identity> = of64.chain(of44).chain(stateless).collect();
        let nobody = Row(identities.len() as u16);
        let of_pool = (0..plan.pools.len()).map(|pool| {
            let mut users = (0..).zip(plan.pools_of_instances()).filter(|(_, used)| *used == pool);
            match (users.next(), users.next()) {
                (Some((only, _)), None) => Row(only),
                _ => nobody,
            }
        });
        Tally {
            of_pool: of_pool.collect(),
            rows: vec![InstanceCounters::default(); identities.len()],
            unattributed: InstanceCounters::default(),
            first_siit: (plan.nat64.len() + plan.nat44.len()) as u16,
            burst: BurstCounts { packets: [0; 2 * SLOTS], bytes: [0; 2 * SLOTS] },
            identities,
        }
    }

    /// Takes over the counts of a tally for other instances. Instances that are the same keep their rows. The
    /// counts of removed instances go to the row for unattributed packets.
    pub(crate) fn go_on_from(&mut self, before: &Tally) {
        for (who, row) in before.instances() {
            let same = |id: &Identity| who.kind == id.kind && who.name == id.name;
            let at = self.identities.iter().position(same);
            at.and_then(|at| self.rows.get_mut(at)).unwrap_or(&mut self.unattributed).add(row);
        }
        self.unattributed.add(before.unattributed());
    }

    /// The row of an account.
    fn row(&self, account: Account) -> Row {
        let nobody = Row(self.identities.len() as u16);
        match account {
            Account::Nobody => nobody,
            Account::Stateful(instance) => Row(instance.into()),
            Account::Stateless(instance) => Row(self.first_siit + instance as u16),
            Account::Pool(pool) => self.of_pool.get(pool).copied().unwrap_or(nobody),
        }
    }

    /// Returns the number of the account's instance in the order of [`instances`](Self::instances), or `None`
    /// if it has none.
    pub(crate) fn number(&self, account: Account) -> Option<usize> {
        let number = usize::from(self.row(account).0);
        (number < self.identities.len()).then_some(number)
    }

    /// Counts a packet of the fast path.
    #[inline(always)]
    pub(crate) fn add(&mut self, slot: Slot, bytes: usize) {
        let BurstCounts { packets, bytes: all } = &mut self.burst;
        let at = usize::from(slot.0) % (2 * SLOTS);
        if let (Some(packets), Some(all)) = (packets.get_mut(at), all.get_mut(at)) {
            *packets += 1;
            *all += bytes as u32;
        }
    }

    /// Counts the fast path's packets of a burst in the rows and in the totals. Calls `pooled` with those of
    /// each stateful instance.
    ///
    /// Not inlined: otherwise the loop over the burst would lose registers to it.
    #[inline(never)]
    pub(crate) fn end_burst(&mut self, counters: &mut Counters, mut pooled: impl FnMut(usize, Traffic)) {
        let first_siit = usize::from(self.first_siit);
        let (stateful, stateless) = self.burst.packets.split_at_mut(SLOTS);
        let (bytes, bytes_siit) = self.burst.bytes.split_at_mut(SLOTS);
        let stateful = stateful.chunks_exact_mut(2).zip(bytes.chunks_exact_mut(2));
        let stateless = stateless.chunks_exact_mut(2).zip(bytes_siit.chunks_exact_mut(2));
        let Some((rows, siit)) = self.rows.split_at_mut_checked(first_siit) else { return };
        let Some((who, who_siit)) = self.identities.split_at_checked(first_siit) else { return };
        for (number, ((words, row), who)) in stateful.zip(rows).zip(who).enumerate() {
            if let Some(traffic) = fold(words, row, who.kind, counters) {
                pooled(number, traffic);
            }
        }
        for ((words, row), who) in stateless.zip(siit).zip(who_siit) {
            fold(words, row, who.kind, counters);
        }
    }

    /// Counts packets of a stateful instance that a fast path outside the engine has received and translated.
    pub(crate) fn credit(&mut self, instance: u8, traffic: Traffic, counters: &mut Counters) {
        let (number, Traffic { outbound, inbound }) = (usize::from(instance), traffic);
        if number >= usize::from(self.first_siit) {
            return;
        }
        let (Some(who), Some(row)) = (self.identities.get(number), self.rows.get_mut(number)) else { return };
        row.outbound += outbound;
        row.inbound += inbound;
        for (direction, count) in who.kind.directions().into_iter().zip([outbound, inbound]) {
            counters.credit(direction, count);
        }
    }

    /// Counts packets of a stateless instance that a fast path outside the engine has translated.
    pub(crate) fn credit_stateless(&mut self, number: usize, traffic: Traffic, counters: &mut Counters) {
        let at = usize::from(self.first_siit) + number;
        let (Some(who), Some(row)) = (self.identities.get(at), self.rows.get_mut(at)) else { return };
        row.outbound += traffic.outbound;
        row.inbound += traffic.inbound;
        let counts = [traffic.outbound, traffic.inbound];
        who.kind.directions().into_iter().zip(counts).for_each(|(way, count)| counters.credit(way, count));
    }

    /// Counts packets that a fast path outside the engine has received and dropped, by the number of the
    /// instance in the order of [`instances`](Self::instances).
    pub(crate) fn credit_drops(&mut self, number: usize, packets: u64, counters: &mut Counters) {
        let (Some(who), Some(row)) = (self.identities.get(number), self.rows.get_mut(number)) else { return };
        let (reason, count) = (DropReason::KernelWrite, Count { packets, bytes: 0 });
        if let Some(dropped) = row.drops.get_mut(reason as usize) {
            *dropped += count;
        }
        let [direction, _] = who.kind.directions();
        counters.rx += count;
        counters.dropped += count;
        counters.add_dropped(direction, reason, count);
    }

    /// Counts a packet that was translated.
    pub(crate) fn translated(&mut self, attribution: Attribution, bytes: usize, hairpinned: bool) {
        let row = self.row_mut(attribution.account);
        if attribution.is_inbound { &mut row.inbound } else { &mut row.outbound }.add(bytes);
        if hairpinned {
            row.hairpinned.add(bytes);
        }
    }

    /// Counts packets that were not forwarded.
    pub(crate) fn dropped(&mut self, account: Account, reason: DropReason, count: Count) {
        if let Some(dropped) = self.row_mut(account).drops.get_mut(reason as usize) {
            *dropped += count;
        }
    }

    /// Counts a packet that is passed unchanged.
    pub(crate) fn passed(&mut self, account: Account, bytes: usize) {
        self.row_mut(account).passed.add(bytes);
    }

    /// Counts an echo request to the translator itself.
    pub(crate) fn echo(&mut self, account: Account, bytes: usize) {
        self.row_mut(account).echoes.add(bytes);
    }

    fn row_mut(&mut self, account: Account) -> &mut InstanceCounters {
        let row = self.row(account);
        self.rows.get_mut(usize::from(row.0)).unwrap_or(&mut self.unattributed)
    }

    /// Instances with their counters, in the order of their numbers.
    pub(crate) fn instances(&self) -> impl Iterator<Item = (&Identity, &InstanceCounters)> {
        self.identities.iter().zip(&self.rows)
    }

    /// Counters of packets of no instance.
    pub(crate) fn unattributed(&self) -> &InstanceCounters {
        &self.unattributed
    }
}

/// Adds the burst's counts of one instance to its row and to the totals, and resets them. Returns the counts,
/// or `None` if there are none.
#[inline]
fn fold(
    (packets, bytes): (&mut [u32], &mut [u32]),
    row: &mut InstanceCounters,
    kind: InstanceKind,
    counters: &mut Counters,
) -> Option<Traffic> {
    let &mut [outbound, inbound] = packets else { return None };
    if outbound | inbound == 0 {
        return None;
    }
    let &mut [outbound_bytes, inbound_bytes] = bytes else { return None };
    packets.fill(0);
    bytes.fill(0);
    let count = |packets: u32, bytes: u32| Count { packets: packets.into(), bytes: bytes.into() };
    let traffic =
        Traffic { outbound: count(outbound, outbound_bytes), inbound: count(inbound, inbound_bytes) };
    row.outbound += traffic.outbound;
    row.inbound += traffic.inbound;
    for (direction, count) in kind.directions().into_iter().zip([traffic.outbound, traffic.inbound]) {
        if let Some(translated) = counters.translated.get_mut(direction as usize) {
            *translated += count;
        }
    }
    Some(traffic)
}
