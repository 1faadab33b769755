//! `[peer]`: the other box of a pair.

use super::{api, log};
use crate::keys::{PAIR_MODE, PEER_MEMBER, PairMode, PeerMember};
use crate::problem::Problems;
use crate::reader::Table;
use crate::value;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Default directory of the certificates.
pub const PEER_DIRECTORY: &str = "/etc/gatun/peer";

/// Shortest time, ms, after which a silent peer counts as dead: it gives a sign of life each 100 ms.
const DEAD_MIN_MS: u32 = 200;

/// The other box of a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Member that this box is.
    pub member: PeerMember,
    /// Division of the public addresses.
    pub mode: PairMode,
    /// Socket at which the peer connects.
    pub listen: Option<SocketAddr>,
    /// Address of the peer.
    pub connect: Option<SocketAddr>,
    /// Address of the other box's API: `https://HOST:PORT`, or the absolute path of a Unix socket.
    pub api: Option<String>,
    /// Directory of the certificates.
    pub directory: PathBuf,
    /// Ports at each end of each address that only one of the boxes ever assigns.
    pub own_ports: u16,
    /// Packets after which the peer gets a UDP session.
    pub packets: u8,
    /// Time in ms without a byte of the peer after which the connection is closed.
    pub dead_after_ms: u32,
    /// Time in ms without a connection after which the lifetimes of the peer's sessions begin.
    pub away_after_ms: u32,
}

/// Reads the section. `None` if `member` is missing or wrong.
pub(crate) fn read(table: &Table<'_>, problems: &mut Problems) -> Option<Peer> {
    let member = table.require("member", problems, |v| value::choice(v, PEER_MEMBER));
    let listen = table.get("listen", problems, api::endpoint);
    let connect = table.get("connect", problems, api::endpoint);
    if table.node("listen").is_none() && table.node("connect").is_none() {
        let what = "[peer] has neither `listen` nor `connect`: there would be no connection";
        problems.error(table.span.clone(), what, table.example("connect"));
    }
    if connect.is_some_and(|address| address.ip().is_unspecified()) {
        let what = "`connect` is the address of no host";
        problems.error(table.span_of("connect"), what, table.example("connect"));
    }
    if connect.is_some() && connect == listen {
        let what = "`connect` is the address of `listen`: this box would connect to itself";
        problems.error(table.span_of("connect"), what, "write the other box's address");
    }
    let dead_after_ms = table.get("dead_after", problems, value::duration_ms).unwrap_or(1_000);
    if dead_after_ms < DEAD_MIN_MS {
        let what = format!("`dead_after` is below {DEAD_MIN_MS} ms");
        problems.error(table.span_of("dead_after"), what, "write `dead_after = \"200ms\"` or more");
    }
    Some(Peer {
        member: member?,
        mode: table.get("mode", problems, |v| value::choice(v, PAIR_MODE)).unwrap_or_default(),
        listen,
        connect,
        api: table.get("api", problems, api::other),
        directory: table.get("directory", problems, log::directory).unwrap_or_else(|| PEER_DIRECTORY.into()),
        own_ports: table.integer("own_ports", problems).map_or(4_096, |n| n as u16),
        packets: table.integer("packets", problems).map_or(3, |n| n as u8),
        dead_after_ms,
        away_after_ms: table.get("away_after", problems, value::duration_ms).unwrap_or(10_000),
    })
}
