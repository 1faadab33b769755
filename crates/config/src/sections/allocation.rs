//! `allocation` in `[[pool]]`: the method of port allocation.

use crate::keys::{self, Allocation as Kind};
use crate::problem::Problems;
use crate::reader::Table;
use crate::value::{self, type_name};
use gatun_nat::plan::{Allocation, Blocks, Deterministic, HoldDown};
use toml::Spanned;
use toml::de::DeValue;

/// Hold-down time that RFC 6888 REQ-8 requires.
const HOLD_MS: u32 = 120_000;
/// Default number of single ports in hold-down.
const HOLD_PORTS_MAX: u32 = 16_384;

/// Keys that only some kinds have.
const BLOCKS_ONLY: &[&str] = &["size", "blocks_per_subscriber", "linger"];
const DETERMINISTIC_ONLY: &[&str] = &["inside", "overflow"];

/// Reads a pool's allocation; returns the default if it is missing or wrong. `subscriber_len` of a formula
/// comes from the instance and is filled in later.
pub(crate) fn read(pool: &Table<'_>, problems: &mut Problems) -> Allocation {
    match pool.node("allocation").map(Spanned::get_ref) {
        Some(DeValue::Table(_)) => match pool.table("allocation", problems) {
            Some(table) => read_table(&table, problems),
            None => random(None, None),
        },
        Some(DeValue::String(_)) => {
            match pool.get("allocation", problems, |v| value::choice(v, keys::ALLOCATION)) {
                Some(Kind::Blocks) => Allocation::Blocks(Blocks::default()),
                Some(Kind::Deterministic) => {
                    let instead =
                        "write `allocation = { kind = \"deterministic\", inside = [\"2001:db8::/48\"] }`";
                    problems.error(pool.span_of("allocation"), "`inside` is missing", instead);
                    random(None, None)
                }
                Some(Kind::Random) | None => random(None, None),
            }
        }
        Some(other) => {
            let what = format!("`allocation`: expected a word or a table, found {}", type_name(other));
            problems.error(pool.span_of("allocation"), what, pool.example("allocation"));
            random(None, None)
        }
        None => random(None, None),
    }
}

fn random(hold_ms: Option<u32>, hold_max: Option<u32>) -> Allocation {
    Allocation::Random(HoldDown {
        ms: hold_ms.unwrap_or(HOLD_MS),
        ports_max: hold_max.unwrap_or(HOLD_PORTS_MAX),
    })
}

fn read_table(table: &Table<'_>, problems: &mut Problems) -> Allocation {
    let kind = table.require("kind", problems, |v| value::choice(v, keys::ALLOCATION));
    let hold_ms = table.get("hold", problems, value::duration_ms);
    let hold_max = table.integer("hold_max", problems);
    let blocks = read_blocks(table, hold_ms, hold_max, problems);
    let inside = table.list("inside", problems, value::net);
    let overflow = table.integer("overflow", problems).unwrap_or(0);
    match kind {
        Some(Kind::Random) => {
            refuse(table, "random", BLOCKS_ONLY, problems);
            refuse(table, "random", &["protocols"], problems);
            refuse(table, "random", DETERMINISTIC_ONLY, problems);
            random(hold_ms, hold_max)
        }
        Some(Kind::Blocks) => {
            refuse(table, "blocks", DETERMINISTIC_ONLY, problems);
            Allocation::Blocks(blocks)
        }
        Some(Kind::Deterministic) => {
            refuse(table, "deterministic", &["protocols"], problems);
            if table.node("inside").is_none() {
                problems.error(table.span.clone(), "`inside` is missing", table.example("inside"));
            }
            Allocation::Deterministic(Deterministic {
                inside: inside.into_iter().map(Spanned::into_inner).collect(),
                subscriber_len: 128,
                overflow_per_address: overflow as u16,
                blocks,
            })
        }
        None => random(hold_ms, hold_max),
    }
}

fn read_blocks(
    table: &Table<'_>,
    hold_ms: Option<u32>,
    hold_max: Option<u32>,
    problems: &mut Problems,
) -> Blocks {
    let d = Blocks::default();
    let size = table.integer("size", problems).unwrap_or(d.size.into());
    if !size.is_power_of_two() {
        let what = format!("`size`: {size} is not a power of two");
        let instead = format!("write `size = {}`", size.next_power_of_two().min(Blocks::SIZE_MAX.into()));
        problems.error(table.span_of("size"), what, instead);
    }
    Blocks {
        size: size as u16,
        per_subscriber: table
            .integer("blocks_per_subscriber", problems)
            .map_or(d.per_subscriber, |n| n as u16),
        linger_ms: table.get("linger", problems, value::duration_ms).unwrap_or(d.linger_ms),
        hold: HoldDown { ms: hold_ms.unwrap_or(HOLD_MS), ports_max: hold_max.unwrap_or(d.hold.ports_max) },
        protocols: table
            .get("protocols", problems, |v| value::choice(v, keys::BLOCK_PROTOCOLS))
            .unwrap_or_default(),
    }
}

fn refuse(table: &Table<'_>, kind: &str, names: &[&str], problems: &mut Problems) {
    for name in names.iter().filter(|name| table.node(name).is_some()) {
        let what = format!("`{name}` does not apply to `kind = \"{kind}\"`");
        problems.error(table.span_of(name), what, format!("remove `{name}`"));
    }
}
