//! Values of a plan in the notation of the configuration file.

use crate::base::plan::{
    BlockProtocols, Blocks, Exemption, Filtering, Hairpin, HoldDown, IcmpErrorSource, IcmpPoolMode, Net4,
    Net6, Pairing, Timeouts, Transport,
};
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::rfc7915::ZeroChecksum;
use gatun_wire::{Prefix64, Settings};

/// Maximum number of list items that are written. Further items are counted.
const SHOWN_MAX: usize = 4;

/// Value in messages for operators.
pub(super) trait Describe: PartialEq {
    /// Returns the value in the notation of the configuration file.
    fn describe(&self) -> String;
}

/// Value of several keys.
pub(super) trait Keys: PartialEq {
    /// Returns each key with its value.
    fn keys(&self) -> Vec<(&'static str, String)>;
}

macro_rules! by_display {
    ($($type:ty),*) => {$(
        impl Describe for $type {
            fn describe(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

by_display!(u8, u16, u32, bool, str, String, Ipv4Addr, Ipv6Addr, Prefix64);

macro_rules! by_name {
    ($($type:ident { $($variant:ident = $word:literal),* $(,)? })*) => {$(
        impl Describe for $type {
            fn describe(&self) -> String {
                match self { $($type::$variant => $word),* }.into()
            }
        }
    )*};
}

by_name! {
    Filtering { EndpointIndependent = "endpoint-independent", AddressDependent = "address-dependent", AddressAndPortDependent = "address-and-port-dependent" }
    IcmpErrorSource { Router = "router", InnerDestination = "inner-destination" }
    Pairing { Soft = "soft", Hard = "hard" }
    Hairpin { Intrinsic = "intrinsic", Simple = "simple", Off = "off" }
    IcmpPoolMode { Hash = "hash", HopLimit = "hop-limit" }
    ZeroChecksum { Compute = "compute", Drop = "drop", Forward = "forward" }
    BlockProtocols { Shared = "shared", Split = "split" }
}

impl Describe for Net4 {
    fn describe(&self) -> String {
        format!("{}/{}", self.addr, self.len)
    }
}

impl Describe for Net6 {
    fn describe(&self) -> String {
        match self.addr.to_ipv4_mapped().filter(|_| self.len >= 96) {
            Some(addr) => format!("{addr}/{}", self.len - 96),
            None => format!("{}/{}", self.addr, self.len),
        }
    }
}

impl Describe for Exemption {
    fn describe(&self) -> String {
        let mut text = self.net.describe();
        if let Some(transport) = self.transport {
            text += &format!(" {}", transport.name());
        }
        if let Some((first, last)) = self.ports {
            text += &format!(" ports {first}-{last}");
        }
        text
    }
}

impl Describe for (Transport, u16) {
    fn describe(&self) -> String {
        format!("{} {}", self.0.name(), self.1)
    }
}

impl<T: Describe + ?Sized> Describe for &T {
    fn describe(&self) -> String {
        (**self).describe()
    }
}

impl<T: Describe> Describe for Option<T> {
    fn describe(&self) -> String {
        self.as_ref().map_or_else(|| "none".into(), Describe::describe)
    }
}

impl<T: Describe> Describe for [T] {
    fn describe(&self) -> String {
        let shown: Vec<String> = self.iter().take(SHOWN_MAX).map(Describe::describe).collect();
        match self.len() {
            0 => "none".into(),
            n if n > SHOWN_MAX => format!("{} and {} more", shown.join(", "), n - SHOWN_MAX),
            _ => shown.join(", "),
        }
    }
}

impl<T: Describe> Describe for Vec<T> {
    fn describe(&self) -> String {
        self.as_slice().describe()
    }
}

impl<T: Describe, const N: usize> Describe for [T; N] {
    fn describe(&self) -> String {
        self.as_slice().describe()
    }
}

/// Formats a limit. The largest number means no limit.
pub(super) fn limit(n: u32) -> String {
    if n == u32::MAX { "no limit".into() } else { n.describe() }
}

/// Formats milliseconds in the largest unit without a fraction.
fn time(ms: u32) -> String {
    match ms {
        ms if ms % 1000 == 0 => format!("{}s", ms / 1000),
        ms => format!("{ms}ms"),
    }
}

impl Keys for Timeouts {
    fn keys(&self) -> Vec<(&'static str, String)> {
        let Timeouts {
            udp_ms,
            tcp_established_ms,
            tcp_transitory_ms,
            tcp_partial_open_ms,
            tcp_closing_ms,
            tcp_incoming_syn_ms,
            icmp_ms,
            fragment_ms,
        } = *self;
        vec![
            ("udp", time(udp_ms)),
            ("tcp_established", time(tcp_established_ms)),
            ("tcp_transitory", time(tcp_transitory_ms)),
            ("tcp_partial_open", time(tcp_partial_open_ms)),
            ("tcp_closing", time(tcp_closing_ms)),
            ("tcp_incoming_syn", time(tcp_incoming_syn_ms)),
            ("icmp", time(icmp_ms)),
            ("fragment", time(fragment_ms)),
        ]
    }
}

impl Keys for Settings {
    fn keys(&self) -> Vec<(&'static str, String)> {
        let Settings {
            tos_6to4,
            traffic_class_4to6,
            mtu4,
            mtu6,
            lowest_ipv6_mtu,
            udp_zero_checksum,
            mss_max,
            icmp4_error_max,
        } = self;
        let or_copy = |value: &Option<u8>| value.map_or_else(|| "copy".into(), |value| value.describe());
        vec![
            ("tos", or_copy(tos_6to4)),
            ("traffic_class", or_copy(traffic_class_4to6)),
            ("mtu4", mtu4.describe()),
            ("mtu6", mtu6.describe()),
            ("lowest_ipv6_mtu", lowest_ipv6_mtu.describe()),
            ("udp_zero_checksum", udp_zero_checksum.describe()),
            ("tcp_mss_max", mss_max.describe()),
            ("icmp4_error_max", icmp4_error_max.describe()),
        ]
    }
}

impl Keys for HoldDown {
    fn keys(&self) -> Vec<(&'static str, String)> {
        vec![("hold", time(self.ms)), ("hold_max", limit(self.ports_max))]
    }
}

impl Keys for Blocks {
    fn keys(&self) -> Vec<(&'static str, String)> {
        let Blocks { size, per_subscriber, linger_ms, hold, protocols } = self;
        let mut keys = vec![
            ("size", size.describe()),
            ("blocks_per_subscriber", per_subscriber.describe()),
            ("linger", time(*linger_ms)),
            ("protocols", protocols.describe()),
        ];
        keys.extend(hold.keys());
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_in_the_file() {
        let net = |len| Net6 { addr: Ipv4Addr::new(10, 0, 0, 0).to_ipv6_mapped(), len };
        assert_eq!(net(104).describe(), "10.0.0.0/8");
        assert_eq!(Some(Ipv4Addr::new(192, 0, 2, 1)).describe(), "192.0.2.1");
        assert_eq!(None::<Ipv4Addr>.describe(), "none");
        assert_eq!([1u8, 2, 3, 4, 5, 6].describe(), "1, 2, 3, 4 and 2 more");
        assert_eq!(Vec::<u8>::new().describe(), "none");
        assert_eq!((time(300_000), time(1_500)), ("300s".into(), "1500ms".into()));
        assert_eq!(Filtering::AddressDependent.describe(), "address-dependent");
    }
}
