//! Ports given out one by one: any free one of the subscriber's address (RFC 6056).

use super::{PortSet, Wanted};
use crate::bit_tree::BitTree;
use crate::plan::{HoldDown, Pairing, Pool4, Transport};
use crate::pool4::map::AddressMap;
use crate::pool4::{PortRequest, TRANSPORTS, Usage};
use crate::rng::Rng;
use crate::session::Tick;
use crate::time::Instant;
use gatun_mem::{HugeVec, OutOfMemory};
use gatun_wire::DropReason;

/// The ports of a pool.
pub(crate) struct SinglePorts {
    sets: [HugeVec<PortSet>; 3],
    /// Addresses with a free port.
    open: [BitTree; 3],
    pub(crate) usage: [Usage; 3],
    held: Held,
    pairing: Pairing,
    port_parity: bool,
    port_class: bool,
}

impl SinglePorts {
    /// All free.
    ///
    /// # Errors
    /// Where memory is short.
    pub(crate) fn new(map: &AddressMap, plan: &Pool4, hold: HoldDown) -> Result<Self, OutOfMemory> {
        let n = map.addresses() as usize;
        let mut ports = SinglePorts {
            sets: [HugeVec::new(n)?, HugeVec::new(n)?, HugeVec::new(n)?],
            open: [BitTree::new(n), BitTree::new(n), BitTree::new(n)],
            usage: [Usage::default(); 3],
            held: Held::new(hold)?,
            pairing: plan.pairing,
            port_parity: plan.port_parity,
            port_class: plan.port_class,
        };
        for (addresses, layouts) in map.sections() {
            for (t, layout) in layouts.into_iter().enumerate().filter(|(_, layout)| layout.total() > 0) {
                ports.usage[t].total += u64::from(layout.total()) * addresses.len() as u64;
                addresses.clone().for_each(|ix| ports.open[t].insert(ix as usize));
            }
        }
        Ok(ports)
    }

    /// Bytes that [`SinglePorts::new`] takes.
    pub(crate) fn bytes(addresses: u32, hold: HoldDown) -> u64 {
        3 * u64::from(addresses) * size_of::<PortSet>() as u64 + Held::bytes(hold)
    }

    /// A free port for a subscriber whose address is `paired`, if it has one.
    pub(crate) fn allocate(
        &mut self,
        map: &AddressMap,
        rng: &mut Rng,
        wanted: &PortRequest,
        paired: Option<u32>,
    ) -> Result<(u32, u16), DropReason> {
        let t = wanted.transport;
        let wish = paired.unwrap_or_else(|| self.first_address(map, t, wanted.spread));
        if let Some(port) = self.take_random(map, rng, wish, wanted) {
            return Ok((wish, port));
        }
        let none = if self.held.len > 0 { DropReason::HoldDownAll } else { DropReason::PortsExhausted };
        if paired.is_some() && self.pairing == Pairing::Hard {
            return Err(none);
        }
        let ix = self.open[t as usize].next_cyclic(wish as usize).ok_or(none)? as u32;
        let port = self.take_random(map, rng, ix, wanted).ok_or(none)?;
        Ok((ix, port))
    }

    /// Marks a certain port as used, in the pool's ranges or not; `false` where it is already.
    pub(crate) fn claim(&mut self, map: &AddressMap, transport: Transport, ix: u32, port: u16) -> bool {
        self.change(map, transport, ix, |set, layout| set.take(layout, port))
    }

    /// Marks a port as free, or as held for some time; `false` where it is not used.
    pub(crate) fn release(
        &mut self,
        map: &AddressMap,
        now: Instant,
        transport: Transport,
        ix: u32,
        port: u16,
    ) -> bool {
        // RFC 6888 REQ-8 A: TCP connections are followed to their end.
        if transport == Transport::Tcp || self.held.ring.is_empty() {
            return self.free(map, transport, ix, port);
        }
        if !self.sets[transport as usize].get(ix as usize).is_some_and(|set| set.has(port)) {
            return false;
        }
        if self.held.is_full() {
            self.free_oldest(map);
        }
        self.held.push(now, HeldPort { ix, port, transport: transport as u16, until: 0 });
        true
    }

    /// Frees up to `budget` held ports whose time is over; says whether some are still held.
    pub(crate) fn expire(&mut self, map: &AddressMap, now: Instant, budget: usize) -> bool {
        for _ in 0..budget {
            match self.held.oldest() {
                Some(port) if Tick(port.until).has_come(Tick::at(now)) => self.free_oldest(map),
                Some(_) => return true,
                None => return false,
            }
        }
        self.held.len > 0
    }

    /// Ports of one address.
    pub(crate) fn address_usage(&self, map: &AddressMap, transport: Transport, ix: u32) -> Usage {
        let used = self.sets[transport as usize].get(ix as usize).map_or(0, PortSet::used);
        let total = map.layout(transport, ix).map_or(0, super::Layout::total);
        Usage { used: used.into(), total: total.into() }
    }

    /// Ports that are held and not used.
    pub(crate) fn held(&self) -> u64 {
        self.held.len as u64
    }

    fn free_oldest(&mut self, map: &AddressMap) {
        let Some(port) = self.held.pop() else { return };
        let transport = TRANSPORTS.get(usize::from(port.transport)).copied().unwrap_or(Transport::Icmp);
        self.free(map, transport, port.ix, port.port);
    }

    fn free(&mut self, map: &AddressMap, transport: Transport, ix: u32, port: u16) -> bool {
        self.change(map, transport, ix, |set, layout| set.give_back(layout, port))
    }

    /// Where a new subscriber starts: the address that `spread` names, unless that is three quarters full
    /// and the one that its other half names is emptier.
    fn first_address(&self, map: &AddressMap, transport: Transport, spread: u64) -> u32 {
        let scale = |half: u64| (((half & 0xffff_ffff) * u64::from(map.addresses())) >> 32) as u32;
        let (first, second) = (scale(spread >> 32), scale(spread));
        let free = |u: Usage| u.total.saturating_sub(u.used);
        let usage = self.address_usage(map, transport, first);
        let enough = free(usage) * 4 > usage.total;
        if enough || free(self.address_usage(map, transport, second)) <= free(usage) { first } else { second }
    }

    /// What is wanted of a port, best first: as like the inside one as can be (RFC 6146 3.5.1.1, RFC 4787
    /// REQ-3, REQ-4). Identifiers of ICMP have neither class nor parity.
    #[inline(always)]
    fn wishes(&self, transport: Transport, inside_port: u16) -> [Wanted; 3] {
        let like = |parity| Wanted::like(inside_port, self.port_class, parity);
        match transport {
            Transport::Icmp => [Wanted::ANY; 3],
            Transport::Tcp | Transport::Udp => [like(self.port_parity), like(false), Wanted::ANY],
        }
    }

    /// The port that is tried first, free or not.
    #[inline]
    pub(crate) fn first_choice(&self, transport: Transport, inside_port: u16, draw: u32) -> u16 {
        let [best, ..] = self.wishes(transport, inside_port);
        best.pick(draw)
    }

    /// Asks for the word that says whether a port is used.
    #[inline]
    pub(crate) fn prefetch(&self, transport: Transport, ix: u32, port: u16) {
        if let Some(set) = self.sets[transport as usize].get(ix as usize) {
            set.prefetch(port);
        }
    }

    /// Marks a random port of an address.
    fn take_random(
        &mut self,
        map: &AddressMap,
        rng: &mut Rng,
        ix: u32,
        request: &PortRequest,
    ) -> Option<u16> {
        let transport = request.transport;
        let set = self.sets[transport as usize].get(ix as usize)?;
        let layout = map.layout(transport, ix)?;
        let first = self.first_choice(transport, request.inside_port, request.draw);
        let port = if set.is_free(layout, first) {
            first
        } else {
            let wishes = self.wishes(transport, request.inside_port);
            wishes.into_iter().find_map(|wanted| set.random_free(layout, wanted, rng))?
        };
        self.claim(map, transport, ix, port).then_some(port)
    }

    /// Changes a set and what is counted of it.
    fn change(
        &mut self,
        map: &AddressMap,
        transport: Transport,
        ix: u32,
        f: impl FnOnce(&mut PortSet, &super::Layout) -> bool,
    ) -> bool {
        let t = transport as usize;
        let (Some(set), Some(layout)) = (self.sets[t].get_mut(ix as usize), map.layout(transport, ix)) else {
            return false;
        };
        let before = set.used();
        let done = f(set, layout);
        let (after, total) = (set.used(), layout.total());
        let usage = &mut self.usage[t];
        usage.used = (usage.used + u64::from(after)).saturating_sub(u64::from(before));
        match (before < total, after < total) {
            (false, true) => self.open[t].insert(ix as usize),
            (true, false) => self.open[t].remove(ix as usize),
            _ => {}
        }
        done
    }
}

#[derive(Clone, Copy, zerocopy::FromZeros)]
struct HeldPort {
    ix: u32,
    until: u32,
    port: u16,
    transport: u16,
}

/// Ports that wait to be free again, in the order of their ends: all wait equally long.
struct Held {
    ring: HugeVec<HeldPort>,
    first: usize,
    len: usize,
    ms: u32,
}

impl Held {
    fn room(hold: HoldDown) -> usize {
        if hold.ms == 0 { 0 } else { hold.ports_max as usize }
    }

    fn bytes(hold: HoldDown) -> u64 {
        (Self::room(hold) * size_of::<HeldPort>()) as u64
    }

    fn new(hold: HoldDown) -> Result<Self, OutOfMemory> {
        Ok(Held { ring: HugeVec::new(Self::room(hold))?, first: 0, len: 0, ms: hold.ms })
    }

    fn is_full(&self) -> bool {
        self.len >= self.ring.len()
    }

    fn push(&mut self, now: Instant, port: HeldPort) {
        let at = (self.first + self.len).checked_rem(self.ring.len()).unwrap_or(0);
        if let Some(slot) = self.ring.get_mut(at) {
            *slot = HeldPort { until: Tick::after(now, self.ms).0, ..port };
            self.len += 1;
        }
    }

    fn oldest(&self) -> Option<HeldPort> {
        if self.len == 0 { None } else { self.ring.get(self.first).copied() }
    }

    fn pop(&mut self) -> Option<HeldPort> {
        let port = self.oldest()?;
        self.first = if self.first + 1 < self.ring.len() { self.first + 1 } else { 0 };
        self.len -= 1;
        Some(port)
    }
}
