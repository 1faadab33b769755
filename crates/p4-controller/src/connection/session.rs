//! One connection: arbitration, program, reading of all entries, requests.

mod tables;

use super::static_entries::Entries;
use super::transport::{self, TransportFault};
use super::{ConnectionConfig, Ends, Pipeline};
use crate::link::{Event, ProgramCounts, Request, Write, WriteError};
use crate::program::Program;
use gatun_nat::counters::Count;
use gatun_p4runtime::google::rpc;
use gatun_p4runtime::p4::v1::p4_runtime_client::P4RuntimeClient;
use gatun_p4runtime::p4::v1::set_forwarding_pipeline_config_request::Action as PipelineAction;
use gatun_p4runtime::p4::v1::update::Type;
use gatun_p4runtime::p4::v1::{
    CounterEntry, Entity, Error, ForwardingPipelineConfig, GetForwardingPipelineConfigRequest,
    MasterArbitrationUpdate, ReadRequest, ReadResponse, SetForwardingPipelineConfigRequest,
    StreamMessageRequest, StreamMessageResponse, TableEntry, Uint128, Update, WriteRequest, entity,
    forwarding_pipeline_config, get_forwarding_pipeline_config_request, stream_message_request,
    stream_message_response,
};
use prost::Message as _;
use std::future::Future;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{self, Sender};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

/// Requests to be the primary controller that wait for the stream.
const GREETINGS: usize = 4;
/// Largest message that is read: a part of a table.
const MESSAGE_MAX: usize = 64 << 20;
/// Interval of reading the counters of the program itself.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// Time to wait for the end of another primary controller, which the switch tells.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);
/// Time without a primary controller after which this one takes its place: the other one may restart.
const VACANT: Duration = Duration::from_secs(3);
/// Upper half of the cookie of Gatun's programs: "GATN".
const COOKIE: u64 = 0x4741_544e;

/// Reason why a connection ended.
type Reason = String;
type Client = P4RuntimeClient<Channel>;
type Pending<T> = Pin<Box<dyn Future<Output = Result<T, Reason>> + Send>>;
type Answer = Pending<Event>;
/// Counters of the program itself, and those of stateless instances.
type ProgramAnswer = Pending<(ProgramCounts, Vec<(u32, Count)>)>;

/// An open connection, on which Gatun is the primary controller.
struct Primary {
    client: Client,
    device_id: u64,
    election_id: Uint128,
    timeout: Duration,
    to_switch: Sender<StreamMessageRequest>,
    from_switch: Streaming<StreamMessageResponse>,
}

/// Answer of a switch to the request to be its primary controller.
enum Role {
    Primary,
    /// Another controller is the primary.
    Standby(Reason),
    /// No controller is. The election ID has to be higher than this one.
    Vacant(u128),
}

/// An open connection to a switch that has the program.
pub(super) struct Session {
    primary: Primary,
    number: u64,
    program: Arc<Program>,
    /// Entries of other tables that the switch has.
    entries: Entries,
    /// Requests without an answer: a change, and counters.
    writing: Option<Answer>,
    counting: Option<Answer>,
    program_counting: Option<ProgramAnswer>,
}

fn bits(id: Uint128) -> u128 {
    u128::from(id.high) << 64 | u128::from(id.low)
}

fn of_bits(bits: u128) -> Uint128 {
    Uint128 { high: (bits >> 64) as u64, low: bits as u64 }
}

/// Request to be the primary controller.
fn hello(device_id: u64, election_id: Uint128) -> StreamMessageRequest {
    let update = MasterArbitrationUpdate {
        device_id,
        election_id: Some(election_id),
        ..MasterArbitrationUpdate::default()
    };
    StreamMessageRequest { update: Some(stream_message_request::Update::Arbitration(update)) }
}

fn failed(what: &str, status: &Status) -> Reason {
    let text = if status.message().is_empty() { status.code().description() } else { status.message() };
    format!("{what}: {text}")
}

async fn within<T>(
    timeout: Duration,
    what: &str,
    answer: impl Future<Output = Result<T, Status>>,
) -> Result<T, Reason> {
    match tokio::time::timeout(timeout, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(status)) => Err(failed(what, &status)),
        Err(_) => Err(format!("{what}: no answer within {} s", timeout.as_secs_f64())),
    }
}

impl Primary {
    /// Connects, and becomes the primary controller, with an election ID above `floor`.
    async fn open(
        config: &ConnectionConfig,
        (number, floor): (u64, u128),
        (ends, fault): (&mut Ends, &TransportFault),
    ) -> Result<Primary, Reason> {
        let channel = transport::open(config, fault).await?;
        let mut client = P4RuntimeClient::new(channel).max_decoding_message_size(MESSAGE_MAX);
        let (to_switch, outbound) = mpsc::channel(GREETINGS);
        let election_id = config.election_id(number);
        let election_id = if bits(election_id) > floor { election_id } else { of_bits(floor + 1) };
        let _ = to_switch.try_send(hello(config.device_id, election_id));
        let opened = client.stream_channel(ReceiverStream::new(outbound));
        let from_switch = within(config.timeout, "stream channel", opened).await?.into_inner();
        let (device_id, timeout) = (config.device_id, config.timeout);
        let mut primary = Primary { client, device_id, election_id, timeout, to_switch, from_switch };
        primary.arbitrate(ends).await?;
        Ok(primary)
    }

    /// Waits until the switch has accepted this controller as its primary one. It does not compete with
    /// another one: it waits until that one has gone.
    async fn arbitrate(&mut self, ends: &mut Ends) -> Result<(), Reason> {
        let mut at_most = self.timeout;
        let mut vacant = None;
        loop {
            let answer = tokio::select! {
                answer = tokio::time::timeout(at_most, self.from_switch.message()) => answer,
                () = ends.events.closed() => return Err("the controller ends".to_owned()),
            };
            let Ok(message) = answer else {
                let Some(highest) = vacant.take() else {
                    return Err(format!("arbitration: no answer within {} s", at_most.as_secs_f64()));
                };
                self.election_id = of_bits(u128::saturating_add(highest, 1));
                at_most = self.timeout;
                let _ = self.to_switch.try_send(hello(self.device_id, self.election_id));
                continue;
            };
            let message = message.map_err(|status| failed("arbitration", &status))?;
            let message = message.ok_or("arbitration: the switch has closed the stream")?;
            let Some(stream_message_response::Update::Arbitration(update)) = message.update else { continue };
            match self.role(&update) {
                Role::Primary => return Ok(()),
                Role::Standby(reason) => {
                    (at_most, vacant) = (FOREVER, None);
                    send(ends, Event::Standby(reason)).await?;
                }
                Role::Vacant(highest) => (at_most, vacant) = (VACANT, Some(highest)),
            }
        }
    }

    fn role(&self, update: &MasterArbitrationUpdate) -> Role {
        let code = update.status.as_ref().map_or(0, |status| status.code);
        let highest = update.election_id.map(bits);
        let own = bits(self.election_id);
        if code == Code::Ok as i32 && highest.is_none_or(|highest| highest == own) {
            return Role::Primary;
        }
        if code == Code::NotFound as i32 {
            return Role::Vacant(highest.unwrap_or(own).max(own));
        }
        let other = highest.map_or_else(String::new, |highest| format!(" {highest}"));
        Role::Standby(format!("another controller is the primary: its election ID{other} is higher"))
    }

    /// Makes sure that the switch has the program. Returns it, and whether the switch got it now.
    async fn load(&mut self, config: &ConnectionConfig) -> Result<(Program, bool), Reason> {
        let request = GetForwardingPipelineConfigRequest {
            device_id: self.device_id,
            response_type: get_forwarding_pipeline_config_request::ResponseType::P4infoAndCookie.into(),
        };
        let answer = tokio::time::timeout(self.timeout, self.client.get_forwarding_pipeline_config(request));
        let found = match answer.await {
            Ok(Ok(answer)) => answer.into_inner().config,
            // It has no program.
            Ok(Err(status)) if matches!(status.code(), Code::FailedPrecondition | Code::NotFound) => None,
            Ok(Err(status)) => return Err(failed("program of the switch", &status)),
            Err(_) => return Err("program of the switch: no answer".to_owned()),
        };
        let Some(pipeline) = &config.pipeline else {
            let info = found.and_then(|found| found.p4info);
            let info = info.ok_or("the switch has no program, and the configuration names none")?;
            let program = Program::new(info, config.limits.clone()).map_err(|error| error.to_string())?;
            return Ok((program, false));
        };
        let program =
            Program::new(pipeline.info.clone(), config.limits.clone()).map_err(|error| error.to_string())?;
        let cookie = cookie(pipeline);
        let has = found.as_ref().map(|found| found.cookie.map_or(0, |cookie| cookie.cookie));
        let is_empty = match has {
            Some(has) if has == cookie => false,
            // An earlier version of Gatun's program: entries stay if the switch can keep them.
            Some(has) if has >> 32 == COOKIE => {
                let kept = self.push(pipeline, PipelineAction::ReconcileAndCommit).await;
                if kept.is_err() {
                    self.push(pipeline, PipelineAction::VerifyAndCommit).await?;
                }
                kept.is_err()
            }
            Some(_) if !pipeline.replaces && found.is_some_and(|found| found.p4info.is_some()) => {
                return Err(
                    "the switch has another program; write `replace_program = true` to replace it".to_owned()
                );
            }
            _ => {
                self.push(pipeline, PipelineAction::VerifyAndCommit).await?;
                true
            }
        };
        Ok((program, is_empty))
    }

    async fn push(&mut self, pipeline: &Pipeline, action: PipelineAction) -> Result<(), Reason> {
        let request = SetForwardingPipelineConfigRequest {
            device_id: self.device_id,
            election_id: Some(self.election_id),
            action: action.into(),
            config: Some(ForwardingPipelineConfig {
                p4info: Some(pipeline.info.clone()),
                p4_device_config: pipeline.device_config.clone(),
                cookie: Some(forwarding_pipeline_config::Cookie { cookie: cookie(pipeline) }),
            }),
            ..SetForwardingPipelineConfigRequest::default()
        };
        // Software switches compile it.
        let timeout = self.timeout.max(Duration::from_secs(60));
        let answer = self.client.set_forwarding_pipeline_config(request);
        within(timeout, "loading the program", answer).await.map(drop)
    }

    async fn read(&mut self, entities: Vec<Entity>) -> Result<Streaming<ReadResponse>, Reason> {
        let request = self.read_request(entities);
        Ok(within(self.timeout, "read", self.client.read(request)).await?.into_inner())
    }

    fn read_request(&self, entities: Vec<Entity>) -> ReadRequest {
        ReadRequest { device_id: self.device_id, entities, ..ReadRequest::default() }
    }

    fn write_request(&self, updates: Vec<Update>) -> WriteRequest {
        let (device_id, election_id) = (self.device_id, Some(self.election_id));
        WriteRequest { device_id, election_id, updates, ..WriteRequest::default() }
    }
}

impl Session {
    /// Connects, becomes the primary controller, and reads all entries of the switch.
    pub(super) async fn open(
        config: &ConnectionConfig,
        (number, floor): (u64, &mut u128),
        (ends, fault): (&mut Ends, &TransportFault),
    ) -> Result<Session, Reason> {
        let mut primary = Primary::open(config, (number, *floor), (ends, fault)).await?;
        *floor = bits(primary.election_id);
        let (program, is_empty) = primary.load(config).await?;
        let (connection, capacity) = (number, program.capacity());
        let (program, entries) = (Arc::new(program), Entries::new());
        let mut session = Session {
            primary,
            number,
            program,
            entries,
            writing: None,
            counting: None,
            program_counting: None,
        };
        if is_empty {
            ends.counts.begin();
        }
        send(ends, Event::Connected { connection, is_empty, capacity }).await?;
        session.read_flows(ends).await?;
        session.read_entries().await?;
        session.write_entries(ends).await?;
        session.limit_controller(config.controller_limit).await?;
        send(ends, Event::AllFound).await?;
        Ok(session)
    }

    async fn read_flows(&mut self, ends: &Ends) -> Result<(), Reason> {
        for table_id in self.program.flow_tables() {
            let mut answer =
                self.primary.read(vec![of_table(TableEntry { table_id, ..TableEntry::default() })]).await?;
            while let Some(part) = within(self.primary.timeout, "read of a table", answer.message()).await? {
                let entries = part.entities.iter().filter_map(table_entry);
                let entries = entries.filter(|entry| !entry.is_default_action);
                let found: Vec<_> = entries.map(|entry| self.program.found(entry)).collect();
                if found.contains(&None) {
                    return Err("the switch has entries that cannot be read".to_owned());
                }
                send(ends, Event::Found(found.into_iter().flatten().collect())).await?;
            }
        }
        Ok(())
    }

    /// Serves requests until the connection ends. Returns the reason.
    pub(super) async fn run(&mut self, ends: &mut Ends) -> Reason {
        let mut every = tokio::time::interval(COUNT_EVERY);
        loop {
            let step = tokio::select! {
                Some((connection, request)) = ends.requests.recv() => self.begin(connection, request),
                message = self.primary.from_switch.message() => self.message(message),
                answer = optional(&mut self.writing) => {
                    self.writing = None;
                    answered(answer, ends).await
                }
                answer = optional(&mut self.counting) => {
                    self.counting = None;
                    answered(answer, ends).await
                }
                answer = optional(&mut self.program_counting) => {
                    self.program_counting = None;
                    tables::program_counted(answer, ends).await
                }
                _ = every.tick(), if self.program_counting.is_none() => {
                    self.program_counting = Some(self.count_program(ends.counts.known()));
                    Ok(())
                }
                Ok(()) = ends.entries.changed(), if self.writing.is_none() => self.write_entries(ends).await,
                () = ends.events.closed() => Err("the controller ends".to_owned()),
            };
            if let Err(reason) = step {
                return reason;
            }
        }
    }

    fn begin(&mut self, connection: u64, request: Request) -> Result<(), Reason> {
        if connection != self.number {
            return Ok(());
        }
        match request {
            Request::Reconnect(reason) => return Err(reason),
            Request::Write(writes) => {
                let updates = writes.iter().map(|write| update(&self.program, write)).collect();
                let (client, request, timeout) =
                    (self.primary.client.clone(), self.primary.write_request(updates), self.primary.timeout);
                self.writing =
                    Some(Box::pin(async move { write(client, request, timeout).await.map(Event::Written) }));
            }
            Request::Count(slots) => {
                let entries = slots.into_iter().flat_map(|slot| self.program.counters_of(slot));
                let request = self.primary.read_request(entries.map(of_counter).collect());
                let (client, program) = (self.primary.client.clone(), Arc::clone(&self.program));
                let answer = count(client, request, self.primary.timeout);
                self.counting = Some(Box::pin(async move {
                    let counters = answer.await?.iter().filter_map(|entry| program.counted(entry)).collect();
                    Ok(Event::Counted { counters, is_last: true })
                }));
            }
        }
        Ok(())
    }

    fn message(&self, message: Result<Option<StreamMessageResponse>, Status>) -> Result<(), Reason> {
        let message = message.map_err(|status| failed("stream channel", &status))?;
        match message.ok_or("the switch has closed the stream")?.update {
            Some(stream_message_response::Update::Arbitration(update)) => match self.primary.role(&update) {
                Role::Primary => Ok(()),
                Role::Standby(reason) => Err(reason),
                Role::Vacant(_) => Err("the switch has no primary controller any more".to_owned()),
            },
            _ => Ok(()),
        }
    }
}

async fn send(ends: &Ends, event: Event) -> Result<(), Reason> {
    ends.events.send(event).await.map_err(|_| "the controller ends".to_owned())
}

async fn answered(answer: Result<Event, Reason>, ends: &Ends) -> Result<(), Reason> {
    send(ends, answer?).await
}

async fn optional<T>(answer: &mut Option<Pending<T>>) -> Result<T, Reason> {
    match answer {
        Some(answer) => answer.await,
        None => std::future::pending().await,
    }
}

fn of_counter(entry: CounterEntry) -> Entity {
    Entity { entity: Some(entity::Entity::CounterEntry(entry)) }
}

fn of_table(entry: TableEntry) -> Entity {
    Entity { entity: Some(entity::Entity::TableEntry(entry)) }
}

fn table_entry(entity: &Entity) -> Option<&TableEntry> {
    match &entity.entity {
        Some(entity::Entity::TableEntry(entry)) => Some(entry),
        _ => None,
    }
}

fn update(program: &Program, write: &Write) -> Update {
    let (kind, entry) = match write {
        Write::Insert(of) => (Type::Insert, program.entry(of)),
        Write::Modify(of) => (Type::Modify, program.entry(of)),
        Write::Delete(key) => (Type::Delete, program.entry_of_key(key)),
    };
    Update { r#type: kind.into(), entity: Some(of_table(entry)) }
}

/// Writes a batch. Returns the result of each change.
async fn write(
    mut client: Client,
    request: WriteRequest,
    timeout: Duration,
) -> Result<Vec<Result<(), WriteError>>, Reason> {
    let n = request.updates.len();
    let status = match tokio::time::timeout(timeout, client.write(request)).await {
        Ok(Ok(_)) => return Ok(vec![Ok(()); n]),
        Ok(Err(status)) => status,
        Err(_) => return Err(format!("write: no answer within {} s", timeout.as_secs_f64())),
    };
    results(status.details(), n).ok_or_else(|| failed("write", &status))
}

/// Results of single changes, which are in the details of an unknown error. `None`: not as many.
pub(super) fn results(details: &[u8], n: usize) -> Option<Vec<Result<(), WriteError>>> {
    let details = rpc::Status::decode(details).map(|of| of.details).unwrap_or_default();
    let error = |any: &prost_types::Any| Error::decode(any.value.as_slice()).unwrap_or_default();
    let is_whole = !details.is_empty() && details.len() == n;
    is_whole.then(|| details.iter().map(|any| result(error(any))).collect())
}

fn result(error: Error) -> Result<(), WriteError> {
    match Code::from_i32(error.canonical_code) {
        Code::Ok => Ok(()),
        Code::AlreadyExists => Err(WriteError::Exists),
        Code::NotFound => Err(WriteError::Missing),
        Code::ResourceExhausted => Err(WriteError::Full),
        code if error.message.is_empty() => Err(WriteError::Other(code.description().to_owned())),
        _ => Err(WriteError::Other(error.message)),
    }
}

async fn count(
    mut client: Client,
    request: ReadRequest,
    timeout: Duration,
) -> Result<Vec<CounterEntry>, Reason> {
    let mut answer = within(timeout, "read of counters", client.read(request)).await?.into_inner();
    let mut counters = Vec::new();
    while let Some(part) = within(timeout, "read of counters", answer.message()).await? {
        counters.extend(part.entities.into_iter().filter_map(|entity| match entity.entity {
            Some(entity::Entity::CounterEntry(entry)) => Some(entry),
            _ => None,
        }));
    }
    Ok(counters)
}

/// Cookie of a program: the same program has the same one.
fn cookie(pipeline: &Pipeline) -> u64 {
    // Fixed keys: the next process has to recognize it.
    let mut hasher = DefaultHasher::new();
    pipeline.info.encode_to_vec().hash(&mut hasher);
    pipeline.device_config.hash(&mut hasher);
    COOKIE << 32 | hasher.finish() & 0xffff_ffff
}
