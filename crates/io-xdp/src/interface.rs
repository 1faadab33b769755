//! Properties of interfaces, as the kernel reports them, and requests to the kernel other than packets.

use crate::XdpError;
use gatun_netlink::{Link, query};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Properties of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// Index in this network namespace.
    pub index: u32,
    /// MAC address.
    pub mac: [u8; 6],
    /// MTU in bytes, without the Ethernet header.
    pub mtu: u32,
    /// True if the interface is up.
    pub up: bool,
    /// True if it is software of the kernel (a veth, a bridge, a VLAN) rather than a device: packets from
    /// its other end may have unfinished checksums.
    pub software: bool,
}

impl Interface {
    /// Looks up an interface by name.
    ///
    /// # Errors
    /// Returns an error if it does not exist or has no MAC address.
    pub fn find(name: &str) -> Result<Interface, XdpError> {
        let failed = |error| XdpError::Step { interface: name.to_owned(), step: "ip link show", error };
        let link = query::link(name).map_err(failed)?.ok_or_else(|| XdpError::Missing(name.to_owned()))?;
        Interface::of(&link, name).ok_or_else(|| XdpError::NotEthernet(name.to_owned()))
    }

    /// Reads the kernel's message. `None` if the interface has no MAC address.
    fn of(link: &Link, name: &str) -> Option<Interface> {
        let mac = link.mac.filter(|mac| link.is_ethernet && *mac != [0; 6])?;
        Some(Interface {
            name: name.to_owned(),
            index: link.index,
            mac,
            mtu: link.mtu,
            up: link.is_up,
            software: link.is_software,
        })
    }
}

/// `struct ethtool_channels`, in which the kernel reports the queues.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    rx_max: u32,
    tx_max: u32,
    other_max: u32,
    combined_max: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

const ETHTOOL_GCHANNELS: u32 = 0x3c;
const SIOCETHTOOL: libc::c_ulong = 0x8946;

/// Number of receive queues of an interface; 1 if its driver does not report it.
pub(crate) fn rx_queues(name: &str) -> u32 {
    let Ok(socket) =
        rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
    else {
        return 1;
    };
    let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
    // SAFETY: `ifreq` consists of integers and addresses, for which zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut channels).cast();
    // SAFETY: SIOCETHTOOL takes an `ifreq` whose data points to the struct of the command: for
    // ETHTOOL_GCHANNELS, `Channels`. Both outlive the call.
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, std::ptr::from_mut(&mut request)) };
    if result < 0 { 1 } else { (channels.rx + channels.combined).max(1) }
}

/// Makes the interface receive all multicast frames until the returned file is closed. Otherwise a card would
/// drop frames of neighbour discovery.
///
/// # Errors
/// Returns an error if the process lacks CAP_NET_RAW.
pub(crate) fn receive_multicast(index: u32) -> io::Result<OwnedFd> {
    // Protocol 0: this socket receives no packets.
    let socket =
        rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let request = libc::packet_mreq {
        mr_ifindex: index as libc::c_int,
        mr_type: libc::PACKET_MR_ALLMULTI as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)?;
    Ok(socket)
}

/// Sets a socket option whose value is a `T`.
pub(crate) fn set_option<T: Copy>(socket: impl AsFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    let (fd, len) = (socket.as_fd().as_raw_fd(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel reads `len` bytes of `value`, which has this size.
    let result = unsafe { libc::setsockopt(fd, level, option, std::ptr::from_ref(value).cast(), len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
