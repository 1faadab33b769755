//! Port of a switch towards the engine, and the registers of pending entries (decision 0111).

use gatun_p4_controller::flow::Key;
use gatun_p4_controller::link::FlowEntry;
use std::collections::{BTreeMap, VecDeque};

/// Places of the registers.
const PLACES: u32 = 1 << 17;

/// Generation, and number of a packet of it.
type Value = (u8, u32);

/// Frame on its way through the engine.
#[derive(Clone, Copy, Debug)]
enum Frame {
    /// Packet with this key.
    Packet(Key),
    /// Echo of a packet: place and value.
    Echo(u32, Value),
}

/// Port of a switch towards the engine. Packets leave the engine in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct EnginePort {
    sent: BTreeMap<u32, Value>,
    returned: BTreeMap<u32, Value>,
    between: VecDeque<Frame>,
    /// Packets that pending entries have translated.
    pub(super) moved: u64,
}

fn place(of: &FlowEntry) -> u32 {
    (of.slot << 1 | of.direction.index() as u32) % PLACES
}

impl EnginePort {
    /// Decides whether a packet goes to the engine, by the entry that it hits.
    ///
    /// # Errors
    /// A pending entry lets a packet overtake another one of its flow.
    pub(super) fn pass(&mut self, key: Key, hit: Option<FlowEntry>) -> Result<bool, String> {
        let Some(of) = hit else {
            self.between.push_back(Frame::Packet(key));
            return Ok(true);
        };
        let place = place(&of);
        let sent = self.sent.get(&place).copied().unwrap_or_default();
        if of.pending == 0 {
            return Ok(false);
        }
        if sent.0 != of.pending || self.returned.get(&place) != Some(&sent) {
            let number = if sent.0 == of.pending { sent.1 + 1 } else { 1 };
            self.sent.insert(place, (of.pending, number));
            self.between.extend([Frame::Packet(key), Frame::Echo(place, (of.pending, number))]);
            return Ok(true);
        }
        self.moved += 1;
        let is_it = |other: &Frame| matches!(other, Frame::Packet(other) if *other == key);
        match self.between.iter().any(is_it) {
            true => Err(format!("a packet of {key:?} is overtaken")),
            false => Ok(false),
        }
    }

    /// The engine gives back what came first. Echoes may be lost.
    pub(super) fn give_back(&mut self, frames: usize, loses: bool) {
        let n = frames.min(self.between.len());
        for frame in self.between.drain(..n) {
            if let Frame::Echo(place, value) = frame
                && !loses
            {
                self.returned.insert(place, value);
            }
        }
    }

    /// Registers of a program that was loaded now.
    pub(super) fn restart(&mut self) {
        self.sent.clear();
        self.returned.clear();
    }

    /// The engine's port is another process's now. The next controller begins with generations by chance: a
    /// history leaves out that one of 255 is the last one of its place.
    pub(super) fn forget_controller(&mut self, entries: impl Iterator<Item = FlowEntry>) {
        let live: BTreeMap<u32, u8> = entries.map(|of| (place(&of), of.pending)).collect();
        for register in [&mut self.sent, &mut self.returned] {
            register.retain(|place, value| live.get(place) == Some(&value.0));
        }
        self.between.retain(|frame| matches!(frame, Frame::Packet(_)));
    }
}
