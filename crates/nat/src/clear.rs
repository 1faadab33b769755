//! Sessions that are ended on request, before their time is over: what an operator's `clear` asks for.
//!
//! Such an end is like any other: the binding goes with its last session, the port with the binding (held down or
//! lingering as the pool has it), and events tell of it. The next packet from inside opens a new session.

use crate::plan::Transport;
use crate::session::{Inside, NONE};
use crate::{Instant, Nat};
use core::net::{Ipv4Addr, Ipv6Addr};

/// Sessions whose memory is asked for at a time.
const GROUP: usize = 32;

/// Names a session: who talks to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionKey {
    /// Number of the instance: NAT64's first, then NAT44's.
    pub instance: u8,
    /// Protocol.
    pub transport: Transport,
    /// Inside address and port (ICMP: identifier). An IPv4 address as ::ffff:a.b.c.d.
    pub inside: (Ipv6Addr, u16),
    /// Remote address and port (ICMP: 0).
    pub remote: (Ipv4Addr, u16),
}

impl SessionKey {
    fn inside(&self) -> Inside {
        let (addr, port) = self.inside;
        Inside { addr, port, transport: self.transport, instance: self.instance }
    }
}

impl Nat {
    /// Ends a session now; `false` where there is none of this key.
    pub fn end_session(&mut self, now: Instant, key: &SessionKey) -> bool {
        self.end_sessions(now, core::slice::from_ref(key)) == 1
    }

    /// Ends sessions now, and returns how many of them there were. Many at a time are quicker than one by one: their
    /// cache misses overlap. Between bursts, a caller with many should give some at a time.
    pub fn end_sessions(&mut self, now: Instant, keys: &[SessionKey]) -> usize {
        let now = self.clock.at(now);
        let shared = &mut self.core.shared;
        shared.tables.now = now;
        let mut ended = 0;
        for group in keys.chunks(GROUP) {
            let mut hashes = [0; GROUP];
            let tables = &mut shared.tables;
            for (hash, key) in hashes.iter_mut().zip(group) {
                *hash = tables.session_hash(&key.inside(), key.remote);
                tables.prefetch(*hash);
            }
            let mut records = [NONE; GROUP];
            for (record, hash) in records.iter_mut().zip(hashes).take(group.len()) {
                *record = tables.candidate(hash);
            }
            for record in records.into_iter().filter(|&record| record != NONE) {
                tables.prefetch_end(record);
            }
            for (key, hash) in group.iter().zip(hashes) {
                // Looked for again: an earlier one of the group may be the same.
                if let Some(record) = tables.find_session(hash, key.inside(), key.remote) {
                    tables.close(record);
                    ended += 1;
                }
            }
        }
        shared.counters.sessions_cleared += ended as u64;
        ended
    }
}
