//! Mappings of the configuration: static bindings and explicit address mappings, listed from what runs, and changed as an
//! edit of its text, by the same way as any other change.

use super::Reload;
use gatun_api::types::{ConfigApplied, StaticMap};
use gatun_config::{Mapping, NotEdited, add_mapping, remove_mapping};
use gatun_control::configure::{Done, Instead, MapCursor, Refused, Why};
use gatun_nat::Plan;
use gatun_nat::plan::{Eam, StaticBinding};
use std::net::{SocketAddrV4, SocketAddrV6};

type Edit = fn(&str, &Mapping) -> Result<String, NotEdited>;

impl Reload {
    /// Some of them, from a place on.
    pub(super) fn maps(
        &self,
        instance: Option<&str>,
        from: Option<MapCursor>,
        limit: usize,
    ) -> Result<Done, Refused> {
        let revision = &self.running().revision;
        let plan = &self.settings.plan;
        if let Some(wanted) = instance
            && !names(plan).any(|name| name == wanted)
        {
            let hint = format!("there are {}", names(plan).collect::<Vec<_>>().join(", "));
            return Err(Refused::new(Why::Unknown, format!("there is no instance '{wanted}'"), hint));
        }
        let at = match from {
            None => 0,
            Some(from) if from.revision == *revision => from.at,
            Some(_) => {
                let what = "the configuration has changed since the page before";
                return Err(Refused::new(Why::Conflict, what, "read the list from its beginning"));
            }
        };
        let mut all = mapped(plan).filter(|(name, _)| instance.is_none_or(|wanted| wanted == *name)).skip(at);
        let maps: Vec<_> = all.by_ref().take(limit).map(|(name, one)| one.told(name)).collect();
        let behind = at.saturating_add(maps.len());
        let next = all.next().map(|_| MapCursor { revision: revision.clone(), at: behind });
        Ok(Done::Maps { maps, next })
    }

    pub(super) fn add_map(&mut self, instead: Instead, map: StaticMap) -> Result<ConfigApplied, Refused> {
        self.edit(instead, map, add_mapping)
    }

    pub(super) fn remove_map(&mut self, instead: Instead, map: StaticMap) -> Result<ConfigApplied, Refused> {
        self.edit(instead, map, remove_mapping)
    }

    fn edit(&mut self, mut instead: Instead, map: StaticMap, edit: Edit) -> Result<ConfigApplied, Refused> {
        let running = self.running();
        if running.text.is_empty() {
            let hint = "edit the file, and reload it";
            return Err(Refused::new(Why::Unusable, "the configuration is too long to be edited here", hint));
        }
        if instead.revision.is_empty() {
            // An edit of a line asks for no more than that the line can be edited.
            instead.revision.clone_from(&running.revision);
        }
        let text = edit(&running.text, &mapping(map));
        let text = text.map_err(|not| Refused::new(Why::Unusable, not.what, not.instead))?;
        self.apply_text(&instead, &text)
    }
}

/// The same for the editor.
pub fn mapping(map: StaticMap) -> Mapping {
    let StaticMap { instance, protocol, inside, outside } = map;
    Mapping { instance, protocol: protocol.map(|protocol| protocol.word().to_owned()), inside, outside }
}

/// A mapping as the engine has it.
enum Mapped<'p> {
    Binding(&'p StaticBinding),
    Eam(&'p Eam),
}

impl Mapped<'_> {
    fn told(&self, instance: &str) -> StaticMap {
        match self {
            Mapped::Binding(one) => binding(instance, one),
            Mapped::Eam(eam) => StaticMap {
                instance: Some(instance.to_owned()),
                protocol: None,
                inside: prefix(eam.v6.addr, eam.v6.len, 128),
                outside: prefix(eam.v4.addr, eam.v4.len, 32),
            },
        }
    }
}

/// All that there are, each with its instance's name.
fn mapped(plan: &Plan) -> impl Iterator<Item = (&str, Mapped<'_>)> {
    let of_nat64 = plan.nat64.iter().flat_map(|i| i.static_bindings.iter().map(|one| (&i.name[..], one)));
    let of_nat44 = plan.nat44.iter().flat_map(|i| i.static_bindings.iter().map(|one| (&i.name[..], one)));
    let of_siit = plan.siit.iter().flat_map(|i| i.eamt.iter().map(|eam| (&i.name[..], Mapped::Eam(eam))));
    of_nat64.chain(of_nat44).map(|(name, one)| (name, Mapped::Binding(one))).chain(of_siit)
}

fn names(plan: &Plan) -> impl Iterator<Item = &str> {
    let stateful = plan.nat64.iter().map(|i| &i.name).chain(plan.nat44.iter().map(|i| &i.name));
    stateful.chain(plan.siit.iter().map(|i| &i.name)).map(String::as_str)
}

fn binding(instance: &str, one: &StaticBinding) -> StaticMap {
    let ((inside, inside_port), (outside, outside_port)) = (one.inside, one.outside);
    StaticMap {
        instance: Some(instance.to_owned()),
        protocol: Some(gatun_control::protocol(one.transport)),
        inside: match inside.to_ipv4_mapped() {
            Some(inside) => SocketAddrV4::new(inside, inside_port).to_string(),
            None => SocketAddrV6::new(inside, inside_port, 0, 0).to_string(),
        },
        outside: SocketAddrV4::new(outside, outside_port).to_string(),
    }
}

/// Without the length where it is one address.
fn prefix(address: impl std::fmt::Display, len: u8, all: u8) -> String {
    if len == all { address.to_string() } else { format!("{address}/{len}") }
}
