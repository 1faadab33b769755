//! Time of installing sessions in a P4 switch: `scripts/bench-p4`.
//!
//! ```text
//!   installs ADDRESS P4INFO [SESSIONS [BATCH [TABLE...]]]   into a running switch, over P4Runtime
//!   installs --count P4INFO ENTRIES                         into a table in memory of ENTRIES, for callgrind
//! ```
//! GATUN_DEVICE_CONFIG names a file with the program of a switch that has none, as BMv2.
//! A session is an entry in each table (`flows6` and `flows4`). A batch has entries of whole sessions.

use gatun_p4_server::{Device, MemoryTarget, Program};
use gatun_p4runtime::p4::config::v1::{P4Info, Table};
use gatun_p4runtime::p4::v1::entity::Entity as Kind;
use gatun_p4runtime::p4::v1::field_match::{Exact, FieldMatchType};
use gatun_p4runtime::p4::v1::p4_runtime_client::P4RuntimeClient;
use gatun_p4runtime::p4::v1::set_forwarding_pipeline_config_request::Action as ConfigAction;
use gatun_p4runtime::p4::v1::stream_message_request::Update as FromController;
use gatun_p4runtime::p4::v1::table_action::Type as ActionType;
use gatun_p4runtime::p4::v1::update::Type;
use gatun_p4runtime::p4::v1::{
    Action, Entity, FieldMatch, ForwardingPipelineConfig, MasterArbitrationUpdate,
    SetForwardingPipelineConfigRequest, StreamMessageRequest, TableAction, TableEntry, Uint128, Update,
    WriteRequest, action::Param,
};
use std::error::Error;
use std::time::Instant;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

type Failure = Box<dyn Error>;

const ELECTION: Option<Uint128> = Some(Uint128 { high: 0, low: 1 });
const USAGE: &str = "installs ADDRESS P4INFO [SESSIONS [BATCH [TABLE...]]]\ninstalls --count P4INFO ENTRIES";
/// Entries that are counted.
const COUNTED: u64 = 1_000;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |at: usize| words.get(at).map(String::as_str);
    let number = |at: usize, other: u64| word(at).map_or(Ok(other), str::parse);
    match (word(0), word(1)) {
        (Some("--count"), Some(p4info)) => count(&read(p4info)?, number(2, 1_000)?),
        (Some(address), Some(p4info)) => {
            let tables: Vec<&str> = words.iter().skip(4).map(String::as_str).collect();
            let tables = if tables.is_empty() { vec!["flows6", "flows4"] } else { tables };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(measure(
                address,
                read(p4info)?,
                &tables,
                (number(2, 1_000_000)?, number(3, 512)?),
            ))
        }
        _ => Err(USAGE.into()),
    }
}

fn read(path: &str) -> Result<P4Info, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    Ok(gatun_p4runtime::p4info_from_text(&text)?)
}

fn table<'a>(p4info: &'a P4Info, name: &str) -> Result<&'a Table, Failure> {
    let mut tables = p4info.tables.iter();
    let found = tables.find(|table| table.preamble.as_ref().is_some_and(|preamble| preamble.alias == name));
    found.ok_or_else(|| format!("the p4info has no table {name}").into())
}

/// Entry with this number in the first wide field of the key, and the action with the most parameters.
fn entry(p4info: &P4Info, table: &Table, number: u64) -> TableEntry {
    let wide = table.match_fields.iter().position(|field| field.bitwidth >= 32);
    let field = |(at, field): (usize, &gatun_p4runtime::p4::config::v1::MatchField)| {
        let value = if Some(at) == wide { (number as u32).to_be_bytes().to_vec() } else { vec![7] };
        FieldMatch { field_id: field.id, field_match_type: Some(FieldMatchType::Exact(Exact { value })) }
    };
    let of_table = |id: u32| table.action_refs.iter().any(|reference| reference.id == id);
    let id = |action: &gatun_p4runtime::p4::config::v1::Action| action.preamble.as_ref().map_or(0, |p| p.id);
    let actions = p4info.actions.iter().filter(|action| of_table(id(action)));
    let action = actions.max_by_key(|action| action.params.len()).map(|action| Action {
        action_id: id(action),
        params: action.params.iter().map(|param| Param { param_id: param.id, value: vec![1] }).collect(),
    });
    TableEntry {
        table_id: table.preamble.as_ref().map_or(0, |preamble| preamble.id),
        r#match: table.match_fields.iter().enumerate().map(field).collect(),
        action: action.map(|action| TableAction { r#type: Some(ActionType::Action(action)) }),
        ..TableEntry::default()
    }
}

fn batch(p4info: &P4Info, tables: &[&Table], kind: Type, sessions: std::ops::Range<u64>) -> WriteRequest {
    let update = |entry| Update {
        r#type: kind.into(),
        entity: Some(Entity { entity: Some(Kind::TableEntry(entry)) }),
    };
    let updates =
        sessions.flat_map(|number| tables.iter().map(move |table| update(entry(p4info, table, number))));
    WriteRequest {
        device_id: 1,
        election_id: ELECTION,
        updates: updates.collect(),
        ..WriteRequest::default()
    }
}

/// `program` is empty for the one that runs.
fn config(p4info: &P4Info, program: Vec<u8>) -> SetForwardingPipelineConfigRequest {
    let config = ForwardingPipelineConfig {
        p4info: Some(p4info.clone()),
        p4_device_config: program,
        ..ForwardingPipelineConfig::default()
    };
    SetForwardingPipelineConfigRequest {
        device_id: 1,
        election_id: ELECTION,
        action: ConfigAction::VerifyAndCommit.into(),
        config: Some(config),
        ..SetForwardingPipelineConfigRequest::default()
    }
}

async fn measure(
    address: &str,
    p4info: P4Info,
    tables: &[&str],
    (sessions, size): (u64, u64),
) -> Result<(), Failure> {
    let tables = tables.iter().map(|name| table(&p4info, name)).collect::<Result<Vec<_>, _>>()?;
    let mut client = P4RuntimeClient::connect(format!("http://{address}")).await?;
    let (sender, receiver) = mpsc::channel(1);
    let update =
        MasterArbitrationUpdate { device_id: 1, election_id: ELECTION, ..MasterArbitrationUpdate::default() };
    // BMv2 answers nothing before the first message.
    sender.send(StreamMessageRequest { update: Some(FromController::Arbitration(update)) }).await?;
    let mut stream = client.stream_channel(ReceiverStream::new(receiver)).await?.into_inner();
    stream.message().await?;
    let program = std::env::var_os("GATUN_DEVICE_CONFIG").map_or(Ok(Vec::new()), std::fs::read)?;
    client.set_forwarding_pipeline_config(config(&p4info, program)).await?;
    // The controller changes each session a second after its installation.
    let kinds = [(Type::Insert, "installs"), (Type::Modify, "changes"), (Type::Delete, "removals")];
    for (kind, word) in kinds {
        let times = write(&mut client, &p4info, &tables, (kind, sessions, size)).await?;
        let per_second = |times: &[f64]| size as f64 * times.len() as f64 / times.iter().sum::<f64>();
        let part = (times.len() / 10).max(1);
        println!(
            "{word}: {:.0} sessions/s; {:.0} in the first tenth, {:.0} in the last; slowest batch {:.1} ms",
            per_second(&times),
            per_second(&times[..part]),
            per_second(&times[times.len() - part..]),
            times.iter().fold(0.0, |a: f64, b| a.max(*b)) * 1e3
        );
    }
    Ok(())
}

/// Writes all sessions in batches, and returns the seconds of each.
async fn write(
    client: &mut P4RuntimeClient<Channel>,
    p4info: &P4Info,
    tables: &[&Table],
    (kind, sessions, size): (Type, u64, u64),
) -> Result<Vec<f64>, Failure> {
    let mut times = Vec::new();
    for from in (0..sessions).step_by(size as usize) {
        let request = batch(p4info, tables, kind, from..sessions.min(from + size));
        let begin = Instant::now();
        client.write(request).await?;
        times.push(begin.elapsed().as_secs_f64());
    }
    Ok(times)
}

/// Installs entries that callgrind counts into a table that has others already.
fn count(p4info: &P4Info, entries: u64) -> Result<(), Failure> {
    let mut device = Device::new(MemoryTarget::new(b"", Program::of(p4info)));
    device.set_config(&config(p4info, Vec::new())).map_err(|refusal| refusal.message)?;
    let tables = [table(p4info, "flows4")?];
    for from in (0..entries).step_by(COUNTED as usize) {
        device.write(&batch(p4info, &tables, Type::Insert, from..entries.min(from + COUNTED)))?;
    }
    let request = batch(p4info, &tables, Type::Insert, entries..entries + COUNTED);
    counted(&mut device, &request)?;
    Ok(())
}

#[inline(never)]
fn counted(device: &mut Device, request: &WriteRequest) -> Result<(), tonic::Status> {
    device.write(request)
}
