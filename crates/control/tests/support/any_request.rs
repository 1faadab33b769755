//! Arbitrary bytes from a client get an HTTP answer or none, never cause a panic, and the next client is
//! served. The fuzz target and the replay of its findings share this file.
//!
//! ```text
//!   0    1: the rest is sent as it is; else the rest makes a request of a known path:
//!   1    number of the path
//!   ..   name of a parameter (a byte, by number) and its value up to a zero, until a name of 0xff; then the body
//! ```

use gatun_api::paths::{self, ENDPOINTS};
use gatun_api::types::{Config, Sandbox, SandboxExtent, Status};
use gatun_control::configure::{RefusalKind, Refused};
use gatun_control::{ClientTimeouts, Facts, Listeners, Setup, SharedFacts, listen};
use gatun_io::Memory;
use gatun_nat::Nat;
use gatun_nat::plan::{Nat44, Nat64, Net4, Plan, Pool4, PoolRange, Transport};
use gatun_wire::Prefix64;
use gatun_worker::{Clock, Worker};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

/// Timeouts of clients: no request here takes longer.
const PATIENCE: Duration = Duration::from_millis(500);
/// Longest time for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

fn plan() -> Plan {
    let range = PoolRange {
        first: Ipv4Addr::new(203, 0, 113, 1),
        last: Ipv4Addr::new(203, 0, 113, 2),
        ports: (1024, 2047),
        transports: [true; 3],
    };
    Plan {
        pools: vec![Pool4 {
            name: "p".into(),
            ranges: vec![range],
            overload: vec![(Transport::Udp, 443)],
            ..Pool4::default()
        }],
        nat64: vec![Nat64 {
            name: "n".into(),
            pool6: vec![Prefix64::WELL_KNOWN],
            wkp_non_global: true,
            ..Nat64::default()
        }],
        nat44: vec![Nat44 {
            name: "c".into(),
            inside: Net4::new(Ipv4Addr::new(100, 64, 0, 0), 10).into_iter().collect(),
            ..Nat44::default()
        }],
        ..Plan::default()
    }
}

/// Starts a worker and its API once; returns the API's socket.
fn socket() -> &'static PathBuf {
    static SOCKET: OnceLock<PathBuf> = OnceLock::new();
    SOCKET.get_or_init(|| {
        let (memory, peer) = Memory::new("m").expect("a backend");
        let nat = Nat::new(&plan(), [1, 2, 3, 4]).expect("the plan is right");
        let (worker, handle) = Worker::new(nat, Box::new(memory), Clock::new()).expect("a worker");
        std::thread::spawn(move || {
            let _peer = peer;
            worker.run()
        });
        let path = std::env::temp_dir().join(format!("gatun-any-request-{}", std::process::id()));
        let (api, file) = listen::unix(&path, |_| Ok(())).expect("a socket");
        // A static keeps the file for the life of the process, so leak checkers do not report it.
        static FILE: OnceLock<listen::SocketFile> = OnceLock::new();
        FILE.get_or_init(|| file);
        let facts = Facts {
            config: Config { file: "f".into(), revision: "0".into(), text: "t".into(), ..Config::default() },
            sessions_max: 1000,
            subscribers_max: 10,
            ..Facts::default()
        };
        let setup = Setup {
            version: "1.2.3",
            facts: SharedFacts::new(facts),
            workers: vec![handle],
            sandbox: Sandbox { state: SandboxExtent::Not, missing: Vec::new() },
            events: None,
            // The receiver of orders refuses them with a conflict, as a daemon that cannot change its
            // configuration.
            auditor: None,
            configure: Some(Box::new(|order, reply| {
                reply(Err(Refused::new(RefusalKind::Conflict, format!("{order:?}"), "")));
                true
            })),
            patience: ClientTimeouts { request: PATIENCE, idle: PATIENCE },
            history_every: gatun_control::history::EVERY,
            remote_access: None,
            figures: Box::new(Default::default),
            fastpath: Box::new(gatun_api::types::FastPath::default),
            offload: Box::new(gatun_api::types::Offload::default),
            health: Box::new(gatun_api::types::Health::default),
            peer: gatun_control::PeerControl::default(),
            cluster: gatun_control::ClusterControl::default(),
            translator_of: Box::new(|_| Some("the kernel translates its packets".to_owned())),
            switch_gone: Box::new(|name| Err(format!("no switch '{name}'"))),
            traced_sessions: Box::new(|_| std::sync::Arc::new(|_| None)),
            troubles: Box::new(Vec::new),
            level: Default::default(),
            log: Box::new(|_| ()),
        };
        gatun_control::start(Listeners { api: Some(api), ..Listeners::default() }, setup).expect("an API");
        path
    })
}

/// Bytes that a client sends, and true if it waits for the end of the answer.
fn request(input: &[u8]) -> Option<(Vec<u8>, bool)> {
    let [kind, bytes @ ..] = input else { return None };
    if kind & 1 == 1 {
        return Some((bytes.to_vec(), false));
    }
    let [which, rest @ ..] = bytes else { return None };
    let endpoint = &ENDPOINTS[usize::from(*which) % ENDPOINTS.len()];
    let parameters: Vec<_> = endpoint.all_parameters().collect();
    let (mut query, mut rest) = (Vec::new(), rest);
    while let [name, after @ ..] = rest {
        rest = after;
        if *name == 0xff || parameters.is_empty() {
            break;
        }
        let (value, after) = match rest.iter().position(|byte| *byte == 0) {
            Some(end) => (&rest[..end], &rest[end + 1..]),
            None => (rest, &rest[rest.len()..]),
        };
        let name = parameters[usize::from(*name) % parameters.len()].name;
        query.push((name, String::from_utf8_lossy(value).into_owned()));
        rest = after;
    }
    let target = paths::with_query(endpoint.path, &query);
    let method = endpoint.method.name();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        rest.len()
    );
    // A trace lasts as long as the request says.
    let ends = endpoint.path != "/v1/trace" && endpoint.path != "/v1/events";
    Some(([head.as_bytes(), rest].concat(), ends))
}

/// Sends a request, reads the answer, and asks for the status as another client. Returns the status code of
/// the answer, or 0 if there is none.
pub(crate) fn run(input: &[u8]) -> u16 {
    let Some((bytes, waits)) = request(input) else { return 0 };
    let answer = answer_to(&bytes, waits);
    let status = status_of(&answer);
    assert!(!waits || status > 0, "no answer to {}", String::from_utf8_lossy(&bytes));
    assert_ne!(status, 500, "{}", String::from_utf8_lossy(&bytes));
    let next = b"GET /v1/status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let next = answer_to(next, true);
    let at = next.windows(4).position(|four| four == b"\r\n\r\n").expect("the next one has an answer");
    let told: Status = serde_json::from_slice(&next[at + 4..]).expect("a status");
    assert!(told.packets_accounted && told.workers_silent == 0, "{told:?}");
    status
}

fn status_of(answer: &[u8]) -> u16 {
    let text = answer.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5));
    text.and_then(|digits| std::str::from_utf8(digits).ok())
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(0)
}

fn answer_to(bytes: &[u8], waits: bool) -> Vec<u8> {
    let mut stream = UnixStream::connect(socket()).expect("the API listens");
    stream.set_read_timeout(Some(ANSWER_MAX)).expect("a time");
    stream.set_write_timeout(Some(ANSWER_MAX)).expect("a time");
    // The daemon may hang up before all is sent.
    let _ = stream.write_all(bytes);
    if !waits {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut answer = Vec::new();
    let ended = stream.read_to_end(&mut answer);
    let in_time = !matches!(&ended, Err(e) if e.kind() == std::io::ErrorKind::WouldBlock);
    assert!(in_time, "neither an end nor more of an answer to {}", String::from_utf8_lossy(bytes));
    answer
}
