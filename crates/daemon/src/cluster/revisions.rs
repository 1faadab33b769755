//! Configuration of the cluster at this node: steps of the node become orders of a reload (decision 0113).

use super::division::hexadecimal;
use crate::state::{Directory, NamedFile};
use gatun_api::types::{self, ClusterConfiguration, ClusterRevision, NodeRevision, RevisionStage};
use gatun_cluster::coordination::{ConfigStep, NewRevision, RevisionStatus, RunningConfig, SavedRevision};
use gatun_cluster::node::{ClusterStatus, Node};
use gatun_cluster::revision::Stage;
use gatun_cluster::store::Store;
use gatun_control::ClusterConfigOrder;
use gatun_control::SharedFacts;
use gatun_control::configure::{ApplyOptions, ConfigOrders, Order, Refused, Reply};
use gatun_io::Waker;
use gatun_logstore::time::rfc3339;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, SystemTime};

/// Name of the file.
const NAME: &str = "cluster-revision.json";
/// Reason why no step is possible.
const NO_RELOAD: &str = "the reload thread has ended: restart gatun";

/// Numbers of revisions, in a file of the state directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Contents {
    cluster: String,
    file: u64,
    seen: u64,
}

/// File of the numbers of revisions.
pub(super) struct RevisionFile {
    file: NamedFile,
    cluster: String,
}

impl RevisionFile {
    /// Opens the file, and reads what the previous process of the same cluster has left.
    ///
    /// # Errors
    /// Returns an error if the process has reached its limit of open files.
    pub(super) fn open(
        directory: &Directory,
        cluster: &str,
    ) -> anyhow::Result<(RevisionFile, SavedRevision)> {
        let file = directory.named_file(NAME)?;
        let read: Option<Contents> = file.read().ok().and_then(|text| serde_json::from_str(&text).ok());
        let saved = read.filter(|contents| contents.cluster == cluster).unwrap_or_default();
        let saved = SavedRevision { file: saved.file, seen: saved.seen };
        Ok((RevisionFile { file, cluster: cluster.to_owned() }, saved))
    }

    fn save(&self, saved: &SavedRevision) -> Result<(), String> {
        let contents = Contents { cluster: self.cluster.clone(), file: saved.file, seen: saved.seen };
        let text = serde_json::to_string(&contents).map_err(|error| error.to_string())?;
        self.file.replace(text.as_bytes()).map_err(|error| format!("[state]: cannot write {NAME}: {error}"))
    }
}

/// Access to the configuration of this process.
pub(crate) struct ConfigAccess {
    /// Orders to the reload thread.
    pub(crate) orders: ConfigOrders,
    /// Running configuration.
    pub(crate) facts: SharedFacts,
}

type StepResult = Result<(), String>;

/// Carries steps of the node to the reload thread, and their results back.
pub(super) struct ConfigDriver {
    access: Option<ConfigAccess>,
    results: Sender<StepResult>,
    answers: Receiver<StepResult>,
    waker: Waker,
    file: Option<RevisionFile>,
    saved: SavedRevision,
    /// Revision of the running configuration, and the SHA-256 of its text.
    hashed: (String, String),
    /// Running configuration that the node knows.
    told: RunningConfig,
}

impl ConfigDriver {
    pub(super) fn new((file, saved): (Option<RevisionFile>, SavedRevision), waker: Waker) -> ConfigDriver {
        let (results, answers) = channel();
        ConfigDriver {
            access: None,
            results,
            answers,
            waker,
            file,
            saved,
            hashed: Default::default(),
            told: RunningConfig::default(),
        }
    }

    /// The configuration can be changed from now on.
    pub(super) fn begin(&mut self, access: ConfigAccess, cluster: &mut Node) {
        cluster.set_saved_revision(self.saved.clone());
        self.access = Some(access);
    }

    /// Carries what there is to carry. Returns the reason why the numbers cannot be saved.
    pub(super) fn turn(&mut self, now_ms: u64, cluster: &mut Node) -> Result<(), String> {
        let Some(access) = &self.access else { return Ok(()) };
        // Facts that are read after a result include its effect.
        let result = self.answers.try_recv().ok();
        let facts = access.facts.get();
        if facts.config.revision != self.hashed.0 {
            self.hashed = (facts.config.revision.clone(), sha256(&facts.config.text));
        }
        if self.told.sha256 != self.hashed.1 || self.told.is_unconfirmed != facts.unconfirmed.is_some() {
            let is_unconfirmed = facts.unconfirmed.is_some();
            self.told = RunningConfig { sha256: self.hashed.1.clone(), is_unconfirmed };
            cluster.set_running_config(self.told.clone());
        }
        if let Some(result) = result {
            cluster.config_done(now_ms, result);
        }
        if let Some(step) = cluster.take_config_step() {
            self.execute(access, step);
        }
        let saved = cluster.saved_revision();
        if saved != self.saved {
            self.saved = saved;
            return self.file.as_ref().map_or(Ok(()), |file| file.save(&self.saved));
        }
        Ok(())
    }

    fn execute(&self, access: &ConfigAccess, step: ConfigStep) {
        let facts = access.facts.get();
        let revision = facts.config.revision.clone();
        let options = |number: u64, confirm| ApplyOptions {
            revision: revision.clone(),
            confirm,
            who: format!("cluster revision {number}"),
        };
        let order = match step {
            ConfigStep::Check(text) => Order::Check(text),
            ConfigStep::Apply { number, text, sha256: expected, .. } if sha256(&text) != expected => {
                drop(text);
                self.done(Err(format!(
                    "the text of revision {number} at etcd is damaged: its SHA-256 differs"
                )));
                return;
            }
            ConfigStep::Apply { number, text, trial_ms, .. } => {
                Order::Apply(options(number, trial_ms.map(Duration::from_millis)), text)
            }
            ConfigStep::Confirm(number) => {
                Order::Confirm { revision: revision.clone(), who: format!("cluster revision {number}") }
            }
            ConfigStep::RollBack(number) => match &facts.unconfirmed {
                Some((_, before)) => Order::RollBack(options(number, None), Some(before.clone())),
                // Its time was over.
                None => return self.done(Ok(())),
            },
        };
        let (results, waker) = (self.results.clone(), self.waker.clone());
        let reply: Reply = Box::new(move |result| {
            // Without the node's thread, nobody waits for it.
            let _ = results.send(result.map(drop).map_err(|refused| in_words(&refused)));
            waker.wake();
        });
        if !(access.orders)(order, reply) {
            self.done(Err(NO_RELOAD.to_owned()));
        }
    }

    fn done(&self, result: StepResult) {
        let _ = self.results.send(result);
        self.waker.wake();
    }
}

/// Passes the word of an operator to the cluster. Returns the number of the order.
///
/// # Errors
/// Says why it cannot be done now.
pub(super) fn order(
    cluster: &mut Node,
    store: &mut dyn Store,
    now_ms: u64,
    (what, who): (ClusterConfigOrder, String),
) -> Result<u64, String> {
    match what {
        ClusterConfigOrder::Apply(text, confirm_s) => {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let (sha256, at_s) = (sha256(&text), since.as_secs());
            cluster.propose(now_ms, NewRevision { text, sha256, by: who, at_s, confirm_s })
        }
        ClusterConfigOrder::Confirm => cluster.end_trial(store, now_ms, (true, &who)),
        ClusterConfigOrder::RollBack => cluster.end_trial(store, now_ms, (false, &who)),
    }
}

fn in_words(refused: &Refused) -> String {
    match refused.hint.is_empty() {
        true => refused.error.clone(),
        false => format!("{}: {}", refused.error, refused.hint),
    }
}

/// SHA-256 of a text, hexadecimal.
fn sha256(text: &str) -> String {
    hexadecimal(&Sha256::digest(text))
}

/// Revision that the nodes should run, for the API.
pub(super) fn configuration(status: &ClusterStatus) -> Option<ClusterConfiguration> {
    let current = status.configuration.current.as_ref()?;
    Some(ClusterConfiguration {
        number: current.number,
        before: Some(current.before).filter(|number| *number > 0),
        stage: match current.stage {
            Stage::Trial => RevisionStage::Trial,
            Stage::Confirmed => RevisionStage::Confirmed,
            Stage::Withdrawn => RevisionStage::Withdrawn,
        },
        seconds_left: status.configuration.seconds_left,
        needs_confirmation: current.needs_word,
        changed_by: current.by.clone(),
        reason: Some(current.why.clone()).filter(|why| !why.is_empty()),
    })
}

/// Configuration of a node, for the API.
pub(super) fn of_node(status: &ClusterStatus, node: &str) -> Option<NodeRevision> {
    let one = status.configuration.nodes.iter().find(|one| *one.node == *node)?;
    Some(NodeRevision {
        number: Some(one.report.number).filter(|number| *number > 0),
        is_trial: one.report.is_trial,
        differs: one.differs,
        reason: Some(one.report.why.clone()).filter(|why| !why.is_empty()),
    })
}

/// Kept revisions, for the API, with their texts.
pub(super) fn kept(
    revisions: Vec<RevisionStatus>,
    status: &ClusterStatus,
) -> Vec<(types::ClusterRevision, String)> {
    let one = |revision: RevisionStatus| {
        let runs = status.configuration.nodes.iter().filter(|one| one.report.number == revision.number);
        let shown = ClusterRevision {
            number: revision.number,
            applied_at: rfc3339(revision.at_s.saturating_mul(1_000)),
            applied_by: revision.by,
            asked_node: revision.node.to_string(),
            bytes: revision.text.len() as u64,
            sha256: revision.sha256,
            outcome: revision.outcome,
            nodes: runs.map(|one| one.node.to_string()).collect(),
        };
        (shown, revision.text)
    };
    revisions.into_iter().map(one).collect()
}
