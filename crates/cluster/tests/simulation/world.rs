//! World of the simulation: links that break, faults, and checks after each step.

use crate::node::{Life, Node, SHARDS, TIMING, name};
use crate::server::Server;
use gatun_cluster::ClusterRules;
use gatun_cluster::coordination::RelationFacts;
use gatun_cluster::record::{NodeName, Part, Phase, ShardRecord};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

const STEP_MS: u64 = 5;
/// Time in which a holder gets the state of the other one, ms.
const FILL_MS: u64 = 30;
const AWAY_MS: u64 = 300;
const PORTS: u64 = 6;

pub struct World {
    nodes: Vec<Node>,
    server: Rc<RefCell<Server>>,
    now_ms: u64,
    random: u64,
    cuts: Vec<(usize, usize)>,
    next_user: u64,
    /// Promises on their way: receiver, giver, shard, time of the request by the receiver's clock.
    asked: Vec<(usize, usize, u8, u64)>,
    pub log: Vec<String>,
}

impl World {
    pub fn new(seed: u64, rules: ClusterRules) -> World {
        let server = Rc::new(RefCell::new(Server::default()));
        let mut world = World {
            nodes: vec![],
            server,
            now_ms: 1_000,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            cuts: vec![],
            next_user: 0,
            asked: vec![],
            log: vec![],
        };
        let count = 2 + world.below(3) as usize;
        for number in 0..count {
            let rate = world.below(21) as i64 - 10;
            world.nodes.push(Node::new(&world.server, (number, count), rules, rate));
        }
        world
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) % n
    }

    fn note(&mut self, text: String) {
        self.log.push(format!("{} {text}", self.now_ms));
    }

    /// Does something.
    ///
    /// # Errors
    /// Returns the broken promise.
    pub fn step(&mut self) -> Result<(), String> {
        if self.below(12) == 0 {
            self.fault();
        }
        self.everything()
    }

    fn fault(&mut self) {
        let node = self.below(self.nodes.len() as u64) as usize;
        let other = self.below(self.nodes.len() as u64) as usize;
        let now_ms = self.now_ms;
        match self.below(14) {
            0 if node != other => {
                let cut = (node.min(other), node.max(other));
                match self.cuts.iter().position(|one| *one == cut) {
                    Some(place) => drop(self.cuts.remove(place)),
                    None => self.cuts.push(cut),
                }
                self.note(format!("cuts {:?}", self.cuts));
            }
            1 => {
                self.nodes[node].client.is_cut ^= true;
                self.note(format!("{node} and etcd: cut {}", self.nodes[node].client.is_cut));
            }
            2 => {
                let is_away = &mut self.server.borrow_mut().is_away;
                *is_away ^= true;
            }
            3 => self.nodes[node].client.delay_ms = 2 + 150 * (other as u64 % 2),
            4 => self.nodes[node].client.loses_next = true,
            5..=7 if self.nodes[node].life == Life::Runs => {
                let life = [Life::Stopped, Life::Killed, Life::Off][self.below(3) as usize];
                self.nodes[node].end(now_ms, life);
                self.note(format!("{node} is {life:?}"));
            }
            8..=11 => self.come_back(node),
            // Time passes without anything else.
            12 => self.now_ms += self.below(300),
            _ => {}
        }
    }

    fn come_back(&mut self, node: usize) {
        if self.nodes[node].life != Life::Runs {
            self.note(format!("{node} is back"));
            let server = Rc::clone(&self.server);
            self.nodes[node].come_back(&server, node, self.now_ms);
        }
    }

    fn everything(&mut self) -> Result<(), String> {
        self.now_ms += STEP_MS;
        self.server.borrow_mut().turn(self.now_ms);
        for node in 0..self.nodes.len() {
            self.nodes[node].turn(self.now_ms);
            for event in self.nodes[node].coordination.take_events() {
                self.note(format!("{node}: {}", event.text));
            }
        }
        for shard in 0..SHARDS as u8 {
            self.relations(shard);
        }
        self.promises();
        self.traffic();
        self.check()
    }

    fn known(&self, node: usize, shard: u8) -> Option<ShardRecord<NodeName>> {
        self.nodes[node].coordination.shard(shard).record
    }

    fn number(&self, node: &NodeName) -> Option<usize> {
        self.nodes.iter().position(|one| one.name == *node)
    }

    fn runs(&self, node: usize) -> bool {
        self.nodes[node].life == Life::Runs
    }

    /// Connects the holders of a shard, and carries their state.
    fn relations(&mut self, shard: u8) {
        let place = usize::from(shard);
        for node in 0..self.nodes.len() {
            if !self.runs(node) {
                continue;
            }
            let other = self.known(node, shard).and_then(|record| self.number(record.other(&name(node))?));
            let is_connected = other.is_some_and(|other| self.are_connected(shard, node, other));
            let now = self.nodes[node].now(self.now_ms);
            let holding = &mut self.nodes[node].all.0[place];
            match (is_connected, holding.connected_ms) {
                (true, None) => holding.connected_ms = Some(now),
                (false, Some(_)) => (holding.connected_ms, holding.lost_ms) = (None, now),
                _ => {}
            }
            let is_synced = holding.connected_ms.is_some_and(|at| now >= at + FILL_MS);
            let is_told = holding.told_ms.is_some_and(|at| now >= at + FILL_MS) && is_synced;
            holding.facts = RelationFacts {
                is_connected,
                is_away: !is_connected && now >= holding.lost_ms + AWAY_MS,
                is_synced: is_synced && holding.has_state,
                is_told,
            };
        }
        for node in 0..self.nodes.len() {
            let Some(record) = self.known(node, shard).filter(|_| self.runs(node)) else { continue };
            let Some(other) = record.other(&name(node)).and_then(|other| self.number(other)) else {
                continue;
            };
            let are_ready = [node, other].iter().all(|one| {
                self.nodes[*one].all.0[place]
                    .connected_ms
                    .is_some_and(|at| self.nodes[*one].now(self.now_ms) >= at + FILL_MS)
            });
            if node < other && are_ready && self.are_connected(shard, node, other) {
                self.reconcile(shard, node, other);
            }
        }
    }

    fn are_connected(&self, shard: u8, one: usize, other: usize) -> bool {
        let is_cut = self.cuts.contains(&(one.min(other), one.max(other)));
        let both = (self.known(one, shard), self.known(other, shard));
        let (Some(here), Some(there)) = both else { return false };
        let [a, b] = [name(one), name(other)];
        let agree = here.other(&a) == Some(&b)
            && there.other(&b) == Some(&a)
            && [&a, &b].iter().all(|node| here.since(node) == there.since(node));
        let stays = [&here, &there].iter().all(|record| record.phase() != Some(Phase::Leaving));
        !is_cut && agree && stays && self.runs(one) && self.runs(other)
    }

    /// Both holders have the same from now on.
    fn reconcile(&mut self, shard: u8, one: usize, other: usize) {
        let place = usize::from(shard);
        let mut both = [one, other].map(|node| std::mem::take(&mut self.nodes[node].all.0[place]));
        if both.iter().all(|holding| !holding.has_state) {
            let owns =
                |node: usize| self.known(node, shard).is_some_and(|record| record.owner.node == name(node));
            both[0].has_state = owns(one);
            both[1].has_state = owns(other);
        } else {
            both.iter_mut().for_each(|holding| holding.has_state = true);
        }
        for (here, there) in [(0, 1), (1, 0)] {
            for port in std::mem::take(&mut both[here].freed) {
                both[there].ports.remove(&port);
            }
        }
        for (here, there) in [(0, 1), (1, 0)] {
            let ports = both[here].ports.clone();
            for (port, (user, _)) in ports {
                both[there].ports.entry(port).or_insert((user, true));
            }
        }
        let ports = both.iter_mut().flat_map(|holding| holding.ports.values_mut());
        ports.for_each(|(_, is_known)| *is_known = true);
        let [first, second] = both;
        self.nodes[one].all.0[place] = first;
        self.nodes[other].all.0[place] = second;
    }

    /// Holders ask each other for promises all the time; answers take a step.
    fn promises(&mut self) {
        for (to, from, shard, asked_ms) in std::mem::take(&mut self.asked) {
            if !self.are_connected(shard, to, from) {
                continue;
            }
            let now = self.nodes[from].now(self.now_ms);
            if let Some(promise) = self.nodes[from].coordination.promise(now, shard, &name(to)) {
                self.nodes[to].coordination.promised(asked_ms, shard, &name(from), promise);
            }
        }
        if !self.now_ms.is_multiple_of(u64::from(TIMING.timing.lease_ms) / 4) {
            return;
        }
        for node in (0..self.nodes.len()).filter(|node| self.runs(*node)).collect::<Vec<_>>() {
            for shard in 0..SHARDS as u8 {
                let other =
                    self.known(node, shard).and_then(|record| self.number(record.other(&name(node))?));
                if let Some(other) = other {
                    self.asked.push((node, other, shard, self.nodes[node].now(self.now_ms)));
                }
            }
        }
    }

    /// Users begin and end.
    fn traffic(&mut self) {
        for node in 0..self.nodes.len() {
            if !self.runs(node) {
                continue;
            }
            let (shard, port) = (self.below(SHARDS.into()) as u8, self.below(PORTS) as u8);
            let ends = self.below(3) == 0;
            let user = self.next_user;
            let now = self.nodes[node].now(self.now_ms);
            let rights = self.nodes[node].coordination.rights(shard);
            let holding = &mut self.nodes[node].all.0[usize::from(shard)];
            if !holding.has_state || rights.translate_until <= now {
                continue;
            }
            match holding.ports.get(&port).copied() {
                None if rights.assign_until > now && !holding.freed.contains(&port) => {
                    holding.ports.insert(port, (user, false));
                    self.next_user += 1;
                    self.note(format!("{node} assigns port {port} of shard {shard} to {user}"));
                }
                Some((_, is_known)) if ends => {
                    holding.ports.remove(&port);
                    if is_known {
                        holding.freed.insert(port);
                    }
                    self.note(format!("{node} ends port {port} of shard {shard}"));
                }
                _ => {}
            }
        }
    }

    /// Checks that no public port has two users.
    fn check(&self) -> Result<(), String> {
        for shard in 0..SHARDS as u8 {
            let mut users = HashMap::new();
            for (place, node) in self.nodes.iter().enumerate() {
                let of_kernel = self.now_ms < node.kernel.1;
                let translated = match node.life {
                    Life::Runs => node.translated(self.now_ms, shard),
                    _ if of_kernel => node.kernel.0[usize::from(shard)].clone(),
                    _ => continue,
                };
                for (port, user) in translated {
                    let (before, at) = *users.entry(port).or_insert((user, place));
                    if before != user {
                        let key = format!("/gatun/c/shards/{shard:03}");
                        let record = self.server.borrow().value(&key).map(str::to_owned);
                        let users = format!("{before} at {at} and {user} at {place}");
                        return Err(format!("port {port} of shard {shard} has users {users}: {record:?}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends all faults, and lets the nodes agree.
    ///
    /// # Errors
    /// They do not, within a bound.
    pub fn heal(&mut self) -> Result<(), String> {
        self.note("heal".to_owned());
        self.cuts.clear();
        self.server.borrow_mut().is_away = false;
        for node in 0..self.nodes.len() {
            self.come_back(node);
            let client = &mut self.nodes[node].client;
            (client.is_cut, client.delay_ms, client.loses_next) = (false, 2, false);
        }
        let begin = self.now_ms;
        let mut quiet = 0;
        while self.now_ms < begin + 20_000 {
            self.everything()?;
            quiet = if (0..SHARDS as u8).all(|shard| self.is_whole(shard)) { quiet + 1 } else { 0 };
            if quiet > 20 {
                return Ok(());
            }
        }
        let records: Vec<_> =
            (0..SHARDS as u8).map(|shard| self.nodes[0].coordination.shard(shard).record).collect();
        Err(format!("no agreement: {records:?}"))
    }

    /// Returns whether a shard has an owner with a right and a ready backup.
    fn is_whole(&self, shard: u8) -> bool {
        let Some(record) = self.known(0, shard) else { return false };
        let owner = self.number(&record.owner.node);
        let has_right = owner.is_some_and(|owner| {
            let one = &self.nodes[owner];
            let rights = one.coordination.rights(shard);
            rights.part == Part::Owner && rights.assign_until > one.now(self.now_ms)
        });
        has_right && record.phase() == Some(Phase::Ready)
    }
}
