//! Stateless instances (RFC 7915, RFC 7757).

use super::{Net4, Net6};
use alloc::string::String;
use alloc::vec::Vec;
use gatun_wire::{Prefix64, Settings};

/// A stateless instance (RFC 7915, RFC 7757).
#[derive(Clone, Debug, Default)]
pub struct Siit {
    /// Name shown to operators.
    pub name: String,
    /// Translation prefixes. May be empty if every address has a mapping. The first one is used for IPv4
    /// addresses without a mapping.
    pub pool6: Vec<Prefix64>,
    /// Explicit address mappings.
    pub eamt: Vec<Eam>,
    /// Hairpinning (RFC 7757 4).
    pub hairpin: Hairpin,
    /// IPv4 addresses that are never translated, in either direction.
    pub denylist4: Vec<Net4>,
    /// IPv6 addresses that are never translated.
    pub denylist6: Vec<Net6>,
    /// Same as [`wkp_non_global`](super::Nat64::wkp_non_global).
    pub wkp_non_global: bool,
    /// Sources for ICMPv4 errors whose IPv6 source has no translation (RFC 6791).
    pub icmp_pool4: Vec<Net4>,
    /// Choice of an address from `icmp_pool4`.
    pub icmp_pool4_mode: IcmpPoolMode,
    /// Sources for ICMPv6 errors whose IPv4 source has no translation.
    pub icmp_pool6: Vec<Net6>,
    /// Header translation.
    pub settings: Settings,
}

/// An explicit address mapping; the IPv6 suffix is at least as long as the IPv4 one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Eam {
    /// IPv4 side.
    pub v4: Net4,
    /// IPv6 side.
    pub v6: Net6,
}

/// Stateless hairpinning (RFC 7757 4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hairpin {
    /// No hairpinning.
    Off,
    /// RFC 7757 4.2.1: the router sends the packet back.
    Simple,
    /// RFC 7757 4.2.2: the translator hairpins the packet itself.
    #[default]
    Intrinsic,
}

/// Choice of the source of an ICMPv4 error (RFC 6791).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IcmpPoolMode {
    /// Hash of the IPv6 router's address: each router keeps one address.
    #[default]
    Hash,
    /// Hop limit: each distance has one address.
    HopLimit,
}
