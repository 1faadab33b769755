//! The program beside translations of the engine's own tests (`crates/wire`, `crates/nat`): it gets the
//! entries of the sessions and then the packet, and sends the engine's bytes, or gives the packet to the
//! controller as it is, with a documented reason. What an entry is for, it translates.

use crate::counts;
use crate::entries::{Flow, action};
use crate::packets::{from_inside, tagged, untagged};
use crate::pair::{
    Fate, INSIDE, INSIDE_MAC, INSIDE_OWN4, INSIDE_OWN6, INSIDE_ROUTER, OUTSIDE, OUTSIDE_MAC, OUTSIDE_OWN4,
    OUTSIDE_ROUTER, VLAN, insert, remove, split, switch, through,
};
use gatun_p4_controller::program::Limits;
use gatun_p4_switch::{Match, Switch};
use gatun_wire::hdr::ipv4;
use gatun_wire::{Offload, checksum, proto};
use std::collections::BTreeSet;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Longer packets do not fit in a buffer of the switch.
const SHORT_MAX: usize = 1_900;

const TCP_STOP: u8 = 7;
const NO_CHECKSUM: [u8; 2] = [0, 0];

/// The switch of all these tests, and the entries of sessions that it has.
struct SharedSwitch {
    switch: Switch,
    entries: Vec<Flow>,
}

// SAFETY: DPDK's pipelines, rings and pools of buffers belong to no thread. Its pools have a cache for each
// of its own threads, and these are others. A mutex lets one of them at a time use the switch.
unsafe impl Send for SharedSwitch {}

impl SharedSwitch {
    /// A switch that is no host, and sends all IPv6 packets to one port and all IPv4 packets to another one.
    fn new() -> SharedSwitch {
        let mut switch = switch();
        for (number, address) in [(1, INSIDE_OWN4), (2, OUTSIDE_OWN4)] {
            let own4 = switch.table("gatun_host_own4").unwrap();
            switch.remove(own4, &[&[number, u32::from(address).into()]]).unwrap();
        }
        let own6 = switch.table("gatun_host_own6").unwrap();
        for address in [INSIDE_OWN6, INSIDE_MAC.link_local()] {
            let [high, low] = crate::entries::halves(address);
            switch.remove(own6, &[&[1, high, low]]).unwrap();
        }
        for (name, fields, hop) in [("gatun_way_routes4", 1, 3), ("gatun_way_routes6", 2, 2)] {
            let table = switch.table(name).unwrap();
            let action = action(&switch, name, "gatun_way_route");
            let all = Match { key: vec![(0, 0); fields], priority: 1, action, data: vec![hop] };
            switch.fill(table, &[all]).unwrap();
        }
        SharedSwitch { switch, entries: Vec::new() }
    }

    /// Gives a packet to the switch, which has these entries and no others.
    fn fate(&mut self, entries: &[Flow], packet: &[u8]) -> Fate {
        if self.entries != entries {
            let before = std::mem::take(&mut self.entries);
            remove(&mut self.switch, before.into_iter().map(|entry| (entry.table, entry.key)).collect());
            for entry in entries {
                insert(&mut self.switch, entry.clone());
            }
            self.entries = entries.to_vec();
        }
        through(&mut self.switch, INSIDE, &from_inside(packet))
    }
}

/// Gives a packet to the switch, which has these entries and no others. Its buffers are never freed, so all
/// tests share one. `None`: no network has such a packet, or the test has given enough to the switch.
pub(crate) fn fate(entries: &[Flow], packet: &[u8], offload: Offload) -> Option<Fate> {
    static SHARED: LazyLock<Mutex<SharedSwitch>> = LazyLock::new(|| Mutex::new(SharedSwitch::new()));
    let is_frame = offload == Offload::default() && !packet.is_empty() && packet.len() <= SHORT_MAX;
    if !is_frame || !counts::has_room() {
        counts::left_out();
        return None;
    }
    Some(SHARED.lock().unwrap_or_else(PoisonError::into_inner).fate(entries, packet))
}

/// Reasons that the documents explain.
static DOCUMENTED: LazyLock<BTreeSet<u8>> = LazyLock::new(|| {
    let text = include_str!("../../../../docs/explanation/p4.md");
    let (_, table) = text.split_once("| number | reason | packets |").unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.split('|').nth(1).unwrap().trim().parse().unwrap()).collect()
});

/// Compares the fate of a packet with what the engine made of it: the packet that it forwards alone, or
/// nothing. Counts it.
pub(crate) fn compare(entries: &[Flow], limits: &Limits, packet: &[u8], engine: Option<&[u8]>, fate: &Fate) {
    let entry = plain_key(packet, engine).and_then(|(table, key)| find(entries, table, &key));
    match fate {
        Fate::Sent(port, frame) => {
            let engine = engine.unwrap_or_else(|| panic!("the engine does not forward {packet:02x?}"));
            let is_six = engine[0] >> 4 == 6;
            assert_eq!(*port, if is_six { INSIDE } else { OUTSIDE });
            let sent = &frame[split(frame).0..];
            let wanted = match is_six {
                true => untagged(INSIDE_ROUTER, INSIDE_MAC, [0x86, 0xdd], sent),
                false => tagged_without_priority(sent),
            };
            assert_eq!(*frame, wanted, "Ethernet header");
            let entry = entry.unwrap_or_else(|| panic!("no entry is for {packet:02x?}"));
            if chooses_ident(entry, packet) {
                assert_eq!((sent[5] & 1, checksum::sum(&sent[..20])), (1, 0xffff), "{sent:02x?}");
                assert_eq!(without_ident(sent), without_ident(engine), "for {packet:02x?}");
            } else {
                assert_eq!(sent, engine, "for {packet:02x?}");
            }
            counts::translated();
        }
        Fate::Controller(reason) => {
            assert!(DOCUMENTED.contains(reason), "{reason}");
            let has_to = entry.is_some()
                && engine.is_some_and(|engine| fits(limits, packet, engine) && !may_be_zeroes(engine));
            assert!(!has_to, "given to the controller for reason {reason}: {packet:02x?}");
            counts::given(*reason);
        }
        Fate::Dropped | Fate::Pending(..) => panic!("{fate:02x?}: {packet:02x?}"),
    }
}

fn tagged_without_priority(packet: &[u8]) -> Vec<u8> {
    let mut frame = tagged(OUTSIDE_ROUTER, OUTSIDE_MAC, [8, 0], packet);
    frame[14..16].copy_from_slice(&VLAN.to_be_bytes());
    frame
}

fn find<'a>(entries: &'a [Flow], table: &str, key: &[u64]) -> Option<&'a Flow> {
    entries.iter().find(|entry| entry.table == table && entry.key == key)
}

/// Returns true if the translator chooses the identification of the packet that an entry makes of `from`.
fn chooses_ident(entry: &Flow, from: &[u8]) -> bool {
    match entry.action {
        "gatun_lookup_to_ipv4" => true,
        "gatun_lookup_nat44" => entry.data[6] != 0xffff && from[6] & 0x40 == 0,
        _ => false,
    }
}

/// The packet with identification zero.
pub(crate) fn without_ident(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet.len() >= 20 && packet[0] >> 4 == 4 {
        packet[4..6].fill(0);
        ipv4::set_checksum(&mut packet[..20]);
    }
    packet
}

/// Whether a translated packet is within the limits of the entries.
fn fits(limits: &Limits, packet: &[u8], engine: &[u8]) -> bool {
    let has_df = packet[0] >> 4 == 4 && packet[6] & 0x40 != 0;
    let max = match (engine[0] >> 4, has_df) {
        (4, _) => limits.mtu4,
        (_, true) => limits.mtu6,
        (_, false) => limits.mtu6_without_df,
    };
    engine.len() <= usize::from(max)
}

/// Table and key of a packet that an entry is for. `None`: the controller gets it in any case. `engine`: the
/// translated packet.
fn plain_key(packet: &[u8], engine: Option<&[u8]>) -> Option<(&'static str, Vec<u64>)> {
    let word = |at: usize| Some(u64::from(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?)));
    let long = |at: usize| Some(u64::from_be_bytes(*packet.get(at..)?.first_chunk()?));
    let is_six = packet.first()? >> 4 == 6;
    let (table, head, len, hops, protocol, addresses) = if is_six {
        let addresses = vec![long(8)?, long(16)?, long(24)?, long(32)?];
        ("gatun_lookup_flows6", 40, 40 + word(4)? as usize, packet[7], packet[6], addresses)
    } else {
        let header = packet.get(..20)?;
        let addresses = long(12)?;
        let is_plain = header[0] == 0x45 && word(6)? & 0x3fff == 0 && checksum::sum(header) == 0xffff;
        let addresses = is_plain.then(|| vec![addresses >> 32, addresses & 0xffff_ffff])?;
        ("gatun_lookup_flows4", 20, word(2)? as usize, header[8], header[9], addresses)
    };
    let message = packet.get(head..len)?;
    let ports = match protocol {
        proto::TCP if message.len() >= 20 && message[13] & TCP_STOP == 0 => [word(head)?, word(head + 2)?],
        proto::UDP if message.len() >= 8 => {
            let is_alone = message[6..8] == NO_CHECKSUM && !is_six;
            let becomes_six = engine.is_some_and(|engine| engine[0] >> 4 == 6);
            (!(is_alone && becomes_six)).then_some([word(head)?, word(head + 2)?])?
        }
        proto::ICMPV6 | proto::ICMP if message.len() >= 8 && (protocol == proto::ICMPV6) == is_six => {
            ping(message, is_six)?
        }
        _ => return None,
    };
    (hops > 1).then(|| (table, [&addresses[..], &ports, &[protocol.into()]].concat()))
}

/// The key's ports of a ping. `None`: another message.
fn ping(message: &[u8], is_six: bool) -> Option<[u64; 2]> {
    let id = u64::from(u16::from_be_bytes([message[4], message[5]]));
    match (is_six, message[0], message[1]) {
        (true, 128, 0) | (false, 8, 0) => Some([id, 0]),
        (true, 129, 0) | (false, 0, 0) => Some([0, id]),
        _ => None,
    }
}

/// Whether the engine made a ping with identifier and sequence number zero. If all of it is zero, the
/// controller gets it.
fn may_be_zeroes(engine: &[u8]) -> bool {
    let rest = match (engine[0] >> 4, engine[6], engine[9]) {
        (6, proto::ICMPV6, _) => engine.get(44..48),
        (4, _, proto::ICMP) => engine.get(24..28),
        _ => None,
    };
    rest == Some(&[0; 4])
}
