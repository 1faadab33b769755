//! Helpers of the tests of `wire`, with another translator beside each translation of a packet. It is the
//! module `beside_wire` at the crate's root, with these functions:
//!
//! ```text
//!   six_to_four(packet, ports, settings, &translated)
//!   four_to_six(packet, ports, settings, &translated)
//!   four_to_four(packet, addresses, ports, identification, mtu, &translated)
//!   error(packet)                                            an ICMP error
//! ```
//! `packet`: bytes and offload.
#![allow(dead_code, unreachable_pub)]

#[path = "../wire/common.rs"]
mod original;
#[path = "../wire/results.rs"]
#[allow(clippy::duplicate_mod, reason = "it calls the functions of its parent, which differ")]
mod results;

pub use original::*;
pub use results::{err_4to6, err_6to4, ok_4to6, ok_6to4};

use crate::beside_wire as beside;
use gatun_wire::{DropReason, Offload, Ports, Settings, Whole};
use std::net::Ipv4Addr;

pub fn six_to_four(bytes: &[u8], ports: Ports, settings: &Settings, offload: Offload) -> Translated {
    let out = original::six_to_four(bytes, ports, settings, offload);
    if bytes.first().is_some_and(|byte| byte >> 4 == 6) {
        beside::six_to_four((bytes, offload), ports, settings, &out);
    }
    out
}

pub fn four_to_six(bytes: &[u8], ports: Ports, settings: &Settings, offload: Offload) -> Translated {
    let out = original::four_to_six(bytes, ports, settings, offload);
    if bytes.first().is_some_and(|byte| byte >> 4 == 4) {
        beside::four_to_six((bytes, offload), ports, settings, &out);
    }
    out
}

pub fn four_to_four(
    bytes: &[u8],
    to: (Ipv4Addr, Ipv4Addr),
    ports: Ports,
    id: Option<u16>,
    mtu: u32,
    offload: Offload,
) -> Translated {
    let out = original::four_to_four(bytes, to, ports, id, mtu, offload);
    if bytes.first().is_some_and(|byte| byte >> 4 == 4) {
        beside::four_to_four((bytes, offload), to, ports, id, mtu, &out);
    }
    out
}

pub fn error_4to6(bytes: &[u8], ports: Ports, settings: &Settings) -> (Result<(), DropReason>, Vec<u8>) {
    beside::error(bytes);
    original::error_4to6(bytes, ports, settings)
}

pub fn error_6to4(bytes: &[u8], ports: Ports, settings: &Settings) -> (Result<(), DropReason>, Vec<u8>) {
    beside::error(bytes);
    original::error_6to4(bytes, ports, settings)
}

pub fn error_4to4(bytes: &[u8], inside: Ipv4Addr, ports: Ports) -> (Result<Whole, DropReason>, Vec<u8>) {
    beside::error(bytes);
    original::error_4to4(bytes, inside, ports)
}
