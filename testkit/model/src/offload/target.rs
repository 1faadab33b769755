//! The manager's target: a table or switches.

use super::switch_link::SwitchLink;
use super::table::{Entries, Table};
use gatun_offload::{EntryUse, OffloadedFlow, Placement, Refusal, Removal, Target};
use gatun_p4_controller::{FlowId, Switches};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// The manager's target: a table that answers at once, or switches.
pub(super) enum ModelTarget {
    Table(Table),
    Switches(Switches<SwitchLink>, Rc<RefCell<Entries>>),
}

/// ID of an entry of either.
#[derive(Clone, Copy)]
pub(super) enum EntryId {
    Table(u64),
    Switches(FlowId),
}

fn of_table(ids: &[EntryId]) -> Vec<u64> {
    ids.iter().filter_map(|id| if let EntryId::Table(id) = id { Some(*id) } else { None }).collect()
}

fn of_switches(ids: &[EntryId]) -> Vec<FlowId> {
    ids.iter().filter_map(|id| if let EntryId::Switches(id) = id { Some(*id) } else { None }).collect()
}

impl Target for ModelTarget {
    type Id = EntryId;

    const ANSWERS_LATER: bool = true;

    const TRANSLATES_PINGS: bool = true;

    fn turn(&mut self, now: Duration) {
        if let ModelTarget::Switches(switches, _) = self {
            switches.turn(now);
        }
    }

    fn is_ready(&self) -> bool {
        match self {
            ModelTarget::Table(_) => true,
            ModelTarget::Switches(switches, _) => switches.is_ready(),
        }
    }

    fn capacity(&self) -> u32 {
        match self {
            ModelTarget::Table(table) => table.capacity(),
            ModelTarget::Switches(switches, _) => switches.capacity(),
        }
    }

    fn install(&mut self, flows: &[OffloadedFlow], placed: &mut Vec<Result<EntryId, Refusal>>) {
        match self {
            ModelTarget::Table(table) => {
                let mut results = Vec::new();
                table.install(flows, &mut results);
                placed.extend(results.into_iter().map(|result| result.map(EntryId::Table)));
            }
            ModelTarget::Switches(switches, _) => {
                let mut results = Vec::new();
                switches.install(flows, &mut results);
                placed.extend(results.into_iter().map(|result| result.map(EntryId::Switches)));
            }
        }
    }

    fn placed(&mut self, ids: &[EntryId], placed: &mut Vec<Placement>) {
        match self {
            ModelTarget::Table(table) => table.placed(&of_table(ids), placed),
            ModelTarget::Switches(switches, entries) => {
                let before = placed.len();
                switches.placed(&of_switches(ids), placed);
                let packets = |placement: &Placement| match placement {
                    Placement::Refused(_, used) => used.traffic.total().packets,
                    Placement::Installed | Placement::Waiting => 0,
                };
                entries.borrow_mut().taken += placed[before..].iter().map(packets).sum::<u64>();
            }
        }
    }

    fn remove(&mut self, ids: &[EntryId], removals: &mut Vec<Removal>) {
        match self {
            ModelTarget::Table(table) => table.remove(&of_table(ids), removals),
            ModelTarget::Switches(switches, entries) => {
                let before = removals.len();
                switches.remove(&of_switches(ids), removals);
                let packets = |removal: &Removal| match removal {
                    Removal::Removed(used) => used.traffic.total().packets,
                    Removal::Missing | Removal::Waiting => 0,
                };
                entries.borrow_mut().taken += removals[before..].iter().map(packets).sum::<u64>();
            }
        }
    }

    fn take_use(&mut self, ids: &[EntryId], used: &mut Vec<Option<EntryUse>>) {
        match self {
            ModelTarget::Table(table) => table.take_use(&of_table(ids), used),
            ModelTarget::Switches(switches, entries) => {
                let before = used.len();
                switches.take_use(&of_switches(ids), used);
                let packets = |used: &Option<EntryUse>| used.map_or(0, |used| used.traffic.total().packets);
                entries.borrow_mut().taken += used[before..].iter().map(packets).sum::<u64>();
            }
        }
    }

    fn entries(&mut self, each: &mut dyn FnMut(EntryId, &OffloadedFlow)) {
        match self {
            ModelTarget::Table(table) => table.entries(&mut |id, flow| each(EntryId::Table(id), flow)),
            ModelTarget::Switches(switches, _) => {
                switches.entries(&mut |id, flow| each(EntryId::Switches(id), flow));
            }
        }
    }

    fn set_path_mtu(&mut self, id: EntryId, mtu: Option<u16>) {
        if let (ModelTarget::Switches(switches, _), EntryId::Switches(id)) = (self, id) {
            switches.set_path_mtu(id, mtu);
        }
    }

    fn renew_lease(&mut self, time: Duration) {
        if let ModelTarget::Table(table) = self {
            table.renew_lease(time);
        }
    }
}
