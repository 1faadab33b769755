//! Interfaces, own addresses, routes and next hops of a switch: it is to send packets as the daemon's
//! Ethernet host does.
//!
//! ```text
//!   settings of the ports -> interfaces, own4, own6
//!   routes                -> routes4, routes6 -> number of a next hop
//!   neighbours            -> next_hops: port, VLAN, MACs; host routes on links
//! ```
//! A next hop whose MAC is not known has a number without an entry: its packets go to the engine, whose host
//! finds the MAC.

use gatun_ether::{Mac, PortSettings, RouteReport, Settings, Way, route_reports};
use gatun_p4_controller::connection::{KeyField, StaticEntry};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// Maximum number of routes of each family, and of next hops: the sizes of the program's tables.
const TABLE_MAX: usize = 4096;
/// Next hop of packets that go to the engine. No entry has this number.
const ENGINE: u16 = u16::MAX;

/// A port as a switch has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SwitchPlace {
    /// Number of the switch.
    pub(super) switch: usize,
    /// Number of the port there.
    pub(super) port: u16,
}

/// Shares of the identifications: `step` in all, of which a switch has the one with the number `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdentShare {
    pub(super) step: u16,
    pub(super) first: u16,
}

/// Settings of the host, its routes, and the place of each of its ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HostView {
    pub(super) settings: Settings,
    routes: Vec<RouteReport>,
    /// In the order of the ports.
    pub(super) places: Vec<Option<SwitchPlace>>,
}

impl HostView {
    pub(super) fn new(settings: Settings, places: Vec<Option<SwitchPlace>>) -> HostView {
        let routes = route_reports(&settings);
        HostView { settings, routes, places }
    }

    /// Largest packet that every port of a switch sends, bytes.
    pub(super) fn mtu(&self) -> u32 {
        let ports = self.settings.ports.iter().zip(&self.places).filter(|(_, place)| place.is_some());
        ports.map(|(port, _)| port.mtu).min().unwrap_or(u32::MAX)
    }
}

/// Neighbours with known MACs, by the number of their port in the settings.
pub(super) type Neighbours = BTreeMap<(usize, IpAddr), Mac>;

/// Numbers of next hops. A number is not used again soon, so that no packet takes a route to another one.
#[derive(Default)]
pub(super) struct HopNumbers {
    numbers: BTreeMap<(usize, IpAddr), u16>,
    last: u16,
}

impl HopNumbers {
    /// Returns the number of a next hop.
    fn of(&mut self, hop: (usize, IpAddr)) -> u16 {
        if let Some(number) = self.numbers.get(&hop) {
            return *number;
        }
        loop {
            self.last = self.last.wrapping_add(1);
            let is_free = !self.numbers.values().any(|number| *number == self.last);
            if self.last != 0 && self.last != ENGINE && is_free {
                self.numbers.insert(hop, self.last);
                return self.last;
            }
        }
    }

    /// Forgets next hops that do not satisfy `is_used`.
    fn retain(&mut self, is_used: impl Fn(&(usize, IpAddr)) -> bool) {
        self.numbers.retain(|hop, _| is_used(hop));
    }
}

/// Entries of a switch.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SwitchEntries {
    pub(super) entries: Vec<StaticEntry>,
    /// Number of next hops with a known MAC.
    pub(super) next_hops: usize,
    /// Neighbours and routes that the tables have no room for. The engine sends their packets.
    pub(super) left_out: usize,
}

/// Returns the entries of a switch.
pub(super) fn entries_of(
    switch: usize,
    view: &HostView,
    neighbours: &Neighbours,
    (hops, idents): (&mut HopNumbers, IdentShare),
) -> SwitchEntries {
    let place = |port: usize| {
        let place = view.places.get(port).copied().flatten();
        place.filter(|place| place.switch == switch).map(|place| place.port)
    };
    let mut all = SwitchEntries::default();
    for (number, port) in view.settings.ports.iter().enumerate() {
        if let Some(place) = place(number) {
            all.entries.extend(interface(number, port, place, idents));
        }
    }
    let mut routes = Routes { neighbours, hops, found: [0; 2], all: &mut all };
    routes.add(view, &place);
    let mut used: Vec<(usize, IpAddr)> = Vec::new();
    for (hop, number) in &hops.numbers {
        let (Some(port), Some(mac)) = (place(hop.0), neighbours.get(hop)) else { continue };
        let Some(settings) = view.settings.ports.get(hop.0) else { continue };
        if used.len() >= TABLE_MAX {
            all.left_out += 1;
            continue;
        }
        used.push(*hop);
        all.entries.push(StaticEntry {
            table: "next_hops",
            key: vec![("next_hop", KeyField::Exact((*number).into()))],
            priority: 0,
            action: "next_hop",
            arguments: vec![
                ("port", port.into()),
                ("vid", vid(settings)),
                ("mac", word(*mac)),
                ("own_mac", word(settings.mac)),
            ],
        });
    }
    all.next_hops = used.len();
    all
}

/// Forgets the numbers of next hops that neither a route nor a neighbour needs.
pub(super) fn forget_unused(view: &HostView, neighbours: &Neighbours, hops: &mut HopNumbers) {
    let gateways: Vec<_> = view
        .routes
        .iter()
        .filter_map(|route| match route.way {
            Way::Via { port, gateway } => Some((port, gateway)),
            _ => None,
        })
        .collect();
    hops.retain(|hop| neighbours.contains_key(hop) || gateways.contains(hop));
}

/// VLAN of a port, 0 without a tag.
fn vid(port: &PortSettings) -> u64 {
    port.tags.first().map_or(0, |tag| tag.vlan.into())
}

fn word(mac: Mac) -> u64 {
    mac.0.iter().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn halves(address: Ipv6Addr) -> [u64; 2] {
    let bits = address.to_bits();
    [(bits >> 64) as u64, bits as u64]
}

/// The interface of a port, and its addresses.
fn interface(number: usize, port: &PortSettings, place: u16, idents: IdentShare) -> Vec<StaticEntry> {
    let number = number as u64 + 1;
    let interface = StaticEntry {
        table: "interfaces",
        key: vec![("in_port", KeyField::Exact(place.into())), ("vid", KeyField::Exact(vid(port)))],
        priority: 0,
        action: "interface",
        arguments: vec![
            ("number", number),
            ("mac", word(port.mac)),
            ("ident_step", idents.step.into()),
            ("ident_first", idents.first.into()),
        ],
    };
    let own = |address: IpAddr| {
        let mut key = vec![("interface", KeyField::Exact(number))];
        let table = match address {
            IpAddr::V4(address) => {
                key.push(("address", KeyField::Exact(address.to_bits().into())));
                "own4"
            }
            IpAddr::V6(address) => {
                let [high, low] = halves(address).map(KeyField::Exact);
                key.extend([("address_hi", high), ("address_lo", low)]);
                "own6"
            }
        };
        StaticEntry { table, key, priority: 0, action: "own", arguments: Vec::new() }
    };
    let addresses = port.addresses.iter().map(|address| own(address.addr));
    std::iter::once(interface).chain(addresses).collect()
}

/// Routes of a switch, as they are collected.
struct Routes<'a> {
    neighbours: &'a Neighbours,
    hops: &'a mut HopNumbers,
    /// Number of routes by family.
    found: [usize; 2],
    all: &'a mut SwitchEntries,
}

impl Routes<'_> {
    fn add(&mut self, view: &HostView, place: &dyn Fn(usize) -> Option<u16>) {
        for route in &view.routes {
            let hop = match route.way {
                Way::Via { port, gateway } if place(port).is_some() => self.hops.of((port, gateway)),
                Way::Via { .. } | Way::OnLink { .. } | Way::Nowhere => ENGINE,
            };
            self.route(route.to.addr, route.to.len, hop);
        }
        let neighbours = self.neighbours;
        for hop in neighbours.keys().filter(|(port, _)| place(*port).is_some()) {
            let containing = view.routes.iter().filter(|route| route.to.contains(hop.1));
            let longest = containing.max_by_key(|route| route.to.len);
            // A host that packets reach through a router is no next hop itself.
            if longest.is_some_and(|route| route.way == Way::OnLink { port: hop.0 }) {
                let number = self.hops.of(*hop);
                self.route(hop.1, if hop.1.is_ipv4() { 32 } else { 128 }, number);
            }
        }
    }

    /// Adds a route, if there is room.
    fn route(&mut self, address: IpAddr, len: u8, hop: u16) {
        let found = &mut self.found[usize::from(address.is_ipv6())];
        if *found >= TABLE_MAX {
            self.all.left_out += 1;
            return;
        }
        *found += 1;
        let (table, key) = match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0).into();
                ("routes4", vec![("dst", KeyField::Ternary { value: address.to_bits().into(), mask })])
            }
            IpAddr::V6(address) => {
                let mask = halves(u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0).into());
                let [high, low] = halves(address);
                let high = KeyField::Ternary { value: high, mask: mask[0] };
                let low = KeyField::Ternary { value: low, mask: mask[1] };
                ("routes6", vec![("dst_hi", high), ("dst_lo", low)])
            }
        };
        self.all.entries.push(StaticEntry {
            table,
            key,
            // P4Runtime's lowest priority is 1.
            priority: i32::from(len) + 1,
            action: "route",
            arguments: vec![("next_hop", hop.into())],
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_ether::{Prefix, Route};

    const INSIDE_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const ROUTER_MAC: Mac = Mac([2, 0, 0, 0, 0, 0x12]);
    const HOST_MAC: Mac = Mac([2, 0, 0, 0, 0, 0x13]);

    fn prefix(text: &str) -> Prefix {
        let (addr, len) = text.split_once('/').unwrap();
        Prefix { addr: addr.parse().unwrap(), len: len.parse().unwrap() }
    }

    fn port(name: &str, device: u8, tags: Vec<gatun_ether::Tag>) -> PortSettings {
        PortSettings {
            name: name.to_owned(),
            device,
            mac: INSIDE_MAC,
            tags,
            mtu: 1500,
            addresses: Vec::new(),
            answers: Vec::new(),
            routes: Vec::new(),
            neighbours: Vec::new(),
            realms: [0; 2],
        }
    }

    fn view() -> HostView {
        let inside =
            PortSettings { addresses: vec![prefix("2001:db8:1::1/64")], ..port("inside", 128, Vec::new()) };
        let outside = PortSettings {
            addresses: vec![prefix("198.51.100.1/24")],
            routes: vec![Route { to: prefix("0.0.0.0/0"), via: Some("198.51.100.254".parse().unwrap()) }],
            ..port("outside", 129, vec![gatun_ether::Tag::customer(7)])
        };
        let settings =
            Settings { ports: vec![inside, outside], engine: Vec::new(), announces: true, shares: false };
        let place = |port| Some(SwitchPlace { switch: 0, port });
        HostView::new(settings, vec![place(1), place(2)])
    }

    fn of(neighbours: &Neighbours, hops: &mut HopNumbers) -> SwitchEntries {
        entries_of(0, &view(), neighbours, (hops, IdentShare { step: 3, first: 2 }))
    }

    /// Next hop of the longest route that contains an IPv4 address.
    fn hop4(entries: &[StaticEntry], address: &str) -> u64 {
        let bits = u64::from(address.parse::<std::net::Ipv4Addr>().unwrap().to_bits());
        let matching = entries.iter().filter(|entry| entry.table == "routes4").filter(|entry| {
            matches!(entry.key[0].1, KeyField::Ternary { value, mask } if value & mask == bits & mask)
        });
        matching.max_by_key(|entry| entry.priority).map_or(0, |entry| entry.arguments[0].1)
    }

    #[test]
    fn packets_take_the_way_of_the_host_if_the_next_hop_is_known() {
        let mut hops = HopNumbers::default();
        let none = of(&Neighbours::new(), &mut hops);
        let interface = none
            .entries
            .iter()
            .find(|entry| entry.table == "interfaces" && entry.key[0].1 == KeyField::Exact(2));
        let arguments = &interface.unwrap().arguments;
        assert_eq!(
            arguments[..],
            [("number", 2), ("mac", 0x0200_0000_0001), ("ident_step", 3), ("ident_first", 2)]
        );
        let gateway = hop4(&none.entries, "192.0.2.9");
        assert!(gateway != u64::from(ENGINE) && none.next_hops == 0, "a number without an entry");
        for engine in ["198.51.100.9", "198.51.100.1", "198.51.100.255", "224.0.0.5"] {
            assert_eq!(hop4(&none.entries, engine), u64::from(ENGINE), "{engine}");
        }
        let router = (1, "198.51.100.254".parse().unwrap());
        let host = (1, "198.51.100.9".parse().unwrap());
        let known = of(&Neighbours::from([(router, ROUTER_MAC), (host, HOST_MAC)]), &mut hops);
        assert_eq!((known.next_hops, known.left_out), (2, 0));
        assert_eq!(hop4(&known.entries, "192.0.2.9"), gateway, "it keeps its number");
        let number = hop4(&known.entries, "198.51.100.9");
        assert!(number != gateway && number != u64::from(ENGINE));
        let hop = known
            .entries
            .iter()
            .find(|entry| entry.table == "next_hops" && entry.key[0].1 == KeyField::Exact(number));
        let expected = [("port", 2), ("vid", 7), ("mac", 0x0200_0000_0013), ("own_mac", 0x0200_0000_0001)];
        assert_eq!(hop.unwrap().arguments[..], expected);
        forget_unused(&view(), &Neighbours::new(), &mut hops);
        assert_eq!(hops.numbers.len(), 1, "the router's number stays");
    }

    #[test]
    fn a_host_behind_a_router_is_no_next_hop_and_other_switches_have_other_ports() {
        let HostView { mut settings, places, .. } = view();
        let to = prefix("198.51.100.128/25");
        settings.ports[1].routes.push(Route { to, via: Some("198.51.100.2".parse().unwrap()) });
        let view = HostView::new(settings, places);
        let behind = (1, "198.51.100.200".parse().unwrap());
        let neighbours = Neighbours::from([(behind, HOST_MAC)]);
        let mut hops = HopNumbers::default();
        let idents = IdentShare { step: 3, first: 2 };
        let entries = entries_of(0, &view, &neighbours, (&mut hops, idents)).entries;
        assert!(!hops.numbers.contains_key(&behind));
        assert_eq!(
            hop4(&entries, "198.51.100.200"),
            u64::from(hops.of((1, "198.51.100.2".parse().unwrap())))
        );
        let other = entries_of(1, &view, &neighbours, (&mut hops, idents)).entries;
        assert!(other.iter().all(|entry| entry.table != "interfaces" && entry.table != "next_hops"));
        assert_eq!(hop4(&other, "198.51.100.200"), u64::from(ENGINE));
    }

    #[test]
    fn tables_are_not_overfilled() {
        let host =
            |n: u32| (0, IpAddr::V6(Ipv6Addr::from_bits((0x2001_0db8_0001 << 80) + u128::from(n) + 16)));
        let neighbours: Neighbours = (0..5000).map(|n| (host(n), HOST_MAC)).collect();
        let entries = of(&neighbours, &mut HopNumbers::default());
        let count = |table| entries.entries.iter().filter(|entry| entry.table == table).count();
        assert_eq!(count("routes6"), TABLE_MAX);
        assert!(count("next_hops") <= TABLE_MAX && entries.left_out > 900, "{}", entries.left_out);
    }
}
