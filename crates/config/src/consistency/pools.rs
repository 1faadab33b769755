//! Pools, the instances that use them, and static bindings.

use crate::problem::Problems;
use crate::sections::Sections;
use crate::sections::nat64::RawBinding;
use crate::sections::pool::RawPool;
use crate::value::nearest;
use gatun_nat::plan::{Pool4, PoolRange, StaticBinding};
use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use toml::Spanned;

/// Refuses a port of an address in two ranges of a pool for one protocol (A52-8), and an address in two
/// pools: the address of a returning packet must identify its pool.
pub(super) fn check_ranges(pools: &[RawPool], problems: &mut Problems) {
    let mut all: Vec<(usize, &Spanned<PoolRange>)> = Vec::new();
    for (number, pool) in pools.iter().enumerate() {
        all.extend(pool.ranges.iter().map(|range| (number, range)));
    }
    all.sort_by_key(|(_, range)| (range.get_ref().first, range.get_ref().ports));
    let mut open: Vec<(usize, &Spanned<PoolRange>)> = Vec::new();
    for (pool, range) in all {
        open.retain(|(_, earlier)| earlier.get_ref().last >= range.get_ref().first);
        let clash = |(other, earlier): &&(usize, &Spanned<PoolRange>)| {
            *other != pool || overlap(earlier.get_ref(), range.get_ref())
        };
        if let Some((other_pool, other)) = open.iter().find(clash) {
            // Report the one that is later in the file.
            let (at, other) =
                if range.span().start >= other.span().start { (range, *other) } else { (*other, range) };
            let what = format!("{} overlaps {}", show(at.get_ref()), show(other.get_ref()));
            let instead = match *other_pool == pool {
                true => "remove the addresses, ports or protocols from one of the two",
                false => "remove the addresses from one of the two pools: an address belongs to one",
            };
            problems.error(at.span(), what, instead);
        }
        open.push((pool, range));
    }
}

fn overlap(a: &PoolRange, b: &PoolRange) -> bool {
    let protocols = a.transports.iter().zip(b.transports).any(|(a, b)| *a && b);
    protocols && a.first <= b.last && b.first <= a.last && a.ports.0 <= b.ports.1 && b.ports.0 <= a.ports.1
}

fn show(range: &PoolRange) -> String {
    let PoolRange { first, last, ports, .. } = range;
    let addresses = if first == last { first.to_string() } else { format!("{first}-{last}") };
    format!("{addresses} with ports {}-{}", ports.0, ports.1)
}

/// Pool of each stateful instance.
pub(super) fn resolve(read: &Sections, names: &[String], problems: &mut Problems) -> Vec<Option<usize>> {
    let of64 = read.nat64.iter().map(|i| (&i.pool, &i.span));
    let mut used = HashSet::new();
    let mut pools = Vec::new();
    for (written, span) in of64.chain(read.nat44.iter().map(|i| (&i.pool, &i.span))) {
        let span = written.as_ref().map_or(span.clone(), Spanned::span);
        let pool = match written {
            Some(name) => names.iter().position(|known| known == name.get_ref()),
            None => (names.len() == 1).then_some(0),
        };
        match (pool, written) {
            (Some(pool), _) => {
                used.insert(pool);
            }
            (None, Some(name)) => {
                let what = format!("there is no pool \"{}\"", name.get_ref());
                problems.error(span, what, known_pools(name.get_ref(), names));
            }
            (None, None) if names.is_empty() => {
                let instead = "add `[[pool]]` with `prefixes = [\"192.0.2.0/28\"]`";
                problems.error(span, "the instance has no pool of IPv4 addresses", instead);
            }
            (None, None) => {
                let what = "`pool` is missing, and there is more than one pool";
                problems.error(span, what, format!("write `pool = \"{}\"`", names[0]));
            }
        }
        pools.push(pool);
    }
    for (at, pool) in read.pools.iter().enumerate().filter(|(at, _)| !used.contains(at)) {
        if problems.errors() == 0 {
            let what = format!("no instance uses the pool \"{}\"", names[at]);
            problems.warn(
                pool.span.clone(),
                what,
                format!("write `pool = \"{}\"` in a [[nat64]] or [[nat44]]", names[at]),
            );
        }
    }
    pools
}

fn known_pools(written: &str, names: &[String]) -> String {
    match nearest(written, names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None if names.is_empty() => "add `[[pool]]` with this name".to_owned(),
        None => format!("the pools are: {}", names.join(", ")),
    }
}

/// Builds the plan's pools. A static binding whose port a pool lacks adds a range to it.
pub(super) fn build(
    read: &Sections,
    names: &[String],
    pool_of: &[Option<usize>],
    problems: &mut Problems,
) -> Vec<Pool4> {
    let build = |(raw, name): (&RawPool, &String)| Pool4 {
        name: name.clone(),
        ranges: raw.ranges.iter().map(|range| *range.get_ref()).collect(),
        pairing: raw.pairing,
        port_parity: raw.port_parity,
        port_class: raw.port_class,
        allocation: raw.allocation.get_ref().clone(),
        overload: raw.overload.clone(),
    };
    let mut pools: Vec<Pool4> = read.pools.iter().zip(names).map(build).collect();
    let mut taken = HashMap::new();
    let of64 = read.nat64.iter().map(|i| &i.static_bindings);
    let statics = of64.chain(read.nat44.iter().map(|i| &i.static_bindings));
    for (static_bindings, pool) in statics.zip(pool_of) {
        let Some(at) = *pool else { continue };
        let mut inside_taken = HashMap::new();
        for binding in static_bindings {
            let b = &binding.binding;
            if taken.insert((b.transport, b.outside), ()).is_some() {
                let what = format!("{}:{} is bound already", b.outside.0, b.outside.1);
                problems.error(binding.outside_span.clone(), what, "give each binding its own outside port");
            } else if inside_taken.insert((b.transport, b.inside), ()).is_some() {
                let what = format!("{} is bound already", inside_end(b));
                let instead = "an inside port has one outside port (RFC 6146 3.1): remove one of the two";
                problems.error(binding.inside_span.clone(), what, instead);
            } else if !read.pools[at].broken {
                place_binding(binding, at, &mut pools, problems);
            }
        }
    }
    pools
}

/// Formats an inside endpoint as in the file.
fn inside_end(b: &StaticBinding) -> String {
    match b.inside.0.to_ipv4_mapped() {
        Some(v4) => format!("{v4}:{}", b.inside.1),
        None => format!("[{}]:{}", b.inside.0, b.inside.1),
    }
}

/// Ensures that the pool has a binding's outside port.
fn place_binding(binding: &RawBinding, at: usize, pools: &mut [Pool4], problems: &mut Problems) {
    let (address, port) = binding.binding.outside;
    let transport = binding.binding.transport as usize;
    let holds = |range: &PoolRange| {
        let here = range.first <= address && address <= range.last;
        here && range.transports[transport] && range.ports.0 <= port && port <= range.ports.1
    };
    if pools[at].ranges.iter().any(holds) {
        return;
    }
    let span = binding.outside_span.clone();
    if !pools[at].ranges.iter().any(|range| range.first <= address && address <= range.last) {
        let what = format!("{address} is not in the pool \"{}\"", pools[at].name);
        problems.error(
            span,
            what,
            format!("write an address of the pool, for example \"{}\"", first(&pools[at], port)),
        );
    } else if let Some(other) = pools.iter().find(|pool| pool.ranges.iter().any(holds)) {
        let what = format!("{address}:{port} belongs to the pool \"{}\"", other.name);
        problems.error(span, what, format!("write a port of the pool \"{}\"", pools[at].name));
    } else {
        let mut transports = [false; 3];
        transports[transport] = true;
        pools[at].ranges.push(PoolRange { first: address, last: address, ports: (port, port), transports });
    }
}

fn first(pool: &Pool4, port: u16) -> String {
    let address = pool.ranges.first().map_or(Ipv4Addr::UNSPECIFIED, |range| range.first);
    format!("{address}:{port}")
}
