//! Clients that send garbage, too much, too slowly, or come in thousands: others are still served.

use crate::bed::{Bed, IDLE, LONG, is_served, rest};
use gatun_api::types::Status;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Sends bytes, and returns the answer until the daemon closes.
fn answer_to(bed: &Bed, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(&bed.socket).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    // The daemon may close before it has read all.
    let _ = stream.write_all(bytes);
    rest(stream)
}

#[test]
fn garbage_and_oversized_requests_end_their_own_connection() {
    let bed = Bed::start(1);
    let long = |n| "x".repeat(n);
    let get = "GET /v1/status HTTP/1.1\r\nhost: x\r\n";
    let post = "POST /v1/sessions/end HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";
    for (bytes, wanted) in [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".repeat(30), "400"),
        (b"\0".repeat(1000), "400"),
        (b"GET\r\n\r\n".to_vec(), "400"),
        (b"GET /v1/status HTTP/9.9\r\n\r\n".to_vec(), ""),
        (format!("{get}bad header\r\n\r\n").into_bytes(), "400"),
        (format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", long(20_000)).into_bytes(), "4"),
        (format!("{get}x: {}\r\n\r\n", long(40_000)).into_bytes(), "431"),
        (format!("{get}{}\r\n", "x: y\r\n".repeat(500)).into_bytes(), "431"),
        (format!("{post}content-length: 99999999\r\n\r\n").into_bytes(), "413"),
        (format!("{post}content-length: -1\r\n\r\n").into_bytes(), "400"),
        (
            format!(
                "{post}transfer-encoding: chunked\r\n\r\n{}",
                format!("10000\r\n{}\r\n", long(65_536)).repeat(20)
            )
            .into_bytes(),
            "413",
        ),
        (format!("{post}transfer-encoding: chunked\r\n\r\nzz\r\n").into_bytes(), "400"),
        (format!("{post}content-length: 5\r\ncontent-length: 6\r\n\r\nhello!").into_bytes(), "400"),
    ] {
        let answer = answer_to(&bed, &bytes);
        assert!(answer.is_empty() || answer.starts_with(&format!("HTTP/1.1 {wanted}")), "{answer}");
        is_served(&bed.client);
    }
}

#[test]
fn slow_and_silent_clients_time_out() {
    let bed = Bed::start(1);
    for begun in [
        "",
        "G",
        "GET /v1/status HTTP/1.1\r\nhost:",
        "POST /v1/sessions/end HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{",
    ] {
        let before = Instant::now();
        let answer = answer_to(&bed, begun.as_bytes());
        assert!(before.elapsed() < LONG / 2, "{begun:?} {answer}");
        assert!(answer.is_empty() || answer.contains(" 408 "), "{begun:?}: {answer}");
    }
    // Byte by byte, forever.
    let mut stream = UnixStream::connect(&bed.socket).unwrap();
    let before = Instant::now();
    for byte in b"GET /v1/status HTTP/1.1\r\nx: ".iter().chain(std::iter::repeat(&b'y')) {
        if stream.write_all(&[*byte]).is_err() {
            break;
        }
        assert!(before.elapsed() < LONG, "still connected");
        std::thread::sleep(Duration::from_millis(5));
    }
    is_served(&bed.client);
}

#[test]
fn a_client_that_reads_nothing_is_closed_and_packets_flow() {
    let bed = Bed::start(1);
    bed.open_for(20, 1000..1200);
    let mut streams = Vec::new();
    for _ in 0..10 {
        let mut stream = UnixStream::connect(&bed.socket).unwrap();
        stream.write_all(b"GET /v1/sessions?format=ndjson HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        streams.push(stream);
    }
    bed.open_for(20, 1200..1300);
    is_served(&bed.client);
    std::thread::sleep(4 * IDLE);
    for mut stream in streams {
        let mut text = Vec::new();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let ended = stream.read_to_end(&mut text);
        assert!(ended.is_err() || !text.ends_with(b"0\r\n\r\n"), "{} bytes were received", text.len());
    }
    assert_eq!(bed.client.get::<Status>("/v1/status").unwrap().sessions, 6000);
    bed.stop();
}

#[test]
fn thousands_of_idle_connections_keep_nobody_out() {
    let bed = Bed::start(1);
    let mut idle = Vec::new();
    for n in 0..3000 {
        match UnixStream::connect(&bed.socket) {
            Ok(stream) => idle.push(stream),
            Err(error) => panic!("{n}: {error}"),
        }
        // Keep fewer connections than the process may have open files.
        if idle.len() > 500 {
            idle.remove(0);
        }
        if n % 250 == 0 {
            is_served(&bed.client);
        }
    }
    is_served(&bed.client);
}

#[test]
fn a_connection_serves_one_request_after_the_other() {
    let bed = Bed::start(1);
    let once = "GET /v1/status HTTP/1.1\r\nhost: x\r\n\r\n";
    let last = "GET /v1/status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let answer = answer_to(&bed, format!("{}{last}", once.repeat(20)).as_bytes());
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 21);
}
