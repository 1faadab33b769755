//! The server's requests on DPDK's pipeline, with frames of capture files.

#[allow(dead_code)]
mod support;

use gatun_p4_server::{Device, Host, HostConfig, HostHandle};
use gatun_p4_switch::{EnvironmentConfig, ObjectConfig, PortConfig};
use gatun_p4runtime::p4::v1::entity::Entity as Kind;
use gatun_p4runtime::p4::v1::set_forwarding_pipeline_config_request::Action as ConfigAction;
use gatun_p4runtime::p4::v1::update::Type;
use gatun_p4runtime::p4::v1::{
    CounterEntry, Entity, MeterConfig, MeterEntry, PacketMetadata, PacketOut, ReadRequest, TableEntry, Update,
};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};
use support::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// Capture file in the old format, as libpcap reads and writes it.
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file: Vec<u8> =
        [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65535, 1].iter().flat_map(|n| n.to_le_bytes()).collect();
    for frame in frames {
        let len = frame.len() as u32;
        file.extend([0, 0, len, len].iter().flat_map(|n: &u32| n.to_le_bytes()));
        file.extend(frame);
    }
    file
}

/// Frames of a capture file.
fn frames(file: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = file.get(24..).unwrap_or_default();
    let mut all = Vec::new();
    while let Some((head, more)) = rest.split_at_checked(16) {
        let len = u32::from_le_bytes(head[8..12].try_into().unwrap()) as usize;
        let Some((frame, more)) = more.split_at_checked(len) else { break };
        all.push(frame.to_vec());
        rest = more;
    }
    all
}

fn frame(dst: u64, src: u64) -> Vec<u8> {
    [&dst.to_be_bytes()[2..], &src.to_be_bytes()[2..], &[0x88, 0xb5], &[7; 46]].concat()
}

struct Bench {
    device: Device,
    handle: HostHandle,
    received: Receiver<Vec<u8>>,
    out: PathBuf,
}

/// Switch with a port that receives `frames` and a port that writes what it sends to a file.
fn bench(name: &str, given: &[Vec<u8>], entries: Option<&str>) -> Bench {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("p4-{name}"));
    std::fs::create_dir_all(&directory).unwrap();
    let (input, out, other) =
        (directory.join("in.pcap"), directory.join("out.pcap"), directory.join("other.pcap"));
    std::fs::write(&input, pcap(given)).unwrap();
    let port = |device: &str, arguments: String| PortConfig {
        device: Some(format!("net_pcap_{name}{device}")),
        arguments,
    };
    let config = HostConfig {
        environment: EnvironmentConfig { memory_mb: 512, arguments: Vec::new() },
        program: here.join("tests/switch.spec"),
        object: ObjectConfig {
            headers: here.join("../../target/tools/dpdk-headers"),
            sizes: Vec::new(),
            optimisation: 1,
            dpdk_code: false,
        },
        controller_port: PortConfig::default(),
        ports: vec![
            port("0", format!("rx_pcap={},tx_pcap={}", input.display(), other.display())),
            port(
                "1",
                format!("rx_pcap={},tx_pcap={}", input.with_file_name("none.pcap").display(), out.display()),
            ),
        ],
        buffers: 4096,
        entries: entries.map(str::to_owned),
        idle_sleep: Duration::from_micros(200),
    };
    std::fs::write(directory.join("none.pcap"), pcap(&[])).unwrap();
    let (sender, received) = sync_channel(64);
    let (host, handle) = Host::start(&config, sender).unwrap();
    let mut device = Device::new(host);
    device.set_config(&config_of(ConfigAction::VerifyAndCommit)).unwrap();
    Bench { device, handle, received, out }
}

fn config_of(action: ConfigAction) -> gatun_p4runtime::p4::v1::SetForwardingPipelineConfigRequest {
    config(action, SPEC)
}

fn read(device: &mut Device, kind: Kind) -> Vec<Entity> {
    let request = ReadRequest { device_id: 1, entities: vec![entity(kind)], ..ReadRequest::default() };
    let mut reading = device.begin_read(&request).unwrap();
    std::iter::from_fn(|| device.read(&mut reading).unwrap()).flatten().collect()
}

fn packet_out(device: &mut Device, port: u64, payload: Vec<u8>) {
    let metadata = |metadata_id, value| PacketMetadata { metadata_id, value: bytes(value) };
    device.packet_out(&PacketOut { payload, metadata: vec![metadata(1, 0), metadata(2, port)] }).unwrap();
}

/// The environment starts once in a process: one test has all steps.
#[test]
fn a_program_on_dpdk_serves_controllers() {
    let given = [frame(1, 2), frame(0x0199, 2), frame(5, 6)];
    let text =
        "known 1 2 forward port=2 counter=9\nranges 0x0100/0xff00 0/0 priority 1 forward port=2 counter=8\n";
    let mut first = bench("first", &given, Some(text));
    assert_eq!(first.handle.entries, 2);
    let received = first.received.recv_timeout(PATIENCE).unwrap();
    assert_eq!(received, [&[1, 0, 0, 1][..], &frame(5, 6)].concat());
    let packet = first.device.packet_in(&received).unwrap();
    assert_eq!((packet.payload, &packet.metadata[2].value), (frame(5, 6), &bytes(1)));

    // Frames of the controller leave by the port in their header; to a port that does not exist, by none.
    packet_out(&mut first.device, 2, frame(7, 8));
    packet_out(&mut first.device, 256, frame(7, 9));
    packet_out(&mut first.device, 65535, frame(7, 9));

    entries_are_kept_and_read_back(&mut first.device);
    counters_and_meters_are_reached(&mut first.device);
    another_program_replaces_this_one(&mut first.device);
    // It sends the last frame after that.
    an_idle_switch_sleeps();
    packet_out(&mut first.device, 2, frame(7, 10));

    wait_for_frames(&first, 4);
    let sent = frames(&std::fs::read(&first.out).unwrap());
    assert_eq!(sent, [frame(1, 2), frame(0x0199, 2), frame(7, 8), frame(7, 10)]);
    let end = first.handle.stop();
    assert_eq!((end.ports[1].received, end.ports[2].sent, end.controller_lost), (3, 4, 0));
}

/// The project's own program, with smaller tables.
#[test]
fn gatuns_program_and_its_p4info_belong_together() {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../p4");
    let p4info = std::fs::read_to_string(program.join("psa.p4info.txt")).unwrap();
    let p4info = gatun_p4runtime::p4info_from_text(&p4info).unwrap();
    let sizes = ["gatun_lookup_flows6", "gatun_lookup_flows4"].map(|table| (table.to_owned(), 1024)).into();
    let config = HostConfig {
        environment: EnvironmentConfig { memory_mb: 512, arguments: Vec::new() },
        program: program.join("gatun.spec"),
        object: ObjectConfig {
            headers: program.join("../target/tools/dpdk-headers"),
            sizes,
            optimisation: 0,
            dpdk_code: false,
        },
        ports: vec![PortConfig::default()],
        controller_port: PortConfig::default(),
        buffers: 1024,
        entries: None,
        idle_sleep: Duration::ZERO,
    };
    let (sender, _received) = sync_channel(64);
    let (host, handle) = Host::start(&config, sender).unwrap();
    let mut device = Device::new(host);
    let id = |name: &str| {
        let preambles =
            p4info.tables.iter().map(|t| &t.preamble).chain(p4info.actions.iter().map(|a| &a.preamble));
        let found = preambles.flatten().find(|preamble| preamble.alias == name);
        found.unwrap_or_else(|| panic!("{name}")).id
    };
    let (flows4, controller) = (id("flows4"), id("controller"));
    let mut request = config_of(ConfigAction::VerifyAndCommit);
    request.config.as_mut().unwrap().p4info = Some(p4info);
    request.config.as_mut().unwrap().p4_device_config.clear();
    device.set_config(&request).unwrap();
    let fields = (1..=5).map(|number| exact(number, 7)).collect();
    let mut flow = entry(flows4, fields, 0, 0, 0);
    flow.action = Some(action(controller, Vec::new()));
    device.write(&write(vec![update(Type::Insert, flow.clone())])).unwrap();
    let found = read(&mut device, Kind::TableEntry(TableEntry { table_id: flows4, ..TableEntry::default() }));
    assert_eq!(found, [entity(Kind::TableEntry(flow))]);
    handle.stop();
}

/// Waits until a switch's thread has given its processor away a hundred times more.
fn an_idle_switch_sleeps() {
    let sleeps = || -> Vec<u64> {
        let threads = std::fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap().path());
        let statuses = threads.filter_map(|thread| std::fs::read_to_string(thread.join("status")).ok());
        let sleeps = |status: &str| {
            let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            count.unwrap().trim().parse::<u64>().unwrap()
        };
        let is_switch = |status: &String| status.starts_with("Name:\tgatun-p4-switch\n");
        statuses.filter(is_switch).map(|status| sleeps(&status)).collect()
    };
    let (before, end) = (sleeps().into_iter().max().unwrap(), Instant::now() + PATIENCE);
    while !sleeps().into_iter().any(|now| now >= before + 100) {
        assert!(Instant::now() < end, "{before} {:?}", sleeps());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn wait_for_frames(bench: &Bench, count: usize) {
    let end = Instant::now() + PATIENCE;
    while frames(&std::fs::read(&bench.out).unwrap_or_default()).len() < count && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn entries_are_kept_and_read_back(device: &mut Device) {
    let updates = vec![
        update(Type::Insert, known(1, 2, 2)),
        update(Type::Insert, known(3, 4, 2)),
        update(Type::Insert, entry(RANGES, vec![ternary(1, 0x0100, 0xff00)], 70_000, 2, 8)),
        update(Type::Insert, entry(PREFIXES, vec![prefix(1, 0x0200_0000_0000, 8)], 0, 2, 7)),
    ];
    device.write(&write(updates)).unwrap();
    device
        .write(&write(vec![update(Type::Modify, known(3, 4, 1)), update(Type::Delete, known(1, 2, 2))]))
        .unwrap();
    assert!(device.write(&write(vec![update(Type::Delete, known(1, 2, 2))])).is_err());
    assert_eq!(read(device, Kind::TableEntry(TableEntry::default())).len(), 3);
    let kept = entity(Kind::TableEntry(known(3, 4, 1)));
    assert_eq!(
        read(device, Kind::TableEntry(TableEntry { table_id: KNOWN, ..TableEntry::default() })),
        [kept]
    );
}

fn counters_and_meters_are_reached(device: &mut Device) {
    let all = read(device, Kind::CounterEntry(CounterEntry { counter_id: FLOWS, ..CounterEntry::default() }));
    assert_eq!(all.len(), 4096);
    let rates = |cir| MeterConfig { cir, cburst: 10, pir: cir, pburst: 10, eburst: 0 };
    let set = |config| {
        let meter = MeterEntry { meter_id: LIMIT, config, ..MeterEntry::default() };
        write(vec![Update { r#type: Type::Modify.into(), entity: Some(entity(Kind::MeterEntry(meter))) }])
    };
    device.write(&set(Some(rates(1000)))).unwrap();
    device.write(&set(Some(rates(2000)))).unwrap();
    assert!(device.write(&set(Some(rates(0)))).is_err(), "DPDK knows no rate of zero");
    device.write(&set(None)).unwrap();
}

fn another_program_replaces_this_one(device: &mut Device) {
    let refused = device.set_config(&config(ConfigAction::Verify, "nonsense")).unwrap_err();
    assert!(refused.message.contains("p4_device_config:1"), "{}", refused.message);
    assert_eq!(read(device, Kind::TableEntry(TableEntry::default())).len(), 3);
    let other = format!("; the same with a comment\n{SPEC}");
    device.set_config(&config(ConfigAction::VerifyAndCommit, &other)).unwrap();
    assert!(read(device, Kind::TableEntry(TableEntry::default())).is_empty());
    device.write(&write(vec![update(Type::Insert, known(3, 4, 2))])).unwrap();
    // The same program again is emptied.
    device.set_config(&config(ConfigAction::VerifyAndCommit, &other)).unwrap();
    device.write(&write(vec![update(Type::Insert, known(3, 4, 2))])).unwrap();
}
