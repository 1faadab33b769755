//! Ports that are devices of DPDK.

use super::ethernet::Backends;
use super::ethernet::live::LiveEthernet;
use super::port_settings::DpdkPorts;
use super::{Event, privileges};
use anyhow::{Context as _, anyhow};
use gatun_config::Port;
use gatun_io_dpdk::{Dpdk, Guard, Opened};
use std::sync::mpsc::{Receiver, Sender};

/// Opens the devices, begins to watch their links, and makes a backend for each worker; with a line for each device. The
/// guard is to be kept until the workers have ended.
pub(super) fn open(
    ports: &DpdkPorts,
    user: Option<privileges::User>,
    events: &Sender<Event>,
) -> anyhow::Result<(Backends, Vec<String>, Guard, LiveEthernet)> {
    let has_cards = ports.has_cards();
    let rights = move || match has_cards {
        true => Ok(()),
        false => privileges::keep_for_packets(user.as_ref()).map_err(|error| format!("{error:#}")),
    };
    let Dpdk { workers, opened, huge_pages, events: links, others, guard } =
        Dpdk::open(&ports.config, rights).context("no device to work on")?;
    // What else the daemon does would take a worker's processor from it for as long as it pleases.
    others.pin_thread().context("the processors of the daemon's other threads")?;
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
        said.push("packet buffers are not on huge pages, and cost more than they would there: see [dpdk] in the configuration's reference".to_owned());
    }
    let devices: Vec<_> = opened.iter().map(Opened::device).collect();
    let (backends, handovers) = super::ethernet::backends(workers, &devices, ethers)?;
    let behind = |port: &Port| (port.device.clone(), device(port));
    let live = LiveEthernet {
        devices: ports.hosts.ports.iter().map(behind).collect(),
        handovers,
        #[cfg(feature = "xdp")]
        program: None,
    };
    watch(links, events.clone())?;
    Ok((backends, said, guard, live))
}

fn describe(opened: &Opened, queues: usize) -> String {
    let Opened { name, driver, mtu, up, rss, .. } = opened;
    let queues = match (queues, rss) {
        (1, _) => "one queue".to_owned(),
        (n, true) => format!("{n} queues, packets spread by their addresses"),
        (n, false) => format!("{n} queues"),
    };
    let link = if *up { "" } else { "; its link is down, or its peer not there yet" };
    format!("device {name}: driver {driver}, {queues}, MTU {mtu}{link}")
}

/// Sends an event whenever a link changes, from now on.
fn watch(links: Receiver<gatun_io_dpdk::LinkEvent>, events: Sender<Event>) -> anyhow::Result<()> {
    use gatun_io_dpdk::LinkEvent as Link;
    let body = move || {
        for event in links {
            let what = match event {
                Link::Down(name) => format!(
                    "device {name}: its link is down, or its peer gone: no packet crosses until it is back, and sessions live on"
                ),
                Link::Up(name) => format!("device {name}: its link is up"),
            };
            if events.send(Event::Line(what)).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("links".into()).spawn(body);
    thread.map(drop).map_err(|error| anyhow!("no thread to tell of links: {error}"))
}
