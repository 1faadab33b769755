//! The loop that sends, turns round and looks.

use crate::ends::packet::{self, FRAME_MIN, Flows, Found, Stamp, Template};
use crate::ends::score::{Report, Score};
use gatun_ether::{Ether, Limits, Mac, Port, Prefix, Problem, Received, Route, Sent};
use gatun_io::{BURST_MAX, Waker};
use gatun_io_ether::{Frames, Outbox};
use gatun_wire::{HEADROOM, Packet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// What is sent, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Whose packets.
    pub flows: Flows,
    /// Bytes of the IPv6 frames, in turn, Ethernet header included and checksum not; at least 86 each.
    pub frame_lens: Vec<usize>,
    /// In which order flows have their turn.
    pub order: Order,
    /// Packets a second that are sent at most; `None`: as many as the window lets.
    pub rate_pps: Option<f64>,
    /// Packets on their way at most. What returns is sent again at once, so this is also how many there are in all
    /// rings at a time.
    pub window: u32,
    /// Of so many returned packets, one's checksum is looked at; 1: each one's.
    pub check_every: u32,
    /// The generator's devices' Ethernet addresses: device 0 inside, device 1 outside.
    pub macs: [Mac; 2],
    /// Where to send frames inside; `None`: to whom answers for `inside_router`. A forwarder that knows no neighbour
    /// discovery takes any.
    pub to: Option<Mac>,
    /// The translator's address inside.
    pub inside_router: Ipv6Addr,
    /// The generator's address inside: the next hop to all subscribers.
    pub inside: Ipv6Addr,
    /// The generator's address outside: the next hop to the server.
    pub outside: Ipv4Addr,
}

impl Settings {
    /// Between the documentation's networks: the host 2001:db8:1::2 and its router 2001:db8:1::64 inside,
    /// 198.51.100.2 before the server 203.0.113.9 outside, and the prefix 2001:db8:64::/96. Four sizes in turn,
    /// scattered, each checksum looked at.
    pub fn of(subscribers: u32, flows_each: u16, macs: [Mac; 2]) -> Settings {
        Settings {
            flows: Flows {
                subscribers,
                flows_each,
                server: Ipv4Addr::new(203, 0, 113, 9),
                pool6: Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0, 0),
                port: 9,
            },
            frame_lens: vec![86, 128, 594, 1494],
            order: Order::Scattered,
            rate_pps: None,
            window: 256,
            check_every: 1,
            macs,
            to: None,
            inside_router: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0x64),
            inside: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2),
            outside: Ipv4Addr::new(198, 51, 100, 2),
        }
    }
}

/// In which order flows have their turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// One subscriber after the other.
    #[default]
    Sequential,
    /// Scattered over all, each once in a round where their number is a power of two.
    Scattered,
}

/// Why nothing is sent.
#[derive(Debug)]
pub enum Error {
    /// The settings do not fit together.
    Settings(Vec<Problem>),
    /// A frame is too short for what it has to say; bytes.
    FrameLen(usize),
    /// There are no flows.
    NoFlows,
    /// Nobody answers for the translator's address.
    NoRouter(Ipv6Addr),
    /// Nothing comes back.
    NoWay,
    /// The devices cannot be used any more.
    Io(std::io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Settings(problems) => problems.iter().try_for_each(|problem| write!(f, "{problem}; ")),
            Error::FrameLen(len) => write!(f, "a frame of {len} bytes: at least {FRAME_MIN} are needed"),
            Error::NoFlows => f.write_str("no subscribers, or no flows of theirs"),
            Error::NoRouter(addr) => write!(f, "nobody answers for {addr}"),
            Error::NoWay => {
                f.write_str("no packet comes back: is there a way through the translator, and back?")
            }
            Error::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Error {}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Since its beginning.
    pub elapsed: Duration,
    /// Packets sent.
    pub tx: u64,
    /// Packets returned.
    pub rx: u64,
}

/// Both ends of a translator, over devices 0 (inside) and 1 (outside).
pub struct Generator<F: Frames> {
    frames: F,
    settings: Settings,
    ether: Ether,
    clock: Instant,
    waker: Waker,
}

/// The number of packets that only show that the way is open.
const PROBE: u64 = u64::MAX;
/// How long the translator may take to answer for its address.
const RESOLVE_MAX: Duration = Duration::from_secs(10);
/// How long nothing has to come for all to be lost that has not.
const QUIET: Duration = Duration::from_secs(1);
/// When nothing has returned for so long, the window is opened again.
const STALL_NS: u64 = 1_000_000_000;
/// The next flow's number comes from this; odd, so that powers of two are gone through once.
const SCATTER: u64 = 0x9e37_79b1;

impl<F: Frames> Generator<F> {
    /// # Errors
    /// What is wrong with the settings.
    pub fn new(frames: F, settings: Settings) -> Result<Self, Error> {
        if let Some(len) = settings.frame_lens.iter().find(|len| **len < FRAME_MIN) {
            return Err(Error::FrameLen(*len));
        }
        if settings.flows.count() == 0 || settings.frame_lens.is_empty() {
            return Err(Error::NoFlows);
        }
        let ether =
            Ether::new(&hosts(&settings), &Limits::default(), [1, 2, 3, 4]).map_err(Error::Settings)?;
        let waker = Waker::new().map_err(Error::Io)?;
        Ok(Generator { frames, settings, ether, clock: Instant::now(), waker })
    }

    /// Waits until the translator has answered for its address, and says which Ethernet address it has.
    ///
    /// # Errors
    /// Where nobody answers.
    pub fn resolve(&mut self) -> Result<Mac, Error> {
        let router = self.settings.inside_router;
        let begin = Instant::now();
        while begin.elapsed() < RESOLVE_MAX {
            let now_ms = self.clock.elapsed().as_millis() as u64;
            // Any packet to it: it is kept until the address is known, and then it begins with it.
            let mut buffer = vec![0u8; HEADROOM];
            buffer.extend(echo(self.settings.inside, router));
            let len = buffer.len() - HEADROOM;
            let packet = Packet::new(&mut buffer, HEADROOM, len);
            if let Some(mut packet) = packet
                && let Sent::Frame { .. } = self.ether.transmit(now_ms, &mut packet)
                && let Some(mac) = packet.bytes().first_chunk()
            {
                return Ok(Mac(*mac));
            }
            self.serve(now_ms);
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(Error::NoRouter(router))
    }

    /// Sends nothing for some time, and answers neighbours.
    pub fn idle(&mut self, time: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < time {
            self.serve(self.clock.elapsed().as_millis() as u64);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Answers neighbours, and sends what is due.
    fn serve(&mut self, now_ms: u64) {
        let ether = &mut self.ether;
        self.frames.receive(
            |device, frame, out| {
                if let Received::Reply(_) = ether.receive(now_ms, device as u8, frame) {
                    out.answer(device, frame);
                }
                false
            },
            |_, _| (),
        );
        let out = self.frames.outbox();
        ether.poll(now_ms, &mut |device, frame, _| out.say(device.into(), frame));
    }

    /// Sends until `go_on` says no, which is asked some hundred times a second, and waits for what is still on its way.
    ///
    /// # Errors
    /// Where nobody answers for the translator's address, or a device cannot be used any more.
    pub fn run(&mut self, mut go_on: impl FnMut(Progress) -> bool) -> Result<Report, Error> {
        let settings = self.settings.clone();
        let mut run = Run::new(&settings);
        self.probe(&mut run)?;
        let refused_before = refused(&self.frames);
        let begin = Instant::now();
        let mut asked = Duration::ZERO;
        loop {
            let elapsed = begin.elapsed();
            if elapsed >= asked {
                asked = elapsed + Duration::from_millis(5);
                if !go_on(Progress { elapsed, tx: run.next, rx: run.score.rx }) {
                    break;
                }
            }
            self.turn(&mut run, elapsed, true);
        }
        let seconds = begin.elapsed().as_secs_f64();
        let sent_rx = run.score.rx;
        let mut quiet = Instant::now();
        while quiet.elapsed() < QUIET {
            if self.turn(&mut run, begin.elapsed(), false) > 0 {
                quiet = Instant::now();
            }
        }
        let refused = refused(&self.frames) - refused_before;
        let tx = run.next - refused.min(run.next);
        Ok(Report {
            tx,
            turned: run.turned,
            rx: run.score.rx,
            lost: tx.saturating_sub(run.score.rx),
            duplicated: run.score.duplicated,
            reordered: run.score.reordered,
            corrupted: run.corrupted,
            misdelivered: run.misdelivered,
            others: run.others,
            refused,
            seconds,
            pps: sent_rx as f64 / seconds,
            translated_pps: 2.0 * sent_rx as f64 / seconds,
            latency_us: run.score.latency(),
        })
    }

    /// Sends a packet now and then until one has returned: then the way is open.
    fn probe(&mut self, run: &mut Run<'_>) -> Result<(), Error> {
        let begin = Instant::now();
        let mut next = Duration::ZERO;
        while !run.probed {
            if begin.elapsed() >= RESOLVE_MAX {
                return Err(Error::NoWay);
            }
            if begin.elapsed() >= next {
                next = begin.elapsed() + Duration::from_millis(10);
                // It may be another one than before, which has just said so.
                let to = match self.settings.to {
                    Some(mac) => mac,
                    None => self.resolve()?,
                };
                run.address(to);
                let stamp = Stamp { flow: 0, number: PROBE, time_ns: 0 };
                if let Some(template) = run.templates.first_mut() {
                    self.frames.outbox().send(0, template.stamp(&run.settings.flows, stamp));
                }
            }
            self.turn(run, begin.elapsed(), false);
        }
        (run.turned, run.others, run.corrupted, run.misdelivered) = (0, 0, 0, 0);
        Ok(())
    }

    /// Takes a burst, and sends what may be sent. Returns how many frames there were.
    fn turn(&mut self, run: &mut Run<'_>, elapsed: Duration, sends: bool) -> usize {
        let now_ms = self.clock.elapsed().as_millis() as u64;
        run.now_ns = elapsed.as_nanos() as u64;
        run.may_send = if sends { run.allowed() } else { 0 };
        let ether = &mut self.ether;
        let count = self.frames.receive(
            |device, frame, out| {
                match packet::find(frame.bytes()) {
                    Some(found) if device == 0 => run.take(found, frame, out),
                    Some(found) => run.turn_round(found, frame, out),
                    None => {
                        run.others += 1;
                        if let Received::Reply(_) = ether.receive(now_ms, device as u8, frame) {
                            out.answer(device, frame);
                        }
                    }
                }
                false
            },
            |_, _| (),
        );
        let out = self.frames.outbox();
        if ether.due_ms() <= now_ms {
            ether.poll(now_ms, &mut |device, frame, _| out.say(device.into(), frame));
        }
        run.send_new(out);
        if count == 0 {
            // It gives the devices what is staged, and returns at once.
            let _ = self.frames.wait(&self.waker, Some(Duration::ZERO));
        }
        count
    }
}

/// Frames that the devices refused.
fn refused(frames: &impl Frames) -> u64 {
    frames.stats().tx_errors.iter().sum()
}

/// The generator's own hosts at the two links.
fn hosts(settings: &Settings) -> gatun_ether::Settings {
    let port = |number: u8, addr: IpAddr, len: u8, routes: Vec<Route>| Port {
        name: ["inside", "outside"][usize::from(number)].to_owned(),
        device: number,
        mac: settings.macs[usize::from(number)],
        tags: Vec::new(),
        mtu: 9600,
        addresses: vec![Prefix { addr, len }],
        answers: Vec::new(),
        routes,
        neighbours: vec![],
        realms: [0; 2],
    };
    let inside = port(0, settings.inside.into(), 64, Vec::new());
    let outside = port(1, settings.outside.into(), 24, Vec::new());
    gatun_ether::Settings { ports: vec![inside, outside], engine: Vec::new(), speaks: true, shares: false }
}

/// An ICMPv6 message that nobody will answer: its checksum is wrong.
fn echo(from: Ipv6Addr, to: Ipv6Addr) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 8, 58, 64];
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend([128, 0, 0, 0, 0, 0, 0, 0]);
    packet
}

/// One run's state.
struct Run<'s> {
    settings: &'s Settings,
    templates: Vec<Template>,
    /// Which of them is next.
    turn: usize,
    score: Score,
    now_ns: u64,
    /// When something returned last.
    heard_ns: u64,
    /// The next packet's number.
    next: u64,
    /// Up to which number the window was given up.
    given_up: u64,
    may_send: u64,
    turned: u64,
    corrupted: u64,
    misdelivered: u64,
    others: u64,
    flow_mask: Option<u64>,
    /// Whether a probe has returned.
    probed: bool,
}

impl<'s> Run<'s> {
    fn new(settings: &'s Settings) -> Self {
        let count = u64::from(settings.flows.count());
        Run {
            settings,
            templates: Vec::new(),
            turn: 0,
            score: Score::new(),
            now_ns: 0,
            heard_ns: 0,
            next: 0,
            given_up: 0,
            may_send: 0,
            turned: 0,
            corrupted: 0,
            misdelivered: 0,
            others: 0,
            flow_mask: count.is_power_of_two().then_some(count - 1),
            probed: false,
        }
    }

    /// Sends to this address from now on.
    fn address(&mut self, to: Mac) {
        let Settings { flows, frame_lens, macs, .. } = self.settings;
        self.templates = frame_lens.iter().map(|len| Template::new(flows, *len, to, macs[0])).collect();
    }

    /// How many packets may be sent now.
    fn allowed(&mut self) -> u64 {
        // Packets return in their order, nearly.
        let returned = if self.score.rx == 0 { 0 } else { self.score.highest + 1 }.max(self.given_up);
        let on_their_way = self.next.saturating_sub(returned);
        let window = u64::from(self.settings.window);
        if on_their_way >= window && self.now_ns.saturating_sub(self.heard_ns) > STALL_NS {
            (self.given_up, self.heard_ns) = (self.next, self.now_ns);
            return window;
        }
        let free = window.saturating_sub(on_their_way);
        let Some(rate) = self.settings.rate_pps else { return free };
        let due = (self.now_ns as f64 * rate / 1e9) as u64;
        free.min(due.saturating_sub(self.next))
    }

    fn stamp(&mut self) -> Stamp {
        let number = self.next;
        self.next += 1;
        self.may_send -= 1;
        let turn = match self.settings.order {
            Order::Sequential => number,
            Order::Scattered => number.wrapping_mul(SCATTER),
        };
        let flow = match self.flow_mask {
            Some(mask) => turn & mask,
            None => turn % u64::from(self.settings.flows.count()),
        };
        Stamp { flow: flow as u32, number, time_ns: self.now_ns }
    }

    /// A packet has come back: looks at it, and sends its buffer again as another's.
    #[inline]
    fn take(&mut self, found: Found, frame: &mut Packet<'_>, out: &mut impl Outbox) {
        let flows = &self.settings.flows;
        let number = found.stamp.number;
        if number == PROBE {
            self.probed = true;
            return;
        }
        let look = number.is_multiple_of(self.settings.check_every.max(1).into());
        let damaged = look && !found.is_right(frame.bytes());
        // A forwarder gives the packet back as it was turned round.
        self.corrupted += u64::from(damaged);
        self.misdelivered += u64::from(!damaged && !found.is_delivered(frame.bytes(), flows));
        self.heard_ns = self.now_ns;
        self.score.returned(number, self.now_ns.saturating_sub(found.stamp.time_ns));
        if self.may_send == 0 {
            return;
        }
        let len = frame.len();
        let Some(template) = self.templates.iter().position(|template| template.len() == len) else { return };
        let stamp = self.stamp();
        let (template, flows) = (&self.templates[template], &self.settings.flows);
        match look && !damaged || self.settings.check_every > 1 {
            true => template.change(frame.bytes_mut(), flows, stamp),
            false => template.replace(frame.bytes_mut(), flows, stamp),
        }
        out.relay(0, frame);
    }

    /// A packet has come out: turns it round.
    #[inline]
    fn turn_round(&mut self, found: Found, frame: &mut Packet<'_>, out: &mut impl Outbox) {
        self.turned += u64::from(found.stamp.number != PROBE);
        let look = found.stamp.number.is_multiple_of(self.settings.check_every.max(1).into());
        self.corrupted += u64::from(look && !found.is_right(frame.bytes()));
        found.turn_round(frame.bytes_mut());
        out.relay(1, frame);
    }

    /// Sends new frames, as far as returned ones did not do.
    fn send_new(&mut self, out: &mut impl Outbox) {
        for _ in 0..self.may_send.min(BURST_MAX as u64) {
            let stamp = self.stamp();
            self.turn = (self.turn + 1) % self.templates.len();
            let settings = self.settings;
            if let Some(template) = self.templates.get_mut(self.turn) {
                out.send(0, template.stamp(&settings.flows, stamp));
            }
        }
    }
}
