//! Arbitrary datagrams of the tunnel between the nodes of a cluster: the packet inside, or an unchanged
//! datagram, never a panic. What was inside goes through the tunnel again.
#![no_main]

use gatun_wire::vxlan::{self, Inner, Outer};
use gatun_wire::{HEADROOM, Ipv4View, Ipv6View, Packet, TAILROOM};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut buffer = vec![0; HEADROOM];
    buffer.extend_from_slice(bytes);
    buffer.resize(buffer.len() + TAILROOM, 0);
    let Some(mut packet) = Packet::new(&mut buffer, HEADROOM, bytes.len()) else { return };
    let sender = vxlan::sender(bytes);
    let Ok(vni) = vxlan::decapsulate(&mut packet) else {
        assert_eq!(packet.bytes(), bytes);
        return;
    };
    let inside = packet.bytes().to_vec();
    let inner = match inside[0] >> 4 {
        4 => Ipv4View::parse(&inside).map(|view| Inner::of4(&inside, &view)),
        _ => Ipv6View::parse(&inside).map(|view| Inner::of6(&inside, &view)),
    };
    let Ok(inner) = inner else { return };
    let sender = sender.unwrap();
    let outer = Outer { ends: (sender, sender), port: vxlan::PORT, vni };
    outer.encapsulate(&mut packet, &inner).unwrap();
    assert!(vxlan::is_to(packet.bytes(), sender, vxlan::PORT));
    assert_eq!(vxlan::decapsulate(&mut packet).unwrap(), vni);
    assert_eq!(packet.bytes(), inside);
});
