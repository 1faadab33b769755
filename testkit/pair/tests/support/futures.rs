//! Check of the reductions of a search, for the models of a pair and of a cluster.

use gatun_pair_model::search::{Model, Search};
use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::fmt::Debug;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Mutex;

/// Hash of the canonical form and of the budgets.
fn key<M: Model>(model: &M, state: &M::State) -> u64 {
    let (mut hasher, mut bytes) = (DefaultHasher::new(), Vec::new());
    model.canonical(state, &mut bytes);
    (bytes, model.budgets(state)).hash(&mut hasher);
    hasher.finish()
}

/// Checks that states with the same canonical form have the same future. A search that merges them is whole
/// within `states_max` states, and covers each state that a search without reductions visits.
pub(crate) fn check_futures<M: Model>(name: &str, model: &M, states_max: usize)
where
    M::State: Debug,
{
    let (futures, merged) = (Mutex::new(HashMap::new()), Mutex::new(0));
    let reduced = Search::new(model);
    assert!(reduced.run(states_max, &|_| {}).is_complete, "{name}");
    let checked = Search::of_all(model).run(states_max, &|state| {
        let mut actions = vec![];
        model.possible(state, &mut actions);
        let next = actions.iter().map(|action| key(model, &model.after(state, *action)));
        let mut next: Vec<u64> = next.collect();
        next.sort_unstable();
        next.dedup();
        let future = (next, model.broken(state));
        assert!(reduced.covers(state), "{name}: {state:?}");
        match futures.lock().unwrap().entry(key(model, state)) {
            Entry::Vacant(entry) => {
                entry.insert(future);
            }
            Entry::Occupied(entry) => {
                assert_eq!(*entry.get(), future, "{name}: {state:?}");
                *merged.lock().unwrap() += 1;
            }
        }
    });
    println!("{name}: {}, {} of them merged", checked.figures(), merged.into_inner().unwrap());
}
