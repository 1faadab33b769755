//! Neighbour cache: the MAC of each neighbour and its reachability (RFC 4861 7.3; the same for ARP, as RFC
//! 1122 2.3.2.1 requires).
//!
//! ```text
//!              packet to it                        answer
//!   (none) ------------------> INCOMPLETE --------------------------> REACHABLE <----+
//!                                |   ^                               | 30 s +- half  | answer
//!              three questions   |   | packet, later                 v    packet     |
//!              unanswered        v   |                             STALE --------> DELAY
//!                               FAILED                               ^               | 5 s
//!                                ^                                   | news          v
//!                                '---- INCOMPLETE <-- three ------- PROBE <----------+
//! ```
//! A failed neighbour is solicited again when a packet needs it, but only after a pause: one second, doubled
//! with each failure, up to sixteen. In DELAY and PROBE, packets still go to the known MAC.
//!
//! The cache has a fixed size. Entries are added and evicted by these rules:
//!
//! - A next hop of a route and a neighbour with a configured MAC have a permanent entry.
//! - A packet to a neighbour on the link creates an entry. At most `unresolved_max` such entries have not
//!   answered yet.
//! - A host that asks for one of our addresses gets an entry in STALE (RFC 4861 7.2.3, RFC 826). So hosts
//!   that use Gatun are already known when a scan has used up `unresolved_max` (RFC 6583 6.2). Unsolicited
//!   answers create no entry.
//! - If the cache is full, an entry that was unused for a minute or that failed is evicted. Entries in use or
//!   being resolved are never evicted.

use crate::address::Key;
use crate::{Limits, Mac, Unsent};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use gatun_mem::hash::Hasher64;

/// RFC 4861 10.
const RETRANS_MS: u64 = 1000;
const SOLICITS_MAX: u8 = 3;
const REACHABLE_MS: u64 = 30_000;
const DELAY_FIRST_PROBE_MS: u64 = 5000;
/// Pause before a failed neighbour is solicited again; doubled with each failure.
const BACK_OFF_MS: u64 = 1000;
const BACK_OFF_DOUBLINGS_MAX: u8 = 4;
/// Time after a packet during which an entry counts as in use.
const IN_USE_MS: u64 = 60_000;
/// Time after which an unused entry is removed.
const IDLE_MS: u64 = 600_000;
/// Shortest time between two sweeps of the timers.
const SWEEP_MS: u64 = 50;
/// Number of entries examined to find one to evict.
const EVICTION_LOOKS: u32 = 16;

const NIL: u32 = u32::MAX;

/// Reachability state of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourState {
    /// Not solicited: a next hop without traffic, or one that failed some time ago.
    Unknown,
    /// Solicited; packets wait.
    Incomplete,
    /// Answered recently.
    Reachable,
    /// The MAC is known, but from long ago or from an unsolicited message.
    Stale,
    /// In use while stale. It is solicited unless it sends something itself.
    Delay,
    /// Being solicited at the known MAC.
    Probe,
    /// Did not answer. Packets to it are dropped, and it is solicited again after a pause.
    Failed,
}

#[derive(Clone, Debug)]
pub(crate) struct CacheEntry {
    pub(crate) key: Key,
    used_ms: u64,
    timer_ms: u64,
    next: u32,
    pub(crate) mac: Mac,
    pub(crate) port: u8,
    pub(crate) state: NeighbourState,
    /// True if the slot is used.
    live: bool,
    /// Permanent: the next hop of a route, or a configured MAC.
    pinned: bool,
    /// The MAC is configured: the neighbour is never solicited, and messages cannot change it.
    fixed: bool,
    /// True if the entry is on the agenda.
    on_agenda: bool,
    /// Number of unanswered solicitations.
    asked: u8,
    failures: u8,
    /// Number of packets waiting for it.
    pub(crate) waiting: u16,
}

/// Action for a packet to a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextHopAction {
    Send(Mac),
    Wait,
    Drop(Unsent),
}

/// Update of a neighbour's MAC for the other workers at the same ports. An answer arrives at one queue, but
/// all workers may have asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighbourUpdate {
    pub(crate) port: u8,
    pub(crate) key: Key,
    pub(crate) info: LinkLayerInfo,
}

/// Link-layer address of a neighbour as received in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkLayerInfo {
    pub(crate) mac: Option<Mac>,
    /// Answers a solicitation (RFC 4861 4.4, S).
    pub(crate) solicited: bool,
    /// Overrides the known address (RFC 4861 4.4, O).
    pub(crate) overrides: bool,
}

/// Result of applying received link-layer information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MacChange {
    Unchanged,
    /// The MAC changed.
    Moved,
}

/// Task that is due for a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NeighbourTask {
    /// Solicit by multicast or broadcast.
    SolicitMulticast { port: u8, key: Key },
    /// Solicit the neighbour directly.
    SolicitUnicast { port: u8, key: Key, mac: Mac },
    /// Send the packets that wait for it.
    Release { neighbour: u32, port: u8, mac: Mac },
    /// Resolution failed: drop the packets that wait for it.
    Fail { neighbour: u32 },
}

pub(crate) struct NeighbourCache {
    places: Vec<CacheEntry>,
    heads: Vec<u32>,
    free: u32,
    hasher: Hasher64,
    unresolved: u32,
    unresolved_max: u32,
    /// Slot at which the next search for an eviction candidate starts.
    hand: u32,
    agenda: VecDeque<u32>,
    /// Earliest time of the next sweep of the timers. `u64::MAX` if no timer runs.
    sweep_ms: u64,
    /// Slot that the sweep has reached.
    sweep_at: u32,
    pub(crate) evicted: u64,
}

impl NeighbourCache {
    pub(crate) fn new(limits: &Limits, seed: [u64; 4]) -> NeighbourCache {
        let count = limits.neighbours_max;
        let place = |i: u32| CacheEntry {
            key: Key(0),
            used_ms: 0,
            timer_ms: u64::MAX,
            next: if i + 1 < count { i + 1 } else { NIL },
            mac: Mac::default(),
            port: 0,
            state: NeighbourState::Unknown,
            live: false,
            pinned: false,
            fixed: false,
            on_agenda: false,
            asked: 0,
            failures: 0,
            waiting: 0,
        };
        NeighbourCache {
            places: (0..count).map(place).collect(),
            heads: alloc::vec![NIL; count.next_power_of_two() as usize],
            free: if count > 0 { 0 } else { NIL },
            hasher: Hasher64::new(seed),
            unresolved: 0,
            unresolved_max: limits.unresolved_max,
            hand: 0,
            agenda: VecDeque::with_capacity(count as usize),
            sweep_ms: u64::MAX,
            sweep_at: 0,
            evicted: 0,
        }
    }

    /// Returns the permanent entry of a next hop, creating it if needed. `None` if the cache is full.
    pub(crate) fn pin(&mut self, port: u8, key: Key) -> Option<u32> {
        let neighbour = self.find(port, key).or_else(|| self.insert(0, port, key))?;
        self.places.get_mut(neighbour as usize)?.pinned = true;
        Some(neighbour)
    }

    /// Adopts the MACs and states of another cache whose ports have the same numbers. Its configured MACs are
    /// ignored.
    pub(crate) fn adopt(&mut self, now_ms: u64, before: &NeighbourCache) {
        self.evicted = before.evicted;
        let is_known = |n: &&CacheEntry| {
            matches!(
                n.state,
                NeighbourState::Reachable
                    | NeighbourState::Stale
                    | NeighbourState::Delay
                    | NeighbourState::Probe
            ) && !n.fixed
        };
        for known in before.iter().filter(is_known) {
            let place = self.find(known.port, known.key);
            let Some(place) = place.or_else(|| self.insert(now_ms, known.port, known.key)) else { continue };
            let Some(n) = self.places.get_mut(place as usize).filter(|n| !n.fixed) else { continue };
            (n.mac, n.state, n.asked) = (known.mac, known.state, known.asked);
            n.used_ms = known.used_ms;
            self.arm(place, known.timer_ms);
        }
    }

    /// Adds a neighbour with a configured MAC: REACHABLE forever. Does nothing if the cache is full.
    pub(crate) fn fix(&mut self, port: u8, key: Key, mac: Mac) {
        let Some(neighbour) = self.pin(port, key) else { return };
        if let Some(n) = self.places.get_mut(neighbour as usize) {
            (n.fixed, n.mac) = (true, mac);
        }
        self.settle(neighbour, NeighbourState::Reachable, u64::MAX);
    }

    #[inline]
    pub(crate) fn find(&self, port: u8, key: Key) -> Option<u32> {
        let mut at = *self.heads.get(self.bucket(port, key))?;
        // Terminates: chains have no cycles, and a slot is in at most one chain.
        while let Some(n) = self.places.get(at as usize) {
            if n.key == key && n.port == port {
                return Some(at);
            }
            at = n.next;
        }
        None
    }

    #[inline]
    fn bucket(&self, port: u8, key: Key) -> usize {
        let hash = self.hasher.hash4([(key.0 >> 64) as u64, key.0 as u64, port.into(), 0]);
        hash as usize & self.heads.len().wrapping_sub(1)
    }

    #[inline]
    pub(crate) fn get(&self, neighbour: u32) -> Option<&CacheEntry> {
        self.places.get(neighbour as usize)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, neighbour: u32) -> Option<&mut CacheEntry> {
        self.places.get_mut(neighbour as usize)
    }

    /// All entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &CacheEntry> {
        self.places.iter().filter(|n| n.live)
    }

    /// Returns the entry for a packet to a neighbour on the link, creating it if needed.
    ///
    /// # Errors
    /// Returns an error if the cache, or its limit of unresolved entries, is full.
    pub(crate) fn want(&mut self, now_ms: u64, port: u8, key: Key) -> Result<u32, Unsent> {
        match self.find(port, key) {
            Some(neighbour) => Ok(neighbour),
            None if self.unresolved >= self.unresolved_max => Err(Unsent::UnresolvedFull),
            None => self.insert(now_ms, port, key).ok_or(Unsent::NeighboursFull),
        }
    }

    /// MAC of a neighbour that packets can go to without a state change.
    #[inline]
    pub(crate) fn ready(&mut self, now_ms: u64, neighbour: u32) -> Option<Mac> {
        let n = self.places.get_mut(neighbour as usize)?;
        let ready =
            matches!(n.state, NeighbourState::Reachable | NeighbourState::Delay | NeighbourState::Probe);
        if ready {
            n.used_ms = now_ms;
        }
        ready.then_some(n.mac)
    }

    /// Decides what to do with a packet to a neighbour.
    pub(crate) fn way(&mut self, now_ms: u64, neighbour: u32) -> NextHopAction {
        let Some(n) = self.places.get_mut(neighbour as usize) else {
            return NextHopAction::Drop(Unsent::NeighboursFull);
        };
        n.used_ms = now_ms;
        match n.state {
            NeighbourState::Reachable | NeighbourState::Delay | NeighbourState::Probe => {
                NextHopAction::Send(n.mac)
            }
            NeighbourState::Incomplete => NextHopAction::Wait,
            NeighbourState::Stale => {
                // RFC 4861 7.3.3: the first packet to a stale entry starts the delay and is sent.
                n.state = NeighbourState::Delay;
                let mac = n.mac;
                self.arm(neighbour, now_ms.saturating_add(DELAY_FIRST_PROBE_MS));
                NextHopAction::Send(mac)
            }
            NeighbourState::Failed => NextHopAction::Drop(Unsent::NeighbourFailed),
            NeighbourState::Unknown if self.unresolved >= self.unresolved_max => {
                NextHopAction::Drop(Unsent::UnresolvedFull)
            }
            NeighbourState::Unknown => {
                self.ask_all(neighbour);
                NextHopAction::Wait
            }
        }
    }

    /// Counts every neighbour with a known MAC as in use: the stale ones are verified.
    pub(crate) fn verify_all(&mut self, now_ms: u64) {
        for neighbour in 0..self.places.len() as u32 {
            let Some(n) = self.places.get_mut(neighbour as usize).filter(|n| n.live) else { continue };
            match n.state {
                NeighbourState::Stale => drop(self.way(now_ms, neighbour)),
                NeighbourState::Reachable | NeighbourState::Delay | NeighbourState::Probe => {
                    n.used_ms = now_ms
                }
                NeighbourState::Unknown | NeighbourState::Incomplete | NeighbourState::Failed => {}
            }
        }
    }

    /// Applies received link-layer information (RFC 4861 7.2.5 and 7.2.3; RFC 826 for ARP). Changes existing
    /// entries only.
    pub(crate) fn learn(&mut self, now_ms: u64, port: u8, key: Key, info: LinkLayerInfo) -> MacChange {
        let Some(neighbour) = self.find(port, key) else { return MacChange::Unchanged };
        let reachable_ms = self.reachable_ms(now_ms, key);
        let Some(n) = self.places.get_mut(neighbour as usize) else { return MacChange::Unchanged };
        if n.fixed {
            return MacChange::Unchanged;
        }
        let unresolved =
            matches!(n.state, NeighbourState::Unknown | NeighbourState::Incomplete | NeighbourState::Failed);
        // Only an answer to a solicitation confirms reachability. A message that merely claims to be
        // solicited does not.
        let answers =
            info.solicited && (matches!(n.state, NeighbourState::Incomplete | NeighbourState::Probe));
        let (mac, moved) = match info.mac {
            Some(mac) => (mac, !unresolved && mac != n.mac),
            // "If no RouteTarget Link-Layer Address option is included, the receiving node SHOULD silently
            // discard".
            None if unresolved => return MacChange::Unchanged,
            None => (n.mac, false),
        };
        if moved && !info.overrides {
            // 7.2.5 I: the known MAC stays but becomes STALE.
            if n.state == NeighbourState::Reachable {
                n.state = NeighbourState::Stale;
                self.arm(neighbour, now_ms.saturating_add(IDLE_MS));
            }
            return MacChange::Unchanged;
        }
        n.mac = mac;
        if answers {
            self.settle(neighbour, NeighbourState::Reachable, now_ms.saturating_add(reachable_ms));
        } else if moved || unresolved {
            self.settle(neighbour, NeighbourState::Stale, now_ms.saturating_add(IDLE_MS));
        }
        if moved { MacChange::Moved } else { MacChange::Unchanged }
    }

    /// Adds a host that asked for one of our addresses, in STALE. Returns false if the cache is full.
    pub(crate) fn glean(&mut self, now_ms: u64, port: u8, key: Key, mac: Mac) -> bool {
        if self.find(port, key).is_some() {
            return true;
        }
        let Some(neighbour) = self.insert(now_ms, port, key) else { return false };
        if let Some(n) = self.places.get_mut(neighbour as usize) {
            n.mac = mac;
            // The entry is not in use before a packet goes to it, so a flood of requests evicts only its own
            // entries.
            n.used_ms = now_ms.saturating_sub(IN_USE_MS);
        }
        self.settle(neighbour, NeighbourState::Stale, now_ms.saturating_add(IDLE_MS));
        true
    }

    /// Time of the next task: 0 for immediately, `u64::MAX` for never.
    #[inline]
    pub(crate) fn due_ms(&self) -> u64 {
        if self.agenda.is_empty() { self.sweep_ms } else { 0 }
    }

    /// Next task that is due now, or `None`. A task's consequences are found by the next call.
    pub(crate) fn next_task(&mut self, now_ms: u64) -> Option<NeighbourTask> {
        loop {
            if let Some(neighbour) = self.agenda.pop_front() {
                match self.do_now(now_ms, neighbour) {
                    Some(task) => return Some(task),
                    None => continue,
                }
            }
            if self.sweep_at == 0 {
                if now_ms < self.sweep_ms {
                    return None;
                }
                self.sweep_ms = u64::MAX;
            }
            match self.sweep(now_ms) {
                Some(task) => return Some(task),
                None if self.agenda.is_empty() => return None,
                None => {}
            }
        }
    }

    /// Sweeps the timers from where it stopped, up to the next one that yields a task, or to the end.
    fn sweep(&mut self, now_ms: u64) -> Option<NeighbourTask> {
        while let Some(n) = self.places.get(self.sweep_at as usize) {
            let neighbour = self.sweep_at;
            let task = if n.timer_ms <= now_ms { self.on_timer(now_ms, neighbour) } else { None };
            let timer_ms = self.get(neighbour).map_or(u64::MAX, |n| n.timer_ms);
            self.sweep_ms = self.sweep_ms.min(timer_ms);
            self.sweep_at += 1;
            if task.is_some() {
                return task;
            }
        }
        self.sweep_at = 0;
        self.sweep_ms = self.sweep_ms.max(now_ms.saturating_add(SWEEP_MS));
        None
    }

    fn do_now(&mut self, now_ms: u64, neighbour: u32) -> Option<NeighbourTask> {
        let n = self.places.get_mut(neighbour as usize)?;
        n.on_agenda = false;
        match n.state {
            NeighbourState::Incomplete if n.asked == 0 => self.on_timer(now_ms, neighbour),
            NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
                if n.waiting > 0 =>
            {
                Some(NeighbourTask::Release { neighbour, port: n.port, mac: n.mac })
            }
            _ => None,
        }
    }

    fn on_timer(&mut self, now_ms: u64, neighbour: u32) -> Option<NeighbourTask> {
        let n = self.places.get_mut(neighbour as usize)?;
        let (port, key, mac) = (n.port, n.key, n.mac);
        let again = now_ms.saturating_add(RETRANS_MS);
        match n.state {
            NeighbourState::Incomplete if n.asked < SOLICITS_MAX => {
                n.asked += 1;
                self.arm(neighbour, again);
                return Some(NeighbourTask::SolicitMulticast { port, key });
            }
            NeighbourState::Incomplete => {
                let doublings = n.failures.min(BACK_OFF_DOUBLINGS_MAX);
                n.failures = n.failures.saturating_add(1);
                self.settle(
                    neighbour,
                    NeighbourState::Failed,
                    now_ms.saturating_add(BACK_OFF_MS << doublings),
                );
                return Some(NeighbourTask::Fail { neighbour });
            }
            NeighbourState::Reachable => {
                n.state = NeighbourState::Stale;
                self.arm(neighbour, now_ms.saturating_add(IDLE_MS));
            }
            NeighbourState::Delay | NeighbourState::Probe if n.asked < SOLICITS_MAX => {
                n.state = NeighbourState::Probe;
                n.asked += 1;
                self.arm(neighbour, again);
                return Some(NeighbourTask::SolicitUnicast { port, key, mac });
            }
            // RFC 7048 3: solicit by multicast again instead of giving up.
            NeighbourState::Delay | NeighbourState::Probe => self.ask_all(neighbour),
            NeighbourState::Failed => {
                n.state = NeighbourState::Unknown;
                self.on_idle_timer(now_ms, neighbour);
            }
            NeighbourState::Stale | NeighbourState::Unknown => self.on_idle_timer(now_ms, neighbour),
        }
        None
    }

    /// Removes an entry that was unused for long.
    fn on_idle_timer(&mut self, now_ms: u64, neighbour: u32) {
        let Some(n) = self.places.get_mut(neighbour as usize) else { return };
        let idle_at = n.used_ms.saturating_add(IDLE_MS);
        if n.pinned {
            n.timer_ms = u64::MAX;
        } else if now_ms >= idle_at {
            self.remove(neighbour);
        } else {
            self.arm(neighbour, idle_at);
        }
    }

    /// Starts resolving a neighbour at the next turn.
    fn ask_all(&mut self, neighbour: u32) {
        self.settle(neighbour, NeighbourState::Incomplete, u64::MAX);
        self.put_on_agenda(neighbour);
    }

    /// Sets the state and timer of an entry, and puts waiting packets on the agenda.
    fn settle(&mut self, neighbour: u32, state: NeighbourState, timer_ms: u64) {
        let Some(n) = self.places.get_mut(neighbour as usize) else { return };
        match (n.state == NeighbourState::Incomplete, state == NeighbourState::Incomplete) {
            (false, true) => self.unresolved = self.unresolved.saturating_add(1),
            (true, false) => self.unresolved = self.unresolved.saturating_sub(1),
            _ => {}
        }
        n.state = state;
        n.asked = 0;
        if matches!(state, NeighbourState::Reachable | NeighbourState::Stale) {
            n.failures = 0;
            if n.waiting > 0 {
                self.put_on_agenda(neighbour);
            }
        }
        self.arm(neighbour, timer_ms);
    }

    /// Schedules the entry for the next turn, so that its waiting packets are sent.
    pub(crate) fn put_on_agenda(&mut self, neighbour: u32) {
        let Some(n) = self.places.get_mut(neighbour as usize) else { return };
        if !n.on_agenda {
            n.on_agenda = true;
            self.agenda.push_back(neighbour);
        }
    }

    fn arm(&mut self, neighbour: u32, timer_ms: u64) {
        if let Some(n) = self.places.get_mut(neighbour as usize) {
            n.timer_ms = timer_ms;
            self.sweep_ms = self.sweep_ms.min(timer_ms);
        }
    }

    /// Number that nobody on the link can predict.
    pub(crate) fn random(&self, now_ms: u64, what: u64) -> u64 {
        self.hasher.hash4([what, 0, now_ms, 2])
    }

    /// RFC 4861 6.3.2: between half and one and a half times the base, so that neighbours are not all
    /// solicited at once.
    fn reachable_ms(&self, now_ms: u64, key: Key) -> u64 {
        let random = self.hasher.hash4([(key.0 >> 64) as u64, key.0 as u64, now_ms, 1]);
        REACHABLE_MS / 2 + random % (REACHABLE_MS + 1)
    }

    fn insert(&mut self, now_ms: u64, port: u8, key: Key) -> Option<u32> {
        let neighbour = self.take_free().or_else(|| self.evict(now_ms))?;
        let bucket = self.bucket(port, key);
        let head = self.heads.get_mut(bucket)?;
        let n = self.places.get_mut(neighbour as usize)?;
        *n = CacheEntry {
            key,
            used_ms: now_ms,
            timer_ms: u64::MAX,
            next: *head,
            mac: Mac::default(),
            port,
            state: NeighbourState::Unknown,
            live: true,
            pinned: false,
            fixed: false,
            on_agenda: n.on_agenda,
            asked: 0,
            failures: 0,
            waiting: 0,
        };
        *head = neighbour;
        Some(neighbour)
    }

    fn take_free(&mut self) -> Option<u32> {
        let neighbour = self.free;
        self.free = self.places.get(neighbour as usize)?.next;
        Some(neighbour)
    }

    /// Evicts an entry after examining a few slots. `None` if all of these are in use.
    fn evict(&mut self, now_ms: u64) -> Option<u32> {
        for _ in 0..EVICTION_LOOKS {
            let at = self.hand;
            self.hand = if at as usize + 1 < self.places.len() { at + 1 } else { 0 };
            let n = self.places.get(at as usize)?;
            let idle = now_ms >= n.used_ms.saturating_add(IN_USE_MS);
            let goes = match n.state {
                NeighbourState::Failed | NeighbourState::Unknown => true,
                NeighbourState::Reachable | NeighbourState::Stale => idle,
                NeighbourState::Incomplete | NeighbourState::Delay | NeighbourState::Probe => false,
            };
            if goes && n.live && !n.pinned && n.waiting == 0 {
                self.remove(at);
                self.evicted = self.evicted.wrapping_add(1);
                return self.take_free();
            }
        }
        None
    }

    fn remove(&mut self, neighbour: u32) {
        let Some(n) = self.places.get(neighbour as usize) else { return };
        let (bucket, after) = (self.bucket(n.port, n.key), n.next);
        let Some(head) = self.heads.get_mut(bucket) else { return };
        if *head == neighbour {
            *head = after;
        } else {
            let mut at = *head;
            while let Some(n) = self.places.get_mut(at as usize) {
                if n.next == neighbour {
                    n.next = after;
                    break;
                }
                at = n.next;
            }
        }
        if let Some(n) = self.places.get_mut(neighbour as usize) {
            if n.state == NeighbourState::Incomplete {
                self.unresolved = self.unresolved.saturating_sub(1);
            }
            (n.live, n.state, n.timer_ms, n.next) = (false, NeighbourState::Unknown, u64::MAX, self.free);
            self.free = neighbour;
        }
    }
}
