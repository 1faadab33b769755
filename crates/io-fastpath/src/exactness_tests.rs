//! The programs against the engine, by BPF_PROG_TEST_RUN: sessions are opened in an engine by packets, and
//! those that are established are installed. Every packet is given to both. A program writes the same bytes
//! as the engine, or leaves the packet as it is.

mod beside_nat;
pub(crate) mod beside_wire;
mod histories;
mod interface;
pub(crate) mod loaded;
#[path = "../../nat/tests/support/nat44.rs"]
mod nat44;
#[path = "../../nat/tests/support/nat64.rs"]
mod nat64;
mod sessions;
mod stateless;
#[path = "../../wire/tests/support/all.rs"]
mod wire;

use crate::config::FastPathConfig;
use crate::control::{IdentRange, KernelTime};
use crate::counters::{Counters, Reason};
use crate::flow::{Flow, Inside, Protocol};
use crate::instance::Instance;
use crate::table::{SlotId, Table};
use gatun_nat::inspect::{Selection, SessionCursor, SessionInfo};
use gatun_nat::plan::{self, Plan, Pool4, PoolRange, Transport};
use gatun_nat::tcp_fsm::TcpState;
use gatun_nat::{Instant, Nat, Verdict};
use gatun_wire::hdr::ipv4;
use gatun_wire::{HEADROOM, Offload, Packet, Prefix64, Segmentation, Settings, checksum, proto};
use loaded::Loaded;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

const POOL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PRIVATE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);
const SYN: u8 = 2;
const ACK: u8 = 0x10;
const MAC: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

/// Result of TEST_RUN where the packet was translated (TC_ACT_REDIRECT), or passed on (TC_ACT_UNSPEC).
pub(crate) const TRANSLATED: u32 = 7;
const PASSED: u32 = u32::MAX;

pub(crate) fn refusal() -> Option<String> {
    let is_root = rustix::process::geteuid().is_root();
    (!is_root).then(|| "loading an eBPF program needs root".to_owned())
}

/// Hook that packets are given to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// Egress of the device.
    Device,
    /// XDP.
    Interface,
}

impl At {
    pub(crate) const ALL: [At; 2] = [At::Device, At::Interface];
}

/// An engine, and the program beside it.
pub(crate) struct Pair {
    pub(crate) at: At,
    nat: Nat,
    pub(crate) kernel: Loaded,
    installed: BTreeMap<String, SlotId>,
    prefix: Prefix64,
    now: Instant,
}

fn config() -> FastPathConfig {
    FastPathConfig {
        device: String::new(),
        pins: None,
        capacity: 64,
        // Fewer than the tests have, so that some are in the tries.
        hosts: 3,
        hook: None,
        xdp: Vec::new(),
        idents: IdentRange::beside(1),
        pending_max: Duration::from_secs(1),
        seed: 7,
    }
}

/// A NAT64 and a NAT44 instance with the same pool.
pub(crate) fn plan(prefix: Prefix64, settings: Settings) -> Plan {
    let range = PoolRange { first: POOL, last: POOL, ports: (1024, 65_535), transports: [true; 3] };
    Plan {
        pools: vec![Pool4 { name: "p".into(), ranges: vec![range], ..Pool4::default() }],
        nat64: vec![plan::Nat64 {
            name: "n".into(),
            pool6: vec![prefix],
            settings,
            ..plan::Nat64::default()
        }],
        nat44: vec![plan::Nat44 {
            name: "p".into(),
            inside: vec![plan::Net4 { addr: Ipv4Addr::new(10, 0, 0, 0), len: 8 }],
            mtu: settings.mtu4,
            ..plan::Nat44::default()
        }],
        ..Plan::default()
    }
}

impl Pair {
    fn new(prefix: Prefix64, settings: Settings) -> Pair {
        Pair::of(At::Device, &plan(prefix, settings), prefix, settings)
    }

    pub(crate) fn of(at: At, plan: &Plan, prefix: Prefix64, settings: Settings) -> Pair {
        let mut nat = Nat::new(plan, [1, 2, 3, 4]).unwrap();
        nat.set_worker(0, 2);
        let kernel = Loaded::new(at);
        kernel.table.set_instance(0, Instance::nat64(&settings)).unwrap();
        kernel.table.set_instance(1, Instance::nat44(settings.mtu4)).unwrap();
        Pair { at, nat, kernel, installed: BTreeMap::new(), prefix, now: Instant(1_000) }
    }

    /// Ends what has expired in the engine, and makes the kernel's sessions those that are established.
    fn reconcile(&mut self) {
        self.nat.expire(self.now, 1_000);
        let mut sessions = Vec::with_capacity(100);
        self.nat.read_sessions(&mut SessionCursor::default(), &Selection::default(), 10_000, &mut sessions);
        // Hairpins are never installed.
        sessions.retain(|s| s.remote.0 != POOL && s.expires_ms > 0);
        sessions.retain(|s| s.tcp.is_none_or(|state| state == TcpState::Established));
        let mut wanted = BTreeMap::new();
        for session in &sessions {
            let flow = self.flow(session);
            wanted.insert(format!("{flow:?}"), flow);
        }
        // A session that the engine keeps open after a FIN or RST begins anew.
        let is_closing = |id: &SlotId| self.kernel.table.peek(*id).is_some_and(|used| used.is_closing);
        let gone = self.installed.iter().filter(|(key, id)| !wanted.contains_key(*key) || is_closing(id));
        let gone: Vec<String> = gone.map(|(key, _)| key.clone()).collect();
        let ids: Vec<SlotId> = gone.iter().filter_map(|key| self.installed.remove(key)).collect();
        self.kernel.table.remove(&ids, &mut Vec::new());
        wanted.retain(|key, _| !self.installed.contains_key(key));
        let flows: Vec<Flow> = wanted.values().copied().collect();
        let placed = self.install(&flows);
        self.installed.extend(wanted.into_keys().zip(placed));
    }

    /// Installs sessions that are not pending: the hook at interfaces does not end that.
    pub(crate) fn install(&mut self, flows: &[Flow]) -> Vec<SlotId> {
        let install =
            |flow: &Flow| self.kernel.table.install_one(&flow.outbound(), flow, KernelTime(0)).unwrap();
        flows.iter().map(install).collect()
    }

    fn flow(&self, session: &SessionInfo) -> Flow {
        let host = session.inside.0;
        Flow {
            inside: match host.to_ipv4_mapped() {
                Some(host) => Inside::Four(host),
                None => Inside::Six { host, remote: self.prefix.embed(session.remote.0) },
            },
            inside_port: session.inside.1,
            outside: session.outside,
            remote: session.remote,
            protocol: match session.transport {
                Transport::Tcp => Protocol::Tcp,
                _ => Protocol::Udp,
            },
            instance: session.instance,
            worker: 0,
            epoch: 0,
            record: 0,
            path_mtu: None,
            ident: 9,
        }
    }

    /// The program's result on a packet.
    pub(crate) fn run(&mut self, packet: &[u8], gso_size: u32) -> (u32, Vec<u8>, u32) {
        self.kernel.run(packet, gso_size)
    }

    /// The engine's result on a packet.
    fn translate(&mut self, packet: &[u8], gso_size: u32) -> (Verdict, Vec<u8>, Offload) {
        let mut buffer = [&[0; HEADROOM][..], packet, &[0; 64]].concat();
        let mut offload = Offload::default();
        if gso_size > 0 {
            offload.segmentation = match packet[if packet[0] >> 4 == 4 { 9 } else { 6 }] {
                proto::TCP => Segmentation::Tcp { size: gso_size as u16, ecn: false },
                _ => Segmentation::Udp { size: gso_size as u16 },
            };
        }
        let mut burst = [Packet::with_offload(&mut buffer, HEADROOM, packet.len(), offload).unwrap()];
        let mut verdicts = [Verdict::Pass];
        assert_eq!(self.nat.process(self.now, &mut burst, &mut verdicts), 1);
        self.nat.drain_emitted(|_| ());
        (verdicts[0], burst[0].bytes().to_vec(), burst[0].offload)
    }

    fn packets_of(&self, reason: Reason) -> u64 {
        let rows = [Some(0), Some(1), None];
        let stateful: u64 = rows.iter().map(|row| self.counters(*row).of(reason)).sum();
        let stateless = [0, 1].map(|row| self.stateless_counters(row).of(reason));
        stateful + stateless.iter().sum::<u64>()
    }

    fn counters(&self, instance: Option<u8>) -> Counters {
        let table = &self.kernel.table;
        let read = if self.at == At::Device { Table::counters } else { Table::xdp_counters };
        read(table, instance).unwrap()
    }

    fn stateless_counters(&self, instance: u8) -> Counters {
        let read =
            if self.at == At::Device { Table::stateless_counters } else { Table::xdp_stateless_counters };
        read(&self.kernel.table, instance).unwrap()
    }

    /// Gives a packet to both, and returns whether the program translated it, and what the engine sent.
    fn compare(&mut self, made: &Made, packet: &[u8]) -> Result<(bool, Option<Vec<u8>>), TestCaseError> {
        self.reconcile();
        let hits = self.packets_of(Reason::Hit);
        let (result, kernel, mark) = self.run(packet, made.gso_size);
        // The network stack cuts off padding.
        let len = packet.len() - interface::padding(self.at, packet);
        let (verdict, engine, offload) = self.translate(&packet[..len], made.gso_size);
        let is_hit = result == TRANSLATED;
        prop_assert_eq!(self.packets_of(Reason::Hit) - hits, u64::from(is_hit));
        if is_hit {
            prop_assert_eq!(verdict, Verdict::Forward, "{:?}", made);
            prop_assert_eq!(offload.segmentation != Segmentation::None, made.gso_size > 0);
            prop_assert_eq!(mark, 0);
            prop_assert_eq!(&without_ident(&kernel, packet), &without_ident(&engine, packet), "{:?}", made);
            check_ident(&kernel, &engine, packet)?;
        } else {
            prop_assert_eq!(result, PASSED, "{:?}", made);
            prop_assert_eq!(&kernel, packet, "{:?}", made);
            prop_assert_eq!(mark, 5);
        }
        Ok((is_hit, (verdict == Verdict::Forward).then_some(engine)))
    }
}

/// Returns true if the translator chooses the identification of the packet that it made of `from`.
fn chooses_ident(from: &[u8], to: &[u8]) -> bool {
    let may_be_cut = from[6] & 0x40 == 0;
    to[0] >> 4 == 4 && (from[0] >> 4 == 6 || from[12] == PRIVATE.octets()[0] && may_be_cut)
}

/// The packet with its identification zero, if the translator chose it, and with the checksum that belongs to
/// that.
fn without_ident(packet: &[u8], from: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if chooses_ident(from, &packet) {
        assert_eq!(checksum::sum(&packet[..20]), 0xffff, "the header's checksum");
        packet[4..6].fill(0);
        ipv4::set_checksum(&mut packet[..20]);
    }
    packet
}

/// Identifications of the kernel are odd, those of the engine's one worker even.
fn check_ident(kernel: &[u8], engine: &[u8], from: &[u8]) -> Result<(), TestCaseError> {
    if chooses_ident(from, kernel) {
        prop_assert_eq!((kernel[5] & 1, engine[5] & 1), (1, 0));
    }
    Ok(())
}

/// Packet to be made.
#[derive(Clone, Copy, Debug)]
struct Made {
    outbound: bool,
    private: bool,
    tcp: bool,
    port: u8,
    flags: u8,
    tos: u8,
    ttl: u8,
    dont_fragment: bool,
    payload: usize,
    gso_size: u32,
    odd: Odd,
    later_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Odd {
    Nothing,
    TrailingBytes,
    CutOff,
    NoChecksum,
    WrongChecksum,
    WrongHeader,
    Fragment,
    Option,
    ToThePool,
    OtherPrefix,
    FlowLabel,
    ShortTcp,
}

const PLAIN: Made = Made {
    outbound: true,
    private: false,
    tcp: false,
    port: 0,
    flags: ACK,
    tos: 0,
    ttl: 64,
    dont_fragment: false,
    payload: 30,
    gso_size: 0,
    odd: Odd::Nothing,
    later_ms: 0,
};

const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 51, 100, 7), 443);

impl Made {
    /// The packet as it is at a hook: interfaces have no super-packets.
    fn at(self, at: At) -> Made {
        let gso_size = if at == At::Interface { 0 } else { self.gso_size };
        Made { gso_size, ..self }
    }

    fn client(&self) -> (Ipv6Addr, u16) {
        (Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 5), 5000 + u16::from(self.port))
    }

    fn protocol(&self) -> u8 {
        if self.tcp { proto::TCP } else { proto::UDP }
    }

    fn l4(&self, src_port: u16, dst_port: u16, addresses: &[u8]) -> Vec<u8> {
        let mut l4 = vec![0u8; if self.tcp { 20 } else { 8 }];
        l4[..2].copy_from_slice(&src_port.to_be_bytes());
        l4[2..4].copy_from_slice(&dst_port.to_be_bytes());
        l4.extend((0..self.payload).map(|i| i as u8 ^ self.tos));
        if self.tcp {
            (l4[12], l4[13]) = (0x50, self.flags);
            if self.odd == Odd::ShortTcp {
                l4.truncate(16);
            }
        } else {
            let len = l4.len() as u16;
            l4[4..6].copy_from_slice(&len.to_be_bytes());
        }
        let at = if self.tcp { 16 } else { 6 };
        if at + 2 > l4.len() || self.odd == Odd::NoChecksum {
            return l4;
        }
        let pseudo = checksum::pseudo(addresses, l4.len() as u32, self.protocol());
        let wrong = if self.odd == Odd::WrongChecksum { 0x0101 } else { 0 };
        // Zero would mean that there is none (RFC 768).
        let sum = match !checksum::add(pseudo, checksum::sum(&l4)) ^ wrong {
            0 if !self.tcp => 0xffff,
            sum => sum,
        };
        l4[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        l4
    }

    fn six(&self, prefix: &Prefix64) -> Vec<u8> {
        let server = if self.odd == Odd::ToThePool { POOL } else { SERVER.0 };
        let mut dst = prefix.embed(server).octets();
        if self.odd == Odd::OtherPrefix {
            dst[1] ^= 1;
        }
        self.six_between(self.client(), (dst.into(), SERVER.1))
    }

    fn six_between(&self, from: (Ipv6Addr, u16), to: (Ipv6Addr, u16)) -> Vec<u8> {
        let addresses = [from.0.octets(), to.0.octets()].concat();
        let l4 = self.l4(from.1, to.1, &addresses);
        let label = if self.odd == Odd::FlowLabel { [0xa, 0xbc, 0xde] } else { [0; 3] };
        let mut p = vec![0x60 | self.tos >> 4, self.tos << 4 | label[0], label[1], label[2]];
        p.extend((l4.len() as u16).to_be_bytes());
        p.extend([self.protocol(), self.ttl]);
        p.extend(addresses);
        match self.odd {
            Odd::WrongHeader => p[0] ^= 0x10,
            Odd::Fragment => {
                self.extend(&mut p, proto::FRAGMENT, [self.protocol(), 0, 0, 1, 0, 0, 0, 9], l4.len())
            }
            Odd::Option => self.extend(&mut p, 60, [self.protocol(), 0, 1, 4, 0, 0, 0, 0], l4.len()),
            _ => {}
        }
        p.extend(l4);
        p
    }

    fn extend(&self, p: &mut Vec<u8>, kind: u8, header: [u8; 8], l4_len: usize) {
        p[6] = kind;
        p[4..6].copy_from_slice(&(l4_len as u16 + 8).to_be_bytes());
        p.extend(header);
    }

    fn four(&self, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Vec<u8> {
        let to = if self.odd == Odd::ToThePool { (POOL, to.1) } else { to };
        let addresses = [from.0.octets(), to.0.octets()].concat();
        let l4 = self.l4(from.1, to.1, &addresses);
        let options: &[u8] = if self.odd == Odd::Option { &[1, 1, 1, 0] } else { &[] };
        let flags = match self.odd {
            Odd::Fragment => ipv4::MF,
            _ if self.dont_fragment => ipv4::DF,
            _ => 0,
        };
        let mut p = vec![0x45 + options.len() as u8 / 4, self.tos];
        p.extend((20 + options.len() as u16 + l4.len() as u16).to_be_bytes());
        p.extend([0x12, 0x34]);
        p.extend(flags.to_be_bytes());
        p.extend([self.ttl, self.protocol(), 0, 0]);
        p.extend(addresses);
        p.extend(options);
        ipv4::set_checksum(&mut p);
        if self.odd == Odd::WrongHeader {
            p[11] ^= 1;
        }
        p.extend(l4);
        p
    }

    /// The packet's bytes. `outside`: the public end of its flow.
    fn bytes(&self, prefix: &Prefix64, outside: (Ipv4Addr, u16)) -> Vec<u8> {
        let mut bytes = match (self.outbound, self.private) {
            (true, false) => self.six(prefix),
            (true, true) => self.four((PRIVATE, self.client().1), SERVER),
            (false, _) => self.four(SERVER, outside),
        };
        match self.odd {
            Odd::TrailingBytes => bytes.extend([1, 2, 3]),
            Odd::CutOff => bytes.truncate(bytes.len() - 1),
            _ => {}
        }
        bytes
    }

    /// Returns true if the program has to translate the packet, if its session is established and it fits.
    fn is_plain(&self, at: At) -> bool {
        let odd = matches!(self.odd, Odd::Nothing | Odd::WrongChecksum | Odd::FlowLabel)
            || at == At::Interface && self.odd == Odd::TrailingBytes;
        odd && self.ttl > 1 && !(self.tcp && self.flags & 7 != 0) && (self.tcp || self.gso_size == 0)
    }
}

/// Public source of a translated packet.
fn outside_of(packet: &[u8]) -> (Ipv4Addr, u16) {
    let address = <[u8; 4]>::try_from(&packet[12..16]).unwrap();
    (address.into(), u16::from_be_bytes([packet[20], packet[21]]))
}

/// Opens the session of a flow; returns its public end.
fn open_session(pair: &mut Pair, made: Made) -> (Ipv4Addr, u16) {
    let first = Made { outbound: true, flags: SYN, ..made };
    let (_, sent) = pair.compare(&first, &first.bytes(&pair.prefix, (POOL, 0))).unwrap();
    let outside = outside_of(&sent.unwrap());
    let answer = Made { outbound: false, flags: SYN | ACK, ..made };
    pair.compare(&answer, &answer.bytes(&pair.prefix, outside)).unwrap();
    outside
}

pub(crate) fn well_known() -> Prefix64 {
    Prefix64::new(Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0, 0), 96).unwrap()
}

#[test]
fn plain_packets_of_every_kind_of_session_are_translated_both_ways() {
    if let Some(why) = refusal() {
        return gatun_testkit::skip(&why);
    }
    At::ALL.into_iter().for_each(translates_plain_packets);
}

fn translates_plain_packets(at: At) {
    let settings = Settings::default();
    let mut pair = Pair::of(at, &plan(well_known(), settings), well_known(), settings);
    for (port, (private, tcp)) in (0u8..).zip([(false, false), (false, true), (true, false), (true, true)]) {
        let made = Made { private, tcp, port, ..PLAIN };
        let outside = open_session(&mut pair, made);
        for outbound in [true, false, true] {
            for (dont_fragment, payload) in [(false, 0), (true, 1), (false, 1200), (true, 1232), (true, 1400)]
            {
                let made = Made { outbound, dont_fragment, payload, tos: 0xb9, ..made };
                let (hit, sent) = pair.compare(&made, &made.bytes(&pair.prefix, outside)).unwrap();
                assert!(hit && sent.is_some(), "{made:?}");
            }
        }
        let id = *pair.installed.values().next_back().unwrap();
        assert!(pair.kernel.table.peek(id).is_some());
    }
    assert_eq!(pair.kernel.table.len(), 4);
    let used: Vec<_> = pair.installed.values().map(|id| pair.kernel.table.take(*id).unwrap()).collect();
    let mut counted: Vec<_> =
        used.iter().map(|used| [used.outbound, used.inbound].map(|d| (d.packets, d.bytes))).collect();
    counted.sort_unstable();
    // Headers: TCP 20 bytes, UDP 8; IPv6 40, IPv4 20. The answer to the first datagram is translated already.
    let payloads = 1 + 1200 + 1232 + 1400;
    let expected = |l3: u64, l4: u64| {
        let (answers, of_answer) = if l4 == 8 { (1, 20 + 8 + 30) } else { (0, 0) };
        [(10, 2 * (payloads + 5 * (l3 + l4))), (5 + answers, payloads + 5 * (20 + l4) + of_answer)]
    };
    assert_eq!(counted, [expected(20, 8), expected(20, 20), expected(40, 8), expected(40, 20)]);
    assert_eq!(pair.kernel.table.take(*pair.installed.values().next().unwrap()).unwrap().outbound.packets, 0);
}

fn made() -> impl Strategy<Value = Made> {
    use Odd::*;
    let odd = prop_oneof![
        14 => Just(Nothing),
        10 => prop::sample::select(vec![TrailingBytes, CutOff, NoChecksum, WrongChecksum, WrongHeader, Fragment,
            Option, ToThePool, OtherPrefix, FlowLabel, ShortTcp]),
    ];
    let flags = prop_oneof![8 => Just(ACK), 2 => Just(SYN), 1 => any::<u8>()];
    let payload = prop_oneof![4 => 0usize..64, 2 => 1180usize..1500, 1 => 1500usize..3000];
    let ttl = prop_oneof![6 => Just(64u8), 1 => 0u8..3];
    let later = prop_oneof![12 => Just(0u64), 2 => 1u64..200, 1 => 200_000u64..400_000];
    let gso = prop_oneof![5 => Just(0u32), 1 => 500u32..1500];
    (
        (any::<bool>(), any::<bool>(), any::<bool>(), 0u8..2, flags, any::<u8>()),
        (ttl, any::<bool>(), payload, odd, later, gso),
    )
        .prop_map(|(a, b)| {
            let (
                (outbound, private, tcp, port, flags, tos),
                (ttl, dont_fragment, payload, odd, later_ms, gso_size),
            ) = (a, b);
            Made {
                outbound,
                private,
                tcp,
                port,
                flags,
                tos,
                ttl,
                dont_fragment,
                payload,
                gso_size,
                odd,
                later_ms,
            }
        })
}

proptest! {
    #![proptest_config(property_config())]
    #[test]
    fn random_packets_become_the_bytes_of_the_engine_or_stay_as_they_are(
        prefix_len in prop::sample::select(vec![96u8, 96, 64, 40, 32]),
        tos in prop::option::of(any::<u8>()),
        mtu4 in prop::sample::select(vec![1500u32, 1260, 576]),
        mtu6 in prop::sample::select(vec![1500u32, 1280]),
        at in prop::sample::select(At::ALL.to_vec()),
        history in prop::collection::vec(made(), 40..160),
    ) {
        if let Some(why) = refusal() {
            gatun_testkit::skip(&why);
            return Ok(());
        }
        let (tos_6to4, traffic_class_4to6) = (tos, tos.map(|tos| !tos));
        let settings = Settings { tos_6to4, traffic_class_4to6, mtu4, mtu6, ..Settings::default() };
        let prefix = Prefix64::new(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), prefix_len).unwrap();
        let mut pair = Pair::of(at, &plan(prefix, settings), prefix, settings);
        let mut outside = [(POOL, 2000u16); 8];
        for made in history {
            let made = made.at(at);
            pair.now = pair.now.plus_ms(made.later_ms);
            let flow = usize::from(made.port) * 4 + usize::from(made.tcp) * 2 + usize::from(made.private);
            let bytes = made.bytes(&prefix, outside[flow]);
            pair.reconcile();
            let too_large = pair.packets_of(Reason::TooLarge);
            let is_installed = pair.kernel.table.iter().any(|(_, of)| is_of(&of, &made, outside[flow]));
            let (hit, sent) = pair.compare(&made, &bytes)?;
            if made.is_plain(at) && is_installed && pair.packets_of(Reason::TooLarge) == too_large {
                prop_assert!(hit, "{:?} {:?}", made, Reason::ALL.map(|r| (r, pair.packets_of(r))));
            }
            if let Some(sent) = sent.filter(|_| made.outbound && made.odd == Odd::Nothing) {
                outside[flow] = outside_of(&sent);
            }
        }
    }
}

/// Fewer histories in a virtual machine.
fn property_config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(64);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Returns true if a packet belongs to a flow.
fn is_of(flow: &Flow, made: &Made, outside: (Ipv4Addr, u16)) -> bool {
    let protocol = if made.tcp { Protocol::Tcp } else { Protocol::Udp };
    flow.protocol == protocol
        && flow.outside == outside
        && flow.inside_port == made.client().1
        && matches!(flow.inside, Inside::Four(_)) == made.private
}
