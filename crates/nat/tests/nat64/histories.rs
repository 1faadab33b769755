//! Random histories of packets and time, with invariants that always hold.

use super::common::*;
use super::{POOL6, T};
use gatun_nat::plan::Filtering;
use gatun_nat::{Instant, Nat, Plan, Verdict};
use gatun_wire::{HEADROOM, Packet};
use proptest::prelude::*;
use std::collections::BTreeMap;

const PORTS: (u16, u16) = (2000, 2015);
const SUBSCRIBERS_MAX: u32 = 8;
const PORTS_PER_SUBSCRIBER: usize = 6;
const SESSIONS_MAX: u32 = 48;
const HELD_SYNS_MAX: u32 = 6;
const FLAGS: [&str; 8] = ["S", "SA", "A", "FA", "R", "PA", "SF", ""];

/// Sixteen ports for each protocol, and limits that histories reach.
fn plan(filtering: Filtering) -> Plan {
    let mut plan = plan_with(POOL6);
    plan.pools = vec![pool(T, T, PORTS)];
    plan.nat64[0].filtering = filtering;
    plan.limits.subscribers_max = SUBSCRIBERS_MAX;
    plan.limits.ports_per_subscriber = PORTS_PER_SUBSCRIBER as u32;
    plan.limits.sessions_per_subscriber = 12;
    plan.limits.sessions_max = SESSIONS_MAX;
    plan.limits.syn_store_max = HELD_SYNS_MAX;
    plan
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Udp,
    Tcp(usize),
    Echo { request: bool },
}

#[derive(Clone, Debug)]
enum Op {
    /// Packet from a client's port to a server.
    Out {
        client: u8,
        port: u8,
        server: u8,
        kind: Kind,
    },
    /// Packet from a server to a public port.
    In {
        server: u8,
        port: u8,
        kind: Kind,
    },
    /// Packet from a client to a public port.
    Hairpin {
        client: u8,
        port: u8,
        to: u8,
        kind: Kind,
    },
    /// An error about the last packet translated in the other direction, cut to `keep` bytes.
    Error {
        from_inside: bool,
        keep: u16,
    },
    /// The previous packet again, with a changed byte.
    Mangled {
        at: u16,
        value: u8,
    },
    Pass {
        ms: u32,
    },
    Back {
        ms: u32,
    },
    Sweep {
        budget: u8,
    },
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        2 => Just(Kind::Udp),
        1 => Just(Kind::Tcp(0)),
        3 => (0..FLAGS.len()).prop_map(Kind::Tcp),
        2 => any::<bool>().prop_map(|request| Kind::Echo { request }),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        10 => (0..10u8, 0..4u8, 0..3u8, kind())
            .prop_map(|(client, port, server, kind)| Op::Out { client, port, server, kind }),
        6 => (0..8u8, 0..18u8, kind()).prop_map(|(server, port, kind)| Op::In { server, port, kind }),
        3 => (0..10u8, 0..4u8, 0..18u8, kind())
            .prop_map(|(client, port, to, kind)| Op::Hairpin { client, port, to, kind }),
        3 => (any::<bool>(), 0..700u16).prop_map(|(from_inside, keep)| Op::Error { from_inside, keep }),
        2 => (0..100u16, any::<u8>()).prop_map(|(at, value)| Op::Mangled { at, value }),
        4 => prop_oneof![0..10_000u32, 0..400_000u32, Just(7_500_000u32)].prop_map(|ms| Op::Pass { ms }),
        1 => (0..1_000_000u32).prop_map(|ms| Op::Back { ms }),
        2 => prop_oneof![0..4u8, Just(255)].prop_map(|budget| Op::Sweep { budget }),
    ]
}

fn client(n: u8) -> String {
    format!("2001:db8:1::{n:x}")
}

fn packet6(client: &str, port: u16, to: &str, to_port: u16, kind: Kind) -> Vec<u8> {
    match kind {
        Kind::Udp => udp6(client, port, to, to_port, b"udp"),
        Kind::Tcp(flags) => tcp6(client, port, to, to_port, FLAGS[flags], b"tcp"),
        Kind::Echo { request } => echo6(client, to, request, port, b"echo"),
    }
}

fn packet4(from: &str, from_port: u16, port: u16, kind: Kind) -> Vec<u8> {
    match kind {
        Kind::Udp => udp4(from, from_port, T, port, b"udp"),
        Kind::Tcp(flags) => tcp4(from, from_port, T, port, FLAGS[flags], b"tcp"),
        Kind::Echo { request } => echo4(from, T, request, port, b"echo"),
    }
}

fn protocol(kind: Kind) -> u8 {
    match kind {
        Kind::Udp => 17,
        Kind::Tcp(_) => 6,
        Kind::Echo { .. } => 1,
    }
}

/// A binding as seen in packets, and the time until which it certainly lives.
struct Seen {
    outside: u16,
    until: u64,
}

/// State of the reference model.
#[derive(Default)]
struct Observer {
    /// Time as the engine should see it: without jumps back.
    now: u64,
    seen: BTreeMap<(u8, u8, u8), Seen>,
}

impl Observer {
    /// Records that a packet of `client`'s `port` left from the outside port `outside`.
    fn left(&mut self, protocol: u8, client: u8, port: u8, outside: u16, life_ms: u64) {
        assert!((PORTS.0..=PORTS.1).contains(&outside));
        let now = self.now;
        for (&(p, c, inside), seen) in &self.seen {
            if p == protocol && seen.until > now && (c, inside) != (client, port) {
                assert_ne!(seen.outside, outside, "two live bindings share a port");
            }
        }
        let seen = self.seen.entry((protocol, client, port)).or_insert(Seen { outside, until: now });
        if seen.until > now {
            assert_eq!(seen.outside, outside, "a live binding changed its port");
        }
        seen.outside = outside;
        seen.until = seen.until.max(now + life_ms);
        let held = self.seen.iter().filter(|(k, s)| k.1 == client && s.until > now).count();
        assert!(held <= PORTS_PER_SUBSCRIBER, "{held} ports");
    }
}

/// An engine that gets the same packets in bursts.
struct Twin {
    nat: Nat,
    waiting: Vec<(Vec<u8>, Verdict, Vec<u8>)>,
}

impl Twin {
    /// Sends the waiting packets as one burst. The outcomes must be the same as one by one.
    fn flush(&mut self, now: Instant) {
        while !self.waiting.is_empty() {
            let n = self.waiting.len().min(gatun_nat::BURST);
            let batch: Vec<_> = self.waiting.drain(..n).collect();
            let mut bufs: Vec<Vec<u8>> = batch
                .iter()
                .map(|(packet, ..)| {
                    let mut buf = vec![0xa5; HEADROOM];
                    buf.extend(packet);
                    buf.extend([0xa5; 64]);
                    buf
                })
                .collect();
            let mut burst: Vec<Packet<'_>> = bufs
                .iter_mut()
                .zip(&batch)
                .map(|(buf, (packet, ..))| Packet::new(buf, HEADROOM, packet.len()).unwrap())
                .collect();
            let mut verdicts = vec![Verdict::Pass; n];
            assert_eq!(self.nat.process(now, &mut burst, &mut verdicts), n);
            for ((packet, (_, verdict, bytes)), got) in burst.iter().zip(&batch).zip(&verdicts) {
                assert_eq!((got, packet.bytes()), (verdict, &bytes[..]));
            }
        }
        assert!(self.nat.counters().conserved());
        self.nat.drain_emitted(|_| {});
    }
}

struct World {
    bed: Bed,
    twin: Twin,
    observer: Observer,
    last: Vec<u8>,
    last_out: Vec<u8>,
    last_in: Vec<u8>,
}

impl World {
    fn new(filtering: Filtering) -> World {
        let plan = plan(filtering);
        let bed = Bed::new(&plan);
        let twin = Twin { nat: Nat::new(&plan, [1, 2, 3, 4]).unwrap(), waiting: vec![] };
        let (last, last_out, last_in) = (vec![0x60], vec![], vec![]);
        World { bed, twin, observer: Observer::default(), last, last_out, last_in }
    }

    fn send(&mut self, packet: Vec<u8>) -> Outcome {
        let out = self.bed.send(&packet);
        self.twin.waiting.push((packet.clone(), out.verdict, out.bytes.clone()));
        self.last = packet;
        out
    }

    fn play(&mut self, op: &Op) {
        match *op {
            Op::Out { client: c, port, server, kind } => self.out(c, port, server, kind),
            Op::In { server, port, kind } => {
                let from = format!("198.51.100.{}", server + 1);
                let out = self.send(packet4(&from, 80, PORTS.0 + u16::from(port), kind));
                if out.verdict == Verdict::Forward {
                    self.last_in = out.bytes;
                }
            }
            Op::Hairpin { client: c, port, to, kind } => {
                let to = PORTS.0 + u16::from(to);
                let packet = packet6(&client(c), 5000 + u16::from(port), &behind(POOL6, T), to, kind);
                let out = self.send(packet);
                if out.verdict == Verdict::Forward {
                    self.last_in = out.bytes;
                }
            }
            Op::Error { from_inside, keep } => self.error(from_inside, keep.into()),
            Op::Mangled { at, value } => {
                let mut packet = self.last.clone();
                let at = usize::from(at) % packet.len();
                packet[at] = value;
                // The result may be as wrong as the packet was, so the test checks only the fates.
                let mut buf = vec![0; HEADROOM + packet.len()];
                buf[HEADROOM..].copy_from_slice(&packet);
                let mut burst = [Packet::new(&mut buf, HEADROOM, packet.len()).unwrap()];
                let mut verdicts = [Verdict::Pass];
                assert_eq!(self.bed.nat.process(self.bed.now, &mut burst, &mut verdicts), 1);
                let bytes = burst[0].bytes().to_vec();
                self.twin.waiting.push((packet, verdicts[0], bytes));
                self.bed.emitted();
                // The test does not know the state that it opened, if any.
            }
            Op::Pass { ms } => self.pass(ms.into()),
            Op::Back { ms } => {
                self.twin.flush(self.bed.now);
                self.bed.now = Instant(self.bed.now.0.saturating_sub(ms.into()));
            }
            Op::Sweep { budget } => {
                self.twin.flush(self.bed.now);
                self.bed.nat.expire(self.bed.now, budget.into());
                self.twin.nat.expire(self.bed.now, budget.into());
                self.bed.emitted().iter().for_each(|e| check(e));
                self.twin.nat.drain_emitted(|_| {});
            }
        }
        self.holds();
    }

    fn out(&mut self, c: u8, port: u8, server: u8, kind: Kind) {
        let server = behind(POOL6, &format!("198.51.100.{}", server + 1));
        let sessions = self.bed.nat.occupancy().sessions;
        let out = self.send(packet6(&client(c), 5000 + u16::from(port), &server, 80, kind));
        if out.verdict != Verdict::Forward {
            return;
        }
        let grown = self.bed.nat.occupancy().sessions > sessions;
        let life_ms = match kind {
            Kind::Udp => 300_000,
            Kind::Echo { request: true } => 60_000,
            Kind::Tcp(_) if grown => 240_000,
            _ => 0,
        };
        self.observer.left(protocol(kind), c, port, ends(&out.bytes).sport, life_ms);
        self.last_out = out.bytes;
    }

    fn error(&mut self, from_inside: bool, keep: usize) {
        let about = if from_inside { &self.last_in } else { &self.last_out };
        if about.is_empty() {
            return;
        }
        let e = ends(about);
        let quoted = &about[..keep.min(about.len())];
        let (host, sender) = (e.dst.to_string(), e.src.to_string());
        let packet = match from_inside {
            true => error6(&host, &sender, (1, 4, 0), quoted),
            false => error4(&host, &sender, (3, 3, 0), quoted),
        };
        let before = self.bed.nat.occupancy();
        self.send(packet);
        assert_eq!(self.bed.nat.occupancy(), before, "an error changes no state");
    }

    fn pass(&mut self, ms: u64) {
        self.twin.flush(self.bed.now);
        self.bed.now = self.bed.now.plus_ms(ms);
        self.observer.now += ms;
    }

    /// Checks the invariants.
    fn holds(&self) {
        let there = self.bed.nat.occupancy();
        assert!(there.sessions <= SESSIONS_MAX as usize);
        assert!(there.bindings <= there.sessions);
        assert!(there.subscribers <= SUBSCRIBERS_MAX as usize);
        assert!(there.held_syns <= HELD_SYNS_MAX as usize);
        assert!(self.bed.nat.counters().held >= there.held_syns as u64, "fragments may wait too");
        assert!(self.bed.nat.counters().conserved());
    }

    /// Lets all sessions end, and checks that every port has returned.
    fn end(&mut self) {
        self.twin.flush(self.bed.now);
        for _ in 0..3 {
            self.bed.now = self.bed.now.plus_ms(7_500_000);
            for _ in 0..4 {
                self.bed.now = self.bed.now.plus_ms(4_000);
                self.bed.nat.expire(self.bed.now, usize::MAX);
            }
            self.bed.emitted();
        }
        assert_eq!(self.bed.nat.occupancy(), Default::default());
        assert_eq!(self.bed.nat.counters().held, 0);
        for n in 0..8 {
            for port in [1, 2] {
                for kind in [Kind::Udp, Kind::Tcp(0), Kind::Echo { request: true }] {
                    let packet = packet6(&client(100 + n), port + 6000, &behind(POOL6, SERVER), 80, kind);
                    self.bed.send(&packet).forwarded();
                }
            }
        }
        assert_eq!(self.bed.nat.occupancy().bindings, 48);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    // proves: R47-1, R47-3, R53-7, A61-24, A61-51
    #[test]
    fn histories_share_no_ports_keep_quotas_and_return_everything(
        by_address in any::<bool>(),
        ops in prop::collection::vec(op(), 0..250),
    ) {
        let filtering =
            if by_address { Filtering::AddressDependent } else { Filtering::EndpointIndependent };
        let mut world = World::new(filtering);
        for op in &ops {
            world.play(op);
        }
        world.end();
    }
}

/// Events of one binding with address-dependent filtering.
#[derive(Clone, Debug)]
enum Contact {
    /// The inside host sends a SYN to an address and port: a new session, or a longer lifetime.
    Open {
        address: u8,
        port: u8,
    },
    /// A packet arrives from another port of an address.
    Ask {
        address: u8,
    },
    /// Time passes, always less than a lifetime, so that it is clear which sessions live.
    Pass {
        sevens: u8,
    },
    Sweep,
}

fn contact() -> impl Strategy<Value = Contact> {
    prop_oneof![
        6 => (0..4u8, 1..5u8).prop_map(|(address, port)| Contact::Open { address, port }),
        4 => (0..5u8).prop_map(|address| Contact::Ask { address }),
        4 => (0..25u8).prop_map(|sevens| Contact::Pass { sevens }),
        2 => Just(Contact::Sweep),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    // proves: A61-22, R53-3, R47-8
    #[test]
    fn the_filter_agrees_with_a_list_of_contacts(
        contacts in prop::collection::vec(contact(), 0..120),
    ) {
        const LIFETIME_MS: u64 = 240_000;
        let mut plan = plan_with(POOL6);
        plan.nat64[0].filtering = Filtering::AddressDependent;
        let mut bed = Bed::new(&plan);
        let mut contacted: BTreeMap<(u8, u8), u64> = BTreeMap::new();
        let (mut now_ms, mut outside) = (0u64, 0);
        let ip = |address: u8| format!("198.51.100.{}", address + 1);
        for contact in contacts {
            match contact {
                Contact::Open { address, port } => {
                    let server = behind(POOL6, &ip(address));
                    let syn = tcp6("2001:db8:1::1", 5000, &server, port.into(), "S", b"");
                    outside = bed.through(&syn).sport;
                    contacted.insert((address, port), now_ms);
                }
                Contact::Ask { address } => {
                    let alive = |(&(a, _), &at): (&(u8, u8), &u64)| a == address && at + LIFETIME_MS > now_ms;
                    let known = contacted.iter().any(alive);
                    // This is not a SYN, so it creates no session in either case.
                    let verdict = bed.send(&tcp4(&ip(address), 9999, T, outside, "A", b"")).verdict;
                    prop_assert_eq!(verdict == Verdict::Forward, known, "{:?} at {}", contacted, now_ms);
                }
                Contact::Pass { sevens } => {
                    let ms = u64::from(sevens) * 7_000;
                    now_ms += ms;
                    bed.now = bed.now.plus_ms(ms);
                }
                Contact::Sweep => {
                    bed.nat.expire(bed.now, usize::MAX);
                }
            }
        }
    }
}
