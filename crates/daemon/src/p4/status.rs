//! State of the P4 switches for the API, and their lines in the log.

use super::entries::SwitchEntries;
use super::stateless::Stateless;
use crate::Event;
use crate::offload::{InstallRate, PUBLISH_EVERY, SessionKey, SharedState};
use gatun_api::types::{self, Counter, FastPathState, OffloadSwitch, SwitchPhase};
use gatun_config::Offload;
use gatun_io_ether::switch_reason;
use gatun_offload::Status;
use gatun_p4_controller::connection::Connection;
use gatun_p4_controller::flow::Key;
use gatun_p4_controller::{Phase, SwitchStatus, Switches};
use gatun_wire::text::counted;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// Publishes the state.
pub(super) struct Watch {
    published: SharedState<types::Offload>,
    last: Option<Instant>,
    rate: InstallRate,
    events: Sender<Event>,
    /// Phase and reason of each switch, as the log has them.
    logged: Vec<(Phase, Option<String>)>,
    enabled: bool,
}

/// The state before the switches answer.
pub(super) fn initial(offload: &Offload) -> types::Offload {
    let switch = |switch: &gatun_config::P4Switch| OffloadSwitch {
        name: switch.name.clone(),
        address: switch.address.to_string(),
        device: switch.device_id,
        ..OffloadSwitch::default()
    };
    types::Offload {
        state: FastPathState::Unavailable,
        name: offload.name.clone(),
        switches: offload.switches.iter().map(switch).collect(),
        ..types::Offload::default()
    }
}

/// Publishes that the switches are not in use.
pub(super) fn set_unavailable(published: &SharedState<types::Offload>, why: &str) {
    published.change(|state| (state.state, state.why) = (FastPathState::Unavailable, Some(why.to_owned())));
}

fn phase(phase: Phase) -> SwitchPhase {
    match phase {
        Phase::Down => SwitchPhase::Down,
        Phase::Standby => SwitchPhase::Standby,
        Phase::Reading => SwitchPhase::Reading,
        Phase::Ready => SwitchPhase::Ready,
        Phase::Gone => SwitchPhase::Gone,
    }
}

impl Watch {
    pub(super) fn new(published: SharedState<types::Offload>, events: Sender<Event>, enabled: bool) -> Watch {
        Watch { published, last: None, rate: InstallRate::new(), events, logged: Vec::new(), enabled }
    }

    pub(super) fn published(&self) -> SharedState<types::Offload> {
        self.published.clone()
    }

    /// Publishes the state, if it is time. `status` is the manager's, if it has begun.
    pub(super) fn publish(
        &mut self,
        status: impl FnOnce() -> Option<Status>,
        target: &Switches<Connection>,
        ((entries, now), stateless): ((&[SwitchEntries], Duration), &Stateless),
    ) {
        if self.last.is_some_and(|last| last.elapsed() < PUBLISH_EVERY) {
            return;
        }
        self.last = Some(Instant::now());
        let switches: Vec<&SwitchStatus> = target.status().collect();
        self.log(&switches);
        let status = status();
        let has_begun = status.is_some();
        let status = status.unwrap_or_default();
        let rate = self.rate.of(&status);
        let why = why_not(&switches, has_begun);
        let refused = Some(&status.last_refusal).filter(|why| !why.is_empty()).cloned();
        self.published.change(|state| {
            state.state = match &why {
                _ if !self.enabled => FastPathState::Off,
                Some(_) => FastPathState::Unavailable,
                None => FastPathState::On,
            };
            state.why = why.filter(|_| self.enabled);
            (state.sessions, state.sessions_max) = (status.entries.into(), status.capacity.into());
            (state.installed, state.installed_per_second) = (status.installed, rate);
            state.removed = status.removed + status.evicted;
            state.waiting = (status.unconfirmed + status.waiting_removals) as u64;
            state.refused_full = status.refused_full + status.refused_crowded;
            state.refused_unready = status.refused_unready;
            state.refused_other = status.refused_exists + status.refused_other;
            state.error = refused;
            state.packets = status.credited_packets + stateless.packets();
            state.packets_uncredited = status.uncredited_packets;
            (state.mappings, state.mappings_left) = stateless.mappings();
            let links = (0..switches.len()).map(|number| target.link(number));
            state.mappings_error = links.filter_map(Connection::stateless_refusal).next();
            (state.waiting_records, state.lost_records) =
                (status.waiting_records as u64, status.lost_records);
            (state.adopted, state.install_p99_us) = (status.adopted, status.latency.p99);
            for (shown, (number, switch)) in state.switches.iter_mut().zip(switches.iter().enumerate()) {
                show(shown, switch, (entries.get(number), now));
                let counts = target.link(number).stateless_counts();
                shown.stateless_packets = counts.iter().flatten().map(|count| count.packets).sum();
            }
        });
    }

    /// Takes note of other settings, and publishes the state at the next turn.
    pub(super) fn set_enabled(&mut self, enabled: bool) {
        (self.enabled, self.last) = (enabled, None);
    }

    /// Writes a line to the log.
    pub(super) fn say(&self, line: String) {
        let _ = self.events.send(Event::Line(line));
    }

    /// Writes a line for each switch whose phase or reason has changed.
    fn log(&mut self, switches: &[&SwitchStatus]) {
        self.logged.resize(switches.len(), (Phase::Down, None));
        for (logged, switch) in self.logged.iter_mut().zip(switches) {
            let has_reason = matches!(switch.phase, Phase::Down | Phase::Standby);
            let reason = switch.reason.clone().filter(|_| has_reason);
            let now = (switch.phase, reason);
            if now == *logged || switch.phase == Phase::Reading {
                continue;
            }
            // The reason is the same one: it was told when the connection ended.
            let is_told = logged.1.is_some() && logged.1 == now.1;
            let line = match (switch.phase, &now.1) {
                (Phase::Standby, _) if is_told => continue,
                (Phase::Down, None) => continue,
                (Phase::Down | Phase::Standby, Some(reason)) => {
                    format!("switch {}: not in use: {reason}", switch.name)
                }
                (Phase::Gone, _) => format!("switch {}: declared gone; its sessions are free", switch.name),
                // Some may have ended since then.
                _ => format!("switch {}: in use, {}", switch.name, counted(switch.found.into(), "session")),
            };
            *logged = now;
            let _ = self.events.send(Event::Line(line));
        }
    }
}

/// Key of the packets to the inside of a session.
pub(super) fn key_of(session: &types::Session) -> Option<Key> {
    let (transport, remote, outside) = crate::offload::key_of(session)?;
    let of = |(address, port): (Ipv4Addr, u16)| (address.into(), port);
    Some(Key { source: of(remote), destination: of(outside), transport })
}

/// Session of packets to the inside.
pub(super) fn session_of(key: &Key) -> Option<SessionKey> {
    let of = |(address, port): (IpAddr, u16)| match address {
        IpAddr::V4(address) => Some((address, port)),
        IpAddr::V6(_) => None,
    };
    Some((key.transport, of(key.source)?, of(key.destination)?))
}

/// Switches that have the stateless instances, and whether it is more than one.
pub(super) fn stateless_switches(offload: &types::Offload) -> Option<(String, bool)> {
    let is_empty = offload.mappings == 0 && offload.mappings_left > 0;
    if is_empty || offload.mappings_error.is_some() {
        return None;
    }
    let ready = offload.switches.iter().filter(|switch| switch.phase == SwitchPhase::Ready);
    let ready: Vec<&str> = ready.map(|switch| &*switch.name).collect();
    Some((switches(&ready)?, ready.len() > 1))
}

/// Says which switches have had a session for how long.
pub(super) fn translators((names, since): (Vec<&str>, Duration)) -> Option<String> {
    let verb = if names.len() == 1 { "has" } else { "have" };
    let since = counted(since.as_secs(), "second");
    Some(format!("{} {verb} translated its packets for {since}", switches(&names)?))
}

/// Says which switches had a session for how long when a trace began.
pub(super) fn earlier_translators((names, since): (Vec<&str>, Duration)) -> Option<String> {
    let since = counted(since.as_secs(), "second");
    Some(format!("{} translated its packets for {since}, until the trace began", switches(&names)?))
}

fn switches(names: &[&str]) -> Option<String> {
    let noun = if names.len() == 1 { "switch" } else { "switches" };
    (!names.is_empty()).then(|| format!("{noun} {}", names.join(" and ")))
}

/// Counters with packets, by their names.
fn named(counts: &[u64], name: impl Fn(usize) -> &'static str) -> Vec<Counter> {
    let mut found: Vec<Counter> = Vec::new();
    for (number, &value) in counts.iter().enumerate().filter(|(_, value)| **value > 0) {
        let name = name(number);
        match found.iter_mut().find(|other| other.name == name) {
            Some(other) => other.value += value,
            None => found.push(Counter { name: name.to_owned(), value, help: String::new() }),
        }
    }
    found
}

/// Reason why a program drops a packet (`p4/headers.p4`).
fn drop_reason(number: usize) -> &'static str {
    ["foreign", "no_port", "echo"].get(number).copied().unwrap_or("other")
}

/// Reason why no switch is in use. `None` if one is.
fn why_not(switches: &[&SwitchStatus], has_begun: bool) -> Option<String> {
    if has_begun && switches.iter().any(|switch| switch.phase == Phase::Ready) {
        return None;
    }
    let waits = |switch: &&&SwitchStatus| !matches!(switch.phase, Phase::Ready | Phase::Gone);
    let describe = |switch: &&SwitchStatus| match &switch.reason {
        Some(reason) => format!("{}: {reason}", switch.name),
        None => format!("{}: being read", switch.name),
    };
    let all: Vec<String> = switches.iter().filter(waits).map(describe).collect();
    Some(match all.is_empty() {
        true if has_begun => "all switches are declared gone".to_owned(),
        true => "the switches have been read, and the workers begin".to_owned(),
        false => all.join("; "),
    })
}

fn show(
    shown: &mut OffloadSwitch,
    switch: &SwitchStatus,
    (entries, now): (Option<&SwitchEntries>, Duration),
) {
    shown.phase = phase(switch.phase);
    shown.phase_s = now.saturating_sub(switch.since).as_secs();
    shown.why.clone_from(&switch.reason);
    shown.sessions = switch.flows.into();
    (shown.changing, shown.moving) = (switch.changing.into(), switch.moving.into());
    shown.unknown = switch.unknown.into();
    (shown.inserted, shown.deleted) = (switch.inserted, switch.deleted);
    (shown.refused, shown.strays) = (switch.refused, switch.strays);
    shown.connections = switch.connections;
    shown.to_controller = named(&switch.program.to_controller, switch_reason);
    shown.over_limit = named(&switch.program.over_limit, switch_reason);
    shown.dropped = named(&switch.program.dropped, drop_reason);
    shown.next_hops = entries.map_or(0, |entries| entries.next_hops as u64);
    shown.left_out = entries.map_or(0, |entries| entries.left_out as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_ends_before_the_log_is_written_was_found_in_the_switch() {
        let (events, lines) = std::sync::mpsc::channel();
        let mut watch = Watch::new(SharedState::default(), events, true);
        let status = SwitchStatus {
            name: "edge".to_owned(),
            phase: Phase::Ready,
            since: Duration::ZERO,
            reason: None,
            flows: 0,
            found: 1,
            changing: 0,
            moving: 0,
            unknown: 0,
            inserted: 0,
            deleted: 1,
            refused: 0,
            strays: 0,
            connections: 1,
            program: gatun_p4_controller::link::ProgramCounts::default(),
        };
        watch.log(&[&status]);
        watch.log(&[&status]);
        let told: Vec<String> = lines
            .try_iter()
            .filter_map(|event| match event {
                Event::Line(line) => Some(line),
                _ => None,
            })
            .collect();
        assert_eq!(told, ["switch edge: in use, 1 session"]);
    }
}
