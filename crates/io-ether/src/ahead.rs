//! Asking for the memory of frames before they are looked at. A device or another processor has written them, so each
//! costs as much as a hundred instructions if it is waited for.

use gatun_mem::{prefetch_read, prefetch_write};
use gatun_wire::hdr::{ipv4, ipv6, tcp};
use gatun_wire::{Packet, proto};

/// How many frames ahead of the one at hand: no more lines can be on their way, and what is asked for beyond that is
/// forgotten.
const AHEAD: usize = 16;

/// Goes through a burst, and has each frame asked for some places ahead: `ask` calls [`ask_for`].
pub fn ahead<T>(frames: &mut [T], mut ask: impl FnMut(&mut T)) -> impl Iterator<Item = &mut T> {
    frames.iter_mut().take(AHEAD).for_each(&mut ask);
    Ahead { rest: frames, ask }
}

struct Ahead<'f, T, A> {
    rest: &'f mut [T],
    ask: A,
}

impl<'f, T, A: FnMut(&mut T)> Iterator for Ahead<'f, T, A> {
    type Item = &'f mut T;

    #[inline]
    fn next(&mut self) -> Option<&'f mut T> {
        let (at_hand, rest) = std::mem::take(&mut self.rest).split_first_mut()?;
        if let Some(later) = rest.get_mut(AHEAD - 1) {
            (self.ask)(later);
        }
        self.rest = rest;
        Some(at_hand)
    }
}

/// Asks for the memory that a frame begins in, at `start` of `buffer`: all of its headers, mostly.
#[inline]
pub fn ask_for(buffer: &[u8], start: usize) {
    prefetch_read(buffer, start);
}

/// Asks for what else will be looked at or written of a packet whose first bytes are there.
#[inline]
pub(crate) fn ask_for_rest(packet: &mut Packet<'_>) {
    let start = packet.start();
    match packet.bytes().first().map(|b| b >> 4) {
        // TCP's flags and checksum.
        Some(6) if packet.bytes().get(ipv6::NEXT_HEADER) == Some(&proto::TCP) => {
            prefetch_read(packet.buffer_mut(), start + ipv6::LEN + tcp::CHECKSUM);
        }
        // A longer header will begin before it.
        Some(4) => prefetch_write(packet.buffer_mut(), start.saturating_sub(ipv6::LEN - ipv4::LEN)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_comes_once_in_order_and_was_asked_for_before() {
        for len in [0, 1, AHEAD - 1, AHEAD, AHEAD + 1, 64] {
            let asked = std::cell::RefCell::new(Vec::new());
            let mut frames: Vec<(usize, [u8; 256])> = (0..len).map(|n| (n, [0; 256])).collect();
            let through = ahead(&mut frames, |(number, buffer)| {
                asked.borrow_mut().push(*number);
                ask_for(buffer, 128);
            });
            for (number, frame) in through.enumerate() {
                assert_eq!(frame.0, number);
                assert!(asked.borrow().contains(&number) && asked.borrow().len() <= number + AHEAD + 1);
            }
            assert_eq!(*asked.borrow(), (0..len).collect::<Vec<_>>(), "each once");
        }
    }

    #[test]
    fn a_frame_at_an_edge_of_its_buffer_may_be_asked_for() {
        for (len, start) in [(0, 0), (1, 0), (64, 63), (64, 64), (256, 255)] {
            ask_for(&vec![0; len], start);
            for first in [0x45, 0x60, 0] {
                let mut buffer = vec![proto::TCP; len];
                if let Some(at) = buffer.get_mut(start) {
                    *at = first;
                }
                let mut packet = Packet::new(&mut buffer, start.min(len), len - start.min(len)).unwrap();
                ask_for_rest(&mut packet);
            }
        }
    }
}
