//! Test that a packet raises every drop reason. A reason that no packet raises fails here.

#[path = "../../tests/common/mod.rs"]
mod common;

use crate::Nat;
use crate::Plan;
use crate::Verdict;
use crate::base::plan::{Allocation, Blocks, Eam, Filtering, HoldDown, Net4, Net6, Siit};
use crate::base::redirect::{Tunnel, TunnelNode};
use common::*;
use gatun_wire::rfc7915::ZeroChecksum;
use gatun_wire::{DropReason, HEADROOM, Offload, Packet, Segmentation};
use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

const POOL6: &str = "2001:db8:64::/96";
/// Address of the server behind the prefix.
const SERVER6: &str = "2001:db8:64::c633:6407";
/// Address of the pool.
const T: &str = "192.0.2.1";
const PORT: u16 = 4000;
/// Address of a host with a mapping.
const HOST4: &str = "192.0.2.77";
const HOST6: &str = "2001:db8:a::77";

type Raised = Vec<(DropReason, Bed)>;

/// Builds an engine of this plan and processes these packets.
fn after(plan: &Plan, packets: &[Vec<u8>]) -> Bed {
    let mut bed = Bed::new(plan);
    packets.iter().for_each(|packet| drop(bed.send_any(packet)));
    bed
}

/// Same as `after`, for a changed plan with a NAT64 instance.
fn nat64_after(change: impl FnOnce(&mut Plan), packets: &[Vec<u8>]) -> Bed {
    let mut plan = plan_with(POOL6);
    change(&mut plan);
    after(&plan, packets)
}

fn siit() -> Plan {
    let net4 = Net4::new(v4(HOST4), 32).unwrap();
    let mapped = Eam { v4: net4, v6: Net6::new(v6(HOST6), 128).unwrap() };
    let siit = Siit { pool6: vec![prefix(POOL6)], eamt: vec![mapped], ..Siit::default() };
    Plan { own4: Some(v4(OWN4)), own6: Some(v6(OWN6)), siit: vec![siit], ..Plan::default() }
}

/// Same as `after`, for a plan with a stateless instance and one packet.
fn siit_after(change: impl FnOnce(&mut Siit), packet: Vec<u8>) -> Bed {
    let mut plan = siit();
    change(&mut plan.siit[0]);
    after(&plan, &[packet])
}

fn stateless(packet: Vec<u8>) -> Bed {
    siit_after(|_| (), packet)
}

fn client(n: u16) -> String {
    format!("2001:db8:1::{n:x}")
}

/// UDP packet from an inside host's port 5000.
fn out(host: u16, to: u16) -> Vec<u8> {
    udp6(&client(host), 5000, SERVER6, to, b"x")
}

/// UDP packet from the mapped host; `to_host` makes one to it.
fn from_host(payload: &[u8]) -> Vec<u8> {
    udp6(HOST6, 5000, SERVER6, 53, payload)
}

fn to_host(payload: &[u8]) -> Vec<u8> {
    udp4(SERVER, 53, HOST4, 5000, payload)
}

/// Overwrites bytes of a packet.
fn with(mut packet: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    packet[at..at + bytes.len()].copy_from_slice(bytes);
    packet
}

/// Inserts headers after the IPv6 header of a packet; `next` is the type of the first.
fn with_headers(packet: &[u8], next: u8, headers: &[u8]) -> Vec<u8> {
    let mut all = [&packet[..40], headers, &packet[40..]].concat();
    all[6] = next;
    let len = (all.len() - 40) as u16;
    with(all, 4, &len.to_be_bytes())
}

/// Sets length and checksum of an IPv4 header to match the packet.
fn sized4(packet: Vec<u8>) -> Vec<u8> {
    let len = packet.len() as u16;
    let flags = u16::from_be_bytes([packet[6], packet[7]]);
    with_flags4(with(packet, 2, &len.to_be_bytes()), flags)
}

/// Later IPv4 fragment with 64 bytes of payload from `offset`.
fn later4(to: &str, offset: u16, more: bool) -> Vec<u8> {
    let fragment = [&other4(SERVER, to, 17)[..20], &[7; 64]].concat();
    sized4(with_flags4(sized4(fragment), (offset / 8) | (u16::from(more) << 13)))
}

fn parsing() -> Raised {
    use DropReason::*;
    let source_route = [131, 7, 4, 1, 2, 3, 4, 0];
    let routed = [&to_host(b"x")[..20], &source_route, &to_host(b"x")[20..]].concat();
    let options = [60, 0, 1, 4, 0, 0, 0, 0].repeat(40);
    let truncated = sized4(to_host(b"x")[..24].to_vec());
    let bad_sum = echo6(&client(1), OWN6, true, 1, b"x");
    vec![
        (ShortL3, stateless(from_host(b"x")[..30].to_vec())),
        (BadVersion, stateless(with(from_host(b"x"), 0, &[0x50]))),
        (BadHeaderLength, stateless(with(to_host(b"x"), 0, &[0x44]))),
        (BadLength, stateless(with(from_host(b"x"), 4, &[0xff, 0xff]))),
        (BadL3Checksum, stateless(with(to_host(b"x"), 10, &[0x12, 0x34]))),
        (BadL4Checksum, stateless(with(bad_sum, 42, &[0x12, 0x34]))),
        (L4Truncated, stateless(truncated)),
        (SourceRoute, stateless(sized4(with(routed, 0, &[0x47])))),
        (ExtensionChainTooLong, stateless(with_headers(&from_host(b"x"), 60, &options))),
        (RoutingSegmentsLeft, stateless(with_headers(&from_host(b"x"), 43, &[17, 0, 0, 1, 0, 0, 0, 0]))),
        (
            ExtensionAfterFragment,
            stateless(with_headers(
                &from_host(b"x"),
                44,
                &[60, 0, 0, 0, 0, 0, 0, 1, 17, 0, 1, 4, 0, 0, 0, 0],
            )),
        ),
        (AuthenticationHeader, stateless(other4(SERVER, HOST4, 51))),
    ]
}

fn addresses() -> Raised {
    use DropReason::*;
    let well_known = "64:ff9b::/96";
    let private = udp6(&client(1), 5000, &behind(well_known, "10.0.0.1"), 53, b"x");
    let elsewhere = Net6::new(v6("2001:db8:ff::"), 48).unwrap();
    vec![
        (SourceMartian, stateless(udp4("127.0.0.1", 53, HOST4, 5000, b"x"))),
        (DestinationMartian, nat64_after(|_| (), &[udp6(CLIENT, 1, &behind(POOL6, "224.0.0.1"), 1, b"x")])),
        (SourceInPool6, nat64_after(|_| (), &[udp6(SERVER6, 1, SERVER6, 53, b"x")])),
        (DestinationNotPool6, nat64_after(|_| (), &[udp6(CLIENT, 1, "2001:db8:77::1", 53, b"x")])),
        (WellKnownNonGlobal, after(&plan_with(well_known), &[private])),
        (Denylist, siit_after(|s| s.denylist4 = vec![Net4::new(v4(HOST4), 32).unwrap()], to_host(b"x"))),
        (NotInPool, nat64_after(|_| (), &[udp4(SERVER, 53, "192.0.2.2", 5000, b"x")])),
        (NoEam, siit_after(|s| s.pool6.clear(), to_host(b"x"))),
        (SourceNotAllowed, nat64_after(|p| p.nat64[0].sources = vec![elsewhere], &[out(1, 53)])),
        (OwnUdp, stateless(udp4(SERVER, 53, OWN4, 5000, b"x"))),
        (OwnProtocol, stateless(other4(SERVER, OWN4, 132))),
        (OwnOther, stateless(tcp6(HOST6, 1, OWN6, 2, "S", b""))),
    ]
}

fn fragments() -> Raised {
    use DropReason::*;
    let first = with_flags4(udp4(SERVER, 53, T, 5000, &[7; 64]), 0x2000);
    let mut late = nat64_after(|_| (), &[later4(T, 64, true)]);
    late.pass_ms(10_000);
    let overlapping = [later4(T, 64, true), later4(T, 96, true)];
    let apart: Vec<_> = (1..8).map(|n| later4(T, 128 * n, true)).collect();
    let tiny = with_headers(&tcp6(HOST6, 1, SERVER6, 2, "S", b"")[..48], 44, &[6, 0, 0, 1, 0, 0, 0, 1]);
    let no_sum = with_flags4(with(to_host(&[7; 64]), 26, &[0, 0]), 0x2000);
    vec![
        (FragmentTimeout, late),
        (FragmentOverlap, nat64_after(|_| (), &overlapping)),
        (FragmentTiny, stateless(tiny)),
        (FragmentTooMany, nat64_after(|p| p.limits.fragments_per_source = 2, &apart)),
        (FragmentMemory, nat64_after(|p| p.limits.fragment_bytes_max = 1, &apart)),
        (FragmentIcmp, stateless(with_flags4(echo4(SERVER, HOST4, true, 1, &[7; 64]), 0x2000))),
        (FragmentZeroChecksum, stateless(no_sum)),
        (FragmentOrphan, nat64_after(|_| (), &[first, later4(T, 72, false)])),
    ]
}

fn filtering() -> Raised {
    use DropReason::*;
    let filtered = |filtering, from: &str, port| {
        let mut bed = nat64_after(|p| p.nat64[0].filtering = filtering, &[]);
        let bound = bed.through(&out(1, 53)).sport;
        bed.send_any(&udp4(from, port, T, bound, b"x"));
        bed
    };
    let syn = |port| tcp4(SERVER, port, T, PORT, "S", b"");
    let many: Vec<_> = (1..100).map(syn).collect();
    let mut unanswered = nat64_after(|_| (), &[syn(80)]);
    unanswered.pass_ms(10_000);
    let no_external = |p: &mut Plan| p.nat64[0].external_tcp = false;
    vec![
        (NoBib, nat64_after(|_| (), &[udp4(SERVER, 53, T, 5000, b"x")])),
        (NoSession, nat64_after(|_| (), &[echo6(CLIENT, SERVER6, false, 1, b"x")])),
        (AddressDependentFilter, filtered(Filtering::AddressDependent, "203.0.113.9", 53)),
        (AddressPortDependentFilter, filtered(Filtering::AddressAndPortDependent, SERVER, 54)),
        (ExternalSynPolicy, nat64_after(no_external, &[syn(80)])),
        (SynStoreFull, nat64_after(|p| p.limits.syn_store_max = 4, &many)),
        (SynHeldAlready, nat64_after(|_| (), &[syn(80), syn(80)])),
        (SynExpired, unanswered),
        (SynWasAnswered, nat64_after(|_| (), &[syn(80), tcp6(CLIENT, 5000, SERVER6, 80, "S", b"")])),
        (NonSynClosed, nat64_after(|_| (), &[tcp6(CLIENT, 5000, SERVER6, 80, "A", b"")])),
        (TcpInvalidFlags, nat64_after(|_| (), &[tcp6(CLIENT, 5000, SERVER6, 80, "SF", b"")])),
    ]
}

fn limits() -> Raised {
    use DropReason::*;
    let to_three = [out(1, 1), out(1, 2), out(1, 3)];
    let reserved = |p: &mut Plan| {
        (p.limits.sessions_max, p.limits.sessions_reserved, p.limits.sessions_reserved_below) = (4, 50, 1);
    };
    let two_ports = [out(1, 53), udp6(&client(1), 5001, SERVER6, 53, b"x")];
    let rate = |p: &mut Plan| {
        (p.limits.session_rate_per_subscriber, p.limits.session_burst_per_subscriber) = (1, 1);
    };
    vec![
        (SessionTableFull, nat64_after(|p| p.limits.sessions_max = 1, &[out(1, 53), out(2, 53)])),
        (SessionTableReserved, nat64_after(reserved, &to_three)),
        (SubscriberTableFull, nat64_after(|p| p.limits.subscribers_max = 1, &[out(1, 53), out(2, 53)])),
        (SubscriberPortQuota, nat64_after(|p| p.limits.ports_per_subscriber = 1, &two_ports)),
        (SubscriberSessionQuota, nat64_after(|p| p.limits.sessions_per_subscriber = 1, &to_three)),
        (SubscriberRate, nat64_after(rate, &to_three)),
    ]
}

fn ports() -> Raised {
    use DropReason::*;
    let one = || pool(T, T, (2000, 2000));
    let block = |per_subscriber| {
        let blocks = Blocks { size: 32, per_subscriber, ..Blocks::default() };
        plan_pool(pool(T, T, (2016, 2047)), Allocation::Blocks(blocks))
    };
    let hold = Allocation::Random(HoldDown { ms: 1_000_000, ports_max: 10 });
    let mut held = after(&plan_pool(one(), hold), &[out(1, 53)]);
    held.pass_ms(310_000);
    held.send_any(&out(2, 53));
    let many: Vec<_> = (0..40).map(|n| udp6(&client(1), 5000 + n, SERVER6, 53, b"x")).collect();
    let without_udp = |p: &mut Plan| p.pools[0].ranges[0].transports = [true, false, true];
    vec![
        (PoolEmpty, nat64_after(without_udp, &[out(1, 53)])),
        (PortsExhausted, nat64_after(|p| p.pools = vec![one()], &[out(1, 53), out(2, 53)])),
        (SubscriberBlockQuota, after(&block(1), &many)),
        (BlockNone, after(&block(2), &many)),
        (HoldDownAll, held),
        (PortRightNone, without_right()),
    ]
}

/// Test bed of a member of a pair that has no right yet.
fn without_right() -> Bed {
    let mut bed = Bed::new(&plan_with(POOL6));
    bed.nat.begin_standby();
    bed.send_any(&out(1, 53));
    bed
}

fn plan_pool(pool: crate::base::plan::Pool4, allocation: Allocation) -> Plan {
    let pool = crate::base::plan::Pool4 { allocation, ..pool };
    Plan { pools: vec![pool], ..plan_with(POOL6) }
}

fn icmp() -> Raised {
    use DropReason::*;
    let from_outside = |error, quote: &[u8]| stateless(error4(SERVER, HOST4, error, quote));
    let host_unreachable = (3, 1, 0);
    let quote = udp4(HOST4, 5000, SERVER, 53, &[7; 200]);
    let other = other4(HOST4, SERVER, 2);
    let nested = error4(HOST4, SERVER, host_unreachable, &quote);
    let no_state = error4(SERVER, T, host_unreachable, &udp4(T, 1, SERVER, 53, b"x"));
    vec![
        (IcmpUnknownType, from_outside((13, 0, 0), &[0; 12])),
        (IcmpSingleHop, stateless(error6(HOST6, SERVER6, (130, 0, 0), &[0; 16]))),
        (IcmpDoubleError, from_outside(host_unreachable, &nested)),
        (IcmpInnerShort, from_outside(host_unreachable, &quote[..10])),
        (IcmpInnerUntranslatable, from_outside(host_unreachable, &other)),
        (IcmpPointerUntranslatable, from_outside((12, 0, 4 << 24), &quote)),
        (IcmpErrorNoState, nat64_after(|_| (), &[no_state])),
        (IcmpExtensionBad, from_outside((3, 1, 255 << 16), &quote)),
    ]
}

fn sizes() -> Raised {
    use DropReason::*;
    let mut no_room = Bed::new(&siit());
    let bytes = to_host(b"x");
    let mut buf = [&[0; 8], &bytes[..]].concat();
    let mut burst = [Packet::new(&mut buf, 8, bytes.len()).unwrap()];
    assert_eq!(no_room.nat.process(no_room.now, &mut burst, &mut [Verdict::Pass]), 1);
    let mut contradicts = Bed::new(&siit());
    let offload = Offload { segmentation: Segmentation::Udp { size: 100 }, ..Offload::default() };
    contradicts.send_offloaded(&tcp6(HOST6, 1, SERVER6, 2, "S", &[7; 1000]), offload);
    let no_sum = with(to_host(b"x"), 26, &[0, 0]);
    let drop_it = |s: &mut Siit| s.settings.udp_zero_checksum = ZeroChecksum::Drop;
    vec![
        (TtlExceeded, stateless(with_hops(from_host(b"x"), 1))),
        (TooBig6, stateless(from_host(&[7; 1480]))),
        (TooBig4, stateless(with_flags4(to_host(&[7; 1472]), 0x4000))),
        (Unfragmentable, contradicts),
        (ZeroUdpChecksum, siit_after(drop_it, no_sum)),
        (UnsupportedProtocol, nat64_after(|_| (), &[other6(CLIENT, SERVER6, 132)])),
        (NoHeadroom, no_room),
        (EmitFull, no_buffer()),
        (KernelWrite, dropped_outside()),
        (RedirectLoop, dropped_by_node(RedirectLoop)),
        (ShardNowhere, dropped_by_node(ShardNowhere)),
        (ShardFenced, dropped_by_node(ShardFenced)),
        (TunnelHeader, from_tunnel("192.0.2.78", &[0; 8])),
        (TunnelSource, from_tunnel("192.0.2.79", &in_tunnel(9))),
        (TunnelVni, from_tunnel("192.0.2.78", &in_tunnel(1))),
    ]
}

/// Test bed of a cluster's node that has found a reason to drop a packet.
fn dropped_by_node(reason: DropReason) -> Bed {
    let mut bed = Bed::new(&siit());
    let mut bytes = from_host(b"x");
    let len = bytes.len();
    let packet = Packet::new(&mut bytes, 0, len).unwrap();
    assert_eq!(bed.nat.refuse(bed.now, &packet, reason), Verdict::Drop(reason));
    bed
}

/// Content of a datagram in the tunnel, with a network identifier.
fn in_tunnel(vni: u8) -> Vec<u8> {
    let ethernet = [&gatun_wire::vxlan::TO_MAC[..], &gatun_wire::vxlan::FROM_MAC, &[0x86, 0xdd]].concat();
    [&[8, 0, 0, 0, 0, 0, vni, 0][..], &ethernet, &from_host(b"x")].concat()
}

/// Test bed whose tunnel to a node has got a datagram from 192.0.2.78.
fn from_tunnel(other: &str, content: &[u8]) -> Bed {
    let mut bed = Bed::new(&siit());
    let (own, sender) = ("192.0.2.77", "192.0.2.78");
    let node = |address: &str| TunnelNode { name: "a".into(), address: address.parse().unwrap() };
    let tunnel = Tunnel::new(0, vec![node(own), node(other)], 4789, 9, 1500).unwrap();
    let mut bytes = udp4(sender, 50_000, own, 4789, content);
    let len = bytes.len();
    let mut packet = Packet::new(&mut bytes, 0, len).unwrap();
    assert!(bed.nat.receive_redirected(bed.now, &mut packet, &tunnel).is_err());
    bed
}

/// Test bed whose fast path has dropped packets.
fn dropped_outside() -> Bed {
    let mut bed = Bed::new(&siit());
    bed.nat.credit_drops(0, 3);
    bed.nat.credit_drops(9, 5);
    let counters = bed.nat.counters();
    assert!(counters.conserved() && counters.rx.packets == 3 && counters.received_outside() == 3);
    bed
}

/// Test bed with a packet that has to be fragmented while there is no room to emit more.
fn no_buffer() -> Bed {
    let mut bed = Bed::new(&siit());
    let bytes = with_flags4(to_host(&[7; 1472]), 0);
    let mut buf = vec![0; HEADROOM + bytes.len() + 64];
    buf[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(&bytes);
    let mut packet = Packet::new(&mut buf, HEADROOM, bytes.len()).unwrap();
    let Nat { core, .. } = &mut bed.nat;
    while core.state.emit.push(0, &[0; 40], &[]).is_ok() {}
    let verdict = crate::path::translate::slow(core, bed.now, &mut packet);
    assert_eq!(verdict, Verdict::Drop(DropReason::EmitFull));
    bed
}

#[test]
fn every_drop_reason_is_raised_by_a_packet() {
    let groups = [parsing(), addresses(), fragments(), filtering(), limits(), ports(), icmp(), sizes()];
    let raised: Vec<(DropReason, Bed)> = groups.into_iter().flatten().collect();
    for (reason, bed) in &raised {
        let counters = bed.nat.counters();
        let told: Vec<_> = DropReason::ALL.iter().filter(|r| bed.drops(**r) > 0).collect();
        assert!(bed.drops(*reason) > 0, "{reason:?} was not raised, but {told:?}: {counters:?}");
    }
    let without: Vec<_> =
        DropReason::ALL.iter().filter(|reason| raised.iter().all(|(r, _)| r != *reason)).collect();
    assert!(without.is_empty(), "no packet raises {without:?}: add one, or take the reason away");
}

/// Drop reason, the plan with which a packet is dropped for it, the packet, and type and code of the answer.
type Answered = (DropReason, Plan, Vec<u8>, (u8, u8));

/// Plans and packets that cause an error, with its type and code: IPv6's first, then IPv4's.
fn answered() -> Vec<Answered> {
    use DropReason::*;
    let mut denied = siit();
    denied.siit[0].denylist4 = vec![Net4::new(v4(HOST4), 32).unwrap()];
    let mut unmapped = siit();
    unmapped.siit[0].pool6.clear();
    let well_known = plan_with("64:ff9b::/96");
    let private = udp6(CLIENT, 5000, &behind("64:ff9b::/96", "10.0.0.1"), 53, b"x");
    let ah = with_headers(&from_host(b"x"), 51, &[17, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let routed = with_headers(&from_host(b"x"), 43, &[17, 0, 0, 1, 0, 0, 0, 0]);
    let large4 = with_flags4(to_host(&[7; 1472]), 0x4000);
    vec![
        (WellKnownNonGlobal, well_known, private, (1, 1)),
        (AuthenticationHeader, siit(), ah, (1, 1)),
        (RoutingSegmentsLeft, siit(), routed, (4, 0)),
        (TtlExceeded, siit(), with_hops(from_host(b"x"), 1), (3, 0)),
        (TooBig6, siit(), from_host(&[7; 1480]), (2, 0)),
        (UnsupportedProtocol, plan_with(POOL6), other6(CLIENT, SERVER6, 132), (1, 4)),
        (Denylist, denied, to_host(b"x"), (3, 13)),
        (TtlExceeded, siit(), with_hops(to_host(b"x"), 1), (11, 0)),
        (TooBig4, siit(), large4, (3, 4)),
        (NoEam, unmapped, to_host(b"x"), (3, 1)),
        (UnsupportedProtocol, plan_with(POOL6), other4(SERVER, T, 132), (3, 2)),
    ]
}

// proves: A79-39, A79-74
#[test]
fn errors_have_their_codes_and_a_rate_and_each_can_be_switched_off() {
    for (reason, plan, packet, expected) in answered() {
        let mut bed = Bed::new(&plan);
        let out = bed.send(&packet);
        assert_eq!(out.verdict, Verdict::Reply(crate::Reply::Error(reason)));
        assert_eq!(icmp_type(&out.bytes), expected, "{reason:?}");
        let mut off = plan.clone();
        off.icmp.suppressed.push(reason);
        let mut bed = Bed::new(&off);
        assert_eq!(bed.send(&packet).verdict, Verdict::Drop(reason));
        assert_eq!(bed.nat.counters().icmp_errors_suppressed, 1, "{reason:?}");
        let mut slow = plan;
        (slow.icmp.rate, slow.icmp.burst) = (1, 2);
        let mut bed = Bed::new(&slow);
        let answers = (0..9).filter(|_| matches!(bed.send(&packet).verdict, Verdict::Reply(_))).count();
        assert_eq!((answers, bed.nat.counters().icmp_errors_limited), (2, 7), "{reason:?}");
    }
}

// proves: A79-39, A79-74
#[test]
fn no_error_answers_an_error_a_later_fragment_or_multicast() {
    let later = with_headers(&from_host(b"x"), 44, &[17, 0, 0, 8, 0, 0, 0, 1]);
    let (error6, error4) = (
        error6(HOST6, SERVER6, (1, 4, 0), &udp6(SERVER6, 53, HOST6, 5000, b"x")),
        error4(SERVER, HOST4, (3, 3, 0), &udp4(HOST4, 5000, SERVER, 53, b"x")),
    );
    let multicast = udp6(HOST6, 5000, "ff0e::1", 53, b"x");
    for packet in [later, error6, error4, later4(HOST4, 64, false), multicast] {
        let mut bed = Bed::new(&siit());
        let verdict = bed.send(&with_hops(packet, 1)).verdict;
        assert!(matches!(verdict, Verdict::Drop(_) | Verdict::Pass), "{verdict:?}");
        assert_eq!(bed.nat.counters().icmp_errors_sent, 0);
    }
}
