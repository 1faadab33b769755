//! A bed whose cables are shared memory: memifs of DPDK, with Debian's testpmd as reflector and as
//! forwarder.
//!
//! ```text
//!   this process                      the last processor                  this thread, or testpmd, 5tswap
//!   generator and judge ===memif=== [ Gatun | testpmd, macswap ] ===memif=== reflector
//!      first processor       zero copy at the middle's ends
//! ```
//! The generator and the reflector serve their memifs; the middle is the client of both. With two
//! processors, one thread is generator, judge and reflector: it has the first processor to itself, and the
//! middle the last. testpmd as reflector needs a processor of its own. If it shares the generator's, the
//! generator has priority, and sleeps when it is idle.

use crate::ports::Pair;
use crate::processors::{
    first_processor, last_processor, processors, stay_on_first_processor, third_processor,
};
use gatun_ether::Mac;
use gatun_io::Stats;
use gatun_io_dpdk::{DeviceConfig, Dpdk, DpdkConfig, EalConfig, Guard, HugePages, LinkEvent, Ports};
use gatun_io_ether::{FrameSink as _, Frames as _};
use gatun_testkit::testpmd::{Setup, Testpmd};
use gatun_testkit::traffic::Received;
use gatun_testkit::traffic::frames::receive;
use gatun_testkit::{Error, Namespace};
use std::cell::RefCell;
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Program that sends packets back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Reflector {
    /// Debian's dpdk-testpmd in 5tswap mode; with two processors it shares the generator's.
    Testpmd,
    /// The lab itself, in the generator's thread.
    Own,
}

impl Reflector {
    /// The default reflector: testpmd if it can have a processor to itself, because it polls without a
    /// pause.
    pub(crate) fn of_this_machine() -> Reflector {
        if third_processor().is_some() { Reflector::Testpmd } else { Reflector::Own }
    }

    /// Returns true if the generator and the reflector are two programs on one processor.
    fn takes_turns(self) -> bool {
        self == Reflector::Testpmd && third_processor().is_none()
    }
}

impl fmt::Display for Reflector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reflector::Own => "The reflector is the generator's own thread.",
            Reflector::Testpmd if self.takes_turns() => {
                "The reflector is testpmd (5tswap) and shares the generator's processor: the scheduler determines the delays."
            }
            Reflector::Testpmd => "The reflector is testpmd (5tswap), on a processor of its own.",
        })
    }
}

/// MAC addresses of the generator's and the reflector's devices.
pub(crate) const END_MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0xe0], [2, 0, 0, 0, 0, 0xe1]];
pub(crate) const MIDDLE_MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0xa0], [2, 0, 0, 0, 0, 0xa1]];
/// Sockets of the memifs; /run belongs to the sandbox.
const SOCKETS: [&str; 2] = ["/run/lab-inside.sock", "/run/lab-outside.sock"];
/// Socket of the memif between two translators.
const BETWEEN: &str = "/run/lab-between.sock";
const BETWEEN_MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0xc0], [2, 0, 0, 0, 0, 0xc1]];
/// Socket of the memif between a switch and Gatun.
const CONTROLLER: &str = "/run/lab-controller.sock";
/// Bytes of the header between a switch and Gatun.
const CONTROLLER_HEADER: usize = 4;
/// Entries of the rings: 2^11.
const RING_LOG2: u32 = 11;
/// Sleep of the generator when it is idle.
const NAP: Duration = Duration::from_micros(20);
/// Time limit for links to come up.
const UP_MAX: Duration = Duration::from_secs(20);

/// The cables, for the lifetime of the lab: DPDK can be started only once in a process.
pub(crate) struct Memif {
    shared: Rc<RefCell<Shared>>,
    reflector: Reflector,
    /// Bytes of the largest frame.
    frame_max: usize,
    pub(crate) huge_pages: bool,
    /// Processors of the P4 switch in `taskset` form, if there is one: it is the client of both memifs, and
    /// Gatun's ports are the switch's.
    pub(crate) switch: Option<String>,
    /// The generator has the first processor together with a program that polls without a pause.
    shares_processor: bool,
}

struct Shared {
    ports: Ports,
    events: Receiver<LinkEvent>,
    up: Vec<String>,
    _guard: Guard,
}

/// A memif's name and its DPDK arguments, for one side of the middle.
fn device(number: usize, role: &str, side: usize, mac: [u8; 6], frame_max: usize) -> String {
    device_at(SOCKETS[side], number, role, side, mac, frame_max)
}

fn device_at(socket: &str, number: usize, role: &str, id: usize, mac: [u8; 6], frame_max: usize) -> String {
    let zero_copy = if role == "client" { "yes" } else { "no" };
    // A frame and its headroom.
    let size = (frame_max + 128).next_multiple_of(64).max(2176);
    format!(
        "net_memif{number},role={role},id={id},zero-copy={zero_copy},rsize={RING_LOG2},bsize={size},mac={},socket={socket},socket-abstract=no",
        Mac(mac)
    )
}

impl Memif {
    /// Opens the generator's end on the first processor, for frames of up to `frame_max` bytes.
    pub(crate) fn open(frame_max: usize, reflector: Reflector) -> anyhow::Result<Memif> {
        let sides = if reflector == Reflector::Own { 0..2 } else { 0..1 };
        let mtu = (frame_max > 1518).then_some(frame_max as u16 - 14);
        let devices = sides.map(|side| DeviceConfig {
            device: device(side, "server", side, END_MACS[side], frame_max),
            mtu,
        });
        // DPDK's own threads stay on the generator's processor.
        stay_on_first_processor();
        let eal = EalConfig {
            huge_pages: HugePages::Auto,
            cores: vec![first_processor() as u16],
            arguments: Vec::new(),
        };
        let config = DpdkConfig { devices: devices.collect(), queues: 1, eal };
        let mut dpdk = Dpdk::open(&config, || Ok(()))?;
        let ports = dpdk.workers.pop().ok_or_else(|| anyhow::anyhow!("DPDK gave no worker"))?;
        if reflector.takes_turns() {
            go_before_others();
        }
        let shared = Shared { ports, events: dpdk.events, up: Vec::new(), _guard: dpdk.guard };
        let shared = Rc::new(RefCell::new(shared));
        Ok(Memif {
            shared,
            reflector,
            frame_max,
            huge_pages: dpdk.huge_pages,
            switch: None,
            shares_processor: false,
        })
    }

    /// Lets the generators of further runs share the first processor with a program that polls without a
    /// pause: they go first, and sleep when they are idle.
    pub(crate) fn share_first_processor(&mut self) {
        if !self.shares_processor && !self.reflector.takes_turns() {
            go_before_others();
        }
        self.shares_processor = true;
    }

    /// Lends the devices to a run.
    pub(crate) fn lend(&self) -> GeneratorDevices {
        let shared = Rc::clone(&self.shared);
        let takes_turns = self.reflector.takes_turns() || self.shares_processor;
        let mut lent = GeneratorDevices { shared, takes_turns, before: Default::default() };
        lent.before = lent.stats();
        lent
    }

    /// DPDK arguments of the middle's devices.
    pub(crate) fn middle_devices(&self) -> [String; 2] {
        [0, 1].map(|side| device(side, "client", side, MIDDLE_MACS[side], self.frame_max))
    }

    /// DPDK arguments of a switch's devices: the one of its controller, inside, outside.
    pub(crate) fn switch_devices(&self) -> [String; 3] {
        let frame_max = self.frame_max + CONTROLLER_HEADER;
        let controller = device_at(CONTROLLER, 2, "server", 0, BETWEEN_MACS[0], frame_max);
        // Buffers of a client with zero copy have to be in shared memory.
        let [inside, outside] = self.middle_devices().map(|of| of.replace("zero-copy=yes", "zero-copy=no"));
        [controller, inside, outside]
    }

    /// Gatun's devices and further keys of its two ports.
    fn port_devices(&self) -> [String; 2] {
        let device = |device: &str| format!("device = \"{device}\"");
        if self.switch.is_none() {
            return self.middle_devices().map(|of| device(&of));
        }
        let frame_max = self.frame_max + CONTROLLER_HEADER;
        // The switch answers by this MAC address at both ports.
        let controller = device_at(CONTROLLER, 0, "client", 0, MIDDLE_MACS[0], frame_max);
        [1, 2].map(|port| format!("{}\nswitch_port = {port}", device(&controller)))
    }

    /// Starts the reflector, if it is a separate program.
    pub(crate) fn start_reflector(&self, log: &Path) -> Result<Option<Testpmd>, Error> {
        if self.reflector == Reflector::Own {
            return Ok(None);
        }
        let devices = [device(0, "server", 1, END_MACS[1], self.frame_max)];
        let cores = [third_processor().unwrap_or(first_processor()), first_processor()];
        let setup =
            Setup { serves: Some(Path::new(SOCKETS[1])), ..self.setup("5tswap", &devices, cores, log) };
        Testpmd::start(Command::new("stdbuf"), &setup).map(Some)
    }

    /// Starts testpmd in the middle: it swaps the MAC addresses of packets and forwards them.
    pub(crate) fn start_forwarder(&self, host: &Namespace, log: &Path) -> Result<Testpmd, Error> {
        let cores = [last_processor(), first_processor()];
        let devices = self.middle_devices();
        // As a client of two peers, its driver closes the files of huge pages after one has connected
        // (decision 0064).
        let setup = Setup { huge_pages: false, ..self.setup("macswap", &devices, cores, log) };
        Testpmd::start(host.command("stdbuf"), &setup)
    }

    fn setup<'a>(&self, mode: &'a str, devices: &'a [String], cores: [usize; 2], log: &'a Path) -> Setup<'a> {
        Setup {
            mode,
            devices,
            cores,
            frame_max: self.frame_max,
            ring: 1 << RING_LOG2,
            huge_pages: self.huge_pages,
            serves: None,
            log,
        }
    }

    /// Waits until the middle has connected.
    pub(crate) fn wait_until_up(&self) -> anyhow::Result<()> {
        let wanted = self.shared.borrow().ports.names().count();
        self.wait_for_links(wanted)
    }

    /// Waits until the end of the middle is noticed: an earlier client is refused, and does not retry.
    pub(crate) fn wait_until_down(&self) -> anyhow::Result<()> {
        self.wait_for_links(0)
    }

    fn wait_for_links(&self, wanted: usize) -> anyhow::Result<()> {
        let (deadline, mut shared) = (Instant::now() + UP_MAX, self.shared.borrow_mut());
        let Shared { ports, events, up, .. } = &mut *shared;
        loop {
            for event in events.try_iter() {
                match event {
                    LinkEvent::Up(name) => up.push(name),
                    LinkEvent::Down(name) => up.retain(|other| *other != name),
                }
            }
            // Receiving a burst reads the devices' events.
            ports.receive(|_, _, _| false, |_, _| ());
            if up.len() == wanted {
                return Ok(());
            }
            let say = || {
                format!(
                    "{} links are up, not {wanted}: the program in the middle did not connect to its memifs",
                    up.len()
                )
            };
            anyhow::ensure!(Instant::now() < deadline, say());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A processor that generator, reflector and the middle's last translator do not use, if there is one.
    fn another_processor(&self) -> Option<usize> {
        let all = processors();
        let from = if self.reflector == Reflector::Testpmd { 2 } else { 1 };
        all.get(from..all.len().checked_sub(1)?)?.first().copied()
    }

    /// The middle's MTU, if it differs from the device's default.
    pub(crate) fn middle_mtu(&self) -> Option<usize> {
        (self.frame_max > 1518).then_some(self.frame_max - 14)
    }

    /// A port's `mtu` line.
    fn mtu(&self) -> String {
        self.middle_mtu().map_or(String::new(), |mtu| format!("mtu = {mtu}\n"))
    }

    /// Gatun's configuration for two instances between the ends: the first serves the memif between them.
    pub(crate) fn pair(&self) -> Pair {
        let port = |device: &str, more: &str| {
            format!("backend = \"dpdk\"\ndevice = \"{device}\"\n{}{more}", self.mtu())
        };
        let [inside, outside] = self.middle_devices();
        let between = |number: usize, role| {
            let [c0, c1] = BETWEEN_MACS;
            let mac = if role == "server" { c0 } else { c1 };
            device_at(BETWEEN, number, role, 0, mac, self.frame_max)
        };
        let [generator, reflector] = END_MACS.map(Mac);
        Pair {
            general: [self.another_processor().unwrap_or(last_processor()), last_processor()]
                .map(|core| format!("[workers]\ncores = [{core}]")),
            clat: [
                port(&inside, &format!("neighbours = [\"10.1.0.2 at {generator}\"]")),
                port(&between(1, "server"), ""),
            ],
            plat: [
                port(&between(0, "client"), ""),
                port(&outside, &format!("neighbours = [\"198.51.100.2 at {reflector}\"]")),
            ],
        }
    }

    /// Gatun's configuration of its ports.
    pub(crate) fn ports(&self) -> String {
        let [inside, outside] = self.port_devices();
        let [generator, reflector] = END_MACS.map(Mac);
        let mtu = self.mtu();
        format!(
            r#"[workers]
cores = [{core}]

[[port]]
name = "inside"
backend = "dpdk"
{inside}
{mtu}addresses = ["2001:db8:1::64/64", "10.1.0.64/24"]
routes = ["2001:db8:8000::/33 via 2001:db8:1::2", "100.64.0.0/10 via 10.1.0.2"]
neighbours = ["2001:db8:1::2 at {generator}", "10.1.0.2 at {generator}"]

[[port]]
name = "outside"
backend = "dpdk"
{outside}
{mtu}addresses = ["198.51.100.64/24", "2001:db8:2::64/64"]
routes = ["198.19.0.0/16 via 198.51.100.2"]
neighbours = ["198.51.100.2 at {reflector}"]
"#,
            core = last_processor()
        )
    }
}

/// The generator's devices, lent to a run.
pub(crate) struct GeneratorDevices {
    shared: Rc<RefCell<Shared>>,
    /// Another program polls without a pause on the generator's processor.
    takes_turns: bool,
    before: [Stats; 2],
}

impl GeneratorDevices {
    pub(crate) fn send(&mut self, frame: &[u8]) {
        self.shared.borrow_mut().ports.outbox().send(0, frame);
    }

    pub(crate) fn receive(
        &mut self,
        outside: impl FnMut(&mut [u8]) -> bool,
        inside: impl FnMut(&[u8]),
    ) -> Received {
        receive(&mut self.shared.borrow_mut().ports, outside, inside)
    }

    pub(crate) fn takes_turns(&self) -> bool {
        self.takes_turns
    }

    pub(crate) fn give_way(&self) {
        match self.takes_turns {
            true => std::thread::sleep(NAP),
            false => std::hint::spin_loop(),
        }
    }

    /// Counters since the start of the run.
    pub(crate) fn stats(&self) -> [Stats; 2] {
        let shared = self.shared.borrow();
        let since = |device: usize| {
            let (mut now, before) = (shared.ports.device_stats(device), &self.before[device]);
            now.rx_errors.iter_mut().zip(before.rx_errors).for_each(|(n, m)| *n -= m);
            now.tx_errors.iter_mut().zip(before.tx_errors).for_each(|(n, m)| *n -= m);
            now
        };
        [since(0), since(1)]
    }

    pub(crate) fn refused(&self) -> u64 {
        self.stats()[0].tx_errors.iter().sum()
    }
}

/// Gives the calling thread priority over the reflector, or over the switch; it sleeps when it is idle, they
/// never do.
fn go_before_others() {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let mut chrt = Command::new("chrt");
    // Without priority, the results are worse but still true.
    let _ = gatun_testkit::run(chrt.args(["--reset-on-fork", "--fifo", "--pid", "1", &thread]));
}
