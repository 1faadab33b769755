//! List of all methods and paths. The daemon dispatches by it, and [`crate::openapi`] describes it.

use crate::schema::Schema;
use crate::types::*;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// An HTTP method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Performs the action that the path names.
    Post,
    /// Replaces a whole table.
    Put,
    /// Adds entries to a table and removes others.
    Patch,
    /// Ends the entries that match a filter.
    Delete,
}

impl Method {
    /// Returns the method as in a request.
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
pub enum Operation {
    Status,
    Health,
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
    FastPath,
    Offload,
    SwitchGone,
    Peer,
    PeerRelease,
    PeerTakeover,
    Cluster(ClusterOperation),
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

/// Operation about a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ClusterOperation {
    State,
    Events,
    Drain,
    Undrain,
    Gone,
    Apply,
    Confirm,
    RollBack,
    Revisions,
    RevisionText,
}

/// Right that a token needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Read.
    Read,
    /// Change the translator, or see packets' contents.
    Write,
    /// Ask the log who had a port at a time.
    Audit,
}

/// A parameter of a query.
#[derive(Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its meaning.
    pub help: &'static str,
    /// True if the parameter is mandatory.
    pub required: bool,
    schema: fn() -> Value,
}

/// Request of the API.
pub struct Endpoint {
    /// Its method.
    pub method: Method,
    /// Its path.
    pub path: &'static str,
    /// Operation.
    pub what: Operation,
    /// Description of the operation.
    pub help: &'static str,
    /// Parameters of its query.
    pub parameters: &'static [&'static [Parameter]],
    /// Type of its body.
    pub(crate) body: Option<Described>,
    /// Type of its answer; `None` for text.
    pub(crate) answer: Option<Described>,
}

/// A type by its schema.
#[derive(Clone, Copy)]
pub(crate) struct Described {
    pub(crate) reference: fn() -> Value,
    pub(crate) define: fn(&mut Map<String, Value>),
    #[cfg(test)]
    pub(crate) read: fn(Value) -> serde_json::Result<()>,
}

impl Described {
    const fn of<T: Schema + DeserializeOwned>() -> Described {
        Described {
            reference: T::reference,
            define: T::define,
            #[cfg(test)]
            read: |value| serde_json::from_value::<T>(value).map(drop),
        }
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
    optional("inside", String::reference, "Inside address or prefix."),
    optional("inside_port", u16::reference, "Inside port or identifier."),
    optional("outside", String::reference, "Public address or prefix."),
    optional("outside_port", u16::reference, "Public port or identifier."),
];

/// Parameters of [`FILTER`], and those for remote hosts.
pub const REMOTE: &[Parameter] = &[
    optional("remote", String::reference, "Remote address or prefix."),
    optional("remote_port", u16::reference, "Remote port."),
];

/// Paging of a long list.
pub const PAGE: &[Parameter] = &[
    optional("cursor", String::reference, "Position of the page: `next` of the previous page."),
    optional("limit", u16::reference, "Maximum entries of a page: 1 to 10000; default 1000."),
    optional(
        "format",
        String::reference,
        "`ndjson`: the whole list from `cursor` on as a stream, one object per line.",
    ),
];

const OF_INSTANCE: &[Parameter] = &[optional("instance", String::reference, "Name of the instance.")];

/// Confirmation that an empty filter matches everything.
pub const ALL: &[Parameter] =
    &[optional("all", bool::reference, "`true`: allow an empty filter, which matches everything.")];

const PUBLIC_END: &[Parameter] = &[
    Parameter { required: true, ..optional("address", String::reference, "Public address.") },
    Parameter { required: true, ..optional("port", u16::reference, "Public port or identifier.") },
    optional("protocol", Protocol::reference, "Protocol; default: all."),
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
    optional("source_port", u16::reference, "Source port, or identifier of a ping; default 50000."),
    Parameter {
        required: true,
        ..optional(
            "destination",
            String::reference,
            "Destination address. If the source is IPv6, an IPv4 destination is embedded in the first translation prefix.",
        )
    },
    optional("destination_port", u16::reference, "Destination port; default 443."),
    Parameter { required: true, ..optional("protocol", Protocol::reference, "Protocol.") },
    optional(
        "instance",
        String::reference,
        "Instance by whose port the packet arrives, if ports select instances.",
    ),
    optional("flags", String::reference, "Flags of a TCP segment, letters of SAFRPU; default `S`."),
    optional("bytes", u16::reference, "Length from the IP header on; default 100."),
    optional("hops", u8::reference, "TTL or Hop Limit; default 64."),
    optional("fragments", bool::reference, "`true`: an IPv4 packet without DF, which may be fragmented."),
];

const TRACE: &[Parameter] = &[
    optional("inside", String::reference, "Inside address or prefix, for example of a subscriber."),
    optional("outside", String::reference, "Public address or prefix."),
    optional("remote", String::reference, "Remote address or prefix."),
    optional("protocol", Protocol::reference, "Protocol."),
    optional("port", u16::reference, "Any port or identifier of the packet, before or after translation."),
    optional("count", u32::reference, "Maximum number of packets: 1 to 100000; default 100."),
    optional("seconds", u16::reference, "Maximum duration in seconds: 1 to 3600; default 60."),
    optional("one_in", u32::reference, "Sampling: one packet in this many; default 1."),
    optional("bytes", u16::reference, "Bytes captured of each packet: 1 to 1600; default 128."),
];

const ADDRESSES: &[Parameter] = &[
    optional("pool", String::reference, "Name of the pool."),
    optional("address", String::reference, "Public address or prefix."),
];

const TOP: &[Parameter] = &[
    optional("count", u16::reference, "Number of subscribers: 1 to 100; default 10."),
    optional("by", String::reference, "Sort key: sessions (default), ports, refusals or bytes."),
];

const OF_PAST: &[Parameter] = &[optional(
    "revision",
    String::reference,
    "An earlier configuration, by its revision or the beginning of it.",
)];

const INSTEAD_OF: &[Parameter] = &[Parameter {
    required: true,
    ..optional(
        "revision",
        String::reference,
        "The running revision, as far as the caller knows. If another one runs, nothing is changed (409).",
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
    "The running revision, if it matters. If another one runs, nothing is changed (409).",
)];

const LEVEL: &[Parameter] = &[Parameter {
    required: true,
    ..optional("level", LogLevel::reference, "Highest level that is logged.")
}];

const SWITCH: &[Parameter] =
    &[Parameter { required: true, ..optional("switch", String::reference, "Name of the switch.") }];

const NODE: &[Parameter] = &[optional("node", String::reference, "Name of the node; default: this one.")];

const OTHER_NODE: &[Parameter] =
    &[Parameter { required: true, ..optional("node", String::reference, "Name of the node.") }];

const REVISION_NUMBER: &[Parameter] =
    &[Parameter { required: true, ..optional("number", u64::reference, "Number of the revision.") }];

const CONFIRM: &[Parameter] = &[optional(
    "confirm_seconds",
    u32::reference,
    "Roll back automatically unless confirmed within this many seconds: 1 to 86400.",
)];

const CONFIRMED: &[Parameter] = &[Parameter {
    required: true,
    ..optional("revision", String::reference, "The revision to confirm: the running one.")
}];

const BACK_TO: &[Parameter] =
    &[optional("to", String::reference, "Revision, or the beginning of it; default: the previous one.")];

const fn get(path: &'static str, what: Operation, answer: Described, help: &'static str) -> Endpoint {
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

    const fn of_body<T: Schema + DeserializeOwned>(mut self) -> Endpoint {
        self.body = Some(Described::of::<T>());
        self
    }

    /// Returns the right that a token needs.
    pub fn needs(&self) -> Permission {
        match self.what {
            Operation::WhoAt => Permission::Audit,
            Operation::Trace => Permission::Write,
            _ if self.method != Method::Get => Permission::Write,
            _ => Permission::Read,
        }
    }

    /// Returns true if a request has a body.
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
    get("/v1/status", Operation::Status, Described::of::<Status>(), "Summary of the daemon."),
    get("/v1/health", Operation::Health, Described::of::<Health>(), "Health of the daemon with reasons, and announced routes."),
    get("/v1/history", Operation::History, Described::of::<History>(), "The last hour, in steps of a few seconds: packets, sessions, subscribers."),
    get("/v1/ports", Operation::Ports, Described::of::<Vec<Port>>(), "The ports of the configuration."),
    get("/v1/workers", Operation::Workers, Described::of::<Vec<Worker>>(), "The workers and their counters."),
    get("/v1/instances", Operation::Instances, Described::of::<Vec<Instance>>(), "The instances: packets, state, drops."),
    get("/v1/pools", Operation::Pools, Described::of::<Vec<Pool>>(), "The pools: usage and counters."),
    get("/v1/addresses", Operation::Addresses, Described::of::<Page<Address>>(), "Public addresses and their usage.")
        .with(&[POOL_OR_NETWORK, PAGE]),
    get("/v1/blocks", Operation::Blocks, Described::of::<Page<Block>>(), "Port blocks allocated to subscribers.")
        .with(&[FILTER, PAGE]),
    get("/v1/subscribers", Operation::Subscribers, Described::of::<Page<Subscriber>>(), "Subscribers with state. The filter uses instance, pool and inside address only.")
        .with(&[FILTER, PAGE]),
    get("/v1/bindings", Operation::Bindings, Described::of::<Page<Binding>>(), "Bindings (BIB entries), sorted by public address and port.")
        .with(&[FILTER, PAGE]),
    get("/v1/sessions", Operation::Sessions, Described::of::<Page<Session>>(), "Sessions. A session that exists while a list is read is in it once; one that begins or ends meanwhile, at most once.")
        .with(&[FILTER, REMOTE, PAGE]),
    get("/v1/counters", Operation::Counters, Described::of::<Vec<Counter>>(), "All counters of the engine, summed over the workers."),
    get("/v1/drops", Operation::Drops, Described::of::<Vec<Drop>>(), "Drop reasons with their meaning, and dropped packets of each."),
    get("/v1/access", Operation::Access, Described::of::<Access>(), "Identity and rights of the client, by socket or token."),
    get("/v1/config", Operation::Config, Described::of::<Config>(), "The running configuration or an earlier one.")
        .with(&[OF_PAST]),
    get("/v1/config/history", Operation::ConfigHistory, Described::of::<Vec<ConfigPast>>(), "Earlier configurations, the latest first."),
    get("/v1/config/plan", Operation::PlanConfig, Described::of::<ConfigPlan>(), "Previews a configuration; changes nothing.")
        .by(Method::Post)
        .of_body::<ConfigText>(),
    get("/v1/config/apply", Operation::ApplyConfig, Described::of::<ConfigApplied>(), "Applies a configuration, as a whole or not at all: in the running daemon, and in its file.")
        .by(Method::Post)
        .with(&[INSTEAD_OF, CONFIRM])
        .of_body::<ConfigText>(),
    get("/v1/config/confirm", Operation::ConfirmConfig, Described::of::<ConfigApplied>(), "Confirms the pending configuration and writes it to the file.")
        .by(Method::Post)
        .with(&[CONFIRMED]),
    get("/v1/config/rollback", Operation::RollBackConfig, Described::of::<ConfigApplied>(), "Rolls back a pending configuration; otherwise applies an earlier one again.")
        .by(Method::Post)
        .with(&[INSTEAD_OF, BACK_TO, CONFIRM]),
    get("/v1/maps", Operation::Maps, Described::of::<Page<StaticMap>>(), "Static bindings and explicit address mappings of the configuration.")
        .with(&[OF_INSTANCE, PAGE]),
    get("/v1/maps", Operation::ReplaceMaps, Described::of::<ConfigApplied>(), "Replaces all mappings of an instance, as a whole or not at all: in the running daemon, and in its configuration or the file that `eam_file` names.")
        .by(Method::Put)
        .with(&[TABLE_OF, INSTEAD_OF_ANY, CONFIRM])
        .of_body::<MapsTable>(),
    get("/v1/maps", Operation::EditMaps, Described::of::<ConfigApplied>(), "Adds mappings to an instance and removes others, all or none. Sessions of removed mappings end.")
        .by(Method::Patch)
        .with(&[TABLE_OF, INSTEAD_OF_ANY, CONFIRM])
        .of_body::<MapsEdit>(),
    get("/v1/maps/plan", Operation::PlanReplaceMaps, Described::of::<ConfigPlan>(), "Previews `PUT /v1/maps`; changes nothing.")
        .by(Method::Put)
        .with(&[TABLE_OF])
        .of_body::<MapsTable>(),
    get("/v1/maps/plan", Operation::PlanEditMaps, Described::of::<ConfigPlan>(), "Previews `PATCH /v1/maps`; changes nothing.")
        .by(Method::Patch)
        .with(&[TABLE_OF])
        .of_body::<MapsEdit>(),
    get("/v1/exports", Operation::Exports, Described::of::<Vec<Export>>(), "Collectors of events and their counters."),
    get("/v1/fastpath", Operation::FastPath, Described::of::<FastPath>(), "The kernel fast path: sessions, packets by reason, refusals."),
    get("/v1/offload", Operation::Offload, Described::of::<Offload>(), "P4 switches that translate established sessions: their state, sessions, refusals."),
    get("/v1/offload/gone", Operation::SwitchGone, Described::of::<Offload>(), "Declares a P4 switch gone: it has no entries and does not forward. Sessions that wait for it are released.")
        .by(Method::Post)
        .with(&[SWITCH]),
    get("/v1/peer", Operation::Peer, Described::of::<Peer>(), "The pair of boxes: state, owner of each public address, counters."),
    get("/v1/peer/release", Operation::PeerRelease, Described::of::<Peer>(), "Gives this box's public addresses to the other box of the pair. The answer is the state when it begins.")
        .by(Method::Post),
    get("/v1/peer/takeover", Operation::PeerTakeover, Described::of::<Peer>(), "Declares that the other box of the pair is off and has lost its sessions: this one owns all public addresses after `takeover_in_ms`.")
        .by(Method::Post),
    get("/v1/cluster", Operation::Cluster(ClusterOperation::State), Described::of::<Cluster>(), "The cluster as this node knows it: nodes, owner and backup of each shard, counters."),
    get("/v1/cluster/events", Operation::Cluster(ClusterOperation::Events), Described::of::<ClusterEvents>(), "Latest events of the cluster, as this node saw them."),
    get("/v1/cluster/drain", Operation::Cluster(ClusterOperation::Drain), Described::of::<Cluster>(), "Has a node give all its shards away. The answer is the state when it begins.")
        .by(Method::Post)
        .with(&[NODE]),
    get("/v1/cluster/undrain", Operation::Cluster(ClusterOperation::Undrain), Described::of::<Cluster>(), "Has a drained node get shards again.")
        .by(Method::Post)
        .with(&[NODE]),
    get("/v1/cluster/gone", Operation::Cluster(ClusterOperation::Gone), Described::of::<Cluster>(), "Declares that a node is off, or has lost its sessions: others take its shards over without waiting for its hold.")
        .by(Method::Post)
        .with(&[OTHER_NODE]),
    get("/v1/cluster/apply", Operation::Cluster(ClusterOperation::Apply), Described::of::<Cluster>(), "Writes a new configuration revision, if all registered nodes can take it. The nodes apply it one after the other. The answer is the state when they begin.")
        .by(Method::Post)
        .with(&[CONFIRM])
        .of_body::<ConfigText>(),
    get("/v1/cluster/confirm", Operation::Cluster(ClusterOperation::Confirm), Described::of::<Cluster>(), "Confirms the configuration revision that is on trial.")
        .by(Method::Post),
    get("/v1/cluster/rollback", Operation::Cluster(ClusterOperation::RollBack), Described::of::<Cluster>(), "Has all nodes return from the configuration revision that is on trial.")
        .by(Method::Post),
    get("/v1/cluster/revisions", Operation::Cluster(ClusterOperation::Revisions), Described::of::<Vec<ClusterRevision>>(), "Configuration revisions at etcd, the latest first."),
    get("/v1/cluster/revision", Operation::Cluster(ClusterOperation::RevisionText), Described::of::<ConfigText>(), "Text of a configuration revision at etcd.")
        .with(&[REVISION_NUMBER]),
    get("/v1/log", Operation::Log, Described::of::<LogStore>(), "The log of public port holders: contents and losses."),
    get("/v1/log-level", Operation::LogLevel, Described::of::<LogLevelSetting>(), "Log level of the daemon's standard error."),
    get("/v1/log-level", Operation::SetLogLevel, Described::of::<LogLevelSetting>(), "Sets the log level until the daemon ends.")
        .by(Method::Post)
        .with(&[LEVEL]),
    get("/v1/who", Operation::Who, Described::of::<PortHolder>(), "Current holder of a public address and port.")
        .with(&[PUBLIC_END]),
    get("/v1/log/who", Operation::WhoAt, Described::of::<PastHolders>(), "Holder of a public address and port at a past time, from the log. The log records each question and its author.")
        .with(&[PUBLIC_END, AT]),
    get("/v1/where", Operation::Where, Described::of::<HostPorts>(), "Current public addresses and ports of an inside host.")
        .with(&[INSIDE_HOST]),
    get("/v1/explain", Operation::Explain, Described::of::<Explanation>(), "Predicts the outcome of a packet, with the reasons; changes nothing.")
        .with(&[FLOW]),
    get("/v1/top", Operation::Top, Described::of::<Vec<Subscriber>>(), "The subscribers with most sessions, or by another sort key.")
        .with(&[TOP]),
    get("/v1/events", Operation::Events, Described::of::<String>(), "Stream of events from now on, of the kinds in the [events] section: one JSON object per line; empty lines keep it alive.")
        .of_text(),
    get("/v1/trace", Operation::Trace, Described::of::<Page<TracedPacket>>(), "Stream of packets from now on, before and after translation: one per line. One trace at a time.")
        .with(&[TRACE]),
    get("/v1/addresses/drain", Operation::Drain, Described::of::<Drained>(), "Drains public addresses: no new bindings; existing ones continue.")
        .by(Method::Post)
        .with(&[ADDRESSES]),
    get("/v1/addresses/undrain", Operation::Undrain, Described::of::<Drained>(), "Undrains public addresses: allows new bindings again.")
        .by(Method::Post)
        .with(&[ADDRESSES]),
    get("/v1/sessions", Operation::ClearSessions, Described::of::<Cleared>(), "Ends sessions. The next packet from inside opens a new one.")
        .by(Method::Delete)
        .with(&[FILTER, REMOTE, ALL]),
    get("/v1/bindings", Operation::ClearBindings, Described::of::<Cleared>(), "Ends bindings and all of their sessions; static bindings stay.")
        .by(Method::Delete)
        .with(&[FILTER, ALL]),
    get("/v1/sessions/end", Operation::EndSessions, Described::of::<Cleared>(), "Ends the sessions of a list. Sessions that do not exist are not counted.")
        .by(Method::Post)
        .of_body::<SessionKeys>(),
    get("/metrics", Operation::Metrics, Described::of::<String>(), "Metrics for Prometheus.").of_text(),
    get("/openapi.json", Operation::OpenApi, Described::of::<String>(), "This document.").of_text(),
];

const POOL_OR_NETWORK: &[Parameter] = &[
    optional("pool", String::reference, "Name of the pool; default: all pools."),
    optional("outside", String::reference, "Public address or prefix; default: all."),
];

/// Error of a request without an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoEndpoint {
    /// Unknown path.
    Path,
    /// The path exists, with these methods only.
    Method(Vec<&'static str>),
}

/// Finds the endpoint of a request.
///
/// # Errors
/// Returns an error if the path is unknown or does not have the method.
pub fn find(method: &str, path: &str) -> Result<&'static Endpoint, NoEndpoint> {
    let of_path = || ENDPOINTS.iter().filter(|endpoint| endpoint.path == path);
    let methods: Vec<&str> = of_path().map(|endpoint| endpoint.method.name()).collect();
    match of_path().find(|endpoint| endpoint.method.name() == method) {
        Some(endpoint) => Ok(endpoint),
        None if methods.is_empty() => Err(NoEndpoint::Path),
        None => Err(NoEndpoint::Method(methods)),
    }
}

/// Formats a path with its query.
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

/// Parses a query into names and values.
///
/// # Errors
/// Returns an error if percent-encoding is malformed or a pair has no `=`.
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
    fn a_query_round_trips() {
        let query = [("inside", "2001:db8::/64".to_owned()), ("instance", "a b&c=d%é".to_owned())];
        let target = with_query("/v1/sessions", &query);
        let (path, text) = target.split_once('?').unwrap();
        assert_eq!(path, "/v1/sessions");
        let read = parse_query(text).unwrap();
        assert_eq!(read, query.map(|(name, value)| (name.to_owned(), value)));
        assert_eq!(parse_query("").unwrap(), []);
    }

    #[test]
    fn invalid_queries_are_refused() {
        for wrong in ["inside", "a=%", "a=%f", "a=%zz", "a=%ff", "a=%+1"] {
            assert!(parse_query(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn endpoints_are_unique_and_a_wrong_method_names_the_right_ones() {
        for (n, one) in ENDPOINTS.iter().enumerate() {
            assert_eq!(find(one.method.name(), one.path).unwrap().what, one.what);
            let same = |other: &&Endpoint| (other.method, other.path) == (one.method, one.path);
            assert_eq!(ENDPOINTS.iter().filter(same).count(), 1, "{n}");
            let mut names: Vec<_> = one.all_parameters().map(|parameter| parameter.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), one.all_parameters().count(), "{}", one.path);
        }
        assert_eq!(find("PUT", "/v1/sessions").err(), Some(NoEndpoint::Method(vec!["GET", "DELETE"])));
        assert_eq!(find("GET", "/v2/sessions").err(), Some(NoEndpoint::Path));
    }
}
