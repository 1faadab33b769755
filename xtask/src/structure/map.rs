//! The map of crates and of layers in ARCHITECTURE.md, drawn from the rules.

use super::graph::Graph;
use super::rules::{CrateRule, Rules};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const DOCUMENT: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- structure: drawn by `cargo xtask structure --write`; do not edit -->\n";
const END: &str = "<!-- structure: end -->\n";

/// Height of a crate: one more than the highest crate that it uses.
fn heights(crates: &[CrateRule]) -> BTreeMap<&str, usize> {
    let mut heights: BTreeMap<&str, usize> = BTreeMap::new();
    for one in crates {
        let below = one.uses.iter().filter_map(|name| heights.get(name.as_str()));
        let height = below.max().map_or(0, |height| height + 1);
        heights.insert(&one.name, height);
    }
    heights
}

fn draw(rules: &Rules) -> String {
    let mut text = String::from("\n```mermaid\nflowchart BT\n");
    let mut graph = Graph::default();
    for one in &rules.crates {
        one.uses.iter().for_each(|used| graph.add(&one.name, used));
    }
    for (from, to) in graph.reduced().arrows() {
        let _ = writeln!(text, "  {from} --> {to}");
    }
    text.push_str("```\n\nAn arrow means \"uses\"; arrows that follow from others are left out. Crates on one line use only crates \
         on lines below:\n\n");
    let heights = heights(&rules.crates);
    let top = heights.values().copied().max().unwrap_or(0);
    text.push_str("| level | crates |\n|---|---|\n");
    for level in (0..=top).rev() {
        let names = rules.crates.iter().filter(|one| heights.get(one.name.as_str()) == Some(&level));
        let names: Vec<_> = names.map(|one| format!("`{}`", one.name)).collect();
        let _ = writeln!(text, "| {level} | {} |", names.join(" "));
    }
    text.push_str("\n| crate | purpose | uses |\n|---|---|---|\n");
    for one in &rules.crates {
        let uses: Vec<_> = one.uses.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(text, "| `{}` | {} | {} |", one.name, one.is, uses.join(" "));
    }
    for layers in &rules.layers {
        let of = &layers.of;
        let _ = write!(
            text,
            "\nLayers of `{of}`, from the top: a module uses its own layer and those below.\n\n"
        );
        text.push_str("| layer | purpose | modules |\n|---|---|---|\n");
        for layer in layers.layer.iter().rev() {
            let modules: Vec<_> = layer.modules.iter().map(|name| format!("`{name}`")).collect();
            let _ = writeln!(text, "| {} | {} | {} |", layer.name, layer.is, modules.join(" "));
        }
    }
    text.push('\n');
    text
}

/// The document with its map redrawn.
fn with_map(document: &str, rules: &Rules) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{}{END}{after}", draw(rules)))
}

fn read(root: &Path, rules: &Rules) -> Result<(String, String), String> {
    let text = fs::read_to_string(root.join(DOCUMENT)).map_err(|error| format!("{DOCUMENT}: {error}"))?;
    let drawn =
        with_map(&text, rules).ok_or_else(|| format!("{DOCUMENT}: no markers for the map: {BEGIN}"))?;
    Ok((text, drawn))
}

pub(crate) fn fault(root: &Path, rules: &Rules) -> Result<Option<String>, String> {
    let (text, drawn) = read(root, rules)?;
    Ok((text != drawn).then(|| format!("{DOCUMENT}: the map is stale: run `cargo xtask structure --write`")))
}

pub(crate) fn write(root: &Path, rules: &Rules) -> Result<(), String> {
    let (_, drawn) = read(root, rules)?;
    fs::write(root.join(DOCUMENT), drawn).map_err(|error| format!("{DOCUMENT}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_replaces_the_previous_one() {
        let rules = Rules::parse(
            "[limits]\nfunction_lines = 70\nfile_lines = 600\nparameters = 6\n\
             [[crate]]\nname = \"wire\"\nis = \"packets\"\nuses = []\n\
             [[crate]]\nname = \"nat\"\nis = \"state\"\nuses = [\"wire\"]\n",
        )
        .unwrap();
        let document = format!("a\n{BEGIN}old\n{END}b\n");
        let once = with_map(&document, &rules).unwrap();
        assert!(once.starts_with("a\n") && once.ends_with("b\n") && !once.contains("old"), "{once}");
        assert!(once.contains("nat --> wire") && once.contains("| 1 | `nat` |"), "{once}");
        assert_eq!(with_map(&once, &rules).unwrap(), once);
        assert_eq!(with_map("no markers", &rules), None);
    }
}
