//! The plain forwarder, the floor of every comparison: everything that comes to one interface leaves by the other, to the MAC
//! address that its cable's other end has.

use gatun_io::{RxError, Stats, TxError};
use gatun_io_ether::Frames as _;
use gatun_io_xdp::{Entry, Mode, PortConfig, Whose, Xdp, XdpConfig};
use gatun_traffic::{POOL6, SERVERS, SERVERS_LEN};
use signal_hook::consts::SIGTERM;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What it says when it is ready.
pub(crate) const READY: &str = "forwarding";

/// Forwards until SIGTERM, then tells what it could not.
pub(crate) fn run(a: &str, b: &str) -> anyhow::Result<()> {
    let over = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTERM, Arc::clone(&over))?;
    let config = XdpConfig {
        ports: [a, b].map(|interface| PortConfig { interface: interface.into(), mode: Mode::Auto }).into(),
        queues: 1,
        // Not what a host says to all on its link.
        entries: [
            Entry::To6(POOL6, 96),
            Entry::To6(Ipv6Addr::new(0x2001, 0xdb8, 0x8000, 0, 0, 0, 0, 0), 33),
            Entry::To4(SERVERS, SERVERS_LEN),
            Entry::To4(Ipv4Addr::new(100, 64, 0, 0), 10),
        ]
        .map(|entry| (entry, Whose::Ours))
        .into(),
    };
    let mut xdp = Xdp::open(&config)?;
    let mut ports = xdp.workers.pop().ok_or_else(|| anyhow::anyhow!("no worker"))?;
    eprintln!("{READY}");
    gatun_io_ether::forward(&mut ports, || !over.load(Ordering::Relaxed))?;
    tell(&ports.stats());
    Ok(())
}

fn tell(stats: &Stats) {
    let rx = RxError::ALL.iter().map(|kind| (kind.name(), stats.rx_errors[*kind as usize]));
    let tx = TxError::ALL.iter().map(|kind| (kind.name(), stats.tx_errors[*kind as usize]));
    for (name, count) in rx.chain(tx).filter(|(_, count)| *count > 0) {
        eprintln!("{name} {count}");
    }
}

/// Reads what a forwarder told at its end.
pub(crate) fn read(said: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let (name, count) = line.split_once(' ')?;
        Some((name.to_owned(), count.parse().ok()?))
    };
    said.lines().filter_map(line).collect()
}
