//! Watch over the places of the programs. Anybody with CAP_NET_ADMIN can detach a program while the daemon
//! runs, and an interface can vanish and come back. The helper process attaches it again.
//!
//! ```text
//!   a link (tcx, XDP)   the kernel says whether it still holds its program
//!   a filter (clsact)   the daemon has no right to look. But the program counts what it passes to the
//!                       device: if it counts nothing while the engines receive more than the device's queues
//!                       had, it is not there, or another program comes before it
//! ```

use super::opening::hook_name;
use crate::Event;
use crate::net_helper::ProgramHelper;
use gatun_api::types::FastPathInterface;
use gatun_io_fastpath::{Hook, Places, ProgramLink, XdpInterface};
use gatun_worker::{Handle, Snapshot};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// Shortest and longest time between two attempts to attach the programs again.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Interval of attaching the programs at network interfaces: addresses and settings of interfaces change.
const REFRESH_EVERY: Duration = Duration::from_secs(2);
/// Reason if the program is not at its device.
const DETACHED: &str = "the program is not at its device any more: somebody has detached it";
/// Reason if the engines receive packets that the program has not counted.
const BYPASSED: &str = "the program does not see the packets of its device: another program there takes \
                        them, or somebody has detached it";
/// Reason if the program is not at a network interface.
const GONE: &str = "somebody has detached the program, or the interface was removed";

/// Interval of the comparison.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of packets between the program and a worker: a queue of a TUN device has 500.
const QUEUED_MAX: u64 = 1_000;
/// Number of packets past the program that do not matter.
const FEW: u64 = 16;

/// Parts of the watch that exist before the workers run.
pub(super) struct PlacesToWatch {
    pub(super) places: Places,
    /// `None` if it could not start.
    pub(super) helper: Option<Arc<ProgramHelper>>,
    pub(super) events: Sender<Event>,
}

/// Watch over the places of the programs.
pub(super) struct AttachmentWatch {
    places: Places,
    helper: Option<Arc<ProgramHelper>>,
    events: Sender<Event>,
    bypass: BypassCheck,
    /// Time of the request that the helper has not answered.
    asked: Option<Instant>,
    /// Earliest time of the next request, and the pause behind it.
    next: (Instant, Duration),
    /// Time of the last request.
    refreshed: Instant,
    /// Reason why the device's program is not in use.
    trouble: Option<&'static str>,
    /// Reason of the last failed attempt.
    refusal: Option<String>,
    /// Number of times that programs were attached again.
    attached_again: u64,
}

impl AttachmentWatch {
    pub(super) fn new(parts: PlacesToWatch, workers: Vec<Handle>) -> AttachmentWatch {
        let PlacesToWatch { places, helper, events } = parts;
        AttachmentWatch {
            places,
            helper,
            events,
            bypass: BypassCheck::new(workers),
            asked: None,
            next: (Instant::now(), PAUSE.0),
            refreshed: Instant::now(),
            trouble: None,
            refusal: None,
            attached_again: 0,
        }
    }

    /// Looks at the places, and asks for the programs where they are not, if they are `wanted`. `passed` is
    /// the number of packets that the device's program has passed to the device so far.
    pub(super) fn look(&mut self, passed: u64, wanted: bool) {
        self.read_reply();
        let is_bypassed = self.bypass.is_bypassed(passed);
        let is_gone = match self.places.hook {
            Hook::Tcx => !self.places.link.as_ref().is_some_and(ProgramLink::is_attached),
            Hook::Clsact => false,
        };
        let trouble = if is_gone { Some(DETACHED) } else { is_bypassed.then_some(BYPASSED) };
        if let Some(why) = trouble.filter(|_| trouble != self.trouble) {
            self.report(format!("kernel fast path: {why}"), true);
        }
        self.trouble = trouble;
        let mut lost = Vec::new();
        for interface in &mut self.places.xdp {
            if interface.link.is_ok() && !interface.is_attached() {
                lost.push(interface.name.clone());
                interface.link = Err(GONE.to_owned());
            }
        }
        lost.iter().for_each(|name| self.report(format!("kernel fast path: no XDP at {name}: {GONE}"), true));
        self.ask(is_bypassed && !is_gone, wanted);
    }

    /// Asks the helper, if something is missing and the pause is over.
    fn ask(&mut self, is_bypassed: bool, wanted: bool) {
        let now = Instant::now();
        let is_missing = self.trouble.is_some() || self.places.xdp.iter().any(|one| one.refusal().is_some());
        let is_again = is_missing && now >= self.next.0;
        // A program that is not at its device is not attached again without a pause.
        let is_due = !self.places.xdp.is_empty() && self.trouble.is_none();
        let is_due = is_due && now > self.refreshed + REFRESH_EVERY;
        let is_wanted = wanted && (is_again || is_due);
        let Some(helper) = self.helper.as_ref().filter(|_| is_wanted) else { return };
        if self.asked.is_some_and(|asked| asked.elapsed() < PAUSE.1) {
            return;
        }
        self.refreshed = now;
        if is_again {
            // A program that has been in its place for long is attached at once.
            let pause = if now > self.next.0 + PAUSE.1 { PAUSE.0 } else { self.next.1 };
            self.next = (now + pause, (pause * 2).min(PAUSE.1));
        }
        match helper.attach_again(is_bypassed) {
            Ok(()) => self.asked = Some(now),
            Err(why) => self.refusal = Some(why),
        }
    }

    /// Takes over the places of the helper's reply.
    fn read_reply(&mut self) {
        let Some((refusal, places)) = self.helper.as_ref().and_then(|helper| helper.attached()) else {
            return;
        };
        self.asked = None;
        if refusal.is_none() && self.trouble.is_some() {
            self.attached_again += 1;
            self.bypass.forget();
            let hook = hook_name(places.hook);
            self.report(format!("kernel fast path: attached to its device by {hook} again"), false);
        }
        if let Some(why) = refusal.as_ref().filter(|_| refusal != self.refusal) {
            self.report(
                format!("kernel fast path: cannot be attached again: {why}; Gatun keeps trying"),
                true,
            );
        }
        for (before, XdpInterface { name, link, limit }) in self.places.xdp.iter().zip(&places.xdp) {
            if let Some(why) = limit.as_ref().filter(|_| *limit != before.limit) {
                self.report(format!("kernel fast path: XDP at {name}: {why}"), true);
            }
            if before.link.is_err() && link.is_ok() {
                self.attached_again += 1;
                let line = format!("kernel fast path: attached to {name} by XDP again");
                let _ = self.events.send(Event::Line(line));
            }
        }
        (self.places, self.refusal) = (places, refusal);
    }

    fn report(&self, line: String, is_failure: bool) {
        // The main thread is gone only if the process is ending.
        let _ = self.events.send(if is_failure { Event::Failure(line) } else { Event::Line(line) });
    }

    /// Reason why the device's program is not in use, if it is not.
    pub(super) fn why(&self) -> Option<String> {
        let trouble = self.trouble?;
        Some(match &self.refusal {
            Some(refusal) => format!("{trouble}; it cannot be attached again: {refusal}"),
            None => trouble.to_owned(),
        })
    }

    /// Trouble of the helper.
    pub(super) fn helper_trouble(&self) -> Option<String> {
        self.helper.as_ref()?.trouble().map(str::to_owned)
    }

    /// Hook of the device.
    pub(super) fn hook(&self) -> &'static str {
        hook_name(self.places.hook)
    }

    /// Network interfaces for the API.
    pub(super) fn interfaces(&self) -> Vec<FastPathInterface> {
        interfaces(&self.places)
    }

    /// Number of times that programs were attached again.
    pub(super) fn attached_again(&self) -> u64 {
        self.attached_again
    }
}

/// Network interfaces for the API.
pub(super) fn interfaces(places: &Places) -> Vec<FastPathInterface> {
    let interface = |one: &XdpInterface| FastPathInterface {
        name: one.name.clone(),
        attached: one.link.is_ok(),
        why: one.refusal().or(one.limit.as_ref()).cloned(),
    };
    places.xdp.iter().map(interface).collect()
}

/// Comparison of the engines' packets with the program's.
struct BypassCheck {
    workers: Vec<Handle>,
    answers: Arc<[Answer]>,
    /// Number of the last look.
    look: u64,
    looked: Instant,
    /// Packets that the program had passed when the workers were asked.
    passed: u64,
    interval: BypassInterval,
}

/// Last answer of a worker.
#[derive(Default)]
struct Answer {
    received: AtomicU64,
    idle_waits: AtomicU64,
    /// Number of the look that it answers.
    look: AtomicU64,
}

fn received(snapshot: &Snapshot) -> u64 {
    snapshot.engine.rx.packets.saturating_sub(snapshot.engine.received_outside())
}

impl BypassCheck {
    fn new(workers: Vec<Handle>) -> BypassCheck {
        let answers = workers.iter().map(|_| Answer::default()).collect();
        let (looked, interval) = (Instant::now(), BypassInterval::default());
        BypassCheck { workers, answers, look: 0, looked, passed: 0, interval }
    }

    /// Begins anew, after the program was attached again.
    fn forget(&mut self) {
        self.interval = BypassInterval::default();
    }

    /// Returns whether the program does not see the packets. `passed` is the number of packets that it has
    /// passed to the device so far.
    fn is_bypassed(&mut self, passed: u64) -> bool {
        // A worker that lags answers late: until then, nobody knows what it has received.
        let is_answered = self.answers.iter().all(|answer| answer.look.load(Acquire) == self.look);
        if self.looked.elapsed() < LOOK_EVERY || !is_answered {
            return self.interval.is_bypassed;
        }
        if self.look > 0 {
            let received = self.answers.iter().map(|answer| answer.received.load(Relaxed)).sum();
            let idle_waits = self.answers.iter().map(|answer| answer.idle_waits.load(Relaxed)).collect();
            self.interval.compare((received, idle_waits), (self.passed, passed));
        }
        (self.looked, self.passed, self.look) = (Instant::now(), passed, self.look + 1);
        for (number, worker) in self.workers.iter().enumerate() {
            let (all, look) = (Arc::clone(&self.answers), self.look);
            worker.request_snapshot(move |snapshot| {
                let answer = &all[number];
                answer.received.store(received(&snapshot), Relaxed);
                answer.idle_waits.store(snapshot.worker.idle_waits, Relaxed);
                answer.look.store(look, Release);
            });
        }
        self.interval.is_bypassed
    }
}

/// Time in which the program has counted nothing.
#[derive(Default)]
struct BypassInterval {
    /// Packets that the program had passed at its beginning, those that the engines had received a little
    /// later, and how often each worker had slept then.
    first: Option<(u64, u64, Vec<u64>)>,
    /// Packets that the engines had received when each worker had slept: nothing was on its way any more.
    emptied: Option<u64>,
    is_bypassed: bool,
}

impl BypassInterval {
    /// Compares what the engines had `received` at a moment between two moments at which the program had
    /// `passed` so many packets, and how often each worker had slept. What the engines receive during an
    /// interval was on its way at its beginning, however slow they are, or came past the program.
    fn compare(&mut self, (received, idle_waits): (u64, Vec<u64>), passed: (u64, u64)) {
        match &self.first {
            Some((passed_at_first, received_at_first, idle_at_first)) if passed.1 == *passed_at_first => {
                let queued = QUEUED_MAX * idle_waits.len() as u64;
                let max = self.emptied.map_or(received_at_first + queued, |had| had + FEW);
                self.is_bypassed |= received > max;
                if self.emptied.is_none()
                    && idle_waits.iter().zip(idle_at_first).all(|(now, then)| now > then)
                {
                    self.emptied = Some(received);
                }
            }
            _ => {
                *self = BypassInterval {
                    first: Some((passed.0, received, idle_waits)),
                    ..BypassInterval::default()
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_bypassed_if_the_engines_received_more_than_was_on_its_way() {
        let mut interval = BypassInterval::default();
        let mut is_bypassed = |received, idle_waits, passed| {
            interval.compare((received, vec![1, idle_waits]), passed);
            interval.compare((received, vec![1, idle_waits]), passed);
            interval.is_bypassed
        };
        assert!(!is_bypassed(0, 1, (100, 100)), "packets of an earlier process");
        assert!(!is_bypassed(5_000, 1, (600, 9_000)) && !is_bypassed(9_000, 1, (9_000, 9_100)));
        assert!(!is_bypassed(9_100, 1, (9_100, 9_100)) && !is_bypassed(9_900, 2, (9_100, 9_100)), "they lag");
        assert!(!is_bypassed(11_100, 3, (9_100, 9_100)), "the first worker has not slept");
        assert!(is_bypassed(11_101, 3, (9_100, 9_100)), "no queue is so long");
        assert!(is_bypassed(11_101, 3, (9_100, 9_100)), "nothing says that it is back");
        assert!(
            !is_bypassed(11_102, 3, (9_100, 9_101)) && !is_bypassed(12_000, 3, (9_101, 9_101)),
            "it is back"
        );
    }

    #[test]
    fn a_few_packets_are_enough_once_the_queues_have_been_empty() {
        let mut interval = BypassInterval::default();
        let mut is_bypassed = |received, idle_waits| {
            interval.compare((received, idle_waits), (7, 7));
            interval.is_bypassed
        };
        assert!(!is_bypassed(100, vec![5, 5]) && !is_bypassed(400, vec![6, 5]), "one worker has not slept");
        assert!(!is_bypassed(500, vec![6, 6]) && !is_bypassed(516, vec![7, 7]));
        assert!(is_bypassed(517, vec![7, 7]));
    }
}
