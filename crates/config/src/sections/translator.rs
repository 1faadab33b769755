//! `[translator]`, and the keys of it that an instance may override.

use crate::keys;
use crate::problem::Problems;
use crate::reader::Table;
use crate::value::{self, Invalid, Read};
use gatun_wire::Settings;
use std::net::{Ipv4Addr, Ipv6Addr};
use toml::Spanned;
use toml::de::DeValue;

/// The section.
#[derive(Default)]
pub(crate) struct Translator {
    pub(crate) own4: Option<Spanned<Ipv4Addr>>,
    pub(crate) own6: Option<Spanned<Ipv6Addr>>,
    pub(crate) defaults: Defaults,
}

/// Defaults of instances.
#[derive(Clone, Copy, Default)]
pub(crate) struct Defaults {
    settings: Settings,
    /// `tcp_mss_max`, if set.
    mss_max: Option<u16>,
}

pub(crate) fn read(table: &Table<'_>, problems: &mut Problems) -> Translator {
    let own4 = table.get("own4", problems, own_address4);
    let own6 = table.get("own6", problems, own_address6);
    Translator {
        own4: own4.map(|address| Spanned::new(table.span_of("own4"), address)),
        own6: own6.map(|address| Spanned::new(table.span_of("own6"), address)),
        defaults: Defaults::default().overridden(table, problems),
    }
}

impl Defaults {
    /// Applies the header translation keys of `table`.
    fn overridden(self, table: &Table<'_>, problems: &mut Problems) -> Defaults {
        let Defaults { settings: mut s, mut mss_max } = self;
        set(&mut s.mtu4, table.integer("mtu4", problems));
        set(&mut s.mtu6, table.integer("mtu6", problems));
        set(&mut s.lowest_ipv6_mtu, table.integer("lowest_ipv6_mtu", problems));
        mss_max = read_mss_max(table, problems).or(mss_max);
        set(&mut s.tos_6to4, table.get("tos", problems, copy_or_byte));
        set(&mut s.traffic_class_4to6, table.get("traffic_class", problems, copy_or_byte));
        let zero = table.get("udp_zero_checksum", problems, |v| value::choice(v, keys::ZERO_CHECKSUM));
        set(&mut s.udp_zero_checksum, zero);
        set(&mut s.icmp4_error_max, table.integer("icmp4_error_max", problems).map(|n| n as u16));
        doubtful_sizes(table, &s, problems);
        Defaults { settings: s, mss_max }
    }

    /// Settings of header translation for an instance with the section `table`.
    pub(crate) fn settings(self, table: &Table<'_>, problems: &mut Problems) -> Settings {
        let Defaults { settings, mss_max } = self.overridden(table, problems);
        let carried = (settings.mtu4 - TCP_IPV4).min(settings.mtu6 - TCP_IPV6);
        Settings { mss_max: mss_max.unwrap_or(carried as u16), ..settings }
    }

    /// MTU and largest segment size of a NAT44 instance with the section `table`.
    pub(crate) fn link(self, table: &Table<'_>, problems: &mut Problems) -> (u32, u16) {
        let mtu = table.integer("mtu4", problems).unwrap_or(self.settings.mtu4);
        let mss_max = read_mss_max(table, problems).or(self.mss_max);
        (mtu, mss_max.unwrap_or((mtu - TCP_IPV4) as u16))
    }
}

/// Bytes of IP and TCP headers without options in front of a segment's data (RFC 9293 3.7.1). Every MTU is
/// larger.
const TCP_IPV4: u32 = 40;
const TCP_IPV6: u32 = 60;

fn read_mss_max(table: &Table<'_>, problems: &mut Problems) -> Option<u16> {
    table.integer("tcp_mss_max", problems).map(|n| n as u16)
}

/// Warns about sizes that are valid but rarely intended, at one of the keys concerned.
fn doubtful_sizes(table: &Table<'_>, s: &Settings, problems: &mut Problems) {
    if table.node("mtu4").is_some() && s.mtu4 < 1260 {
        // RFC 8200 5: a link below 1280 must fragment by itself, because IPv6 hosts send packets of up to
        // 1280 bytes.
        let what = format!("`mtu4` = {} is less than an IPv6 packet of 1,280 bytes needs (1260)", s.mtu4);
        problems.warn(table.span_of("mtu4"), what, "write `mtu4 = 1260` or more, if the link carries it");
    }
    let written = ["lowest_ipv6_mtu", "mtu6"].into_iter().find(|key| table.node(key).is_some());
    if let Some(key) = written
        && s.lowest_ipv6_mtu > s.mtu6
    {
        let what = format!("`lowest_ipv6_mtu` = {} is larger than `mtu6` = {}", s.lowest_ipv6_mtu, s.mtu6);
        problems.warn(table.span_of(key), what, format!("write `lowest_ipv6_mtu = {}` or less", s.mtu6));
    }
    if table.node("icmp4_error_max").is_some() && s.icmp4_error_max < 576 {
        let what = format!("`icmp4_error_max` = {} is below 576 (RFC 1812 4.3.2.3)", s.icmp4_error_max);
        problems.warn(table.span_of("icmp4_error_max"), what, "write `icmp4_error_max = 576`");
    }
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

/// "copy", or a byte.
fn copy_or_byte(value: &DeValue<'_>) -> Read<Option<u8>> {
    match value {
        DeValue::String(s) if s == "copy" => Ok(None),
        DeValue::Integer(_) => value::integer(value, 0, 255).map(|n| Some(n as u8)),
        _ => Err(Invalid::with(
            "neither \"copy\" nor a whole number",
            "write \"copy\", or a number from 0 to 255",
        )),
    }
}

fn own_address4(value: &DeValue<'_>) -> Read<Ipv4Addr> {
    let a = value::address4(value)?;
    if a.is_unspecified() || a.is_loopback() || a.is_multicast() || a.is_broadcast() || a.octets()[0] == 0 {
        return Err(Invalid::new(format!("no packet can come from {a}")));
    }
    Ok(a)
}

fn own_address6(value: &DeValue<'_>) -> Read<Ipv6Addr> {
    let a = value::address6(value)?;
    if a.is_unspecified() || a.is_loopback() || a.is_multicast() || a.is_unicast_link_local() {
        return Err(Invalid::new(format!("{a} cannot be the source of an error that crosses a router")));
    }
    Ok(a)
}
