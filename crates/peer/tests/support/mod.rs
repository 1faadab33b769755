//! Two exchanges that share a clock.
#![allow(missing_docs, dead_code, unreachable_pub)]

use gatun_nat::feed::Flow;
use gatun_nat::plan::Transport;
use gatun_nat::tcp_fsm::TcpState;
use gatun_peer::ownership::Member;
use gatun_peer::wire::{Exchange, PeerRecord, Received, SessionEnd, SessionState, Settings};
use std::net::{Ipv4Addr, Ipv6Addr};

pub struct Pair {
    pub sides: [Exchange; 2],
    pub now_ms: u64,
    /// Bytes that each side has sent.
    pub bytes: [usize; 2],
}

pub fn settings(member: Member, process: u64) -> Settings {
    let name = if member == Member::First { "first" } else { "second" };
    Settings { log_max: 64, ..Settings::new(member, name, process, vec![]) }
}

pub fn session(n: u32, is_ipv6: bool) -> SessionState {
    let port = (n % 60_000) as u16 + 1024;
    let inside = match is_ipv6 {
        true => Ipv6Addr::from(0x2001_0db8_0001_u128 << 80 | u128::from(n)),
        false => Ipv4Addr::from(0x6440_0000 + n).to_ipv6_mapped(),
    };
    let flow = Flow {
        inside: (inside, port),
        outside: ([192, 0, 2, 1].into(), port),
        remote: ([198, 51, 100, 7].into(), 443),
        transport: if is_ipv6 { Transport::Tcp } else { Transport::Udp },
        instance: 0,
    };
    let tcp = is_ipv6.then_some(TcpState::Established);
    SessionState { flow, tcp, pool6: 1, of_static: false, epoch: 3, lifetime_ms: Some(7_440_000) }
}

pub fn session_end(n: u32) -> SessionEnd {
    let Flow { transport, outside, remote, .. } = session(n, true).flow;
    SessionEnd { transport, outside, remote }
}

impl Pair {
    pub fn new() -> Pair {
        let sides = [settings(Member::First, 1), settings(Member::Second, 2)].map(Exchange::new);
        Pair { sides, now_ms: 1_000, bytes: [0; 2] }
    }

    /// Returns two sides that have sent each other their whole, empty state.
    pub fn connected() -> Pair {
        let mut pair = Pair::new();
        pair.connect();
        pair.walk();
        pair
    }

    pub fn connect(&mut self) {
        self.sides.iter_mut().for_each(|side| side.open(self.now_ms, true));
    }

    pub fn walk(&mut self) {
        self.pass();
        for side in &mut self.sides {
            if side.needs_walk() {
                side.push(self.now_ms, PeerRecord::StateBegins).unwrap();
                side.push(self.now_ms, PeerRecord::StateEnds).unwrap();
            }
        }
        for _ in 0..3 {
            self.now_ms += 5;
            self.pass();
            self.sides.iter_mut().for_each(Exchange::answer_all);
        }
        self.pass();
    }

    /// Carries all bytes once. Returns what each side has received.
    pub fn pass(&mut self) -> [Vec<Received>; 2] {
        let mut received = [vec![], vec![]];
        for from in [0, 1] {
            let mut bytes = vec![];
            self.sides[from].turn(self.now_ms);
            self.sides[from].take_output(&mut bytes);
            self.bytes[from] += bytes.len();
            for part in bytes.chunks(1_000) {
                self.sides[1 - from].receive(self.now_ms, part, &mut received[1 - from]).unwrap();
            }
        }
        received
    }
}
