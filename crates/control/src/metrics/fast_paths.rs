//! Metrics of the kernel fast path, and of P4 switches.

use super::kinds::{counter, gauge};
use super::read::{of_fastpath, of_fastpath_xdp, refused_by_kernel, seconds};
use super::{Metric, Samples, View};
use gatun_api::types::{Counter, FastPathState, OffloadSwitch, SwitchPhase};

const SWITCH: &[&str] = &["switch"];
const SWITCH_REASON: &[&str] = &["switch", "reason"];

/// Metrics of sessions outside the engines.
pub(super) const FAST_PATHS: &[Metric] = &[
    gauge(
        "fastpath_up",
        &[],
        |v, s| s.add(&[], u64::from(v.scrape.fastpath.state == FastPathState::On)),
        "1 if the kernel translates established sessions; 0 if `[fastpath]` is off, or if it does not work: `gatun show fastpath` has the reason.",
    ),
    gauge(
        "fastpath_wanted",
        &[],
        |v, s| s.add(&[], u64::from(v.scrape.fastpath.state != FastPathState::Off)),
        "1 if `[fastpath]` is on in the configuration.",
    ),
    counter(
        "fastpath_attached_again",
        &[],
        |v, s| s.add(&[], v.scrape.fastpath.attached_again),
        "Programs attached again after somebody had detached them, or after an interface had come back.",
    ),
    gauge(
        "fastpath_lease_seconds",
        &[],
        |v, s| s.add(&[], seconds(v.scrape.fastpath.lease_ms)),
        "Seconds for which the kernel translates without a renewal by the daemon.",
    ),
    gauge("fastpath_sessions", &[], |v, s| s.add(&[], v.scrape.fastpath.sessions), "Sessions in the kernel."),
    gauge(
        "fastpath_sessions_max",
        &[],
        |v, s| s.add(&[], v.scrape.fastpath.sessions_max),
        "Sessions that the kernel has room for.",
    ),
    counter(
        "fastpath_installed_sessions",
        &[],
        |v, s| s.add(&[], v.scrape.fastpath.installed),
        "Sessions given to the kernel.",
    ),
    counter(
        "fastpath_removed_sessions",
        &[],
        |v, s| s.add(&[], v.scrape.fastpath.removed),
        "Sessions removed from the kernel.",
    ),
    counter(
        "fastpath_refused_sessions",
        &["reason"],
        refused_by_kernel,
        "Sessions not given to the kernel: its table was `full`, or it refused for another reason (`gatun show fastpath` has the last one).",
    ),
    gauge(
        "fastpath_waiting_records",
        &[],
        |v, s| s.add(&[], v.scrape.fastpath.waiting_records),
        "Records of the engines about sessions that wait to be read.",
    ),
    counter(
        "fastpath_lost_records",
        &[],
        |v, s| s.add(&[], v.scrape.fastpath.lost_records),
        "Records of the engines about sessions that were lost because too many waited; the state was read again.",
    ),
    counter(
        "fastpath_packets",
        &["name", "reason"],
        of_fastpath,
        "Packets at the kernel fast path by instance and reason, since the kernel's tables were created: `hit` was translated in the kernel, `dropped` was dropped because the kernel refused to write to it. All others were passed to the device. Packets of no session in the kernel have an empty name.",
    ),
    counter(
        "fastpath_xdp_packets",
        &["name", "reason"],
        of_fastpath_xdp,
        "Packets at the network interfaces of `xdp` in `[fastpath]` by instance and reason, since the kernel's tables were created: `hit` was translated there, and is part of `gatun_fastpath_packets_total`. All others were passed to the network stack. Packets of no session in the kernel have an empty name.",
    ),
    counter(
        "fastpath_credited_packets",
        &[],
        |v, s| s.add(&[], v.total.engine.offloaded.packets),
        "Packets translated in the kernel or in P4 switches and credited to their sessions; part of the forwarded ones.",
    ),
    counter(
        "fastpath_credited_bytes",
        &[],
        |v, s| s.add(&[], v.total.engine.offloaded.bytes),
        "Bytes of these packets.",
    ),
    gauge(
        "offload_up",
        &[],
        |v, s| s.add(&[], u64::from(v.scrape.offload.state == FastPathState::On)),
        "1 if at least one P4 switch is in use; 0 without `[[offload]]`, or if none is: `gatun show offload` has the reason.",
    ),
    gauge(
        "offload_wanted",
        &[],
        |v, s| s.add(&[], u64::from(v.scrape.offload.state != FastPathState::Off)),
        "1 if the configuration has an `[[offload]]`.",
    ),
    gauge(
        "offload_sessions",
        &[],
        |v, s| s.add(&[], v.scrape.offload.sessions),
        "Sessions in the P4 switches.",
    ),
    gauge(
        "offload_sessions_max",
        &[],
        |v, s| s.add(&[], v.scrape.offload.sessions_max),
        "Sessions that the P4 switches have room for.",
    ),
    gauge(
        "offload_waiting_sessions",
        &[],
        |v, s| s.add(&[], v.scrape.offload.waiting),
        "Sessions that wait until the switches confirm their insertion or removal.",
    ),
    counter(
        "offload_installed_sessions",
        &[],
        |v, s| s.add(&[], v.scrape.offload.installed),
        "Sessions given to the P4 switches.",
    ),
    counter(
        "offload_removed_sessions",
        &[],
        |v, s| s.add(&[], v.scrape.offload.removed),
        "Sessions removed from the P4 switches.",
    ),
    counter(
        "offload_refused_sessions",
        &["reason"],
        |v, s| {
            s.add(&["full"], v.scrape.offload.refused_full);
            s.add(&["unready"], v.scrape.offload.refused_unready);
            s.add(&["other"], v.scrape.offload.refused_other);
        },
        "Sessions not given to the P4 switches: their tables were `full`, no switch was in use (`unready`), or a switch refused for another reason (`gatun show offload` has the last one).",
    ),
    counter(
        "offload_packets",
        &[],
        |v, s| s.add(&[], v.scrape.offload.packets),
        "Packets translated in the P4 switches and credited to their sessions; part of the forwarded ones.",
    ),
    counter(
        "offload_uncredited_packets",
        &[],
        |v, s| s.add(&[], v.scrape.offload.packets_uncredited),
        "Packets translated in the P4 switches whose session had ended before they were counted.",
    ),
    counter(
        "offload_lost_records",
        &[],
        |v, s| s.add(&[], v.scrape.offload.lost_records),
        "Records of the engines about sessions that were lost because too many waited; the state was read again.",
    ),
    gauge(
        "offload_switch_up",
        SWITCH,
        |v, s| by_switch(v, s, |switch| u64::from(switch.phase == SwitchPhase::Ready)),
        "1 if the switch is connected, has been read, and is in use.",
    ),
    gauge(
        "offload_switch_standby",
        SWITCH,
        |v, s| by_switch(v, s, |switch| u64::from(switch.phase == SwitchPhase::Standby)),
        "1 if another controller is the primary one of the switch. Gatun waits until that one has gone.",
    ),
    gauge(
        "offload_switch_sessions",
        SWITCH,
        |v, s| by_switch(v, s, |switch| switch.sessions),
        "Sessions in the switch.",
    ),
    gauge(
        "offload_switch_moving_sessions",
        SWITCH,
        |v, s| by_switch(v, s, |switch| switch.moving),
        "Sessions that are moving into the switch: their packets still go through Gatun while earlier ones are on their way through it, so that none is overtaken.",
    ),
    gauge(
        "offload_switch_unknown_sessions",
        SWITCH,
        |v, s| by_switch(v, s, |switch| switch.unknown),
        "Sessions that the switch may have, because it is not connected. Their ports stay reserved until it is, or until `gatun offload gone`.",
    ),
    counter(
        "offload_switch_refused_sessions",
        SWITCH,
        |v, s| by_switch(v, s, |switch| switch.refused),
        "Sessions that the switch has refused.",
    ),
    counter(
        "offload_switch_connections",
        SWITCH,
        |v, s| by_switch(v, s, |switch| switch.connections),
        "Connections to the switch.",
    ),
    counter(
        "offload_switch_to_controller_packets",
        SWITCH_REASON,
        |v, s| by_reason(v, s, |switch| &switch.to_controller),
        "Packets that the switch gave to Gatun by reason, since it has its program.",
    ),
    counter(
        "offload_switch_over_limit_packets",
        SWITCH_REASON,
        |v, s| by_reason(v, s, |switch| &switch.over_limit),
        "Packets for Gatun that the switch dropped by reason, because there were more than its limit for the reason.",
    ),
    counter(
        "offload_switch_dropped_packets",
        SWITCH_REASON,
        |v, s| by_reason(v, s, |switch| &switch.dropped),
        "Packets that the switch dropped by reason: to other MACs or of unknown VLANs (`foreign`), or to a port that does not exist (`no_port`). Gatun's echoes, which the switch has read, are among them (`echo`).",
    ),
    gauge(
        "offload_switch_next_hops",
        SWITCH,
        |v, s| by_switch(v, s, |switch| switch.next_hops),
        "Next hops that the switch knows.",
    ),
    gauge(
        "offload_switch_left_out",
        SWITCH,
        |v, s| by_switch(v, s, |switch| switch.left_out),
        "Routes and next hops that the switch has no room for. Gatun sends their packets.",
    ),
];

fn by_reason(v: &View<'_>, s: &mut Samples<'_>, counters: impl Fn(&OffloadSwitch) -> &Vec<Counter>) {
    for switch in &v.scrape.offload.switches {
        counters(switch).iter().for_each(|of| s.add(&[&switch.name, &of.name], of.value));
    }
}

fn by_switch(v: &View<'_>, s: &mut Samples<'_>, value: impl Fn(&OffloadSwitch) -> u64) {
    v.scrape.offload.switches.iter().for_each(|switch| s.add(&[&switch.name], value(switch)));
}
