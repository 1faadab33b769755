//! Box of a pair: a member and the engines of its workers, which execute requests when the world says so.

use crate::engines::{Translation, Workers};
use gatun_nat::Instant;
use gatun_nat::plan::{self, Net4, Plan, PoolRange};
use gatun_peer::member::{AddressRange, Member, MemberSettings, SavedStanding};
use gatun_peer::ownership::{self, Rules, Timing};
use gatun_peer::wire::{Exchange, Settings};
use std::fs::File;
use std::net::Ipv4Addr;

pub const WORKERS: usize = 2;
pub const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
pub const KERNEL_MS: u32 = 300;
pub const DRIFT_MS: u32 = 50;

/// Settings that vary between seeds.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    pub rules: Rules,
    /// Packets after which a UDP session is told.
    pub packets: u8,
    /// Size of port blocks, if ports come in blocks.
    pub blocks: Option<u16>,
    /// True if each member owns one of the addresses.
    pub is_active_active: bool,
    /// Groups in the log of the exchange.
    pub log_max: usize,
    /// Records in the ring of a feed.
    pub ring: usize,
    /// Pause after which a member asks the other one; 0 for never.
    pub fence_ms: u32,
}

impl Variant {
    /// Ports of each address, and ports that belong to each member: few, so that they are used again soon.
    fn ports(&self) -> ((u16, u16), u16) {
        match self.blocks {
            None => ((1024, 1047), 5),
            Some(size) => ((1024, 1023 + 4 * size), size),
        }
    }
}

pub fn plan(variant: &Variant) -> Plan {
    let nat44 = plan::Nat44 {
        name: "home".into(),
        inside: vec![Net4::new(Ipv4Addr::new(10, 0, 0, 0), 8).unwrap()],
        timeouts: plan::Timeouts {
            udp_ms: 5_000,
            tcp_established_ms: 20_000,
            tcp_transitory_ms: 3_000,
            tcp_partial_open_ms: 3_000,
            tcp_closing_ms: 3_000,
            ..plan::Timeouts::default()
        },
        ..plan::Nat44::default()
    };
    let ranges = [PoolRange {
        first: ADDRESSES[0],
        last: ADDRESSES[1],
        ports: variant.ports().0,
        transports: [true; 3],
    }];
    let mut pool = plan::Pool4 { name: "pool".into(), ranges: ranges.to_vec(), ..plan::Pool4::default() };
    if let Some(size) = variant.blocks {
        let blocks = plan::Blocks { size, per_subscriber: 9, linger_ms: 1_000, ..plan::Blocks::default() };
        pool.allocation = plan::Allocation::Blocks(blocks);
    }
    let mut plan = Plan { pools: vec![pool], nat44: vec![nat44], ..Plan::default() };
    plan.limits.sessions_max = 400;
    plan.limits.subscribers_max = 64;
    plan.limits.syn_store_max = 16;
    plan.limits.path_mtus_max = 16;
    plan.limits.fragment_entries_max = 16;
    plan
}

/// Process of a box.
pub struct Process {
    pub member: Member,
    pub workers: Workers,
}

/// Life of a box.
pub enum Life {
    Runs,
    /// It does nothing, but its kernel and its memory are there.
    Stopped,
    /// Killed: its sessions and its standing are there.
    Killed(Vec<File>, Option<SavedStanding>),
    /// Off: nothing is there.
    Off,
}

/// Box.
pub struct Node {
    pub me: ownership::Member,
    pub life: Life,
    pub process: Option<Process>,
    /// Standing that has been saved.
    pub saved: Option<SavedStanding>,
    /// Translations of a killed process that the kernel still makes, until a time.
    pub kernel: (Vec<Translation>, u64),
    generation: u64,
}

impl Node {
    pub fn new(me: ownership::Member, variant: &Variant) -> Node {
        let mut node =
            Node { me, life: Life::Off, process: None, saved: None, kernel: (vec![], 0), generation: 0 };
        node.start(variant, Instant(0));
        node
    }

    pub fn runs(&self) -> bool {
        matches!(self.life, Life::Runs)
    }

    /// Starts a process after a kill, or without state.
    pub fn start(&mut self, variant: &Variant, now: Instant) {
        self.generation += 1;
        let generation = self.generation * 2 + self.me as u64;
        let mut workers =
            Workers::new(&plan(variant), (WORKERS, 1), (variant.packets, variant.ring), generation);
        let saved = match std::mem::replace(&mut self.life, Life::Runs) {
            Life::Killed(files, saved) => {
                workers.inherit(now, files);
                saved
            }
            _ => None,
        };
        let process = 1_000 * (1 + self.me as u64) + self.generation;
        let settings = Settings {
            log_max: variant.log_max,
            rules: variant.rules,
            ..Settings::new(self.me, "box", process, vec![])
        };
        let (first, second) = (ownership::Member::First, ownership::Member::Second);
        let shards = if variant.is_active_active { vec![first, second] } else { vec![first] };
        let range = |n: usize| AddressRange {
            first: ADDRESSES[n],
            last: ADDRESSES[n],
            ports: variant.ports().0,
            shard: n.min(shards.len() - 1),
        };
        let settings_of_member = MemberSettings {
            me: self.me,
            addresses: vec![range(0), range(1)],
            shards,
            own_ports: variant.ports().1,
            away_ms: 3_000,
            again_ms: 20,
            timing: Timing { lease_ms: 0, kernel_ms: KERNEL_MS, drift_ms: DRIFT_MS },
            fence_ms: variant.fence_ms,
            revision: 1,
            rules: variant.rules,
        };
        let member = Member::new(settings_of_member, Exchange::new(settings), saved);
        self.process = Some(Process { member, workers });
        self.kernel = (vec![], 0);
    }

    /// Kills the process. Its kernel goes on for a while.
    pub fn kill(&mut self, now: Instant, keeps_state: bool) {
        let Some(process) = self.process.take() else { return };
        self.kernel = (process.workers.translations(), now.0 + u64::from(KERNEL_MS));
        self.life = match keeps_state {
            true => Life::Killed(process.workers.files(), self.saved.clone()),
            false => Life::Off,
        };
        if !keeps_state {
            self.saved = None;
        }
    }

    /// Returns the translations that packets can find in the box.
    pub fn translations(&self, now: Instant) -> Vec<Translation> {
        let mut all = self.process.as_ref().map(|process| process.workers.translations()).unwrap_or_default();
        if let Some(process) = &self.process {
            all.retain(|one| !process.workers.is_fenced(now, one.address()));
        }
        if now.0 < self.kernel.1 {
            all.extend_from_slice(&self.kernel.0);
        }
        all
    }
}
