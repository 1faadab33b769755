//! Requests to a device in memory: results, entries in the switch, reads.

#[allow(dead_code)]
mod support;

use gatun_p4_server::{Device, Memory, MemoryTarget, PART_MAX, Program, Refusal};
use gatun_p4runtime::google::rpc;
use gatun_p4runtime::p4::v1::entity::Entity as Kind;
use gatun_p4runtime::p4::v1::get_forwarding_pipeline_config_request::ResponseType;
use gatun_p4runtime::p4::v1::set_forwarding_pipeline_config_request::Action as ConfigAction;
use gatun_p4runtime::p4::v1::update::Type;
use gatun_p4runtime::p4::v1::{
    CounterData, CounterEntry, Entity, Error, Index, MeterConfig, MeterEntry, PacketMetadata, PacketOut,
    ReadRequest, TableEntry, Update, WriteRequest,
};
use prost::Message as _;
use std::sync::{Arc, Mutex};
use support::*;
use tonic::{Code, Status};

fn device() -> (Device, Arc<Mutex<Memory>>) {
    let target = MemoryTarget::new(SPEC.as_bytes(), Program::of(&p4info()));
    let memory = target.memory();
    let mut device = Device::new(target);
    device.set_config(&config(ConfigAction::VerifyAndCommit, SPEC)).unwrap();
    (device, memory)
}

fn codes(status: &Status) -> Vec<Code> {
    assert_eq!(status.code(), Code::Unknown);
    let status = rpc::Status::decode(status.details()).unwrap();
    let code = |any: &prost_types::Any| {
        assert_eq!(any.type_url, "type.googleapis.com/p4.v1.Error");
        Error::decode(&any.value[..]).unwrap().canonical_code.into()
    };
    status.details.iter().map(code).collect()
}

fn one(device: &mut Device, kind: Type, entry: TableEntry) -> Code {
    match device.write(&write(vec![update(kind, entry)])) {
        Ok(()) => Code::Ok,
        Err(status) => codes(&status)[0],
    }
}

fn read(device: &mut Device, kind: Kind) -> Result<Vec<Entity>, Refusal> {
    let request = ReadRequest { device_id: 1, entities: vec![entity(kind)], ..ReadRequest::default() };
    let mut reading = device.begin_read(&request)?;
    let mut all = Vec::new();
    while let Some(part) = device.read(&mut reading)? {
        assert!((1..=PART_MAX).contains(&part.len()));
        all.extend(part);
    }
    Ok(all)
}

fn entries(device: &mut Device, filter: TableEntry) -> Vec<TableEntry> {
    let table = |entity: Entity| match entity.entity {
        Some(Kind::TableEntry(entry)) => entry,
        other => panic!("{other:?}"),
    };
    read(device, Kind::TableEntry(filter)).unwrap().into_iter().map(table).collect()
}

fn of(table_id: u32) -> TableEntry {
    TableEntry { table_id, ..TableEntry::default() }
}

#[test]
fn each_update_of_a_batch_has_its_own_result() {
    let (mut device, memory) = device();
    memory.lock().unwrap().refused = vec![vec![9, 9]];
    let updates = vec![
        update(Type::Insert, known(1, 2, 3)),
        update(Type::Insert, known(1, 2, 3)),
        update(Type::Insert, known(9, 9, 3)),
        update(Type::Modify, known(5, 5, 3)),
        update(Type::Delete, known(5, 5, 3)),
        update(Type::Unspecified, known(5, 5, 3)),
        Update { r#type: Type::Insert.into(), entity: None },
        update(Type::Insert, known(6, 6, 3)),
    ];
    let status = device.write(&write(updates)).unwrap_err();
    use Code::{AlreadyExists, InvalidArgument, NotFound, Ok, ResourceExhausted};
    let expected =
        [Ok, AlreadyExists, ResourceExhausted, NotFound, NotFound, InvalidArgument, InvalidArgument, Ok];
    assert_eq!(codes(&status), expected);
    assert!(status.message().contains("6 of 8 updates"), "{}", status.message());
    let keys: Vec<_> = memory.lock().unwrap().exact.keys().map(|(_, key)| key.clone()).collect();
    assert_eq!(keys.len(), 2);
    assert_eq!(entries(&mut device, of(KNOWN)).len(), 2);
}

#[test]
fn an_entry_comes_back_as_it_was_written() {
    let (mut device, _) = device();
    let mut first = known(0x0200_0000_0001, 0, 3);
    first.metadata = b"session 7".to_vec();
    let ranges = entry(RANGES, vec![ternary(1, 0x0100, 0xff00), optional(2, 0x0800)], 7, 1, 0);
    let all = entry(RANGES, vec![], 1, 1, 0);
    let prefixes = entry(PREFIXES, vec![prefix(1, 0x0200_0000_0000, 24)], 0, 1, 0);
    let every = [first, ranges, all, prefixes];
    for one_entry in &every {
        assert_eq!(one(&mut device, Type::Insert, one_entry.clone()), Code::Ok);
    }
    let mut found = entries(&mut device, of(0));
    found.sort_by_key(|entry| (entry.table_id, -entry.priority));
    assert_eq!(found, every);
    assert_eq!(entries(&mut device, TableEntry { action: None, ..every[1].clone() }), every[1..2]);
    assert_eq!(entries(&mut device, of(PREFIXES)), every[3..]);
    assert!(entries(&mut device, TableEntry { action: None, ..known(4, 4, 4) }).is_empty());
}

#[test]
fn the_switch_gets_values_masks_and_priorities() {
    let (mut device, memory) = device();
    one(&mut device, Type::Insert, known(1, 2, 3));
    one(&mut device, Type::Insert, entry(RANGES, vec![ternary(1, 0x0100, 0xff00)], 7, 1, 5));
    one(&mut device, Type::Insert, entry(PREFIXES, vec![prefix(1, 0x0200_0000_0000, 24)], 0, 1, 0));
    let memory = memory.lock().unwrap();
    assert_eq!(memory.exact[&(0, vec![1, 2])].data, [3, 3]);
    let ranges = &memory.masked[&1][0];
    assert_eq!((&ranges.key[..], ranges.priority), (&[(0x0100, 0xff00), (0, 0)][..], 7));
    assert_eq!(ranges.call.data, [1, 5]);
    let prefixes = &memory.masked[&2][0];
    assert_eq!((&prefixes.key[..], prefixes.priority), (&[(0x0200_0000_0000, 0xffff_ff00_0000)][..], 24));
}

#[test]
fn an_entry_that_breaks_a_rule_of_the_standard_is_refused() {
    let (mut device, memory) = device();
    let wrong = [
        of(99),
        entry(KNOWN, vec![exact(1, 1)], 0, 1, 0),
        entry(KNOWN, vec![exact(1, 1), exact(2, 1 << 48)], 0, 1, 0),
        entry(KNOWN, vec![exact(1, 1), exact(2, 1), exact(2, 1)], 0, 1, 0),
        entry(KNOWN, vec![exact(1, 1), exact(3, 1)], 0, 1, 0),
        entry(KNOWN, vec![exact(1, 1), ternary(2, 1, 1)], 0, 1, 0),
        entry(KNOWN, vec![exact(1, 1), exact(2, 1)], 1, 1, 0),
        entry(KNOWN, vec![exact(1, 1), exact(2, 1)], 0, 1 << 32, 0),
        TableEntry { action: None, ..known(1, 1, 1) },
        TableEntry { metadata: vec![0; 257], ..known(1, 1, 1) },
        TableEntry { counter_data: Some(CounterData::default()), ..known(1, 1, 1) },
        entry(RANGES, vec![ternary(1, 1, 1)], 0, 1, 0),
        entry(RANGES, vec![ternary(1, 0, 0)], 1, 1, 0),
        entry(RANGES, vec![ternary(1, 3, 1)], 1, 1, 0),
        entry(PREFIXES, vec![prefix(1, 0, 0)], 0, 1, 0),
        entry(PREFIXES, vec![prefix(1, 1, 49)], 0, 1, 0),
        entry(PREFIXES, vec![prefix(1, 1, 24)], 0, 1, 0),
    ];
    for entry in wrong {
        assert_eq!(one(&mut device, Type::Insert, entry.clone()), Code::InvalidArgument, "{entry:?}");
    }
    let unsupported = [
        TableEntry { is_default_action: true, ..known(1, 1, 1) },
        TableEntry { idle_timeout_ns: 1, ..known(1, 1, 1) },
    ];
    for entry in unsupported {
        assert_eq!(one(&mut device, Type::Modify, entry), Code::Unimplemented);
    }
    let reset = TableEntry { is_default_action: true, ..of(KNOWN) };
    assert_eq!(one(&mut device, Type::Modify, reset), Code::Ok);
    assert_eq!(memory.lock().unwrap().changes, 0);
}

#[test]
fn a_full_table_refuses_an_entry_and_takes_it_after_a_removal() {
    let (mut device, _) = device();
    for src in 0..64 {
        assert_eq!(one(&mut device, Type::Insert, known(1, src, 1)), Code::Ok);
    }
    assert_eq!(one(&mut device, Type::Insert, known(1, 64, 1)), Code::ResourceExhausted);
    assert_eq!(one(&mut device, Type::Delete, known(1, 0, 1)), Code::Ok);
    assert_eq!(one(&mut device, Type::Insert, known(1, 64, 1)), Code::Ok);
}

#[test]
fn one_batch_may_change_an_entry_several_times() {
    let (mut device, memory) = device();
    let updates = vec![
        update(Type::Insert, known(1, 2, 3)),
        update(Type::Modify, known(1, 2, 4)),
        update(Type::Delete, known(1, 2, 4)),
        update(Type::Insert, known(1, 2, 5)),
    ];
    device.write(&write(updates)).unwrap();
    assert_eq!(memory.lock().unwrap().exact[&(0, vec![1, 2])].data, [5, 5]);
    let changes = memory.lock().unwrap().changes;
    let mut same = known(1, 2, 5);
    same.metadata = b"x".to_vec();
    assert_eq!(one(&mut device, Type::Modify, same.clone()), Code::Ok);
    assert_eq!(memory.lock().unwrap().changes, changes, "only the metadata changed");
    assert_eq!(entries(&mut device, of(KNOWN)), [same]);
}

#[test]
fn counters_are_read_and_set_by_index() {
    let (mut device, memory) = device();
    let flows = |index| CounterEntry { counter_id: FLOWS, index: Some(Index { index }), data: None };
    memory.lock().unwrap().arrays.get_mut("flows_packets").unwrap()[5] = 12;
    memory.lock().unwrap().arrays.get_mut("flows_bytes").unwrap()[5] = 720;
    let found = read(&mut device, Kind::CounterEntry(flows(5))).unwrap();
    let data = Some(CounterData { byte_count: 720, packet_count: 12 });
    assert_eq!(found, [entity(Kind::CounterEntry(CounterEntry { data, ..flows(5) }))]);
    let all = CounterEntry { counter_id: FLOWS, ..CounterEntry::default() };
    assert_eq!(read(&mut device, Kind::CounterEntry(all)).unwrap().len(), 4096);
    assert_eq!(read(&mut device, Kind::CounterEntry(CounterEntry::default())).unwrap().len(), 4100);
    assert_eq!(read(&mut device, Kind::CounterEntry(flows(4096))).unwrap_err().code, Code::OutOfRange);
    assert_eq!(read(&mut device, Kind::CounterEntry(flows(-1))).unwrap_err().code, Code::OutOfRange);
    let zero = CounterEntry { data: Some(CounterData::default()), ..flows(5) };
    let update = Update { r#type: Type::Modify.into(), entity: Some(entity(Kind::CounterEntry(zero))) };
    device.write(&write(vec![update])).unwrap();
    assert_eq!(memory.lock().unwrap().arrays["flows_packets"][5], 0);
    let many = (0..1500).map(|index| entity(Kind::CounterEntry(flows(2 * index)))).collect();
    let request = ReadRequest { device_id: 1, entities: many, ..ReadRequest::default() };
    let mut reading = device.begin_read(&request).unwrap();
    let sizes: Vec<_> =
        std::iter::from_fn(|| device.read(&mut reading).unwrap()).map(|part| part.len()).collect();
    assert_eq!(sizes, [1000, 500]);
}

#[test]
fn entities_that_a_switch_never_has_are_read_as_none() {
    let (mut device, _) = device();
    assert!(read(&mut device, Kind::DigestEntry(Default::default())).unwrap().is_empty());
    assert!(read(&mut device, Kind::PacketReplicationEngineEntry(Default::default())).unwrap().is_empty());
    let refused = read(&mut device, Kind::RegisterEntry(Default::default())).unwrap_err();
    assert_eq!(refused.code, Code::Unimplemented);
}

#[test]
fn a_meter_has_a_limit_until_it_is_taken_off() {
    let (mut device, memory) = device();
    let config = MeterConfig { cir: 10, cburst: 20, pir: 30, pburst: 40, eburst: 0 };
    let meter =
        |config| MeterEntry { meter_id: LIMIT, index: Some(Index { index: 1 }), config, counter_data: None };
    let set = |config| Update {
        r#type: Type::Modify.into(),
        entity: Some(entity(Kind::MeterEntry(meter(config)))),
    };
    device.write(&write(vec![set(Some(config))])).unwrap();
    let rates = memory.lock().unwrap().meters[&("limit".to_owned(), 1)];
    assert_eq!([rates.cir, rates.cburst, rates.pir, rates.pburst], [10, 20, 30, 40]);
    let all = MeterEntry { meter_id: LIMIT, ..MeterEntry::default() };
    let found = read(&mut device, Kind::MeterEntry(all)).unwrap();
    assert_eq!((found.len(), &found[1]), (4, &entity(Kind::MeterEntry(meter(Some(config))))));
    let status = device.write(&write(vec![set(Some(MeterConfig { cir: -1, ..config }))])).unwrap_err();
    assert_eq!(codes(&status), [Code::InvalidArgument]);
    device.write(&write(vec![set(None)])).unwrap();
    assert!(memory.lock().unwrap().meters.is_empty());
}

#[test]
fn a_commit_empties_the_switch_and_a_reconciliation_keeps_it() {
    let (mut device, memory) = device();
    one(&mut device, Type::Insert, known(1, 2, 3));
    device.set_config(&config(ConfigAction::ReconcileAndCommit, SPEC)).unwrap();
    device.set_config(&config(ConfigAction::Verify, SPEC)).unwrap();
    assert_eq!(entries(&mut device, of(0)).len(), 1);
    let refused = device.set_config(&config(ConfigAction::ReconcileAndCommit, "")).unwrap_err();
    assert_eq!(refused.code, Code::InvalidArgument);
    let refused = device.set_config(&config(ConfigAction::VerifyAndCommit, "another")).unwrap_err();
    assert!(refused.message.contains("does not know this program"), "{refused:?}");
    assert_eq!(entries(&mut device, of(0)).len(), 1);
    device.set_config(&config(ConfigAction::VerifyAndSave, SPEC)).unwrap();
    let commit = gatun_p4runtime::p4::v1::SetForwardingPipelineConfigRequest {
        config: None,
        ..config(ConfigAction::Commit, "")
    };
    device.set_config(&commit).unwrap();
    assert!(entries(&mut device, of(0)).is_empty() && memory.lock().unwrap().exact.is_empty());
}

#[test]
fn a_configuration_comes_back_in_the_parts_that_are_wanted() {
    let (device, _) = device();
    let all = device.config(ResponseType::All).unwrap();
    assert_eq!((all.p4info, all.p4_device_config), (Some(p4info()), SPEC.as_bytes().to_vec()));
    let cookie = device.config(ResponseType::CookieOnly).unwrap();
    assert_eq!((cookie.cookie.unwrap().cookie, cookie.p4info, cookie.p4_device_config.len()), (7, None, 0));
    let program = device.config(ResponseType::DeviceConfigAndCookie).unwrap();
    assert_eq!((program.p4info, program.p4_device_config.len()), (None, SPEC.len()));
}

#[test]
fn a_p4info_of_another_program_is_refused_in_words() {
    type Change = fn(&mut gatun_p4runtime::p4::config::v1::P4Info);
    let changes: [(Change, &str); 9] = [
        (|p| p.tables[0].preamble.as_mut().unwrap().alias.push('x'), ""),
        (|p| *p.tables[0].preamble.as_mut().unwrap() = Default::default(), "no table"),
        (|p| p.tables[0].match_fields[0].bitwidth = 32, "field dst has 32 bits in the p4info and 48"),
        (|p| p.tables[0].match_fields.truncate(1), "1 fields in the p4info and 2"),
        (|p| p.actions[0].params[0].name.push('x'), "parameter portx"),
        (|p| p.actions[0].params.truncate(1), "1 parameters in the p4info and 2"),
        (|p| p.counters[0].size = 5000, "counter ingress.flows: the program has 4096 cells"),
        (|p| p.controller_packet_metadata[0].metadata[0].bitwidth = 7, "no whole bytes"),
        (|p| p.direct_counters.push(Default::default()), "direct counters"),
    ];
    for (change, text) in changes {
        let target = MemoryTarget::new(SPEC.as_bytes(), Program::of(&p4info()));
        let mut device = Device::new(target);
        let mut request = config(ConfigAction::VerifyAndCommit, SPEC);
        change(request.config.as_mut().unwrap().p4info.as_mut().unwrap());
        match (device.set_config(&request), text) {
            (Ok(()), "") => {}
            (result, _) => {
                let refused = result.unwrap_err();
                assert_eq!(refused.code, Code::InvalidArgument);
                assert!(!text.is_empty() && refused.message.contains(text), "{text}: {refused:?}");
            }
        }
    }
}

/// p4c-dpdk puts the path before a name, and a number behind an action's.
#[test]
fn names_of_the_compiler_are_found() {
    let mut program = Program::of(&p4info());
    for table in &mut program.tables {
        table.name = format!("ingress_{}", table.name);
        table.actions.iter_mut().for_each(|action| action.name = format!("ingress_{}_0", action.name));
    }
    program.arrays.iter_mut().for_each(|(name, _)| *name = format!("ingress_{name}"));
    let mut device = Device::new(MemoryTarget::new(b"", program));
    device.set_config(&config(ConfigAction::VerifyAndCommit, "")).unwrap();
    assert_eq!(one(&mut device, Type::Insert, known(1, 2, 3)), Code::Ok);
}

#[test]
fn without_a_pipeline_requests_are_refused() {
    let mut device = Device::new(MemoryTarget::new(b"", Program::of(&p4info())));
    let status = device.write(&WriteRequest::default()).unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(device.begin_read(&ReadRequest::default()).unwrap_err().code, Code::FailedPrecondition);
    assert_eq!(device.config(ResponseType::All).unwrap_err().code, Code::FailedPrecondition);
    assert_eq!(device.packet_out(&PacketOut::default()).unwrap_err().code, Code::FailedPrecondition);
    assert!(device.packet_in(&[0; 64]).is_none());
}

#[test]
fn a_packet_has_the_header_of_the_p4info() {
    let (mut device, memory) = device();
    let metadata = |metadata_id, value| PacketMetadata { metadata_id, value: bytes(value) };
    let packet = PacketOut { payload: vec![0xaa; 3], metadata: vec![metadata(2, 0x0102), metadata(1, 0)] };
    device.packet_out(&packet).unwrap();
    assert_eq!(memory.lock().unwrap().sent, [[0, 0, 1, 2, 0xaa, 0xaa, 0xaa]]);
    for metadata in [vec![metadata(2, 1)], vec![metadata(1, 0), metadata(2, 1 << 16)], vec![]] {
        let wrong = PacketOut { metadata, ..packet.clone() };
        assert_eq!(device.packet_out(&wrong).unwrap_err().code, Code::InvalidArgument);
    }
    let packet = device.packet_in(&[17, 0, 1, 2, 0xbb]).unwrap();
    assert_eq!(packet.payload, [0xbb]);
    assert_eq!(packet.metadata, [metadata(1, 17), metadata(2, 0), metadata(3, 0x0102)]);
    assert!(device.packet_in(&[17, 0, 1]).is_none());
}

#[test]
fn a_read_of_a_pipeline_that_is_replaced_ends() {
    let (mut device, _) = device();
    one(&mut device, Type::Insert, known(1, 2, 3));
    let request = ReadRequest { entities: vec![entity(Kind::TableEntry(of(0)))], ..ReadRequest::default() };
    let mut reading = device.begin_read(&request).unwrap();
    device.set_config(&config(ConfigAction::VerifyAndCommit, SPEC)).unwrap();
    assert_eq!(device.read(&mut reading).unwrap_err().code, Code::Aborted);
}
