//! What can be asked: every method and path once. The daemon finds its work here, and [`crate::openapi`] its document.

use crate::schema::Schema;
use crate::types::*;
use serde_json::{Map, Value};

/// An HTTP method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Does what it is named for.
    Post,
    /// Replaces a table as a whole.
    Put,
    /// Adds to a table, and removes from it.
    Patch,
    /// Ends what a filter means.
    Delete,
}

impl Method {
    /// As in a request.
    pub const fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
        }
    }
}

/// Operation of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum What {
    Status,
    History,
    Ports,
    Workers,
    Instances,
    Pools,
    Addresses,
    Blocks,
    Subscribers,
    Bindings,
    Sessions,
    Counters,
    Drops,
    Config,
    Access,
    ConfigHistory,
    PlanConfig,
    ApplyConfig,
    ConfirmConfig,
    RollBackConfig,
    Maps,
    ReplaceMaps,
    EditMaps,
    PlanReplaceMaps,
    PlanEditMaps,
    Exports,
    Log,
    LogLevel,
    SetLogLevel,
    Who,
    WhoAt,
    Where,
    Explain,
    Top,
    Events,
    Trace,
    Drain,
    Undrain,
    ClearSessions,
    ClearBindings,
    EndSessions,
    Metrics,
    OpenApi,
}

/// Right that a token needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Reading.
    Read,
    /// Changing the translator, or seeing what packets hold.
    Write,
    /// Asking the log who had a port at a time.
    Audit,
}

/// A parameter of a query.
#[derive(Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its meaning.
    pub help: &'static str,
    /// Whether it has to be there.
    pub required: bool,
    schema: fn() -> Value,
}

/// A request that there is.
pub struct Endpoint {
    /// Its method.
    pub method: Method,
    /// Its path.
    pub path: &'static str,
    /// Operation.
    pub what: What,
    /// The same in words.
    pub help: &'static str,
    /// Parameters of its query.
    pub parameters: &'static [&'static [Parameter]],
    /// Type of its body.
    pub(crate) body: Option<Described>,
    /// Type of its answer; none for text.
    pub(crate) answer: Option<Described>,
}

/// A type by its schema.
#[derive(Clone, Copy)]
pub(crate) struct Described {
    pub(crate) reference: fn() -> Value,
    pub(crate) define: fn(&mut Map<String, Value>),
}

impl Described {
    const fn of<T: Schema>() -> Described {
        Described { reference: T::reference, define: T::define }
    }
}

const fn optional(name: &'static str, schema: fn() -> Value, help: &'static str) -> Parameter {
    Parameter { name, help, required: false, schema }
}

/// Filter of sessions, bindings, blocks or subscribers: all parameters must match.
pub const FILTER: &[Parameter] = &[
    optional("instance", String::reference, "Name of the instance."),
    optional("pool", String::reference, "Name of the pool."),
    optional("protocol", Protocol::reference, "Protocol."),
    optional("inside", String::reference, "Inside address, or a prefix that it lies in."),
    optional("inside_port", u16::reference, "Inside port or identifier."),
    optional("outside", String::reference, "Public address, or a prefix that it lies in."),
    optional("outside_port", u16::reference, "Public port or identifier."),
];

/// As [`FILTER`], where there are remote hosts.
pub const REMOTE: &[Parameter] = &[
    optional("remote", String::reference, "Remote address, or a prefix that it lies in."),
    optional("remote_port", u16::reference, "Remote port."),
];

/// Paging of a long list.
pub const PAGE: &[Parameter] = &[
    optional("cursor", String::reference, "Where to begin: `next` of the page before."),
    optional("limit", u16::reference, "Entries of a page at most: 1 to 10000, 1000 where nothing is said."),
    optional(
        "format",
        String::reference,
        "`ndjson`: the whole list from `cursor` on, one object a line, without an end to wait for in memory.",
    ),
];

const OF_INSTANCE: &[Parameter] = &[optional("instance", String::reference, "Name of the instance.")];

/// Confirmation that an empty filter means all.
pub const ALL: &[Parameter] = &[optional("all", bool::reference, "`true`: without a filter, all are meant.")];

const PUBLIC_END: &[Parameter] = &[
    Parameter { required: true, ..optional("address", String::reference, "Public address.") },
    Parameter { required: true, ..optional("port", u16::reference, "Public port or identifier.") },
    optional("protocol", Protocol::reference, "Protocol; all where nothing is said."),
];

const AT: &[Parameter] = &[Parameter {
    required: true,
    ..optional(
        "at",
        String::reference,
        "Time: `2026-01-31T13:05:59Z`, with another offset, or `@` and seconds since 1970.",
    )
}];

const INSIDE_HOST: &[Parameter] =
    &[Parameter { required: true, ..optional("address", String::reference, "Address of the inside host.") }];

const FLOW: &[Parameter] = &[
    Parameter { required: true, ..optional("source", String::reference, "Source address.") },
    optional(
        "source_port",
        u16::reference,
        "Source port, of a ping its identifier; 50000 where nothing is said.",
    ),
    Parameter {
        required: true,
        ..optional(
            "destination",
            String::reference,
            "Destination address. An IPv4 one of an IPv6 source stands behind the first translation prefix.",
        )
    },
    optional("destination_port", u16::reference, "Destination port; 443 where nothing is said."),
    Parameter { required: true, ..optional("protocol", Protocol::reference, "Protocol.") },
    optional(
        "instance",
        String::reference,
        "An instance by whose port the packet comes, where ports choose instances.",
    ),
    optional(
        "flags",
        String::reference,
        "Flags of a TCP segment, letters of SAFRPU: `S` where nothing is said.",
    ),
    optional("bytes", u16::reference, "Length from the IP header on: 100 where nothing is said."),
    optional("hops", u8::reference, "TTL or Hop Limit: 64 where nothing is said."),
    optional("fragments", bool::reference, "`true`: an IPv4 packet without DF, which may be cut."),
];

const TRACE: &[Parameter] = &[
    optional("inside", String::reference, "Inside address, or a prefix that it lies in: a subscriber."),
    optional("outside", String::reference, "Public address, or a prefix that it lies in."),
    optional("remote", String::reference, "Remote address, or a prefix that it lies in."),
    optional("protocol", Protocol::reference, "Protocol."),
    optional("port", u16::reference, "A port or identifier of the packet, before or after translation."),
    optional("count", u32::reference, "Packets at most: 1 to 100000, 100 where nothing is said."),
    optional("seconds", u16::reference, "No longer than so: 1 to 3600, 60 where nothing is said."),
    optional("one_in", u32::reference, "One packet in so many; 1 where nothing is said."),
    optional("bytes", u16::reference, "Bytes of each packet: 1 to 1600, 128 where nothing is said."),
];

const ADDRESSES: &[Parameter] = &[
    optional("pool", String::reference, "Name of the pool."),
    optional("address", String::reference, "Public address, or a prefix."),
];

const TOP: &[Parameter] = &[
    optional("count", u16::reference, "How many: 1 to 100, 10 where nothing is said."),
    optional(
        "by",
        String::reference,
        "What they have most of: sessions (where nothing is said), ports, refusals or bytes.",
    ),
];

const OF_PAST: &[Parameter] = &[optional(
    "revision",
    String::reference,
    "One that ran before, by its revision or the beginning of that.",
)];

const INSTEAD_OF: &[Parameter] = &[Parameter {
    required: true,
    ..optional(
        "revision",
        String::reference,
        "The revision that runs, as far as the caller knows: where another one does, nothing is changed (409).",
    )
}];

const TABLE_OF: &[Parameter] = &[optional(
    "instance",
    String::reference,
    "Name of the instance; default: the only one that can have such mappings.",
)];

const INSTEAD_OF_ANY: &[Parameter] = &[optional(
    "revision",
    String::reference,
    "The revision that runs, where that matters: where another one does, nothing is changed (409).",
)];

const LEVEL: &[Parameter] =
    &[Parameter { required: true, ..optional("level", LogLevel::reference, "Up to which level.") }];

const CONFIRM: &[Parameter] = &[optional(
    "confirm_seconds",
    u32::reference,
    "Go back by itself unless it is confirmed within so many seconds: 1 to 86400.",
)];

const CONFIRMED: &[Parameter] = &[Parameter {
    required: true,
    ..optional("revision", String::reference, "The revision that is to be kept: the one that runs.")
}];

const BACK_TO: &[Parameter] = &[optional(
    "to",
    String::reference,
    "Which one, by its revision or the beginning of that; the one before where nothing is said.",
)];

const fn get(path: &'static str, what: What, answer: Described, help: &'static str) -> Endpoint {
    Endpoint { method: Method::Get, path, what, help, parameters: &[], body: None, answer: Some(answer) }
}

impl Endpoint {
    const fn with(mut self, parameters: &'static [&'static [Parameter]]) -> Endpoint {
        self.parameters = parameters;
        self
    }

    const fn by(mut self, method: Method) -> Endpoint {
        self.method = method;
        self
    }

    const fn of_text(mut self) -> Endpoint {
        self.answer = None;
        self
    }

    const fn of_body<T: Schema>(mut self) -> Endpoint {
        self.body = Some(Described::of::<T>());
        self
    }

    /// Right that a token needs.
    pub fn needs(&self) -> Needs {
        match self.what {
            What::WhoAt => Needs::Audit,
            What::Trace => Needs::Write,
            _ if self.method != Method::Get => Needs::Write,
            _ => Needs::Read,
        }
    }

    /// Whether a request has a body.
    pub fn has_body(&self) -> bool {
        self.body.is_some()
    }

    /// Parameters of all groups.
    pub fn all_parameters(&self) -> impl Iterator<Item = &'static Parameter> {
        self.parameters.iter().flat_map(|some| some.iter())
    }
}

impl Parameter {
    pub(crate) fn schema(&self) -> Value {
        (self.schema)()
    }
}

/// All endpoints.
pub const ENDPOINTS: &[Endpoint] = &[
    get("/v1/status", What::Status, Described::of::<Status>(), "The daemon at a glance."),
    get("/v1/history", What::History, Described::of::<History>(), "The last hour, in steps of a few seconds: packets, sessions, subscribers."),
    get("/v1/ports", What::Ports, Described::of::<Vec<Port>>(), "The ports of the configuration."),
    get("/v1/workers", What::Workers, Described::of::<Vec<Worker>>(), "The workers, and what each has done."),
    get("/v1/instances", What::Instances, Described::of::<Vec<Instance>>(), "The instances: packets, state, drops."),
    get("/v1/pools", What::Pools, Described::of::<Vec<Pool>>(), "The pools: how full they are, and what they have done."),
    get("/v1/addresses", What::Addresses, Described::of::<Page<Address>>(), "Public addresses and how full each is.")
        .with(&[POOL_OR_NETWORK, PAGE]),
    get("/v1/blocks", What::Blocks, Described::of::<Page<Block>>(), "Port blocks that subscribers have.")
        .with(&[FILTER, PAGE]),
    get("/v1/subscribers", What::Subscribers, Described::of::<Page<Subscriber>>(), "Subscribers with state. Of a filter, instance, pool and inside address count.")
        .with(&[FILTER, PAGE]),
    get("/v1/bindings", What::Bindings, Described::of::<Page<Binding>>(), "Bindings (BIB entries), by public end.")
        .with(&[FILTER, PAGE]),
    get("/v1/sessions", What::Sessions, Described::of::<Page<Session>>(), "Sessions. One that is there while a list is read is in it once; one that comes or goes meanwhile at most once.")
        .with(&[FILTER, REMOTE, PAGE]),
    get("/v1/counters", What::Counters, Described::of::<Vec<Counter>>(), "All counters of the engine, summed over the workers."),
    get("/v1/drops", What::Drops, Described::of::<Vec<Drop>>(), "Why packets were not forwarded: every reason, with what it means."),
    get("/v1/access", What::Access, Described::of::<Access>(), "Who asks, by socket or token, and what that may do."),
    get("/v1/config", What::Config, Described::of::<Config>(), "The configuration that runs, or one that ran before.")
        .with(&[OF_PAST]),
    get("/v1/config/history", What::ConfigHistory, Described::of::<Vec<ConfigPast>>(), "Configurations that ran before, the last one first."),
    get("/v1/config/plan", What::PlanConfig, Described::of::<ConfigPlan>(), "What would happen if this configuration were applied; nothing does.")
        .by(Method::Post)
        .of_body::<ConfigText>(),
    get("/v1/config/apply", What::ApplyConfig, Described::of::<ConfigApplied>(), "Puts a configuration in place, as a whole or not at all: in the running daemon, and in its file.")
        .by(Method::Post)
        .with(&[INSTEAD_OF, CONFIRM])
        .of_body::<ConfigText>(),
    get("/v1/config/confirm", What::ConfirmConfig, Described::of::<ConfigApplied>(), "Keeps the configuration that waits to be confirmed: writes it to the file.")
        .by(Method::Post)
        .with(&[CONFIRMED]),
    get("/v1/config/rollback", What::RollBackConfig, Described::of::<ConfigApplied>(), "Goes back at once from a configuration that waits to be confirmed; else puts one that ran before in place again.")
        .by(Method::Post)
        .with(&[INSTEAD_OF, BACK_TO, CONFIRM]),
    get("/v1/maps", What::Maps, Described::of::<Page<StaticMap>>(), "Static bindings and explicit address mappings of the configuration.")
        .with(&[OF_INSTANCE, PAGE]),
    get("/v1/maps", What::ReplaceMaps, Described::of::<ConfigApplied>(), "Replaces all mappings of an instance, as a whole or not at all: in the running daemon, and in its configuration or the file that `eam_file` names.")
        .by(Method::Put)
        .with(&[TABLE_OF, INSTEAD_OF_ANY, CONFIRM])
        .of_body::<MapsTable>(),
    get("/v1/maps", What::EditMaps, Described::of::<ConfigApplied>(), "Adds mappings to an instance and removes others, all or none. Sessions of removed mappings end.")
        .by(Method::Patch)
        .with(&[TABLE_OF, INSTEAD_OF_ANY, CONFIRM])
        .of_body::<MapsEdit>(),
    get("/v1/maps/plan", What::PlanReplaceMaps, Described::of::<ConfigPlan>(), "Previews `PUT /v1/maps`; changes nothing.")
        .by(Method::Put)
        .with(&[TABLE_OF])
        .of_body::<MapsTable>(),
    get("/v1/maps/plan", What::PlanEditMaps, Described::of::<ConfigPlan>(), "Previews `PATCH /v1/maps`; changes nothing.")
        .by(Method::Patch)
        .with(&[TABLE_OF])
        .of_body::<MapsEdit>(),
    get("/v1/exports", What::Exports, Described::of::<Vec<Export>>(), "Collectors of events, and what they got."),
    get("/v1/log", What::Log, Described::of::<LogStore>(), "The log of who had which port when: what is in it, and what was lost."),
    get("/v1/log-level", What::LogLevel, Described::of::<Logged>(), "How much the daemon writes to its standard error."),
    get("/v1/log-level", What::SetLogLevel, Described::of::<Logged>(), "Lets it write more or less, until it ends.")
        .by(Method::Post)
        .with(&[LEVEL]),
    get("/v1/who", What::Who, Described::of::<Who>(), "Who is behind a public address and port now.")
        .with(&[PUBLIC_END]),
    get("/v1/log/who", What::WhoAt, Described::of::<WhoAt>(), "Who had a public address and port at a time, by the log. The log keeps each question, and who asked it.")
        .with(&[PUBLIC_END, AT]),
    get("/v1/where", What::Where, Described::of::<Where>(), "Where an inside host is seen from outside now.")
        .with(&[INSIDE_HOST]),
    get("/v1/explain", What::Explain, Described::of::<Explanation>(), "What would become of a packet now, and why; nothing is changed.")
        .with(&[FLOW]),
    get("/v1/top", What::Top, Described::of::<Vec<Subscriber>>(), "The subscribers with most sessions, or of what the query says.")
        .with(&[TOP]),
    get("/v1/events", What::Events, Described::of::<String>(), "What happens to state from now on: one JSON object a line, as the [events] section has it; empty lines when nothing happens.")
        .of_text(),
    get("/v1/trace", What::Trace, Described::of::<Page<TracedPacket>>(), "Packets as they pass from now on, each before and after: one a line. One trace at a time.")
        .with(&[TRACE]),
    get("/v1/addresses/drain", What::Drain, Described::of::<Drained>(), "Gives public addresses no new bindings; those that there are live on.")
        .by(Method::Post)
        .with(&[ADDRESSES]),
    get("/v1/addresses/undrain", What::Undrain, Described::of::<Drained>(), "Gives public addresses new bindings again.")
        .by(Method::Post)
        .with(&[ADDRESSES]),
    get("/v1/sessions", What::ClearSessions, Described::of::<Cleared>(), "Ends sessions before their time. The next packet from inside opens another.")
        .by(Method::Delete)
        .with(&[FILTER, REMOTE, ALL]),
    get("/v1/bindings", What::ClearBindings, Described::of::<Cleared>(), "Ends bindings with all of their sessions; those of the configuration stay.")
        .by(Method::Delete)
        .with(&[FILTER, ALL]),
    get("/v1/sessions/end", What::EndSessions, Described::of::<Cleared>(), "Ends the sessions of a list; those that are not there are left out of the count.")
        .by(Method::Post)
        .of_body::<SessionKeys>(),
    get("/metrics", What::Metrics, Described::of::<String>(), "Metrics for Prometheus.").of_text(),
    get("/openapi.json", What::OpenApi, Described::of::<String>(), "This document.").of_text(),
];

const POOL_OR_NETWORK: &[Parameter] = &[
    optional("pool", String::reference, "Name of the pool; default: all pools."),
    optional("outside", String::reference, "Public address, or a prefix that it lies in; default: all."),
];

/// Error of a request without an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// No such path.
    Path,
    /// The path has these methods only.
    Method(Vec<&'static str>),
}

/// Finds what a request asks for.
///
/// # Errors
/// An unknown path, or a method that it does not have.
pub fn find(method: &str, path: &str) -> Result<&'static Endpoint, Unknown> {
    let of_path = || ENDPOINTS.iter().filter(|endpoint| endpoint.path == path);
    let methods: Vec<&str> = of_path().map(|endpoint| endpoint.method.name()).collect();
    match of_path().find(|endpoint| endpoint.method.name() == method) {
        Some(endpoint) => Ok(endpoint),
        None if methods.is_empty() => Err(Unknown::Path),
        None => Err(Unknown::Method(methods)),
    }
}

/// Writes a path with its query.
pub fn with_query(path: &str, query: &[(&str, String)]) -> String {
    let mut target = path.to_owned();
    for (n, (name, value)) in query.iter().enumerate() {
        target.push(if n == 0 { '?' } else { '&' });
        target.push_str(name);
        target.push('=');
        for byte in value.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' | b'/' => {
                    target.push(char::from(byte));
                }
                _ => target.push_str(&format!("%{byte:02X}")),
            }
        }
    }
    target
}

/// Reads a query: names and values.
///
/// # Errors
/// Malformed percent-encoding, or a pair without `=`.
pub fn parse_query(query: &str) -> Result<Vec<(String, String)>, String> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').ok_or_else(|| format!("'{pair}' is not name=value"))?;
            Ok((decode(name)?, decode(value)?))
        })
        .collect()
}

fn decode(text: &str) -> Result<String, String> {
    let wrong = || format!("'{text}' is not percent-encoded UTF-8");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next().ok_or_else(wrong)?, rest.next().ok_or_else(wrong)?];
                let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
                let digits = std::str::from_utf8(&digits).ok().filter(|_| is_hex);
                digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or_else(wrong)?
            }
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_comes_back_as_it_was_written() {
        let query = [("inside", "2001:db8::/64".to_owned()), ("instance", "a b&c=d%é".to_owned())];
        let target = with_query("/v1/sessions", &query);
        let (path, text) = target.split_once('?').unwrap();
        assert_eq!(path, "/v1/sessions");
        let read = parse_query(text).unwrap();
        assert_eq!(read, query.map(|(name, value)| (name.to_owned(), value)));
        assert_eq!(parse_query("").unwrap(), []);
    }

    #[test]
    fn what_is_no_query_is_refused() {
        for wrong in ["inside", "a=%", "a=%f", "a=%zz", "a=%ff", "a=%+1"] {
            assert!(parse_query(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_method_and_path_is_there_once_and_a_wrong_method_names_the_right_ones() {
        for (n, one) in ENDPOINTS.iter().enumerate() {
            assert_eq!(find(one.method.name(), one.path).unwrap().what, one.what);
            let same = |other: &&Endpoint| (other.method, other.path) == (one.method, one.path);
            assert_eq!(ENDPOINTS.iter().filter(same).count(), 1, "{n}");
            let mut names: Vec<_> = one.all_parameters().map(|parameter| parameter.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), one.all_parameters().count(), "{}", one.path);
        }
        assert_eq!(find("PUT", "/v1/sessions").err(), Some(Unknown::Method(vec!["GET", "DELETE"])));
        assert_eq!(find("GET", "/v2/sessions").err(), Some(Unknown::Path));
    }
}
