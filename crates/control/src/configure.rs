//! Another configuration for the daemon: what a client asks for is handed to whoever changes it ([`Desk`]), one order
//! after the other, and the answer comes back. Nothing here knows what a configuration is.

use crate::Control;
use crate::answers::{Answer, Asked, Refusal, json};
use crate::ask::Unanswered;
use crate::filter::{Query, Wrong};
use gatun_api::paths::What;
use gatun_api::request;
use gatun_api::types as api;
use hyper::StatusCode;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Bytes of a body that has a configuration.
pub const BODY_MAX: usize = 40 << 20;
/// Such bodies at a time.
pub(crate) const BODIES_MAX: usize = 4;
/// Seconds that there may be to confirm a configuration.
const CONFIRM_MAX_S: u32 = 86_400;

/// What is asked for.
#[derive(Debug)]
pub enum Order {
    /// What would happen with this text?
    Plan(String),
    /// This text is to be in place.
    Apply(Instead, String),
    /// The one that runs is to stay.
    Confirm {
        /// Its revision.
        revision: String,
        /// Who asks.
        who: String,
    },
    /// The one before is to come back, or the one whose revision begins so.
    RollBack(Instead, Option<String>),
    /// This mapping is to be there.
    AddMap(Instead, api::StaticMap),
    /// This mapping is not to be there.
    RemoveMap(Instead, api::StaticMap),
    /// Which mappings are there?
    Maps {
        /// Of this instance alone.
        instance: Option<String>,
        /// Where to begin.
        from: Option<MapCursor>,
        /// At most so many.
        limit: usize,
    },
    /// The next process is to know which addresses are drained now.
    KeepDrained,
    /// Which ones ran before?
    History,
    /// The one whose revision begins so.
    Past(String),
}

/// A place in the list of mappings, of one configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapCursor {
    /// Whose revision this is: in another one, other mappings stand there.
    pub revision: String,
    /// Mappings before it.
    pub at: usize,
}

impl fmt::Display for MapCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.revision, self.at)
    }
}

impl FromStr for MapCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<MapCursor, ()> {
        let (revision, at) = text.split_once('-').ok_or(())?;
        Ok(MapCursor { revision: revision.to_owned(), at: at.parse().map_err(|_| ())? })
    }
}

/// Instead of which configuration another one is to run, and how.
#[derive(Debug)]
pub struct Instead {
    /// The revision that runs, as far as the client knows; empty where that does not matter (of mappings).
    pub revision: String,
    /// Back by itself, unless it is confirmed within this time.
    pub confirm: Option<Duration>,
    /// Who asks.
    pub who: String,
}

/// What came of it.
#[derive(Debug)]
pub enum Done {
    /// Of [`Order::Plan`].
    Planned(api::ConfigPlan),
    /// Of what changes something.
    Applied(api::ConfigApplied),
    /// Of [`Order::KeepDrained`].
    Kept,
    /// Of [`Order::History`].
    History(Vec<api::ConfigPast>),
    /// Of [`Order::Past`].
    Past(api::Config),
    /// Of [`Order::Maps`].
    Maps {
        /// Some of them.
        maps: Vec<api::StaticMap>,
        /// Where the others begin.
        next: Option<MapCursor>,
    },
}

/// Why nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// There is no such thing.
    Unknown,
    /// Another configuration runs than the client thinks.
    Conflict,
    /// The configuration is wrong, or needs a restart.
    Unusable,
    /// It could not be done, on disk or by the workers.
    Failed,
    /// There is too much to do.
    Busy,
}

impl Why {
    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Why::Unknown => StatusCode::NOT_FOUND,
            Why::Conflict => StatusCode::CONFLICT,
            Why::Unusable => StatusCode::UNPROCESSABLE_ENTITY,
            Why::Failed => StatusCode::INTERNAL_SERVER_ERROR,
            Why::Busy => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Why nothing has changed, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// In a word.
    pub why: Why,
    /// What is wrong.
    pub error: String,
    /// What to do about it.
    pub hint: String,
}

impl Refused {
    /// With these words.
    pub fn new(why: Why, error: impl Into<String>, hint: impl Into<String>) -> Refused {
        Refused { why, error: error.into(), hint: hint.into() }
    }
}

/// Where an answer goes.
pub type Reply = Box<dyn FnOnce(Result<Done, Refused>) + Send>;

/// Takes orders; `false` where nobody works on them any more. It does not block.
pub type Desk = Box<dyn Fn(Order, Reply) -> bool + Send + Sync>;

impl Control {
    /// The configuration that runs, or one before.
    pub(crate) async fn config(&self, query: &Query) -> Result<api::Config, Refusal> {
        let facts = self.setup.facts.get();
        match query.get("revision") {
            Some(revision) if !facts.config.revision.starts_with(revision) || revision.is_empty() => {
                match self.order(Order::Past(revision.to_owned())).await? {
                    Done::Past(config) => Ok(config),
                    _ => Err(Unanswered::Silent.into()),
                }
            }
            _ => {
                let unconfirmed = facts.unconfirmed.as_ref().map(|(until, before)| api::Unconfirmed {
                    seconds_left: until.saturating_duration_since(Instant::now()).as_secs(),
                    before: before.clone(),
                });
                Ok(api::Config { unconfirmed, ..facts.config.clone() })
            }
        }
    }

    /// Has the configuration changed, or looked at.
    pub(crate) async fn configure(
        &self,
        what: What,
        query: &Query,
        body: &[u8],
        asked: &Asked<'_>,
    ) -> Result<Answer, Refusal> {
        let who = || asked.who.to_owned();
        let revision = || query.get("revision").unwrap_or_default().to_owned();
        let instead = || {
            let confirm = query.parse::<u32>("confirm_seconds", "a number of seconds")?;
            if let Some(seconds) = confirm.filter(|seconds| !(1..=CONFIRM_MAX_S).contains(seconds)) {
                return Err(Wrong::new(
                    format!("confirm_seconds: {seconds} is not from 1 to {CONFIRM_MAX_S}"),
                    "",
                ));
            }
            let confirm = confirm.map(|seconds| Duration::from_secs(seconds.into()));
            Ok(Instead { revision: revision(), confirm, who: who() })
        };
        let order = match what {
            What::PlanConfig => Order::Plan(text_of(body)?),
            What::ApplyConfig => Order::Apply(instead()?, text_of(body)?),
            What::ConfirmConfig => Order::Confirm { revision: revision(), who: who() },
            What::RollBackConfig => Order::RollBack(instead()?, query.get("to").map(str::to_owned)),
            What::AddMap => Order::AddMap(instead()?, map_of(body)?),
            What::RemoveMap => Order::RemoveMap(instead()?, map_of(body)?),
            _ => Order::History,
        };
        Ok(match self.order(order).await? {
            Done::Planned(plan) => json(&plan),
            Done::Applied(applied) => json(&applied),
            Done::History(past) => json(&past),
            Done::Past(config) => json(&config),
            Done::Kept | Done::Maps { .. } => return Err(Unanswered::Silent.into()),
        })
    }

    pub(crate) async fn order(&self, order: Order) -> Result<Done, Refusal> {
        let Some(desk) = &self.setup.configure else {
            return Err(Refusal::Configure(Refused::new(
                Why::Failed,
                "nobody changes configurations here",
                "",
            )));
        };
        let (sender, answer) = oneshot::channel();
        if !desk(order, Box::new(move |done| drop(sender.send(done)))) {
            return Err(Unanswered::Silent.into());
        }
        answer.await.map_err(|_| Unanswered::Silent)?.map_err(Refusal::Configure)
    }
}

fn text_of(body: &[u8]) -> Result<String, Wrong> {
    let read = request::read(body);
    read.map(|api::ConfigText { text }| text)
        .map_err(|error| Wrong::new(format!("the body is not {{\"text\": ...}}: {error}"), ""))
}

fn map_of(body: &[u8]) -> Result<api::StaticMap, Wrong> {
    let read = request::read(body);
    read.map_err(|error| Wrong::new(format!("the body is not a mapping: {error}"), ""))
}
