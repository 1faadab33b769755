//! Packets that somebody watches on their way through the engine: what each was, what was known of it before, and what
//! became of it.
//!
//! Off, it costs one branch a burst. On, the packets of a burst go through the engine one by one, each that is watched
//! is copied and explained before, and handed out afterwards: never waited for, bounded in number and time.

use gatun_nat::explain::{Explanation, Opening, Rule};
use gatun_nat::plan::{Net6, Transport};
use gatun_nat::{Instant, Verdict};
use gatun_wire::{HEADROOM, Ipv4View, Ipv6View, L4, Packet, TAILROOM};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Weak};

/// Which packets are meant: those for which all holds that is said.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Networks, each of which has one of the packet's addresses, before or after translation; IPv4 ones as
    /// ::ffff:a.b.c.d. The inside address of its session counts as one of them.
    pub networks: Vec<Net6>,
    /// A port or identifier of it, before or after.
    pub port: Option<u16>,
    /// Its protocol.
    pub transport: Option<Transport>,
}

/// What is to be watched, and how much of it.
#[derive(Clone, Debug)]
pub struct Order {
    /// Which packets.
    pub which: Wanted,
    /// Of these, one in so many.
    pub one_in: u32,
    /// So many at most.
    pub count: u32,
    /// No longer than until then.
    pub until: std::time::Instant,
    /// Bytes of a packet that are kept.
    pub bytes_max: usize,
}

/// A packet that was watched.
#[derive(Clone, Debug)]
pub struct Traced {
    /// When, in the engine's time.
    pub at: Instant,
    /// Its first bytes as received.
    pub before: Vec<u8>,
    /// Its length then.
    pub before_len: usize,
    /// Its first bytes afterwards; of one that was forwarded, or answered.
    pub after: Vec<u8>,
    /// Its length then.
    pub after_len: usize,
    /// What became of it.
    pub verdict: Verdict,
    /// What was known of it before.
    pub explanation: Explanation,
    /// Packets that were to be told of since the last one, and could not be.
    pub lost: u64,
}

/// What became of one that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It was taken.
    Taken,
    /// There was no room: it is lost, and counted.
    Full,
    /// Nobody wants any.
    Gone,
}

/// Takes what was watched; must not wait.
pub type Tell = Box<dyn FnMut(Traced) -> Told + Send>;

/// Whoever has it wants the packets.
#[must_use = "without its watcher, nothing is watched"]
pub struct Watcher {
    _wanted: Arc<()>,
}

/// A worker's side.
pub(crate) struct Tracer {
    order: Order,
    tell: Tell,
    wanted: Weak<()>,
    /// Packets that were meant so far.
    met: u64,
    told: u32,
    lost: u64,
    over: bool,
}

/// A packet before it goes through the engine.
pub(crate) struct Before {
    bytes: Vec<u8>,
    explanation: Explanation,
}

/// A trace, and whoever wants it.
pub(crate) fn pair(order: Order, tell: Tell) -> (Watcher, Tracer) {
    let wanted = Arc::new(());
    let tracer =
        Tracer { order, tell, wanted: Arc::downgrade(&wanted), met: 0, told: 0, lost: 0, over: false };
    (Watcher { _wanted: wanted }, tracer)
}

impl Tracer {
    /// Whether there is nothing more to watch.
    pub(crate) fn is_over(&self) -> bool {
        self.over
            || self.told >= self.order.count
            || self.wanted.strong_count() == 0
            || std::time::Instant::now() >= self.order.until
    }

    /// Copies a packet, and has it explained.
    pub(crate) fn look(
        &mut self,
        packet: &Packet<'_>,
        explain: impl FnOnce(&mut Packet<'_>) -> Option<Explanation>,
    ) -> Option<Before> {
        if self.over || self.told >= self.order.count {
            return None;
        }
        let bytes = packet.bytes();
        let mut copy = vec![0; HEADROOM + bytes.len() + TAILROOM];
        copy.get_mut(HEADROOM..HEADROOM + bytes.len())?.copy_from_slice(bytes);
        let mut copy = Packet::with_offload(&mut copy, HEADROOM, bytes.len(), packet.offload)?;
        let explanation = explain(&mut copy)?;
        Some(Before { bytes: bytes.to_vec(), explanation })
    }

    /// Hands a packet out where it is meant.
    pub(crate) fn tell(&mut self, at: Instant, before: Before, after: &[u8], verdict: Verdict) {
        let is_sent = matches!(verdict, Verdict::Forward | Verdict::Reply(_));
        let after = if is_sent { after } else { &[] };
        if !self.order.which.has(&before, after) {
            return;
        }
        self.met += 1;
        if !(self.met - 1).is_multiple_of(u64::from(self.order.one_in.max(1))) {
            return;
        }
        let some = |bytes: &[u8]| bytes.get(..self.order.bytes_max).unwrap_or(bytes).to_vec();
        let traced = Traced {
            at,
            before: some(&before.bytes),
            before_len: before.bytes.len(),
            after: some(after),
            after_len: after.len(),
            verdict,
            explanation: before.explanation,
            lost: self.lost,
        };
        match (self.tell)(traced) {
            Told::Taken => (self.told, self.lost) = (self.told + 1, 0),
            Told::Full => self.lost += 1,
            Told::Gone => self.over = true,
        }
    }
}

impl Wanted {
    fn has(&self, before: &Before, after: &[u8]) -> bool {
        let ends = [ends(&before.bytes), ends(after)];
        let ends: Vec<Ends> = ends.into_iter().flatten().collect();
        let e = &before.explanation;
        let opened = match e.opening {
            Some(Opening::Binding(binding) | Opening::Shared(binding)) => Some(binding),
            _ => None,
        };
        let bound = e.binding.or(opened).map(|binding| binding.inside.0);
        let inside = e.session.map(|session| session.inside.0).or(bound);
        // Of a packet that was dropped, its remote host stands only behind a prefix.
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

/// What of a packet a filter looks at.
struct Ends {
    addresses: [IpAddr; 2],
    transport: Option<Transport>,
    ports: [Option<u16>; 2],
}

fn ends(packet: &[u8]) -> Option<Ends> {
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
    Some(Ends { addresses, transport, ports })
}
