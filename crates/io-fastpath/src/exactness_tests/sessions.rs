//! Sessions in the program alone: moves, closing, sizes, a full table, adoption and identifications.

use super::*;
use crate::maps::Maps;
use crate::{open, program};
use std::collections::HashSet;
use std::sync::atomic::Ordering;

/// A UDP session between the client and the server that no engine knows.
fn lone_flow(port: u8) -> Flow {
    let (host, inside_port) = Made { port, ..PLAIN }.client();
    Flow {
        inside: Inside::Six { host, remote: well_known().embed(SERVER.0) },
        inside_port,
        outside: (POOL, 40_000 + u16::from(port)),
        remote: SERVER,
        protocol: Protocol::Udp,
        instance: 0,
        worker: 0,
        epoch: 0,
        record: 77,
        path_mtu: None,
        ident: 0,
    }
}

fn install_one(table: &mut Table, flow: Flow) -> SlotId {
    let mut placed = Vec::new();
    table.install(&[flow], &mut placed);
    placed.remove(0).unwrap()
}

impl Pair {
    /// Returns true if the program translates a plain packet of [`lone_flow`].
    fn translates(&mut self, made: &Made) -> bool {
        let bytes = made.bytes(&self.prefix, (POOL, 40_000 + u16::from(made.port)));
        self.run(&bytes, 0).0 == TRANSLATED
    }
}

#[test]
fn a_session_moves_when_its_worker_has_sent_everything_or_after_a_bound() {
    if let Some(why) = refusal() {
        return gatun_testkit::skip(&why);
    }
    let mut pair = Pair::new(well_known(), Settings::default());
    let control = pair.kernel.table.control();
    control.set_drained(0, KernelTime(0));
    let id = install_one(&mut pair.kernel.table, lone_flow(0));
    let (outbound, inbound) = (PLAIN, Made { outbound: false, ..PLAIN });
    assert!(!pair.translates(&outbound) && !pair.translates(&inbound));
    let before_the_next = KernelTime::now();
    assert!(!pair.translates(&outbound));
    assert_eq!(pair.packets_of(Reason::Pending), 3);
    // The queue was empty before the last packet from inside: that one may still be on its way, no answer is.
    control.set_drained(0, before_the_next);
    assert!(!pair.translates(&outbound) && pair.translates(&inbound));
    let used = pair.kernel.table.peek(id).unwrap();
    assert_eq!((used.outbound.is_pending, used.inbound.is_pending), (true, false));
    control.set_drained(0, KernelTime::now());
    assert!(pair.translates(&outbound));
    assert_eq!(pair.packets_of(Reason::MovedLate), 0);
    // A worker whose queue drops packets.
    pair.kernel.table.remove(&[id], &mut Vec::new());
    let id = install_one(&mut pair.kernel.table, lone_flow(0));
    assert!(!pair.translates(&outbound));
    pair.kernel.table.control().set_overflowed(0, KernelTime::now());
    assert!(pair.translates(&outbound) && pair.translates(&outbound));
    assert_eq!(pair.packets_of(Reason::MovedLate), 1);
    // A worker that never gets through.
    let control = pair.kernel.table.control();
    control.set_drained(0, KernelTime(0));
    control.set(IdentRange::beside(1), Duration::from_millis(20));
    pair.kernel.table.remove(&[id], &mut Vec::new());
    install_one(&mut pair.kernel.table, lone_flow(0));
    assert!(!pair.translates(&outbound));
    std::thread::sleep(Duration::from_millis(30));
    assert!(pair.translates(&outbound));
    assert_eq!(pair.packets_of(Reason::MovedLate), 2);
}

#[test]
fn a_fin_or_rst_closes_both_directions_and_a_syn_none() {
    if let Some(why) = refusal() {
        return gatun_testkit::skip(&why);
    }
    for (flags, closes) in [(1u8, true), (4, true), (0x11, true), (SYN, false)] {
        for closed_outbound in [true, false] {
            let mut pair = Pair::new(well_known(), Settings::default());
            let id = install_one(&mut pair.kernel.table, Flow { protocol: Protocol::Tcp, ..lone_flow(0) });
            let of = |outbound, flags| Made { outbound, flags, tcp: true, ..PLAIN };
            assert!(pair.translates(&of(true, ACK)) && pair.translates(&of(false, ACK)));
            assert!(!pair.translates(&of(closed_outbound, flags)));
            assert_eq!(pair.kernel.table.peek(id).unwrap().is_closing, closes);
            assert_eq!(pair.translates(&of(true, ACK)), !closes);
            assert_eq!(pair.translates(&of(false, ACK)), !closes);
        }
    }
}

#[test]
fn sizes_beyond_the_path_or_the_instance_go_to_the_engine() {
    if let Some(why) = refusal() {
        return gatun_testkit::skip(&why);
    }
    let mut pair = Pair::new(well_known(), Settings::default());
    let id = install_one(&mut pair.kernel.table, lone_flow(0));
    // 28 bytes of headers behind the translation.
    let of = |payload| Made { payload, ..PLAIN };
    assert!(pair.translates(&of(1000)));
    pair.kernel.table.set_path_mtu(id, Some(1000));
    assert!(!pair.translates(&of(973)) && pair.translates(&of(972)));
    pair.kernel.table.set_path_mtu(id, None);
    let settings = Settings { mtu4: 900, ..Settings::default() };
    pair.kernel.table.set_instance(0, Instance::nat64(&settings)).unwrap();
    assert!(!pair.translates(&of(873)) && pair.translates(&of(872)));
    assert_eq!(pair.packets_of(Reason::TooLarge), 2);
}

#[test]
fn a_full_table_refuses_and_a_removed_session_frees_its_slot() {
    if let Some(why) = refusal() {
        return gatun_testkit::skip(&why);
    }
    let mut pair = Pair::new(well_known(), Settings::default());
    let flows: Vec<Flow> = (0..66).map(lone_flow).collect();
    let mut placed = Vec::new();
    pair.kernel.table.install(&flows, &mut placed);
    assert!(placed[..64].iter().all(Result::is_ok));
    assert!(placed[64..].iter().all(|result| matches!(result, Err(crate::Refusal::Full))));
    let ids: Vec<SlotId> = placed.into_iter().take(64).map(Result::unwrap).collect();
    assert!(pair.translates(&Made { port: 63, ..PLAIN }) && !pair.translates(&Made { port: 64, ..PLAIN }));
    let listed: BTreeMap<u32, (SlotId, Flow)> =
        pair.kernel.table.iter().map(|(id, flow)| (id.index, (id, flow))).collect();
    let installed = ids.iter().map(|id| id.index).zip(ids.iter().copied().zip(flows.iter().copied()));
    assert_eq!(listed, installed.collect());
    let mut used = Vec::new();
    pair.kernel.table.remove(&[ids[63], ids[63], ids[5]], &mut used);
    let packets: Vec<_> = used.iter().map(|used| used.map(|used| used.outbound.packets)).collect();
    assert_eq!(packets, [Some(1), None, Some(0)]);
    assert!(!pair.translates(&Made { port: 63, ..PLAIN }));
    assert_eq!((pair.kernel.table.len(), pair.kernel.table.peek(ids[63])), (62, None));
    install_one(&mut pair.kernel.table, lone_flow(64));
    assert!(pair.translates(&Made { port: 64, ..PLAIN }));
    // The same session again: in the same place, but the former handle means nothing any more.
    let id = install_one(&mut pair.kernel.table, lone_flow(63));
    assert!(id.index == ids[63].index && id != ids[63]);
    assert_eq!(pair.kernel.table.take(ids[63]), None);
    assert!(pair.translates(&Made { port: 63, ..PLAIN }));
}

#[test]
fn a_session_with_the_packets_of_another_is_refused() {
    if let Some(why) = refusal() {
        return gatun_testkit::skip(&why);
    }
    let mut pair = Pair::new(well_known(), Settings::default());
    let id = install_one(&mut pair.kernel.table, lone_flow(0));
    let another_host = Flow { inside_port: 9, ..lone_flow(0) };
    let another_outside = Flow { outside: (POOL, 9), ..lone_flow(0) };
    let mut placed = Vec::new();
    pair.kernel.table.install(&[lone_flow(0), another_host, another_outside, lone_flow(1)], &mut placed);
    let exists = Err(crate::Refusal::Exists(id));
    assert_eq!(placed[..3], [exists, exists, exists]);
    assert!(placed[3].is_ok());
    pair.kernel.table.remove(&[id], &mut Vec::new());
    install_one(&mut pair.kernel.table, another_host);
}

#[test]
fn a_table_of_random_sessions_holds_as_many_as_it_has_room_for_and_loses_none() {
    if let Some(why) = refusal() {
        return gatun_testkit::skip(&why);
    }
    const COUNT: u32 = 20_000;
    let config = FastPathConfig { capacity: COUNT, ..config() };
    let ebpf = program::load(COUNT, 1, &[]).unwrap();
    let maps = Maps::from_files(program::files(&ebpf).unwrap()).unwrap();
    let (mut table, _) = open::table(maps, &config).unwrap();
    let flow = |n: u32| {
        let port = 1024 + (n % 60_000) as u16;
        let private = Inside::Four(Ipv4Addr::from(0x0a00_0000 + n));
        let inside = if n.is_multiple_of(3) { private } else { lone_flow(0).inside };
        let remote = (Ipv4Addr::from(0xc633_6400 + n / 60_000), 443);
        Flow { inside, inside_port: port, outside: (POOL, port), remote, record: n, ..lone_flow(0) }
    };
    let mut placed = Vec::new();
    let flows: Vec<Flow> = (0..COUNT).map(flow).collect();
    table.install(&flows, &mut placed);
    let mut ids: Vec<SlotId> = placed.into_iter().map(Result::unwrap).collect();
    // Half of them change places with others, several times.
    let mut next = COUNT;
    for round in 0..6 {
        let chosen: Vec<usize> = (0..ids.len()).filter(|i| (i * 7 + round) % 2 == 0).collect();
        let gone: Vec<SlotId> = chosen.iter().map(|i| ids[*i]).collect();
        let mut used = Vec::new();
        table.remove(&gone, &mut used);
        assert!(used.iter().all(Option::is_some));
        let flows: Vec<Flow> = chosen.iter().map(|_| (flow(next), next += 1).0).collect();
        let mut placed = Vec::new();
        table.install(&flows, &mut placed);
        chosen.iter().zip(placed).for_each(|(i, id)| ids[*i] = id.unwrap());
    }
    assert_eq!((table.len(), table.iter().count()), (COUNT, COUNT as usize));
    let all: HashSet<SlotId> = ids.iter().copied().collect();
    for (id, of) in table.iter() {
        assert_eq!(flow(of.record), of);
        assert!(all.contains(&id));
    }
    let maps = Maps::from_files(table.files().map(|file| file.try_clone().unwrap())).unwrap();
    let (mut next, _) = open::table(maps, &config).unwrap();
    assert_eq!(next.adopt(), COUNT);
    assert!(next.iter().eq(table.iter()));
    table.remove(&ids, &mut Vec::new());
    assert!(table.is_empty() && table.iter().next().is_none());
    assert!(!table.entries().all().iter().any(|entry| entry.near.load(Ordering::Relaxed) != 0));
}

#[test]
fn a_next_process_takes_over_whole_sessions_alone() {
    if let Some(why) = refusal() {
        return gatun_testkit::skip(&why);
    }
    let mut pair = Pair::new(well_known(), Settings::default());
    let inside = Inside::Four(PRIVATE);
    let private = Flow { inside, outside: (POOL, 50_000), instance: 1, ..lone_flow(9) };
    let mut placed = Vec::new();
    pair.kernel.table.install(&[lone_flow(0), lone_flow(1), lone_flow(2), private], &mut placed);
    let ids: Vec<SlotId> = placed.into_iter().map(Result::unwrap).collect();
    // A kill left the second without the way to its entry of packets from outside, and one entry of a fifth.
    let maps = Maps::from_files(pair.kernel.table.files().map(|file| file.try_clone().unwrap())).unwrap();
    let entries = pair.kernel.table.entries();
    let inbound = lone_flow(1).outbound().reverse();
    entries.withdraw(entries.find(&inbound).unwrap());
    assert_eq!(entries.find(&inbound), None);
    let alone = lone_flow(20).outbound();
    let free = entries.all().iter().position(|entry| entry.next_generation() == 1).unwrap() as u32;
    entries.at(free).write(&alone, &lone_flow(20), (free + 1, 1), KernelTime(1));
    let (mut next, is_fresh) = open::table(maps, &config()).unwrap();
    assert!(!is_fresh);
    assert_eq!(next.adopt(), 3);
    let mut taken_over: Vec<(SlotId, Flow)> = next.iter().collect();
    taken_over.sort_by_key(|(id, _)| ids.iter().position(|of| of == id));
    let expected = [(ids[0], lone_flow(0)), (ids[2], lone_flow(2)), (ids[3], private)];
    assert_eq!(taken_over, expected);
    let in_use =
        next.entries().all().iter().filter(|entry| entry.generation.load(Ordering::Relaxed) & 1 == 1);
    assert_eq!(in_use.count(), 6);
    assert!(!pair.translates(&Made { port: 1, ..PLAIN }) && pair.translates(&Made { port: 2, ..PLAIN }));
    let id = install_one(&mut next, lone_flow(1));
    assert_eq!((next.peek(id).is_some(), next.len()), (true, 4));
    assert!(pair.translates(&Made { port: 1, ..PLAIN }));
}

#[test]
fn identifications_count_up_and_leave_room_for_what_is_cut_from_a_super_packet() {
    if let Some(why) = refusal() {
        return gatun_testkit::skip(&why);
    }
    let mut pair = Pair::new(well_known(), Settings::default());
    install_one(&mut pair.kernel.table, Flow { protocol: Protocol::Tcp, ..lone_flow(0) });
    let mut ident_of = |payload: usize, gso_size: u32| {
        let made = Made { tcp: true, payload, ..PLAIN };
        let (result, packet, _) = pair.run(&made.bytes(&well_known(), (POOL, 0)), gso_size);
        assert_eq!(result, TRANSLATED);
        // DF is for what is larger than 1,260 bytes on the wire.
        let wire = 40 + if gso_size > 0 { payload.min(gso_size as usize) } else { payload };
        assert_eq!(packet[6] & 0x40 != 0, wire > 1260, "{payload} {gso_size}");
        u16::from_be_bytes([packet[4], packet[5]])
    };
    let first = ident_of(10, 0);
    // One of two workers: every second number. Five segments use up six.
    let next: Vec<u16> = [(10, 0), (2500, 500), (10, 0), (400, 500), (1221, 0), (1220, 0)]
        .iter()
        .map(|(payload, gso_size)| ident_of(*payload, *gso_size).wrapping_sub(first))
        .collect();
    assert_eq!(next, [2, 4, 10, 12, 14, 16]);
}
