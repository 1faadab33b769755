//! The kernel's table as a target of the offload manager.

use crate::peer::SharedFence;
use gatun_io_fastpath::{
    Flow, FlowUse, Inside, KernelTime, Protocol, Refusal as TableRefusal, SlotId, Table,
};
use gatun_nat::counters::{Count, Traffic};
use gatun_nat::feed::{self, SessionId};
use gatun_nat::plan::Transport;
use gatun_offload::{EntryUse, OffloadedFlow, Refusal, Removal, Target};
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// The kernel's table.
pub(super) struct KernelTarget {
    pub(super) table: Table,
    /// Time until which this box of a pair may translate.
    fence: SharedFence,
    /// End of the lease.
    lease: KernelTime,
    /// Chooses counters of identifications.
    hasher: RandomState,
    /// Buffers.
    flows: Vec<Flow>,
    placed: Vec<Result<SlotId, TableRefusal>>,
    used: Vec<Option<FlowUse>>,
}

impl KernelTarget {
    pub(super) fn new(table: Table, fence: SharedFence) -> KernelTarget {
        let hasher = RandomState::new();
        KernelTarget {
            table,
            fence,
            lease: KernelTime::default(),
            hasher,
            flows: Vec::new(),
            placed: Vec::new(),
            used: Vec::new(),
        }
    }

    /// Ends the lease: the program passes every packet on.
    pub(super) fn end_lease(&mut self) {
        self.lease = KernelTime(0);
        self.table.control().set_lease(self.lease);
    }

    /// Ends the lease at once if this box may not translate any more.
    pub(super) fn heed_fence(&mut self) {
        if self.lease.0 > 0 && self.fence.left().is_zero() {
            self.end_lease();
        }
    }

    /// Sessions that match, each with the time since it was given to the kernel.
    pub(super) fn matching<'a>(
        &'a self,
        matches: &'a dyn Fn(&feed::Flow) -> bool,
    ) -> impl Iterator<Item = (feed::Flow, Duration)> {
        let now = KernelTime::now();
        let all = self.table.iter().map(|(id, flow)| (id, offloaded(&flow).session.flow));
        let wanted = all.filter(|(_, flow)| matches(flow));
        wanted.filter_map(move |(id, flow)| Some((flow, now.since(self.table.installed(id)?))))
    }

    /// Time for which the program translates without a renewal.
    pub(super) fn lease_left(&self) -> Duration {
        self.lease.since(KernelTime::now())
    }
}

/// The flow as the kernel's table has it. `None`: the kernel cannot translate it.
fn to_flow(hasher: &RandomState, of: &OffloadedFlow) -> Option<Flow> {
    let feed::Flow { inside: (host, inside_port), outside, remote, transport, instance } = of.session.flow;
    let inside = match of.remote6 {
        Some(remote) => Inside::Six { host, remote },
        None => Inside::Four(host.to_ipv4_mapped()?),
    };
    let protocol = match transport {
        Transport::Tcp => Protocol::Tcp,
        Transport::Udp => Protocol::Udp,
        Transport::Icmp => return None,
    };
    Some(Flow {
        inside,
        inside_port,
        outside,
        remote,
        protocol,
        instance,
        worker: of.worker,
        epoch: of.epoch,
        record: of.session.record,
        path_mtu: of.path_mtu,
        // Keyed: remote hosts cannot choose flows that share a counter.
        ident: hasher.hash_one((outside.0, remote.0, transport as u8)) as u16,
    })
}

/// The flow as the manager knows it.
fn offloaded(flow: &Flow) -> OffloadedFlow {
    let (host, remote6) = match flow.inside {
        Inside::Six { host, remote } => (host, Some(remote)),
        Inside::Four(host) => (host.to_ipv6_mapped(), None),
    };
    let transport = match flow.protocol {
        Protocol::Tcp => Transport::Tcp,
        Protocol::Udp => Transport::Udp,
    };
    let (inside, instance) = ((host, flow.inside_port), flow.instance);
    let identity = feed::Flow { inside, outside: flow.outside, remote: flow.remote, transport, instance };
    OffloadedFlow {
        session: SessionId { record: flow.record, flow: identity },
        worker: flow.worker,
        epoch: flow.epoch,
        remote6,
        path_mtu: flow.path_mtu,
    }
}

fn entry_use(used: FlowUse, now: KernelTime) -> EntryUse {
    let ways = [used.outbound, used.inbound];
    let [outbound, inbound] = ways.map(|way| Count { packets: way.packets, bytes: way.bytes });
    EntryUse {
        traffic: Traffic { outbound, inbound },
        seen_ago: ways.map(|way| now.since(way.seen)),
        is_closing: used.is_closing,
        is_pending: ways.iter().any(|way| way.is_pending),
    }
}

impl Target for KernelTarget {
    type Id = SlotId;

    fn capacity(&self) -> u32 {
        self.table.capacity()
    }

    fn install(&mut self, flows: &[OffloadedFlow], placed: &mut Vec<Result<SlotId, Refusal>>) {
        // Positions of flows that the kernel can translate are those with a result.
        let converted: Vec<Option<Flow>> = flows.iter().map(|flow| to_flow(&self.hasher, flow)).collect();
        self.flows.clear();
        self.flows.extend(converted.iter().flatten());
        self.placed.clear();
        self.table.install(&self.flows, &mut self.placed);
        let mut results = self.placed.drain(..);
        placed.extend(converted.iter().map(|flow| match flow {
            Some(_) => results.next().unwrap_or(Err(TableRefusal::Full)).map_err(refusal),
            None => Err(Refusal::Other("neither TCP nor UDP".to_owned())),
        }));
    }

    fn remove(&mut self, ids: &[SlotId], removals: &mut Vec<Removal>) {
        self.used.clear();
        self.table.remove(ids, &mut self.used);
        let now = KernelTime::now();
        let of = |used: &Option<FlowUse>| Removal::from(used.map(|used| entry_use(used, now)));
        removals.extend(self.used.iter().map(of));
    }

    fn take_use(&mut self, ids: &[SlotId], used: &mut Vec<Option<EntryUse>>) {
        let now = KernelTime::now();
        used.extend(ids.iter().map(|id| self.table.take(*id).map(|used| entry_use(used, now))));
    }

    fn entries(&mut self, each: &mut dyn FnMut(SlotId, &OffloadedFlow)) {
        self.table.iter().for_each(|(id, flow)| each(id, &offloaded(&flow)));
    }

    fn renew_lease(&mut self, time: Duration) {
        let time = match self.fence.left() {
            // The peer may have assigned the ports of these sessions.
            Duration::ZERO => return self.end_lease(),
            left => time.min(left),
        };
        self.lease = KernelTime(KernelTime::now().0.saturating_add(time.as_nanos() as u64));
        self.table.control().set_lease(self.lease);
    }

    fn set_path_mtu(&mut self, id: SlotId, mtu: Option<u16>) {
        self.table.set_path_mtu(id, mtu);
    }

    fn set_smallest_path(&mut self, mtu: Option<u16>) {
        self.table.control().set_smallest_path(mtu);
    }
}

fn refusal(refusal: TableRefusal) -> Refusal {
    match refusal {
        TableRefusal::Full => Refusal::Full,
        TableRefusal::Crowded => Refusal::Crowded,
        TableRefusal::Exists(_) => Refusal::Exists,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_the_same_on_both_sides() {
        let (outside, remote) =
            (("192.0.2.1".parse().unwrap(), 4000), ("198.51.100.7".parse().unwrap(), 443));
        let of64 = Flow {
            inside: Inside::Six {
                host: "2001:db8::5".parse().unwrap(),
                remote: "64:ff9b::198.51.100.7".parse().unwrap(),
            },
            inside_port: 5000,
            outside,
            remote,
            protocol: Protocol::Tcp,
            instance: 3,
            worker: 2,
            epoch: 1,
            record: 77,
            path_mtu: Some(1000),
            ident: 0,
        };
        let of44 = Flow {
            inside: Inside::Four("100.64.0.9".parse().unwrap()),
            protocol: Protocol::Udp,
            path_mtu: None,
            ..of64
        };
        for flow in [of64, of44] {
            let known = offloaded(&flow);
            let hasher = RandomState::new();
            assert_eq!(to_flow(&hasher, &known).map(|flow| Flow { ident: 0, ..flow }), Some(flow));
            let mut ping = known;
            ping.session.flow.transport = Transport::Icmp;
            assert_eq!(to_flow(&hasher, &ping), None);
        }
    }
}
