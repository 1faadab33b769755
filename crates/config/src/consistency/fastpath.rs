//! Consistency of the kernel fast path with ports and instances.

use crate::config::Config;
use crate::problem::Problems;
use crate::sections::Sections;
use crate::sections::fastpath::FastPath;
use std::ops::Range;

/// Settings with the instances that are excluded, and the place of the section.
pub(super) fn settings(read: &Sections) -> (FastPath, Option<Range<usize>>) {
    let Some(raw) = &read.fastpath else { return (FastPath::default(), None) };
    let of64 = read.nat64.iter().map(|instance| instance.fastpath);
    let stateful = of64.chain(read.nat44.iter().map(|instance| instance.fastpath));
    let excluded = left_out(stateful);
    let excluded_siit = left_out(read.siit.iter().map(|instance| instance.fastpath));
    (FastPath { excluded, excluded_siit, ..raw.settings.clone() }, Some(raw.span.clone()))
}

/// Numbers of the instances that are left out.
fn left_out(all: impl Iterator<Item = bool>) -> Vec<u8> {
    (0..=u8::MAX).zip(all).filter(|(_, is_in)| !is_in).map(|(number, _)| number).collect()
}

/// Switches the fast path off, with a warning, where it has no effect.
pub(super) fn check(config: &mut Config, span: Option<Range<usize>>, problems: &mut Problems) {
    let Some(span) = span.filter(|_| config.fastpath.kernel) else { return };
    let why = if config.ports.iter().any(|port| port.ethernet.is_some()) {
        "the kernel does not see the packets of Ethernet ports"
    } else if config.ports.len() > 1 {
        "the kernel translates at one device only, and there are several ports"
    } else {
        return;
    };
    config.fastpath.kernel = false;
    problems.warn(
        span,
        format!("[fastpath] has no effect: {why}"),
        "remove the section, or write `kernel = \"off\"`",
    );
}
