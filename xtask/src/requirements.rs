//! The list of requirements (`docs/rfc/requirements.toml`) and the reasons for those without a test
//! (`docs/rfc/reasons.toml`).

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The published list, relative to the project's folder.
pub(crate) const LIST: &str = "docs/rfc/requirements.toml";
/// The written reasons, relative to the project's folder.
pub(crate) const REASONS: &str = "docs/rfc/reasons.toml";

/// Extent to which the present version meets a requirement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// Met: a test proves it, or a reason says why there is none.
    #[default]
    Offered,
    /// Met in part: tests prove that part, a reason names the rest.
    Partly,
    /// Not met yet: a reason says so, and no test claims otherwise.
    Later,
}

/// A testable requirement.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Requirement {
    pub(crate) id: String,
    pub(crate) section: String,
    pub(crate) text: String,
    #[serde(default)]
    pub(crate) state: State,
    /// Known mistakes of other translators.
    pub(crate) trap: Option<String>,
    /// Last number of a row that stands for several requirements: `PTR6-8` through 23 is cited as any of
    /// `PTR6-8` ... `PTR6-23`.
    pub(crate) through: Option<u32>,
}

/// Requirements of one document.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Group {
    pub(crate) title: String,
    pub(crate) requirements: Vec<Requirement>,
}

/// The whole list.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct List {
    #[serde(rename = "group")]
    pub(crate) groups: Vec<Group>,
}

impl List {
    pub(crate) fn read(root: &Path) -> Result<List, String> {
        parse(root, LIST)
    }

    pub(crate) fn requirements(&self) -> impl Iterator<Item = &Requirement> {
        self.groups.iter().flat_map(|group| &group.requirements)
    }

    /// Ids that are in the list twice.
    pub(crate) fn duplicates(&self) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        self.requirements().map(|r| r.id.as_str()).filter(|id| !seen.insert(*id)).collect()
    }

    /// The row of a cited id: the id itself, the range that contains it, or, for an ICMP `TYPE/CODE` without
    /// a row of its own, `TYPE/other`, `TYPE`, or the table's `other`.
    pub(crate) fn resolve(&self, cited: &str) -> Option<&str> {
        let find = |id: &str| self.requirements().find(|r| r.id == id).map(|r| r.id.as_str());
        let Some((kind, _code)) = cited.split_once('/') else {
            return find(cited).or_else(|| self.range_of(cited));
        };
        let table = kind.split('-').next().unwrap_or(kind);
        find(cited)
            .or_else(|| find(&format!("{kind}/other")))
            .or_else(|| find(kind))
            .or_else(|| self.range_of(kind))
            .or_else(|| find(&format!("{table}-other")))
    }

    fn range_of(&self, cited: &str) -> Option<&str> {
        let (table, number) = cited.rsplit_once('-')?;
        let number: u32 = number.parse().ok()?;
        let holds = |r: &&Requirement| {
            let Some((t, first)) = r.id.rsplit_once('-') else { return false };
            let (Some(last), Ok(first)) = (r.through, first.parse::<u32>()) else { return false };
            t == table && (first..=last).contains(&number)
        };
        self.requirements().find(holds).map(|r| r.id.as_str())
    }
}

/// Reasons why ids have no test: id to reason. Ids that share a reason are listed together in the file.
pub(crate) fn reasons(root: &Path) -> Result<BTreeMap<String, String>, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Reason {
        ids: Vec<String>,
        reason: String,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[serde(rename = "reason")]
        reasons: Vec<Reason>,
    }
    let file: File = parse(root, REASONS)?;
    let mut by_id = BTreeMap::new();
    for Reason { ids, reason } in file.reasons {
        for id in ids {
            if by_id.insert(id.clone(), reason.clone()).is_some() {
                return Err(format!("{REASONS}: {id} has two reasons"));
            }
        }
    }
    Ok(by_id)
}

fn parse<T: for<'a> Deserialize<'a>>(root: &Path, name: &str) -> Result<T, String> {
    let text = std::fs::read_to_string(root.join(name)).map_err(|error| format!("{name}: {error}"))?;
    toml::from_str(&text).map_err(|error| format!("{name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> List {
        let text = r#"
            [[group]]
            title = "Tables"
            requirements = [
              { id = "ICMP4-3/0", section = "4.2", text = "." },
              { id = "ICMP4-3/other", section = "4.2", text = "." },
              { id = "ICMP4-13", section = "4.2", text = "." },
              { id = "ICMP4-other", section = "4.2", text = "." },
              { id = "PTR6-8", through = 23, section = "5.2", text = "." },
              { id = "PTR6-8", section = "5.2", text = "twice" },
            ]
        "#;
        toml::from_str(text).expect("the list is well formed")
    }

    #[test]
    fn a_cited_id_finds_its_row() {
        let list = list();
        assert_eq!(list.resolve("ICMP4-3/0"), Some("ICMP4-3/0"));
        assert_eq!(list.resolve("ICMP4-3/99"), Some("ICMP4-3/other"));
        assert_eq!(list.resolve("ICMP4-13/0"), Some("ICMP4-13"));
        assert_eq!(list.resolve("ICMP4-77/3"), Some("ICMP4-other"));
        assert_eq!(list.resolve("PTR6-23"), Some("PTR6-8"));
        assert_eq!(list.resolve("PTR6-24"), None);
        assert_eq!(list.resolve("A00-1"), None);
    }

    #[test]
    fn a_duplicate_id_is_found() {
        assert_eq!(list().duplicates(), ["PTR6-8"]);
    }
}
