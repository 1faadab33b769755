//! Shards that two nodes of a cluster have in common, and that come and go while the nodes are connected
//! (decision 0107).
//!
//! ```text
//!   none --(own relation = other's relation)--> joined --(engines wait: live)--> walk --> sent, received
//!     ^-------(one of both changes)---------------'
//! ```
//! Each node says in its stream which holders it knows ([`ShardRelation`]). Records of a shard count while
//! both say the same; otherwise they are neither sent nor handled. So both leave a relation at a place of
//! each stream, and an acknowledgement after it means nothing for the shard's ends.
//!
//! The caller ([`Node`](https://docs.rs/gatun-cluster)) sets links, rights and fences of the engines, and
//! drops or forgets what a former relation has left.

use super::ends::WaitingEnds;
use super::engines::Engines;
use super::settings::{AddressRange, MemberSettings, SavedStanding};
use super::walk::Walk;
use super::{Member, Work};
use crate::ownership::{Member as Side, Rules, Timing};
use crate::wire::{Exchange, PeerRecord, ShardPromise, ShardRelation, ShardSeats};
use gatun_nat::ShardSet;
use gatun_nat::feed::SessionRecord;
use gatun_nat::standby::{OutsideFlow, StandbySweep};
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// Properties of a member between two nodes.
#[derive(Clone, Debug)]
pub struct SharedSettings {
    /// Side of this node: its own range of ports.
    pub me: Side,
    /// Public addresses of all shards.
    pub addresses: Vec<AddressRange>,
    /// Time after which sessions of the other node that contradict own ones are tried again, ms.
    pub again_ms: u64,
    /// Rules in force.
    pub rules: Rules,
}

/// State of a shard between two nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedShard {
    /// Both are connected, and say the same about the shard.
    pub is_joined: bool,
    /// Number of times that this has begun.
    pub joins: u64,
    /// The other node has the shard's state.
    pub has_state_there: bool,
    /// The other node has sent its whole state since.
    pub is_received: bool,
    /// Both have acknowledged each other's whole state.
    pub is_synced: bool,
    /// The other node has acknowledged all sessions, on demand.
    pub is_told: bool,
    /// The ports of all sessions of the other node are taken or reserved here.
    pub is_reserved: bool,
}

/// Own state of a shard on its way to the other node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sent {
    #[default]
    No,
    Walking,
    /// The group with this number ends it.
    Ended(u64),
}

/// Report of all sessions, which a release needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Report {
    #[default]
    No,
    Wanted,
    Passing,
    /// The groups up to this number have it.
    Told(u64),
}

#[derive(Clone, Copy, Debug, Default)]
struct Relation {
    seats: Option<ShardSeats>,
    /// Number of times that it has begun.
    number: u32,
    has_state: bool,
}

impl Relation {
    fn record(self, shard: u8) -> PeerRecord {
        let Relation { seats, number, has_state } = self;
        PeerRecord::Relation(ShardRelation { shard, seats, number, has_state })
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct SharedState {
    mine: Relation,
    theirs: Relation,
    is_joined: bool,
    joins: u64,
    /// True if the engines wait for the other node.
    is_live: bool,
    is_received: bool,
    sent: Sent,
    /// True if the other node's stream has the whole state of this one since the shard was joined.
    was_sent: bool,
    report: Report,
}

/// Sessions that may be unknown to the other node although it was told of them.
#[derive(Default)]
struct WaitingSessions {
    /// Told ones, with the numbers of their groups.
    told: VecDeque<(u64, u8, OutsideFlow)>,
    /// Those of acknowledged groups in shards that the acknowledgement was not about.
    deferred: Vec<(u64, u8, OutsideFlow)>,
    /// Those that no record of the stream tells any more. The next walk does.
    lost: Vec<(u8, OutsideFlow)>,
    /// Shards with others that are not known by name.
    unsure: ShardSet,
}

/// Maximum number of sessions of which it is noted that they are told and not acknowledged.
const UNACKNOWLEDGED_MAX: usize = 1 << 18;
/// Promises that wait for the caller, at most.
const PROMISES_MAX: usize = 8;

/// Shards of two nodes.
pub(super) struct SharedShards {
    /// First and last address of each range, in order, and its shard.
    ranges: Vec<(Ipv4Addr, Ipv4Addr, u8)>,
    all: Vec<SharedState>,
    /// Relations of the other node that are being received as its whole state.
    incoming: Option<Vec<ShardRelation>>,
    /// Shards whose walk by the other node was broken off.
    half: ShardSet,
    unacknowledged: WaitingSessions,
    /// Last group that the other node has acknowledged.
    acknowledged: u64,
    /// Latest request of the other node.
    asked: Option<(u64, Vec<(u8, ShardSeats)>)>,
    promised: Vec<(u64, Vec<ShardPromise>)>,
}

fn ranges(addresses: &[AddressRange]) -> Vec<(Ipv4Addr, Ipv4Addr, u8)> {
    let mut ranges: Vec<_> =
        addresses.iter().map(|range| (range.first, range.last, range.shard as u8)).collect();
    ranges.sort_unstable();
    ranges
}

impl SharedShards {
    fn shard_of(&self, address: Ipv4Addr) -> Option<u8> {
        let after = self.ranges.partition_point(|(first, ..)| *first <= address);
        let &(_, last, shard) = self.ranges.get(after.checked_sub(1)?)?;
        (address <= last).then_some(shard)
    }

    fn one(&mut self, shard: u8) -> &mut SharedState {
        &mut self.all[usize::from(shard)]
    }

    fn which(&self, is: impl Fn(&SharedState) -> bool) -> ShardSet {
        (0..=u8::MAX).zip(&self.all).filter(|(_, one)| is(one)).map(|(shard, _)| shard).collect()
    }

    /// Notes that the other node was told of a session by a group, or that no group tells it.
    fn note_told(&mut self, number: Option<u64>, shard: u8, flow: OutsideFlow) {
        let WaitingSessions { told, deferred, lost, unsure } = &mut self.unacknowledged;
        if told.len() + deferred.len() + lost.len() >= UNACKNOWLEDGED_MAX {
            unsure.insert(shard);
            return;
        }
        match number {
            Some(number) => told.push_back((number, shard, flow)),
            None => lost.push((shard, flow)),
        }
    }

    /// The stream tells nothing of some shards any more.
    fn untold(&mut self, shards: ShardSet) {
        let WaitingSessions { told, deferred, lost, .. } = &mut self.unacknowledged;
        let mut is_kept = |(_, shard, flow): &(u64, u8, OutsideFlow)| {
            let is_lost = shards.contains(*shard);
            if is_lost {
                lost.push((*shard, *flow));
            }
            !is_lost
        };
        told.retain(&mut is_kept);
        deferred.retain(&mut is_kept);
    }

    /// The group with a number ends the walk of some shards.
    fn walked(&mut self, shards: ShardSet, number: u64) {
        let WaitingSessions { told, lost, .. } = &mut self.unacknowledged;
        lost.retain(|(shard, flow)| {
            let is_told = shards.contains(*shard);
            if is_told {
                told.push_back((number, *shard, *flow));
            }
            !is_told
        });
    }
}

impl Member {
    /// Creates a member between two nodes, without any shard.
    pub fn of_node(settings: SharedSettings, exchange: Exchange) -> Member {
        let SharedSettings { me, addresses, again_ms, rules } = settings;
        let shared = SharedShards {
            ranges: ranges(&addresses),
            all: vec![SharedState::default(); 256],
            incoming: None,
            half: ShardSet::NONE,
            unacknowledged: WaitingSessions::default(),
            acknowledged: 0,
            asked: None,
            promised: Vec::new(),
        };
        let settings = MemberSettings {
            me,
            shards: Vec::new(),
            addresses,
            own_ports: 0,
            away_ms: 0,
            again_ms,
            timing: Timing { lease_ms: 0, kernel_ms: 0, drift_ms: 0 },
            fence_ms: 0,
            revision: 0,
            rules,
        };
        let standing = SavedStanding { is_settled: true, ..SavedStanding::default() };
        let member = Member::new(settings, exchange, Some(standing));
        Member { shared: Some(Box::new(shared)), ..member }
    }

    /// Sets what this node knows about a shard: its holders, if the other node is one, and whether this node
    /// has the state.
    pub fn set_relation(&mut self, now_ms: u64, shard: u8, seats: Option<ShardSeats>, has_state: bool) {
        let Some(shared) = &mut self.shared else { return };
        let mine = &mut shared.one(shard).mine;
        if (mine.seats, mine.has_state) == (seats, has_state) {
            return;
        }
        let begins = mine.seats.is_none() && seats.is_some();
        *mine = Relation { seats, number: mine.number.wrapping_add(begins.into()), has_state };
        self.exchange.push(now_ms, mine.record(shard));
        self.compare_relations(ShardSet::from_iter([shard]));
    }

    /// Says whether the engines wait for the other node, and tell it of the shard's sessions. When they
    /// begin, a walk tells what exists.
    pub fn set_live(&mut self, shard: u8, is_live: bool) {
        let Some(shared) = &mut self.shared else { return };
        let one = shared.one(shard);
        if std::mem::replace(&mut one.is_live, is_live) && !is_live {
            one.sent = Sent::No;
            self.leave_walks(ShardSet::from_iter([shard]), false);
        }
    }

    /// Has the other node told of all sessions of a shard, for a release, or no more.
    pub fn report_all(&mut self, shard: u8, is_wanted: bool) {
        let Some(shared) = &mut self.shared else { return };
        let report = &mut shared.one(shard).report;
        *report = match *report {
            _ if !is_wanted => Report::No,
            Report::No => Report::Wanted,
            going_on => going_on,
        };
    }

    /// Says that the process before this one may have told the other node of a shard in vain.
    pub fn is_unsure_of(&mut self, shard: u8) {
        if let Some(shared) = &mut self.shared {
            shared.unacknowledged.unsure.insert(shard);
        }
    }

    /// Returns the state of a shard.
    pub fn shared(&self, shard: u8) -> SharedShard {
        let Some(shared) = &self.shared else { return SharedShard::default() };
        let one = &shared.all[usize::from(shard)];
        let is_joined = one.is_joined && self.is_greeted() && self.exchange.is_established();
        let is_acknowledged = |number: u64| number <= shared.acknowledged;
        let is_sent = matches!(one.sent, Sent::Ended(number) if is_acknowledged(number));
        let have_state = one.mine.has_state && one.theirs.has_state;
        let is_whole = is_sent && !self.exchange.needs_walk();
        let is_synced = is_joined && have_state && one.is_received && is_whole;
        SharedShard {
            is_joined,
            joins: one.joins,
            has_state_there: one.theirs.has_state,
            is_received: is_joined && one.is_received,
            is_synced,
            is_told: is_synced && matches!(one.report, Report::Told(number) if is_acknowledged(number)),
            is_reserved: self.refused.are_reserved(ShardSet::from_iter([shard])),
        }
    }

    /// Returns the sessions of some shards that the other node may not know although it was told of them.
    /// There may be others in [`unsure`](Self::unsure) shards.
    pub fn unacknowledged(&self, shards: ShardSet) -> Vec<OutsideFlow> {
        let Some(shared) = &self.shared else { return Vec::new() };
        let WaitingSessions { told, deferred, lost, .. } = &shared.unacknowledged;
        let told = told.iter().chain(deferred).map(|(_, shard, flow)| (shard, flow));
        let all = told.chain(lost.iter().map(|(shard, flow)| (shard, flow)));
        all.filter(|(shard, _)| shards.contains(**shard)).map(|(_, flow)| *flow).collect()
    }

    /// Shards with told sessions that the other node may not know, and nobody knows which.
    pub fn unsure(&self) -> ShardSet {
        self.shared.as_ref().map_or(ShardSet::NONE, |shared| shared.unacknowledged.unsure)
    }

    /// Forgets what waits for the other node in some shards: nobody waits for it any more.
    pub fn forget(&mut self, shards: ShardSet) {
        let Some(shared) = &mut self.shared else { return };
        let is_one = |address| shared.shard_of(address).is_none_or(|shard| shards.contains(shard));
        self.ends.remove_of(is_one);
        self.free.retain(|ended| !is_one(ended.id.flow.outside.0));
        let WaitingSessions { told, deferred, lost, unsure } = &mut shared.unacknowledged;
        told.retain(|(_, shard, _)| !shards.contains(*shard));
        deferred.retain(|(_, shard, _)| !shards.contains(*shard));
        lost.retain(|(shard, _)| !shards.contains(*shard));
        *unsure = unsure.minus(shards);
        shared.half = shared.half.minus(shards);
        self.refused.forget(shards);
    }

    /// Uses other addresses.
    pub fn set_ranges(&mut self, addresses: Vec<AddressRange>) {
        if let Some(shared) = &mut self.shared {
            shared.ranges = ranges(&addresses);
        }
        self.settings.addresses = addresses;
    }

    /// Number of things that the member has begun. What is said about a shard afterwards is used from the
    /// next one on.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Returns whether the thing with a number, and all before it, are done.
    pub fn is_done(&self, begun: u64) -> bool {
        self.work.is_none() || self.begun > begun
    }

    /// Number of times that the member has read all feeds to their ends.
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// Returns whether all refused sessions of a shard were tried since the last change of the plan.
    pub fn has_tried(&self, shard: u8) -> bool {
        self.refused.has_tried(shard)
    }

    /// Takes the other node's latest request for promises: its time, and shards.
    pub fn take_asked(&mut self) -> Option<(u64, Vec<(u8, ShardSeats)>)> {
        self.shared.as_mut()?.asked.take()
    }

    /// Takes promises of the other node, with the times of the requests.
    pub fn take_promised(&mut self) -> Vec<(u64, Vec<ShardPromise>)> {
        self.shared.as_mut().map(|shared| std::mem::take(&mut shared.promised)).unwrap_or_default()
    }

    pub(super) fn was_asked(&mut self, asked_ms: u64, shards: Vec<(u8, ShardSeats)>) {
        if let Some(shared) = &mut self.shared {
            shared.asked = Some((asked_ms, shards));
        }
    }

    pub(super) fn was_promised(&mut self, now_ms: u64, asked_ms: u64, promises: Vec<ShardPromise>) {
        if let Some(shared) = &mut self.shared
            && shared.promised.len() < PROMISES_MAX
            && asked_ms <= now_ms
        {
            shared.promised.push((asked_ms, promises));
        }
    }

    /// Returns whether the other node's present process has been heard.
    fn is_greeted(&self) -> bool {
        self.stream == self.exchange.stream()
    }

    /// Number of an address's shard; 0 in a pair.
    pub(super) fn shard_of(&self, address: Ipv4Addr) -> u8 {
        self.shared.as_ref().and_then(|shared| shared.shard_of(address)).unwrap_or(0)
    }

    /// Returns whether records about an address count.
    pub(super) fn is_shared(&self, address: Ipv4Addr) -> bool {
        let Some(shared) = &self.shared else { return true };
        let shard = shared.shard_of(address);
        self.is_greeted() && shard.is_some_and(|shard| shared.all[usize::from(shard)].is_joined)
    }

    /// Shards of a set whose records count.
    pub(super) fn common(&self, shards: ShardSet) -> ShardSet {
        let joined = self.shared.as_ref().map(|shared| shared.which(|one| one.is_joined));
        joined.filter(|_| self.is_greeted()).unwrap_or(ShardSet::NONE).intersection(shards)
    }

    /// Returns whether answers to the other node's records wait for a walk, and that node does not know for
    /// which shards: it takes an acknowledgement as one for all shards whose walk it has received.
    pub(super) fn lacks_answers(&self) -> bool {
        let is_partial = self.exchange.has_partial_acknowledgements();
        let lacks = |one: &SharedState| {
            let lacks_walk = one.is_joined && one.mine.has_state && !matches!(one.sent, Sent::Ended(_));
            lacks_walk && (one.was_sent || !is_partial)
        };
        self.shared.as_ref().is_some_and(|shared| shared.all.iter().any(lacks))
    }

    /// Shards that an acknowledgement of the other node is not about: its walk of them is not complete.
    pub(super) fn unwalked(&self) -> ShardSet {
        let lacks = |one: &SharedState| one.is_joined && one.theirs.has_state && !one.is_received;
        let is_partial = self.exchange.has_partial_acknowledgements();
        let shared = self.shared.as_ref().filter(|_| is_partial);
        shared.map_or(ShardSet::NONE, |shared| shared.which(lacks))
    }

    /// Notes that the other node was told of a session.
    pub(super) fn note_told(&mut self, number: Option<u64>, record: &SessionRecord) {
        let flow = super::round::outside(&record.id.flow);
        if let Some(shared) = &mut self.shared
            && let Some(shard) = shared.shard_of(flow.outside.0)
        {
            shared.note_told(number, shard, flow);
        }
    }

    /// Records of any shard are lost: sessions that count as told are not known by name.
    pub(super) fn records_lost(&mut self) {
        let Some(shared) = &mut self.shared else { return };
        shared.unacknowledged.unsure = ShardSet::ALL;
        // No acknowledgement of a former walk is about them.
        shared.all.iter_mut().for_each(|one| one.sent = Sent::No);
    }

    /// One of both has said something else about some shards.
    fn compare_relations(&mut self, shards: ShardSet) {
        let Some(shared) = &mut self.shared else { return };
        let mut left = ShardSet::NONE;
        for shard in shards.iter() {
            let one = shared.one(shard);
            let is_joined = one.mine.seats.is_some() && one.mine.seats == one.theirs.seats;
            if is_joined == one.is_joined {
                continue;
            }
            let report = if one.report == Report::No { Report::No } else { Report::Wanted };
            let joins = one.joins + u64::from(is_joined);
            // Engines that wait for the other node as it was before do not wait for it as it is now.
            let (is_live, is_received, sent, was_sent) = (false, false, Sent::No, false);
            *one = SharedState { is_joined, joins, is_live, is_received, sent, was_sent, report, ..*one };
            if !is_joined {
                left.insert(shard);
            }
        }
        if !left.is_empty() {
            shared.untold(left);
            untell(&mut self.ends, shared, left);
            self.leave_walks(left, true);
        }
    }

    /// Takes shards out of the walks that go on.
    fn leave_walks(&mut self, shards: ShardSet, is_left: bool) {
        if let Some(walk) = &mut self.walk {
            walk.shards = walk.shards.minus(shards);
        }
        let Some(shared) = self.shared.as_mut().filter(|_| is_left) else { return };
        match &mut self.work {
            Some(Work::Pass(_, of, _)) => *of = of.minus(shards),
            Some(Work::WalkBegins(of)) => {
                shared.half = shared.half.union(of.intersection(shards));
                *of = of.minus(shards);
            }
            _ => {}
        }
        shared.half = shared.half.union(self.receiving.intersection(shards));
        self.receiving = self.receiving.minus(shards);
    }

    /// The other member's stream has a number.
    pub(super) fn stream_changed(&mut self, stream: u64) {
        let is_other = std::mem::replace(&mut self.stream, stream) != stream;
        let Some(shared) = self.shared.as_mut().filter(|_| is_other) else { return };
        shared.incoming = None;
        self.set_theirs((0..=u8::MAX).map(|shard| (shard, Relation::default())));
    }

    fn set_theirs(&mut self, all: impl Iterator<Item = (u8, Relation)> + Clone) {
        let Some(shared) = &mut self.shared else { return };
        // It may have left a relation without a record that says so, and begun it again.
        for (shard, theirs) in all.clone() {
            let one = shared.one(shard);
            if one.theirs.number != theirs.number {
                one.theirs = Relation::default();
            }
        }
        let shards: ShardSet = all.clone().map(|(shard, _)| shard).collect();
        self.compare_relations(shards);
        let Some(shared) = &mut self.shared else { return };
        all.for_each(|(shard, theirs)| shared.one(shard).theirs = theirs);
        self.compare_relations(shards);
    }

    /// The other node says what it has in common with this one.
    pub(super) fn relations_begin(&mut self) {
        let receiving = std::mem::replace(&mut self.receiving, ShardSet::NONE);
        let Some(shared) = &mut self.shared else { return };
        shared.half = shared.half.union(receiving);
        shared.incoming = Some(Vec::new());
        // It sends its whole state again.
        shared.all.iter_mut().for_each(|one| one.is_received = false);
    }

    pub(super) fn relation_received(&mut self, relation: ShardRelation) {
        let ShardRelation { shard, seats, number, has_state } = relation;
        let incoming = self.shared.as_mut().and_then(|shared| shared.incoming.as_mut());
        match incoming {
            Some(incoming) if incoming.len() < 256 => incoming.push(relation),
            Some(_) => {}
            None => self.set_theirs([(shard, Relation { seats, number, has_state })].into_iter()),
        }
    }

    pub(super) fn relations_end(&mut self) {
        let Some(incoming) = self.shared.as_mut().and_then(|shared| shared.incoming.take()) else { return };
        let mut all = [Relation::default(); 256];
        for ShardRelation { shard, seats, number, has_state } in incoming {
            all[usize::from(shard)] = Relation { seats, number, has_state };
        }
        self.set_theirs((0..=u8::MAX).zip(all));
    }

    /// Shards with marks of a walk that was broken off, among those of the next one.
    pub(super) fn half_walked(&mut self, shards: ShardSet) -> ShardSet {
        let receiving = std::mem::replace(&mut self.receiving, ShardSet::NONE);
        let Some(shared) = &mut self.shared else { return ShardSet::NONE };
        shared.half = shared.half.union(receiving);
        let half = shared.half;
        self.common(shards).intersection(half)
    }

    /// The other node has sent the whole state of these shards alone, of those that it has begun with.
    pub(super) fn only_walked(&mut self, shards: ShardSet) {
        let missing = self.receiving.minus(shards);
        self.receiving = self.receiving.minus(missing);
        if let Some(shared) = &mut self.shared {
            shared.half = shared.half.union(missing);
        }
    }

    /// The marks of a walk that was broken off are forgotten.
    pub(super) fn walk_forgotten(&mut self, shards: ShardSet) {
        self.receiving = ShardSet::NONE;
        if let Some(shared) = &mut self.shared {
            shared.half = shared.half.minus(shards);
        }
    }

    /// The other node has sent all that it has of some shards.
    pub(super) fn shards_received(&mut self, shards: ShardSet) {
        if let Some(shared) = &mut self.shared {
            shards.iter().for_each(|shard| shared.one(shard).is_received = true);
        }
        // Its former acknowledgements are about these shards, too, as its answers came before this place.
        let out = self.unwalked();
        let shared = self.shared.as_deref();
        let acknowledged = self.ends.take_deferred(|address| is_of(shared, address, out));
        self.free.extend(acknowledged);
        let number = self.shared.as_ref().map_or(0, |shared| shared.acknowledged);
        self.shards_acknowledged(number, out);
    }

    /// The other node has acknowledged all groups up to a number, except for some shards.
    pub(super) fn shards_acknowledged(&mut self, number: u64, out: ShardSet) {
        let Some(shared) = &mut self.shared else { return };
        shared.acknowledged = shared.acknowledged.max(number);
        let WaitingSessions { told, deferred, unsure, .. } = &mut shared.unacknowledged;
        deferred.retain(|(_, shard, _)| out.contains(*shard));
        while let Some(one) = told.pop_front_if(|(told, ..)| *told <= number) {
            if out.contains(one.1) {
                deferred.push(one);
            }
        }
        let unsure = *unsure;
        if !unsure.is_empty() {
            let known = shared.which(|one| matches!(one.sent, Sent::Ended(end) if end <= number));
            shared.unacknowledged.unsure = unsure.minus(known.minus(out));
        }
    }

    /// Reports all sessions of the shards that are to be released. Returns false if there are none.
    pub(super) fn begin_telling(&mut self, engines: &mut dyn Engines) -> bool {
        let Some(shared) = &mut self.shared else { return false };
        let is_due = |one: &SharedState| {
            one.is_joined && one.report == Report::Wanted && matches!(one.sent, Sent::Ended(_))
        };
        let shards = shared.which(is_due);
        if shards.is_empty() || !self.exchange.is_open() {
            return false;
        }
        shards.iter().for_each(|shard| shared.one(shard).report = Report::Passing);
        self.begin_pass(engines, StandbySweep::TellAll, shards);
        true
    }

    /// All sessions of some shards are reported.
    pub(super) fn told_all(&mut self, shards: ShardSet) {
        let number = self.exchange.last_number();
        let Some(shared) = &mut self.shared else { return };
        for shard in shards.iter() {
            let report = &mut shared.one(shard).report;
            if *report == Report::Passing {
                *report = Report::Told(number);
            }
        }
    }

    /// Begins a walk of the shards that the other node lacks, or asks for the next part of one. Returns false
    /// if there is none, or none now.
    pub(super) fn begin_page_of_shards(&mut self, now_ms: u64, engines: &mut dyn Engines) -> bool {
        // A walk would answer a half-handled group.
        if self.is_in_group || !self.exchange.is_open() || !self.is_greeted() {
            return false;
        }
        if self.exchange.needs_walk() {
            self.send_relations(now_ms);
            return true;
        }
        if self.walk.is_none() && !self.begin_walk_of_shards(now_ms) {
            return false;
        }
        self.next_page(now_ms, engines)
    }

    /// Begins the stream again, with all relations.
    fn send_relations(&mut self, now_ms: u64) {
        self.exchange.push(now_ms, PeerRecord::StateBegins);
        self.ends.all_untold();
        self.walk = None;
        let Some(shared) = &mut self.shared else { return };
        shared.untold(ShardSet::ALL);
        for (shard, one) in (0..=u8::MAX).zip(&mut shared.all) {
            (one.sent, one.was_sent) = (Sent::No, false);
            if one.report != Report::No {
                one.report = Report::Wanted;
            }
            if one.mine.seats.is_some() {
                self.exchange.push(now_ms, one.mine.record(shard));
            }
        }
        self.exchange.push(now_ms, PeerRecord::StateEnds);
    }

    fn begin_walk_of_shards(&mut self, now_ms: u64) -> bool {
        let Some(shared) = &mut self.shared else { return false };
        let lacks =
            |one: &SharedState| one.is_joined && one.is_live && one.mine.has_state && one.sent == Sent::No;
        let shards = shared.which(lacks);
        if shards.is_empty() || self.exchange.push(now_ms, PeerRecord::ShardsBegin(shards)).is_none() {
            return false;
        }
        shards.iter().for_each(|shard| shared.one(shard).sent = Sent::Walking);
        // The walk tells these ends.
        untell(&mut self.ends, shared, shards);
        self.walk = Some(Walk::new(shards));
        true
    }

    /// A walk of some shards is complete. Returns the number of the group that says so.
    pub(super) fn shards_walked(&mut self, now_ms: u64, shards: ShardSet) -> Option<u64> {
        let number = self.exchange.push(now_ms, PeerRecord::ShardsEnd(shards));
        let shared = self.shared.as_mut()?;
        for shard in shards.iter() {
            let one = shared.one(shard);
            if one.sent == Sent::Walking {
                one.sent = number.map_or(Sent::No, Sent::Ended);
                one.was_sent |= number.is_some();
            }
        }
        shared.walked(shards, number?);
        // The engines have told all others: these have been used for sessions that go on.
        let is_walked = |address| shared.shard_of(address).is_some_and(|shard| shards.contains(shard));
        self.ends.remove_untold_of(is_walked);
        number
    }
}

/// Returns whether an address is one of some shards.
pub(super) fn is_of(shared: Option<&SharedShards>, address: Ipv4Addr, shards: ShardSet) -> bool {
    // Mostly none: each acknowledged end asks.
    if shards.is_empty() {
        return false;
    }
    let shard = shared.and_then(|shared| shared.shard_of(address));
    shard.is_some_and(|shard| shards.contains(shard))
}

/// No record tells the ends of some shards any more.
fn untell(ends: &mut WaitingEnds, shared: &SharedShards, shards: ShardSet) {
    ends.untold_of(|address| is_of(Some(shared), address, shards));
}
