//! Interface of a fast path's table.

use gatun_nat::counters::Traffic;
use gatun_nat::feed::SessionId;
use std::net::Ipv6Addr;
use std::time::Duration;

/// A session to be translated outside the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadedFlow {
    /// The session in its engine.
    pub session: SessionId,
    /// Number of the engine's worker.
    pub worker: u8,
    /// Epoch of the ownership. The fast path does not translate flows of another epoch.
    pub epoch: u16,
    /// Remote host as the inside host sees it, behind a translation prefix. `None` for NAT44.
    pub remote6: Option<Ipv6Addr>,
    /// Largest IPv4 packet to the remote host in bytes, if the path's MTU is known.
    pub path_mtu: Option<u16>,
}

/// Reason why a flow was not installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The table is full.
    Full,
    /// The table has no place for this flow.
    Crowded,
    /// Another entry has the same packets in at least one direction.
    Exists,
    /// Any other reason.
    Other(String),
}

/// State of an installation that a target answers later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The entry translates.
    Installed,
    /// The flow was refused, and nothing of it is left. The ID is not valid any more. A part of it may have
    /// translated packets.
    Refused(Refusal, EntryUse),
    /// No answer yet: ask again.
    Waiting,
}

/// Result of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// No packet is translated by the entry any more. Its use since it was last taken.
    Removed(EntryUse),
    /// There was no such entry.
    Missing,
    /// The removal was requested, and is not confirmed: ask again. Packets may still be translated.
    Waiting,
}

impl From<Option<EntryUse>> for Removal {
    fn from(used: Option<EntryUse>) -> Removal {
        used.map_or(Removal::Missing, Removal::Removed)
    }
}

/// Use of an entry since it was last taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryUse {
    /// Translated packets. A super-packet is one. Bytes as received, from the IP header on.
    pub traffic: Traffic,
    /// Time since the last packet from inside, and to the inside; at first the time since the installation.
    pub seen_ago: [Duration; 2],
    /// True after a FIN or RST: it and all later packets go to the engine.
    pub is_closing: bool,
    /// True while packets still go to the engine because earlier ones may be queued there.
    pub is_pending: bool,
}

/// Table of a fast path.
///
/// Entries and their use survive the process. A target in the same machine answers at once, and its entries
/// translate packets only while the lease lasts. A target behind a network answers later, or not for a long
/// time. It may have no lease: then a removal waits until the target has confirmed it.
pub trait Target {
    /// An entry and its occupant: a removed entry's place can be used again under another ID.
    type Id: Copy;

    /// True if an entry may not exist yet when [`install`](Self::install) returns.
    const ANSWERS_LATER: bool = false;

    /// True if the target translates echo requests from inside and their replies.
    const TRANSLATES_PINGS: bool = false;

    /// Does regular work of the target, at the beginning of each turn of the manager.
    fn turn(&mut self, now: Duration) {
        let _ = now;
    }

    /// Returns whether the target takes flows at present. Otherwise none is installed or evicted.
    fn is_ready(&self) -> bool {
        true
    }

    /// Returns the number of entries that there is room for.
    fn capacity(&self) -> u32;

    /// Installs flows, and adds a result for each to `placed`. A flow is refused as [`Refusal::Exists`] if an
    /// entry already has its packets. `Ok`: the entry translates packets, or with
    /// [`ANSWERS_LATER`](Self::ANSWERS_LATER) it may do so from now on.
    fn install(&mut self, flows: &[OffloadedFlow], placed: &mut Vec<Result<Self::Id, Refusal>>);

    /// Adds the state of each installation to `placed`. Called for entries whose installation is not known to
    /// have succeeded.
    fn placed(&mut self, ids: &[Self::Id], placed: &mut Vec<Placement>) {
        placed.resize(placed.len() + ids.len(), Placement::Installed);
    }

    /// Removes entries, and adds the result of each to `removals`. It is called again for those that wait.
    fn remove(&mut self, ids: &[Self::Id], removals: &mut Vec<Removal>);

    /// Takes the use of entries; packets and bytes begin anew. `None` for a removed entry.
    fn take_use(&mut self, ids: &[Self::Id], used: &mut Vec<Option<EntryUse>>);

    /// Number of times that the use of all entries has become known. `None`: it always is. Entries are idle,
    /// or slow, by these times: nothing is known of an entry between two of them.
    fn readings(&self) -> Option<u64> {
        None
    }

    /// Passes every entry to `each`.
    fn entries(&mut self, each: &mut dyn FnMut(Self::Id, &OffloadedFlow));

    /// Lets the fast path translate for this time from now on.
    fn renew_lease(&mut self, time: Duration);

    /// Sets the path MTU of an entry, see [`OffloadedFlow::path_mtu`]. Larger packets to the remote host go
    /// to the engine. A target that cannot tell them apart translates them: routers fragment them.
    fn set_path_mtu(&mut self, _id: Self::Id, _mtu: Option<u16>) {}

    /// Sets the smallest path MTU that an engine knows, for targets that translate packets without sessions.
    fn set_smallest_path(&mut self, _mtu: Option<u16>) {}
}
