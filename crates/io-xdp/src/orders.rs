//! Other prefixes for the program while packets go on.
//!
//! ```text
//!   more   Ours set, Kernel taken away     before whoever translates knows of them
//!   less   Kernel set, Ours taken away     once it knows no more of them
//! ```
//! So that nothing that is to be translated goes to the kernel meanwhile.

use crate::program::{Entry, Whose};
use gatun_io::Waker;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is to be said of prefixes from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Whose the packets of these are.
    pub set: Vec<(Entry, Whose)>,
    /// Of these nothing is said any more.
    pub remove: Vec<Entry>,
}

impl Change {
    /// From one list of prefixes to another: what makes more packets the translator's, and what makes fewer. Where a prefix
    /// stands twice, the later one counts.
    pub fn between(old: &[(Entry, Whose)], new: &[(Entry, Whose)]) -> (Change, Change) {
        let (old, new) = (BTreeMap::from_iter(old.iter().copied()), BTreeMap::from_iter(new.iter().copied()));
        let (mut more, mut less) = (Change::default(), Change::default());
        for (&entry, &whose) in new.iter().filter(|(entry, whose)| old.get(entry) != Some(whose)) {
            let part = if whose == Whose::Ours { &mut more } else { &mut less };
            part.set.push((entry, whose));
        }
        for (&entry, &whose) in old.iter().filter(|(entry, _)| !new.contains_key(entry)) {
            let part = if whose == Whose::Kernel { &mut more } else { &mut less };
            part.remove.push(entry);
        }
        (more, less)
    }

    /// What undoes it, where `before` was said.
    pub fn undone(&self, before: &[(Entry, Whose)]) -> Change {
        let before = BTreeMap::from_iter(before.iter().copied());
        let mut undone = Change::default();
        for entry in self.set.iter().map(|(entry, _)| *entry).chain(self.remove.iter().copied()) {
            match before.get(&entry) {
                Some(&whose) => undone.set.push((entry, whose)),
                None => undone.remove.push(entry),
            }
        }
        undone
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.remove.is_empty()
    }
}

/// Tells the thread that keeps the program what it is to take; from another thread.
#[derive(Clone)]
pub struct Orders {
    waiting: Arc<Mutex<VecDeque<Order>>>,
    pub(crate) waker: Waker,
}

pub(crate) struct Order {
    pub(crate) change: Change,
    pub(crate) done: SyncSender<io::Result<()>>,
}

impl Orders {
    pub(crate) fn new() -> io::Result<Orders> {
        Ok(Orders { waiting: Arc::default(), waker: Waker::new()? })
    }

    /// Changes what the program takes, and waits until it does.
    ///
    /// # Errors
    /// Where the kernel refuses a prefix, with those before it changed; where no answer comes.
    pub fn change(&self, change: Change, timeout: Duration) -> io::Result<()> {
        let (done, answer) = sync_channel(1);
        self.waiting().push_back(Order { change, done });
        self.waker.wake();
        match answer.recv_timeout(timeout) {
            Ok(answer) => answer,
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut)),
        }
    }

    pub(crate) fn next(&self) -> Option<Order> {
        self.waiting().pop_front()
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Order>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to4(addr: [u8; 4], len: u8) -> Entry {
        Entry::To4(addr.into(), len)
    }

    #[test]
    fn what_becomes_ours_comes_first_and_what_becomes_the_kernels_last() {
        use Whose::{Kernel, Ours};
        let [stays, comes, goes, turns, spared, freed] = [1, 2, 3, 4, 5, 6].map(|n| to4([192, 0, 2, n], 32));
        let old = [(stays, Ours), (goes, Ours), (turns, Ours), (freed, Kernel)];
        let new = [(stays, Kernel), (stays, Ours), (comes, Ours), (turns, Kernel), (spared, Kernel)];
        let (more, less) = Change::between(&old, &new);
        assert_eq!(more, Change { set: vec![(comes, Ours)], remove: vec![freed] });
        assert_eq!(less, Change { set: vec![(turns, Kernel), (spared, Kernel)], remove: vec![goes] });
        assert_eq!(more.undone(&old), Change { set: vec![(freed, Kernel)], remove: vec![comes] });
        let (more, less) = Change::between(&new, &new);
        assert!(more.is_empty() && less.is_empty());
    }
}
