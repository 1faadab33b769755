//! Addresses that two parts of the configuration claim, and the translator's own.

use super::realms::Realms;
use crate::problem::Problems;
use crate::sections::Sections;
use crate::sections::eam::{RawEam, check_overlaps};
use gatun_nat::plan::{Net4, Net6};
use gatun_wire::Prefix64;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use toml::Spanned;

/// A translation prefix, and the rule that assigns its packets.
struct Claim<'r> {
    prefix: &'r Spanned<Prefix64>,
    /// Realm and sources of a stateful instance; `None` for a stateless one.
    rule: Option<(u8, &'r [Net6])>,
}

impl Claim<'_> {
    /// Returns true if a packet could match both claims, given that one prefix contains the other.
    fn meets(&self, other: &Claim<'_>) -> bool {
        let (a, b) = (self.prefix.get_ref(), other.prefix.get_ref());
        let told_apart = match (self.rule, other.rule) {
            (Some((realm, _)), Some((other, _))) if realm != other => true,
            (Some((_, own)), Some((_, others))) => a == b && are_apart(own, others),
            _ => false,
        };
        !told_apart
    }
}

/// Returns true if no source is in both lists; an empty list contains all.
fn are_apart(a: &[Net6], b: &[Net6]) -> bool {
    let meet = |a: &Net6, b: &Net6| a.contains(b.addr) || b.contains(a.addr);
    !a.is_empty() && !b.is_empty() && !a.iter().any(|a| b.iter().any(|b| meet(a, b)))
}

/// Refuses overlapping translation prefixes, unless ports or sources tell their instances apart.
pub(super) fn check_pool6(read: &Sections, realms: &Realms, problems: &mut Problems) {
    let mut claims: Vec<Claim<'_>> = Vec::new();
    for (instance, realm) in read.nat64.iter().zip(&realms.nat64) {
        let rule = Some((*realm, &instance.sources[..]));
        claims.extend(instance.pool6.iter().map(|prefix| Claim { prefix, rule }));
    }
    claims.extend(read.siit.iter().flat_map(|i| &i.pool6).map(|prefix| Claim { prefix, rule: None }));
    claims.sort_by_key(|claim| claim.prefix.span().start);
    claims.sort_by_key(|claim| (claim.prefix.get_ref().address(), claim.prefix.get_ref().len()));
    // Claims whose prefix contains the current one.
    let mut outer: Vec<&Claim<'_>> = Vec::new();
    for claim in &claims {
        outer.retain(|outer| outer.prefix.get_ref().contains(claim.prefix.get_ref().address()));
        if let Some(other) = outer.iter().find(|other| claim.meets(other)) {
            let (at, other) = in_file_order(other.prefix, claim.prefix);
            let what = format!("the translation prefix {} overlaps {}", at.get_ref(), other.get_ref());
            let instead = "give each instance its own prefix, or `sources` or `ports` that tell them apart";
            problems.error(at.span(), what, instead);
        }
        outer.push(claim);
    }
}

/// Returns the later one in the file first.
fn in_file_order<'a, T>(a: &'a Spanned<T>, b: &'a Spanned<T>) -> (&'a Spanned<T>, &'a Spanned<T>) {
    if a.span().start >= b.span().start { (a, b) } else { (b, a) }
}

/// Checks mappings within each instance, and the IPv4 sides of different instances.
pub(super) fn check_mappings(read: &mut Sections, problems: &mut Problems) {
    for instance in &mut read.siit {
        check_overlaps(&mut instance.eamt, instance.allow_overlap, problems);
    }
    if read.siit.len() < 2 {
        return;
    }
    let mut all: Vec<_> =
        read.siit.iter().enumerate().flat_map(|(at, i)| i.eamt.iter().map(move |e| (e, at))).collect();
    all.sort_by_key(|(entry, _)| entry.eam.v4);
    let mut outer: Option<(&RawEam, usize)> = None;
    for (entry, at) in all {
        match outer {
            Some((first, other)) if first.eam.v4.contains(entry.eam.v4.addr) => {
                if other != at {
                    // Report both places: either mapping may be the wrong one.
                    for (one, whose) in [(first, "another instance too"), (entry, "another instance already")]
                    {
                        let v4 = one.eam.v4;
                        let what = format!("{}/{} is mapped in {whose}", v4.addr, v4.len);
                        let instead = "map an IPv4 address in one instance";
                        problems.error_in(one.file as usize, one.span(), what, instead);
                    }
                }
            }
            _ => outer = Some((entry, at)),
        }
    }
}

/// A packet from outside is either for a pool or for a mapping. Mappings are sorted at this point.
pub(super) fn check_pools_against_mappings(read: &Sections, problems: &mut Problems) {
    for range in read.pools.iter().flat_map(|pool| &pool.ranges) {
        let (first, last) = (range.get_ref().first, range.get_ref().last);
        for instance in &read.siit {
            let after = instance.eamt.partition_point(|e| e.eam.v4.addr <= last);
            let candidates = instance.eamt[..after].iter().rev();
            // A mapping that begins inside the range is the last one before `after`; one that begins
            // before it contains `first`.
            let mut hits = candidates.take_while(|e| e.eam.v4.addr >= first);
            let within = |e: &&RawEam| e.eam.v4.contains(first);
            if let Some(hit) = hits.next().or_else(|| instance.eamt[..after].iter().find(within)) {
                let v4 = hit.eam.v4;
                let what =
                    format!("{first}-{last} of this pool overlaps the mapping of {}/{}", v4.addr, v4.len);
                problems.error(range.span(), what, "remove the address from the pool, or the mapping");
            }
        }
    }
}

/// The translator's addresses: as configured, or else the second address of the first pool, and that address
/// embedded in the first translation prefix.
pub(super) fn own_addresses(
    read: &Sections,
    problems: &mut Problems,
) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
    let from_pool = || {
        let range = read.pools.first()?.ranges.first()?.get_ref();
        Some(if range.first < range.last { Ipv4Addr::from(u32::from(range.first) + 1) } else { range.first })
    };
    let own4 = read.translator.own4.as_ref().map(|own| *own.get_ref()).or_else(from_pool);
    let prefixes = read.nat64.iter().flat_map(|i| &i.pool6).chain(read.siit.iter().flat_map(|i| &i.pool6));
    let embedded = || Some(prefixes.map(Spanned::get_ref).next()?.embed(own4?));
    let own6 = read.translator.own6.as_ref().map(|own| *own.get_ref()).or_else(embedded);
    // In a file with errors, a missing key may only be misspelt.
    if let Some(instance) = read.siit.first().filter(|_| problems.errors() == 0) {
        for (key, family, example, missing) in [
            ("own4", "ICMPv4", "192.0.2.1", own4.is_none()),
            ("own6", "ICMPv6", "2001:db8::1", own6.is_none()),
        ] {
            if missing {
                let what =
                    format!("`{key}` is not set: {family} errors made here would have no source address");
                let instead = format!("write `[translator]` with `{key} = \"{example}\"`");
                problems.warn(instance.span.clone(), what, instead);
            }
        }
    }
    if let Some(own) = &read.translator.own4 {
        let mapped = read.siit.iter().flat_map(|i| &i.eamt).find(|e| e.eam.v4.contains(*own.get_ref()));
        if let Some(entry) = mapped {
            let what = format!("`own4` lies in the mapping of {}/{}", entry.eam.v4.addr, entry.eam.v4.len);
            problems.warn(
                own.span(),
                what,
                "packets to it end at the translator and do not reach the mapped host",
            );
        }
    }
    (own4, own6)
}

/// Checks the inside networks of NAT44 (RFC 4787 REQ-7). Among packets that arrive by the same ports, the
/// source identifies the instance: no address may be inside of two such instances, nor be both inside and
/// public.
pub(super) fn check_inside(
    read: &Sections,
    realms: &Realms,
    own4: Option<Ipv4Addr>,
    problems: &mut Problems,
) {
    let mut all: Vec<(u8, &Spanned<Net4>)> = Vec::new();
    for (instance, realm) in read.nat44.iter().zip(&realms.nat44) {
        all.extend(instance.inside.iter().map(|net| (*realm, net)));
    }
    all.sort_by_key(|(_, net)| net.span().start);
    all.sort_by_key(|(realm, net)| (*realm, *net.get_ref()));
    let mut outer: Option<(u8, &Spanned<Net4>)> = None;
    for (realm, net) in all {
        match outer {
            Some((of, outer)) if of == realm && outer.get_ref().contains(net.get_ref().addr) => {
                let (at, other) = in_file_order(outer, net);
                let what = format!("the inside network {} overlaps {}", show(at), show(other));
                let instead = "write each network once, in one instance, or name other `ports` in each";
                problems.error(at.span(), what, instead);
            }
            _ => outer = Some((realm, net)),
        }
    }
    for net in read.nat44.iter().flat_map(|i| &i.inside) {
        let within = |a: Ipv4Addr| net.get_ref().contains(a);
        let ranges = read.pools.iter().flat_map(|pool| &pool.ranges).map(Spanned::get_ref);
        if let Some(r) = ranges
            .into_iter()
            .find(|r| within(r.first) || (r.first <= net.get_ref().addr && net.get_ref().addr <= r.last))
        {
            let what = format!("the inside network {} overlaps the pool's {}-{}", show(net), r.first, r.last);
            problems.error(net.span(), what, "an address is private or public: remove it from one of them");
        }
        let mapped = read.siit.iter().flat_map(|i| &i.eamt).map(|e| e.eam.v4);
        if let Some(v4) = mapped.into_iter().find(|v4| within(v4.addr) || v4.contains(net.get_ref().addr)) {
            let what =
                format!("the inside network {} overlaps the mapping of {}/{}", show(net), v4.addr, v4.len);
            problems.error(net.span(), what, "remove the address from one of them");
        }
        if own4.is_some_and(within) {
            let what = format!("`own4` lies in the inside network {}", show(net));
            problems.error(net.span(), what, "write another `own4`, for example one of the pool's addresses");
        }
    }
}

fn show(net: &Spanned<Net4>) -> String {
    format!("{}/{}", net.get_ref().addr, net.get_ref().len)
}

/// Checks addresses of the host: packets to them never reach the translator.
pub(super) fn check_ports(
    read: &Sections,
    own4: Option<Ipv4Addr>,
    own6: Option<Ipv6Addr>,
    problems: &mut Problems,
) {
    let ranges = || read.pools.iter().flat_map(|pool| &pool.ranges).map(Spanned::get_ref);
    for port in read.ports.iter().filter(|port| port.ethernet.is_none()) {
        for (address, _) in &port.addresses {
            let own = own4.map(IpAddr::V4) == Some(*address) || own6.map(IpAddr::V6) == Some(*address);
            let pooled = matches!(address, IpAddr::V4(a) if ranges().any(|r| r.first <= *a && *a <= r.last));
            if own || pooled {
                let whose = if own { "the translator's own address" } else { "in a pool" };
                let what = format!(
                    "{address} is {whose}, but as an address of the device its packets go to the kernel"
                );
                problems.warn(port.span.clone(), what, "remove it from `addresses`");
            }
        }
    }
}

/// Checks RFC 6052 3.1: 64:ff9b::/96 embeds global IPv4 addresses only.
pub(super) fn check_well_known_prefix(read: &Sections, problems: &mut Problems) {
    let flags = read.nat64.iter().map(|i| (&i.wkp_non_global, &i.pool6));
    for (flag, pool6) in flags.chain(read.siit.iter().map(|i| (&i.wkp_non_global, &i.pool6))) {
        if !*flag.get_ref() {
            continue;
        }
        let well_known = pool6.iter().any(|prefix| *prefix.get_ref() == Prefix64::WELL_KNOWN);
        if well_known {
            let what = "64:ff9b::/96 embeds private IPv4 addresses here, against RFC 6052 3.1";
            let instead = "use your own prefix, or 64:ff9b:1::/48 (RFC 8215), if other networks may see it";
            problems.warn(flag.span(), what, instead);
        } else {
            let what = "`wkp_non_global` has no effect: the instance does not use 64:ff9b::/96";
            problems.warn(flag.span(), what, "remove it");
        }
    }
}
