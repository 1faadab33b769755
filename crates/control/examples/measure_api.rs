//! Speed of dumping and ending sessions over the API while packets flow, and the packets lost meanwhile.
//!
//! One worker reads a device in memory that delivers packets of random sessions at a fixed rate and loses
//! what does not fit into its queue. The API listens on a Unix socket. `scripts/bench-api` runs it.

use gatun_api::client::Client;
use gatun_api::types::{Cleared, Sandbox, SandboxExtent, Session, SessionKey, SessionKeys};
use gatun_control::{ClientTimeouts, Facts, Listeners, Setup, SharedFacts, listen};
use gatun_io::{Backend, Handler, Stats, Transmit, Waker};
use gatun_nat::plan::{Limits, Nat64, Plan, Pool4, PoolRange};
use gatun_nat::{BURST, Instant as EngineTime, Nat, Verdict};
use gatun_testkit::packet::{Message, V6};
use gatun_wire::{HEADROOM, Packet, Prefix64};
use gatun_worker::{Clock, Handle, Snapshot, Worker};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::error::Error;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SESSIONS: u32 = 2_097_152;
const SUBSCRIBERS: u32 = 131_072;
/// Packets that the device holds for the worker.
const QUEUE: u64 = 4096;
/// Bytes of a packet from the IP header on.
const PACKET: usize = 114;
const STRIDE: usize = HEADROOM + PACKET + 64;
/// Number of dumps.
const DUMPS: usize = 7;
/// Sessions ended by one request.
const KEYS: usize = 4096;

fn plan() -> Plan {
    let (first, last) = (Ipv4Addr::new(198, 18, 0, 0), Ipv4Addr::new(198, 18, 0, 63));
    let range = PoolRange { first, last, ports: (1024, 65_535), transports: [true; 3] };
    Plan {
        pools: vec![Pool4 { name: "pool".into(), ranges: vec![range], ..Pool4::default() }],
        nat64: vec![Nat64 {
            name: "nat64".into(),
            pool6: vec![Prefix64::WELL_KNOWN],
            wkp_non_global: true,
            subscriber_len: 64,
            ..Nat64::default()
        }],
        limits: Limits {
            sessions_max: SESSIONS + 1000,
            sessions_reserved: 0,
            subscribers_max: SUBSCRIBERS,
            ..Limits::default()
        },
        ..Plan::default()
    }
}

/// The first packet of session `n`.
fn packet(n: u32) -> Vec<u8> {
    let (subscriber, flow) = (n % SUBSCRIBERS, n / SUBSCRIBERS);
    let source = 0x2001_0db8_u128 << 96 | u128::from(subscriber) << 64 | 5;
    let remote = Ipv4Addr::new(203, 0, 113, 1 + (flow % 200) as u8);
    let header = V6::new(source.into(), Prefix64::WELL_KNOWN.embed(remote));
    header.packet(&Message::udp(1024 + flow as u16, 53, &[7; PACKET - 48]))
}

/// Settings and counters shared with the main thread.
#[derive(Default)]
struct Gauge {
    /// Packets a second; zero is unlimited.
    rate: AtomicU64,
    received: AtomicU64,
    lost: AtomicU64,
}

/// Packets of random sessions at a rate.
struct Device {
    gauge: Arc<Gauge>,
    /// First bytes of each session's packets: addresses, ports and checksums.
    templates: Vec<u8>,
    buffers: Vec<u8>,
    random: u64,
    since: (u64, Instant),
    /// Packets that came since, and those taken or lost.
    taken: u64,
    stats: Stats,
}

/// Bytes at the front of a packet that differ between sessions.
const HEAD: usize = 48;

impl Device {
    /// Number of waiting packets, at most a burst.
    fn waiting(&mut self) -> usize {
        let rate = self.gauge.rate.load(Ordering::Relaxed);
        if rate == 0 {
            self.since = (0, Instant::now());
            return BURST;
        }
        if rate != self.since.0 {
            (self.since, self.taken) = ((rate, Instant::now()), 0);
        }
        let came = (self.since.1.elapsed().as_nanos() * u128::from(rate) / 1_000_000_000) as u64;
        let waiting = came - self.taken;
        if waiting > QUEUE {
            self.gauge.lost.fetch_add(waiting - QUEUE, Ordering::Relaxed);
            self.taken = came - QUEUE;
        }
        (came - self.taken).min(BURST as u64) as usize
    }
}

impl Backend for Device {
    fn name(&self) -> &str {
        "memory"
    }

    fn receive(&mut self, handle: &mut Handler<'_>) -> io::Result<usize> {
        let n = self.waiting();
        if n == 0 {
            return Ok(0);
        }
        self.taken += n as u64;
        for buffer in self.buffers.chunks_exact_mut(STRIDE).take(n) {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let session = ((self.random >> 32) as usize) % SESSIONS as usize;
            let head = &self.templates[session * HEAD..][..HEAD];
            buffer[HEADROOM..HEADROOM + HEAD].copy_from_slice(head);
        }
        let mut packets: Vec<Packet<'_>> = self
            .buffers
            .chunks_exact_mut(STRIDE)
            .take(n)
            .filter_map(|buffer| Packet::new(buffer, HEADROOM, PACKET))
            .collect();
        let mut nowhere = CountingTransmit(0);
        handle(&mut packets, &mut nowhere);
        self.stats.rx_packets += n as u64;
        self.stats.tx_packets += nowhere.0;
        self.gauge.received.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }

    fn transmit(&mut self) -> &mut dyn Transmit {
        self
    }

    fn wait(&mut self, _: &Waker, _: Option<Duration>) -> io::Result<()> {
        // A polled device: the next packet is some hundred nanoseconds away.
        std::hint::spin_loop();
        Ok(())
    }

    fn stats(&self) -> Stats {
        self.stats.clone()
    }
}

/// Counts what is sent.
struct CountingTransmit(u64);

impl Transmit for CountingTransmit {
    fn forward(&mut self, _: usize, _: &mut Packet<'_>) {
        self.0 += 1;
    }

    fn send(&mut self, _: &mut Packet<'_>) {
        self.0 += 1;
    }
}

impl Transmit for Device {
    fn forward(&mut self, _: usize, _: &mut Packet<'_>) {
        self.stats.tx_packets += 1;
    }

    fn send(&mut self, _: &mut Packet<'_>) {
        self.stats.tx_packets += 1;
    }
}

/// An engine with all sessions, and the first bytes of their packets.
fn filled() -> Result<(Nat, Vec<u8>), Box<dyn Error>> {
    let mut nat = Nat::new(&plan(), [1, 2, 3, 4]).map_err(|e| e.0)?;
    let mut templates = Vec::with_capacity(SESSIONS as usize * HEAD);
    for n in 0..SESSIONS {
        let bytes = packet(n);
        templates.extend_from_slice(&bytes[..HEAD]);
        let mut buffer = vec![0; STRIDE];
        buffer[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(&bytes);
        let packet = Packet::new(&mut buffer, HEADROOM, bytes.len()).ok_or("no packet")?;
        let mut verdicts = [Verdict::Pass];
        nat.process(EngineTime(1000), &mut [packet], &mut verdicts);
        assert_eq!(verdicts, [Verdict::Forward], "session {n}");
    }
    assert_eq!(nat.occupancy().sessions, SESSIONS as usize);
    Ok((nat, templates))
}

/// Packets per second and packets lost while a task runs.
struct Flow {
    mpps: f64,
    lost: u64,
}

fn watch<T>(gauge: &Gauge, what: impl FnOnce() -> T) -> (T, Duration, Flow) {
    let (received, lost) = (gauge.received.load(Ordering::Relaxed), gauge.lost.load(Ordering::Relaxed));
    let start = Instant::now();
    let result = what();
    let took = start.elapsed();
    let received = gauge.received.load(Ordering::Relaxed) - received;
    let lost = gauge.lost.load(Ordering::Relaxed) - lost;
    (result, took, Flow { mpps: received as f64 / took.as_secs_f64() / 1e6, lost })
}

fn dump(client: &Client, path: &std::path::Path) -> Result<u64, Box<dyn Error>> {
    let mut body = client.open("GET", "/v1/sessions?format=ndjson", &[])?;
    let mut file = File::create(path)?;
    let (mut some, mut lines) = (vec![0; 1 << 18], 0);
    loop {
        match body.read(&mut some)? {
            0 => return Ok(lines),
            n => {
                lines += some[..n].iter().filter(|&&byte| byte == b'\n').count() as u64;
                file.write_all(&some[..n])?;
            }
        }
    }
}

fn kill(client: &Client, bodies: &[Vec<u8>]) -> Result<u64, Box<dyn Error>> {
    let mut ended = 0;
    for body in bodies {
        ended += client.ask::<Cleared>("POST", "/v1/sessions/end", body)?.sessions;
    }
    Ok(ended)
}

/// Requests that end sessions sampled from all of a dump.
fn requests(path: &std::path::Path) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let mut keys: Vec<SessionKey> = Vec::new();
    for line in BufReader::new(File::open(path)?).lines().step_by(8) {
        keys.push(SessionKey::of(&serde_json::from_str::<Session>(&line?)?));
    }
    // Mixed order: a step that has no factor in common with their number.
    let n = keys.len();
    let mixed: Vec<SessionKey> = (0..n).map(|at| keys[at * 7919 % n].clone()).collect();
    let bodies = mixed.chunks(KEYS).map(|some| serde_json::to_vec(&SessionKeys { sessions: some.to_vec() }));
    Ok(bodies.collect::<Result<_, _>>()?)
}

/// A worker, its API, and a client.
struct Measured {
    directory: PathBuf,
    gauge: Arc<Gauge>,
    client: Client,
    handle: Handle,
    worker: JoinHandle<(Snapshot, Option<io::Error>)>,
    _file: listen::SocketFile,
}

impl Measured {
    fn start(own: usize) -> Result<Measured, Box<dyn Error>> {
        let directory = std::env::temp_dir().join(format!("gatun-measure-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let (nat, templates) = filled()?;
        let gauge = Arc::new(Gauge::default());
        let device = Device {
            gauge: Arc::clone(&gauge),
            templates,
            buffers: vec![7; STRIDE * BURST],
            random: 1,
            since: (0, Instant::now()),
            taken: 0,
            stats: Stats::default(),
        };
        let (worker, handle) = Worker::new(nat, Box::new(device), Clock::new())?;
        let worker = std::thread::spawn(move || {
            stay_on(&[own]);
            worker.run()
        });
        let socket = directory.join("api.sock");
        let (api, file) = listen::unix(&socket, |_| Ok(()))?;
        let setup = Setup {
            version: "measured",
            facts: SharedFacts::new(Facts {
                sessions_max: SESSIONS.into(),
                subscribers_max: SUBSCRIBERS.into(),
                ..Facts::default()
            }),
            workers: vec![handle.clone()],
            sandbox: Sandbox { state: SandboxExtent::Not, missing: Vec::new() },
            events: None,
            remote_access: None,
            auditor: None,
            configure: None,
            patience: ClientTimeouts::default(),
            history_every: gatun_control::history::EVERY,
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
        gatun_control::start(Listeners { api: Some(api), ..Listeners::default() }, setup)?;
        Ok(Measured { directory, gauge, client: Client::new(&socket), handle, worker, _file: file })
    }

    /// Measures the highest packet rate, then sets half of it.
    fn halve(&self) {
        let (_, _, full) = watch(&self.gauge, || std::thread::sleep(Duration::from_secs(3)));
        println!(
            "{SESSIONS} sessions, one worker, packets of random sessions: at most {:.2} Mpps",
            full.mpps
        );
        self.gauge.rate.store((full.mpps * 0.5e6) as u64, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(200));
        let (_, _, quiet) = watch(&self.gauge, || std::thread::sleep(Duration::from_secs(2)));
        println!("at half of that rate, without requests: {:.2} Mpps, {} lost", quiet.mpps, quiet.lost);
    }

    fn dump(&self) -> Result<PathBuf, Box<dyn Error>> {
        let file = self.directory.join("sessions.ndjson");
        let (lines, took, flow) = watch(&self.gauge, || dump(&self.client, &file));
        // The machine's own disturbances are in both figures.
        let (_, _, quiet) = watch(&self.gauge, || std::thread::sleep(took));
        let bytes = std::fs::metadata(&file)?.len();
        println!(
            "dump to a file: {} sessions, {} MB in {:.2} s; meanwhile {:.2} Mpps, {} lost; in the same time without requests {} lost",
            lines?,
            bytes >> 20,
            took.as_secs_f64(),
            flow.mpps,
            flow.lost,
            quiet.lost
        );
        Ok(file)
    }

    fn scrape(&self) -> Result<(), Box<dyn Error>> {
        let (text, took, flow) = watch(&self.gauge, || -> Result<usize, Box<dyn Error>> {
            let mut text = String::new();
            self.client.open("GET", "/metrics", &[])?.read_to_string(&mut text)?;
            Ok(text.len())
        });
        println!("metrics: {} bytes in {:.2} ms, {} lost", text?, took.as_secs_f64() * 1e3, flow.lost);
        Ok(())
    }

    fn end(
        &self,
        how: &str,
        end: impl FnOnce() -> Result<u64, Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        let (ended, took, flow) = watch(&self.gauge, end);
        let ended = ended?;
        println!(
            "{how}: {ended} in {:.2} s, {:.0} a second; meanwhile {:.2} Mpps, {} lost",
            took.as_secs_f64(),
            ended as f64 / took.as_secs_f64(),
            flow.mpps,
            flow.lost
        );
        Ok(())
    }

    fn stop(self) -> Result<(), Box<dyn Error>> {
        self.handle.stop();
        let (last, error) = self.worker.join().map_err(|_| "the worker panicked")?;
        std::fs::remove_dir_all(&self.directory)?;
        match error {
            Some(error) => Err(error.into()),
            None if !last.engine.conserved() => Err("the counters do not add up".into()),
            None => Ok(()),
        }
    }
}

/// Pins this thread, and those that it starts, to these processors.
fn stay_on(processors: &[usize]) {
    let mut set = CpuSet::new();
    processors.iter().for_each(|&processor| set.set(processor));
    // Without pinning the figures are worse, but still true.
    let _ = sched_setaffinity(None, &set);
}

fn main() -> Result<(), Box<dyn Error>> {
    let may = sched_getaffinity(None)?;
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&processor| may.is_set(processor)).collect();
    // As an operator runs it: the worker has a processor to itself if there are two.
    let (own, others) = processors.split_last().ok_or("no processor")?;
    stay_on(if others.is_empty() { &processors } else { others });
    let measured = Measured::start(*own)?;
    measured.halve();
    for _ in 1..DUMPS {
        measured.dump()?;
    }
    let file = measured.dump()?;
    measured.scrape()?;
    let bodies = requests(&file)?;
    measured.end("random sessions ended by list (many opened again by their next packet)", || {
        kill(&measured.client, &bodies)
    })?;
    measured.end("ended by filter", || {
        let path = "/v1/sessions?inside=2001:db8:0:0::/49";
        Ok(measured.client.ask::<Cleared>("DELETE", path, &[])?.sessions)
    })?;
    measured.stop()
}
