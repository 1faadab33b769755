//! ICMP errors from inside whose receiver is inside too (RFC 6146 3.8, RFC 5508 REQ-7, RFC 7857 12): the
//! second half, from outside form to the receiver's form. The module of the sender's kind does the first
//! half. Errors change no state and extend no lifetime (RFC 5508 REQ-6, RFC 7857 7.1).

use super::hairpin;
use crate::base::attribution::Party;
use crate::base::plan::Transport;
use crate::path::query::{self, Query};
use crate::path::rules::nat44::inside4;
use crate::path::rules::nat64::Nat64;
use crate::path::rules::{Instance, Rules};
use crate::tables::bib::{PoolAddress, Tables};
use crate::tables::session::{Endpoint4, RecordId};
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::rfc3022::{self, Rewrite};
use gatun_wire::rfc7915::icmp_4to6;
use gatun_wire::{DropReason, Ipv4View, L4, Packet, Ports, Settings, To6};

/// Inside host that sent the quoted packet, with the data to write the error for it.
pub(crate) enum Receiver {
    Six {
        /// Its address, and the address that it sent to.
        host: Ipv6Addr,
        peer: Ipv6Addr,
        port: u16,
        settings: Settings,
        realm: u8,
    },
    Four {
        host: Ipv4Addr,
        port: u16,
        realm: u8,
    },
}

/// Returns the inside host at the outside address `at` and `port` that sent the quoted packet, and its
/// counters. `peer` is the outside end of the sender of the error. The receiver knows that end behind the
/// prefix that it sent to.
///
/// # Errors
/// Returns `icmp_err_no_state` or `wkp_nonglobal`.
pub(crate) fn receiver(
    rules: &Rules,
    tables: &Tables,
    (at, port): (PoolAddress, u16),
    transport: Transport,
    peer: Endpoint4,
) -> Result<(Receiver, Party), DropReason> {
    let no_state = DropReason::IcmpErrorNoState;
    let remote = (peer.0, if transport == Transport::Icmp { 0 } else { peer.1 });
    let primary = tables.binding_at(at, transport, port);
    let primary = primary.and_then(|id| tables.owner_at(id, remote)).ok_or(no_state)?;
    let p = tables.get(primary);
    let receiver = match rules.get(p.instance).ok_or(no_state)? {
        Instance::Nat64(nat) => {
            let pool6 = prefix_towards(nat, tables, primary, remote)?;
            Receiver::Six {
                host: p.inside_addr(),
                peer: nat.prefix(pool6).embed(peer.0),
                port: p.inside_port(),
                settings: hairpin::inner_settings(&nat.settings),
                realm: nat.policy.realm,
            }
        }
        Instance::Nat44(nat) => {
            let realm = nat.policy.realm;
            Receiver::Four { host: inside4(p), port: p.inside_port(), realm }
        }
    };
    Ok((receiver, p.party()))
}

/// Returns the prefix that a binding's inside host uses towards `remote`, or one that may represent it.
///
/// # Errors
/// Returns `wkp_nonglobal`.
pub(crate) fn prefix_towards(
    nat: &Nat64,
    tables: &Tables,
    primary: RecordId,
    remote: Endpoint4,
) -> Result<u8, DropReason> {
    match tables.session_of_binding(primary, remote) {
        Some(id) => Ok(tables.get(id).pool6),
        None => nat.prefix_for(tables.get(primary).pool6, remote.0),
    }
}

/// Returns the outside port of the sender of an error from inside. The inside host that gets the error knows
/// it as its remote port. An echo message has the identifier of the binding.
pub(crate) fn sender_port(query: &Query, outside: Endpoint4) -> u16 {
    if query.transport == Transport::Icmp { outside.1 } else { query.src_port }
}

/// Writes an error, which is IPv4 only between its two translations, for its receiver.
///
/// # Errors
/// Returns a reason that no earlier check of the packet could find. The packet has changed then.
pub(crate) fn turn(packet: &mut Packet<'_>, to: &Receiver) -> Result<(), DropReason> {
    let view = Ipv4View::parse(packet.bytes())?;
    match to {
        Receiver::Six { host, peer, port, settings, realm } => {
            packet.realm = *realm;
            let embedded = icmp_4to6::embedded(packet.bytes(), &view)?;
            let about = embedded.view;
            let ports = quoted_ports(embedded.l4, *port);
            let inner = To6::new((about.src, about.dst), (*host, *peer), ports);
            icmp_4to6::translate(packet, &view, &embedded, (*peer, *host), &inner, settings)
        }
        Receiver::Four { host, port, realm } => {
            packet.realm = *realm;
            let embedded = rfc3022::icmp_error::embedded(packet.bytes(), &view)?;
            let about = embedded.view;
            let inner =
                Rewrite::new((about.src, about.dst), (*host, about.dst), quoted_ports(embedded.l4, *port));
            let outer = Rewrite::new((view.src, view.dst), (view.src, *host), Ports::Keep);
            let mtu = hairpin::ANY_MTU;
            rfc3022::icmp_error::translate(packet, &view, &embedded, &outer, &inner, mtu).map(drop)
        }
    }
}

/// Returns the ports of the quoted packet, with `port` as its source port.
fn quoted_ports(l4: L4, port: u16) -> Ports {
    match Query::of(l4, true) {
        Some(q) => query::ports(q.transport, port, q.dst_port, port),
        None => Ports::Keep,
    }
}
