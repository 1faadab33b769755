//! Workers over the in-memory backend, with the API in front of them.
#![allow(missing_docs, unreachable_pub)]

use gatun_api::client::Client;
use gatun_api::types::{self, Config, Kind, Port, Sandbox, SandboxExtent, Selectors, StaticMap, Status};
use gatun_control::configure::{MapCursor, Order, OrderResult, RefusalKind, Refused};
use gatun_control::secure::{Files, Secure};
use gatun_control::tokens::{Role, Tokens};
use gatun_control::{
    AuditQuestion, ClientTimeouts, Facts, Listeners, PeerControl, RemoteAccess, Setup, SharedFacts, listen,
};
use gatun_io::{Memory, memory::MemoryPeer};
use gatun_nat::Nat;
use gatun_nat::plan::{Nat64, Plan, Pool4, PoolRange};
use gatun_nat::workers::Shares;
use gatun_testkit::packet::{Message, V6};
use gatun_wire::Prefix64;
use gatun_worker::exchange::exchange;
use gatun_worker::{Clock, Handle, Snapshot, Worker};
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub const LONG: Duration = Duration::from_secs(10);
/// Idle time of clients here.
pub const IDLE: Duration = Duration::from_millis(400);
/// Interval between points of the history here.
pub const HISTORY_EVERY: Duration = Duration::from_millis(20);
/// Mappings of the configuration.
pub const MAPS: usize = 10_000;
pub const REMOTE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
pub const CLIENT: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 5);

static NUMBER: AtomicUsize = AtomicUsize::new(0);

pub struct Bed {
    pub socket: PathBuf,
    pub client: Client,
    pub metrics: SocketAddr,
    pub handles: Vec<Handle>,
    peers: Vec<MemoryPeer>,
    threads: Vec<JoinHandle<(Snapshot, Option<std::io::Error>)>>,
    log: Arc<Mutex<Vec<String>>>,
    pub tls: Tls,
    _file: listen::SocketFile,
}

/// Pair whose member may release, and not take over.
fn pair() -> PeerControl {
    let state = || types::Peer {
        state: types::PeerState::Synced,
        member: Some(types::PeerMember::B),
        ..types::Peer::default()
    };
    PeerControl {
        state: Box::new(state),
        release: Box::new(|| Ok(())),
        take_over: Box::new(|| Err("the peer is connected".to_owned())),
    }
}

/// The API over TCP.
pub struct Tls {
    pub address: SocketAddr,
    pub remote_access: Arc<RemoteAccess>,
    /// Root of its certificate: the certificate itself, in PEM.
    pub root: String,
    pub reads: String,
    pub writes: String,
}

/// Reads until the daemon closes.
pub fn rest(mut stream: impl Read) -> String {
    let (mut text, mut some) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut some) {
            Ok(0) => break,
            Ok(n) => text.extend_from_slice(&some[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof) => break,
            Err(error) => panic!("{error}: the daemon waits for more after {} bytes", text.len()),
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Asserts that another client is served.
pub fn is_served(client: &Client) {
    assert!(client.get::<Status>("/v1/status").unwrap().packets_accounted);
}

/// A part of the mappings, as a daemon lists them.
fn maps(from: Option<MapCursor>, limit: usize) -> OrderResult {
    let at = from.map_or(0, |from| from.at);
    let map = |n: usize| StaticMap {
        instance: Some("n".into()),
        protocol: None,
        inside: format!("2001:db8::{n:x}"),
        outside: format!("198.18.{}.{}", n >> 8, n & 0xff),
    };
    let next = (at + limit < MAPS).then(|| MapCursor { revision: "r".into(), at: at + limit });
    OrderResult::Maps { maps: (at..MAPS.min(at + limit)).map(map).collect(), next }
}

/// A new certificate in PEM, and two tokens: `reads` and `writes`.
pub fn secure() -> (Secure, String, [String; 2]) {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("gatun-tls-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let [certificate, key, file] = ["crt", "key", "tokens"].map(|name| directory.join(name));
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let mut tokens = Tokens::default();
    let secrets =
        [("reads", Role::Read), ("writes", Role::Write)].map(|(name, role)| tokens.add(name, role).unwrap());
    std::fs::write(&file, tokens.to_string()).unwrap();
    let secure = Secure::load(&Files { certificate: &certificate, key: &key, tokens: &file }).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    (secure, made.cert.pem(), secrets)
}

/// Answer of a log without records.
fn past(question: &AuditQuestion) -> types::PastHolders {
    types::PastHolders {
        outcome: types::Outcome::Unknown,
        unknown: vec!["there is nothing in the log".to_owned()],
        address: question.address,
        port: question.port,
        at: question.at.clone(),
        precision_ms: 1,
        configuration: None,
        pool: None,
        holders: Vec::new(),
        near: Vec::new(),
        caveats: Vec::new(),
    }
}

fn plan(addresses: u8) -> Plan {
    let (first, last) = (Ipv4Addr::new(198, 51, 100, 1), Ipv4Addr::new(198, 51, 100, addresses));
    let range = PoolRange { first, last, ports: (1024, 65_535), transports: [true; 3] };
    Plan {
        pools: vec![Pool4 { name: "p".into(), ranges: vec![range], ..Pool4::default() }],
        nat64: vec![Nat64 {
            name: "n".into(),
            pool6: vec![Prefix64::WELL_KNOWN],
            wkp_non_global: true,
            subscriber_len: 128,
            ..Nat64::default()
        }],
        ..Plan::default()
    }
}

impl Bed {
    pub fn start(workers: usize) -> Bed {
        let plan = plan(workers as u8);
        let (mut peers, mut handles, mut threads) = (vec![], vec![], vec![]);
        let mut add = |nat: Nat, exchange| {
            let (memory, peer) = Memory::new("m").unwrap();
            let (worker, handle) = match exchange {
                Some(exchange) => Worker::sharing(nat, Box::new(memory), Clock::new(), exchange),
                None => Worker::new(nat, Box::new(memory), Clock::new()).unwrap(),
            };
            threads.push(std::thread::spawn(move || worker.run()));
            peers.push(peer);
            handles.push(handle);
        };
        if workers == 1 {
            add(Nat::new(&plan, [1, 2, 3, 4]).unwrap(), None);
        } else {
            let shares = Shares::new(&plan, workers, [9; 4]).unwrap();
            let exchanges = exchange(workers, &Arc::new(shares.steering)).unwrap();
            for (plan, exchange) in shares.plans.iter().zip(exchanges) {
                add(Nat::new(plan, [1, 2, 3, 4]).unwrap(), Some(exchange));
            }
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let socket = std::env::temp_dir().join(format!("gatun-api-{}-{number}.sock", std::process::id()));
        let (api, file) = listen::unix(&socket, |_| Ok(())).unwrap();
        let metrics = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = metrics.local_addr().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (secure, root, [reads, writes]) = secure();
        let remote_access = Arc::new(RemoteAccess::new(secure));
        let tls = Tls {
            address: listener.local_addr().unwrap(),
            remote_access: Arc::clone(&remote_access),
            root,
            reads,
            writes,
        };
        let facts = Facts {
            config: Config { file: "/etc/gatun.toml".into(), text: "[[pool]]\n".into(), ..Config::default() },
            ports: vec![Port {
                name: "wan".into(),
                backend: "tun".into(),
                device: "gatun0".into(),
                queues: 1,
                mtu: Some(1500),
                addresses: vec![],
            }],
            selectors: vec![(
                Kind::Nat64,
                "n".into(),
                Selectors { pool: Some("p".into()), ..Selectors::default() },
            )],
            sessions_max: 1000,
            subscribers_max: 10,
            ..Facts::default()
        };
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&log);
        let setup = Setup {
            version: "1.2.3",
            facts: SharedFacts::new(facts),
            workers: handles.clone(),
            sandbox: Sandbox { state: SandboxExtent::Partly, missing: vec!["no landlock".into()] },
            events: None,
            auditor: Some(Box::new(|question, reply| {
                reply(Ok(past(&question)));
                true
            })),
            configure: Some(Box::new(|order, reply| {
                reply(match order {
                    Order::History => Ok(OrderResult::History(Vec::new())),
                    Order::Maps { from, limit, .. } => Ok(maps(from, limit)),
                    Order::PlanMaps(body) | Order::ChangeMaps(_, body) => match body.read() {
                        Ok(read) => Err(Refused::new(RefusalKind::Conflict, format!("{read:?}"), "")),
                        Err(refused) => Err(refused),
                    },
                    other => Err(Refused::new(RefusalKind::Conflict, format!("{other:?}"), "")),
                });
                true
            })),
            patience: ClientTimeouts { request: IDLE, idle: IDLE },
            history_every: HISTORY_EVERY,
            remote_access: Some(remote_access),
            figures: Box::new(Default::default),
            fastpath: Box::new(gatun_api::types::FastPath::default),
            offload: Box::new(gatun_api::types::Offload::default),
            health: Box::new(gatun_api::types::Health::default),
            peer: pair(),
            cluster: gatun_control::ClusterControl::default(),
            translator_of: Box::new(|_| Some("the kernel translates its packets".to_owned())),
            switch_gone: Box::new(|name| Err(format!("no switch '{name}'"))),
            traced_sessions: Box::new(|_| std::sync::Arc::new(|_| None)),
            troubles: Box::new(Vec::new),
            level: Default::default(),
            log: Box::new(move |line| lines.lock().unwrap().push(line.to_owned())),
        };
        let listeners = Listeners { api: Some(api), tls: vec![listener], metrics: Some(metrics) };
        gatun_control::start(listeners, setup).unwrap();
        let client = Client::new(&socket);
        Bed { socket, client, metrics: address, handles, peers, threads, log, tls, _file: file }
    }

    /// Opens a session for each of these ports.
    pub fn open(&self, ports: Range<u16>) {
        self.open_for(1, ports);
    }

    /// Opens a session for each port of several hosts; waits until all are there.
    pub fn open_for(&self, hosts: u8, ports: Range<u16>) {
        let count = u64::from(hosts) * ports.len() as u64;
        let before = self.client.get::<Status>("/v1/status").unwrap().sessions;
        for host in 0..hosts {
            let mut source = CLIENT.octets();
            source[7] = host;
            for port in ports.clone() {
                let header = V6::new(source.into(), Prefix64::WELL_KNOWN.embed(REMOTE));
                let bytes = header.packet(&Message::udp(port, 53, b"over there"));
                self.peers[usize::from(host) % self.peers.len()].push(bytes);
            }
        }
        let deadline = Instant::now() + LONG;
        loop {
            let sessions = self.client.get::<Status>("/v1/status").unwrap().sessions;
            if sessions == before + count {
                return;
            }
            assert!(Instant::now() < deadline, "{sessions} sessions, {before} before, {count} more wanted");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// Stops the workers and checks that no packet is lost without a count.
    pub fn stop(self) {
        self.handles.iter().for_each(Handle::stop);
        for thread in self.threads {
            let (snapshot, error) = thread.join().unwrap();
            assert!(error.is_none() && snapshot.conserved(), "{snapshot:?}");
        }
    }
}
