//! Process of the helper: start and main loop.

use super::announced::RouteAnnouncer;
use super::channel::Channel;
#[cfg(feature = "xdp")]
use super::interfaces;
use super::messages;
use super::programs::{AttachedPrograms, Names};
use super::protocol::{ARGUMENT, DEVICES_MAX, PREFIXES_MAX, Report, Request, TABLES_MAX, decode};
use crate::privileges::{self, User};
use crate::sandbox::{Calls, Sandbox};
use anyhow::{Context as _, anyhow, bail};
use gatun_io_tun::{LinkEvent, LinkWatch, Prefix, WatchEvent, WatchedDevice};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::sync::Arc;

/// Returns true if the daemon has started this process as its network helper.
pub fn is_network_helper() -> bool {
    std::env::args_os().nth(1).is_some_and(|argument| argument == ARGUMENT)
}

/// Runs the network helper of the daemon at the other end of standard input, until the daemon ends.
pub fn serve_as_network_helper() -> ExitCode {
    let channel = std::io::stdin().as_fd().try_clone_to_owned().and_then(Channel::inherited);
    let Ok(channel) = channel else {
        eprintln!("gatun: `gatun run` starts this command; it is not for manual use");
        return ExitCode::FAILURE;
    };
    match start(&channel).and_then(|work| work.serve(&channel)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If the daemon has ended, nobody reads the report.
            let _ = channel.send(&Report::Failed(messages::shortened(format!("{error:#}"))));
            ExitCode::FAILURE
        }
    }
}

/// Ignores signals for the daemon that reach all processes of its terminal or control group. The helper ends
/// when the daemon ends.
fn outlive_signals() -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
    for signal in [SIGHUP, SIGINT, SIGTERM, SIGUSR1] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    Ok(())
}

/// Addresses and routes, collected from several messages.
#[derive(Default)]
struct Prefixes {
    addresses: Vec<Prefix>,
    routes: Vec<Prefix>,
}

impl Prefixes {
    fn add(&mut self, is_routes: bool, prefixes: &[(std::net::IpAddr, u8)]) -> anyhow::Result<()> {
        let prefixes = decode(prefixes).ok_or_else(|| anyhow!("a prefix length is too large"))?;
        if self.addresses.len() + self.routes.len() + prefixes.len() > PREFIXES_MAX {
            bail!("more than {PREFIXES_MAX} addresses and routes of one device");
        }
        let list = if is_routes { &mut self.routes } else { &mut self.addresses };
        list.extend(prefixes);
        Ok(())
    }
}

/// Messages of the daemon before `Start`.
#[derive(Default)]
struct Plan {
    user: Option<User>,
    sandboxed: bool,
    devices: Vec<(WatchedDevice, Prefixes)>,
    announcer: Option<RouteAnnouncer>,
    programs: Option<AttachedPrograms>,
    #[cfg(feature = "xdp")]
    interfaces: Option<gatun_io_xdp::InterfaceHelper>,
}

impl Plan {
    fn receive(channel: &Channel) -> anyhow::Result<Plan> {
        let first = channel.receive()?.context("the daemon has ended")?.0;
        let Request::Begin { user, sandboxed } = first else { bail!("the first message is not Begin") };
        let user = user.map(|(uid, gid)| User::new(uid, gid));
        let mut plan = Plan { user, sandboxed, ..Plan::default() };
        loop {
            let (request, files) = channel.receive()?.context("the daemon has ended")?;
            match request {
                Request::Device { name, precede_routes } if plan.devices.len() < DEVICES_MAX => {
                    let device =
                        WatchedDevice { name, addresses: Vec::new(), routes: Vec::new(), precede_routes };
                    plan.devices.push((device, Prefixes::default()));
                }
                Request::Prefixes { device, routes, prefixes } => {
                    let (_, list) = plan.devices.get_mut(device).context("unknown device number")?;
                    list.add(routes, &prefixes)?;
                }
                #[cfg(feature = "xdp")]
                Request::Interfaces { ports, queues } if plan.interfaces.is_none() => {
                    plan.interfaces = Some(interfaces::helper(ports, queues, files)?);
                }
                Request::Programs { device, pins, is_clsact, interfaces, refusal, places }
                    if plan.programs.is_none() =>
                {
                    let names = Names { device, pins, is_clsact, interfaces };
                    plan.programs = Some(AttachedPrograms::new(names, (refusal, places), files)?);
                }
                Request::Announce { device, tables, lease_ms }
                    if plan.announcer.is_none() && tables.len() <= TABLES_MAX =>
                {
                    plan.announcer = Some(RouteAnnouncer::new(&device, tables, lease_ms)?);
                }
                Request::Start => return Ok(plan),
                _ => bail!("unexpected message before Start"),
            }
        }
    }
}

/// Work of the helper after its start.
enum Work {
    Devices(Devices),
    Announce(Box<RouteAnnouncer>),
    Programs(AttachedPrograms),
    #[cfg(feature = "xdp")]
    Interfaces(gatun_io_xdp::InterfaceHelper),
}

/// Receives the task, drops all other rights, and reports readiness.
fn start(channel: &Channel) -> anyhow::Result<Work> {
    outlive_signals().context("cannot ignore signals")?;
    let plan = Plan::receive(channel)?;
    let (user, sandboxed) = (plan.user, plan.sandboxed);
    let user = user.as_ref();
    let (work, calls) = plan.work()?;
    let name = if matches!(work, Work::Programs(_)) { c"gatun-fastpath" } else { c"gatun-network" };
    rustix::thread::set_name(name).context("cannot set the process name")?;
    match &work {
        Work::Programs(_) => privileges::keep_net_admin(user)?,
        Work::Devices(devices) if devices.links.restores() => privileges::keep_net_admin(user)?,
        Work::Devices(_) => privileges::drop_all(user)?,
        Work::Announce(_) => privileges::keep_net_admin(user)?,
        #[cfg(feature = "xdp")]
        Work::Interfaces(_) => privileges::keep_for_xdp(user)?,
    }
    // Switching users clears this signal. The daemon's end also closes the channel.
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot watch the daemon's end")?;
    let directory = match &work {
        Work::Programs(programs) => programs.directory(),
        _ => None,
    };
    let sandbox = if sandboxed { Sandbox::with_directory(directory) } else { Sandbox::none() };
    let missing = sandbox.enter(calls).missing();
    channel.send(&Report::Ready { missing })?;
    Ok(work)
}

impl Plan {
    /// Work and the system calls that it needs.
    fn work(self) -> anyhow::Result<(Work, Calls)> {
        #[cfg(feature = "xdp")]
        if let Some(helper) = self.interfaces {
            return Ok((Work::Interfaces(helper), Calls::InterfaceHelper));
        }
        if let Some(announcer) = self.announcer {
            return Ok((Work::Announce(Box::new(announcer)), Calls::NetworkHelper));
        }
        if let Some(programs) = self.programs {
            return Ok((Work::Programs(programs), Calls::ProgramHelper));
        }
        let names: Vec<String> = self.devices.iter().map(|(device, _)| device.name.clone()).collect();
        let devices = self.devices.into_iter();
        let devices = devices.map(|(device, Prefixes { addresses, routes })| WatchedDevice {
            addresses,
            routes,
            ..device
        });
        let links = LinkWatch::new(devices)?;
        let devices = names.into_iter().map(|name| (name, Prefixes::default())).collect();
        Ok((Work::Devices(Devices { links, devices }), Calls::NetworkHelper))
    }
}

impl Work {
    /// Works until the daemon ends.
    fn serve(self, channel: &Channel) -> anyhow::Result<()> {
        match self {
            Work::Devices(devices) => devices.serve(channel),
            Work::Announce(announcer) => announcer.serve(channel),
            Work::Programs(programs) => programs.serve(channel),
            #[cfg(feature = "xdp")]
            Work::Interfaces(helper) => interfaces::serve(helper, channel),
        }
    }
}

/// TUN devices of the helper. No other device can be added.
struct Devices {
    links: LinkWatch,
    /// Names of the devices, and the addresses and routes to apply next.
    devices: Vec<(String, Prefixes)>,
}

impl Devices {
    /// Restores routes and applies changes until the daemon ends.
    fn serve(mut self, channel: &Channel) -> anyhow::Result<()> {
        loop {
            let event = match self.links.wait(channel).context("the kernel sends no more notifications")? {
                WatchEvent::Link(event) => Some(event),
                WatchEvent::Other => match channel.receive()? {
                    Some((request, _)) => self.obey(request)?,
                    None => return Ok(()),
                },
            };
            if let Some(event) = event {
                let line = messages::shortened(messages::of_link(&event));
                channel.send(&Report::Line(line))?;
            }
        }
    }

    /// Applies a message that may follow the start. Any other message ends the helper.
    fn obey(&mut self, request: Request) -> anyhow::Result<Option<LinkEvent>> {
        match request {
            Request::Prefixes { device, routes, prefixes } => {
                let (_, list) = self.devices.get_mut(device).context("unknown device number")?;
                list.add(routes, &prefixes)?;
                Ok(None)
            }
            Request::Apply { device } => {
                let (name, list) = self.devices.get_mut(device).context("unknown device number")?;
                let Prefixes { addresses, routes } = std::mem::take(list);
                Ok(self.links.set(name, addresses, routes))
            }
            _ => bail!("unexpected message after Start"),
        }
    }
}
