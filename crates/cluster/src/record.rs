//! Record of a shard in the coordinator.

use gatun_peer::ownership::Epoch;
use std::fmt;
use std::sync::Arc;

/// Name of a node.
pub type NodeName = Arc<str>;

/// State of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It does not have everything, or is away. It may not claim the shard.
    Filling,
    /// It has everything, and may claim the shard.
    Ready,
    /// It has to drop what it has, because another node will be the backup.
    Leaving,
}

impl Phase {
    const ALL: [Phase; 3] = [Phase::Filling, Phase::Ready, Phase::Leaving];

    /// Returns the name in records.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Filling => "filling",
            Phase::Ready => "ready",
            Phase::Leaving => "leaving",
        }
    }
}

/// Holder of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seat<N> {
    /// Node.
    pub node: N,
    /// Epoch in which it became a holder. What a node has from an earlier time may contradict the shard.
    pub since: u32,
}

/// Backup of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Backup<N> {
    /// Holder.
    pub seat: Seat<N>,
    /// State.
    pub phase: Phase,
}

/// Record of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShardRecord<N> {
    /// Number of the generation, from 1 on. It grows with each other owner and with each new backup.
    pub epoch: u32,
    /// Owner.
    pub owner: Seat<N>,
    /// Backup.
    pub backup: Option<Backup<N>>,
}

/// Part of a node in a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// It owns the shard.
    Owner,
    /// It is its backup.
    Backup(Phase),
    /// It has nothing of it.
    None,
}

impl<N: Clone + PartialEq> ShardRecord<N> {
    /// Returns the part of a node.
    pub fn part(&self, node: &N) -> Part {
        match &self.backup {
            _ if self.owner.node == *node => Part::Owner,
            Some(backup) if backup.seat.node == *node => Part::Backup(backup.phase),
            _ => Part::None,
        }
    }

    /// Returns the other holder, if `node` is one.
    pub fn other(&self, node: &N) -> Option<&N> {
        let backup = self.backup.as_ref().map(|backup| &backup.seat.node);
        match self.part(node) {
            Part::Owner => backup,
            Part::Backup(_) => Some(&self.owner.node),
            Part::None => None,
        }
    }

    /// Returns the epoch in which a holder became one.
    pub fn since(&self, node: &N) -> Option<u32> {
        let seats = [Some(&self.owner), self.backup.as_ref().map(|backup| &backup.seat)];
        seats.into_iter().flatten().find(|seat| seat.node == *node).map(|seat| seat.since)
    }

    /// Returns the phase of the backup.
    pub fn phase(&self) -> Option<Phase> {
        self.backup.as_ref().map(|backup| backup.phase)
    }

    /// The same without a backup.
    pub(crate) fn alone(&self) -> ShardRecord<N> {
        ShardRecord { backup: None, ..self.clone() }
    }

    /// The same with another state of the backup.
    pub(crate) fn with_phase(&self, phase: Phase) -> Option<ShardRecord<N>> {
        let seat = self.backup.as_ref().filter(|backup| backup.phase != phase)?.seat.clone();
        Some(ShardRecord { backup: Some(Backup { seat, phase }), ..self.clone() })
    }

    /// Returns the number of the next epoch. `None` after the last one.
    pub(crate) fn next_epoch(&self) -> Option<u32> {
        self.epoch.checked_add(1).filter(|number| *number <= Epoch::NUMBER_MAX)
    }

    /// The next generation: owner and backup change their places.
    pub(crate) fn exchanged(&self, phase: Phase) -> Option<ShardRecord<N>> {
        let backup = self.backup.as_ref()?;
        Some(ShardRecord {
            epoch: self.next_epoch()?,
            owner: backup.seat.clone(),
            backup: Some(Backup { seat: self.owner.clone(), phase }),
        })
    }
}

/// Reason why a text is no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordError(pub String);

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RecordError {}

/// Longest record, bytes.
const LEN_MAX: usize = 512;

impl fmt::Display for ShardRecord<NodeName> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Seat { node, since } = &self.owner;
        write!(f, "epoch={} owner={node}@{since}", self.epoch)?;
        match &self.backup {
            Some(Backup { seat: Seat { node, since }, phase }) => {
                write!(f, " backup={node}@{since} phase={}", phase.name())
            }
            None => Ok(()),
        }
    }
}

impl std::str::FromStr for ShardRecord<NodeName> {
    type Err = RecordError;

    /// Reads the text of a record.
    ///
    /// # Errors
    /// Says what is wrong.
    fn from_str(text: &str) -> Result<ShardRecord<NodeName>, RecordError> {
        let form = "epoch=N owner=NAME@N [backup=NAME@N phase=PHASE]";
        let error = |why: &str| RecordError(format!("{why}: expected {form}"));
        if text.len() > LEN_MAX {
            return Err(error("a record of more than 512 bytes"));
        }
        let (mut epoch, mut owner, mut node, mut phase) = (None, None, None, None);
        for field in text.split_ascii_whitespace() {
            let (key, value) = field.split_once('=').ok_or_else(|| error(&format!("a field {field:?}")))?;
            let is_first = match key {
                "epoch" => epoch.replace(value).is_none(),
                "owner" => owner.replace(value).is_none(),
                "backup" => node.replace(value).is_none(),
                "phase" => phase.replace(value).is_none(),
                _ => false,
            };
            if !is_first {
                return Err(error(&format!("an unknown or second field {key:?}")));
            }
        }
        let epoch: u32 = epoch
            .and_then(|text| text.parse().ok())
            .filter(|number| (1..=Epoch::NUMBER_MAX).contains(number))
            .ok_or_else(|| error("no epoch"))?;
        let owner = owner.and_then(|text| seat(text, epoch)).ok_or_else(|| error("no owner"))?;
        let backup = match (node.map(|text| seat(text, epoch)), phase) {
            (None, None) => None,
            (Some(Some(seat)), Some(name)) if seat.node != owner.node => {
                let phase = Phase::ALL.into_iter().find(|phase| phase.name() == name);
                let phase = phase.ok_or_else(|| error(&format!("an unknown phase {name:?}")))?;
                Some(Backup { seat, phase })
            }
            _ => return Err(error("an impossible backup")),
        };
        Ok(ShardRecord { epoch, owner, backup })
    }
}

/// Reads a holder. It became one in a present or former epoch.
fn seat(text: &str, epoch: u32) -> Option<Seat<NodeName>> {
    let (name, since) = text.split_once('@').filter(|(name, _)| !name.is_empty())?;
    let since = since.parse().ok().filter(|since| (1..=epoch).contains(since))?;
    Some(Seat { node: name.into(), since })
}
