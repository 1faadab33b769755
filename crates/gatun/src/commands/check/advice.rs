//! Warnings of `gatun check` about a valid configuration that will not work on this host or on the Internet.

use crate::commands::certificates::files;
use crate::commands::unix_seconds;
use gatun_api::types::days_until;
use gatun_config::{Config, Network, Routes};
use gatun_nat::Plan;
use gatun_nat::plan::{Net4, Net6, PoolRange};
use gatun_netlink::query::{RouteResult, interface_addresses, links, way_to};
use gatun_peer::link::Tls;
use gatun_wire::Prefix64;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// Documentation prefixes and the RFCs that reserve them; they are not routed on the Internet.
const DOCUMENTATION4: [(Net4, &str); 3] = [
    (Net4 { addr: Ipv4Addr::new(192, 0, 2, 0), len: 24 }, "RFC 5737"),
    (Net4 { addr: Ipv4Addr::new(198, 51, 100, 0), len: 24 }, "RFC 5737"),
    (Net4 { addr: Ipv4Addr::new(203, 0, 113, 0), len: 24 }, "RFC 5737"),
];
const DOCUMENTATION6: [(Net6, &str); 2] = [
    (Net6 { addr: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), len: 32 }, "RFC 3849"),
    (Net6 { addr: Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), len: 20 }, "RFC 9637"),
];
/// An address of the Internet, to find the default route. Nothing is sent to it.
const ANYWHERE: Ipv4Addr = Ipv4Addr::new(8, 8, 8, 8);

/// Warning about a file that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Advice {
    pub(crate) what: String,
    pub(crate) instead: String,
}

/// Interface of the default route and its IPv4 addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Uplink {
    name: String,
    addresses: Vec<Ipv4Addr>,
}

impl Uplink {
    /// Uplink of this network namespace, if it has a default route.
    pub(crate) fn of_this_host() -> Option<Uplink> {
        let Ok(RouteResult::By(index)) = way_to(ANYWHERE.into()) else { return None };
        let name = links().ok()?.into_iter().find(|link| link.index == index)?.name;
        let of_link = interface_addresses().ok()?.into_iter().filter(|(link, _)| *link == index);
        let addresses = of_link.filter_map(|(_, prefix)| match prefix.addr {
            IpAddr::V4(address) if !address.is_link_local() => Some(address),
            _ => None,
        });
        Some(Uplink { name, addresses: addresses.collect() })
    }
}

/// Warnings about a configuration on a host with this uplink.
pub(crate) fn of(config: &Config, uplink: Option<&Uplink>) -> Vec<Advice> {
    let only_address = uplink.into_iter().filter_map(|uplink| only_address(config, uplink));
    let of_pair = config.peer.as_ref().map(|peer| ("peer", &peer.directory));
    let of_node = config.cluster.as_ref().map(|cluster| ("cluster", &cluster.directory));
    let boxes = of_pair.into_iter().chain(of_node);
    let certificates =
        boxes.filter_map(|(section, directory)| certificates(section, directory, unix_seconds()));
    let of_switches = config.offload.as_ref().and_then(|offload| offload.tls.as_ref());
    let of_switches = of_switches.and_then(|tls| switch_certificates(&tls.directory));
    only_address.chain(certificates).chain(of_switches).chain(documentation(config)).collect()
}

/// Certificates of a pair or of a node with which the daemon does not start, or does not connect.
fn certificates(section: &str, directory: &Path, now_s: u64) -> Option<Advice> {
    let files = files(directory);
    let (why, instead) = match Tls::load(&files) {
        Err(why) => {
            (why, format!("repair the files in {}: `gatun {section} init` makes them", directory.display()))
        }
        Ok(tls) if days_until(tls.certificate_end.try_into().unwrap_or(0), now_s).is_none() => {
            let why = format!("{} or its authority's certificate has ended", files.certificate.display());
            let whose = if section == "cluster" { " NODE" } else { "" };
            (why, format!("gatun {section} renew AUTHORITY{whose} {}", directory.display()))
        }
        Ok(_) => return None,
    };
    Some(Advice { what: format!("[{section}] {why}"), instead })
}

/// Certificates with which the daemon connects to no P4 switch.
fn switch_certificates(directory: &Path) -> Option<Advice> {
    let why = gatun_tls::Directory::new(directory).client(&[]).err()?;
    let instead = format!("repair the files in {}: docs/how-to/p4.md", directory.display());
    Some(Advice { what: format!("[[offload]] {why}"), instead })
}

/// Pool that contains every address of the uplink, which leaves the host without one.
fn only_address(config: &Config, uplink: &Uplink) -> Option<Advice> {
    let pool_of = |address: &Ipv4Addr| {
        let has = |range: &PoolRange| (range.first..=range.last).contains(address);
        config.plan.pools.iter().find(|pool| pool.ranges.iter().any(has))
    };
    let pool = uplink.addresses.first().and_then(pool_of)?;
    if !uplink.addresses.iter().all(|address| pool_of(address).is_some()) {
        return None;
    }
    let listed: Vec<String> = uplink.addresses.iter().map(Ipv4Addr::to_string).collect();
    Some(Advice {
        what: format!(
            "pool `{}` has {}, the only IPv4 address of {}, this host's uplink: the host and the subscribers \
             cannot both use it",
            pool.name,
            listed.join(", "),
            uplink.name
        ),
        instead: "use addresses that are routed to this host; if it has only one address, use a private \
                  pool and masquerade it (docs/tutorials/home.md)"
            .to_owned(),
    })
}

/// Addresses in documentation prefixes, by section.
fn documentation(config: &Config) -> Vec<Advice> {
    let (plan, mut found) = (&config.plan, DocumentationUse::default());
    for pool in &plan.pools {
        let name = format!("pool `{}`", pool.name);
        pool.ranges.iter().for_each(|range| found.range(&name, range));
    }
    for instance in &plan.nat64 {
        found.prefixes(&instance.name, &instance.pool6);
        let name = format!("sources of `{}`", instance.name);
        instance.sources.iter().for_each(|net| found.net6(&name, *net));
    }
    for instance in &plan.nat44 {
        let name = format!("inside of `{}`", instance.name);
        instance.inside.iter().for_each(|net| found.net4(&name, *net));
    }
    for instance in &plan.siit {
        found.prefixes(&instance.name, &instance.pool6);
        let name = format!("mappings of `{}`", instance.name);
        for eam in &instance.eamt {
            found.net4(&name, eam.v4);
            found.net6(&name, eam.v6);
        }
    }
    for port in &config.ports {
        let name = format!("port `{}`", port.name);
        port.addresses.iter().for_each(|(address, _)| found.address(&name, *address));
        let Routes::List(routes) = &port.routes else { continue };
        for route in routes {
            match route {
                Network::V4(net) => found.net4(&name, *net),
                Network::V6(net) => found.net6(&name, *net),
            }
        }
    }
    own(plan).for_each(|address| found.address("the translator's own addresses", address));
    found.sections.into_iter().map(Section::advice).collect()
}

/// Translator's own addresses outside pools and prefixes, which are checked separately.
fn own(plan: &Plan) -> impl Iterator<Item = IpAddr> {
    let in_pool = |address: &Ipv4Addr| {
        let ranges = plan.pools.iter().flat_map(|pool| &pool.ranges);
        ranges.into_iter().any(|range| (range.first..=range.last).contains(address))
    };
    let prefixes = || plan.nat64.iter().flat_map(|i| &i.pool6).chain(plan.siit.iter().flat_map(|i| &i.pool6));
    let own4 = plan.own4.filter(|address| !in_pool(address)).map(IpAddr::V4);
    let own6 = plan.own6.filter(|address| !prefixes().any(|prefix| prefix.contains(*address)));
    own4.into_iter().chain(own6.map(IpAddr::V6))
}

/// Section of the file with addresses in a documentation prefix.
struct Section {
    name: String,
    first: String,
    prefix: String,
    more: usize,
}

#[derive(Default)]
struct DocumentationUse {
    sections: Vec<Section>,
}

impl DocumentationUse {
    fn add(&mut self, name: &str, what: String, prefix: String) {
        match self.sections.last_mut().filter(|last| last.name == name) {
            Some(last) if last.first == what => {}
            Some(last) => last.more += 1,
            None => self.sections.push(Section { name: name.to_owned(), first: what, prefix, more: 0 }),
        }
    }

    fn range(&mut self, name: &str, range: &PoolRange) {
        if let Some((of, rfc)) = DOCUMENTATION4.iter().find(|(of, _)| of.contains(range.first)) {
            let what = match range.first == range.last {
                true => range.first.to_string(),
                false => format!("{}-{}", range.first, range.last),
            };
            self.add(name, what, format!("{}/{} ({rfc})", of.addr, of.len));
        }
    }

    fn net4(&mut self, name: &str, net: Net4) {
        if let Some((of, rfc)) = DOCUMENTATION4.iter().find(|(of, _)| of.contains(net.addr)) {
            self.add(name, format!("{}/{}", net.addr, net.len), format!("{}/{} ({rfc})", of.addr, of.len));
        }
    }

    fn net6(&mut self, name: &str, net: Net6) {
        if let Some((of, rfc)) = DOCUMENTATION6.iter().find(|(of, _)| of.contains(net.addr)) {
            self.add(name, format!("{}/{}", net.addr, net.len), format!("{}/{} ({rfc})", of.addr, of.len));
        }
    }

    fn prefixes(&mut self, instance: &str, prefixes: &[Prefix64]) {
        let name = format!("pool6 of `{instance}`");
        for prefix in prefixes {
            self.net6(&name, Net6 { addr: prefix.address(), len: prefix.len() });
        }
    }

    fn address(&mut self, name: &str, address: IpAddr) {
        match address {
            IpAddr::V4(addr) => self.net4(name, Net4 { addr, len: 32 }),
            IpAddr::V6(addr) => self.net6(name, Net6 { addr, len: 128 }),
        }
    }
}

impl Section {
    fn advice(self) -> Advice {
        let Section { name, first, prefix, more } = self;
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        Advice {
            what: format!("{name}: {first}{more}: {prefix} is reserved for documentation and routed nowhere"),
            instead: "write addresses of your own network".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::peer::certificates::create;

    fn config(text: &str) -> Config {
        gatun_config::load_str(text, "t.toml").map(|(config, _)| config).unwrap()
    }

    fn said(text: &str) -> Vec<String> {
        of(&config(text), None).into_iter().map(|advice| advice.what).collect()
    }

    const OWN: &str = "[translator]\nown4 = \"8.8.4.4\"\nown6 = \"2a00::1\"\n";

    #[test]
    fn documentation_prefixes_are_found_in_every_section() {
        for (prefix, net) in [
            ("192.0.2.16/28", "192.0.2.0/24 (RFC 5737)"),
            ("198.51.100.7", "198.51.100.0/24 (RFC 5737)"),
            ("203.0.113.128/25", "203.0.113.0/24 (RFC 5737)"),
        ] {
            let text =
                format!("{OWN}[[pool]]\nprefixes = \"{prefix}\"\n[[nat64]]\npool6 = \"64:ff9b::/96\"\n");
            let said = said(&text);
            assert!(said.len() == 1 && said[0].starts_with("pool `pool1`: "), "{said:?}");
            assert!(said[0].contains(net), "{said:?}");
        }
        for (pool6, net) in [("2001:db8:64::/96", "2001:db8::/32"), ("3fff:fff::/96", "3fff::/20")] {
            let text = format!("{OWN}[[pool]]\nprefixes = \"9.9.9.0/28\"\n[[nat64]]\npool6 = \"{pool6}\"\n");
            let said = said(&text);
            assert!(said.len() == 1 && said[0].starts_with("pool6 of `nat64-1`: "), "{said:?}");
            assert!(said[0].contains(net), "{said:?}");
        }
        let siit = format!(
            "{OWN}[[siit]]\npool6 = \"2a00:64::/96\"\neam = [{{ v4 = \"203.0.113.5\", v6 = \"2a00::5\" }}, \
             {{ v4 = \"9.9.9.9\", v6 = \"2001:db8::5\" }}, {{ v4 = \"9.9.9.8\", v6 = \"2001:db8::6\" }}]\n\
             [[port]]\naddresses = \"192.0.2.1/24\"\nroutes = [\"3fff::/32\"]\n"
        );
        let said = said(&siit);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].starts_with("mappings of `siit-1`: ") && said[0].contains(" and 2 more: "),
            "{said:?}"
        );
        assert!(said[1].starts_with("port `gatun0`: 192.0.2.1/32 and 1 more: "), "{said:?}");
    }

    #[test]
    fn addresses_next_to_documentation_prefixes_cause_no_warning() {
        for near in ["192.0.1.255", "192.0.3.0", "198.51.99.255", "203.0.114.0"] {
            let text = format!("{OWN}[[pool]]\nprefixes = \"{near}\"\n[[nat64]]\npool6 = \"64:ff9b::/96\"\n");
            assert_eq!(said(&text), [""; 0], "{near}");
        }
        for near in ["2001:db7:ffff::/96", "2001:db9::/96", "3fff:1000::/96"] {
            let text = format!("{OWN}[[pool]]\nprefixes = \"9.9.9.9\"\n[[nat64]]\npool6 = \"{near}\"\n");
            assert_eq!(said(&text), [""; 0], "{near}");
        }
    }

    #[test]
    fn a_pool_with_every_address_of_the_uplink_causes_a_warning() {
        let text = format!("{OWN}[[pool]]\nprefixes = \"9.9.9.8/30\"\n[[nat64]]\npool6 = \"64:ff9b::/96\"\n");
        let config = config(&text);
        let with = |addresses: &[[u8; 4]]| {
            let addresses = addresses.iter().copied().map(Ipv4Addr::from).collect();
            of(&config, Some(&Uplink { name: "wan".into(), addresses }))
        };
        let said = with(&[[9, 9, 9, 9]]);
        assert_eq!(said.len(), 1);
        assert!(
            said[0].what.starts_with("pool `pool1` has 9.9.9.9, the only IPv4 address of wan"),
            "{said:?}"
        );
        for others in [&[[9, 9, 9, 7]][..], &[[9, 9, 9, 9], [9, 9, 9, 7]], &[]] {
            assert_eq!(with(others), []);
        }
    }

    #[test]
    fn certificates_that_do_not_work_cause_a_warning() {
        let directory = std::env::temp_dir().join(format!("gatun-check-pair-{}", std::process::id()));
        let text = format!(
            "{OWN}[[pool]]\nprefixes = \"9.9.9.9\"\n[[nat64]]\npool6 = \"64:ff9b::/96\"\n\
             [peer]\nmember = \"a\"\nlisten = \"10.0.0.1:7464\"\ndirectory = \"{}/a\"\n",
            directory.display()
        );
        let said_about = || said(&text).into_iter().collect::<String>();
        let missing = said_about();
        assert!(missing.contains("/a/ca.pem: No such file"), "{missing}");
        create(&directory, 1).unwrap();
        assert_eq!(said_about(), "");
        let later = certificates("peer", &directory.join("a"), unix_seconds() + 2 * 86_400).unwrap();
        assert!(later.what.ends_with("has ended") && later.instead.contains("gatun peer renew"), "{later:?}");
        std::fs::write(directory.join("a/key.pem"), "").unwrap();
        assert!(said_about().starts_with("[peer] "), "{}", said_about());
        let of_switches = |member: &str| switch_certificates(&directory.join(member));
        assert!(of_switches("a").unwrap().what.starts_with("[[offload]] "));
        assert!(of_switches("b").is_none());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
