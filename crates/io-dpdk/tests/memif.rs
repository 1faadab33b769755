//! DPDK devices without a translator, tested against Debian's `dpdk-testpmd`, without huge pages.
//!
//! Each test runs itself again inside a sandbox of `gatun_testkit`, as DPDK can be started once in a process.

use gatun_io::{ProcessorError, TxError};
use gatun_io_dpdk::{DeviceConfig, Dpdk, DpdkConfig, DpdkError, EalConfig, HugePages, LinkEvent, Ports};
use gatun_io_ether::{FrameSink as _, Frames as _};
use gatun_testkit::Process;
use gatun_testkit::traffic::frames::FrameDevices;
use gatun_testkit::traffic::{Family, Generator, Load, Protocols, Sizes, Spec, Stage, Traffic, Until};
use nix::libc::{REG_RIP, c_int, c_void, siginfo_t, ucontext_t};
use nix::sys::pthread::{pthread_kill, pthread_self};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

fn in_lab(test: &str, body: fn()) {
    // DPDK workers leave no processor time to other processes.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let testpmd = || gatun_testkit::missing(&[("dpdk-testpmd", "dpdk-dev")]);
    let refusal = || gatun_testkit::refusal_but_to_root("DPDK").or_else(testpmd);
    gatun_testkit::run_test(test, refusal, body);
}

fn config(devices: &[&str]) -> DpdkConfig {
    let devices = devices.iter().map(|device| DeviceConfig { device: (*device).to_owned(), mtu: None });
    let eal = EalConfig { huge_pages: HugePages::Never, ..EalConfig::default() };
    DpdkConfig { devices: devices.collect(), queues: 1, eal }
}

fn open(devices: &[&str]) -> Dpdk {
    Dpdk::open(&config(devices), || Ok(())).unwrap_or_else(|e| panic!("{e}"))
}

fn memif(number: u8, role: &str, zero_copy: bool) -> String {
    let zero_copy = if zero_copy { "yes" } else { "no" };
    format!(
        "net_memif{number},role={role},id={number},zero-copy={zero_copy},rsize=11,bsize=2176,socket={SOCKET},socket-abstract=no"
    )
}

const SHORT: Duration = Duration::from_millis(5);
const SOCKET: &str = "/run/memif.sock";
const OTHER_SOCKET: &str = "/run/other.sock";

/// Debian's forwarder between two memifs. Its server socket has its final name once it forwards. Before, it
/// accepts connections and refuses them, and a client tries again only some seconds later.
fn testpmd(role: &str, zero_copy: bool) -> Process {
    let (said, log) = ("/run/testpmd.log", std::fs::File::create("/run/testpmd.log").unwrap());
    let is_server = role == "server";
    let mut command = Command::new("dpdk-testpmd");
    command.args("--lcores 0@0,1@0 --no-pci --no-huge --no-shconf --no-telemetry -m 192".split(' '));
    command.args(["--single-file-segments", "--iova-mode=va"]);
    for number in 0..2 {
        let device = memif(number, role, zero_copy);
        let device = if is_server { device.replace(SOCKET, OTHER_SOCKET) } else { device };
        command.args(["--vdev", &device]);
    }
    let rest = "-- --forward-mode=macswap --burst=64 --rxd=2048 --txd=2048 --total-num-mbufs=16384 \
                --no-lsc-interrupt --disable-link-check --auto-start --stats-period 10";
    command.args(rest.split_whitespace()).stdin(Stdio::piped()).stdout(log.try_clone().unwrap()).stderr(log);
    if is_server {
        // Sockets of a killed process.
        let _ = (std::fs::remove_file(OTHER_SOCKET), std::fs::remove_file(SOCKET));
    }
    let process = Process::start(&mut command).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while is_server && !std::fs::read_to_string(said).unwrap().contains("Port statistics") {
        assert!(Instant::now() < deadline, "{}", std::fs::read_to_string(said).unwrap());
        std::thread::sleep(Duration::from_millis(10));
    }
    if is_server {
        std::fs::rename(OTHER_SOCKET, SOCKET).unwrap();
    }
    process
}

type Ends = Generator<FrameDevices<Ports>>;

/// A generator on both devices. Its packets go to an address that nobody has.
fn generator(dpdk: &mut Dpdk) -> Ends {
    let traffic = Traffic::new(Spec {
        family: Family::V6,
        subscribers: 64,
        flows_per_subscriber: 16,
        protocols: Protocols::Mixed,
        sizes: Sizes::Imix,
        seed: 1,
    });
    let devices = FrameDevices(dpdk.workers.pop().unwrap());
    Generator::new(devices, traffic, dpdk.opened[0].mac, [2, 0, 0, 0, 0, 0xff])
}

/// Sends while `goes_on`, once packets come back.
fn send(generator: &mut Ends, goes_on: impl FnMut(&mut Ends, u64, f64) -> bool) -> Stage {
    assert!(generator.wait_until_open(Duration::from_secs(10)), "no packet comes back");
    generator.stage(Load::InFlight(256), Until::Elapsed(Duration::from_secs(60)), goes_on)
}

/// Sends 5,000 packets, none of which is damaged, lost or overtaken.
fn assert_all_return(generator: &mut Ends) {
    assert!(generator.wait_until_open(Duration::from_secs(10)), "no packet comes back");
    let stage = generator.stage(Load::InFlight(256), Until::Packets(5_000), |_, _, _| true);
    assert_eq!((stage.tx, stage.reflected, stage.tally.received), (5_000, 5_000, 5_000), "{stage:?}");
    assert_eq!((stage.lost(), stage.tally.damaged(), stage.refused), (0, 0, 0), "{stage:?}");
}

/// Waits for events and calls a function meanwhile: devices are left alone until the workers have handled
/// their events.
fn until(events: &std::sync::mpsc::Receiver<LinkEvent>, wanted: &[LinkEvent], mut meanwhile: impl FnMut()) {
    let (mut missing, deadline) = (wanted.to_vec(), Instant::now() + Duration::from_secs(20));
    while !missing.is_empty() {
        let said = || std::fs::read_to_string("/run/testpmd.log").unwrap_or_default();
        assert!(Instant::now() < deadline, "no {missing:?} after 20 s; the peer said: {}", said());
        meanwhile();
        if let Ok(event) = events.recv_timeout(Duration::from_millis(10)) {
            missing.retain(|wanted| *wanted != event);
        }
    }
}

fn up() -> [LinkEvent; 2] {
    ["net_memif0", "net_memif1"].map(|name| LinkEvent::Up(name.to_owned()))
}

fn down() -> [LinkEvent; 2] {
    ["net_memif0", "net_memif1"].map(|name| LinkEvent::Down(name.to_owned()))
}

#[test]
fn packets_return_from_testpmd_undamaged_and_in_order_in_both_memif_roles() {
    // Each attempt is a process. The test's name is the same, so the role comes from the remaining attempts.
    in_lab("packets_return_from_testpmd_undamaged_and_in_order_in_both_memif_roles", || {
        let mut dpdk = open(&[&memif(0, "server", false), &memif(1, "server", false)]);
        assert!(
            !dpdk.huge_pages && dpdk.opened.iter().all(|opened| !opened.up && opened.driver == "net_memif")
        );
        let peer = testpmd("client", true);
        until(&dpdk.events, &up(), || ());
        let mut generator = generator(&mut dpdk);
        assert_all_return(&mut generator);
        // Clean ends: the peer's sees it, and the socket is gone.
        drop(peer);
        drop(generator);
        drop(dpdk.guard);
        assert!(!std::path::Path::new(SOCKET).exists());
    });
}

/// Memory range of memif's driver: first byte and end.
static DRIVER: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// Signal handler: interrupting the driver delays it by more time than DPDK's own thread needs to unmap the
/// rings of a dead peer.
extern "C" fn hold(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: with SA_SIGINFO the third argument is the thread's context (sigaction(2)).
    let at = unsafe { (*context.cast::<ucontext_t>()).uc_mcontext.gregs[REG_RIP as usize] } as usize;
    let [first, end] = [0, 1].map(|i| DRIVER[i].load(Ordering::Relaxed));
    if (first..end).contains(&at) {
        HELD_UP.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(HELD_UP_FOR);
    }
}

const HELD_UP_FOR: Duration = Duration::from_millis(20);
static HELD_UP: AtomicUsize = AtomicUsize::new(0);

/// Interrupts the calling thread inside the driver again and again, until the end.
fn be_held_up() -> impl Drop {
    struct Until(Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);
    impl Drop for Until {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
            self.1.take().into_iter().for_each(|thread| thread.join().unwrap());
        }
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let code = maps.lines().find(|line| line.contains("librte_net_memif") && line.contains(" r-xp "));
    let (first, end) = code.unwrap().split_once(' ').unwrap().0.split_once('-').unwrap();
    for (place, number) in DRIVER.iter().zip([first, end]) {
        place.store(usize::from_str_radix(number, 16).unwrap(), Ordering::Relaxed);
    }
    let action = SigAction::new(SigHandler::SigAction(hold), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler only reads numbers and sleeps, which a handler may do (signal-safety(7)).
    unsafe { sigaction(Signal::SIGUSR2, &action) }.unwrap();
    let (worker, over) = (pthread_self(), Arc::new(AtomicBool::new(false)));
    let is_over = Arc::clone(&over);
    let body = move || {
        while !is_over.load(Ordering::Relaxed) {
            let before = HELD_UP.load(Ordering::Relaxed);
            pthread_kill(worker, Signal::SIGUSR2).unwrap();
            std::thread::sleep(Duration::from_micros(200));
            if HELD_UP.load(Ordering::Relaxed) != before {
                // It continues for a moment in between.
                std::thread::sleep(HELD_UP_FOR + Duration::from_millis(1));
            }
        }
    };
    Until(over, Some(std::thread::spawn(body)))
}

#[test]
fn a_zero_copy_client_loses_no_buffer_when_its_peer_is_killed_repeatedly() {
    in_lab("a_zero_copy_client_loses_no_buffer_when_its_peer_is_killed_repeatedly", || {
        let mut dpdk = open(&[&memif(0, "client", true), &memif(1, "client", true)]);
        let mut generator = generator(&mut dpdk);
        for round in 0..3 {
            let mut peer = testpmd("server", false);
            until(&dpdk.events, &up(), || generator.idle(SHORT));
            assert_all_return(&mut generator);
            // In the middle of traffic, and while rings are full of it.
            let held_up = be_held_up();
            let mut killed = None;
            let before = generator.tx();
            let stage = send(&mut generator, |generator, _, _| {
                if killed.is_none() && generator.tx() > before + 5_000 {
                    peer.signal(rustix::process::Signal::KILL).unwrap();
                    killed = Some(Instant::now());
                }
                killed.is_none_or(|at| at.elapsed() < Duration::from_millis(200))
            });
            assert!(stage.lost() > 0 && stage.tally.corrupted == 0, "round {round}: {stage:?}");
            peer.wait(Duration::from_secs(5)).unwrap();
            until(&dpdk.events, &down(), || generator.idle(SHORT));
            drop(held_up);
        }
        assert!(HELD_UP.load(Ordering::Relaxed) > 3, "it was never inside the driver");
        drop(generator);
        drop(dpdk.guard);
    });
}

#[test]
fn frames_refused_by_a_full_ring_are_counted_and_the_rest_arrives() {
    in_lab("frames_refused_by_a_full_ring_are_counted_and_the_rest_arrives", || {
        let peer = testpmd("server", false);
        let mut dpdk = open(&[&memif(0, "client", true), &memif(1, "client", true)]);
        let mut ports = dpdk.workers.pop().unwrap();
        let look = |ports: &mut Ports| {
            ports.receive(|_, _, _| false, |_, _| ());
        };
        until(&dpdk.events, &up(), || look(&mut ports));
        for round in 0..3 {
            let before = ports.stats();
            peer.signal(rustix::process::Signal::STOP).unwrap();
            // All of its threads have stopped.
            std::thread::sleep(Duration::from_millis(50));
            for _ in 0..100 {
                for number in 0..50 {
                    match number % 5 {
                        4 => ports.outbox().send_own(0, &[0x5a; 128]),
                        _ => ports.outbox().send(0, &[0x5a; 128]),
                    }
                }
                look(&mut ports);
            }
            let now = ports.stats();
            let taken = now.tx_packets - before.tx_packets;
            let refused: Vec<u64> = now.tx_errors.iter().zip(before.tx_errors).map(|(n, b)| n - b).collect();
            let full = refused[TxError::Full as usize];
            let own = now.tx_own_refused - before.tx_own_refused;
            assert_eq!(
                (taken + full + own, refused.iter().sum()),
                (5000, full),
                "round {round}: {refused:?}"
            );
            assert_eq!(taken, 2048, "round {round}: what fits the ring");
            // Every fifth frame, minus every fifth of the accepted ones.
            assert_eq!(own, 1000 - 409, "round {round}");
            peer.signal(rustix::process::Signal::CONT).unwrap();
            let mut last = Instant::now();
            let mut back = 0;
            while last.elapsed() < Duration::from_millis(300) {
                look(&mut ports);
                let seen = ports.stats().rx_packets - before.rx_packets;
                if seen > back {
                    (back, last) = (seen, Instant::now());
                }
            }
            assert_eq!(back, taken, "round {round}");
        }
        drop(ports);
        drop(dpdk.guard);
    });
}

#[test]
fn a_memif_server_continues_when_others_try_to_serve_its_socket() {
    in_lab("a_memif_server_continues_when_others_try_to_serve_its_socket", || {
        let mut first = testpmd("server", false);
        for _ in 0..20 {
            let second = Dpdk::open(&config(&[&memif(0, "server", false)]), || Ok(()));
            assert!(matches!(second, Err(DpdkError::SocketBusy(_))));
        }
        let mut dpdk = open(&[&memif(0, "client", false), &memif(1, "client", false)]);
        let mut generator = generator(&mut dpdk);
        until(&dpdk.events, &up(), || generator.idle(SHORT));
        assert_all_return(&mut generator);
        assert_eq!(first.ended(), None);
        drop(generator);
        drop(dpdk.guard);
    });
}

#[test]
fn invalid_devices_are_refused_with_a_correction() {
    in_lab("invalid_devices_are_refused_with_a_correction", || {
        let refused = |config: &DpdkConfig| match Dpdk::open(config, || Ok(())) {
            Ok(_) => panic!("it opened"),
            Err(error) => error,
        };
        let mut cores = config(&["net_null0"]);
        cores.eal.cores = vec![0, 1];
        assert!(matches!(
            refused(&cores),
            DpdkError::Processors(ProcessorError::Number { named: 2, workers: 1 })
        ));
        cores.eal.cores = vec![1023];
        assert!(matches!(refused(&cores), DpdkError::Processors(ProcessorError::Missing(1023))));
        let mut huge = config(&["net_null0"]);
        huge.eal.huge_pages = HugePages::Always;
        huge.queues = 60_000;
        let error = refused(&huge).to_string();
        assert!(error.contains("/proc/sys/vm/nr_hugepages") || error.contains("processor"), "{error}");
        // A socket without a server is taken over; one with a server is not.
        let path = "/run/taken.sock";
        let listener = seqpacket(path);
        let taken = memif(0, "server", false).replace(SOCKET, path);
        assert!(matches!(refused(&config(&[&taken])), DpdkError::SocketBusy(_)));
        drop(listener);
        let error = refused(&config(&[&taken, "net_nothing0"]));
        assert!(matches!(&error, DpdkError::Missing { device, .. } if device == "net_nothing0"), "{error}");
        assert!(matches!(refused(&config(&["net_null0"])), DpdkError::SecondStart));
    });
}

fn seqpacket(path: &str) -> std::os::fd::OwnedFd {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
    let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    listen(&socket, 1).unwrap();
    socket
}

#[test]
fn a_capture_file_is_read_and_written_packet_by_packet_unchanged() {
    in_lab("a_capture_file_is_read_and_written_packet_by_packet_unchanged", || {
        let sent: Vec<Vec<u8>> =
            (60..1500).map(|len| (0..len).map(|i| (i * 7 + len) as u8).collect()).collect();
        std::fs::write("/run/in.pcap", capture(&sent)).unwrap();
        let device = "net_pcap0,rx_pcap=/run/in.pcap,tx_pcap=/run/out.pcap";
        let mut dpdk = open(&[device]);
        let mut ports = dpdk.workers.pop().unwrap();
        let (mut count, deadline) = (0, Instant::now() + Duration::from_secs(10));
        while count < sent.len() && Instant::now() < deadline {
            let mut handed = 0;
            count += ports.receive(
                |_, frame, _| frame.len() >= 60,
                |burst, out| {
                    handed = burst.len();
                    // Each by itself, and the last one copied.
                    let last = burst.len() - 1;
                    (0..last).for_each(|i| out.forward(i, 0, &burst[i]));
                    out.send(0, burst[last].bytes());
                    // A second call for the same packet has no effect.
                    (0..last.min(1)).for_each(|i| out.forward(i, 0, &burst[i]));
                },
            );
        }
        assert_eq!(count, sent.len());
        let stats = ports.stats();
        assert_eq!((stats.rx_packets, stats.tx_packets), (sent.len() as u64, sent.len() as u64), "{stats:?}");
        drop(ports);
        drop(dpdk.guard);
        let mut out = packets(&std::fs::read("/run/out.pcap").unwrap());
        out.sort();
        let mut expected = sent.clone();
        expected.sort();
        assert!(out == expected, "{} of {} packets, or other bytes", out.len(), sent.len());
    });
}

/// Capture file of Ethernet frames (pcap, version 2.4).
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 2 | 4 << 16, 0, 0, 65_535, 1] {
        file.extend(word.to_le_bytes());
    }
    for frame in frames {
        for word in [0, 0, frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

fn packets(file: &[u8]) -> Vec<Vec<u8>> {
    let (mut rest, mut all) = (&file[24..], Vec::new());
    while let Some((header, behind)) = rest.split_first_chunk::<16>() {
        let len = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        all.push(behind[..len].to_vec());
        rest = &behind[len..];
    }
    all
}
