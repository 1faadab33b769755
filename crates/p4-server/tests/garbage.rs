//! Clients that speak no P4Runtime: random bytes, halves of a preface, frames of HTTP/2 with random contents,
//! and silence. Each has an end that is counted, memory is bounded, and a controller works after all.

#[allow(dead_code)]
mod support;

use gatun_p4_server::{CONNECTIONS_MAX, HANDSHAKES_MAX, ServerCounters};
use gatun_p4runtime::p4::v1::CapabilitiesRequest;
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::controllers::{Bench, Controller, PATIENCE, bench, run};
use tonic::Code;

/// First bytes of a client of HTTP/2, and settings without a wish.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
/// Clients with each kind of garbage, and silent ones.
const CLIENTS: usize = 100;
const SILENT: usize = 300;
/// Bytes of a client's garbage.
const GARBAGE: usize = 256 << 10;
/// Live memory of the process beyond that at the begin, bytes. The clients of a kind send up to 25 MB.
const MEMORY_MAX: usize = 12 << 20;

/// System allocator that knows how much memory is live, and was.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grow(size: usize) {
    let live = LIVE.fetch_add(size, Ordering::Relaxed) + size;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: every call is passed to the system's allocator unchanged. Counting touches no other memory and does
// not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller guarantees the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller guarantees the same contract.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Reproducible random numbers.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) ^ self.0 << 32
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 8) as usize % end
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Headers of a request of gRPC, without compression (RFC 7541 6.2.2).
fn request(method: &str) -> Vec<u8> {
    let path = format!("/p4.v1.P4Runtime/{method}");
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", &path),
        (":authority", "switch"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ];
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

const METHODS: [&str; 5] =
    ["Write", "Read", "SetForwardingPipelineConfig", "GetForwardingPipelineConfig", "StreamChannel"];

/// Random frames: kinds that exist and others, any flags, few streams. Some lie about their length.
fn random_frames(chance: &mut Chance) -> Vec<u8> {
    let mut bytes = [PREFACE, SETTINGS].concat();
    while bytes.len() < GARBAGE {
        let len = chance.below(600);
        let payload = chance.bytes(len);
        let mut frame = frame(chance.below(11) as u8, chance.next() as u8, chance.below(8) as u32, &payload);
        if chance.below(40) == 0 {
            frame[2] = chance.next() as u8;
        }
        bytes.extend(frame);
    }
    bytes
}

/// Requests whose messages are random: bytes of protobuf, or of nothing.
fn random_messages(chance: &mut Chance) -> Vec<u8> {
    let mut bytes = [PREFACE, SETTINGS].concat();
    for stream in (1..16).step_by(2) {
        bytes.extend(frame(1, 4, stream, &request(METHODS[chance.below(5)])));
        let len = chance.below(4000);
        let said = if chance.below(3) == 0 { chance.next() as u32 } else { len as u32 };
        let message = [&[0][..], &said.to_be_bytes(), &chance.bytes(len)].concat();
        bytes.extend(frame(0, chance.below(2) as u8, stream, &message));
    }
    bytes
}

/// A header without an end: frames that continue it.
fn endless_headers(chance: &mut Chance) -> Vec<u8> {
    let mut bytes = [PREFACE, SETTINGS, &frame(1, 0, 1, &request("Write"))].concat();
    while bytes.len() < GARBAGE {
        let value = chance.bytes(100).iter().map(|byte| b'a' + byte % 26).collect::<Vec<u8>>();
        bytes.extend(frame(9, 0, 1, &[&[0, 4][..], b"name", &[100], &value].concat()));
    }
    bytes
}

/// Requests that are taken back at once.
fn taken_back(_: &mut Chance) -> Vec<u8> {
    let mut bytes = [PREFACE, SETTINGS].concat();
    for stream in (1u32..).step_by(2) {
        bytes.extend(frame(1, 4, stream, &request("StreamChannel")));
        bytes.extend(frame(3, 0, stream, &[0, 0, 0, 8]));
        if bytes.len() > GARBAGE {
            break;
        }
    }
    bytes
}

/// Pings and settings, which all want an answer.
fn pings(chance: &mut Chance) -> Vec<u8> {
    let mut bytes = [PREFACE, SETTINGS].concat();
    while bytes.len() < GARBAGE {
        bytes.extend(frame(6, 0, 0, &chance.bytes(8)));
        bytes.extend(frame(4, 0, 0, &[]));
    }
    bytes
}

fn random_bytes(chance: &mut Chance) -> Vec<u8> {
    let len = chance.below(GARBAGE);
    chance.bytes(len)
}

fn preface_and_random_bytes(chance: &mut Chance) -> Vec<u8> {
    [PREFACE.to_vec(), random_bytes(chance)].concat()
}

/// Sends bytes, ends its own half of the connection, and reads what the server says until it ends, too.
fn send(bench: &Bench, bytes: &[u8]) {
    let mut stream = TcpStream::connect(bench.server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    // A server that has heard enough resets the connection.
    for part in bytes.chunks(16 << 10) {
        if stream.write_all(part).is_err() {
            return;
        }
        read_present(&mut stream);
    }
    let _ = stream.shutdown(Shutdown::Write);
    let mut room = [0; 4096];
    loop {
        match stream.read(&mut room) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => {
                let is_reset = matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
                assert!(is_reset, "the server keeps the connection: {error}");
                return;
            }
        }
    }
}

/// Reads what the server has said so far, so that it does not wait for room.
fn read_present(stream: &mut TcpStream) {
    stream.set_nonblocking(true).unwrap();
    while stream.read(&mut [0; 4096]).is_ok_and(|len| len > 0) {}
    stream.set_nonblocking(false).unwrap();
}

/// Clients that have had an end or a place.
fn counted(counters: &ServerCounters) -> u64 {
    counters.connections + counters.connections_refused + counters.handshakes_failed
}

/// Waits until so many clients are counted.
fn wait_for(bench: &Bench, clients: u64) {
    let begin = Instant::now();
    while counted(&bench.server.counters()) < clients {
        assert!(begin.elapsed() < PATIENCE, "{:?}", bench.server.counters());
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(counted(&bench.server.counters()), clients, "{:?}", bench.server.counters());
}

/// A controller that becomes the primary one, and asks something.
async fn works(bench: &Bench, election: u64) {
    let mut controller = Controller::connect(bench, election).await;
    assert_eq!(controller.status().await, Code::Ok);
    controller.client.capabilities(CapabilitiesRequest {}).await.unwrap();
}

fn live() -> usize {
    LIVE.load(Ordering::Relaxed)
}

/// Bytes of a client.
type Garbage = fn(&mut Chance) -> Vec<u8>;

/// One test: memory is the process's.
#[test]
fn garbage_below_grpc_is_counted_takes_no_memory_and_a_controller_works_after_it() {
    let bench = bench();
    let mut chance = Chance(1);
    let mut clients = 0;
    let kinds: [(&str, Garbage); 7] = [
        ("random bytes", random_bytes),
        ("random bytes behind a preface", preface_and_random_bytes),
        ("random frames", random_frames),
        ("random messages", random_messages),
        ("endless headers", endless_headers),
        ("requests taken back", taken_back),
        ("pings", pings),
    ];
    run(works(&bench, 1));
    clients += 1;
    for (election, (kind, garbage)) in (2..).zip(kinds) {
        let before = live();
        PEAK.store(before, Ordering::Relaxed);
        for _ in 0..CLIENTS {
            send(&bench, &garbage(&mut chance));
        }
        clients += CLIENTS as u64;
        let peak = PEAK.load(Ordering::Relaxed) - before;
        println!("{kind}: {} kB at most, {:?}", peak >> 10, bench.server.counters());
        assert!(peak < MEMORY_MAX, "{kind}: {peak} bytes");
        run(works(&bench, election));
        clients += 1;
        wait_for(&bench, clients);
    }
    silence(&bench, &mut clients);
}

/// Clients that send nothing, a part of the preface, or nothing behind it.
fn silence(bench: &Bench, clients: &mut u64) {
    let before = bench.server.counters();
    let live_before = live();
    PEAK.store(live_before, Ordering::Relaxed);
    let connect = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(bench.server.address()).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    let silent: Vec<TcpStream> = (0..SILENT).map(|n| connect(&PREFACE[..n % PREFACE.len()])).collect();
    // The oldest have ended: the others wait for their handshake.
    wait_for(bench, *clients + (SILENT - HANDSHAKES_MAX) as u64);
    run(works(bench, 100));
    let now = bench.server.counters();
    assert_eq!(
        (now.connections, now.connections_refused),
        (before.connections + 1, before.connections_refused)
    );
    drop(silent);
    *clients += SILENT as u64 + 1;
    wait_for(bench, *clients);

    let idle: Vec<TcpStream> = (0..SILENT).map(|_| connect(&[PREFACE, SETTINGS].concat())).collect();
    *clients += SILENT as u64;
    wait_for(bench, *clients);
    let now = bench.server.counters();
    assert_eq!(now.connections, before.connections + 1 + CONNECTIONS_MAX as u64, "{now:?}");
    assert_eq!(
        now.connections_refused,
        before.connections_refused + (SILENT - CONNECTIONS_MAX) as u64,
        "{now:?}"
    );
    let peak = PEAK.load(Ordering::Relaxed) - live_before;
    println!("silence: {} kB at most, {now:?}", peak >> 10);
    assert!(peak < MEMORY_MAX, "{peak} bytes");
    drop(idle);
    // Places are free when the server has seen the ends.
    let begin = Instant::now();
    loop {
        let refused = bench.server.counters().connections_refused;
        let mut stream = connect(&[PREFACE, SETTINGS].concat());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // Settings of the server, or the end.
        if stream.read(&mut [0; 9]).is_ok_and(|len| len > 0) {
            break;
        }
        assert!(bench.server.counters().connections_refused > refused && begin.elapsed() < PATIENCE);
    }
    run(works(bench, 101));
}
