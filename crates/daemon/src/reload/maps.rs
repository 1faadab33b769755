//! Static bindings and explicit address mappings: listed from the active plan, and changed as an edit of the
//! configuration's text or of its file of mappings. The result is applied like any other configuration.

use super::Reload;
use super::orders::NewText;
use gatun_api::types::{ConfigApplied, ConfigPlan, StaticMap};
use gatun_config::{Edited, Mapping, MappingChange, edit_mappings};
use gatun_control::configure::{
    ApplyOptions, MapCursor, MapsBody, MapsChange, OrderResult, RefusalKind, Refused,
};
use gatun_nat::Plan;
use gatun_nat::plan::{Eam, StaticBinding};
use std::net::{SocketAddrV4, SocketAddrV6};

impl Reload {
    /// Lists up to `limit` mappings, from a cursor on.
    pub(super) fn maps(
        &self,
        instance: Option<&str>,
        from: Option<MapCursor>,
        limit: usize,
    ) -> Result<OrderResult, Refused> {
        let revision = &self.running().revision;
        let plan = &self.settings.plan;
        if let Some(wanted) = instance
            && !names(plan).any(|name| name == wanted)
        {
            let hint = format!("instances: {}", names(plan).collect::<Vec<_>>().join(", "));
            return Err(Refused::new(RefusalKind::Unknown, format!("unknown instance `{wanted}`"), hint));
        }
        let at = match from {
            None => 0,
            Some(from) if from.revision == *revision => from.at,
            Some(_) => {
                let what = "the configuration has changed since the page before";
                return Err(Refused::new(RefusalKind::Conflict, what, "read the list from its beginning"));
            }
        };
        let mut all = mapped(plan).filter(|(name, _)| instance.is_none_or(|wanted| wanted == *name)).skip(at);
        let maps: Vec<_> = all.by_ref().take(limit).map(|(name, one)| one.told(name)).collect();
        let behind = at.saturating_add(maps.len());
        let next = all.next().map(|_| MapCursor { revision: revision.clone(), at: behind });
        Ok(OrderResult::Maps { maps, next })
    }

    /// Preview of the change.
    pub(super) fn plan_maps(&self, body: MapsBody) -> Result<ConfigPlan, Refused> {
        let Edited { file, text } = self.edited(body)?;
        Ok(self.plan(match &file {
            None => NewText::List(&text),
            Some(file) => NewText::Mappings(file, &text),
        }))
    }

    pub(super) fn change_maps(
        &mut self,
        mut instead: ApplyOptions,
        body: MapsBody,
    ) -> Result<ConfigApplied, Refused> {
        match instead.revision.is_empty() {
            // Without a revision, the request applies to any active configuration.
            true => instead.revision.clone_from(&self.running().revision),
            false => self.expect(&instead.revision)?,
        }
        let Edited { file, text } = self.edited(body)?;
        match &file {
            None => self.apply_text(&instead, NewText::List(&text)),
            Some(file) => self.apply_text(&instead, NewText::Mappings(file, &text)),
        }
    }

    /// Edits the text that contains the mappings.
    fn edited(&self, body: MapsBody) -> Result<Edited, Refused> {
        let running = self.running();
        if running.text.is_empty() {
            let what = "the configuration is too long to be edited here";
            let hint = "move its mappings to a file (`eam_file`), or edit it and reload";
            return Err(Refused::new(RefusalKind::Unusable, what, hint));
        }
        // Until a change is confirmed, the file of mappings differs from the active one.
        self.expect_confirmed()?;
        let (instance, change) = body.read()?;
        let change = match change {
            MapsChange::Replace(maps) => MappingChange::Replace(mappings(maps)),
            MapsChange::Edit { add, remove } => {
                MappingChange::Edit { add: mappings(add), remove: mappings(remove) }
            }
        };
        let edited = edit_mappings(&running.text, &running.file, instance.as_deref(), &change);
        edited.map_err(|not| Refused::new(RefusalKind::Unusable, not.what, not.instead))
    }
}

fn mappings(maps: Vec<StaticMap>) -> Vec<Mapping> {
    maps.into_iter().map(mapping).collect()
}

/// Converts a mapping of the API to one of the configuration.
pub fn mapping(map: StaticMap) -> Mapping {
    let StaticMap { instance: _, protocol, inside, outside } = map;
    Mapping { protocol: protocol.map(|protocol| protocol.word().to_owned()), inside, outside }
}

/// Mapping of the engine.
enum EngineMapping<'p> {
    Binding(&'p StaticBinding),
    Eam(&'p Eam),
}

impl EngineMapping<'_> {
    fn told(&self, instance: &str) -> StaticMap {
        match self {
            EngineMapping::Binding(one) => binding(instance, one),
            EngineMapping::Eam(eam) => StaticMap {
                instance: Some(instance.to_owned()),
                protocol: None,
                inside: prefix(eam.v6.addr, eam.v6.len, 128),
                outside: prefix(eam.v4.addr, eam.v4.len, 32),
            },
        }
    }
}

/// All mappings, each with its instance's name.
fn mapped(plan: &Plan) -> impl Iterator<Item = (&str, EngineMapping<'_>)> {
    let of_nat64 = plan.nat64.iter().flat_map(|i| i.static_bindings.iter().map(|one| (&i.name[..], one)));
    let of_nat44 = plan.nat44.iter().flat_map(|i| i.static_bindings.iter().map(|one| (&i.name[..], one)));
    let of_siit =
        plan.siit.iter().flat_map(|i| i.eamt.iter().map(|eam| (&i.name[..], EngineMapping::Eam(eam))));
    of_nat64.chain(of_nat44).map(|(name, one)| (name, EngineMapping::Binding(one))).chain(of_siit)
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

/// Formats a prefix; a single address has no length.
fn prefix(address: impl std::fmt::Display, len: u8, all: u8) -> String {
    if len == all { address.to_string() } else { format!("{address}/{len}") }
}
