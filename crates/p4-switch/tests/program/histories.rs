//! The model's histories, with the program beside the engine: the controller's entries of the engine's sessions
//! are in the tables from one packet to the next. The program sends the engine's bytes, or gives the packet to
//! the controller as it is. So each packet has one fate, the engine's.

use crate::entries::{Flow, Installed};
use crate::packets::from_inside;
use crate::pair::{Fate, INSIDE, INSIDE_OWN4, INSIDE_OWN6, Lent, insert, remove, split, through};
use gatun_model::drive::{Beside, history, offered_sessions, run_beside, universe, with_flows};
use gatun_model::model::{Observed, RealmPacket};
use gatun_nat::feed::{self, SessionId};
use gatun_nat::inspect::SessionInfo;
use gatun_nat::plan::Transport;
use gatun_nat::reconfigure::Outline;
use gatun_nat::{Instant, Nat, Plan, Verdict};
use gatun_offload::OffloadedFlow;
use gatun_p4_controller::flow::Direction;
use gatun_p4_controller::link::FlowEntry;
use gatun_p4_controller::program::{ConstantTos, Limits, Program};
use gatun_p4runtime::p4::v1::{TableEntry, field_match::FieldMatchType, table_action};
use gatun_p4runtime::p4info_from_text;
use gatun_wire::hdr::ipv4;
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

/// Limits of a switch for all instances, as the configuration has them.
fn limits(plan: &Plan) -> Limits {
    let of64 = || plan.nat64.iter().map(|nat64| &nat64.settings);
    let smallest = |mtus: &mut dyn Iterator<Item = u32>| mtus.min().unwrap_or(u32::MAX);
    let short = |mtu: u32| u16::try_from(mtu).unwrap_or(u16::MAX);
    let mtus4 = of64().map(|settings| settings.mtu4).chain(plan.nat44.iter().map(|nat44| nat44.mtu));
    let tos = of64()
        .map(|settings| ConstantTos { to_ipv4: settings.tos_6to4, to_ipv6: settings.traffic_class_4to6 });
    Limits {
        mtu4: short(smallest(&mut mtus4.into_iter())),
        mtu6: short(smallest(&mut of64().map(|settings| settings.mtu6))),
        mtu6_without_df: short(smallest(
            &mut of64().map(|settings| settings.lowest_ipv6_mtu.min(settings.mtu6)),
        )),
        tos: tos.collect(),
    }
}

fn controller(limits: &Limits) -> Program {
    let info = p4info_from_text(include_str!("../../../../p4/psa.p4info.txt")).unwrap();
    Program::new(info, limits.clone()).unwrap()
}

/// The flow of a session. `None` if it cannot be known which prefix it has.
fn offloaded(session: &SessionInfo, outline: &Outline) -> Option<OffloadedFlow> {
    let remote6 = match (session.inside.0.to_ipv4_mapped(), outline.prefixes(session.instance)) {
        (Some(_), _) => None,
        (None, [prefix]) => Some(prefix.embed(session.remote.0)),
        _ => return None,
    };
    let flow = feed::Flow {
        inside: session.inside,
        outside: session.outside,
        remote: session.remote,
        transport: session.transport,
        instance: session.instance,
    };
    Some(OffloadedFlow {
        session: SessionId { record: 1, flow },
        worker: 0,
        epoch: 1,
        remote6,
        path_mtu: None,
    })
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// An entry of the controller, by the names of the compiled program.
fn compiled(controller: &Program, entry: &TableEntry) -> Flow {
    let info = controller.info();
    let preamble =
        info.tables.iter().filter_map(|table| table.preamble.as_ref()).find(|of| of.id == entry.table_id);
    let table = match &*preamble.unwrap().alias {
        "flows6" => "gatun_lookup_flows6",
        "flows4" => "gatun_lookup_flows4",
        other => panic!("{other}"),
    };
    let key = entry.r#match.iter().map(|field| match &field.field_match_type {
        Some(FieldMatchType::Exact(exact)) => number(&exact.value),
        other => panic!("{other:?}"),
    });
    let Some(table_action::Type::Action(call)) = entry.action.clone().unwrap().r#type else {
        panic!("{entry:?}")
    };
    let preamble =
        info.actions.iter().filter_map(|action| action.preamble.as_ref()).find(|of| of.id == call.action_id);
    let action = match &*preamble.unwrap().alias {
        "to_ipv4" => "gatun_lookup_to_ipv4",
        "to_ipv6" => "gatun_lookup_to_ipv6",
        "nat44" => "gatun_lookup_nat44",
        other => panic!("{other}"),
    };
    Flow { table, key: key.collect(), action, data: call.params.iter().map(|of| number(&of.value)).collect() }
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
            let of = |direction| FlowEntry { slot, direction, flow: *flow, pending: 0 };
            let entries = Direction::ALL.map(|direction| self.controller.entry(&of(direction)));
            let inserted = entries.iter().map(|entry| compiled(&self.controller, entry));
            let inserted: Vec<Flow> = inserted.collect();
            let inserted = inserted.into_iter().map(|entry| vec![insert(&mut self.switch, entry)]).collect();
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

/// The packet with identification zero.
fn without_ident(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet.len() >= 20 && packet[0] >> 4 == 4 {
        packet[4..6].fill(0);
        ipv4::set_checksum(&mut packet[..20]);
    }
    packet
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
