//! Connections that others open, until their handshake is done.

use super::connection::Connection;
use super::files::{Tls, TlsFiles};
use super::{HANDSHAKE_MS, HANDSHAKES_MAX, Link};
use crate::wire::Exchange;
use rustix::event::PollFlags;
use std::net::TcpListener;
use std::os::fd::{AsFd as _, BorrowedFd};

/// Socket at which other boxes connect: one of a link, or one for all links of a process.
pub struct Acceptor {
    listener: TcpListener,
    files: TlsFiles,
    tls: Tls,
    /// Connections whose handshake goes on, the oldest first.
    handshakes: Vec<Connection>,
    handshakes_max: usize,
}

/// Connection whose handshake is done, or the reason why it has failed.
pub(super) type Accepted = Result<Connection, String>;

impl Acceptor {
    /// Creates an acceptor for this number of other boxes.
    ///
    /// # Errors
    /// Names the unusable file, or says that the socket is unusable.
    pub fn new(listener: TcpListener, files: TlsFiles, boxes: usize) -> Result<Acceptor, String> {
        let tls = Tls::load(&files)?;
        listener.set_nonblocking(true).map_err(|error| format!("cannot listen: {error}"))?;
        let handshakes_max = HANDSHAKES_MAX.max(2 * boxes);
        Ok(Acceptor { listener, files, tls, handshakes: Vec::new(), handshakes_max })
    }

    /// Reads the certificates again, for the next connection.
    ///
    /// # Errors
    /// Names the unusable file. The previous certificates stay in use.
    pub fn reread(&mut self) -> Result<(), String> {
        self.tls = Tls::load(&self.files)?;
        Ok(())
    }

    /// Gives connections to the links whose peers' names are in the certificates. Each link comes with its
    /// exchange, and with whether its member has its state. Returns the reason why a connection of somebody
    /// else was closed, if there was one.
    pub fn distribute<'l>(
        &mut self,
        now_ms: u64,
        links: impl Iterator<Item = (&'l mut Link, &'l mut Exchange, bool)>,
    ) -> Option<String> {
        let (ended, mut stranger) = (self.turn(now_ms), None);
        if ended.is_empty() {
            return None;
        }
        let mut links: Vec<_> = links.collect();
        for one in ended {
            let is_of = |link: &Link| one.as_ref().is_ok_and(|connection| connection.is_from(&link.name));
            match (links.iter_mut().find(|(link, ..)| is_of(link)), one) {
                (Some((link, exchange, is_settled)), one) => {
                    link.take_accepted(now_ms, exchange, *is_settled, one);
                }
                (None, Ok(connection)) => stranger = Some(connection.stranger()),
                (None, Err(why)) => stranger = Some(why),
            }
        }
        stranger
    }

    /// Accepts connections, and goes on with handshakes. Returns what has ended.
    pub(super) fn turn(&mut self, now_ms: u64) -> Vec<Accepted> {
        let mut ended = self.accept(now_ms);
        for mut connection in std::mem::take(&mut self.handshakes) {
            match connection.shake_hands() {
                Ok(true) => ended.push(Ok(connection)),
                Err(why) => ended.push(Err(why)),
                Ok(false) if now_ms.saturating_sub(connection.began_ms) < HANDSHAKE_MS => {
                    self.handshakes.push(connection);
                }
                Ok(false) => ended.push(Err(connection.late())),
            }
        }
        ended
    }

    fn accept(&mut self, now_ms: u64) -> Vec<Accepted> {
        let mut failed = Vec::new();
        // Other errors are those of a connection that has ended, or of a process without descriptors.
        for _ in 0..self.handshakes_max {
            let Ok((socket, remote)) = self.listener.accept() else { break };
            match Connection::accepted(socket, remote, &self.tls, now_ms) {
                Ok(connection) => self.handshakes.push(connection),
                Err(why) => failed.push(Err(why)),
            }
            if self.handshakes.len() > self.handshakes_max {
                self.handshakes.remove(0);
            }
        }
        failed
    }

    /// Time at which the oldest handshake takes too long.
    pub(super) fn deadline_ms(&self) -> Option<u64> {
        self.handshakes.iter().map(|one| one.began_ms + HANDSHAKE_MS).min()
    }

    /// Descriptors to poll before the next turn.
    pub fn descriptors(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let listen = std::iter::once((self.listener.as_fd(), PollFlags::IN));
        listen.chain(self.handshakes.iter().map(|one| one.interest(true)))
    }
}
