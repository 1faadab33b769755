//! Arrows between the top-level modules of a crate: no cycle, and none from a layer to one above.

use super::graph::Graph;
use super::rules::{Layers, Rules};
use super::source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// A target's top-level modules and their arrows. The root is left out: it may use all of them, and what it defines itself
/// counts for none.
fn graphs(sources: &[Source]) -> BTreeMap<(&str, &str), Graph> {
    let mut exports: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
    let mut children: BTreeMap<&str, &BTreeSet<String>> = BTreeMap::new();
    for root in sources.iter().filter(|source| source.module.is_empty()) {
        let names =
            root.exports.iter().filter_map(|(name, path)| Some((name.as_str(), path.first()?.as_str())));
        exports.insert(&root.target, names.collect());
        children.insert(&root.target, &root.children);
    }
    let mut graphs: BTreeMap<(&str, &str), Graph> = BTreeMap::new();
    for source in sources {
        let Some(from) = source.module.first() else { continue };
        let graph = graphs.entry((&source.of, &source.target)).or_default();
        let known = children.get(source.target.as_str());
        let exported = exports.get(source.target.as_str());
        for path in &source.paths {
            let Some(first) = path.first().map(String::as_str) else { continue };
            if known.is_some_and(|children| children.contains(first)) {
                graph.add(from, first);
            } else if let Some(module) = exported.and_then(|exports| exports.get(first)) {
                // The root exports it: it is the module's that it comes from.
                graph.add(from, module);
            }
        }
    }
    graphs
}

pub(crate) fn faults(sources: &[Source], rules: &Rules) -> Vec<String> {
    let graphs = graphs(sources);
    let mut faults = Vec::new();
    let mut met = vec![false; rules.allowed.cycles.len()];
    for ((of, target), graph) in &graphs {
        for cycle in graph.cycles() {
            let allowed = rules.allowed.cycles.iter().position(|allowed| {
                allowed.of == *of && cycle == allowed.modules.iter().cloned().collect::<BTreeSet<_>>()
            });
            match allowed {
                Some(i) => met.iter_mut().skip(i).take(1).for_each(|met| *met = true),
                None => faults.push(format!("{target}: import cycle: {}", describe(graph, &cycle))),
            }
        }
    }
    let stale = rules.allowed.cycles.iter().zip(met).filter(|(_, met)| !met);
    faults.extend(stale.map(|(allowed, _)| {
        format!(
            "structure.toml: there is no such cycle in `{}` any more: {}",
            allowed.of,
            allowed.modules.join(", ")
        )
    }));
    for layers in &rules.layers {
        let target = graphs.iter().find(|((of, target), _)| *of == layers.of && target.ends_with("lib.rs"));
        match target {
            Some(((_, target), graph)) => faults.extend(upward(target, graph, layers, sources)),
            None => faults.push(format!("structure.toml: layers of `{}`, which has no modules", layers.of)),
        }
    }
    faults
}

/// A cycle's modules with the arrows between them.
fn describe(graph: &Graph, cycle: &BTreeSet<String>) -> String {
    let inside = graph.arrows().filter(|(from, to)| cycle.contains(*from) && cycle.contains(*to));
    inside.map(|(from, to)| format!("{from} -> {to}")).collect::<Vec<_>>().join(", ")
}

/// Arrows from a layer to one above, and modules that are in no layer.
fn upward(target: &str, graph: &Graph, layers: &Layers, sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut height: BTreeMap<&str, usize> = BTreeMap::new();
    for (i, layer) in layers.layer.iter().enumerate() {
        for module in &layer.modules {
            height.insert(module, i);
        }
    }
    for (from, to) in graph.arrows() {
        if let (Some(low), Some(high)) = (height.get(from), height.get(to))
            && high > low
        {
            let files = sources.iter().filter(|source| {
                source.target == target
                    && source.module.first().is_some_and(|module| module == from)
                    && source.paths.iter().any(|path| path.first().is_some_and(|module| module == to))
            });
            let files: Vec<_> = files.map(|source| source.path.as_str()).collect();
            faults.push(format!("{target}: `{from}` uses `{to}`, of a layer above: {}", files.join(", ")));
        }
    }
    let root = sources.iter().find(|source| source.target == target && source.module.is_empty());
    let there: BTreeSet<&str> = root.iter().flat_map(|root| &root.children).map(String::as_str).collect();
    let known: BTreeSet<&str> = height.keys().copied().collect();
    faults
        .extend(there.difference(&known).map(|module| format!("{target}: module `{module}` is in no layer")));
    faults.extend(
        known.difference(&there).map(|module| format!("structure.toml: {target} has no module `{module}`")),
    );
    faults
}

/// Cycles that there are, as structure.toml has them.
pub(crate) fn list(sources: &[Source]) -> String {
    let mut text = String::new();
    for ((of, _), graph) in graphs(sources) {
        for cycle in graph.cycles() {
            let modules: Vec<_> = cycle.iter().map(|module| format!("\"{module}\"")).collect();
            let _ = writeln!(
                text,
                "[[allowed.cycles]]\ncrate = \"{of}\"\nmodules = [{}]\nwhy = \"\"\n",
                modules.join(", ")
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::source::sample;
    use super::*;

    const LIMITS: &str = "crate = []\n[limits]\nfunction_lines = 70\nfile_lines = 600\nparameters = 6\n";

    fn found(rules: &str, sources: &[Source]) -> Vec<String> {
        faults(sources, &Rules::parse(&format!("{LIMITS}{rules}")).unwrap())
    }

    fn circle() -> [Source; 3] {
        [
            sample(&[], "mod a;\nmod b;\npub use b::Thing;\n"),
            sample(&["a"], "use crate::Thing;\n"),
            sample(&["b"], "use crate::a::Other;\n"),
        ]
    }

    #[test]
    fn modules_that_import_each_other_are_a_fault_through_the_roots_exports_too() {
        assert_eq!(found("", &circle()), ["src/lib.rs: import cycle: a -> b, b -> a"]);
    }

    #[test]
    fn an_allowed_cycle_is_no_fault_until_it_is_gone() {
        let allowed = "[[allowed.cycles]]\ncrate = \"nat\"\nmodules = [\"b\", \"a\"]\nwhy = \"w\"\n";
        assert_eq!(found(allowed, &circle()), [""; 0]);
        let [root, a, _] = circle();
        assert_eq!(
            found(allowed, &[root, a]),
            ["structure.toml: there is no such cycle in `nat` any more: b, a"]
        );
    }

    #[test]
    fn a_layer_uses_no_layer_above_and_every_module_has_one() {
        let layers = "[[layers]]\ncrate = \"nat\"\n[[layers.layer]]\nname = \"low\"\nis = \"\"\nmodules = [\"a\"]\n\
            [[layers.layer]]\nname = \"high\"\nis = \"\"\nmodules = [\"b\"]\n";
        let sources = [
            sample(&[], "mod a;\nmod b;\nmod c;\n"),
            sample(&["a"], "use crate::b::Thing;\n"),
            sample(&["b"], ""),
        ];
        assert_eq!(
            found(layers, &sources),
            ["src/lib.rs: `a` uses `b`, of a layer above: src/a.rs", "src/lib.rs: module `c` is in no layer"]
        );
    }
}
