//! Records and commands by which two members of a pair keep each other's sessions (decision 0102).
//!
//! ```text
//!   engine --(its own feed: sessions that became established, ends of told ones)--> member --> other member
//!   engine <--(Nat::standby: PeerCommand)------------------------------------------ member <-- other member
//! ```
//! A session that the other member may know is *told*: its public port stays reserved after its end until
//! [`PeerAction::Released`]. A session that the other member has told is *standby* here: packets find it as
//! any other, and its lifetime begins with the first one. It ends when the other member ends it.

use crate::base::plan::Transport;
use crate::base::shards::{SHARDS_MAX, ShardSet};
use crate::base::tcp_fsm::TcpState;
use crate::base::time::Instant;
use crate::tables::feed::{Feed, Flow, SessionId};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

pub use crate::tables::pool4::PortRight;
pub use crate::tables::session::Replica;

/// Knowledge about the other member, as far as the engine needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerLink {
    /// There is none, or it has lost its state: ended sessions wait for nobody.
    #[default]
    None,
    /// It may live, but has not been heard of for long: the lifetimes of its sessions begin, and it is not
    /// told of new ones before a walk.
    Away,
    /// It lives: its sessions do not expire here.
    Live,
}

/// Session of the other member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSession {
    /// Flow.
    pub flow: Flow,
    /// State of a TCP session.
    pub tcp: Option<TcpState>,
    /// Number of the prefix that the inside host uses; 0 for NAT44.
    pub pool6: u8,
    /// Generation of the ownership in which it was opened.
    pub epoch: u16,
}

/// Session as seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutsideFlow {
    /// Protocol.
    pub transport: Transport,
    /// Public address and port.
    pub outside: (Ipv4Addr, u16),
    /// Remote address and port.
    pub remote: (Ipv4Addr, u16),
}

/// Closed TCP connection as seen from outside, briefly: the session of its public port that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedFlow {
    /// Public address and port.
    pub outside: (Ipv4Addr, u16),
    /// Last byte of the remote address, and the remote port.
    pub remote: (u8, u16),
}

impl ClosedFlow {
    /// The connection of a flow.
    pub fn of(flow: &Flow) -> ClosedFlow {
        let (address, port) = flow.remote;
        ClosedFlow { outside: flow.outside, remote: (address.octets()[3], port) }
    }
}

/// Request of the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAction {
    /// The other member has a session. `ended` is the record of the same flow that has ended here, if the
    /// other member goes on with it although it knows of the end.
    Begin {
        /// Session.
        session: PeerSession,
        /// Ended record.
        ended: Option<u32>,
    },
    /// The other member has seen the end of a TCP connection: its session ends soon, unless it has packets
    /// here.
    Closed(ClosedFlow),
    /// The other member has ended a session.
    End(OutsideFlow),
    /// The other member has acknowledged the end of a session: its port is free.
    Released(SessionId),
    /// The other member begins to send all that it has of some shards. The sessions that it does not send end
    /// with [`Nat::end_unwalked`](crate::Nat::end_unwalked).
    WalkBegins(ShardSet),
    /// Sets the knowledge about the other member that has some shards.
    Link(ShardSet, PeerLink),
    /// Sets the right to the ports of the addresses from the first to the last one.
    Right(Ipv4Addr, Ipv4Addr, PortRight),
    /// Sets the times until which this member may use some shards without another word.
    Until(ShardSet, Fence),
    /// Ends a session of this member as if its lifetime were over: the other member is told.
    Revoke(OutsideFlow),
}

/// Times until which a member may use a shard. A process that was stopped must not go on with what others
/// have got meanwhile, so the engine looks at them itself, with each packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fence {
    /// From then on it assigns no port of the shard, until this is set again.
    pub assign: Option<Instant>,
    /// From then on it translates no packet of the shard.
    pub translate: Option<Instant>,
}

/// Reason why a session of the other member is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PeerRefusal {
    /// No instance serves its inside host.
    NotServed,
    /// No pool of its instance has its public address or port.
    NotInPool,
    /// Its inside end has another public port, or its public port has another inside end.
    Conflict,
    /// A table is full.
    Full,
    /// The same session has ended here, and the other member has not acknowledged that.
    Ending,
}

impl PeerRefusal {
    /// All reasons.
    pub const ALL: [PeerRefusal; 5] = [
        PeerRefusal::NotServed,
        PeerRefusal::NotInPool,
        PeerRefusal::Conflict,
        PeerRefusal::Full,
        PeerRefusal::Ending,
    ];

    /// Returns the name for metrics.
    pub fn name(self) -> &'static str {
        match self {
            PeerRefusal::NotServed => "not_served",
            PeerRefusal::NotInPool => "not_in_pool",
            PeerRefusal::Conflict => "conflict",
            PeerRefusal::Full => "full",
            PeerRefusal::Ending => "ending",
        }
    }
}

/// Pass over all sessions of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandbySweep {
    /// [`Nat::tell_all`](crate::Nat::tell_all).
    TellAll,
    /// [`Nat::forget_walk`](crate::Nat::forget_walk).
    ForgetWalk,
    /// [`Nat::end_unwalked`](crate::Nat::end_unwalked).
    EndUnwalked,
    /// [`Nat::forget_peer`](crate::Nat::forget_peer).
    ForgetPeer,
    /// [`Nat::drop_shards`](crate::Nat::drop_shards).
    Drop,
    /// [`Nat::revoke`](crate::Nat::revoke).
    Revoke,
}

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerOutcome {
    /// It was executed.
    Done,
    /// The session goes on, because this member has packets of it, or its binding has other sessions. The
    /// feed tells these.
    Kept,
    /// There is no such session.
    Gone,
    /// The session is not accepted.
    Refused(PeerRefusal),
}

/// Request of the member, and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCommand {
    /// Request.
    pub action: PeerAction,
    /// Result, written by the engine.
    pub outcome: PeerOutcome,
}

impl PeerCommand {
    /// Creates a request without a result yet.
    pub fn new(action: PeerAction) -> PeerCommand {
        PeerCommand { action, outcome: PeerOutcome::Gone }
    }
}

/// State of the tables that concerns the other member.
pub(crate) struct Standby {
    /// Feed of the member, if there is one.
    pub(crate) feed: Option<Box<Feed>>,
    /// Knowledge about the other member that has a shard, by the number of the shard.
    links: [PeerLink; SHARDS_MAX],
    /// Shards of which the other member's last walk had odd parity.
    walks: ShardSet,
    /// True if pools without rights give no ports.
    pub(crate) is_restricted: bool,
    /// Shards that other nodes translate.
    pub(crate) elsewhere: ShardSet,
    /// By shard; none if no shard has a fence.
    fences: Vec<Fence>,
    /// Earliest time at which translation of a shard ends.
    next_fence: Option<Instant>,
}

impl Default for Standby {
    fn default() -> Self {
        let links = [PeerLink::None; SHARDS_MAX];
        Standby {
            feed: None,
            links,
            walks: ShardSet::NONE,
            is_restricted: false,
            elsewhere: ShardSet::NONE,
            fences: Vec::new(),
            next_fence: None,
        }
    }
}

impl Standby {
    pub(crate) fn link(&self, shard: u8) -> PeerLink {
        self.links.get(usize::from(shard)).copied().unwrap_or_default()
    }

    pub(crate) fn set_link(&mut self, shards: ShardSet, link: PeerLink) {
        let all = (0..=u8::MAX).zip(&mut self.links);
        all.filter(|(shard, _)| shards.contains(*shard)).for_each(|(_, known)| *known = link);
    }

    /// Parity of the last walk of the other member that has a shard.
    pub(crate) fn walk(&self, shard: u8) -> bool {
        self.walks.contains(shard)
    }

    pub(crate) fn set_fence(&mut self, shards: ShardSet, fence: Fence) {
        self.fences.resize(SHARDS_MAX, Fence::default());
        let all = (0..=u8::MAX).zip(&mut self.fences);
        all.filter(|(shard, _)| shards.contains(*shard)).for_each(|(_, known)| *known = fence);
        self.next_fence = self.fences.iter().filter_map(|fence| fence.translate).min();
    }

    fn fence(&self, shard: u8) -> Fence {
        self.fences.get(usize::from(shard)).copied().unwrap_or_default()
    }

    /// Returns whether ports of a shard may be assigned.
    pub(crate) fn may_assign(&self, shard: u8, now: Instant) -> bool {
        self.fence(shard).assign.is_none_or(|until| now < until)
    }

    /// Returns whether packets of a shard may not be translated any more.
    pub(crate) fn is_fenced(&self, shard: u8, now: Instant) -> bool {
        self.fence(shard).translate.is_some_and(|until| now >= until)
    }

    /// Returns whether packets of any shard may not be translated any more.
    #[inline]
    pub(crate) fn has_fenced(&self, now: Instant) -> bool {
        self.next_fence.is_some_and(|next| now >= next)
    }

    /// Returns whether packets of a shard are not translated here.
    pub(crate) fn is_elsewhere(&self, shard: u8, now: Instant) -> bool {
        self.elsewhere.contains(shard) || self.is_fenced(shard, now)
    }

    pub(crate) fn walk_begins(&mut self, shards: ShardSet) {
        self.walks = self.walks.union(shards).minus(self.walks.intersection(shards));
    }
}
