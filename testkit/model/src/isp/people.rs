//! Subscribers: their programs, and the flows of these.

use super::chance::{exponential, pareto, popular};
use crate::drive::rng::Rng;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Activity of a subscriber besides reading pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// No other activity.
    Reads,
    /// Shares files with many peers, from one port.
    Shares,
    /// Plays: one long flow of datagrams.
    Plays,
    /// Attacks in one of the ways of [`AttackKind`].
    Harms(AttackKind),
}

/// Type of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttackKind {
    /// SYNs from ever new ports to one victim.
    SynFlood,
    /// SYNs to all ports of all hosts.
    Scan,
    /// Datagrams from random ports to random ports.
    RandomPorts,
    /// Fragments of datagrams whose first fragment never comes.
    Fragments,
}

/// All attacks.
pub(super) const HARMS: [AttackKind; 4] =
    [AttackKind::SynFlood, AttackKind::Scan, AttackKind::RandomPorts, AttackKind::Fragments];

/// A subscriber.
#[derive(Clone, Debug)]
pub(super) struct Subscriber {
    /// True if it has only IPv6.
    pub(super) six: bool,
    number: u32,
    pub(super) habit: Activity,
    /// Number of restarts of its router: flows of an earlier epoch are dead.
    pub(super) epoch: u16,
    next_port: u16,
}

impl Subscriber {
    /// Subscriber `number`.
    pub(super) fn new(number: u32, six: bool, habit: Activity, r: &mut Rng) -> Self {
        Subscriber { six, number, habit, epoch: 0, next_port: 1024 + r.below(60_000) as u16 }
    }

    /// Address of one of its devices; private IPv4 has only one.
    pub(super) fn address(&self, device: u8) -> IpAddr {
        if self.six {
            let (high, low) = ((self.number >> 16) as u16, self.number as u16);
            return Ipv6Addr::new(0x2001, 0xdb8, 0x4000 | high, low, 0, 0, 0, u16::from(device) + 1).into();
        }
        Ipv4Addr::from(u32::from(Ipv4Addr::new(100, 64, 0, 0)) + self.number + 1).into()
    }

    /// The subscriber's prefix, as in events and logs.
    pub(super) fn prefix(&self) -> u128 {
        match self.address(0) {
            IpAddr::V4(a) => a.to_ipv6_mapped().into(),
            IpAddr::V6(a) => u128::from(a) >> 64 << 64,
        }
    }

    /// The next source port, in sequence.
    pub(super) fn port(&mut self) -> u16 {
        self.next_port = if self.next_port >= 65_000 { 1024 } else { self.next_port + 1 };
        self.next_port
    }
}

/// Parameters of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) app: App,
    pub(super) remote: (Ipv4Addr, u16),
    /// Lifetime; `gap_ms` is the longest silence between packets.
    pub(super) life_ms: u64,
    pub(super) gap_ms: u64,
}

/// Programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum App {
    Dns,
    Web,
    Quic,
    Push,
    Peer,
    Game,
    Ping,
}

/// Flows of one page: a DNS query or two, then connections to several servers at once.
pub(super) fn page(r: &mut Rng) -> Vec<Shape> {
    let mut flows = vec![dns(r)];
    let servers = pareto(r, 2.0, 1.3, 40.0) as u32;
    for n in 0..servers {
        if n % 4 == 3 {
            flows.push(dns(r));
        }
        flows.push(fetch(r));
    }
    if r.one_in(40) {
        flows.push(Shape { app: App::Ping, remote: (server(r), 0), life_ms: 5_000, gap_ms: 1_000 });
    }
    if r.one_in(15) {
        // A connection that is kept open for messages.
        let life_ms = pareto(r, 1_200_000.0, 1.1, 2e7) as u64;
        flows.push(Shape { app: App::Push, remote: (server(r), 5223), life_ms, gap_ms: 900_000 });
    }
    flows
}

fn dns(r: &mut Rng) -> Shape {
    let resolver = r.of(&[Ipv4Addr::new(9, 9, 9, 9), Ipv4Addr::new(8, 8, 8, 8), Ipv4Addr::new(1, 1, 1, 1)]);
    Shape { app: App::Dns, remote: (resolver, 53), life_ms: 1, gap_ms: 1 }
}

fn fetch(r: &mut Rng) -> Shape {
    let app = if r.one_in(2) { App::Quic } else { App::Web };
    // Most connections are short, and some last for hours.
    let life_ms = pareto(r, 1_500.0, 0.9, 7_200_000.0) as u64;
    Shape { app, remote: (server(r), 443), life_ms, gap_ms: (life_ms / 3).clamp(500, 45_000) }
}

/// Flow of a game.
pub(super) fn game(r: &mut Rng) -> Shape {
    let life_ms = exponential(r, 1_800_000.0) as u64;
    Shape { app: App::Game, remote: (server(r), 3074), life_ms, gap_ms: 15_000 }
}

/// Flow to a peer of a shared file.
pub(super) fn peer(r: &mut Rng) -> Shape {
    let remote = (anybody(r), 1024 + r.below(60_000) as u16);
    Shape { app: App::Peer, remote, life_ms: pareto(r, 3_000.0, 0.8, 1_800_000.0) as u64, gap_ms: 20_000 }
}

/// One of two thousand servers, with a few of them far more often.
fn server(r: &mut Rng) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(151, 101, 0, 1)) + popular(r, 2_000))
}

/// A random Internet host.
pub(super) fn anybody(r: &mut Rng) -> Ipv4Addr {
    Ipv4Addr::new(60 + r.small(30), r.any() as u8, r.any() as u8, 1 + r.small(250))
}
