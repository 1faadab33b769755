//! AF_XDP socket on one queue of an interface, with its four rings.
//!
//! ```text
//!   fill      ->  frames that the kernel may receive into
//!   receive   <-  packets in them
//!   transmit  ->  packets to be sent
//!   complete  <-  frames whose packets were sent
//! ```

use crate::interface::set_option;
use crate::ring::{Consumer, Desc, Producer, Ring};
use crate::umem::Umem;
use crate::{RING_LEN, XdpError};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING,
    XDP_UMEM_PGOFF_FILL_RING, XdpOptionsFlags, XdpStatistics, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Largest number of packets that one system call sends (XDP_MAX_TX_SKB_BUDGET, Linux 6.17; 32 before).
const SEND_BUDGET: u32 = 256;
/// Limit of packet bytes in flight, as the kernel counts them.
const SEND_BUFFER_LEN: usize = 8 << 20;
const XDP_MAX_TX_SKB_BUDGET: i32 = 9;
const SOL_XDP: i32 = 283;

/// Longest wait for a queue to become free, and the retry interval.
const QUEUE_FREE_MAX: Duration = Duration::from_secs(2);
const QUEUE_FREE_LOOK: Duration = Duration::from_millis(20);

/// Bound socket and its rings.
pub(crate) struct Socket {
    fd: OwnedFd,
    pub(crate) fill: Producer<u64>,
    pub(crate) completion: Consumer<u64>,
    pub(crate) rx: Consumer<Desc>,
    pub(crate) tx: Producer<Desc>,
    /// True if the device reads and writes the frames directly.
    pub(crate) zero_copy: bool,
    /// Largest number of packets that one call sends.
    budget: u32,
    /// Packets that the kernel took from the ring but the device did not accept.
    dropped: u64,
}

impl Socket {
    /// Binds a socket to a queue. With `zero_copy`, zero copy is tried first. `open` creates the unbound
    /// socket.
    pub(crate) fn open(
        umem: &Umem,
        (interface, index): (&str, u32),
        queue: u32,
        zero_copy: bool,
        open: &mut dyn FnMut() -> Result<OwnedFd, XdpError>,
    ) -> Result<Socket, XdpError> {
        let modes = [SocketAddrXdpFlags::XDP_ZEROCOPY, SocketAddrXdpFlags::XDP_COPY];
        let modes = if zero_copy { &modes[..] } else { &modes[1..] };
        let mut last = XdpError::Kernel("AF_XDP");
        for mode in modes {
            let flags = *mode | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
            let address = SocketAddrXdp::new(flags, index, queue);
            // The kernel releases a queue some time after its socket was closed, for example when a process
            // has just ended.
            let deadline = Instant::now() + QUEUE_FREE_MAX;
            loop {
                // A socket that could not be bound cannot be bound later.
                let socket = Self::unbound(open()?, umem, interface)?;
                match rustix::net::bind(&socket.fd, &address) {
                    Ok(()) => return Ok(socket.bound()),
                    Err(Errno::BUSY) if Instant::now() < deadline => std::thread::sleep(QUEUE_FREE_LOOK),
                    Err(Errno::BUSY) => return Err(XdpError::QueueBusy(interface.to_owned(), queue)),
                    Err(e) => {
                        last = step(interface, "binding an AF_XDP socket", e.into());
                        break;
                    }
                }
            }
        }
        Err(last)
    }

    fn unbound(fd: OwnedFd, umem: &Umem, interface: &str) -> Result<Socket, XdpError> {
        let region = XdpUmemReg {
            addr: umem.address(),
            len: umem.len() as u64,
            chunk_size: umem.frame_len() as u32,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(&fd, region).map_err(|e| match e {
            Errno::NOBUFS => XdpError::Locked { interface: interface.to_owned(), bytes: umem.len() },
            e => step(interface, "registering the UMEM", e.into()),
        })?;
        let rings = || -> io::Result<_> {
            sockopt::set_xdp_umem_fill_ring_size(&fd, RING_LEN)?;
            sockopt::set_xdp_umem_completion_ring_size(&fd, RING_LEN)?;
            sockopt::set_xdp_rx_ring_size(&fd, RING_LEN)?;
            sockopt::set_xdp_tx_ring_size(&fd, RING_LEN)?;
            let at = sockopt::xdp_mmap_offsets(&fd)?;
            Ok((
                Producer::new(Ring::map(fd.as_fd(), XDP_UMEM_PGOFF_FILL_RING, at.fr, RING_LEN)?),
                Consumer::new(Ring::map(fd.as_fd(), XDP_UMEM_PGOFF_COMPLETION_RING, at.cr, RING_LEN)?),
                Consumer::new(Ring::map(fd.as_fd(), XDP_PGOFF_RX_RING, at.rx, RING_LEN)?),
                Producer::new(Ring::map(fd.as_fd(), XDP_PGOFF_TX_RING, at.tx, RING_LEN)?),
            ))
        };
        let (fill, completion, rx, tx) =
            rings().map_err(|e| step(interface, "creating the rings of an AF_XDP socket", e))?;
        // A kernel that does not know the option uses its default.
        let budget = match set_option(&fd, SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &SEND_BUDGET) {
            Ok(()) => SEND_BUDGET,
            Err(_) => 32,
        };
        Ok(Socket { fd, fill, completion, rx, tx, zero_copy: false, budget, dropped: 0 })
    }

    fn bound(mut self) -> Socket {
        let options = sockopt::xdp_options(&self.fd).unwrap_or(XdpOptionsFlags::empty());
        self.zero_copy = options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY);
        self
    }

    /// Makes the kernel send what is in the transmit ring, as far as it accepts it now.
    ///
    /// # Errors
    /// Returns an error if the interface is gone (ENXIO) or down (ENETDOWN).
    pub(crate) fn send_waiting(&mut self) -> Result<(), Errno> {
        let waiting = self.tx.waiting();
        if waiting == 0 || !self.tx.needs_wakeup() {
            return Ok(());
        }
        let (mut calls, mut drops) = (waiting.div_ceil(self.budget), waiting);
        while calls > 0 && drops > 0 {
            match rustix::net::send(&self.fd, &[], SendFlags::DONTWAIT) {
                Ok(_) => break,
                // More packets are left than one call sends, or the device is busy.
                Err(Errno::AGAIN) => calls -= 1,
                // The device did not accept one packet. The ones after it are still to be sent.
                Err(Errno::BUSY) => {
                    self.dropped += 1;
                    drops -= 1;
                }
                // The socket's limit of packets in flight is reached: try later.
                Err(Errno::NOBUFS | Errno::INTR) => break,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Packets since the last call that the kernel took from the ring but the device did not accept.
    pub(crate) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Wakes the driver to look for receive frames, if it waits for that.
    pub(crate) fn wake_receiver(&mut self) {
        if self.fill.needs_wakeup() {
            // The answer is EAGAIN, or an error that `send_waiting` and the link watch find too.
            let _ = rustix::net::recv(&self.fd, &mut [0u8; 0], RecvFlags::DONTWAIT);
        }
    }

    /// Kernel counters of this socket.
    pub(crate) fn statistics(&self) -> Option<XdpStatistics> {
        sockopt::xdp_statistics(&self.fd).ok()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens an unbound socket. Needs CAP_NET_RAW, and CAP_NET_ADMIN for the large send buffer.
pub(crate) fn open_unbound(interface: &str) -> Result<OwnedFd, XdpError> {
    let (family, flags) = (AddressFamily::XDP, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
    let fd = rustix::net::socket_with(family, SocketType::RAW, flags, None);
    let fd = fd.map_err(|e| match e {
        Errno::AFNOSUPPORT => XdpError::Kernel("AF_XDP sockets (CONFIG_XDP_SOCKETS)"),
        e => step(interface, "opening an AF_XDP socket", e.into()),
    })?;
    // Allows more packets in flight than by default.
    let _ = sockopt::set_socket_send_buffer_size_force(&fd, SEND_BUFFER_LEN);
    Ok(fd)
}

pub(crate) fn step(interface: &str, step: &'static str, error: io::Error) -> XdpError {
    let interface = interface.to_owned();
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => XdpError::Permission { interface, step },
        _ => XdpError::Step { interface, step, error },
    }
}
