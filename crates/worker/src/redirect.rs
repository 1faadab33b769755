//! Packets of a cluster's node: to the node, or to the worker, that translates their shard.

use crate::burst::{BurstHandler, BurstOutput, Engine};
use gatun_io::BURST_MAX;
use gatun_nat::redirect::{Place, Redirection};
use gatun_nat::{Instant, Nat, ShardSet, Verdict};
use gatun_wire::{DropReason, Packet};
use std::sync::Arc;

/// Decision about a received packet.
enum SteeringResult {
    /// This worker processes it.
    Kept,
    /// Another worker has got it.
    Given,
    /// It is dropped, answered or redirected.
    Done(Verdict),
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
        redirection: Arc<Redirection>,
    ) -> usize {
        let mut kept = 0;
        for i in 0..burst.len() {
            let Some(nat) = engine.nat() else { break };
            match sort(nat, now, &mut burst[i], way, &redirection) {
                SteeringResult::Kept => {
                    burst.swap(kept, i);
                    if let Some(indices) = &mut way.indices {
                        indices[kept] = i as u8;
                    }
                    kept += 1;
                }
                SteeringResult::Given => {}
                SteeringResult::Done(verdict) => {
                    self.send(engine, &mut burst[i..=i], &[verdict], i, way);
                }
            }
        }
        if let Some(exchange) = &mut way.exchange {
            exchange.publish();
            exchange.redirect_by(&mut Some(redirection));
        }
        kept
    }
}

const _: () = assert!(BURST_MAX <= u8::MAX as usize);

fn sort(
    nat: &mut Nat,
    now: Instant,
    packet: &mut Packet<'_>,
    way: &mut BurstOutput<'_>,
    redirection: &Redirection,
) -> SteeringResult {
    let fenced = nat.fenced(now);
    let Some(exchange) = &mut way.exchange else { return SteeringResult::Kept };
    // The first worker has sorted a packet that was handed over.
    if way.indices.is_none() {
        let is_fenced =
            fenced != ShardSet::NONE && exchange.shard_of(packet).is_some_and(|shard| fenced.contains(shard));
        return match is_fenced {
            true => SteeringResult::Done(nat.refuse(now, packet, DropReason::ShardFenced)),
            false => SteeringResult::Kept,
        };
    }
    let is_by_tunnel = redirection.is_by_tunnel(packet);
    if is_by_tunnel && let Err(verdict) = nat.receive_redirected(now, packet, &redirection.tunnel) {
        return SteeringResult::Done(verdict);
    }
    let Some(shard) = exchange.shard_of(packet) else { return SteeringResult::Kept };
    let place = match is_by_tunnel {
        true if redirection.held.contains(shard) => Place::Here,
        true => return SteeringResult::Done(nat.refuse(now, packet, DropReason::RedirectLoop)),
        false => redirection.place(shard),
    };
    match place {
        Place::Here if fenced.contains(shard) => {
            SteeringResult::Done(nat.refuse(now, packet, DropReason::ShardFenced))
        }
        Place::Here if exchange.hand_over_by_shard(shard, packet) => SteeringResult::Given,
        Place::Here => SteeringResult::Kept,
        Place::Node(node) => SteeringResult::Done(nat.redirect(now, packet, &redirection.tunnel, node)),
        Place::Nowhere => SteeringResult::Done(nat.refuse(now, packet, DropReason::ShardNowhere)),
    }
}
