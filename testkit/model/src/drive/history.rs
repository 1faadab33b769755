//! Steps of a history. They name hosts and bindings, not bytes, so that the rest keeps its meaning when one
//! is left out.

#![allow(missing_docs)] // field names say it

use super::rng::Rng;

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A packet from inside to a remote host.
    Out { proto: Proto, host: u8, port: u8, remote: u8, rport: u8, form: Form },
    /// A packet from a remote host to an outside address and port.
    In { proto: Proto, target: Target, remote: u8, rport: u8, form: Form },
    /// A packet from inside to an outside address and port.
    Hairpin { proto: Proto, host: u8, port: u8, target: Target, form: Form },
    /// A flood of packets.
    Flood { flood: Flood, proto: Proto, door: u8, host: u8, remote: u8, first: u16, packets: u8 },
    /// A ping or another packet to the translator itself, from inside or outside.
    Ping { inside: bool, host: u8, form: Form },
    /// An ICMP error about a recently forwarded packet, cut to `keep` bytes.
    Error { inside: bool, about: u8, kind: u8, code: u8, word: u32, router: u8, keep: u16, form: Form },
    /// A recently received packet again, perhaps from `astray` realms further on.
    Again { back: u8, astray: u8, twist: PacketDefect },
    /// The clock moves forwards or backwards.
    Clock { ms: i64 },
    /// The engine ends what is due.
    Expire { budget: u32 },
    /// The clock moves on until the sweep has ended everything due; then state must be exact.
    Settle,
    /// The packets so far are one burst.
    Flush,
    /// Engine and model get another plan, made from this seed.
    Reload { seed: u64 },
}

/// Type of a flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// One inside host, many of its ports.
    Ports,
    /// One inside port, many ports of a remote host: a scan.
    Scan,
    /// Packets from a remote host to many public ports.
    FromOutside,
    /// Many inside hosts of one prefix.
    Hosts,
}

/// Protocol of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proto {
    /// TCP with these flags.
    Tcp(u8),
    /// UDP.
    Udp,
    /// UDP without checksum.
    UdpZero,
    /// An echo request or reply.
    Echo(bool),
    /// Another ICMP type.
    Icmp(u8),
    /// Another protocol.
    Other(u8),
}

/// An outside address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Outside end of this host's binding, in an instance's realm.
    Of { door: u8, host: u8, port: u8 },
    /// Any address and port of the pools.
    Port { address: u8, port: u16 },
}

/// Free fields of the header, and defects of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// TTL.
    pub ttl: u8,
    /// TOS.
    pub tos: u8,
    /// Bytes of payload.
    pub len: u16,
    /// Don't Fragment.
    pub df: bool,
    /// Instance: each prefix of the NAT64 instances, then each NAT44 instance.
    pub door: u8,
    /// Realms between its own one and the one it comes from.
    pub astray: u8,
    /// Defect.
    pub twist: PacketDefect,
    /// Fragmentation, if it is fragmented.
    pub cut: Option<Cut>,
}

impl Op {
    /// Form of the packet, if the step has one.
    pub fn form(&self) -> Option<&Form> {
        match self {
            Op::Out { form, .. }
            | Op::In { form, .. }
            | Op::Hairpin { form, .. }
            | Op::Error { form, .. }
            | Op::Ping { form, .. } => Some(form),
            _ => None,
        }
    }

    /// The same step with another form.
    pub fn with_form(&self, new: Form) -> Op {
        let mut op = self.clone();
        if let Op::Out { form, .. }
        | Op::In { form, .. }
        | Op::Hairpin { form, .. }
        | Op::Error { form, .. }
        | Op::Ping { form, .. } = &mut op
        {
            *form = new;
        }
        op
    }
}

/// Defect of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketDefect {
    /// No defect.
    None,
    /// Truncated to so many bytes.
    Truncate(u16),
    /// Followed by additional bytes.
    Pad(u8),
    /// One byte changed; with `mend`, header checksums are right again.
    Byte { at: u16, value: u8, mend: bool },
    /// IPv4 options, or IPv6 extension headers.
    Options(u8),
    /// Wrong transport checksum.
    BadSum(u16),
}

/// Fragmentation of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Identification.
    pub id: u8,
    /// Bytes of each fragment.
    pub size: u16,
    /// Number of the order in which fragments arrive.
    pub order: u8,
    /// Defect of the fragments.
    pub odd: FragmentDefect,
}

/// Defect of a datagram's fragments, by fragment number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentDefect {
    /// No defect.
    Nothing,
    /// This fragment is missing.
    Missing(u8),
    /// All other fragments are missing.
    Only(u8),
    /// This fragment arrives twice.
    Doubled(u8),
    /// This fragment begins eight bytes early.
    Shifted(u8),
    /// This fragment claims to be the last.
    Last(u8),
}

impl Form {
    /// No defect.
    pub const PLAIN: Form =
        Form { ttl: 64, tos: 0, len: 5, df: false, door: 0, astray: 0, twist: PacketDefect::None, cut: None };
}

const FLAGS: [u8; 12] = [2, 2, 2, 18, 16, 17, 4, 20, 24, 1, 16, 2];
const ODD_FLAGS: [u8; 6] = [3, 6, 0, 0x29, 0x3f, 0xc2];

/// A history of `steps` steps.
pub fn history(seed: u64, steps: usize) -> Vec<Op> {
    let mut r = Rng::new(seed);
    // Some histories are long and have few hosts, some have floods.
    let focus = Focus {
        hosts: r.of(&[2, 4, 12]),
        ports: r.of(&[2, 4, 4, 12]),
        floods: r.of(&[0, 1, 3, 10]),
        remotes: r.of(&[1, 3, 6]),
        wild: r.of(&[4, 12, 60]),
        clocks: r.of(&[8, 20, 60]),
        pieces: r.of(&[0, 5, 20, 50]),
        reloads: r.of(&[0, 0, 1, 4]),
    };
    (0..steps).map(|_| op(&mut r, &focus)).collect()
}

/// The steps with more packets of established sessions: after each SYN from inside, the rest of the
/// handshake and data; after each UDP packet and ping from inside, more in both directions.
pub fn with_flows(ops: &[Op]) -> Vec<Op> {
    ops.iter().flat_map(|op| [op].into_iter().cloned().chain(flow_after(op))).collect()
}

fn flow_after(op: &Op) -> Vec<Op> {
    let Op::Out { proto, host, port, remote, rport, form } = *op else { return Vec::new() };
    let target = Target::Of { door: form.door, host, port };
    let form = Form { ttl: 64, twist: PacketDefect::None, cut: None, ..form };
    let outward = |proto, form| Op::Out { proto, host, port, remote, rport, form };
    let inward = |proto, form| Op::In { proto, target, remote, rport, form };
    let longer = Form { len: form.len + 9, tos: form.tos ^ 2, df: !form.df, ..form };
    match proto {
        Proto::Tcp(2) => vec![
            inward(Proto::Tcp(18), form),
            outward(Proto::Tcp(16), form),
            inward(Proto::Tcp(24), longer),
            outward(Proto::Tcp(24), longer),
        ],
        Proto::Udp => vec![inward(Proto::Udp, longer), outward(Proto::Udp, longer), inward(Proto::Udp, form)],
        Proto::Echo(true) => vec![
            inward(Proto::Echo(false), longer),
            outward(Proto::Echo(true), longer),
            inward(Proto::Echo(false), form),
        ],
        _ => Vec::new(),
    }
}

struct Focus {
    hosts: u8,
    ports: u8,
    /// Floods in a thousand steps.
    floods: u64,
    remotes: u8,
    /// One packet in so many has a defect.
    wild: u64,
    /// One step in so many moves the clock.
    clocks: u64,
    /// Fragmented packets in a hundred.
    pieces: u64,
    /// Changes of the plan in a thousand steps.
    reloads: u64,
}

fn op(r: &mut Rng, f: &Focus) -> Op {
    if r.one_in(f.clocks) {
        return clock(r);
    }
    if r.below(1_000) < f.reloads {
        return Op::Reload { seed: r.any() };
    }
    if r.below(1_000) < f.floods {
        return Op::Flood {
            flood: r.of(&[Flood::Ports, Flood::Ports, Flood::Scan, Flood::FromOutside, Flood::Hosts]),
            proto: proto(r),
            door: r.small(6),
            host: r.small(f.hosts),
            remote: r.small(f.remotes),
            first: r.of(&[1000, 1016, 1024, 5000, 60_000]),
            packets: r.small(200),
        };
    }
    match r.below(100) {
        0..3 => Op::Flush,
        3..40 => Op::Out {
            proto: proto(r),
            host: r.small(f.hosts),
            port: r.small(f.ports),
            remote: r.small(f.remotes),
            rport: r.small(3),
            form: form(r, f),
        },
        40..68 => Op::In {
            proto: proto(r),
            target: target(r, f),
            remote: r.small(f.remotes),
            rport: r.small(3),
            form: form(r, f),
        },
        68..82 => Op::Hairpin {
            proto: proto(r),
            host: r.small(f.hosts),
            port: r.small(f.ports),
            target: target(r, f),
            form: form(r, f),
        },
        82..93 => error(r, f),
        93 => Op::Ping { inside: r.one_in(2), host: r.small(f.hosts), form: form(r, f) },
        _ => Op::Again {
            back: r.small(4),
            astray: if r.one_in(3) { r.small(4) } else { 0 },
            twist: if r.one_in(4) { wild(r) } else { PacketDefect::None },
        },
    }
}

fn clock(r: &mut Rng) -> Op {
    match r.below(20) {
        0..6 => Op::Clock { ms: r.below(200) as i64 },
        6..11 => Op::Clock { ms: r.below(8_000) as i64 },
        11..13 => Op::Clock { ms: r.below(320_000) as i64 },
        13 => Op::Clock { ms: r.of(&[7_440_000, 240_000, 300_000, 60_000, 6_000, 2_000, 1 << 32, 1 << 40]) },
        14 => Op::Clock { ms: -(r.below(10_000_000) as i64) },
        15..19 => Op::Expire { budget: r.of(&[0, 1, 3, 64, u32::MAX]) },
        _ => Op::Settle,
    }
}

fn proto(r: &mut Rng) -> Proto {
    match r.below(40) {
        0..20 => Proto::Tcp(r.of(&FLAGS)),
        20 => Proto::Tcp(r.of(&ODD_FLAGS)),
        21..30 => Proto::Udp,
        30..32 => Proto::UdpZero,
        32..38 => Proto::Echo(!r.one_in(3)),
        38 => Proto::Icmp(r.of(&[13, 17, 4, 5, 130, 135, 137, 143, 200, 9, 3, 1])),
        _ => Proto::Other(r.of(&[132, 47, 50, 51, 2, 58, 1, 59, 0, 43, 44, 60])),
    }
}

fn target(r: &mut Rng, f: &Focus) -> Target {
    if r.one_in(4) {
        let port =
            r.of(&[1000, 1001, 1016, 1020, 1021, 1024, 1025, 1040, 1060, 2000, 2001, 22, 0, 1, 7, 9999]);
        return Target::Port { address: r.small(9), port };
    }
    Target::Of { door: r.small(6), host: r.small(f.hosts), port: r.small(f.ports) }
}

fn form(r: &mut Rng, f: &Focus) -> Form {
    let mut form = Form { door: r.small(6), ..Form::PLAIN };
    form.len = match r.below(40) {
        0 => r.below(1600) as u16,
        1 => r.of(&[1192, 1211, 1212, 1213, 1232, 1233, 1252, 1253, 1460, 1472, 1480, 548, 552]),
        2 => r.below(3000) as u16,
        _ => r.below(30) as u16,
    };
    form.df = r.one_in(3);
    if r.one_in(16) {
        form.astray = r.small(4);
    }
    if r.one_in(20) {
        form.ttl = r.small(4);
    }
    if r.one_in(8) {
        form.tos = r.any() as u8;
    }
    if r.one_in(f.wild) {
        form.twist = wild(r);
    }
    if r.below(100) < f.pieces {
        form.len = r.of(&[48, 200, 400, 1400, 2600]);
        form.cut = Some(cut(r));
    }
    form
}

fn cut(r: &mut Rng) -> Cut {
    let n = r.small(5);
    let odd = match r.below(16) {
        0..3 => FragmentDefect::Missing(n),
        3..7 => FragmentDefect::Only(n),
        7 => FragmentDefect::Doubled(n),
        8 => FragmentDefect::Shifted(n),
        9 => FragmentDefect::Last(n),
        _ => FragmentDefect::Nothing,
    };
    Cut {
        id: r.small(4),
        size: if r.one_in(12) { r.of(&[8, 16, 24]) } else { r.of(&[48, 104, 512, 1200]) },
        order: r.small(4),
        odd,
    }
}

fn wild(r: &mut Rng) -> PacketDefect {
    match r.below(8) {
        0 | 1 => PacketDefect::Truncate(r.below(80) as u16),
        2 => PacketDefect::Pad(r.small(40)),
        3 => PacketDefect::Byte { at: r.below(80) as u16, value: r.any() as u8, mend: false },
        4 => PacketDefect::Byte { at: r.below(80) as u16, value: r.any() as u8, mend: true },
        5 | 6 => PacketDefect::Options(r.any() as u8),
        _ => PacketDefect::BadSum(r.any() as u16),
    }
}

fn error(r: &mut Rng, f: &Focus) -> Op {
    let inside = r.one_in(2);
    let usual: &[(u8, u8)] = if inside {
        &[(1, 4), (1, 0), (1, 1), (2, 0), (3, 0), (3, 1), (4, 0), (4, 1), (1, 3)]
    } else {
        &[(3, 3), (3, 4), (3, 1), (11, 0), (11, 1), (12, 0), (3, 13), (3, 2), (3, 0)]
    };
    let (mut kind, mut code) = r.of(usual);
    if r.one_in(8) {
        (kind, code) = (r.of(&[1, 2, 3, 4, 5, 11, 12, 100]), r.small(17));
    }
    let word = match r.below(4) {
        0 => r.any() as u32,
        1 => r.below(1600) as u32,
        2 => (r.small(48) as u32) << 24 | r.small(45) as u32,
        _ => r.small(42) as u32,
    };
    let keep = if r.one_in(4) { r.below(80) as u16 } else { 2000 };
    let form = form(r, f);
    Op::Error { inside, about: r.small(8), kind, code, word, router: r.small(8), keep, form }
}
