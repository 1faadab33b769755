//! One TCP connection with TLS.

use super::files::Tls;
use crate::wire::{Exchange, Received};
use gatun_tls::Fault;
use rustix::event::PollFlags;
use rustls::client::verify_server_name;
use rustls::pki_types::ServerName;
use rustls::server::ParsedCertificate;
use rustls::{ClientConnection, Connection as Session, ServerConnection};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};

/// Bytes read in a turn: other connections and the engines have their turn, too.
const READ_MAX: usize = 256 * 1024;
/// Bytes given to TLS at once.
const WRITE_LEN: usize = 16 * 1024;

/// Side that has opened the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// This one.
    Opened,
    /// The other one.
    Accepted,
}

/// State of a connection after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    GoesOn,
    /// The peer has closed it.
    Ended,
}

pub(super) struct Connection {
    socket: TcpStream,
    session: Session,
    pub(super) remote: SocketAddr,
    pub(super) side: Side,
    pub(super) began_ms: u64,
    /// Bytes sent and received since they were last asked for.
    bytes: (u64, u64),
    /// Bytes of the exchange that TLS has not taken yet.
    output: Vec<u8>,
    /// Time of the last bytes of the peer.
    heard_ms: u64,
    /// Time since which bytes wait that the socket does not take.
    stuck_since_ms: Option<u64>,
}

impl Connection {
    /// Begins the handshake of a connection that this side has opened to a peer with this name.
    pub(super) fn opened(
        socket: TcpStream,
        remote: SocketAddr,
        (tls, name): (&Tls, ServerName<'static>),
        now_ms: u64,
    ) -> Result<Connection, String> {
        let session = ClientConnection::new(tls.client.clone(), name);
        Connection::new(socket, session.map(Into::into), (remote, Side::Opened), now_ms)
    }

    /// Begins the handshake of a connection that the peer has opened.
    pub(super) fn accepted(
        socket: TcpStream,
        remote: SocketAddr,
        tls: &Tls,
        now_ms: u64,
    ) -> Result<Connection, String> {
        let session = ServerConnection::new(tls.server.clone());
        Connection::new(socket, session.map(Into::into), (remote, Side::Accepted), now_ms)
    }

    fn new(
        socket: TcpStream,
        session: Result<Session, rustls::Error>,
        (remote, side): (SocketAddr, Side),
        now_ms: u64,
    ) -> Result<Connection, String> {
        let usable = socket.set_nonblocking(true).and_then(|()| socket.set_nodelay(true));
        usable.map_err(|error| format!("{remote}: {error}"))?;
        let session = session.map_err(|error| format!("{remote}: {error}"))?;
        Ok(Connection {
            socket,
            session,
            remote,
            side,
            began_ms: now_ms,
            bytes: (0, 0),
            output: Vec::new(),
            heard_ms: now_ms,
            stuck_since_ms: None,
        })
    }

    /// Descriptor, and what to wait for.
    pub(super) fn interest(&self, may_read: bool) -> (BorrowedFd<'_>, PollFlags) {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, may_read);
        flags.set(PollFlags::OUT, self.session.wants_write());
        (self.socket.as_fd(), flags)
    }

    /// Goes on with the handshake. Returns true once the peer has proved who it is.
    ///
    /// # Errors
    /// Returns the reason why the peer is refused, or refuses.
    pub(super) fn shake_hands(&mut self) -> Result<bool, String> {
        self.write_tls()?;
        let ended = self.read_tls()?;
        self.write_tls()?;
        match (self.session.is_handshaking(), ended) {
            (true, true) => Err(format!("{} has closed the connection during the handshake", self.remote)),
            (is_handshaking, _) => Ok(!is_handshaking),
        }
    }

    /// Returns true if the other side's certificate has this name.
    pub(super) fn is_from(&self, name: &ServerName<'_>) -> bool {
        let certificate = self.session.peer_certificates().and_then(|chain| chain.first());
        let parsed = certificate.and_then(|one| ParsedCertificate::try_from(one).ok());
        parsed.is_some_and(|parsed| verify_server_name(&parsed, name).is_ok())
    }

    /// Reason why a connection of somebody else is closed.
    pub(super) fn stranger(&self) -> String {
        format!("the certificate of {} has the name of no other box in the configuration", self.remote)
    }

    /// Reason why a handshake that takes too long is given up.
    pub(super) fn late(&self) -> String {
        format!("{} does not finish the TLS handshake", self.remote)
    }

    /// The connection is used from now on.
    pub(super) fn begin(&mut self, now_ms: u64) {
        self.heard_ms = now_ms;
    }

    /// Takes the numbers of bytes sent and received since the last call.
    pub(super) fn take_bytes(&mut self) -> (u64, u64) {
        std::mem::take(&mut self.bytes)
    }

    /// Time at which the peer counts as gone if nothing happens.
    pub(super) fn deadline_ms(&self, dead_after_ms: u64) -> u64 {
        self.stuck_since_ms.map_or(self.heard_ms, |stuck| stuck.min(self.heard_ms)) + dead_after_ms
    }

    /// Returns true if the peer has been silent for this time.
    pub(super) fn is_silent(&self, now_ms: u64, ms: u64) -> bool {
        now_ms.saturating_sub(self.heard_ms) >= ms
    }

    /// Returns the reason why the peer counts as gone, if it does.
    pub(super) fn fault(&self, now_ms: u64, dead_after_ms: u64) -> Option<String> {
        let is_stuck = |since| now_ms.saturating_sub(since) >= dead_after_ms;
        if self.is_silent(now_ms, dead_after_ms) {
            Some(format!("{} is silent for {dead_after_ms} ms", self.remote))
        } else if self.stuck_since_ms.is_some_and(is_stuck) {
            Some(format!("{} has not read for {dead_after_ms} ms", self.remote))
        } else {
            None
        }
    }

    /// Carries bytes in both directions.
    ///
    /// # Errors
    /// Returns the reason for which the connection has to be closed. The peer has been told, if it can read.
    pub(super) fn carry(
        &mut self,
        now_ms: u64,
        (exchange, may_read): (&mut Exchange, bool),
        received: &mut Vec<Received>,
    ) -> Result<Flow, String> {
        self.write(now_ms, exchange)?;
        let (mut read, mut is_ended, mut bytes) = (0, false, [0; WRITE_LEN]);
        while may_read && read < READ_MAX && !is_ended {
            match self.session.reader().read(&mut bytes) {
                Ok(0) => is_ended = true,
                Ok(len) => {
                    read += len;
                    self.heard_ms = now_ms;
                    if let Err(error) = exchange.receive(now_ms, &bytes[..len], received) {
                        self.finish(exchange);
                        return Err(error.to_string());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => match self.read_some()? {
                    Some(0) => is_ended = true,
                    Some(_) => {}
                    None => break,
                },
                // The peer has ended TCP without ending TLS: it was killed.
                Err(_) => is_ended = true,
            }
        }
        if !may_read {
            // Bytes may wait in the socket.
            self.heard_ms = now_ms;
        }
        self.write(now_ms, exchange)?;
        Ok(if is_ended { Flow::Ended } else { Flow::GoesOn })
    }

    /// Sends what the exchange has to say, as far as the socket takes it.
    fn write(&mut self, now_ms: u64, exchange: &mut Exchange) -> Result<(), String> {
        loop {
            if !self.write_tls()? {
                self.stuck_since_ms.get_or_insert(now_ms);
                return Ok(());
            }
            self.stuck_since_ms = None;
            if self.output.is_empty() {
                exchange.take_output(&mut self.output);
            }
            let part = self.output.len().min(WRITE_LEN);
            if part == 0 {
                return Ok(());
            }
            let taken = self.session.writer().write(&self.output[..part]);
            let taken = taken.map_err(|error| format!("{}: {error}", self.remote))?;
            self.output.drain(..taken);
        }
    }

    /// Sends the last bytes of the exchange and closes the connection, without waiting.
    pub(super) fn finish(&mut self, exchange: &mut Exchange) {
        exchange.take_output(&mut self.output);
        // A peer that does not read misses the reason.
        let _ = self.session.writer().write(&self.output);
        self.session.send_close_notify();
        let _ = self.write_tls();
    }

    /// Writes records of TLS. Returns false if the socket takes no more.
    fn write_tls(&mut self) -> Result<bool, String> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.socket) {
                Ok(len) => {
                    self.bytes.0 += len as u64;
                    self.stuck_since_ms = None;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_reset(&error) => {
                    return Err(format!("{} has closed the connection", self.remote));
                }
                Err(error) => return Err(format!("{}: {error}", self.remote)),
            }
        }
        Ok(true)
    }

    /// Reads records of TLS during the handshake. Returns true at the end of the connection.
    fn read_tls(&mut self) -> Result<bool, String> {
        while self.session.is_handshaking() {
            match self.read_some()? {
                Some(0) => return Ok(true),
                Some(_) => {}
                None => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Reads some records of TLS: the number of bytes, 0 at the end, or `None` if there are none yet.
    fn read_some(&mut self) -> Result<Option<usize>, String> {
        loop {
            match self.session.read_tls(&mut self.socket) {
                Ok(len) => {
                    self.bytes.1 += len as u64;
                    let processed = self.session.process_new_packets();
                    return match processed {
                        Ok(_) => Ok(Some(len)),
                        Err(error) => {
                            // The alert.
                            let _ = self.write_tls();
                            Err(format!("{}: {}", self.remote, in_words(&error)))
                        }
                    };
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_reset(&error) => return Ok(Some(0)),
                Err(error) => return Err(format!("{}: {error}", self.remote)),
            }
        }
    }
}

fn is_reset(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// Describes an error of TLS for an operator.
fn in_words(error: &rustls::Error) -> String {
    let what = match Fault::from(error) {
        Fault::ForeignAuthority => {
            "its certificate is not from the authority of this pair: copy the files of `gatun peer init` again"
        }
        Fault::Expired => "its certificate has expired: run `gatun peer renew`, and check the clock",
        Fault::NotYetValid => "its certificate is not valid yet: check the clocks of both boxes",
        Fault::RefusesAuthority => "it refuses the certificate of this box, which is not from its authority",
        Fault::RefusesExpired => {
            "it refuses the certificate of this box, which has expired, or is not valid yet: \
             run `gatun peer renew`, and check the clocks of both boxes"
        }
        Fault::CertificateRequired | Fault::NoCertificate => "no certificate was sent",
        Fault::NotTls => "it does not speak TLS 1.3",
        Fault::OtherName | Fault::OtherProtocol | Fault::Other(_) => return error.to_string(),
    };
    what.to_owned()
}
