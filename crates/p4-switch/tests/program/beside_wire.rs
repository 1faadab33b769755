//! The program beside each translation of a packet by the tests of `wire`: the controller's entries of a
//! session with the addresses and ports of the packet and its translation (`beside.rs`).

use crate::beside;
use crate::common::{CLIENT4, CLIENT6, SERVER4, SERVER6, Translated};
use crate::controller::{controller, entries, limits};
use crate::entries::Flow;
use gatun_nat::Plan;
use gatun_nat::feed::{self, SessionId};
use gatun_nat::plan::{Nat44, Nat64, Transport};
use gatun_offload::OffloadedFlow;
use gatun_p4_controller::flow::Direction;
use gatun_p4_controller::program::{Limits, Program};
use gatun_wire::checksum::{Delta, sum};
use gatun_wire::hdr::ipv4;
use gatun_wire::{Ipv4View, Ipv6View, L4, Offload, Ports, Settings, Whole};
use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};

type End = (IpAddr, u16);

/// Source and destination of a packet before and after its translation.
struct Ends {
    before: [End; 2],
    after: [End; 2],
    transport: Transport,
}

pub(crate) fn six_to_four(packet: (&[u8], Offload), ports: Ports, settings: &Settings, wire: &Translated) {
    let ends = Ipv6View::parse(packet.0).ok().and_then(|view| {
        let four = if view.src == SERVER6 { [SERVER4, CLIENT4] } else { [CLIENT4, SERVER4] };
        let six = [view.src, view.dst].map(IpAddr::V6);
        Ends::of(six, four.map(IpAddr::V4), view.l4(packet.0).ok()?, ports)
    });
    beside(packet, ends, Direction::Outbound, &limits_of(settings), wire);
}

pub(crate) fn four_to_six(packet: (&[u8], Offload), ports: Ports, settings: &Settings, wire: &Translated) {
    let ends = Ipv4View::parse(packet.0).ok().and_then(|view| {
        let six = if view.src == CLIENT4 { [CLIENT6, SERVER6] } else { [SERVER6, CLIENT6] };
        let four = [view.src, view.dst].map(IpAddr::V4);
        Ends::of(four, six.map(IpAddr::V6), view.l4(packet.0).ok()?, ports)
    });
    beside(packet, ends, Direction::Inbound, &limits_of(settings), wire);
}

pub(crate) fn four_to_four(
    packet: (&[u8], Offload),
    to: (Ipv4Addr, Ipv4Addr),
    ports: Ports,
    id: Option<u16>,
    mtu: u32,
    wire: &Translated,
) {
    let view = Ipv4View::parse(packet.0).ok();
    let ends = view.as_ref().and_then(|view| {
        let before = [view.src, view.dst].map(IpAddr::V4);
        Ends::of(before, [to.0, to.1].map(IpAddr::V4), view.l4(packet.0).ok()?, ports)
    });
    // Packets from inside get an identification.
    let is_outbound = id.is_some() || view.is_some_and(|view| view.src != to.0);
    let direction = if is_outbound { Direction::Outbound } else { Direction::Inbound };
    let plan = Plan { nat44: vec![Nat44 { mtu, ..Nat44::default() }], ..Plan::default() };
    // The engine asks for no identification of a packet with DF.
    let mut wire = wire.clone();
    if id.is_some() && packet.0.get(6).is_some_and(|flags| flags & 0x40 != 0) && wire.0.is_ok() {
        let header = usize::from(packet.0[0] & 15) * 4;
        wire.1[4..6].copy_from_slice(&packet.0[4..6]);
        ipv4::set_checksum(&mut wire.1[..header]);
    }
    beside(packet, ends, direction, &limits(&plan), &wire);
}

/// Checks that the controller gets an ICMP error.
pub(crate) fn error(bytes: &[u8]) {
    if let Some(fate) = beside::fate(&[], bytes, Offload::default()) {
        beside::compare(&[], &Limits::default(), bytes, None, &fate);
    }
}

fn limits_of(settings: &Settings) -> Limits {
    let nat64 = Nat64 { settings: *settings, ..Nat64::default() };
    limits(&Plan { nat64: vec![nat64], ..Plan::default() })
}

impl Ends {
    /// `None` if no session is for such a packet.
    fn of(before: [IpAddr; 2], after: [IpAddr; 2], l4: L4, ports: Ports) -> Option<Ends> {
        let (transport, was) = match l4 {
            L4::Tcp { src_port, dst_port, .. } => (Transport::Tcp, [src_port, dst_port]),
            L4::Udp { src_port, dst_port, .. } => (Transport::Udp, [src_port, dst_port]),
            L4::Echo { request, id } => (Transport::Icmp, if request { [id, 0] } else { [0, id] }),
            _ => return None,
        };
        let is = match (ports, l4) {
            (Ports::Keep, _) => was,
            (Ports::Set { src, dst }, L4::Tcp { .. } | L4::Udp { .. }) => [src, dst],
            (Ports::EchoId(id), L4::Echo { request, .. }) => {
                if request {
                    [id, 0]
                } else {
                    [0, id]
                }
            }
            _ => return None,
        };
        let with = |addresses: [IpAddr; 2], ports: [u16; 2]| [0, 1].map(|n| (addresses[n], ports[n]));
        Some(Ends { before: with(before, was), after: with(after, is), transport })
    }

    /// The session that the packet belongs to.
    fn flow(&self, direction: Direction) -> OffloadedFlow {
        let ([remote, remote_inside], inside, outside) = match direction {
            Direction::Outbound => ([self.after[1], self.before[1]], self.before[0], self.after[0]),
            Direction::Inbound => ([self.before[0], self.after[0]], self.after[1], self.before[1]),
        };
        // A session changes neither the remote host's port nor, in NAT44, its address: see `with_remote`.
        let (remote, remote6) = match (remote_inside.0, direction) {
            (IpAddr::V6(address), Direction::Outbound) => ((remote.0, remote_inside.1), Some(address)),
            (IpAddr::V6(address), Direction::Inbound) => (remote, Some(address)),
            (IpAddr::V4(_), Direction::Outbound) => (remote_inside, None),
            (IpAddr::V4(_), Direction::Inbound) => (remote, None),
        };
        let inside6 = match inside.0 {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let [outside4, remote4] = [outside, remote].map(|(address, port)| match address {
            IpAddr::V4(address) => (address, port),
            IpAddr::V6(address) => panic!("{address}"),
        });
        let flow = feed::Flow {
            inside: (inside6, inside.1),
            outside: outside4,
            remote: remote4,
            transport: self.transport,
            instance: 0,
        };
        let session = SessionId { record: 1, flow };
        OffloadedFlow { session, worker: 0, epoch: 1, remote6, path_mtu: None }
    }

    /// The entry with the remote host's end as the test of `wire` wants it.
    fn with_remote(&self, mut entry: Flow, direction: Direction) -> Flow {
        let at = if direction == Direction::Outbound { 1 } else { 0 };
        let (is, port) = self.after[at];
        let is_six = entry.action == "gatun_lookup_to_ipv6";
        let (first_port, delta) = if is_six { (4, 6) } else { (2, 4) };
        let change = |entry: &mut Flow, at: usize, value: u64, is_summed: bool| {
            let before = std::mem::replace(&mut entry.data[at], value);
            let [before, after] = [before, value].map(|value| sum(&value.to_be_bytes()));
            if is_summed && before != after {
                let both = Delta(entry.data[delta] as u16).plus(Delta::of(before, after)).0;
                entry.data[delta] = if both == 0 { 0xffff } else { both.into() };
            }
        };
        change(&mut entry, first_port + at, port.into(), true);
        if let IpAddr::V4(is) = is {
            change(&mut entry, at, u32::from(is).into(), self.transport != Transport::Icmp);
        }
        entry
    }
}

/// Uses the controller with these limits. Those of most packets are the last one's.
fn with_controller<R>(limits: &Limits, work: impl FnOnce(&Program) -> R) -> R {
    thread_local! {
        static LAST: RefCell<Option<(Limits, Program)>> = const { RefCell::new(None) };
    }
    LAST.with_borrow_mut(|last| {
        if last.as_ref().is_none_or(|(of, _)| of != limits) {
            *last = Some((limits.clone(), controller(limits)));
        }
        work(&last.as_ref().unwrap().1)
    })
}

/// Gives the packet to the program, which has the session that the packet belongs to.
fn beside(
    (bytes, offload): (&[u8], Offload),
    ends: Option<Ends>,
    direction: Direction,
    limits: &Limits,
    wire: &Translated,
) {
    let both = ends.map_or_else(Vec::new, |ends| {
        let mut both = with_controller(limits, |controller| entries(controller, &ends.flow(direction), 0));
        let own = &mut both[direction.index()];
        *own = ends.with_remote(own.clone(), direction);
        both.into()
    });
    let Some(fate) = beside::fate(&both, bytes, offload) else { return };
    let engine = (wire.0 == Ok(Whole::Yes)).then_some(&wire.1[..]);
    beside::compare(&both, limits, bytes, engine, &fate);
}
