//! Prefetch of frames before they are parsed. A device or another processor has written them, so that waiting
//! for one costs as much as a hundred instructions.

use gatun_mem::{prefetch_read, prefetch_write};
use gatun_wire::hdr::{ipv4, ipv6, tcp};
use gatun_wire::{Packet, proto};

/// Prefetch distance in frames. The processor can keep no more lines in flight and drops further requests.
const PREFETCH_DISTANCE: usize = 16;

/// Iterates over a burst and prefetches each frame some positions ahead: `ask` calls [`prefetch_frame`].
pub fn prefetch_ahead<T>(frames: &mut [T], mut ask: impl FnMut(&mut T)) -> impl Iterator<Item = &mut T> {
    frames.iter_mut().take(PREFETCH_DISTANCE).for_each(&mut ask);
    PrefetchAhead { rest: frames, ask }
}

struct PrefetchAhead<'f, T, A> {
    rest: &'f mut [T],
    ask: A,
}

impl<'f, T, A: FnMut(&mut T)> Iterator for PrefetchAhead<'f, T, A> {
    type Item = &'f mut T;

    #[inline]
    fn next(&mut self) -> Option<&'f mut T> {
        let (at_hand, rest) = std::mem::take(&mut self.rest).split_first_mut()?;
        if let Some(later) = rest.get_mut(PREFETCH_DISTANCE - 1) {
            (self.ask)(later);
        }
        self.rest = rest;
        Some(at_hand)
    }
}

/// Prefetches the memory at `start` of `buffer`, where a frame begins: usually all of its headers.
#[inline]
pub fn prefetch_frame(buffer: &[u8], start: usize) {
    prefetch_read(buffer, start);
}

/// Prefetches the other memory of a packet that will be read or written, once its first bytes are present.
#[inline]
pub(crate) fn prefetch_headers(packet: &mut Packet<'_>) {
    let start = packet.start();
    match packet.bytes().first().map(|b| b >> 4) {
        // Flags and checksum of TCP.
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
    fn every_frame_is_prefetched_before_it_is_returned_in_order() {
        for len in [0, 1, PREFETCH_DISTANCE - 1, PREFETCH_DISTANCE, PREFETCH_DISTANCE + 1, 64] {
            let asked = std::cell::RefCell::new(Vec::new());
            let mut frames: Vec<(usize, [u8; 256])> = (0..len).map(|n| (n, [0; 256])).collect();
            let through = prefetch_ahead(&mut frames, |(number, buffer)| {
                asked.borrow_mut().push(*number);
                prefetch_frame(buffer, 128);
            });
            for (number, frame) in through.enumerate() {
                assert_eq!(frame.0, number);
                assert!(
                    asked.borrow().contains(&number)
                        && asked.borrow().len() <= number + PREFETCH_DISTANCE + 1
                );
            }
            assert_eq!(*asked.borrow(), (0..len).collect::<Vec<_>>(), "each once");
        }
    }

    #[test]
    fn frames_at_the_edges_of_their_buffer_can_be_prefetched() {
        for (len, start) in [(0, 0), (1, 0), (64, 63), (64, 64), (256, 255)] {
            prefetch_frame(&vec![0; len], start);
            for first in [0x45, 0x60, 0] {
                let mut buffer = vec![proto::TCP; len];
                if let Some(at) = buffer.get_mut(start) {
                    *at = first;
                }
                let mut packet = Packet::new(&mut buffer, start.min(len), len - start.min(len)).unwrap();
                prefetch_headers(&mut packet);
            }
        }
    }
}
