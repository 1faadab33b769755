//! The sweep, which ends what is due. It visits some records at a time, so the model only knows what may be
//! gone, and learns the rest from sent packets and counts.

use super::rules::Kind;
use super::{Model, RealmPacket};
use crate::tcp::State;
use crate::wire::sum::{pseudo, sum, sum_from};
use crate::wire::to4::Header4;
use crate::wire::to6::Header6;
use crate::wire::{proto, put16};
use std::net::IpAddr;

impl Model {
    /// Follows a sweep of the engine with this budget, which sent `emitted`.
    ///
    /// # Errors
    /// Returns the packets that it should have sent.
    pub fn expired(&mut self, budget: usize, emitted: &[RealmPacket]) -> Result<(), Vec<RealmPacket>> {
        self.emitted.clear();
        // Remaining work of a change comes first.
        self.settle_change();
        let mut seen = emitted.iter();
        // Then probes of connections whose lifetime is over; the engine shows which.
        while let Some(probe) = seen.as_slice().first()
            && let Some((b, s)) = self.probed(probe)
        {
            seen.next();
            let realm = self.realm_of(self.bindings[b].instance);
            self.go_to_trans(b, s);
            self.counters.probes_sent += 1;
            self.emitted.push(RealmPacket { realm, bytes: probe.bytes.clone() });
        }
        while let Some((transport, outside, remote)) = self.next_ended() {
            let found = self.binding_outside(transport, outside).and_then(|b| {
                let s = self.bindings[b].sessions.iter().position(|s| s.remote == remote)?;
                Some((b, s))
            });
            let Some((b, s)) = found else { break };
            let session = self.bindings[b].sessions[s];
            if session.ends > self.now || session.state == Some(State::Established) {
                self.object(format!("the engine ended a session before its time: {session:?}"));
            }
            self.close(b, s);
        }
        self.expire_syns(budget, &mut seen);
        self.expire_datagrams(budget);
        self.expire_ports(budget);
        let said = std::mem::take(&mut self.emitted);
        if said == emitted { Ok(()) } else { Err(said) }
    }

    /// The established session with an expired lifetime that a probe belongs to.
    fn probed(&self, probe: &RealmPacket) -> Option<(usize, usize)> {
        for (b, binding) in self.bindings.iter().enumerate() {
            for (s, session) in binding.sessions.iter().enumerate() {
                let due = session.state == Some(State::Established) && session.ends <= self.now;
                let prefixes = match self.kind(binding.instance) {
                    Kind::Six => 0..self.plan.nat64[binding.instance].pool6.len(),
                    Kind::Four => 0..1,
                };
                let mut likely = prefixes.filter(|&p| session.prefix.is_none_or(|known| known == p));
                let there = self.realm_of(binding.instance) == probe.realm;
                if due && there && likely.any(|p| self.probe(b, s, p) == probe.bytes) {
                    return Some((b, s));
                }
            }
        }
        None
    }

    /// RFC 6146 3.5.2.2: an ACK without data, sequence and acknowledgement numbers zero; here to the inside
    /// host.
    fn probe(&self, b: usize, s: usize, prefix: usize) -> Vec<u8> {
        let binding = &self.bindings[b];
        let session = &binding.sessions[s];
        let ends = match self.kind(binding.instance) {
            Kind::Six => (
                self.outside_as_seen(binding.instance, prefix, session.remote.0).into(),
                session.inside.0.into(),
            ),
            Kind::Four => {
                let inside = session.inside.0.to_ipv4_mapped().unwrap_or(session.remote.0);
                (IpAddr::V4(session.remote.0), IpAddr::V4(inside))
            }
        };
        let mut tcp = vec![0; 20];
        put16(&mut tcp, 0, session.remote.1);
        put16(&mut tcp, 2, session.inside.1);
        tcp[12] = 5 << 4;
        tcp[13] = 16;
        let start = sum(&pseudo(ends.0, ends.1, 20, proto::TCP));
        let checksum = !sum_from(start, &tcp);
        put16(&mut tcp, 16, checksum);
        match ends {
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                Header6 { tos: 0, hops: 64, proto: proto::TCP, ends: (src, dst), piece: None }.packet(&tcp)
            }
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let (flags, proto) = (0x4000, proto::TCP);
                Header4 { tos: 0, ident: 0, flags, ttl: 64, proto, ends: (src, dst) }.packet(&tcp)
            }
            _ => Vec::new(),
        }
    }

    /// Checks the state after the engine has visited every record since `since_ms` (engine time), with a
    /// margin.
    ///
    /// # Errors
    /// Returns a session that should have ended, or been probed.
    pub fn swept(&self, since_ms: u64) -> Result<(), String> {
        let forgotten = self.bindings.iter().find(|b| b.sessions.iter().any(|s| s.ends <= since_ms));
        match forgotten {
            Some(b) => Err(format!("a session expired by {since_ms} and was not handled: {b:?}")),
            None => Ok(()),
        }
    }

    /// Current engine time, milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.now
    }
}
