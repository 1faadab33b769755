//! What subscribers have as a daemon goes on with the sessions of another: records for the log, so that whatever of the
//! other's could not be taken over, or stands elsewhere by another configuration, has an end there.

use super::log_store::{bits, now_ms};
use gatun_logstore::{Record, RecordKind};
use gatun_nat::Nat;
use gatun_nat::inspect::{BindingInfo, BlockInfo, PortCursor, Selection};
use std::net::Ipv6Addr;

/// Blocks or bindings that are read at a time.
const SOME: usize = 4096;

/// A record for each block of an engine, and with `bindings` for each binding.
pub(super) fn records(nat: &Nat, bindings: bool) -> Vec<Record> {
    let at_ms = now_ms();
    let mut records = Vec::new();
    each(
        |at, found| nat.read_blocks(at, &Selection::default(), usize::MAX, found),
        |block| {
            records.push(of_block(block, at_ms));
        },
    );
    if bindings {
        // Those of the configuration are told of when they are made.
        let read =
            |at: &mut _, found: &mut _| nat.read_bindings(at, &Selection::default(), usize::MAX, found);
        each(read, |binding| {
            if !binding.is_static {
                records.push(of_binding(binding, nat.subscriber_len(binding.instance), at_ms));
            }
        });
    }
    records
}

fn each<T>(read: impl Fn(&mut PortCursor, &mut Vec<T>), mut tell: impl FnMut(&T)) {
    let (mut at, mut found) = (PortCursor::default(), Vec::with_capacity(SOME));
    while !at.done {
        read(&mut at, &mut found);
        found.drain(..).for_each(|one| tell(&one));
    }
}

fn of_block(block: &BlockInfo, at_ms: u64) -> Record {
    let (instance, network) = block.owner;
    Record {
        at_ms,
        kind: RecordKind::BlockKept,
        transports: bits(block.transports),
        instance,
        pool: block.pool as u8,
        outside: block.outside,
        first: block.ports.0,
        last: block.ports.1,
        inside: network.addr,
        inside_port: 0,
    }
}

fn of_binding(binding: &BindingInfo, subscriber_len: u8, at_ms: u64) -> Record {
    let (outside, port) = binding.outside;
    // A port that flows share is its subscriber's, as events have it.
    let (inside, inside_port) = match binding.is_shared {
        true => (network_of(binding.inside.0, subscriber_len), 0),
        false => binding.inside,
    };
    Record {
        at_ms,
        kind: RecordKind::BindingKept,
        transports: 1 << binding.transport as u8,
        instance: binding.instance,
        pool: binding.pool as u8,
        outside,
        first: port,
        last: port,
        inside,
        inside_port,
    }
}

fn network_of(address: Ipv6Addr, len: u8) -> Ipv6Addr {
    let host = u128::MAX.checked_shr(len.into()).unwrap_or(0);
    (u128::from(address) & !host).into()
}
