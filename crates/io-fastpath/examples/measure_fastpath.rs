//! Time of a packet among few and among many sessions or mappings in random order, and time of installing and
//! removing them. `scripts/bench-fastpath` runs it in a network namespace of its own.
//!
//! Two TUN devices have a program each: one with a table of 1,000 sessions, one with a table of 1,048,576.
//! Both tables are full. Packets of random sessions go to the devices in turns, from a packet socket. The
//! program redirects them to the device's ingress, where a blackhole route ends them. The kernel measures the
//! program (BPF_ENABLE_STATS), which adds some 20 ns to each run. Beside that, the time of one read of random
//! memory, as large as the tables: what a packet among many sessions waits for at least once.

use aya::programs::loaded_programs;
use aya::sys::{Stats, enable_stats};
use gatun_io_fastpath::{
    FastPath, FastPathConfig, Flow, IdentRange, Inside, Instance, KernelTime, Mapping, Network, Protocol,
    Reason, SlotId, Stateless, StatelessPlan, Table, Ways,
};
use gatun_io_tun::{KillBehaviour, Tun, TunConfig};
use gatun_testkit::run;
use gatun_wire::{Prefix64, Settings, checksum, proto};
use rustix::time::{ClockId, clock_gettime};
use std::ffi::CString;
use std::fs::File;
use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant as Clock};

const REMOTE: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 51, 100, 7), 443);
const FEW: u32 = 1_000;
const MANY: u32 = 1_048_576;
const ROUNDS: usize = 11;
const PACKETS: u32 = 200_000;
/// Memory of a session: three places for two entries.
const SESSION_BYTES: usize = 384;

fn flow(n: u32) -> Flow {
    Flow {
        inside: Inside::Six { host: host(n), remote: remote6() },
        inside_port: port(n),
        outside: (Ipv4Addr::from(0xc000_0200 + n / 50_000), port(n)),
        remote: REMOTE,
        protocol: Protocol::Udp,
        instance: 0,
        worker: 0,
        epoch: 0,
        record: n,
        path_mtu: None,
        ident: n as u16,
    }
}

fn host(n: u32) -> Ipv6Addr {
    Ipv6Addr::from(0x2001_0db8_0001 << 80 | u128::from(n / 64))
}

fn port(n: u32) -> u16 {
    1024 + (n % 50_000) as u16
}

fn remote6() -> Ipv6Addr {
    Ipv6Addr::from(0x2001_0db8_0064 << 80 | u128::from(u32::from(REMOTE.0)))
}

/// A device with a full table.
struct Side {
    fast: FastPath,
    ids: Vec<SlotId>,
    socket: [File; 2],
    /// Number of the program.
    program: u32,
    count: u32,
    _device: Tun,
}

fn ip(line: &str) {
    run(Command::new("ip").args(line.split_whitespace())).expect("ip");
}

/// A packet socket that sends to a device.
fn packet_socket(device: &str, protocol: u16) -> File {
    let name = CString::new(device).expect("a name");
    // SAFETY: a string that ends with zero.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    assert!(index > 0, "{device}: {}", std::io::Error::last_os_error());
    // SAFETY: creates a file and changes no memory. It is checked below, and owned from then on.
    let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM, 0) };
    assert!(socket >= 0, "packet socket: {}", std::io::Error::last_os_error());
    // SAFETY: nobody else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = size_of_val(&address) as u32;
    // SAFETY: `address` is a whole address of this length.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&address).cast(), len) };
    assert_eq!(bound, 0, "bind: {}", std::io::Error::last_os_error());
    File::from(socket)
}

impl Side {
    fn new(device: &str, count: u32) -> Side {
        let known = programs();
        let tun = TunConfig { name: device.into(), up: true, ..TunConfig::default() };
        let tun = Tun::open(&tun, KillBehaviour::Goes).expect("TUN device");
        let fast = FastPath::open(&FastPathConfig {
            device: device.into(),
            pins: None,
            capacity: count,
            hosts: 2 * count,
            hook: None,
            xdp: Vec::new(),
            idents: IdentRange::beside(1),
            pending_max: Duration::from_secs(1),
            seed: 0x0123_4567_89ab_cdef,
        })
        .expect("fast path");
        fast.table.set_instance(0, Instance::nat64(&Settings::default())).expect("instance");
        let control = fast.table.control();
        control.renew_lease(Duration::from_secs(3600));
        control.set_drained(0, KernelTime(u64::MAX));
        let program = programs().into_iter().find(|id| !known.contains(id)).expect("the program");
        let socket = [packet_socket(device, 0x86dd), packet_socket(device, 0x0800)];
        Side { fast, ids: Vec::new(), socket, program, count, _device: tun }
    }

    /// Installs sessions as the daemon does, some at a time. Returns ns for each.
    fn install(&mut self) -> f64 {
        let flows: Vec<Flow> = (0..self.count).map(flow).collect();
        let mut placed = Vec::with_capacity(flows.len());
        let begin = processor_time();
        for some in flows.chunks(64) {
            self.fast.table.install(some, &mut placed);
        }
        let ns = (processor_time() - begin).as_nanos() as f64 / f64::from(self.count);
        self.ids = placed.into_iter().map(|id| id.expect("a place")).collect();
        ns
    }

    /// Removes all sessions. Returns ns for each.
    fn remove(&mut self) -> f64 {
        let mut used = Vec::with_capacity(self.ids.len());
        let begin = processor_time();
        for some in self.ids.chunks(64) {
            self.fast.table.remove(some, &mut used);
        }
        (processor_time() - begin).as_nanos() as f64 / f64::from(self.count)
    }

    /// Replaces all mapped hosts. Returns ns for each.
    fn replace(&mut self) -> f64 {
        let plan = stateless(self.count);
        let begin = processor_time();
        self.fast.table.set_stateless(&plan).expect("mappings");
        (processor_time() - begin).as_nanos() as f64 / f64::from(self.count)
    }

    /// Time of the program, and its runs.
    fn spent(&self) -> (Duration, u64) {
        let all = loaded_programs().filter_map(Result::ok);
        let of = all.into_iter().find(|program| program.id() == self.program).expect("the program");
        (of.run_time(), of.run_count())
    }

    /// Sends packets of random sessions or hosts. Returns ns for each: of the program alone, and from the
    /// socket to the end.
    fn round(&mut self, kind: Kind, random: &mut u64) -> [f64; 2] {
        let mut packet = kind.packet();
        let before = self.spent();
        let socket = &mut self.socket[usize::from(kind == Kind::FourToSix)];
        let begin = Clock::now();
        for _ in 0..PACKETS {
            *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let n = (((*random >> 33) * u64::from(self.count)) >> 31) as u32;
            kind.choose(&mut packet, n);
            socket.write_all(&packet).expect("sending");
        }
        let whole = begin.elapsed();
        let after = self.spent();
        let runs = after.1 - before.1;
        assert_eq!(runs, u64::from(PACKETS), "runs of the program");
        [after.0 - before.0, whole].map(|time| time.as_nanos() as f64 / runs as f64)
    }
}

/// Kind of packets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    SixToFour,
    FourToSix,
    /// From a mapped host.
    Stateless,
}

impl Kind {
    const ALL: [(Kind, &str); 3] = [
        (Kind::SixToFour, "packet, session, IPv6 to IPv4"),
        (Kind::FourToSix, "packet, session, IPv4 to IPv6"),
        (Kind::Stateless, "packet, mapping, IPv6 to IPv4"),
    ];

    fn packet(self) -> Vec<u8> {
        match self {
            Kind::SixToFour => packet6(remote6()),
            Kind::FourToSix => packet4(),
            Kind::Stateless => packet6(pool6().embed(REMOTE.0)),
        }
    }

    /// Makes it the packet of session or host `n`.
    fn choose(self, packet: &mut [u8], n: u32) {
        match self {
            Kind::SixToFour => {
                packet[8..24].copy_from_slice(&host(n).octets());
                packet[40..42].copy_from_slice(&port(n).to_be_bytes());
            }
            Kind::FourToSix => {
                packet[16..20].copy_from_slice(&flow(n).outside.0.octets());
                packet[22..24].copy_from_slice(&port(n).to_be_bytes());
                packet[10..12].fill(0);
                let sum = !checksum::sum(&packet[..20]);
                packet[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            Kind::Stateless => packet[8..24].copy_from_slice(&mapped(n).octets()),
        }
    }
}

fn pool6() -> Prefix64 {
    Prefix64::new("2001:df0::".parse().expect("an address"), 96).expect("a prefix")
}

fn mapped(n: u32) -> Ipv6Addr {
    Ipv6Addr::from(0x2001_0db8_0020 << 80 | u128::from(n))
}

/// An instance with this many mapped hosts.
fn stateless(count: u32) -> StatelessPlan {
    let mapping = |n: u32| Mapping {
        v4: Network { address: Ipv4Addr::from(0x1400_0000 + n), len: 32 },
        v6: Network { address: mapped(n), len: 128 },
    };
    let instance = Stateless {
        ways: Ways::Both,
        settings: Settings::default(),
        pool6: vec![pool6()],
        mappings: (0..count).map(mapping).collect(),
        well_known_non_global: false,
    };
    StatelessPlan { instances: vec![instance], ..StatelessPlan::default() }
}

/// Processor time of this thread: other programs do not count.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn programs() -> Vec<u32> {
    let all = loaded_programs().filter_map(Result::ok);
    all.filter(|program| program.name_as_str() == Some("gatun_fastpath"))
        .map(|program| program.id())
        .collect()
}

/// A datagram whose checksum is wrong, and stays as wrong.
fn packet6(to: Ipv6Addr) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 26, proto::UDP, 64];
    packet.extend([0; 16]);
    packet.extend(to.octets());
    packet.extend([0, 0]);
    packet.extend(REMOTE.1.to_be_bytes());
    packet.extend([0, 26, 1, 1]);
    packet.extend([0; 18]);
    packet
}

fn packet4() -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 46, 0, 1, 0, 0, 64, proto::UDP, 0, 0];
    packet.extend(REMOTE.0.octets());
    packet.extend([0; 4]);
    packet.extend(REMOTE.1.to_be_bytes());
    packet.extend([0, 0]);
    packet.extend([0, 26, 1, 1]);
    packet.extend([0; 18]);
    packet
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Time of reading 8 bytes at a random place of the memory that `count` sessions need, ns. The next place
/// depends on what was read, as the place of a session depends on the packet.
fn random_read(count: u32, advice: i32) -> f64 {
    let len = count as usize * SESSION_BYTES;
    // SAFETY: new memory, which nobody else has. It is checked below.
    let memory = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    };
    assert_ne!(memory, libc::MAP_FAILED, "memory: {}", std::io::Error::last_os_error());
    // SAFETY: the memory of above; another size of its pages does not change what it contains.
    let advised = unsafe { libc::madvise(memory, len, advice) };
    assert_eq!(advised, 0, "madvise: {}", std::io::Error::last_os_error());
    // SAFETY: the memory of above, whose start is that of a page, and which has zeros.
    let words = unsafe { std::slice::from_raw_parts_mut(memory.cast::<u64>(), len / 8) };
    words.iter_mut().step_by(512).for_each(|word| *word = 1);
    let mut random = 1_u64;
    let mut reads = || {
        let begin = processor_time();
        for _ in 0..PACKETS {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let place = ((random >> 33) * (words.len() as u64)) >> 31;
            random ^= words[place as usize];
        }
        (processor_time() - begin).as_nanos() as f64 / f64::from(PACKETS)
    };
    let time = median((0..ROUNDS).map(|_| reads()).collect());
    // SAFETY: the memory of above, which is not used later.
    unsafe { libc::munmap(memory, len) };
    time
}

fn hits(table: &Table) -> u64 {
    let counters = [table.counters(Some(0)), table.stateless_counters(0)];
    counters.map(|counters| counters.expect("counters").of(Reason::Hit)).iter().sum()
}

fn main() {
    let _stats = enable_stats(Stats::RunTime).expect("measuring programs");
    for setting in
        ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv4.conf.all.rp_filter=0"]
    {
        run(Command::new("sysctl").args(["-qw", setting])).expect("sysctl");
    }
    let mut sides = [Side::new("few0", FEW), Side::new("many0", MANY)];
    ip("route add blackhole 198.51.100.0/24");
    ip("-6 route add blackhole 2001:db8:1::/48");
    let [few_in, install] = sides.each_mut().map(Side::install);
    // The second time, it also removes the former ones.
    let replaced = sides.each_mut().map(|side| [side.replace(), side.replace()]);
    println!("{:<46}{:>10}{:>10}{:>8}", "ns, medians", FEW, MANY, "ratio");
    let mut random = 1;
    for (kind, name) in Kind::ALL {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (side, times) in sides.iter_mut().zip(&mut times) {
                times.push(side.round(kind, &mut random));
            }
        }
        for (at, what) in [(0, "the program"), (1, "the whole way")] {
            let of = |times: &[[f64; 2]]| times.iter().map(|time| time[at]).collect::<Vec<f64>>();
            let [few, many] = [of(&times[0]), of(&times[1])];
            let ratios = few.iter().zip(&many).map(|(few, many)| many / few).collect();
            let name = format!("{name}: {what}");
            println!("{name:<46}{:>10.0}{:>10.0}{:>8.2}", median(few), median(many), median(ratios));
        }
    }
    for (advice, name) in [(libc::MADV_NOHUGEPAGE, "4 KiB"), (libc::MADV_HUGEPAGE, "2 MiB")] {
        let [few, many] = [FEW, MANY].map(|count| random_read(count, advice));
        println!("{:<46}{few:>10.0}{many:>10.0}", format!("one read at random, pages of {name}"));
    }
    let expected = u64::from(PACKETS) * (Kind::ALL.len() * ROUNDS) as u64;
    assert!(sides.iter().all(|side| hits(&side.fast.table) == expected), "packets were not translated");
    let [few_out, remove] = sides.each_mut().map(Side::remove);
    println!("{:<46}{few_in:>10.0}{install:>10.0}", "installing a session, processor time");
    println!("{:<46}{few_out:>10.0}{remove:>10.0}", "removing a session, processor time");
    for (at, name) in [(0, "setting a mapping, the first time"), (1, "replacing a mapping")] {
        println!("{name:<46}{:>10.0}{:>10.0}", replaced[0][at], replaced[1][at]);
    }
}
