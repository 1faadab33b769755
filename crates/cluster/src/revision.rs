//! Configuration revisions of a cluster, as keys of the coordinator (decision 0113).
//!
//! ```text
//!   /gatun/NAME/config/current              ActiveRevision: which one the nodes should run
//!   /gatun/NAME/config/proposed             Proposal: a text that all nodes check; under a lease
//!   /gatun/NAME/config/revision/0000000013  Revision: a text
//!   /gatun/NAME/config/outcome/0000000013   what became of it
//!   /gatun/NAME/checks/NODE                 Check: whether a node can take the proposal; under a lease
//!   /gatun/NAME/applied/NODE                Report: what a node runs
//! ```
//! A value has a line `NAME=VALUE` for each part; a text follows an empty line.

mod follow;

pub use follow::{FollowStep, Standing, follow};

use crate::record::NodeName;
use std::fmt;
use std::str::FromStr;

/// Largest text, bytes: etcd takes 1.5 MiB in a request.
pub const TEXT_MAX: usize = 512 << 10;
/// Largest number of revisions whose texts are kept, and their largest total size, bytes. A node reads all of
/// them with the other keys of the cluster.
pub const KEPT_MAX: (usize, usize) = (32, 1 << 20);
/// Time within which all nodes must have applied a revision that nobody has to confirm, s.
pub const ROLL_S: u32 = 120;
/// Characters of a reason.
const WHY_MAX: usize = 2_000;

/// Text of a cluster's configuration, with its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// SHA-256 of the text, hexadecimal.
    pub sha256: String,
    /// Operator.
    pub by: String,
    /// Node that the operator asked.
    pub node: NodeName,
    /// Time by the clock of that node, s since 1970.
    pub at_s: u64,
    /// Text.
    pub text: String,
}

/// Progress of a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The nodes apply it one after the other. Each returns to the previous one unless it is confirmed.
    Trial,
    /// It is the configuration of the cluster.
    Confirmed,
    /// The nodes return to the previous one.
    Withdrawn,
}

impl Stage {
    const ALL: [Stage; 3] = [Stage::Trial, Stage::Confirmed, Stage::Withdrawn];

    /// Returns the name in keys.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Trial => "trial",
            Stage::Confirmed => "confirmed",
            Stage::Withdrawn => "withdrawn",
        }
    }
}

/// Revision that the nodes should run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveRevision {
    /// Number. It only grows.
    pub number: u64,
    /// Number of the previous one; 0 if there is none.
    pub before: u64,
    /// Progress.
    pub stage: Stage,
    /// Time for the trial, s.
    pub seconds: u32,
    /// True if an operator must confirm it; false if it is confirmed once all nodes have it.
    pub needs_word: bool,
    /// Operator or node that has changed the stage.
    pub by: String,
    /// Reason of the stage; empty if there is none.
    pub why: String,
}

impl ActiveRevision {
    /// Number of the revision that the nodes should run at last; 0 for the one that each had.
    pub fn target(&self) -> u64 {
        if self.stage == Stage::Withdrawn { self.before } else { self.number }
    }
}

/// Text that all nodes check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Text with its origin.
    pub revision: Revision,
    /// Time within which the operator will confirm it, s; `None` if nobody has to.
    pub confirm_s: Option<u32>,
}

/// Result of a node's check of a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Revision of the proposal's key.
    pub proposal: i64,
    /// Reason why the node cannot take it; empty if it can.
    pub why: String,
}

/// Revision that a node runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Revision of the key `config/current` that the node knows.
    pub at: i64,
    /// Number; 0 if it is unknown.
    pub number: u64,
    /// True if the node returns to the previous one unless it is confirmed.
    pub is_trial: bool,
    /// SHA-256 of the text that runs.
    pub sha256: String,
    /// Reason why the node does not run what it should; empty if there is none.
    pub why: String,
}

/// Value of a key that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidText;

/// Lines of a value, and its text.
struct Parts<'t> {
    lines: &'t str,
    text: &'t str,
}

impl<'t> Parts<'t> {
    fn of(value: &'t str) -> Parts<'t> {
        let (lines, text) = value.split_once("\n\n").unwrap_or((value, ""));
        Parts { lines, text }
    }

    fn get(&self, name: &str) -> Result<&'t str, InvalidText> {
        let mut parts = self.lines.lines().filter_map(|line| line.split_once('='));
        parts.find(|(one, _)| *one == name).map(|(_, value)| value).ok_or(InvalidText)
    }

    fn parse<T: FromStr>(&self, name: &str) -> Result<T, InvalidText> {
        self.get(name)?.parse().map_err(|_| InvalidText)
    }
}

/// Text in one line, of bounded length.
pub(crate) fn in_one_line(text: &str) -> String {
    let parts: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let line: String = parts.join("; ").chars().take(WHY_MAX).collect();
    line.trim_end().to_owned()
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Revision { sha256, by, node, at_s, text } = self;
        write!(f, "sha256={sha256}\nnode={node}\nat={at_s}\nby={}\n\n{text}", in_one_line(by))
    }
}

impl FromStr for Revision {
    type Err = InvalidText;

    fn from_str(value: &str) -> Result<Revision, InvalidText> {
        let parts = Parts::of(value);
        Ok(Revision {
            sha256: parts.get("sha256")?.to_owned(),
            by: parts.get("by")?.to_owned(),
            node: parts.get("node")?.into(),
            at_s: parts.parse("at")?,
            text: parts.text.to_owned(),
        })
    }
}

impl fmt::Display for ActiveRevision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ActiveRevision { number, before, stage, seconds, needs_word, by, why } = self;
        let (by, why) = (in_one_line(by), in_one_line(why));
        let stage = stage.name();
        write!(
            f,
            "number={number}\nbefore={before}\nstage={stage}\nseconds={seconds}\nneeds_word={needs_word}\n\
             by={by}\nwhy={why}"
        )
    }
}

impl FromStr for ActiveRevision {
    type Err = InvalidText;

    fn from_str(value: &str) -> Result<ActiveRevision, InvalidText> {
        let parts = Parts::of(value);
        let stage = parts.get("stage")?;
        Ok(ActiveRevision {
            number: parts.parse("number")?,
            before: parts.parse("before")?,
            stage: Stage::ALL.into_iter().find(|one| one.name() == stage).ok_or(InvalidText)?,
            seconds: parts.parse("seconds")?,
            needs_word: parts.parse("needs_word")?,
            by: parts.get("by")?.to_owned(),
            why: parts.get("why")?.to_owned(),
        })
    }
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "confirm={}\n{}", self.confirm_s.unwrap_or(0), self.revision)
    }
}

impl FromStr for Proposal {
    type Err = InvalidText;

    fn from_str(value: &str) -> Result<Proposal, InvalidText> {
        let confirm: u32 = Parts::of(value).parse("confirm")?;
        Ok(Proposal { revision: value.parse()?, confirm_s: Some(confirm).filter(|seconds| *seconds > 0) })
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "proposal={}\nwhy={}", self.proposal, in_one_line(&self.why))
    }
}

impl FromStr for Check {
    type Err = InvalidText;

    fn from_str(value: &str) -> Result<Check, InvalidText> {
        let parts = Parts::of(value);
        Ok(Check { proposal: parts.parse("proposal")?, why: parts.get("why")?.to_owned() })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { at, number, is_trial, sha256, why } = self;
        let why = in_one_line(why);
        write!(f, "at={at}\nnumber={number}\nis_trial={is_trial}\nsha256={sha256}\nwhy={why}")
    }
}

impl FromStr for Report {
    type Err = InvalidText;

    fn from_str(value: &str) -> Result<Report, InvalidText> {
        let parts = Parts::of(value);
        Ok(Report {
            at: parts.parse("at")?,
            number: parts.parse("number")?,
            is_trial: parts.parse("is_trial")?,
            sha256: parts.get("sha256")?.to_owned(),
            why: parts.get("why")?.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_were_written() {
        let revision = Revision {
            sha256: "ab12".into(),
            by: "uid 0".into(),
            node: "a".into(),
            at_s: 1_700_000_000,
            text: "# sha256=no\n\n[translator]\nby = \"x\"\n".into(),
        };
        assert_eq!(revision.to_string().parse(), Ok(revision.clone()));
        let empty = Revision { text: String::new(), ..revision.clone() };
        assert_eq!(empty.to_string().parse(), Ok(empty));
        for confirm_s in [None, Some(60)] {
            let proposal = Proposal { revision: revision.clone(), confirm_s };
            assert_eq!(proposal.to_string().parse(), Ok(proposal));
        }
        for stage in Stage::ALL {
            let current = ActiveRevision {
                number: 13,
                before: 12,
                stage,
                seconds: 60,
                needs_word: true,
                by: "uid 0".into(),
                why: "node b: a=b".into(),
            };
            assert_eq!(current.to_string().parse(), Ok(current));
        }
        let check = Check { proposal: 42, why: String::new() };
        assert_eq!(check.to_string().parse(), Ok(check));
        let report = Report { at: 41, number: 13, is_trial: true, sha256: "cd".into(), why: "no".into() };
        assert_eq!(report.to_string().parse(), Ok(report));
    }

    #[test]
    fn a_damaged_value_is_no_revision() {
        for text in ["", "number=1", "number=x\nbefore=0\nstage=trial", "sha256=ab\n\ntext"] {
            assert_eq!(text.parse::<ActiveRevision>(), Err(InvalidText), "{text}");
            assert_eq!(text.parse::<Revision>(), Err(InvalidText), "{text}");
            assert_eq!(text.parse::<Report>(), Err(InvalidText), "{text}");
        }
    }

    #[test]
    fn a_reason_of_several_lines_is_one_line() {
        let check = Check { proposal: 1, why: "first\n  second\n\nproposal=7".into() };
        let read: Check = check.to_string().parse().unwrap();
        assert_eq!(read, Check { proposal: 1, why: "first; second; proposal=7".into() });
        assert_eq!(in_one_line(&"x".repeat(9_000)).len(), WHY_MAX);
    }
}
