//! Change of settings without interruption: an [`Ether`] with the new settings takes over from the old one.

use crate::address::Key;
use crate::frame::LEN_MAX;
use crate::neighbour::NextHopAction;
use crate::stats::Count as _;
use crate::{Ether, Unsent};

impl Ether {
    /// Takes over from an `Ether` that is no longer used and whose ports have the same numbers, devices and
    /// tags. Adopts its neighbours (except configured ones), its pending packets and its counters. If the
    /// announced addresses differ, all of them are announced, as at a start.
    pub fn take_over(&mut self, now_ms: u64, before: &mut Ether) {
        before.settings.ports.iter().for_each(|port| self.set_mac(port.device, port.mac));
        self.stats = core::mem::take(&mut before.stats);
        self.conflict = before.conflict;
        self.updates.append(&mut before.updates);
        self.neighbours.adopt(now_ms, &before.neighbours);
        let announced = |ether: &Ether| ether.ports.iter().map(|port| port.announced.len()).sum::<usize>();
        let alike = announced(self) == announced(before)
            && self.ports.iter().zip(&before.ports).all(|(a, b)| a.announced == b.announced);
        self.announcements.take_over(&before.announcements, alike);
        self.keep_waiting(now_ms, before);
    }

    /// Moves the pending packets to the same neighbours.
    fn keep_waiting(&mut self, now_ms: u64, before: &mut Ether) {
        self.stats.waiting = 0;
        let Ether { waiting, neighbours, .. } = before;
        waiting.release_all(|neighbour, bytes| {
            let waits = neighbours.get(neighbour).map(|n| (n.port, n.key));
            let packet = bytes.get(LEN_MAX..).unwrap_or_default();
            let kept = waits.ok_or(Unsent::WaitingFailed).and_then(|n| self.keep_for(now_ms, n, packet));
            if let Err(reason) = kept {
                self.stats.unsent.count(reason);
            }
        });
    }

    fn keep_for(&mut self, now_ms: u64, (port, key): (u8, Key), packet: &[u8]) -> Result<(), Unsent> {
        let neighbour = self.neighbours.want(now_ms, port, key)?;
        let way = self.neighbours.way(now_ms, neighbour);
        if let NextHopAction::Drop(reason) = way {
            return Err(reason);
        }
        self.keep_bytes(now_ms, neighbour, packet)?;
        if let NextHopAction::Send(_) = way {
            self.neighbours.put_on_agenda(neighbour);
        }
        Ok(())
    }
}
