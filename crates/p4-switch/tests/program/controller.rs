//! Entries of sessions as Gatun's controller makes them, by the names of the compiled program.

use crate::entries::Flow;
use gatun_nat::Plan;
use gatun_nat::feed::{self, SessionId};
use gatun_nat::inspect::SessionInfo;
use gatun_nat::reconfigure::Outline;
use gatun_offload::OffloadedFlow;
use gatun_p4_controller::flow::Direction;
use gatun_p4_controller::link::FlowEntry;
use gatun_p4_controller::program::{ConstantTos, Limits, Program};
use gatun_p4runtime::p4::config::v1::P4Info;
use gatun_p4runtime::p4::v1::{TableEntry, field_match::FieldMatchType, table_action};
use gatun_p4runtime::p4info_from_text;
use std::sync::LazyLock;

/// Limits of a switch for all instances, as the configuration has them.
pub(crate) fn limits(plan: &Plan) -> Limits {
    let of64 = || plan.nat64.iter().map(|nat64| &nat64.settings);
    let smallest = |mtus: &mut dyn Iterator<Item = u32>| mtus.min().unwrap_or(u32::MAX);
    let short = |mtu: u32| u16::try_from(mtu).unwrap_or(u16::MAX);
    let mtus4 = of64().map(|settings| settings.mtu4).chain(plan.nat44.iter().map(|nat44| nat44.mtu));
    let tos = of64()
        .map(|settings| ConstantTos { to_ipv4: settings.tos_6to4, to_ipv6: settings.traffic_class_4to6 });
    Limits {
        mtu4: short(smallest(&mut mtus4.into_iter())),
        mtu6: short(smallest(&mut of64().map(|settings| settings.mtu6))),
        mtu6_without_df: short(smallest(
            &mut of64().map(|settings| settings.lowest_ipv6_mtu.min(settings.mtu6)),
        )),
        tos: tos.collect(),
    }
}

pub(crate) fn controller(limits: &Limits) -> Program {
    static INFO: LazyLock<P4Info> =
        LazyLock::new(|| p4info_from_text(include_str!("../../../../p4/psa.p4info.txt")).unwrap());
    Program::new(INFO.clone(), limits.clone()).unwrap()
}

/// Both entries of a flow, which does not wait.
pub(crate) fn entries(controller: &Program, flow: &OffloadedFlow, slot: u32) -> [Flow; 2] {
    Direction::ALL.map(|direction| {
        let entry = FlowEntry { slot, direction, flow: *flow, pending: 0 };
        compiled(controller, &controller.entry(&entry))
    })
}

/// The flow of a session. `None` if it cannot be known which prefix it has.
pub(crate) fn offloaded(session: &SessionInfo, outline: &Outline) -> Option<OffloadedFlow> {
    let remote6 = match (session.inside.0.to_ipv4_mapped(), outline.prefixes(session.instance)) {
        (Some(_), _) => None,
        (None, [prefix]) => Some(prefix.embed(session.remote.0)),
        _ => return None,
    };
    let flow = feed::Flow {
        inside: session.inside,
        outside: session.outside,
        remote: session.remote,
        transport: session.transport,
        instance: session.instance,
    };
    Some(OffloadedFlow {
        session: SessionId { record: 1, flow },
        worker: 0,
        epoch: 1,
        remote6,
        path_mtu: None,
    })
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// An entry of the controller, by the names of the compiled program.
fn compiled(controller: &Program, entry: &TableEntry) -> Flow {
    let info = controller.info();
    let preamble =
        info.tables.iter().filter_map(|table| table.preamble.as_ref()).find(|of| of.id == entry.table_id);
    let table = match &*preamble.unwrap().alias {
        "flows6" => "gatun_lookup_flows6",
        "flows4" => "gatun_lookup_flows4",
        other => panic!("{other}"),
    };
    let key = entry.r#match.iter().map(|field| match &field.field_match_type {
        Some(FieldMatchType::Exact(exact)) => number(&exact.value),
        other => panic!("{other:?}"),
    });
    let Some(table_action::Type::Action(call)) = entry.action.clone().unwrap().r#type else {
        panic!("{entry:?}")
    };
    let preamble =
        info.actions.iter().filter_map(|action| action.preamble.as_ref()).find(|of| of.id == call.action_id);
    let action = match &*preamble.unwrap().alias {
        "to_ipv4" => "gatun_lookup_to_ipv4",
        "to_ipv6" => "gatun_lookup_to_ipv6",
        "nat44" => "gatun_lookup_nat44",
        other => panic!("{other}"),
    };
    Flow { table, key: key.collect(), action, data: call.params.iter().map(|of| number(&of.value)).collect() }
}
