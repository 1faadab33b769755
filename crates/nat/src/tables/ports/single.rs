//! Single-port allocation: any free port of the subscriber's address (RFC 6056).

use super::{Layout, PortSet, Wanted};
use crate::base::bit_tree::BitTree;
use crate::base::plan::{HoldDown, Pairing, Pool4, Transport};
use crate::base::rng::Rng;
use crate::base::time::Instant;
use crate::base::time::Tick;
use crate::tables::ports::address_map::AddressMap;
use crate::tables::ports::holdings::{PortRequest, Usage};
use crate::tables::ports::reserved::ReservedPorts;
use crate::tables::ports::rights::Rights;
use gatun_mem::{Footprint, HugeVec, OutOfMemory};
use gatun_wire::DropReason;

/// Maximum number of addresses tried for a port while some are not counted yet.
const TRIES_MAX: u32 = 64;

/// Maximum number of ports drawn while some are reserved.
const DRAWS_MAX: u32 = 64;

/// Number of changes of the hold-down terms after which ports held under the first terms become free early.
const TERMS_BEFORE: usize = 3;

/// Changeable terms of a running pool.
pub(crate) struct SingleTerms {
    pairing: Pairing,
    port_parity: bool,
    port_class: bool,
    totals: [u64; 3],
    /// New queue of held ports, if the hold-down changes.
    held: Option<Held>,
}

impl SingleTerms {
    pub(crate) fn new(
        map: &AddressMap,
        plan: &Pool4,
        hold: HoldDown,
        before: HoldDown,
    ) -> Result<Self, OutOfMemory> {
        Ok(SingleTerms {
            pairing: plan.pairing,
            port_parity: plan.port_parity,
            port_class: plan.port_class,
            totals: SinglePorts::totals(map).map(|usage| usage.total),
            held: if hold == before { None } else { Some(Held::new(hold)?) },
        })
    }
}

/// The ports of a pool.
pub(crate) struct SinglePorts {
    sets: [HugeVec<PortSet>; 3],
    /// Addresses with a free port that can be given.
    open: [BitTree; 3],
    /// Addresses that give no ports.
    drained: BitTree,
    pub(crate) usage: [Usage; 3],
    held: Held,
    /// Ports held under earlier hold-down terms, the oldest first: they become free first.
    held_before: [Held; TERMS_BEFORE],
    /// Addresses with changed ports whose used ports are not counted under the new rule yet.
    uncounted: BitTree,
    uncounted_len: u32,
    /// True if addresses are being removed.
    leaving: bool,
    pairing: Pairing,
    port_parity: bool,
    port_class: bool,
    /// Ports that this member of a pair may assign; `None` for all.
    pub(crate) rights: Option<Rights>,
}

impl SinglePorts {
    /// Creates a pool with all ports free, and room for more addresses.
    ///
    /// # Errors
    /// Returns an error if memory is short.
    pub(crate) fn new(
        map: &AddressMap,
        plan: &Pool4,
        hold: HoldDown,
        room: u32,
    ) -> Result<Self, OutOfMemory> {
        let (n, room) = (map.addresses() as usize, room as usize);
        let sets = || HugeVec::with_room(n, room);
        let tree = || BitTree::new(room);
        let mut ports = SinglePorts {
            sets: [sets()?, sets()?, sets()?],
            open: [tree(), tree(), tree()],
            drained: tree(),
            usage: Self::totals(map),
            held: Held::new(hold)?,
            held_before: [Held::none()?, Held::none()?, Held::none()?],
            uncounted: tree(),
            uncounted_len: 0,
            leaving: false,
            pairing: plan.pairing,
            port_parity: plan.port_parity,
            port_class: plan.port_class,
            rights: None,
        };
        for (addresses, _) in map.sections() {
            addresses.for_each(|ix| ports.open_where(map, ix));
        }
        Ok(ports)
    }

    /// Usage of all ports, with none used.
    pub(crate) fn totals(map: &AddressMap) -> [Usage; 3] {
        let mut usage = [Usage::default(); 3];
        for (addresses, layouts) in map.sections() {
            for (usage, layout) in usage.iter_mut().zip(layouts) {
                usage.total += u64::from(layout.total()) * addresses.len() as u64;
            }
        }
        usage
    }

    /// Opens an address if it has free ports.
    fn open_where(&mut self, map: &AddressMap, ix: u32) {
        for (open, transport) in self.open.iter_mut().zip(Transport::ALL) {
            match map.layout(transport, ix) {
                Some(layout) if layout.total() > 0 && !self.drained.has(ix as usize) => {
                    open.insert(ix as usize)
                }
                _ => open.remove(ix as usize),
            }
        }
    }

    /// Sets new terms and returns the data that is no longer needed. Held ports stay held, unless the terms
    /// change more than [`TERMS_BEFORE`] times.
    pub(crate) fn set_terms(
        &mut self,
        map: &AddressMap,
        terms: &mut SingleTerms,
        bound: impl Fn(Transport, u32, u16) -> bool,
    ) {
        (self.pairing, self.port_parity, self.port_class) =
            (terms.pairing, terms.port_parity, terms.port_class);
        for (usage, total) in self.usage.iter_mut().zip(terms.totals) {
            usage.total = total;
        }
        let Some(held) = terms.held.take() else { return };
        while let Some(port) = self.held_before[0].pop() {
            self.free_held(map, port, &bound);
        }
        self.held_before.rotate_left(1);
        let before = core::mem::replace(&mut self.held, held);
        terms.held = Some(core::mem::replace(&mut self.held_before[TERMS_BEFORE - 1], before));
    }

    /// Notes that the rule of an address has changed. The address is counted under the new rule before any
    /// other use.
    pub(crate) fn change_address(&mut self, map: &AddressMap, ix: u32) {
        self.uncounted.insert(ix as usize);
        self.uncounted_len += 1;
        self.leaving |= !map.has(ix);
        self.open_where(map, ix);
    }

    /// Notes that all addresses follow the new rules and that removed ones have left. Held ports of removed
    /// addresses become free, because other addresses may get their numbers.
    pub(crate) fn settled(&mut self, map: &AddressMap) {
        if !core::mem::take(&mut self.leaving) {
            return;
        }
        for n in 0..=TERMS_BEFORE {
            for _ in 0..self.held_at(n).len {
                let Some(port) = self.held_at(n).pop() else { break };
                match map.has(port.ix) {
                    true => self.held_at(n).push(port),
                    false => self.free_held(map, port, |_, _, _| false),
                }
            }
        }
    }

    /// Returns a queue of held ports: first those under earlier terms, the oldest first, then that of the
    /// current terms.
    fn held_at(&mut self, n: usize) -> &mut Held {
        self.held_before.get_mut(n).unwrap_or(&mut self.held)
    }

    /// Drains an address, or ends the drain.
    pub(crate) fn set_drained(&mut self, map: &AddressMap, ix: u32, drained: bool) {
        match drained {
            true => self.drained.insert(ix as usize),
            false => self.drained.remove(ix as usize),
        }
        for transport in Transport::ALL {
            let usage = self.address_usage(map, transport, ix);
            let open = transport.of_mut(&mut self.open);
            match usage.used < usage.total && !drained {
                true => open.insert(ix as usize),
                false => open.remove(ix as usize),
            }
        }
    }

    /// Counts the used ports of an address under its new rule, if that is still to be done.
    pub(crate) fn count(&mut self, map: &AddressMap, ix: u32) {
        if self.uncounted_len == 0 || !self.uncounted.has(ix as usize) {
            return;
        }
        self.uncounted.remove(ix as usize);
        self.uncounted_len -= 1;
        let nothing = Layout::none();
        for transport in Transport::ALL {
            let Some(set) = transport.of_mut(&mut self.sets).get_mut(ix as usize) else { continue };
            let layout = map.layout(transport, ix).unwrap_or(&nothing);
            let before = set.used();
            set.count_for(layout);
            let usage = transport.of_mut(&mut self.usage);
            usage.used = (usage.used + u64::from(set.used())).saturating_sub(u64::from(before));
            let open = transport.of_mut(&mut self.open);
            match set.used() < layout.total() && !self.drained.has(ix as usize) {
                true => open.insert(ix as usize),
                false => open.remove(ix as usize),
            }
        }
    }

    /// Returns the first used port of an address from `from` on.
    pub(crate) fn next_used(&self, transport: Transport, ix: u32, from: u16) -> Option<u16> {
        transport.of(&self.sets).get(ix as usize)?.next_used(from)
    }

    /// Returns whether a port is used, or held.
    pub(crate) fn has(&self, transport: Transport, ix: u32, port: u16) -> bool {
        transport.of(&self.sets).get(ix as usize).is_some_and(|set| set.has(port))
    }

    /// Memory use of [`SinglePorts::new`].
    pub(crate) fn footprint(addresses: u32, hold: HoldDown) -> Footprint {
        let sets = Footprint::of_bytes(u64::from(addresses) * size_of::<PortSet>() as u64);
        sets * 3 + Held::footprint(hold)
    }

    /// Allocates a free port that is not `reserved`. `paired` is the subscriber's address, if it has one.
    pub(crate) fn allocate(
        &mut self,
        reserved: ReservedPorts<'_>,
        rng: &mut Rng,
        wanted: &PortRequest,
        paired: Option<u32>,
    ) -> Result<(u32, u16), DropReason> {
        if self.rights.is_some() {
            return self.allocate_within(reserved, rng, wanted, paired);
        }
        let (t, map) = (wanted.transport, reserved.map());
        let wish = paired.unwrap_or_else(|| self.first_address(map, t, wanted.spread));
        if !self.drained.has(wish as usize)
            && let Some(port) = self.take_random(reserved, rng, wish, wanted)
        {
            return Ok((wish, port));
        }
        let none = if self.held() > 0 { DropReason::HoldDownAll } else { DropReason::PortsExhausted };
        if paired.is_some() && self.pairing == Pairing::Hard {
            return Err(none);
        }
        // An address that turns out to be full under its new rule is not found a second time.
        for _ in 0..=TRIES_MAX.min(self.uncounted_len) {
            let ix = t.of(&self.open).next_cyclic(wish as usize).ok_or(none)? as u32;
            if let Some(port) = self.take_random(reserved, rng, ix, wanted) {
                return Ok((ix, port));
            }
        }
        Err(none)
    }

    /// Same as [`allocate`](Self::allocate), for a member of a pair that may assign only some ports.
    #[inline(never)]
    fn allocate_within(
        &mut self,
        reserved: ReservedPorts<'_>,
        rng: &mut Rng,
        wanted: &PortRequest,
        paired: Option<u32>,
    ) -> Result<(u32, u16), DropReason> {
        let (t, map) = (wanted.transport, reserved.map());
        let none = if self.held() > 0 { DropReason::HoldDownAll } else { DropReason::PortsExhausted };
        let rights = self.rights.take().ok_or(none)?;
        let found = self.candidates(&rights, map, wanted, paired).find_map(|ix| {
            if self.drained.has(ix as usize) {
                return None;
            }
            self.count(map, ix);
            let (layout, ports) = (map.layout(t, ix)?, rights.of(ix).ports());
            // The look-ahead has requested the lines of these. Most are within the rights.
            let drawn = if reserved.is_empty() { &wanted.draws[..] } else { &[] };
            for &draw in drawn {
                let port = self.choice(t, wanted.inside_port, draw);
                if ports.contains(&port) && layout.has(port) && self.mark(t, ix, layout, port) {
                    return Some((ix, port));
                }
            }
            let set = t.of(&self.sets).get(ix as usize)?;
            let preferences = self.preferences(t, wanted.inside_port);
            let mut draw = || {
                preferences
                    .into_iter()
                    .find_map(|wanted| set.random_within(layout, ports.clone(), wanted, rng))
            };
            let may_be_given = |port: &u16| !reserved.any(ix, *port..=*port, t.alone());
            let port = (0..=DRAWS_MAX).map_while(|_| draw()).find(may_be_given)?;
            self.mark(t, ix, layout, port).then_some((ix, port))
        });
        let found = found.ok_or_else(|| rights.refusal(wanted.shard, none));
        self.rights = Some(rights);
        found
    }

    /// Iterates over the addresses that may have a port for a subscriber, by the rights of this member.
    fn candidates<'r>(
        &self,
        rights: &'r Rights,
        map: &AddressMap,
        wanted: &PortRequest,
        paired: Option<u32>,
    ) -> impl Iterator<Item = u32> + use<'r> {
        let wish = paired.unwrap_or_else(|| self.first_address(map, wanted.transport, wanted.spread));
        let is_bound = paired.is_some() && self.pairing == Pairing::Hard;
        rights.candidates(wanted.shard, wish, paired.is_some(), is_bound)
    }

    /// Returns the address at which [`allocate`](Self::allocate) would find a port, and its number of free
    /// ports.
    pub(crate) fn preview(
        &self,
        map: &AddressMap,
        wanted: &PortRequest,
        paired: Option<u32>,
    ) -> Result<(u32, u32), DropReason> {
        let t = wanted.transport;
        if t.of(&self.usage).total == 0 {
            return Err(DropReason::PoolEmpty);
        }
        let none = if self.held() > 0 { DropReason::HoldDownAll } else { DropReason::PortsExhausted };
        if let Some(rights) = &self.rights {
            let free = |ix: u32| {
                let (layout, set) = (map.layout(t, ix)?, t.of(&self.sets).get(ix as usize)?);
                let free = if self.drained.has(ix as usize) {
                    0
                } else {
                    set.free_within(layout, rights.of(ix).ports())
                };
                (free > 0).then_some((ix, free))
            };
            let mut tried = self.candidates(rights, map, wanted, paired);
            return tried.find_map(free).ok_or_else(|| rights.refusal(wanted.shard, none));
        }
        let free = |ix| {
            let usage = self.address_usage(map, t, ix);
            u32::try_from(usage.total.saturating_sub(usage.used)).unwrap_or(u32::MAX)
        };
        let wish = paired.unwrap_or_else(|| self.first_address(map, t, wanted.spread));
        if free(wish) > 0 && !self.drained.has(wish as usize) {
            return Ok((wish, free(wish)));
        }
        if paired.is_some() && self.pairing == Pairing::Hard {
            return Err(none);
        }
        let ix = t.of(&self.open).next_cyclic(wish as usize).ok_or(none)? as u32;
        Ok((ix, free(ix)))
    }

    /// Marks a certain port as used, in the pool's ranges or not. Returns `false` if it is used already.
    pub(crate) fn claim(&mut self, map: &AddressMap, transport: Transport, ix: u32, port: u16) -> bool {
        self.change(map, transport, ix, |set, layout| set.take(layout, port))
    }

    /// Marks a port as free, or as held for some time. Returns `false` if it is not used.
    pub(crate) fn release(
        &mut self,
        map: &AddressMap,
        now: Instant,
        transport: Transport,
        ix: u32,
        port: u16,
        bound: impl Fn(Transport, u32, u16) -> bool,
    ) -> bool {
        // RFC 6888 REQ-8 A: TCP connections are followed to their end.
        if transport == Transport::Tcp || self.held.ring.is_empty() {
            return self.free(map, transport, ix, port);
        }
        if !transport.of(&self.sets).get(ix as usize).is_some_and(|set| set.has(port)) {
            return false;
        }
        if self.held.is_full()
            && let Some(oldest) = self.held.pop()
        {
            self.free_held(map, oldest, bound);
        }
        let until = Tick::after(now, self.held.ms).0;
        self.held.push(HeldPort { ix, port, transport: transport as u16, until });
        true
    }

    /// Frees up to `budget` ports whose hold-down has ended. Returns whether any others are held down. Ports
    /// that are `bound` again, by a static binding, stay in use.
    pub(crate) fn expire(
        &mut self,
        map: &AddressMap,
        now: Instant,
        budget: usize,
        bound: impl Fn(Transport, u32, u16) -> bool,
    ) -> bool {
        for _ in 0..budget {
            let Some(held) = self.oldest_held() else { return false };
            let due = held.oldest().is_some_and(|port| Tick(port.until).has_come(Tick::at(now)));
            let Some(port) = (if due { held.pop() } else { None }) else { return true };
            self.free_held(map, port, &bound);
        }
        self.held() > 0
    }

    /// Usage of the ports of one address.
    pub(crate) fn address_usage(&self, map: &AddressMap, transport: Transport, ix: u32) -> Usage {
        let used = transport.of(&self.sets).get(ix as usize).map_or(0, PortSet::used);
        let total = map.layout(transport, ix).map_or(0, Layout::total);
        Usage { used: used.into(), total: total.into() }
    }

    /// Number of ports that are held and not used.
    pub(crate) fn held(&self) -> u64 {
        self.held_before.iter().chain([&self.held]).map(|held| held.len as u64).sum()
    }

    /// Returns the queue with the ports that have been held longest.
    fn oldest_held(&mut self) -> Option<&mut Held> {
        let mut all = self.held_before.iter_mut().chain([&mut self.held]);
        all.find(|held| held.len > 0)
    }

    fn free_held(&mut self, map: &AddressMap, port: HeldPort, bound: impl Fn(Transport, u32, u16) -> bool) {
        let transport = Transport::ALL.get(usize::from(port.transport)).copied().unwrap_or(Transport::Icmp);
        if !bound(transport, port.ix, port.port) {
            self.free(map, transport, port.ix, port.port);
        }
    }

    fn free(&mut self, map: &AddressMap, transport: Transport, ix: u32, port: u16) -> bool {
        self.change(map, transport, ix, |set, layout| set.give_back(layout, port))
    }

    /// Returns the address that a new subscriber starts with: the one that `spread` selects. If that is three
    /// quarters full, and the one that the other half of `spread` selects is emptier, it is that one.
    fn first_address(&self, map: &AddressMap, transport: Transport, spread: u64) -> u32 {
        let scale = |half: u64| (((half & 0xffff_ffff) * u64::from(map.addresses())) >> 32) as u32;
        let (first, second) = (map.nth(scale(spread >> 32)), map.nth(scale(spread)));
        let free = |u: Usage| u.total.saturating_sub(u.used);
        let usage = self.address_usage(map, transport, first);
        let enough = free(usage) * 4 > usage.total;
        if enough || free(self.address_usage(map, transport, second)) <= free(usage) { first } else { second }
    }

    /// Preferences for a port, best first: as similar to the inside port as possible (RFC 6146 3.5.1.1, RFC
    /// 4787 REQ-3, REQ-4). ICMP identifiers have neither class nor parity.
    fn preferences(&self, transport: Transport, inside_port: u16) -> [Wanted; 3] {
        let like = |parity| self.like(transport, inside_port, parity);
        [like(self.port_parity), like(false), Wanted::ANY]
    }

    /// Wish for a port with the inside port's class and, if wanted, parity, if the pool keeps them.
    #[inline(always)]
    fn like(&self, transport: Transport, inside_port: u16, parity: bool) -> Wanted {
        match transport != Transport::Icmp && (self.port_class | parity) {
            false => Wanted::ANY,
            true => Wanted::like(inside_port, self.port_class, parity),
        }
    }

    /// Returns the port of a draw, free or not.
    #[inline]
    pub(crate) fn choice(&self, transport: Transport, inside_port: u16, draw: u32) -> u16 {
        self.like(transport, inside_port, self.port_parity).pick(draw)
    }

    /// Returns the port that a binding will most likely get.
    #[inline]
    pub(crate) fn foretell(&self, transport: Transport, ix: u32, inside_port: u16, draws: [u32; 2]) -> u16 {
        let [first, second] = draws;
        let port = self.choice(transport, inside_port, first);
        match transport.of(&self.sets).get(ix as usize) {
            Some(set) if set.has(port) => {
                let port = self.choice(transport, inside_port, second);
                set.prefetch(port);
                port
            }
            _ => port,
        }
    }

    /// Prefetches the lines that taking or returning a port will touch.
    #[inline]
    pub(crate) fn prefetch(&self, transport: Transport, ix: u32, port: u16) {
        if let Some(set) = transport.of(&self.sets).get(ix as usize) {
            set.prefetch(port);
        }
    }

    /// Marks a random port of an address.
    fn take_random(
        &mut self,
        reserved: ReservedPorts<'_>,
        rng: &mut Rng,
        ix: u32,
        request: &PortRequest,
    ) -> Option<u16> {
        let map = reserved.map();
        self.count(map, ix);
        let transport = request.transport;
        let layout = map.layout(transport, ix)?;
        let drawn = if reserved.is_empty() { &request.draws[..] } else { &[] };
        for &draw in drawn {
            let port = self.choice(transport, request.inside_port, draw);
            if layout.has(port) && self.mark(transport, ix, layout, port) {
                return Some(port);
            }
        }
        let port = self.draw(reserved, rng, ix, layout, request)?;
        self.mark(transport, ix, layout, port).then_some(port)
    }

    /// Returns a random free port of an address.
    #[inline(never)]
    fn draw(
        &self,
        reserved: ReservedPorts<'_>,
        rng: &mut Rng,
        ix: u32,
        layout: &Layout,
        request: &PortRequest,
    ) -> Option<u16> {
        let transport = request.transport;
        let set = transport.of(&self.sets).get(ix as usize)?;
        let preferences = self.preferences(transport, request.inside_port);
        let mut draw = || preferences.into_iter().find_map(|wanted| set.random_free(layout, wanted, rng));
        let may_be_given = |port: &u16| !reserved.any(ix, *port..=*port, transport.alone());
        (0..=DRAWS_MAX).map_while(|_| draw()).find(may_be_given)
    }

    /// Marks a port of an address as used. Returns `false` if it is used already. The address is counted
    /// under its rule.
    #[inline]
    fn mark(&mut self, transport: Transport, ix: u32, layout: &Layout, port: u16) -> bool {
        let Some(set) = transport.of_mut(&mut self.sets).get_mut(ix as usize) else { return false };
        // The read precedes the write, because a sum over words just written has to wait for them.
        let used = set.used();
        if !set.take(layout, port) {
            return false;
        }
        transport.of_mut(&mut self.usage).used += 1;
        if used + 1 >= layout.total() {
            transport.of_mut(&mut self.open).remove(ix as usize);
        }
        true
    }

    /// Changes a set and the counts that depend on it.
    fn change(
        &mut self,
        map: &AddressMap,
        transport: Transport,
        ix: u32,
        f: impl FnOnce(&mut PortSet, &Layout) -> bool,
    ) -> bool {
        self.count(map, ix);
        let Some(set) = transport.of_mut(&mut self.sets).get_mut(ix as usize) else { return false };
        let Some(layout) = map.layout(transport, ix) else {
            // The address is being removed, so nothing is counted any more.
            return f(set, &Layout::none());
        };
        let before = set.used();
        let done = f(set, layout);
        let (after, total) = (set.used(), layout.total());
        let usage = transport.of_mut(&mut self.usage);
        usage.used = (usage.used + u64::from(after)).saturating_sub(u64::from(before));
        let open = transport.of_mut(&mut self.open);
        match (before < total, after < total) {
            (false, true) if !self.drained.has(ix as usize) => open.insert(ix as usize),
            (true, false) => open.remove(ix as usize),
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

/// Queue of held ports in the order of expiry: all are held equally long.
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

    fn footprint(hold: HoldDown) -> Footprint {
        HugeVec::<HeldPort>::footprint(Self::room(hold))
    }

    fn new(hold: HoldDown) -> Result<Self, OutOfMemory> {
        Ok(Held { ring: HugeVec::new(Self::room(hold))?, first: 0, len: 0, ms: hold.ms })
    }

    fn none() -> Result<Self, OutOfMemory> {
        Self::new(HoldDown::default())
    }

    fn is_full(&self) -> bool {
        self.len >= self.ring.len()
    }

    fn push(&mut self, port: HeldPort) {
        let at = (self.first + self.len).checked_rem(self.ring.len()).unwrap_or(0);
        if let Some(slot) = self.ring.get_mut(at) {
            *slot = port;
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
