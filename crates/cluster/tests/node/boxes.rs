//! Box of a cluster: a node and the engines of its workers.

use crate::engines::{Translation, Workers};
use crate::server::{Client, Server};
use gatun_cluster::coordination::CoordinationSettings;
use gatun_cluster::node::{Node, NodeEngines, NodeSettings, Places, SavedNode, exchange_settings};
use gatun_cluster::record::NodeName;
use gatun_cluster::target::Candidate;
use gatun_cluster::{ClusterRules, ClusterTiming};
use gatun_nat::plan::{self, Net4, Plan, PoolRange};
use gatun_nat::redirect::Place;
use gatun_nat::standby::{Fence, PeerAction};
use gatun_nat::{Instant, ShardSet};
use gatun_peer::member::{AddressRange, Engines};
use gatun_peer::ownership::Timing;
use gatun_peer::wire::{Exchange, Settings};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::net::Ipv4Addr;
use std::rc::Rc;

pub const SHARDS: u16 = 4;
pub const WORKERS: usize = 2;
pub const TIMING: ClusterTiming =
    ClusterTiming { timing: Timing { lease_ms: 400, kernel_ms: 60, drift_ms: 40 }, hold_ms: 1_200 };
const PORTS: (u16, u16) = (1024, 1047);
const OWN_PORTS: u16 = 5;

/// Settings that vary between seeds.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    pub nodes: usize,
    pub rules: ClusterRules,
    /// Packets after which a UDP session is told.
    pub packets: u8,
    /// Groups in the log of an exchange.
    pub log_max: usize,
    /// Records in the ring of a feed.
    pub ring: usize,
    /// True if the clock of a stopped box stands still: the host is suspended, and its clock does not count
    /// that.
    pub is_clock_suspended: bool,
}

pub fn name(number: usize) -> NodeName {
    format!("n{number}").into()
}

pub fn plan() -> Plan {
    let nat44 = plan::Nat44 {
        name: "home".into(),
        inside: vec![Net4::new(Ipv4Addr::new(10, 0, 0, 0), 8).unwrap()],
        timeouts: plan::Timeouts {
            udp_ms: 20_000,
            tcp_established_ms: 60_000,
            tcp_transitory_ms: 2_000,
            tcp_partial_open_ms: 2_000,
            tcp_closing_ms: 2_000,
            ..plan::Timeouts::default()
        },
        ..plan::Nat44::default()
    };
    let (first, last) = ([192, 0, 2, 0].into(), [192, 0, 2, 3].into());
    let ranges = vec![PoolRange { first, last, ports: PORTS, transports: [true; 3] }];
    let pool = plan::Pool4 { name: "pool".into(), ranges, ..plan::Pool4::default() };
    let mut plan = Plan { shards: Some(SHARDS), pools: vec![pool], nat44: vec![nat44], ..Plan::default() };
    plan.limits.sessions_max = 600;
    plan.limits.subscribers_max = 64;
    plan.limits.syn_store_max = 16;
    plan.limits.path_mtus_max = 16;
    plan.limits.fragment_entries_max = 16;
    plan
}

/// Engines of a box, and where it says that each shard is translated.
pub struct Slots {
    pub workers: Workers,
    pub places: Option<Places>,
}

impl NodeEngines for Slots {
    fn of(&mut self, slot: usize) -> &mut dyn Engines {
        self.workers.of(slot)
    }

    fn assign(&mut self, shard: u8, slot: Option<usize>) {
        self.workers.assign(shard, slot);
    }

    fn places(&mut self, places: &Places) {
        self.places = Some(places.clone());
    }
}

pub struct Process {
    pub node: Node,
    pub slots: Slots,
}

/// Life of a box.
pub enum Life {
    Runs,
    /// It does nothing, but its memory is there. Its kernel goes on for a while.
    Stopped,
    /// Killed: its sessions and its standing are there.
    Killed(Vec<File>),
    /// Off: nothing is there.
    Off,
}

pub struct Machine {
    number: usize,
    pub life: Life,
    pub process: Option<Process>,
    pub client: Client,
    saved: Option<SavedNode>,
    /// Translations that the kernel makes without the process, until a time.
    kernel: (Vec<Translation>, u64),
    /// Thousandths by which its clock is fast.
    rate: i64,
    /// Time at which its clock was stopped, if it can be, and the time for which it has stood still, ms.
    suspended: (Option<u64>, u64),
    is_clock_suspended: bool,
    generation: u64,
}

impl Machine {
    pub fn new(
        server: &Rc<RefCell<Server>>,
        number: usize,
        variant: &Variant,
        rate: i64,
        now_ms: u64,
    ) -> Machine {
        let mut machine = Machine {
            number,
            life: Life::Off,
            process: None,
            client: Client::new(server),
            saved: None,
            kernel: (vec![], 0),
            rate,
            suspended: (None, 0),
            is_clock_suspended: variant.is_clock_suspended,
            generation: 0,
        };
        machine.come_back(server, variant, now_ms);
        machine
    }

    pub fn runs(&self) -> bool {
        matches!(self.life, Life::Runs)
    }

    /// Time of its own clock.
    pub fn now(&self, now_ms: u64) -> u64 {
        let (since, slept_ms) = self.suspended;
        let now_ms = since.unwrap_or(now_ms) - slept_ms;
        (now_ms as i64 + now_ms as i64 * self.rate / 1_000) as u64
    }

    pub fn come_back(&mut self, server: &Rc<RefCell<Server>>, variant: &Variant, now_ms: u64) {
        self.suspended.1 += self.suspended.0.take().map_or(0, |since| now_ms - since);
        self.kernel = (vec![], 0);
        match std::mem::replace(&mut self.life, Life::Runs) {
            Life::Runs | Life::Stopped if self.process.is_some() => {}
            Life::Killed(files) => self.start(server, variant, now_ms, files),
            _ => self.start(server, variant, now_ms, vec![]),
        }
    }

    fn start(&mut self, server: &Rc<RefCell<Server>>, variant: &Variant, now_ms: u64, files: Vec<File>) {
        self.generation += 1;
        let now = self.now(now_ms);
        let generation = self.generation * 8 + self.number as u64;
        let mut workers =
            Workers::new(&plan(), (WORKERS, variant.nodes), (variant.packets, variant.ring), generation);
        let closed = Fence { assign: Some(Instant(0)), translate: Some(Instant(0)) };
        workers.order(Instant(now), PeerAction::Until(ShardSet::ALL, closed));
        workers.inherit(Instant(now), files);
        let one = |number: usize| Candidate { node: name(number), name: name(number).to_string(), weight: 1 };
        let coordination = CoordinationSettings {
            cluster: "c".to_owned(),
            me: name(self.number),
            nodes: (0..variant.nodes).map(one).collect(),
            instance: format!("i{}", self.number),
            shards: SHARDS,
            timing: TIMING,
            moves_max: 2,
            rules: variant.rules,
        };
        let range =
            |shard: u8, (first, last)| AddressRange { first, last, ports: PORTS, shard: shard.into() };
        let addresses = (0..SHARDS as u8)
            .flat_map(|shard| {
                let all = workers.steering.addresses_of_shard(shard);
                all.into_iter().map(move |ends| range(shard, ends))
            })
            .collect();
        let settings =
            NodeSettings { coordination, addresses, own_ports: OWN_PORTS, away_ms: 300, again_ms: 20 };
        let me = name(self.number);
        let exchange = |other: usize| {
            let settings = exchange_settings(&me, &name(other), generation, vec![]);
            (name(other), Exchange::new(Settings { log_max: variant.log_max, ..settings }))
        };
        let exchanges = (0..variant.nodes).filter(|other| *other != self.number).map(exchange).collect();
        let node = Node::new(settings, exchanges, self.saved.clone(), now);
        self.client = Client::new(server);
        self.process = Some(Process { node, slots: Slots { workers, places: None } });
    }

    /// Ends the process, or stops it.
    pub fn end(&mut self, now_ms: u64, life: impl FnOnce(Vec<File>) -> Life) {
        self.kernel = (self.translations(now_ms), now_ms + u64::from(TIMING.timing.kernel_ms));
        self.life = life(vec![]);
        if matches!(self.life, Life::Stopped) {
            self.suspended.0 = self.is_clock_suspended.then_some(now_ms);
            return;
        }
        let files = self.process.take().map(|process| process.slots.workers.files()).unwrap_or_default();
        match &mut self.life {
            Life::Killed(left) => *left = files,
            _ => self.saved = None,
        }
    }

    /// Does what is due, and saves the standing.
    pub fn turn(&mut self, now_ms: u64) {
        if !self.runs() {
            return;
        }
        self.client.turn(now_ms);
        let now = self.now(now_ms);
        let Some(Process { node, slots }) = &mut self.process else { return };
        node.turn(now, slots, &mut self.client);
        self.saved = node.take_unsaved().or(self.saved.take());
        node.note_saved();
    }

    /// Number of the member that is another box.
    pub fn member_of(&self, other: usize) -> usize {
        if other < self.number { other } else { other - 1 }
    }

    /// Returns the place of a packet's shard, and the shard.
    pub fn place(&self, packet: &[u8]) -> Option<(Place, u8)> {
        let Process { slots, .. } = self.process.as_ref()?;
        let shard = slots.workers.steering.part_of(packet, 0)? as u8;
        Some((slots.places.as_ref()?.translated[usize::from(shard)], shard))
    }

    /// Gives a packet of a shard to the engines. Returns it if it was forwarded.
    pub fn packet(&mut self, now_ms: u64, packet: &[u8], shard: u8, is_by_tunnel: bool) -> Option<Vec<u8>> {
        let now = Instant(self.now(now_ms));
        let Process { slots, .. } = self.process.as_mut()?;
        let places = slots.places.as_ref()?;
        let is_held = places.owned.union(places.backed).contains(shard);
        if is_by_tunnel && !is_held {
            return None;
        }
        slots.workers.packet(now, packet)
    }

    /// Returns the translations that packets can find in the box.
    pub fn translations(&self, now_ms: u64) -> Vec<Translation> {
        if !self.runs() {
            return if now_ms < self.kernel.1 { self.kernel.0.clone() } else { vec![] };
        }
        let Some(Process { slots, .. }) = &self.process else { return vec![] };
        let now = Instant(self.now(now_ms));
        let mut all = slots.workers.translations();
        let mut fenced = BTreeMap::new();
        let mut is_fenced =
            |address| *fenced.entry(address).or_insert_with(|| slots.workers.is_fenced(now, address));
        all.retain(|one| !is_fenced(one.address()));
        all
    }
}
