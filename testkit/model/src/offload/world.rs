//! The world of a history: engines, manager, table, and time.

use super::engine::{Link, Shard, prefix, public};
use super::setup::Setup;
use super::step::Op;
use super::switch::{ModelSwitch, SwitchFault};
use super::switch_link::SwitchLink;
use super::table::{Entries, Entry, Key, STRAY, Table, inbound, outbound};
use super::target::ModelTarget;
use crate::isp::packets::{Kind, write};
use gatun_nat::counters::Traffic;
use gatun_nat::feed::Flow;
use gatun_nat::inspect::{Selection, SessionCursor, SessionInfo};
use gatun_nat::plan::Transport;
use gatun_nat::reconfigure::Change;
use gatun_nat::{ClearCursor, Extent, Instant, Verdict};
use gatun_offload::{InstanceSettings, Manager, OffloadedFlow, Settings, Target as _};
use gatun_p4_controller::Switches;
use gatun_p4_controller::flow::{Direction, key};
use gatun_p4_controller::link::FlowEntry;
use gatun_wire::{HEADROOM, Packet};
use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::time::Duration;

/// Number of engines.
const SHARDS: u8 = 2;
/// Entries of the table.
const CAPACITY: u32 = 12;
/// Turns within which everything comes to rest.
const TURNS: usize = 2_000;
const SYN_FIN_RST: u8 = 7;

/// Engines, manager and table.
pub struct World {
    pub(super) shards: Vec<Rc<RefCell<Shard>>>,
    pub(super) table: Rc<RefCell<Entries>>,
    pub(super) manager: Manager<Link, ModelTarget>,
    pub(super) settings: Settings,
    setup: Setup,
    now: u64,
    generation: u64,
    /// Packets whose credits were lost with a manager or an engine.
    pub(super) lost: u64,
    /// Packets credited to earlier engines, and those that they refused.
    pub(super) credited_before: u64,
    pub(super) refused_before: u64,
    /// Managers that ended.
    pub killed: u64,
    /// Entries that all managers have installed.
    pub installed: u64,
    /// Records that the feeds have lost.
    pub lost_records: u64,
    /// Questions answered with a later end.
    pub seen: u64,
    /// Entries evicted.
    pub evicted: u64,
    /// Entries taken over by another manager.
    pub adopted: u64,
}

fn remote(server: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, 1 + server)
}

/// Port of an inside host that is the identifier of its pings.
const PINGS: u8 = 2;

/// Kind of the packets of a session, from inside or to the inside.
fn kind(transport: Transport, flags: u8, is_outbound: bool) -> Kind {
    match transport {
        Transport::Tcp => Kind::Tcp(flags),
        Transport::Udp => Kind::Udp,
        Transport::Icmp => Kind::Echo(is_outbound),
    }
}

fn transport(flags: Option<u8>) -> (Transport, Kind) {
    flags.map_or((Transport::Udp, Kind::Udp), |flags| (Transport::Tcp, Kind::Tcp(flags)))
}

impl World {
    /// Creates the world of a seed.
    pub fn new(seed: u64, setup: Setup) -> World {
        let now = 1_000_000;
        let shard = |n| Rc::new(RefCell::new(Shard::new(n, seed, Instant(now))));
        let shards: Vec<_> = (0..SHARDS).map(shard).collect();
        let switches = (0..setup.switches.map_or(0, |switches| switches.0)).map(|_| ModelSwitch::new());
        let switches = switches.collect();
        let entries = Entries { now, epoch: 1, capacity: CAPACITY, switches, ..Entries::default() };
        let table = Rc::new(RefCell::new(entries));
        let inbound_refresh = shards[0].borrow().plans[0].nat44[0].inbound_refresh;
        let instance = InstanceSettings { offloaded: true, prefixes: vec![], inbound_refresh };
        let settings = Settings {
            enabled: true,
            entries_max: 200,
            epoch: 1,
            lease: Duration::from_secs(10),
            instances: vec![instance.clone(), instance],
        };
        let links = shards.iter().map(|shard| Shard::attach(shard, 0)).collect();
        let target = target(&table, &setup);
        let manager = Manager::with_rules(links, target, settings.clone(), setup.rules);
        let mut world = World {
            shards,
            table,
            manager,
            settings,
            setup,
            now,
            generation: 0,
            lost: 0,
            credited_before: 0,
            refused_before: 0,
            killed: 0,
            installed: 0,
            lost_records: 0,
            seen: 0,
            evicted: 0,
            adopted: 0,
        };
        world.set_settings();
        world
    }

    /// Plays a step.
    ///
    /// # Errors
    /// Returns the broken promise.
    pub fn play(&mut self, op: &Op) -> Result<(), String> {
        match *op {
            Op::Out { shard, host, port, server, flags, six } => {
                self.out(shard, (host, port), server, flags, six);
            }
            Op::Back { shard, session, flags } => self.back(shard, session.into(), flags),
            Op::In { shard, server, port, flags } => {
                let (transport, kind) = transport(flags);
                let to = (IpAddr::V4(public(shard, port % 2)), 2048 + u16::from(port / 2));
                self.packet(shard, ((IpAddr::V4(remote(server)), 80), to, transport), kind);
            }
            Op::Busy { packets } => self.busy(packets),
            Op::Pass { ms } => self.pass(ms.into()),
            Op::Sweep => (0..5).for_each(|_| self.sweep()),
            Op::Clear { shard, port, bindings } => self.clear(shard, port, bindings),
            Op::Storm { shard } => self.storm(shard),
            Op::Reload => self.reload(),
            Op::Turn => _ = self.turn(),
            Op::Work { shard, commands } => self.work(shard, commands.into())?,
            Op::Restore { shard } => {
                let shard = &mut *self.shards[usize::from(shard)].borrow_mut();
                shard.nat.restore_some(shard.now, 5);
            }
            Op::Settle => self.settle()?,
            Op::KillManager { stray } => self.kill_manager(stray),
            Op::KillAll { stray } => self.kill_all(stray),
            Op::Refuse { flows } => self.table.borrow_mut().refusals = flows,
            Op::Serve { switch, requests } => {
                let switches = &mut self.table.borrow_mut().switches;
                switches.get_mut(usize::from(switch)).iter_mut().for_each(|s| s.serve(requests.into()));
            }
            Op::GiveBack { switch, frames, loses } => {
                let switches = &mut self.table.borrow_mut().switches;
                let switch = switches.get_mut(usize::from(switch));
                switch.into_iter().for_each(|s| s.engine_port.give_back(frames.into(), loses));
            }
            Op::Fault { switch, fault } => self.fault(switch, fault),
            Op::Room { shard, batches } => {
                self.shards[usize::from(shard)].borrow_mut().room = batches.into();
            }
            ref setting => self.set(setting),
        }
        self.holds()
    }

    fn set(&mut self, op: &Op) {
        match *op {
            Op::Enable(enabled) => self.settings.enabled = enabled,
            Op::Instance { number, offloaded } => {
                self.settings.instances[usize::from(number)].offloaded = offloaded;
            }
            Op::Limit(limit) => self.settings.entries_max = limit.into(),
            Op::Epoch(epoch) => {
                self.settings.epoch = epoch.into();
                self.table.borrow_mut().epoch = epoch.into();
            }
            _ => return,
        }
        self.set_settings();
    }

    fn set_settings(&mut self) {
        // All engines have had the same plans in the same order.
        self.settings.instances[0].prefixes = self.shards[0].borrow().nat.outline().prefixes(0).to_vec();
        self.manager.set_settings(self.settings.clone());
    }

    /// Sends a packet to the table, and to the engine if the table does not translate it.
    fn packet(&mut self, shard: u8, key: Key, kind: Kind) {
        let ends = matches!(kind, Kind::Tcp(flags) if flags & SYN_FIN_RST != 0);
        let mut buf = [0xa5; HEADROOM + 256];
        // A reply has the identifier of the request, which is where the request came from.
        let from = if kind == Kind::Echo(false) { (key.0.0, key.1.1) } else { key.0 };
        let len = write(&mut buf[HEADROOM..], kind, from, key.1);
        if self.table.borrow_mut().translate(&key, len as u64, ends) {
            return;
        }
        let shard = &mut *self.shards[usize::from(shard)].borrow_mut();
        let Some(packet) = Packet::new(&mut buf, HEADROOM, len) else { return };
        let (mut burst, mut verdicts) = ([packet], [Verdict::Pass]);
        shard.nat.process(shard.now, &mut burst, &mut verdicts);
        shard.direct += 1;
        shard.nat.drain_emitted(|_| ());
    }

    fn out(&mut self, shard: u8, (host, port): (u8, u8), server: u8, flags: Option<u8>, six: Option<u8>) {
        let is_ping = flags.is_none() && port == PINGS;
        let (transport, kind) = if is_ping { (Transport::Icmp, Kind::Echo(true)) } else { transport(flags) };
        let port = 5000 + u16::from(port);
        let server_port = if is_ping { 0 } else { 80 };
        let (from, to) = match six {
            Some(n) => {
                let host = Ipv6Addr::new(0x2001, 0xdb8, 1, shard.into(), 0, 0, 0, 1 + u16::from(host));
                (IpAddr::V6(host), IpAddr::V6(prefix(n).embed(remote(server))))
            }
            None => (IpAddr::V4(Ipv4Addr::new(10, 0, shard, host)), IpAddr::V4(remote(server))),
        };
        self.packet(shard, ((from, port), (to, server_port), transport), kind);
    }

    fn back(&mut self, shard: u8, session: usize, flags: u8) {
        let sessions = sessions(&self.shards[usize::from(shard)].borrow());
        let Some(found) = sessions.get(session % sessions.len().max(1)) else { return };
        let (from, to) = (found.remote, found.outside);
        let kind = kind(found.transport, flags, false);
        let key = ((IpAddr::V4(from.0), from.1), (IpAddr::V4(to.0), to.1), found.transport);
        self.packet(shard, key, kind);
    }

    fn busy(&mut self, packets: u8) {
        let all = self.table.borrow().flows();
        for (flow, _) in all.iter().filter(|(_, is_stray)| !is_stray) {
            for n in 0..packets {
                let is_outbound = n % 3 != 2;
                let key = if is_outbound { outbound(flow) } else { inbound(flow) };
                self.packet(flow.worker, key, kind(flow.session.flow.transport, 0x10, is_outbound));
            }
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now += ms;
        self.table.borrow_mut().now = self.now;
        for shard in &self.shards {
            shard.borrow_mut().now = Instant(self.now);
        }
    }

    fn sweep(&mut self) {
        self.pass(1_000);
        for shard in &self.shards {
            let shard = &mut *shard.borrow_mut();
            shard.nat.expire(shard.now, 1_000);
            shard.nat.drain_emitted(|_| ());
        }
    }

    fn clear(&mut self, shard: u8, port: Option<u8>, bindings: bool) {
        let shard = &mut *self.shards[usize::from(shard)].borrow_mut();
        let inside_port = port.map(|port| 5000 + u16::from(port));
        let which = Selection { inside_port, ..Selection::default() };
        let extent = if bindings { Extent::Binding } else { Extent::Session };
        let mut at = ClearCursor::default();
        // The end waits for a slow reader.
        for _ in 0..50 {
            shard.nat.clear(shard.now, &mut at, &which, extent, 1_000);
        }
    }

    fn storm(&mut self, shard: u8) {
        for n in 0..12 {
            self.out(shard, (n % 3, n / 3 % 3), n % 2, None, None);
            self.out(shard, (n % 3, n / 3 % 3), n % 2, None, None);
        }
        // Ends wait for a reader that hangs, but not for longer than a second.
        for _ in 0..3 {
            self.sweep();
            self.clear(shard, None, true);
        }
    }

    fn reload(&mut self) {
        if self.shards.iter().any(|shard| shard.borrow().nat.is_settling()) {
            return;
        }
        self.manager.pause();
        for shard in &self.shards {
            let shard = &mut *shard.borrow_mut();
            let [now, then] = &shard.plans;
            let mut change = Change::prepare(&shard.nat.outline(), now, then).expect("the plans fit");
            shard.nat.apply(shard.now, &mut change).expect("the change is new");
            shard.plans.swap(0, 1);
        }
        self.set_settings();
    }

    /// A turn of the manager. Returns whether it has nothing to do.
    fn turn(&mut self) -> bool {
        // Packets that were queued before an installation have left.
        self.table.borrow_mut().all.values_mut().for_each(|entry| entry.is_pending = false);
        let now = Duration::from_millis(self.now);
        let is_idle = self.manager.turn(&|| now) >= Duration::from_millis(5);
        self.table.borrow_mut().switches.iter_mut().for_each(|switch| switch.check_pending(self.now));
        is_idle
    }

    fn work(&mut self, shard: u8, commands: usize) -> Result<(), String> {
        let (mut broken, mut table) = (Ok(()), self.table.borrow_mut());
        let shard = &mut *self.shards[usize::from(shard)].borrow_mut();
        shard.handle(commands, &mut |shard, command| {
            if broken.is_ok() {
                broken = table.released(shard, command);
            }
        });
        shard.walk();
        broken
    }

    /// Lets everybody work until nothing is left to do.
    fn settle(&mut self) -> Result<(), String> {
        for shard in &self.shards {
            let shard = &mut *shard.borrow_mut();
            while !shard.nat.restore_some(shard.now, 100) {}
            shard.room = 100;
        }
        self.table.borrow_mut().switches.iter_mut().for_each(|switch| switch.fault(SwitchFault::Heal));
        // A round over the counters of switches takes two seconds.
        if self.setup.switches.is_some() {
            self.pass(2_000);
        }
        let mut rests = 0;
        for turn in 0..TURNS {
            let is_idle = self.turn();
            let is_at_rest = self.shards.iter().all(|shard| shard.borrow().is_at_rest());
            // The first turn of the engines reports records that they have lost.
            let is_at_rest = is_at_rest && self.table.borrow().switches.iter().all(ModelSwitch::is_at_rest);
            if turn > 0 && is_idle && is_at_rest && self.manager.status().waiting_records == 0 {
                rests += 1;
                // The next round of credits finds flows that the switches have lost.
                if self.setup.switches.is_some() && rests < 5 {
                    self.pass(1_100);
                    continue;
                }
                return self.at_rest();
            }
            self.table.borrow_mut().switches.iter_mut().for_each(|switch| switch.serve(1_000));
            for shard in 0..SHARDS {
                self.work(shard, 1_000)?;
                let shard = &mut *self.shards[usize::from(shard)].borrow_mut();
                // Reports lost records.
                shard.nat.expire(shard.now, 1);
                shard.nat.drain_emitted(|_| ());
            }
            self.pass(1);
        }
        Err(format!("no rest after {TURNS} turns: {:?}", self.manager.status()))
    }

    fn fault(&mut self, number: u8, fault: SwitchFault) {
        let table = &mut *self.table.borrow_mut();
        let Some(switch) = table.switches.get_mut(usize::from(number)) else { return };
        switch.fault(fault);
        table.is_uncounted |= matches!(fault, SwitchFault::Restart | SwitchFault::Reboot);
    }

    fn kill_manager(&mut self, stray: bool) {
        if self.manager.status().reconciling {
            return;
        }
        self.note();
        self.lost = self.missing();
        self.table.borrow_mut().last.clear();
        if stray {
            self.leave_stray();
        }
        self.generation += 1;
        let links = self.shards.iter().map(|shard| Shard::attach(shard, self.generation)).collect();
        let mut table = self.table.borrow_mut();
        // What the account has counted and the manager has not taken is lost.
        table.is_uncounted = true;
        table.switches.iter_mut().for_each(ModelSwitch::forget_controller);
        drop(table);
        let target = target(&self.table, &self.setup);
        // Nobody knows when the packets came that a switch has counted for a flow that was half removed.
        self.table.borrow_mut().last.clear();
        self.manager = Manager::with_rules(links, target, self.settings.clone(), self.setup.rules);
        self.set_settings();
        self.killed += 1;
    }

    fn kill_all(&mut self, stray: bool) {
        let is_ready = |shard: &Rc<RefCell<Shard>>| {
            let shard = shard.borrow();
            !shard.nat.is_settling() && !shard.nat.is_inheriting()
        };
        if self.manager.status().reconciling || !self.shards.iter().all(is_ready) {
            return;
        }
        for shard in &self.shards {
            let shard = &mut *shard.borrow_mut();
            self.credited_before += shard.credited;
            self.refused_before += shard.refused;
            shard.refused = 0;
            shard.restart();
        }
        self.kill_manager(stray);
    }

    /// Adds the numbers of a manager that ends.
    fn note(&mut self) {
        let status = self.manager.status();
        self.installed += status.installed;
        self.lost_records += status.lost_records;
        self.seen += status.seen;
        self.evicted += status.evicted;
        self.adopted += status.adopted;
    }

    /// Leaves an entry without a session in the table, as of an engine that has not restored it.
    fn leave_stray(&self) {
        let flow = Flow {
            inside: (Ipv4Addr::new(10, 0, 0, 99).to_ipv6_mapped(), 9),
            outside: (public(0, 0), 9),
            remote: (remote(0), 80),
            transport: Transport::Udp,
            instance: 1,
        };
        let session = gatun_nat::feed::SessionId { record: STRAY, flow };
        let flow = OffloadedFlow { session, worker: 0, epoch: 1, remote6: None, path_mtu: None };
        let mut table = self.table.borrow_mut();
        if table.flows().iter().any(|(_, is_stray)| *is_stray) {
            return;
        }
        if let Some(switch) = table.switches.first_mut() {
            // Every other time one entry of the two.
            let n = 1 + self.generation as usize % 2;
            for direction in Direction::ALL.into_iter().take(n) {
                let of = FlowEntry { slot: 11, direction, flow, pending: 0 };
                switch.entries.insert(key(&flow, direction), of.into());
            }
            return;
        }
        let now = table.now;
        table.insert(Entry {
            flow,
            traffic: Traffic::default(),
            seen: [now; 2],
            is_used: false,
            is_closing: false,
            is_pending: false,
            is_stray: true,
        });
    }

    /// Lets all sessions end. Then nothing is left.
    ///
    /// # Errors
    /// Returns the broken promise.
    pub fn end(&mut self) -> Result<(), String> {
        self.settings.enabled = true;
        self.set_settings();
        self.settle()?;
        for _ in 0..4 {
            self.pass(7_500_000);
            for _ in 0..8 {
                // A short ring lets one session end at a time.
                (0..8).for_each(|_| self.sweep());
                self.settle()?;
                self.holds()?;
            }
        }
        self.note();
        self.nothing_left()
    }
}

impl World {
    /// Packets that pending entries of switches have translated, and entries whose pending state the
    /// controller has ended.
    pub fn moves(&self) -> (u64, u64) {
        let table = self.table.borrow();
        let sum = |of: fn(&ModelSwitch) -> u64| table.switches.iter().map(of).sum();
        (sum(|switch| switch.engine_port.moved), sum(|switch| switch.ended))
    }
}

/// The manager's target. Switches are read first.
fn target(table: &Rc<RefCell<Entries>>, setup: &Setup) -> ModelTarget {
    let Some((n, rules)) = setup.switches else { return ModelTarget::Table(Table(Rc::clone(table))) };
    let link = |number: u8| (format!("s{number}"), SwitchLink::new(table, number.into()));
    let mut switches = Switches::with_rules((0..n).map(link).collect(), CAPACITY, rules);
    let now = Duration::from_millis(table.borrow().now);
    while !switches.is_settled() {
        for switch in &mut table.borrow_mut().switches {
            switch.fault(SwitchFault::Heal);
            switch.serve(1_000);
        }
        switches.turn(now);
    }
    ModelTarget::Switches(switches, Rc::clone(table))
}

/// Sessions of an engine.
pub(super) fn sessions(shard: &Shard) -> Vec<SessionInfo> {
    let (mut at, mut all) = (SessionCursor::default(), Vec::with_capacity(1_000));
    shard.nat.read_sessions(&mut at, &Selection::default(), usize::MAX, &mut all);
    all
}
