//! Ports on DPDK devices.

use super::down_devices::DownDevices;
use super::ethernet::Backends;
use super::ethernet::live::LiveEthernet;
use super::port_settings::DpdkPorts;
use super::{Event, privileges};
use anyhow::{Context as _, anyhow};
use gatun_config::Port;
use gatun_io_dpdk::{Dpdk, Guard, Opened};
use std::sync::mpsc::{Receiver, Sender};

/// Opens the devices, starts the thread that reports their links, and creates a backend for each worker.
/// Returns these with log lines, and the guard to keep until the workers have ended.
pub(super) fn open(
    ports: &DpdkPorts,
    user: Option<privileges::User>,
    (events, down): (&Sender<Event>, &DownDevices),
) -> anyhow::Result<(Backends, Vec<String>, Guard, LiveEthernet)> {
    let has_cards = ports.has_cards();
    let rights = move || match has_cards {
        true => Ok(()),
        false => privileges::keep_for_packets(user.as_ref()).map_err(|error| format!("{error:#}")),
    };
    let Dpdk { workers, opened, huge_pages, events: links, others, guard } =
        Dpdk::open(&ports.config, rights).context("cannot open the devices")?;
    // Other threads of the daemon must not take processor time from a worker.
    others.pin_thread().context("cannot pin the daemon's other threads")?;
    let device = |port: &Port| ports.device(&opened, port);
    let ethers = ports.hosts.ethers(workers.len(), device, |_| Ok(()))?;
    let mut said: Vec<String> = opened
        .iter()
        .flat_map(|opened| {
            let small = ports.hosts.small_mtu(&format!("device {}", opened.name), opened.mtu.into());
            [Some(describe(opened, workers.len())), small]
        })
        .flatten()
        .collect();
    if !huge_pages {
        said.push("packet buffers are not on huge pages, which makes them slower: see [dpdk] in the configuration reference".to_owned());
    }
    let devices: Vec<_> = opened.iter().map(Opened::device).collect();
    let switch_ports = ports.hosts.switch_ports(device);
    let (backends, handovers) = super::ethernet::backends(workers, &devices, &switch_ports, ethers)?;
    let behind = |port: &Port| (port.device.clone(), device(port));
    let live = LiveEthernet {
        devices: ports.hosts.ports.iter().map(behind).collect(),
        handovers,
        #[cfg(feature = "xdp")]
        program: None,
    };
    opened.iter().for_each(|opened| down.set(&opened.name, opened.up));
    watch(links, events.clone(), down.clone())?;
    Ok((backends, said, guard, live))
}

fn describe(opened: &Opened, queues: usize) -> String {
    let Opened { name, driver, mtu, up, rss, .. } = opened;
    let queues = match (queues, rss) {
        (1, _) => "one queue".to_owned(),
        (n, true) => format!("{n} queues, packets spread by their addresses"),
        (n, false) => format!("{n} queues"),
    };
    let link = if *up { "" } else { "; link is down, or the peer is missing" };
    format!("device {name}: driver {driver}, {queues}, MTU {mtu}{link}")
}

/// Starts the thread that reports link changes.
fn watch(
    links: Receiver<gatun_io_dpdk::LinkEvent>,
    events: Sender<Event>,
    down: DownDevices,
) -> anyhow::Result<()> {
    use gatun_io_dpdk::LinkEvent as Link;
    let body = move || {
        for event in links {
            let (Link::Down(name) | Link::Up(name)) = &event;
            down.set(name, matches!(event, Link::Up(_)));
            let what = match event {
                Link::Down(name) => format!(
                    "device {name}: link is down, or the peer is gone; no packets pass until it is back. Sessions continue"
                ),
                Link::Up(name) => format!("device {name}: link is up"),
            };
            if events.send(Event::Line(what)).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("links".into()).spawn(body);
    thread.map(drop).map_err(|error| anyhow!("cannot start the thread that reports links: {error}"))
}
