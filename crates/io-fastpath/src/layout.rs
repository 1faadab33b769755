//! Layout of the maps, as `bpf/layout.h` has it. A test compares the two.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Number of this layout.
pub(crate) const LAYOUT: u32 = 1;

/// Workers that can publish how far they are.
pub const WORKERS_MAX: usize = 64;
/// Instances.
pub(crate) const INSTANCES_MAX: u32 = 256;
/// Counters of identifications.
pub(crate) const IDENTS: u32 = 2048;
/// Counters of a row of the map `reasons`.
pub(crate) const REASONS: usize = 16;

pub(crate) const STATE_CLOSING: u8 = 1;
pub(crate) const KIND_NAT64: u8 = 0;
pub(crate) const KIND_NAT44: u8 = 1;

/// Key of the map `flows6`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Key6 {
    pub(crate) src: [u8; 16],
    pub(crate) dst: [u8; 16],
    pub(crate) ports: [[u8; 2]; 2],
    pub(crate) proto: u32,
}

/// Key of the map `flows4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Key4 {
    pub(crate) src: [u8; 4],
    pub(crate) dst: [u8; 4],
    pub(crate) ports: [[u8; 2]; 2],
    pub(crate) proto: u32,
}

/// First cache line of a session behind its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Identity {
    pub(crate) inside: [u8; 16],
    pub(crate) remote6: [u8; 16],
    pub(crate) outside: [u8; 4],
    pub(crate) remote: [u8; 4],
    pub(crate) inside_port: [u8; 2],
    pub(crate) outside_port: [u8; 2],
    pub(crate) remote_port: [u8; 2],
    pub(crate) delta: [u8; 2],
    pub(crate) epoch: u16,
    pub(crate) path_mtu: u16,
    pub(crate) ident: u16,
    pub(crate) proto: u8,
    pub(crate) kind: u8,
    pub(crate) instance: u8,
    pub(crate) worker: u8,
    pub(crate) spare: u8,
    pub(crate) state: u8,
}

/// Words of an [`Identity`].
pub(crate) const IDENTITY_WORDS: usize = size_of::<Identity>() / 4;

/// One direction of a session, in memory that the program shares.
#[repr(C)]
pub(crate) struct Direction {
    pub(crate) seen: AtomicU64,
    pub(crate) sent_up: AtomicU64,
    pub(crate) installed: AtomicU64,
    pub(crate) packets: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) record: AtomicU32,
    spare: [AtomicU32; 5],
}

/// A slot of the map `sessions`, in memory that the program shares.
#[repr(C)]
pub(crate) struct Session {
    /// Odd: in use.
    pub(crate) generation: AtomicU32,
    pub(crate) identity: [AtomicU32; IDENTITY_WORDS],
    pub(crate) directions: [Direction; 2],
}

/// Value of the map `instances`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct InstanceSettings {
    pub(crate) mtu4: u32,
    pub(crate) mtu6: u32,
    pub(crate) mtu6_without_df: u32,
    pub(crate) tos: i16,
    pub(crate) traffic_class: i16,
}

/// The one value of the map `control`, in memory that the program shares.
#[repr(C)]
pub(crate) struct SharedControl {
    pub(crate) layout: AtomicU32,
    pub(crate) epoch: AtomicU16,
    pub(crate) ident_step: AtomicU16,
    pub(crate) ident_first: AtomicU16,
    spare: [AtomicU16; 3],
    pub(crate) lease: AtomicU64,
    pub(crate) pending_max: AtomicU64,
    pub(crate) drained: [AtomicU64; WORKERS_MAX],
}

const _: () = assert!(size_of::<Key6>() == 40 && size_of::<Key4>() == 16);
const _: () = assert!(size_of::<Identity>() == 60 && size_of::<Direction>() == 64);
const _: () = assert!(size_of::<Session>() == 192 && size_of::<InstanceSettings>() == 16);
const _: () = assert!(size_of::<SharedControl>() == 32 + 8 * WORKERS_MAX);
