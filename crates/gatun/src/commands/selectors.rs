//! Criteria by which packets select each instance, as types of the API (decision 0051).

use gatun_api::types::{Kind, Selectors};
use gatun_config::Config;
use std::net::IpAddr;

pub(crate) fn of(config: &Config) -> Vec<(Kind, String, Selectors)> {
    let plan = &config.plan;
    // Realm of a port: IPv4's, IPv6's.
    let ports = |family: usize, realm: u8| {
        let is_there = |port: &&gatun_config::Port| {
            port.ethernet.as_ref().is_some_and(|e| realm != 0 && e.realms[family] == realm)
        };
        config.ports.iter().filter(is_there).map(|port| port.name.clone()).collect()
    };
    let pool = |number: usize| plan.pools.get(number).map(|pool| pool.name.clone());
    let net = |address: IpAddr, len: u8| format!("{address}/{len}");
    let of64 = plan.nat64.iter().map(|n| {
        let selectors = Selectors {
            ports: ports(1, n.realm),
            pool6: n.pool6.iter().map(ToString::to_string).collect(),
            sources: n.sources.iter().map(|s| net(s.addr.into(), s.len)).collect(),
            pool: pool(n.pool),
        };
        (Kind::Nat64, n.name.clone(), selectors)
    });
    let of44 = plan.nat44.iter().map(|n| {
        let selectors = Selectors {
            ports: ports(0, n.realm),
            sources: n.inside.iter().map(|s| net(s.addr.into(), s.len)).collect(),
            pool: pool(n.pool),
            ..Selectors::default()
        };
        (Kind::Nat44, n.name.clone(), selectors)
    });
    let stateless = plan.siit.iter().map(|n| {
        let selectors =
            Selectors { pool6: n.pool6.iter().map(ToString::to_string).collect(), ..Selectors::default() };
        (Kind::Siit, n.name.clone(), selectors)
    });
    of64.chain(of44).chain(stateless).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_list_ports_sources_prefixes_and_pools() {
        let text = r#"
            [[port]]
            name = "wan"
            backend = "xdp"
            device = "eth0"
            addresses = ["198.51.100.2/24", "2001:db8::2/64"]
            [[port]]
            name = "customer-a"
            backend = "xdp"
            device = "eth1"
            addresses = ["10.0.0.1/24", "2001:db8:1::2/64"]
            [[pool]]
            name = "public"
            prefixes = ["192.0.2.0/28"]
            [[nat44]]
            name = "a"
            pool = "public"
            inside = ["10.0.0.0/8"]
            ports = ["customer-a"]
            [[nat64]]
            name = "b"
            pool = "public"
            pool6 = ["64:ff9b::/96"]
            sources = ["2001:db8::/32"]
            [[siit]]
            name = "servers"
            pool6 = ["2001:db8:46::/96"]
        "#;
        let config = gatun_config::load_str(text, "gatun.toml").unwrap().0;
        let strings = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        let [b, a, servers] = &of(&config)[..] else { panic!("there are three instances") };
        assert_eq!((b.0, b.1.as_str(), &b.2.ports), (Kind::Nat64, "b", &vec![]));
        assert_eq!((&b.2.pool6, &b.2.sources), (&strings(&["64:ff9b::/96"]), &strings(&["2001:db8::/32"])));
        assert_eq!((a.0, &a.2.ports), (Kind::Nat44, &strings(&["customer-a"])));
        assert_eq!((&a.2.sources, &a.2.pool6), (&strings(&["10.0.0.0/8"]), &vec![]));
        assert_eq!(
            [&a.2.pool, &b.2.pool, &servers.2.pool],
            [&Some("public".into()), &Some("public".into()), &None]
        );
        assert_eq!((servers.0, &servers.2.pool6), (Kind::Siit, &strings(&["2001:db8:46::/96"])));
    }
}
