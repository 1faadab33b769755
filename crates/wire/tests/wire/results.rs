//! Translations of packets of which only the result matters. The parent module translates.
#![allow(dead_code, unreachable_pub)]

use super::{four_to_six, six_to_four};
use gatun_wire::{DropReason, Offload, Ports, Settings, Whole};

/// IPv4 translation of a packet that must be translatable and sent whole.
pub fn ok_6to4(bytes: &[u8]) -> Vec<u8> {
    let (result, out, _) = six_to_four(bytes, Ports::Keep, &Settings::default(), Offload::default());
    assert_eq!(result, Ok(Whole::Yes));
    out
}

/// IPv6 translation of a packet that must be translatable and sent whole.
pub fn ok_4to6(bytes: &[u8]) -> Vec<u8> {
    let (result, out, _) = four_to_six(bytes, Ports::Keep, &Settings::default(), Offload::default());
    assert_eq!(result, Ok(Whole::Yes));
    out
}

pub fn err_6to4(bytes: &[u8]) -> DropReason {
    six_to_four(bytes, Ports::Keep, &Settings::default(), Offload::default()).0.unwrap_err()
}

pub fn err_4to6(bytes: &[u8]) -> DropReason {
    four_to_six(bytes, Ports::Keep, &Settings::default(), Offload::default()).0.unwrap_err()
}
