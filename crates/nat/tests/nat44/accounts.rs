//! Packets and bytes of subscribers, public addresses and pools. After every packet of every test here,
//! [`Bed::send`] checks that the counters of pools equal those of instances, and that the counters of
//! addresses equal those of their pool.

use super::changes::change;
use super::common::*;
use super::fragments::pieces;
use super::{A, B, POOL6, SERVER, T, both_kinds};
use gatun_nat::counters::{Count, Traffic};
use gatun_nat::plan::{Filtering, Pool4, PoolRange, StaticBinding, Transport};
use gatun_nat::report::SubscriberStats;
use gatun_nat::{Plan, Verdict};
use std::net::Ipv4Addr;

const HOST6: &str = "2001:db8:1::2";

fn subscribers(bed: &Bed) -> Vec<SubscriberStats> {
    bed.nat.subscriber_stats(0..u32::MAX).collect()
}

fn of(bed: &Bed, inside: &str) -> Traffic {
    let inside = inside.parse::<Ipv4Addr>().map_or_else(|_| v6(inside), |a| a.to_ipv6_mapped());
    subscribers(bed).iter().find(|s| s.inside == inside).unwrap().traffic
}

fn of_pool(bed: &Bed, number: usize) -> Traffic {
    bed.nat.pool_stats().nth(number).unwrap().counters.traffic
}

fn at(bed: &Bed, address: &str) -> Traffic {
    bed.nat.address_stats(0, 0..u32::MAX).find(|s| s.address == v4(address)).unwrap().traffic
}

fn count(packets: &[&[u8]]) -> Count {
    let mut all = Count::default();
    packets.iter().for_each(|packet| all.add(packet.len()));
    all
}

fn plan() -> Plan {
    let mut plan = both_kinds();
    plan.nat64[0].subscriber_len = 128;
    plan.pools = vec![pool(T, "192.0.2.4", (1, 65535))];
    plan
}

/// Checks that the counters of subscribers equal those of their instances, if no subscriber has ended
/// meanwhile.
fn assert_sums(bed: &Bed) {
    let (mut all, mut instances) = (Traffic::default(), Traffic::default());
    subscribers(bed).iter().for_each(|s| all += s.traffic);
    for stats in bed.nat.instance_stats() {
        instances.outbound += stats.counters.outbound;
        instances.inbound += stats.counters.inbound;
        instances.inbound += stats.counters.hairpinned;
    }
    assert_eq!(all, instances);
    assert_eq!(all, of_pool(bed, 0));
    let mut forwarded = bed.nat.counters().forwarded;
    forwarded += bed.nat.counters().hairpinned;
    assert_eq!(all.total(), forwarded, "a hairpinned packet counts for both ends");
}

#[test]
fn each_subscriber_has_its_packets_and_bytes_as_received_in_both_directions() {
    let mut bed = Bed::new(&plan());
    let out6 = udp6(HOST6, 4000, &behind(POOL6, SERVER), 53, b"a question");
    let out4 = tcp4(A, 4000, SERVER, 80, "S", b"");
    let (port6, port4) = (bed.through(&out6), bed.through(&out4));
    let back6 = udp4(SERVER, 53, &port6.src.to_string(), port6.sport, b"an answer that is longer");
    let back4 = tcp4(SERVER, 80, &port4.src.to_string(), port4.sport, "SA", b"");
    let ack4 = tcp4(A, 4000, SERVER, 80, "A", b"");
    for packet in [&back6, &back4, &ack4, &back4, &out6] {
        bed.through(packet);
    }
    // Packets that are not forwarded are not counted.
    assert_ne!(bed.send(&udp4(SERVER, 9, T, 9, b"x")).verdict, Verdict::Forward);
    assert_eq!(of(&bed, HOST6), Traffic { outbound: count(&[&out6, &out6]), inbound: count(&[&back6]) });
    assert_eq!(of(&bed, A), Traffic { outbound: count(&[&out4, &ack4]), inbound: count(&[&back4, &back4]) });
    assert_eq!(at(&bed, &port4.src.to_string()).outbound.packets, if port4.src == port6.src { 4 } else { 2 });
    assert_sums(&bed);
}

#[test]
fn a_hairpinned_packet_counts_for_sender_and_receiver() {
    let mut bed = Bed::new(&plan());
    let first = udp4(B, 2222, SERVER, 9, b"x");
    let b = bed.through(&first);
    let (address, port) = (b.src.to_string(), b.sport);
    let four = udp4(A, 1111, &address, port, b"hello");
    let six = udp6(HOST6, 1111, &behind(POOL6, &address), port, b"hello from elsewhere");
    bed.through(&four);
    let seen = bed.through(&six);
    // An error about it goes back the same way.
    let told = udp4(&seen.src.to_string(), seen.sport, B, 2222, b"hello from elsewhere");
    let error = error4(B, &seen.src.to_string(), (3, 3, 0), &told);
    assert_eq!(bed.send(&error).verdict, Verdict::Forward);
    assert_eq!(of(&bed, A), Traffic { outbound: count(&[&four]), inbound: Count::default() });
    assert_eq!(of(&bed, B), Traffic { outbound: count(&[&first, &error]), inbound: count(&[&four, &six]) });
    assert_eq!(of(&bed, HOST6), Traffic { outbound: count(&[&six]), inbound: count(&[&error]) });
    assert_eq!(bed.nat.counters().hairpinned.packets, 3);
    assert_sums(&bed);
}

#[test]
fn fragments_and_errors_count_for_the_host_of_the_datagram() {
    let mut bed = Bed::new(&plan());
    let out = pieces(&udp4(A, 4000, SERVER, 53, &[7; 200]), 77);
    // The last fragment comes first, and waits.
    for piece in out.iter().rev() {
        bed.send(piece);
    }
    let all: Vec<&[u8]> = out.iter().map(Vec::as_slice).collect();
    assert_eq!(of(&bed, A).outbound, count(&all));
    let seen = bed.through(&udp4(A, 4000, SERVER, 53, b"x"));
    let (address, port) = (seen.src.to_string(), seen.sport);
    let back = pieces(&udp4(SERVER, 53, &address, port, &[7; 200]), 78);
    back.iter().for_each(|piece| drop(bed.send(piece)));
    let error = error4("203.0.113.9", &address, (3, 3, 0), &udp4(&address, port, SERVER, 53, b"x"));
    bed.send(&error).forwarded();
    let inbound: Vec<&[u8]> = back.iter().chain([&error]).map(Vec::as_slice).collect();
    assert_eq!(of(&bed, A).inbound, count(&inbound));

    let seen = bed.through(&udp6(HOST6, 4000, &behind(POOL6, SERVER), 53, b"x"));
    let (address, port) = (seen.src.to_string(), seen.sport);
    let error = error4("203.0.113.9", &address, (3, 3, 0), &udp4(&address, port, SERVER, 53, b"x"));
    bed.send(&error).forwarded();
    assert_eq!(of(&bed, HOST6).inbound, count(&[&error]));
    assert_sums(&bed);
}

#[test]
fn a_later_fragment_does_not_count_for_a_new_subscriber() {
    let mut plan = plan();
    plan.nat44[0].timeouts.udp_ms = 500;
    let mut bed = Bed::new(&plan);
    let out = pieces(&udp4(A, 4000, SERVER, 53, &[7; 200]), 77);
    bed.send(&out[0]).forwarded();
    bed.pass_ms(1000);
    assert!(subscribers(&bed).is_empty());
    let other = udp4(B, 4000, SERVER, 53, b"x");
    bed.through(&other);
    assert_eq!(subscribers(&bed)[0].number, 0, "the new subscriber has the number of the first one");
    for piece in &out[1..] {
        bed.send(piece).forwarded();
    }
    assert_eq!(of(&bed, B).outbound, count(&[&other]));
    let all: Vec<&[u8]> = out.iter().chain([&other]).map(Vec::as_slice).collect();
    assert_eq!(of_pool(&bed, 0).outbound, count(&all));
}

#[test]
fn packets_of_a_static_binding_without_a_subscriber_count_for_its_address() {
    let mut plan = plan();
    let inside = (v4(A).to_ipv6_mapped(), 80);
    plan.nat44[0].static_bindings =
        vec![StaticBinding { transport: Transport::Tcp, inside, outside: (v4(T), 80) }];
    plan.nat44[0].filtering = Filtering::EndpointIndependent;
    let mut bed = Bed::new(&plan);
    // A packet without SYN and without a session: the binding alone admits it (RFC 6146 3.5.2.2).
    let stray = tcp4(SERVER, 4000, T, 80, "A", b"x");
    bed.send(&stray).forwarded();
    assert_eq!((subscribers(&bed).len(), at(&bed, T).inbound), (0, count(&[&stray])));
}

#[test]
fn counters_survive_a_change_and_begin_at_zero_for_new_entries() {
    let old = plan();
    let mut bed = Bed::new(&old);
    let out = udp4(A, 4000, SERVER, 53, b"x");
    let seen = bed.through(&out).src.to_string();
    // Other hosts have packets at all addresses.
    for host in 100..150 {
        bed.through(&udp4(&format!("100.64.1.{host}"), 4000, SERVER, 53, b"y"));
    }
    let leaves = if seen == "192.0.2.4" { "192.0.2.1" } else { "192.0.2.4" };
    assert!(at(&bed, leaves).outbound.packets > 0);
    let mut new = old.clone();
    // Another pool before it, and one address less.
    match leaves {
        T => new.pools[0].ranges[0].first = v4("192.0.2.2"),
        _ => new.pools[0].ranges[0].last = v4("192.0.2.3"),
    }
    new.pools.insert(0, Pool4 { name: "other".into(), ..pool("203.0.113.1", "203.0.113.1", (1, 65535)) });
    new.nat44[0].pool = 1;
    new.nat64[0].pool = 1;
    let before = of_pool(&bed, 0).outbound;
    change(&mut bed, &old, &new);
    bed.through(&out);
    assert_eq!(of(&bed, A).outbound, count(&[&out, &out]));
    let mut after = before;
    after.add(out.len());
    assert_eq!((of_pool(&bed, 0), of_pool(&bed, 1).outbound), (Traffic::default(), after));
    let addresses = |bed: &Bed| bed.nat.address_stats(1, 0..u32::MAX).collect::<Vec<_>>();
    assert!(addresses(&bed).iter().find(|s| s.address == v4(&seen)).unwrap().traffic.outbound.packets >= 2);
    // A new address takes the number of the removed one, but not its counters.
    let mut other = new.clone();
    let comes = PoolRange { first: v4("192.0.2.6"), last: v4("192.0.2.6"), ..other.pools[1].ranges[0] };
    other.pools[1].ranges.push(comes);
    change(&mut bed, &new, &other);
    let new_one = addresses(&bed).into_iter().find(|s| s.address == v4("192.0.2.6")).unwrap();
    assert_eq!(new_one.traffic, Traffic::default());
    // The counters of a subscriber whose state has ended begin again. Those of its pool continue.
    bed.pass_ms(600_000);
    assert!(subscribers(&bed).is_empty());
    bed.through(&out);
    after.add(out.len());
    assert_eq!((of(&bed, A).outbound, of_pool(&bed, 1).outbound), (count(&[&out]), after));
}
