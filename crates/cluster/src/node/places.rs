//! Places of shards: the node that translates each.

use super::Node;
use crate::record::{NodeName, Part};
use gatun_nat::ShardSet;
use gatun_nat::redirect::Place;
use gatun_peer::wire::Exchange;

/// Node that translates each shard, as this one sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Place of each shard. A node is an index of
    /// [`CoordinationSettings::nodes`](crate::coordination::CoordinationSettings::nodes).
    pub translated: [Place; 256],
    /// Shards that this node translates as the owner.
    pub owned: ShardSet,
    /// Shards whose known mappings it translates as the backup.
    pub backed: ShardSet,
    /// Shards of `owned` to which the node has no right now: another one may own them.
    pub lapsed: ShardSet,
    /// True if the node hears no translator of some shard, whose packets end here then.
    pub is_cut: bool,
}

impl Places {
    /// Places of a node that knows none.
    pub const NONE: Places = Places {
        translated: [Place::Nowhere; 256],
        owned: ShardSet::NONE,
        backed: ShardSet::NONE,
        lapsed: ShardSet::NONE,
        is_cut: false,
    };
}

/// Time without a byte of another node after which packets go to somebody else, ms: three signs of life.
/// This needs no lease: both holders of a shard may translate its sessions at any time.
const SILENT_MS: u64 = 150;

impl Node {
    /// Tells the engines where each shard is translated, if that has changed.
    pub(super) fn tell_places(&mut self, now_ms: u64, engines: &mut dyn super::NodeEngines) {
        let mut places = Places::NONE;
        for shard in self.numbers() {
            places.translated[usize::from(shard)] = self.place(now_ms, shard, &mut places);
        }
        if self.places.as_ref() != Some(&places) {
            engines.places(&places);
            self.places = Some(places);
        }
    }

    /// The owner translates. The backup does if this node does not hear the owner, or packets get lost there.
    fn place(&self, now_ms: u64, shard: u8, places: &mut Places) -> Place {
        let Some(record) = self.coordination.record(shard) else { return Place::Nowhere };
        let settings = self.coordination.settings();
        let has_time = self.shards[usize::from(shard)].translates(now_ms);
        match record.part(&settings.me) {
            Part::Owner if has_time => places.owned.insert(shard),
            Part::Backup(_) if has_time => places.backed.insert(shard),
            _ => {}
        }
        if places.owned.contains(shard) && self.coordination.rights(shard).keep_until <= now_ms {
            places.lapsed.insert(shard);
        }
        let backup = record.backup.as_ref().map(|backup| &backup.seat.node);
        let holders = || [Some(&record.owner.node), backup].into_iter().flatten();
        let others = || holders().filter(|node| **node != settings.me);
        let hears = |node: &&NodeName| match **node == settings.me {
            true => has_time,
            false => self.exchange(node).is_some_and(|exchange| exchange.hears(now_ms, SILENT_MS)),
        };
        let connected = |node: &&NodeName| self.exchange(node).is_some_and(Exchange::is_established);
        let registered = |node: &&NodeName| self.coordination.is_registered(node);
        let is_sound = |node: &&NodeName| !self.coordination.is_broken(node);
        let heard = holders().filter(hears).find(is_sound).or_else(|| holders().find(hears));
        places.is_cut |= heard.is_none();
        let node = heard.or_else(|| others().find(connected)).or_else(|| others().find(registered));
        let number = |node: &NodeName| settings.nodes.iter().position(|one| one.node == *node);
        match node {
            Some(node) if *node == settings.me => Place::Here,
            Some(node) => {
                number(node).and_then(|number| u8::try_from(number).ok()).map_or(Place::Nowhere, Place::Node)
            }
            None => Place::Nowhere,
        }
    }

    fn exchange(&self, node: &NodeName) -> Option<&Exchange> {
        self.others.iter().find(|other| other.name == *node).map(|other| &other.member.exchange)
    }
}
