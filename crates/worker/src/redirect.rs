//! Packets of a cluster's node: to the node, or to the worker, that translates their shard.

use crate::burst::{BurstHandler, BurstOutput, Engine};
use crate::exchange::Exchange;
use gatun_io::BURST_MAX;
use gatun_nat::redirect::Place;
use gatun_nat::{Instant, Nat, Verdict};
use gatun_wire::{DropReason, Packet};

/// Decision about a received packet.
enum SteeringResult {
    /// This worker processes it.
    Kept,
    /// Another worker has got it.
    Given,
    /// It is dropped, answered or redirected: to this node.
    Done(Verdict, Option<Target>),
}

/// Node that gets a packet.
struct Target {
    node: u8,
    /// True if the packet is from outside.
    is_outside: bool,
}

impl BurstHandler {
    /// Sends packets to other nodes and other workers, and takes redirected ones out of the tunnel. Moves the
    /// packets of this worker to the front in order. Returns their number.
    #[inline(never)]
    pub(crate) fn sort_by_shard(
        &mut self,
        engine: &mut impl Engine,
        now: Instant,
        burst: &mut [Packet<'_>],
        way: &mut BurstOutput<'_>,
    ) -> usize {
        let mut kept = 0;
        for i in 0..burst.len() {
            let tracer = self.tracer.as_mut();
            let before = tracer.and_then(|tracer| tracer.look(&burst[i], |packet| engine.explain(packet)));
            let (Some(nat), Some(exchange)) = (engine.nat(), &mut way.exchange) else { break };
            match sort(nat, now, &mut burst[i], exchange) {
                SteeringResult::Kept => {
                    burst.swap(kept, i);
                    if let Some(indices) = &mut way.indices {
                        indices[kept] = i as u8;
                    }
                    kept += 1;
                }
                SteeringResult::Given => {}
                SteeringResult::Done(verdict, sent_to) => {
                    let is_outside = sent_to.as_ref().is_some_and(|target| target.is_outside);
                    self.stats.redirect_outside += u64::from(is_outside);
                    if let (Some(tracer), Some(before)) = (&mut self.tracer, before) {
                        let name =
                            sent_to.and_then(|to| exchange.redirection()?.tunnel.name(to.node).cloned());
                        tracer.deliver(now, before, (burst[i].bytes(), verdict), name);
                    }
                    self.send(engine, &mut burst[i..=i], &[verdict], i, way);
                }
            }
        }
        if let Some(exchange) = &mut way.exchange {
            exchange.publish();
        }
        kept
    }
}

const _: () = assert!(BURST_MAX <= u8::MAX as usize);

/// The engine itself looks at the fences of the shards.
fn sort(nat: &mut Nat, now: Instant, packet: &mut Packet<'_>, exchange: &mut Exchange) -> SteeringResult {
    let Some(redirection) = exchange.redirection() else { return SteeringResult::Kept };
    let is_by_tunnel = redirection.is_by_tunnel(packet);
    if is_by_tunnel && let Err(verdict) = nat.receive_redirected(now, packet, &redirection.tunnel) {
        return SteeringResult::Done(verdict, None);
    }
    let Some((shard, is_outside)) = exchange.shard_and_side(packet) else { return SteeringResult::Kept };
    let place = match is_by_tunnel {
        true if redirection.held.contains(shard) => Place::Here,
        true => return SteeringResult::Done(nat.refuse(now, packet, DropReason::RedirectLoop), None),
        false => redirection.place(shard),
    };
    match place {
        Place::Node(node) => {
            let verdict = nat.redirect(now, packet, &redirection.tunnel, node);
            let sent_to = (verdict == Verdict::Redirect).then_some(Target { node, is_outside });
            SteeringResult::Done(verdict, sent_to)
        }
        Place::Nowhere => SteeringResult::Done(nat.refuse(now, packet, DropReason::ShardNowhere), None),
        Place::Here if exchange.hand_over_by_shard(shard, packet) => SteeringResult::Given,
        Place::Here => SteeringResult::Kept,
    }
}
