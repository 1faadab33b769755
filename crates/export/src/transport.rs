//! Connection to a collector. No call here waits for the collector, except to connect.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fmt;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for a collector to accept a connection.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// Address of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectorAddress {
    /// UDP.
    Udp(SocketAddr),
    /// TCP.
    Tcp(SocketAddr),
    /// Unix datagram socket, such as /dev/log.
    Unix(PathBuf),
}

impl fmt::Display for CollectorAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CollectorAddress::Udp(address) => write!(f, "udp:{address}"),
            CollectorAddress::Tcp(address) => write!(f, "tcp:{address}"),
            CollectorAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl CollectorAddress {
    /// Checks whether messages form a stream, so that the presence of the collector is known.
    pub fn is_stream(&self) -> bool {
        matches!(self, CollectorAddress::Tcp(_))
    }
}

/// Socket connected to a collector.
pub struct Transport(Socket);

enum Socket {
    Udp(UdpSocket),
    Tcp(TcpStream),
    Unix(UnixDatagram),
}

/// Result of sending a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendResult {
    /// The collector accepted this many bytes.
    Bytes(usize),
    /// No data is accepted now.
    Later,
}

/// Function that connects to a collector. If sending threads may not connect, another thread does it for
/// them.
pub type Connect = Arc<dyn Fn(&CollectorAddress) -> io::Result<Transport> + Send + Sync>;

/// Connects in the calling thread.
pub fn connect_directly() -> Connect {
    Arc::new(Transport::open)
}

impl Transport {
    /// Connects to a collector, waiting at most two seconds.
    ///
    /// # Errors
    /// Returns an error if the connection fails.
    pub fn open(target: &CollectorAddress) -> io::Result<Transport> {
        let socket = match target {
            CollectorAddress::Udp(address) => {
                let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                let socket = UdpSocket::bind(any)?;
                socket.connect(address)?;
                socket.set_nonblocking(true)?;
                Socket::Udp(socket)
            }
            CollectorAddress::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, CONNECT_MAX)?;
                stream.set_nonblocking(true)?;
                Socket::Tcp(stream)
            }
            CollectorAddress::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                socket.set_nonblocking(true)?;
                Socket::Unix(socket)
            }
        };
        Ok(Transport(socket))
    }

    /// Checks whether the other end has closed the connection: one more write would be accepted and lost.
    /// Received data is ignored.
    ///
    /// # Errors
    /// Returns an error if the connection is closed.
    pub(crate) fn check(&mut self) -> io::Result<()> {
        let Socket::Tcp(stream) = &mut self.0 else { return Ok(()) };
        match stream.read(&mut [0; 64]) {
            Ok(0) => Err(io::Error::new(ErrorKind::ConnectionAborted, "the collector closed the connection")),
            Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Waits until more data can be sent, at most `patience`.
    pub(crate) fn wait_for_room(&self, patience: Duration) {
        let socket = match &self.0 {
            Socket::Udp(socket) => socket.as_fd(),
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(socket) => socket.as_fd(),
        };
        let patience = Timespec::try_from(patience).ok();
        // The next attempt to send reports any error.
        let _ = poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::OUT)], patience.as_ref());
    }

    /// Sends as much as the socket accepts.
    ///
    /// # Errors
    /// Returns an error if the collector is gone.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<SendResult> {
        let sent = match &mut self.0 {
            Socket::Udp(socket) => socket.send(bytes),
            Socket::Tcp(stream) => stream.write(bytes),
            Socket::Unix(socket) => socket.send(bytes),
        };
        match sent {
            Ok(0) if !bytes.is_empty() => Err(ErrorKind::WriteZero.into()),
            Ok(n) => Ok(SendResult::Bytes(n)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Ok(SendResult::Later)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_displayed_as_in_the_configuration() {
        let timed = |target: CollectorAddress| target.to_string();
        assert_eq!(timed(CollectorAddress::Udp("192.0.2.1:4739".parse().unwrap())), "udp:192.0.2.1:4739");
        assert_eq!(
            timed(CollectorAddress::Tcp("[2001:db8::1]:514".parse().unwrap())),
            "tcp:[2001:db8::1]:514"
        );
        assert_eq!(timed(CollectorAddress::Unix("/dev/log".into())), "unix:/dev/log");
    }
}
