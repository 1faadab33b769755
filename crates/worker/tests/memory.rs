//! A complete worker with the in-memory backend.

use gatun_io::{Memory, TxError};
use gatun_nat::{Nat, Plan};
use gatun_worker::{Clock, Snapshot, Worker};
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

fn wait_for(handle: &gatun_worker::Handle, done: impl Fn(&Snapshot) -> bool) -> Snapshot {
    let deadline = Instant::now() + 10 * SECOND;
    loop {
        let snapshot = handle.snapshot(SECOND).expect("the worker answers");
        if done(&snapshot) {
            return snapshot;
        }
        assert!(Instant::now() < deadline, "not in time: {:?}", snapshot.worker);
    }
}

#[test]
fn every_received_packet_has_one_fate_in_all_three_counts() {
    let (memory, peer) = Memory::new("m").unwrap();
    let nat = Nat::new(&Plan::default(), [1, 2, 3, 4]).unwrap();
    let (worker, handle) = Worker::new(nat, Box::new(memory), Clock::new()).unwrap();
    let thread = std::thread::spawn(move || worker.run());
    peer.refuse(Some(TxError::Down));
    for i in 0..1000usize {
        // Not for an engine without instances; some are not even IP packets.
        peer.push(vec![(i % 256) as u8; i % 90]);
    }
    let snapshot = wait_for(&handle, |s| s.backend.rx_packets == 1000);
    assert!(snapshot.conserved(), "{snapshot:?}");
    assert_eq!(snapshot.engine.rx.packets, 1000);
    handle.stop();
    let (last, error) = thread.join().unwrap();
    assert!(error.is_none() && last.conserved());
    assert_eq!(peer.take_sent(), []);
}

#[test]
fn an_idle_worker_without_state_sleeps_until_it_is_woken() {
    let (memory, _peer) = Memory::new("m").unwrap();
    let nat = Nat::new(&Plan::default(), [1, 2, 3, 4]).unwrap();
    let (worker, handle) = Worker::new(nat, Box::new(memory), Clock::new()).unwrap();
    let thread = std::thread::spawn(move || worker.run());
    let before = handle.snapshot(SECOND).unwrap().worker.idle_waits;
    std::thread::sleep(Duration::from_millis(300));
    let after = handle.snapshot(SECOND).unwrap().worker.idle_waits;
    assert!(after - before <= 3, "woke {} times in 300 ms", after - before);
    handle.stop();
    thread.join().unwrap();
}

#[test]
fn a_removed_device_ends_the_worker_with_an_error_and_final_counters() {
    let (memory, peer) = Memory::new("m").unwrap();
    let nat = Nat::new(&Plan::default(), [1, 2, 3, 4]).unwrap();
    let (worker, handle) = Worker::new(nat, Box::new(memory), Clock::new()).unwrap();
    let thread = std::thread::spawn(move || worker.run());
    peer.push(vec![0x60; 40]);
    wait_for(&handle, |s| s.backend.rx_packets == 1);
    peer.remove();
    let (last, error) = thread.join().unwrap();
    assert!(error.is_some());
    assert!(last.conserved() && last.backend.rx_packets == 1);
    assert!(handle.snapshot(SECOND).is_none());
}
