//! Consistency of P4 switches with ports and instances.

use super::fastpath::left_out;
use crate::config::Config;
use crate::problem::Problems;
use crate::sections::Sections;
use crate::sections::offload::{Offload, OffloadMtus, RawOffload, SWITCHES_MAX};
use std::ops::Range;

/// Settings with the instances that are excluded. `None` without the section.
pub(super) fn settings(read: &Sections, problems: &mut Problems) -> Option<Offload> {
    let raw = read.offloads.first()?;
    if let Some(second) = read.offloads.get(1) {
        let what = "more than one [[offload]]: all switches of a daemon have the same sessions";
        problems.error(second.span.clone(), what, "list all of them in the `switches` of one section");
    }
    check_switches(raw, problems);
    let participants = read.nat64.iter().map(|instance| instance.offload);
    let participants = participants.chain(read.nat44.iter().map(|instance| instance.offload));
    let excluded_siit = left_out(read.siit.iter().map(|instance| instance.offload));
    let of64 = read.nat64.iter().map(|instance| &instance.settings);
    let tos = of64.clone().map(|settings| [settings.tos_6to4, settings.traffic_class_4to6]).collect();
    let mtu4 = of64.clone().map(|settings| settings.mtu4).chain(read.nat44.iter().map(|i| i.mtu));
    let smallest = |all: &mut dyn Iterator<Item = u32>| all.min().unwrap_or(1500);
    let mtus = OffloadMtus {
        mtu4: smallest(&mut mtu4.into_iter()),
        mtu6: smallest(&mut of64.clone().map(|settings| settings.mtu6)),
        mtu6_without_df: smallest(&mut of64.map(|settings| settings.lowest_ipv6_mtu)).max(1280),
    };
    let name = raw.name.as_ref().map_or_else(|| "p4".to_owned(), |name| name.get_ref().clone());
    Some(Offload { name, mtus, excluded: left_out(participants), excluded_siit, tos, ..raw.offload.clone() })
}

fn check_switches(raw: &RawOffload, problems: &mut Problems) {
    if let Some(switch) = raw.switches.get(SWITCHES_MAX) {
        let what = format!("more than {SWITCHES_MAX} switches");
        problems.error(switch.span(), what, "remove some: each of them has all sessions");
    }
    for (number, switch) in raw.switches.iter().enumerate() {
        let earlier = || raw.switches[..number].iter().map(|earlier| earlier.get_ref());
        let (name, device) = (&switch.get_ref().name, (switch.get_ref().address, switch.get_ref().device_id));
        let what = if earlier().any(|of| of.name == *name) {
            format!("`switches`: the name \"{name}\" is taken already")
        } else if earlier().any(|of| (of.address, of.device_id) == device) {
            format!("`switches`: \"{name}\" is the device of another switch in the list")
        } else {
            continue;
        };
        problems.error(switch.span(), what, "write each switch once, with a name of its own");
    }
}

/// Checks that each switch has ports. `span` is that of the section, `ports` those of the ports.
pub(super) fn check(
    config: &Config,
    span: Option<Range<usize>>,
    ports: &[Range<usize>],
    problems: &mut Problems,
) {
    let span_of = |port: usize| ports.get(port).cloned().unwrap_or(0..0);
    let switches = config.offload.as_ref().map_or(&[][..], |offload| &offload.switches);
    let of = |port: &crate::Port| port.ethernet.as_ref().and_then(|ethernet| ethernet.switch.clone());
    for (number, port) in config.ports.iter().enumerate() {
        let on_switch = port.ethernet.as_ref().is_some_and(|ethernet| ethernet.switch_port.is_some());
        match of(port) {
            Some(name) if !switches.iter().any(|switch| switch.name == name) => {
                let what = format!("`switch`: [[offload]] has no switch \"{name}\"");
                let names: Vec<&str> = switches.iter().map(|switch| &*switch.name).collect();
                let instead = match names.is_empty() {
                    true => "add a section [[offload]], or remove `switch`".to_owned(),
                    false => format!("write one of these: {}", names.join(", ")),
                };
                problems.error(span_of(number), what, instead);
            }
            None if on_switch && switches.len() > 1 => {
                let what = "this port does not say which of the switches it belongs to";
                let instead = format!("write, for example, `switch = \"{}\"`", switches[0].name);
                problems.error(span_of(number), what, instead);
            }
            _ => {}
        }
    }
    let Some(span) = span else { return };
    for (number, switch) in switches.iter().enumerate() {
        let is_its_port = |port: &crate::Port| {
            let is_named = of(port).map_or(switches.len() == 1, |name| name == switch.name);
            is_named && port.ethernet.as_ref().is_some_and(|ethernet| ethernet.switch_port.is_some())
        };
        if !config.ports.iter().any(is_its_port) && number < SWITCHES_MAX {
            let what = format!("no [[port]] is a port of the switch \"{}\"", switch.name);
            let instead = "write `switch_port = 1` in a [[port]] with `backend = \"dpdk\"`, whose `device` is \
                           connected to the switch's port for its controller";
            problems.error(span.clone(), what, instead);
        }
    }
}
