//! Promises between the holders of shards: each asks the other one four times in a lease.

use super::Node;
use crate::coordination::Promise;
use gatun_peer::wire::{ShardPromise, ShardSeats};

impl Node {
    /// Asks for promises, makes those that others ask for, and uses those of others. A promise is about two
    /// holders that are the same for both nodes.
    pub(super) fn promises(&mut self, now_ms: u64) {
        let quarter_ms = u64::from(self.coordination.settings().timing.timing.lease_ms / 4).max(1);
        for number in 0..self.others.len() {
            if let Some((asked_ms, shards)) = self.others[number].member.take_asked() {
                let promises: Vec<_> =
                    shards.into_iter().filter_map(|asked| self.promise(now_ms, number, asked)).collect();
                self.others[number].member.exchange.promise(asked_ms, promises);
            }
            for (asked_ms, promises) in self.others[number].member.take_promised() {
                for promise in promises {
                    self.promised(asked_ms, number, promise);
                }
            }
            if now_ms >= self.others[number].ask_ms && self.others[number].member.exchange.is_established() {
                let shards =
                    self.numbers().filter_map(|shard| Some((shard, self.seats(shard, number)?))).collect();
                self.others[number].member.exchange.ask(now_ms, shards);
                self.others[number].ask_ms = now_ms + quarter_ms;
            }
        }
    }

    fn promise(
        &mut self,
        now_ms: u64,
        number: usize,
        (shard, seats): (u8, ShardSeats),
    ) -> Option<ShardPromise> {
        if self.seats(shard, number)? != seats {
            return None;
        }
        let name = self.others[number].name.clone();
        let Promise { is_to_owner } = self.coordination.promise(now_ms, shard, &name)?;
        Some(ShardPromise { shard, seats, is_to_owner })
    }

    fn promised(&mut self, asked_ms: u64, number: usize, promise: ShardPromise) {
        let ShardPromise { shard, seats, is_to_owner } = promise;
        if self.seats(shard, number) == Some(seats) {
            let name = self.others[number].name.clone();
            self.coordination.promised(asked_ms, shard, &name, Promise { is_to_owner });
        }
    }

    /// Epochs in which this node and another one became the holders of a shard, if they are.
    pub(super) fn seats(&self, shard: u8, number: usize) -> Option<ShardSeats> {
        let other = &self.others[number];
        let record = self.coordination.record(shard)?;
        let me = &self.coordination.settings().me;
        if record.other(me) != Some(&other.name) {
            return None;
        }
        let (own, of_other) = (record.since(me)?, record.since(&other.name)?);
        Some(match other.me {
            gatun_peer::ownership::Member::First => ShardSeats { first: own, second: of_other },
            gatun_peer::ownership::Member::Second => ShardSeats { first: of_other, second: own },
        })
    }
}
