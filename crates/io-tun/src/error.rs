//! Why a device cannot be used, and what to do about it.

use gatun_netlink::{DeviceError, Route};
use std::fmt;
use std::io;

/// Why a device cannot be used. The text says what to do.
#[derive(Debug)]
pub enum TunError {
    /// The name is empty, too long, or has characters that no device may have.
    Name(String),
    /// `/dev/net/tun` cannot be opened.
    Open(io::Error),
    /// The kernel's TUN driver lacks virtio-net headers or queues.
    Features(&'static str),
    /// Another process has the device.
    Busy(String),
    /// A Gatun already runs on it.
    SecondInstance(String),
    /// It was to be created, and exists.
    Exists(String),
    /// It was to be attached to, and does not exist.
    Missing(String),
    /// No right to create or attach.
    Permission(String),
    /// The name belongs to a device that is not a TUN device.
    NotTun(String),
    /// The existing device has one queue, and several are asked for.
    SingleQueue(String),
    /// An ioctl failed otherwise.
    Ioctl(&'static str, String, io::Error),
    /// The host has routes to networks that the device is to have: the first of them, and how many there are.
    RoutesExist(String, Vec<String>, usize),
    /// The kernel refused an address, a route or another setting.
    Netlink(DeviceError),
}

/// Routes that an error names.
const ROUTES_NAMED: usize = 5;

impl TunError {
    /// The host's `routes` are in the way of those that `device` is to have.
    pub(crate) fn routes_exist(device: &str, routes: &[Route]) -> TunError {
        let named = routes.iter().take(ROUTES_NAMED).map(ToString::to_string).collect();
        TunError::RoutesExist(device.to_owned(), named, routes.len())
    }
}

impl From<DeviceError> for TunError {
    fn from(error: DeviceError) -> TunError {
        TunError::Netlink(error)
    }
}

impl fmt::Display for TunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TunError::Name(name) => {
                write!(f, "'{name}' cannot be a device's name: 1 to 15 characters, no '/' and no space")
            }
            TunError::Open(e) if e.kind() == io::ErrorKind::NotFound => write!(
                f,
                "/dev/net/tun does not exist: load the driver (modprobe tun), or give the container the device (--device /dev/net/tun)"
            ),
            TunError::Open(e) => write!(
                f,
                "/dev/net/tun cannot be opened ({e}): run as root, or give the program CAP_NET_ADMIN and the file's group"
            ),
            TunError::Features(what) => {
                write!(f, "this kernel's TUN driver has no {what}; Linux 3.8 or later has it")
            }
            TunError::Busy(name) => write!(
                f,
                "device '{name}' is in use by another process: stop it, or choose another device name"
            ),
            TunError::SecondInstance(name) => write!(
                f,
                "another gatun already runs on device '{name}': stop it first, or choose another device name"
            ),
            TunError::Exists(name) => write!(
                f,
                "device '{name}' exists, and gatun has not made it: write mode = \"attach\" to use it, take it away (ip link delete {name}), or choose \
                 another name for the device"
            ),
            TunError::Missing(name) => write!(
                f,
                "device '{name}' does not exist: create it (ip tuntap add dev {name} mode tun), or write mode = \"create\""
            ),
            TunError::Permission(name) => write!(
                f,
                "no right to use device '{name}': run with CAP_NET_ADMIN, or create it for this user (ip tuntap add dev {name} mode tun user NAME)"
            ),
            TunError::NotTun(name) => {
                write!(f, "'{name}' exists and is not a TUN device: choose another device name")
            }
            TunError::SingleQueue(name) => write!(
                f,
                "device '{name}' exists with one queue, and several workers need several: create it with `ip tuntap add dev {name} mode tun multi_queue`, or write queues = 1"
            ),
            TunError::Ioctl(what, name, e) => write!(f, "device '{name}': {what} failed: {e}"),
            TunError::RoutesExist(device, routes, count) => {
                let more = match count - routes.len() {
                    0 => String::new(),
                    n => format!(" and {n} more"),
                };
                write!(
                    f,
                    "this host has a route to a network that device '{device}' is to have: {}{more}. Packets to that network \
                     would go to gatun instead. Take the network out of the pools, prefixes and mappings, or list other networks \
                     in `routes` of the [[port]]; if gatun is to get these packets, write `precede_routes = true` there",
                    routes.join("; ")
                )
            }
            TunError::Netlink(error) => error.fmt(f),
        }
    }
}

/// No `source`: the text has the system's error in it already.
impl std::error::Error for TunError {}
