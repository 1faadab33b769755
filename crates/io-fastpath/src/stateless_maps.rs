//! The tries of stateless instances: two generations, of which one is in use.

use crate::control::Control;
use crate::error::{FastPathError, step};
use crate::instance::Instance;
use crate::layout::{STATEFUL_MAX, STATELESS_MAX, TrieKey4, TrieKey6};
use crate::maps::Maps;
use crate::stateless::{StatelessPlan, StatelessSet, Tries};
use crate::sys;
use std::io;
use std::os::fd::OwnedFd;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Fills the generation that is not in use with a plan, and changes to it.
pub(crate) fn replace(
    maps: &Maps,
    control: &Control,
    plan: &StatelessPlan,
) -> Result<StatelessSet, FastPathError> {
    if plan.instances.len() >= STATELESS_MAX as usize {
        let why = format!("{} stateless instances", plan.instances.len());
        return Err(FastPathError::Map { name: "instances", why });
    }
    let former = control.siit();
    // The first one is number 1.
    let next = usize::from(former == 1);
    let written = fill(maps, next, plan);
    // What follows is no packet's: the engine has them all until the change is done.
    control.set_siit(0);
    let tries = written?;
    for (number, instance) in (STATEFUL_MAX..).zip(&plan.instances) {
        let settings = Instance::nat64(&instance.settings).settings();
        sys::update(&maps.instances, &number, &settings).map_err(step("setting an instance"))?;
    }
    if !plan.instances.is_empty() {
        control.set_siit(next as u32 + 1);
    }
    empty(maps, 1 - next)?;
    let mappings = plan.instances.iter().map(|instance| instance.mappings.len()).sum::<usize>();
    Ok(StatelessSet { mappings: mappings - tries.left, left: tries.left })
}

fn fill(maps: &Maps, generation: usize, plan: &StatelessPlan) -> Result<Tries, FastPathError> {
    empty(maps, generation)?;
    let tries = Tries::of(plan);
    if !plan.instances.is_empty() {
        let four = sys::update_batch(&maps.siit4[generation], &tries.keys4, &tries.values4);
        let six = sys::update_batch(&maps.siit6[generation], &tries.keys6, &tries.values6);
        four.and(six).map_err(step("writing mappings"))?;
    }
    Ok(tries)
}

fn empty(maps: &Maps, generation: usize) -> Result<(), FastPathError> {
    let four = remove_all::<TrieKey4>(&maps.siit4[generation]);
    let six = remove_all::<TrieKey6>(&maps.siit6[generation]);
    four.and(six).map_err(step("removing mappings"))
}

fn remove_all<K: FromBytes + IntoBytes + Immutable + Copy>(trie: &OwnedFd) -> io::Result<()> {
    loop {
        let keys: Vec<K> = sys::first_keys(trie, 4096)?;
        if keys.is_empty() {
            return Ok(());
        }
        sys::delete_batch(trie, &keys)?;
    }
}
