//! Sessions and stateless instances that a fast path had when a packet trace began: the trace names what
//! translated their packets before.

use super::driver::{FastPathKind, Order, Orders};
use super::shared_state::SharedState;
use gatun_api::types::{self, Name};
use gatun_control::{EarlierTranslator, PacketTranslation};
use gatun_nat::Plan;
use gatun_nat::feed::Flow;
use gatun_nat::plan::Transport;
use gatun_offload::FlowFilter;
use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::Ipv4Addr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

/// Sessions that a trace takes from a fast path. Of more sessions, it takes one in so many: an engine that
/// got all packets of a busy fast path would lose most of them.
const TRACED_MAX: u64 = 4_096;

/// Remote and public end of a session.
pub(crate) type SessionKey = (Transport, (Ipv4Addr, u16), (Ipv4Addr, u16));

/// Key of a session of the API. `None` for a protocol that no fast path has.
pub(crate) fn key_of(session: &types::Session) -> Option<SessionKey> {
    let transport = match session.protocol {
        types::Protocol::Tcp => Transport::Tcp,
        types::Protocol::Udp => Transport::Udp,
        types::Protocol::Icmp => Transport::Icmp,
        types::Protocol::Other => return None,
    };
    Some((transport, (session.remote, session.remote_port), (session.outside, session.outside_port)))
}

/// Names of the stateless instances that a fast path is to have.
#[derive(Clone, Default)]
pub(crate) struct StatelessNames(SharedState<Vec<Name>>);

impl StatelessNames {
    /// `excluded` are the instances that stay with the engines, by number.
    pub(crate) fn set(&self, is_on: bool, plan: &Plan, excluded: &[u8]) {
        let numbered = (0..=u8::MAX).zip(&plan.siit);
        let offloaded = numbered.filter(|(number, _)| is_on && !excluded.contains(number));
        let names = offloaded.map(|(_, siit)| Name(siit.name.as_str().into())).collect();
        self.0.change(|old| *old = names);
    }

    pub(crate) fn contains(&self, name: &Name) -> bool {
        self.all().contains(name)
    }

    fn all(&self) -> Vec<Name> {
        self.0.with_age().0
    }
}

/// Adds the sessions of a target that match, each with what translates it.
pub(crate) type FindTraced<K> =
    fn(&mut <K as FastPathKind>::Target, &dyn Fn(&Flow) -> bool, &mut HashMap<SessionKey, String>);

/// Returns whether a flow is in a sample of one in so many. It stays in it.
fn is_sampled(flow: &Flow, one_in: u64) -> bool {
    let mut hash = DefaultHasher::new();
    flow.hash(&mut hash);
    hash.finish().is_multiple_of(one_in.max(1))
}

/// Finds the sessions that a trace takes. Returns the size of the sample: one in so many.
fn sample(
    matches: &dyn Fn(&Flow) -> bool,
    found: &mut HashMap<SessionKey, String>,
    mut find: impl FnMut(&dyn Fn(&Flow) -> bool, &mut HashMap<SessionKey, String>),
) -> u64 {
    let count = Cell::new(0u64);
    let counting = |flow: &Flow| {
        count.set(count.get() + u64::from(matches(flow)));
        false
    };
    find(&counting, found);
    let one_in = count.get().div_ceil(TRACED_MAX).max(1);
    find(&|flow| matches(flow) && is_sampled(flow, one_in), found);
    if one_in > 1 {
        let more = format!("; the trace has one in {one_in} of such sessions");
        found.values_mut().for_each(|told| told.push_str(&more));
    }
    one_in
}

impl<K: FastPathKind> Orders<K> {
    /// Leaves flows that match to the engines, or a sample of many, until `exclude` is called with `None`.
    /// Returns what translated their packets before. `stateless`: the instances that the target has, and
    /// their sentence.
    pub(crate) fn exclude_traced(
        &self,
        filter: FlowFilter,
        find: FindTraced<K>,
        (names, stateless): (&StatelessNames, Option<String>),
    ) -> EarlierTranslator {
        let filter: Arc<dyn Fn(&Flow) -> bool + Send + Sync> = filter.into();
        let earlier = Arc::new(Mutex::new(HashMap::new()));
        let one_in = Arc::new(AtomicU64::new(1));
        let (matches, found, counted) = (Arc::clone(&filter), Arc::clone(&earlier), Arc::clone(&one_in));
        self.send(Order::Target(Box::new(move |target| {
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            counted
                .store(sample(&*matches, &mut found, |wanted, found| find(target, wanted, found)), Relaxed);
        })));
        self.exclude(Some(Box::new(move |flow| filter(flow) && is_sampled(flow, one_in.load(Relaxed)))));
        let names = names.all();
        Arc::new(move |of| match of {
            PacketTranslation::Session(session) => {
                let earlier = earlier.lock().unwrap_or_else(PoisonError::into_inner);
                earlier.get(&key_of(session)?).cloned()
            }
            PacketTranslation::Stateless(name) => stateless.clone().filter(|_| names.contains(name)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(number: u32) -> Flow {
        let inside = (std::net::Ipv6Addr::from(u128::from(number)), 5_000);
        let (outside, remote) = ((Ipv4Addr::new(192, 0, 2, 1), 6_000), (Ipv4Addr::from(number), 80));
        Flow { instance: 0, transport: Transport::Udp, inside, outside, remote }
    }

    /// Size of the sample, and what a trace says of each session in it.
    fn sampled(count: u32) -> (u64, Vec<String>) {
        let mut found = HashMap::new();
        let one_in = sample(&|_| true, &mut found, |wanted, found| {
            let all = (0..count).map(flow).filter(|flow| wanted(flow));
            found.extend(all.map(|flow| ((flow.transport, flow.remote, flow.outside), "told".to_owned())));
        });
        (one_in, found.into_values().collect())
    }

    #[test]
    fn a_trace_takes_all_sessions_of_few_and_a_sample_of_many() {
        assert_eq!(sampled(0), (1, Vec::new()));
        let (one_in, told) = sampled(TRACED_MAX as u32);
        assert_eq!((one_in, told.len() as u64), (1, TRACED_MAX));
        assert!(told.iter().all(|told| told == "told"));
        let (one_in, told) = sampled(100 * TRACED_MAX as u32);
        assert_eq!(one_in, 100);
        let near = TRACED_MAX as usize * 9 / 10..TRACED_MAX as usize * 11 / 10;
        assert!(near.contains(&told.len()), "{}", told.len());
        assert!(told.iter().all(|told| told == "told; the trace has one in 100 of such sessions"));
    }
}
