//! Test of the look-ahead against classification, over random plans and packets.

use super::Nat;
use crate::base::plan::{self, Eam, Exemption, Hairpin, Net4, Net6, Plan, Pool4, PoolRange};
use crate::path::classify::{Class4, Class6};
use crate::path::look_ahead::{self, Hint};
use crate::path::state::Core;
use crate::tables::bib::PoolAddress;
use crate::tables::prefixes::PrefixOwner;
use core::net::{Ipv4Addr, Ipv6Addr};
use gatun_wire::{HEADROOM, Ipv4View, Ipv6View, Packet, Prefix64, checksum, proto};
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// Addresses for the plans below. Some are in several plans, and some are in none.
const ADDRESSES4: [Ipv4Addr; 9] = [
    Ipv4Addr::new(192, 0, 2, 1),
    Ipv4Addr::new(192, 0, 2, 2),
    Ipv4Addr::new(10, 0, 0, 5),
    Ipv4Addr::new(10, 1, 0, 5),
    Ipv4Addr::new(172, 16, 0, 9),
    Ipv4Addr::new(198, 51, 100, 7),
    Ipv4Addr::new(203, 0, 113, 9),
    Ipv4Addr::new(8, 8, 8, 8),
    Ipv4Addr::new(127, 0, 0, 1),
];
const HOSTS6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 5),
    Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 5),
    Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 0, 7),
];
const OWN6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);

fn prefix(n: u16, len: u8) -> Prefix64 {
    Prefix64::new(Ipv6Addr::new(0x2001, 0xdb8, n, 0, 0, 0, 0, 0), len).unwrap()
}

fn prefixes() -> Vec<Prefix64> {
    vec![prefix(0x64, 96), prefix(0x64, 48), prefix(0x65, 64), Prefix64::WELL_KNOWN]
}

fn net(a: u8, b: u8, len: u8) -> Net4 {
    Net4 { addr: Ipv4Addr::new(a, b, 0, 0), len }
}

/// Plan to be made: its kinds of instances, and their selectors.
#[derive(Clone, Debug)]
struct Made {
    own4: usize,
    own6: bool,
    realms: [u8; 2],
    sources: bool,
    same_prefix: bool,
    exempt: bool,
    siit_pool6: bool,
    simple: bool,
    kinds: [bool; 3],
}

fn made() -> impl Strategy<Value = Made> {
    let realm = || prop::sample::select(vec![0u8, 0, 3]);
    let ways = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let kinds = [any::<bool>(), any::<bool>(), any::<bool>()];
    (0..ADDRESSES4.len() * 2, any::<bool>(), [realm(), realm()], ways, kinds).prop_map(
        |(own4, own6, realms, (sources, same_prefix, exempt, siit_pool6, simple), kinds)| Made {
            own4,
            own6,
            realms,
            sources,
            same_prefix,
            exempt,
            siit_pool6,
            simple,
            kinds,
        },
    )
}

impl Made {
    fn plan(&self) -> Plan {
        let [pool, other] = [ADDRESSES4[0], ADDRESSES4[1]];
        let range = PoolRange { first: pool, last: other, ports: (1024, 65_535), transports: [true; 3] };
        let nat64 = |n: usize| {
            let sources = vec![Net6 { addr: HOSTS6[n], len: 64 }];
            plan::Nat64 {
                name: std::format!("six{n}"),
                pool6: vec![prefixes()[if self.same_prefix { 0 } else { n }], prefixes()[2 + n]],
                realm: self.realms[n],
                sources: if self.sources { sources } else { Vec::new() },
                ..plan::Nat64::default()
            }
        };
        let nat44 = |n: usize| plan::Nat44 {
            name: std::format!("four{n}"),
            inside: vec![net(10, n as u8, 16)],
            realm: self.realms[n],
            exempt: if self.exempt { vec![self.exemption(n)] } else { Vec::new() },
            ..plan::Nat44::default()
        };
        let mapping =
            Eam { v4: Net4 { addr: ADDRESSES4[5], len: 32 }, v6: Net6 { addr: HOSTS6[2], len: 128 } };
        let siit = plan::Siit {
            name: "siit".into(),
            pool6: if self.siit_pool6 { vec![prefix(0x66, 96)] } else { Vec::new() },
            eamt: vec![mapping],
            hairpin: if self.simple { Hairpin::Simple } else { Hairpin::Off },
            ..plan::Siit::default()
        };
        let of = |on: bool, n: usize| if on { 0..n } else { 0..0 };
        Plan {
            own4: ADDRESSES4.get(self.own4).copied(),
            own6: self.own6.then_some(OWN6),
            pools: vec![Pool4 { name: "p".into(), ranges: vec![range], ..Pool4::default() }],
            nat64: of(self.kinds[0], 2).map(nat64).collect(),
            nat44: of(self.kinds[1], 2).map(nat44).collect(),
            siit: if self.kinds[2] { vec![siit] } else { Vec::new() },
            ..Plan::default()
        }
    }

    /// Exempts a whole server for one instance, and one port of it for the other.
    fn exemption(&self, n: usize) -> Exemption {
        let server = Net4 { addr: ADDRESSES4[6], len: 32 };
        Exemption { net: server, transport: None, ports: (n == 1).then_some((53, 53)) }
    }
}

/// Packet to be sent, as indices into the lists of addresses.
#[derive(Clone, Debug)]
struct Sent {
    six: bool,
    source: usize,
    destination: usize,
    prefix: usize,
    suffix: u8,
    proto: u8,
    port: u16,
    realm: u8,
    options: bool,
}

fn sent() -> impl Strategy<Value = Sent> {
    let proto = prop::sample::select(vec![proto::TCP, proto::UDP, proto::UDP, proto::ICMP, 132]);
    let port = prop::sample::select(vec![53u16, 443, 2000]);
    let addresses = (0..ADDRESSES4.len(), 0..ADDRESSES4.len(), 0usize..7);
    let suffix = prop::sample::select(vec![0u8, 0, 0, 1]);
    let realm = prop::sample::select(vec![0u8, 0, 3]);
    (any::<bool>(), addresses, suffix, proto, port, realm, prop::bool::weighted(0.1)).prop_map(
        |(six, (source, destination, prefix), suffix, proto, port, realm, options)| Sent {
            six,
            source,
            destination,
            prefix,
            suffix,
            proto,
            port,
            realm,
            options,
        },
    )
}

impl Sent {
    fn bytes(&self) -> Vec<u8> {
        if self.six { self.bytes6() } else { self.bytes4() }
    }

    /// Makes a transport header with room for the fields of its protocol.
    fn payload(&self) -> Vec<u8> {
        let mut payload = vec![0; 24];
        payload[..2].copy_from_slice(&4000u16.to_be_bytes());
        payload[2..4].copy_from_slice(&self.port.to_be_bytes());
        match self.proto {
            proto::TCP => (payload[12], payload[13]) = (0x50, 2),
            proto::UDP => payload[5] = 24,
            _ => payload[0] = 8,
        }
        payload
    }

    fn bytes6(&self) -> Vec<u8> {
        let to = ADDRESSES4[self.destination];
        let mut destination = match prefixes().get(self.prefix) {
            Some(prefix) => prefix.embed(to),
            None if self.prefix == 4 => prefix(0x66, 96).embed(to),
            None if self.prefix == 5 => OWN6,
            None => HOSTS6[2],
        }
        .octets();
        // With a short prefix this byte follows the address; with 96 bits it is part of the address.
        destination[15] ^= self.suffix;
        let payload = self.payload();
        let mut packet = vec![0x60, 0, 0, 0, 0, payload.len() as u8, self.proto, 64];
        packet.extend(HOSTS6[self.source % HOSTS6.len()].octets());
        packet.extend(destination);
        packet.extend(payload);
        packet
    }

    fn bytes4(&self) -> Vec<u8> {
        let payload = self.payload();
        let len = if self.options { 24 } else { 20 };
        let mut header = vec![0; len];
        (header[0], header[8], header[9]) = (0x40 | (len / 4) as u8, 64, self.proto);
        header[2..4].copy_from_slice(&((len + payload.len()) as u16).to_be_bytes());
        header[12..16].copy_from_slice(&ADDRESSES4[self.source].octets());
        header[16..20].copy_from_slice(&ADDRESSES4[self.destination].octets());
        let sum = !checksum::sum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header.extend(payload);
        header
    }
}

/// Result of the look-ahead or of classification: the instance of a packet, or its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Inside6(PrefixOwner),
    Inside4(u8),
    Pool(PoolAddress),
    Siit(usize),
    /// Own address; the look-ahead does not know these.
    Own,
    Other,
}

fn hinted(hint: &Hint) -> Seen {
    match hint {
        Hint::None => Seen::Other,
        Hint::Session(hint) => Seen::Inside6(hint.owner),
        Hint::Session44(hint) => Seen::Inside4(hint.owner.instance),
        Hint::Binding(hint) => Seen::Pool(hint.at),
        Hint::Stateless6(hint) | Hint::Stateless4(hint) => Seen::Siit(hint.instance.into()),
    }
}

/// Returns the class of a packet, and whether its destination has a suffix after the address. The look-ahead
/// leaves such packets to the slow path.
fn classified(core: &Core, packet: &[u8], realm: u8) -> (Seen, bool) {
    let classifier = core.classifier();
    if packet[0] >> 4 == 6 {
        let Ok(view) = Ipv6View::parse(packet) else { return (Seen::Other, false) };
        let Ok(l4) = view.l4(packet) else { return (Seen::Other, false) };
        return match classifier.six(packet, &view, l4, realm).0 {
            Class6::Nat64(class) => {
                let plain = class.prefix.embed(class.prefix.extract_unchecked(view.dst));
                (Seen::Inside6(class.owner), plain != view.dst)
            }
            Class6::Own { .. } => (Seen::Own, false),
            Class6::Siit(number, _) => (Seen::Siit(number), false),
            Class6::Nobody(_) => (Seen::Other, false),
        };
    }
    let Ok(view) = Ipv4View::parse(packet) else { return (Seen::Other, false) };
    let Ok(l4) = view.l4(packet) else { return (Seen::Other, false) };
    let seen = match classifier.four(&view, l4, realm).0 {
        Class4::Own(_) => Seen::Own,
        Class4::Nat44(nat) => Seen::Inside4(nat.policy.instance),
        Class4::Exempt { .. } | Class4::Nobody(_) => Seen::Other,
        Class4::Pool(at) => Seen::Pool(at),
        Class4::Siit(number, _) => Seen::Siit(number),
    };
    (seen, false)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Checks that the look-ahead and classification agree if the look-ahead names an instance. If it names
    /// none for a plain packet of a stateful instance, the test knows the reason.
    #[test]
    fn look_ahead_agrees_with_classification(
        made in made(),
        packets in prop::collection::vec(sent(), 1..64),
    ) {
        let plan = made.plan();
        let Nat { core, .. } = Nat::new(&plan, [1, 2, 3, 4]).unwrap();
        for mut sent in packets {
            // Without realms in the plan, no packet has one.
            sent.realm = if core.rules.ruled { sent.realm } else { 0 };
            let bytes = sent.bytes();
            let mut buffer = vec![0; HEADROOM + bytes.len()];
            buffer[HEADROOM..].copy_from_slice(&bytes);
            let mut packet = Packet::new(&mut buffer, HEADROOM, bytes.len()).unwrap();
            packet.realm = sent.realm;
            let mut hints = [Hint::None];
            look_ahead::look(&core, core::slice::from_ref(&packet), &mut hints);
            let (hint, (class, has_suffix)) = (hinted(&hints[0]), classified(&core, &bytes, sent.realm));
            if hint != Seen::Other {
                prop_assert!(class == Seen::Own || hint == class, "{:?}: {:?}, {:?}", sent, hint, class);
                continue;
            }
            let is_plain = matches!(sent.proto, proto::TCP | proto::UDP) && !sent.options;
            let has_state = matches!(class, Seen::Inside6(_) | Seen::Inside4(_) | Seen::Pool(_));
            prop_assert!(!(is_plain && has_state) || has_suffix, "{:?} is {:?}", sent, class);
        }
    }
}
