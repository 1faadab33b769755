//! Shared ports (decision 0041): a subscriber's flows to different remote ends share an outside port, if the
//! pool lists their remote port.

use super::Model;
use super::Result;
use super::ends::{End4, End6};
use gatun_nat::plan::Transport;
use std::net::Ipv6Addr;

/// Choice: maximum number of a subscriber's shared ports that a new flow searches.
const LOOKED_AT: usize = 8;

/// State of a shared port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared {
    /// True if a new flow certainly searches it. With more than [`LOOKED_AT`] ports, that is the newest one;
    /// the others are unknown.
    looked_at: bool,
}

impl Model {
    /// Returns true if a flow to a remote port shares its outside port.
    pub(super) fn may_share(&self, instance: usize, transport: usize, remote: End4) -> bool {
        let transport = Transport::ALL[transport];
        self.plan.pools[self.rules[instance].pool].overload.contains(&(transport, remote.1))
    }

    /// Shared port of a new flow: one of the subscriber without a flow to this remote end, if it is among
    /// those searched, otherwise a new one.
    pub(super) fn share(
        &mut self,
        instance: usize,
        transport: usize,
        inside: End6,
        remote: End4,
    ) -> Result<usize> {
        let owner = self.subscriber(instance, inside.0);
        let mine: Vec<usize> = (0..self.bindings.len())
            .filter(|&b| {
                let b = &self.bindings[b];
                b.shared.is_some() && b.transport == transport && self.owner_of(b) == owner
            })
            .collect();
        let suits = |&b: &usize| self.bindings[b].sessions.iter().all(|s| s.remote != remote);
        let joined = self.joined(inside, remote);
        if let Some(&b) =
            mine.iter().filter(|b| suits(b)).find(|&&b| Some(self.bindings[b].outside) == joined)
        {
            self.coverage.mark("a flow joins a shared port");
            return Ok(b);
        }
        if let Some(&b) =
            mine.iter().find(|b| suits(b) && self.bindings[**b].shared.is_some_and(|s| s.looked_at))
        {
            self.object(format!(
                "a flow did not join {:?}, which has no flow to {remote:?}",
                self.bindings[b].outside
            ));
        }
        let new = self.bind(instance, transport, inside, None)?;
        self.coverage.mark("a new port is shared");
        if mine.len() >= LOOKED_AT {
            self.coverage.mark("a subscriber has more shared ports than a new flow searches");
            for &b in &mine {
                self.bindings[b].shared = Some(Shared { looked_at: false });
            }
        }
        self.bindings[new].shared = Some(Shared { looked_at: true });
        self.bindings[new].inside = (Ipv6Addr::from(owner.1), 0);
        Ok(new)
    }

    /// Outside end of packets from an inside end to a remote one: that of their session, or of the binding.
    pub(super) fn outside_towards(
        &self,
        instance: usize,
        transport: usize,
        inside: End6,
        remote: End4,
    ) -> Option<End4> {
        let session = self.session_inside(instance, transport, inside, remote).map(|(b, _)| b);
        let b = session.or_else(|| self.binding_inside(instance, transport, inside))?;
        Some(self.bindings[b].outside)
    }

    /// Binding and inside end of packets between an outside end and a remote one.
    pub(super) fn inside_of(&self, transport: usize, outside: End4, remote: End4) -> Option<(usize, End6)> {
        let b = self.binding_outside(transport, outside)?;
        match self.bindings[b].shared {
            Some(_) => self.session_with(b, remote).map(|(b, s)| (b, self.bindings[b].sessions[s].inside)),
            None => Some((b, self.bindings[b].inside)),
        }
    }
}
