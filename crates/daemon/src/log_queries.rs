//! Queries of the API to the log: who had a public port at a time.
//!
//! One thread answers one query after another. The log records each query with the name of the user. If a
//! query cannot be recorded, it is not answered.

use crate::log_store::LogSender;
use crate::output::Output;
use gatun_api::types::{Evidence, Holder, Outcome, PastConfiguration, PastHolders, Protocol};
use gatun_control::configure::{RefusalKind, Refused};
use gatun_control::{AuditQuestion, AuditReply, Auditor, PlannedHolders, protocol};
use gatun_logstore::time::{parse, since_1970_ms};
use gatun_logstore::{self as logstore, Answer, Directory, Mark, PlanInForce, Reader};
use gatun_nat::plan::{Plan, Transport};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

/// Largest number of waiting queries.
const WAITING_MAX: usize = 8;

/// Sends queries. Clones use the same thread.
#[derive(Clone)]
pub(crate) struct LogQueries(SyncSender<(AuditQuestion, AuditReply)>);

impl LogQueries {
    /// Starts the thread that answers from the log in `directory`.
    ///
    /// # Errors
    /// Returns an error if no thread can be started.
    pub(crate) fn start(directory: &Path, log: LogSender, output: &Output) -> std::io::Result<LogQueries> {
        let (sender, questions) = sync_channel(WAITING_MAX);
        let reading = QueryThread { directory: directory.to_owned(), log, output: output.clone() };
        std::thread::Builder::new()
            .name("log-questions".to_owned())
            .spawn(move || reading.run(&questions))?;
        Ok(LogQueries(sender))
    }

    /// Query function for the API.
    pub(crate) fn auditor(&self) -> Auditor {
        let sender = self.0.clone();
        Box::new(move |question, reply| sender.try_send((question, reply)).is_ok())
    }
}

struct QueryThread {
    directory: PathBuf,
    log: LogSender,
    output: Output,
}

impl QueryThread {
    fn run(&self, questions: &Receiver<(AuditQuestion, AuditReply)>) {
        for (question, reply) in questions {
            reply(self.answer(&question));
        }
    }

    fn answer(&self, question: &AuditQuestion) -> Result<PastHolders, Refused> {
        let AuditQuestion { address, port, at, who, .. } = question;
        let now_ms = since_1970_ms(SystemTime::now());
        let span =
            parse(at, now_ms).map_err(|why| Refused::new(RefusalKind::Unusable, format!("at: {why}"), ""))?;
        if !self.log.is_writable() {
            let hint = "see the daemon's log; `gatun who --at` on the host reads it without a record";
            return Err(Refused::new(
                RefusalKind::Failed,
                "the log cannot be written, so no question can be recorded",
                hint,
            ));
        }
        let reader = Reader::open(Box::new(Directory::to_read(&self.directory)));
        let reader = reader.map_err(|error| {
            Refused::new(RefusalKind::Failed, format!("cannot read the log: {error}"), "")
        })?;
        let answer = told(&reader.who(*address, *port, span, question.protocol.and_then(transport)));
        let (question, outcome) = (format!("{address}:{port} at {}", answer.at), answer.outcome);
        self.log.mark(Mark::Asked {
            at_ms: now_ms,
            by: who.clone(),
            question: question.clone(),
            outcome: outcome.word().to_owned(),
        });
        self.output.log(&format!("log: {who} asked who had {question}: {outcome}"));
        Ok(answer)
    }
}

/// Converts a protocol of the API to one of the log.
pub fn transport(protocol: Protocol) -> Option<Transport> {
    match protocol {
        Protocol::Tcp => Some(Transport::Tcp),
        Protocol::Udp => Some(Transport::Udp),
        Protocol::Icmp => Some(Transport::Icmp),
        Protocol::Other => None,
    }
}

/// Converts an answer of the log to the API's type.
pub fn told(answer: &Answer) -> PastHolders {
    let configuration = answer.configuration.as_ref();
    PastHolders {
        outcome: match answer.outcome {
            logstore::Outcome::Who => Outcome::Who,
            logstore::Outcome::Nobody => Outcome::Nobody,
            logstore::Outcome::Unknown => Outcome::Unknown,
        },
        unknown: answer.unknown.clone(),
        address: answer.address,
        port: answer.port,
        at: answer.at.clone(),
        precision_ms: answer.precision_ms,
        configuration: configuration
            .map(|c| PastConfiguration { hash: c.hash.to_string(), since: c.since.clone() }),
        pool: answer.pool.as_deref().map(name),
        holders: answer.holders.iter().map(holder).collect(),
        near: answer.near.iter().map(holder).collect(),
        caveats: answer.caveats.clone(),
    }
}

/// Holders that a plan alone determines, for the API.
///
/// Its copy of large tables of mappings is made for the first question, not at the start.
pub fn planned_holders(plan: Arc<Plan>) -> PlannedHolders {
    let in_force = OnceLock::new();
    PlannedHolders::new(move |address, port, protocol| {
        let in_force = in_force.get_or_init(|| PlanInForce::of(&plan));
        let (holders, unknown) = logstore::planned(in_force, address, port, protocol.and_then(transport));
        (holders.iter().map(holder).collect(), unknown)
    })
}

fn name(text: &str) -> gatun_api::types::Name {
    gatun_api::types::Name(text.into())
}

fn holder(holder: &logstore::Holder) -> Holder {
    Holder {
        by: match holder.by {
            logstore::Evidence::Block => Evidence::Block,
            logstore::Evidence::Binding => Evidence::Binding,
            logstore::Evidence::Configuration => Evidence::Configuration,
            logstore::Evidence::Mapping => Evidence::Mapping,
        },
        protocols: holder.protocols.iter().copied().map(protocol).collect(),
        instance: holder.instance.as_deref().map(name),
        pool: holder.pool.as_deref().map(name),
        subscriber: holder.subscriber.clone(),
        inside: holder.inside,
        inside_port: holder.inside_port,
        first_port: holder.ports.0,
        last_port: holder.ports.1,
        from: holder.from.clone(),
        to: holder.to.clone(),
        end: holder.end.clone(),
        certain: holder.certain,
    }
}
