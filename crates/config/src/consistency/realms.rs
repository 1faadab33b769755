//! Address realms of the ports that instances name. The ports that instances of one kind name together form a
//! realm (RFC 2663 2.1): hosts of two realms may have the same addresses.

use crate::problem::Problems;
use crate::sections::Sections;
use crate::sections::port::Port;
use crate::value::nearest;
use gatun_nat::plan::Net4;
use std::collections::BTreeSet;
use std::ops::Range;
use toml::Spanned;

/// Realm of each instance's hosts; 0 if the instance names no port.
pub(super) struct Realms {
    pub(super) nat64: Vec<u8>,
    pub(super) nat44: Vec<u8>,
}

/// Kind of instances, as far as ports are concerned.
struct Kind {
    section: &'static str,
    /// True if its inside is IPv4.
    is_ipv4: bool,
}

/// Numbers the realms and records them at the ports.
pub(super) fn assign(read: &Sections, ports: &mut [Port], problems: &mut Problems) -> Realms {
    let named: Vec<_> = read.nat64.iter().map(|i| (&i.ports[..], i.span.clone())).collect();
    let nat64 = realms_of(&named, &Kind { section: "[[nat64]]", is_ipv4: false }, ports, problems);
    let named: Vec<_> = read.nat44.iter().map(|i| (&i.ports[..], i.span.clone())).collect();
    let nat44 = realms_of(&named, &Kind { section: "[[nat44]]", is_ipv4: true }, ports, problems);
    check_outside(read, ports, problems);
    Realms { nat64, nat44 }
}

fn realms_of(
    named: &[(&[Spanned<String>], Range<usize>)],
    kind: &Kind,
    ports: &mut [Port],
    problems: &mut Problems,
) -> Vec<u8> {
    let mut sets: Vec<BTreeSet<usize>> = Vec::new();
    let mut realms = Vec::new();
    for (names, _) in named {
        let found = names.iter().filter_map(|name| find(name, ports, problems));
        let set: BTreeSet<usize> = found.collect();
        if set.is_empty() {
            realms.push(0);
            continue;
        }
        let known = sets.iter().position(|other| *other == set);
        if known.is_none()
            && let Some((at, port)) = shared(names, &set, &sets, ports)
        {
            let what = format!("another {} names the port \"{port}\" together with others", kind.section);
            problems.error(at, what, "name the same ports in both, or each port in one of them");
        }
        let number = known.unwrap_or(sets.len());
        if known.is_none() {
            sets.push(set);
        }
        // There are at most as many sets as ports, and at most 255 ports.
        realms.push(u8::try_from(number + 1).unwrap_or(u8::MAX));
    }
    for (set, realm) in sets.iter().zip(1u8..) {
        for (_, port) in ports.iter_mut().enumerate().filter(|(number, _)| set.contains(number)) {
            let Some(ethernet) = &mut port.ethernet else { continue };
            let [four, six] = &mut ethernet.realms;
            *(if kind.is_ipv4 { four } else { six }) = realm;
        }
    }
    realms
}

/// Returns the number of a port that an instance names.
fn find(name: &Spanned<String>, ports: &[Port], problems: &mut Problems) -> Option<usize> {
    let written = name.get_ref();
    let Some(number) = ports.iter().position(|port| port.name == *written) else {
        let all = ports.iter().map(|port| port.name.as_str());
        let instead = match nearest(written, all.clone()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("the ports are: {}", all.collect::<Vec<_>>().join(", ")),
        };
        problems.error(name.span(), format!("there is no port \"{written}\""), instead);
        return None;
    };
    if ports.get(number).is_none_or(|port| port.ethernet.is_none()) {
        let what = format!(
            "the port \"{written}\" is a TUN device, which carries packets of all the kernel's links"
        );
        let instead = "remove `ports`, or write `backend = \"xdp\"` or \"dpdk\" in [[port]]";
        problems.error(name.span(), what, instead);
        return None;
    }
    Some(number)
}

/// Returns a port that is also in another set, and its place in the file.
fn shared<'p>(
    names: &[Spanned<String>],
    set: &BTreeSet<usize>,
    sets: &[BTreeSet<usize>],
    ports: &'p [Port],
) -> Option<(Range<usize>, &'p str)> {
    let number = set.iter().find(|port| sets.iter().any(|other| other.contains(port)))?;
    let name = &ports.get(*number)?.name;
    let at = names.iter().find(|written| written.get_ref() == name)?.span();
    Some((at, name))
}

/// Checks that at least one port is not reserved for inside hosts: translated packets leave by it, and
/// answers arrive by it.
fn check_outside(read: &Sections, ports: &[Port], problems: &mut Problems) {
    let is_inside = |port: &Port| port.ethernet.as_ref().is_some_and(|ethernet| ethernet.realms[0] != 0);
    if let Some(last) = read.nat44.iter().rev().find_map(|i| i.ports.last())
        && ports.iter().all(is_inside)
    {
        let what = "every port belongs to inside hosts: translated packets cannot leave";
        problems.error(last.span(), what, "add a [[port]] that no [[nat44]] names, or remove one here");
    }
}

/// Checks exempt networks: answers that come back untranslated are assigned to instances by the hosts'
/// addresses only.
pub(super) fn check_exempt(read: &Sections, realms: &Realms, problems: &mut Problems) {
    let all = || read.nat44.iter().zip(&realms.nat44);
    for (at, (instance, realm)) in all().enumerate().filter(|(_, (i, _))| !i.exempt.is_empty()) {
        let others = all().enumerate().filter(|(other, (_, r))| *other != at && *r != realm);
        let nets = others.flat_map(|(_, (other, _))| &other.inside);
        let meets = |a: &Spanned<Net4>, b: &Spanned<Net4>| {
            let (a, b): (&Net4, &Net4) = (a.get_ref(), b.get_ref());
            a.contains(b.addr) || b.contains(a.addr)
        };
        let found = nets.flat_map(|other| instance.inside.iter().map(move |own| (own, other)));
        if let Some((own, _)) = found.into_iter().find(|(own, other)| meets(own, other)) {
            let what = "`exempt` with inside addresses of another instance: an untranslated answer may be \
                        for a host of either";
            problems.error(own.span(), what, "remove `exempt`, or give the networks to one instance");
        }
    }
}
