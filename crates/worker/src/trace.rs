//! Packet trace: follows packets through the engine and reports each with its prediction and its result.
//!
//! If no trace is active, it costs one branch per burst. During a trace, the packets of a burst are processed
//! one by one; each matching packet is copied and explained before, and delivered afterwards, without waiting
//! and limited in number and time.

use gatun_nat::explain::{Explanation, Opening, Rule};
use gatun_nat::plan::{Net6, Transport};
use gatun_nat::{Instant, Verdict};
use gatun_wire::{HEADROOM, Ipv4View, Ipv6View, L4, Packet, TAILROOM};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Weak};

/// Filter of traced packets. A packet must match all set fields.
#[derive(Clone, Debug, Default)]
pub struct TraceFilter {
    /// Networks, each of which contains one of the packet's addresses, before or after translation; IPv4 as
    /// ::ffff:a.b.c.d. The inside address of its session counts as one of them.
    pub networks: Vec<Net6>,
    /// A port or identifier of the packet, before or after translation.
    pub port: Option<u16>,
    /// Protocol of the packet.
    pub transport: Option<Transport>,
}

/// Request for a trace, with its limits.
#[derive(Clone, Debug)]
pub struct TraceRequest {
    /// Filter.
    pub which: TraceFilter,
    /// Sampling: one in this many matching packets.
    pub one_in: u32,
    /// Largest number of packets.
    pub count: u32,
    /// End time.
    pub until: std::time::Instant,
    /// Number of bytes kept of each packet.
    pub bytes_max: usize,
}

/// Traced packet.
#[derive(Clone, Debug)]
pub struct TracedPacket {
    /// Time, by the engine's clock.
    pub at: Instant,
    /// First bytes as received.
    pub before: Vec<u8>,
    /// Length as received.
    pub before_len: usize,
    /// First bytes after translation, if the packet was forwarded or answered.
    pub after: Vec<u8>,
    /// Length after translation.
    pub after_len: usize,
    /// Verdict.
    pub verdict: Verdict,
    /// Prediction before translation.
    pub explanation: Explanation,
    /// Node of a cluster that the packet was sent to.
    pub node: Option<Arc<str>>,
    /// Number of packets since the last one that could not be delivered.
    pub lost: u64,
}

/// Result of the delivery of a traced packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceDelivery {
    /// Accepted.
    Accepted,
    /// No room: the packet is lost and counted.
    Full,
    /// The receiver has gone.
    Closed,
}

/// Receives traced packets. Must not block.
pub type TraceSink = Box<dyn FnMut(TracedPacket) -> TraceDelivery + Send>;

/// Guard of a trace. Dropping it ends the trace.
#[must_use = "dropping the guard ends the trace"]
pub struct TraceGuard {
    _wanted: Arc<()>,
}

/// The worker's side of a trace.
pub(crate) struct Tracer {
    request: TraceRequest,
    sink: TraceSink,
    wanted: Weak<()>,
    /// Number of matching packets so far.
    matched: u64,
    delivered: u32,
    lost: u64,
    over: bool,
}

/// Packet before it goes through the engine.
pub(crate) struct ReceivedPacket {
    bytes: Vec<u8>,
    explanation: Explanation,
}

/// Creates both sides of a trace.
pub(crate) fn pair(request: TraceRequest, sink: TraceSink) -> (TraceGuard, Tracer) {
    let wanted = Arc::new(());
    let tracer = Tracer {
        request,
        sink,
        wanted: Arc::downgrade(&wanted),
        matched: 0,
        delivered: 0,
        lost: 0,
        over: false,
    };
    (TraceGuard { _wanted: wanted }, tracer)
}

impl Tracer {
    /// Checks whether the trace has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.over
            || self.delivered >= self.request.count
            || self.wanted.strong_count() == 0
            || std::time::Instant::now() >= self.request.until
    }

    /// Copies a packet and obtains its prediction.
    pub(crate) fn look(
        &mut self,
        packet: &Packet<'_>,
        explain: impl FnOnce(&mut Packet<'_>) -> Option<Explanation>,
    ) -> Option<ReceivedPacket> {
        if self.over || self.delivered >= self.request.count {
            return None;
        }
        let bytes = packet.bytes();
        let mut copy = vec![0; HEADROOM + bytes.len() + TAILROOM];
        copy.get_mut(HEADROOM..HEADROOM + bytes.len())?.copy_from_slice(bytes);
        let mut copy = Packet::with_offload(&mut copy, HEADROOM, bytes.len(), packet.offload)?;
        copy.realm = packet.realm;
        let explanation = explain(&mut copy)?;
        Some(ReceivedPacket { bytes: bytes.to_vec(), explanation })
    }

    /// Delivers a packet if it matches. `node` is the node that it was sent to.
    pub(crate) fn deliver(
        &mut self,
        at: Instant,
        before: ReceivedPacket,
        (after, verdict): (&[u8], Verdict),
        node: Option<Arc<str>>,
    ) {
        let is_sent = matches!(verdict, Verdict::Forward | Verdict::Reply(_));
        let after = if is_sent { after } else { &[] };
        if !self.request.which.has(&before, after) {
            return;
        }
        self.matched += 1;
        if !(self.matched - 1).is_multiple_of(u64::from(self.request.one_in.max(1))) {
            return;
        }
        let some = |bytes: &[u8]| bytes.get(..self.request.bytes_max).unwrap_or(bytes).to_vec();
        let traced = TracedPacket {
            at,
            before: some(&before.bytes),
            before_len: before.bytes.len(),
            after: some(after),
            after_len: after.len(),
            verdict,
            explanation: before.explanation,
            node,
            lost: self.lost,
        };
        match (self.sink)(traced) {
            TraceDelivery::Accepted => (self.delivered, self.lost) = (self.delivered + 1, 0),
            TraceDelivery::Full => self.lost += 1,
            TraceDelivery::Closed => self.over = true,
        }
    }
}

impl TraceFilter {
    fn has(&self, before: &ReceivedPacket, after: &[u8]) -> bool {
        let ends = [endpoints(&before.bytes), endpoints(after)];
        let ends: Vec<PacketEndpoints> = ends.into_iter().flatten().collect();
        let e = &before.explanation;
        let opened = match e.opening {
            Some(Opening::Binding(binding) | Opening::Shared(binding)) => Some(binding),
            _ => None,
        };
        let bound = e.binding.or(opened).map(|binding| binding.inside.0);
        let inside = e.session.map(|session| session.inside.0).or(bound);
        // For a dropped packet, the remote host is only known by its prefix.
        let behind = match e.rule {
            Rule::Pool6(_, v4) => Some(v4.to_ipv6_mapped()),
            _ => None,
        };
        let of_ends = ends.iter().flat_map(|ends| ends.addresses).map(mapped);
        let addresses: Vec<Ipv6Addr> = of_ends.chain(inside).chain(behind).collect();
        self.networks.iter().all(|net| addresses.iter().any(|address| net.contains(*address)))
            && self.port.is_none_or(|port| ends.iter().any(|ends| ends.ports.contains(&Some(port))))
            && self.transport.is_none_or(|transport| ends.iter().any(|e| e.transport == Some(transport)))
    }
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// Fields of a packet that the filter uses.
struct PacketEndpoints {
    addresses: [IpAddr; 2],
    transport: Option<Transport>,
    ports: [Option<u16>; 2],
}

fn endpoints(packet: &[u8]) -> Option<PacketEndpoints> {
    let (addresses, l4): ([IpAddr; 2], _) = match packet.first()? >> 4 {
        4 => {
            let view = Ipv4View::parse(packet).ok()?;
            ([view.src.into(), view.dst.into()], view.l4(packet))
        }
        _ => {
            let view = Ipv6View::parse(packet).ok()?;
            ([view.src.into(), view.dst.into()], view.l4(packet))
        }
    };
    let (transport, ports) = match l4 {
        Ok(L4::Tcp { src_port, dst_port, .. }) => (Some(Transport::Tcp), [Some(src_port), Some(dst_port)]),
        Ok(L4::Udp { src_port, dst_port, .. }) => (Some(Transport::Udp), [Some(src_port), Some(dst_port)]),
        Ok(L4::Echo { id, .. }) => (Some(Transport::Icmp), [Some(id); 2]),
        Ok(L4::IcmpError { .. } | L4::IcmpOther { .. }) => (Some(Transport::Icmp), [None; 2]),
        _ => (None, [None; 2]),
    };
    Some(PacketEndpoints { addresses, transport, ports })
}
