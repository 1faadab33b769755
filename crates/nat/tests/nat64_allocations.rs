//! Test that the engine allocates nothing after construction: not for sessions, errors, hairpins, fragments,
//! held SYNs and probes, nor at their end.

mod common;
use common::*;
use gatun_nat::plan::Filtering;
use gatun_nat::reconfigure::Change;
use gatun_nat::{BURST, Instant, Nat, Verdict};
use gatun_wire::{DropReason, HEADROOM, Packet};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

const POOL6: &str = "2001:db8:64::/96";
const T: &str = "192.0.2.1";

/// System allocator that counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // An ending thread has no counter any more, and runs no test either.
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
}

// SAFETY: every call is passed to the system's allocator unchanged. Counting touches no other memory and does
// not allocate, because the counter is initialised at compile time.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller guarantees the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller guarantees the same contract.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller guarantees the same contract.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs an engine, and sums up its allocations.
struct Meter {
    nat: Nat,
    now: Instant,
    allocations: u64,
    emitted: usize,
}

impl Meter {
    /// Processes packets in bursts, and returns their outcomes.
    fn send(&mut self, packets: &[Vec<u8>]) -> Vec<(Verdict, Vec<u8>)> {
        let mut all = Vec::new();
        for chunk in packets.chunks(BURST) {
            let mut bufs: Vec<Vec<u8>> =
                chunk.iter().map(|p| [&[0; HEADROOM][..], p, &[0; 64]].concat()).collect();
            let mut burst: Vec<Packet<'_>> = bufs
                .iter_mut()
                .zip(chunk)
                .map(|(buf, p)| Packet::new(buf, HEADROOM, p.len()).unwrap())
                .collect();
            let mut verdicts = [Verdict::Pass; BURST];
            let mut done = 0;
            while done < chunk.len() {
                let before = ALLOCATIONS.get();
                done += self.nat.process(self.now, &mut burst[done..], &mut verdicts[done..]);
                let emitted = &mut self.emitted;
                self.nat.drain_emitted(|_| *emitted += 1);
                self.allocations += ALLOCATIONS.get() - before;
            }
            all.extend(verdicts.into_iter().zip(burst.iter().map(|p| p.bytes().to_vec())));
        }
        all
    }

    fn pass_ms(&mut self, ms: u64) {
        for _ in 0..ms / 1000 {
            self.now = self.now.plus_ms(1000);
            let before = ALLOCATIONS.get();
            self.nat.expire(self.now, 1000);
            let emitted = &mut self.emitted;
            self.nat.drain_emitted(|_| *emitted += 1);
            self.allocations += ALLOCATIONS.get() - before;
        }
    }
}

fn client(n: usize) -> String {
    format!("2001:db8:1::{:x}", n + 16)
}

#[test]
fn the_counter_counts() {
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(vec![1u8; 100]));
    assert_eq!(ALLOCATIONS.get() - before, 2);
}

#[test]
fn nothing_is_allocated_after_construction() {
    for filtering in [Filtering::EndpointIndependent, Filtering::AddressDependent] {
        let mut plan = plan_with(POOL6);
        plan.nat64[0].filtering = filtering;
        plan.limits.sessions_max = 1_000;
        plan.limits.sessions_reserved = 0;
        plan.limits.subscribers_max = 300;
        let nat = Nat::new(&plan, [1, 2, 3, 4]).unwrap();
        let mut meter = Meter { nat, now: Instant(1_000), allocations: 0, emitted: 0 };
        for _ in 0..2 {
            history(&mut meter);
        }
        assert_eq!(meter.allocations, 0, "{filtering:?}");
        assert!(meter.emitted > 100, "fragments, errors and probes were made: {}", meter.emitted);
        let c = meter.nat.counters();
        assert!(c.conserved() && meter.nat.conserved_by_instance());
        // The history raises the intended drop reasons.
        let dropped = |reason: DropReason| c.drops.iter().map(|d| d[reason as usize].packets).sum::<u64>();
        use DropReason::*;
        for reason in [SessionTableFull, SubscriberTableFull, SynExpired, SynStoreFull, TtlExceeded] {
            assert!(dropped(reason) > 0, "{reason:?}");
        }
        assert!(c.hairpinned.packets >= 2 && c.probes_sent >= 40 && c.fragments_made > 0, "{c:?}");
        assert!(c.icmp_errors_sent > 0 && c.icmp_errors_limited > 0 && c.echo_replies == 4, "{c:?}");
    }
}

/// Packets of all kinds, up to full tables, and then the end of all state.
fn history(meter: &mut Meter) {
    let (server6, t6) = (behind(POOL6, SERVER), behind(POOL6, T));
    // More subscribers and sessions than the tables have room for.
    let udp: Vec<_> = (0..350).map(|n| udp6(&client(n), 5000, &server6, 53, &[7; 100])).collect();
    let sent = meter.send(&udp);
    let many: Vec<_> = (0..900).map(|n| udp6(&client(1), 5000, &server6, n, b"")).collect();
    meter.send(&many);
    let tcp = |flags: &str| -> Vec<Vec<u8>> {
        (0..40).map(|n| tcp6(&client(n), 80, &server6, 53, flags, b"")).collect()
    };
    meter.pass_ms(310_000);
    let sent_tcp = meter.send(&tcp("S"));
    meter.send(&udp);
    let ports: Vec<u16> = sent_tcp.iter().map(|(_, bytes)| ends(bytes).sport).collect();
    let answers: Vec<_> = ports.iter().map(|&p| tcp4(SERVER, 53, T, p, "SA", b"")).collect();
    meter.send(&answers);
    meter.send(&tcp("A"));
    // Packets from other hosts, admitted or not; held SYNs; errors in both directions.
    let strangers: Vec<_> = ports.iter().map(|&p| tcp4(OWN4, 1, T, p, "S", b"")).collect();
    meter.send(&strangers);
    let knocks: Vec<_> = (1..200).map(|p| tcp4("203.0.113.1", p, T, p, "S", b"")).collect();
    meter.send(&knocks);
    let errors4: Vec<_> = sent.iter().take(64).map(|(_, b)| error4("203.0.113.1", T, (3, 3, 0), b)).collect();
    meter.send(&errors4);
    let udp_again = meter.send(&udp);
    let udp_port = ends(&udp_again[0].1).sport;
    let big: Vec<_> = (0..20).map(|_| with_flags4(udp4(SERVER, 53, T, udp_port, &[1; 4000]), 0)).collect();
    meter.send(&big);
    let inward = meter.send(&[udp4(SERVER, 53, T, udp_port, b"x")]);
    meter.send(&[error6(&client(0), &server6, (1, 4, 0), &inward[0].1)]);
    // Hairpins, errors about them, fragments out of order, invalid packets of all kinds.
    meter.send(&[udp6(&client(0), 5000, &t6, 1, b"opens the way where addresses are asked for")]);
    let turned = meter.send(&[udp6(&client(2), 5000, &t6, udp_port, b"hairpin")]);
    meter.send(&[error6(&client(0), &t6, (1, 4, 0), &turned[0].1)]);
    let whole = udp4(SERVER, 53, T, udp_port, &[3; 1000]);
    let later = with_flags4(whole.clone(), 5);
    let first = with_flags4(whole, 0x2000);
    meter.send(&[later.clone(), first, later]);
    let low: Vec<_> = (0..300).map(|n| with_hops(udp6(&client(n), 1, &server6, 1, b""), 1)).collect();
    meter.send(&low);
    meter.send(&[
        other6(&client(1), &server6, 132),
        other4(SERVER, T, 132),
        echo6(&client(1), OWN6, true, 1, b""),
        echo4(SERVER, OWN4, true, 1, b""),
        echo6(&client(1), &server6, true, 1, b""),
        vec![0x60],
        vec![0x45; 30],
    ]);
    // Established connections are probed, then everything ends.
    meter.pass_ms(8_000_000);
    assert_eq!(meter.nat.occupancy(), Default::default());
}

#[test]
fn applying_and_settling_a_change_allocates_nothing() {
    let mut plan = plan_with(POOL6);
    plan.pools = vec![pool(T, "192.0.2.4", (1024, 65_535))];
    plan.limits.sessions_max = 2_000;
    let nat = Nat::new(&plan, [1, 2, 3, 4]).unwrap();
    let mut meter = Meter { nat, now: Instant(1_000), allocations: 0, emitted: 0 };
    let udp = |n: usize| udp6(&client(n), 4000, &behind(POOL6, SERVER), 53, b"x");
    meter.send(&(0..1_000).map(udp).collect::<Vec<_>>());
    let mut new = plan.clone();
    new.pools = vec![pool("192.0.2.3", "192.0.2.9", (1024, 40_000))];
    new.nat64[0].static_bindings =
        vec![static_binding(gatun_nat::plan::Transport::Udp, ("2001:db8:9::1", 80), ("192.0.2.9", 80))];
    let mut change = Change::prepare(&meter.nat.outline(), &plan, &new).unwrap();
    let before = ALLOCATIONS.get();
    meter.nat.apply(meter.now, &mut change).unwrap();
    while meter.nat.is_settling() {
        meter.nat.expire(meter.now, 16);
    }
    meter.allocations += ALLOCATIONS.get() - before;
    assert!(meter.nat.settled().sessions > 400);
    meter.send(&(0..1_000).map(udp).collect::<Vec<_>>());
    meter.pass_ms(400_000);
    assert_eq!(meter.allocations, 0);
    assert_eq!(meter.nat.occupancy().sessions, 0);
}
