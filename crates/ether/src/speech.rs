//! What is said without being asked: who we are, at start and on take-over; whose an address is, in a conflict;
//! which groups we listen to.
//!
//! ```text
//!   start                     + 1 s                     + 3 s                     then every 60 s
//!   groups; "is it free?"     groups; "it is mine"      groups; "it is mine"      groups
//! ```
//! At start it is asked whether somebody else has the addresses (RFC 5227 2.1.1, RFC 4862 5.4.2). They are used at once
//! all the same, as a router's addresses have to be; an answer is counted as a conflict and told to the operator
//! (docs/decisions/0062). A take-over begins with "it is mine". Groups are told again and again because queries may go to
//! the kernel that has the same device, and a switch forgets who is silent after 260 s (RFC 3810 9.4).

use crate::address::Key;
use crate::port::Port;
use alloc::vec::Vec;

/// RFC 5227 1.1 (ANNOUNCE_INTERVAL, DEFEND_INTERVAL), RFC 4862 5.4.2.
const PROBE_MS: u64 = 1000;
const ANNOUNCE_INTERVAL_MS: u64 = 2000;
const DEFEND_INTERVAL_MS: u64 = 10_000;
/// What is said at a time, and when it goes on: large pools are not shouted out at once.
const BUDGET: u32 = 64;
const BUDGET_MS: u64 = 10;
/// Twice in the 125 s after which a querier asks (RFC 3810 9.2).
const GROUPS_INTERVAL_MS: u64 = 60_000;
/// The longest that an answer to a query is put off.
const QUERY_DELAY_MAX_MS: u64 = 10_000;

/// Something to say at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Saying {
    Groups { port: u8, asked: bool },
    Probe { port: u8, key: Key },
    Announce { port: u8, key: Key },
    Defend { port: u8, key: Key },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Probe,
    First,
    Second,
    Done,
}

pub(crate) struct Speech {
    speaks: bool,
    stage: Stage,
    /// When the stage goes on.
    stage_ms: u64,
    /// How far it has come.
    port: usize,
    item: usize,
    left: u32,
    ports: Vec<Unasked>,
    due_ms: u64,
}

/// What one port has to say because of others.
#[derive(Clone, Copy, Debug)]
struct Unasked {
    groups_ms: u64,
    defend: Option<Key>,
    /// When it may defend an address again.
    defend_ms: u64,
}

impl Speech {
    pub(crate) fn new(ports: usize, speaks: bool) -> Speech {
        let stage = if speaks { Stage::Probe } else { Stage::Done };
        let unasked = Unasked { groups_ms: u64::MAX, defend: None, defend_ms: 0 };
        let stage_ms = if speaks { 0 } else { u64::MAX };
        let ports = alloc::vec![unasked; ports];
        Speech { speaks, stage, stage_ms, port: 0, item: 0, left: BUDGET, ports, due_ms: stage_ms }
    }

    /// Goes on where another one was that spoke for the same ports; `alike`: of the same addresses.
    pub(crate) fn take_over(&mut self, before: &Speech, alike: bool) {
        for (own, before) in self.ports.iter_mut().zip(&before.ports) {
            *own = *before;
        }
        if alike {
            (self.stage, self.stage_ms) = (before.stage, before.stage_ms);
            (self.port, self.item) = (before.port, before.item);
        }
        self.due_ms = 0;
    }

    /// Begins to announce all addresses.
    pub(crate) fn announce(&mut self, now_ms: u64) {
        (self.stage, self.stage_ms, self.port, self.item) = (Stage::First, now_ms, 0, 0);
        self.due_ms = 0;
    }

    /// Somebody else claims an address. Whether it will be defended: at most one in ten seconds on a port, so that two
    /// who both defend it do not flood the link (RFC 5227 2.4).
    pub(crate) fn defend(&mut self, now_ms: u64, port: u8, key: Key) -> bool {
        let Some(unasked) = self.ports.get_mut(usize::from(port)) else { return false };
        if now_ms < unasked.defend_ms {
            return false;
        }
        unasked.defend = Some(key);
        unasked.defend_ms = now_ms.saturating_add(DEFEND_INTERVAL_MS);
        self.due_ms = 0;
        true
    }

    /// A query asks for the groups within some milliseconds.
    pub(crate) fn report(&mut self, now_ms: u64, port: u8, delay_max_ms: u64, random: u64) {
        let Some(unasked) = self.ports.get_mut(usize::from(port)) else { return };
        // RFC 3810 5.1.3 and 6.2: at a random time within the delay.
        let delay_ms = random % delay_max_ms.clamp(1, QUERY_DELAY_MAX_MS);
        unasked.groups_ms = unasked.groups_ms.min(now_ms.saturating_add(delay_ms));
        self.due_ms = self.due_ms.min(unasked.groups_ms);
    }

    #[inline]
    pub(crate) fn due_ms(&self) -> u64 {
        self.due_ms
    }

    /// The next thing to say now; `None` when all is said.
    pub(crate) fn next_saying(&mut self, now_ms: u64, ports: &[Port]) -> Option<Saying> {
        if now_ms < self.due_ms {
            return None;
        }
        let saying = self.next_unasked(now_ms, ports).or_else(|| self.next_of_stage(now_ms, ports));
        if saying.is_none() {
            self.left = BUDGET;
            let groups_ms = self.ports.iter().map(|u| u.groups_ms).min();
            self.due_ms = self.stage_ms.min(groups_ms.unwrap_or(u64::MAX));
        }
        saying
    }

    fn next_unasked(&mut self, now_ms: u64, ports: &[Port]) -> Option<Saying> {
        let again = if self.speaks { now_ms.saturating_add(GROUPS_INTERVAL_MS) } else { u64::MAX };
        self.ports.iter_mut().zip(0u8..).find_map(|(unasked, port)| {
            if let Some(key) = unasked.defend.take() {
                return Some(Saying::Defend { port, key });
            }
            if now_ms < unasked.groups_ms {
                return None;
            }
            let listens = ports.get(usize::from(port)).is_some_and(|p| !p.groups.is_empty());
            unasked.groups_ms = if listens { again } else { u64::MAX };
            Some(Saying::Groups { port, asked: true })
        })
    }

    fn next_of_stage(&mut self, now_ms: u64, ports: &[Port]) -> Option<Saying> {
        if now_ms < self.stage_ms {
            return None;
        }
        while let Some(port) = ports.get(self.port) {
            if self.left == 0 {
                self.stage_ms = now_ms.saturating_add(BUDGET_MS);
                return None;
            }
            let (item, number) = (self.item, self.port as u8);
            self.item += 1;
            // A host listens to its groups before it asks in one of them (RFC 4862 5.4.2).
            let saying = match item.checked_sub(1).map(|i| port.announced.get(i)) {
                None => Saying::Groups { port: number, asked: false },
                Some(Some(&key)) if self.stage == Stage::Probe => Saying::Probe { port: number, key },
                Some(Some(&key)) => Saying::Announce { port: number, key },
                Some(None) => {
                    (self.port, self.item) = (self.port + 1, 0);
                    continue;
                }
            };
            self.left -= 1;
            return Some(saying);
        }
        self.next_stage(now_ms);
        None
    }

    fn repeat_groups(&mut self, now_ms: u64) {
        for unasked in self.ports.iter_mut().filter(|_| self.speaks) {
            unasked.groups_ms = unasked.groups_ms.min(now_ms.saturating_add(GROUPS_INTERVAL_MS));
        }
    }

    fn next_stage(&mut self, now_ms: u64) {
        let (stage, after_ms) = match self.stage {
            Stage::Probe => (Stage::First, PROBE_MS),
            Stage::First => (Stage::Second, ANNOUNCE_INTERVAL_MS),
            Stage::Second | Stage::Done => (Stage::Done, u64::MAX),
        };
        if stage == Stage::Done {
            self.repeat_groups(now_ms);
        }
        (self.stage, self.stage_ms, self.port, self.item) = (stage, now_ms.saturating_add(after_ms), 0, 0);
    }
}
