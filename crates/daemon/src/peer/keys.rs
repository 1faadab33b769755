//! Settings that boxes of a pair or a cluster must have in common, by their keys in the file.

use super::addresses::Layout;
use crate::Settings;
use gatun_config::{Cluster, FastPath, Peer};
use gatun_nat::Plan;
use gatun_nat::plan::{Limits, Nat44, Nat64, Pool4};
use gatun_nat::workers::Steering;
use gatun_peer::member::AddressRange;
use gatun_peer::wire::ConfigKey;
use std::fmt::Debug;

/// End of the names of static bindings.
const STATIC: &str = ".static";

/// Keys of a pair, sorted by name. Ports, devices, the API, logs and announced routes may differ.
pub(super) fn keys(
    settings: &Settings,
    peer: &Peer,
    (steering, layout): (&Steering, &Layout),
) -> Vec<ConfigKey> {
    let mut keys = Keys(Vec::new());
    let Peer { mode, own_ports, .. } = peer;
    keys.section("peer", &[("mode", mode), ("own_ports", own_ports)]);
    let FastPath { kernel, lease_ms, .. } = &settings.fastpath;
    // Who takes over waits for the other box's kernel.
    keys.section("fastpath", &[("lease", &kernel.then_some(lease_ms))]);
    let workers = settings.ports.workers();
    keys.section("port", &[("queues", &workers)]);
    if workers > 1 {
        // A worker has its addresses since they came to the pool, which may have been in another order.
        keys.section("port", &[("queues (addresses of each)", &steering.address_shares())]);
    }
    keys.of_plan(&settings.plan, &layout.ranges)
}

/// Keys of static bindings, sorted by name.
pub(crate) fn of_statics(plan: &Plan) -> Vec<ConfigKey> {
    let mut keys = Keys(Vec::new());
    plan.nat64.iter().for_each(|nat64| keys.nat64(plan, nat64));
    plan.nat44.iter().for_each(|nat44| keys.nat44(plan, nat44));
    keys.0.retain(|key| key.name.ends_with(STATIC));
    keys.0.sort_unstable();
    keys.0
}

/// Keys of a cluster, sorted by name. Nodes may also have other numbers of workers, and know other nodes
/// while one is added.
pub(crate) fn of_cluster(
    settings: &Settings,
    cluster: &Cluster,
    (steering, ranges): (&Steering, &[AddressRange]),
) -> Vec<ConfigKey> {
    let mut keys = Keys(Vec::new());
    let Cluster { name, shards, lease_ms, hold_ms, vni, port, own_ports, .. } = cluster;
    let values: [(&str, &dyn Debug); 7] = [
        ("name", name),
        ("shards", shards),
        ("lease", lease_ms),
        ("hold", hold_ms),
        ("vni", vni),
        ("port", port),
        ("own_ports", own_ports),
    ];
    keys.section("cluster", &values);
    // A shard has its addresses since they came to the pool.
    keys.section("cluster", &[("shards (addresses of each)", &steering.address_shares())]);
    keys.of_plan(&settings.plan, ranges)
}

struct Keys(Vec<ConfigKey>);

impl Keys {
    /// Adds the keys of a plan, and returns all of them.
    fn of_plan(mut self, plan: &Plan, ranges: &[AddressRange]) -> Vec<ConfigKey> {
        self.section("pool", &[("ports of each box", &ranges)]);
        plan.pools.iter().for_each(|pool| self.pool(pool));
        self.section("nat64", &[("order", &plan.nat64.iter().map(|one| &one.name).collect::<Vec<_>>())]);
        self.section("nat44", &[("order", &plan.nat44.iter().map(|one| &one.name).collect::<Vec<_>>())]);
        plan.nat64.iter().for_each(|nat64| self.nat64(plan, nat64));
        plan.nat44.iter().for_each(|nat44| self.nat44(plan, nat44));
        self.limits(&plan.limits);
        self.section("translator", &[("own4", &plan.own4), ("own6", &plan.own6)]);
        self.0.sort_unstable();
        self.0
    }

    fn section(&mut self, section: &str, values: &[(&str, &dyn Debug)]) {
        for (name, value) in values {
            self.0.push(ConfigKey::new(&format!("{section}.{name}"), &format!("{value:?}")));
        }
    }

    fn pool(&mut self, pool: &Pool4) {
        let Pool4 { name, ranges, pairing, port_parity, port_class, allocation, overload } = pool;
        let addresses: Vec<_> = ranges.iter().map(|range| (range.first, range.last)).collect();
        let ports: Vec<_> = ranges.iter().map(|range| (range.ports, range.transports)).collect();
        let values: [(&str, &dyn Debug); 7] = [
            ("prefixes", &addresses),
            ("ports", &ports),
            ("pairing", pairing),
            ("port_parity", port_parity),
            ("port_class", port_class),
            ("allocation", allocation),
            ("overload", overload),
        ];
        self.section(&format!("pool.{name}"), &values);
    }

    fn nat64(&mut self, plan: &Plan, nat64: &Nat64) {
        let Nat64 { name, pool6, pool, sources, realm, filtering, external_tcp, .. } = nat64;
        let Nat64 { wkp_non_global, icmp_error_source, inbound_refresh, rst_during_fin, .. } = nat64;
        let Nat64 { icmp_queries, subscriber_len, static_bindings, timeouts, settings, .. } = nat64;
        let values: [(&str, &dyn Debug); 15] = [
            ("pool6", pool6),
            ("pool", &plan.pools.get(*pool).map(|pool| &pool.name)),
            ("sources", sources),
            ("ports", realm),
            ("filtering", filtering),
            ("external_tcp", external_tcp),
            ("wkp_non_global", wkp_non_global),
            ("icmp_error_source", icmp_error_source),
            ("inbound_refresh", inbound_refresh),
            ("rst_during_fin", rst_during_fin),
            ("icmp_queries", icmp_queries),
            ("subscriber", subscriber_len),
            ("static", static_bindings),
            ("timeouts", timeouts),
            ("mtu4 and other settings of headers", settings),
        ];
        self.section(&format!("nat64.{name}"), &values);
    }

    fn nat44(&mut self, plan: &Plan, nat44: &Nat44) {
        let Nat44 { name, inside, realm, pool, exempt, filtering, external_tcp, .. } = nat44;
        let Nat44 { inbound_refresh, icmp_queries, subscriber_len, static_bindings, .. } = nat44;
        let Nat44 { timeouts, mtu, mss_max, .. } = nat44;
        let values: [(&str, &dyn Debug); 13] = [
            ("inside", inside),
            ("ports", realm),
            ("pool", &plan.pools.get(*pool).map(|pool| &pool.name)),
            ("exempt", exempt),
            ("filtering", filtering),
            ("external_tcp", external_tcp),
            ("inbound_refresh", inbound_refresh),
            ("icmp_queries", icmp_queries),
            ("subscriber", subscriber_len),
            ("static", static_bindings),
            ("timeouts", timeouts),
            ("mtu4", mtu),
            ("tcp_mss_max", mss_max),
        ];
        self.section(&format!("nat44.{name}"), &values);
    }

    fn limits(&mut self, limits: &Limits) {
        let Limits { sessions_max, sessions_reserved, sessions_reserved_below, .. } = limits;
        let Limits { subscribers_max, sessions_per_subscriber, ports_per_subscriber, .. } = limits;
        let Limits { ports_per_subscriber_by: [tcp, udp, icmp], .. } = limits;
        let Limits { session_rate_per_subscriber, session_burst_per_subscriber, .. } = limits;
        let values: [(&str, &dyn Debug); 11] = [
            ("sessions_max", sessions_max),
            ("sessions_reserved", sessions_reserved),
            ("sessions_reserved_below", sessions_reserved_below),
            ("subscribers_max", subscribers_max),
            ("sessions_per_subscriber", sessions_per_subscriber),
            ("ports_per_subscriber", ports_per_subscriber),
            ("tcp_ports_per_subscriber", tcp),
            ("udp_ports_per_subscriber", udp),
            ("icmp_ports_per_subscriber", icmp),
            ("session_rate_per_subscriber", session_rate_per_subscriber),
            ("session_burst_per_subscriber", session_burst_per_subscriber),
        ];
        self.section("limits", &values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_the_same_settings_stay_the_same_from_version_to_version() {
        let text = "[translator]\nown4 = \"192.0.2.9\"\nown6 = \"2001:db8::9\"\n\
            [[pool]]\nname = \"res\"\nprefixes = [\"192.0.2.0/29\"]\n\
            [[nat64]]\nname = \"six\"\npool6 = \"2001:db8:64::/96\"\n\
            [[nat44]]\nname = \"four\"\ninside = [\"10.0.0.0/8\"]\n";
        let (config, _) = gatun_config::load_str(text, "gatun.toml").unwrap();
        let keys = Keys(Vec::new()).of_plan(&config.plan, &[]);
        let known = |key: &ConfigKey| format!("{} {:016x}", key.name, key.hash);
        let keys: Vec<String> = keys.iter().map(known).collect();
        // A difference means that boxes of the former version refuse this one: the CHANGELOG has to say so.
        let known = [
            "limits.icmp_ports_per_subscriber 2d48362b84de7a22",
            "limits.ports_per_subscriber 437cf5d8938c2e92",
            "limits.session_burst_per_subscriber 0d8269f0f88e4a24",
            "limits.session_rate_per_subscriber af63ad4c86019caf",
            "limits.sessions_max 12713e0393430378",
            "limits.sessions_per_subscriber 260ab1650c44a5eb",
            "limits.sessions_reserved 0802ff07b4c31660",
            "limits.sessions_reserved_below 07f59007b4b7cf67",
            "limits.subscribers_max 24efff8487805dc2",
            "limits.tcp_ports_per_subscriber 2d48362b84de7a22",
            "limits.udp_ports_per_subscriber 2d48362b84de7a22",
            "nat44.four.exempt 09612b07b5ecb5a5",
            "nat44.four.external_tcp 5b5c98ef514dbfa5",
            "nat44.four.filtering a51db3dbdfa7f47a",
            "nat44.four.icmp_queries 5b5c98ef514dbfa5",
            "nat44.four.inbound_refresh b5fae2c14238b978",
            "nat44.four.inside 82c643f8f2675697",
            "nat44.four.mtu4 f45fd8f0ea8fbb83",
            "nat44.four.pool b279bbf1d879e096",
            "nat44.four.ports af63ad4c86019caf",
            "nat44.four.static 09612b07b5ecb5a5",
            "nat44.four.subscriber 07ff7c07b4c001f0",
            "nat44.four.tcp_mss_max eb5dc1f0e55c3dee",
            "nat44.four.timeouts d7525c7774e7692a",
            "nat44.order 50a6eda92a0c5c3d",
            "nat64.order eb66bade116d1b81",
            "nat64.six.external_tcp 5b5c98ef514dbfa5",
            "nat64.six.filtering a51db3dbdfa7f47a",
            "nat64.six.icmp_error_source e51d6fb9158b9f24",
            "nat64.six.icmp_queries 5b5c98ef514dbfa5",
            "nat64.six.inbound_refresh 5b5c98ef514dbfa5",
            "nat64.six.mtu4 and other settings of headers dd48dea539c83bd9",
            "nat64.six.pool b279bbf1d879e096",
            "nat64.six.pool6 4f36007707cbeb9b",
            "nat64.six.ports af63ad4c86019caf",
            "nat64.six.rst_during_fin b5fae2c14238b978",
            "nat64.six.sources 09612b07b5ecb5a5",
            "nat64.six.static 09612b07b5ecb5a5",
            "nat64.six.subscriber 07f59007b4b7cf67",
            "nat64.six.timeouts d7525c7774e7692a",
            "nat64.six.wkp_non_global b5fae2c14238b978",
            "pool.ports of each box 09612b07b5ecb5a5",
            "pool.res.allocation c2004687364a57d8",
            "pool.res.overload 09612b07b5ecb5a5",
            "pool.res.pairing 8aa4de24f21199d5",
            "pool.res.port_class 5b5c98ef514dbfa5",
            "pool.res.port_parity 5b5c98ef514dbfa5",
            "pool.res.ports a913f8f9428f6128",
            "pool.res.prefixes 9ef4c9ecee1e9071",
            "translator.own4 9e9a8da8974d7965",
            "translator.own6 bc4609c5c68250b4",
        ];
        assert_eq!(keys, known);
    }
}
