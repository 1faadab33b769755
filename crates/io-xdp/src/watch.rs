//! What happens to interfaces while they are in use, for a thread of its own.
//!
//! ```text
//!   set down:  nothing can be sent; the program stays          set up again: as before
//!   removed:   its workers let go of their sockets             one of its name comes: a new program, new sockets
//! ```
//! Meanwhile workers go on with their other ports. The program leaves the kernel's own IPv4 addresses to the kernel
//! though their packets come from subscribers; which those are is looked up again when they change.

use crate::XdpError;
use crate::interface::Interface;
use crate::keeper::{KeeperParts, Privileged};
use crate::open::{Attached, Mode, Opened, PortConfig, cut_off};
use crate::orders::{Change, Orders};
use crate::ports::News;
use crate::program::{Entry, Tables, Whose};
use crate::umem::Umem;
use gatun_io_ether::{Letterbox, Mac};
use gatun_netlink::{Group, Link, Monitor, Notice, query};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

/// What happened to an interface.
#[derive(Debug)]
pub enum Event {
    /// It was set down.
    Down(String),
    /// It is up again.
    Up(String),
    /// It was removed, or is in another namespace.
    Gone(String),
    /// There is one of this name again, and it is in use.
    Back(Opened),
    /// It has another address.
    Address(String, Mac),
    /// There is one of this name again, and it cannot be used; tried again when it changes.
    Refused(String, XdpError),
}

/// A worker, as far as its ports are concerned.
pub(crate) struct Worker {
    pub(crate) letterbox: Letterbox<News>,
    pub(crate) umem: Arc<Umem>,
}

/// An interface, as it was last seen.
pub(crate) struct Watched {
    pub(crate) name: String,
    pub(crate) mode: Mode,
    /// None while there is none of this name.
    pub(crate) attached: Option<Attached>,
    pub(crate) index: u32,
    pub(crate) up: bool,
    mac: Mac,
    /// Whether the last try to use one that came back failed, so that it is said once.
    refused: bool,
}

impl Watched {
    pub(crate) fn new(interface: &Interface, mode: Mode, attached: Attached) -> Watched {
        let Interface { name, index, up, mac, .. } = interface;
        let (name, attached, mac) = (name.clone(), Some(attached), Mac(*mac));
        Watched { name, mode, attached, index: *index, up: *up, mac, refused: false }
    }
}

/// Keeps the programs on their interfaces, and tells workers what happens to those. With it the programs go.
pub struct Watch {
    monitor: Monitor,
    ports: Vec<Watched>,
    workers: Vec<Worker>,
    tables: Tables,
    /// Prefixes whose IPv4 packets are the translator's, whoever has an address in them.
    ours4: BTreeSet<(Ipv4Addr, u8)>,
    /// Addresses that the program leaves to the kernel because it has them.
    kernels: BTreeSet<Ipv4Addr>,
    events: VecDeque<Event>,
    orders: Orders,
    privileged: Box<dyn Privileged>,
    _locks: Vec<UnixDatagram>,
}

impl Watch {
    pub(crate) fn new(
        (ports, workers): (Vec<Watched>, Vec<Worker>),
        tables: Tables,
        entries: &[(Entry, Whose)],
        locks: Vec<UnixDatagram>,
        privileged: Box<dyn Privileged>,
    ) -> io::Result<Watch> {
        let monitor = Monitor::open(&[Group::Link, Group::Ipv4Address])?;
        let (kernels, events, orders) = (BTreeSet::new(), VecDeque::new(), Orders::new()?);
        let ours4 = BTreeSet::new();
        let mut watch = Watch {
            monitor,
            ports,
            workers,
            tables,
            ours4,
            kernels,
            events,
            orders,
            privileged,
            _locks: locks,
        };
        entries.iter().for_each(|(entry, whose)| watch.note(*entry, Some(*whose)));
        // Asked for once the monitor listens, so that no change falls between.
        watch.look_again()?;
        Ok(watch)
    }

    /// Lets the program take the packets of one more prefix.
    ///
    /// # Errors
    /// Where the kernel refuses it.
    pub fn take_more(&self, entry: Entry) -> io::Result<()> {
        self.tables.set(entry, Whose::Ours)
    }

    /// For a [`Keeper`](crate::Keeper) in another process.
    ///
    /// # Errors
    /// Where the process may have no more files.
    pub fn keeper_parts(&self) -> io::Result<KeeperParts> {
        let port = |port: &Watched| PortConfig { interface: port.name.clone(), mode: port.mode };
        let ports = self.ports.iter().map(port).collect();
        Ok(KeeperParts { ports, queues: self.workers.len() as u32, tables: self.tables.files()? })
    }

    /// From now on, steps that need capabilities are done by `privileged`.
    pub fn delegate(&mut self, privileged: Box<dyn Privileged>) {
        self.privileged = privileged;
    }

    /// To let the program take other packets from another thread, while one is in [`wait`](Self::wait).
    pub fn orders(&self) -> Orders {
        self.orders.clone()
    }

    /// Blocks until something happens to an interface, and does what is ordered meanwhile.
    ///
    /// # Errors
    /// Where the kernel tells no more. The programs stay while `self` does.
    pub fn wait(&mut self) -> io::Result<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            while let Some(order) = self.orders.next() {
                // Whoever asked may have gone.
                let _ = order.done.send(self.obey(&order.change));
            }
            if let Some(notice) = self.monitor.next_notice() {
                self.take(&notice)?;
                continue;
            }
            if self.monitor.wait(&self.orders.waker, None)? {
                self.orders.waker.reset();
            }
        }
    }

    /// What is taken away goes first: the kernel's own addresses may stand at the same place afterwards. And these go before
    /// others come, for the same reason.
    fn obey(&mut self, change: &Change) -> io::Result<()> {
        for entry in &change.remove {
            self.tables.remove(*entry)?;
            self.note(*entry, None);
            if let Entry::To4(addr, 32) = entry {
                self.kernels.remove(addr);
            }
        }
        change.set.iter().for_each(|(entry, whose)| self.note(*entry, Some(*whose)));
        self.leave_addresses_to_kernel()?;
        change.set.iter().try_for_each(|(entry, whose)| self.tables.set(*entry, *whose))
    }

    /// Keeps in mind what was said of a prefix.
    fn note(&mut self, entry: Entry, whose: Option<Whose>) {
        let Entry::To4(addr, len) = entry else { return };
        match whose {
            Some(Whose::Ours) => self.ours4.insert((addr, len)),
            Some(Whose::Kernel) | None => self.ours4.remove(&(addr, len)),
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
            Notice::RouteRemoved { .. } => {}
            Notice::Lost => return self.look_again(),
        }
        Ok(())
    }

    /// Looks at everything, as something may have been missed.
    fn look_again(&mut self) -> io::Result<()> {
        for number in 0..self.ports.len() {
            match Interface::find(&self.ports[number].name) {
                Ok(interface) => self.is_there(number, &interface),
                Err(_) if self.ports[number].attached.is_some() => self.is_gone(number),
                Err(_) => {}
            }
            // A worker that met the link down meanwhile has to hear that it is up, though nothing else has changed.
            let port = &self.ports[number];
            if port.attached.is_some() {
                let up = port.up;
                self.tell(number, || if up { News::Up } else { News::Down });
            }
        }
        self.leave_addresses_to_kernel()
    }

    /// The kernel has told of a link.
    fn link_is(&mut self, link: &Link) {
        if let Some(number) = self.ports.iter().position(|port| port.is(link.index)) {
            if !link.name.is_empty() && link.name != self.ports[number].name {
                return; // Renamed: it is the same interface.
            }
            link.mac.iter().for_each(|&mac| self.is_at(number, Mac(mac)));
            return self.is_up(number, link.is_up);
        }
        let Some(number) = self.ports.iter().position(|port| port.name == link.name) else { return };
        // Not from the message: it may be older than what is now.
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
                self.events.push_back(Event::Back(opened));
                self.is_at(number, Mac(interface.mac));
            }
            Err(error) => {
                if !std::mem::replace(&mut port.refused, true) {
                    self.events.push_back(Event::Refused(port.name.clone(), error));
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
        self.events.push_back(if up { Event::Up(name) } else { Event::Down(name) });
        self.tell(number, || if up { News::Up } else { News::Down });
    }

    fn is_at(&mut self, number: usize, mac: Mac) {
        let port = &mut self.ports[number];
        if std::mem::replace(&mut port.mac, mac) == mac {
            return;
        }
        self.events.push_back(Event::Address(port.name.clone(), mac));
        self.tell(number, || News::Address(mac));
    }

    fn is_gone(&mut self, number: usize) {
        let port = &mut self.ports[number];
        port.attached = None;
        self.events.push_back(Event::Gone(port.name.clone()));
        self.tell(number, || News::Gone);
    }

    fn tell(&self, number: usize, news: impl Fn() -> News) {
        for worker in &self.workers {
            worker.letterbox.put(number, news());
        }
    }

    /// A new program and new sockets, as those of the interface that is gone went with it.
    fn use_again(&mut self, number: usize, interface: &Interface) -> Result<Opened, XdpError> {
        let queues = self.workers.len() as u32;
        crate::open::check(interface, queues)?;
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
            worker.letterbox.put(number, News::Back(Box::new(socket), interface.up));
        }
        Ok(Opened { interface: interface.clone(), native, zero_copy })
    }

    /// Leaves what goes to the kernel's own IPv4 addresses to it, though it comes from subscribers.
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
            self.tables.set(Entry::To4(*addr, 32), Whose::Kernel)?;
        }
        for addr in self.kernels.difference(&now) {
            self.tables.remove(Entry::To4(*addr, 32))?;
        }
        self.kernels = now;
        Ok(())
    }
}

impl Watched {
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
    fn a_prefix_contains_what_its_bits_say() {
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
