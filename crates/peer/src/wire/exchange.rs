//! Exchange of state between two members, without sockets and clocks: bytes in, records out, and back.
//!
//! The streams survive a connection. After a break, [`Exchange::open`] continues where the other member was,
//! if the log has everything that it lacks. Otherwise [`Exchange::needs_walk`] asks for the whole state: the
//! caller sends [`PeerRecord::StateBegins`], everything that exists, and [`PeerRecord::StateEnds`], while
//! changes go on between them.
//!
//! Records are sent in groups, a few milliseconds at most after they were made. A group has a number, and the
//! log keeps it until it is acknowledged. The log is bounded: if it is full, the whole state is sent again.

use super::clock::Clocks;
use super::error::WireError;
use super::frame::{Frame, Hello, Records, ShardPromise, decode, put_records};
use super::keys::{ConfigKey, KeyDifference, differences};
use super::record::{PeerRecord, ShardSeats};
use super::{CLOCK_LAYOUT, CLUSTER_LAYOUT, FRAME_LEN_MAX, LAYOUTS};
use crate::ownership::{Arrival, Inbound, Member, Outbound, Resumption, Rules};

/// Properties of a member and of its connection. Times are ms of the clock that the caller passes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Member that this one is.
    pub member: Member,
    /// Name of this box.
    pub name: String,
    /// Random number of this process, not 0.
    pub process: u64,
    /// Keys of the configuration that both must have in common, sorted by name.
    pub keys: Vec<ConfigKey>,
    /// Longest time for which a record waits for others.
    pub batch_ms: u64,
    /// Groups of records that the log keeps, of up to 32 KiB each.
    pub log_max: usize,
    /// Time without other frames, after which a sign of life is sent.
    pub alive_ms: u64,
    /// Lowest and highest layout that this side uses.
    pub layouts: (u16, u16),
    /// Rules in force: all, except in a proof that one is needed.
    pub rules: Rules,
}

impl Settings {
    /// Returns the usual settings: groups of 5 ms, a log of 512 of them, a sign of life each 100 ms.
    pub fn new(member: Member, name: &str, process: u64, keys: Vec<ConfigKey>) -> Settings {
        let name = name.to_owned();
        let rules = Rules::default();
        let layouts = (*LAYOUTS.start(), *LAYOUTS.end());
        Settings { member, name, process, keys, batch_ms: 5, log_max: 512, alive_ms: 100, layouts, rules }
    }

    /// Returns the settings between two nodes of a cluster: a sign of life each 50 ms.
    pub fn of_node(member: Member, name: &str, process: u64, keys: Vec<ConfigKey>) -> Settings {
        let layouts = (CLUSTER_LAYOUT, *LAYOUTS.end());
        Settings { layouts, alive_ms: NODE_ALIVE_MS, ..Settings::new(member, name, process, keys) }
    }
}

/// Something that the other member has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// It has greeted. Its stream goes on, or its state will follow.
    Hello {
        /// True if it has its state.
        is_settled: bool,
        /// Number of its stream: another one if its process is another one.
        stream: u64,
        /// Differences of its configuration.
        differences: Vec<KeyDifference>,
    },
    /// Records, to be handled in their order.
    Records(Records),
    /// It has handled, and answered, the own groups up to this number.
    Acknowledged(u64),
    /// It asks for promises.
    Asked {
        /// Time of the request, by its clock.
        asked_ms: u64,
        /// Shards, with their holders as it knows them.
        shards: Vec<(u8, ShardSeats)>,
    },
    /// It promises.
    Promised {
        /// Time of the own request.
        asked_ms: u64,
        /// Promises.
        promises: Vec<ShardPromise>,
    },
}

/// Reason for which a member refuses another one that the operator has declared gone, and that has sessions.
pub(crate) const DECLARED_GONE: &str =
    "the operator has declared this peer gone: restart it without its sessions";

/// Time without other frames, after which a node of a cluster sends a sign of life, ms.
const NODE_ALIVE_MS: u64 = 50;
/// Bytes of records after which a group is sent at once.
const GROUP_LEN: usize = 32 * 1024;
/// Groups after whose arrival the sender is told, if nothing else tells it.
const ARRIVED_MAX: u64 = 32;
const _: () = assert!(GROUP_LEN + 256 < FRAME_LEN_MAX);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Closed,
    /// This side has greeted, and waits for the other's greeting.
    Greeting,
    Open,
}

/// Both streams between this member and the other one.
pub struct Exchange {
    settings: Settings,
    out: Outbound<Box<[u8]>>,
    inbound: Inbound,
    /// Process that `inbound` belongs to.
    peer_process: Option<u64>,
    /// Number of that stream, from 1 on.
    stream: u64,
    /// Number of the last received group that the caller had handled when it pushed the present records.
    seen: u64,
    /// Number of the last received group whose answers have been pushed.
    answered: u64,
    /// Number up to which the other member knows that its groups have arrived.
    told_arrived: u64,
    link: Link,
    is_walking: bool,
    /// Number of the group that ended the last walk. Before it is acknowledged, no end of a mapping is.
    walk_end: u64,
    /// Bytes of the records that wait for others.
    group: Vec<u8>,
    group_since_ms: u64,
    /// Value of `seen` for these records.
    group_seen: u64,
    /// Number that the other member has been told to be handled.
    told_handled: u64,
    sent_ms: u64,
    /// Time of the last bytes of the other member.
    heard_ms: u64,
    /// True if the other member has said that this one is declared gone.
    is_declared_gone: bool,
    /// True if the operator has said that the other member is gone.
    declares_gone: bool,
    /// True if this side has greeted as a member that has its state.
    was_settled: bool,
    /// True if the caller has accepted the other member's greeting.
    is_accepted: bool,
    /// True if the other member has sent a frame after its greeting: it has accepted the own one.
    is_answered: bool,
    /// Time of the last refusal, by either side, and its reason.
    refusal: Option<(u64, String)>,
    /// Name of the other box; empty before its first greeting.
    peer_name: String,
    /// Keys of the other member, since its first greeting.
    peer_keys: Option<Vec<ConfigKey>>,
    /// Highest layout that both know, since the other member's last greeting.
    layout: u16,
    differences: Vec<KeyDifference>,
    /// True if the other member does not know the present keys.
    are_keys_untold: bool,
    /// True if nothing may be sent now.
    is_held: bool,
    /// True if answers wait for the state of some shards: nothing is acknowledged before.
    lacks_answers: bool,
    clocks: Clocks,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Exchange {
    /// Creates the streams of a new process.
    pub fn new(settings: Settings) -> Exchange {
        Exchange {
            out: Outbound::new(settings.log_max),
            inbound: Inbound::default(),
            peer_process: None,
            stream: 0,
            seen: 0,
            answered: 0,
            told_arrived: 0,
            link: Link::Closed,
            is_walking: false,
            group: Vec::new(),
            walk_end: 0,
            group_since_ms: 0,
            group_seen: 0,
            told_handled: 0,
            sent_ms: 0,
            heard_ms: 0,
            is_declared_gone: false,
            declares_gone: false,
            was_settled: false,
            is_accepted: false,
            is_answered: false,
            refusal: None,
            peer_name: String::new(),
            peer_keys: None,
            layout: 0,
            differences: Vec::new(),
            are_keys_untold: false,
            is_held: false,
            lacks_answers: false,
            clocks: Clocks::default(),
            input: Vec::new(),
            output: Vec::new(),
            settings,
        }
    }

    /// Begins a connection: greets the other member.
    pub fn open(&mut self, now_ms: u64, is_settled: bool) {
        self.close(now_ms);
        self.link = Link::Greeting;
        (self.was_settled, self.are_keys_untold) = (is_settled, false);
        (self.told_handled, self.told_arrived) = (0, 0);
        let Settings { member, ref name, process, .. } = self.settings;
        let hello = Hello {
            resume: self.peer_process.map(|process| (process, self.inbound.next())),
            is_settled,
            declares_gone: self.declares_gone,
            keys: self.settings.keys.clone(),
            layouts: self.settings.layouts,
            ..Hello::new(member, name, process)
        };
        self.send(now_ms, &Frame::Hello(hello));
    }

    /// Ends a connection. The streams wait for the next one. A walk has to begin again.
    pub fn close(&mut self, now_ms: u64) {
        self.cut(now_ms);
        if self.is_walking {
            self.is_walking = false;
            self.out.restart();
        }
        self.link = Link::Closed;
        (self.is_accepted, self.is_answered) = (false, false);
        self.clocks.forget();
        self.input.clear();
        self.output.clear();
    }

    /// Closes the connection with a reason that the other side reports.
    pub fn refuse(&mut self, now_ms: u64, reason: &str) {
        self.send(now_ms, &Frame::Refused(reason.to_owned()));
        self.link = Link::Closed;
        self.refusal = Some((now_ms, reason.to_owned()));
    }

    /// Accepts the greeting of the other member, and tells it so.
    pub fn accept_greeting(&mut self, now_ms: u64) {
        if self.link == Link::Open && !self.is_accepted {
            (self.is_accepted, self.refusal) = (true, None);
            self.send(now_ms, &Frame::Alive(self.inbound.accepted()));
        }
    }

    /// Returns whether both members have accepted each other's greetings.
    pub fn is_established(&self) -> bool {
        self.link == Link::Open && self.is_accepted && self.is_answered
    }

    /// Returns whether both members have accepted each other's greetings, and the other one has sent
    /// something in the last `ms`.
    pub fn hears(&self, now_ms: u64, ms: u64) -> bool {
        self.is_established() && now_ms.saturating_sub(self.heard_ms) < ms
    }

    /// Returns the reason of a refusal, by either side, since a time. The other member was alive then.
    pub(crate) fn refusal_since(&self, ms: u64) -> Option<&str> {
        self.refusal.as_ref().filter(|(at, _)| *at >= ms).map(|(_, reason)| reason.as_str())
    }

    /// From the next greeting on, says whether the operator has declared the other member gone.
    pub(crate) fn declare_gone(&mut self, is_gone: bool) {
        self.declares_gone = is_gone;
    }

    /// Uses another configuration, and tells the other member. A present connection goes on, also if the
    /// configurations differ now: sessions that both know must not lose their backup.
    pub fn set_keys(&mut self, keys: Vec<ConfigKey>) {
        self.settings.keys = keys;
        self.are_keys_untold = true;
        self.compare();
    }

    /// Returns the differences of the configurations, as far as the other member has told its own one.
    pub fn differences(&self) -> &[KeyDifference] {
        &self.differences
    }

    /// Returns the other member's keys, as it has told them last.
    pub(crate) fn peer_keys(&self) -> &[ConfigKey] {
        self.peer_keys.as_deref().unwrap_or_default()
    }

    /// Says what the wall clock of this box shows, ms since 1970. The other member is told, and asked for its
    /// own one, only after that.
    pub fn set_wall_clock(&mut self, now_ms: u64, wall_ms: u64) {
        self.clocks.set_wall(now_ms, wall_ms);
    }

    /// Returns the ms by which the wall clock of the other box is ahead of this one's, negative if it is
    /// behind. The error is half a second at most. `None` without a connection.
    pub fn clock_difference_ms(&self) -> Option<i64> {
        self.clocks.difference_ms()
    }

    /// Returns the name of the other box; empty before its first greeting.
    pub fn peer_name(&self) -> &str {
        &self.peer_name
    }

    fn compare(&mut self) {
        if let Some(of_peer) = &self.peer_keys {
            self.differences = differences(&self.settings.keys, of_peer);
        }
    }

    /// Sends nothing until further notice, not even signs of life.
    pub(crate) fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Refuses the other member without sending what waits.
    pub(crate) fn refuse_at_once(&mut self, now_ms: u64, reason: &str) {
        self.close(now_ms);
        self.is_held = false;
        self.refuse(now_ms, reason);
    }

    /// Returns whether the other member has refused this one as declared gone, once.
    pub(crate) fn take_declared_gone(&mut self) -> bool {
        std::mem::take(&mut self.is_declared_gone)
    }

    /// Returns whether both sides have greeted.
    pub fn is_open(&self) -> bool {
        self.link == Link::Open
    }

    /// Returns the number of the other member's stream.
    pub(crate) fn stream(&self) -> u64 {
        self.stream
    }

    /// Returns whether the whole state has to be sent, and can be: the next record is then
    /// [`PeerRecord::StateBegins`]. Other records are dropped until then, because that state contains them.
    pub fn needs_walk(&self) -> bool {
        self.link == Link::Open && self.out.needs_walk()
    }

    /// Returns whether the whole state is being sent.
    pub fn is_walking(&self) -> bool {
        self.is_walking
    }

    /// Returns whether the log has room for another part of a walk. Half of it is for changes.
    pub fn may_walk(&self) -> bool {
        self.room() > self.settings.log_max / 2
    }

    /// Number of groups for which the log has room.
    fn room(&self) -> usize {
        self.settings.log_max.saturating_sub(self.out.log().len())
    }

    /// Appends a record to the stream. Returns the number of its group, or `None` if the whole state has to
    /// be sent instead.
    pub fn push(&mut self, now_ms: u64, record: PeerRecord) -> Option<u64> {
        match record {
            PeerRecord::StateBegins => {
                self.group.clear();
                record.put(&mut self.group);
                self.is_walking = true;
                self.out.push_walk(self.seen, Box::from(self.group.as_slice()));
                self.group.clear();
                self.send_last(now_ms);
                return Some(self.out.last());
            }
            _ if self.out.needs_walk() => return None,
            _ => {}
        }
        if self.group_seen != self.seen {
            self.cut(now_ms);
        }
        if self.group.is_empty() {
            // The group that begins has a place in the log, so its number is never given up.
            if self.room() == 0 {
                self.is_walking = false;
                self.out.restart();
                return None;
            }
            (self.group_since_ms, self.group_seen) = (now_ms, self.seen);
        }
        let number = self.out.last() + 1;
        if record == PeerRecord::StateEnds {
            self.is_walking = false;
            self.walk_end = number;
        }
        record.put(&mut self.group);
        if self.group.len() >= GROUP_LEN {
            self.cut(now_ms);
        }
        Some(number)
    }

    /// Numbers and sends the waiting records.
    fn cut(&mut self, now_ms: u64) {
        if self.group.is_empty() {
            return;
        }
        let is_kept = self.out.push(self.group_seen, Box::from(self.group.as_slice())).is_some();
        self.group.clear();
        match is_kept {
            true => self.send_last(now_ms),
            false => self.is_walking = false,
        }
    }

    /// Sends the last group of the log, if there is a connection.
    fn send_last(&mut self, now_ms: u64) {
        if self.link == Link::Open
            && let Some(entry) = self.out.log().next_back()
        {
            self.sent_ms = now_ms;
            put_records(&mut self.output, entry.number, entry.seen, &entry.record);
        }
    }

    /// Does what time demands. Returns the time until it has to be called again, ms.
    pub fn turn(&mut self, now_ms: u64) -> u64 {
        let waits = |since: u64, length: u64| (since + length).saturating_sub(now_ms);
        if !self.group.is_empty() && waits(self.group_since_ms, self.settings.batch_ms) == 0 {
            self.cut(now_ms);
        }
        if self.link == Link::Open {
            self.acknowledge(now_ms);
        }
        if self.link == Link::Open && std::mem::take(&mut self.are_keys_untold) {
            self.send(now_ms, &Frame::Keys(self.settings.keys.clone()));
        }
        let arrived = self.inbound.accepted();
        let is_due = waits(self.sent_ms, self.settings.alive_ms) == 0;
        if self.link == Link::Open && (is_due || arrived > self.told_arrived + ARRIVED_MAX) {
            self.told_arrived = arrived;
            self.send(now_ms, &Frame::Alive(arrived));
        }
        if self.is_established() && self.layout >= CLOCK_LAYOUT {
            // These frames are no sign of life, which says what has arrived.
            self.clocks.put(now_ms, &mut self.output);
        }
        let alive = match self.link {
            Link::Open => waits(self.sent_ms, self.settings.alive_ms),
            Link::Closed | Link::Greeting => self.settings.alive_ms,
        };
        match self.group.is_empty() {
            true => alive,
            false => alive.min(waits(self.group_since_ms, self.settings.batch_ms)),
        }
    }

    /// The received groups of a stream up to a number are handled, so that records pushed from now on may be
    /// answers to them.
    pub fn handled(&mut self, stream: u64, number: u64) {
        if stream == self.stream {
            self.seen = self.seen.max(number);
        }
    }

    /// The received groups of a stream up to a number are handled, and the answers to them were pushed.
    pub fn answered(&mut self, stream: u64, number: u64) {
        self.handled(stream, number);
        if stream == self.stream {
            self.answered = self.answered.max(number);
        }
    }

    /// All received groups are handled, and the answers to them were pushed.
    pub fn answer_all(&mut self) {
        self.answered(self.stream, self.inbound.accepted());
    }

    /// Refuses the other member with a reason, and forgets its stream: it has to send its whole state on the
    /// next connection.
    pub fn forget_peer(&mut self, now_ms: u64, reason: &str) {
        self.refuse(now_ms, reason);
        self.peer_process = None;
    }

    /// Gives the log up: records were lost before they were pushed, or the other member has lost its state.
    pub fn restart(&mut self) {
        self.group.clear();
        self.is_walking = false;
        self.out.restart();
    }

    /// Says whether answers wait for the state of some shards.
    pub(crate) fn delay_answers(&mut self, lacks_answers: bool) {
        self.lacks_answers = lacks_answers;
    }

    /// Returns whether the other member knows that an acknowledgement is not about shards whose walk is not
    /// complete.
    pub(crate) fn has_partial_acknowledgements(&self) -> bool {
        self.layout >= super::PARTIAL_LAYOUT
    }

    /// Returns whether the other member knows brief sessions, and the record of a closed TCP connection.
    pub(crate) fn is_brief(&self) -> bool {
        self.layout >= super::BRIEF_LAYOUT
    }

    /// Number of the last record of the stream: the other member will acknowledge it.
    pub(crate) fn last_number(&self) -> u64 {
        self.out.last() + u64::from(!self.group.is_empty())
    }

    /// Asks the other node for promises about some shards. Such a frame is no sign of life, which says what
    /// has arrived.
    pub fn ask(&mut self, now_ms: u64, shards: Vec<(u8, ShardSeats)>) {
        if self.is_established() {
            Frame::Asked { asked_ms: now_ms, shards }.put(&mut self.output);
        }
    }

    /// Promises what the other node has asked for.
    pub fn promise(&mut self, asked_ms: u64, promises: Vec<ShardPromise>) {
        if self.is_established() {
            Frame::Promised { asked_ms, promises }.put(&mut self.output);
        }
    }

    /// Acknowledges, after the answers.
    fn acknowledge(&mut self, now_ms: u64) {
        let rules = &self.settings.rules;
        if ((self.is_walking || self.lacks_answers) && rules.answer_first)
            || !self.inbound.answered_to(rules, &self.out, self.answered)
        {
            return;
        }
        let handled = self.inbound.handled();
        if handled > self.told_handled {
            self.cut(now_ms);
            let after = self.out.last();
            self.told_handled = handled;
            self.send(now_ms, &Frame::Acknowledged { handled, after });
        }
    }

    /// Takes bytes of the other member, and appends what they mean.
    ///
    /// # Errors
    /// Returns the reason for which the connection has to be closed. The other member has been told, if it
    /// can understand it.
    pub fn receive(
        &mut self,
        now_ms: u64,
        bytes: &[u8],
        received: &mut Vec<Received>,
    ) -> Result<(), WireError> {
        if !bytes.is_empty() {
            self.heard_ms = now_ms;
        }
        self.input.extend_from_slice(bytes);
        let mut input = std::mem::take(&mut self.input);
        let mut used = 0;
        let result = loop {
            match decode(&input[used..]) {
                Ok(None) => break Ok(()),
                Ok(Some((frame, len))) => {
                    used += len;
                    if let Err(error) = self.handle(now_ms, frame, received) {
                        break Err(error);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        input.drain(..used);
        self.input = input;
        if let Err(error) = &result
            && !matches!(error, WireError::Refused(_) | WireError::NotGatun)
        {
            self.refuse(now_ms, &error.to_string());
        }
        result
    }

    fn handle(&mut self, now_ms: u64, frame: Frame, received: &mut Vec<Received>) -> Result<(), WireError> {
        self.is_answered |= self.link == Link::Open && !matches!(frame, Frame::Refused(_));
        match (self.link, frame) {
            (_, Frame::Refused(reason)) => {
                self.is_declared_gone |= reason == DECLARED_GONE;
                self.refusal = Some((now_ms, reason.clone()));
                Err(WireError::Refused(reason))
            }
            (Link::Greeting, Frame::Hello(hello)) => self.greeted(now_ms, hello, received),
            (_, Frame::Hello(_)) => Err(WireError::OutOfTurn("greeting")),
            (Link::Open, Frame::Records(records)) => self.accept(records, received),
            (Link::Open, Frame::Alive(arrived)) => {
                self.out.arrived(arrived);
                Ok(())
            }
            (Link::Open, Frame::Keys(keys)) => {
                self.peer_keys = Some(keys);
                self.compare();
                Ok(())
            }
            (Link::Open, Frame::Acknowledged { handled, after }) => {
                if !self.inbound.is_after(&self.settings.rules, after) {
                    let expected = self.inbound.next();
                    return Err(WireError::Gap { expected, received: after });
                }
                let is_new = self.out.acknowledge(handled);
                if is_new && !self.is_walking && !self.out.needs_walk() && handled >= self.walk_end {
                    received.push(Received::Acknowledged(handled));
                }
                Ok(())
            }
            (Link::Open, Frame::Asked { asked_ms, shards }) => {
                received.push(Received::Asked { asked_ms, shards });
                Ok(())
            }
            (Link::Open, Frame::Promised { asked_ms, promises }) => {
                received.push(Received::Promised { asked_ms, promises });
                Ok(())
            }
            (Link::Open, Frame::TimeAsked(asked_ms)) => {
                self.clocks.asked(asked_ms);
                Ok(())
            }
            (Link::Open, Frame::TimeTold { asked_ms, wall_ms }) => {
                self.clocks.told(now_ms, asked_ms, wall_ms);
                Ok(())
            }
            (Link::Closed | Link::Greeting, _) => Err(WireError::OutOfTurn("frame before the greeting")),
        }
    }

    fn greeted(&mut self, now_ms: u64, hello: Hello, received: &mut Vec<Received>) -> Result<(), WireError> {
        let ((lowest, highest), own) = (hello.layouts, self.settings.layouts);
        if lowest > highest || highest < own.0 || lowest > own.1 {
            return Err(WireError::Layouts { lowest, highest, own });
        }
        if hello.member == self.settings.member {
            return Err(WireError::SameMember(hello.member));
        }
        // Whatever else the greeting says: after this word, this member must not assign ports.
        self.is_declared_gone |= hello.declares_gone && self.was_settled;
        if self.peer_process != Some(hello.process) {
            self.peer_process = Some(hello.process);
            self.inbound = Inbound::default();
            self.stream += 1;
            (self.seen, self.answered) = (0, 0);
        }
        self.link = Link::Open;
        self.layout = highest.min(own.1);
        let next = hello.resume.filter(|(of, _)| *of == self.settings.process).map(|(_, next)| next);
        if self.out.resume(next) == Resumption::Log {
            self.sent_ms = now_ms;
            for entry in self.out.log() {
                put_records(&mut self.output, entry.number, entry.seen, &entry.record);
            }
        }
        (self.peer_name, self.peer_keys) = (hello.name, Some(hello.keys));
        self.compare();
        received.push(Received::Hello {
            differences: self.differences.clone(),
            is_settled: hello.is_settled,
            stream: self.stream,
        });
        Ok(())
    }

    fn accept(&mut self, records: Records, received: &mut Vec<Received>) -> Result<(), WireError> {
        if records.seen > self.out.last() {
            return Err(WireError::Malformed("it answers records that were never sent"));
        }
        let is_walk = records.records.first() == Some(&PeerRecord::StateBegins);
        match self.inbound.accept(&self.settings.rules, records.number, is_walk) {
            Arrival::Next => received.push(Received::Records(records)),
            Arrival::Known => {}
            Arrival::Gap => {
                let expected = self.inbound.next();
                return Err(WireError::Gap { expected, received: records.number });
            }
        }
        Ok(())
    }

    fn send(&mut self, now_ms: u64, frame: &Frame) {
        self.sent_ms = now_ms;
        frame.put(&mut self.output);
    }

    /// Moves the bytes to be sent to the end of `to`.
    pub fn take_output(&mut self, to: &mut Vec<u8>) {
        if !self.is_held {
            to.append(&mut self.output);
        }
    }
}
