//! Crates of the workspace from cargo, and the allowed arrows between them.

use super::rules::Rules;
use cargo_metadata::{DependencyKind, MetadataCommand, Package};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default)]
pub(crate) struct Crate {
    /// Name without the prefix `gatun-`; the command is `gatun`.
    pub(crate) name: String,
    /// Crates of the workspace that it uses outside tests.
    pub(crate) uses: BTreeSet<String>,
    /// Root files of its libraries, programs, examples and benches, without tests.
    pub(crate) roots: Vec<PathBuf>,
}

fn short(name: &str) -> String {
    name.strip_prefix("gatun-").unwrap_or(name).to_owned()
}

/// All crates of the workspace.
pub(crate) fn read(root: &Path) -> Result<Vec<Crate>, String> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .exec()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata.workspace_packages();
    let names: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let mut crates: Vec<Crate> = packages.iter().map(|package| of(package, &names)).collect();
    crates.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(crates)
}

fn of(package: &Package, names: &BTreeSet<&str>) -> Crate {
    let uses = package.dependencies.iter().filter(|dependency| {
        dependency.kind != DependencyKind::Development && names.contains(dependency.name.as_str())
    });
    let roots = package.targets.iter().filter(|target| !target.is_test() && !target.is_custom_build());
    Crate {
        name: short(package.name.as_str()),
        uses: uses.map(|dependency| short(&dependency.name)).collect(),
        roots: roots.map(|target| target.src_path.clone().into_std_path_buf()).collect(),
    }
}

/// Differences between the actual and the allowed arrows.
pub(crate) fn faults(crates: &[Crate], rules: &Rules) -> Vec<String> {
    let mut faults = Vec::new();
    let mut below = BTreeSet::new();
    let there: BTreeMap<_, _> = crates.iter().map(|one| (one.name.as_str(), one)).collect();
    for rule in &rules.crates {
        let allowed: BTreeSet<String> = rule.uses.iter().cloned().collect();
        for name in allowed.iter().filter(|name| !below.contains(*name)) {
            faults
                .push(format!("structure.toml: `{}` may not use `{name}`, which is not below it", rule.name));
        }
        below.insert(rule.name.clone());
        let Some(one) = there.get(rule.name.as_str()) else {
            faults.push(format!("structure.toml: unknown crate `{}`", rule.name));
            continue;
        };
        for name in one.uses.difference(&allowed) {
            faults.push(format!("crate `{}` uses `{name}`: structure.toml does not allow it", rule.name));
        }
        for name in allowed.difference(&one.uses) {
            faults.push(format!("structure.toml: `{}` no longer uses `{name}`", rule.name));
        }
        faults.extend(promises(one, rule.no_std, rule.has_unsafe));
    }
    let missing = crates.iter().filter(|one| !below.contains(&one.name));
    faults.extend(missing.map(|one| format!("crate `{}` is missing in structure.toml", one.name)));
    faults
}

/// Faults of a crate's library that lacks a required attribute.
fn promises(one: &Crate, no_std: bool, has_unsafe: bool) -> Vec<String> {
    let mut faults = Vec::new();
    let libraries =
        one.roots.iter().filter(|root| root.ends_with("src/lib.rs") || root.ends_with("src/main.rs"));
    for root in libraries {
        let text = std::fs::read_to_string(root).unwrap_or_default();
        let mut expect = |attribute: &str| {
            if !text.lines().any(|line| line.trim() == attribute) {
                faults.push(format!("{}: `{attribute}` is missing", root.display()));
            }
        };
        if no_std {
            expect("#![no_std]");
        }
        if !has_unsafe {
            expect("#![forbid(unsafe_code)]");
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Rules {
        let limits = "[limits]\nfunction_lines = 70\nfile_lines = 600\nparameters = 6\n";
        Rules::parse(&format!("{limits}{text}")).unwrap()
    }

    fn one(name: &str, uses: &[&str]) -> Crate {
        Crate { name: name.into(), uses: uses.iter().map(|name| (*name).to_owned()).collect(), roots: vec![] }
    }

    const TWO: &str = "[[crate]]\nname = \"wire\"\nis = \"\"\nuses = []\n\
        [[crate]]\nname = \"nat\"\nis = \"\"\nuses = [\"wire\"]\n";

    #[test]
    fn crates_with_allowed_arrows_are_no_fault() {
        assert_eq!(faults(&[one("nat", &["wire"]), one("wire", &[])], &rules(TWO)), [""; 0]);
    }

    #[test]
    fn forbidden_arrows_stale_arrows_and_unknown_crates_are_faults() {
        let there = [one("wire", &["nat"]), one("nat", &[]), one("new", &[])];
        let faults = faults(&there, &rules(TWO));
        assert_eq!(
            faults,
            [
                "crate `wire` uses `nat`: structure.toml does not allow it",
                "structure.toml: `nat` no longer uses `wire`",
                "crate `new` is missing in structure.toml"
            ]
        );
    }

    #[test]
    fn the_table_of_rules_may_not_point_upwards() {
        let upward = "[[crate]]\nname = \"wire\"\nis = \"\"\nuses = [\"nat\"]\n\
            [[crate]]\nname = \"nat\"\nis = \"\"\nuses = []\n";
        let faults = faults(&[one("nat", &[]), one("wire", &["nat"])], &rules(upward));
        assert_eq!(faults, ["structure.toml: `wire` may not use `nat`, which is not below it"]);
    }
}
