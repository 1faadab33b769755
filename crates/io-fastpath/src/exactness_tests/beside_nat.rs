//! Helpers of the tests of `nat`, with both programs beside the engine: each of its established sessions is
//! in their tables. A program writes the engine's bytes, or leaves the packet as it is.
#![allow(dead_code, unreachable_pub)]

#[path = "../../../nat/tests/common/mod.rs"]
mod original;

pub use original::*;

use super::{At, Pair, TRANSLATED, plan, refusal, well_known};
use crate::KernelTime;
use crate::flow::{Flow, Inside, Protocol};
use crate::instance::Instance;
use crate::table::{Refusal, SlotId};
use gatun_nat::inspect::{Selection, SessionCursor, SessionInfo};
use gatun_nat::plan::Transport;
use gatun_nat::tcp_fsm::TcpState;
use gatun_nat::{Instant, Nat, Plan, Verdict};
use gatun_wire::{Offload, Prefix64, Settings};
use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::ops::{Deref, DerefMut};

thread_local! {
    /// Loaded programs that no bed uses.
    static LOADED: RefCell<Vec<[Pair; 2]>> = const { RefCell::new(Vec::new()) };
    static HITS: RefCell<u64> = const { RefCell::new(0) };
}

/// An engine and its clock, and the programs.
pub struct Bed {
    bed: original::Bed,
    plan: Plan,
    programs: Option<[Pair; 2]>,
    /// Time of the last packet.
    sent: Instant,
}

impl Deref for Bed {
    type Target = original::Bed;
    fn deref(&self) -> &original::Bed {
        &self.bed
    }
}

impl DerefMut for Bed {
    fn deref_mut(&mut self) -> &mut original::Bed {
        &mut self.bed
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if let Some(programs) = self.programs.take() {
            LOADED.with_borrow_mut(|loaded| loaded.push(programs));
        }
    }
}

/// Packets that the programs translated in this thread.
pub fn hits() -> u64 {
    HITS.with_borrow(|hits| *hits)
}

impl Bed {
    pub fn new(plan: &Plan) -> Self {
        let bed = original::Bed::new(plan);
        Bed { sent: bed.now, bed, plan: plan.clone(), programs: programs(plan) }
    }

    pub fn nat64(pool6: &str) -> Self {
        Self::new(&plan_with(pool6))
    }

    pub fn send(&mut self, packet: &[u8]) -> Outcome {
        self.beside(packet, |bed| bed.send(packet))
    }

    pub fn send_any(&mut self, packet: &[u8]) -> Outcome {
        self.beside(packet, |bed| bed.send_any(packet))
    }

    pub fn send_offloaded(&mut self, packet: &[u8], offload: Offload) -> Outcome {
        // BPF_PROG_TEST_RUN has no partial checksums.
        if offload != Offload::default() {
            return self.bed.send_offloaded(packet, offload);
        }
        self.beside(packet, |bed| bed.send_offloaded(packet, offload))
    }

    pub fn through(&mut self, packet: &[u8]) -> Ends {
        ends(self.send(packet).forwarded())
    }

    fn beside(&mut self, packet: &[u8], send: impl FnOnce(&mut original::Bed) -> Outcome) -> Outcome {
        let is_alone = self.bed.realm != 0 || packet.len() < 20 || packet.len() > 3000;
        let Some(programs) = self.programs.as_mut().filter(|_| !is_alone) else { return send(&mut self.bed) };
        // The engine may not know yet that so much time has passed.
        let since = self.bed.now.since_ms(std::mem::replace(&mut self.sent, self.bed.now));
        let flows = flows(&self.bed.nat, &self.plan, since);
        let results = programs.each_mut().map(|pair| {
            let ids: Vec<SlotId> = pair.table.iter().map(|(id, _)| id).collect();
            pair.table.remove(&ids, &mut Vec::new());
            for flow in &flows {
                let placed = pair.table.install_one(&flow.outbound(), flow, KernelTime(0));
                // Ports in a row may have few homes in so small a table: the engine has the packets.
                assert!(matches!(placed, Ok(_) | Err(Refusal::Crowded)), "{placed:?}");
            }
            pair.run(packet, 0)
        });
        let outcome = send(&mut self.bed);
        for ((result, kernel, _), pair) in results.into_iter().zip(programs.iter()) {
            if result == TRANSLATED {
                HITS.with_borrow_mut(|hits| *hits += 1);
                assert_eq!(outcome.verdict, Verdict::Forward, "{:?}: {packet:02x?}", pair.at);
                assert_eq!(without_ident(&kernel), without_ident(&outcome.bytes), "{:?}", pair.at);
            } else {
                assert_eq!(kernel, packet, "{:?}", pair.at);
            }
        }
        outcome
    }
}

/// Programs with the instances of a plan.
fn programs(of: &Plan) -> Option<[Pair; 2]> {
    if let Some(why) = refusal() {
        gatun_testkit::skip(&why);
        return None;
    }
    let loaded = LOADED.with_borrow_mut(Vec::pop);
    let settings = Settings::default();
    let new = || At::ALL.map(|at| Pair::of(at, &plan(well_known(), settings), well_known(), settings));
    let programs = loaded.unwrap_or_else(new);
    for pair in &programs {
        let of64 = of.nat64.iter().map(|nat64| Instance::nat64(&nat64.settings));
        let all = of64.chain(of.nat44.iter().map(|nat44| Instance::nat44(nat44.mtu)));
        for (number, instance) in (0..).zip(all) {
            pair.table.set_instance(number, instance).unwrap();
        }
    }
    Some(programs)
}

/// The established sessions that live for more than `since` milliseconds, as the offload manager would install
/// them.
fn flows(nat: &Nat, plan: &Plan, since: u64) -> Vec<Flow> {
    let mut sessions = Vec::with_capacity(100);
    nat.read_sessions(&mut SessionCursor::default(), &Selection::default(), 10_000, &mut sessions);
    let is_ours = |address: Ipv4Addr| {
        let ranges = plan.pools.iter().flat_map(|pool| &pool.ranges);
        ranges.into_iter().any(|range| (range.first..=range.last).contains(&address))
    };
    // Flows that share a public port are the engine's alone.
    let shares = |a: &SessionInfo| {
        let is_other =
            |b: &&SessionInfo| (b.outside, b.transport) == (a.outside, a.transport) && b.inside != a.inside;
        sessions.iter().any(|b| is_other(&b))
    };
    let established = sessions.iter().filter(|session| {
        let is_open = session.tcp.is_none_or(|state| state == TcpState::Established);
        is_open && u64::from(session.expires_ms) > since && !is_ours(session.remote.0) && !shares(session)
    });
    established.filter_map(|session| flow(session, plan)).take(64).collect()
}

fn flow(session: &SessionInfo, plan: &Plan) -> Option<Flow> {
    let host = session.inside.0;
    let number = usize::from(session.instance);
    let inside = match (host.to_ipv4_mapped(), plan.nat64.get(number)) {
        (Some(host), None) => Inside::Four(host),
        (None, Some(nat64)) if nat64.realm == 0 => {
            // Which of several prefixes the session has is known to the feed alone.
            let [prefix]: [Prefix64; 1] = nat64.pool6.clone().try_into().ok()?;
            Inside::Six { host, remote: prefix.embed(session.remote.0) }
        }
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
fn without_ident(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet[0] >> 4 == 4 {
        packet[4..6].fill(0);
        gatun_wire::hdr::ipv4::set_checksum(&mut packet[..20]);
    }
    packet
}
