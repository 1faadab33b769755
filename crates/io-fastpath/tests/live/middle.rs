//! The network, and the translator between its hosts: a TUN device, an engine in a thread, and the kernel's
//! sessions.

use gatun_io::{Backend as _, Transmit, Waker};
use gatun_io_fastpath::{
    Control, FastPath, FastPathConfig, Flow, Hook, IdentRange, Inside, Instance, KernelTime, Mapping,
    Network, Protocol, Reason, SlotId, Stateless, StatelessPlan, Table, Ways, mount_bpffs,
};
use gatun_io_tun::{KillBehaviour, Prefix, Tun, TunConfig};
use gatun_nat::inspect::{Selection, SessionCursor, SessionInfo};
use gatun_nat::plan::{self, Plan, Pool4, PoolRange, Transport};
use gatun_nat::tcp_fsm::TcpState;
use gatun_nat::{Instant, Nat, Verdict};
use gatun_testkit::{Namespace, run};
use gatun_wire::{Packet, Prefix64, Settings};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

const PREFIX: &str = "2001:db8:64::";
const POOL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Prefix of the stateless instance, and its mapped host, which is the client.
const SIIT_PREFIX: &str = "2001:db8:46::";
const MAPPED: (Ipv4Addr, &str) = (Ipv4Addr::new(203, 0, 113, 9), "2001:db8:1::9");
const OWN4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);
const OWN6: &str = "2001:db8:2::2";
/// Lease of the program.
const LEASE: Duration = Duration::from_secs(600);

/// Link between the client and the translator's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientLink {
    /// A veth pair.
    Plain,
    /// A VLAN on a bond of one veth pair.
    VlanOnBond,
}

/// The hosts.
pub(crate) struct Net {
    pub(crate) client: Namespace,
    pub(crate) server: Namespace,
}

fn ip(line: &str) {
    run(Command::new("ip").args(line.split_whitespace())).unwrap();
}

impl Net {
    /// Makes both hosts, and connects each with this process's own namespace.
    pub(crate) fn new(link: ClientLink) -> Net {
        let net =
            Net { client: Namespace::new("client").unwrap(), server: Namespace::new("server").unwrap() };
        let (device, at_client) = match link {
            ClientLink::Plain => ("in0", "eth0"),
            ClientLink::VlanOnBond => ("card0", "vlan7"),
        };
        for (device, host) in [(device, "client"), ("out0", "server")] {
            ip(&format!("link add {device} type veth peer name eth0 netns {host}"));
            if link == ClientLink::VlanOnBond && host == "client" {
                ip("link add bond7 type bond mode active-backup");
                ip("link set card0 master bond7");
                ip("link set bond7 up");
                ip("link add link bond7 name in0 type vlan id 7");
                ip("link set in0 up");
                ip("-n client link add link eth0 name vlan7 type vlan id 7");
            }
            ip(&format!("link set {device} up"));
            ip(&format!("-n {host} link set eth0 up"));
        }
        ip(&format!("-n client link set {at_client} up"));
        ip("link set lo up");
        ip("address add 2001:db8:1::1/64 dev in0 nodad");
        ip("address add 10.9.0.1/24 dev in0");
        ip("address add 198.51.100.1/24 dev out0");
        net.client.address(at_client, "2001:db8:1::2/64").unwrap();
        net.client.address(at_client, &format!("{}/64", MAPPED.1)).unwrap();
        net.client.address(at_client, "10.9.0.2/24").unwrap();
        net.server.address("eth0", "198.51.100.2/24").unwrap();
        net.client.ip("-6 route add default via 2001:db8:1::1").unwrap();
        let (siit, host) = (SIIT_PREFIX, MAPPED.1);
        net.client.ip(&format!("-6 route add {siit}/96 via 2001:db8:1::1 src {host}")).unwrap();
        net.client.ip("-6 route replace default via 2001:db8:1::1 src 2001:db8:1::2").unwrap();
        net.client.ip("route add default via 10.9.0.1").unwrap();
        net.server.ip("route add default via 198.51.100.1").unwrap();
        let settings = ["ip_forward=1", "conf.all.rp_filter=0", "conf.default.rp_filter=0"];
        for setting in settings {
            run(Command::new("sysctl").args(["-qw", &format!("net.ipv4.{setting}")])).unwrap();
        }
        run(Command::new("sysctl").args(["-qw", "net.ipv6.conf.all.forwarding=1"])).unwrap();
        net
    }
}

/// A folder for pins, on a bpffs of this sandbox.
pub(crate) fn bpffs() -> PathBuf {
    let at = PathBuf::from("/run/gatun-bpf");
    mount_bpffs(&at).unwrap();
    at.join("gatun0")
}

pub(crate) fn config(hook: Option<Hook>, pins: Option<PathBuf>) -> FastPathConfig {
    FastPathConfig {
        device: "gatun0".into(),
        pins,
        capacity: 1000,
        hosts: 10,
        hook,
        xdp: Vec::new(),
        idents: IdentRange::beside(1),
        pending_max: Duration::from_secs(1),
        seed: 1,
    }
}

/// Protocol, public end and remote end of a session.
type Key = (Protocol, (Ipv4Addr, u16), (Ipv4Addr, u16));

struct State {
    nat: Nat,
    fast: FastPath,
    installed: HashMap<Key, SlotId>,
}

/// The translator.
pub(crate) struct Middle {
    state: Arc<Mutex<State>>,
    control: Arc<Control>,
    stop: Arc<AtomicBool>,
    engine: JoinHandle<Tun>,
}

impl Middle {
    /// Makes the device and starts the engine.
    pub(crate) fn start(hook: Option<Hook>, pins: Option<PathBuf>) -> Middle {
        Middle::start_with(&config(hook, pins))
    }

    /// Makes the device and starts the engine, with this fast path.
    pub(crate) fn start_with(config: &FastPathConfig) -> Middle {
        let tun = TunConfig {
            name: "gatun0".into(),
            up: true,
            routes: vec![
                Prefix { addr: PREFIX.parse().unwrap(), len: 96 },
                Prefix { addr: POOL.into(), len: 32 },
                Prefix { addr: SIIT_PREFIX.parse().unwrap(), len: 96 },
                Prefix { addr: MAPPED.0.into(), len: 32 },
            ],
            ..TunConfig::default()
        };
        let tun = Tun::open(&tun, KillBehaviour::Goes).unwrap();
        // Private hosts are translated wherever they send to.
        let _ = run(Command::new("ip").args("rule del iif in0 lookup 100".split_whitespace()));
        ip("rule add iif in0 lookup 100");
        ip("route add default dev gatun0 table 100");
        let (mut nat, settings) = engine();
        nat.set_worker(0, 2);
        let mut fast = FastPath::open(config).unwrap();
        fast.table.set_stateless(&stateless(settings)).unwrap();
        fast.table.set_instance(0, Instance::nat64(&settings)).unwrap();
        fast.table.set_instance(1, Instance::nat44(settings.mtu4)).unwrap();
        let control = fast.table.control();
        control.renew_lease(LEASE);
        let state = Arc::new(Mutex::new(State { nat, fast, installed: HashMap::new() }));
        let stop = Arc::new(AtomicBool::new(false));
        let engine = std::thread::spawn({
            let (state, stop) = (Arc::clone(&state), Arc::clone(&stop));
            move || turn(&state, &stop, tun)
        });
        Middle { state, control, stop, engine }
    }

    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    pub(crate) fn hook(&self) -> Hook {
        self.state.lock().unwrap().fast.attachment.places.hook
    }

    /// Network interfaces, and the reason why the program is not there.
    pub(crate) fn xdp(&self) -> Vec<(String, Option<String>)> {
        let state = self.state.lock().unwrap();
        let all = state.fast.attachment.places.xdp.iter();
        all.map(|it| (it.name.clone(), it.refusal().cloned())).collect()
    }

    /// Reads something of the table.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Table) -> T) -> T {
        read(&self.state.lock().unwrap().fast.table)
    }

    pub(crate) fn packets_of(&self, instance: Option<u8>, reason: Reason) -> u64 {
        self.state.lock().unwrap().fast.table.counters(instance).unwrap().of(reason)
    }

    /// All counters that are not zero, for messages.
    pub(crate) fn counters(&self) -> Vec<(Option<u8>, Reason, u64)> {
        let all =
            [None, Some(0), Some(1)].into_iter().flat_map(|row| Reason::ALL.map(|reason| (row, reason)));
        all.map(|(row, reason)| (row, reason, self.packets_of(row, reason)))
            .filter(|(_, _, n)| *n > 0)
            .collect()
    }

    /// Packets that the engine received.
    pub(crate) fn rx(&self) -> u64 {
        self.state.lock().unwrap().nat.counters().rx.packets
    }

    /// Stops the engine, and closes everything of the fast path but its pins and filters. Returns the device.
    pub(crate) fn stop_engine(self) -> Tun {
        self.stop.store(true, Ordering::Relaxed);
        self.engine.join().unwrap()
    }

    /// Stops the engine. Returns the fast path and the device.
    pub(crate) fn stop(self) -> (FastPath, Tun) {
        self.stop.store(true, Ordering::Relaxed);
        let device = self.engine.join().unwrap();
        let state = Arc::into_inner(self.state).unwrap();
        (state.into_inner().unwrap().fast, device)
    }
}

fn engine() -> (Nat, Settings) {
    let settings = Settings { mtu4: 1500, mtu6: 1500, ..Settings::default() };
    let range = PoolRange { first: POOL, last: POOL, ports: (1024, 65_535), transports: [true; 3] };
    let plan = Plan {
        // Sources of ICMP errors.
        own4: Some(OWN4),
        own6: Some(OWN6.parse().unwrap()),
        siit: vec![plan::Siit {
            name: "s".into(),
            pool6: vec![Prefix64::new(SIIT_PREFIX.parse().unwrap(), 96).unwrap()],
            eamt: vec![plan::Eam {
                v4: plan::Net4 { addr: MAPPED.0, len: 32 },
                v6: plan::Net6 { addr: MAPPED.1.parse().unwrap(), len: 128 },
            }],
            settings,
            ..plan::Siit::default()
        }],
        pools: vec![Pool4 { name: "p".into(), ranges: vec![range], ..Pool4::default() }],
        nat64: vec![plan::Nat64 {
            name: "n".into(),
            pool6: vec![Prefix64::new(PREFIX.parse().unwrap(), 96).unwrap()],
            settings,
            ..plan::Nat64::default()
        }],
        nat44: vec![plan::Nat44 {
            name: "p".into(),
            inside: vec![plan::Net4 { addr: Ipv4Addr::new(10, 9, 0, 0), len: 24 }],
            mtu: 1500,
            ..plan::Nat44::default()
        }],
        ..Plan::default()
    };
    (Nat::new(&plan, [1, 2, 3, 4]).unwrap(), settings)
}

/// The stateless instance as the program has it.
fn stateless(settings: Settings) -> StatelessPlan {
    let host4 = |address: Ipv4Addr| Network { address, len: 32 };
    let net6 = |address: &str, len| Network { address: address.parse().unwrap(), len };
    let instance = Stateless {
        ways: Ways::Both,
        settings,
        pool6: vec![Prefix64::new(SIIT_PREFIX.parse().unwrap(), 96).unwrap()],
        mappings: vec![Mapping { v4: host4(MAPPED.0), v6: net6(MAPPED.1, 128) }],
        well_known_non_global: false,
    };
    StatelessPlan {
        instances: vec![instance],
        left4: vec![host4(OWN4), host4(POOL), Network { address: Ipv4Addr::new(10, 9, 0, 0), len: 24 }],
        left6: vec![net6(OWN6, 128), net6(PREFIX, 96)],
    }
}

/// Loop of the engine's thread, until it is told to stop.
fn turn(state: &Mutex<State>, stop: &AtomicBool, mut tun: Tun) -> Tun {
    let waker = Waker::new().unwrap();
    let mut emptied = KernelTime(0);
    while !stop.load(Ordering::Relaxed) {
        let before = KernelTime::now();
        let now = Instant(before.0 / 1_000_000);
        let queue = &mut tun.queues[0];
        let received = {
            let mut state = state.lock().unwrap();
            let received =
                queue.receive(&mut |burst, out| translate(&mut state.nat, now, burst, out)).unwrap();
            state.nat.expire(now, 1000);
            state.reconcile();
            // It has read all that there was, and sent it. A packet that came into the queue behind the read of
            // the turn before is among them.
            if queue.is_emptied() {
                let at = std::mem::replace(&mut emptied, before);
                state.fast.table.control().set_drained(0, at);
            }
            received
        };
        if received == 0 {
            queue.wait(&waker, Some(Duration::from_millis(2))).unwrap();
        }
    }
    tun
}

fn translate(nat: &mut Nat, now: Instant, burst: &mut [Packet<'_>], out: &mut dyn Transmit) {
    let mut verdicts = [Verdict::Pass; gatun_io::BURST_MAX];
    let done = nat.process(now, burst, &mut verdicts);
    for (index, (packet, verdict)) in burst.iter_mut().zip(verdicts).take(done).enumerate() {
        if matches!(verdict, Verdict::Forward | Verdict::Reply(_)) {
            out.forward(index, packet);
        }
    }
}

impl State {
    /// Makes the kernel's sessions those that are established.
    fn reconcile(&mut self) {
        let mut sessions = Vec::with_capacity(1000);
        self.nat.read_sessions(&mut SessionCursor::default(), &Selection::default(), 100_000, &mut sessions);
        sessions.retain(|s| match s.transport {
            Transport::Tcp => s.tcp == Some(TcpState::Established),
            Transport::Udp => true,
            Transport::Icmp => false,
        });
        let wanted: HashMap<_, _> =
            sessions.iter().map(|s| ((protocol(s), s.outside, s.remote), flow(s))).collect();
        let table = &mut self.fast.table;
        let gone: Vec<_> = self.installed.keys().filter(|key| !wanted.contains_key(*key)).copied().collect();
        let ids: Vec<SlotId> = gone.iter().filter_map(|key| self.installed.remove(key)).collect();
        table.remove(&ids, &mut Vec::new());
        let new: Vec<_> = wanted.into_iter().filter(|(key, _)| !self.installed.contains_key(key)).collect();
        let flows: Vec<Flow> = new.iter().map(|(_, flow)| *flow).collect();
        let mut placed = Vec::new();
        table.install(&flows, &mut placed);
        let placed = placed.into_iter().map(Result::unwrap);
        self.installed.extend(new.into_iter().map(|(key, _)| key).zip(placed));
    }
}

fn protocol(session: &SessionInfo) -> Protocol {
    if session.transport == Transport::Tcp { Protocol::Tcp } else { Protocol::Udp }
}

fn flow(session: &SessionInfo) -> Flow {
    let prefix = Prefix64::new(PREFIX.parse().unwrap(), 96).unwrap();
    Flow {
        inside: match session.inside.0.to_ipv4_mapped() {
            Some(host) => Inside::Four(host),
            None => Inside::Six { host: session.inside.0, remote: prefix.embed(session.remote.0) },
        },
        inside_port: session.inside.1,
        outside: session.outside,
        remote: session.remote,
        protocol: protocol(session),
        instance: session.instance,
        worker: 0,
        epoch: 0,
        record: 0,
        path_mtu: None,
        ident: 1,
    }
}
