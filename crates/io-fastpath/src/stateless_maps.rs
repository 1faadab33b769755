//! The maps of stateless instances: two generations of hosts and tries, of which one is in use.

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
        let (hosts4, hosts6) = (&maps.hosts4[generation], &maps.hosts6[generation]);
        let host4 = |key: &TrieKey4| (key.len == 32).then_some(key.address);
        let host6 = |key: &TrieKey6| (key.len == 128).then_some(key.address);
        let four = write(hosts4, &maps.siit4[generation], (&tries.keys4, &tries.values4), host4);
        let six = write(hosts6, &maps.siit6[generation], (&tries.keys6, &tries.values6), host6);
        four.and(six).map_err(step("writing mappings"))?;
    }
    Ok(tries)
}

/// Writes hosts to a hash table, as many as it has room for, and all others to the trie.
fn write<K: Copy + IntoBytes + Immutable, H: IntoBytes + Immutable, V: Copy + IntoBytes + Immutable>(
    hosts: &OwnedFd,
    trie: &OwnedFd,
    (keys, values): (&[K], &[V]),
    host: impl Fn(&K) -> Option<H>,
) -> io::Result<()> {
    let room = sys::map_info(hosts)?.entries_max as usize;
    let (mut of_hosts, mut of_trie) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
    for (key, value) in keys.iter().zip(values) {
        match host(key).filter(|_| of_hosts.0.len() < room) {
            Some(host) => {
                of_hosts.0.push(host);
                of_hosts.1.push(*value);
            }
            None => {
                of_trie.0.push(*key);
                of_trie.1.push(*value);
            }
        }
    }
    sys::update_batch(hosts, &of_hosts.0, &of_hosts.1)?;
    sys::update_batch(trie, &of_trie.0, &of_trie.1)
}

fn empty(maps: &Maps, generation: usize) -> Result<(), FastPathError> {
    let four = remove_all::<TrieKey4>(&maps.siit4[generation]);
    let six = remove_all::<TrieKey6>(&maps.siit6[generation]);
    let hosts4 = remove_all::<[u8; 4]>(&maps.hosts4[generation]);
    let hosts6 = remove_all::<[u8; 16]>(&maps.hosts6[generation]);
    four.and(six).and(hosts4).and(hosts6).map_err(step("removing mappings"))
}

fn remove_all<K: FromBytes + IntoBytes + Immutable + Copy>(map: &OwnedFd) -> io::Result<()> {
    loop {
        let keys: Vec<K> = sys::first_keys(map, 4096)?;
        if keys.is_empty() {
            return Ok(());
        }
        sys::delete_batch(map, &keys)?;
    }
}
