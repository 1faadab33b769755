//! Commands for one engine: queued, sent in batches, matched with their results.

use crate::engine::Engine;
use crate::entries::Token;
use gatun_nat::counters::Traffic;
use gatun_nat::feed::{Action, Command, Offload, Ownership, SessionId};
use gatun_worker::jobs::SubmitError;
use std::collections::VecDeque;
use std::time::Duration;

/// Maximum number of orders that wait before the manager creates no more of its own accord.
pub(crate) const ORDERS_MAX: usize = 16_384;
/// Maximum number of batches that an engine has.
const BATCHES_MAX: usize = 8;
/// Number of orders of a batch. An order can be three commands.
const BATCH: usize = 128;

/// Use of an entry that an engine does not know of.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    pub(crate) traffic: Traffic,
    /// Milliseconds since the last packet, for directions with new packets.
    pub(crate) seen: [Option<u32>; 2],
}

impl Report {
    pub(crate) fn is_empty(&self) -> bool {
        self.traffic.total().packets == 0 && self.seen == [None, None]
    }
}

/// Orders for an engine.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    /// Mark a session with this epoch.
    Mark(u16),
    /// Take note of its use.
    Report(Report),
    /// Take note of its use, and release it.
    Release(Report),
    /// Offer it again after this number of packets.
    Count(u8),
}

/// Orders of one engine.
#[derive(Default)]
pub(crate) struct Orders {
    waiting: VecDeque<(SessionId, Token, Order)>,
    /// Tokens of the commands that the engine has, in their order.
    sent: VecDeque<Token>,
    /// Numbers of commands in the batches that the engine has, and the times when they were sent.
    batches: VecDeque<(usize, Duration)>,
}

impl Orders {
    pub(crate) fn push(&mut self, id: SessionId, token: Token, order: Order) {
        self.waiting.push_back((id, token, order));
    }

    /// Returns whether there is room for orders that can be put off.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.len() < ORDERS_MAX
    }

    /// Number of orders that wait, and of commands that the engine has.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.sent.len()
    }

    /// Returns whether orders could be sent at once.
    pub(crate) fn can_send(&self) -> bool {
        !self.waiting.is_empty() && self.batches.len() < BATCHES_MAX
    }

    /// Time when the oldest batch was sent.
    pub(crate) fn oldest(&self) -> Option<Duration> {
        self.batches.front().map(|batch| batch.1)
    }

    /// Sends batches, until the engine has enough of them.
    pub(crate) fn send(&mut self, engine: &mut impl Engine, now: Duration) -> Result<(), SubmitError> {
        while self.can_send() {
            let n = self.waiting.len().min(BATCH);
            let mut commands = Vec::with_capacity(n * 3);
            let mut tokens = Vec::with_capacity(n * 3);
            for (id, token, order) in self.waiting.range(..n) {
                let before = commands.len();
                expand(*id, order, &mut commands);
                tokens.resize(tokens.len() + commands.len() - before, *token);
            }
            engine.submit(commands)?;
            self.waiting.drain(..n);
            self.batches.push_back((tokens.len(), now));
            self.sent.extend(tokens);
        }
        Ok(())
    }

    /// Returns the next handled batch, and the tokens of its commands.
    pub(crate) fn handled(&mut self, engine: &mut impl Engine) -> Option<Vec<(Command, Token)>> {
        let commands = engine.handled()?;
        self.batches.pop_front();
        let n = commands.len().min(self.sent.len());
        Some(commands.into_iter().zip(self.sent.drain(..n)).collect())
    }

    /// Drops everything. Returns the number of packets that the engine will never know of.
    pub(crate) fn clear(&mut self) -> u64 {
        let packets = |(_, _, order): &(SessionId, Token, Order)| match order {
            Order::Report(report) | Order::Release(report) => report.traffic.total().packets,
            Order::Mark(_) | Order::Count(_) => 0,
        };
        let lost = self.waiting.iter().map(packets).sum();
        *self = Orders::default();
        lost
    }
}

fn expand(id: SessionId, order: &Order, commands: &mut Vec<Command>) {
    let report = match order {
        Order::Mark(epoch) => {
            let mark = Ownership { epoch: *epoch, offload: Offload::Fast };
            return commands.push(Command::new(id, Action::Mark(mark)));
        }
        Order::Count(packets) => return commands.push(Command::new(id, Action::Count(*packets))),
        Order::Report(report) | Order::Release(report) => report,
    };
    if report.traffic.total().packets > 0 {
        commands.push(Command::new(id, Action::Credit(report.traffic)));
    }
    if report.seen != [None, None] {
        commands.push(Command::new(id, Action::Seen(report.seen)));
    }
    if let Order::Release(_) = order {
        commands.push(Command::new(id, Action::Released));
    }
}
