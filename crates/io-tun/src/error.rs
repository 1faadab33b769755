//! Errors of TUN devices, with their remedies.

use gatun_netlink::{DeviceError, Route};
use std::fmt;
use std::io;

/// Reason why a device cannot be used. The text says what to do.
#[derive(Debug)]
pub enum TunError {
    /// The name is empty, too long, or has invalid characters.
    Name(String),
    /// `/dev/net/tun` cannot be opened.
    Open(io::Error),
    /// The kernel's TUN driver lacks virtio-net headers or queues.
    Features(&'static str),
    /// Another process has the device.
    Busy(String),
    /// Another Gatun runs on the device.
    SecondInstance(String),
    /// The device was to be created, but exists.
    Exists(String),
    /// A device of this name exists, and Gatun needs a new one.
    Taken(String),
    /// The device to attach to does not exist.
    Missing(String),
    /// The process may not create the device or attach to it.
    Permission(String),
    /// The name belongs to a device that is not a TUN device.
    NotTun(String),
    /// The existing device has one queue, but several are needed.
    SingleQueue(String),
    /// Another ioctl error.
    Ioctl(&'static str, String, io::Error),
    /// The host has routes to networks of the device: the first of them, and their number.
    RoutesExist(String, Vec<String>, usize),
    /// The kernel refused an address, a route or another setting.
    Netlink(DeviceError),
}

/// Largest number of routes in an error.
const ROUTES_NAMED: usize = 5;

impl TunError {
    /// Error for `routes` of the host that conflict with those of `device`.
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
                write!(f, "invalid device name '{name}': expected 1 to 15 characters without '/' and spaces")
            }
            TunError::Open(e) if e.kind() == io::ErrorKind::NotFound => write!(
                f,
                "/dev/net/tun does not exist: load the driver (modprobe tun), or give the container the device (--device /dev/net/tun)"
            ),
            TunError::Open(e) => write!(
                f,
                "cannot open /dev/net/tun ({e}): run as root, or give the program CAP_NET_ADMIN and the file's group"
            ),
            TunError::Features(what) => {
                write!(f, "this kernel's TUN driver lacks {what}: Linux 3.8 or later is required")
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
                "device '{name}' exists and was not created by gatun: write mode = \"attach\" to use it, delete it (ip link delete {name}), or choose \
                 another name for the device"
            ),
            TunError::Taken(name) => write!(
                f,
                "device '{name}' exists: delete it (ip link delete {name}), or choose another name for the device"
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
                "device '{name}' has one queue, but several workers need one each: create it with `ip tuntap add dev {name} mode tun multi_queue`, or write queues = 1"
            ),
            TunError::Ioctl(what, name, e) => write!(f, "device '{name}': {what} failed: {e}"),
            TunError::RoutesExist(device, routes, count) => {
                let more = match count - routes.len() {
                    0 => String::new(),
                    n => format!(" and {n} more"),
                };
                write!(
                    f,
                    "the host already has routes to networks of device '{device}': {}{more}. Packets to these networks \
                     would go to gatun instead. Remove the networks from the pools, prefixes and mappings, or list other networks \
                     in `routes` of the [[port]]; if gatun shall get these packets, write `precede_routes = true` there",
                    routes.join("; ")
                )
            }
            TunError::Netlink(error) => error.fmt(f),
        }
    }
}

/// No `source`: the text contains the system's error.
impl std::error::Error for TunError {}
