//! Both programs beside each translation of a packet by the tests of `wire`. A program writes the same bytes,
//! or leaves the packet as it is; simple packets it translates.

use super::loaded::Loaded;
use super::{At, TRANSLATED, refusal};
use crate::common::{CLIENT4, CLIENT6, SERVER4, SERVER6, Translated};
use crate::flow::{Flow, Inside, Protocol};
use crate::layout::{Translation, WAY_4_INWARD, WAY_4_OUTWARD, WAY_4_TO_6, WAY_6_TO_4};
use crate::{Instance, KernelTime};
use gatun_wire::rfc3022::address_delta;
use gatun_wire::rfc7915::address_delta_6to4;
use gatun_wire::{Offload, Ports, Settings, Whole, checksum, proto};
use std::cell::RefCell;
use std::net::{Ipv4Addr, Ipv6Addr};

pub(crate) fn six_to_four(packet: (&[u8], Offload), ports: Ports, settings: &Settings, wire: &Translated) {
    beside_instance(packet, ports, settings, wire);
}

pub(crate) fn four_to_six(packet: (&[u8], Offload), ports: Ports, settings: &Settings, wire: &Translated) {
    beside_instance(packet, ports, settings, wire);
}

pub(crate) fn four_to_four(
    packet: (&[u8], Offload),
    to: (Ipv4Addr, Ipv4Addr),
    ports: Ports,
    id: Option<u16>,
    mtu: u32,
    wire: &Translated,
) {
    if let Some(translation) = translation44(packet.0, to, ports, id.is_some()) {
        beside(packet, &translation, Instance::nat44(mtu), wire);
    }
}

/// Checks that the programs leave an ICMP message to the engine.
pub(crate) fn error(bytes: &[u8]) {
    // BPF_PROG_TEST_RUN wants a whole IP header.
    let shortest = if bytes.first().is_some_and(|byte| byte >> 4 == 4) { 20 } else { 40 };
    if bytes.len() < shortest || bytes.len() > 3000 {
        return;
    }
    with_programs(|program| {
        let (result, kernel, _) = program.run(bytes, 0);
        assert_ne!(result, TRANSLATED, "{:?}: {bytes:02x?}", program.at);
        assert_eq!(kernel, bytes, "{:?}", program.at);
    });
}

thread_local! {
    static PROGRAMS: RefCell<Option<[Loaded; 2]>> = const { RefCell::new(None) };
}

/// Gives a packet of a NAT64 instance to the programs.
fn beside_instance(packet: (&[u8], Offload), ports: Ports, settings: &Settings, wire: &Translated) {
    let Some(translation) = translation(packet.0, ports) else { return };
    beside(packet, &translation, Instance::nat64(settings), wire);
}

/// Does something with both programs, unless this process may not load them.
fn with_programs(work: impl FnMut(&mut Loaded)) {
    if let Some(why) = refusal() {
        return gatun_testkit::skip(&why);
    }
    PROGRAMS.with_borrow_mut(|programs| {
        programs.get_or_insert_with(|| At::ALL.map(Loaded::new)).iter_mut().for_each(work);
    });
}

/// Gives the packet to the programs, whose tables have its translation.
fn beside(
    (bytes, offload): (&[u8], Offload),
    translation: &Translation,
    instance: Instance,
    wire: &Translated,
) {
    // BPF_PROG_TEST_RUN has neither partial checksums nor packets larger than a page.
    if offload == Offload::default() && bytes.len() <= 3000 {
        with_programs(|program| compare(program, bytes, translation, instance, wire));
    }
}

fn compare(
    program: &mut Loaded,
    bytes: &[u8],
    translation: &Translation,
    instance: Instance,
    wire: &Translated,
) {
    program.table.set_instance(0, instance).unwrap();
    let id = program.table.install_one(translation, &flow(translation.proto), KernelTime(0)).unwrap();
    let (result, kernel, _) = program.run(bytes, 0);
    program.table.remove(&[id], &mut Vec::new());
    // The program chooses the identification as the engine does, but another one.
    let known = |packet: &[u8]| match translation.way {
        WAY_4_INWARD => packet.to_vec(),
        _ => without_ident(packet),
    };
    if result == TRANSLATED {
        assert_eq!(wire.0, Ok(Whole::Yes), "{:?}: {bytes:02x?}", program.at);
        assert_eq!(known(&kernel), known(&wire.1), "{:?}: {bytes:02x?}", program.at);
    } else {
        assert_eq!(kernel, bytes, "{:?}", program.at);
        let is_small = translation.way >= WAY_4_OUTWARD || wire.1.len() <= 1280;
        let has_to =
            is_simple(bytes) && wire.0 == Ok(Whole::Yes) && is_small && has_way(program.at, translation);
        assert!(!has_to, "{:?} passed {bytes:02x?}", program.at);
    }
}

/// Returns true if the kernel has a way for the packet behind a hook: at interfaces, not for random addresses
/// that no host has, nor for those of the tests' own networks.
fn has_way(at: At, translation: &Translation) -> bool {
    let [_, _, _, _, a, b, ..] = translation.six[0];
    let is_host = !matches!(a, 0 | 127 | 224..) && (a, b & 0xfe) != (10, 254);
    at == At::Device || translation.way < WAY_4_OUTWARD || is_host
}

/// The header of an IPv4 packet with another identification.
fn without_ident(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet[0] >> 4 == 4 {
        packet[4..6].fill(0);
        gatun_wire::hdr::ipv4::set_checksum(&mut packet[..20]);
    }
    packet
}

/// Translation of an IPv4 packet to these addresses and ports. `None` if it is neither TCP nor UDP.
fn translation44(
    bytes: &[u8],
    to: (Ipv4Addr, Ipv4Addr),
    ports: Ports,
    is_outward: bool,
) -> Option<Translation> {
    let like = translation(bytes, ports)?;
    let mut six = [[0; 16]; 2];
    six[0][..4].copy_from_slice(&to.0.octets());
    six[0][4..8].copy_from_slice(&to.1.octets());
    let delta = address_delta((like.four[0].into(), like.four[1].into()), to).0.to_be_bytes();
    let way = if is_outward { WAY_4_OUTWARD } else { WAY_4_INWARD };
    Some(Translation { six, delta, way, ..like })
}

/// Translation of a packet with the addresses and ports of the tests. `None` if it is neither TCP nor UDP.
fn translation(bytes: &[u8], ports: Ports) -> Option<Translation> {
    let is_six = *bytes.first()? >> 4 == 6;
    let (proto, l4) = if is_six { (*bytes.get(6)?, 40) } else { (*bytes.get(9)?, 20) };
    let is: [u8; 4] = bytes.get(l4..l4 + 4)?.try_into().ok()?;
    let is = [[is[0], is[1]], [is[2], is[3]]];
    let new_ports = match ports {
        Ports::Keep => is,
        Ports::Set { src, dst } => [src.to_be_bytes(), dst.to_be_bytes()],
        Ports::EchoId(_) | Ports::EchoPiece { .. } => return None,
    };
    if !matches!(proto, proto::TCP | proto::UDP) {
        return None;
    }
    let (four, six, way): ([Ipv4Addr; 2], [Ipv6Addr; 2], u8) = if is_six {
        let address = |at: usize| <[u8; 16]>::try_from(&bytes[at..at + 16]).map(Ipv6Addr::from);
        let six = [address(8).ok()?, address(24).ok()?];
        let four = if six[0] == SERVER6 { [SERVER4, CLIENT4] } else { [CLIENT4, SERVER4] };
        (four, six, WAY_6_TO_4)
    } else {
        let address = |at: usize| <[u8; 4]>::try_from(&bytes[at..at + 4]).map(Ipv4Addr::from);
        let four = [address(12).ok()?, address(16).ok()?];
        let six = if four[0] == CLIENT4 { [CLIENT6, SERVER6] } else { [SERVER6, CLIENT6] };
        (four, six, WAY_4_TO_6)
    };
    let delta = address_delta_6to4((six[0], six[1]), (four[0], four[1])).0.to_be_bytes();
    Some(Translation {
        four: four.map(|address| address.octets()),
        six: six.map(|address| address.octets()),
        ports: is,
        new_ports,
        delta: if is_six { delta } else { delta.map(|byte| !byte) },
        proto,
        way,
    })
}

/// Fields of an entry that the translation does not have.
fn flow(proto: u8) -> Flow {
    Flow {
        inside: Inside::Six { host: CLIENT6, remote: SERVER6 },
        inside_port: 0,
        outside: (CLIENT4, 0),
        remote: (SERVER4, 0),
        protocol: if proto == proto::TCP { Protocol::Tcp } else { Protocol::Udp },
        instance: 0,
        worker: 0,
        epoch: 0,
        record: 0,
        path_mtu: None,
        ident: 0,
    }
}

/// Returns true if a program has to translate the packet, if it fits.
fn is_simple(bytes: &[u8]) -> bool {
    let (l3, len, hops) = if bytes[0] >> 4 == 6 {
        (40, 40 + usize::from(u16::from_be_bytes([bytes[4], bytes[5]])), bytes[7])
    } else {
        let is_plain = bytes[0] == 0x45 && bytes[6] & 0x3f == 0 && bytes[7] == 0;
        if !is_plain || checksum::sum(&bytes[..20]) != 0xffff {
            return false;
        }
        (20, usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), bytes[8])
    };
    let l4 = &bytes[l3..];
    let (is_tcp, protocol) = match bytes[if l3 == 40 { 6 } else { 9 }] {
        proto::TCP => (true, proto::TCP),
        _ => (false, proto::UDP),
    };
    let (shortest, at) = if is_tcp { (20, 16) } else { (8, 6) };
    if len != bytes.len() || hops <= 1 || l4.len() < shortest || is_tcp && l4[13] & 7 != 0 {
        return false;
    }
    let addresses = if l3 == 40 { &bytes[8..40] } else { &bytes[12..20] };
    let partial = checksum::pseudo(addresses, l4.len() as u32, protocol).to_be_bytes();
    // An interface takes it for a checksum that a device is to complete.
    (is_tcp || l4[at..at + 2] != [0, 0]) && l4[at..at + 2] != partial
}
