//! Messages between the daemon and its helper, each one datagram of a SOCK_SEQPACKET socketpair: JSON of
//! limited length with a few file descriptors.

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, send, sendmsg, socketpair, sockopt,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Largest message in bytes.
pub(super) const MESSAGE_MAX: usize = 64 << 10;
/// Largest number of file descriptors in a message.
pub(super) const FDS_MAX: usize = 128;

/// One end of the socketpair.
pub(super) struct Channel {
    socket: OwnedFd,
}

impl Channel {
    /// Creates a socketpair. The second end is for another process.
    pub(super) fn pair() -> io::Result<(Channel, OwnedFd)> {
        let (here, there) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Channel { socket: here }, there))
    }

    /// Takes over the end that another process created.
    ///
    /// # Errors
    /// Returns an error if it is not such a socket.
    pub(super) fn inherited(socket: OwnedFd) -> io::Result<Channel> {
        let is_pair = sockopt::socket_type(&socket)? == SocketType::SEQPACKET
            && sockopt::socket_domain(&socket)? == AddressFamily::UNIX;
        if is_pair { Ok(Channel { socket }) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// Sends a message without descriptors.
    pub(super) fn send(&self, message: &impl Serialize) -> io::Result<()> {
        let bytes = encode(message)?;
        // Not sendmsg(2), which the daemon's seccomp filter refuses.
        send(&self.socket, &bytes, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Sends a message, unless the other end is gone or has too many unread ones.
    pub(super) fn try_send(&self, message: &impl Serialize) {
        if let Ok(bytes) = encode(message) {
            let _ = send(&self.socket, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
    }

    /// Sends a message with descriptors.
    pub(super) fn send_with(&self, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = encode(message)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Waits for the next message; `None` once the other end is closed.
    ///
    /// # Errors
    /// Returns an error if a message is too long, carries too many descriptors, or cannot be read.
    pub(super) fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let mut bytes = vec![0; MESSAGE_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut buffers = [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.socket, &mut buffers, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::CONNRESET) => return Ok(None),
                other => break other?,
            }
        };
        let fds = control.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => fds.collect::<Vec<_>>(),
            _ => Vec::new(),
        });
        let fds: Vec<OwnedFd> = fds.collect();
        if received.bytes == 0 {
            return Ok(None);
        }
        if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let message = serde_json::from_slice(bytes.get(..received.bytes).unwrap_or_default())?;
        Ok(Some((message, fds)))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > MESSAGE_MAX { Err(io::ErrorKind::InvalidInput.into()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn messages_are_bounded_and_carry_descriptors() {
        let (here, there) = Channel::pair().unwrap();
        let there = Channel::inherited(there).unwrap();
        let null = File::open("/dev/null").unwrap();
        here.send_with(&"with two", &[null.as_fd(), null.as_fd()]).unwrap();
        here.send(&"alone").unwrap();
        let (text, fds) = there.receive::<String>().unwrap().unwrap();
        assert_eq!((&text[..], fds.len()), ("with two", 2));
        let (text, fds) = there.receive::<String>().unwrap().unwrap();
        assert_eq!((&text[..], fds.len()), ("alone", 0));
        assert!(here.send(&"x".repeat(MESSAGE_MAX)).is_err());
        // The other end sends a message that is too long, and one of another type.
        send(&here, &vec![b' '; MESSAGE_MAX + 1], SendFlags::empty()).unwrap();
        assert_eq!(there.receive::<String>().unwrap_err().kind(), io::ErrorKind::InvalidData);
        here.send(&17).unwrap();
        assert!(there.receive::<String>().is_err());
        drop(here);
        assert!(there.receive::<String>().unwrap().is_none());
    }

    #[test]
    fn only_a_packet_socketpair_is_inherited() {
        let (stream, _) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(Channel::inherited(stream.into()).is_err());
        assert!(Channel::inherited(File::open("/dev/null").unwrap().into()).is_err());
    }
}
