//! The way to a collector: nothing here waits for it.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fmt;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long a collector may take to accept a connection.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// Where a collector is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Datagrams.
    Udp(SocketAddr),
    /// A connection.
    Tcp(SocketAddr),
    /// A Unix socket of datagrams, such as /dev/log.
    Unix(PathBuf),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Udp(address) => write!(f, "udp:{address}"),
            Target::Tcp(address) => write!(f, "tcp:{address}"),
            Target::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Target {
    /// Whether messages follow each other in a stream, and it is known that somebody is there.
    pub fn is_stream(&self) -> bool {
        matches!(self, Target::Tcp(_))
    }
}

/// A socket that is connected to a collector.
pub struct Transport(Socket);

enum Socket {
    Udp(UdpSocket),
    Tcp(TcpStream),
    Unix(UnixDatagram),
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// So many bytes of it were taken.
    Bytes(usize),
    /// Nothing can be taken now.
    Later,
}

/// Connects to a target. Where the threads that send may not connect, another thread does it for them.
pub type Connect = Arc<dyn Fn(&Target) -> io::Result<Transport> + Send + Sync>;

/// Connects in the thread that asks.
pub fn directly() -> Connect {
    Arc::new(Transport::open)
}

impl Transport {
    /// Connects to a target, for two seconds at most.
    ///
    /// # Errors
    /// Where nobody is there.
    pub fn open(target: &Target) -> io::Result<Transport> {
        let socket = match target {
            Target::Udp(address) => {
                let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                let socket = UdpSocket::bind(any)?;
                socket.connect(address)?;
                socket.set_nonblocking(true)?;
                Socket::Udp(socket)
            }
            Target::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, CONNECT_MAX)?;
                stream.set_nonblocking(true)?;
                Socket::Tcp(stream)
            }
            Target::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                socket.set_nonblocking(true)?;
                Socket::Unix(socket)
            }
        };
        Ok(Transport(socket))
    }

    /// Looks whether the other end has closed the connection: a write would be taken once more, and be lost. What it
    /// says is nothing to us.
    ///
    /// # Errors
    /// Where it has.
    pub(crate) fn check(&mut self) -> io::Result<()> {
        let Socket::Tcp(stream) = &mut self.0 else { return Ok(()) };
        match stream.read(&mut [0; 64]) {
            Ok(0) => Err(io::Error::new(ErrorKind::ConnectionAborted, "it has closed the connection")),
            Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Waits until more can be sent, for `patience` at most.
    pub(crate) fn wait_for_room(&self, patience: Duration) {
        let socket = match &self.0 {
            Socket::Udp(socket) => socket.as_fd(),
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(socket) => socket.as_fd(),
        };
        let patience = Timespec::try_from(patience).ok();
        // What is wrong with it, the next attempt to send tells.
        let _ = poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::OUT)], patience.as_ref());
    }

    /// # Errors
    /// Where the collector is gone.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<Sent> {
        let sent = match &mut self.0 {
            Socket::Udp(socket) => socket.send(bytes),
            Socket::Tcp(stream) => stream.write(bytes),
            Socket::Unix(socket) => socket.send(bytes),
        };
        match sent {
            Ok(0) if !bytes.is_empty() => Err(ErrorKind::WriteZero.into()),
            Ok(n) => Ok(Sent::Bytes(n)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Ok(Sent::Later)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_written_as_configurations_have_them() {
        let told = |target: Target| target.to_string();
        assert_eq!(told(Target::Udp("192.0.2.1:4739".parse().unwrap())), "udp:192.0.2.1:4739");
        assert_eq!(told(Target::Tcp("[2001:db8::1]:514".parse().unwrap())), "tcp:[2001:db8::1]:514");
        assert_eq!(told(Target::Unix("/dev/log".into())), "unix:/dev/log");
    }
}
