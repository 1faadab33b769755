//! The API over TCP: roles of tokens, and hostile clients.

use crate::bed::{Bed, IDLE, LONG, is_served, rest, secure};
use gatun_api::client::{Client, Error, Trust};
use gatun_api::types::{Cleared, Session, Status};
use gatun_control::ClientRefusal;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

type Stream = StreamOwned<ClientConnection, TcpStream>;

fn client(bed: &Bed, token: &str) -> Client {
    let server = format!("https://{}", bed.tls.address).parse().unwrap();
    Client::remote(server, token, &Trust::Roots(bed.tls.root.clone().into())).unwrap()
}

/// Connects up to the end of the handshake.
fn connect(bed: &Bed) -> Stream {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(bed.tls.root.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut tls = ClientConnection::new(Arc::new(config), "127.0.0.1".try_into().unwrap()).unwrap();
    let mut stream = plain(bed);
    while tls.is_handshaking() {
        tls.complete_io(&mut stream).unwrap();
    }
    StreamOwned::new(tls, stream)
}

fn plain(bed: &Bed) -> TcpStream {
    let stream = TcpStream::connect(bed.tls.address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

fn answer_to(bed: &Bed, bytes: &[u8]) -> String {
    let mut stream = connect(bed);
    let _ = stream.write_all(bytes);
    rest(stream)
}

fn status_of<T>(answer: Result<T, Error>) -> u16 {
    match answer {
        Ok(_) => 200,
        Err(Error::Refused(status, _)) => status,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn tokens_allow_what_their_role_allows_and_nothing_works_without() {
    let bed = Bed::start(1);
    bed.open(1000..1010);
    let (reads, writes) = (client(&bed, &bed.tls.reads), client(&bed, &bed.tls.writes));
    assert_eq!(reads.get::<Status>("/v1/status").unwrap().sessions, 10);
    let lines = rest(reads.open("GET", "/v1/sessions?format=ndjson", &[]).unwrap());
    assert_eq!(lines.lines().filter(|line| serde_json::from_str::<Session>(line).is_ok()).count(), 10);
    for (method, path) in [
        ("DELETE", "/v1/sessions?all=true"),
        ("DELETE", "/v1/bindings?all=true"),
        ("POST", "/v1/sessions/end"),
        ("POST", "/v1/addresses/drain"),
        ("GET", "/v1/trace?seconds=1"),
    ] {
        let refused = reads.open(method, path, b"{\"sessions\": []}").map(drop);
        assert_eq!(status_of(refused), 403, "{method} {path}");
    }
    assert_eq!(status_of(reads.get::<Status>("/v1/nothing")), 404);
    let cleared: Cleared = writes.ask("DELETE", "/v1/sessions?all=true", &[]).unwrap();
    assert_eq!(cleared.sessions, 10);
    assert!(
        bed.log().iter().any(|line| line.starts_with("api: writes at 127.0.0.1 cleared")),
        "{:?}",
        bed.log()
    );
    // Clients without a valid token learn nothing about existing paths.
    for (path, authorization) in [
        ("/v1/status", ""),
        ("/v1/nothing", ""),
        ("/metrics", ""),
        ("/openapi.json", ""),
        ("/v1/status", "authorization: Bearer \r\n"),
        ("/v1/status", "authorization: Basic cmVhZHM6cmVhZHM=\r\n"),
        ("/v1/status", "authorization: Bearer gatun_0000\r\n"),
        ("/v1/status", "authorization: Bearer \u{ff}\u{fe}\r\n"),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{authorization}\r\n");
        let answer = answer_to(&bed, request.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 401 "), "{path} {authorization}: {answer}");
        assert!(answer.contains("www-authenticate: Bearer realm=\"gatun\"\r\n"), "{answer}");
    }
    let remote_access = &bed.tls.remote_access;
    let clients_refused = [ClientRefusal::Role, ClientRefusal::NoToken, ClientRefusal::WrongToken]
        .map(|why| remote_access.clients_refused(why));
    assert_eq!(clients_refused, [5, 6, 2]);
    let metrics = rest(reads.open("GET", "/metrics", &[]).unwrap());
    assert!(metrics.contains("gatun_api_clients_refused_total{reason=\"role\"} 5\n"), "{metrics}");
    assert!(bed.log().iter().any(|line| line == "api: a wrong token from 127.0.0.1"), "{:?}", bed.log());
}

#[test]
fn a_source_of_wrong_tokens_is_refused_for_a_while_and_others_are_served() {
    let bed = Bed::start(1);
    let wrong = client(&bed, "gatun_wrong");
    let answers: Vec<u16> = (0..14).map(|_| status_of(wrong.get::<Status>("/v1/status"))).collect();
    assert!(answers.starts_with(&[401; 10]) && answers.ends_with(&[429; 2]), "{answers:?}");
    // Until the time is over, the right token is refused too; the Unix socket is unaffected.
    assert!(bed.client.get::<Status>("/v1/status").is_ok());
    let deadline = Instant::now() + LONG;
    let right = client(&bed, &bed.tls.reads);
    let mut seen = vec![];
    while !matches!(seen.last(), Some(200)) {
        assert!(Instant::now() < deadline, "{seen:?}");
        seen.push(status_of(right.get::<Status>("/v1/status")));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(seen[..seen.len() - 1].iter().all(|status| *status == 429), "{seen:?}");
    assert_eq!(bed.log().iter().filter(|line| line.contains("a wrong token")).count(), 1, "{:?}", bed.log());
}

#[test]
fn invalid_tls_and_http_end_their_own_connection() {
    let bed = Bed::start(1);
    let hello: &[u8] = b"\x16\x03\x01\x00\xf0\x01\x00\x00\xec\x03\x03";
    for bytes in [
        b"GET /v1/status HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(),
        b"\0".repeat(20_000),
        b"\xff".repeat(5),
        [hello, &[0xa5; 1000]].concat(),
        b"\x16\x03\x01\xff\xff".repeat(4000),
        b"\x15\x03\x03\x00\x02\x02\x28".repeat(100),
    ] {
        let mut stream = plain(&bed);
        let _ = stream.write_all(&bytes);
        let answer = rest(stream);
        assert!(!answer.contains("HTTP"), "{answer}");
        is_served(&client(&bed, &bed.tls.reads));
    }
    let token = format!("authorization: Bearer {}\r\n", bed.tls.writes);
    let get = format!("GET /v1/status HTTP/1.1\r\nhost: x\r\n{token}");
    let post = format!("POST /v1/sessions/end HTTP/1.1\r\nhost: x\r\n{token}connection: close\r\n");
    let long = "x".repeat(40_000);
    for (request, wanted) in [
        (format!("{get}x: {long}\r\n\r\n"), "431"),
        (format!("{get}{}\r\n", "x: y\r\n".repeat(500)), "431"),
        (format!("{get}authorization: Bearer {long}\r\n\r\n"), "431"),
        ("\0\r\n\r\n".to_owned(), "400"),
        (format!("{post}content-length: 99999999\r\n\r\n"), "413"),
        (format!("{post}content-length: 3\r\n\r\n{{}}}}"), "400"),
        // The body of a refused request is not read.
        ("POST /v1/sessions/end HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n".to_owned(), "401"),
    ] {
        let answer = answer_to(&bed, request.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {wanted}")), "{wanted}: {answer}");
        is_served(&client(&bed, &bed.tls.reads));
    }
}

#[test]
fn slow_tls_clients_time_out() {
    let bed = Bed::start(1);
    let before = Instant::now();
    let mut half_open: Vec<TcpStream> = (0..5).map(|_| plain(&bed)).collect();
    for stream in &mut half_open {
        stream.write_all(b"\x16\x03\x01").unwrap();
    }
    let mut silent = connect(&bed);
    silent.flush().unwrap();
    let mut begun = connect(&bed);
    begun.write_all(b"GET /v1/status HTTP/1.1\r\n").unwrap();
    for stream in half_open {
        assert_eq!(rest(stream), "");
    }
    assert_eq!(rest(silent), "");
    let answer = rest(begun);
    assert!(answer.is_empty() || answer.contains(" 408 "), "{answer}");
    assert!(before.elapsed() < LONG / 2);
    // A handshake byte by byte.
    let before = Instant::now();
    let mut stream = plain(&bed);
    while stream.write_all(b"\x16").is_ok() {
        assert!(before.elapsed() < LONG, "still connected");
        std::thread::sleep(IDLE / 40);
    }
    // A client that takes nothing of a long answer.
    bed.open_for(20, 1000..1200);
    let mut greedy = connect(&bed);
    let request = format!(
        "GET /v1/sessions?format=ndjson HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        bed.tls.reads
    );
    // More than both sockets' buffers hold.
    greedy.write_all(request.repeat(30).as_bytes()).unwrap();
    std::thread::sleep(4 * IDLE);
    is_served(&client(&bed, &bed.tls.reads));
    let taken = rest(greedy).matches("HTTP/1.1 200").count();
    assert!((1..30).contains(&taken), "{taken} answers were received");
    bed.stop();
}

#[test]
fn thousands_of_unfinished_handshakes_leave_others_alone() {
    let bed = Bed::start(1);
    let mut open = std::collections::VecDeque::new();
    for n in 0..2000 {
        let mut stream = plain(&bed);
        let _ = stream.write_all(b"\x16\x03\x01\x00\xf0");
        open.push_back(stream);
        if open.len() > 500 {
            open.pop_front();
        }
        if n % 200 == 0 {
            assert!(bed.client.get::<Status>("/v1/status").unwrap().packets_accounted);
        }
    }
    // The source has opened too many: refusing the rest costs nothing.
    assert!(
        bed.tls.remote_access.clients_refused(ClientRefusal::Rate) > 1000,
        "{}",
        bed.tls.remote_access.clients_refused(ClientRefusal::Rate)
    );
    drop(open);
    let deadline = Instant::now() + LONG;
    let one = client(&bed, &bed.tls.reads);
    while one.get::<Status>("/v1/status").is_err() {
        assert!(Instant::now() < deadline, "the source is not served again");
        std::thread::sleep(IDLE / 4);
    }
}

#[test]
fn a_removed_token_ends_its_connections_and_a_new_certificate_is_used() {
    let bed = Bed::start(1);
    bed.open_for(20, 1000..1200);
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut stream = connect(&bed);
        let request =
            format!("GET /v1/status HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n", bed.tls.reads);
        stream.write_all(request.as_bytes()).unwrap();
        let mut some = [0; 8];
        stream.read_exact(&mut some).unwrap();
        streams.push(stream);
    }
    let (next, root, [reads, _]) = secure();
    let before = Instant::now();
    bed.tls.remote_access.set(next);
    for stream in streams {
        rest(stream);
    }
    assert!(before.elapsed() < IDLE, "they ended by the idle timeout");
    let old = client(&bed, &bed.tls.reads).get::<Status>("/v1/status").unwrap_err();
    assert!(old.to_string().contains("pass --ca FILE"), "{old}");
    let server: gatun_api::client::Server = format!("https://{}", bed.tls.address).parse().unwrap();
    let trust = Trust::Roots(root.into());
    let old_token = Client::remote(server.clone(), &bed.tls.reads, &trust).unwrap();
    assert_eq!(status_of(old_token.get::<Status>("/v1/status")), 401);
    assert!(Client::remote(server, &reads, &trust).unwrap().get::<Status>("/v1/status").is_ok());
}
