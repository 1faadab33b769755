//! State of the member for the API, and lines in the log.

use super::addresses::Layout;
use crate::Event;
use crate::offload::{EndOfPanic, PUBLISH_EVERY, SharedState};
use gatun_api::types::{self, Counter, PeerCounters, PeerMember, PeerShard, PeerState};
use gatun_nat::standby::PeerRefusal;
use gatun_peer::link::LinkState;
use gatun_peer::member::{AddressRange, PairCounters, PairStatus};
use gatun_peer::ownership::Member;
use gatun_peer::wire::KeyDifference;
use std::net::Ipv4Addr;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// Shortest time between two lines about a connection that cannot be made, ms.
const LOG_EVERY_MS: u64 = 10_000;
/// Age of the state from which the thread counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(5);
/// Reason why nothing is sent after a fault of the thread.
const PANICKED: &str = "the thread of the peer has stopped after a fault: restart gatun";

/// Publishes the state.
pub(super) struct Watch {
    shown: SharedState<types::Peer>,
    events: Sender<Event>,
    published_ms: Option<u64>,
    opened_ms: Option<u64>,
    peer_api: Option<String>,
    logged: Logged,
}

/// State as the log has it.
#[derive(Default)]
struct Logged {
    is_open: bool,
    is_synced: bool,
    is_settled: bool,
    is_peer_gone: bool,
    owned: Vec<bool>,
    /// Reason why there is no connection, and when it was logged.
    why: Option<(String, u64)>,
}

pub(super) fn side(of: Member) -> PeerMember {
    match of {
        Member::First => PeerMember::A,
        Member::Second => PeerMember::B,
    }
}

/// State of a box whose thread does nothing.
fn stopped(peer: types::Peer, why: String) -> types::Peer {
    let state = if peer.is_connected() { PeerState::Alone } else { peer.state };
    types::Peer { state, reason: Some(why), connected_for_ms: None, clock_difference_ms: None, ..peer }
}

/// Returns the work after a panic of the thread.
pub(super) fn end_of_panic(shown: SharedState<types::Peer>, events: Sender<Event>) -> EndOfPanic {
    Box::new(move || {
        shown.change(|peer| *peer = stopped(peer.clone(), PANICKED.to_owned()));
        // The main thread is gone only if the process is ending.
        let _ = events.send(Event::Failure(format!("peer: {PANICKED}")));
    })
}

/// Returns the state for the API. A thread that reports nothing for some time is connected to nobody.
pub(super) fn current((peer, age): (types::Peer, Duration)) -> types::Peer {
    match peer.is_connected() && age >= STUCK_AFTER {
        true => stopped(peer, format!("the thread of the peer has done nothing for {} s", age.as_secs())),
        false => peer,
    }
}

impl Watch {
    pub(super) fn new(
        shown: SharedState<types::Peer>,
        events: Sender<Event>,
        peer_api: Option<String>,
    ) -> Watch {
        Watch { shown, events, published_ms: None, opened_ms: None, peer_api, logged: Logged::default() }
    }

    pub(super) fn line(&self, line: String) {
        // The main thread is gone only if the process is ending.
        let _ = self.events.send(Event::Line(line));
    }

    pub(super) fn failure(&self, line: String) {
        let _ = self.events.send(Event::Failure(line));
    }

    /// Publishes the state, if it is time or `is_urgent`.
    pub(super) fn publish(
        &mut self,
        now_ms: u64,
        is_urgent: bool,
        (pair, link, layout, save_error): (&PairStatus, &LinkState, &Layout, Option<&str>),
    ) {
        let was_open = self.logged.is_open;
        self.log(now_ms, pair, link);
        let is_due = self.published_ms.is_none_or(|at| now_ms >= at + PUBLISH_EVERY.as_millis() as u64);
        if !is_due && !is_urgent && was_open == pair.is_open {
            return;
        }
        self.published_ms = Some(now_ms);
        match pair.is_open {
            true => drop(self.opened_ms.get_or_insert(now_ms)),
            false => self.opened_ms = None,
        }
        let state = types::Peer {
            connected_for_ms: self.opened_ms.map(|at| now_ms - at),
            peer_api: self.peer_api.clone(),
            ..state(pair, link, (layout, save_error))
        };
        self.shown.change(|shown| *shown = state);
    }

    /// Logs what has changed.
    fn log(&mut self, now_ms: u64, pair: &PairStatus, link: &LinkState) {
        if pair.is_open && !self.logged.is_open {
            let address = link.remote.map(|address| format!(" ({address})")).unwrap_or_default();
            self.line(format!("peer: connected to {}{address}", pair.peer_name));
            self.logged.why = None;
        }
        self.logged.is_open = pair.is_open;
        let why = link.why.clone().filter(|_| !pair.is_open);
        if let Some(why) = why {
            let last = self.logged.why.as_ref();
            let is_new = last.is_none_or(|(text, at)| *text != why && now_ms >= at + LOG_EVERY_MS);
            if is_new {
                self.failure(format!("peer: not connected: {why}"));
                self.logged.why = Some((why, now_ms));
            }
        }
        if pair.is_synced && !self.logged.is_synced {
            self.line("peer: both boxes have the same sessions".to_owned());
        }
        self.logged.is_synced = pair.is_synced;
        if pair.is_peer_gone && !self.logged.is_peer_gone {
            self.line("peer: declared gone: this box owns all public addresses".to_owned());
        }
        self.logged.is_peer_gone = pair.is_peer_gone;
        let owned: Vec<bool> = pair.epochs.iter().map(|epoch| epoch.owner == pair.me).collect();
        if pair.is_settled && (!self.logged.is_settled || owned != self.logged.owned) {
            let what = match (owned.iter().all(|owns| *owns), owned.iter().any(|owns| *owns)) {
                (true, _) => "owns all public addresses",
                (false, true) => "owns its half of the public addresses, and backs the other half",
                (false, false) => "backs all public addresses, and assigns own ports only",
            };
            self.line(format!("peer: this box {what}"));
        }
        (self.logged.is_settled, self.logged.owned) = (pair.is_settled, owned);
    }
}

/// `save_error` is the reason why nothing is sent.
fn state(pair: &PairStatus, link: &LinkState, (layout, save_error): (&Layout, Option<&str>)) -> types::Peer {
    let state = match () {
        () if !pair.is_settled && !pair.is_open => PeerState::Waiting,
        () if !pair.is_open => PeerState::Alone,
        () if pair.is_releasing => PeerState::Releasing,
        () if pair.is_synced && save_error.is_none() => PeerState::Synced,
        () => PeerState::Syncing,
    };
    let shard = |(number, epoch): (usize, &gatun_peer::ownership::Epoch)| PeerShard {
        owner: side(epoch.owner),
        epoch: epoch.number.into(),
        addresses: addresses(layout.ranges.iter().filter(|range| range.shard == number).map(run)),
    };
    types::Peer {
        state,
        member: Some(side(pair.me)),
        reason: save_error.map(unsaved).or_else(|| link.why.clone().filter(|_| !pair.is_open)),
        peer_name: Some(pair.peer_name.clone()).filter(|name| !name.is_empty()),
        peer_address: link.remote.map(|address| address.to_string()),
        connected_for_ms: None,
        peer_api: None,
        shards: pair.epochs.iter().enumerate().map(shard).collect(),
        peer_gone: pair.is_peer_gone,
        takeover_in_ms: pair.takeover_in_ms,
        differences: pair.differences.iter().map(named).collect(),
        clock_difference_ms: pair.clock_difference_ms,
        certificate_end_s: u64::try_from(link.certificate_end).ok(),
        counters: counters(&pair.counters),
    }
}

/// Reason why nothing is sent.
pub(crate) fn unsaved(why: &str) -> String {
    format!("nothing is sent, because the state cannot be saved: {why}")
}

/// Name of a differing key.
pub(crate) fn named(difference: &KeyDifference) -> String {
    match difference {
        KeyDifference::Value(name) => name.clone(),
        KeyDifference::Here(name) => format!("{name} (only here)"),
        KeyDifference::There(name) => format!("{name} (only at the peer)"),
    }
}

fn run(range: &AddressRange) -> (Ipv4Addr, Ipv4Addr) {
    (range.first, range.last)
}

/// Consecutive addresses, as FIRST-LAST.
pub(crate) fn addresses(ranges: impl Iterator<Item = (Ipv4Addr, Ipv4Addr)>) -> Vec<String> {
    let mut runs: Vec<(Ipv4Addr, Ipv4Addr)> = Vec::new();
    for (first, last) in ranges {
        match runs.last_mut() {
            Some(run) if u32::from(run.1).checked_add(1) == Some(first.into()) => run.1 = last,
            _ => runs.push((first, last)),
        }
    }
    let text = |(first, last): &(Ipv4Addr, Ipv4Addr)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    runs.iter().map(text).collect()
}

/// Counters of a member for the API.
pub(crate) fn counters(of: &PairCounters) -> PeerCounters {
    let PairCounters {
        sessions_told,
        ends_told,
        sessions_received,
        ends_received,
        refused,
        walks_sent,
        walks_received,
        lost,
        connections,
        ends_waiting,
        contradictions,
        records_waiting,
    } = *of;
    let reason = |(why, value): (PeerRefusal, u64)| Counter {
        name: why.name().to_owned(),
        value,
        help: help(why).to_owned(),
    };
    PeerCounters {
        sessions_told,
        ends_told,
        sessions_received,
        ends_received,
        refused: PeerRefusal::ALL.into_iter().zip(refused).map(reason).collect(),
        walks_sent,
        walks_received,
        records_lost: lost,
        connections,
        ends_waiting: ends_waiting as u64,
        records_waiting: records_waiting as u64,
        contradictions: contradictions as u64,
    }
}

fn help(why: PeerRefusal) -> &'static str {
    match why {
        PeerRefusal::NotServed => "No instance serves its inside host, or it belongs to another worker.",
        PeerRefusal::NotInPool => "No pool of its instance has its public address or port.",
        PeerRefusal::Conflict => "Its port, or its inside end, has another binding here.",
        PeerRefusal::Full => "A table is full.",
        PeerRefusal::Ending => "It has ended here, and the peer has not acknowledged that.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offload::Guard;
    use std::sync::mpsc::channel;

    fn synced() -> types::Peer {
        types::Peer { state: PeerState::Synced, connected_for_ms: Some(9), ..types::Peer::default() }
    }

    #[test]
    fn a_thread_that_does_nothing_is_not_connected() {
        assert_eq!(current((synced(), Duration::from_secs(1))).state, PeerState::Synced);
        let stuck = current((synced(), Duration::from_secs(7)));
        assert_eq!((stuck.state, stuck.connected_for_ms), (PeerState::Alone, None));
        assert_eq!(stuck.reason.unwrap(), "the thread of the peer has done nothing for 7 s");
        // Before the workers run, the thread waits.
        let waiting = types::Peer { state: PeerState::Waiting, ..types::Peer::default() };
        assert_eq!(current((waiting.clone(), Duration::from_secs(70))), waiting);
    }

    #[test]
    fn a_state_that_cannot_be_saved_is_not_synced() {
        let pair = PairStatus {
            me: Member::First,
            is_settled: true,
            is_declared_gone: false,
            is_peer_gone: false,
            is_open: true,
            is_synced: true,
            is_releasing: false,
            takeover_in_ms: None,
            epochs: Vec::new(),
            peer_name: "b".to_owned(),
            differences: Vec::new(),
            clock_difference_ms: None,
            counters: PairCounters::default(),
        };
        let layout = Layout { me: Member::First, own_ports: 1, ranges: Vec::new() };
        let shown = |error| {
            let peer = state(&pair, &LinkState::default(), (&layout, error));
            (peer.state, peer.reason)
        };
        assert_eq!(shown(None), (PeerState::Synced, None));
        let reason = "nothing is sent, because the state cannot be saved: disk full".to_owned();
        assert_eq!(shown(Some("disk full")), (PeerState::Syncing, Some(reason)));
    }

    #[test]
    fn a_fault_of_the_thread_is_shown_and_logged() {
        let (shown, (sender, events)) = (SharedState::new(synced()), channel());
        let end = end_of_panic(shown.clone(), sender);
        let thread = std::thread::spawn(move || {
            let _guard = Guard(Some(end));
            panic!("as in a test");
        });
        assert!(thread.join().is_err());
        let peer = shown.with_age().0;
        assert_eq!((peer.state, peer.reason.as_deref()), (PeerState::Alone, Some(PANICKED)));
        assert!(matches!(events.recv().unwrap(), Event::Failure(line) if line.contains(PANICKED)));
    }
}
