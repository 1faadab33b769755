//! Promises that hold after each step, whenever everything is at rest, and at the end.

use super::engine::Shard;
use super::table::Entries;
use super::world::{World, sessions};
use gatun_nat::feed::{Action, Command, Flow, Offload, SessionChange};
use gatun_nat::plan::Transport;
use std::collections::BTreeSet;

/// Result of a check: the broken promise.
pub(super) type Broken = Result<(), String>;

/// Tolerance of a lifetime, ms.
const TOLERANCE: u64 = 3_000;

fn promise(is_kept: bool, what: impl FnOnce() -> String) -> Broken {
    if is_kept { Ok(()) } else { Err(what()) }
}

impl World {
    /// Promises after each step.
    pub(super) fn holds(&self) -> Broken {
        let table = self.table.borrow();
        for switch in &table.switches {
            promise(switch.broken.is_none(), || switch.broken.clone().unwrap_or_default())?;
        }
        for (worker, shard) in (0u8..).zip(&self.shards) {
            let shard = shard.borrow();
            let nat = &shard.nat;
            promise(nat.counters().conserved() && nat.conserved_by_instance(), || {
                format!("the counters of engine {worker} do not add up: {:?}", nat.counters())
            })?;
            let (rx, direct, credited) = (nat.counters().rx.packets, shard.direct, shard.credited);
            promise(rx == direct + credited, || {
                format!(
                    "engine {worker} counts {rx} packets, and got {direct} directly and {credited} by credits"
                )
            })?;
            let kept: BTreeSet<Flow> = shard.marked().iter().map(|record| record.id.flow).collect();
            let all = sessions(&shard);
            let entries = table.flows();
            for (flow, _) in entries.iter().filter(|(flow, is_stray)| flow.worker == worker && !is_stray) {
                let flow = flow.session.flow;
                promise(kept.contains(&flow) || nat.is_inheriting(), || {
                    format!("the entry of {flow:?} has outlived its session's mark")
                })?;
                let is_other = |other: &&gatun_nat::inspect::SessionInfo| {
                    (other.transport, other.outside) == (flow.transport, flow.outside)
                        && (other.instance, other.inside) != (flow.instance, flow.inside)
                };
                promise(!all.iter().any(|other| is_other(&other)), || {
                    format!("the port of {flow:?} belongs to another host, and its entry exists")
                })?;
            }
        }
        Ok(())
    }
}

impl Entries {
    /// Checks a command before an engine gets it: the lifetime of a released session includes its last packet
    /// from inside.
    pub(super) fn released(&mut self, shard: &Shard, command: &Command) -> Broken {
        if command.action != Action::Released {
            return Ok(());
        }
        let last = self.last.remove(&command.id.flow);
        let found = shard.marked().into_iter().find(|record| record.id == command.id);
        let Some(record) = found.filter(|record| record.change == SessionChange::Established) else {
            return Ok(());
        };
        let timeouts = &shard.plans[0].nat44[0].timeouts;
        let lifetime = match record.id.flow.transport {
            Transport::Tcp => timeouts.tcp_established_ms,
            Transport::Udp => timeouts.udp_ms,
            Transport::Icmp => timeouts.icmp_ms,
        };
        let Some(last) = last else { return Ok(()) };
        let left = (last + u64::from(lifetime)).saturating_sub(shard.now.0 + TOLERANCE);
        promise(u64::from(record.expires_ms) >= left, || {
            format!(
                "the session {:?} is released with {} ms left, and its last packet allows {left} ms",
                command.id, record.expires_ms
            )
        })
    }
}

impl World {
    /// Packets that the managers have taken from the table and that no engine has, nor will get.
    pub(super) fn missing(&self) -> u64 {
        let (mut credited, mut queued) = (self.credited_before + self.refused_before, 0);
        for shard in &self.shards {
            let shard = shard.borrow();
            credited += shard.credited + shard.refused;
            queued += shard.queued();
        }
        // Those of earlier managers are in the number, too. Restarted engines have empty queues.
        self.table.borrow().taken.saturating_sub(credited + queued)
    }

    /// Promises when nobody has anything to do.
    pub(super) fn at_rest(&self) -> Broken {
        let settings = &self.settings;
        let table = self.table.borrow();
        let missing = self.missing().abs_diff(self.lost + self.in_hands());
        promise(missing == 0, || format!("{missing} translated packets were not credited"))?;
        promise(!table.flows().iter().any(|(_, is_stray)| *is_stray), || {
            "an entry without a session is still there".into()
        })?;
        let mut marks = BTreeSet::new();
        for shard in &self.shards {
            for record in shard.borrow().marked() {
                promise(record.change == SessionChange::Established, || {
                    format!("{:?} has not been released: {:?}", record.id, record.change)
                })?;
                if record.ownership.offload != Offload::Engine {
                    marks.insert((record.id.flow, record.ownership.epoch));
                }
            }
        }
        let entries: BTreeSet<_> =
            table.flows().iter().map(|(flow, _)| (flow.session.flow, flow.epoch)).collect();
        promise(entries == marks, || format!("entries {entries:?}, marks {marks:?}"))?;
        for switch in &table.switches {
            let all = (switch.flows().count(), 2 * marks.len());
            promise(all.0 == all.1, || format!("a switch has {} entries of {}", all.0, all.1))?;
        }
        let limit = table.capacity.min(settings.entries_max) as usize;
        let limit = if settings.enabled { limit } else { 0 };
        promise(entries.len() <= limit, || format!("{} entries, {limit} are allowed", entries.len()))?;
        promise(settings.enabled || self.manager.is_drained(), || "it is not drained".into())?;
        for (flow, _) in &table.flows() {
            let shard = &self.shards[usize::from(flow.worker)];
            let instance = usize::from(flow.session.flow.instance);
            promise(settings.instances[instance].offloaded, || format!("{flow:?} is excluded"))?;
            let remote6 = flow.remote6.map(|remote6| remote6.octets()[..12].to_vec());
            let shard = shard.borrow();
            let mut served =
                shard.nat.prefixes(0).iter().map(|prefix| prefix.address().octets()[..12].to_vec());
            let is_known = remote6.is_none_or(|remote6| served.any(|prefix| prefix == remote6));
            promise(is_known && flow.remote6.is_some() == (instance == 0), || {
                format!("wrong prefix: {flow:?}")
            })?;
        }
        Ok(())
    }

    /// Packets that the manager itself will not credit, because their session was unknown.
    fn in_hands(&self) -> u64 {
        let refused: u64 = self.shards.iter().map(|shard| shard.borrow().refused).sum();
        self.manager.status().uncredited_packets.saturating_sub(refused)
    }

    /// Promises at the end.
    pub(super) fn nothing_left(&self) -> Broken {
        let table = self.table.borrow();
        promise(table.flows().is_empty(), || format!("entries are left: {:?}", table.flows()))?;
        let (translated, taken) = (table.translated, table.taken);
        promise(translated >= taken, || format!("{taken} of {translated} packets were taken"))?;
        promise(table.is_uncounted && !table.switches.is_empty() || translated == taken, || {
            format!("packets of the table were never taken: {taken} of {translated}")
        })?;
        for shard in &self.shards {
            let shard = shard.borrow();
            let there = shard.nat.occupancy();
            let statics = shard.plans[0].nat44[0].static_bindings.len();
            promise((there.sessions, there.quarantined, there.bindings) == (0, 0, statics), || {
                format!("sessions or ports are left: {there:?}")
            })?;
            promise(!shard.nat.is_settling(), || "the reload has not ended".into())?;
            promise(shard.refused == 0, || {
                format!("{} packets had no session for their credit", shard.refused)
            })?;
        }
        Ok(())
    }
}
