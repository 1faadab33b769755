//! Shared ports: ports that serve many flows, for the remote ports in a pool's `overload` (decision 0041).
//!
//! A flow to such a port makes no binding. It shares the outside address and port with other flows of its
//! subscriber, as long as no two of them go to the same remote address and port. A packet from outside finds
//! its flow by both ends (RFC 4787 4.1: address and port-dependent mapping, and the same filtering).
//!
//! The flows of a port form a ring, as the sessions of a binding do, and the outside table points to its
//! primary. But they share the outside transport address, not the inside one. So the ring is not in the index
//! of bindings. Each flow is in a separate index, by outside and remote transport addresses.
//!
//! Each subscriber has a short list of its newest shared ports, so that the search for a port is bounded.
//! Ports that leave the list serve until their last flow ends.

use super::{SessionRequest, Tables};
use crate::base::build_error::BuildError;
use crate::base::index::{Full, Index};
use crate::base::plan::{Plan, Transport};
use crate::tables::session::{Endpoint4, Inside, NONE, RecordId, Session, key};
use gatun_mem::{Footprint, HugeVec};

/// Ports per subscriber and transport that a new flow may join.
const OPEN_PORTS: usize = 8;

/// Indexed by transport, TCP and UDP: the primaries of a subscriber's newest shared ports. Unused entries are
/// zero.
#[derive(Clone, Copy, zerocopy::FromZeros)]
#[repr(C, align(64))]
struct OpenPorts([[RecordId; OPEN_PORTS]; 2]);

/// Tables of pools that share ports.
pub(super) struct Overload {
    /// Flows of shared ports, by outside and remote transport addresses.
    flows: Index,
    /// Indexed by subscriber.
    ports: HugeVec<OpenPorts>,
}

/// Returns whether any pool shares ports.
fn is_wanted(plan: &Plan) -> bool {
    plan.is_stateful() && plan.pools.iter().any(|pool| !pool.overload.is_empty())
}

impl Overload {
    /// # Errors
    /// Returns an error if memory is short.
    pub(super) fn new(plan: &Plan, records_max: u32) -> Result<Option<Self>, BuildError> {
        if !is_wanted(plan) {
            return Ok(None);
        }
        let ports = HugeVec::new(plan.limits.subscribers_max as usize)?;
        Ok(Some(Overload { flows: Index::with_capacity(records_max)?, ports }))
    }

    /// Memory use of [`Overload::new`].
    pub(super) fn footprint(plan: &Plan, records_max: u32) -> Footprint {
        if !is_wanted(plan) {
            return Footprint::default();
        }
        let ports = HugeVec::<OpenPorts>::footprint(plan.limits.subscribers_max as usize);
        Index::footprint(records_max) + ports
    }

    fn open_ports(&mut self, subscriber: u32, transport: Transport) -> Option<&mut [RecordId; OPEN_PORTS]> {
        self.ports.get_mut(subscriber as usize)?.0.get_mut(transport as usize)
    }

    /// Replaces a port's primary with another record, or none.
    fn replace(&mut self, of: &Session, old: RecordId, new: RecordId) {
        let ports = self.open_ports(of.subscriber, of.transport());
        if let Some(slot) = ports.and_then(|ports| ports.iter_mut().find(|id| **id == old)) {
            *slot = new;
        }
    }
}

impl Tables {
    /// Returns whether a new flow shares a port. A flow whose inside end has a binding uses the binding: that
    /// costs no port, and a static binding applies to all packets of its host.
    pub(super) fn shares_port(&self, o: &SessionRequest) -> bool {
        let pool = self.pools.get(self.pool_of(o.inside.instance));
        self.overload.is_some()
            && o.wanted.is_none()
            && pool.is_some_and(|pool| pool.overloads(o.inside.transport, o.remote.1))
    }

    /// Returns the primary of a shared port of this subscriber that no other flow to `remote` uses.
    pub(super) fn shared_port_for(
        &self,
        subscriber: u32,
        transport: Transport,
        remote: Endpoint4,
    ) -> Option<RecordId> {
        let ports = self.overload.as_ref()?.ports.get(subscriber as usize)?;
        let open = *ports.0.get(transport as usize)?;
        open.into_iter().find(|&primary| {
            primary != NONE && self.find_flow(self.get(primary).outside(), remote, transport).is_none()
        })
    }

    /// Finds the flow of a shared port with `remote`.
    pub(super) fn find_flow(
        &self,
        outside: Endpoint4,
        remote: Endpoint4,
        transport: Transport,
    ) -> Option<RecordId> {
        let hash = key::flow(&self.hasher, outside, remote, transport);
        self.overload.as_ref()?.flows.find(hash, |id| self.get(id).is_at(outside, remote, transport))
    }

    /// Enters a flow of a shared port into its index, and a new port into its subscriber's list.
    pub(super) fn enter_flow(&mut self, id: RecordId, record: &Session, new_port: bool) -> Result<(), Full> {
        let hash = key::flow(&self.hasher, record.outside(), record.remote(), record.transport());
        let pushed_out = self.rng.below(OPEN_PORTS as u32) as usize;
        let Some(overload) = &mut self.overload else { return Ok(()) };
        overload.flows.insert(hash, id)?;
        if let Some(ports) = overload.open_ports(record.subscriber, record.transport()).filter(|_| new_port) {
            let at = ports.iter().position(|id| *id == NONE).unwrap_or(pushed_out);
            if let Some(slot) = ports.get_mut(at) {
                *slot = id;
            }
        }
        Ok(())
    }

    /// Removes a flow from its index. If it was its port's primary, another flow or none replaces it.
    pub(super) fn forget_flow(&mut self, id: RecordId, record: &Session) {
        let hash = key::flow(&self.hasher, record.outside(), record.remote(), record.transport());
        let successor = if record.next == id { NONE } else { record.prev };
        if let Some(overload) = &mut self.overload {
            overload.flows.remove(hash, id);
            overload.replace(record, id, successor);
        }
    }

    /// Returns the record with the outside end of an inside host's packets to `remote`. If the flow shares a
    /// port, this is the record of the flow. Otherwise it is the primary of the binding, even if the binding
    /// has no session with `remote`.
    pub(crate) fn record_of(&self, inside: &Inside, remote: Endpoint4) -> Option<RecordId> {
        let flow = || {
            let id = self.find_session(self.session_hash(inside, remote), *inside, remote)?;
            Some(id).filter(|&id| self.get(id).is_overloaded())
        };
        let flow = self.overload.as_ref().and_then(|_| flow());
        flow.or_else(|| self.binding_of(inside))
    }

    /// Returns the record that identifies the owner of a packet between an outside address and port and
    /// `remote`. For a binding, this is the primary, for any remote end. For a shared port, it is the flow.
    pub(crate) fn owner_at(&self, primary: RecordId, remote: Endpoint4) -> Option<RecordId> {
        match self.get(primary).is_overloaded() {
            true => self.session_of_binding(primary, remote),
            false => Some(primary),
        }
    }
}
