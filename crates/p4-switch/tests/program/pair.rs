//! An engine with its Ethernet host, and the switch beside it.

use crate::entries::{self, Installed};
use gatun_ether::{
    Ether, Foreign, Limits, Mac, PortSettings, Prefix, Received, Route, Sent, StaticNeighbour, Tag,
};
use gatun_nat::inspect::{Selection, SessionCursor, SessionInfo};
use gatun_nat::plan::{self, Plan, Pool4, PoolRange};
use gatun_nat::tcp_fsm::TcpState;
use gatun_nat::{Instant, Nat, Verdict};
use gatun_p4_switch::{
    Entry, Environment, EnvironmentConfig, Object, ObjectConfig, PortConfig, Switch, SwitchConfig,
};
use gatun_wire::hdr::ipv4;
use gatun_wire::{HEADROOM, Packet, Prefix64, Settings, checksum};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::OnceLock;

pub(crate) const POOL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The engine's own address.
pub(crate) const OWN4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 129);
pub(crate) const PRIVATE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
pub(crate) const CLIENT: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 5);

pub(crate) const INSIDE: usize = 1;
pub(crate) const OUTSIDE: usize = 2;
const PORTS: usize = 4;
pub(crate) const VLAN: u16 = 7;
pub(crate) const INSIDE_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
pub(crate) const OUTSIDE_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);
pub(crate) const INSIDE_ROUTER: Mac = Mac([2, 0, 0, 0, 0, 0x11]);
pub(crate) const OUTSIDE_ROUTER: Mac = Mac([2, 0, 0, 0, 0, 0x12]);
pub(crate) const CLIENT_MAC: Mac = Mac([2, 0, 0, 0, 0, 0x15]);
pub(crate) const INSIDE_OWN6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
pub(crate) const INSIDE_OWN4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const OUTSIDE_OWN4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
const INSIDE_ROUTER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2);
const INSIDE_ROUTER4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OUTSIDE_ROUTER4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 253);

/// Fate of a frame in the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Sent to a port.
    Sent(usize, Vec<u8>),
    /// Given to the controller, with the reason.
    Controller(u8),
    /// Given to the controller as a pending session's packet, with place and value of its number.
    Pending(u32, u32),
    /// Not for the switch.
    Dropped,
}

pub(crate) struct Pair {
    pub(crate) nat: Nat,
    ether: Ether,
    pub(crate) switch: Lent,
    installed: BTreeMap<String, Installed>,
    pub(crate) prefix: Prefix64,
    settings: Settings,
    pub(crate) now: Instant,
    /// Generation of the next entries, or 0.
    pub(crate) pending: u8,
    /// Counter of the first session's entries, and the distance to the next session's.
    pub(crate) first_counter: u32,
    pub(crate) counter_step: u32,
}

pub(crate) fn well_known() -> Prefix64 {
    Prefix64::new(Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0, 0), 96).unwrap()
}

fn network(addr: impl Into<IpAddr>, len: u8) -> Prefix {
    Prefix { addr: addr.into(), len }
}

/// A NAT64 and a NAT44 instance with the same pool.
pub(crate) fn plan(prefix: Prefix64, settings: Settings) -> Plan {
    let range = PoolRange { first: POOL, last: POOL, ports: (1024, 65_535), transports: [true; 3] };
    Plan {
        pools: vec![Pool4 { name: "p".into(), ranges: vec![range], ..Pool4::default() }],
        nat64: vec![plan::Nat64 {
            name: "n".into(),
            pool6: vec![prefix],
            settings,
            ..plan::Nat64::default()
        }],
        nat44: vec![plan::Nat44 {
            name: "p".into(),
            inside: vec![plan::Net4 { addr: Ipv4Addr::new(10, 0, 0, 0), len: 8 }],
            mtu: settings.mtu4,
            ..plan::Nat44::default()
        }],
        own4: Some(OWN4),
        ..Plan::default()
    }
}

/// An untagged port to the inside and a tagged one to the outside, with known next hops.
fn ether(plan: &Plan) -> Ether {
    let port = |name: &str, device: usize, mac| PortSettings {
        name: name.into(),
        device: device as u8,
        mac,
        tags: Vec::new(),
        mtu: 9000,
        addresses: Vec::new(),
        answers: Vec::new(),
        routes: Vec::new(),
        neighbours: Vec::new(),
        realms: [0; 2],
    };
    let neighbour = |addr: IpAddr, mac| StaticNeighbour { addr, mac };
    let via = |to, gateway: IpAddr| Route { to, via: Some(gateway) };
    let inside = PortSettings {
        addresses: vec![network(INSIDE_OWN6, 64), network(INSIDE_OWN4, 24)],
        routes: vec![
            via(network(Ipv6Addr::UNSPECIFIED, 0), INSIDE_ROUTER6.into()),
            via(network(Ipv4Addr::new(10, 0, 0, 0), 8), INSIDE_ROUTER4.into()),
        ],
        neighbours: vec![
            neighbour(CLIENT.into(), CLIENT_MAC),
            neighbour(INSIDE_ROUTER6.into(), INSIDE_ROUTER),
            neighbour(INSIDE_ROUTER4.into(), INSIDE_ROUTER),
            neighbour(PRIVATE.into(), CLIENT_MAC),
        ],
        ..port("inside", INSIDE, INSIDE_MAC)
    };
    let outside = PortSettings {
        tags: vec![Tag::customer(VLAN)],
        addresses: vec![network(OUTSIDE_OWN4, 30)],
        routes: vec![via(network(Ipv4Addr::UNSPECIFIED, 0), OUTSIDE_ROUTER4.into())],
        neighbours: vec![neighbour(OUTSIDE_ROUTER4.into(), OUTSIDE_ROUTER)],
        ..port("outside", OUTSIDE, OUTSIDE_MAC)
    };
    let mut engine: Vec<Prefix> = plan.own4.into_iter().map(|own| network(own, 32)).collect();
    engine.extend(plan.own6.into_iter().map(|own| network(own, 128)));
    engine.push(network(POOL, 32));
    let settings =
        gatun_ether::Settings { ports: vec![inside, outside], engine, announces: false, shares: false };
    Ether::new(&settings, &Limits::default(), [1, 2, 3, 4]).unwrap()
}

/// The program, compiled once.
fn object(environment: Environment) -> &'static Object {
    static OBJECT: OnceLock<Object> = OnceLock::new();
    OBJECT.get_or_init(|| {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let sizes = [("gatun_lookup_flows6", 1024), ("gatun_lookup_flows4", 2048)];
        let config = ObjectConfig {
            headers: here.join("../../target/tools/dpdk-headers"),
            sizes: sizes.map(|(name, size)| (name.to_owned(), size)).into(),
            optimisation: 1,
            dpdk_code: false,
        };
        Object::compile(environment, &here.join("../../p4/gatun.spec"), &config).unwrap()
    })
}

pub(crate) fn switch() -> Switch {
    let environment =
        Environment::start(&EnvironmentConfig { memory_mb: 1024, arguments: Vec::new() }).unwrap();
    let config = SwitchConfig { ports: vec![PortConfig::default(); PORTS], buffers: 1024 };
    let mut switch = Switch::new(environment, object(environment), &config).unwrap();
    let word = |mac: Mac| mac.0.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let action = |table: &str, name: &str| entries::action(&switch, table, name);
    let mut text = String::new();
    let interface = action("gatun_interfaces", "gatun_interface");
    for (port, vid, number, mac) in [(INSIDE, 0, 1, INSIDE_MAC), (OUTSIDE, VLAN, 2, OUTSIDE_MAC)] {
        let mac = word(mac);
        // Identifications of the switch are odd, those of the engine even.
        text += &format!(
            "gatun_interfaces {port} {vid} {interface} number={number} mac={mac} ident_step=2 ident_first=1\n"
        );
    }
    let hops = [
        (1, INSIDE, 0, CLIENT_MAC, INSIDE_MAC),
        (2, INSIDE, 0, INSIDE_ROUTER, INSIDE_MAC),
        (3, OUTSIDE, VLAN, OUTSIDE_ROUTER, OUTSIDE_MAC),
    ];
    let next_hop = action("gatun_way_next_hops", "gatun_way_next_hop");
    for (hop, port, vid, mac, own) in hops {
        let (mac, own) = (word(mac), word(own));
        text +=
            &format!("gatun_way_next_hops {hop} {next_hop} port={port} vid={vid} mac={mac} own_mac={own}\n");
    }
    let own = action("gatun_host_own4", "gatun_host_own");
    for (interface, address) in [(1, INSIDE_OWN4), (2, OUTSIDE_OWN4)] {
        text += &format!("gatun_host_own4 {interface} {} {own}\n", u32::from(address));
    }
    let own = action("gatun_host_own6", "gatun_host_own");
    for address in [INSIDE_OWN6, INSIDE_MAC.link_local()] {
        let [high, low] = entries::halves(address);
        text += &format!("gatun_host_own6 1 {high} {low} {own}\n");
    }
    // No entry of next_hops has number 9: on the link, but not known.
    let routes4 = [
        (Ipv4Addr::UNSPECIFIED, 0, 3),
        (Ipv4Addr::new(10, 0, 0, 0), 8, 2),
        (Ipv4Addr::new(10, 0, 0, 0), 24, 9),
        (PRIVATE, 32, 1),
        (INSIDE_ROUTER4, 32, 2),
        (INSIDE_OWN4, 32, 9),
        (Ipv4Addr::new(192, 0, 2, 252), 30, 9),
        (OUTSIDE_ROUTER4, 32, 3),
    ];
    let route = action("gatun_way_routes4", "gatun_way_route");
    for (address, len, hop) in routes4 {
        let mask = u32::MAX.checked_shl(32 - len as u32).unwrap_or(0);
        text += &format!(
            "gatun_way_routes4 {}/{mask} priority {len} {route} next_hop={hop}\n",
            u32::from(address)
        );
    }
    let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);
    let routes6 = [
        (Ipv6Addr::UNSPECIFIED, 0, 2),
        (link_local, 10, 9),
        (INSIDE_OWN6, 64, 9),
        (CLIENT, 128, 1),
        (INSIDE_ROUTER6, 128, 2),
    ];
    let route = action("gatun_way_routes6", "gatun_way_route");
    for (address, len, hop) in routes6 {
        let mask = entries::halves(entries::mask6(len).into());
        let [high, low] = entries::halves(address);
        text += &format!(
            "gatun_way_routes6 {}/{} {}/{} priority {len} {route} next_hop={hop}\n",
            high & mask[0],
            mask[0],
            low & mask[1],
            mask[1]
        );
    }
    switch.load(&text).unwrap();
    switch
}

/// Entries of nobody in each table of sessions. A packet waits before it looks into a table as large as that.
const OTHERS: u64 = 300;

/// A switch whose tables have other entries already.
fn filled_switch() -> Switch {
    let mut switch = switch();
    for (name, width) in [("flows6", 7), ("flows4", 5)] {
        let name = format!("gatun_lookup_{name}");
        let table = switch.table(&name).unwrap();
        let action = entries::action(&switch, &name, "gatun_lookup_controller");
        for n in 0..OTHERS {
            let mut key = vec![0; width];
            key[1] = n;
            switch.insert(table, &Entry { key: &key, action: &action, data: &[] }).unwrap();
        }
    }
    switch
}

/// The switch of a thread, with large tables and with small ones in turn. Its buffers are never freed, so
/// the cases of a property share both.
pub(crate) struct Lent(Option<Switch>);

thread_local! {
    static SPARE: RefCell<VecDeque<Switch>> = const { RefCell::new(VecDeque::new()) };
}

impl Lent {
    pub(crate) fn new() -> Lent {
        if SPARE.with_borrow(VecDeque::is_empty) {
            let both = VecDeque::from([filled_switch(), switch()]);
            SPARE.set(both);
        }
        Lent(SPARE.with_borrow_mut(VecDeque::pop_front))
    }
}

impl Deref for Lent {
    type Target = Switch;

    fn deref(&self) -> &Switch {
        self.0.as_ref().unwrap()
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Switch {
        self.0.as_mut().unwrap()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            SPARE.with_borrow_mut(|spare| spare.extend(self.0.take()));
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.forget();
        }
    }
}

impl Pair {
    pub(crate) fn new(prefix: Prefix64, settings: Settings) -> Pair {
        Pair::of(&plan(prefix, settings), prefix, settings)
    }

    pub(crate) fn of(plan: &Plan, prefix: Prefix64, settings: Settings) -> Pair {
        let mut nat = Nat::new(plan, [1, 2, 3, 4]).unwrap();
        nat.set_worker(0, 2);
        let (ether, switch) = (ether(plan), Lent::new());
        let (installed, now) = (BTreeMap::new(), Instant(1_000));
        Pair {
            nat,
            ether,
            switch,
            installed,
            prefix,
            settings,
            now,
            pending: 0,
            first_counter: 0,
            counter_step: 0,
        }
    }

    /// Ends what has expired in the engine, and makes the switch's sessions those that are established.
    pub(crate) fn reconcile(&mut self) {
        self.nat.expire(self.now, 1_000);
        let mut sessions: Vec<SessionInfo> = Vec::with_capacity(100);
        self.nat.read_sessions(&mut SessionCursor::default(), &Selection::default(), 10_000, &mut sessions);
        // Hairpins are never installed.
        sessions.retain(|s| s.remote.0 != POOL && s.expires_ms > 0);
        sessions.retain(|s| s.tcp.is_none_or(|state| state == TcpState::Established));
        let wanted: BTreeMap<String, &SessionInfo> = sessions
            .iter()
            .map(|s| (format!("{:?}", (s.inside, s.outside, s.remote, s.transport)), s))
            .collect();
        let gone: Vec<String> =
            self.installed.keys().filter(|key| !wanted.contains_key(*key)).cloned().collect();
        let gone: Vec<Installed> = gone.iter().filter_map(|key| self.installed.remove(key)).collect();
        gone.into_iter().for_each(|installed| remove(&mut self.switch, installed));
        for ((name, session), number) in wanted.into_iter().zip(0..) {
            if !self.installed.contains_key(&name) {
                let first_counter = self.first_counter + number * self.counter_step;
                let flows = entries::of_session(session, &self.prefix, &self.settings);
                let flows =
                    flows.into_iter().map(|flow| flow.pending(self.pending).later_counter(first_counter));
                let installed = flows.map(|flow| insert(&mut self.switch, flow)).collect();
                self.installed.insert(name, installed);
            }
        }
    }

    /// Removes all entries: the next packet writes them again.
    pub(crate) fn forget(&mut self) {
        let all = std::mem::take(&mut self.installed);
        all.into_values().for_each(|installed| remove(&mut self.switch, installed));
    }

    pub(crate) fn installed(&self) -> usize {
        self.installed.len()
    }

    /// Frame that the engine and its host send for a frame, and the port; otherwise the reason.
    fn engine(&mut self, port: usize, frame: &[u8]) -> Result<(usize, Vec<u8>), String> {
        let mut buffer = [&[0; HEADROOM][..], frame, &[0; 64]].concat();
        let mut packet = Packet::new(&mut buffer, HEADROOM, frame.len()).unwrap();
        match self.ether.receive(self.now.0, port as u8, &mut packet) {
            Received::Packet => {}
            Received::Reply(_) => return Ok((port, packet.bytes().to_vec())),
            Received::Foreign(Foreign::OtherMac | Foreign::OtherVlan) => return Err("foreign".into()),
            other => return Err(format!("{other:?}")),
        }
        let mut verdicts = [Verdict::Pass];
        let mut burst = [packet];
        assert_eq!(self.nat.process(self.now, &mut burst, &mut verdicts), 1);
        self.nat.drain_emitted(|_| ());
        let [verdict] = verdicts;
        if !matches!(verdict, Verdict::Forward | Verdict::Reply(_)) {
            return Err(format!("{verdict:?}"));
        }
        match self.ether.transmit(self.now.0, &mut burst[0]) {
            Sent::Frame { device } => Ok((device.into(), burst[0].bytes().to_vec())),
            other => Err(format!("{other:?}")),
        }
    }

    /// Gives a frame to both, and compares the results. Returns the switch's, and the frame of the engine.
    pub(crate) fn compare(&mut self, port: usize, frame: &[u8]) -> (Fate, Option<Vec<u8>>) {
        self.reconcile();
        let fate = through(&mut self.switch, port, frame);
        let engine = self.engine(port, frame);
        match (&fate, &engine) {
            (Fate::Sent(to, sent), Ok((wanted, bytes))) => {
                assert_eq!(to, wanted, "port, for {frame:02x?}");
                assert_eq!(comparable(sent, frame), comparable(bytes, frame), "for {frame:02x?}");
                check_ident(sent, bytes, frame);
            }
            // Only who reads the whole message knows that its checksum is wrong.
            (Fate::Sent(to, _), Err(_)) if *to == port && has_wrong_echo(frame) => {}
            (Fate::Sent(..), Err(why)) => panic!("{fate:02x?}, but the engine: {why}, for {frame:02x?}"),
            (Fate::Dropped, engine) => {
                // The host of the engine looks at the source first.
                let wanted = ["foreign", "Drop(Runt)", "Drop(SourceMac)", "Drop(Looped)"];
                let is_wanted = engine.as_ref().is_err_and(|why| wanted.contains(&why.as_str()));
                assert!(is_wanted, "{engine:02x?} for {frame:02x?}");
            }
            (Fate::Controller(_) | Fate::Pending(..), _) => {}
        }
        (fate, engine.ok().map(|(_, bytes)| bytes))
    }
}

/// Removes entries.
pub(crate) fn remove(switch: &mut Switch, installed: Installed) {
    for (name, key) in installed {
        let table = switch.table(name).unwrap();
        switch.remove(table, &[&key]).unwrap();
    }
}

/// Inserts an entry. Returns its table and its key.
pub(crate) fn insert(switch: &mut Switch, flow: entries::Flow) -> (&'static str, Vec<u64>) {
    let table = switch.table(flow.table).unwrap();
    let action = entries::action(switch, flow.table, flow.action);
    let entry = Entry { key: &flow.key, action: &action, data: &flow.data };
    switch.insert(table, &entry).unwrap();
    (flow.table, flow.key)
}

/// Gives a frame to a switch.
pub(crate) fn through(switch: &mut Switch, port: usize, frame: &[u8]) -> Fate {
    switch.put(port, frame).unwrap();
    switch.turn();
    let mut out: Vec<(usize, Vec<u8>)> = Vec::new();
    for number in 0..PORTS {
        out.extend(std::iter::from_fn(|| switch.take(number)).map(|frame| (number, frame)));
    }
    assert!(out.len() < 2, "{out:02x?}");
    match out.pop() {
        Some((0, given)) => {
            assert_eq!(given[1..4], [0, 0, port as u8], "header of the controller: {given:02x?}");
            let word =
                |at: usize| u32::from_be_bytes([given[at], given[at + 1], given[at + 2], given[at + 3]]);
            let (len, fate) = match given[0] {
                18 => (12, Fate::Pending(word(4), word(8))),
                reason => (4, Fate::Controller(reason)),
            };
            assert!((1..=18).contains(&given[0]));
            assert_eq!(given[len..], *without_padding(frame), "the controller gets the frame as it is");
            fate
        }
        Some((port, frame)) => Fate::Sent(port, frame),
        None => Fate::Dropped,
    }
}

/// Length of the Ethernet header, and the type behind it.
pub(crate) fn split(frame: &[u8]) -> (usize, u16) {
    let word = |at: usize| frame.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    if word(12) == 0x8100 { (18, word(16)) } else { (14, word(12)) }
}

/// Offset of the IP header, if the frame has an IPv4 packet.
fn at4(frame: &[u8]) -> Option<usize> {
    let (at, kind) = split(frame);
    (kind == 0x0800 && frame.len() >= at + 20).then_some(at)
}

/// The frame without the bytes behind its IP packet. The switch's host removes them.
fn without_padding(frame: &[u8]) -> &[u8] {
    let (at, kind) = split(frame);
    let word = |at: usize| frame.get(at..at + 2).map_or(0, |b| usize::from(u16::from_be_bytes([b[0], b[1]])));
    let len = match kind {
        0x0800 if frame.len() >= at + 20 && word(at + 2) >= 20 => at + word(at + 2),
        0x86dd if frame.len() >= at + 40 => at + 40 + word(at + 4),
        _ => frame.len(),
    };
    &frame[..len.min(frame.len())]
}

/// Returns true if the translator chooses the identification of the frame that it made of `from`.
fn chooses_ident(from: &[u8], to: &[u8]) -> bool {
    let (at, kind) = split(from);
    let is_private = || from[at + 12] == PRIVATE.octets()[0] && from[at + 6] & 0x40 == 0;
    let is_echo_of_host = || at4(to).is_some_and(|new| to[new + 12..new + 16] == from[at + 16..at + 20]);
    at4(to).is_some() && (kind == 0x86dd || is_private() && !is_echo_of_host())
}

/// The frame without padding. If the translator chose its identification, that is zero, with the checksum of
/// zero.
fn comparable(frame: &[u8], from: &[u8]) -> Vec<u8> {
    let mut out = without_padding(frame).to_vec();
    if chooses_ident(from, frame) {
        let at = at4(frame).unwrap();
        let header = &mut out[at..at + 20];
        assert_eq!(checksum::sum(header), 0xffff, "the header's checksum");
        header[4..6].fill(0);
        ipv4::set_checksum(header);
    }
    out
}

/// Identifications of the switch are odd, those of the engine's one worker even.
fn check_ident(switch: &[u8], engine: &[u8], from: &[u8]) {
    if chooses_ident(from, switch) {
        let parity = |frame: &[u8]| frame[at4(frame).unwrap() + 5] & 1;
        assert_eq!((parity(switch), parity(engine)), (1, 0));
    }
}

/// Returns true for an echo request with a wrong checksum of its message.
fn has_wrong_echo(frame: &[u8]) -> bool {
    let frame = without_padding(frame);
    let (at, kind) = split(frame);
    match kind {
        0x0800 => frame[at + 20] == 8 && checksum::sum(&frame[at + 20..]) != 0xffff,
        0x86dd => {
            let message = &frame[at + 40..];
            let pseudo = checksum::pseudo(&frame[at + 8..at + 40], message.len() as u32, 58);
            message[0] == 128 && checksum::add(pseudo, checksum::sum(message)) != 0xffff
        }
        _ => false,
    }
}
