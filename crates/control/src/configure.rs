//! Orders to change the configuration ([`ConfigOrders`]). The daemon works on one order after the other and
//! sends back a result. This module does not interpret configurations.

use gatun_api::request;
use gatun_api::types as api;
use hyper::StatusCode;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Bytes of any other body.
pub(crate) const SHORT_BODY_MAX: usize = 1 << 20;
/// Bytes of a body that holds a configuration. Large tables are files of their own.
pub const BODY_MAX: usize = 16 << 20;
/// Bytes of a body that holds a table of mappings: two million or more.
pub const MAPS_BODY_MAX: usize = 160 << 20;
/// Bytes of all such bodies at a time.
pub(crate) const BODIES_LEN_MAX: usize = MAPS_BODY_MAX;

/// Order to read or change the configuration.
#[derive(Debug)]
pub enum Order {
    /// Previews this text.
    Plan(String),
    /// Checks whether this text could be applied now, for a cluster.
    Check(String),
    /// Applies this text.
    Apply(ApplyOptions, String),
    /// Confirms the running configuration.
    Confirm {
        /// Its revision.
        revision: String,
        /// The client, for the log.
        who: String,
    },
    /// Rolls back to the previous configuration, or to the one whose revision begins with this text.
    RollBack(ApplyOptions, Option<String>),
    /// Previews a change of an instance's mappings.
    PlanMaps(MapsBody),
    /// Changes an instance's mappings.
    ChangeMaps(ApplyOptions, MapsBody),
    /// Lists mappings.
    Maps {
        /// Only mappings of this instance.
        instance: Option<String>,
        /// Position of the first one.
        from: Option<MapCursor>,
        /// Most mappings in the answer.
        limit: usize,
    },
    /// Keeps the list of drained addresses for the next process.
    KeepDrained,
    /// Lists past configurations.
    History,
    /// Reads the past configuration whose revision begins with this text.
    Past(String),
}

/// Body of a request that changes mappings. The thread that works on the order parses it: that may take a
/// second, which other clients do not wait for.
#[derive(Debug)]
pub struct MapsBody {
    /// Name of the instance, if the query has one.
    pub instance: Option<String>,
    /// True if the body has the whole table ([`api::MapsTable`]), false if it has changes
    /// ([`api::MapsEdit`]).
    pub replaces: bool,
    /// JSON.
    pub json: Vec<u8>,
}

/// Change of an instance's mappings.
#[derive(Debug)]
pub enum MapsChange {
    /// Replaces all mappings by these.
    Replace(Vec<api::StaticMap>),
    /// Adds and removes mappings: all of them, or none.
    Edit {
        /// Mappings to add.
        add: Vec<api::StaticMap>,
        /// Mappings to remove.
        remove: Vec<api::StaticMap>,
    },
}

impl MapsBody {
    /// Reads the instance, if the request names one, and the change.
    ///
    /// # Errors
    /// Returns an error if the body has another form or has mappings of another instance.
    pub fn read(self) -> Result<(Option<String>, MapsChange), Refused> {
        let MapsBody { mut instance, replaces, json } = self;
        let change = match replaces {
            true => request::read(&json).map(|api::MapsTable { maps }| MapsChange::Replace(maps)),
            false => request::read(&json).map(|api::MapsEdit { add, remove }| MapsChange::Edit {
                add: add.unwrap_or_default(),
                remove: remove.unwrap_or_default(),
            }),
        };
        let form = if replaces { "{\"maps\": [...]}" } else { "{\"add\": [...], \"remove\": [...]}" };
        let change = change.map_err(|error| {
            Refused::new(RefusalKind::Malformed, format!("invalid body: {error}"), format!("send {form}"))
        })?;
        let lists = match &change {
            MapsChange::Replace(maps) => [("maps", maps), ("", &Vec::new())],
            MapsChange::Edit { add, remove } => [("add", add), ("remove", remove)],
        };
        for (list, maps) in lists {
            for (n, map) in maps.iter().enumerate() {
                let Some(name) = &map.instance else { continue };
                if instance.get_or_insert_with(|| name.clone()) != name {
                    let what = format!("mapping {} of `{list}` is of instance `{name}`", n + 1);
                    let hint = "change the mappings of one instance at a time";
                    return Err(Refused::new(RefusalKind::Malformed, what, hint));
                }
            }
        }
        Ok((instance, change))
    }
}

/// Position in the list of mappings of one configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapCursor {
    /// Revision of the configuration. Another one has other mappings at this position.
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

/// Options for replacing the running configuration.
#[derive(Debug)]
pub struct ApplyOptions {
    /// Revision that runs, as far as the client knows; empty if it does not matter (for mappings).
    pub revision: String,
    /// Rolls back automatically unless the change is confirmed within this time.
    pub confirm: Option<Duration>,
    /// The client, for the log.
    pub who: String,
}

/// Result of an order.
#[derive(Debug)]
pub enum OrderResult {
    /// Result of [`Order::Plan`].
    Planned(api::ConfigPlan),
    /// Result of a change.
    Applied(api::ConfigApplied),
    /// Result of [`Order::KeepDrained`], and of [`Order::Check`] if it could be.
    Kept,
    /// Result of [`Order::History`].
    History(Vec<api::ConfigPast>),
    /// Result of [`Order::Past`].
    Past(api::Config),
    /// Result of [`Order::Maps`].
    Maps {
        /// A part of the mappings.
        maps: Vec<api::StaticMap>,
        /// Position of the next one.
        next: Option<MapCursor>,
    },
}

/// Class of a refusal. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The request is wrong.
    Malformed,
    /// No item has this name.
    Unknown,
    /// Another configuration runs than the client expects.
    Conflict,
    /// The configuration is wrong, or needs a restart.
    Unusable,
    /// The workers or the disk failed.
    Failed,
    /// Too many orders wait.
    Busy,
}

impl RefusalKind {
    pub(crate) const fn status(self) -> StatusCode {
        match self {
            RefusalKind::Malformed => StatusCode::BAD_REQUEST,
            RefusalKind::Unknown => StatusCode::NOT_FOUND,
            RefusalKind::Conflict => StatusCode::CONFLICT,
            RefusalKind::Unusable => StatusCode::UNPROCESSABLE_ENTITY,
            RefusalKind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
            RefusalKind::Busy => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Refusal of an order. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Class of the refusal.
    pub why: RefusalKind,
    /// The error.
    pub error: String,
    /// Advice on how to correct it.
    pub hint: String,
}

impl Refused {
    /// Builds a refusal.
    pub fn new(why: RefusalKind, error: impl Into<String>, hint: impl Into<String>) -> Refused {
        Refused { why, error: error.into(), hint: hint.into() }
    }
}

/// Callback for the result of an order.
pub type Reply = Box<dyn FnOnce(Result<OrderResult, Refused>) + Send>;

/// Accepts orders; returns `false` if the receiver has ended. Does not block.
pub type ConfigOrders = Box<dyn Fn(Order, Reply) -> bool + Send + Sync>;
