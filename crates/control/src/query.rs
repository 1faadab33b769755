//! Conversion of query strings to the engine's types.

use crate::conversion::Names;
use gatun_api::paths::Endpoint;
use gatun_api::types::Protocol;
use gatun_nat::inspect::Selection;
use gatun_nat::plan::{Net4, Net6, Transport};
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

/// Entries of a page: default and maximum.
const LIMIT: usize = 1_000;
pub(crate) const LIMIT_MAX: usize = 10_000;

/// Error of an invalid request, with advice.
#[derive(Debug)]
pub(crate) struct BadRequest {
    pub(crate) what: String,
    pub(crate) hint: String,
}

impl BadRequest {
    pub(crate) fn new(what: impl Into<String>, hint: impl Into<String>) -> BadRequest {
        BadRequest { what: what.into(), hint: hint.into() }
    }
}

/// A query's parameters, each known and given once.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the parameters of a request.
    pub(crate) fn read(endpoint: &Endpoint, text: &str) -> Result<Query, BadRequest> {
        let pairs =
            gatun_api::paths::parse_query(text).map_err(|what| BadRequest::new(what, "write name=value"))?;
        let known: Vec<&str> = endpoint.all_parameters().map(|parameter| parameter.name).collect();
        for (n, (name, _)) in pairs.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let hint = match known.is_empty() {
                    true => "this path has no parameters".to_owned(),
                    false => format!("parameters: {}", known.join(", ")),
                };
                return Err(BadRequest::new(format!("unknown parameter '{name}'"), hint));
            }
            if pairs.iter().take(n).any(|(other, _)| other == name) {
                return Err(BadRequest::new(format!("duplicate parameter '{name}'"), "give it once"));
            }
        }
        let query = Query(pairs);
        match endpoint.all_parameters().find(|wanted| wanted.required && query.get(wanted.name).is_none()) {
            Some(missing) => {
                Err(BadRequest::new(format!("missing parameter '{}'", missing.name), missing.help))
            }
            None => Ok(query),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn parse<T: FromStr>(&self, name: &str, is: &str) -> Result<Option<T>, BadRequest> {
        let parse = |value: &str| {
            value
                .parse()
                .map_err(|_| BadRequest::new(format!("{name}: '{}' is not {is}", shorten(value)), ""))
        };
        self.get(name).map(parse).transpose()
    }

    /// Number of entries of a page.
    pub(crate) fn limit(&self) -> Result<usize, BadRequest> {
        let limit = self.parse("limit", "a number")?.unwrap_or(LIMIT);
        match (1..=LIMIT_MAX).contains(&limit) {
            true => Ok(limit),
            false => Err(BadRequest::new(format!("limit: {limit} is not from 1 to {LIMIT_MAX}"), "")),
        }
    }

    /// Returns true for the whole list, one object a line.
    pub(crate) fn is_stream(&self) -> Result<bool, BadRequest> {
        match self.get("format") {
            None | Some("json") => Ok(false),
            Some("ndjson") => Ok(true),
            Some(other) => Err(BadRequest::new(
                format!("format: unknown format '{}'", shorten(other)),
                "`ndjson`, or nothing for pages",
            )),
        }
    }

    /// Filter of sessions, bindings, blocks or subscribers.
    pub(crate) fn selection(&self, names: &Names) -> Result<Selection, BadRequest> {
        let instance = self.get("instance").map(|name| {
            let found = names.stateful().position(|known| &*known.0 == name);
            let found = found.and_then(|number| u8::try_from(number).ok());
            found.ok_or_else(|| unknown("instance", name, names.stateful().map(|known| &*known.0)))
        });
        let pool = self.get("pool").map(|name| self.pool(names, name));
        Ok(Selection {
            instance: instance.transpose()?,
            pool: pool.transpose()?,
            transport: self.get("protocol").map(|_| self.protocol()).transpose()?.flatten(),
            inside: self.get("inside").map(|value| network("inside", value)).transpose()?,
            inside_port: self.parse("inside_port", "a port")?,
            outside: self.get("outside").map(|value| network4("outside", value)).transpose()?,
            outside_port: self.parse("outside_port", "a port")?,
            remote: self.get("remote").map(|value| network4("remote", value)).transpose()?,
            remote_port: self.parse("remote_port", "a port")?,
        })
    }

    pub(crate) fn pool(&self, names: &Names, name: &str) -> Result<usize, BadRequest> {
        let found = names.pools.iter().position(|known| &*known.0 == name);
        found.ok_or_else(|| unknown("pool", name, names.pools.iter().map(|known| &*known.0)))
    }

    pub(crate) fn protocol(&self) -> Result<Option<Transport>, BadRequest> {
        let Some(text) = self.get("protocol") else { return Ok(None) };
        let protocol = text.parse().map_err(|what| BadRequest::new(format!("protocol: {what}"), ""))?;
        transport(protocol).map(Some)
    }
}

pub(crate) fn transport(protocol: Protocol) -> Result<Transport, BadRequest> {
    match protocol {
        Protocol::Tcp => Ok(Transport::Tcp),
        Protocol::Udp => Ok(Transport::Udp),
        Protocol::Icmp => Ok(Transport::Icmp),
        Protocol::Other => Err(BadRequest::new("protocol: unknown word", "write `tcp`, `udp` or `icmp`")),
    }
}

fn unknown<'n>(what: &str, name: &str, known: impl Iterator<Item = &'n str>) -> BadRequest {
    let known: Vec<&str> = known.collect();
    let hint = match known.is_empty() {
        true => format!("there is no stateful {what}"),
        false => format!("known: {}", known.join(", ")),
    };
    BadRequest::new(format!("unknown {what} '{}'", shorten(name)), hint)
}

/// Start of a client's text, short enough for a message.
fn shorten(text: &str) -> String {
    text.chars().take(60).collect()
}

/// Inside network; IPv4 ones become ::ffff:a.b.c.d.
pub(crate) fn network(name: &str, text: &str) -> Result<Net6, BadRequest> {
    let wrong =
        || BadRequest::new(format!("{name}: '{}' is not an address or address/length", shorten(text)), "");
    let (address, len) = split(text).ok_or_else(wrong)?;
    let net = match address {
        IpAddr::V6(address) => Net6::new(address, len.unwrap_or(128)),
        IpAddr::V4(address) => {
            len.unwrap_or(32).checked_add(96).and_then(|len| Net6::new(address.to_ipv6_mapped(), len))
        }
    };
    net.ok_or_else(|| host_bits(name, text))
}

pub(crate) fn network4(name: &str, text: &str) -> Result<Net4, BadRequest> {
    let wrong = || {
        BadRequest::new(format!("{name}: '{}' is not an IPv4 address or address/length", shorten(text)), "")
    };
    let (address, len) = split(text).ok_or_else(wrong)?;
    let IpAddr::V4(address) = address else { return Err(wrong()) };
    Net4::new(address, len.unwrap_or(32)).ok_or_else(|| host_bits(name, text))
}

fn host_bits(name: &str, text: &str) -> BadRequest {
    BadRequest::new(
        format!("{name}: '{}' is longer than an address, or has bits set after its length", shorten(text)),
        "clear the bits after the length",
    )
}

fn split(text: &str) -> Option<(IpAddr, Option<u8>)> {
    match text.split_once('/') {
        None => Some((text.parse().ok()?, None)),
        Some((address, len)) => Some((address.parse().ok()?, Some(len.parse().ok()?))),
    }
}

/// A public address.
pub(crate) fn address4(text: &str) -> Result<Ipv4Addr, BadRequest> {
    text.parse()
        .map_err(|_| BadRequest::new(format!("address: '{}' is not an IPv4 address", shorten(text)), ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_of_either_family_are_parsed() {
        assert_eq!(network("x", "2001:db8::/32").unwrap().len, 32);
        assert_eq!(network("x", "2001:db8::1").unwrap().len, 128);
        let net = network("x", "100.64.0.0/10").unwrap();
        assert_eq!((net.len, net.addr), (106, "::ffff:100.64.0.0".parse().unwrap()));
        assert!(network("x", "10.1.2.3/33").is_err() && network("x", "2001:db8::/129").is_err());
        assert!(network("x", "2001:db8::1/64").is_err_and(|wrong| wrong.what.contains("after its length")));
        for wrong in ["", "x", "/", "1.2.3.4/", "1.2.3.4/x", "1.2.3.4/256", "1.2.3.4/-1"] {
            assert!(network("x", wrong).is_err() && network4("x", wrong).is_err(), "{wrong}");
        }
        assert!(network4("x", "::1").is_err());
    }
}
