//! The neighbours: who has which MAC, and how sure that is (RFC 4861 7.3; the same for ARP, as RFC 1122 2.3.2.1
//! asks for).
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
//! A neighbour that fails is asked again when a packet wants it, but not before a while has passed: one second,
//! doubled with each failure, up to sixteen. In DELAY and PROBE packets go on to the MAC that was known.
//!
//! The table has a fixed size. Who may get a place, and whose:
//!
//! - A next hop of a route has a place of its own for ever, and so has a neighbour that is written down with its MAC.
//! - A packet to a neighbour on the link makes an entry; at most `unresolved_max` such have not yet answered.
//! - Somebody who asks for an address of ours is noted, in STALE (RFC 4861 7.2.3, RFC 826): so hosts that use us are
//!   known already when a scan has used up `unresolved_max` (RFC 6583 6.2). Answers nobody asked for make no entry.
//! - Where the table is full, one that was not used for a minute gives its place, or one that has failed. Those in use, and those
//!   being asked for, never do.

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
/// How long a neighbour that failed is not asked again: doubled with each failure.
const BACK_OFF_MS: u64 = 1000;
const BACK_OFF_DOUBLINGS_MAX: u8 = 4;
/// How long an entry is in use after a packet to it.
const IN_USE_MS: u64 = 60_000;
/// How long an entry is kept that nobody uses.
const IDLE_MS: u64 = 600_000;
/// Timers are looked at so often at most.
const SWEEP_MS: u64 = 50;
/// Entries that are looked at for one to evict.
const EVICTION_LOOKS: u32 = 16;

const NIL: u32 = u32::MAX;

/// What is known of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not asked for: a next hop that nothing was sent to, or one that failed some time ago.
    Unknown,
    /// Asked for; packets wait.
    Incomplete,
    /// It has answered lately.
    Reachable,
    /// Its MAC is known, from long ago or by hearsay.
    Stale,
    /// In use while stale: it will be asked, unless it answers by itself.
    Delay,
    /// It is being asked at the MAC that is known.
    Probe,
    /// It did not answer, and is not asked again for a while: packets to it are dropped.
    Failed,
}

#[derive(Clone, Debug)]
pub(crate) struct Neighbour {
    pub(crate) key: Key,
    used_ms: u64,
    timer_ms: u64,
    next: u32,
    pub(crate) mac: Mac,
    pub(crate) port: u8,
    pub(crate) state: State,
    /// Whether the place is taken.
    live: bool,
    /// The next hop of a route, or fixed.
    pinned: bool,
    /// Whether its MAC was written down, and nobody is asked or believed.
    fixed: bool,
    /// Whether it stands on the agenda.
    on_agenda: bool,
    /// Questions without an answer so far.
    asked: u8,
    failures: u8,
    /// Packets that wait for it.
    pub(crate) waiting: u16,
}

/// What to do with a packet to a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Send(Mac),
    Wait,
    Drop(Unsent),
}

/// What was heard about a neighbour's MAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct News {
    pub(crate) mac: Option<Mac>,
    /// An answer to a question (RFC 4861 4.4, S).
    pub(crate) solicited: bool,
    /// It counts more than what is known (RFC 4861 4.4, O).
    pub(crate) overrides: bool,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Learnt {
    Nothing,
    /// The MAC is another than before.
    Moved,
}

/// What is to be done for a neighbour, now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Ask everybody on the link.
    AskAll { port: u8, key: Key },
    /// Ask the neighbour itself.
    AskIt { port: u8, key: Key, mac: Mac },
    /// Packets that wait for it may go.
    Release { neighbour: u32, port: u8, mac: Mac },
    /// It failed: packets that wait for it are lost.
    GiveUp { neighbour: u32 },
}

pub(crate) struct Neighbours {
    places: Vec<Neighbour>,
    heads: Vec<u32>,
    free: u32,
    hasher: Hasher64,
    unresolved: u32,
    unresolved_max: u32,
    /// Where to look next for one to evict.
    hand: u32,
    agenda: VecDeque<u32>,
    /// When timers are looked at next, at the earliest; `u64::MAX`: none runs.
    sweep_ms: u64,
    /// The place that a sweep has come to.
    sweep_at: u32,
    pub(crate) evicted: u64,
}

impl Neighbours {
    pub(crate) fn new(limits: &Limits, seed: [u64; 4]) -> Neighbours {
        let count = limits.neighbours_max;
        let place = |i: u32| Neighbour {
            key: Key(0),
            used_ms: 0,
            timer_ms: u64::MAX,
            next: if i + 1 < count { i + 1 } else { NIL },
            mac: Mac::default(),
            port: 0,
            state: State::Unknown,
            live: false,
            pinned: false,
            fixed: false,
            on_agenda: false,
            asked: 0,
            failures: 0,
            waiting: 0,
        };
        Neighbours {
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

    /// A place for a next hop; the same for the same one. `None` where there is no room.
    pub(crate) fn pin(&mut self, port: u8, key: Key) -> Option<u32> {
        let neighbour = self.find(port, key).or_else(|| self.insert(0, port, key))?;
        self.places.get_mut(neighbour as usize)?.pinned = true;
        Some(neighbour)
    }

    /// Takes over the MACs that another table knows, and how sure they are; ports have the same numbers there. What was
    /// written down there counts for nothing.
    pub(crate) fn adopt(&mut self, now_ms: u64, before: &Neighbours) {
        self.evicted = before.evicted;
        let is_known = |n: &&Neighbour| {
            matches!(n.state, State::Reachable | State::Stale | State::Delay | State::Probe) && !n.fixed
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

    /// A neighbour whose MAC is known beforehand: REACHABLE for ever. Nothing where there is no room.
    pub(crate) fn fix(&mut self, port: u8, key: Key, mac: Mac) {
        let Some(neighbour) = self.pin(port, key) else { return };
        if let Some(n) = self.places.get_mut(neighbour as usize) {
            (n.fixed, n.mac) = (true, mac);
        }
        self.settle(neighbour, State::Reachable, u64::MAX);
    }

    #[inline]
    pub(crate) fn find(&self, port: u8, key: Key) -> Option<u32> {
        let mut at = *self.heads.get(self.bucket(port, key))?;
        // Ends: chains have no rings, and a place is in one chain at most.
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
    pub(crate) fn get(&self, neighbour: u32) -> Option<&Neighbour> {
        self.places.get(neighbour as usize)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, neighbour: u32) -> Option<&mut Neighbour> {
        self.places.get_mut(neighbour as usize)
    }

    /// All that are known.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Neighbour> {
        self.places.iter().filter(|n| n.live)
    }

    /// The entry for a packet to a neighbour on the link, made where there is none.
    ///
    /// # Errors
    /// Where the table, or its part for those that have not answered, is full.
    pub(crate) fn want(&mut self, now_ms: u64, port: u8, key: Key) -> Result<u32, Unsent> {
        match self.find(port, key) {
            Some(neighbour) => Ok(neighbour),
            None if self.unresolved >= self.unresolved_max => Err(Unsent::UnresolvedFull),
            None => self.insert(now_ms, port, key).ok_or(Unsent::NeighboursFull),
        }
    }

    /// The MAC of a neighbour that packets go to without further ado.
    #[inline]
    pub(crate) fn ready(&mut self, now_ms: u64, neighbour: u32) -> Option<Mac> {
        let n = self.places.get_mut(neighbour as usize)?;
        let ready = matches!(n.state, State::Reachable | State::Delay | State::Probe);
        if ready {
            n.used_ms = now_ms;
        }
        ready.then_some(n.mac)
    }

    /// What to do with a packet to a neighbour.
    pub(crate) fn way(&mut self, now_ms: u64, neighbour: u32) -> Way {
        let Some(n) = self.places.get_mut(neighbour as usize) else {
            return Way::Drop(Unsent::NeighboursFull);
        };
        n.used_ms = now_ms;
        match n.state {
            State::Reachable | State::Delay | State::Probe => Way::Send(n.mac),
            State::Incomplete => Way::Wait,
            State::Stale => {
                // RFC 4861 7.3.3: the first packet to a stale entry starts the delay, and goes.
                n.state = State::Delay;
                let mac = n.mac;
                self.arm(neighbour, now_ms.saturating_add(DELAY_FIRST_PROBE_MS));
                Way::Send(mac)
            }
            State::Failed => Way::Drop(Unsent::NeighbourFailed),
            State::Unknown if self.unresolved >= self.unresolved_max => Way::Drop(Unsent::UnresolvedFull),
            State::Unknown => {
                self.ask_all(neighbour);
                Way::Wait
            }
        }
    }

    /// RFC 4861 7.2.5 and 7.2.3; RFC 826 for ARP. Changes an entry that there is, and makes none.
    pub(crate) fn learn(&mut self, now_ms: u64, port: u8, key: Key, news: News) -> Learnt {
        let Some(neighbour) = self.find(port, key) else { return Learnt::Nothing };
        let reachable_ms = self.reachable_ms(now_ms, key);
        let Some(n) = self.places.get_mut(neighbour as usize) else { return Learnt::Nothing };
        if n.fixed {
            return Learnt::Nothing;
        }
        let unresolved = matches!(n.state, State::Unknown | State::Incomplete | State::Failed);
        // Only who was asked answers: what says so without a question is hearsay.
        let answers = news.solicited && (matches!(n.state, State::Incomplete | State::Probe));
        let (mac, moved) = match news.mac {
            Some(mac) => (mac, !unresolved && mac != n.mac),
            // "If no Target Link-Layer Address option is included, the receiving node SHOULD silently discard".
            None if unresolved => return Learnt::Nothing,
            None => (n.mac, false),
        };
        if moved && !news.overrides {
            // 7.2.5 I: what is known stays, but is doubted.
            if n.state == State::Reachable {
                n.state = State::Stale;
                self.arm(neighbour, now_ms.saturating_add(IDLE_MS));
            }
            return Learnt::Nothing;
        }
        n.mac = mac;
        if answers {
            self.settle(neighbour, State::Reachable, now_ms.saturating_add(reachable_ms));
        } else if moved || unresolved {
            self.settle(neighbour, State::Stale, now_ms.saturating_add(IDLE_MS));
        }
        if moved { Learnt::Moved } else { Learnt::Nothing }
    }

    /// Notes somebody who asked for an address of ours: an entry in STALE. False where there is no room.
    pub(crate) fn glean(&mut self, now_ms: u64, port: u8, key: Key, mac: Mac) -> bool {
        if self.find(port, key).is_some() {
            return true;
        }
        let Some(neighbour) = self.insert(now_ms, port, key) else { return false };
        if let Some(n) = self.places.get_mut(neighbour as usize) {
            n.mac = mac;
            // Not in use before a packet goes to it: a flood of questions evicts its own like.
            n.used_ms = now_ms.saturating_sub(IN_USE_MS);
        }
        self.settle(neighbour, State::Stale, now_ms.saturating_add(IDLE_MS));
        true
    }

    /// When there is something to do: 0 for at once, `u64::MAX` for never.
    #[inline]
    pub(crate) fn due_ms(&self) -> u64 {
        if self.agenda.is_empty() { self.sweep_ms } else { 0 }
    }

    /// The next thing to do now; `None` when all is done. What comes of it is found by the call after.
    pub(crate) fn next_task(&mut self, now_ms: u64) -> Option<Task> {
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

    /// Looks at the timers from where it stopped, to the next that has something to say or to the end.
    fn sweep(&mut self, now_ms: u64) -> Option<Task> {
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

    fn do_now(&mut self, now_ms: u64, neighbour: u32) -> Option<Task> {
        let n = self.places.get_mut(neighbour as usize)?;
        n.on_agenda = false;
        match n.state {
            State::Incomplete if n.asked == 0 => self.on_timer(now_ms, neighbour),
            State::Reachable | State::Stale | State::Delay | State::Probe if n.waiting > 0 => {
                Some(Task::Release { neighbour, port: n.port, mac: n.mac })
            }
            _ => None,
        }
    }

    fn on_timer(&mut self, now_ms: u64, neighbour: u32) -> Option<Task> {
        let n = self.places.get_mut(neighbour as usize)?;
        let (port, key, mac) = (n.port, n.key, n.mac);
        let again = now_ms.saturating_add(RETRANS_MS);
        match n.state {
            State::Incomplete if n.asked < SOLICITS_MAX => {
                n.asked += 1;
                self.arm(neighbour, again);
                return Some(Task::AskAll { port, key });
            }
            State::Incomplete => {
                let doublings = n.failures.min(BACK_OFF_DOUBLINGS_MAX);
                n.failures = n.failures.saturating_add(1);
                self.settle(neighbour, State::Failed, now_ms.saturating_add(BACK_OFF_MS << doublings));
                return Some(Task::GiveUp { neighbour });
            }
            State::Reachable => {
                n.state = State::Stale;
                self.arm(neighbour, now_ms.saturating_add(IDLE_MS));
            }
            State::Delay | State::Probe if n.asked < SOLICITS_MAX => {
                n.state = State::Probe;
                n.asked += 1;
                self.arm(neighbour, again);
                return Some(Task::AskIt { port, key, mac });
            }
            // RFC 7048 3: all are asked anew, rather than giving it up.
            State::Delay | State::Probe => self.ask_all(neighbour),
            State::Failed => {
                n.state = State::Unknown;
                self.on_idle_timer(now_ms, neighbour);
            }
            State::Stale | State::Unknown => self.on_idle_timer(now_ms, neighbour),
        }
        None
    }

    /// An entry that nobody has used for long goes.
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

    /// Begins to ask for a neighbour, with the next turn.
    fn ask_all(&mut self, neighbour: u32) {
        self.settle(neighbour, State::Incomplete, u64::MAX);
        self.put_on_agenda(neighbour);
    }

    /// Puts an entry into a state with a timer, and packets that wait on the agenda.
    fn settle(&mut self, neighbour: u32, state: State, timer_ms: u64) {
        let Some(n) = self.places.get_mut(neighbour as usize) else { return };
        match (n.state == State::Incomplete, state == State::Incomplete) {
            (false, true) => self.unresolved = self.unresolved.saturating_add(1),
            (true, false) => self.unresolved = self.unresolved.saturating_sub(1),
            _ => {}
        }
        n.state = state;
        n.asked = 0;
        if matches!(state, State::Reachable | State::Stale) {
            n.failures = 0;
            if n.waiting > 0 {
                self.put_on_agenda(neighbour);
            }
        }
        self.arm(neighbour, timer_ms);
    }

    /// Looks at it with the next turn: what waits for it may go.
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

    /// A number that nobody on the link can foretell.
    pub(crate) fn random(&self, now_ms: u64, what: u64) -> u64 {
        self.hasher.hash4([what, 0, now_ms, 2])
    }

    /// RFC 4861 6.3.2: between half and one and a half times the base, so that not all are asked at once.
    fn reachable_ms(&self, now_ms: u64, key: Key) -> u64 {
        let random = self.hasher.hash4([(key.0 >> 64) as u64, key.0 as u64, now_ms, 1]);
        REACHABLE_MS / 2 + random % (REACHABLE_MS + 1)
    }

    fn insert(&mut self, now_ms: u64, port: u8, key: Key) -> Option<u32> {
        let neighbour = self.take_free().or_else(|| self.evict(now_ms))?;
        let bucket = self.bucket(port, key);
        let head = self.heads.get_mut(bucket)?;
        let n = self.places.get_mut(neighbour as usize)?;
        *n = Neighbour {
            key,
            used_ms: now_ms,
            timer_ms: u64::MAX,
            next: *head,
            mac: Mac::default(),
            port,
            state: State::Unknown,
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

    /// Makes room, looking at a few places: `None` where all of these are in use.
    fn evict(&mut self, now_ms: u64) -> Option<u32> {
        for _ in 0..EVICTION_LOOKS {
            let at = self.hand;
            self.hand = if at as usize + 1 < self.places.len() { at + 1 } else { 0 };
            let n = self.places.get(at as usize)?;
            let idle = now_ms >= n.used_ms.saturating_add(IN_USE_MS);
            let goes = match n.state {
                State::Failed | State::Unknown => true,
                State::Reachable | State::Stale => idle,
                State::Incomplete | State::Delay | State::Probe => false,
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
            if n.state == State::Incomplete {
                self.unresolved = self.unresolved.saturating_sub(1);
            }
            (n.live, n.state, n.timer_ms, n.next) = (false, State::Unknown, u64::MAX, self.free);
            self.free = neighbour;
        }
    }
}
