//! Packets as bytes.
//!
//! All code here consists of pure functions of bytes: no state, no clock, no allocation, no unsafe code.
//! A [`Packet`] is a borrowed buffer with headroom, so that a header can grow without moving the payload.
//! Parsing returns small `Copy` views ([`Ipv4View`], [`Ipv6View`], [`L4`]). The translator's state provides a
//! [`To4`] or a [`To6`], and [`rfc7915`] applies it.
//!
//! On `Err`, the bytes of a packet are unchanged, so that an ICMP error can quote them.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

#[cfg(test)]
extern crate std;

pub mod checksum;
pub mod drop;
pub mod hdr;
pub mod icmp_error;
pub mod mss;
pub mod packet;
pub mod plain;
pub mod rfc3022;
pub mod rfc6052;
pub mod rfc7915;
pub mod segment;
pub mod text;
pub mod view;
pub mod vxlan;

pub use core::net::{Ipv4Addr, Ipv6Addr};
pub use drop::DropReason;
pub use hdr::fragment::FragmentInfo;
pub use packet::{Checksum, DEVICE_ROOM, GROWTH_MAX, HEADROOM, Offload, Packet, Segmentation, TAILROOM};
pub use rfc6052::Prefix64;
pub use rfc7915::{Ports, Settings, To4, To6, Whole};
pub use view::{Ipv4View, Ipv6View, L4};

/// IP protocol numbers that the translator handles by name.
pub mod proto {
    #![allow(missing_docs)]
    pub const HOP_BY_HOP: u8 = 0;
    pub const ICMP: u8 = 1;
    pub const IGMP: u8 = 2;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const ROUTING: u8 = 43;
    pub const FRAGMENT: u8 = 44;
    pub const ESP: u8 = 50;
    pub const AH: u8 = 51;
    pub const ICMPV6: u8 = 58;
    pub const NO_NEXT: u8 = 59;
    pub const DEST_OPTIONS: u8 = 60;
}
