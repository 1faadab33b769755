//! Registration of the node, under a lease.

use super::{Coordination, Purpose};
use crate::store::{Answer, Call, Put, Store, StoreError, Write};

/// Registration of this node.
#[derive(Debug, Default)]
pub(super) struct Registration {
    step: Step,
    /// Time of the request whose answer renewed the lease last.
    renewed_ms: Option<u64>,
    /// Time of the last renewal after which the map was read: the node still was what its records say.
    sign_ms: Option<u64>,
    /// True if the map was read after the registration.
    is_read: bool,
    is_asked: bool,
    /// Revision that this node knew when it asked last.
    asked_at: i64,
    again_ms: u64,
    /// True if another box has this node's name.
    pub(super) is_double: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    None,
    /// There is a lease.
    Leased(i64),
    /// The name is registered at this revision.
    Registered(i64, i64),
}

/// Time until the next try after a failure, ms.
const AGAIN_MS: u64 = 100;

impl Coordination {
    /// Time of the last sign of the coordinator, ms.
    pub(super) fn sign_ms(&self) -> Option<u64> {
        self.registration.sign_ms
    }

    /// End of the lease, as this node counts it.
    pub(super) fn lease_until(&self) -> u64 {
        match self.registration.step {
            Step::Registered(..) if self.registration.is_read => self
                .registration
                .renewed_ms
                .map_or(0, |at| at + u64::from(self.settings.timing.timing.lease_ms)),
            _ => 0,
        }
    }

    /// Number of the lease that the node is registered with.
    pub(super) fn lease(&self) -> Option<i64> {
        match self.registration.step {
            Step::Registered(lease, _) => Some(lease),
            Step::None | Step::Leased(_) => None,
        }
    }

    /// Returns whether the node may write records.
    pub(super) fn may_write(&self) -> bool {
        let is_registered = matches!(self.registration.step, Step::Registered(..));
        is_registered && self.registration.is_read && self.map.is_live && self.has_division()
    }

    /// Registers, and renews.
    pub(super) fn keep_registered(&mut self, now_ms: u64, store: &mut dyn Store) {
        let one = &self.registration;
        if one.is_asked || now_ms < one.again_ms {
            return;
        }
        if self.difference().is_some() {
            // A lease that there is ends by itself.
            let sign_ms = one.sign_ms;
            self.registration = Registration { sign_ms, ..Registration::default() };
            return;
        }
        let may_register = self.map.is_live && self.has_division();
        match self.registration.step {
            Step::None if may_register => {
                let lease_ms = self.settings.timing.timing.lease_ms.into();
                self.ask(now_ms, store, Purpose::Grant, Call::Grant(lease_ms));
            }
            Step::None => {}
            Step::Leased(lease) if may_register => self.register(now_ms, store, lease),
            Step::Leased(lease) | Step::Registered(lease, _) => {
                self.ask(now_ms, store, Purpose::KeepAlive(lease), Call::KeepAlive(lease));
            }
        }
    }

    fn ask(&mut self, now_ms: u64, store: &mut dyn Store, asked: Purpose, call: Call) {
        (self.registration.is_asked, self.registration.asked_at) = (true, self.map.revision);
        self.submit(now_ms, store, asked, call);
    }

    fn register(&mut self, now_ms: u64, store: &mut dyn Store, lease: i64) {
        let me = self.settings.me.clone();
        let (registered, named, instance, number) = self.map.registration(&me);
        let is_double = registered != 0 && instance != self.settings.instance;
        if is_double {
            if !self.registration.is_double {
                self.note(
                    now_ms,
                    format!(
                        "another box is registered as {me:?}: give one of them another name; this one waits"
                    ),
                );
            }
            self.registration.is_double = true;
            // Its own lease goes on meanwhile.
            self.ask(now_ms, store, Purpose::KeepAlive(lease), Call::KeepAlive(lease));
            return;
        }
        self.registration.is_double = false;
        let value = format!("instance={} number={}", self.settings.instance, number + 1);
        let (node, name) = (self.key("nodes", &me), self.key("names", &me));
        let mut compares = vec![(node.clone(), registered), (name.clone(), named)];
        compares.extend(self.division_unchanged());
        let put = |key: String, lease: i64| Put { key, value: value.clone(), lease };
        let puts = vec![put(node, lease), put(name, 0)];
        let write = Write { compares, puts, deletes: Vec::new() };
        self.ask(now_ms, store, Purpose::Register, Call::Write(write));
    }

    pub(super) fn registration_answered(
        &mut self,
        now_ms: u64,
        asked_ms: u64,
        asked: &Purpose,
        answer: Result<Answer, StoreError>,
    ) {
        let quarter_ms = u64::from(self.settings.timing.timing.lease_ms / 4).max(1);
        let known = self.registration.asked_at;
        let is_old = matches!(answer, Ok(Answer::Renewed { store, revision })
            if !self.is_present((store, revision), known));
        let one = &mut self.registration;
        one.is_asked = false;
        one.again_ms = now_ms + AGAIN_MS.min(quarter_ms);
        match (asked, answer) {
            (Purpose::Grant, Ok(Answer::Granted(lease, _))) => {
                one.step = Step::Leased(lease);
                one.again_ms = now_ms;
            }
            (Purpose::Register, Ok(Answer::Written(true, revision))) => {
                if let Step::Leased(lease) = one.step {
                    one.step = Step::Registered(lease, revision);
                    (one.is_read, one.renewed_ms, one.again_ms) = (false, None, now_ms);
                    self.read_again(now_ms, 0);
                }
            }
            // A lease of a store that has lost data: the other nodes may use the store that has them.
            (Purpose::KeepAlive(_), Ok(Answer::Renewed { .. })) if is_old => {
                one.again_ms = asked_ms + quarter_ms;
                if self.map.is_live {
                    self.read_again(now_ms, 0);
                }
            }
            (Purpose::KeepAlive(lease), Ok(Answer::Renewed { .. })) => {
                let is_this = matches!(one.step, Step::Registered(of, _) if of == *lease);
                if is_this {
                    one.renewed_ms = Some(asked_ms);
                    one.sign_ms = if one.is_read { Some(asked_ms) } else { one.sign_ms };
                }
                one.again_ms = asked_ms + quarter_ms;
            }
            (Purpose::KeepAlive(_) | Purpose::Register, Ok(Answer::NoLease)) => {
                let is_double = one.is_double;
                let sign_ms = one.sign_ms;
                *one = Registration { is_double, sign_ms, ..Registration::default() };
                self.read_again(now_ms, 0);
            }
            // Somebody else has written the name, or nobody knows: the map tells.
            (Purpose::Register, _) => self.read_again(now_ms, AGAIN_MS),
            _ => {}
        }
    }

    /// The map was read at a revision.
    pub(super) fn registration_read(&mut self, revision: i64) {
        if let Step::Registered(_, registered) = self.registration.step
            && revision >= registered
        {
            // Only a renewal after this counts, so the next one follows at once.
            (self.registration.is_read, self.registration.again_ms) = (true, 0);
        }
    }
}
