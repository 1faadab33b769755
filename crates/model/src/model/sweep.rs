//! The sweep, which ends what is due: it looks at some records at a time, so that the model only knows what
//! may be gone, and learns from what was sent and from the counts.

use super::Model;
use super::tcp::State;
use crate::wire::sum::{pseudo, sum, sum_from};
use crate::wire::{proto, put16, to6};
use gatun_nat::Occupancy;
use std::net::IpAddr;

impl Model {
    /// The engine was told to end what is due, with this budget, and sent `emitted`.
    ///
    /// # Errors
    /// What it should have sent.
    pub fn expired(&mut self, budget: usize, emitted: &[Vec<u8>]) -> Result<(), Vec<Vec<u8>>> {
        self.emitted.clear();
        let mut seen = emitted.iter();
        // Probes come first, of connections whose time is up: which of them, the engine says.
        while let Some(probe) = seen.as_slice().first()
            && let Some((b, s)) = self.probed(probe)
        {
            seen.next();
            self.go_to_trans(b, s);
            self.counters.probes_sent += 1;
            self.emitted.push(probe.clone());
        }
        self.expire_syns(budget, &mut seen);
        let said = std::mem::take(&mut self.emitted);
        if said == emitted { Ok(()) } else { Err(said) }
    }

    /// The established session whose time is up and that this is the probe of.
    fn probed(&self, packet: &[u8]) -> Option<(usize, usize)> {
        for (b, binding) in self.bindings.iter().enumerate() {
            for (s, session) in binding.sessions.iter().enumerate() {
                let due = session.state == Some(State::Established) && session.ends <= self.now;
                let prefixes = 0..self.plan.nat64[binding.instance].pool6.len();
                let mut likely = prefixes.filter(|&p| session.prefix.is_none_or(|known| known == p));
                if due && likely.any(|p| self.probe(b, s, p) == packet) {
                    return Some((b, s));
                }
            }
        }
        None
    }

    /// RFC 6146 3.5.2.2: no data, sequence and acknowledgement zero, only ACK; here to the inside host.
    fn probe(&self, b: usize, s: usize, prefix: usize) -> Vec<u8> {
        let binding = &self.bindings[b];
        let session = &binding.sessions[s];
        let from = self.outside_as_seen(binding.instance, prefix, session.remote.0);
        let mut tcp = vec![0; 20];
        put16(&mut tcp, 0, session.remote.1);
        put16(&mut tcp, 2, binding.inside.1);
        tcp[12] = 5 << 4;
        tcp[13] = 16;
        let start = sum(&pseudo(IpAddr::V6(from), IpAddr::V6(binding.inside.0), 20, proto::TCP));
        let checksum = !sum_from(start, &tcp);
        put16(&mut tcp, 16, checksum);
        to6::build(0, 64, proto::TCP, (from, binding.inside.0), None, 20, &tcp)
    }

    /// The engine has looked at every record since `since_ms` (engine time), with time to spare: what was over
    /// then is gone. Established connections have been asked.
    ///
    /// # Errors
    /// A session that should have been asked.
    pub fn swept(&mut self, since_ms: u64) -> Result<(), String> {
        let asked = |s: &super::bib::Session| s.state == Some(State::Established) && s.ends <= since_ms;
        if let Some(b) = self.bindings.iter().find(|b| b.sessions.iter().any(asked)) {
            return Err(format!("an established session was not probed: {b:?}"));
        }
        for b in &mut self.bindings {
            b.sessions.retain(|s| s.ends > since_ms);
        }
        self.bindings.retain(|b| b.fixed || !b.sessions.is_empty());
        self.forget_idle_subscribers();
        Ok(())
    }

    /// Where the engine has exactly what must be there, all that is over is gone.
    pub fn learn_occupancy(&mut self, seen: &Occupancy) {
        if seen.sessions != self.count(|_| true).least.sessions as usize {
            return;
        }
        let now = self.now;
        for b in &mut self.bindings {
            b.sessions.retain(|s| s.ends > now || s.state == Some(State::Established));
        }
        self.bindings.retain(|b| b.fixed || !b.sessions.is_empty());
        self.forget_idle_subscribers();
    }

    /// Engine time now, milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.now
    }
}
