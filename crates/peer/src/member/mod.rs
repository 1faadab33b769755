//! Member of a pair, between the connection to the other member ([`Exchange`]) and the engines ([`Engines`]):
//! without sockets, threads and clocks.
//!
//! ```text
//!   engines --(feeds: sessions, ends)--------------> exchange --> other member
//!   engines <--(rounds: sessions, ends, released)--- steps <----- other member
//! ```
//! The member does one thing at a time: a round of records, a part of a walk, a pass over all sessions, or a
//! change of rights. The feeds are read between them. So each record of a feed is older or newer than each
//! thing, as a whole, and the order of the stream is the order in which the engines changed:
//!
//! - Answers to a group are in the stream before its acknowledgement, which follows the whole round.
//! - A part of a walk has one place in the feed. What was reported before goes out before it.
//! - An acknowledgement of the other member is used after all that it sent before.
//!
//! A session here that ends because the other member has ended it is itself reported as ended, unless it was
//! only the other member's: an earlier report of it may be on its way. So a record that crosses an end and is
//! taken for an answer does no harm.

mod ends;
mod engines;
mod fence;
mod ownership;
mod refused;
mod round;
mod settings;
mod shards;
mod status;
mod stream;
mod walk;

pub use engines::{EngineAnswer, EngineRequest, Engines, OpenRequests, for_all, parts_of_pass};
pub use ownership::{ReleaseError, TakeOverError};
pub use settings::{AddressRange, MemberSettings, SavedStanding};
pub use shards::{SharedSettings, SharedShard};
pub use status::{PairCounters, PairStatus};

use crate::ownership::{Epoch, Standing};
use crate::wire::{Exchange, Received};
use ends::{Ended, WaitingEnds};
use fence::StopFence;
use gatun_nat::feed::Record;
use gatun_nat::standby::{PeerLink, StandbySweep};
use gatun_nat::{FeedCursor, Sequence, ShardSet};
use gatun_worker::standby::WalkPart;
use ownership::Ownership;
use refused::RefusedSessions;
use round::{Round, Step};
use shards::SharedShards;
use std::collections::VecDeque;
use walk::Walk;

/// Thing that the engines do for the member.
enum Work {
    /// Knowledge about the other member, and rights.
    Setup,
    /// Time until which the engines may translate.
    Fence,
    Round(Round),
    /// Ports of acknowledged ends.
    Free,
    WalkBegins(ShardSet),
    Pass(StandbySweep, ShardSet, Vec<FeedCursor>),
    Page,
}

/// Received records above which the caller should not read from the connection.
const STEPS_MAX: usize = 16 * 1024;
/// Time until the next turn while an engine works, ms.
const BUSY_MS: u64 = 1;

/// Member of a pair, or of two nodes of a cluster with common shards.
pub struct Member {
    settings: MemberSettings,
    /// Both streams. The caller opens and closes the connection, and carries bytes.
    pub exchange: Exchange,
    /// Frames from the exchange, not yet handled.
    pub inbox: Vec<Received>,
    steps: VecDeque<Step>,
    /// Number of the other member's stream that the steps belong to.
    stream: u64,
    /// True while some records of a group have been taken from the steps, and others not.
    is_in_group: bool,
    /// Shards of the other member's walk, from its beginning to its end.
    receiving: ShardSet,
    /// Number of the other member's stream whose whole state was received last.
    walked: u64,
    work: Option<Work>,
    requests: OpenRequests,
    /// Records that were read from the feeds too early.
    ahead: Vec<Option<(Sequence, Record)>>,
    ends: WaitingEnds,
    refused: RefusedSessions,
    /// Ends that need no acknowledgement.
    free: Vec<Ended>,
    walk: Option<Walk>,
    /// True if a walk is next, and not a round.
    walk_is_next: bool,
    own: Ownership,
    fence: StopFence,
    /// Shards of a cluster; `None` in a pair.
    shared: Option<Box<SharedShards>>,
    /// Knowledge that the engines have.
    link: Option<PeerLink>,
    /// True if the engines lack the present rights.
    needs_setup: bool,
    /// Time of the last turn with an open connection.
    open_ms: Option<u64>,
    wants_close: Option<String>,
    /// Number of works that were begun, and of times that all feeds were read.
    begun: u64,
    reads: u64,
    counters: PairCounters,
}

impl Member {
    /// Creates a member. `saved` is the standing of the process whose sessions the engines have inherited;
    /// `None` if they have none.
    pub fn new(settings: MemberSettings, exchange: Exchange, saved: Option<SavedStanding>) -> Member {
        let own = Ownership::new(&settings, saved);
        Member {
            settings,
            exchange,
            inbox: Vec::new(),
            steps: VecDeque::new(),
            stream: 0,
            is_in_group: false,
            receiving: ShardSet::NONE,
            walked: 0,
            work: None,
            requests: OpenRequests::default(),
            ahead: Vec::new(),
            ends: WaitingEnds::default(),
            refused: RefusedSessions::default(),
            free: Vec::new(),
            walk: None,
            walk_is_next: false,
            own,
            fence: StopFence::default(),
            shared: None,
            link: None,
            needs_setup: true,
            open_ms: None,
            wants_close: None,
            begun: 0,
            reads: 0,
            counters: PairCounters::default(),
        }
    }

    /// Returns whether the member has its state, for the greeting.
    pub fn is_settled(&self) -> bool {
        self.own.is_settled
    }

    /// Returns whether the caller may read more from the connection.
    pub fn may_receive(&self) -> bool {
        self.steps.len() < STEPS_MAX
    }

    /// Returns the reason for which the caller has to close the connection, once.
    pub fn take_close(&mut self) -> Option<String> {
        self.wants_close.take()
    }

    /// Returns whether both have each other's whole state: each stream begins with it.
    fn is_synced(&self) -> bool {
        let exchange = &self.exchange;
        let is_walking = exchange.needs_walk() || exchange.is_walking() || !self.receiving.is_empty();
        exchange.is_established() && self.own.is_settled && !is_walking && self.walked == exchange.stream()
    }

    /// Returns what has to be saved before anything else is sent, if it has changed.
    pub fn take_unsaved(&mut self) -> Option<SavedStanding> {
        std::mem::take(&mut self.own.is_unsaved).then(|| self.own.saved())
    }

    /// Returns what the next process needs to know.
    pub fn saved_standing(&self) -> SavedStanding {
        self.own.saved()
    }

    /// Returns the state.
    pub fn status(&self, now_ms: u64) -> PairStatus {
        let is_open = self.exchange.is_established();
        PairStatus {
            me: self.settings.me,
            is_settled: self.own.is_settled && !self.own.is_declared_gone,
            is_declared_gone: self.own.is_declared_gone,
            is_peer_gone: self.own.is_peer_gone,
            is_open,
            is_synced: self.is_synced(),
            is_releasing: self.own.releasing.is_some() || self.own.released_at.is_some(),
            takeover_in_ms: self.own.word_at_ms.map(|at| at.saturating_sub(now_ms)),
            epochs: self.own.epochs.clone(),
            peer_name: self.exchange.peer_name().to_owned(),
            differences: self.exchange.differences().to_vec(),
            clock_difference_ms: self.exchange.clock_difference_ms(),
            counters: self.counters(),
        }
    }

    /// Returns the counters and gauges.
    pub fn counters(&self) -> PairCounters {
        PairCounters {
            ends_waiting: self.ends.len(),
            records_waiting: self.steps.len(),
            contradictions: self.refused.len(),
            ..self.counters
        }
    }

    /// Does what is due. Returns the time until it has to be called again, ms, if nothing is received before.
    pub fn turn(&mut self, now_ms: u64, engines: &mut dyn Engines) -> u64 {
        self.ahead.resize(engines.workers(), None);
        self.note_turn(now_ms);
        self.intake(now_ms);
        self.note_link(now_ms);
        loop {
            self.requests.submit_again(engines);
            while let Some((worker, answer)) = self.requests.answer(engines) {
                self.answered(now_ms, engines, worker, answer);
            }
            if !self.requests.is_empty() {
                break;
            }
            if let Some(work) = self.work.take() {
                self.finish(now_ms, engines, work);
                continue;
            }
            self.read_feeds(now_ms, engines);
            self.reads += 1;
            if !self.begin_next(now_ms, engines) {
                break;
            }
        }
        let has_word = self.own.is_peer_gone && self.settings.rules.close_with_word;
        self.exchange.declare_gone(has_word);
        self.exchange.delay_answers(self.lacks_answers());
        let next_ms = self.exchange.turn(now_ms).min(self.fence_due_in_ms(now_ms));
        let is_busy = self.work.is_some() || !self.steps.is_empty() || self.walk.is_some();
        if is_busy { next_ms.min(BUSY_MS) } else { next_ms }
    }

    /// Hands requests over. All have to be answered before the next work.
    fn submit(&mut self, engines: &mut dyn Engines, work: Work, requests: Vec<(usize, EngineRequest)>) {
        self.work = Some(work);
        self.begun += 1;
        self.requests.submit(engines, requests);
    }

    fn answered(&mut self, now_ms: u64, engines: &mut dyn Engines, worker: usize, answer: EngineAnswer) {
        match (&mut self.work, answer) {
            (Some(Work::Round(round)), EngineAnswer::Commands(commands)) => round.commands[worker] = commands,
            (Some(Work::Pass(_, _, cursors)), EngineAnswer::Pass(at)) => cursors[worker] = at,
            (Some(Work::Page), EngineAnswer::Page { at, found, parts }) => {
                let mut begin = 0;
                for WalkPart { end, until } in parts {
                    self.page_part(now_ms, engines, worker, (&found[begin..end], until));
                    begin = end;
                }
                self.page_ends(worker, at);
            }
            _ => {}
        }
    }

    /// All engines have answered.
    fn finish(&mut self, now_ms: u64, engines: &mut dyn Engines, work: Work) {
        match work {
            Work::Setup => self.setup_done(),
            Work::Round(round) => self.round_done(now_ms, engines, round),
            Work::Free | Work::Page | Work::Fence => {}
            Work::WalkBegins(shards) => self.receiving = shards,
            Work::Pass(pass, shards, cursors) => {
                self.read_feeds(now_ms, engines);
                self.pass(engines, (pass, shards), cursors);
            }
        }
    }

    /// Goes on with a pass, or does what follows it.
    fn pass(
        &mut self,
        engines: &mut dyn Engines,
        (pass, shards): (StandbySweep, ShardSet),
        cursors: Vec<FeedCursor>,
    ) {
        let requests = parts_of_pass(pass, shards, &cursors);
        if !requests.is_empty() {
            self.submit(engines, Work::Pass(pass, shards, cursors), requests);
            return;
        }
        match pass {
            StandbySweep::TellAll if self.shared.is_some() => self.told_all(shards),
            StandbySweep::TellAll => {
                self.own.releasing = self.own.releasing.map(|_| ownership::Releasing::Told)
            }
            StandbySweep::ForgetWalk => self.walk_forgotten(shards),
            StandbySweep::EndUnwalked => self.state_received(),
            // A pair keeps its shards, and a node of a cluster does this itself.
            StandbySweep::ForgetPeer | StandbySweep::Drop | StandbySweep::Revoke => {}
        }
    }

    fn begin_pass(&mut self, engines: &mut dyn Engines, pass: StandbySweep, shards: ShardSet) {
        let cursors = vec![FeedCursor::default(); engines.workers()];
        self.pass(engines, (pass, shards), cursors);
    }

    /// Begins what is next. Returns false if there is nothing.
    fn begin_next(&mut self, now_ms: u64, engines: &mut dyn Engines) -> bool {
        // After a change of the plan, the ports of refused sessions are reserved before there are rights.
        let is_urgent = self.use_word(now_ms)
            || self.begin_fence(now_ms, engines)
            || self.begin_refused(now_ms, engines)
            || self.begin_setup(engines)
            || self.begin_free(engines)
            || self.begin_telling(engines)
            || self.go_on_releasing(now_ms, engines);
        if is_urgent {
            return true;
        }
        // Neither waits for all of the other.
        self.walk_is_next ^= true;
        match self.walk_is_next {
            true => self.begin_page(now_ms, engines) || self.begin_step(engines),
            false => self.begin_step(engines) || self.begin_page(now_ms, engines),
        }
    }

    fn standing(&self, epoch: Epoch) -> Standing {
        self.own.standing(&self.settings, epoch)
    }
}
