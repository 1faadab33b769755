//! Parsers of single values: from TOML to valid types.

use gatun_nat::plan::{Net4, Net6, Transport};
use gatun_wire::Prefix64;
use gatun_wire::rfc6052::Prefix64Error;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use toml::de::DeValue;

/// Most words listed in a message.
const WORDS_SHOWN_MAX: usize = 8;

/// Invalid value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Invalid {
    /// Problem with the value.
    pub(crate) what: String,
    /// Correction, if the key's example does not suffice.
    pub(crate) instead: Option<String>,
}

impl Invalid {
    /// Creates an error with the key's example as correction.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Invalid { what: what.into(), instead: None }
    }

    /// Creates an error with a correction.
    pub(crate) fn with(what: impl Into<String>, instead: impl Into<String>) -> Self {
        Invalid { what: what.into(), instead: Some(instead.into()) }
    }
}

/// Result of reading a value.
pub(crate) type Read<T> = Result<T, Invalid>;

/// A string.
pub(crate) fn text<'a>(value: &'a DeValue<'_>) -> Read<&'a str> {
    match value {
        DeValue::String(s) => Ok(s),
        other => Err(Invalid::new(format!("expected a string, found {}", type_name(other)))),
    }
}

/// true or false.
pub(crate) fn flag(value: &DeValue<'_>) -> Read<bool> {
    match value {
        DeValue::Boolean(b) => Ok(*b),
        DeValue::String(s) if matches!(s.as_ref(), "true" | "false") => {
            Err(Invalid::with("expected true or false, found a string", format!("write {s} without quotes")))
        }
        other => Err(Invalid::new(format!("expected true or false, found {}", type_name(other)))),
    }
}

/// A whole number from `min` to `max`.
pub(crate) fn integer(value: &DeValue<'_>, min: u32, max: u32) -> Read<u32> {
    let DeValue::Integer(digits) = value else {
        return Err(Invalid::new(format!("expected a whole number, found {}", type_name(value))));
    };
    let number = i128::from_str_radix(digits.as_str(), digits.radix());
    match number.as_ref().map(|n| u32::try_from(*n)) {
        Ok(Ok(n)) if (min..=max).contains(&n) => Ok(n),
        _ => {
            let what = format!("{} is not between {min} and {max}", shorten(&digits.to_string()));
            let nearer = if number.is_ok_and(|n| n < i128::from(min)) { min } else { max };
            Err(Invalid::with(
                what,
                format!("write a whole number from {min} to {max}, for example {nearer}"),
            ))
        }
    }
}

/// A number of bytes: a whole number, or a string such as "4MiB".
pub(crate) fn bytes(value: &DeValue<'_>, min: u32, max: u32) -> Read<u32> {
    let DeValue::String(s) = value else { return integer(value, min, max) };
    let (digits, unit) = split_number(s);
    let factor = match unit.trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(Invalid::new(format!("\"{}\" is not a number of bytes", shorten(s)))),
    };
    let number = digits.parse::<u32>().ok().and_then(|n| n.checked_mul(factor));
    number
        .filter(|n| (min..=max).contains(n))
        .ok_or_else(|| Invalid::new(format!("\"{}\" is not between {min} and {max} bytes", shorten(s))))
}

/// A time span such as "5m", "2h4m", "1h 30m", "90s" or "1500ms", in milliseconds.
pub(crate) fn duration_ms(value: &DeValue<'_>) -> Read<u32> {
    u32::try_from(long_duration_ms(value)?)
        .map_err(|_| Invalid::with("the time span is too long", "write at most \"49d\""))
}

/// A time span of any length.
pub(crate) fn long_duration_ms(value: &DeValue<'_>) -> Read<u64> {
    let s = match value {
        DeValue::String(s) => s.as_ref(),
        DeValue::Integer(n) => {
            let what = format!("{} has no unit", shorten(&n.to_string()));
            return Err(Invalid::with(what, format!("write \"{}s\" for seconds", shorten(&n.to_string()))));
        }
        other => {
            return Err(Invalid::new(format!("expected a time span in quotes, found {}", type_name(other))));
        }
    };
    let wrong = || Invalid::new(format!("\"{}\" is not a time span", shorten(s)));
    let (mut rest, mut total) = (s.trim(), 0_u64);
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let (digits, after) = split_number(rest);
        let unit_len = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_len);
        let factor = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        let number: u64 = digits.parse().map_err(|_| wrong())?;
        total = number.checked_mul(factor).and_then(|n| total.checked_add(n)).ok_or_else(wrong)?;
        rest = after.trim_start();
    }
    Ok(total)
}

/// A number of bytes as a string with a unit: "50GiB".
pub(crate) fn size(value: &DeValue<'_>) -> Read<u64> {
    let s = text(value)?;
    let (digits, unit) = split_number(s);
    let factor: u64 = match unit.trim() {
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return Err(Invalid::new(format!("\"{}\" is not a size in MiB, GiB or TiB", shorten(s)))),
    };
    let size = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(factor));
    size.filter(|n| *n > 0).ok_or_else(|| Invalid::new(format!("invalid size \"{}\"", shorten(s))))
}

/// Formats milliseconds as a time span that [`duration_ms`] reads.
pub(crate) fn show_duration(ms: u32) -> String {
    let mut parts = String::new();
    let mut rest = ms;
    for (unit, factor) in [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
        if rest / factor > 0 {
            parts.push_str(&format!("{}{unit}", rest / factor));
            rest %= factor;
        }
    }
    if parts.is_empty() { "0s".to_owned() } else { parts }
}

/// One of a list of words.
pub(crate) fn choice<T: Copy>(value: &DeValue<'_>, words: &[(&'static str, T)]) -> Read<T> {
    let list = || {
        let mut list: Vec<_> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        if list.len() > WORDS_SHOWN_MAX {
            list.truncate(WORDS_SHOWN_MAX);
            list.push("... (see the reference page)".to_owned());
        }
        list.join(", ")
    };
    let DeValue::String(s) = value else {
        return Err(Invalid::new(format!("expected one of {}, found {}", list(), type_name(value))));
    };
    words.iter().find(|(word, _)| word == s).map(|(_, value)| *value).ok_or_else(|| {
        let instead = match nearest(s, words.iter().map(|(word, _)| *word)) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("write one of {}", list()),
        };
        Invalid::with(format!("\"{}\": expected one of {}", shorten(s), list()), instead)
    })
}

/// An IPv4 address.
pub(crate) fn address4(value: &DeValue<'_>) -> Read<Ipv4Addr> {
    let s = text(value)?;
    s.parse().map_err(|_| Invalid::new(format!("\"{}\" is not an IPv4 address", shorten(s))))
}

/// An IPv6 address.
pub(crate) fn address6(value: &DeValue<'_>) -> Read<Ipv6Addr> {
    let s = text(value)?;
    s.parse().map_err(|_| Invalid::new(format!("\"{}\" is not an IPv6 address", shorten(s))))
}

/// An IPv4 network; a single address is a /32.
pub(crate) fn net4(value: &DeValue<'_>) -> Read<Net4> {
    parse_net4(text(value)?)
}

/// See [`net4`].
pub(crate) fn parse_net4(s: &str) -> Read<Net4> {
    let no_net = || Invalid::new(format!("\"{}\" is not an IPv4 prefix", shorten(s)));
    let (address, len) = split_prefix(s);
    let address: Ipv4Addr = address.parse().map_err(|_| no_net())?;
    let len = prefix_len(len, 32).ok_or_else(no_net)?;
    Net4::new(address, len).ok_or_else(|| {
        let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
        let network = Ipv4Addr::from(u32::from(address) & mask);
        Invalid::with(
            format!("{address} has bits set after the first {len}"),
            format!("write \"{network}/{len}\", or \"{address}\" for the one address"),
        )
    })
}

/// An IPv6 network; a single address is a /128.
pub(crate) fn net6(value: &DeValue<'_>) -> Read<Net6> {
    parse_net6(text(value)?)
}

/// An IPv6 prefix, or an IPv4 one mapped into ::ffff:0:0/96.
pub(crate) fn net(value: &DeValue<'_>) -> Read<Net6> {
    if text(value)?.contains(':') {
        return net6(value);
    }
    let Net4 { addr, len } = net4(value)?;
    Ok(Net6 { addr: addr.to_ipv6_mapped(), len: len + 96 })
}

/// See [`net6`].
pub(crate) fn parse_net6(s: &str) -> Read<Net6> {
    let no_net = || Invalid::new(format!("\"{}\" is not an IPv6 prefix", shorten(s)));
    let (address, len) = split_prefix(s);
    let address: Ipv6Addr = address.parse().map_err(|_| no_net())?;
    let len = prefix_len(len, 128).ok_or_else(no_net)?;
    Net6::new(address, len).ok_or_else(|| {
        let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
        let network = Ipv6Addr::from(u128::from(address) & mask);
        Invalid::with(
            format!("{address} has bits set after the first {len}"),
            format!("write \"{network}/{len}\", or \"{address}\" for the one address"),
        )
    })
}

/// A translation prefix (RFC 6052 2.2).
pub(crate) fn prefix64(value: &DeValue<'_>) -> Read<Prefix64> {
    let s = text(value)?;
    let (address, len) = split_prefix(s);
    let no_prefix = || Invalid::new(format!("\"{}\" is not an IPv6 prefix", shorten(s)));
    let address: Ipv6Addr = address.parse().map_err(|_| no_prefix())?;
    let Some(len) = len else {
        return Err(Invalid::with(
            format!("{address} has no prefix length"),
            format!("write \"{address}/96\"; 32, 40, 48, 56 and 64 are possible too"),
        ));
    };
    let len = prefix_len(Some(len), 128).ok_or_else(no_prefix)?;
    Prefix64::new(address, len).map_err(|error| match error {
        // RFC 6052 2.2
        Prefix64Error::Length(len) => Invalid::with(
            format!("a translation prefix cannot be {len} bits long (RFC 6052 2.2)"),
            format!("write a length of 32, 40, 48, 56, 64 or 96, for example \"{address}/96\""),
        ),
        Prefix64Error::HostBits => {
            let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
            let network = Ipv6Addr::from(u128::from(address) & mask);
            Invalid::with(
                format!("{address} has bits set after the first {len}"),
                format!("write \"{network}/{len}\""),
            )
        }
        Prefix64Error::UOctet => Invalid::with(
            format!("bits 64 to 71 of {address} are not zero (RFC 6052 2.2)"),
            "choose a /96 whose fifth group is at most ff, for example \"2001:db8:1:2:ff::/96\"",
        ),
    })
}

/// IPv4 addresses: a prefix, one address, or a range "192.0.2.7-192.0.2.9".
pub(crate) fn range4(value: &DeValue<'_>) -> Read<(Ipv4Addr, Ipv4Addr)> {
    let s = text(value)?;
    let Some((first, last)) = s.split_once('-') else {
        let net = parse_net4(s)?;
        let host = u32::MAX.checked_shr(u32::from(net.len)).unwrap_or(0);
        return Ok((net.addr, Ipv4Addr::from(u32::from(net.addr) | host)));
    };
    match (first.trim().parse::<Ipv4Addr>(), last.trim().parse::<Ipv4Addr>()) {
        (Ok(first), Ok(last)) if first <= last => Ok((first, last)),
        (Ok(first), Ok(last)) => {
            Err(Invalid::with("the range ends before it begins", format!("write \"{last}-{first}\"")))
        }
        _ => Err(Invalid::new(format!("\"{}\" is not a range of IPv4 addresses", shorten(s)))),
    }
}

/// Ports: "1024-65535", "80", or the number 80.
pub(crate) fn ports(value: &DeValue<'_>) -> Read<(u16, u16)> {
    let s = match value {
        DeValue::String(s) => s.as_ref(),
        DeValue::Integer(_) => {
            let port = integer(value, 1, 65_535)? as u16;
            return Ok((port, port));
        }
        other => {
            return Err(Invalid::new(format!("expected ports in quotes, found {}", type_name(other))));
        }
    };
    let wrong = || Invalid::new(format!("\"{}\" is not a range of ports", shorten(s)));
    let (first, last) = s.split_once('-').unwrap_or((s, s));
    let first: u16 = first.trim().parse().map_err(|_| wrong())?;
    let last: u16 = last.trim().parse().map_err(|_| wrong())?;
    match (first, last) {
        (0, _) => Err(Invalid::with("port 0 cannot be used", format!("write \"1-{}\"", last.max(1)))),
        (first, last) if first > last => {
            Err(Invalid::with("the range ends before it begins", format!("write \"{last}-{first}\"")))
        }
        range => Ok(range),
    }
}

/// A port of a remote host, with a protocol or for TCP and UDP: "udp/123", 443.
pub(crate) fn remote_port(value: &DeValue<'_>) -> Read<(Option<Transport>, u16)> {
    let DeValue::String(s) = value else { return Ok((None, integer(value, 1, 65_535)? as u16)) };
    let wrong = |what| Invalid::with(what, "write a port, 443, or one with its protocol, \"udp/443\"");
    let parts = s.split_once('/');
    let (protocol, port) =
        parts.ok_or_else(|| wrong(format!("\"{}\" is not a protocol and a port", shorten(s))))?;
    let transport = Transport::named(protocol)
        .filter(|&transport| transport != Transport::Icmp)
        .ok_or_else(|| wrong(format!("\"{}\" has no ports to share", shorten(protocol))))?;
    match port.parse() {
        Ok(port) if port > 0 => Ok((Some(transport), port)),
        _ => Err(wrong(format!("\"{}\" is not a port", shorten(port)))),
    }
}

/// First and last port.
pub(crate) type PortRange = (u16, u16);

/// An IPv6 address with a port or consecutive ports: "[2001:db8::1]:80", "[2001:db8::1]:8000-8010".
pub(crate) fn endpoint6(value: &DeValue<'_>) -> Read<(Ipv6Addr, PortRange)> {
    let s = text(value)?;
    let (at, last) = split_last_port(s);
    match (at.parse::<SocketAddrV6>(), last) {
        (Ok(at), Some(last)) if at.scope_id() == 0 => Ok((*at.ip(), range_to(at.port(), last)?)),
        _ => Err(Invalid::new(format!("\"{}\" is not an IPv6 address in brackets with a port", shorten(s)))),
    }
}

/// An IPv4 address with a port or consecutive ports: "192.0.2.1:80", "192.0.2.1:8000-8010".
pub(crate) fn endpoint4(value: &DeValue<'_>) -> Read<(Ipv4Addr, PortRange)> {
    let s = text(value)?;
    let (at, last) = split_last_port(s);
    match (at.parse::<SocketAddrV4>(), last) {
        (Ok(at), Some(last)) => Ok((*at.ip(), range_to(at.port(), last)?)),
        _ => Err(Invalid::new(format!("\"{}\" is not an IPv4 address with a port", shorten(s)))),
    }
}

/// Text before the `-` of a range of ports, and the last port: `Some(None)` without a range.
fn split_last_port(s: &str) -> (&str, Option<Option<u16>>) {
    match s.rsplit_once('-') {
        Some((at, last)) => (at.trim_end(), last.trim_start().parse().ok().map(Some)),
        None => (s, Some(None)),
    }
}

fn range_to(first: u16, last: Option<u16>) -> Read<PortRange> {
    match last {
        Some(last) if last < first => Err(Invalid::with(
            "the range of ports ends before it begins",
            format!("write \"{last}-{first}\" for the ports"),
        )),
        last => Ok((first, last.unwrap_or(first))),
    }
}

/// A name for operators: up to 63 letters, digits, `-`, `_` and `.`.
pub(crate) fn name(value: &DeValue<'_>) -> Read<String> {
    let s = text(value)?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if s.is_empty() || s.len() > 63 || !s.chars().all(fits) {
        return Err(Invalid::with(
            format!("invalid name \"{}\"", shorten(s)),
            "write 1 to 63 letters, digits, `-`, `_` or `.`",
        ));
    }
    Ok(s.to_owned())
}

/// Name of a network interface.
pub(crate) fn interface(value: &DeValue<'_>) -> Read<String> {
    let s = text(value)?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
    if s.is_empty() || s.len() > 15 || !s.chars().all(fits) {
        return Err(Invalid::with(
            format!("invalid name of a network interface \"{}\"", shorten(s)),
            "write a name that `ip link` shows",
        ));
    }
    Ok(s.to_owned())
}

/// Shortens a text to a line, for messages.
pub(crate) fn shorten(s: &str) -> String {
    let shown: String = s.chars().take(60).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if s.chars().nth(60).is_some() { shown + "..." } else { shown }
}

fn split_prefix(s: &str) -> (&str, Option<&str>) {
    s.split_once('/').map_or((s, None), |(address, len)| (address, Some(len)))
}

/// A prefix length; the maximum if missing.
fn prefix_len(len: Option<&str>, max: u8) -> Option<u8> {
    let Some(len) = len else { return Some(max) };
    let digits = !len.is_empty() && len.bytes().all(|b| b.is_ascii_digit());
    len.parse().ok().filter(|len| digits && *len <= max)
}

fn split_number(s: &str) -> (&str, &str) {
    let end = s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
    s.split_at(end)
}

/// The name most similar to `word`.
pub(crate) fn nearest<'n>(word: &str, names: impl Iterator<Item = &'n str> + Clone) -> Option<&'n str> {
    if word.len() > 64 {
        return None;
    }
    let word = word.to_lowercase().replace('-', "_");
    let begins = |name: &&str| word.len() >= 3 && name.replace('-', "_").starts_with(&word);
    if let Some(name) = names.clone().find(begins) {
        return Some(name);
    }
    names
        .map(|name| (strsim::damerau_levenshtein(&word, &name.replace('-', "_")), name))
        .filter(|(distance, name)| *distance <= 1 + name.len() / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Name of a value's type for messages, such as "a string".
pub(crate) fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
