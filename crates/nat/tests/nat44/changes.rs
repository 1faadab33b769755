//! Changes of the plan of a running NAT44 engine.

use super::common::*;
use super::{A, B, SERVER, T, net, plan44};
use gatun_nat::plan::{Exemption, Transport};
use gatun_nat::reconfigure::Change;
use gatun_nat::{Plan, Verdict};
use gatun_wire::DropReason;

pub(crate) fn change(bed: &mut Bed, old: &Plan, new: &Plan) {
    let mut change = Change::prepare(&bed.nat.outline(), old, new).unwrap();
    let (sessions, _) = forecast(&change, &bed.nat, 1);
    bed.nat.apply(bed.now, &mut change).unwrap();
    while bed.nat.is_settling() {
        bed.nat.expire(bed.now, 1);
    }
    assert_eq!(
        sessions,
        bed.nat.settled().sessions,
        "the number of ended sessions differs from the forecast"
    );
}

#[test]
fn removed_inside_hosts_and_new_exemptions_lose_their_sessions() {
    let old = plan44();
    let mut bed = Bed::new(&old);
    let to = |inside: &str, port| udp4(inside, 4000, SERVER, port, b"x");
    let (a, b) = (bed.through(&to(A, 53)), bed.through(&to(B, 53)));
    bed.through(&to(B, 54));
    let mut new = old.clone();
    new.nat44[0].inside = vec![net(B, 32)];
    let only = Exemption { net: net(SERVER, 32), transport: Some(Transport::Udp), ports: Some((54, 54)) };
    new.nat44[0].exempt = vec![only];
    change(&mut bed, &old, &new);
    assert_eq!((bed.nat.settled().sessions, bed.nat.occupancy().sessions), (2, 1));
    assert_eq!(bed.through(&to(B, 53)), b);
    assert_eq!(bed.send(&to(B, 54)).verdict, Verdict::Pass);
    let back = |port| udp4(SERVER, 53, T, port, b"y");
    assert_eq!(bed.send(&back(b.sport)).verdict, Verdict::Forward);
    assert_eq!(bed.send(&back(a.sport)).verdict, Verdict::Drop(DropReason::NoBib));
    change(&mut bed, &new, &old);
    assert_eq!(bed.nat.occupancy().sessions, 1);
    bed.through(&to(A, 53));
    bed.through(&to(B, 54));
}
