//! Processing of one burst by an engine that tells the worker what to send.

use crate::WorkerStats;
use crate::exchange::Exchange;
use crate::trace::Tracer;
use gatun_io::Transmit;
use gatun_nat::explain::Explanation;
use gatun_nat::{BURST, Emitted};
use gatun_nat::{Instant, Nat, Verdict};
use gatun_wire::Packet;

const _: () = assert!(gatun_io::BURST_MAX <= BURST);

/// Engine interface used by a worker; scripted in tests.
pub(crate) trait Engine {
    fn process(&mut self, now: Instant, burst: &mut [Packet<'_>], verdicts: &mut [Verdict]) -> usize;
    fn drain_emitted(&mut self, send: impl FnMut(Emitted<'_>));
    /// Engine of a cluster's node, which redirects packets.
    fn nat(&mut self) -> Option<&mut Nat> {
        None
    }
    /// Prediction for a packet, if the engine has one.
    fn explain(&self, _: &mut Packet<'_>) -> Option<Explanation> {
        None
    }
}

impl Engine for Nat {
    fn process(&mut self, now: Instant, burst: &mut [Packet<'_>], verdicts: &mut [Verdict]) -> usize {
        Nat::process(self, now, burst, verdicts)
    }

    fn drain_emitted(&mut self, send: impl FnMut(Emitted<'_>)) {
        Nat::drain_emitted(self, send);
    }

    fn nat(&mut self) -> Option<&mut Nat> {
        Some(self)
    }

    fn explain(&self, packet: &mut Packet<'_>) -> Option<Explanation> {
        Some(Nat::explain(self, packet))
    }
}

/// Output of a burst: the device, or another worker.
pub(crate) struct BurstOutput<'a> {
    tx: &'a mut dyn Transmit,
    pub(crate) exchange: Option<&'a mut Exchange>,
    /// Index in the device's burst of each packet of the present burst. `None` if the packets are not the
    /// device's.
    pub(crate) indices: Option<[u8; BURST]>,
}

impl<'a> BurstOutput<'a> {
    /// Output for packets that a device has received, and for packets without an origin.
    pub(crate) fn device(tx: &'a mut dyn Transmit, exchange: Option<&'a mut Exchange>) -> Self {
        BurstOutput { tx, exchange, indices: Some(core::array::from_fn(|i| i as u8)) }
    }

    /// Output for packets that other workers have handed over.
    pub(crate) fn handed_over(tx: &'a mut dyn Transmit, exchange: &'a mut Exchange) -> Self {
        BurstOutput { tx, exchange: Some(exchange), indices: None }
    }

    /// Returns whether packets are sorted by their shards: the first worker of a packet does so.
    fn redirects(&self) -> bool {
        let redirection = self.exchange.as_ref().and_then(|exchange| exchange.redirection());
        self.indices.is_some() && redirection.is_some()
    }

    /// Gives other workers their packets of a device's burst, and moves the rest to the front in order.
    /// Returns the number of remaining packets.
    fn sort_out(&mut self, burst: &mut [Packet<'_>]) -> usize {
        let (Some(exchange), Some(indices)) = (&mut self.exchange, &mut self.indices) else {
            return burst.len();
        };
        let mut kept = 0;
        for i in 0..burst.len() {
            if !exchange.hand_over(&burst[i]) {
                burst.swap(kept, i);
                indices[kept] = i as u8;
                kept += 1;
            }
        }
        // The others need not wait until the rest is processed here.
        exchange.publish();
        kept
    }

    fn forward(&mut self, index: usize, packet: &mut Packet<'_>) {
        if !self.hand_on(packet) {
            self.transmit(index, packet);
        }
    }

    /// Gives a packet to the device.
    fn transmit(&mut self, index: usize, packet: &mut Packet<'_>) {
        match self.indices.as_ref().and_then(|indices| indices.get(index)) {
            Some(index) => self.tx.forward(usize::from(*index), packet),
            None => self.tx.send(packet),
        }
    }

    fn send(&mut self, packet: &mut Packet<'_>) {
        if !self.hand_on(packet) {
            self.tx.send(packet);
        }
    }

    fn hand_on(&mut self, packet: &Packet<'_>) -> bool {
        self.exchange.as_mut().is_some_and(|exchange| exchange.hand_on(packet))
    }
}

/// Passes bursts through an engine and counts the results.
#[derive(Default)]
pub(crate) struct BurstHandler {
    pub(crate) stats: WorkerStats,
    /// Active packet trace.
    pub(crate) tracer: Option<Box<Tracer>>,
}

impl BurstHandler {
    /// Translates and sends one burst. The engine may process it in several parts when it runs out of buffers
    /// for packets that it originates. These are sent in between.
    pub(crate) fn handle(
        &mut self,
        engine: &mut impl Engine,
        now: Instant,
        burst: &mut [Packet<'_>],
        mut way: BurstOutput<'_>,
    ) {
        self.stats.bursts += 1;
        let kept = match way.redirects() {
            true => self.sort_by_shard(engine, now, burst, &mut way),
            false => way.sort_out(burst),
        };
        let burst = &mut burst[..kept];
        if self.tracer.is_some() {
            return self.handle_traced(engine, now, burst, way);
        }
        self.process(engine, now, burst, 0, &mut way);
    }

    /// Handles a burst packet by packet while a trace is active.
    #[cold]
    fn handle_traced(
        &mut self,
        engine: &mut impl Engine,
        now: Instant,
        burst: &mut [Packet<'_>],
        mut way: BurstOutput<'_>,
    ) {
        for at in 0..burst.len() {
            let Some(mut tracer) = self.tracer.take() else { break };
            let one = &mut burst[at..=at];
            let before = tracer.look(&one[0], |packet| engine.explain(packet));
            let mut verdicts = [Verdict::Pass];
            // A single packet has room once the packets emitted before it are sent.
            let taken = engine.process(now, one, &mut verdicts);
            if let (1, Some(before)) = (taken, before) {
                tracer.deliver(now, before, (one[0].bytes(), verdicts[0]), None);
            }
            self.send(engine, &mut one[..taken], &verdicts[..taken], at, &mut way);
            if taken == 0 {
                self.process(engine, now, one, at, &mut way);
            }
            self.tracer = Some(tracer);
        }
        self.tracer.take_if(|tracer| tracer.is_over());
    }

    /// Processes a burst, or the part of it that begins with packet number `first`.
    fn process(
        &mut self,
        engine: &mut impl Engine,
        now: Instant,
        burst: &mut [Packet<'_>],
        first: usize,
        way: &mut BurstOutput<'_>,
    ) {
        let mut verdicts = [Verdict::Pass; BURST];
        let (mut base, mut refusals) = (0, 0);
        while base < burst.len() {
            let rest = &mut burst[base..];
            let taken = engine.process(now, rest, &mut verdicts).min(rest.len());
            let emitted = self.send(engine, &mut rest[..taken], &verdicts[..taken], first + base, way);
            base += taken;
            // If nothing was processed and nothing was freed, further attempts would end the same way.
            refusals = if taken == 0 && emitted == 0 { refusals + 1 } else { 0 };
            if refusals > 1 {
                self.stats.stalled += (burst.len() - base) as u64;
                return;
            }
        }
    }

    /// Sends the packets created by [`Nat::expire`].
    pub(crate) fn send_emitted(&mut self, engine: &mut impl Engine, mut way: BurstOutput<'_>) {
        self.send(engine, &mut [], &[], 0, &mut way);
    }

    /// Sends the packets of a burst, each followed by the packets that the engine created for it. Returns the
    /// number of the latter.
    pub(crate) fn send(
        &mut self,
        engine: &mut impl Engine,
        burst: &mut [Packet<'_>],
        verdicts: &[Verdict],
        base: usize,
        way: &mut BurstOutput<'_>,
    ) -> u64 {
        let stats = &mut self.stats;
        let mut packets = burst.iter_mut().zip(verdicts).enumerate().peekable();
        let before = stats.emitted;
        engine.drain_emitted(|mut emitted| {
            while let Some((i, (packet, verdict))) = packets.next_if(|(i, _)| *i <= emitted.after) {
                send_one(stats, base + i, packet, *verdict, way);
            }
            stats.emitted += 1;
            way.send(&mut emitted.packet);
        });
        for (i, (packet, verdict)) in packets {
            send_one(stats, base + i, packet, *verdict, way);
        }
        stats.emitted - before
    }
}

fn send_one(
    stats: &mut WorkerStats,
    index: usize,
    packet: &mut Packet<'_>,
    verdict: Verdict,
    way: &mut BurstOutput<'_>,
) {
    match verdict {
        Verdict::Forward => {
            stats.forward += 1;
            way.forward(index, packet);
        }
        Verdict::Reply(_) => {
            stats.reply += 1;
            way.forward(index, packet);
        }
        // A layer-3 device can only return the packet to where routes lead it on.
        Verdict::Pass => {
            stats.pass += 1;
            way.forward(index, packet);
        }
        Verdict::Redirect => {
            stats.redirect += 1;
            way.transmit(index, packet);
        }
        Verdict::Drop(_) => stats.drop += 1,
        Verdict::Held => stats.held += 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_nat::Reply;
    use gatun_wire::{DropReason, HEADROOM};

    /// Reads its script from the packets: byte 0 is the verdict, byte 1 the number of packets to emit after
    /// it.
    #[derive(Default)]
    struct Script {
        emitted: Vec<(usize, u8)>,
        emit_max: usize,
    }

    impl Engine for Script {
        fn process(&mut self, _: Instant, burst: &mut [Packet<'_>], verdicts: &mut [Verdict]) -> usize {
            for (i, packet) in burst.iter().enumerate() {
                let [kind, emit, id] = packet.bytes()[..3] else { unreachable!() };
                if self.emitted.len() + usize::from(emit) > self.emit_max {
                    return i;
                }
                verdicts[i] = match kind {
                    0 => Verdict::Forward,
                    1 => Verdict::Drop(DropReason::NoBib),
                    2 => Verdict::Reply(Reply::Echo),
                    3 => Verdict::Held,
                    _ => Verdict::Pass,
                };
                self.emitted.extend((0..emit).map(|n| (i, 100 * n + id)));
            }
            burst.len()
        }

        fn drain_emitted(&mut self, mut send: impl FnMut(Emitted<'_>)) {
            for (after, id) in self.emitted.drain(..) {
                let mut buf = [0xa5; HEADROOM + 3];
                buf[HEADROOM + 2] = id;
                send(Emitted { after, packet: Packet::new(&mut buf, HEADROOM, 3).unwrap() });
            }
        }
    }

    /// Records what is sent: index in the burst (`None` for the engine's packets) and the third byte.
    #[derive(Default)]
    struct Tape(Vec<(Option<usize>, u8)>);

    impl Transmit for Tape {
        fn forward(&mut self, index: usize, packet: &mut Packet<'_>) {
            self.0.push((Some(index), packet.bytes()[2]));
        }

        fn send(&mut self, packet: &mut Packet<'_>) {
            self.0.push((None, packet.bytes()[2]));
        }
    }

    fn run(script: &mut Script, orders: &[[u8; 3]]) -> (Tape, WorkerStats) {
        let mut buffers: Vec<Vec<u8>> = orders.iter().map(|o| o.to_vec()).collect();
        let mut burst: Vec<Packet<'_>> = buffers.iter_mut().map(|b| Packet::new(b, 0, 3).unwrap()).collect();
        let (mut bursts, mut tape) = (BurstHandler::default(), Tape::default());
        bursts.handle(script, Instant(0), &mut burst, BurstOutput::device(&mut tape, None));
        (tape, bursts.stats)
    }

    #[test]
    fn packets_the_engine_made_follow_the_packet_that_caused_them() {
        let orders = [[0, 0, 1], [0, 2, 2], [1, 1, 3], [2, 0, 4], [3, 0, 5], [4, 0, 6], [0, 1, 7], [0, 0, 8]];
        let (tape, stats) = run(&mut Script { emit_max: 8, ..Default::default() }, &orders);
        let own = |index, id| (Some(index), id);
        assert_eq!(
            tape.0,
            [
                own(0, 1),
                own(1, 2),
                (None, 2),
                (None, 102),
                (None, 3),
                own(3, 4),
                own(5, 6),
                own(6, 7),
                (None, 7),
                own(7, 8)
            ]
        );
        let expected = WorkerStats {
            bursts: 1,
            forward: 4,
            drop: 1,
            reply: 1,
            held: 1,
            pass: 1,
            emitted: 4,
            ..Default::default()
        };
        assert_eq!(stats, expected);
    }

    #[test]
    fn a_burst_that_the_engine_takes_in_parts_keeps_its_order_and_its_indices() {
        let orders = [[0, 2, 1], [0, 2, 2], [0, 0, 3], [0, 2, 4]];
        let (tape, stats) = run(&mut Script { emit_max: 2, ..Default::default() }, &orders);
        let ids: Vec<_> = tape.0.iter().map(|(_, id)| *id).collect();
        assert_eq!(ids, [1, 1, 101, 2, 2, 102, 3, 4, 4, 104]);
        let indices: Vec<_> = tape.0.iter().filter_map(|(i, _)| *i).collect();
        assert_eq!(indices, [0, 1, 2, 3]);
        assert_eq!((stats.forward, stats.emitted, stats.stalled), (4, 6, 0));
    }

    #[test]
    fn an_engine_that_takes_nothing_ends_the_burst_and_is_counted() {
        let orders = [[0, 0, 1], [0, 1, 2], [0, 0, 3]];
        let (tape, stats) = run(&mut Script::default(), &orders);
        assert_eq!(tape.0, [(Some(0), 1)]);
        assert_eq!((stats.forward, stats.stalled), (1, 2));
    }
}
