//! Structure of the code: layers of crates and of modules, import cycles, sizes, columns.
//!
//! `xtask/structure.toml` holds the rules as data, and the violations that are allowed for now. An entry
//! without a violation is a fault, so the list only shrinks. `--write` draws the map of crates and layers
//! into ARCHITECTURE.md.

mod crates;
mod graph;
mod map;
mod modules;
mod rules;
mod sizes;
mod source;

use crates::Crate;
use rules::Rules;
use source::Source;
use std::path::Path;

/// Facts about the tree, for comparison with the rules.
struct Facts {
    crates: Vec<Crate>,
    sources: Vec<Source>,
}

impl Facts {
    fn read(root: &Path) -> Result<Facts, String> {
        let crates = crates::read(root)?;
        let mut sources = Vec::new();
        for one in &crates {
            sources.extend(source::read(root, one)?);
        }
        Ok(Facts { crates, sources })
    }
}

/// Names of all types and traits outside tests, with their files.
pub(crate) fn types(root: &Path) -> Result<Vec<(String, String)>, String> {
    let sources = Facts::read(root)?.sources.into_iter();
    let named = sources.flat_map(|source| {
        let path = source.path;
        source.types.into_iter().map(move |name| (name, path.clone())).collect::<Vec<_>>()
    });
    Ok(named.collect())
}

/// Compares the tree with the rules.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let rules = Rules::read(root)?;
    let facts = Facts::read(root)?;
    let mut faults = crates::faults(&facts.crates, &rules);
    faults.extend(modules::faults(&facts.sources, &rules));
    faults.extend(sizes::faults(root, &facts.sources, &rules)?);
    faults.extend(map::fault(root, &rules)?);
    if faults.is_empty() {
        let functions: usize = facts.sources.iter().map(|source| source.functions.len()).sum();
        println!(
            "structure: {} crates, {} files, {functions} functions: ok",
            facts.crates.len(),
            facts.sources.len()
        );
        return Ok(());
    }
    faults.sort();
    Err(format!("{}\nxtask structure: {} faults", faults.join("\n"), faults.len()))
}

/// Draws the map into ARCHITECTURE.md.
pub(crate) fn write(root: &Path) -> Result<(), String> {
    map::write(root, &Rules::read(root)?)
}

/// Prints the violations of the tree as tables of allowed ones.
pub(crate) fn list(root: &Path) -> Result<(), String> {
    let rules = Rules::read(root)?;
    let facts = Facts::read(root)?;
    print!("{}", modules::list(&facts.sources));
    print!("{}", sizes::list(&facts.sources, &rules));
    Ok(())
}
