//! Rate limits of ICMP errors (RFC 4443 2.4 f, RFC 1812 4.3.2.8): a bucket for each source, then one for all.
//!
//! Each source has a bucket of its own, so one host cannot use up the errors of others. The last part of
//! every bucket is reserved for Packet Too Big and Fragmentation Needed, without which connections hang (RFC
//! 2923). The table of sources has a fixed size and is hashed with the engine's secret. A source that is not
//! in the table has a full bucket, so a new source replaces the one whose bucket is closest to full.

use crate::base::plan::IcmpPolicy;
use crate::base::time::Instant;
use core::net::Ipv6Addr;
use gatun_mem::hash::Hasher64;
use gatun_mem::{Footprint, HugeVec, OutOfMemory};

/// Sources with a bucket that is not full.
const SOURCES: usize = 4096;
/// Places that a source may have: one cache line.
const WAYS: usize = 4;
/// One part in `RESERVED` of a bucket's errors is for Packet Too Big alone.
const RESERVED: u32 = 4;

/// Reason why an error may not be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitReason {
    /// Its receiver has reached `icmp.rate_per_source`.
    Source,
    /// All errors together have reached `icmp.rate`.
    All,
}

/// Source of the packets that cause errors: a subscriber, a /64 or an IPv4 address of a realm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    prefix: u128,
    realm: u8,
}

impl Source {
    /// Prefix length of a source with an IPv6 address that belongs to no subscriber.
    pub const IPV6: u8 = 64;
    /// Same for an IPv4 address.
    pub const IPV4: u8 = 128;

    /// Returns the source for the network of `len` bits that contains an address. IPv4 addresses are in
    /// ::ffff:0:0/96.
    pub fn new(realm: u8, address: Ipv6Addr, len: u8) -> Self {
        let host_bits = u128::MAX.checked_shr(len.into()).unwrap_or(0);
        Source { prefix: u128::from(address) & !host_bits, realm }
    }
}

/// Bucket of one source. It is full once `due_ns` has passed, so an empty place is all zero.
#[derive(Clone, Copy, Debug, zerocopy::FromZeros)]
#[repr(C)]
struct RateSlot {
    /// Keyed hash of its source, 64 bits, which identifies the source well enough.
    hash: u64,
    /// Time at which the bucket will be full.
    due_ns: u64,
}

/// The limits of one engine.
pub struct IcmpLimit {
    all: Bucket,
    rate_per_source: u32,
    burst_per_source: u32,
    places: HugeVec<RateSlot>,
    hasher: Hasher64,
}

impl IcmpLimit {
    /// Creates the limits of a policy, with room for all sources.
    ///
    /// # Errors
    ///
    /// Returns an error if memory is short.
    pub fn new(policy: &IcmpPolicy, hasher: Hasher64) -> Result<Self, OutOfMemory> {
        Ok(IcmpLimit {
            all: Bucket::new(policy.rate, policy.burst),
            rate_per_source: policy.rate_per_source,
            burst_per_source: policy.burst_per_source,
            places: HugeVec::new(SOURCES)?,
            hasher,
        })
    }

    /// Memory use of [`IcmpLimit::new`].
    pub fn footprint() -> Footprint {
        HugeVec::<RateSlot>::footprint(SOURCES)
    }

    /// Changes the rates.
    pub fn set(&mut self, policy: &IcmpPolicy) {
        self.all.set(policy.rate, policy.burst);
        self.rate_per_source = policy.rate_per_source;
        self.burst_per_source = policy.burst_per_source;
    }

    /// Counts one more error to `source` at `now`. `too_big` is true for Packet Too Big and Fragmentation
    /// Needed.
    ///
    /// # Errors
    ///
    /// Returns an error if the ICMP error may not be sent; it is not counted then.
    pub fn allow(&mut self, now: Instant, source: Source, too_big: bool) -> Result<(), LimitReason> {
        let Some(each_ns) = 1_000_000_000u64.checked_div(self.rate_per_source.into()) else {
            return self.all.take(now, too_big);
        };
        let now_ns = now.0.saturating_mul(1_000_000);
        let burst = self.burst_per_source - kept_for_others(self.burst_per_source, too_big);
        let hash = self.hash(source);
        let Some(place) = self.place(hash) else { return self.all.take(now, too_big) };
        let before_ns = if place.hash == hash { place.due_ns } else { 0 };
        let due_ns = before_ns.max(now_ns).saturating_add(each_ns);
        if due_ns - now_ns > each_ns.saturating_mul(burst.into()) {
            return Err(LimitReason::Source);
        }
        self.all.take(now, too_big)?;
        if let Some(place) = self.place(hash) {
            *place = RateSlot { hash, due_ns };
        }
        Ok(())
    }

    fn hash(&self, source: Source) -> u64 {
        self.hasher.hash4([
            (source.prefix >> 64) as u64,
            source.prefix as u64,
            u64::from(source.realm),
            7 << 32,
        ])
    }

    /// Returns the place of a source, or the one that it would get.
    fn place(&mut self, hash: u64) -> Option<&mut RateSlot> {
        let first = (hash as usize & (SOURCES / WAYS - 1)) * WAYS;
        let set = self.places.get_mut(first..first + WAYS)?;
        set.iter_mut().min_by_key(|place| (place.hash != hash, place.due_ns))
    }
}

/// Returns the number of errors of a burst that this error must leave for others.
fn kept_for_others(burst: u32, too_big: bool) -> u32 {
    if too_big { 0 } else { burst / RESERVED }
}

/// A token bucket. If the clock jumps back, only the tokens of that moment are lost. If it jumps ahead, the
/// bucket is full, not more.
#[derive(Clone, Debug)]
struct Bucket {
    rate_per_s: u32,
    burst: u32,
    /// Thousandths of a token: a rate of one token a second gives one of these a millisecond.
    tokens_milli: u64,
    last: Instant,
}

const TOKEN: u64 = 1000;

impl Bucket {
    /// Creates a bucket for `rate_per_s` errors a second, and `burst` at once. A burst of 0 allows none.
    const fn new(rate_per_s: u32, burst: u32) -> Self {
        Bucket { rate_per_s, burst, tokens_milli: burst as u64 * TOKEN, last: Instant(0) }
    }

    /// Changes rate and burst.
    fn set(&mut self, rate_per_s: u32, burst: u32) {
        (self.rate_per_s, self.burst) = (rate_per_s, burst);
        self.tokens_milli = self.tokens_milli.min(u64::from(burst) * TOKEN);
    }

    /// Takes a token; the reserved ones are for `too_big`.
    fn take(&mut self, now: Instant, too_big: bool) -> Result<(), LimitReason> {
        let gained = now.since_ms(self.last).saturating_mul(u64::from(self.rate_per_s));
        let burst_milli = u64::from(self.burst) * TOKEN;
        self.tokens_milli = self.tokens_milli.saturating_add(gained).min(burst_milli);
        self.last = now;
        let left = (self.tokens_milli.checked_sub(TOKEN)).ok_or(LimitReason::All)?;
        if left < u64::from(kept_for_others(self.burst, too_big)) * TOKEN {
            return Err(LimitReason::All);
        }
        self.tokens_milli = left;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn sent(bucket: &mut Bucket, now: u64, tries: u32) -> u32 {
        (0..tries).map(|_| u32::from(bucket.take(Instant(now), true).is_ok())).sum()
    }

    #[test]
    fn a_burst_then_the_rate() {
        let mut bucket = Bucket::new(1000, 200);
        assert_eq!(sent(&mut bucket, 5_000_000, 1000), 200);
        assert_eq!(sent(&mut bucket, 5_000_000, 1000), 0);
        assert_eq!(sent(&mut bucket, 5_000_001, 1000), 1);
        assert_eq!(sent(&mut bucket, 5_000_050, 1000), 49);
        assert_eq!(sent(&mut bucket, 5_100_000, 1000), 200);
    }

    #[test]
    fn a_rate_below_one_a_millisecond_is_kept_over_many_small_steps() {
        let mut bucket = Bucket::new(3, 1);
        let total: u32 = (0..=100_000).map(|ms| sent(&mut bucket, ms, 2)).sum();
        assert_eq!(total, 1 + 299, "the fraction left over by each full bucket is lost, not gained");
    }

    #[test]
    fn a_clock_that_jumps_is_harmless() {
        let mut bucket = Bucket::new(10, 5);
        assert_eq!(sent(&mut bucket, u64::MAX, 100), 5);
        assert_eq!(sent(&mut bucket, 1000, 100), 0);
        assert_eq!(sent(&mut bucket, 1100, 100), 1, "the bucket continues from the earlier time");
        assert_eq!(sent(&mut bucket, u64::MAX, 100), 5);
    }

    #[test]
    fn a_burst_of_zero_sends_nothing() {
        let mut bucket = Bucket::new(1000, 0);
        assert_eq!(sent(&mut bucket, 0, 10) + sent(&mut bucket, 10_000, 10), 0);
    }

    fn limit(rate: u32, burst: u32, rate_per_source: u32, burst_per_source: u32) -> IcmpLimit {
        let policy = IcmpPolicy { rate, burst, rate_per_source, burst_per_source, ..IcmpPolicy::default() };
        IcmpLimit::new(&policy, Hasher64::new([1, 2, 3, 4])).unwrap()
    }

    fn source(n: u32) -> Source {
        Source::new(0, Ipv6Addr::from(u128::from(n) << 64 | 7), 64)
    }

    #[test]
    fn a_source_uses_up_its_own_bucket_and_the_last_quarter_is_for_packet_too_big() {
        let mut limit = limit(1_000, 200, 100, 40);
        let now = Instant(1_000_000);
        let mut tries = |n, too_big| -> Vec<_> { (0..60).map(|_| limit.allow(now, n, too_big)).collect() };
        let first = tries(source(1), false);
        assert_eq!(first.iter().filter(|r| r.is_ok()).count(), 30);
        assert!(first[30..].iter().all(|r| *r == Err(LimitReason::Source)));
        assert_eq!(tries(source(1), true).iter().filter(|r| r.is_ok()).count(), 10);
        assert_eq!(tries(source(2), false).iter().filter(|r| r.is_ok()).count(), 30);
    }

    #[test]
    fn many_sources_leave_the_last_quarter_of_all_to_packet_too_big() {
        let mut limit = limit(1_000, 200, 100, 40);
        let now = Instant(1_000_000);
        let others = (0..1000).filter(|&n| limit.allow(now, source(n), false).is_ok()).count();
        assert_eq!(others, 150);
        assert_eq!(limit.allow(now, source(5000), false), Err(LimitReason::All));
        let too_big = (1000..2000).filter(|&n| limit.allow(now, source(n), true).is_ok()).count();
        assert_eq!(too_big, 50);
    }

    #[test]
    fn a_bucket_of_a_source_fills_at_its_rate_and_no_further() {
        let mut limit = limit(0, 1_000_000, 10, 4);
        let mut sent = |ms| (0..9).filter(|_| limit.allow(Instant(ms), source(1), true).is_ok()).count();
        assert_eq!([sent(1_000), sent(1_099), sent(1_100), sent(1_350), sent(100_000)], [4, 0, 1, 2, 4]);
    }

    #[test]
    fn a_full_table_of_sources_accepts_new_sources() {
        let mut limit = limit(1_000_000, 1_000_000, 1, 1);
        let now = Instant(1_000_000);
        assert!((0..20_000).all(|n| limit.allow(now, source(n), true).is_ok()));
        assert_eq!(limit.places.iter().filter(|place| place.due_ns > 0).count(), SOURCES);
        // Realms and prefixes are distinct sources; hosts of a prefix are not.
        let at = |realm, host: u128, len| Source::new(realm, Ipv6Addr::from(host), len);
        assert_eq!(at(0, 1 << 80 | 1, 64), at(0, 1 << 80 | 2, 64));
        assert_ne!(at(0, 1 << 80 | 1, 128), at(0, 1 << 80 | 2, 128));
        assert_ne!(at(0, 1, 64), at(1, 1, 64));
    }

    #[test]
    fn without_a_rate_for_sources_only_all_together_are_limited() {
        let mut limit = limit(1_000, 8, 0, 0);
        let sent = (0..20).filter(|_| limit.allow(Instant(9), source(1), true).is_ok()).count();
        assert_eq!(sent, 8);
    }
}
