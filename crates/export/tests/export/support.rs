//! Events of every kind, sinks, and directories.

use gatun_export::{Batch, CollectorAddress, Format, PlanNames, Sink, SinkSettings, TimedEvent};
use gatun_nat::event::Gauge;
use gatun_nat::plan::{Nat44, Nat64, Plan, Pool4};
use gatun_nat::{Event, EventKind, EventKinds, Instant};
use gatun_wire::DropReason;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) const AT_MS: u64 = 1_767_225_600_123;

pub(crate) fn names() -> Arc<PlanNames> {
    let plan = Plan {
        pools: vec![Pool4 { name: "res".into(), ..Pool4::default() }],
        nat64: vec![Nat64 { name: "home".into(), subscriber_len: 56, ..Nat64::default() }],
        nat44: vec![Nat44 { name: "cgn".into(), ..Nat44::default() }],
        ..Plan::default()
    };
    Arc::new(PlanNames::of(&plan))
}

pub(crate) fn all_kinds() -> EventKinds {
    EventKind::ALL.iter().fold(EventKinds::NONE, |kinds, kind| kinds.with(*kind))
}

/// Events of a subscriber of each family, and of the pool.
pub(crate) fn events() -> Vec<Event> {
    use EventKind::*;
    let new = |kind| Event::new(kind, Instant(0));
    let mut events = Vec::new();
    for (instance, host, subscriber) in
        [(0, "2001:db8:1:4200::7", "2001:db8:1:4200::"), (1, "::ffff:100.64.0.7", "::ffff:100.64.0.7")]
    {
        let of = |kind| {
            let mut event = new(kind);
            event.instance = instance;
            event
        };
        let tcp = [true, false, false];
        for kind in [BindingCreated, SessionCreated, SessionDeleted, BindingDeleted] {
            let event = of(kind).with_inside(host.parse().unwrap(), 3456).for_transports(tcp);
            let event = event.with_outside("203.0.113.7".parse().unwrap(), 51_234, 51_234);
            let is_session = matches!(kind, SessionCreated | SessionDeleted);
            let remote = "198.51.100.9".parse().unwrap();
            events.push(if is_session { event.with_remote(remote, 443) } else { event });
        }
        for (kind, transports) in [(BlockAssigned, [true; 3]), (BlockReleased, [false, true, false])] {
            let event = of(kind).with_inside(subscriber.parse().unwrap(), 0).for_transports(transports);
            events.push(event.with_outside("203.0.113.7".parse().unwrap(), 51_200, 51_455));
        }
        let mut quota = of(QuotaHit).with_inside(subscriber.parse().unwrap(), 0).for_transports(tcp);
        quota.reason = Some(DropReason::SubscriberSessionQuota);
        events.push(quota);
    }
    for reason in [DropReason::PoolEmpty, DropReason::PortsExhausted] {
        let mut event = new(PoolExhausted).for_transports([false, true, false]);
        event.reason = Some(reason);
        events.push(event);
    }
    for (kind, gauge) in [
        (ThresholdHigh, Gauge::PoolPorts),
        (ThresholdLow, Gauge::PoolPorts),
        (ThresholdHigh, Gauge::Sessions),
        (ThresholdHigh, Gauge::Subscribers),
    ] {
        let mut event = new(kind);
        (event.gauge, event.value, event.total) = (Some(gauge), 90, 100);
        events.push(event);
    }
    events
}

pub(crate) fn batch(events: &[Event]) -> Arc<Batch> {
    let timed =
        |(n, event): (usize, &Event)| TimedEvent { at_ms: AT_MS + n as u64, worker: 1, event: *event };
    Arc::new(Batch { names: names(), events: events.iter().enumerate().map(timed).collect() })
}

pub(crate) fn settings(target: CollectorAddress, format: Format) -> SinkSettings {
    SinkSettings {
        name: "test".into(),
        target,
        format,
        kinds: all_kinds(),
        destinations: false,
        queue_max: 100_000,
        spool: None,
    }
}

pub(crate) const IPFIX: Format = Format::Ipfix { domain: 42, templates_ms: 60_000 };

/// Starts a sink and records its log lines.
pub(crate) fn start(settings: SinkSettings) -> (Sink, Arc<Mutex<Vec<String>>>) {
    let said = Arc::new(Mutex::new(Vec::new()));
    let lines = Arc::clone(&said);
    (Sink::start(settings, move |line| lines.lock().unwrap().push(line.to_owned())).unwrap(), said)
}

/// Waits until a condition holds.
pub(crate) fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..1_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: not so in ten seconds");
}

/// Directory that is deleted at the end of the test.
pub(crate) struct TestDir(pub(crate) PathBuf);

impl TestDir {
    pub(crate) fn new(name: &str) -> TestDir {
        let path = std::env::temp_dir().join(format!("gatun-export-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        TestDir(path)
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
