//! The model's histories, with the program beside the engine: the controller's entries of the engine's sessions
//! are in the tables from one packet to the next. The program sends the engine's bytes, or gives the packet to
//! the controller as it is. So each packet has one fate, the engine's.

use crate::beside::without_ident;
use crate::controller::{controller, entries, limits, offloaded};
use crate::entries::Installed;
use crate::packets::from_inside;
use crate::pair::{Fate, INSIDE, INSIDE_OWN4, INSIDE_OWN6, Lent, insert, remove, split, through};
use gatun_model::drive::{Beside, history, offered_sessions, run_beside, universe, with_flows};
use gatun_model::model::{Observed, RealmPacket};
use gatun_nat::feed;
use gatun_nat::plan::Transport;
use gatun_nat::{Instant, Nat, Plan, Verdict};
use gatun_offload::OffloadedFlow;
use gatun_p4_controller::program::{Limits, Program};
use gatun_wire::proto;
use std::collections::HashMap;

/// Histories of a run, unless GATUN_HISTORIES names another number.
const HISTORIES: u64 = 40;
const STEPS: usize = 1_000;
/// Longer packets do not fit in a buffer of the switch.
const SHORT_MAX: usize = 1_900;
/// Sessions that the switch's small tables have at most.
const SESSIONS_MAX: usize = 64;

/// The program beside an engine.
struct Pipeline {
    switch: Lent,
    controller: Program,
    limits: Limits,
    /// Flows in the tables, with their counters and entries.
    installed: HashMap<feed::Flow, (u32, Vec<Installed>)>,
    /// Time of the last packet.
    sent: Instant,
    /// Fate of the last packet, if the switch got it.
    fate: Option<Fate>,
    /// Translated packets, by protocol.
    hits: [u64; 3],
    /// Packets that the controller got.
    given: u64,
}

impl Pipeline {
    fn new(plan: &Plan) -> Pipeline {
        let limits = limits(plan);
        Pipeline {
            switch: Lent::new(),
            controller: controller(&limits),
            limits,
            installed: HashMap::new(),
            sent: Instant(0),
            fate: None,
            hits: [0; 3],
            given: 0,
        }
    }

    /// Begins anew with the limits of another plan.
    fn follow(&mut self, plan: &Plan) {
        let now = limits(plan);
        if self.limits != now {
            self.clear();
            self.controller = controller(&now);
            self.limits = now;
        }
    }

    fn clear(&mut self) {
        let all: Vec<Installed> = self.installed.drain().flat_map(|(_, (_, entries))| entries).collect();
        all.into_iter().for_each(|entries| remove(&mut self.switch, entries));
    }

    /// Removes the entries of sessions that are gone, and inserts those of new sessions.
    fn reconcile(&mut self, wanted: &[OffloadedFlow]) {
        let flows: Vec<feed::Flow> = wanted.iter().map(|flow| flow.session.flow).collect();
        let gone: Vec<feed::Flow> =
            self.installed.keys().filter(|flow| !flows.contains(flow)).copied().collect();
        for flow in gone {
            let (_, entries) = self.installed.remove(&flow).unwrap();
            entries.into_iter().for_each(|entries| remove(&mut self.switch, entries));
        }
        for flow in wanted {
            if self.installed.contains_key(&flow.session.flow) {
                continue;
            }
            let is_free = |slot: &u32| self.installed.values().all(|(other, _)| other != slot);
            let slot = (0..).find(is_free).unwrap();
            let entries = entries(&self.controller, flow, slot);
            let inserted = entries.map(|entry| vec![insert(&mut self.switch, entry)]).into();
            self.installed.insert(flow.session.flow, (slot, inserted));
        }
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.clear();
        }
    }
}

/// Whether a switch without a host of its own would have to answer a packet, or cannot get it.
fn is_apart(packet: &RealmPacket) -> bool {
    let bytes = &packet.bytes;
    let is_own = match bytes.first().map(|byte| byte >> 4) {
        Some(4) if bytes.len() >= 20 => bytes[16..20] == INSIDE_OWN4.octets(),
        Some(6) if bytes.len() >= 40 => bytes[24..40] == INSIDE_OWN6.octets(),
        _ => true,
    };
    is_own || packet.realm != 0 || bytes.len() > SHORT_MAX
}

impl Beside for Pipeline {
    fn before(&mut self, engine: &Nat, plan: &Plan, now: Instant, packet: &RealmPacket) {
        // The engine may not know yet that so much time has passed.
        let since = now.since_ms(std::mem::replace(&mut self.sent, now));
        self.follow(plan);
        self.fate = None;
        if is_apart(packet) {
            return;
        }
        let outline = engine.outline();
        let sessions = offered_sessions(engine, plan, since);
        let wanted = sessions.iter().filter_map(|session| offloaded(session, &outline));
        self.reconcile(&wanted.take(SESSIONS_MAX).collect::<Vec<_>>());
        self.fate = Some(through(&mut self.switch, INSIDE, &from_inside(&packet.bytes)));
    }

    fn after(&mut self, packet: &RealmPacket, engine: &Observed) -> Result<(), String> {
        let different = |fate: &dyn std::fmt::Debug| {
            Err(format!("{:02x?}\nswitch  {fate:02x?}\nengine  {engine:02x?}", packet.bytes))
        };
        match self.fate.take() {
            None => {}
            Some(Fate::Controller(_)) => self.given += 1,
            Some(fate @ (Fate::Dropped | Fate::Pending(..))) => return different(&fate),
            Some(Fate::Sent(_, frame)) => {
                let sent = &frame[split(&frame).0..];
                let is_same = engine.verdict == Verdict::Forward
                    && engine.realm == 0
                    && engine.emitted.is_empty()
                    && without_ident(sent) == without_ident(&engine.bytes);
                if !is_same {
                    return different(&sent);
                }
                let transport = match sent[if sent[0] >> 4 == 4 { 9 } else { 6 }] {
                    proto::TCP => Transport::Tcp,
                    proto::UDP => Transport::Udp,
                    _ => Transport::Icmp,
                };
                self.hits[transport as usize] += 1;
            }
        }
        Ok(())
    }
}

#[test]
fn histories_have_the_engines_bytes_or_go_to_the_controller() {
    let number = std::env::var("GATUN_HISTORIES").ok().map_or(HISTORIES, |number| number.parse().unwrap());
    let (mut hits, mut given) = ([0; 3], 0);
    for world in 0..number {
        let mut pipeline = Pipeline::new(&universe(world));
        if let Err(failure) = run_beside(world, &with_flows(&history(world, STEPS)), &mut pipeline) {
            panic!("history {world}, step {}: {}", failure.step, failure.what);
        }
        hits = [0, 1, 2].map(|n| hits[n] + pipeline.hits[n]);
        given += pipeline.given;
    }
    println!("translated by the program: {hits:?} (TCP, UDP, pings); given to the controller: {given}");
    assert!(hits.iter().all(|hits| *hits > number) && given > number, "{hits:?}, {given}");
}
