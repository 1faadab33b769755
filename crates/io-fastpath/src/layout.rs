//! Layout of the maps, as `bpf/layout.h` has it. A test compares the two.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Number of this layout.
pub(crate) const LAYOUT: u32 = 5;

/// Maximum number of workers that publish their progress.
pub const WORKERS_MAX: usize = 64;
/// Bit of a published time: packets from before it may wait in a queue that loses packets.
pub(crate) const MAY_WAIT: u64 = 1;
/// Stateful instances.
pub(crate) const STATEFUL_MAX: u32 = 256;
/// Stateless instances.
pub(crate) const STATELESS_MAX: u32 = 256;
/// Instances: stateless ones are behind the stateful ones.
pub(crate) const INSTANCES_MAX: u32 = STATEFUL_MAX + STATELESS_MAX;
/// Row of counters of no known instance.
pub(crate) const ROW_NONE: u32 = INSTANCES_MAX;
/// Rows of counters of a hook: those of XDP are behind those of the device.
pub(crate) const ROWS: u32 = ROW_NONE + 1;
/// Maximum number of interfaces with the XDP program.
pub(crate) const XDP_PORTS_MAX: u32 = 64;
/// Entries of a trie.
pub(crate) const MAPPINGS_MAX: u32 = 4_194_304;
/// Counters of identifications.
pub(crate) const IDENTS: u32 = 2048;
/// Counters of a row of the map `reasons`.
pub(crate) const REASONS: usize = 18;

/// Entries with the same home.
pub(crate) const NEAR_MAX: u32 = 8;
/// An entry is less than this behind its home.
pub(crate) const REACH: u32 = 255;
/// Words of the hash's secret.
pub(crate) const HASH_WORDS: usize = 11;

pub(crate) const WAY_6_TO_4: u8 = 0;
pub(crate) const WAY_4_TO_6: u8 = 1;
pub(crate) const WAY_4_OUTWARD: u8 = 2;
pub(crate) const WAY_4_INWARD: u8 = 3;

/// Translation by an entry: its key, and the new header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Translation {
    /// Source and destination of the IPv4 packet; NAT44: as received.
    pub(crate) four: [[u8; 4]; 2],
    /// Source and destination of the IPv6 packet; NAT44: the IPv4 addresses that are sent, at the beginning.
    pub(crate) six: [[u8; 16]; 2],
    pub(crate) ports: [[u8; 2]; 2],
    pub(crate) new_ports: [[u8; 2]; 2],
    pub(crate) delta: [u8; 2],
    pub(crate) proto: u8,
    pub(crate) way: u8,
}

/// Words of a [`Translation`].
pub(crate) const TRANSLATION_WORDS: usize = size_of::<Translation>() / 4;

/// One direction of a session, in memory that the program shares.
#[repr(C)]
pub(crate) struct Entry {
    /// Entries whose home is here, one in each byte: 1 + the distance from here.
    pub(crate) near: AtomicU64,
    /// Odd: in use.
    pub(crate) generation: AtomicU32,
    pub(crate) translation: [AtomicU32; TRANSLATION_WORDS],
    pub(crate) seen: AtomicU64,
    pub(crate) sent_up: AtomicU64,
    pub(crate) installed: AtomicU64,
    pub(crate) packets: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) closing: AtomicU32,
    pub(crate) partner: AtomicU32,
    pub(crate) partner_generation: AtomicU32,
    pub(crate) record: AtomicU32,
    pub(crate) epoch: AtomicU16,
    pub(crate) path_mtu: AtomicU16,
    pub(crate) ident: AtomicU16,
    pub(crate) instance: AtomicU8,
    pub(crate) worker: AtomicU8,
}

/// Kinds of a mapping; zero: the engine decides.
pub(crate) const MAPPED: u8 = 1;
pub(crate) const BY_PREFIX: u8 = 2;

/// Key of the tries `siit6_first` and `siit6_second`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct TrieKey6 {
    pub(crate) len: u32,
    pub(crate) address: [u8; 16],
}

/// Key of the tries `siit4_first` and `siit4_second`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct TrieKey4 {
    pub(crate) len: u32,
    pub(crate) address: [u8; 4],
}

/// Meaning of an IPv6 address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Mapping6 {
    pub(crate) kind: u8,
    pub(crate) instance: u8,
    pub(crate) shift: u8,
    pub(crate) spare: u8,
    pub(crate) mask: [u8; 4],
    pub(crate) four: [u8; 4],
}

/// Meaning of an IPv4 address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Mapping4 {
    pub(crate) kind: u8,
    pub(crate) instance: u8,
    pub(crate) shift: u8,
    pub(crate) one_way: u8,
    pub(crate) mask: [u8; 4],
    pub(crate) six: [u8; 16],
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

/// Value of the map `xdp_ports`: an interface with the XDP program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct XdpPort {
    pub(crate) mac: [u8; 6],
    pub(crate) cannot_send: u16,
    pub(crate) device: u32,
    pub(crate) more: u32,
    pub(crate) asked: [u32; 2],
}

/// The one value of the map `control`, in memory that the program shares.
#[repr(C)]
pub(crate) struct SharedControl {
    pub(crate) layout: AtomicU32,
    pub(crate) epoch: AtomicU16,
    pub(crate) ident_step: AtomicU16,
    pub(crate) ident_first: AtomicU16,
    spare: AtomicU16,
    pub(crate) homes: AtomicU32,
    pub(crate) lease: AtomicU64,
    pub(crate) pending_max: AtomicU64,
    pub(crate) hash: [AtomicU64; HASH_WORDS],
    pub(crate) siit: AtomicU32,
    pub(crate) smallest_path: AtomicU32,
    pub(crate) drained: [AtomicU64; WORKERS_MAX],
}

const _: () = assert!(size_of::<Translation>() == 52 && size_of::<Entry>() == 128);
const _: () = assert!(std::mem::offset_of!(Entry, seen) == 64 && size_of::<InstanceSettings>() == 16);
const _: () = assert!(size_of::<TrieKey6>() == 20 && size_of::<TrieKey4>() == 8);
const _: () = assert!(size_of::<Mapping6>() == 12 && size_of::<Mapping4>() == 24);
const _: () = assert!(size_of::<XdpPort>() == 24);
const _: () = assert!(size_of::<SharedControl>() == 128 + 8 * WORKERS_MAX);
