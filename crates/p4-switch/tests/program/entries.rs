//! Entries of the program for sessions of the engine.

use gatun_nat::inspect::SessionInfo;
use gatun_nat::plan::Transport;
use gatun_p4_switch::Switch;
use gatun_wire::checksum::{self, Delta};
use gatun_wire::rfc3022::address_delta;
use gatun_wire::rfc7915::address_delta_6to4;
use gatun_wire::{Prefix64, Settings, proto};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Tables and keys of a session's entries.
pub(crate) type Installed = Vec<(&'static str, Vec<u64>)>;

/// Entry of a table of sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) table: &'static str,
    pub(crate) key: Vec<u64>,
    /// Name without the number of its copy.
    pub(crate) action: &'static str,
    pub(crate) data: Vec<u64>,
}

impl Flow {
    /// The same with another generation: 0 translates every packet.
    pub(crate) fn pending(mut self, generation: u8) -> Flow {
        let at = self.data.len() - 3;
        self.data[at] = generation.into();
        self
    }

    /// The same with a later counter, which also names the place of a pending session.
    pub(crate) fn later_counter(mut self, by: u32) -> Flow {
        let at = self.data.len() - 1;
        self.data[at] += u64::from(by);
        self
    }
}

/// The compiler makes a copy of an action for each table, with a number.
pub(crate) fn action(switch: &Switch, table: &str, name: &str) -> String {
    let table = switch.table(table).unwrap();
    let names = (0..16).map(|number| format!("{name}_{number}"));
    let mut found = names.filter(|name| switch.arguments(table, name).is_ok());
    found.next().unwrap()
}

/// High and low half of an address.
pub(crate) fn halves(address: Ipv6Addr) -> [u64; 2] {
    let bits = u128::from(address);
    [(bits >> 64) as u64, bits as u64]
}

pub(crate) fn mask6(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

const NO_IDENT: u64 = 0xffff;
const IDENT: u64 = 9;

/// Constant TOS or traffic class as `tos_keep` and `tos_set`.
pub(crate) fn tos(constant: Option<u8>) -> [u64; 2] {
    constant.map_or([0xff, 0], |tos| [0, tos.into()])
}

/// A difference of zero would change a sum of zero.
fn number(delta: Delta) -> u64 {
    match delta.0 {
        0 => 0xffff,
        delta => delta.into(),
    }
}

fn v4(address: Ipv4Addr) -> u64 {
    u32::from(address).into()
}

/// Ports of packets to the remote host, and of packets from it. An echo request has its identifier as source,
/// a reply as destination.
fn ports(session: &SessionInfo, own: u16) -> ([u64; 2], [u64; 2]) {
    match session.transport {
        Transport::Icmp => ([own.into(), 0], [0, own.into()]),
        _ => ([own.into(), session.remote.1.into()], [session.remote.1.into(), own.into()]),
    }
}

/// Entries of both directions.
pub(crate) fn of_session(session: &SessionInfo, prefix: &Prefix64, settings: &Settings) -> [Flow; 2] {
    let ports_delta = Delta::of(session.inside.1, session.outside.1);
    match session.inside.0.to_ipv4_mapped() {
        Some(host) => nat44(session, host, ports_delta, settings),
        None => nat64(session, prefix.embed(session.remote.0), ports_delta, settings),
    }
}

fn nat64(session: &SessionInfo, remote6: Ipv6Addr, ports_delta: Delta, settings: &Settings) -> [Flow; 2] {
    let (host, outside, remote) = (session.inside.0, session.outside.0, session.remote.0);
    let (protocol4, protocol6) = match session.transport {
        Transport::Tcp => (proto::TCP, proto::TCP),
        Transport::Udp => (proto::UDP, proto::UDP),
        Transport::Icmp => (proto::ICMP, proto::ICMPV6),
    };
    // The pseudo-header of ICMPv6, without its length; ICMP has none.
    let addresses = match session.transport {
        Transport::Icmp => {
            let pair = [host.octets(), remote6.octets()].concat();
            Delta(checksum::add(checksum::sum(&pair), proto::ICMPV6.into())).inverse()
        }
        _ => address_delta_6to4((host, remote6), (outside, remote)),
    };
    let delta = addresses.plus(ports_delta);
    let (inside_out, inside_in) = ports(session, session.inside.1);
    let (outside_out, outside_in) = ports(session, session.outside.1);
    let out = Flow {
        table: "gatun_lookup_flows6",
        key: [&halves(host)[..], &halves(remote6), &inside_out, &[protocol6.into()]].concat(),
        action: "gatun_lookup_to_ipv4",
        data: [
            &[v4(outside), v4(remote)][..],
            &outside_out,
            &[number(delta), settings.mtu4.into(), IDENT],
            &tos(settings.tos_6to4),
            &[0, 0, 0],
        ]
        .concat(),
    };
    let without_df = settings.mtu6.min(settings.lowest_ipv6_mtu);
    let back = Flow {
        table: "gatun_lookup_flows4",
        key: [&[v4(remote), v4(outside)][..], &outside_in, &[protocol4.into()]].concat(),
        action: "gatun_lookup_to_ipv6",
        data: [
            &halves(remote6)[..],
            &halves(host),
            &inside_in,
            &[number(delta.inverse()), without_df.into(), settings.mtu6.into()],
            &tos(settings.traffic_class_4to6),
            &[0, 0, 1],
        ]
        .concat(),
    };
    [out, back]
}

fn nat44(session: &SessionInfo, host: Ipv4Addr, ports_delta: Delta, settings: &Settings) -> [Flow; 2] {
    let (outside, remote) = (session.outside.0, session.remote.0);
    let protocol = match session.transport {
        Transport::Tcp => proto::TCP,
        Transport::Udp => proto::UDP,
        Transport::Icmp => proto::ICMP,
    };
    // ICMP has no pseudo-header.
    let delta = match session.transport {
        Transport::Icmp => ports_delta,
        _ => address_delta((host, remote), (outside, remote)).plus(ports_delta),
    };
    let (inside_out, inside_in) = ports(session, session.inside.1);
    let (outside_out, outside_in) = ports(session, session.outside.1);
    let flow =
        |key: [Ipv4Addr; 2], from: [u64; 2], to: [Ipv4Addr; 2], ports: [u64; 2], rest: [u64; 6]| Flow {
            table: "gatun_lookup_flows4",
            key: [&key.map(v4)[..], &from, &[protocol.into()]].concat(),
            action: "gatun_lookup_nat44",
            data: [&to.map(v4)[..], &ports, &rest].concat(),
        };
    let mtu = settings.mtu4.into();
    [
        flow(
            [host, remote],
            inside_out,
            [outside, remote],
            outside_out,
            [number(delta), mtu, IDENT, 0, 0, 2],
        ),
        flow(
            [remote, outside],
            outside_in,
            [remote, host],
            inside_in,
            [number(delta.inverse()), mtu, NO_IDENT, 0, 0, 3],
        ),
    ]
}
