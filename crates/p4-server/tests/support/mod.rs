//! Entries of the test's p4info.

pub(crate) mod controllers;

use gatun_p4runtime::p4::config::v1::P4Info;
use gatun_p4runtime::p4::v1::entity::Entity as Kind;
use gatun_p4runtime::p4::v1::field_match::{Exact, FieldMatchType, Lpm, Optional, Ternary};
use gatun_p4runtime::p4::v1::set_forwarding_pipeline_config_request::Action as ConfigAction;
use gatun_p4runtime::p4::v1::table_action::Type as ActionType;
use gatun_p4runtime::p4::v1::update::Type;
use gatun_p4runtime::p4::v1::{
    Action, Entity, FieldMatch, ForwardingPipelineConfig, SetForwardingPipelineConfigRequest, TableAction,
    TableEntry, Uint128, Update, WriteRequest, action::Param, forwarding_pipeline_config::Cookie,
};

pub(crate) const KNOWN: u32 = 33_554_433;
pub(crate) const RANGES: u32 = 33_554_434;
pub(crate) const PREFIXES: u32 = 33_554_435;
pub(crate) const FORWARD: u32 = 16_777_217;
pub(crate) const CONTROLLER: u32 = 16_777_218;
pub(crate) const FLOWS: u32 = 301_989_889;
pub(crate) const LIMIT: u32 = 335_544_321;
pub(crate) const SPEC: &str = include_str!("../switch.spec");

pub(crate) fn p4info() -> P4Info {
    gatun_p4runtime::p4info_from_text(include_str!("../switch.p4info.txt")).unwrap()
}

/// Number as the standard writes it.
pub(crate) fn bytes(value: u64) -> Vec<u8> {
    let all = value.to_be_bytes();
    all[all.iter().position(|byte| *byte != 0).unwrap_or(7)..].to_vec()
}

pub(crate) fn exact(id: u32, value: u64) -> FieldMatch {
    FieldMatch { field_id: id, field_match_type: Some(FieldMatchType::Exact(Exact { value: bytes(value) })) }
}

pub(crate) fn ternary(id: u32, value: u64, mask: u64) -> FieldMatch {
    let ternary = Ternary { value: bytes(value), mask: bytes(mask) };
    FieldMatch { field_id: id, field_match_type: Some(FieldMatchType::Ternary(ternary)) }
}

pub(crate) fn optional(id: u32, value: u64) -> FieldMatch {
    let optional = Optional { value: bytes(value) };
    FieldMatch { field_id: id, field_match_type: Some(FieldMatchType::Optional(optional)) }
}

pub(crate) fn prefix(id: u32, value: u64, prefix_len: i32) -> FieldMatch {
    let lpm = Lpm { value: bytes(value), prefix_len };
    FieldMatch { field_id: id, field_match_type: Some(FieldMatchType::Lpm(lpm)) }
}

/// Entry that forwards.
pub(crate) fn entry(
    table_id: u32,
    fields: Vec<FieldMatch>,
    priority: i32,
    port: u64,
    counter: u64,
) -> TableEntry {
    let params =
        vec![Param { param_id: 1, value: bytes(port) }, Param { param_id: 2, value: bytes(counter) }];
    let action = Some(action(FORWARD, params));
    TableEntry { table_id, r#match: fields, priority, action, ..TableEntry::default() }
}

pub(crate) fn action(action_id: u32, params: Vec<Param>) -> TableAction {
    TableAction { r#type: Some(ActionType::Action(Action { action_id, params })) }
}

/// Entry of the exact table.
pub(crate) fn known(dst: u64, src: u64, port: u64) -> TableEntry {
    entry(KNOWN, vec![exact(1, dst), exact(2, src)], 0, port, port)
}

pub(crate) fn update(kind: Type, entry: TableEntry) -> Update {
    Update { r#type: kind.into(), entity: Some(entity(Kind::TableEntry(entry))) }
}

pub(crate) fn entity(kind: Kind) -> Entity {
    Entity { entity: Some(kind) }
}

pub(crate) fn write(updates: Vec<Update>) -> WriteRequest {
    let election_id = Some(Uint128 { high: 0, low: 1 });
    WriteRequest { device_id: 1, election_id, updates, ..WriteRequest::default() }
}

pub(crate) fn config(action: ConfigAction, program: &str) -> SetForwardingPipelineConfigRequest {
    let config = ForwardingPipelineConfig {
        p4info: Some(p4info()),
        p4_device_config: program.as_bytes().to_vec(),
        cookie: Some(Cookie { cookie: 7 }),
    };
    SetForwardingPipelineConfigRequest {
        device_id: 1,
        election_id: Some(Uint128 { high: 0, low: 1 }),
        action: action.into(),
        config: Some(config),
        ..SetForwardingPipelineConfigRequest::default()
    }
}
