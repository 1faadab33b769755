//! Progress of a worker, for a fast path.

use gatun_io::{BURST_MAX, Memory};
use gatun_nat::Nat;
use gatun_nat::plan::Plan;
use gatun_worker::{Clock, ProgressSink, Worker};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(10);

#[derive(Debug, PartialEq, Eq)]
enum Progress {
    Emptied,
    Behind,
}

struct Sink(Sender<Progress>);

impl ProgressSink for Sink {
    fn emptied(&self, _begun: Instant) {
        let _ = self.0.send(Progress::Emptied);
    }

    fn behind(&self) {
        let _ = self.0.send(Progress::Behind);
    }

    fn set_asleep(&self, _is_asleep: bool) {}
}

/// Packets wait when the worker begins. Returns how often it was behind before its queue was empty.
fn behind_of(packets: usize) -> usize {
    let (memory, peer) = Memory::new("m").unwrap();
    (0..packets).for_each(|_| peer.push(vec![0x60; 60]));
    let nat = Nat::new(&Plan::default(), [1, 2, 3, 4]).unwrap();
    let (mut worker, handle) = Worker::new(nat, Box::new(memory), Clock::new()).unwrap();
    let (sender, told) = channel();
    worker.publish_progress(Sink(sender));
    let thread = std::thread::spawn(move || worker.run());
    let mut behind = 0;
    while told.recv_timeout(LONG).unwrap() == Progress::Behind {
        behind += 1;
    }
    handle.stop();
    let (snapshot, error) = thread.join().unwrap();
    assert!(error.is_none());
    assert_eq!(snapshot.backend.rx_packets, packets as u64);
    behind
}

#[test]
fn a_worker_is_behind_from_a_thousand_packets_on_until_its_queue_is_empty() {
    // The last turn takes the last packets, and finds the queue empty.
    assert_eq!(behind_of(15 * BURST_MAX + 1), 0);
    assert_eq!(behind_of(16 * BURST_MAX + 1), 1);
    assert_eq!(behind_of(20 * BURST_MAX), 4);
}
