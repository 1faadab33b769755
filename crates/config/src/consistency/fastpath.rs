//! Consistency of the kernel fast path with ports and instances.

use crate::config::Config;
use crate::problem::Problems;
use crate::sections::Sections;
use crate::sections::fastpath::{FastPath, RawFastPath};
use crate::sections::port::DeviceMode;

/// Settings with the instances that are excluded.
pub(super) fn settings(read: &Sections) -> FastPath {
    let Some(raw) = &read.fastpath else { return FastPath::default() };
    let of64 = read.nat64.iter().map(|instance| instance.fastpath);
    let stateful = of64.chain(read.nat44.iter().map(|instance| instance.fastpath));
    let excluded = left_out(stateful);
    let excluded_siit = left_out(read.siit.iter().map(|instance| instance.fastpath));
    FastPath { excluded, excluded_siit, ..raw.settings.clone() }
}

/// Numbers of the instances that are left out.
pub(super) fn left_out(all: impl Iterator<Item = bool>) -> Vec<u8> {
    (0..=u8::MAX).zip(all).filter(|(_, is_in)| !is_in).map(|(number, _)| number).collect()
}

/// Checks the network interfaces, and switches the fast path off, with a warning, where it has no effect.
pub(super) fn check(config: &mut Config, raw: Option<&RawFastPath>, problems: &mut Problems) {
    let Some(raw) = raw else { return };
    check_xdp(config, raw, problems);
    if !config.fastpath.kernel {
        return;
    }
    let why = if config.ports.iter().any(|port| port.ethernet.is_some()) {
        "the kernel does not see the packets of Ethernet ports"
    } else if config.ports.len() > 1 {
        "the kernel translates at one device only, and there are several ports"
    } else {
        return check_stop(config, raw, problems);
    };
    config.fastpath.kernel = false;
    problems.warn(
        raw.span.clone(),
        format!("[fastpath] has no effect: {why}"),
        "remove the section, or write `kernel = \"off\"`",
    );
}

/// Warns of sessions that are to stay in the kernel over a stop which takes their device away.
fn check_stop(config: &Config, raw: &RawFastPath, problems: &mut Problems) {
    let created = config.ports.iter().find(|port| port.mode == DeviceMode::Create);
    let Some(port) = created.filter(|_| config.fastpath.keeps_at_stop) else { return };
    problems.warn(
        raw.on_stop.clone(),
        format!(
            "`on_stop = \"keep\"`: Gatun creates {device}, and a stop by SIGTERM removes it: the kernel \
             translates nothing until the next start, which finds the sessions again",
            device = port.device
        ),
        "for a restart without loss, create the device yourself and write `mode = \"attach\"` in [[port]]",
    );
}

/// Refuses network interfaces that cannot have the XDP program.
fn check_xdp(config: &Config, raw: &RawFastPath, problems: &mut Problems) {
    for (number, name) in raw.xdp.iter().enumerate() {
        let (name, span) = (name.get_ref(), name.span());
        let port = config.ports.iter().find(|port| port.device == *name);
        let (why, fix) = match port.map(|port| port.ethernet.is_some()) {
            Some(true) => (
                "is a port of Gatun, which has an XDP program of its own",
                "remove it from `xdp`: Gatun translates all packets of such a port itself",
            ),
            Some(false) => ("is the TUN device", "write the network interfaces that packets come from"),
            None if raw.xdp[..number].iter().any(|earlier| earlier.get_ref() == name) => {
                ("is listed twice", "remove one of them")
            }
            None => continue,
        };
        problems.error(span, format!("`xdp`: {name} {why}"), fix);
    }
}
