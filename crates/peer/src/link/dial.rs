//! TCP connection that is being opened, without waiting.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub(super) struct Dial {
    socket: OwnedFd,
    pub(super) began_ms: u64,
}

impl Dial {
    pub(super) fn begin(address: SocketAddr, now_ms: u64) -> io::Result<Dial> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        match connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(Dial { socket, began_ms: now_ms }),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the connection, or itself if that is still being opened.
    ///
    /// # Errors
    /// Returns an error if the peer refuses, or does not answer in time.
    pub(super) fn finish(self, now_ms: u64, patience_ms: u64) -> io::Result<Result<TcpStream, Dial>> {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut polled = [PollFd::new(&self.socket, PollFlags::OUT)];
        if poll(&mut polled, Some(&at_once))? > 0 {
            sockopt::socket_error(&self.socket)??;
            return Ok(Ok(TcpStream::from(self.socket)));
        }
        match now_ms.saturating_sub(self.began_ms) < patience_ms {
            true => Ok(Err(self)),
            false => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

impl AsFd for Dial {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
