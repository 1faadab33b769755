//! Restoration of routes and addresses. If somebody sets a link down and up again, the kernel removes the
//! device's routes and IPv6 addresses and does not restore them. The same happens with an MTU below IPv6's
//! minimum (RFC 8200 5), and somebody may remove single routes.

use crate::TunError;
use crate::repair::Repair;
use gatun_netlink::{Device, Existing, Group, Monitor, Notice, Prefix, Route, compare};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

/// Change of a device's link.
#[derive(Debug)]
pub enum LinkEvent {
    /// The link was set down: its routes are gone, and no packets arrive.
    Down {
        /// The device.
        device: String,
    },
    /// The link is up again.
    Up {
        /// The device.
        device: String,
        /// Restored routes and addresses, or why that failed.
        restored: Result<Restored, TunError>,
    },
    /// Routes vanished while the link was up.
    RoutesVanished {
        /// The device.
        device: String,
        /// MTU: below 1280 bytes, the device has no IPv6 (RFC 8200 5).
        mtu: u32,
        /// Restored routes and addresses, or why that failed.
        restored: Result<Restored, TunError>,
    },
    /// A reload has changed the device's addresses and routes.
    Rerouted {
        /// The device.
        device: String,
        /// Changed routes and addresses, or why that failed.
        rerouted: Result<Rerouted, TunError>,
    },
}

/// Routes and addresses that a reload has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rerouted {
    /// Routes that were added.
    pub routes_added: usize,
    /// Routes that were removed.
    pub routes_removed: usize,
    /// Addresses that were added.
    pub addresses_added: usize,
    /// Addresses that were removed.
    pub addresses_removed: usize,
    /// Routes of the host that get no packets while the device has its own, as `ip route` shows them.
    pub preceded: Vec<String>,
}

/// Device to watch, with its addresses and routes.
#[derive(Clone, Debug)]
pub struct WatchedDevice {
    /// Device name.
    pub name: String,
    /// Addresses of the device.
    pub addresses: Vec<Prefix>,
    /// Networks that are routed to the device.
    pub routes: Vec<Prefix>,
    /// True if its routes precede the host's routes to the same networks.
    pub precede_routes: bool,
}

/// Result of [`LinkWatch::wait`].
#[derive(Debug)]
pub enum WatchEvent {
    /// The link of a device has changed, or its routes were restored.
    Link(LinkEvent),
    /// The other descriptor is readable.
    Other,
}

/// Routes and addresses that were restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Routes that were added.
    pub routes: usize,
    /// Routes that somebody else has set meanwhile, to any device. They stay.
    pub routes_existing: usize,
    /// Number of addresses, including those that the link had kept.
    pub addresses: usize,
}

/// Watches links of devices, and restores the routes and addresses that they lose.
pub struct LinkWatch {
    monitor: Monitor,
    devices: Vec<Watched>,
}

impl LinkWatch {
    /// Watches open devices.
    ///
    /// # Errors
    /// Returns an error if the kernel sends no notifications, or a device does not exist or is not a TUN
    /// device.
    pub fn new(devices: impl IntoIterator<Item = WatchedDevice>) -> Result<Self, TunError> {
        // Error messages need it, and its file may be out of reach later.
        gatun_netlink::has_ipv6();
        let monitor = Monitor::open(&[Group::Link, Group::Ipv4Route, Group::Ipv6Route]);
        let monitor = monitor.map_err(|e| TunError::Ioctl("watching links", "netlink".into(), e))?;
        // The state is read after the monitor listens, so that no change is missed.
        let devices = devices.into_iter().map(Watched::new).collect::<Result<_, _>>()?;
        Ok(LinkWatch { monitor, devices })
    }

    /// Returns true if a device has something to restore, which needs CAP_NET_ADMIN.
    pub fn restores(&self) -> bool {
        self.devices.iter().any(|d| !d.routes.is_empty() || !d.addresses.is_empty())
    }

    /// Blocks until the link of a device has changed, or `other` is readable. A descriptor that stays
    /// readable does not delay the work for devices.
    ///
    /// # Errors
    /// Returns an error if the kernel's notifications cannot be read.
    pub fn wait(&mut self, other: impl AsFd) -> io::Result<WatchEvent> {
        let mut is_other_ready = false;
        loop {
            while let Some(device) = self.devices.iter_mut().find(|d| d.missed) {
                if let Some(event) = device.ask()? {
                    return Ok(WatchEvent::Link(event));
                }
            }
            self.devices.retain(|d| !d.gone);
            if let Some(notice) = self.monitor.next_notice() {
                if let Some(event) = self.take(&notice) {
                    return Ok(WatchEvent::Link(event));
                }
                continue;
            }
            if is_other_ready {
                return Ok(WatchEvent::Other);
            }
            let now = Instant::now();
            let due = self.devices.iter().filter_map(|device| device.repair.due()).min();
            if due.is_some_and(|due| due <= now) {
                if let Some(event) = self.devices.iter_mut().find_map(|device| device.repair_if_due(now)) {
                    return Ok(WatchEvent::Link(event));
                }
                continue;
            }
            is_other_ready = self.monitor.wait(&other, due.map(|due| due - now))?;
        }
    }

    /// Gives a device these addresses and routes, and removes its previous ones. While its link is down, they
    /// are only noted. `None` if the device no longer exists.
    pub fn set(
        &mut self,
        device: &str,
        addresses: Vec<Prefix>,
        mut routes: Vec<Prefix>,
    ) -> Option<LinkEvent> {
        routes.sort_unstable();
        let device = self.devices.iter_mut().find(|watched| watched.device == device)?;
        Some(device.set(addresses, routes))
    }

    fn take(&mut self, notice: &Notice) -> Option<LinkEvent> {
        let index = match notice {
            Notice::Link(link) => link.index,
            Notice::LinkRemoved(index) | Notice::RouteRemoved { device: Some(index), .. } => *index,
            Notice::Addresses | Notice::RouteAdded { .. } | Notice::RouteRemoved { device: None, .. } => {
                return None;
            }
            Notice::Lost => {
                self.ask_all();
                return None;
            }
        };
        let device = self.devices.iter_mut().find(|d| d.index == index)?;
        match notice {
            Notice::Link(link) => {
                device.has_mtu(link.mtu);
                device.is_now(link.is_up)
            }
            Notice::RouteRemoved { to, .. } => {
                device.may_lack(to);
                None
            }
            _ => {
                device.gone = true;
                None
            }
        }
    }

    fn ask_all(&mut self) {
        self.devices.iter_mut().for_each(|d| d.missed = true);
    }
}

struct Watched {
    netlink: Device,
    device: String,
    index: u32,
    addresses: Vec<Prefix>,
    routes: Vec<Prefix>,
    /// True if our routes precede the host's routes to the same networks.
    precede: bool,
    up: bool,
    mtu: u32,
    repair: Repair,
    /// True if notifications were lost.
    missed: bool,
    gone: bool,
}

impl Watched {
    fn new(device: WatchedDevice) -> Result<Self, TunError> {
        let WatchedDevice { name: device, addresses, mut routes, precede_routes: precede } = device;
        let mut netlink = Device::open(&device).map_err(|e| TunError::Ioctl("netlink", device.clone(), e))?;
        let state = netlink.index().and_then(|index| netlink.link(index));
        let link = state.map_err(|e| TunError::Ioctl("watching the link", device.clone(), e))?;
        if !link.is_tun {
            return Err(TunError::NotTun(device));
        }
        routes.sort_unstable();
        Ok(Watched {
            netlink,
            device,
            index: link.index,
            addresses,
            routes,
            precede,
            up: link.is_up,
            mtu: link.mtu,
            repair: Repair::default(),
            missed: false,
            gone: false,
        })
    }

    /// Notes a new MTU. A higher one may bring IPv6 back.
    fn has_mtu(&mut self, mtu: u32) {
        if std::mem::replace(&mut self.mtu, mtu) < mtu {
            self.repair.suspect_anew(Instant::now());
        }
    }

    /// Notes that the route to `network` was removed.
    fn may_lack(&mut self, network: &Prefix) {
        if self.routes.binary_search(network).is_ok() {
            self.repair.suspect(Instant::now());
        }
    }

    /// Restores vanished routes if a repair is due. While the link is down, the repair waits for the link.
    fn repair_if_due(&mut self, now: Instant) -> Option<LinkEvent> {
        self.repair.due().filter(|due| *due <= now)?;
        let is_up = self.up && self.netlink.link(self.index).is_ok_and(|link| link.is_up);
        if !is_up {
            self.repair.succeeded(now, false);
            return None;
        }
        let restored = self.restore();
        let is_news = match &restored {
            Ok(Restored { routes, routes_existing, .. }) => {
                self.repair.succeeded(now, *routes > 0);
                routes + routes_existing > 0
            }
            Err(_) => self.repair.failed(now),
        };
        is_news.then(|| LinkEvent::RoutesVanished { device: self.device.clone(), mtu: self.mtu, restored })
    }

    fn is_now(&mut self, up: bool) -> Option<LinkEvent> {
        if std::mem::replace(&mut self.up, up) == up {
            return None;
        }
        let device = self.device.clone();
        Some(if up { LinkEvent::Up { device, restored: self.restore() } } else { LinkEvent::Down { device } })
    }

    /// Asks for the state of the link after lost notifications: it may have been down and up again.
    fn ask(&mut self) -> io::Result<Option<LinkEvent>> {
        self.missed = false;
        let up = match self.netlink.link(self.index) {
            Err(e) if Errno::from_io_error(&e) == Some(Errno::NODEV) => {
                self.gone = true;
                return Ok(None);
            }
            other => other?.is_up,
        };
        if self.up && up {
            self.repair.suspect(Instant::now());
        }
        Ok(self.is_now(up))
    }

    /// Changes addresses and routes; `routes` is sorted. While the link is down, they are only noted.
    fn set(&mut self, addresses: Vec<Prefix>, routes: Vec<Prefix>) -> LinkEvent {
        let only = |of: &[Prefix], not_of: &[Prefix]| -> Vec<Prefix> {
            let others: BTreeSet<&Prefix> = not_of.iter().collect();
            of.iter().filter(|prefix| !others.contains(prefix)).copied().collect()
        };
        let added = (only(&addresses, &self.addresses), only(&routes, &self.routes));
        let removed = (only(&self.addresses, &addresses), only(&self.routes, &routes));
        (self.addresses, self.routes) = (addresses, routes);
        let rerouted = if self.up { self.change(&added, &removed) } else { Ok(Vec::new()) };
        let rerouted = rerouted.map(|preceded| Rerouted {
            routes_added: added.1.len(),
            routes_removed: removed.1.len(),
            addresses_added: added.0.len(),
            addresses_removed: removed.0.len(),
            preceded,
        });
        LinkEvent::Rerouted { device: self.device.clone(), rerouted }
    }

    /// Adds and removes addresses and routes. Returns the host's routes that ours precede.
    fn change(
        &mut self,
        added: &(Vec<Prefix>, Vec<Prefix>),
        removed: &(Vec<Prefix>, Vec<Prefix>),
    ) -> Result<Vec<String>, TunError> {
        self.netlink.add_addresses(self.index, &added.0)?;
        let (_, others) = self.add_routes(&added.1)?;
        self.netlink.remove_routes(self.index, &removed.1)?;
        self.netlink.remove_addresses(self.index, &removed.0)?;
        match others.is_empty() || self.precede {
            true => Ok(others.iter().map(ToString::to_string).collect()),
            false => Err(TunError::routes_exist(&self.device, &others)),
        }
    }

    fn restore(&mut self) -> Result<Restored, TunError> {
        self.netlink.add_addresses(self.index, &self.addresses)?;
        let wanted = std::mem::take(&mut self.routes);
        let added = self.add_routes(&wanted);
        self.routes = wanted;
        let (routes, others) = added?;
        let routes_existing = if self.precede { 0 } else { others.len() };
        Ok(Restored { routes, routes_existing, addresses: self.addresses.len() })
    }

    /// Adds the routes of `wanted` that are missing. Returns their number and the routes of others to the
    /// remaining networks. With `precede`, ours come before these; without it, ours are not set, because
    /// somebody may have set the other route on purpose.
    fn add_routes(&mut self, wanted: &[Prefix]) -> Result<(usize, Vec<Route>), TunError> {
        if wanted.is_empty() {
            return Ok((0, Vec::new()));
        }
        let compared = compare(wanted, Some(self.index));
        let compared = compared.map_err(|e| self.netlink.error("route show".into(), e))?;
        let (free, taken) = compared.split();
        let mut added = free.len() - self.netlink.add_routes(self.index, &free, Existing::Keep)?;
        if self.precede {
            added += taken.len() - self.netlink.add_routes(self.index, &taken, Existing::Precede)?;
        }
        let others = compared.others.into_iter().filter(|route| taken.binary_search(&route.to).is_ok());
        Ok((added, others.collect()))
    }
}
