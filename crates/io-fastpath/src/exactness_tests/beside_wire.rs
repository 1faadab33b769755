//! Helpers of the tests of `wire`, with both programs beside each translation of a packet. A program writes
//! the same bytes, or leaves the packet as it is; simple packets it translates.
#![allow(dead_code, unreachable_pub)]

#[path = "../../../wire/tests/wire/common.rs"]
mod original;

pub use original::*;

use crate::exactness_tests::{At, Pair, TRANSLATED, refusal, well_known};
use crate::flow::{Flow, Inside, Protocol};
use crate::layout::{Translation, WAY_4_TO_6, WAY_6_TO_4};
use crate::{Instance, KernelTime};
use gatun_wire::rfc7915::address_delta_6to4;
use gatun_wire::{DropReason, Offload, Ports, Settings, Whole, checksum, proto};
use std::cell::RefCell;
use std::net::{Ipv4Addr, Ipv6Addr};

pub fn six_to_four(bytes: &[u8], ports: Ports, settings: &Settings, offload: Offload) -> Translated {
    let out = original::six_to_four(bytes, ports, settings, offload);
    if bytes.first().is_some_and(|byte| byte >> 4 == 6) {
        beside(bytes, ports, settings, offload, &out);
    }
    out
}

pub fn four_to_six(bytes: &[u8], ports: Ports, settings: &Settings, offload: Offload) -> Translated {
    let out = original::four_to_six(bytes, ports, settings, offload);
    if bytes.first().is_some_and(|byte| byte >> 4 == 4) {
        beside(bytes, ports, settings, offload, &out);
    }
    out
}

pub fn ok_6to4(bytes: &[u8]) -> Vec<u8> {
    let (result, out, _) = six_to_four(bytes, Ports::Keep, &Settings::default(), Offload::default());
    assert_eq!(result, Ok(Whole::Yes));
    out
}

pub fn ok_4to6(bytes: &[u8]) -> Vec<u8> {
    let (result, out, _) = four_to_six(bytes, Ports::Keep, &Settings::default(), Offload::default());
    assert_eq!(result, Ok(Whole::Yes));
    out
}

pub fn err_6to4(bytes: &[u8]) -> DropReason {
    six_to_four(bytes, Ports::Keep, &Settings::default(), Offload::default()).0.unwrap_err()
}

pub fn err_4to6(bytes: &[u8]) -> DropReason {
    four_to_six(bytes, Ports::Keep, &Settings::default(), Offload::default()).0.unwrap_err()
}

thread_local! {
    static PAIRS: RefCell<Option<[Pair; 2]>> = const { RefCell::new(None) };
}

/// Gives the packet to the programs.
fn beside(bytes: &[u8], ports: Ports, settings: &Settings, offload: Offload, wire: &Translated) {
    // BPF_PROG_TEST_RUN has neither partial checksums nor packets larger than a page.
    if offload != Offload::default() || bytes.len() > 3000 {
        return;
    }
    let Some(translation) = translation(bytes, ports) else { return };
    if let Some(why) = refusal() {
        return gatun_testkit::skip(&why);
    }
    PAIRS.with_borrow_mut(|pairs| {
        let plan = crate::exactness_tests::plan(well_known(), *settings);
        let new = || At::ALL.map(|at| Pair::of(at, &plan, well_known(), *settings));
        for pair in pairs.get_or_insert_with(new) {
            compare(pair, bytes, &translation, settings, wire);
        }
    });
}

fn compare(pair: &mut Pair, bytes: &[u8], translation: &Translation, settings: &Settings, wire: &Translated) {
    pair.table.set_instance(0, Instance::nat64(settings)).unwrap();
    let id = pair.table.install_one(translation, &flow(translation.proto), KernelTime(0)).unwrap();
    let (result, kernel, _) = pair.run(bytes, 0);
    pair.table.remove(&[id], &mut Vec::new());
    if result == TRANSLATED {
        assert_eq!(wire.0, Ok(Whole::Yes), "{:?}: {bytes:02x?}", pair.at);
        assert_eq!(without_ident(&kernel), without_ident(&wire.1), "{:?}: {bytes:02x?}", pair.at);
    } else {
        assert_eq!(kernel, bytes, "{:?}", pair.at);
        let has_to = is_simple(bytes) && wire.0 == Ok(Whole::Yes) && wire.1.len() <= 1280;
        assert!(!has_to, "{:?} passed {bytes:02x?}", pair.at);
    }
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
