//! One history through engine and model.

use super::forge::{error, forge, router4, router6, twisted};
use super::history::{Form, Op, Proto, Target};
use super::universe::{HOST_PORTS, POOLS, REMOTE_PORTS, host, remote, universe};
use crate::coverage::Coverage;
use crate::model::{Model, Seen};
use gatun_nat::counters::Counters;
use gatun_nat::{BURST, Instant, Nat, Plan, Verdict};
use gatun_wire::{DropReason, HEADROOM, Packet};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

const BUFFER: usize = 4096;
const LATELY: usize = 8;
/// Time for a sweep to look at every record: twice its round, and some.
const SETTLE_MS: i64 = 4_100;

/// A difference between engine and model.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The step that showed it.
    pub step: usize,
    /// What differs.
    pub what: String,
}

/// What a history without a difference has reached.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The engine's counters at the end.
    pub counters: Counters,
    /// What the model has seen.
    pub coverage: Coverage,
}

/// Runs a history in a universe. `seed` is the engine's.
///
/// # Errors
/// The first difference.
pub fn run(world: u64, seed: u64, ops: &[Op]) -> Result<Outcome, Failure> {
    let plan = universe(world);
    let mut pair = match Pair::new(&plan, seed) {
        Ok(pair) => pair,
        Err(what) => return Err(Failure { step: 0, what }),
    };
    for (step, op) in ops.iter().enumerate() {
        pair.step(op).map_err(|what| Failure { step, what })?;
    }
    let end = ops.len();
    pair.flush().map_err(|what| Failure { step: end, what })?;
    pair.settle().map_err(|what| Failure { step: end, what })?;
    Ok(Outcome { counters: pair.nat.counters().clone(), coverage: pair.model.coverage })
}

/// Engine and model, and what both were given.
struct Pair {
    plan: Plan,
    nat: Nat,
    model: Model,
    now: i64,
    waiting: Vec<Vec<u8>>,
    received: VecDeque<Vec<u8>>,
    /// Forwarded lately, as they came out: IPv4, IPv6.
    sent: [VecDeque<Vec<u8>>; 2],
    memory: Vec<u8>,
}

impl Pair {
    fn new(plan: &Plan, seed: u64) -> Result<Self, String> {
        let nat = Nat::new(plan, [seed, 2, 3, 4]).map_err(|e| format!("the plan is refused: {e}"))?;
        let mut pair = Pair {
            plan: plan.clone(),
            nat,
            model: Model::new(plan),
            now: 1_000_000,
            waiting: Vec::new(),
            received: VecDeque::new(),
            sent: Default::default(),
            memory: vec![0xa5; BUFFER * BURST],
        };
        pair.model.at(pair.now as u64);
        Ok(pair)
    }

    fn step(&mut self, op: &Op) -> Result<(), String> {
        let packets = match *op {
            Op::Clock { ms } => {
                self.flush()?;
                self.now = self.now.saturating_add(ms).max(0);
                return Ok(());
            }
            Op::Expire { budget } => {
                self.flush()?;
                return self.expire(budget as usize);
            }
            Op::Settle => {
                self.flush()?;
                return self.settle();
            }
            Op::Flush => return self.flush(),
            Op::Again { back, twist } => match self.received.get(usize::from(back)) {
                Some(packet) => vec![twisted(packet.clone(), twist)],
                None => Vec::new(),
            },
            Op::Error { inside, about, kind, code, word, router, keep, form } => {
                self.error(inside, about, (kind, code, word), router, keep, &form)
            }
            Op::Out { proto, host: h, port, remote: r, rport, form } => {
                let to = self.behind(remote(r), form.prefix);
                let ports = (host_port(port), REMOTE_PORTS[usize::from(rport) % 3]);
                vec![forge(proto, host(h).into(), to, ports, &form)]
            }
            Op::Hairpin { proto, host: h, port, target, form } => {
                let (address, t) = self.outside(proto, target);
                let to = self.behind(address, form.prefix);
                // A host that pings its own outside address shows nobody which identifier it has there.
                let instance = self.instance_of(form.prefix);
                let own = self.model.sure_outside_of(instance, 2, (host(h), host_port(port)));
                if matches!(proto, Proto::Echo(_)) && own.is_none_or(|own| own.0 == address) {
                    return Ok(());
                }
                vec![forge(proto, host(h).into(), to, (host_port(port), t), &form)]
            }
            Op::In { proto, target, remote: r, rport, form } => {
                let (address, t) = self.outside(proto, target);
                let from = IpAddr::V4(remote(r));
                let ports = match proto {
                    Proto::Echo(_) | Proto::Icmp(_) => (t, 0),
                    _ => (REMOTE_PORTS[usize::from(rport) % 3], t),
                };
                vec![forge(proto, from, address.into(), ports, &form)]
            }
        };
        let alone = matches!(op, Op::Hairpin { .. });
        if alone {
            self.flush()?;
            if self.model.is_unsure() {
                // Which half of a hairpin failed, and who was there to make it fail, would be anybody's guess.
                self.settle()?;
            }
        }
        for packet in packets {
            if is_fragment(&packet) {
                continue; // not in the model yet
            }
            self.waiting.push(packet);
            if self.waiting.len() == BURST {
                self.flush()?;
            }
        }
        // Small bursts most of the time: names of bindings are looked up before a burst.
        if alone || self.waiting.len() >= 4 { self.flush() } else { Ok(()) }
    }

    fn behind(&self, a: Ipv4Addr, prefix: u8) -> IpAddr {
        let all: Vec<_> = self.plan.nat64.iter().flat_map(|n| &n.pool6).collect();
        all[usize::from(prefix) % all.len()].embed(a).into()
    }

    fn instance_of(&self, prefix: u8) -> usize {
        let all: Vec<_> =
            self.plan.nat64.iter().enumerate().flat_map(|(i, n)| n.pool6.iter().map(move |_| i)).collect();
        all[usize::from(prefix) % all.len()]
    }

    fn outside(&self, proto: Proto, target: Target) -> (Ipv4Addr, u16) {
        match target {
            Target::Port { address, port } => {
                let first = POOLS[usize::from(address / 3) % POOLS.len()];
                (Ipv4Addr::from(u32::from(first) + u32::from(address % 3)), port)
            }
            Target::Of { host: h, port } => {
                let transport = match proto {
                    Proto::Tcp(_) => 0,
                    Proto::Udp | Proto::UdpZero => 1,
                    _ => 2,
                };
                self.model.outside_of(transport, (host(h), host_port(port))).unwrap_or((POOLS[0], 1021))
            }
        }
    }

    fn error(
        &mut self,
        inside: bool,
        about: u8,
        (kind, code, word): (u8, u8, u32),
        router: u8,
        keep: u16,
        form: &Form,
    ) -> Vec<Vec<u8>> {
        let Some(packet) = self.sent[usize::from(inside)].get(usize::from(about)) else { return Vec::new() };
        let quote = &packet[..packet.len().min(keep.into()).min(1200)];
        let header = if inside { 40 } else { 20 };
        if packet.len() < header {
            return Vec::new();
        }
        let (src, dst): (IpAddr, IpAddr) = if inside {
            let address = |at: usize| -> IpAddr {
                let octets: [u8; 16] = packet[at..at + 16].try_into().unwrap_or_default();
                octets.into()
            };
            (if router < 4 { address(24) } else { router6(router).into() }, address(8))
        } else {
            let address = |at: usize| -> IpAddr {
                let octets: [u8; 4] = packet[at..at + 4].try_into().unwrap_or_default();
                octets.into()
            };
            (if router < 4 { address(16) } else { router4(router).into() }, address(12))
        };
        // Extensions (RFC 4884) are the wire layer's matter, and its oracle's: none here.
        let word = match (inside, kind) {
            (true, 1 | 3) => word & 0x00ff_ffff,
            (false, 3 | 11 | 12) => word & 0xff00_ffff,
            _ => word,
        };
        vec![error(src, dst, kind, code, word, quote, form)]
    }

    /// Gives what waits to the engine as one burst, and to the model; then has bindings show themselves that
    /// were made for packets that went nowhere.
    fn flush(&mut self) -> Result<(), String> {
        self.flush_waiting()?;
        for (instance, transport, (address, port)) in self.model.unseen() {
            let proto = [Proto::Tcp(16), Proto::Udp, Proto::Echo(true)][transport];
            let to = self.plan.nat64[instance].pool6[0].embed(remote(3));
            let ports = (port, REMOTE_PORTS[0]);
            self.waiting = vec![forge(proto, address.into(), to.into(), ports, &Form::PLAIN)];
            self.flush_waiting()?;
        }
        Ok(())
    }

    fn flush_waiting(&mut self) -> Result<(), String> {
        while !self.waiting.is_empty() {
            let packets = std::mem::take(&mut self.waiting);
            let (seen, left) = self.burst(&packets);
            self.model.at(self.now as u64);
            for (packet, seen) in packets.iter().zip(&seen) {
                self.model.packet(packet, seen).map_err(|said| {
                    format!(
                        "packet    {}\nengine    {:?} {}\n  emitted {}\nmodel     {:?} {}\n  emitted {}",
                        hex(packet),
                        seen.verdict,
                        hex(&seen.bytes),
                        all_hex(&seen.emitted),
                        said.verdict,
                        said.bytes.as_deref().map_or("(no bytes)".into(), hex),
                        all_hex(&said.emitted),
                    )
                })?;
                self.remember(packet, seen);
            }
            self.waiting = packets[packets.len() - left..].to_vec();
            self.agree()?;
        }
        Ok(())
    }

    /// Runs a burst through the engine; gives how many packets it left.
    fn burst(&mut self, packets: &[Vec<u8>]) -> (Vec<Seen>, usize) {
        let mut burst: Vec<Packet<'_>> = Vec::with_capacity(packets.len());
        for (buffer, bytes) in self.memory.chunks_exact_mut(BUFFER).zip(packets) {
            let len = bytes.len().min(BUFFER - HEADROOM);
            buffer[HEADROOM..HEADROOM + len].copy_from_slice(&bytes[..len]);
            burst.extend(Packet::new(buffer, HEADROOM, len));
        }
        let mut verdicts = vec![Verdict::Pass; burst.len()];
        let done = self.nat.process(Instant(self.now as u64), &mut burst, &mut verdicts);
        let mut seen: Vec<Seen> = burst
            .iter()
            .zip(verdicts)
            .take(done)
            .map(|(p, verdict)| Seen {
                verdict,
                bytes: p.bytes().to_vec(),
                emitted: Vec::new(),
                occupancy: None,
            })
            .collect();
        self.nat.drain_emitted(|e| seen[e.after].emitted.push(e.packet.bytes().to_vec()));
        if let [only] = &mut seen[..] {
            only.occupancy = Some(self.nat.occupancy());
        }
        (seen, packets.len() - done)
    }

    fn remember(&mut self, packet: &[u8], seen: &Seen) {
        self.received.push_front(packet.to_vec());
        self.received.truncate(LATELY);
        if seen.verdict == Verdict::Forward {
            for out in std::iter::once(&seen.bytes).chain(&seen.emitted) {
                let lately = &mut self.sent[usize::from(out[0] >> 4 == 6)];
                lately.push_front(out.clone());
                lately.truncate(LATELY);
            }
        }
    }

    fn expire(&mut self, budget: usize) -> Result<(), String> {
        self.nat.expire(Instant(self.now as u64), budget);
        let mut emitted = Vec::new();
        self.nat.drain_emitted(|e| emitted.push(e.packet.bytes().to_vec()));
        self.model.at(self.now as u64);
        self.model.expired(budget, &emitted).map_err(|said| {
            format!(
                "expire({budget})\nengine emitted {}\nmodel  emitted {}",
                all_hex(&emitted),
                all_hex(&said)
            )
        })?;
        self.agree()
    }

    /// Lets the sweep look at everything, and asks for exactly what there must be.
    fn settle(&mut self) -> Result<(), String> {
        self.expire(usize::MAX)?;
        let since = self.model.now_ms();
        for _ in 0..2 {
            self.now += SETTLE_MS;
            self.expire(usize::MAX)?;
        }
        self.model.swept(since)?;
        self.agree()
    }

    /// Counters and occupancy.
    fn agree(&mut self) -> Result<(), String> {
        let (engine, model) = (self.nat.counters(), self.model.counters());
        if let Some(what) = difference(engine, model) {
            return Err(format!("{what}\n{}", self.model.describe()));
        }
        let there = self.nat.occupancy();
        if !self.model.occupancy_is_right(&there) {
            return Err(format!("occupancy: engine {there:?}\nmodel {}", self.model.describe()));
        }
        self.model.learn_occupancy(&there);
        Ok(())
    }
}

fn is_fragment(p: &[u8]) -> bool {
    match p.first().map(|b| b >> 4) {
        Some(4) => p.len() >= 8 && crate::wire::get16(p, 6) & 0x3fff != 0,
        _ => crate::wire::parse::parse6(p, false).is_ok_and(|h| !h.is_whole()),
    }
}

fn host_port(n: u8) -> u16 {
    HOST_PORTS[usize::from(n) % HOST_PORTS.len()]
}

/// The first counter that differs.
fn difference(engine: &Counters, model: &Counters) -> Option<String> {
    let pairs = [
        ("rx", engine.rx, model.rx),
        ("forwarded", engine.forwarded, model.forwarded),
        ("passed", engine.passed, model.passed),
        ("replied", engine.replied, model.replied),
        ("dropped", engine.dropped, model.dropped),
        ("hairpinned", engine.hairpinned, model.hairpinned),
        ("translated 6to4", engine.translated[0], model.translated[0]),
        ("translated 4to6", engine.translated[1], model.translated[1]),
    ];
    for (name, e, m) in pairs {
        if e != m {
            return Some(format!("counter {name}: engine {e:?}, model {m:?}"));
        }
    }
    for way in 0..2 {
        for &reason in DropReason::ALL {
            let (e, m) = (engine.drops[way][reason as usize], model.drops[way][reason as usize]);
            if e != m {
                return Some(format!("drops[{way}][{}]: engine {e:?}, model {m:?}", reason.name()));
            }
        }
    }
    let numbers = [
        ("held", engine.held, model.held),
        ("echo_replies", engine.echo_replies, model.echo_replies),
        ("icmp_errors_sent", engine.icmp_errors_sent, model.icmp_errors_sent),
        ("icmp_errors_limited", engine.icmp_errors_limited, model.icmp_errors_limited),
        ("icmp_errors_suppressed", engine.icmp_errors_suppressed, model.icmp_errors_suppressed),
        ("fragments_made", engine.fragments_made, model.fragments_made),
        ("probes_sent", engine.probes_sent, model.probes_sent),
    ];
    let differs = numbers.into_iter().find(|(_, e, m)| e != m);
    differs.map(|(name, e, m)| format!("counter {name}: engine {e}, model {m}"))
}

fn hex(bytes: &[u8]) -> String {
    let shown: String = bytes.iter().take(160).map(|b| format!("{b:02x}")).collect();
    let more = if bytes.len() > 160 { "..." } else { "" };
    format!("{} bytes {shown}{more}", bytes.len())
}

fn all_hex(all: &[Vec<u8>]) -> String {
    if all.is_empty() {
        return "nothing".into();
    }
    all.iter().map(|p| hex(p)).collect::<Vec<_>>().join("\n          ")
}
