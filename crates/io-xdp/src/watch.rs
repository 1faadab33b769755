//! Watch over interfaces in use, for a thread of its own.
//!
//! ```text
//!   set down:  nothing can be sent; the program stays    set up again:  as before
//!   removed:   its workers close their sockets           returns:       a new program, new sockets
//! ```
//! Meanwhile workers continue with their other ports. The program leaves the kernel's own IPv4 addresses to
//! the kernel, even for packets from subscribers. The list of these addresses is read again when it changes.

use crate::XdpError;
use crate::attached::{self, Attached, Mode, Opened, PortConfig, cut_off};
use crate::interface::Interface;
use crate::interface_helper::{InterfaceHelperParts, Privileged};
use crate::ports::PortEvent;
use crate::program::{Owner, PrefixRule, PrefixTables};
use crate::rule_updates::{RuleChange, RuleUpdates};
use crate::umem::Umem;
use gatun_io_ether::{DeviceEvents, Mac};
use gatun_netlink::{Group, Link, Monitor, Notice, query};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

/// Event of an interface.
#[derive(Debug)]
pub enum InterfaceEvent {
    /// The interface was set down.
    Down(String),
    /// The interface is up again.
    Up(String),
    /// The interface was removed or moved to another namespace.
    Gone(String),
    /// An interface of this name exists again and is in use.
    Back(Opened),
    /// The interface has a new MAC.
    Address(String, Mac),
    /// An interface of this name exists again but cannot be used. Retried when it changes.
    Refused(String, XdpError),
}

/// Worker as seen by the watch.
pub(crate) struct WatchedWorker {
    pub(crate) device_events: DeviceEvents<PortEvent>,
    pub(crate) umem: Arc<Umem>,
}

/// Last known state of an interface.
pub(crate) struct WatchedInterface {
    pub(crate) name: String,
    pub(crate) mode: Mode,
    /// `None` while no interface has this name.
    pub(crate) attached: Option<Attached>,
    pub(crate) index: u32,
    pub(crate) up: bool,
    mac: Mac,
    /// True if the last attempt to reuse the interface failed. Avoids repeated reports.
    refused: bool,
}

impl WatchedInterface {
    pub(crate) fn new(interface: &Interface, mode: Mode, attached: Attached) -> WatchedInterface {
        let Interface { name, index, up, mac, .. } = interface;
        let (name, attached, mac) = (name.clone(), Some(attached), Mac(*mac));
        WatchedInterface { name, mode, attached, index: *index, up: *up, mac, refused: false }
    }
}

/// Keeps the programs on their interfaces and reports events to workers. Dropping it removes the programs.
pub struct Watch {
    monitor: Monitor,
    ports: Vec<WatchedInterface>,
    workers: Vec<WatchedWorker>,
    tables: PrefixTables,
    /// Prefixes whose IPv4 packets belong to the translator, unless the kernel has an address in them.
    ours4: BTreeSet<(Ipv4Addr, u8)>,
    /// Addresses that the program leaves to the kernel, because the kernel has them.
    kernels: BTreeSet<Ipv4Addr>,
    events: VecDeque<InterfaceEvent>,
    updates: RuleUpdates,
    privileged: Box<dyn Privileged>,
    _locks: Vec<UnixDatagram>,
}

impl Watch {
    pub(crate) fn new(
        (ports, workers): (Vec<WatchedInterface>, Vec<WatchedWorker>),
        tables: PrefixTables,
        entries: &[(PrefixRule, Owner)],
        locks: Vec<UnixDatagram>,
        privileged: Box<dyn Privileged>,
    ) -> io::Result<Watch> {
        let monitor = Monitor::open(&[Group::Link, Group::Ipv4Address])?;
        let (kernels, events, updates) = (BTreeSet::new(), VecDeque::new(), RuleUpdates::new()?);
        let ours4 = BTreeSet::new();
        let mut watch = Watch {
            monitor,
            ports,
            workers,
            tables,
            ours4,
            kernels,
            events,
            updates,
            privileged,
            _locks: locks,
        };
        entries.iter().for_each(|(entry, owner)| watch.note(*entry, Some(*owner)));
        // The state is read after the monitor listens, so that no change is missed.
        watch.look_again()?;
        Ok(watch)
    }

    /// Makes the program take the packets of another prefix.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses it.
    pub fn take_more(&self, entry: PrefixRule) -> io::Result<()> {
        self.tables.set(entry, Owner::Gatun)
    }

    /// Parts for a [`InterfaceHelper`](crate::InterfaceHelper) in another process.
    ///
    /// # Errors
    /// Returns an error if the process reaches its limit of open files.
    pub fn helper_parts(&self) -> io::Result<InterfaceHelperParts> {
        let port = |port: &WatchedInterface| PortConfig { interface: port.name.clone(), mode: port.mode };
        let ports = self.ports.iter().map(port).collect();
        Ok(InterfaceHelperParts { ports, queues: self.workers.len() as u32, tables: self.tables.files()? })
    }

    /// Makes `privileged` do all further steps that need capabilities.
    pub fn delegate(&mut self, privileged: Box<dyn Privileged>) {
        self.privileged = privileged;
    }

    /// Handle with which another thread can change the rules while this one is in [`wait`](Self::wait).
    pub fn rule_updates(&self) -> RuleUpdates {
        self.updates.clone()
    }

    /// Blocks until an interface event occurs. Applies rule changes meanwhile.
    ///
    /// # Errors
    /// Returns an error if the kernel's notifications end. The programs stay as long as `self`.
    pub fn wait(&mut self) -> io::Result<InterfaceEvent> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            while let Some(update) = self.updates.next() {
                // The caller may have gone.
                let _ = update.done.send(self.apply(&update.change));
            }
            if let Some(notice) = self.monitor.next_notice() {
                self.take(&notice)?;
                continue;
            }
            if self.monitor.wait(&self.updates.waker, None)? {
                self.updates.waker.reset();
            }
        }
    }

    /// Removes rules first, because addresses of the kernel may get rules for the same prefix. For the same
    /// reason, the kernel's addresses are removed before others are added.
    fn apply(&mut self, change: &RuleChange) -> io::Result<()> {
        for entry in &change.remove {
            self.tables.remove(*entry)?;
            self.note(*entry, None);
            if let PrefixRule::To4(addr, 32) = entry {
                self.kernels.remove(addr);
            }
        }
        change.set.iter().for_each(|(entry, owner)| self.note(*entry, Some(*owner)));
        self.leave_addresses_to_kernel()?;
        change.set.iter().try_for_each(|(entry, owner)| self.tables.set(*entry, *owner))
    }

    /// Records the owner of a prefix.
    fn note(&mut self, entry: PrefixRule, owner: Option<Owner>) {
        let PrefixRule::To4(addr, len) = entry else { return };
        match owner {
            Some(Owner::Gatun) => self.ours4.insert((addr, len)),
            Some(Owner::Kernel) | None => self.ours4.remove(&(addr, len)),
        };
    }

    fn take(&mut self, notice: &Notice) -> io::Result<()> {
        match notice {
            Notice::Link(link) => self.link_is(link),
            Notice::LinkRemoved(index) => {
                let gone = self.ports.iter().position(|port| port.is(*index));
                gone.into_iter().for_each(|port| self.is_gone(port));
            }
            Notice::Addresses => return self.leave_addresses_to_kernel(),
            Notice::RouteAdded { .. } | Notice::RouteRemoved { .. } => {}
            Notice::Lost => return self.look_again(),
        }
        Ok(())
    }

    /// Reads all interfaces again, because notifications may have been missed.
    fn look_again(&mut self) -> io::Result<()> {
        for number in 0..self.ports.len() {
            match Interface::find(&self.ports[number].name) {
                Ok(interface) => self.is_there(number, &interface),
                Err(_) if self.ports[number].attached.is_some() => self.is_gone(number),
                Err(_) => {}
            }
            // A worker that found the link down meanwhile has to be told that it is up, although nothing else
            // has changed.
            let port = &self.ports[number];
            if port.attached.is_some() {
                let up = port.up;
                self.tell(number, || if up { PortEvent::Up } else { PortEvent::Down });
            }
        }
        self.leave_addresses_to_kernel()
    }

    /// Handles the kernel's message about a link.
    fn link_is(&mut self, link: &Link) {
        if let Some(number) = self.ports.iter().position(|port| port.is(link.index)) {
            if !link.name.is_empty() && link.name != self.ports[number].name {
                return; // renamed, but the same interface
            }
            link.mac.iter().for_each(|&mac| self.is_at(number, Mac(mac)));
            return self.is_up(number, link.is_up);
        }
        let Some(number) = self.ports.iter().position(|port| port.name == link.name) else { return };
        // Ask again instead of using the message, which may be outdated.
        if let Ok(interface) = Interface::find(&self.ports[number].name) {
            self.is_there(number, &interface);
        }
    }

    fn is_there(&mut self, number: usize, interface: &Interface) {
        if self.ports[number].is(interface.index) {
            self.is_at(number, Mac(interface.mac));
            return self.is_up(number, interface.up);
        }
        if self.ports[number].attached.is_some() {
            self.is_gone(number);
        }
        let result = self.use_again(number, interface);
        let port = &mut self.ports[number];
        match result {
            Ok(opened) => {
                port.refused = false;
                self.events.push_back(InterfaceEvent::Back(opened));
                self.is_at(number, Mac(interface.mac));
            }
            Err(error) => {
                if !std::mem::replace(&mut port.refused, true) {
                    self.events.push_back(InterfaceEvent::Refused(port.name.clone(), error));
                }
            }
        }
    }

    fn is_up(&mut self, number: usize, up: bool) {
        let port = &mut self.ports[number];
        if std::mem::replace(&mut port.up, up) == up {
            return;
        }
        let name = port.name.clone();
        self.events.push_back(if up { InterfaceEvent::Up(name) } else { InterfaceEvent::Down(name) });
        self.tell(number, || if up { PortEvent::Up } else { PortEvent::Down });
    }

    fn is_at(&mut self, number: usize, mac: Mac) {
        let port = &mut self.ports[number];
        if std::mem::replace(&mut port.mac, mac) == mac {
            return;
        }
        self.events.push_back(InterfaceEvent::Address(port.name.clone(), mac));
        self.tell(number, || PortEvent::Address(mac));
    }

    fn is_gone(&mut self, number: usize) {
        let port = &mut self.ports[number];
        port.attached = None;
        self.events.push_back(InterfaceEvent::Gone(port.name.clone()));
        self.tell(number, || PortEvent::Gone);
    }

    fn tell(&self, number: usize, news: impl Fn() -> PortEvent) {
        for worker in &self.workers {
            worker.device_events.put(number, news());
        }
    }

    /// Creates a new program and new sockets, because the old ones disappeared with the interface.
    fn use_again(&mut self, number: usize, interface: &Interface) -> Result<Opened, XdpError> {
        let queues = self.workers.len() as u32;
        attached::check(interface, queues)?;
        let port = &mut self.ports[number];
        let parts = self.privileged.attach(number)?;
        if parts.index != interface.index {
            // Replaced meanwhile: the kernel announces the new one.
            return Err(XdpError::Missing(interface.name.clone()));
        }
        let attached = Attached::from_parts(parts);
        let open = &mut || self.privileged.open_socket(number);
        let mut sockets = Vec::new();
        for (queue, worker) in self.workers.iter().enumerate() {
            cut_off(interface, worker.umem.frame_len())?;
            let socket = attached.open_socket(&worker.umem, interface, queue as u32, open)?;
            attached.serve(interface, queue as u32, &socket)?;
            sockets.push(socket);
        }
        let zero_copy = sockets.iter().all(|socket| socket.zero_copy);
        let native = attached.native;
        (port.attached, port.index, port.up) = (Some(attached), interface.index, interface.up);
        for (worker, socket) in self.workers.iter().zip(sockets) {
            worker.device_events.put(number, PortEvent::Back(Box::new(socket), interface.up));
        }
        Ok(Opened { interface: interface.clone(), native, zero_copy })
    }

    /// Leaves packets to the kernel's own IPv4 addresses to the kernel, even if they come from subscribers.
    fn leave_addresses_to_kernel(&mut self) -> io::Result<()> {
        let is_ours = |addr: &Ipv4Addr| self.ours4.iter().any(|(net, len)| contains(*net, *len, *addr));
        let now: BTreeSet<Ipv4Addr> = query::addresses()?
            .into_iter()
            .filter_map(|addr| match addr {
                IpAddr::V4(addr) => Some(addr),
                IpAddr::V6(_) => None,
            })
            .filter(|addr| !is_ours(addr))
            .collect();
        for addr in now.difference(&self.kernels) {
            self.tables.set(PrefixRule::To4(*addr, 32), Owner::Kernel)?;
        }
        for addr in self.kernels.difference(&now) {
            self.tables.remove(PrefixRule::To4(*addr, 32))?;
        }
        self.kernels = now;
        Ok(())
    }
}

impl WatchedInterface {
    fn is(&self, index: u32) -> bool {
        self.attached.is_some() && self.index == index
    }
}

fn contains(net: Ipv4Addr, len: u8, addr: Ipv4Addr) -> bool {
    let differ = u32::from(net) ^ u32::from(addr);
    differ.checked_shr(32 - u32::from(len.min(32))).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_contains_addresses_with_its_bits() {
        let addr = |s: &str| s.parse::<Ipv4Addr>().unwrap();
        for (net, len, of, expected) in [
            ("192.0.2.0", 28, "192.0.2.15", true),
            ("192.0.2.0", 28, "192.0.2.16", false),
            ("0.0.0.0", 0, "203.0.113.1", true),
            ("192.0.2.1", 32, "192.0.2.1", true),
            ("192.0.2.1", 32, "192.0.2.0", false),
        ] {
            assert_eq!(contains(addr(net), len, addr(of)), expected, "{net}/{len} {of}");
        }
    }
}
