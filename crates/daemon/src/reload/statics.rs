//! Static bindings of boxes that back each other.
//!
//! Boxes reload one after the other, and each translates a static binding without asking the other one. So a
//! public port goes from one host to another in two changes, and the second one begins when both boxes have
//! made the first (decision 0106).

use crate::peer;
use gatun_nat::Plan;
use gatun_nat::plan::{StaticBinding, Transport};
use gatun_peer::wire::ConfigKey;
use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Public port, and the host that has it: the name of its instance, its address and port.
type PublicPort = (Transport, (Ipv4Addr, u16));
type Host<'p> = (&'p str, (Ipv6Addr, u16));

fn bindings(plan: &Plan) -> HashMap<PublicPort, Host<'_>> {
    let nat64 = plan.nat64.iter().map(|one| (one.name.as_str(), &one.static_bindings));
    let nat44 = plan.nat44.iter().map(|one| (one.name.as_str(), &one.static_bindings));
    let all = nat64.chain(nat44).flat_map(|(name, bindings)| bindings.iter().map(move |one| (name, one)));
    all.map(|(name, &StaticBinding { transport, inside, outside })| ((transport, outside), (name, inside)))
        .collect()
}

/// Returns whether two plans have different static bindings.
pub(super) fn differ(old: &Plan, new: &Plan) -> bool {
    bindings(old) != bindings(new)
}

/// Checks a change of a box whose peer has told these keys. It may have what the peer has already.
///
/// # Errors
/// Says what to do first.
pub(super) fn check(old: &Plan, new: &Plan, of_peer: &[ConfigKey]) -> Result<(), String> {
    let (before, after) = (peer::static_keys(old), peer::static_keys(new));
    if after.iter().all(|key| before.contains(key) || of_peer.contains(key)) {
        return Ok(());
    }
    check_moves(old, new)?;
    let (old, is_late) = (bindings(old), |key: &&ConfigKey| {
        let there = of_peer.iter().find(|there| there.name == key.name);
        there.is_some_and(|there| !before.contains(there) && !after.contains(there))
    });
    match after.iter().find(is_late) {
        Some(key) if bindings(new).keys().any(|port| !old.contains_key(port)) => Err(format!(
            "the peer still has another `{}` than this box: reload the peer first, so that no port leads to \
             two hosts (or declare it gone, if it is off: gatun peer takeover)",
            key.name
        )),
        _ => Ok(()),
    }
}

/// Checks that no public port would go to another host at once.
///
/// # Errors
/// Names such a port, and says what to do.
pub(super) fn check_moves(old: &Plan, new: &Plan) -> Result<(), String> {
    let old = bindings(old);
    let moved = bindings(new).into_iter().filter(|(port, host)| old.get(port).is_some_and(|had| had != host));
    match moved.map(|(port, _)| port).min_by_key(|(transport, outside)| (*transport as u8, *outside)) {
        None => Ok(()),
        Some((transport, (address, port))) => Err(format!(
            "the static binding of {} {address}:{port} would go to another host while other boxes still have \
             the former one: remove it from the configuration of all boxes first, then add it with the new \
             host",
            format!("{transport:?}").to_lowercase(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_nat::plan::{Nat44, Nat64};

    fn plan(nat64: &[(u16, u16)], nat44: &[(u16, u16)]) -> Plan {
        let bindings = |ports: &[(u16, u16)]| {
            let one = |&(host, port): &(u16, u16)| StaticBinding {
                transport: Transport::Tcp,
                inside: (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host), 80),
                outside: (Ipv4Addr::new(192, 0, 2, 1), port),
            };
            ports.iter().map(one).collect()
        };
        Plan {
            nat64: vec![Nat64 { name: "a".into(), static_bindings: bindings(nat64), ..Nat64::default() }],
            nat44: vec![Nat44 { name: "b".into(), static_bindings: bindings(nat44), ..Nat44::default() }],
            ..Plan::default()
        }
    }

    #[test]
    fn a_public_port_goes_to_another_host_in_two_changes() {
        let (before, between) = (plan(&[(1, 80), (2, 81)], &[]), plan(&[(2, 81)], &[]));
        for after in [plan(&[(3, 80), (2, 81)], &[]), plan(&[(2, 81)], &[(1, 80)])] {
            let refused = check_moves(&before, &after).unwrap_err();
            assert!(refused.contains("tcp 192.0.2.1:80 would go to another host"), "{refused}");
            assert_eq!(check_moves(&before, &between), Ok(()));
            assert_eq!(check_moves(&between, &after), Ok(()));
        }
        assert_eq!(check_moves(&before, &before), Ok(()));
        assert!(differ(&before, &between) && !differ(&before, &before.clone()));
    }

    #[test]
    fn a_box_adds_static_bindings_when_its_peer_has_made_the_change_before() {
        let (before, between, after) = (plan(&[(1, 80)], &[]), plan(&[], &[]), plan(&[(3, 80)], &[]));
        let of = |plan: &Plan| peer::static_keys(plan);
        assert_eq!(check(&before, &between, &of(&before)), Ok(()));
        let late = check(&between, &after, &of(&before)).unwrap_err();
        assert!(late.contains("the peer still has another `nat64.a.static`"), "{late}");
        // The peer has made the first change, or both.
        assert_eq!(check(&between, &after, &of(&between)), Ok(()));
        assert_eq!(check(&between, &after, &of(&after)), Ok(()));
        assert_eq!(check(&before, &after, &of(&after)), Ok(()));
        assert!(check(&before, &after, &of(&between)).unwrap_err().contains("would go to another host"));
        // A peer that has told nothing, and bindings that end.
        assert_eq!(check(&between, &after, &[]), Ok(()));
        assert!(check(&before, &after, &[]).is_err());
        assert_eq!(check(&before, &between, &of(&after)), Ok(()));
    }
}
