//! Updates of the XDP program's prefixes at run time.
//!
//! ```text
//!   more   Gatun set, Kernel removed     before the translator knows the prefixes
//!   less   Kernel set, Gatun removed     after the translator has dropped the prefixes
//! ```
//! Because of this order, the kernel never gets packets that are to be translated.

use crate::program::{Owner, PrefixRule};
use gatun_io::Waker;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Change of prefix rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleChange {
    /// Rules to set, with the owner of the packets.
    pub set: Vec<(PrefixRule, Owner)>,
    /// Rules to remove.
    pub remove: Vec<PrefixRule>,
}

impl RuleChange {
    /// Computes the change between two lists in two parts: the part that gives more packets to the
    /// translator, and the part that gives it fewer. If a prefix is listed twice, the later entry counts.
    pub fn between(old: &[(PrefixRule, Owner)], new: &[(PrefixRule, Owner)]) -> (RuleChange, RuleChange) {
        let (old, new) = (BTreeMap::from_iter(old.iter().copied()), BTreeMap::from_iter(new.iter().copied()));
        let (mut more, mut less) = (RuleChange::default(), RuleChange::default());
        for (&entry, &owner) in new.iter().filter(|(entry, owner)| old.get(entry) != Some(owner)) {
            let part = if owner == Owner::Gatun { &mut more } else { &mut less };
            part.set.push((entry, owner));
        }
        for (&entry, &owner) in old.iter().filter(|(entry, _)| !new.contains_key(entry)) {
            let part = if owner == Owner::Kernel { &mut more } else { &mut less };
            part.remove.push(entry);
        }
        (more, less)
    }

    /// Change that restores the rules `before`.
    pub fn undone(&self, before: &[(PrefixRule, Owner)]) -> RuleChange {
        let before = BTreeMap::from_iter(before.iter().copied());
        let mut undone = RuleChange::default();
        for entry in self.set.iter().map(|(entry, _)| *entry).chain(self.remove.iter().copied()) {
            match before.get(&entry) {
                Some(&owner) => undone.set.push((entry, owner)),
                None => undone.remove.push(entry),
            }
        }
        undone
    }

    /// Returns true if there is nothing to change.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.remove.is_empty()
    }
}

/// Sends rule changes to the thread that owns the program, from another thread.
#[derive(Clone)]
pub struct RuleUpdates {
    waiting: Arc<Mutex<VecDeque<RuleUpdate>>>,
    pub(crate) waker: Waker,
}

pub(crate) struct RuleUpdate {
    pub(crate) change: RuleChange,
    pub(crate) done: SyncSender<io::Result<()>>,
}

impl RuleUpdates {
    pub(crate) fn new() -> io::Result<RuleUpdates> {
        Ok(RuleUpdates { waiting: Arc::default(), waker: Waker::new()? })
    }

    /// Changes the rules and waits until they are active.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a prefix (earlier ones stay changed), or if no answer arrives.
    pub fn change(&self, change: RuleChange, timeout: Duration) -> io::Result<()> {
        let (done, answer) = sync_channel(1);
        self.waiting().push_back(RuleUpdate { change, done });
        self.waker.wake();
        match answer.recv_timeout(timeout) {
            Ok(answer) => answer,
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut)),
        }
    }

    pub(crate) fn next(&self) -> Option<RuleUpdate> {
        self.waiting().pop_front()
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<RuleUpdate>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to4(addr: [u8; 4], len: u8) -> PrefixRule {
        PrefixRule::To4(addr.into(), len)
    }

    #[test]
    fn prefixes_of_the_translator_change_first_and_those_of_the_kernel_last() {
        use Owner::{Gatun, Kernel};
        let [stays, comes, goes, turns, spared, freed] = [1, 2, 3, 4, 5, 6].map(|n| to4([192, 0, 2, n], 32));
        let old = [(stays, Gatun), (goes, Gatun), (turns, Gatun), (freed, Kernel)];
        let new = [(stays, Kernel), (stays, Gatun), (comes, Gatun), (turns, Kernel), (spared, Kernel)];
        let (more, less) = RuleChange::between(&old, &new);
        assert_eq!(more, RuleChange { set: vec![(comes, Gatun)], remove: vec![freed] });
        assert_eq!(less, RuleChange { set: vec![(turns, Kernel), (spared, Kernel)], remove: vec![goes] });
        assert_eq!(more.undone(&old), RuleChange { set: vec![(freed, Kernel)], remove: vec![comes] });
        let (more, less) = RuleChange::between(&new, &new);
        assert!(more.is_empty() && less.is_empty());
    }
}
