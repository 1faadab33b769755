//! State of the node for the API, its announced routes, and lines in the log.

use super::revisions::{configuration, of_node};
use super::{ClusterSettings, places};
use crate::Event;
use crate::health::{HealthControl, Roles};
use crate::offload::{EndOfPanic, PUBLISH_EVERY, SharedState};
use crate::peer::{addresses, counters, named, unsaved};
use gatun_api::types::{
    self, BackupPhase, ClusterNode, ClusterShard, ClusterState, NodeConnection, ShardPart,
};
use gatun_cluster::coordination::{self, ClusterOrder, NodeStatus};
use gatun_cluster::node::{ClusterStatus, HeldShard, MemberStatus, Places};
use gatun_cluster::record::{NodeName, Part, Phase};
use gatun_control::NodeOrder;
use gatun_nat::workers::Steering;
use gatun_peer::link::{Acceptor, Link, LinkState};
use gatun_wire::text::counted;
use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Shortest time between two lines about the same trouble, ms.
const LOG_EVERY_MS: u64 = 10_000;
/// Shortest time between two lines about the own shards, ms: many move at once.
const SHARDS_EVERY_MS: u64 = 1_000;
/// Time for which etcd may fail before the log says so, ms.
const ETCD_QUIET_MS: u64 = 1_000;
/// Age of the state from which the thread counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(5);
/// Shortest time for which routes stay without a sign of the thread.
const KEPT_MIN: Duration = Duration::from_secs(1);
/// Time for which a node must have heard all others it needs, before routes lead to it as before, ms.
const WELL_MS: u64 = 1_000;
/// Events that are kept.
const EVENTS_MAX: usize = 256;
/// Reason of a thread that does nothing any more.
const PANICKED: &str = "the thread of the cluster has stopped after a fault: restart gatun";
/// Reasons why nothing is announced.
const HELD: &str = "this node has no shards yet: see `gatun cluster status`";
const DRAINED: &str = "this node is drained, and has no shards";
const DOUBLE: &str = "another box has the name of this node: see `gatun cluster status`";

/// State and events that the API reads.
#[derive(Clone, Default)]
pub(super) struct Shown {
    state: SharedState<types::Cluster>,
    events: Arc<Mutex<VecDeque<types::ClusterEvent>>>,
}

impl Shown {
    pub(super) fn new(node: &ClusterSettings) -> Shown {
        let state = types::Cluster {
            state: ClusterState::Waiting,
            reason: Some("the daemon is starting".to_owned()),
            name: Some(node.cluster.name.clone()),
            node: Some(node.own().name.clone()),
            ..types::Cluster::default()
        };
        Shown { state: SharedState::new(state), events: Arc::default() }
    }

    /// State for the API. A thread that reports nothing for some time does nothing.
    pub(super) fn current(&self) -> types::Cluster {
        let (state, age) = self.state.with_age();
        let is_at_work = !matches!(state.state, ClusterState::Off | ClusterState::Stopped);
        // Before the workers run, the thread waits.
        match is_at_work && !state.nodes.is_empty() && age >= STUCK_AFTER {
            true => {
                let why = format!("the thread of the cluster has done nothing for {} s", age.as_secs());
                types::Cluster { state: ClusterState::Stopped, reason: Some(why), ..state }
            }
            false => state,
        }
    }

    pub(super) fn events(&self) -> types::ClusterEvents {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        types::ClusterEvents { events: events.iter().cloned().collect() }
    }

    fn add(&self, what: String) {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let at_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() >= EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(types::ClusterEvent { at_ms, what });
    }

    /// The thread ends.
    fn stopped(&self, why: &str) {
        self.state.change(|cluster| {
            (cluster.state, cluster.reason) = (ClusterState::Stopped, Some(why.to_owned()));
        });
    }

    /// Returns the work after a panic of the thread. Others have its shards soon, so its routes end.
    pub(super) fn end_of_panic(&self, health: HealthControl, events: Sender<Event>) -> EndOfPanic {
        let shown = self.clone();
        Box::new(move || {
            health.set_roles(Roles::default(), Some(PANICKED.to_owned()));
            shown.stopped(PANICKED);
            // The main thread is gone only if the process is ending.
            let _ = events.send(Event::Failure(format!("cluster: {PANICKED}")));
        })
    }
}

/// Returns an order of the API. Without a name, it is about this node.
pub(super) fn order(what: NodeOrder, node: &str) -> ClusterOrder {
    let node: NodeName = node.into();
    match what {
        NodeOrder::Drain => ClusterOrder::Drain(node),
        NodeOrder::Undrain => ClusterOrder::Undrain(node),
        NodeOrder::Gone => ClusterOrder::Gone(node),
    }
}

/// Announced routes of the node.
pub(super) struct Health {
    node: ClusterSettings,
    control: HealthControl,
    told: Option<(Roles, Option<String>)>,
    /// Time at which the node was cut off last.
    cut_ms: Option<u64>,
}

impl Health {
    pub(super) fn new(node: ClusterSettings, control: HealthControl) -> Health {
        Health { node, control, told: None, cut_ms: None }
    }

    /// Announces nothing before the node has shards.
    pub(super) fn hold(&self) {
        self.control.set_roles(Roles::default(), Some(HELD.to_owned()));
    }

    /// The thread is at work. What it has told is valid for the length of a lease: others may have the shards
    /// then.
    pub(super) fn keep(&self) {
        let lease = Duration::from_millis(self.node.cluster.lease_ms.into());
        self.control.set_until(Instant::now() + lease.max(KEPT_MIN));
    }

    /// Returns whether packets get lost at this node.
    pub(super) fn is_broken(&self) -> bool {
        self.control.is_broken()
    }

    /// Announces what the node has.
    pub(super) fn set(
        &mut self,
        now_ms: u64,
        places: &Places,
        (steering, status): (&Steering, &ClusterStatus),
    ) {
        if places.is_cut {
            self.cut_ms = Some(now_ms);
        }
        let is_cut = self.cut_ms.is_some_and(|at| now_ms < at + WELL_MS);
        let is_drained = own(&self.node, status).is_some_and(|node| node.is_drained);
        let held = match () {
            () if status.is_double => Some(DOUBLE),
            () if places::has_work(&self.node, places) => None,
            () if is_drained => Some(DRAINED),
            () => Some(HELD),
        };
        let next = (places::roles(&self.node, steering, (places, is_cut)), held.map(str::to_owned));
        if self.told.as_ref() != Some(&next) {
            self.control.set_roles(next.0.clone(), next.1.clone());
            self.told = Some(next);
        }
    }
}

fn own<'s>(node: &ClusterSettings, status: &'s ClusterStatus) -> Option<&'s NodeStatus> {
    status.nodes.iter().find(|one| *one.name == *node.own().name)
}

/// State as the log has it.
#[derive(Default)]
struct Logged {
    /// Connected nodes, and the reason why another one is not, with the time of its line.
    open: BTreeMap<String, bool>,
    why: BTreeMap<String, (String, u64)>,
    /// Registered nodes.
    here: BTreeMap<String, bool>,
    /// Drained nodes.
    drained: BTreeMap<String, bool>,
    /// Owned and backed shards.
    shards: (usize, usize),
    shards_ms: u64,
    has_etcd_failed: bool,
    stranger_ms: Option<u64>,
    /// Latest events, with the times of their lines.
    events: VecDeque<(String, u64)>,
    save_error: Option<String>,
}

/// Publishes the state, and logs what has changed.
pub(super) struct Watch {
    node: ClusterSettings,
    shown: Shown,
    events: Sender<Event>,
    published_ms: Option<u64>,
    /// Time at which the connection to each node was opened.
    opened_ms: BTreeMap<String, u64>,
    etcd_failed_ms: Option<u64>,
    logged: Logged,
}

impl Watch {
    pub(super) fn new(node: ClusterSettings, shown: Shown, events: Sender<Event>) -> Watch {
        Watch {
            node,
            shown,
            events,
            published_ms: None,
            opened_ms: BTreeMap::new(),
            etcd_failed_ms: None,
            logged: Logged::default(),
        }
    }

    fn line(&self, line: String) {
        self.shown.add(line.clone());
        // The main thread is gone only if the process is ending.
        let _ = self.events.send(Event::Line(format!("cluster: {line}")));
    }

    fn trouble(&self, line: String) {
        self.shown.add(line.clone());
        self.failure(format!("cluster: {line}"));
    }

    /// Tells why the thread ends.
    pub(super) fn stop(&self, why: &str) {
        let why = format!("{why}: restart gatun");
        self.shown.stopped(&why);
        self.failure(format!("cluster: {why}"));
    }

    pub(super) fn failure(&self, line: String) {
        let _ = self.events.send(Event::Failure(line));
    }

    /// Logs events of the coordination.
    pub(super) fn events(&mut self, now_ms: u64, events: Vec<coordination::ClusterEvent>) {
        self.logged.events.retain(|(_, at)| now_ms < *at + LOG_EVERY_MS);
        for event in events {
            // The same trouble again and again is one line.
            let is_known = self.logged.events.iter().any(|(text, _)| *text == event.text);
            if !is_known {
                if self.logged.events.len() >= EVENTS_MAX {
                    self.logged.events.pop_front();
                }
                self.logged.events.push_back((event.text.clone(), now_ms));
                self.line(event.text);
            }
        }
    }

    /// Logs the reason why a connection of a stranger was closed, from time to time.
    pub(super) fn stranger(&mut self, now_ms: u64, why: String) {
        if self.logged.stranger_ms.is_none_or(|at| now_ms >= at + LOG_EVERY_MS) {
            self.logged.stranger_ms = Some(now_ms);
            self.trouble(format!("refused a connection: {why}"));
        }
    }

    /// Reads the certificates again.
    pub(super) fn reread(&self, acceptor: &mut Acceptor, links: &mut [Link]) {
        let reread = acceptor.reread().and_then(|()| links.iter_mut().try_for_each(Link::reread));
        if let Err(why) = reread {
            self.failure(format!("reload: [cluster] {why}; its certificates are unchanged"));
        }
    }

    /// Returns whether it is time to publish the state.
    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        self.published_ms.is_none_or(|at| now_ms >= at + PUBLISH_EVERY.as_millis() as u64)
    }

    /// Publishes the state. `save_error` is the reason why nothing is sent.
    pub(super) fn publish<'l>(
        &mut self,
        now_ms: u64,
        status: &ClusterStatus,
        links: impl Iterator<Item = &'l LinkState>,
        (steering, save_error): (&Steering, Option<&str>),
    ) {
        self.published_ms = Some(now_ms);
        match &status.error {
            Some(_) => drop(self.etcd_failed_ms.get_or_insert(now_ms)),
            None => self.etcd_failed_ms = None,
        }
        let links: Vec<&LinkState> = links.collect();
        for member in &status.members {
            match member.is_open {
                true => drop(self.opened_ms.entry(member.name.to_string()).or_insert(now_ms)),
                false => drop(self.opened_ms.remove(&*member.name)),
            }
        }
        self.log(now_ms, status, &links, save_error);
        let etcd_failed_ms = self.etcd_failed_ms.map(|at| now_ms - at);
        let (state, reason) = self.state(status);
        let cluster = types::Cluster {
            state,
            reason: save_error.map(unsaved).or(reason),
            name: Some(self.node.cluster.name.clone()),
            node: Some(self.node.own().name.clone()),
            etcd_error: status.error.as_ref().map(ToString::to_string),
            etcd_failed_ms,
            configuration: configuration(status),
            nodes: self.nodes(now_ms, status, &links),
            shards: shards(status, steering, self.node.cluster.shards),
            certificate_end_s: links.iter().filter_map(|link| u64::try_from(link.certificate_end).ok()).min(),
        };
        self.shown.state.change(|shown| *shown = cluster);
    }

    /// State of this node, and the reason if it waits.
    fn state(&self, status: &ClusterStatus) -> (ClusterState, Option<String>) {
        let is_registered = own(&self.node, status).is_some_and(|node| node.is_registered);
        let translates = status.shards.iter().any(|shard| shard.translate_ms > 0);
        match &status.error {
            _ if status.difference.is_some() => (ClusterState::Waiting, status.difference.clone()),
            _ if status.is_double => (ClusterState::Double, Some(DOUBLE.to_owned())),
            Some(_) if translates => (ClusterState::WithoutEtcd, None),
            Some(error) => (ClusterState::Waiting, Some(error.to_string())),
            None if is_registered => (ClusterState::Registered, None),
            None if translates => (ClusterState::WithoutEtcd, None),
            None => (ClusterState::Waiting, Some("it registers at etcd".to_owned())),
        }
    }

    fn nodes(&self, now_ms: u64, status: &ClusterStatus, links: &[&LinkState]) -> Vec<ClusterNode> {
        let count = |part: fn(&HeldShard) -> Option<&NodeName>, name: &NodeName| {
            status.shards.iter().filter(|shard| part(shard) == Some(name)).count() as u64
        };
        let one = |node: &NodeStatus| {
            let configured = self.node.cluster.nodes.iter().find(|one| *one.name == *node.name);
            let member = status.members.iter().zip(links).find(|(member, _)| member.name == node.name);
            let connection = member.zip(configured).map(|((member, link), configured)| NodeConnection {
                address: configured.peer.to_string(),
                connected_for_ms: self.opened_ms.get(&*node.name).map(|at| now_ms - at),
                reason: link.why.clone().filter(|_| !member.is_open),
                shards: member.shards.len() as u64,
                differences: member.differences.iter().map(named).collect(),
                clock_difference_ms: member.clock_difference_ms,
                counters: counters(&member.counters),
            });
            ClusterNode {
                name: node.name.to_string(),
                is_this: *node.name == *self.node.own().name,
                is_configured: node.is_configured,
                weight: configured.map_or(0, |one| one.weight),
                api: configured.and_then(|one| one.api.clone()),
                is_registered: node.is_registered,
                absent_ms: node.absent_ms.map(u64::from),
                is_drained: node.is_drained,
                is_gone: node.is_gone,
                owned: count(owner, &node.name),
                backed: count(backup, &node.name),
                connection,
                revision: of_node(status, &node.name),
            }
        };
        status.nodes.iter().map(one).collect()
    }

    /// Logs what has changed.
    fn log(&mut self, now_ms: u64, status: &ClusterStatus, links: &[&LinkState], save_error: Option<&str>) {
        status.members.iter().zip(links).for_each(|(member, link)| self.log_connection(now_ms, member, link));
        for node in status.nodes.iter().filter(|node| *node.name != *self.node.own().name) {
            let before = self.logged.here.insert(node.name.to_string(), node.is_registered);
            match (before, node.is_registered) {
                (Some(true), false) => self.trouble(format!("node {} is away", node.name)),
                (Some(false), true) => self.line(format!("node {} is here", node.name)),
                _ => {}
            }
        }
        for node in &status.nodes {
            let before = self.logged.drained.insert(node.name.to_string(), node.is_drained);
            match (before, node.is_drained) {
                (Some(false), true) => {
                    self.line(format!("node {} is drained: it gives its shards away", node.name));
                }
                (Some(true), false) => self.line(format!("node {} gets shards again", node.name)),
                _ => {}
            }
        }
        let failed_ms = self.etcd_failed_ms.map(|at| now_ms - at);
        if let Some(error) = &status.error
            && failed_ms.is_some_and(|ms| ms >= ETCD_QUIET_MS)
            && !std::mem::replace(&mut self.logged.has_etcd_failed, true)
        {
            self.trouble(format!("{error}; the shards stay where they are"));
        }
        if status.error.is_none() && std::mem::take(&mut self.logged.has_etcd_failed) {
            self.line("etcd answers again".to_owned());
        }
        let part = |wanted: fn(Part) -> bool| status.shards.iter().filter(|shard| wanted(shard.part)).count();
        let shards = (part(|part| part == Part::Owner), part(|part| matches!(part, Part::Backup(_))));
        let is_late = now_ms >= self.logged.shards_ms + SHARDS_EVERY_MS;
        if self.logged.shards != shards && is_late {
            let (owned, backed) = shards;
            (self.logged.shards, self.logged.shards_ms) = (shards, now_ms);
            self.line(format!("this node owns {}, and backs up {backed}", counted(owned as u64, "shard")));
        }
        if self.logged.save_error.as_deref() != save_error {
            self.logged.save_error = save_error.map(str::to_owned);
            save_error.into_iter().for_each(|why| self.trouble(unsaved(why)));
        }
    }

    fn log_connection(&mut self, now_ms: u64, member: &MemberStatus, link: &LinkState) {
        let name = member.name.to_string();
        let was_open = self.logged.open.insert(name.clone(), member.is_open).unwrap_or(false);
        if member.is_open {
            if !was_open {
                let address = link.remote.map(|address| format!(" ({address})")).unwrap_or_default();
                self.logged.why.remove(&name);
                self.line(format!("connected to node {name}{address}"));
            }
            return;
        }
        let Some(why) = link.why.clone() else { return };
        let last = self.logged.why.get(&name);
        if last.is_none_or(|(text, at)| *text != why && now_ms >= at + LOG_EVERY_MS) {
            self.trouble(format!("not connected to node {name}: {why}"));
            self.logged.why.insert(name, (why, now_ms));
        }
    }
}

fn owner(shard: &HeldShard) -> Option<&NodeName> {
    shard.record.as_ref().map(|record| &record.owner.node)
}

fn backup(shard: &HeldShard) -> Option<&NodeName> {
    Some(&shard.record.as_ref()?.backup.as_ref()?.seat.node)
}

fn shards(status: &ClusterStatus, steering: &Steering, count: u16) -> Vec<ClusterShard> {
    let one = |(number, shard): (u16, &HeldShard)| {
        let runs = u8::try_from(number).map(|number| steering.addresses_of_shard(number)).unwrap_or_default();
        let phase = shard.record.as_ref().and_then(|record| record.phase());
        ClusterShard {
            number: number.into(),
            addresses: addresses(runs.into_iter()),
            epoch: shard.record.as_ref().map_or(0, |record| record.epoch.into()),
            owner: owner(shard).map(ToString::to_string),
            backup: backup(shard).map(ToString::to_string),
            phase: phase.map(|phase| match phase {
                Phase::Filling => BackupPhase::Filling,
                Phase::Ready => BackupPhase::Ready,
                Phase::Leaving => BackupPhase::Leaving,
            }),
            part: match shard.part {
                Part::Owner => ShardPart::Owner,
                Part::Backup(_) => ShardPart::Backup,
                Part::None => ShardPart::None,
            },
            assigns: shard.may_assign,
            translates_for_ms: Some(shard.translate_ms).filter(|ms| *ms > 0),
            is_synced: shard.is_synced,
        }
    };
    (0..count).zip(&status.shards).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::tests::settings;
    use crate::offload::Guard;
    use gatun_cluster::store::StoreError;
    use std::sync::mpsc::channel;

    fn status() -> ClusterStatus {
        let node = |name: &str, is_registered| NodeStatus {
            name: name.into(),
            is_configured: true,
            is_registered,
            absent_ms: None,
            is_drained: false,
            is_gone: false,
        };
        let shard = HeldShard {
            record: Some("epoch=3 owner=a@1 backup=b@2 phase=ready".parse().unwrap()),
            part: Part::Owner,
            order: coordination::Order::Keep,
            has_state: true,
            is_connected: true,
            is_synced: true,
            may_assign: true,
            translate_ms: 9_000,
        };
        ClusterStatus {
            shards: vec![shard],
            nodes: vec![node("a", true), node("b", true)],
            members: Vec::new(),
            error: None,
            is_double: false,
            difference: None,
            configuration: coordination::ConfigurationStatus::default(),
        }
    }

    #[test]
    fn the_state_of_a_node_has_words() {
        let (sender, _events) = channel();
        let node = settings("a", 1);
        let watch = Watch::new(node.clone(), Shown::new(&node), sender);
        let mut status = status();
        let of = |status: &ClusterStatus| watch.state(status).0;
        assert_eq!(of(&status), ClusterState::Registered);
        status.error = Some(StoreError::Unreachable("no answer".into()));
        assert_eq!(of(&status), ClusterState::WithoutEtcd);
        status.shards[0].translate_ms = 0;
        let (state, why) = watch.state(&status);
        assert_eq!(
            (state, why.as_deref()),
            (ClusterState::Waiting, Some("etcd cannot be reached: no answer"))
        );
        (status.error, status.nodes[0].is_registered) = (None, false);
        assert_eq!(of(&status), ClusterState::Waiting);
        status.is_double = true;
        assert_eq!(of(&status), ClusterState::Double);
        status.difference = Some("own_ports".to_owned());
        let (state, why) = watch.state(&status);
        assert_eq!((state, why.as_deref()), (ClusterState::Waiting, Some("own_ports")));
    }

    #[test]
    fn changes_are_logged_once() {
        let (sender, events) = channel();
        let node = settings("a", 1);
        let mut watch = Watch::new(node.clone(), Shown::new(&node), sender);
        let mut status = status();
        let said = |watch: &mut Watch, now_ms: u64, status: &ClusterStatus| {
            watch.etcd_failed_ms = status.error.as_ref().map(|_| 0);
            watch.log(now_ms, status, &[], None);
            let text = |event| match event {
                Event::Line(line) | Event::Failure(line) => line,
                _ => panic!("another event"),
            };
            events.try_iter().map(text).collect::<Vec<_>>()
        };
        let owns = "cluster: this node owns 1 shard, and backs up 0";
        assert_eq!(said(&mut watch, 1_000, &status), [owns]);
        assert_eq!(said(&mut watch, 2_000, &status), [""; 0]);
        (status.nodes[1].is_registered, status.shards[0].part) = (false, Part::None);
        let away = ["cluster: node b is away", "cluster: this node owns 0 shards, and backs up 0"];
        assert_eq!(said(&mut watch, 2_100, &status), away);
        status.nodes[1].is_registered = true;
        assert_eq!(said(&mut watch, 2_200, &status), ["cluster: node b is here"]);
        status.nodes[1].is_drained = true;
        let drained = "cluster: node b is drained: it gives its shards away";
        assert_eq!(said(&mut watch, 2_300, &status), [drained]);
        status.nodes[1].is_drained = false;
        assert_eq!(said(&mut watch, 2_400, &status), ["cluster: node b gets shards again"]);
        status.error = Some(StoreError::Busy);
        let line = said(&mut watch, 3_000, &status);
        assert!(line.len() == 1 && line[0].contains("too many requests"), "{line:?}");
        assert_eq!(said(&mut watch, 3_100, &status), [""; 0]);
        status.error = None;
        assert_eq!(said(&mut watch, 3_200, &status), ["cluster: etcd answers again"]);
        let shown: Vec<_> = watch.shown.events().events.into_iter().map(|event| event.what).collect();
        assert_eq!(shown.len(), 8, "{shown:?}");
    }

    #[test]
    fn the_same_event_again_and_again_is_one_line() {
        let (sender, events) = channel();
        let node = settings("a", 1);
        let mut watch = Watch::new(node.clone(), Shown::new(&node), sender);
        for at_ms in (0..20_000).step_by(100) {
            let event = coordination::ClusterEvent { at_ms, text: "etcd refuses: no".to_owned() };
            watch.events(at_ms, vec![event]);
        }
        assert_eq!(events.try_iter().count(), 2);
    }

    #[test]
    fn a_fault_of_the_thread_is_shown_and_logged() {
        let node = settings("a", 1);
        let (shown, (sender, events)) = (Shown::new(&node), channel());
        let health = HealthControl::default();
        let end = shown.end_of_panic(health.clone(), sender);
        let thread = std::thread::spawn(move || {
            let _guard = Guard(Some(end));
            panic!("as in a test");
        });
        assert!(thread.join().is_err());
        assert_eq!(health.held().as_deref(), Some(PANICKED));
        let cluster = shown.current();
        assert_eq!((cluster.state, cluster.reason.as_deref()), (ClusterState::Stopped, Some(PANICKED)));
        assert!(matches!(events.recv().unwrap(), Event::Failure(line) if line.contains(PANICKED)));
    }
}
