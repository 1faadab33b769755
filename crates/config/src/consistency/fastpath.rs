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
    let all = of64.chain(read.nat44.iter().map(|instance| instance.fastpath));
    let excluded = (0..=u8::MAX).zip(all).filter(|(_, is_in)| !is_in).map(|(number, _)| number).collect();
    (FastPath { excluded, ..raw.settings.clone() }, Some(raw.span.clone()))
}

/// Switches the fast path off, with a warning, where it has no effect.
pub(super) fn check(config: &mut Config, span: Option<Range<usize>>, problems: &mut Problems) {
    let Some(span) = span.filter(|_| config.fastpath.kernel) else { return };
    let why = if config.ports.iter().any(|port| port.ethernet.is_some()) {
        "the kernel does not see the packets of Ethernet ports"
    } else if !config.plan.is_stateful() {
        "the kernel translates stateful sessions only, and there is no [[nat64]] or [[nat44]]"
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
