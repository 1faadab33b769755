//! Announcements and multicast reports: addresses at start and on take-over, defence of an address in a
//! conflict, and reports of the groups that the ports listen to.
//!
//! ```text
//!   start                     + 1 s                     + 3 s                     then every 60 s
//!   groups; "is it free?"     groups; "it is mine"      groups; "it is mine"      groups
//! ```
//! At start, a probe checks whether another host has the addresses (RFC 5227 2.1.1, RFC 4862 5.4.2). Gatun
//! uses the addresses at once, as a router must; an answer is counted as a conflict and reported to the
//! operator (docs/decisions/0062). A take-over begins with the announcement. Groups are reported every 60 s,
//! because queries may go to the kernel that has the same device, and a switch forgets silent listeners after
//! 260 s (RFC 3810 9.4).

use crate::address::Key;
use crate::port::Port;
use alloc::vec::Vec;

/// RFC 5227 1.1 (ANNOUNCE_INTERVAL, DEFEND_INTERVAL), RFC 4862 5.4.2.
const PROBE_MS: u64 = 1000;
const ANNOUNCE_INTERVAL_MS: u64 = 2000;
const DEFEND_INTERVAL_MS: u64 = 10_000;
/// Announcements per step, and the time between steps: large pools are not announced all at once.
const BUDGET: u32 = 64;
const BUDGET_MS: u64 = 10;
/// Twice within the 125 s query interval (RFC 3810 9.2).
const GROUPS_INTERVAL_MS: u64 = 60_000;
/// Longest delay of a reply to a query.
const QUERY_DELAY_MAX_MS: u64 = 10_000;

/// Announcement to send at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announcement {
    Groups { port: u8, asked: bool },
    Probe { port: u8, key: Key },
    Announce { port: u8, key: Key },
    Defend { port: u8, key: Key },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnnounceStage {
    Probe,
    First,
    Second,
    Done,
}

pub(crate) struct Announcements {
    announces: bool,
    stage: AnnounceStage,
    /// Time of the stage's next step.
    stage_ms: u64,
    /// Progress of the stage.
    port: usize,
    item: usize,
    left: u32,
    ports: Vec<PortAnnouncements>,
    due_ms: u64,
}

/// Announcements of one port in response to others.
#[derive(Clone, Copy, Debug)]
struct PortAnnouncements {
    groups_ms: u64,
    defend: Option<Key>,
    /// Earliest time of the next defence of an address.
    defend_ms: u64,
}

impl Announcements {
    pub(crate) fn new(ports: usize, announces: bool) -> Announcements {
        let stage = if announces { AnnounceStage::Probe } else { AnnounceStage::Done };
        let unasked = PortAnnouncements { groups_ms: u64::MAX, defend: None, defend_ms: 0 };
        let stage_ms = if announces { 0 } else { u64::MAX };
        let ports = alloc::vec![unasked; ports];
        Announcements { announces, stage, stage_ms, port: 0, item: 0, left: BUDGET, ports, due_ms: stage_ms }
    }

    /// Continues the announcements of the previous `Ether` for the same ports. `alike` means that the
    /// addresses are the same.
    pub(crate) fn take_over(&mut self, before: &Announcements, alike: bool) {
        for (own, before) in self.ports.iter_mut().zip(&before.ports) {
            *own = *before;
        }
        if alike {
            (self.stage, self.stage_ms) = (before.stage, before.stage_ms);
            (self.port, self.item) = (before.port, before.item);
        }
        self.due_ms = 0;
    }

    /// Starts announcing all addresses.
    pub(crate) fn announce(&mut self, now_ms: u64) {
        (self.stage, self.stage_ms, self.port, self.item) = (AnnounceStage::First, now_ms, 0, 0);
        self.due_ms = 0;
    }

    /// Defends an address that another host claims. Returns true if it will be defended: at most once in ten
    /// seconds per port, so that two hosts that both defend an address do not flood the link (RFC 5227 2.4).
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

    /// Schedules a report of the groups: a query asks for it within some milliseconds.
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

    /// Next announcement to send now, or `None`.
    pub(crate) fn next(&mut self, now_ms: u64, ports: &[Port]) -> Option<Announcement> {
        if now_ms < self.due_ms {
            return None;
        }
        let announcement = self.next_unasked(now_ms, ports).or_else(|| self.next_of_stage(now_ms, ports));
        if announcement.is_none() {
            self.left = BUDGET;
            let groups_ms = self.ports.iter().map(|u| u.groups_ms).min();
            self.due_ms = self.stage_ms.min(groups_ms.unwrap_or(u64::MAX));
        }
        announcement
    }

    fn next_unasked(&mut self, now_ms: u64, ports: &[Port]) -> Option<Announcement> {
        let again = if self.announces { now_ms.saturating_add(GROUPS_INTERVAL_MS) } else { u64::MAX };
        self.ports.iter_mut().zip(0u8..).find_map(|(unasked, port)| {
            if let Some(key) = unasked.defend.take() {
                return Some(Announcement::Defend { port, key });
            }
            if now_ms < unasked.groups_ms {
                return None;
            }
            let listens = ports.get(usize::from(port)).is_some_and(|p| !p.groups.is_empty());
            unasked.groups_ms = if listens { again } else { u64::MAX };
            Some(Announcement::Groups { port, asked: true })
        })
    }

    fn next_of_stage(&mut self, now_ms: u64, ports: &[Port]) -> Option<Announcement> {
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
            // A host must listen to its groups before it sends a probe in one of them (RFC 4862 5.4.2).
            let announcement = match item.checked_sub(1).map(|i| port.announced.get(i)) {
                None => Announcement::Groups { port: number, asked: false },
                Some(Some(&key)) if self.stage == AnnounceStage::Probe => {
                    Announcement::Probe { port: number, key }
                }
                Some(Some(&key)) => Announcement::Announce { port: number, key },
                Some(None) => {
                    (self.port, self.item) = (self.port + 1, 0);
                    continue;
                }
            };
            self.left -= 1;
            return Some(announcement);
        }
        self.next_stage(now_ms);
        None
    }

    fn repeat_groups(&mut self, now_ms: u64) {
        for unasked in self.ports.iter_mut().filter(|_| self.announces) {
            unasked.groups_ms = unasked.groups_ms.min(now_ms.saturating_add(GROUPS_INTERVAL_MS));
        }
    }

    fn next_stage(&mut self, now_ms: u64) {
        let (stage, after_ms) = match self.stage {
            AnnounceStage::Probe => (AnnounceStage::First, PROBE_MS),
            AnnounceStage::First => (AnnounceStage::Second, ANNOUNCE_INTERVAL_MS),
            AnnounceStage::Second | AnnounceStage::Done => (AnnounceStage::Done, u64::MAX),
        };
        if stage == AnnounceStage::Done {
            self.repeat_groups(now_ms);
        }
        (self.stage, self.stage_ms, self.port, self.item) = (stage, now_ms.saturating_add(after_ms), 0, 0);
    }
}
