//! Members over TCP and TLS, on loopback.
#![allow(missing_docs)]

mod support;

use gatun_peer::ownership::Member;
use gatun_peer::tls::{Identity, SERVER_NAME, server_name};
use gatun_peer::wire::{Exchange, PeerRecord, Received};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};
use support::{session, settings};

struct Files {
    authority: String,
    certificate: String,
    key: String,
}

fn files(authority: &CertifiedIssuer<'_, KeyPair>) -> Files {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![SERVER_NAME.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    Files { authority: authority.pem(), certificate: certificate.pem(), key: key.serialize_pem() }
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

impl Files {
    fn identity(&self) -> Identity<'_> {
        Identity {
            authority: self.authority.as_bytes(),
            certificate: self.certificate.as_bytes(),
            key: self.key.as_bytes(),
        }
    }
}

/// Sends and receives until `is_done`, for five seconds at most.
fn run(
    exchange: &mut Exchange,
    stream: &mut (impl Read + Write),
    mut is_done: impl FnMut(&mut Exchange, &[Received]) -> bool,
) -> io::Result<()> {
    let begin = Instant::now();
    let (mut received, mut bytes) = (vec![], [0; 4096]);
    loop {
        let now_ms = begin.elapsed().as_millis() as u64;
        assert!(now_ms < 5_000, "not done after five seconds");
        exchange.turn(now_ms);
        let mut output = vec![];
        exchange.take_output(&mut output);
        stream.write_all(&output)?;
        stream.flush()?;
        if is_done(exchange, &received) {
            return Ok(());
        }
        match stream.read(&mut bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => exchange.receive(now_ms, &bytes[..len], &mut received).map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        exchange.answer_all();
        if exchange.needs_walk() {
            exchange.push(now_ms, PeerRecord::StateBegins);
            exchange.push(now_ms, PeerRecord::Session(session(7, true)));
            exchange.push(now_ms, PeerRecord::StateEnds);
        }
    }
}

/// Runs a server and a client with these files. Returns the client's result, and the server's.
fn meet(server: &Files, client: &Files) -> [io::Result<()>; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (server, client) = (server.identity().server().unwrap(), client.identity().client().unwrap());
    let patience = Some(Duration::from_millis(5));
    let acknowledged = |exchange: &mut Exchange, received: &[Received]| {
        let is_there = |record: &PeerRecord| *record == PeerRecord::Session(session(7, true));
        let has_session = received
            .iter()
            .any(|one| matches!(one, Received::Records(records) if records.records.iter().any(is_there)));
        exchange.is_open()
            && has_session
            && received.iter().any(|one| matches!(one, Received::Acknowledged(number) if *number > 1))
    };
    let accepting = thread::spawn(move || {
        let (socket, _) = listener.accept()?;
        let mut exchange = Exchange::new(settings(Member::First, 1));
        exchange.open(0, true);
        let mut stream = StreamOwned::new(ServerConnection::new(server).unwrap(), socket);
        stream.conn.complete_io(&mut stream.sock)?;
        stream.sock.set_read_timeout(patience)?;
        run(&mut exchange, &mut stream, acknowledged)
    });
    let connect = || {
        let mut exchange = Exchange::new(settings(Member::Second, 2));
        exchange.open(0, true);
        let socket = TcpStream::connect(address)?;
        let connection = ClientConnection::new(client.clone(), server_name()).unwrap();
        let mut stream = StreamOwned::new(connection, socket);
        stream.conn.complete_io(&mut stream.sock)?;
        stream.sock.set_read_timeout(patience)?;
        run(&mut exchange, &mut stream, acknowledged)
    };
    let connected = connect();
    [connected, accepting.join().unwrap()]
}

#[test]
fn members_of_one_authority_exchange_their_state() {
    let authority = authority();
    let [client, server] = meet(&files(&authority), &files(&authority));
    // The side that is done first closes the connection.
    assert!(client.is_ok() || server.is_ok(), "{client:?} {server:?}");
}

#[test]
fn a_certificate_of_another_authority_is_refused_by_both_sides() {
    let (ours, theirs) = (authority(), authority());
    let [client, server] = meet(&files(&ours), &files(&theirs));
    assert!(client.is_err() && server.is_err(), "{client:?} {server:?}");
    // Only the client is a stranger.
    let stranger = Files { authority: files(&ours).authority, ..files(&theirs) };
    let [client, server] = meet(&files(&ours), &stranger);
    assert!(client.is_err() && server.is_err(), "{client:?} {server:?}");
}
