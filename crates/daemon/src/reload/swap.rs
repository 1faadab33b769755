//! Transition to another configuration: prepared for every worker, applied between two bursts, and awaited.

use super::{Reload, ReloadRefusal, Review, statics};
use crate::event_sinks::{Prepared, Refusal};
use crate::live_ports::NextPorts;
use crate::peer::{self, Layout, by_shard};
use crate::{ANSWER_MAX, Settings, memory};
use gatun_nat::Plan;
use gatun_nat::reconfigure::{ApplyError, Change, Refused, Settled};
use gatun_nat::workers::{Shares, Steering};
use gatun_wire::text::counted;
use gatun_worker::jobs::ReadDrained;
use std::sync::Arc;
use std::time::Duration;

/// Interval of asking workers whether a change is complete.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Number of drained addresses read at a time.
const DRAINED_AT_ONCE: usize = 4096;

/// Plans of workers that share a translator.
pub(crate) struct SharedPlans {
    /// Plan of each worker, without mappings, because there may be many.
    plans: Vec<Plan>,
    pub(crate) steering: Arc<Steering>,
}

impl SharedPlans {
    pub(crate) fn new(shares: Shares) -> SharedPlans {
        let Shares { mut plans, steering, .. } = shares;
        for siit in plans.iter_mut().flat_map(|plan| &mut plan.siit) {
            siit.eamt = Vec::new();
        }
        SharedPlans { plans, steering: Arc::new(steering) }
    }
}

/// Change that is prepared for every worker.
pub(super) struct PreparedEngines {
    pub(super) changes: Vec<Box<Change>>,
    /// Plans after the change, if workers share a translator.
    shared_plans: Option<SharedPlans>,
    /// Subscribers that move to other workers.
    moved: usize,
}

/// Change that is prepared for all parts of the daemon.
pub(super) struct PreparedReload {
    /// `None` if the engines do not change.
    engines: Option<PreparedEngines>,
    ports: NextPorts,
    event_sinks: Prepared,
}

impl PreparedEngines {
    /// Text about moved subscribers, if any move.
    pub(super) fn moved_in_words(&self) -> Option<String> {
        in_words(self.moved)
    }
}

fn in_words(moved: usize) -> Option<String> {
    (moved > 0).then(|| {
        format!(
            "sessions of {} whose static bindings move to another worker",
            counted(moved as u64, "subscriber")
        )
    })
}

impl Reload {
    /// Prepares new state of the engines.
    ///
    /// # Errors
    /// Returns an error if the change is not possible.
    pub(super) fn prepare_engines(
        &self,
        new: &Settings,
        review: &Review,
    ) -> Result<Option<PreparedEngines>, ReloadRefusal> {
        if !review.difference.restarts.is_empty() {
            return Err(ReloadRefusal::restart(review.difference.restarts.clone()));
        }
        if review.difference.is_empty() {
            return Ok(None);
        }
        self.check_statics(new)?;
        let prepared = self.prepare_changes(new)?;
        self.check_layout(new, prepared.shared_plans.as_ref())?;
        Ok(Some(prepared))
    }

    /// Prepares ports and event sinks too.
    ///
    /// # Errors
    /// Returns an error if the ports or event sinks cannot change.
    pub(super) fn prepare_reload(
        &self,
        engines: Option<PreparedEngines>,
        new: &Settings,
    ) -> Result<PreparedReload, ReloadRefusal> {
        let ports = self.next_ports(new)?;
        let event_sinks = self.sink_updater.prepare(&self.settings, new).map_err(ReloadRefusal::from)?;
        Ok(PreparedReload { engines, ports, event_sinks })
    }

    /// Prepares new settings of the ports.
    ///
    /// # Errors
    /// Returns an error if the ports cannot change.
    pub(super) fn next_ports(&self, new: &Settings) -> Result<NextPorts, ReloadRefusal> {
        let next = self.ports.prepare(&self.settings.ports, &new.ports);
        next.map_err(|error| ReloadRefusal::why(format!("{error:#}")))
    }

    /// Applies a prepared change. Returns the previous settings and the number of ended sessions.
    ///
    /// # Errors
    /// Returns an error if the change fails; then nothing has changed.
    pub(super) fn apply_reload(
        &mut self,
        new: Settings,
        review: &Review,
        PreparedReload { engines: ready, ports, event_sinks }: PreparedReload,
    ) -> Result<(Settings, Settled), String> {
        if let Some(session_store) = &mut self.session_store {
            // If the engines do not change, their plans stay.
            let shared_plans = ready.as_ref().map_or(&self.shared_plans, |ready| &ready.shared_plans);
            let steering = shared_plans.as_ref().map(|shared_plans| &*shared_plans.steering);
            session_store.add(&new.plan, steering).map_err(|e| e.to_string())?;
        }
        self.ports.begin(&ports).map_err(|error| format!("cannot change the XDP program: {error}"))?;
        let settles = ready.is_some();
        if let Some(ready) = ready {
            self.pause_fastpath()?;
            if let Err(why) = self.apply_to_engines(ready) {
                self.ports.undo(&ports);
                self.resume_fastpath();
                return Err(why);
            }
        }
        for said in self.ports.finish(ports, &self.workers) {
            self.output.error(&format!("reload: {said}"));
        }
        self.sink_updater.set(&new, event_sinks);
        for &device in &review.rerouted {
            if let (Some(name), Some(config)) = (self.devices.get(device), new.ports.devices().get(device))
                && let Some(orders) = &self.orders
            {
                orders.set(name.clone(), config.addresses.clone(), config.routes.clone());
            }
        }
        self.tell_boxes(&new);
        self.health.set_networks(crate::health::networks(&new));
        let before = std::mem::replace(&mut self.settings, new);
        self.resume_fastpath();
        let settled = if settles { self.wait_until_settled() } else { Settled::default() };
        if let Err(why) = self.write_drained().and_then(|()| self.write_offloaded(true)) {
            self.output.error(&format!("reload: {why}"));
        }
        Ok((before, settled))
    }

    /// Tells the member of the pair, or the node, what the engines have now.
    fn tell_boxes(&self, new: &Settings) {
        let shared = self.shared_plans.as_ref().map(|shared_plans| &shared_plans.steering);
        if let (Some(cluster), Some(steering)) = (&self.boxes.cluster, shared) {
            cluster.set(new, Arc::clone(steering));
        }
        let Some(peer) = &self.boxes.peer else { return };
        match peer::steering(shared, &new.plan) {
            Ok(steering) => peer.set(new, steering),
            Err(why) => self.output.error(&format!("reload: [peer] {why}: restart gatun")),
        }
    }

    /// Refuses static bindings that would contradict those of the peer.
    fn check_statics(&self, new: &Settings) -> Result<(), ReloadRefusal> {
        // Other changes need no answer of the peer's thread.
        let differ = statics::differ(&self.settings.plan, &new.plan);
        let Some(peer) = self.boxes.peer.as_ref().filter(|_| differ) else { return Ok(()) };
        let of_peer = peer.keys_of_peer().map_err(ReloadRefusal::why)?;
        let checked = of_peer.map(|keys| statics::check(&self.settings.plan, &new.plan, &keys));
        checked.unwrap_or(Ok(())).map_err(ReloadRefusal::why)
    }

    /// Refuses a plan that divides the ports of an address between the boxes in another way.
    fn check_layout(&self, new: &Settings, shared: Option<&SharedPlans>) -> Result<(), ReloadRefusal> {
        if new.cluster.is_some() {
            let before = self.shared_plans.as_ref().map(|shared| (&*self.settings.plan, &*shared.steering));
            let after = shared.map(|shared| (&*new.plan, &*shared.steering));
            return before.zip(after).map_or(Ok(()), |(before, after)| check_division(before, after));
        }
        let Some(section) = new.peer.as_ref().filter(|_| self.boxes.peer.is_some()) else { return Ok(()) };
        let layout = |plan: &Plan, shared: Option<&SharedPlans>| {
            let steering = peer::steering(shared.map(|shared| &shared.steering), plan)?;
            Ok(Layout::new(section, plan, &steering))
        };
        let before = layout(&self.settings.plan, self.shared_plans.as_ref());
        let (before, after) =
            (before.map_err(ReloadRefusal::why)?, layout(&new.plan, shared).map_err(ReloadRefusal::why)?);
        match after.conflict(&before) {
            Some(what) => Err(ReloadRefusal::restart(vec![format!(
                "[peer]: {what} would change, which both boxes have to do without sharing sessions meanwhile"
            )])),
            None => Ok(()),
        }
    }

    /// Keeps the kernel from getting sessions while the engines change. If the daemon is killed meanwhile,
    /// the next one removes all sessions from the kernel.
    fn pause_fastpath(&mut self) -> Result<(), String> {
        if !self.offload.has_any() {
            return Ok(());
        }
        self.offload.pause();
        self.write_offloaded(false)
    }

    /// Tells the manager of the kernel's sessions the settings in force.
    fn resume_fastpath(&self) {
        let Some(worker) = self.workers.first().filter(|_| self.offload.has_any()) else { return };
        match worker.outline(ANSWER_MAX) {
            Some(outline) => self.offload.set(&self.settings, &outline),
            None => self.output.error(
                "reload: a worker does not answer: the kernel and the switches get no further sessions",
            ),
        }
    }

    /// Saves whether the kernel's sessions are those of the present plan.
    fn write_offloaded(&mut self, are: bool) -> Result<(), String> {
        match &mut self.session_store {
            Some(store) if self.offload.has_any() => {
                store.set_offloaded(are.then_some(&*self.settings.plan)).map_err(|e| e.to_string())
            }
            _ => Ok(()),
        }
    }

    /// Saves the drained addresses for the next process.
    pub(super) fn write_drained(&mut self) -> Result<(), String> {
        let Some(session_store) = &mut self.session_store else { return Ok(()) };
        let mut drained = Vec::new();
        for worker in &self.workers {
            let (mut at, mut done) = ((0, 0), false);
            while !done {
                let job = ReadDrained { at, done, found: Vec::with_capacity(DRAINED_AT_ONCE) };
                let job = worker.work(job, ANSWER_MAX);
                let job = job.ok_or("cannot read the drained addresses: a worker does not answer")?;
                (at, done) = (job.at, job.done);
                drained.extend(job.found);
            }
        }
        session_store.drained(drained).map_err(|e| e.to_string())
    }

    /// Prepares the changes of all workers' engines, or fails as a whole.
    fn prepare_changes(&self, new: &Settings) -> Result<PreparedEngines, ReloadRefusal> {
        let Some(shared_plans) = &self.shared_plans else {
            let workers = self.workers.len();
            let (old, new) = (vec![&*self.settings.plan; workers], vec![&*new.plan; workers]);
            return Ok(PreparedEngines {
                changes: self.prepare_each(&old, &new)?,
                shared_plans: None,
                moved: 0,
            });
        };
        let mut shares = Shares::after(&shared_plans.steering, &new.plan)?;
        let old: Vec<&Plan> = shared_plans.plans.iter().collect();
        let mut changes = self.prepare_each(&old, &shares.plans.iter().collect::<Vec<_>>())?;
        let moved = shares.moved.iter().map(Vec::len).sum();
        for (change, moved) in changes.iter_mut().zip(std::mem::take(&mut shares.moved)) {
            change.end_moved(moved);
        }
        Ok(PreparedEngines { changes, shared_plans: Some(SharedPlans::new(shares)), moved })
    }

    fn prepare_each(&self, old: &[&Plan], new: &[&Plan]) -> Result<Vec<Box<Change>>, ReloadRefusal> {
        memory::check_more(old, new).map_err(ReloadRefusal::why)?;
        let mut changes: Vec<Box<Change>> = Vec::new();
        for (worker, (old, new)) in self.workers.iter().zip(old.iter().zip(new)) {
            let outline = worker
                .outline(ANSWER_MAX)
                .ok_or_else(|| ReloadRefusal::why("a worker does not answer".to_owned()))?;
            let made = match changes.first() {
                None => Change::prepare(&outline, old, new),
                Some(first) => first.sibling(&outline, old, new),
            };
            changes.push(Box::new(made.map_err(ReloadRefusal::from)?));
        }
        Ok(changes)
    }

    /// Applies the changes. Only this thread changes engines, and each engine has settled since the last
    /// change: only the first worker can refuse.
    fn apply_to_engines(&mut self, ready: PreparedEngines) -> Result<(), String> {
        let PreparedEngines { changes, shared_plans, moved } = ready;
        if let Some(what) = in_words(moved) {
            self.output.log(&format!("reload: ends: {what}"));
        }
        for (number, (worker, mut change)) in self.workers.iter().zip(changes).enumerate() {
            loop {
                let steering = shared_plans.as_ref().map(|shared_plans| Arc::clone(&shared_plans.steering));
                match worker.apply(change, steering, ANSWER_MAX) {
                    Some(applied) => match applied.result {
                        Ok(()) => break,
                        Err(ApplyError::Settling) => {
                            change = applied.change;
                            std::thread::sleep(LOOK_EVERY);
                        }
                        Err(ApplyError::Outdated) => {
                            return Err("the engine has changed meanwhile".to_owned());
                        }
                    },
                    None => {
                        let what =
                            format!("reload: worker {number} does not answer; it changes once it does");
                        self.output.log(&what);
                        break;
                    }
                }
            }
        }
        self.shared_plans = shared_plans;
        Ok(())
    }

    fn wait_until_settled(&self) -> Settled {
        let mut all = Settled::default();
        for worker in &self.workers {
            while let Some(settling) = worker.settling(ANSWER_MAX) {
                if settling.goes_on {
                    std::thread::sleep(LOOK_EVERY);
                    continue;
                }
                all.sessions += settling.ended.sessions;
                all.bindings += settling.ended.bindings;
                all.blocks += settling.ended.blocks;
                all.static_bindings_refused += settling.ended.static_bindings_refused;
                break;
            }
        }
        all
    }
}

/// Refuses a plan that divides the public ports among the nodes in another way, or would do so at a node that
/// starts with it anew: with two divisions at once, a port could have two owners.
fn check_division(
    (before, old): (&Plan, &Steering),
    (after, new): (&Plan, &Steering),
) -> Result<(), ReloadRefusal> {
    let fresh = Shares::new(after, 1, [0; 4]).map_err(|error| ReloadRefusal::why(error.to_string()))?;
    let what = match by_shard(before, old) {
        ranges if ranges != by_shard(after, new) => "the addresses or ports of public pools",
        ranges if ranges != by_shard(after, &fresh.steering) => "the shards of public addresses",
        _ => return Ok(()),
    };
    Err(ReloadRefusal::restart(vec![format!(
        "[cluster]: {what} would change, which needs a stop of all nodes: see \"Change the division\" in the \
         guide about clusters"
    )]))
}

impl From<Refusal> for ReloadRefusal {
    fn from(refused: Refusal) -> ReloadRefusal {
        match refused.needs_restart {
            true => ReloadRefusal::restart(vec![refused.why]),
            false => ReloadRefusal::why(refused.why),
        }
    }
}

impl From<Refused> for ReloadRefusal {
    fn from(refused: Refused) -> ReloadRefusal {
        match refused {
            Refused::Restart(restarts) => ReloadRefusal::restart(restarts),
            Refused::Build(error) => ReloadRefusal::why(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_nat::plan::{Nat44, Pool4, PoolRange, StaticBinding, Transport};
    use std::net::Ipv4Addr;

    fn plan(ranges: &[(u8, u8, (u16, u16))]) -> Plan {
        let address = |n: u8| [192, 0, 2, n].into();
        let range = |(first, last, ports): &(u8, u8, (u16, u16))| PoolRange {
            first: address(*first),
            last: address(*last),
            ports: *ports,
            transports: [true; 3],
        };
        let ranges = ranges.iter().map(range).collect();
        let pool = Pool4 { name: "p".into(), ranges, ..Pool4::default() };
        Plan { shards: Some(4), pools: vec![pool], nat44: vec![Nat44::default()], ..Plan::default() }
    }

    #[test]
    fn a_reload_that_changes_the_division_of_a_cluster_is_refused() {
        let before = plan(&[(0, 15, (1024, 65535))]);
        let old = Shares::new(&before, 2, [1; 4]).unwrap().steering;
        let refused = |after: &Plan| {
            let new = Shares::after(&old, after).unwrap().steering;
            let refused = check_division((&before, &old), (after, &new)).err()?;
            Some(refused.restarts.concat())
        };
        assert_eq!(refused(&before), None);
        let mut other = before.clone();
        other.limits.sessions_per_subscriber += 1;
        assert_eq!(refused(&other), None);
        // A static binding takes no address from its shard.
        let mut bound = before.clone();
        bound.nat44[0].static_bindings = vec![StaticBinding {
            transport: Transport::Tcp,
            inside: (Ipv4Addr::new(10, 0, 0, 9).to_ipv6_mapped(), 80),
            outside: (Ipv4Addr::new(192, 0, 2, 5), 8080),
        }];
        assert_eq!(refused(&bound), None);
        let with = Shares::after(&old, &bound).unwrap().steering;
        let without = Shares::after(&with, &before).unwrap().steering;
        assert_eq!(check_division((&bound, &with), (&before, &without)).err().map(|why| why.why), None);
        let pools = "addresses or ports of public pools";
        for after in [
            plan(&[(0, 15, (20_000, 65535))]),
            plan(&[(0, 15, (1024, 65534))]),
            plan(&[(0, 31, (1024, 65535))]),
            plan(&[(0, 14, (1024, 65535))]),
        ] {
            assert!(refused(&after).is_some_and(|why| why.contains(pools)), "{after:?}");
        }
    }
}
