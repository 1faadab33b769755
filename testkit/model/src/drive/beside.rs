//! A translator beside the engine in a history.

use crate::model::{Observed, RealmPacket};
use gatun_nat::inspect::{Selection, SessionCursor, SessionInfo};
use gatun_nat::plan::Transport;
use gatun_nat::tcp_fsm::TcpState;
use gatun_nat::{Instant, Nat, Plan};
use gatun_wire::proto;
use std::net::Ipv4Addr;

/// Largest number of sessions of an engine that are read.
const SESSIONS: usize = 100;
/// Largest number of records of an engine that are looked at.
const RECORDS: usize = 10_000;

/// A fast path that has the engine's sessions, and gets the packets of a history, too.
pub trait Beside {
    /// Gets a packet before the engine does, at the time `now`. `plan` is the current one.
    fn before(&mut self, engine: &Nat, plan: &Plan, now: Instant, packet: &RealmPacket);

    /// Compares its result on the packet with the engine's.
    ///
    /// # Errors
    /// Returns the difference.
    fn after(&mut self, packet: &RealmPacket, engine: &Observed) -> Result<(), String>;
}

/// The established sessions that live for more than `since` milliseconds, as an offload manager would install
/// them in a fast path of one realm.
pub fn offered_sessions(nat: &Nat, plan: &Plan, since: u64) -> Vec<SessionInfo> {
    let mut sessions = Vec::with_capacity(SESSIONS);
    nat.read_sessions(&mut SessionCursor::default(), &Selection::default(), RECORDS, &mut sessions);
    let is_ours = |address: Ipv4Addr| nat.pools().iter().any(|pool| pool.address_ix(address).is_some());
    // Flows that share a public port are the engine's alone.
    let shares = |a: &SessionInfo| {
        let is_other =
            |b: &&SessionInfo| (b.outside, b.transport) == (a.outside, a.transport) && b.inside != a.inside;
        sessions.iter().any(|b| is_other(&b))
    };
    let realms = plan.nat64.iter().map(|nat64| nat64.realm).chain(plan.nat44.iter().map(|nat44| nat44.realm));
    let realms: Vec<u8> = realms.collect();
    let is_elsewhere = |instance: u8| realms.get(usize::from(instance)).is_some_and(|&realm| realm != 0);
    let is_offered = |session: &&SessionInfo| {
        session.tcp.is_none_or(|state| state == TcpState::Established)
            && u64::from(session.expires_ms) > since
            && !is_ours(session.remote.0)
            && !shares(session)
            && !is_elsewhere(session.instance)
            && !is_exempt(session, plan)
    };
    sessions.iter().filter(is_offered).copied().collect()
}

/// An exempt host has sessions if it sends to public ports.
fn is_exempt(session: &SessionInfo, plan: &Plan) -> bool {
    let number = usize::from(session.instance).checked_sub(plan.nat64.len());
    let Some(nat44) = number.and_then(|number| plan.nat44.get(number)) else { return false };
    let (remote, port) = session.remote;
    let (protocol, port) = match session.transport {
        Transport::Tcp => (proto::TCP, Some(port)),
        Transport::Udp => (proto::UDP, Some(port)),
        Transport::Icmp => (proto::ICMP, None),
    };
    nat44.inside.iter().any(|net| net.contains(remote))
        || nat44.exempt.iter().any(|exempt| exempt.covers(remote, protocol, port))
}
