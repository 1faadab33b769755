//! Checks that an `Ether` allocates nothing after construction: not for neighbours, pending packets,
//! announcements or updates, nor during a take-over.

mod common;
use common::*;
use gatun_ether::{Ether, Limits, Settings};
use gatun_mem::{Counting, count_allocations};
use gatun_wire::{HEADROOM, Packet};
use std::alloc::System;
use std::net::Ipv4Addr;

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

#[test]
fn nothing_is_allocated_after_construction() {
    let settings = Settings { announces: true, shares: true, ..settings() };
    let limits = Limits { neighbours_max: 32, unresolved_max: 16, waiting_max: 16, ..Limits::default() };
    let mut ether = Ether::new(&settings, &limits, [1, 2, 3, 4]).unwrap();
    let next: Vec<Ether> = (0..10).map(|_| Ether::new(&settings, &limits, [5, 6, 7, 8]).unwrap()).collect();
    let mut next = next.into_iter();
    let mut gone = Vec::with_capacity(10);
    let peers: Vec<Ipv4Addr> = (10..90).map(|last| Ipv4Addr::new(198, 51, 100, last)).collect();
    let frames: Vec<Vec<u8>> = peers
        .iter()
        .flat_map(|peer| [arp_request(PEER_MAC, *peer, OUR4), arp_reply(PEER_MAC, *peer)])
        .chain([solicitation(PEER_MAC, PEER6, OUR6), advertisement(PEER_MAC, PEER6, SOLICITED)])
        .chain([query(1, "fe80::66", 100, 28), arp_reply(OTHER_MAC, OUR4)])
        .chain([frame(OUR_MAC, PEER_MAC, &[], 0x0800, &ping4(PEER4, OUR4, b"x"))])
        .collect();
    let packets: Vec<Vec<u8>> = peers.iter().map(|peer| udp4(POOL4, *peer, b"x")).collect();
    let mut buffer = vec![0; HEADROOM + 256];
    let mut now_ms = 0;
    let mut emitted = 0u64;
    let before = count_allocations(true);
    for round in 0..2000 {
        for (which, bytes) in
            [(true, &frames[round % frames.len()]), (false, &packets[round * 7 % packets.len()])]
        {
            buffer[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
            let mut packet = Packet::new(&mut buffer, HEADROOM, bytes.len()).unwrap();
            if which {
                let _ = ether.receive(now_ms, DEVICE, &mut packet);
            } else {
                let _ = ether.transmit(now_ms, &mut packet);
            }
        }
        ether.poll(now_ms, &mut |_, _, _| emitted += 1);
        if round % 100 == 99 {
            while ether.next_update().is_some() {}
            ether.announce(now_ms);
        }
        if round % 100 == 77
            && let Some(mut next) = next.next()
        {
            next.take_over(now_ms, &mut ether);
            gone.push(std::mem::replace(&mut ether, next));
        }
        now_ms += 37;
    }
    assert_eq!(count_allocations(false) - before, 0);
    let stats = ether.stats();
    assert!(
        emitted > 100 && stats.released > 0 && stats.sent > 0 && stats.unsent.iter().sum::<u64>() > 0,
        "{stats:?}"
    );
}
