//! The plain forwarder, the baseline of every comparison: it sends everything from one interface to the
//! other, to the MAC address at the other end of that cable.

use gatun_io::{RxError, Stats, TxError};
use gatun_io_ether::Frames as _;
use gatun_io_xdp::{Mode, Owner, PortConfig, PrefixRule, Xdp, XdpConfig};
use gatun_testkit::traffic::{POOL6, SERVERS, SERVERS_LEN};
use signal_hook::consts::SIGTERM;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(feature = "dpdk")]
use std::time::{Duration, Instant};

/// Time limit for a link to come up.
#[cfg(feature = "dpdk")]
const LINK_MAX: Duration = Duration::from_secs(20);
/// Label before the time per packet in the output.
const BUSY_NS_EACH: &str = "busy_ns_each";
/// Line that it prints when it is ready.
pub(crate) const READY: &str = "forwarding";

/// Forwards until SIGTERM, then prints what it could not forward.
pub(crate) fn run(a: &str, b: &str) -> anyhow::Result<()> {
    let over = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTERM, Arc::clone(&over))?;
    let config = XdpConfig {
        ports: [a, b].map(|interface| PortConfig { interface: interface.into(), mode: Mode::Auto }).into(),
        queues: 1,
        // Excludes the hosts' multicasts.
        entries: [
            PrefixRule::To6(POOL6, 96),
            PrefixRule::To6(Ipv6Addr::new(0x2001, 0xdb8, 0x8000, 0, 0, 0, 0, 0), 33),
            PrefixRule::To4(SERVERS, SERVERS_LEN),
            PrefixRule::To4(Ipv4Addr::new(100, 64, 0, 0), 10),
        ]
        .map(|entry| (entry, Owner::Gatun))
        .into(),
    };
    let mut xdp = Xdp::open(&config)?;
    let mut ports = xdp.workers.pop().ok_or_else(|| anyhow::anyhow!("no worker"))?;
    eprintln!("{READY}");
    gatun_io_ether::forward(&mut ports, |_| !over.load(Ordering::Relaxed))?;
    tell(&ports.stats());
    Ok(())
}

/// Forwards between two DPDK devices on one processor: Gatun's backend without an engine. Also prints the
/// processor time per packet.
#[cfg(feature = "dpdk")]
pub(crate) fn run_dpdk(devices: [&str; 2], mtu: Option<u16>, core: u16) -> anyhow::Result<()> {
    use gatun_io_dpdk::{DeviceConfig, Dpdk, DpdkConfig, EalConfig, HugePages};
    let over = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTERM, Arc::clone(&over))?;
    let devices = devices.map(|device| DeviceConfig { device: device.into(), mtu });
    let eal = EalConfig { huge_pages: HugePages::Auto, cores: vec![core], arguments: Vec::new() };
    let mut dpdk = Dpdk::open(&DpdkConfig { devices: devices.into(), queues: 1, eal }, || Ok(()))?;
    let mut ports = dpdk.workers.pop().ok_or_else(|| anyhow::anyhow!("no worker"))?;
    for _ in dpdk.opened.iter().filter(|device| !device.up) {
        // A packet that came before both links are up could not be sent on.
        dpdk.events.recv_timeout(LINK_MAX)?;
    }
    eprintln!("{READY}");
    let (clock, mut since, mut busy, mut packets) = (Instant::now(), Duration::ZERO, Duration::ZERO, 0);
    gatun_io_ether::forward(&mut ports, |received| {
        let now = clock.elapsed();
        if received > 0 {
            busy += now - since;
            packets += received;
        }
        since = now;
        !over.load(Ordering::Relaxed)
    })?;
    tell(&ports.stats());
    eprintln!("{BUSY_NS_EACH} {}", busy.as_nanos() as f64 / packets.max(1) as f64);
    Ok(())
}

fn tell(stats: &Stats) {
    let rx = RxError::ALL.iter().map(|kind| (kind.name(), stats.rx_errors[*kind as usize]));
    let tx = TxError::ALL.iter().map(|kind| (kind.name(), stats.tx_errors[*kind as usize]));
    for (name, count) in rx.chain(tx).filter(|(_, count)| *count > 0) {
        eprintln!("{name} {count}");
    }
}

/// Output of a forwarder at its end.
pub(crate) struct ForwarderOutput {
    /// Packets that it could not forward, by reason.
    pub(crate) drops: BTreeMap<String, u64>,
    /// Time of the turns with packets, divided by the packets, ns; on DPDK only.
    pub(crate) busy_ns_each: Option<f64>,
}

impl ForwarderOutput {
    pub(crate) fn read(said: &str) -> ForwarderOutput {
        let words = || said.lines().filter_map(|line| line.split_once(' '));
        let drops = words().filter_map(|(name, count)| Some((name.to_owned(), count.parse().ok()?)));
        let busy = words().find(|(name, _)| *name == BUSY_NS_EACH);
        ForwarderOutput {
            drops: drops.filter(|(name, _)| name != BUSY_NS_EACH).collect(),
            busy_ns_each: busy.and_then(|(_, ns)| ns.parse().ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_has_drops_and_the_time_per_packet() {
        let told =
            ForwarderOutput::read("EAL: Detected CPU lcores: 2\nforwarding\ntx_full 12\nbusy_ns_each 61.5\n");
        assert_eq!(told.drops.into_iter().collect::<Vec<_>>(), [("tx_full".to_owned(), 12)]);
        assert_eq!(told.busy_ns_each, Some(61.5));
        assert_eq!(ForwarderOutput::read("rx_other 1\nbusy_ns_each 61\n").drops.len(), 1);
    }
}
