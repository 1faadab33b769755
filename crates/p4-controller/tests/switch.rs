//! The controller against the P4Runtime server, with a switch in memory.
#![allow(missing_docs)]

#[path = "support/memory_switch.rs"]
mod memory_switch;

use gatun_nat::counters::Count;
use gatun_nat::feed::{Flow, SessionId};
use gatun_nat::plan::{Eam, Net4, Net6, Plan, Siit, Transport};
use gatun_offload::{OffloadedFlow, Placement, Refusal, Removal, Target as _};
use gatun_p4_controller::connection::{
    Connection, ConnectionConfig, KeyField, Pipeline, StaticEntry, connect,
};
use gatun_p4_controller::program::{ConstantTos, Limits};
use gatun_p4_controller::stateless::{ENTRIES_MAX, StatelessView};
use gatun_p4_controller::{FlowId, Phase, Switches};
use gatun_p4_server::{MaskedEntry, Rates};
use gatun_p4runtime::p4::config::v1::action::Param;
use gatun_wire::Prefix64;
use memory_switch::{MemorySwitch, PROGRAM, config, info};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

struct Controller {
    switches: Switches<Connection>,
    began: Instant,
}

impl Controller {
    fn new(configs: Vec<ConnectionConfig>) -> Controller {
        let links = connect(configs, || ()).unwrap();
        Controller { switches: Switches::new(links, 1000), began: Instant::now() }
    }

    /// A controller whose switches have been read.
    fn started(configs: Vec<ConnectionConfig>) -> Controller {
        let mut controller = Controller::new(configs);
        controller.until("settled", |switches| switches.is_settled());
        controller.switches.entries(&mut |_, _| ());
        controller
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Switches<Connection>) -> bool) {
        while !is_so(&mut self.switches) {
            let status: Vec<_> = self.switches.status().collect();
            assert!(self.began.elapsed() < PATIENCE, "not {what}: {status:?}");
            std::thread::sleep(Duration::from_millis(1));
            self.switches.turn(self.began.elapsed());
        }
    }

    fn install(&mut self, flows: &[OffloadedFlow]) -> Vec<FlowId> {
        let mut placed = Vec::new();
        self.switches.install(flows, &mut placed);
        let ids: Vec<FlowId> = placed.into_iter().map(|id| id.unwrap()).collect();
        self.until("installed", |switches| {
            placements(switches, &ids).iter().all(|p| *p == Placement::Installed)
        });
        ids
    }

    fn wait_down(&mut self) {
        self.until("down", |switches| switches.status().any(|status| status.phase == Phase::Down));
    }

    fn wait_removed(&mut self, id: FlowId) {
        self.until("removed", |switches| removal(switches, id) != Removal::Waiting);
    }

    fn phase(&self) -> (Phase, String) {
        let status = self.switches.status().next().unwrap();
        (status.phase, status.reason.clone().unwrap_or_default())
    }
}

fn placements(switches: &mut Switches<Connection>, ids: &[FlowId]) -> Vec<Placement> {
    let mut placed = Vec::new();
    switches.placed(ids, &mut placed);
    placed
}

fn removal(switches: &mut Switches<Connection>, id: FlowId) -> Removal {
    let mut removals = Vec::new();
    switches.remove(&[id], &mut removals);
    removals[0]
}

/// Flow `n`: even numbers are of NAT64, odd ones of NAT44.
fn flow(n: u32) -> OffloadedFlow {
    let is_six = n.is_multiple_of(2);
    let inside = match is_six {
        true => Ipv6Addr::from_bits((0x2001_0db8 << 96) + u128::from(n)),
        false => Ipv4Addr::from_bits(0x6440_0000 + n).to_ipv6_mapped(),
    };
    let flow = Flow {
        inside: (inside, 5000),
        outside: (Ipv4Addr::new(192, 0, 2, 1), 1024 + n as u16),
        remote: (Ipv4Addr::new(198, 51, 100, 7), 443),
        transport: if n.is_multiple_of(3) { Transport::Udp } else { Transport::Tcp },
        instance: u8::from(!is_six),
    };
    let remote6 = is_six.then(|| "64:ff9b::c633:6407".parse().unwrap());
    let session = SessionId { record: n + 1, flow };
    OffloadedFlow { session, worker: 3, epoch: 5, remote6, path_mtu: (n == 4).then_some(1000) }
}

fn flows(n: u32) -> Vec<OffloadedFlow> {
    (0..n).map(flow).collect()
}

#[test]
fn flows_are_written_counted_and_removed() {
    let switch = MemorySwitch::new();
    let mut controller = Controller::started(vec![config(&switch)]);
    let ids = controller.install(&flows(600));
    assert_eq!(switch.memory().exact.len(), 1200);
    let inside = flow(0).session.flow.inside.0.to_bits();
    let key = [(inside >> 64) as u64, inside as u64, 0x0064_ff9b_0000_0000, 0xc633_6407, 5000, 443, 17];
    let found = |key: &[u64]| {
        let memory = switch.memory();
        memory.exact.iter().find(|(place, _)| place.1 == key).map(|(_, call)| call.data.clone()).unwrap()
    };
    let data = found(&key);
    assert_eq!(data[..4], [0xc000_0201, 0xc633_6407, 1024, 443]);
    // The last three: pending, next hop, counter.
    assert_eq!((data[5], &data[7..9], &data[10..]), (1500, &[0xff, 0][..], &[0, 0][..]));
    let back = found(&[0xc633_6407, 0xc000_0201, 443, 1024, 17]);
    assert_eq!(back[..6], [0x0064_ff9b_0000_0000, 0xc633_6407, key[0], key[1], 443, 5000]);
    assert_eq!((&back[7..11], &back[12..]), (&[1280, 1500, 0xff, 0][..], &[0, 1][..]));
    // Both directions are pending, and translate all packets after a second.
    assert!(data[9] != 0 && data[9] == back[11], "{data:?} {back:?}");
    controller.until("moved", |switches| switches.status().all(|status| status.moving == 0));
    controller.until("changed", |_| found(&key)[9] == 0);
    assert_eq!((found(&key)[..9].to_vec(), found(&key)[10..].to_vec()), (data[..9].to_vec(), vec![0, 0]));
    assert_eq!(switch.memory().exact.len(), 1200);

    switch.count(0, 3);
    switch.count(1, 2);
    let mut total = Count::default();
    controller.until("counted", |switches| {
        let mut used = Vec::new();
        switches.take_use(&ids[..1], &mut used);
        let traffic = used[0].unwrap().traffic;
        total += traffic.outbound;
        total += traffic.inbound;
        total.packets == 5
    });
    assert_eq!(total.bytes, 500);
    // Packets after the last round are in the answer to the removal.
    switch.count(0, 4);
    controller.until("removed", |switches| match removal(switches, ids[0]) {
        Removal::Removed(used) => {
            assert_eq!(used.traffic.outbound, Count { packets: 4, bytes: 400 });
            true
        }
        other => {
            assert_eq!(other, Removal::Waiting);
            false
        }
    });
    assert_eq!(switch.memory().exact.len(), 1198);
    assert_eq!(removal(&mut controller.switches, ids[0]), Removal::Missing);
}

#[test]
fn a_constant_tos_of_an_instance_is_in_its_entries() {
    let switch = MemorySwitch::new();
    let tos = vec![ConstantTos { to_ipv4: Some(0x28), to_ipv6: Some(0) }];
    let limits = Limits { tos, ..Limits::default() };
    let mut controller = Controller::started(vec![ConnectionConfig { limits, ..config(&switch) }]);
    controller.install(&flows(1));
    // Bits that are kept, and bits that are set.
    let has = |from: usize, values: [u64; 2]| {
        switch
            .memory()
            .exact
            .values()
            .any(|call| call.data.len() == from + 5 && call.data[from..from + 2] == values)
    };
    assert!(has(7, [0, 0x28]) && has(9, [0, 0]), "{:?}", switch.memory().exact);
}

#[test]
fn a_path_mtu_reaches_the_entries_of_a_flow() {
    let mut switch = MemorySwitch::new();
    let mut controller = Controller::started(vec![config(&switch)]);
    let ids = controller.install(&flows(2));
    // Largest packets: to IPv4 of flow 0, and of both entries of flow 1 (NAT44), which are the last.
    let limits = |switch: &MemorySwitch| {
        let of = |len| switch.memory().exact.values().filter(|call| call.data[5] == len).count();
        (of(700), of(1500))
    };
    assert_eq!(limits(&switch), (0, 3));
    ids.iter().for_each(|id| controller.switches.set_path_mtu(*id, Some(700)));
    controller.until("changed", |_| limits(&switch) == (3, 0));
    assert_eq!(switch.memory().exact.len(), 4);
    controller.switches.set_path_mtu(ids[0], None);
    controller.until("changed back", |_| limits(&switch) == (2, 1));
    switch.restart();
    controller.until("written again", |_| limits(&switch) == (2, 1));
    // Without a connection, it is changed after the switch has been read.
    switch.server = None;
    controller.wait_down();
    controller.switches.set_path_mtu(ids[0], Some(700));
    switch.restart();
    controller.until("changed after the connection", |_| limits(&switch) == (3, 0));
}

#[test]
fn a_switch_that_restarts_empty_gets_its_flows_again_and_a_removal_waits_for_it() {
    let mut switch = MemorySwitch::new();
    let mut controller = Controller::started(vec![config(&switch)]);
    let ids = controller.install(&flows(100));
    switch.server = None;
    controller.wait_down();
    assert!(!controller.switches.is_ready());
    assert_eq!(removal(&mut controller.switches, ids[0]), Removal::Waiting);
    std::thread::sleep(Duration::from_millis(100));
    controller.switches.turn(controller.began.elapsed());
    assert_eq!(removal(&mut controller.switches, ids[0]), Removal::Waiting, "silence is no answer");
    switch.restart();
    controller.wait_removed(ids[0]);
    controller.until("present", |switches| switches.status().all(|status| status.flows == 99));
    assert_eq!(switch.memory().exact.len(), 198);
}

#[test]
fn a_switch_that_is_declared_gone_keeps_no_session() {
    let mut switch = MemorySwitch::new();
    let mut controller = Controller::started(vec![config(&switch)]);
    let ids = controller.install(&flows(1));
    switch.server = None;
    controller.wait_down();
    assert_eq!(removal(&mut controller.switches, ids[0]), Removal::Waiting);
    assert!(controller.switches.set_gone(0));
    assert!(matches!(removal(&mut controller.switches, ids[0]), Removal::Removed(_)));
}

#[test]
fn the_next_controller_takes_over_the_entries_of_a_killed_one() {
    let switch = MemorySwitch::new();
    let mut first = Controller::started(vec![config(&switch)]);
    first.install(&flows(100));
    drop(first);
    let changes = switch.memory().changes;
    let later = ConnectionConfig { election: 8, ..config(&switch) };
    let mut second = Controller::new(vec![later.clone()]);
    second.until("settled", |switches| switches.is_settled());
    let mut found = Vec::new();
    second.switches.entries(&mut |_, flow| found.push(*flow));
    found.sort_by_key(|flow| flow.session.record);
    assert_eq!(found, flows(100));
    assert_eq!(switch.memory().changes, changes, "nothing differs");
    drop(second);
    // Entries in another form are not those of the flows.
    let limits = Limits { mtu4: 1400, ..Limits::default() };
    let mut third = Controller::new(vec![ConnectionConfig { election: 9, limits, ..later }]);
    third.until("settled", |switches| switches.is_settled());
    third.switches.entries(&mut |_, flow| assert_eq!(flow.path_mtu, Some(1000), "{flow:?} has another MTU"));
    assert!(switch.memory().exact.len() <= 2);
}

#[test]
fn a_ping_has_entries_for_requests_and_replies_and_is_taken_over() {
    let ping = |n: u32| {
        let mut flow = flow(n);
        (flow.session.flow.transport, flow.session.flow.remote.1) = (Transport::Icmp, 0);
        flow
    };
    let pings = [ping(0), ping(1)];
    let switch = MemorySwitch::new();
    let mut first = Controller::started(vec![config(&switch)]);
    first.install(&pings);
    // The last field of a key is the protocol: ICMPv6 from the IPv6 host, and ICMP else.
    let exact = switch.memory().exact.clone();
    let mut protocols: Vec<u64> = exact.keys().map(|(_, key)| *key.last().unwrap()).collect();
    protocols.sort_unstable();
    assert_eq!(protocols, [1, 1, 1, 58]);
    drop(first);
    let mut second = Controller::new(vec![ConnectionConfig { election: 8, ..config(&switch) }]);
    second.until("settled", |switches| switches.is_settled());
    let mut found = Vec::new();
    second.switches.entries(&mut |_, flow| found.push(*flow));
    found.sort_by_key(|flow| flow.session.record);
    assert_eq!(found, pings);
}

#[test]
fn the_number_of_found_flows_stays_when_they_end() {
    let switch = MemorySwitch::new();
    let mut first = Controller::started(vec![config(&switch)]);
    first.install(&flows(3));
    drop(first);
    let mut second = Controller::new(vec![ConnectionConfig { election: 8, ..config(&switch) }]);
    second.until("settled", |switches| switches.is_settled());
    let mut ids = Vec::new();
    second.switches.entries(&mut |id, _| ids.push(id));
    ids.into_iter().for_each(|id| second.wait_removed(id));
    let status = second.switches.status().next().unwrap();
    assert_eq!((status.flows, status.found), (0, 3));
}

#[test]
fn an_entry_that_the_switch_refuses_concerns_its_flow_only() {
    let switch = MemorySwitch::new();
    let mut controller = Controller::started(vec![config(&switch)]);
    // The inbound entry of flow 1.
    switch.memory().refused.push(vec![0xc633_6407, 0xc000_0201, 443, 1025, 6]);
    let mut placed = Vec::new();
    controller.switches.install(&flows(3), &mut placed);
    let ids: Vec<FlowId> = placed.into_iter().map(|id| id.unwrap()).collect();
    // A result is told once.
    let mut results = vec![Placement::Waiting; 3];
    controller.until("answered", |switches| {
        for (result, id) in results.iter_mut().zip(&ids).filter(|(result, _)| **result == Placement::Waiting)
        {
            *result = placements(switches, &[*id]).remove(0);
        }
        !results.contains(&Placement::Waiting)
    });
    assert!(matches!(results[1], Placement::Refused(Refusal::Full, _)), "{results:?}");
    assert_eq!((&results[0], &results[2]), (&Placement::Installed, &Placement::Installed));
    assert_eq!(switch.memory().exact.len(), 4, "nothing of the refused flow is left");
    let mut again = Vec::new();
    controller.switches.install(&flows(1), &mut again);
    assert_eq!(again, [Err(Refusal::Exists)]);
}

#[test]
fn a_controller_with_a_higher_election_id_takes_the_switch() {
    let switch = MemorySwitch::new();
    let mut first = Controller::started(vec![config(&switch)]);
    first.install(&flows(3));
    let mut second = Controller::new(vec![ConnectionConfig { election: 8, ..config(&switch) }]);
    second.until("settled", |switches| switches.is_settled());
    first.until("standby", |switches| switches.status().all(|status| status.phase == Phase::Standby));
    let (_, reason) = first.phase();
    assert!(reason.contains("another controller is the primary"), "{reason}");
    assert_eq!(second.phase().0, Phase::Ready);
    assert!(first.switches.status().all(|status| (status.unknown, status.connections) == (3, 1)));
    drop(second);
    first.until("primary again", |switches| switches.status().all(|status| status.phase == Phase::Ready));
    assert!(first.switches.status().all(|status| (status.flows, status.connections) == (3, 2)));
    // Its election ID is higher now, and that of a later process is higher still.
    let mut third =
        Controller::new(vec![ConnectionConfig { election: 8, first_connection: 99, ..config(&switch) }]);
    third.until("settled", |switches| switches.is_settled());
}

#[test]
fn packets_of_earlier_controllers_are_not_counted_again() {
    let switch = MemorySwitch::new();
    let mut first = Controller::started(vec![config(&switch)]);
    first.install(&flows(2));
    (0..8).for_each(|counter| switch.count(counter, 7));
    drop(first);
    let mut second = Controller::started(vec![ConnectionConfig { election: 8, ..config(&switch) }]);
    let mut ids = Vec::new();
    second.switches.entries(&mut |id, _| ids.push(id));
    ids.extend(second.install(&[flow(2)]));
    assert_eq!(ids.len(), 3);
    // The third flow was installed after the counters of all three were read.
    switch.count(0, 3);
    switch.count(4, 2);
    let mut total = [0; 3];
    second.until("counted", |switches| {
        let mut used = Vec::new();
        switches.take_use(&ids, &mut used);
        for (total, used) in total.iter_mut().zip(used) {
            *total += used.unwrap().traffic.total().packets;
        }
        total[0] >= 3 && total[2] >= 2
    });
    assert_eq!(total, [3, 0, 2]);
}

#[test]
fn a_program_that_is_not_gatuns_is_refused_in_words() {
    let switch = MemorySwitch::new();
    let mut other = info();
    let mut names = other.tables.iter_mut().filter_map(|table| table.preamble.as_mut());
    let table = names.find(|preamble| preamble.alias == "flows6").unwrap();
    (table.name, table.alias) = ("other".to_owned(), "other".to_owned());
    let pipeline = Pipeline { info: other, device_config: PROGRAM.to_vec(), replaces: false };
    let wrong = ConnectionConfig { pipeline: Some(Arc::new(pipeline)), ..config(&switch) };
    let none = ConnectionConfig { pipeline: None, ..config(&switch) };
    let with_arguments = |change: fn(&mut Vec<Param>)| {
        let mut info = info();
        let mut actions = info.actions.iter_mut();
        let of = actions.find(|of| of.preamble.as_ref().is_some_and(|of| of.alias == "nat44")).unwrap();
        change(&mut of.params);
        let pipeline = Pipeline { info, device_config: PROGRAM.to_vec(), replaces: false };
        ConnectionConfig { pipeline: Some(Arc::new(pipeline)), ..config(&switch) }
    };
    let earlier = with_arguments(|params| params.retain(|param| param.name != "pending"));
    let later = with_arguments(|params| params.push(Param { id: 99, ..Param::default() }));
    for (config, reason) in [
        (wrong, "the switch does not run Gatun's program: it has no table `flows6`"),
        (none, "the switch has no program, and the configuration names none"),
        (
            earlier,
            "the switch does not run Gatun's program: action `nat44` is of another version: it has no argument \
             `pending`",
        ),
        (
            later,
            "the switch does not run Gatun's program: action `nat44` is of another version: it has 11 arguments",
        ),
    ] {
        let mut controller = Controller::new(vec![config]);
        controller.until("refused", |switches| switches.status().all(|status| status.reason.is_some()));
        assert_eq!(controller.phase(), (Phase::Down, reason.to_owned()));
    }
}

/// Flows that a controller without a program of its own installs: it uses that of the switch.
fn install_by_another(switch: &MemorySwitch) {
    let other = ConnectionConfig { pipeline: None, election: 6, ..config(switch) };
    Controller::started(vec![other]).install(&flows(20));
    assert_eq!(switch.memory().exact.len(), 40);
}

#[test]
fn a_program_of_somebody_else_is_replaced_only_if_the_configuration_says_so() {
    let switch = MemorySwitch::programmed(0x1234_5678, PROGRAM);
    install_by_another(&switch);
    let mut controller = Controller::new(vec![config(&switch)]);
    controller.until("refused", |switches| switches.status().all(|status| status.reason.is_some()));
    let reason = "the switch has another program; write `replace_program = true` to replace it";
    assert_eq!(controller.phase(), (Phase::Down, reason.to_owned()));
    assert_eq!(switch.memory().exact.len(), 40);
    drop(controller);
    let pipeline = Pipeline { info: info(), device_config: PROGRAM.to_vec(), replaces: true };
    let replacing = ConnectionConfig { pipeline: Some(Arc::new(pipeline)), election: 8, ..config(&switch) };
    drop(Controller::started(vec![replacing]));
    assert!(switch.memory().exact.is_empty(), "the switch was emptied");
    // From now on the program is Gatun's.
    let mut next = Controller::started(vec![ConnectionConfig { election: 9, ..config(&switch) }]);
    next.install(&flows(3));
}

#[test]
fn an_earlier_program_of_gatun_is_replaced_and_its_entries_stay_if_the_switch_can_keep_them() {
    // "GATN", and the hash of another version.
    let cookie = 0x4741_544e_0000_0001;
    for (device_config, kept) in [(PROGRAM, 20), (b"", 0)] {
        let switch = MemorySwitch::programmed(cookie, device_config);
        install_by_another(&switch);
        let changes = switch.memory().changes;
        let found_by = |controller: &mut Controller| {
            controller.until("settled", |switches| switches.is_settled());
            let mut found = 0;
            controller.switches.entries(&mut |_, _| found += 1);
            found
        };
        let mut controller = Controller::new(vec![config(&switch)]);
        assert_eq!((found_by(&mut controller), switch.memory().exact.len()), (kept, 2 * kept));
        assert!(kept == 0 || switch.memory().changes == changes, "nothing differs");
        // The next controller finds the program that this one has loaded.
        controller.install(&[flow(30)]);
        drop(controller);
        let mut next = Controller::new(vec![ConnectionConfig { election: 8, ..config(&switch) }]);
        assert_eq!(found_by(&mut next), kept + 1);
    }
}

fn next_hop(mac: u64) -> Vec<StaticEntry> {
    let hop = StaticEntry {
        table: "next_hops",
        key: vec![("next_hop", KeyField::Exact(1))],
        priority: 0,
        action: "next_hop",
        arguments: vec![("port", 2), ("vid", 0), ("mac", mac), ("own_mac", 0x0200_0000_0001)],
    };
    let route = StaticEntry {
        table: "routes4",
        key: vec![("dst", KeyField::Ternary { value: 0xc633_6400, mask: 0xffff_ff00 })],
        priority: 24,
        action: "route",
        arguments: vec![("next_hop", 1)],
    };
    vec![hop, route]
}

#[test]
fn other_tables_get_the_difference() {
    let mut switch = MemorySwitch::new();
    let mut controller = Controller::started(vec![config(&switch)]);
    let hop = |switch: &MemorySwitch| switch.memory().exact.values().next().map(|call| call.data.clone());
    let routes = |switch: &MemorySwitch| switch.memory().masked.values().map(Vec::len).sum::<usize>();
    controller.switches.link(0).set_entries(next_hop(0x0200_0000_0099));
    controller.until("written", |_| routes(&switch) == 1);
    assert_eq!(hop(&switch), Some(vec![2, 0, 0x0200_0000_0099, 0x0200_0000_0001]));
    controller.switches.link(0).set_entries(next_hop(0x0200_0000_0098));
    controller.until("changed", |_| hop(&switch).is_some_and(|data| data[2] == 0x0200_0000_0098));
    switch.restart();
    controller.until("written again", |_| routes(&switch) == 1);
    controller.switches.link(0).set_entries(Vec::new());
    controller.until("removed", |_| hop(&switch).is_none() && routes(&switch) == 0);
}

/// Next hops with consecutive numbers, and a route to each.
fn next_hops(numbers: std::ops::Range<u64>) -> Vec<StaticEntry> {
    let of = |number: u64| {
        let [mut hop, mut route] = <[StaticEntry; 2]>::try_from(next_hop(0x0200_0000_0000 + number)).unwrap();
        hop.key = vec![("next_hop", KeyField::Exact(number))];
        route.key = vec![("dst", KeyField::Ternary { value: 0x0a00_0000 + number, mask: 0xffff_ffff })];
        route.arguments = vec![("next_hop", number)];
        [hop, route]
    };
    numbers.flat_map(of).collect()
}

#[test]
fn entries_of_full_tables_are_replaced() {
    let switch = MemorySwitch::new();
    let mut controller = Controller::started(vec![config(&switch)]);
    let is_done = |switches: &mut Switches<Connection>| switches.link(0).has_entries();
    let size = 4096;
    for begin in [0, 1, 1_000, 10_000] {
        controller.switches.link(0).set_entries(next_hops(begin..begin + size));
        controller.until("written", is_done);
        let routes = switch.memory().masked.values().map(Vec::len).sum::<usize>();
        assert_eq!((switch.memory().exact.len(), routes), (size as usize, size as usize));
    }
    assert!(controller.switches.status().all(|status| status.connections == 1));
}

/// A plan with mappings of hosts.
fn mapped(mappings: u32) -> Plan {
    let eam = |n: u32| Eam {
        v4: Net4 { addr: Ipv4Addr::from_bits(0xcb00_7100 + n), len: 32 },
        v6: Net6 { addr: Ipv6Addr::from_bits((0x2001_0db8_000a << 80) + u128::from(n)), len: 128 },
    };
    let siit = Siit { name: "s".into(), eamt: (0..mappings).map(eam).collect(), ..Siit::default() };
    Plan { siit: vec![siit], ..Plan::default() }
}

fn mappings(plan: &Plan) -> Vec<StaticEntry> {
    StatelessView { plan, excluded: &[], host: &[], mtu: 1500, smallest_path: None }.entries().entries
}

/// Entries that translate, of all tables of stateless instances.
fn translating(switch: &MemorySwitch) -> Vec<MaskedEntry> {
    let memory = switch.memory();
    memory.masked.values().flatten().filter(|entry| !entry.call.data.is_empty()).cloned().collect()
}

#[test]
fn mappings_are_written_counted_and_removed_and_a_later_controller_takes_them_over() {
    let mut switch = MemorySwitch::new();
    let mut controller = Controller::started(vec![config(&switch)]);
    let is_done = |switches: &mut Switches<Connection>| switches.link(0).has_entries();
    // The last counters, behind those of flows; earlier packets were those of another process.
    let first = 4096 - 512;
    switch.count(first, 7);
    controller.switches.link(0).set_entries(mappings(&mapped(3)));
    controller.until("written", is_done);
    assert_eq!(translating(&switch).len(), 12);
    let counter = |entry: &MaskedEntry| entry.call.data.contains(&(first as u64));
    assert_eq!(translating(&switch).iter().filter(|entry| counter(entry)).count(), 3);
    switch.count(first, 3);
    switch.count(first + 1, 4);
    let counts = |switches: &Switches<Connection>| {
        switches.link(0).stateless_counts().first().map(|[six, four]| (six.packets, four.packets))
    };
    controller.until("counted", |switches| counts(switches) == Some((3, 4)));
    controller.switches.link(0).set_entries(mappings(&mapped(1)));
    controller.until("removed", is_done);
    assert_eq!(translating(&switch).len(), 4);
    // Packets of entries that are removed are counted before the removal counts as done.
    switch.count(first, 5);
    controller.switches.link(0).set_entries(Vec::new());
    controller.until("empty", is_done);
    assert_eq!((translating(&switch).len(), counts(&controller.switches)), (0, Some((8, 4))));

    switch.restart();
    controller.switches.link(0).set_entries(mappings(&mapped(2)));
    controller.until("written again", |switches| is_done(switches) && translating(&switch).len() == 8);
    drop(controller);
    let changes = switch.memory().changes;
    let links = connect(vec![ConnectionConfig { election: 8, ..config(&switch) }], || ()).unwrap();
    links[0].1.set_entries(mappings(&mapped(2)));
    let mut second = Controller { switches: Switches::new(links, 1000), began: Instant::now() };
    second.until("settled", |switches| switches.is_settled());
    assert_eq!(switch.memory().changes, changes, "nothing differs");
}

#[test]
fn a_switch_without_tables_of_mappings_has_sessions_alone() {
    let switch = MemorySwitch::new();
    let mut other = info();
    other.tables.retain(|table| table.preamble.as_ref().is_none_or(|of| of.alias != "mapped_src4"));
    let pipeline = Pipeline { info: other, device_config: PROGRAM.to_vec(), replaces: false };
    let config = ConnectionConfig { pipeline: Some(Arc::new(pipeline)), ..config(&switch) };
    let mut controller = Controller::started(vec![config]);
    controller.switches.link(0).set_entries([next_hop(1), mappings(&mapped(3))].concat());
    controller.until("written", |switches| switches.link(0).has_entries());
    let why = controller.switches.link(0).stateless_refusal();
    assert_eq!(why.as_deref(), Some("its program has no tables for them"));
    controller.install(&flows(4));
    assert!(translating(&switch).iter().all(|entry| entry.key.len() == 1), "a route, but no mapping");
}

#[test]
fn a_switch_with_too_little_room_for_mappings_has_none_of_them() {
    let switch = MemorySwitch::new();
    let mut small = info();
    let size = |table: &mut gatun_p4runtime::p4::config::v1::Table| {
        let is_it = table.preamble.as_ref().is_some_and(|of| of.alias == "mapped_src6");
        table.size = if is_it { 12 } else { table.size };
    };
    small.tables.iter_mut().for_each(size);
    let pipeline = Pipeline { info: small, device_config: PROGRAM.to_vec(), replaces: false };
    let config = ConnectionConfig { pipeline: Some(Arc::new(pipeline)), ..config(&switch) };
    let mut controller = Controller::started(vec![config]);
    let set = |controller: &mut Controller, n| {
        controller.switches.link(0).set_entries([next_hop(1), mappings(&mapped(n))].concat());
        controller.until("written", |switches| switches.link(0).has_entries());
        let refusal = controller.switches.link(0).stateless_refusal();
        (translating(&switch).len(), refusal)
    };
    assert_eq!(set(&mut controller, 3), (13, None));
    let why = "its tables have no room for them".to_owned();
    assert_eq!(set(&mut controller, 30), (1, Some(why)));
    assert_eq!(set(&mut controller, 2), (9, None));
    assert!(controller.switches.status().all(|status| status.connections == 1));
}

#[test]
fn more_mappings_than_the_tables_have_room_for_stay_with_the_engine() {
    let view = |plan: &Plan| {
        let view = StatelessView { plan, excluded: &[], host: &[], mtu: 1500, smallest_path: None };
        let entries = view.entries();
        (entries.entries.is_empty(), entries.mappings, entries.left)
    };
    assert_eq!(view(&mapped(ENTRIES_MAX as u32 - 10)), (false, ENTRIES_MAX - 10, 0));
    assert_eq!(view(&mapped(ENTRIES_MAX as u32 + 1)), (true, 0, ENTRIES_MAX + 1));
    // A prefix excepts the address of each mapping.
    let behind_prefix = |mappings| {
        let mut plan = mapped(mappings);
        plan.siit[0].pool6 = vec![Prefix64::new("2001:db8:64::".parse().unwrap(), 96).unwrap()];
        view(&plan)
    };
    let half = ENTRIES_MAX as u32 / 2;
    assert_eq!(behind_prefix(half - 20), (false, half as usize - 20, 0));
    assert_eq!(behind_prefix(half + 20), (true, 0, half as usize + 20));
}

#[test]
fn a_meter_limits_the_packets_of_each_reason() {
    let switch = MemorySwitch::new();
    let limited = ConnectionConfig { controller_limit: Some(2_000), ..config(&switch) };
    let _controller = Controller::started(vec![limited]);
    let rates = Rates { cir: 2_000, cburst: 200, pir: 2_000, pburst: 200 };
    let meters = switch.memory().meters.clone();
    assert_eq!(meters.len(), 32);
    assert!(meters.iter().all(|((name, _), of)| name == "controller_limit" && *of == rates), "{meters:?}");
    let later = ConnectionConfig { election: 8, ..config(&switch) };
    let _second = Controller::started(vec![later]);
    assert!(switch.memory().meters.is_empty());
}

#[test]
fn two_switches_have_the_same_flows_and_a_removal_waits_for_both() {
    let (one, mut other) = (MemorySwitch::new(), MemorySwitch::new());
    let second = ConnectionConfig { name: "other".to_owned(), ..config(&other) };
    let mut controller = Controller::started(vec![config(&one), second]);
    let ids = controller.install(&flows(50));
    assert_eq!((one.memory().exact.len(), other.memory().exact.len()), (100, 100));
    other.server = None;
    controller.wait_down();
    assert!(controller.switches.is_ready(), "the first one takes flows");
    controller.install(&[flow(50)]);
    assert_eq!(removal(&mut controller.switches, ids[0]), Removal::Waiting);
    controller.until("removed from one", |_| one.memory().exact.len() == 100);
    assert_eq!(removal(&mut controller.switches, ids[0]), Removal::Waiting);
    other.restart();
    controller.wait_removed(ids[0]);
    controller.until("same", |_| other.memory().exact.len() == 100);
}
