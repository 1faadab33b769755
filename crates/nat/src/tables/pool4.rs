//! Public IPv4 addresses: their numbers, their ports, and the owners of the ports.
//!
//! The addresses of a pool are numbered from 0 without gaps, in ascending order. The pool is dense, so an
//! outside transport address needs no hash: `(number, port)` indexes an array of record numbers, one array
//! per transport. Untouched pages of the arrays cost nothing:
//!
//! ```text
//! bindings[transport][number << 16 | port] = record number, or 0
//! ```
//! The pool's allocation decides who may use which port: single ports (`ports/single.rs`), or blocks
//! (`ports/blocks.rs`), some of them by a formula (`ports/deterministic.rs`).
//!
//! Invariants: a port is given to at most one binding (RFC 4787 REQ-1, RFC 6888 REQ-8: no overloading), and
//! only [`Pool4State::release`] returns it.

pub(crate) mod change;
mod pair;
pub(crate) mod preview;
#[cfg(test)]
mod tests;

use crate::base::build_error::StaticBindingError;
use crate::base::counters::Traffic;
use crate::base::plan::{Allocation, BlockProtocols, Blocks, HoldDown, Pool4, Transport};
use crate::base::rng::Rng;
use crate::base::time::Instant;
use crate::tables::ports::Layout;
use crate::tables::ports::address_map::AddressMap;
use crate::tables::ports::blocks::{BlockPorts, BlockTerms};
use crate::tables::ports::deterministic::{Formula, whole_blocks};
use crate::tables::ports::reserved::{Reservations, ReservedPorts};
use crate::tables::ports::single::SinglePorts;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::ops::AddAssign;
use gatun_mem::{Footprint, HugeVec, OutOfMemory, pages_set_aside, prefetch_read};
use gatun_wire::DropReason;

pub use crate::tables::ports::address_map::PoolError;
pub use crate::tables::ports::deterministic::DeterministicMap;
pub use crate::tables::ports::holdings::{BlockUsage, Holdings, PortBlock, PortRequest, Usage};
pub use crate::tables::ports::rights::PortRight;

/// Counters of a pool since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounters {
    /// Ports given to bindings; static ones are not counted.
    pub ports_allocated: u64,
    /// Ports returned.
    pub ports_released: u64,
    /// Blocks given to subscribers.
    pub blocks_allocated: u64,
    /// Blocks returned.
    pub blocks_released: u64,
    /// Ports refused, for any reason.
    pub refused: u64,
    /// Ports given from another address than the subscriber's own.
    pub pairing_broken: u64,
    /// Packets translated with its addresses.
    pub traffic: Traffic,
}

impl AddAssign for PoolCounters {
    fn add_assign(&mut self, other: PoolCounters) {
        self.ports_allocated += other.ports_allocated;
        self.ports_released += other.ports_released;
        self.blocks_allocated += other.blocks_allocated;
        self.blocks_released += other.blocks_released;
        self.refused += other.refused;
        self.pairing_broken += other.pairing_broken;
        self.traffic += other.traffic;
    }
}

/// Allocated port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The address's number.
    pub address_ix: u32,
    /// The port.
    pub port: u16,
    /// New block whose first used port this is, if any.
    pub new_block: Option<PortBlock>,
}

// There is one of these per pool: its size does not matter, and a box would cost a look-up.
#[allow(clippy::large_enum_variant)]
enum Ports {
    Single(SinglePorts),
    Blocks(BlockPorts),
}

/// A pool and the state of its ports.
pub struct Pool4State {
    name: Arc<str>,
    overload: Vec<(Transport, u16)>,
    /// Address map, shared with the thread that prepares a change.
    map: Arc<AddressMap>,
    /// Address map before the last change, for the numbers of removed addresses.
    map_before: Arc<AddressMap>,
    /// Upper bound of the numbers of addresses.
    room: u32,
    /// True if addresses have been removed since the pool was created.
    had_more: bool,
    /// Numbers of drained addresses, ascending.
    drained: Vec<u32>,
    bindings: [HugeVec<u32>; 3],
    ports: Ports,
    counters: PoolCounters,
}

impl Pool4State {
    /// Creates a pool with all ports free. `hold` enables the hold-down of returned ports. It is off if every
    /// instance filters by address (RFC 6888 REQ-8 C).
    ///
    /// # Errors
    ///
    /// Returns an error if the plan contradicts itself, or memory is short.
    pub fn new(plan: &Pool4, hold: bool) -> Result<Self, PoolError> {
        let map = AddressMap::new(&plan.ranges)?;
        let room = room(map.addresses(), plan)?;
        let slots = |addresses| slots(addresses).ok_or(OutOfMemory { bytes: usize::MAX });
        let (used, all) = (slots(map.addresses())?, slots(room)?);
        let table = || match room > map.addresses() {
            true => HugeVec::with_room(used, all),
            false => HugeVec::new(used),
        };
        let bindings = [table()?, table()?, table()?];
        let ports = match block_terms(plan, &map, hold)? {
            None => Ports::Single(SinglePorts::new(&map, plan, hold_down(plan, hold), room)?),
            Some(terms) => Ports::Blocks(BlockPorts::new(&map, terms, room)?),
        };
        let (map, counters) = (Arc::new(map), PoolCounters::default());
        let (name, overload) = (plan.name.as_str().into(), plan.overload.clone());
        Ok(Pool4State {
            name,
            overload,
            map_before: Arc::clone(&map),
            map,
            room,
            had_more: false,
            drained: Vec::new(),
            bindings,
            ports,
            counters,
        })
    }

    /// Memory use of a pool's tables. Room for further addresses takes memory only when these come.
    ///
    /// # Errors
    /// Same as [`Pool4State::new`].
    pub fn footprint(plan: &Pool4, hold: bool) -> Result<Footprint, PoolError> {
        let map = AddressMap::new(&plan.ranges)?;
        let n = map.addresses();
        let slots = slots(n).ok_or(OutOfMemory { bytes: usize::MAX })?;
        let bindings = match room(n, plan)? > n {
            true => Footprint::of_bytes((slots * size_of::<u32>()) as u64),
            false => HugeVec::<u32>::footprint(slots),
        };
        let ports = match &plan.allocation {
            Allocation::Random(_) => SinglePorts::footprint(n, hold_down(plan, hold)),
            Allocation::Blocks(terms) => BlockPorts::footprint(n, terms)?,
            Allocation::Deterministic(d) => {
                let terms = Blocks { protocols: BlockProtocols::Shared, ..d.blocks };
                BlockPorts::footprint(n, &terms)?
            }
        };
        Ok(bindings * 3 + ports)
    }

    /// Number of ports that a pool's allocation can give out, for all transports. With blocks, only whole
    /// ones count.
    ///
    /// # Errors
    /// Same as [`Pool4State::new`].
    pub fn ports_of(plan: &Pool4) -> Result<u64, PoolError> {
        let map = AddressMap::new(&plan.ranges)?;
        let (blocks, split) = match &plan.allocation {
            Allocation::Random(_) => (None, false),
            Allocation::Blocks(terms) => (Some(terms), terms.protocols == BlockProtocols::Split),
            Allocation::Deterministic(d) => (Some(&d.blocks), false),
        };
        blocks.map_or(Ok(()), check_size)?;
        let mut ports = 0;
        for (addresses, layouts) in map.sections() {
            let in_blocks = |layouts: &[&Layout]| match blocks {
                Some(terms) => {
                    let each = whole_blocks(layouts, terms.size.ilog2()).len() as u64;
                    each * u64::from(terms.size) * layouts.iter().filter(|l| l.total() > 0).count() as u64
                }
                None => layouts.iter().map(|l| u64::from(l.total())).sum(),
            };
            let each =
                if split { layouts.iter().map(|l| in_blocks(&[l])).sum() } else { in_blocks(&layouts) };
            ports += each * addresses.len() as u64;
        }
        Ok(ports)
    }

    /// Upper bound of the numbers of addresses.
    pub(crate) fn room(&self) -> u32 {
        self.room
    }

    /// Number of addresses that the pool of a plan has room for.
    ///
    /// # Errors
    /// Same as [`Pool4State::new`].
    pub(crate) fn room_of(plan: &Pool4) -> Result<u32, PoolError> {
        room(AddressMap::new(&plan.ranges)?.addresses(), plan)
    }

    /// Returns the counters of the pool's packets for further counting.
    #[inline]
    pub(crate) fn traffic_mut(&mut self) -> &mut Traffic {
        &mut self.counters.traffic
    }

    /// Name in the configuration.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns whether flows to this remote port share ports.
    #[inline]
    pub fn overloads(&self, transport: Transport, remote_port: u16) -> bool {
        self.overload.contains(&(transport, remote_port))
    }

    /// Number of addresses. If the pool still has its original addresses, their numbers run from 0 to one
    /// less.
    pub fn addresses(&self) -> u32 {
        self.map.addresses()
    }

    /// Returns the number of the `n`th address.
    pub fn nth(&self, n: u32) -> u32 {
        self.map.nth(n)
    }

    /// Returns the number of an address.
    #[inline]
    pub fn address_ix(&self, address: Ipv4Addr) -> Option<u32> {
        self.map.address_ix(address)
    }

    /// Returns the address of a number. A removed address keeps its number until another address gets it. An
    /// unused number returns the unspecified address.
    #[inline]
    pub fn address(&self, ix: u32) -> Ipv4Addr {
        let address = self.map.address(ix);
        if address.is_unspecified() { self.map_before.address(ix) } else { address }
    }

    /// Returns whether a port lies in the pool's ranges. Other ports of the address may belong to the host;
    /// static bindings may use them.
    pub fn covers(&self, transport: Transport, ix: u32, port: u16) -> bool {
        self.map.layout(transport, ix).is_some_and(|l| l.has(port))
    }

    /// Unpairs a subscriber from an address that is removed or drained.
    #[inline]
    pub(crate) fn check_pairing(&self, holdings: &mut Holdings) {
        let is_gone = |ix| (self.had_more && !self.map.has(ix)) || self.is_drained(ix);
        if (self.had_more || !self.drained.is_empty()) && holdings.paired().is_some_and(is_gone) {
            holdings.unpair();
        }
    }

    /// Finds a port for a subscriber and marks it as used.
    ///
    /// The pool uses the address that the subscriber is paired with (RFC 4787 REQ-2, RFC 6888 REQ-2). An
    /// unpaired subscriber gets an address by its hash, so that a returning subscriber finds its
    /// address again. If the paired address has nothing left, soft pairing uses the next address that
    /// has, and counts it.
    ///
    /// The port is random. If the pool is configured so, it keeps class and parity of the inside port.
    ///
    /// # Errors
    ///
    /// [`DropReason::PoolEmpty`] if the pool has no port for this transport at all;
    /// [`DropReason::PortsExhausted`], [`DropReason::BlockNone`] or [`DropReason::HoldDownAll`] if nothing is
    /// left that this subscriber may have; [`DropReason::SubscriberBlockQuota`] if it has its maximum number
    /// of blocks.
    #[inline]
    pub fn allocate(
        &mut self,
        rng: &mut Rng,
        now: Instant,
        wanted: &PortRequest,
        holdings: &mut Holdings,
    ) -> Result<Grant, DropReason> {
        self.allocate_beside(None, rng, now, wanted, holdings)
    }

    /// Same as [`allocate`](Self::allocate), but leaves out the ports of sessions that are not restored yet.
    ///
    /// # Errors
    ///
    /// Same as [`allocate`](Self::allocate). If only such ports are free, it may not find another.
    #[inline]
    pub(crate) fn allocate_beside(
        &mut self,
        reserved: Option<&dyn Reservations>,
        rng: &mut Rng,
        now: Instant,
        wanted: &PortRequest,
        holdings: &mut Holdings,
    ) -> Result<Grant, DropReason> {
        let paired = holdings.paired();
        let reserved = ReservedPorts::new(reserved, &self.map);
        let granted = match &mut self.ports {
            Ports::Blocks(blocks) => blocks.allocate(reserved, rng, now, wanted, holdings),
            Ports::Single(single) if wanted.transport.of(&single.usage).total == 0 => {
                Err(DropReason::PoolEmpty)
            }
            Ports::Single(single) => {
                single.allocate(reserved, rng, wanted, paired).map(|(ix, port)| (ix, port, None))
            }
        };
        let (address_ix, port, new_block) = granted.inspect_err(|_| self.counters.refused += 1)?;
        self.counters.pairing_broken += u64::from(paired.is_some_and(|paired| paired != address_ix));
        Ok(self.counted(Grant { address_ix, port, new_block }))
    }

    fn counted(&mut self, grant: Grant) -> Grant {
        self.counters.ports_allocated += 1;
        self.counters.blocks_allocated += u64::from(grant.new_block.is_some());
        grant
    }

    /// Marks a certain port as used for a subscriber: the one that a held SYN was sent to. Returns `None` if
    /// the subscriber cannot have it.
    pub fn claim_for(
        &mut self,
        now: Instant,
        (address, port): (Ipv4Addr, u16),
        wanted: &PortRequest,
        holdings: &mut Holdings,
    ) -> Option<Grant> {
        let address_ix = self.address_ix(address).filter(|&ix| !self.is_drained(ix))?;
        let is_refused = |rights: &crate::tables::ports::rights::Rights| {
            !rights.allows(address_ix, &(port..=port)) || rights.shard_of(address_ix) != wanted.shard
        };
        if self.rights().is_some_and(is_refused) {
            return None;
        }
        let new_block = match &mut self.ports {
            Ports::Blocks(blocks) => blocks.claim_for(now, address_ix, port, wanted, holdings)?,
            // The pool may have changed since the SYN was held.
            Ports::Single(single) => {
                let covered = self.map.layout(wanted.transport, address_ix).is_some_and(|l| l.has(port));
                let claimed = covered && single.claim(&self.map, wanted.transport, address_ix, port);
                claimed.then_some(None)?
            }
        };
        Some(self.counted(Grant { address_ix, port, new_block }))
    }

    /// Same as [`claim_for`](Self::claim_for), for a subscriber that had the port before, even if the address
    /// is drained.
    pub(crate) fn claim_again(
        &mut self,
        now: Instant,
        outside: (Ipv4Addr, u16),
        wanted: &PortRequest,
        holdings: &mut Holdings,
    ) -> Option<Grant> {
        let Some(drained) = self.address_ix(outside.0).filter(|&ix| self.is_drained(ix)) else {
            return self.claim_admitted(now, outside, wanted, holdings);
        };
        self.set_drained(drained, false);
        let grant = self.claim_admitted(now, outside, wanted, holdings);
        self.set_drained(drained, true);
        grant
    }

    /// Same as [`claim_for`](Self::claim_for), without regard to rights.
    fn claim_admitted(
        &mut self,
        now: Instant,
        outside: (Ipv4Addr, u16),
        wanted: &PortRequest,
        holdings: &mut Holdings,
    ) -> Option<Grant> {
        let rights = pair::rights_mut(&mut self.ports).take();
        let grant = self.claim_for(now, outside, wanted, holdings);
        *pair::rights_mut(&mut self.ports) = rights;
        grant
    }

    /// Marks a certain port as used, even outside the pool's ranges. Returns `false` if it is used already,
    /// or if the address is not the pool's. The block of the port is given to no subscriber.
    pub fn claim(&mut self, transport: Transport, ix: u32, port: u16) -> bool {
        if !self.map.has(ix) {
            return false;
        }
        match &mut self.ports {
            Ports::Single(single) => single.claim(&self.map, transport, ix, port),
            Ports::Blocks(blocks) => blocks.claim(transport, ix, port),
        }
    }

    /// Marks the port of a static binding as used.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is not the pool's, or the port is in use.
    pub fn reserve(
        &mut self,
        transport: Transport,
        address: Ipv4Addr,
        port: u16,
    ) -> Result<(), StaticBindingError> {
        let ix = self.address_ix(address).ok_or(StaticBindingError::NotInPool)?;
        if self.claim(transport, ix, port) { Ok(()) } else { Err(StaticBindingError::Taken) }
    }

    /// Returns a port to the pool and forgets its binding; `None` if it was free already. If blocks do not
    /// linger, the result has the block that is returned with the port.
    pub fn release(
        &mut self,
        now: Instant,
        transport: Transport,
        ix: u32,
        port: u16,
        holdings: Option<&mut Holdings>,
    ) -> Option<Option<PortBlock>> {
        self.set_binding(transport, ix, port, 0);
        let ended = match &mut self.ports {
            Ports::Single(single) => {
                let bound = bound(&self.bindings);
                single.release(&self.map, now, transport, ix, port, bound).then_some(None)
            }
            Ports::Blocks(blocks) => blocks.release(now, transport, ix, port, holdings),
        }?;
        self.counters.ports_released += 1;
        self.counters.blocks_released += u64::from(ended.is_some());
        Some(ended)
    }

    /// Returns the number of the subscriber whose block has lingered long enough;
    /// [`Pool4State::end_lingering`] ends it.
    pub fn lingered(&self, now: Instant) -> Option<u32> {
        match &self.ports {
            Ports::Single(_) => None,
            Ports::Blocks(blocks) => blocks.lingered(now),
        }
    }

    /// Takes the block that has lingered longest from its owner. `holdings` are those of the owner.
    pub fn end_lingering(&mut self, now: Instant, holdings: &mut Holdings) -> Option<PortBlock> {
        match &mut self.ports {
            Ports::Single(_) => None,
            Ports::Blocks(blocks) => {
                let ended = blocks.end_lingering(now, holdings);
                self.counters.blocks_released += u64::from(ended.is_some());
                ended
            }
        }
    }

    /// Frees at most `budget` ports or blocks whose hold-down has ended. Returns whether any others are held
    /// down.
    pub fn expire(&mut self, now: Instant, budget: usize) -> bool {
        match &mut self.ports {
            Ports::Single(single) => single.expire(&self.map, now, budget, bound(&self.bindings)),
            Ports::Blocks(blocks) => blocks.expire_held(now, budget),
        }
    }

    /// Returns the number of the record that uses this port, 0 if none does.
    #[inline(always)]
    pub fn binding(&self, transport: Transport, ix: u32, port: u16) -> u32 {
        transport.of(&self.bindings).get(slot(ix, port)).copied().unwrap_or(0)
    }

    /// Sets the record that uses this port; 0 for none.
    #[inline]
    pub fn set_binding(&mut self, transport: Transport, ix: u32, port: u16, record: u32) {
        if let Some(b) = transport.of_mut(&mut self.bindings).get_mut(slot(ix, port)) {
            *b = record;
        }
    }

    /// Returns whether an address, by its number, is drained.
    #[inline]
    pub fn is_drained(&self, ix: u32) -> bool {
        !self.drained.is_empty() && self.drained.binary_search(&ix).is_ok()
    }

    /// Drained addresses.
    pub fn drained(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.drained.iter().map(|&ix| self.address(ix))
    }

    /// Drains an address, by its number, or ends the drain. Returns whether that is a change. Existing
    /// bindings keep working, and may get further sessions.
    pub(crate) fn set_drained(&mut self, ix: u32, drained: bool) -> bool {
        match (self.drained.binary_search(&ix), drained) {
            (Err(at), true) => self.drained.insert(at, ix),
            (Ok(at), false) => drop(self.drained.remove(at)),
            _ => return false,
        }
        match &mut self.ports {
            Ports::Single(single) => single.set_drained(&self.map, ix, drained),
            Ports::Blocks(blocks) => blocks.set_drained(ix, drained),
        }
        true
    }

    pub(crate) fn map(&self) -> &AddressMap {
        &self.map
    }

    /// Prefetches the line that [`Pool4State::binding`] will read.
    #[inline(always)]
    pub fn prefetch_binding(&self, transport: Transport, ix: u32, port: u16) {
        let bindings = transport.of(&self.bindings);
        prefetch_read(bindings, slot(ix, port));
    }

    /// Prefetches the line that a subscriber's next port most likely comes from.
    #[inline]
    pub fn prefetch_port(&self, transport: Transport, holdings: &Holdings, inside: u16, draws: [u32; 2]) {
        match &self.ports {
            Ports::Blocks(blocks) => blocks.prefetch(transport, holdings),
            Ports::Single(single) => {
                if let Some(ix) = holdings.paired() {
                    single.prefetch(transport, ix, single.choice(transport, inside, draws[0]));
                }
            }
        }
    }

    /// Prefetches that port's place in the outside table, if the port is known by now.
    #[inline]
    pub fn prefetch_outside(&self, transport: Transport, holdings: &Holdings, inside: u16, draws: [u32; 2]) {
        if let (Ports::Single(single), Some(ix)) = (&self.ports, holdings.paired()) {
            self.prefetch_binding(transport, ix, single.foretell(transport, ix, inside, draws));
        }
    }

    /// Prefetches the lines that [`Pool4State::release`] will touch.
    #[inline]
    pub fn prefetch_release(&self, transport: Transport, ix: u32, port: u16) {
        self.prefetch_binding(transport, ix, port);
        match &self.ports {
            Ports::Blocks(blocks) => blocks.prefetch_release(transport, ix, port),
            Ports::Single(single) => single.prefetch(transport, ix, port),
        }
    }

    /// Usage of the ports of the pool.
    pub fn usage(&self, transport: Transport) -> Usage {
        match &self.ports {
            Ports::Single(single) => *transport.of(&single.usage),
            Ports::Blocks(blocks) => *transport.of(&blocks.usage),
        }
    }

    /// Usage of the ports of one address.
    pub fn address_usage(&self, transport: Transport, ix: u32) -> Usage {
        match &self.ports {
            Ports::Single(single) => single.address_usage(&self.map, transport, ix),
            Ports::Blocks(blocks) => blocks.address_usage(transport, ix),
        }
    }

    /// Usage of the port blocks of the pool; `None` if it has none.
    pub fn block_usage(&self) -> Option<BlockUsage> {
        match &self.ports {
            Ports::Single(_) => None,
            Ports::Blocks(blocks) => Some(blocks.block_usage()),
        }
    }

    /// Number of single ports that are held down.
    pub fn ports_held(&self) -> u64 {
        match &self.ports {
            Ports::Single(single) => single.held(),
            Ports::Blocks(_) => 0,
        }
    }

    /// Returns the number of the subscriber that owns the block of a port.
    pub fn block_owner(&self, transport: Transport, ix: u32, port: u16) -> Option<u32> {
        match &self.ports {
            Ports::Single(_) => None,
            Ports::Blocks(blocks) => blocks.owner(transport, ix, port),
        }
    }

    /// Counters since the pool was created.
    pub fn counters(&self) -> &PoolCounters {
        &self.counters
    }
}

/// Returns the terms of a pool of blocks; `None` for single ports.
fn block_terms(plan: &Pool4, map: &AddressMap, hold: bool) -> Result<Option<BlockTerms>, PoolError> {
    let (terms, formula) = match &plan.allocation {
        Allocation::Random(_) => return Ok(None),
        Allocation::Blocks(terms) => {
            check_size(terms)?;
            (*terms, None)
        }
        Allocation::Deterministic(d) => {
            let terms = Blocks { protocols: BlockProtocols::Shared, ..d.blocks };
            check_size(&terms)?;
            (terms, Some(Formula::new(d, map)?))
        }
    };
    Ok(Some(BlockTerms::new(map, &terms, (plan.pairing, plan.port_parity), hold, formula)))
}

/// Hold-down of single ports.
fn hold_down(plan: &Pool4, hold: bool) -> HoldDown {
    match &plan.allocation {
        Allocation::Random(hold_down) if hold => *hold_down,
        _ => HoldDown::default(),
    }
}

/// Returns the number of addresses that a pool has room for while it runs. Room costs address space, not
/// memory. There is no spare room if the tables use pages that the operator has set aside, because it would
/// take all of them.
fn room(addresses: u32, plan: &Pool4) -> Result<u32, PoolError> {
    const ROOM_MIN: u32 = 4_096;
    let size = match &plan.allocation {
        Allocation::Random(_) => Blocks::SIZE_MAX,
        Allocation::Blocks(terms) => terms.size,
        Allocation::Deterministic(d) => d.blocks.size,
    };
    // Numbers of blocks, for up to three protocols, are below 2^32.
    let blocks_max = u32::from(size).saturating_mul(u32::MAX / 65_536 / 3);
    let wanted = addresses.saturating_mul(4).clamp(ROOM_MIN, blocks_max.max(ROOM_MIN));
    let table = slots(addresses).ok_or(OutOfMemory { bytes: usize::MAX })? * size_of::<u32>();
    Ok(if wanted <= addresses || pages_set_aside(table) { addresses } else { wanted })
}

/// Returns a test for ports with a binding.
fn bound(bindings: &[HugeVec<u32>; 3]) -> impl Fn(Transport, u32, u16) -> bool {
    |transport, ix, port| transport.of(bindings).get(slot(ix, port)).is_some_and(|&record| record != 0)
}

fn check_size(blocks: &Blocks) -> Result<(), PoolError> {
    let sizes = Blocks::SIZE_MIN..=Blocks::SIZE_MAX;
    if blocks.size.is_power_of_two() && sizes.contains(&blocks.size) {
        return Ok(());
    }
    Err(PoolError::BlockSize(blocks.size))
}

fn slots(addresses: u32) -> Option<usize> {
    (addresses as usize).checked_mul(1 << 16)
}

#[inline(always)]
fn slot(ix: u32, port: u16) -> usize {
    (ix as usize) << 16 | usize::from(port)
}
