//! Rights of a member: how it gets them, loses them and passes them to the engines.

use super::engines::{Engines, for_all};
use super::settings::{MemberSettings, SavedStanding};
use super::{Member, Work};
use crate::ownership::{Authority, Epoch, Member as Side, Standing};
use crate::wire::{ConfigKey, DECLARED_GONE, KeyDifference};
use gatun_nat::ShardSet;
use gatun_nat::standby::{PeerAction, PeerCommand, PeerLink, StandbySweep};
use std::fmt;

/// Steps of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Releasing {
    /// The engines lose the right to the shared range.
    Rights,
    /// The engines report all sessions to the other member.
    Telling,
    /// It has been told.
    Told,
}

/// Reason why a member does not release its shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseError {
    /// The other member is not connected.
    NotConnected,
    /// One of the members sends its whole state.
    NotSynced,
    /// This member owns no shard.
    NotOwner,
}

impl fmt::Display for ReleaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReleaseError::NotConnected => {
                "the peer is not connected: if it is off, use `gatun peer takeover` there"
            }
            ReleaseError::NotSynced => "the members still send each other their sessions: try again",
            ReleaseError::NotOwner => "this member does not own any public address",
        })
    }
}

/// Time after a refused greeting in which the other member counts as alive, ms: the link tries several times.
const ALIVE_MS: u64 = 5_000;

/// Reason why the operator's word is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakeOverError {
    /// The other member is connected, so it is not gone.
    Connected,
    /// The other member answers, and one of both refuses the other one for this reason.
    Refused(String),
}

impl fmt::Display for TakeOverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TakeOverError::Connected => f.write_str("the peer is connected: use `gatun peer release` on it"),
            TakeOverError::Refused(why) => write!(
                f,
                "the peer answers, and is not connected: {why}: repair that; if it is off now, \
                 try again after {} s",
                ALIVE_MS / 1_000
            ),
        }
    }
}

/// Ownership, as the member knows it.
#[derive(Debug)]
pub(super) struct Ownership {
    pub(super) epochs: Vec<Epoch>,
    pub(super) is_settled: bool,
    pub(super) is_peer_gone: bool,
    pub(super) word_at_ms: Option<u64>,
    pub(super) releasing: Option<Releasing>,
    /// Number of the group that tells the other member of a release, until it has handled that.
    pub(super) released_at: Option<u64>,
    pub(super) is_unsaved: bool,
    /// True if the ports of all sessions of the other member are taken or reserved here.
    pub(super) has_reserved: bool,
    /// True if the operator has declared this member gone, and the other one owns everything.
    pub(super) is_declared_gone: bool,
}

impl Ownership {
    pub(super) fn new(settings: &MemberSettings, saved: Option<SavedStanding>) -> Ownership {
        let is_restored = saved.is_some();
        let mut saved = saved.unwrap_or_default();
        let none = |owner: &Side| Epoch { number: 0, owner: *owner };
        let missing = settings.shards.iter().skip(saved.epochs.len());
        saved.epochs.extend(missing.map(none));
        saved.epochs.truncate(settings.shards.len());
        Ownership {
            epochs: saved.epochs,
            is_settled: saved.is_settled,
            is_peer_gone: saved.is_peer_gone,
            word_at_ms: None,
            releasing: None,
            released_at: None,
            is_unsaved: !is_restored,
            has_reserved: true,
            is_declared_gone: false,
        }
    }

    pub(super) fn saved(&self) -> SavedStanding {
        let Ownership { ref epochs, is_settled, is_peer_gone, .. } = *self;
        SavedStanding { epochs: epochs.clone(), is_settled, is_peer_gone }
    }

    pub(super) fn standing(&self, settings: &MemberSettings, epoch: Epoch) -> Standing {
        Standing {
            me: settings.me,
            epoch,
            is_settled: self.is_settled,
            peer_is_gone: self.is_peer_gone,
            authority: Authority::Pair,
        }
    }
}

impl Member {
    /// Uses other addresses or another configuration.
    pub fn set_addresses(&mut self, addresses: Vec<super::AddressRange>, own_ports: u16, revision: u64) {
        self.settings.addresses = addresses;
        (self.settings.own_ports, self.settings.revision) = (own_ports, revision);
        self.needs_setup = true;
    }

    /// Returns the keys of the configuration that the other member has told last: none before its first
    /// greeting. `None` if it is declared gone.
    pub fn keys_of_other(&self) -> Option<Vec<ConfigKey>> {
        (!self.own.is_peer_gone).then(|| self.exchange.peer_keys().to_vec())
    }

    /// The operator says that the other member is off and has lost its state. The member owns all shards
    /// after the lease of the other one's kernel.
    ///
    /// # Errors
    /// The other member is connected, or has greeted a short time ago and was refused.
    pub fn take_over(&mut self, now_ms: u64) -> Result<(), TakeOverError> {
        // A greeting that is accepted clears the refusal: one that is not handled yet may be refused again.
        if let Some(why) = self.exchange.refusal_since(now_ms.saturating_sub(ALIVE_MS)) {
            return Err(TakeOverError::Refused(why.to_owned()));
        }
        if self.exchange.is_open() {
            return Err(TakeOverError::Connected);
        }
        let wait_ms = self.settings.timing.word_ms(&self.settings.rules);
        let at = now_ms + u64::from(wait_ms);
        self.own.word_at_ms.get_or_insert(at);
        Ok(())
    }

    /// Gives the own shards to the other member.
    ///
    /// # Errors
    /// It cannot be done now.
    pub fn release(&mut self) -> Result<(), ReleaseError> {
        if !self.exchange.is_established() {
            return Err(ReleaseError::NotConnected);
        }
        if !self.is_synced() {
            return Err(ReleaseError::NotSynced);
        }
        let rules = self.settings.rules;
        let owns = |epoch: &Epoch| self.standing(*epoch).release(&rules).is_some();
        if !self.own.epochs.iter().any(owns) {
            return Err(ReleaseError::NotOwner);
        }
        if self.own.releasing.is_none() {
            self.own.releasing = Some(Releasing::Rights);
            self.needs_setup = true;
        }
        Ok(())
    }

    /// Goes on with a release. Returns false if there is nothing to do.
    pub(super) fn go_on_releasing(&mut self, now_ms: u64, engines: &mut dyn Engines) -> bool {
        let Some(step) = self.own.releasing else { return false };
        if !self.exchange.is_open() {
            self.own.releasing = None;
            self.needs_setup = true;
            return true;
        }
        match step {
            // `setup_done` goes on.
            Releasing::Rights => return false,
            Releasing::Telling => self.begin_pass(engines, StandbySweep::TellAll, ShardSet::ALL),
            Releasing::Told => {
                let rules = self.settings.rules;
                for shard in 0..self.own.epochs.len() {
                    let mut standing = self.standing(self.own.epochs[shard]);
                    if let Some(epoch) = standing.release(&rules) {
                        self.own.epochs[shard] = epoch;
                        let number = self.push_epoch(now_ms, shard as u8, epoch);
                        self.own.released_at = number.or(self.own.released_at);
                    }
                }
                self.own.releasing = None;
                (self.own.is_unsaved, self.needs_setup) = (true, true);
            }
        }
        true
    }

    /// Checks a greeting. Returns whether its connection may be used.
    pub(super) fn check_hello(
        &mut self,
        now_ms: u64,
        is_settled: bool,
        differences: &[KeyDifference],
    ) -> bool {
        let reason = if self.own.is_peer_gone && is_settled && self.settings.rules.close_with_word {
            DECLARED_GONE.to_owned()
        } else if !differences.is_empty() {
            let name = |one: &KeyDifference| match one {
                KeyDifference::Here(name) | KeyDifference::There(name) | KeyDifference::Value(name) => {
                    name.clone()
                }
            };
            let names: Vec<String> = differences.iter().take(8).map(name).collect();
            format!("the configurations differ: {}", names.join(", "))
        } else {
            return true;
        };
        self.exchange.forget_peer(now_ms, &reason);
        self.wants_close = Some(reason);
        false
    }

    /// The other member has greeted, and all that it sent before is handled.
    pub(super) fn greeted(&mut self, peer_is_settled: bool) {
        if self.shared.is_some() {
            return;
        }
        self.own.word_at_ms = None;
        if self.own.is_peer_gone {
            self.own.is_peer_gone = false;
            // The engines know it before a walk tells the other member of sessions: their ends then wait.
            self.link = Some(PeerLink::Live);
            (self.own.is_unsaved, self.needs_setup) = (true, true);
        }
        // The other member has forgotten that as well.
        if self.own.is_declared_gone && !peer_is_settled {
            (self.own.is_declared_gone, self.needs_setup) = (false, true);
        }
        // The first start of a pair. The other member gets the empty state from this one.
        if !peer_is_settled && !self.own.is_settled && self.settings.me == Side::First {
            self.settle();
        }
    }

    /// The member has its state.
    pub(super) fn settle(&mut self) {
        if self.own.is_settled {
            return;
        }
        for (epoch, owner) in self.own.epochs.iter_mut().zip(&self.settings.shards) {
            if epoch.number == 0 {
                *epoch = Epoch { number: 1, owner: *owner };
            }
        }
        self.own.is_settled = true;
        (self.own.is_unsaved, self.needs_setup) = (true, true);
    }

    /// Adopts an epoch of the other member.
    pub(super) fn learn(&mut self, shard: usize, epoch: Epoch) {
        let Some(&known) = self.own.epochs.get(shard) else { return };
        let mut standing = self.standing(known);
        standing.learn(epoch);
        if standing.epoch != known {
            self.own.epochs[shard] = standing.epoch;
            (self.own.is_unsaved, self.needs_setup) = (true, true);
        }
    }

    /// Uses the operator's word if its time has come.
    pub(super) fn use_word(&mut self, now_ms: u64) -> bool {
        if self.own.word_at_ms.is_none_or(|at| now_ms < at) {
            return false;
        }
        if self.settings.rules.close_with_word {
            self.exchange.close(now_ms);
            self.inbox.clear();
            self.steps.clear();
            self.is_in_group = false;
            self.wants_close = Some("the operator has declared the peer gone".to_owned());
        }
        self.exchange.restart();
        self.ends.clear();
        self.refused.clear();
        self.own.has_reserved = true;
        self.free.clear();
        self.walk = None;
        for shard in 0..self.own.epochs.len() {
            let mut standing = self.standing(self.own.epochs[shard]);
            standing.seize();
            self.own.epochs[shard] = standing.epoch;
        }
        (self.own.is_settled, self.own.is_peer_gone) = (true, true);
        (self.own.word_at_ms, self.own.is_declared_gone) = (None, false);
        (self.own.releasing, self.own.released_at) = (None, None);
        (self.own.is_unsaved, self.needs_setup) = (true, true);
        true
    }

    /// Notes whether the other member lives, and whether it has taken over everything.
    pub(super) fn note_link(&mut self, now_ms: u64) {
        if self.shared.is_some() {
            return;
        }
        if self.exchange.take_declared_gone() {
            (self.own.is_declared_gone, self.needs_setup) = (true, true);
        }
        // A member that has its state again gives the other one the time to connect.
        if self.exchange.is_open() || self.link.is_none() && self.own.is_settled {
            self.open_ms = Some(now_ms);
        }
        let lives = self.open_ms.is_some_and(|at| now_ms - at < self.settings.away_ms);
        let link = match lives {
            _ if self.own.is_peer_gone => PeerLink::None,
            true => PeerLink::Live,
            false => PeerLink::Away,
        };
        if self.link != Some(link) {
            // The engines do not tell it of sessions any more: only a walk does.
            if link == PeerLink::Away {
                self.exchange.restart();
            }
            self.link = Some(link);
            self.needs_setup = true;
        }
    }

    /// The other member's sessions are reserved now, or are not any more.
    pub(super) fn check_reserved(&mut self) {
        let are_reserved = self.refused.are_reserved(ShardSet::ALL);
        if self.own.has_reserved != are_reserved {
            self.own.has_reserved = are_reserved;
            self.needs_setup = true;
        }
    }

    /// Passes rights and the knowledge about the other member to the engines, if they have changed.
    pub(super) fn begin_setup(&mut self, engines: &mut dyn Engines) -> bool {
        // A node of a cluster does this itself.
        if !std::mem::take(&mut self.needs_setup) || self.shared.is_some() {
            return false;
        }
        let rules = &self.settings.rules;
        let link = match self.link {
            _ if self.own.is_peer_gone => PeerLink::None,
            link => link.unwrap_or(PeerLink::Away),
        };
        self.link = Some(link);
        let mut commands = vec![PeerCommand::new(PeerAction::Link(ShardSet::ALL, link))];
        for range in &self.settings.addresses {
            let Some(&epoch) = self.own.epochs.get(range.shard) else { continue };
            let standing = self.standing(epoch);
            let is_owner = standing.has_right(rules)
                && epoch.number > 0
                && self.own.has_reserved
                && self.own.releasing.is_none();
            let right = match standing.may_act(rules) && !self.own.is_declared_gone {
                true => range.right(rules, self.settings.me, self.settings.own_ports, is_owner),
                false => gatun_nat::standby::PortRight::NONE,
            };
            commands.push(PeerCommand::new(PeerAction::Right(range.first, range.last, right)));
        }
        let requests = for_all(&*engines, &commands);
        self.submit(engines, Work::Setup, requests);
        true
    }

    /// The engines have the rights that the member had when it sent them.
    pub(super) fn setup_done(&mut self) {
        if self.own.releasing == Some(Releasing::Rights) && !self.needs_setup {
            self.own.releasing = Some(Releasing::Telling);
        }
    }
}
