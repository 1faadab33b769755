//! Arrows between the modules of a crate: no cycle, and none from a layer to a higher one.

use super::graph::Graph;
use super::rules::{Layers, Rules, Upward};
use super::source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Declarations and imports of the modules of one target.
#[derive(Debug, Default)]
struct Names<'a> {
    children: BTreeMap<&'a [String], &'a BTreeSet<String>>,
    imports: BTreeMap<&'a [String], BTreeMap<&'a str, &'a [String]>>,
}

impl<'a> Names<'a> {
    fn add(&mut self, source: &'a Source) {
        self.children.insert(&source.module, &source.children);
        let imports = source.exports.iter().map(|(name, path)| (name.as_str(), path.as_slice()));
        self.imports.insert(&source.module, imports.collect());
    }

    /// The module, at most `depth` deep, that a path leads to; `None` for items of the root or of a module
    /// above that depth.
    fn module(&self, path: &[String], depth: usize) -> Option<String> {
        let mut path = path.to_vec();
        // Each step replaces an imported name by its path. The bound ends loops of imports that name each
        // other.
        for _ in 0..8 {
            let known = (0..path.len().min(depth)).take_while(|&i| {
                path.get(..i)
                    .and_then(|module| self.children.get(module))
                    .is_some_and(|all| path.get(i).is_some_and(|name| all.contains(name)))
            });
            let known = known.count();
            let module = path.get(..known)?;
            if known == depth || self.children.get(module).is_none_or(|children| children.is_empty()) {
                return (known > 0).then(|| module.join("::"));
            }
            let name = path.get(known)?;
            let import = self.imports.get(module)?.get(name.as_str())?;
            path = import.iter().cloned().chain(path.iter().skip(known + 1).cloned()).collect();
        }
        None
    }
}

/// Arrows between the modules of each target, at most `depth` deep. Roots, and a folder's own file if
/// modules lie below it, are left out: they may use all of these modules, and their own items count for no
/// module.
fn graphs(sources: &[Source], depth: usize) -> BTreeMap<(&str, &str), Graph> {
    let mut names: BTreeMap<&str, Names<'_>> = BTreeMap::new();
    for source in sources {
        names.entry(&source.target).or_default().add(source);
    }
    let mut graphs: BTreeMap<(&str, &str), Graph> = BTreeMap::new();
    for source in sources {
        let Some(names) = names.get(source.target.as_str()) else { continue };
        let graph = graphs.entry((&source.of, &source.target)).or_default();
        let Some(from) = names.module(&source.module, depth) else { continue };
        for to in source.paths.iter().filter_map(|path| names.module(path, depth)) {
            graph.add(&from, &to);
        }
    }
    graphs
}

/// An import cycle: the crate, the target, the modules, and the arrows of that depth.
struct Cycle<'s> {
    of: &'s str,
    target: &'s str,
    modules: BTreeSet<String>,
    arrows: String,
}

/// Cycles of the top-level modules, and of those below at every depth.
fn cycles(sources: &[Source]) -> Vec<Cycle<'_>> {
    let deepest = sources.iter().map(|source| source.module.len()).max().unwrap_or(0);
    let mut found: Vec<Cycle<'_>> = Vec::new();
    for depth in 1..=deepest {
        for ((of, target), graph) in graphs(sources, depth) {
            for modules in graph.cycles() {
                if found.iter().all(|known| (known.target, &known.modules) != (target, &modules)) {
                    let arrows = describe(&graph, &modules);
                    found.push(Cycle { of, target, modules, arrows });
                }
            }
        }
    }
    found
}

pub(crate) fn faults(sources: &[Source], rules: &Rules) -> Vec<String> {
    let flat = graphs(sources, 1);
    let mut faults = Vec::new();
    let mut met = vec![false; rules.allowed.cycles.len()];
    for Cycle { of, target, modules, arrows } in cycles(sources) {
        let allowed = rules.allowed.cycles.iter().position(|allowed| {
            allowed.of == of && modules == allowed.modules.iter().cloned().collect::<BTreeSet<_>>()
        });
        match allowed {
            Some(i) => met.iter_mut().skip(i).take(1).for_each(|met| *met = true),
            None => faults.push(format!("{target}: import cycle: {arrows}")),
        }
    }
    let stale = rules.allowed.cycles.iter().zip(met).filter(|(_, met)| !met);
    faults.extend(stale.map(|(allowed, _)| {
        format!("structure.toml: `{}` no longer has this cycle: {}", allowed.of, allowed.modules.join(", "))
    }));
    for layers in &rules.layers {
        let target = flat.iter().find(|((of, target), _)| *of == layers.of && target.ends_with("lib.rs"));
        match target {
            Some(((_, target), graph)) => {
                faults.extend(upward(target, graph, layers, sources, &rules.allowed.upward))
            }
            None => faults.push(format!("structure.toml: layers of `{}`, which has no modules", layers.of)),
        }
    }
    faults
}

/// Modules of a cycle with the arrows between them.
fn describe(graph: &Graph, cycle: &BTreeSet<String>) -> String {
    let inside = graph.arrows().filter(|(from, to)| cycle.contains(*from) && cycle.contains(*to));
    inside.map(|(from, to)| format!("{from} -> {to}")).collect::<Vec<_>>().join(", ")
}

/// Arrows from a layer to a higher one, and modules without a layer.
fn upward(
    target: &str,
    graph: &Graph,
    layers: &Layers,
    sources: &[Source],
    allowed: &[Upward],
) -> Vec<String> {
    let mut faults = Vec::new();
    let mut allowed: BTreeSet<(&str, &str)> = allowed
        .iter()
        .filter(|one| one.of == layers.of)
        .map(|one| (one.from.as_str(), one.to.as_str()))
        .collect();
    let mut names = Names::default();
    sources.iter().filter(|source| source.target == target).for_each(|source| names.add(source));
    let mut height: BTreeMap<&str, usize> = BTreeMap::new();
    for (i, layer) in layers.layer.iter().enumerate() {
        for module in &layer.modules {
            height.insert(module, i);
        }
    }
    for (from, to) in graph.arrows() {
        if let (Some(low), Some(high)) = (height.get(from), height.get(to))
            && high > low
            && !allowed.remove(&(from, to))
        {
            let files = sources.iter().filter(|source| {
                source.target == target && source.module.first().is_some_and(|module| module == from)
            });
            let names = |path: &[String]| names.module(path, 1).is_some_and(|module| module == to);
            let files = files.filter(|source| source.paths.iter().any(|path| names(path)));
            let files: Vec<_> = files.map(|source| source.path.as_str()).collect();
            faults.push(format!("{target}: `{from}` uses `{to}`, of a higher layer: {}", files.join(", ")));
        }
    }
    faults.extend(
        allowed
            .iter()
            .map(|(from, to)| format!("structure.toml: `{from}` of {target} no longer uses `{to}`")),
    );
    let root = sources.iter().find(|source| source.target == target && source.module.is_empty());
    let there: BTreeSet<&str> = root.iter().flat_map(|root| &root.children).map(String::as_str).collect();
    let known: BTreeSet<&str> = height.keys().copied().collect();
    faults.extend(there.difference(&known).map(|module| format!("{target}: module `{module}` has no layer")));
    faults.extend(
        known.difference(&there).map(|module| format!("structure.toml: {target} has no module `{module}`")),
    );
    faults
}

/// Cycles that there are, as structure.toml has them.
pub(crate) fn list(sources: &[Source]) -> String {
    let mut text = String::new();
    for Cycle { of, modules, .. } in cycles(sources) {
        let modules: Vec<_> = modules.iter().map(|module| format!("\"{module}\"")).collect();
        let _ = writeln!(
            text,
            "[[allowed.cycles]]\ncrate = \"{of}\"\nmodules = [{}]\nwhy = \"\"\n",
            modules.join(", ")
        );
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
    fn an_allowed_cycle_is_a_fault_only_after_it_is_gone() {
        let allowed = "[[allowed.cycles]]\ncrate = \"nat\"\nmodules = [\"b\", \"a\"]\nwhy = \"w\"\n";
        assert_eq!(found(allowed, &circle()), [""; 0]);
        let [root, a, _] = circle();
        assert_eq!(found(allowed, &[root, a]), ["structure.toml: `nat` no longer has this cycle: b, a"]);
    }

    #[test]
    fn a_cycle_is_found_at_every_depth_once() {
        let sources = [
            sample(&[], "mod low;\npub use low::a;\n"),
            sample(&["low"], "pub mod a;\nmod b;\npub use b::Thing;\n"),
            sample(&["low", "a"], "use super::Thing;\n"),
            sample(&["low", "b"], "mod c;\nuse crate::a::Other;\n"),
            sample(&["low", "b", "c"], ""),
        ];
        assert_eq!(found("", &sources), ["src/lib.rs: import cycle: low::a -> low::b, low::b -> low::a"]);
        let below = [
            sample(&[], "mod top;\n"),
            sample(&["top"], "mod a;\nmod b;\nuse a::Thing;\n"),
            sample(&["top", "a"], "use super::b::Other;\n"),
            sample(&["top", "b"], "use super::a::Thing;\n"),
        ];
        assert_eq!(found("", &below), ["src/lib.rs: import cycle: top::a -> top::b, top::b -> top::a"]);
    }

    #[test]
    fn an_allowed_arrow_upwards_is_a_fault_only_after_it_is_gone() {
        let layers = "[[layers]]\ncrate = \"nat\"\n[[layers.layer]]\nname = \"low\"\nis = \"\"\nmodules = [\"a\"]\n\
            [[layers.layer]]\nname = \"high\"\nis = \"\"\nmodules = [\"b\"]\n\
            [[allowed.upward]]\ncrate = \"nat\"\nfrom = \"a\"\nto = \"b\"\nwhy = \"w\"\n";
        let root = || sample(&[], "mod a;\nmod b;\n");
        assert_eq!(
            found(layers, &[root(), sample(&["a"], "use crate::b::T;\n"), sample(&["b"], "")]),
            [""; 0]
        );
        assert_eq!(
            found(layers, &[root(), sample(&["a"], ""), sample(&["b"], "")]),
            ["structure.toml: `a` of src/lib.rs no longer uses `b`"]
        );
    }

    #[test]
    fn arrows_to_a_higher_layer_and_modules_without_a_layer_are_faults() {
        let layers = "[[layers]]\ncrate = \"nat\"\n[[layers.layer]]\nname = \"low\"\nis = \"\"\nmodules = [\"a\"]\n\
            [[layers.layer]]\nname = \"high\"\nis = \"\"\nmodules = [\"b\"]\n";
        let sources = [
            sample(&[], "mod a;\nmod b;\nmod c;\n"),
            sample(&["a"], "use crate::b::Thing;\n"),
            sample(&["b"], ""),
        ];
        assert_eq!(
            found(layers, &sources),
            ["src/lib.rs: `a` uses `b`, of a higher layer: src/a.rs", "src/lib.rs: module `c` has no layer"]
        );
    }
}
