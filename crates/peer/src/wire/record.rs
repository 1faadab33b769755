//! Records of the stream between members.
//!
//! ```text
//!   session          tag instance kinds pool6 epoch(2) lifetime(4) outside(6) remote(6) inside(6 or 18)
//!   end of session   tag kinds outside(6) remote(6)
//!   binding          tag instance kinds outside(6) inside(6 or 18)
//!   block            tag instance transports outside(4) ports(4) subscriber(4 or 16)
//!   state begins, ends: tag;   standing: tag, shard, owner, epoch(4) revision(8)
//!   relation         tag shard, and the epochs in which each holder became one (4, 4)
//!   shards begin     tag, bits of the shards (32);   shards end: tag
//! ```
//! The tag has the kind of the record in its lower half, and flags in the upper one. `kinds` has the
//! transport in its lower half, and the state of a TCP session in the upper one.
//!
//! An IPv6 session takes 40 bytes and its end 14, an IPv4 session 28.

use super::bytes::{Reader, put_inside};
use super::error::WireError;
use crate::ownership::{Epoch, Member};
use gatun_nat::ShardSet;
use gatun_nat::feed::{BindingRecord, BlockRecord, Flow, SessionRecord};
use gatun_nat::plan::Transport;
use gatun_nat::standby::ClosedFlow;
use gatun_nat::tcp_fsm::TcpState;
use std::net::Ipv4Addr;

/// State of a session, as the other member needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionState {
    /// Flow. The number of its instance has the same meaning at both members, whose configurations agree.
    pub flow: Flow,
    /// State of a TCP session.
    pub tcp: Option<TcpState>,
    /// Number of the prefix that the inside host uses.
    pub pool6: u8,
    /// True if its binding is a static one of the configuration.
    pub of_static: bool,
    /// Epoch in which it began.
    pub epoch: u16,
    /// Remaining lifetime, ms. A brief record has none.
    pub lifetime_ms: Option<u32>,
}

/// End of a session: its flow as seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionEnd {
    /// Protocol.
    pub transport: Transport,
    /// Public address and port.
    pub outside: (Ipv4Addr, u16),
    /// Remote address and port.
    pub remote: (Ipv4Addr, u16),
}

/// Epochs in which the two holders of a shard became holders. Holders with other ones are not those that a
/// node knows: what they say is about another time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardSeats {
    /// Epoch of member [`Member::First`].
    pub first: u32,
    /// Epoch of member [`Member::Second`].
    pub second: u32,
}

/// Relation of the sender to the receiver in a shard of a cluster, from this place of the stream on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardRelation {
    /// Number of the shard.
    pub shard: u8,
    /// The holders, as the sender knows them; `None` if it has the shard no more, or not with the receiver.
    pub seats: Option<ShardSeats>,
    /// Number of times that the sender's process has begun the relation: another one is another relation,
    /// although the holders are the same.
    pub number: u32,
    /// True if the sender has the shard's state.
    pub has_state: bool,
}

/// Record of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerRecord {
    /// A session has begun or changed.
    Session(SessionState),
    /// A session has ended.
    SessionEnd(SessionEnd),
    /// The TCP connection of a session has ended. The session's end follows.
    SessionClosed(ClosedFlow),
    /// A binding has begun or ended.
    Binding(BindingRecord),
    /// A block has begun or ended.
    Block(BlockRecord),
    /// The records up to [`PeerRecord::StateEnds`] contain everything that exists.
    StateBegins,
    /// Everything else that the other member has, has ended.
    StateEnds,
    /// Ownership of a shard and revision of the configuration, as the sender knows them.
    Standing {
        /// Number of the shard.
        shard: u8,
        /// Latest epoch.
        epoch: Epoch,
        /// Revision.
        revision: u64,
    },
    /// Relation of both in a shard. The whole state of a node of a cluster is all its relations: the shards
    /// follow by [`PeerRecord::ShardsBegin`].
    Relation(ShardRelation),
    /// The records up to [`PeerRecord::ShardsEnd`] contain everything that exists of these shards.
    ShardsBegin(ShardSet),
    /// Everything else that the other node has of these shards has ended. Shards of
    /// [`PeerRecord::ShardsBegin`] that are missing here were not sent as a whole.
    ShardsEnd(ShardSet),
}

const SESSION: u8 = 1;
const SESSION_END: u8 = 2;
const BINDING: u8 = 3;
const BLOCK: u8 = 4;
const STATE_BEGINS: u8 = 5;
const STATE_ENDS: u8 = 6;
const STANDING: u8 = 7;
const RELATION: u8 = 8;
const SHARDS_BEGIN: u8 = 9;
const SHARDS_END: u8 = 10;
const SESSION_CLOSED: u8 = 11;
const BRIEF_SESSION: u8 = 12;

/// Bytes of a set of shards.
const SHARDS_LEN: usize = 32;

/// The inside address is an IPv4 one.
const IPV4: u8 = 0x10;
/// The binding is a static one.
const STATIC: u8 = 0x20;
/// A binding or block begins.
const BEGINS: u8 = 0x40;
/// Flows share the port.
const SHARED: u8 = 0x80;
/// The sender has the shard's state.
const HAS_STATE: u8 = 0x10;
/// The sender has the shard.
const HAS_SHARD: u8 = 0x20;
/// Flag of a brief session whose inside host uses another prefix than the first one.
const HAS_POOL6: u8 = 0x40;
/// No TCP state.
const NO_TCP: u8 = 0xf;

impl PeerRecord {
    /// Appends the record.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        match self {
            PeerRecord::Session(session) => session.put(out),
            PeerRecord::SessionEnd(end) => {
                out.extend_from_slice(&[SESSION_END, end.transport as u8]);
                put_endpoint(out, end.outside);
                put_endpoint(out, end.remote);
            }
            PeerRecord::SessionClosed(closed) => {
                out.push(SESSION_CLOSED);
                put_endpoint(out, closed.outside);
                out.push(closed.remote.0);
                out.extend_from_slice(&closed.remote.1.to_be_bytes());
            }
            PeerRecord::Binding(binding) => {
                let flags = flag(BEGINS, binding.begins)
                    | flag(STATIC, binding.is_static)
                    | flag(SHARED, binding.is_shared)
                    | flag(IPV4, binding.inside.0.to_ipv4_mapped().is_some());
                out.extend_from_slice(&[BINDING | flags, binding.instance, binding.transport as u8]);
                put_endpoint(out, binding.outside);
                put_inside(out, binding.inside.0);
                out.extend(binding.inside.1.to_be_bytes());
            }
            PeerRecord::Block(block) => {
                let flags =
                    flag(BEGINS, block.begins) | flag(IPV4, block.subscriber.to_ipv4_mapped().is_some());
                let transports = Transport::ALL.into_iter().filter(|one| block.transports[*one as usize]);
                out.extend_from_slice(&[BLOCK | flags, block.instance, Transport::bits(transports)]);
                out.extend_from_slice(&block.outside.octets());
                out.extend_from_slice(&block.ports.0.to_be_bytes());
                out.extend(block.ports.1.to_be_bytes());
                put_inside(out, block.subscriber);
            }
            PeerRecord::StateBegins => out.push(STATE_BEGINS),
            PeerRecord::StateEnds => out.push(STATE_ENDS),
            PeerRecord::Standing { shard, epoch, revision } => {
                out.extend_from_slice(&[STANDING, *shard, epoch.owner as u8]);
                out.extend_from_slice(&epoch.number.to_be_bytes());
                out.extend_from_slice(&revision.to_be_bytes());
            }
            PeerRecord::Relation(ShardRelation { shard, seats, number, has_state }) => {
                let flags = flag(HAS_STATE, *has_state) | flag(HAS_SHARD, seats.is_some());
                out.extend_from_slice(&[RELATION | flags, *shard]);
                put_seats(out, seats.unwrap_or(ShardSeats { first: 0, second: 0 }));
                out.extend_from_slice(&number.to_be_bytes());
            }
            PeerRecord::ShardsBegin(shards) => put_shards(out, SHARDS_BEGIN, *shards),
            PeerRecord::ShardsEnd(shards) => put_shards(out, SHARDS_END, *shards),
        }
    }

    /// Reads a record.
    ///
    /// # Errors
    /// The record is cut off, or has an impossible value.
    pub(super) fn read(bytes: &mut Reader<'_>) -> Result<PeerRecord, WireError> {
        let tag = bytes.u8()?;
        let is_ipv4 = tag & IPV4 != 0;
        match tag & 0xf {
            SESSION | BRIEF_SESSION => SessionState::read(bytes, tag).map(PeerRecord::Session),
            SESSION_END => {
                let transport = transport(bytes.u8()?)?;
                let (outside, remote) = (endpoint(bytes)?, endpoint(bytes)?);
                Ok(PeerRecord::SessionEnd(SessionEnd { transport, outside, remote }))
            }
            SESSION_CLOSED => {
                let (outside, remote) = (endpoint(bytes)?, (bytes.u8()?, bytes.u16()?));
                Ok(PeerRecord::SessionClosed(ClosedFlow { outside, remote }))
            }
            BINDING => {
                let (instance, transport, outside) = (bytes.u8()?, transport(bytes.u8()?)?, endpoint(bytes)?);
                Ok(PeerRecord::Binding(BindingRecord {
                    begins: tag & BEGINS != 0,
                    is_static: tag & STATIC != 0,
                    is_shared: tag & SHARED != 0,
                    instance,
                    transport,
                    inside: (bytes.inside(is_ipv4)?, bytes.u16()?),
                    outside,
                }))
            }
            BLOCK => {
                let (instance, bits, outside) = (bytes.u8()?, bytes.u8()?, bytes.ipv4()?);
                let ports = (bytes.u16()?, bytes.u16()?);
                if bits >> Transport::ALL.len() != 0 || ports.0 > ports.1 {
                    return Err(WireError::Malformed("impossible block"));
                }
                Ok(PeerRecord::Block(BlockRecord {
                    begins: tag & BEGINS != 0,
                    instance,
                    subscriber: bytes.inside(is_ipv4)?,
                    outside,
                    ports,
                    transports: Transport::ALL.map(|one| bits & 1 << one as u8 != 0),
                }))
            }
            STATE_BEGINS => Ok(PeerRecord::StateBegins),
            STATE_ENDS => Ok(PeerRecord::StateEnds),
            STANDING => {
                let (shard, owner) = (bytes.u8()?, member(bytes.u8()?)?);
                let epoch = Epoch { number: bytes.u32()?, owner };
                if epoch.number > Epoch::NUMBER_MAX {
                    return Err(WireError::Malformed("impossible epoch"));
                }
                Ok(PeerRecord::Standing { shard, epoch, revision: bytes.u64()? })
            }
            RELATION => {
                let (shard, seats) = (bytes.u8()?, read_seats(bytes)?);
                let seats = (tag & HAS_SHARD != 0).then_some(seats);
                let has_state = tag & HAS_STATE != 0;
                let number = bytes.u32()?;
                Ok(PeerRecord::Relation(ShardRelation { shard, seats, number, has_state }))
            }
            SHARDS_BEGIN => read_shards(bytes).map(PeerRecord::ShardsBegin),
            SHARDS_END => read_shards(bytes).map(PeerRecord::ShardsEnd),
            _ => Err(WireError::Malformed("unknown record")),
        }
    }
}

fn put_shards(out: &mut Vec<u8>, tag: u8, shards: ShardSet) {
    let mut bits = [0; SHARDS_LEN];
    shards.iter().for_each(|shard| bits[usize::from(shard / 8)] |= 1 << (shard % 8));
    out.push(tag);
    out.extend_from_slice(&bits);
}

fn read_shards(bytes: &mut Reader<'_>) -> Result<ShardSet, WireError> {
    let bits = bytes.take(SHARDS_LEN)?;
    let is_in = |shard: &u8| bits[usize::from(shard / 8)] >> (shard % 8) & 1 != 0;
    Ok((0..=u8::MAX).filter(is_in).collect())
}

impl SessionState {
    fn put(&self, out: &mut Vec<u8>) {
        let flow = &self.flow;
        let flags = flag(STATIC, self.of_static) | flag(IPV4, flow.inside.0.to_ipv4_mapped().is_some());
        let tcp = self.tcp.map_or(NO_TCP, |state| state as u8);
        let kinds = flow.transport as u8 | tcp << 4;
        match self.lifetime_ms {
            Some(lifetime_ms) => {
                out.extend_from_slice(&[SESSION | flags, flow.instance, kinds, self.pool6]);
                out.extend_from_slice(&self.epoch.to_be_bytes());
                out.extend_from_slice(&lifetime_ms.to_be_bytes());
            }
            None => {
                let flags = flags | flag(HAS_POOL6, self.pool6 != 0);
                out.extend_from_slice(&[BRIEF_SESSION | flags, flow.instance, kinds]);
                out.extend((self.pool6 != 0).then_some(self.pool6));
                out.extend_from_slice(&self.epoch.to_be_bytes());
            }
        }
        put_endpoint(out, flow.outside);
        put_endpoint(out, flow.remote);
        put_inside(out, flow.inside.0);
        out.extend(flow.inside.1.to_be_bytes());
    }

    fn read(bytes: &mut Reader<'_>, tag: u8) -> Result<SessionState, WireError> {
        let is_brief = tag & 0xf == BRIEF_SESSION;
        let (instance, kinds) = (bytes.u8()?, bytes.u8()?);
        let pool6 = if is_brief && tag & HAS_POOL6 == 0 { 0 } else { bytes.u8()? };
        let (transport, tcp) = (transport(kinds & 0xf)?, TcpState::from_u8(kinds >> 4));
        if (kinds >> 4 != NO_TCP && tcp.is_none()) || (tcp.is_some() != (transport == Transport::Tcp)) {
            return Err(WireError::Malformed("impossible state of a session"));
        }
        let epoch = bytes.u16()?;
        let lifetime_ms = if is_brief { None } else { Some(bytes.u32()?) };
        let (outside, remote) = (endpoint(bytes)?, endpoint(bytes)?);
        let inside = (bytes.inside(tag & IPV4 != 0)?, bytes.u16()?);
        let flow = Flow { inside, outside, remote, transport, instance };
        Ok(SessionState { flow, tcp, pool6, of_static: tag & STATIC != 0, epoch, lifetime_ms })
    }
}

impl From<&SessionRecord> for SessionState {
    fn from(record: &SessionRecord) -> SessionState {
        SessionState {
            flow: record.id.flow,
            tcp: record.tcp,
            pool6: record.pool6,
            of_static: record.of_static,
            epoch: record.ownership.epoch,
            lifetime_ms: Some(record.expires_ms),
        }
    }
}

impl From<&SessionRecord> for SessionEnd {
    fn from(record: &SessionRecord) -> SessionEnd {
        let Flow { outside, remote, transport, .. } = record.id.flow;
        SessionEnd { transport, outside, remote }
    }
}

pub(super) fn put_seats(out: &mut Vec<u8>, seats: ShardSeats) {
    out.extend_from_slice(&seats.first.to_be_bytes());
    out.extend_from_slice(&seats.second.to_be_bytes());
}

pub(super) fn read_seats(bytes: &mut Reader<'_>) -> Result<ShardSeats, WireError> {
    Ok(ShardSeats { first: bytes.u32()?, second: bytes.u32()? })
}

fn flag(bit: u8, is_set: bool) -> u8 {
    if is_set { bit } else { 0 }
}

fn put_endpoint(out: &mut Vec<u8>, (address, port): (Ipv4Addr, u16)) {
    out.extend_from_slice(&address.octets());
    out.extend_from_slice(&port.to_be_bytes());
}

fn endpoint(bytes: &mut Reader<'_>) -> Result<(Ipv4Addr, u16), WireError> {
    Ok((bytes.ipv4()?, bytes.u16()?))
}

fn transport(number: u8) -> Result<Transport, WireError> {
    let found = Transport::ALL.get(usize::from(number)).copied();
    found.ok_or(WireError::Malformed("unknown protocol"))
}

pub(super) fn member(number: u8) -> Result<Member, WireError> {
    match number {
        0 => Ok(Member::First),
        1 => Ok(Member::Second),
        _ => Err(WireError::Malformed("unknown member")),
    }
}
