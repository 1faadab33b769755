//! State feed, marks and quarantine, as a fast path's manager uses them.

#[path = "../common/mod.rs"]
mod common;

mod commands;
mod feed;
mod histories;
mod quarantine;
mod reload;
mod restart;

use common::*;
use gatun_nat::feed::{
    Action, Command, CommandOutcome, FeedPolicy, FeedReader, Offload, Ownership, Record, SessionChange,
    SessionId, SessionRecord, SessionScope, channel,
};
use gatun_nat::plan::{Exemption, Net4, Transport};
use gatun_nat::{FeedCursor, Plan, plan};

/// Prefix of the NAT64 instance, number 0.
const POOL6: &str = "2001:db8:64::/96";
/// A host behind the NAT44 instance, number 1.
const A: &str = "10.0.0.5";
/// The pool's address.
const T: &str = "192.0.2.1";

/// A NAT64 and a NAT44 instance that share a pool.
fn both_kinds() -> Plan {
    let nat44 = plan::Nat44 {
        name: "home".into(),
        inside: vec![Net4::new(v4("10.0.0.0"), 8).unwrap()],
        ..plan::Nat44::default()
    };
    Plan { nat44: vec![nat44], ..plan_with(POOL6) }
}

const ESTABLISHED: FeedPolicy = FeedPolicy {
    sessions: SessionScope::Established,
    bindings: false,
    blocks: false,
    paths: false,
    packets: 3,
    tcp_packets: 0,
};

/// Attaches a feed to an engine.
fn attach(bed: &mut Bed, policy: FeedPolicy, len: usize) -> FeedReader {
    let (feed, reader) = channel(policy, len, 7);
    bed.nat.attach_feed(Some(feed.into()));
    reader
}

fn records(reader: &mut FeedReader) -> Vec<Record> {
    std::iter::from_fn(|| reader.next()).map(|(_, record)| record).collect()
}

/// Returns the waiting session records; no others may wait.
fn sessions(reader: &mut FeedReader) -> Vec<SessionRecord> {
    let session = |record| match record {
        Record::Session(session) => session,
        other => panic!("{other:?}"),
    };
    records(reader).into_iter().map(session).collect()
}

fn changes(reader: &mut FeedReader) -> Vec<SessionChange> {
    sessions(reader).iter().map(|session| session.change).collect()
}

/// Executes one command, and returns its outcome.
fn order(bed: &mut Bed, id: SessionId, action: Action) -> CommandOutcome {
    let mut commands = [Command::new(id, action)];
    bed.nat.offload(bed.now, &mut commands);
    commands[0].outcome
}

fn mark(bed: &mut Bed, id: SessionId, offload: Offload) -> CommandOutcome {
    order(bed, id, Action::Mark(Ownership { epoch: 5, offload }))
}

/// Returns all records that a consumer reads at once.
fn present(bed: &Bed, policy: &FeedPolicy) -> Vec<SessionRecord> {
    let (mut at, mut all) = (FeedCursor::default(), Vec::new());
    while !at.is_done() {
        let mut some = Vec::with_capacity(3);
        bed.nat.read_feed(&mut at, policy, 5, &mut some);
        all.extend(some);
    }
    all
}

/// Opens a TCP connection of an inside host, and returns its public port.
fn connect(bed: &mut Bed, host: &str, port: u16, server: &str) -> u16 {
    let out = bed.through(&tcp4(host, port, server, 80, "S", b""));
    bed.through(&tcp4(server, 80, &out.src.to_string(), out.sport, "SA", b""));
    out.sport
}

/// Opens a UDP session with its first packet, and returns its public port.
fn datagram(bed: &mut Bed, host: &str, port: u16) -> u16 {
    bed.through(&udp4(host, port, SERVER, 53, b"x")).sport
}

/// Returns an engine with one established, marked UDP session.
fn marked(plan: &Plan, offload: Offload) -> (Bed, FeedReader, SessionId) {
    let mut bed = Bed::new(plan);
    let mut reader = attach(&mut bed, FeedPolicy { packets: 1, ..ESTABLISHED }, 1000);
    datagram(&mut bed, A, 4000);
    let id = sessions(&mut reader)[0].id;
    assert_eq!(mark(&mut bed, id, offload), CommandOutcome::Done);
    (bed, reader, id)
}

/// Lifetime of a UDP session, ms.
const UDP_MS: u64 = 300_000;

fn transport(id: &SessionId) -> Transport {
    id.flow.transport
}
