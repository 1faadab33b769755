//! Device that carries no packets. Routes to it, in a table of their own, tell a routing daemon what this
//! process translates. The kernel deletes the device, and with it these routes, when the process ends in any
//! way.

use crate::open::{Guard, attach_error, lock, open_device};
use crate::{TunError, ioctl};
use gatun_netlink::Device;
use std::os::fd::OwnedFd;

/// Open marker device.
pub struct MarkerDevice {
    /// Name.
    pub name: String,
    _queue: OwnedFd,
    _lock: Guard,
}

impl MarkerDevice {
    /// Creates the device and sets it up.
    ///
    /// # Errors
    /// Returns an error that says what to do, if the device exists or cannot be created.
    pub fn create(name: &str) -> Result<MarkerDevice, TunError> {
        let lock = lock(name)?;
        let mut device = Device::open(name).map_err(|e| TunError::Ioctl("netlink", name.to_owned(), e))?;
        if device.exists() {
            return Err(TunError::Taken(name.to_owned()));
        }
        let queue = open_device()?;
        ioctl::set_iff(&queue, name, ioctl::IFF_TUN | ioctl::IFF_NO_PI).map_err(|e| attach_error(name, e))?;
        let index = device.index().map_err(|e| device.error("link show".into(), e))?;
        device.set_up(index)?;
        Ok(MarkerDevice { name: name.to_owned(), _queue: queue, _lock: lock })
    }
}
