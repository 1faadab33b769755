//! Sessions and bindings in the form for display.

use super::Tables;
use crate::base::plan::Transport;
use crate::base::tcp_fsm::TcpState;
use crate::tables::session::{RecordId, Session};
use core::net::{Ipv4Addr, Ipv6Addr};

/// Maximum number of sessions counted for one binding.
const COUNTED_MAX: u32 = 16;

/// A session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Number of the instance.
    pub instance: u8,
    /// Number of its pool.
    pub pool: usize,
    /// Protocol.
    pub transport: Transport,
    /// Inside address and port (ICMP: identifier); IPv4 ones as ::ffff:a.b.c.d.
    pub inside: (Ipv6Addr, u16),
    /// Public address and port.
    pub outside: (Ipv4Addr, u16),
    /// Remote address and port (ICMP: 0).
    pub remote: (Ipv4Addr, u16),
    /// State of a TCP session.
    pub tcp: Option<TcpState>,
    /// Remaining lifetime without another packet, ms.
    pub expires_ms: u32,
    /// True if its binding is a static one of the configuration.
    pub of_static: bool,
    /// True if it shares its public port with flows of other inside ends.
    pub shares_port: bool,
    /// True if a fast path translates its packets, or is about to.
    pub is_offloaded: bool,
    /// True if it is the other member's of a pair, without packets here yet: its lifetime has not begun.
    pub is_standby: bool,
}

/// Binding, or a public port that flows share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindingInfo {
    /// Number of the instance.
    pub instance: u8,
    /// Number of the pool.
    pub pool: usize,
    /// Protocol.
    pub transport: Transport,
    /// Inside address and port (ICMP: identifier). For a shared port, those of one of its flows.
    pub inside: (Ipv6Addr, u16),
    /// Public address and port.
    pub outside: (Ipv4Addr, u16),
    /// Number of sessions, up to a small maximum.
    pub sessions: u32,
    /// True if it has more sessions than that.
    pub has_more: bool,
    /// True for a static binding of the configuration.
    pub is_static: bool,
    /// True for a port that several flows share, which is not a binding.
    pub is_shared: bool,
}

/// Converts a record in use for display.
pub(crate) fn session(tables: &Tables, record: &Session) -> SessionInfo {
    let transport = record.transport();
    SessionInfo {
        instance: record.instance,
        pool: tables.pool_of(record.instance),
        transport,
        inside: (record.inside_addr(), record.inside_port()),
        outside: record.outside(),
        remote: record.remote(),
        tcp: (transport == Transport::Tcp).then(|| record.tcp_state()),
        expires_ms: record.expires().left_ms(tables.now),
        of_static: record.is_of_static(),
        shares_port: record.is_overloaded(),
        is_offloaded: record.is_marked(),
        is_standby: record.is_standby(),
    }
}

/// Converts the binding of a primary record for display.
pub(crate) fn binding(tables: &Tables, primary: RecordId) -> BindingInfo {
    let record = tables.get(primary);
    let (sessions, has_more) = count_ring(tables, primary);
    BindingInfo {
        instance: record.instance,
        pool: tables.pool_of(record.instance),
        transport: record.transport(),
        inside: (record.inside_addr(), record.inside_port()),
        outside: record.outside(),
        sessions,
        has_more,
        is_static: record.is_of_static(),
        is_shared: record.is_overloaded(),
    }
}

/// Counts the sessions of a ring up to [`COUNTED_MAX`], and returns whether there are more.
fn count_ring(tables: &Tables, primary: RecordId) -> (u32, bool) {
    let (mut at, mut sessions) = (primary, 0);
    loop {
        let record = tables.get(at);
        if record.is_session() {
            if sessions == COUNTED_MAX {
                return (sessions, true);
            }
            sessions += 1;
        }
        at = record.next;
        if at == primary || record.is_free() {
            return (sessions, false);
        }
    }
}
