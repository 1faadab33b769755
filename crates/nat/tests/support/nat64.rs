//! Tests of `nat` about NAT64 that give each packet to another translator, too: the helpers of the module
//! `beside_nat` next to this one.

use super::beside_nat as common;
use addressing::{OTHER, OTHER6, POOL6, PREFIXES, SERVER6, T};

#[path = "../nat64/addresses.rs"]
mod addresses;
#[path = "../nat64/addressing.rs"]
mod addressing;
#[path = "../nat64/basic.rs"]
mod basic;
#[path = "../nat64/blocks.rs"]
mod blocks;
#[path = "../nat64/change_histories.rs"]
mod change_histories;
#[path = "../nat64/changes.rs"]
mod changes;
#[path = "../nat64/clear.rs"]
mod clear;
#[path = "../nat64/fragments.rs"]
mod fragments;
#[path = "../nat64/hairpin.rs"]
mod hairpin;
#[path = "../nat64/histories.rs"]
mod histories;
#[path = "../nat64/icmp_errors.rs"]
mod icmp_errors;
#[path = "../nat64/mapping.rs"]
mod mapping;
#[path = "../nat64/pools.rs"]
mod pools;
#[path = "../nat64/syns.rs"]
mod syns;
#[path = "../nat64/tcp_states.rs"]
mod tcp_states;
#[path = "../nat64/time.rs"]
mod time;
