//! Tests of `nat` about NAT44 that give each packet to another translator, too: the helpers of the module
//! `beside_nat` next to this one.

use super::beside_nat as common;
use plans::{A, B, OTHER, POOL6, ROUTER, SERVER, T, both_kinds, filtered, instance, net, plan44};

#[path = "../nat44/accounts.rs"]
mod accounts;
#[path = "../nat44/changes.rs"]
mod changes;
#[path = "../nat44/filtering.rs"]
mod filtering;
#[path = "../nat44/fragments.rs"]
mod fragments;
#[path = "../nat44/hairpin.rs"]
mod hairpin;
#[path = "../nat44/icmp.rs"]
mod icmp;
#[path = "../nat44/instances.rs"]
mod instances;
#[path = "../nat44/lifetimes.rs"]
mod lifetimes;
#[path = "../nat44/mapping.rs"]
mod mapping;
#[path = "../nat44/overload.rs"]
mod overload;
#[path = "../nat44/plans.rs"]
mod plans;
#[path = "../nat44/realms.rs"]
mod realms;
