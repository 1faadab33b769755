//! Sessions and bindings as they are shown.

use super::Tables;
use crate::base::plan::Transport;
use crate::base::tcp_fsm::TcpState;
use crate::tables::session::{RecordId, Session};
use core::net::{Ipv4Addr, Ipv6Addr};

/// Sessions of one binding that are counted at most.
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
    /// Until it ends without another packet, ms.
    pub expires_ms: u32,
    /// Whether its binding is one of the configuration.
    pub of_static: bool,
    /// Whether it shares its public port with flows of other inside ends.
    pub shares_port: bool,
}

/// A binding, or a public port that flows share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindingInfo {
    /// Number of the instance.
    pub instance: u8,
    /// Number of the pool.
    pub pool: usize,
    /// Protocol.
    pub transport: Transport,
    /// Inside address and port (ICMP: identifier), of a shared port those of one of its flows.
    pub inside: (Ipv6Addr, u16),
    /// Public address and port.
    pub outside: (Ipv4Addr, u16),
    /// Sessions, up to a few.
    pub sessions: u32,
    /// Whether it has more than that.
    pub has_more: bool,
    /// Whether it is one of the configuration.
    pub is_static: bool,
    /// Whether it is no binding, but a port that several flows share.
    pub is_shared: bool,
}

/// A record in use, as it is shown.
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
    }
}

/// The binding of a primary record, as it is shown.
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

/// Sessions of a ring, up to [`COUNTED_MAX`], and whether there are more.
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
