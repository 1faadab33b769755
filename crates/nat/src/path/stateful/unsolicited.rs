//! Unsolicited SYNs (RFC 6146 3.5.2.2, RFC 5382 REQ-4): from remote hosts, and from inside hosts through a
//! hairpin (RFC 5382 REQ-8). A SYN waits six seconds for its receiver to open the connection itself, and is
//! answered only then.

use crate::base::step::Step;
use crate::path::context::PacketContext;
use crate::path::rewrite::OutboundRewrite;
use crate::path::rules::Rules;
use crate::tables::bib::PoolAddress;
use crate::tables::session::Endpoint4;
use gatun_wire::{DropReason, Packet, Ports};

/// An unsolicited SYN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unsolicited {
    /// Pool and number of the public address that it was sent to.
    pub(crate) at: PoolAddress,
    /// Public address and port that it was sent to.
    pub(crate) outside: Endpoint4,
    /// Its sender; for an inside host, its public address and port.
    pub(crate) remote: Endpoint4,
    /// Realm of its sender.
    pub(crate) realm: u8,
}

impl Unsolicited {
    /// Describes the SYN of an inside host that would leave as `out`.
    pub(crate) fn hairpinned(rules: &Rules, (number, out): (u8, &OutboundRewrite), at: PoolAddress) -> Self {
        let (src, dst) = out.addresses();
        // A SYN always has ports.
        let (src_port, dst_port) = match out.ports() {
            Ports::Set { src, dst } => (src, dst),
            Ports::EchoId(_) | Ports::EchoPiece { .. } | Ports::Keep => (0, 0),
        };
        let realm = rules.get(number).map_or(0, |instance| instance.policy().realm);
        Unsolicited { at, outside: (dst, dst_port), remote: (src, src_port), realm }
    }
}

/// Stores a copy of the SYN as it was received.
///
/// # Errors
/// Returns `v4_syn_policy`, `syn_held_already` or `syn_store_full`. None of them is answered.
#[cold]
pub(crate) fn hold(
    cx: &mut PacketContext<'_>,
    packet: &Packet<'_>,
    syn: &Unsolicited,
) -> Result<Step, DropReason> {
    let (rules, state) = (cx.rules, &mut *cx.state);
    let mut of_pool = rules.of_pool(&state.tables, syn.at.pool);
    let Some(policy) = of_pool.find(|p| p.external_tcp) else { return Err(DropReason::ExternalSynPolicy) };
    let until = cx.now.plus_ms(u64::from(policy.timeouts.tcp_incoming_syn_ms));
    drop(of_pool);
    match state.syns.store(cx.now, until, packet.bytes(), syn.outside, syn.remote, syn.realm) {
        Ok(true) => {
            state.counters.held += 1;
            Ok(Step::Held)
        }
        // A SYN of this connection is held already; an answer now would break RFC 5382 REQ-4.
        Ok(false) => Err(DropReason::SynHeldAlready),
        Err(_) => Err(DropReason::SynStoreFull),
    }
}
