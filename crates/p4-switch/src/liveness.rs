//! Fields that a packet needs at a look-up: written before it, and read there or later.

use crate::names::{Names, Place};
use crate::program::{Action, Line, Program};
use std::collections::{BTreeMap, BTreeSet};

type Places = BTreeSet<Place>;

/// Fields that have a value before each line of the program that is read there or later.
pub(crate) struct Liveness {
    before: Vec<Places>,
}

/// Effect of a line.
#[derive(Default)]
struct Effect {
    reads: Places,
    /// Written in any case.
    writes: Places,
    /// Written perhaps.
    may_write: Places,
    /// Lines that can follow.
    next: Vec<usize>,
}

impl Liveness {
    pub(crate) fn of(program: &Program, names: &Names<'_>) -> Option<Liveness> {
        let lines = &program.apply;
        let labels: BTreeMap<&str, usize> =
            lines.iter().enumerate().filter_map(|(at, line)| Some((line.label.as_deref()?, at))).collect();
        let effects = lines.iter().enumerate().map(|(at, line)| {
            let mut effect = match line.words[0].as_str() {
                "table" => table(line.words.get(1)?, names)?,
                _ => instruction(line, names),
            };
            effect.next = next(at, line, &labels)?;
            Some(effect)
        });
        let effects = effects.collect::<Option<Vec<_>>>()?;
        let mut before = vec![Places::new(); lines.len() + 1];
        // Programs jump forward, so that the first round finds nearly everything.
        loop {
            let mut changed = false;
            for (at, effect) in effects.iter().enumerate().rev() {
                let live: Places =
                    effect.next.iter().flat_map(|next| before[*next].iter().copied()).collect();
                let mut needed: Places = live.difference(&effect.writes).copied().collect();
                needed.extend(effect.reads.iter().copied());
                changed |= needed != before[at];
                before[at] = needed;
            }
            if !changed {
                break;
            }
        }
        let assigned = assigned(&effects);
        let both = |(live, assigned): (&Places, &Places)| live.intersection(assigned).copied().collect();
        Some(Liveness { before: before.iter().zip(&assigned).map(both).collect() })
    }

    /// Fields that were written before a line, and that it or those behind it read.
    pub(crate) fn before(&self, line: usize) -> &Places {
        &self.before[line]
    }
}

/// Fields that can have been written before each line.
fn assigned(effects: &[Effect]) -> Vec<Places> {
    let mut before = vec![Places::new(); effects.len() + 1];
    loop {
        let mut changed = false;
        for (at, effect) in effects.iter().enumerate() {
            let behind: Places = before[at].union(&effect.may_write).copied().collect();
            for next in &effect.next {
                changed |= !behind.is_subset(&before[*next]);
                before[*next].extend(behind.iter().copied());
            }
        }
        if !changed {
            return before;
        }
    }
}

fn next(at: usize, line: &Line, labels: &BTreeMap<&str, usize>) -> Option<Vec<usize>> {
    let name = line.words[0].as_str();
    let target = || Some(*labels.get(line.words.get(1)?.as_str())?);
    Some(match name {
        "tx" | "drop" => Vec::new(),
        "jmp" => vec![target()?],
        _ if name.starts_with("jmp") => vec![at + 1, target()?],
        _ => vec![at + 1],
    })
}

/// Reads and writes of an instruction. Arithmetic reads its destination, too.
fn instruction(line: &Line, names: &Names<'_>) -> Effect {
    let words = &line.words;
    let places = || words[1..].iter().filter_map(|word| names.place(word));
    let header = || words.get(1).and_then(|word| names.header(word));
    let mut effect = Effect::default();
    match words[0].as_str() {
        "rx" | "mov" | "regrd" => {
            effect.writes.extend(places().take(1));
            effect.reads.extend(places().skip(1));
        }
        "meter" => {
            let written = words.last().and_then(|word| names.place(word));
            effect.reads.extend(places().filter(|place| Some(*place) != written));
            effect.writes.extend(written);
        }
        "extract" => effect.writes.extend(header().into_iter().flat_map(|header| names.fields(header))),
        "emit" => effect.reads.extend(header().into_iter().flat_map(|header| names.fields(header))),
        name => {
            if !name.starts_with("jmp") && !name.starts_with("reg") {
                effect.may_write.extend(places().take(1));
            }
            effect.reads.extend(places());
            let headers = words[1..].iter().filter_map(|word| names.header(word));
            if name == "ckadd" {
                effect.reads.extend(headers.flat_map(|header| names.fields(header)));
            }
        }
    }
    effect.may_write.extend(effect.writes.iter().copied());
    effect
}

/// Reads of all actions of a table, and what all of them write.
fn table(name: &str, names: &Names<'_>) -> Option<Effect> {
    let (_, table) = names.table(name)?;
    let mut all = Effect {
        reads: table.key.iter().filter_map(|word| names.place(word)).collect(),
        ..Effect::default()
    };
    for (number, name) in table.actions.iter().chain([&table.default]).enumerate() {
        let effect = action(names.action(name)?.1, names);
        all.reads.extend(effect.reads);
        all.may_write.extend(effect.may_write);
        all.writes = match number {
            0 => effect.writes,
            _ => all.writes.intersection(&effect.writes).copied().collect(),
        };
    }
    Some(all)
}

fn action(action: &Action, names: &Names<'_>) -> Effect {
    let is_straight = action.code.iter().all(|line| !line.words[0].starts_with("jmp"));
    let mut all = Effect::default();
    for line in &action.code {
        let effect = instruction(line, names);
        all.reads.extend(effect.reads.difference(&all.writes));
        all.may_write.extend(effect.may_write);
        if is_straight {
            all.writes.extend(effect.writes);
        }
    }
    all
}
