//! Consistency of Ethernet ports with each other and with the host's addresses.

use crate::config::Config;
use crate::ethernet_host::Device;
use crate::problem::Problems;
use crate::sections::ethernet::Driver;
use crate::sections::port::Port;
use gatun_ether::{Ether, Limits, Mac};
use std::ops::Range;

/// MTU assumed for interfaces until they are opened.
const MTU: u32 = 1500;

/// Checks the ports. `spans` are theirs.
pub(super) fn check(config: &Config, spans: &[Range<usize>], problems: &mut Problems) {
    let span = |port: usize| spans.get(port).cloned().unwrap_or(0..0);
    if config.ports.iter().all(|port| port.ethernet.is_none()) {
        return;
    }
    if let Some(other) = config.ports.iter().position(|port| port.ethernet.is_none()) {
        let what = "TUN devices and Ethernet ports cannot be mixed: packets could not pass between them";
        let instead = "write `backend = \"xdp\"` or \"dpdk\" for all ports, or run two daemons";
        problems.error(span(other), what, instead);
        return;
    }
    let dpdk = config.ports.first().is_some_and(is_dpdk);
    if let Some(other) = config.ports.iter().position(|port| is_dpdk(port) != dpdk) {
        let what = "AF_XDP and DPDK ports cannot be mixed: packets could not pass between them";
        problems.error(span(other), what, "write the same `backend` for all ports, or run two daemons");
        return;
    }
    let queues = config.ports.first().map_or(1, |port| port.queues.unwrap_or(1));
    if let Some(other) = config.ports.iter().position(|port| port.queues.unwrap_or(1) != queues) {
        let what = format!("the number of queues differs from the first port's {queues}");
        problems.error(span(other), what, "write the same `queues` for all ports: a worker has one of each");
    }
    let device = |port: &Port| Device { number: config.device_number(&port.device), mac: MAC, mtu: MTU };
    let host = crate::host(&config.ports, &config.routes(), device, 1, 0);
    let Err(found) = Ether::new(&host, &Limits::default(), [0; 4]) else { return };
    for problem in found {
        let port = config.ports.iter().position(|port| port.name == problem.port);
        problems.error(port.map_or(0..0, span), problem.what, problem.fix);
    }
}

fn is_dpdk(port: &Port) -> bool {
    port.ethernet.as_ref().is_some_and(|ethernet| ethernet.driver == Driver::Dpdk)
}

/// Checks that a DPDK port exists if `[dpdk]` does. `span` is that of `[dpdk]`.
pub(super) fn check_dpdk(config: &Config, span: Option<Range<usize>>, problems: &mut Problems) {
    let Some(span) = span else { return };
    if !config.ports.iter().any(is_dpdk) {
        let what = "[dpdk] has no effect: no port has `backend = \"dpdk\"`";
        problems.error(span, what, "remove the section, or write `backend = \"dpdk\"` in [[port]]");
    }
}

/// Placeholder for the interface's MAC, which is not known yet.
const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
