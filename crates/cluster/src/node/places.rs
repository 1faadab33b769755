//! Places of shards: the node that translates each.

use super::Node;
use crate::record::{NodeName, Part};
use gatun_nat::ShardSet;
use gatun_nat::redirect::Place;

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
}

impl Node {
    /// Tells the engines where each shard is translated, if that has changed.
    pub(super) fn tell_places(&mut self, now_ms: u64, engines: &mut dyn super::NodeEngines) {
        let mut places =
            Places { translated: [Place::Nowhere; 256], owned: ShardSet::NONE, backed: ShardSet::NONE };
        for shard in self.numbers() {
            places.translated[usize::from(shard)] = self.place(now_ms, shard, &mut places);
        }
        if self.places.as_ref() != Some(&places) {
            engines.places(&places);
            self.places = Some(places);
        }
    }

    /// The owner translates. The backup does if nobody hears the owner.
    fn place(&self, now_ms: u64, shard: u8, places: &mut Places) -> Place {
        let Some(record) = self.coordination.record(shard) else { return Place::Nowhere };
        let settings = self.coordination.settings();
        let has_time = self.shards[usize::from(shard)].translates(now_ms);
        match record.part(&settings.me) {
            Part::Owner if has_time => places.owned.insert(shard),
            Part::Backup(_) if has_time => places.backed.insert(shard),
            _ => {}
        }
        let backup = record.backup.as_ref().map(|backup| &backup.seat.node);
        let holders = || [Some(&record.owner.node), backup].into_iter().flatten();
        let connected = |node: &&NodeName| match **node == settings.me {
            true => has_time,
            false => self.is_connected(node),
        };
        let registered = |node: &&NodeName| **node != settings.me && self.coordination.is_registered(node);
        let node = holders().find(connected).or_else(|| holders().find(registered));
        let number = |node: &NodeName| settings.nodes.iter().position(|one| one.node == *node);
        match node {
            Some(node) if *node == settings.me => Place::Here,
            Some(node) => {
                number(node).and_then(|number| u8::try_from(number).ok()).map_or(Place::Nowhere, Place::Node)
            }
            None => Place::Nowhere,
        }
    }

    fn is_connected(&self, node: &NodeName) -> bool {
        self.others.iter().any(|other| other.name == *node && other.member.exchange.is_established())
    }
}
