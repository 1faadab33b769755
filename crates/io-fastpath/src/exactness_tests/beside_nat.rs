//! Helpers of the tests of `nat`, with both programs beside the engine: each of its established sessions is
//! in their tables. A program writes the engine's bytes, or leaves the packet as it is.
#![allow(dead_code, unreachable_pub)]

#[path = "../../../nat/tests/common/mod.rs"]
mod original;

pub use original::*;

use super::loaded::Loaded;
use super::{At, TRANSLATED, refusal};
use crate::KernelTime;
use crate::flow::{Flow, Inside, Protocol};
use crate::instance::Instance;
use crate::table::{Refusal, SlotId};
use gatun_model::drive::offered_sessions;
use gatun_nat::inspect::SessionInfo;
use gatun_nat::plan::{Nat44, Net4, Transport};
use gatun_nat::reconfigure::Outline;
use gatun_nat::{Instant, Nat, Plan, Verdict};
use gatun_wire::Offload;
use std::cell::RefCell;

/// Address of the pool.
const T: &str = "192.0.2.1";

thread_local! {
    static HITS: RefCell<u64> = const { RefCell::new(0) };
}

/// An engine and its clock, and the programs.
pub type Bed = original::Bed<Kernel>;

/// The programs beside an engine.
pub struct Kernel {
    /// `None` if this process may not load programs.
    programs: Option<[Loaded; 2]>,
    /// First plan of the engine.
    plan: Plan,
    /// Time of the last packet.
    sent: Instant,
    /// Results on the last packet, if it was given to the programs.
    results: Option<[(u32, Vec<u8>, u32); 2]>,
}

/// Packets that the programs translated in this thread.
fn hits() -> u64 {
    HITS.with_borrow(|hits| *hits)
}

impl Bed {
    pub fn new(plan: &Plan) -> Self {
        let mut bed = Bed::with(
            plan,
            Kernel { programs: programs(plan), plan: plan.clone(), sent: Instant(0), results: None },
        );
        bed.beside.sent = bed.now;
        bed
    }

    pub fn nat64(pool6: &str) -> Self {
        Self::new(&plan_with(pool6))
    }
}

impl Beside for Kernel {
    fn before(&mut self, nat: &Nat, now: Instant, realm: u8, (packet, offload): (&[u8], Offload)) {
        // BPF_PROG_TEST_RUN has no partial checksums.
        let is_alone =
            offload != Offload::default() || realm != 0 || packet.len() < 20 || packet.len() > 3000;
        let Some(programs) = self.programs.as_mut().filter(|_| !is_alone) else { return };
        // The engine may not know yet that so much time has passed.
        let since = now.since_ms(std::mem::replace(&mut self.sent, now));
        let flows = flows(nat, &self.plan, since);
        self.results = Some(programs.each_mut().map(|program| {
            let ids: Vec<SlotId> = program.table.iter().map(|(id, _)| id).collect();
            program.table.remove(&ids, &mut Vec::new());
            for flow in &flows {
                let placed = program.table.install_one(&flow.outbound(), flow, KernelTime(0));
                // Ports in a row may have few homes in so small a table: the engine has the packets.
                assert!(matches!(placed, Ok(_) | Err(Refusal::Crowded)), "{placed:?}");
            }
            program.run(packet, 0)
        }));
    }

    fn after(&mut self, packet: &[u8], outcome: &Outcome) {
        let Some(results) = self.results.take() else { return };
        for ((result, kernel, _), at) in results.into_iter().zip(At::ALL) {
            if result == TRANSLATED {
                HITS.with_borrow_mut(|hits| *hits += 1);
                assert_eq!(outcome.verdict, Verdict::Forward, "{at:?}: {packet:02x?}");
                assert_eq!(without_ident(&kernel), without_ident(&outcome.bytes), "{at:?}");
            } else {
                assert_eq!(kernel, packet, "{at:?}");
            }
        }
    }
}

/// Programs with the instances of a plan.
pub(super) fn programs(of: &Plan) -> Option<[Loaded; 2]> {
    if let Some(why) = refusal() {
        gatun_testkit::skip(&why);
        return None;
    }
    let programs = At::ALL.map(Loaded::new);
    for pair in &programs {
        for (number, instance) in (0..).zip(instances(of)) {
            pair.table.set_instance(number, instance).unwrap();
        }
    }
    Some(programs)
}

/// Settings of a plan's instances.
pub(super) fn instances(of: &Plan) -> Vec<Instance> {
    let of64 = of.nat64.iter().map(|nat64| Instance::nat64(&nat64.settings));
    of64.chain(of.nat44.iter().map(|nat44| Instance::nat44(nat44.mtu))).collect()
}

/// The established sessions that live for more than `since` milliseconds, as the offload manager would
/// install them. Those of instances that the plan lacks stay with the engine: the programs may still have the
/// settings that another test gave these numbers.
pub(super) fn flows(nat: &Nat, plan: &Plan, since: u64) -> Vec<Flow> {
    let outline = nat.outline();
    let (sessions, known) = (offered_sessions(nat, plan, since), instances(plan).len());
    let sessions = sessions.iter().filter(|session| usize::from(session.instance) < known);
    sessions.filter_map(|session| flow(session, &outline)).take(64).collect()
}

fn flow(session: &SessionInfo, outline: &Outline) -> Option<Flow> {
    let host = session.inside.0;
    let inside = match (host.to_ipv4_mapped(), outline.prefixes(session.instance)) {
        (Some(host), _) => Inside::Four(host),
        // Which of several prefixes the session has is known to the feed alone.
        (None, [prefix]) => Inside::Six { host, remote: prefix.embed(session.remote.0) },
        _ => return None,
    };
    let protocol = match session.transport {
        Transport::Tcp => Protocol::Tcp,
        Transport::Udp => Protocol::Udp,
        Transport::Icmp => return None,
    };
    Some(Flow {
        inside,
        inside_port: session.inside.1,
        outside: session.outside,
        remote: session.remote,
        protocol,
        instance: session.instance,
        worker: 0,
        epoch: 0,
        record: 0,
        path_mtu: None,
        ident: 9,
    })
}

/// The packet with its identification zero.
pub(super) fn without_ident(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet[0] >> 4 == 4 {
        packet[4..6].fill(0);
        gatun_wire::hdr::ipv4::set_checksum(&mut packet[..20]);
    }
    packet
}

#[test]
fn sessions_of_these_tests_are_translated_by_both_programs() {
    let cgn = Nat44 {
        name: "cgn".into(),
        inside: vec![Net4::new(v4("100.64.0.0"), 10).unwrap()],
        ..Nat44::default()
    };
    let pools = vec![pool(T, T, (1, 65535))];
    let of44 = Plan { own4: Some(v4(OWN4)), pools, nat44: vec![cgn], ..Plan::default() };
    let both_ways = |mut bed: Bed, from_inside: &dyn Fn(&[u8]) -> Vec<u8>| {
        let port = bed.through(&from_inside(b"x")).sport;
        let before = hits();
        bed.through(&from_inside(b"y"));
        bed.through(&udp4(SERVER, 53, T, port, b"z"));
        let wanted = if refusal().is_none() { 4 } else { 0 };
        assert_eq!(hits() - before, wanted);
    };
    both_ways(Bed::nat64("2001:db8:64::/96"), &|data| udp6(CLIENT, 5000, "2001:db8:64::c633:6407", 53, data));
    both_ways(Bed::new(&of44), &|data| udp4("100.64.0.2", 5000, SERVER, 53, data));
}
