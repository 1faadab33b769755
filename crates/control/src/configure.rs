//! Another configuration for the daemon: what a client asks for is handed to whoever changes it ([`ConfigOrders`]), one order
//! after the other, and the answer comes back. Nothing here knows what a configuration is.

use gatun_api::request;
use gatun_api::types as api;
use hyper::StatusCode;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Bytes of any other body.
pub(crate) const SHORT_BODY_MAX: usize = 1 << 20;
/// Bytes of a body that has a configuration: large tables are files of their own.
pub const BODY_MAX: usize = 16 << 20;
/// Bytes of a body that has a table of mappings: two million or more.
pub const MAPS_BODY_MAX: usize = 160 << 20;
/// Bytes of such bodies at a time.
pub(crate) const BODIES_LEN_MAX: usize = MAPS_BODY_MAX;

/// Order to read or change the configuration.
#[derive(Debug)]
pub enum Order {
    /// Previews this text.
    Plan(String),
    /// This text is to be in place.
    Apply(ApplyOptions, String),
    /// The one that runs is to stay.
    Confirm {
        /// Its revision.
        revision: String,
        /// The client, for the log.
        who: String,
    },
    /// The one before is to come back, or the one whose revision begins so.
    RollBack(ApplyOptions, Option<String>),
    /// Previews a change of an instance's mappings.
    PlanMaps(MapsBody),
    /// Changes an instance's mappings.
    ChangeMaps(ApplyOptions, MapsBody),
    /// Lists mappings.
    Maps {
        /// Of this instance alone.
        instance: Option<String>,
        /// Position of the first one.
        from: Option<MapCursor>,
        /// At most so many.
        limit: usize,
    },
    /// The next process is to know which addresses are drained now.
    KeepDrained,
    /// Lists past configurations.
    History,
    /// The one whose revision begins so.
    Past(String),
}

/// Body of a request that changes mappings. Whoever works on the order reads it: that may take a second, which other clients
/// do not wait for.
#[derive(Debug)]
pub struct MapsBody {
    /// Name of the instance, where the query has one.
    pub instance: Option<String>,
    /// Whether the body has the whole table ([`api::MapsTable`]) or what to add and remove ([`api::MapsEdit`]).
    pub replaces: bool,
    /// JSON.
    pub json: Vec<u8>,
}

/// Change of an instance's mappings.
#[derive(Debug)]
pub enum MapsChange {
    /// These instead of all.
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
    /// The instance, where the request names one, and the change.
    ///
    /// # Errors
    /// A body of another form, or mappings of another instance.
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
            Refused::new(Why::Malformed, format!("invalid body: {error}"), format!("send {form}"))
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
                    return Err(Refused::new(Why::Malformed, what, hint));
                }
            }
        }
        Ok((instance, change))
    }
}

/// A place in the list of mappings, of one configuration.
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

/// ApplyOptions of which configuration another one is to run, and how.
#[derive(Debug)]
pub struct ApplyOptions {
    /// The revision that runs, as far as the client knows; empty where that does not matter (of mappings).
    pub revision: String,
    /// Back by itself, unless it is confirmed within this time.
    pub confirm: Option<Duration>,
    /// The client, for the log.
    pub who: String,
}

/// Result of an order.
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
        /// Position of the next one.
        next: Option<MapCursor>,
    },
}

/// Class of a refusal. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The request is wrong.
    Malformed,
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
            Why::Malformed => StatusCode::BAD_REQUEST,
            Why::Unknown => StatusCode::NOT_FOUND,
            Why::Conflict => StatusCode::CONFLICT,
            Why::Unusable => StatusCode::UNPROCESSABLE_ENTITY,
            Why::Failed => StatusCode::INTERNAL_SERVER_ERROR,
            Why::Busy => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Refusal of an order. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// In a word.
    pub why: Why,
    /// The error.
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

/// Callback for the result of an order.
pub type Reply = Box<dyn FnOnce(Result<Done, Refused>) + Send>;

/// Takes orders; `false` where nobody works on them any more. It does not block.
pub type ConfigOrders = Box<dyn Fn(Order, Reply) -> bool + Send + Sync>;
