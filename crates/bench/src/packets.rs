//! Flows of the bench, their packets, and the check of translated packets. It does not use the engine's
//! header code, so that a fault in it is noticed.

use gatun_mem::{HugeVec, OutOfMemory};
use gatun_testkit::packet::in_place::{TTL, renew_ipv4_checksum, sum, write_udp};
pub(super) use gatun_testkit::traffic::{LAYER_2, POOL6, embed, mix};
use gatun_wire::{HEADROOM, Packet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Distance in bytes between packet buffers: not a power of two, so that headers spread over the cache's
/// sets.
pub(super) const STRIDE: usize = 2304;
/// First inside address of NAT44: 100.64.0.0/10.
pub(super) const INSIDE_FIRST: u32 = 0x6440_0000;
const SERVER_PORT: u16 = 4433;

/// Endpoints of an inside host and a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    pub(super) inside: (Ipv6Addr, u16),
    pub(super) server: (Ipv4Addr, u16),
}

/// Endpoints of a private host and a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow44 {
    pub(super) inside: (Ipv4Addr, u16),
    pub(super) server: (Ipv4Addr, u16),
}

/// All flows of a run. Each is computed from its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flows {
    pub(super) count: u64,
    pub(super) subscribers: u64,
}

impl Flows {
    /// Flow `i`. Subscribers take turns; each has a /64 and uses another port in each turn.
    pub(super) fn get(&self, i: u64) -> Flow {
        const PORTS: u64 = 60_000;
        let (subscriber, turn) = (i % self.subscribers, i / self.subscribers);
        let inside = subscriber_address(subscriber, 1 + turn / PORTS);
        let server = 0xc613_0000 | (mix(i) as u32 & 0xffff); // 198.19.0.0/16
        Flow { inside: (inside, 1024 + (turn % PORTS) as u16), server: (Ipv4Addr::from(server), SERVER_PORT) }
    }

    /// Like [`get`](Self::get), for IPv4 hosts: a subscriber is an address with all of its flows.
    pub(super) fn get44(&self, i: u64) -> Flow44 {
        let (subscriber, turn) = (i % self.subscribers, i / self.subscribers);
        let inside = (Ipv4Addr::from(INSIDE_FIRST + subscriber as u32), 1024 + (turn % 60_000) as u16);
        // More flows than a host has ports go to another server port.
        let server = 0xc613_0000 | (mix(i) as u32 & 0xffff); // 198.19.0.0/16
        Flow44 { inside, server: (Ipv4Addr::from(server), SERVER_PORT + (turn / 60_000) as u16) }
    }

    /// Shuffled order of all flows.
    pub(super) fn shuffle(&self) -> Shuffle {
        let mut step = (self.count as f64 * 0.618) as u64 | 1;
        while gcd(step, self.count) != 1 {
            step += 2;
        }
        Shuffle { count: self.count, step }
    }
}

/// Order of flows that contains each flow once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shuffle {
    count: u64,
    step: u64,
}

impl Shuffle {
    /// Flow at position `k`.
    pub(super) fn at(&self, k: u64) -> u64 {
        (u128::from(k) * u128::from(self.step) % u128::from(self.count)) as u64
    }
}

/// Address of host `host` in a subscriber's /64.
pub(super) fn subscriber_address(subscriber: u64, host: u64) -> Ipv6Addr {
    let network = 0x2001_0db8_8000_0000_u64 | subscriber;
    Ipv6Addr::from((u128::from(network) << 64) | u128::from(host))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Random number below `n`, from a well-mixed one.
pub(super) fn below(n: u64, random: u64) -> u64 {
    ((u128::from(random) * u128::from(n)) >> 64) as u64
}

/// Packet buffers in contiguous memory on huge pages, like a network card's buffers.
pub(super) struct Ring {
    memory: HugeVec<u8>,
}

impl Ring {
    /// Allocates `count` buffers and touches their pages.
    ///
    /// # Errors
    /// Returns an error if memory is short.
    pub(super) fn new(count: usize) -> Result<Ring, OutOfMemory> {
        let mut memory = HugeVec::new(count * STRIDE)?;
        memory.fill(0xa5);
        Ok(Ring { memory })
    }

    /// Fills each buffer with a packet. `make` gets the number of the packet and the bytes after the
    /// headroom, and returns the packet's length.
    pub(super) fn fill(&mut self, mut make: impl FnMut(usize, &mut [u8]) -> usize) -> Vec<Packet<'_>> {
        let mut packets = Vec::with_capacity(self.memory.len() / STRIDE);
        for (i, buffer) in self.memory.chunks_exact_mut(STRIDE).enumerate() {
            let len = make(i, &mut buffer[HEADROOM..]);
            packets.extend(Packet::new(buffer, HEADROOM, len));
        }
        packets
    }
}

/// Writes an IPv6 UDP packet of `flow` with a frame of `frame` bytes. Returns its length.
pub(super) fn write6(flow: &Flow, frame: usize, out: &mut [u8]) -> usize {
    let server = (embed(flow.server.0), flow.server.1);
    write(flow.inside, server, frame - LAYER_2, out)
}

/// Writes the IPv4 reply of the flow's server to `outside`, 20 bytes shorter than the packet of [`write6`].
pub(super) fn write4(flow: &Flow, outside: (Ipv4Addr, u16), frame: usize, out: &mut [u8]) -> usize {
    write(flow.server, outside, frame - LAYER_2 - 20, out)
}

/// Writes an IPv4 UDP packet with a frame of `frame` bytes. Returns its length.
pub(super) fn write44(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), frame: usize, out: &mut [u8]) -> usize {
    write(from, to, frame - LAYER_2, out)
}

fn write<A: Into<IpAddr>>(from: (A, u16), to: (A, u16), len: usize, out: &mut [u8]) -> usize {
    write_udp((from.0.into(), from.1), (to.0.into(), to.1), &mut out[..len]);
    len
}

/// Checks every field of a packet from a private host. Returns its public address and port.
pub(super) fn check44_out(packet: &[u8], flow: &Flow44, frame: usize) -> Result<(Ipv4Addr, u16), String> {
    check_out(packet, flow.server, frame - LAYER_2)
}

/// Checks every byte of a packet to a private host.
pub(super) fn check44_back(packet: &[u8], flow: &Flow44, frame: usize) -> Result<(), String> {
    let mut expected = [0; STRIDE];
    let len = write44(flow.server, flow.inside, frame, &mut expected);
    expected[8] = TTL - 1;
    renew_ipv4_checksum(&mut expected);
    expected_is(packet, &expected[..len])
}

/// Checks every field of a packet translated to IPv4. Returns its public address and port.
pub(super) fn check4(packet: &[u8], flow: &Flow, frame: usize) -> Result<(Ipv4Addr, u16), String> {
    check_out(packet, flow.server, frame - LAYER_2 - 20)
}

/// Checks every field of an IPv4 packet of `len` bytes to a server. Returns its source.
fn check_out(packet: &[u8], server: (Ipv4Addr, u16), len: usize) -> Result<(Ipv4Addr, u16), String> {
    let outside = (Ipv4Addr::from(array(packet, 12)?), port(packet, 20)?);
    let mut expected = [0; STRIDE];
    write(outside, server, len, &mut expected);
    expected[8] = TTL - 1;
    // The translator chooses the identification, so it is only checked together with the header checksum.
    let id_and_sum = [4..6, 10..12];
    let blank = |packet: &[u8]| {
        let mut copy = packet.to_vec();
        for range in id_and_sum.clone() {
            copy.get_mut(range).into_iter().flatten().for_each(|byte| *byte = 0);
        }
        copy
    };
    expected_is(&blank(packet), &blank(&expected[..len]))?;
    match sum(&packet[..20]) {
        0xffff => Ok(outside),
        wrong => Err(format!("IPv4 header sums to {wrong:#06x}")),
    }
}

/// Checks every byte of a packet translated to IPv6.
pub(super) fn check6(packet: &[u8], flow: &Flow, frame: usize) -> Result<(), String> {
    let mut expected = [0; STRIDE];
    let len = write((embed(flow.server.0), flow.server.1), flow.inside, frame - LAYER_2, &mut expected);
    expected[7] = TTL - 1;
    expected_is(packet, &expected[..len])
}

fn expected_is(packet: &[u8], expected: &[u8]) -> Result<(), String> {
    if packet == expected {
        return Ok(());
    }
    let at = packet.iter().zip(expected).position(|(a, b)| a != b);
    Err(format!("length {} for {}, first difference at {at:?}", packet.len(), expected.len()))
}

fn array<const N: usize>(packet: &[u8], at: usize) -> Result<[u8; N], String> {
    packet.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or_else(|| "too short".into())
}

fn port(packet: &[u8], at: usize) -> Result<u16, String> {
    array(packet, at).map(u16::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_testkit::packet::check;
    use std::collections::BTreeSet;

    const FLOWS: Flows = Flows { count: 1000, subscribers: 7 };

    #[test]
    fn flows_differ_and_the_shuffle_contains_each() {
        let flows: BTreeSet<_> = (0..1000).map(|i| FLOWS.get(i).inside).collect();
        assert_eq!(flows.len(), 1000);
        let order: BTreeSet<_> = (0..1000).map(|k| FLOWS.shuffle().at(k)).collect();
        assert_eq!(order.len(), 1000);
    }

    #[test]
    fn packets_have_the_frame_size_without_layer_2() {
        let mut out = [0; STRIDE];
        let flow = FLOWS.get(5);
        assert_eq!(write6(&flow, 128, &mut out), 110);
        check(&out[..110]);
        assert_eq!(write4(&flow, (Ipv4Addr::new(198, 18, 0, 1), 9), 128, &mut out), 90);
        check(&out[..90]);
    }

    #[test]
    fn a_single_wrong_bit_is_detected() {
        let flow = FLOWS.get(5);
        let outside = (Ipv4Addr::new(198, 18, 0, 1), 9);
        let mut six = [0; STRIDE];
        let len = write((embed(flow.server.0), flow.server.1), flow.inside, 110, &mut six);
        six[7] -= 1;
        assert_eq!(check6(&six[..len], &flow, 128), Ok(()));
        for bit in 0..len * 8 {
            six[bit / 8] ^= 1 << (bit % 8);
            assert!(check6(&six[..len], &flow, 128).is_err(), "bit {bit}");
            six[bit / 8] ^= 1 << (bit % 8);
        }

        let mut four = [0; STRIDE];
        let len = write(outside, flow.server, 90, &mut four);
        four[8] -= 1;
        renew_ipv4_checksum(&mut four);
        assert_eq!(check4(&four[..len], &flow, 128), Ok(outside));
        for bit in 0..len * 8 {
            four[bit / 8] ^= 1 << (bit % 8);
            assert!(check4(&four[..len], &flow, 128).is_err(), "bit {bit}");
            four[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
