//! Frame sizes.

use crate::traffic::flows::mix;

/// Bytes of a frame outside its packet: Ethernet header and frame check sequence.
pub const LAYER_2: usize = 18;

/// Sizes of the inside hosts' frames in bytes, with Ethernet header and frame check sequence, as RFC 2544 9
/// counts. Frames too small for the headers and the stamp are enlarged: to 84 bytes for UDP over IPv6 (RFC
/// 8219 4.3), 64 over IPv4, and 12 more for TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All frames have this size, 64 to 9000.
    Fixed(usize),
    /// Simple IMIX: of twelve frames, seven have 64 bytes, four 594 and one 1518.
    Imix,
}

impl Sizes {
    /// Bytes of the frame of packet `number`.
    pub(crate) fn frame(self, number: u64) -> usize {
        match self {
            Sizes::Fixed(frame) => frame,
            Sizes::Imix => match ((mix(number) >> 32) * 12) >> 32 {
                0..7 => 64,
                7..11 => 594,
                _ => 1518,
            },
        }
    }

    /// Bytes of the largest frame.
    pub fn frame_max(self) -> usize {
        match self {
            Sizes::Fixed(frame) => frame,
            Sizes::Imix => 1518,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imix_has_the_shares_it_should() {
        let mut frames = [0; 3];
        for number in 0..120_000 {
            match Sizes::Imix.frame(number) {
                64 => frames[0] += 1,
                594 => frames[1] += 1,
                1518 => frames[2] += 1,
                other => panic!("{other}"),
            }
        }
        for (frames, expected) in frames.into_iter().zip([70_000i32, 40_000, 10_000]) {
            assert!((frames - expected).abs() < 1000, "{frames} for {expected}");
        }
    }
}
