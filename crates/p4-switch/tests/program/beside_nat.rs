//! Helpers of the tests of `nat`, with the program beside the engine: it has the entries of each established
//! session (`beside.rs`).
#![allow(dead_code, unreachable_pub)]

#[path = "../../../nat/tests/common/mod.rs"]
mod original;

pub use original::*;

use crate::beside;
use crate::controller::{controller, entries, limits, offloaded};
use crate::counts;
use crate::entries::Flow;
use crate::pair::Fate;
use gatun_model::drive::offered_sessions;
use gatun_nat::{Instant, Nat, Plan, Verdict};
use gatun_offload::OffloadedFlow;
use gatun_p4_controller::program::{Limits, Program};
use gatun_wire::Offload;

/// Sessions that the switch's small tables have at most.
const SESSIONS_MAX: usize = 64;

/// An engine and its clock, and the program.
pub type Bed = original::Bed<Pipeline>;

/// The program beside an engine.
pub struct Pipeline {
    controller: Program,
    limits: Limits,
    /// First plan of the engine.
    plan: Plan,
    /// Time of the last packet.
    sent: Instant,
    /// Flows of the last packet's time, and their entries.
    flows: Vec<OffloadedFlow>,
    entries: Vec<Flow>,
    /// Fate of the last packet, if the switch got it.
    fate: Option<Fate>,
}

impl Bed {
    pub fn new(plan: &Plan) -> Self {
        let limits = limits(plan);
        let pipeline = Pipeline {
            controller: controller(&limits),
            limits,
            plan: plan.clone(),
            sent: Instant(0),
            flows: Vec::new(),
            entries: Vec::new(),
            fate: None,
        };
        let mut bed = Bed::with(plan, pipeline);
        bed.beside.sent = bed.now;
        bed
    }

    pub fn nat64(pool6: &str) -> Self {
        Self::new(&plan_with(pool6))
    }
}

impl Pipeline {
    /// Makes the entries those of the established sessions that live for more than `since` milliseconds.
    /// Those of instances that the first plan lacks stay with the engine.
    fn follow(&mut self, nat: &Nat, since: u64) {
        let known = self.plan.nat64.len() + self.plan.nat44.len();
        let outline = nat.outline();
        let sessions = offered_sessions(nat, &self.plan, since);
        let sessions = sessions.iter().filter(|session| usize::from(session.instance) < known);
        let flows = sessions.filter_map(|session| offloaded(session, &outline)).take(SESSIONS_MAX);
        let flows: Vec<OffloadedFlow> = flows.collect();
        if self.flows != flows {
            let of = |(flow, slot): (&OffloadedFlow, u32)| entries(&self.controller, flow, slot);
            self.entries = flows.iter().zip(0..).flat_map(of).collect();
            self.flows = flows;
        }
    }
}

impl Beside for Pipeline {
    fn before(&mut self, nat: &Nat, now: Instant, realm: u8, (packet, offload): (&[u8], Offload)) {
        if realm != 0 {
            return counts::left_out();
        }
        // The engine may not know yet that so much time has passed.
        let since = now.since_ms(std::mem::replace(&mut self.sent, now));
        self.follow(nat, since);
        self.fate = beside::fate(&self.entries, packet, offload);
    }

    fn after(&mut self, packet: &[u8], outcome: &Outcome) {
        let Some(fate) = self.fate.take() else { return };
        let is_whole =
            outcome.verdict == Verdict::Forward && outcome.emitted.is_empty() && outcome.realm == 0;
        let engine = is_whole.then_some(&outcome.bytes[..]);
        beside::compare(&self.entries, &self.limits, packet, engine, &fate);
    }
}
