//! Port blocks (RFC 6888 REQ-14, RFC 7422): their owners, their lifetimes, and the rules for new ones.

use super::Model;
use super::Result;
use super::bib::Binding;
use super::ends::{End4, ICMP, TCP};
use super::events::EventContent;
use super::subscribers::Owner;
use super::time::session_end;
use gatun_nat::EventKind;
use gatun_nat::plan::{Allocation, BlockProtocols, Blocks, Deterministic, Net6, Pairing, Pool4};
use gatun_nat::pool4::BlockUsage;
use gatun_wire::DropReason;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Consecutive ports that are assigned to a subscriber together.
#[derive(Clone, Debug)]
struct Block {
    address: Ipv4Addr,
    first: u16,
    last: u16,
    /// Transports of the block; `with_ports` are those that have ports here.
    for_transports: [bool; 3],
    with_ports: [bool; 3],
    state: State,
    /// True if a change removed the block, and its owner is about to lose it.
    leaving: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// Owned by a subscriber; perhaps lingering.
    Owned(Owner),
    /// Held down.
    Held,
    /// Reserved by formula for the subscriber with this number.
    OfNumber(u128),
    /// Contains a static binding.
    Barred,
}

impl Block {
    fn is_where(&self, other: &Block) -> bool {
        (self.address, self.first, self.for_transports) == (other.address, other.first, other.for_transports)
    }
}

/// Block settings of a pool.
fn terms(pool: &Pool4) -> Option<Blocks> {
    match &pool.allocation {
        Allocation::Random(_) => None,
        Allocation::Blocks(terms) => Some(*terms),
        Allocation::Deterministic(d) => Some(Blocks { protocols: BlockProtocols::Shared, ..d.blocks }),
    }
}

/// The blocks of a pool: aligned, and complete in all transports that have ports there.
fn all(pool: &Pool4) -> Vec<Block> {
    let Some(terms) = terms(pool) else { return Vec::new() };
    let groups: &[[bool; 3]] = match terms.protocols {
        BlockProtocols::Shared => &[[true; 3]],
        BlockProtocols::Split => &[[true, false, false], [false, true, false], [false, false, true]],
    };
    let mut addresses: Vec<u32> =
        pool.ranges.iter().flat_map(|r| u32::from(r.first)..=u32::from(r.last)).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let mut blocks = Vec::new();
    let mut number = 0;
    for address in addresses.into_iter().map(Ipv4Addr::from) {
        for &for_transports in groups {
            let mut here = blocks_at(pool, address, for_transports, terms.size);
            if let Allocation::Deterministic(d) = &pool.allocation {
                let own = here.len().saturating_sub(d.overflow_per_address.into());
                for block in &mut here[..own] {
                    block.state = State::OfNumber(number);
                    number += 1;
                }
            }
            blocks.append(&mut here);
        }
    }
    blocks
}

fn blocks_at(pool: &Pool4, address: Ipv4Addr, for_transports: [bool; 3], size: u16) -> Vec<Block> {
    let here = || pool.ranges.iter().filter(|r| r.first <= address && address <= r.last);
    let has = |t: usize, port: u16| here().any(|r| r.transports[t] && r.ports.0 <= port && port <= r.ports.1);
    let with_ports = std::array::from_fn(|t| for_transports[t] && here().any(|r| r.transports[t]));
    if with_ports == [false; 3] {
        return Vec::new();
    }
    let starts = (0..=u16::MAX).step_by(size.into());
    let whole = starts.filter(|&first| {
        (first..=first + (size - 1)).all(|port| (0..3).all(|t| !with_ports[t] || has(t, port)))
    });
    let block = |first| Block {
        address,
        first,
        last: first + (size - 1),
        for_transports,
        with_ports,
        state: State::Free,
        leaving: false,
    };
    whole.map(block).collect()
}

/// Number of a subscriber in the order of the networks (RFC 7422).
fn number_of(d: &Deterministic, prefix: u128) -> Option<u128> {
    let mut before = 0;
    for net in &d.inside {
        let ipv4 = net.len >= 96 && net.addr.to_ipv4_mapped().is_some();
        let len = if ipv4 { 128 } else { u32::from(d.subscriber_len) };
        if contains(net, prefix) {
            return Some(before + ((prefix - u128::from(net.addr)) >> (128 - len)));
        }
        before += 1 << (len - u32::from(net.len));
    }
    None
}

fn contains(net: &Net6, prefix: u128) -> bool {
    net.contains(Ipv6Addr::from(prefix))
}

/// Blocks of a pool, with the queues of lingering and held ones.
#[derive(Clone, Debug, Default)]
pub(super) struct PoolBlocks {
    all: Vec<Block>,
    /// Blocks without used ports, with the time of their release, in that order.
    lingering: VecDeque<(usize, u64)>,
    /// Blocks that are held down until a time (RFC 6888 REQ-8).
    held: VecDeque<(usize, u64)>,
}

impl PoolBlocks {
    pub(super) fn new(pool: &Pool4) -> Self {
        PoolBlocks { all: all(pool), ..PoolBlocks::default() }
    }

    /// Replaces the blocks by those of a new plan. Owners keep blocks that still exist; other owned blocks
    /// stay until they are taken away.
    pub(super) fn change(&mut self, pool: &Pool4) {
        let mut fresh = all(pool);
        let before = std::mem::take(&mut self.all);
        for block in &before {
            match fresh.iter_mut().find(|b| b.is_where(block)) {
                Some(same) if same.state == State::Free => same.state = block.state,
                None if matches!(block.state, State::Owned(_)) => {
                    fresh.push(Block { leaving: true, ..block.clone() });
                }
                _ => {}
            }
        }
        let number = |n: usize| fresh.iter().position(|b| b.is_where(&before[n]));
        let renumber = |queue: &VecDeque<(usize, u64)>| -> VecDeque<(usize, u64)> {
            queue.iter().filter_map(|&(n, until)| Some((number(n)?, until))).collect()
        };
        (self.lingering, self.held) = (renumber(&self.lingering), renumber(&self.held));
        self.all = fresh;
    }

    /// Removes blocks that no longer exist.
    pub(super) fn forget_leaving(&mut self) {
        self.all.retain(|b| !b.leaving); // they are at the end
    }

    /// Frees the block that has been held down longest.
    fn free_oldest_held(&mut self) {
        if let Some((n, _)) = self.held.pop_front() {
            self.all[n].state = State::Free;
        }
    }

    /// Ends hold-downs that are over, at most `budget`.
    pub(super) fn end_hold_downs(&mut self, now: u64, budget: usize) {
        for _ in 0..budget {
            if self.held.front().is_none_or(|h| h.1 > now) {
                return;
            }
            self.free_oldest_held();
        }
    }
}

impl Model {
    fn terms(&self, pool: usize) -> Blocks {
        terms(&self.plan.pools[pool]).unwrap_or_default()
    }

    pub(super) fn block_at(&self, pool: usize, transport: usize, (a, port): End4) -> Option<usize> {
        self.pools[pool]
            .blocks
            .all
            .iter()
            .position(|b| b.address == a && b.first <= port && port <= b.last && b.for_transports[transport])
    }

    pub(super) fn is_barred_block(&self, pool: usize, block: usize) -> bool {
        self.pools[pool].blocks.all[block].state == State::Barred
    }

    pub(super) fn block_ports_total(&self, pool: usize, transport: usize) -> u64 {
        let blocks = self.pools[pool].blocks.all.iter();
        let usable = blocks.filter(|b| b.state != State::Barred && b.with_ports[transport]);
        usable.count() as u64 * u64::from(self.terms(pool).size)
    }

    /// A static binding takes its block from everybody, unless the block belongs to a subscriber by formula.
    pub(super) fn bar_block_of(&mut self, instance: usize, transport: usize, outside: End4) {
        let pool = self.rules[instance].pool;
        if let Some(n) = self.block_at(pool, transport, outside)
            && !matches!(self.pools[pool].blocks.all[n].state, State::OfNumber(_))
        {
            self.let_go(pool, n);
            self.pools[pool].blocks.all[n].state = State::Barred;
        }
    }

    /// Bars blocks that contain static bindings after a change, and frees those that no longer do.
    pub(super) fn bar_blocks(&mut self) {
        for pool in 0..self.pools.len() {
            for n in 0..self.pools[pool].blocks.all.len() {
                let barred = self.used_in(pool, n).any(|b| b.fixed);
                let state = &mut self.pools[pool].blocks.all[n].state;
                match (*state, barred) {
                    (State::Barred, false) => *state = State::Free,
                    (State::Free, true) => *state = State::Barred,
                    _ => {}
                }
            }
        }
    }

    pub(super) fn is_leaving(&self, pool: usize, n: usize) -> bool {
        self.pools[pool].blocks.all[n].leaving
    }

    pub(super) fn is_owned(&self, pool: usize, n: usize) -> bool {
        matches!(self.pools[pool].blocks.all[n].state, State::Owned(_))
    }

    pub(super) fn owned_blocks(&self, pool: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.pools[pool].blocks.all.len()).filter(move |&n| self.is_owned(pool, n))
    }

    pub(super) fn is_unused(&self, pool: usize, n: usize) -> bool {
        self.used_in(pool, n).next().is_none()
    }

    /// A change takes an unused block from its owner, without a hold-down: it is for a static binding, or
    /// leaves the pool.
    pub(super) fn take_block_away(&mut self, pool: usize, n: usize) {
        let State::Owned(owner) = self.pools[pool].blocks.all[n].state else { return };
        self.pools[pool].blocks.lingering.retain(|l| l.0 != n);
        self.tell_block(EventKind::BlockReleased, pool, owner, n);
        self.pools[pool].blocks.all[n].state = State::Free;
        self.forget_if_idle(owner);
    }

    fn let_go(&mut self, pool: usize, n: usize) {
        let p = &mut self.pools[pool].blocks;
        p.held.retain(|h| h.0 != n);
        if p.all[n].state == State::Held {
            p.all[n].state = State::Free;
        }
    }

    /// Expected counts of a pool's blocks.
    pub fn block_usage(&self, pool: usize) -> BlockUsage {
        let p = &self.pools[pool].blocks;
        let count = |is: fn(&State) -> bool| p.all.iter().filter(|b| is(&b.state)).count() as u64;
        BlockUsage {
            total: count(|s| *s != State::Barred),
            owned: count(|s| matches!(s, State::Owned(_))),
            lingering: p.lingering.len() as u64,
            held: p.held.len() as u64,
        }
    }

    pub(super) fn has_blocks(&self, owner: Owner) -> bool {
        let pool = &self.pools[self.rules[owner.0].pool];
        pool.blocks.all.iter().any(|b| b.state == State::Owned(owner))
    }

    /// Bindings with a port of a block.
    fn used_in(&self, pool: usize, n: usize) -> impl Iterator<Item = &Binding> {
        let block = &self.pools[pool].blocks.all[n];
        self.bindings.iter().filter(|b| {
            let (a, port) = b.outside;
            a == block.address
                && block.for_transports[b.transport]
                && block.first <= port
                && port <= block.last
        })
    }

    fn free_in(&self, pool: usize, n: usize, transport: usize) -> Vec<u16> {
        let block = &self.pools[pool].blocks.all[n];
        let used: Vec<u16> =
            self.used_in(pool, n).filter(|b| b.transport == transport).map(|b| b.outside.1).collect();
        (block.first..=block.last).filter(|p| !used.contains(p)).collect()
    }

    /// Numbers of the blocks of a transport in a state.
    fn in_state(&self, pool: usize, transport: usize, state: State) -> Vec<usize> {
        let blocks = self.pools[pool].blocks.all.iter().enumerate();
        blocks.filter(|(_, b)| b.for_transports[transport] && b.state == state).map(|(n, _)| n).collect()
    }

    /// The block that a subscriber owns by formula.
    fn own_block(&self, pool: usize, owner: Owner) -> Option<usize> {
        let Allocation::Deterministic(d) = &self.plan.pools[pool].allocation else { return None };
        let number = number_of(d, owner.1)?;
        self.pools[pool].blocks.all.iter().position(|b| b.state == State::OfNumber(number))
    }

    pub(super) fn choose_in_block(
        &mut self,
        owner: Owner,
        transport: usize,
        inside_port: u16,
        wanted: Option<End4>,
    ) -> Result<End4> {
        let pool = self.rules[owner.0].pool;
        if let Some(wanted) = wanted
            && self.may_claim(pool, owner, transport, wanted)
        {
            return Ok(wanted);
        }
        if self.block_ports_total(pool, transport) == 0 {
            return Err(DropReason::PoolEmpty);
        }
        let own = self.own_block(pool, owner);
        let has_free = |&n: &usize| !self.free_in(pool, n, transport).is_empty();
        // First the block by formula, then the subscriber's others.
        let mut allowed: Vec<usize> = own.into_iter().filter(has_free).collect();
        if allowed.is_empty() {
            allowed = self.in_state(pool, transport, State::Owned(owner));
            allowed.retain(has_free);
        }
        if allowed.is_empty() {
            allowed = self.new_blocks(pool, owner, transport, own)?;
        }
        let Some(chosen) = self.chosen() else {
            self.object(format!("the engine assigned no port, but blocks {allowed:?} have free ones"));
            return Err(DropReason::BlockNone);
        };
        let Some(n) = self.block_at(pool, transport, chosen).filter(|n| allowed.contains(n)) else {
            self.object(format!("the engine assigned {chosen:?}, outside the blocks {allowed:?}"));
            return Ok(chosen);
        };
        let free = self.free_in(pool, n, transport);
        let keeps = self.plan.pools[pool].port_parity && transport != ICMP;
        let alike = |p: u16| !keeps || p % 2 == inside_port % 2;
        if !free.contains(&chosen.1) || (!alike(chosen.1) && free.iter().any(|&p| alike(p))) {
            self.object(format!("{chosen:?} was assigned to inside port {inside_port}; free there {free:?}"));
        }
        self.take_block(pool, owner, n);
        Ok(chosen)
    }

    /// Blocks of which a subscriber may get a new one.
    fn new_blocks(
        &self,
        pool: usize,
        owner: Owner,
        transport: usize,
        own: Option<usize>,
    ) -> Result<Vec<usize>> {
        let has = self.in_state(pool, transport, State::Owned(owner)).len();
        if has >= usize::from(self.terms(pool).per_subscriber) {
            return Err(DropReason::SubscriberBlockQuota);
        }
        let address = |n: &usize| self.pools[pool].blocks.all[*n].address;
        let paired = self.subscribers.iter().find(|s| s.owner == owner).and_then(|s| s.paired);
        let home = paired.or(own.as_ref().map(address));
        let mut free = self.in_state(pool, transport, State::Free);
        if free.iter().any(|n| Some(address(n)) == home) {
            free.retain(|n| Some(address(n)) == home);
        } else if home.is_some() && self.plan.pools[pool].pairing == Pairing::Hard {
            free.clear();
        }
        if free.is_empty() {
            let held = !self.pools[pool].blocks.held.is_empty();
            return Err(if held { DropReason::HoldDownAll } else { DropReason::BlockNone });
        }
        Ok(free)
    }

    /// Claims the port that a held SYN was sent to, from a block of the subscriber or from a new one.
    /// Returns true on success.
    fn may_claim(&mut self, pool: usize, owner: Owner, transport: usize, wanted: End4) -> bool {
        let Some(n) = self.block_at(pool, transport, wanted) else { return false };
        let state = self.pools[pool].blocks.all[n].state;
        if self.own_block(pool, owner) == Some(n) || state == State::Owned(owner) {
            self.take_block(pool, owner, n);
            return true;
        }
        let paired = self.subscribers.iter().find(|s| s.owner == owner).and_then(|s| s.paired);
        let strange = self.plan.pools[pool].pairing == Pairing::Hard && paired.is_some_and(|a| a != wanted.0);
        let has = self.in_state(pool, transport, State::Owned(owner)).len();
        let full = has >= usize::from(self.terms(pool).per_subscriber);
        if strange || full || state != State::Free {
            return false;
        }
        self.take_block(pool, owner, n);
        true
    }

    /// Uses a port of a block: the block no longer lingers, and a free block is assigned and reported.
    fn take_block(&mut self, pool: usize, owner: Owner, n: usize) {
        let p = &mut self.pools[pool].blocks;
        p.lingering.retain(|l| l.0 != n);
        if p.all[n].state == State::Free {
            p.all[n].state = State::Owned(owner);
            self.tell_block(EventKind::BlockAssigned, pool, owner, n);
        }
    }

    fn tell_block(&mut self, kind: EventKind, pool: usize, owner: Owner, n: usize) {
        let b = self.pools[pool].blocks.all[n].clone();
        // While a change settles, only the engine knows which of its ports follow the old rules.
        let told = self.events.front().filter(|_| self.settling.is_some()).map(|told| told.transports);
        let transports = told
            .unwrap_or(std::array::from_fn(|t| b.for_transports[t] && self.block_ports_total(pool, t) > 0));
        self.tell(EventContent {
            outside: (b.address, b.first),
            last: b.last,
            transports,
            pool,
            ..EventContent::nothing(kind, self.now).of_owner(owner)
        });
    }

    /// Returns a port to its block. A block without used ports lingers for its owner.
    pub(super) fn port_of_block_is_back(&mut self, owner: Owner, b: &Binding) {
        let pool = self.rules[b.instance].pool;
        let Some(n) = self.block_at(pool, b.transport, b.outside) else { return };
        let owned = self.pools[pool].blocks.all[n].state == State::Owned(owner);
        if !owned || self.used_in(pool, n).next().is_some() {
            return;
        }
        match self.terms(pool).linger_ms {
            0 => self.end_block(pool, owner, n),
            ms => self.pools[pool].blocks.lingering.push_back((n, session_end(self.now, ms))),
        }
    }

    /// Returns a block to the pool, or holds it down first.
    fn end_block(&mut self, pool: usize, owner: Owner, n: usize) {
        self.tell_block(EventKind::BlockReleased, pool, owner, n);
        let Blocks { hold, size, protocols, .. } = self.terms(pool);
        let now = self.now;
        let p = &mut self.pools[pool];
        let most = (hold.ports_max / u32::from(size)) as usize;
        // RFC 6888 REQ-8 A: the engine follows TCP connections to their end, so they need no hold-down.
        let tcp_alone = protocols == BlockProtocols::Split && p.blocks.all[n].for_transports[TCP];
        p.blocks.all[n].state = State::Free;
        if !p.holds || hold.ms == 0 || most == 0 || tcp_alone || p.blocks.all[n].leaving {
            return;
        }
        if p.blocks.held.len() >= most {
            p.blocks.free_oldest_held();
        }
        p.blocks.all[n].state = State::Held;
        p.blocks.held.push_back((n, session_end(now, hold.ms)));
    }

    /// Releases blocks that have lingered long enough, at most `budget` of a pool.
    pub(super) fn end_lingering(&mut self, pool: usize, budget: usize) {
        for _ in 0..budget {
            let Some(&(n, until)) = self.pools[pool].blocks.lingering.front() else { return };
            let State::Owned(owner) = self.pools[pool].blocks.all[n].state else { return };
            if until > self.now {
                return;
            }
            self.pools[pool].blocks.lingering.pop_front();
            self.end_block(pool, owner, n);
            self.forget_if_idle(owner);
        }
    }
}
