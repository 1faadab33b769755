//! The model's histories, with both programs beside the engine: its established sessions are in their tables
//! from one packet to the next.

use super::beside_nat::{flows, instances, programs, without_ident};
use super::loaded::Loaded;
use super::{At, TRANSLATED};
use crate::KernelTime;
use crate::flow::Flow;
use crate::instance::Instance;
use crate::table::{Refusal, SlotId};
use gatun_model::drive::{Beside, history, run_beside, universe, with_flows};
use gatun_model::model::{Observed, RealmPacket};
use gatun_nat::{Instant, Nat, Plan, Verdict};
use std::collections::HashMap;

/// Histories of a run, unless GATUN_HISTORIES names another number.
const HISTORIES: u64 = 60;
const STEPS: usize = 1_000;

/// The programs beside an engine.
struct Programs {
    loaded: [Loaded; 2],
    instances: Vec<Instance>,
    /// Sessions in the tables, with their places.
    installed: [HashMap<Flow, SlotId>; 2],
    /// Time of the last packet.
    sent: Instant,
    /// Results on the last packet, if the programs got it.
    results: Option<[(u32, Vec<u8>, u32); 2]>,
    /// Translated packets, of each program.
    hits: [u64; 2],
}

impl Programs {
    /// `None` if this process may not load programs.
    fn new(plan: &Plan) -> Option<Programs> {
        Some(Programs {
            loaded: programs(plan)?,
            instances: instances(plan),
            installed: Default::default(),
            sent: Instant(0),
            results: None,
            hits: [0; 2],
        })
    }

    /// Changes the settings of instances, after a reload.
    fn follow(&mut self, plan: &Plan) {
        let now = instances(plan);
        if self.instances != now {
            for program in &self.loaded {
                (0..).zip(&now).for_each(|(number, it)| program.table.set_instance(number, *it).unwrap());
            }
            self.instances = now;
        }
    }

    /// Removes the entries of sessions that are gone or closing, and installs new sessions.
    fn reconcile(&mut self, wanted: &[Flow]) {
        for (program, installed) in self.loaded.iter_mut().zip(&mut self.installed) {
            let table = &mut program.table;
            installed.retain(|flow, id| {
                let is_closing = table.peek(*id).is_some_and(|used| used.is_closing);
                let stays = wanted.contains(flow) && !is_closing;
                if !stays {
                    table.remove(&[*id], &mut Vec::new());
                }
                stays
            });
            for flow in wanted {
                if installed.contains_key(flow) {
                    continue;
                }
                match table.install_one(&flow.outbound(), flow, KernelTime(0)) {
                    Ok(id) => drop(installed.insert(*flow, id)),
                    // Ports in a row may have few homes in so small a table: the engine has the packets.
                    Err(refusal) => assert!(refusal == Refusal::Crowded, "{refusal:?}"),
                }
            }
        }
    }
}

impl Beside for Programs {
    fn before(&mut self, engine: &Nat, plan: &Plan, now: Instant, packet: &RealmPacket) {
        // The engine may not know yet that so much time has passed.
        let since = now.since_ms(std::mem::replace(&mut self.sent, now));
        self.follow(plan);
        self.results = None;
        // BPF_PROG_TEST_RUN wants a whole IP header, and no more than a page.
        let shortest = if packet.bytes.first().is_some_and(|byte| byte >> 4 == 4) { 20 } else { 40 };
        if packet.realm != 0 || packet.bytes.len() < shortest || packet.bytes.len() > 3000 {
            return;
        }
        let wanted = flows(engine, plan, since);
        self.reconcile(&wanted);
        self.results = Some(self.loaded.each_mut().map(|program| program.run(&packet.bytes, 0)));
    }

    fn after(&mut self, packet: &RealmPacket, engine: &Observed) -> Result<(), String> {
        let Some(results) = self.results.take() else { return Ok(()) };
        for (((result, bytes, _), at), hits) in results.into_iter().zip(At::ALL).zip(&mut self.hits) {
            let is_hit = result == TRANSLATED;
            let is_same = match is_hit {
                true => {
                    engine.verdict == Verdict::Forward
                        && engine.realm == 0
                        && engine.emitted.is_empty()
                        && without_ident(&bytes) == without_ident(&engine.bytes)
                }
                false => bytes == packet.bytes,
            };
            if !is_same {
                return Err(format!(
                    "{at:?}: {:02x?}\nprogram {bytes:02x?}\nengine  {engine:02x?}",
                    packet.bytes
                ));
            }
            *hits += u64::from(is_hit);
        }
        Ok(())
    }
}

#[test]
fn histories_have_the_engines_bytes_or_leave_a_packet_to_it() {
    let number = std::env::var("GATUN_HISTORIES").ok().map(|number| number.parse().unwrap());
    let mut hits = [0; 2];
    for world in 0..number.unwrap_or(HISTORIES) {
        let Some(mut programs) = Programs::new(&universe(world)) else { return };
        if let Err(failure) = run_beside(world, &with_flows(&history(world, STEPS)), &mut programs) {
            panic!("history {world}, step {}: {}", failure.step, failure.what);
        }
        hits = [0, 1].map(|n| hits[n] + programs.hits[n]);
    }
    let least = 20 * number.unwrap_or(HISTORIES);
    assert!(hits.iter().all(|hits| *hits > least), "translated packets: {hits:?}");
}
