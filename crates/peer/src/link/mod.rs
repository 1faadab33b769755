//! Connection between the two boxes: TCP and TLS, without threads. The caller polls, and calls
//! [`Link::turn`] with the time.
//!
//! Both sides may listen and connect. One connection is used. If each side has opened one, the one that
//! member [`Member::First`] has opened is kept:
//!
//! | connection is ready | First | Second |
//! |---|---|---|
//! | opened by First | used | used, in place of any other |
//! | opened by Second | used, unless there is a living one | used, unless there is another one |
//!
//! A connection without bytes of the peer for some time, or with bytes that it does not take, is closed.

mod acceptor;
mod connection;
mod dial;
mod files;
mod validity;

use crate::ownership::Member;
use crate::wire::{Exchange, Received};
use acceptor::Accepted;
pub use acceptor::Acceptor;
use connection::{Connection, Flow, Side};
use dial::Dial;
pub use files::{Tls, TlsFiles};
use rustix::event::PollFlags;
use rustls::pki_types::ServerName;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, BorrowedFd};

/// Time for a connection and its handshake, ms.
const HANDSHAKE_MS: u64 = 3_000;
/// Connections whose handshake goes on: strangers must not take memory.
const HANDSHAKES_MAX: usize = 4;
/// Time until the next attempt to connect, ms: after the first failure, and at most.
const RETRY_MS: (u64, u64) = (50, 1_000);

/// Settings of a link.
pub struct LinkSettings {
    /// Member that this one is.
    pub member: Member,
    /// Socket at which the peer connects. `None` also if the links of a process share an [`Acceptor`].
    pub listen: Option<TcpListener>,
    /// Address of the peer.
    pub connect: Option<SocketAddr>,
    /// Certificates.
    pub files: TlsFiles,
    /// Name in the peer's certificate.
    pub name: String,
    /// Time in ms without a byte of the peer after which a connection is closed.
    pub dead_after_ms: u64,
}

/// State of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkState {
    /// True if there is a connection, and both sides have accepted each other's greetings.
    pub is_up: bool,
    /// Address of the connected peer.
    pub remote: Option<SocketAddr>,
    /// Reason why the last connection has ended, or why there is none.
    pub why: Option<String>,
    /// Number of connections so far.
    pub connections: u64,
    /// Bytes that the sockets of used connections have taken.
    pub bytes_sent: u64,
    /// Bytes from these sockets.
    pub bytes_received: u64,
    /// End of the own certificate, seconds since 1970.
    pub certificate_end: i64,
}

/// Link to the other member.
pub struct Link {
    settings: LinkSettings,
    /// Name in the peer's certificate.
    name: ServerName<'static>,
    tls: Tls,
    state: LinkState,
    used: Option<Connection>,
    acceptor: Option<Acceptor>,
    dial: Option<Dial>,
    /// Own connection whose handshake goes on.
    opened: Option<Connection>,
    retry_at_ms: u64,
    retry_ms: u64,
    may_read: bool,
}

impl Link {
    /// Creates a link, which connects at its first turn.
    ///
    /// # Errors
    /// Names the unusable file, or says that the socket is unusable.
    pub fn new(mut settings: LinkSettings) -> Result<Link, String> {
        let tls = Tls::load(&settings.files)?;
        let name = ServerName::try_from(settings.name.clone());
        let name = name.map_err(|_| format!("`{}` cannot be the name in a certificate", settings.name))?;
        let listener = settings.listen.take();
        let acceptor = listener.map(|listener| Acceptor::new(listener, settings.files.clone(), 1));
        let state = LinkState { certificate_end: tls.certificate_end, ..LinkState::default() };
        Ok(Link {
            settings,
            name,
            tls,
            state,
            used: None,
            acceptor: acceptor.transpose()?,
            dial: None,
            opened: None,
            retry_at_ms: 0,
            retry_ms: RETRY_MS.0,
            may_read: true,
        })
    }

    /// Reads the certificates again, for the next connection. The present one goes on.
    ///
    /// # Errors
    /// Names the unusable file. The previous certificates stay in use.
    pub fn reread(&mut self) -> Result<(), String> {
        self.tls = Tls::load(&self.settings.files)?;
        self.state.certificate_end = self.tls.certificate_end;
        self.acceptor.as_mut().map_or(Ok(()), Acceptor::reread)
    }

    /// Time without a byte of the peer after which a connection is closed, ms.
    pub fn dead_after_ms(&self) -> u64 {
        self.settings.dead_after_ms
    }

    /// State of the link.
    pub fn state(&self) -> &LinkState {
        &self.state
    }

    /// Connects, and carries bytes in both directions, without waiting. `may_read` is false while the caller
    /// cannot handle more records. Appends what was received.
    pub fn turn(
        &mut self,
        now_ms: u64,
        exchange: &mut Exchange,
        is_settled: bool,
        received: &mut Vec<Received>,
        may_read: bool,
    ) -> &LinkState {
        self.may_read = may_read;
        let accepted = self.acceptor.as_mut().map(|acceptor| acceptor.turn(now_ms)).unwrap_or_default();
        accepted.into_iter().for_each(|one| self.take_accepted(now_ms, exchange, is_settled, one));
        self.connect(now_ms);
        self.shake_hands(now_ms, exchange, is_settled);
        self.carry(now_ms, exchange, received);
        self.state.is_up = self.used.is_some() && exchange.is_established();
        if self.state.is_up {
            self.retry_ms = RETRY_MS.0;
            self.state.why = None;
        }
        &self.state
    }

    /// Time until the next turn, if no descriptor is ready before.
    pub fn timeout_ms(&self, now_ms: u64) -> u64 {
        let dials = self.dial.is_none() && self.used.is_none() && self.settings.connect.is_some();
        let retry = dials.then_some(self.retry_at_ms);
        let dial = self.dial.as_ref().map(|dial| dial.began_ms + HANDSHAKE_MS);
        let opened = self.opened.iter().map(|one| one.began_ms + HANDSHAKE_MS);
        let accepted = self.acceptor.as_ref().and_then(Acceptor::deadline_ms);
        let used = self.used.iter().map(|used| used.deadline_ms(self.settings.dead_after_ms));
        let first = used.chain(opened).chain(accepted).chain(retry).chain(dial).min();
        first.map_or(RETRY_MS.1, |at| at.saturating_sub(now_ms))
    }

    /// Descriptors to poll before the next turn.
    pub fn descriptors(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let accepted = self.acceptor.iter().flat_map(Acceptor::descriptors);
        let dial = self.dial.iter().map(|dial| (dial.as_fd(), PollFlags::OUT));
        let opened = self.opened.iter().map(|one| one.interest(true));
        let used = self.used.iter().map(|used| used.interest(self.may_read));
        accepted.chain(dial).chain(opened).chain(used).collect()
    }

    /// Closes the connection, after the bytes that wait to be sent.
    pub fn close(&mut self, now_ms: u64, exchange: &mut Exchange, reason: &str) {
        if let Some(mut used) = self.used.take() {
            used.finish(exchange);
            self.ended(now_ms, exchange, reason.to_owned());
        }
        self.state.is_up = false;
    }

    /// Begins a connection to the peer, or finishes one that has begun.
    fn connect(&mut self, now_ms: u64) {
        let Some(address) = self.settings.connect else { return };
        if self.used.is_some() || self.opened.is_some() {
            self.dial = None;
            return;
        }
        let done = match self.dial.take() {
            Some(dial) => dial.finish(now_ms, HANDSHAKE_MS),
            None if now_ms < self.retry_at_ms => return,
            None => Dial::begin(address, now_ms).and_then(|dial| dial.finish(now_ms, HANDSHAKE_MS)),
        };
        let opened = match done {
            Ok(Err(dial)) => {
                self.dial = Some(dial);
                return;
            }
            Ok(Ok(socket)) => Connection::opened(socket, address, (&self.tls, self.name.clone()), now_ms),
            Err(error) => Err(format!("cannot connect to {address}: {error}")),
        };
        match opened {
            Ok(connection) => self.opened = Some(connection),
            Err(why) => self.failed(now_ms, why),
        }
    }

    fn failed(&mut self, now_ms: u64, why: String) {
        // Connections that both open at one moment may close each other, so they try at different times.
        self.retry_at_ms = match self.settings.member {
            Member::First => now_ms + self.retry_ms,
            Member::Second => now_ms + self.retry_ms * 3 / 2,
        };
        self.retry_ms = (self.retry_ms * 2).min(RETRY_MS.1);
        self.state.why = Some(why);
    }

    /// Goes on with the handshake of the own connection, and uses it when it is ready.
    fn shake_hands(&mut self, now_ms: u64, exchange: &mut Exchange, is_settled: bool) {
        let Some(mut connection) = self.opened.take() else { return };
        match connection.shake_hands() {
            Err(why) => self.failed(now_ms, why),
            Ok(true) => self.take_ready(now_ms, exchange, is_settled, connection),
            Ok(false) if now_ms.saturating_sub(connection.began_ms) < HANDSHAKE_MS => {
                self.opened = Some(connection);
            }
            Ok(false) => self.failed(now_ms, connection.late()),
        }
        if self.used.is_some() {
            self.opened = None;
        }
    }

    /// Uses a connection that the peer has opened, unless there is a better one. Somebody else's is closed.
    fn take_accepted(&mut self, now_ms: u64, exchange: &mut Exchange, is_settled: bool, one: Accepted) {
        let failed = match one {
            Ok(connection) if connection.is_from(&self.name) => {
                return self.take_ready(now_ms, exchange, is_settled, connection);
            }
            Ok(connection) => connection.stranger(),
            Err(why) => why,
        };
        // Somebody who is no peer must not hide the state of the peer's connection.
        if self.used.is_none() {
            self.state.why = Some(failed);
        }
    }

    /// Uses a connection that is ready, if it is better than the present one.
    fn take_ready(
        &mut self,
        now_ms: u64,
        exchange: &mut Exchange,
        is_settled: bool,
        mut connection: Connection,
    ) {
        if !self.is_better(now_ms, &connection) {
            return;
        }
        if self.used.is_some() {
            self.close(now_ms, exchange, "replaced by a newer connection");
        }
        exchange.open(now_ms, is_settled);
        self.state.connections += 1;
        self.state.remote = Some(connection.remote);
        connection.begin(now_ms);
        self.used = Some(connection);
    }

    /// Returns true if a connection that is ready is used in place of the present one.
    fn is_better(&self, now_ms: u64, connection: &Connection) -> bool {
        let Some(used) = &self.used else { return true };
        match (self.settings.member, connection.side) {
            (Member::Second, Side::Accepted) => true,
            // The peer has opened another one, so it does not use a silent one.
            (Member::First, Side::Accepted) => used.is_silent(now_ms, self.settings.dead_after_ms / 3),
            (_, Side::Opened) => false,
        }
    }

    fn carry(&mut self, now_ms: u64, exchange: &mut Exchange, received: &mut Vec<Received>) {
        let Some(used) = &mut self.used else { return };
        let may_read = self.may_read;
        let carried = used.carry(now_ms, (exchange, may_read), received);
        let (sent, got) = used.take_bytes();
        (self.state.bytes_sent, self.state.bytes_received) =
            (self.state.bytes_sent + sent, self.state.bytes_received + got);
        let why = match carried {
            Ok(Flow::GoesOn) => used.fault(now_ms, self.settings.dead_after_ms),
            Ok(Flow::Ended) => Some("the peer has closed the connection".to_owned()),
            Err(why) => Some(why),
        };
        if let Some(why) = why {
            self.used = None;
            self.ended(now_ms, exchange, why);
        }
    }

    /// A connection has ended.
    fn ended(&mut self, now_ms: u64, exchange: &mut Exchange, why: String) {
        exchange.close(now_ms);
        self.state.remote = None;
        self.failed(now_ms, why);
    }
}
