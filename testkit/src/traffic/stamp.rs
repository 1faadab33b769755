//! Stamp: the identity of a packet, in the first bytes of its payload.
//!
//! ```text
//!   0        4                    10                   16     18
//!   | flow   | number             | time, ns           | check |      big-endian
//! ```
//! `check` covers the other fields and the run's seed: it exposes packets of other runs and changed packets.

use crate::traffic::flows::mix;

/// Bytes of a stamp.
pub(crate) const STAMP_LEN: usize = 18;
const MASK: u64 = (1 << 48) - 1;

/// A packet's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) flow: u32,
    /// Number of the packet, below 2^48.
    pub(crate) number: u64,
    /// Send time, below 2^48: it wraps every 78 hours.
    pub(crate) time_ns: u64,
}

impl Stamp {
    fn check(&self, seed: u64) -> u16 {
        let flow = u64::from(self.flow);
        let [low, high] = [self.number & MASK | flow << 48, self.time_ns & MASK | (flow >> 16) << 48];
        mix(mix(seed ^ low) ^ high) as u16
    }

    pub(crate) fn bytes(&self, seed: u64) -> [u8; STAMP_LEN] {
        let whole = u128::from(self.flow) << 112
            | u128::from(self.number & MASK) << 64
            | u128::from(self.time_ns & MASK) << 16
            | u128::from(self.check(seed));
        let mut bytes = [0; STAMP_LEN];
        // 32 + 48 + 48 + 16 bits are 144: the two upper bytes of the flow do not fit the 128 of `whole`.
        bytes[..2].copy_from_slice(&((self.flow >> 16) as u16).to_be_bytes());
        bytes[2..].copy_from_slice(&whole.to_be_bytes());
        bytes
    }

    /// Reads the stamp at the start of a payload; `None` if its check is wrong.
    pub(crate) fn read(payload: &[u8], seed: u64) -> Option<Stamp> {
        let bytes: &[u8; STAMP_LEN] = payload.first_chunk()?;
        let [high0, high1, rest @ ..] = *bytes;
        let whole = u128::from_be_bytes(rest);
        let stamp = Stamp {
            flow: u32::from(u16::from_be_bytes([high0, high1])) << 16 | (whole >> 112) as u32,
            number: (whole >> 64) as u64 & MASK,
            time_ns: (whole >> 16) as u64 & MASK,
        };
        (stamp.check(seed) == whole as u16).then_some(stamp)
    }

    /// Nanoseconds from the stamp's time to `now_ns`.
    pub(crate) fn age_ns(&self, now_ns: u64) -> u64 {
        now_ns.wrapping_sub(self.time_ns) & MASK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_back_only_with_the_seed_of_its_run() {
        let stamp = Stamp { flow: 0x8123_4567, number: 0xfedc_ba98_7654, time_ns: 0x8000_0000_0001 };
        let bytes = stamp.bytes(3);
        assert_eq!(Stamp::read(&bytes, 3), Some(stamp));
        assert_eq!(Stamp::read(&bytes, 4), None);
        assert_eq!(Stamp::read(&bytes[..17], 3), None);
        for bit in 0..8 * STAMP_LEN {
            let mut wrong = bytes;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Stamp::read(&wrong, 3), None, "bit {bit}");
        }
    }

    #[test]
    fn the_age_survives_the_wrap_of_the_clock() {
        let stamp = Stamp { flow: 0, number: 0, time_ns: MASK };
        assert_eq!(stamp.age_ns(1 << 48 | 9), 10);
    }
}
