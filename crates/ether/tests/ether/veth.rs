//! A veth pair: the kernel of a namespace at one end, an `Ether` at the other.
//!
//! ```text
//!   namespace "peer"               this process, in the sandbox's own namespace
//!   eth0, 198.51.100.9  ---veth--- us0 (no addresses) --- packet socket --- tags on and off --- Ether --- UDP echo
//! ```

use crate::common::*;
use crate::kernel::PATIENCE;
use gatun_ether::{Ether, Limits, Mac, Received, Sent, Settings, Tag};
use gatun_testkit::{Namespace, Process};
use gatun_wire::{HEADROOM, Packet};
use nix::ifaddrs::getifaddrs;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, recv, send, socket,
};
use std::net::IpAddr;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) const KERNEL_MAC: Mac = PEER_MAC;

/// Runs `body` in its own sandbox. `test` is the test's full name.
pub(crate) fn in_lab(test: &str, body: fn()) {
    gatun_testkit::run_test(test, gatun_testkit::refusal, body);
}

/// The host at our end.
pub(crate) struct End {
    pub(crate) ether: Ether,
    socket: OwnedFd,
    tags: Vec<Tag>,
    began: Instant,
}

pub(crate) struct Cable {
    pub(crate) peer: Namespace,
    end: Option<End>,
    running: Option<(Arc<AtomicBool>, JoinHandle<End>)>,
}

impl Cable {
    /// Runs the end on a thread of its own.
    pub(crate) fn new(settings: &Settings) -> Cable {
        Cable::unplugged(settings).plug()
    }

    /// Leaves the end to be driven by the caller.
    pub(crate) fn unplugged(settings: &Settings) -> Cable {
        let peer = Namespace::new("peer").unwrap();
        ip("link add us0 type veth peer name eth0 netns peer");
        // The kernel at our end must stay silent, because the `Ether` answers.
        std::fs::write("/proc/sys/net/ipv6/conf/us0/disable_ipv6", "1").unwrap();
        ip("link set us0 up promisc on");
        peer.ip(&format!("link set eth0 address {KERNEL_MAC}")).unwrap();
        peer.ip("link set eth0 up").unwrap();
        // Complete checksums, as on a wire.
        peer.run("ethtool -K eth0 tx off").unwrap();
        peer.address("eth0", "198.51.100.9/24").unwrap();
        peer.address("eth0", "2001:db8:1::9/64").unwrap();
        Cable { peer, end: Some(End::new(settings)), running: None }
    }

    /// Another host in the same place.
    pub(crate) fn again(settings: &Settings, before: Cable) -> Cable {
        Cable { peer: before.peer.clone(), end: Some(End::new(settings)), running: None }
    }

    pub(crate) fn plug(mut self) -> Cable {
        let stop = Arc::new(AtomicBool::new(false));
        let mut end = self.end.take().unwrap();
        let until = stop.clone();
        let thread = std::thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                end.turn();
            }
            end
        });
        self.running = Some((stop, thread));
        self
    }

    /// Stops the thread and returns its host.
    pub(crate) fn unplug(mut self) -> Cable {
        let (stop, thread) = self.running.take().unwrap();
        stop.store(true, Ordering::Relaxed);
        self.end = Some(thread.join().unwrap());
        self
    }

    pub(crate) fn host(&self) -> &Ether {
        &self.end.as_ref().unwrap().ether
    }

    pub(crate) fn end(&mut self) -> &mut End {
        self.end.as_mut().unwrap()
    }

    pub(crate) fn run_until(&mut self, done: impl Fn(&Ether) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let end = self.end.as_mut().unwrap();
        while !done(&end.ether) {
            assert!(Instant::now() < deadline, "{:?}", end.ether.stats());
            end.turn();
        }
    }

    /// Sends a line to a UDP port from the kernel's end and waits for the echo.
    pub(crate) fn echo(&self, to: IpAddr, line: &str) {
        let script = format!("exec 3<>/dev/udp/{to}/7; echo {line} >&3; head -n 1 <&3");
        let mut command = self.peer.command("timeout");
        command.args(["10", "bash", "-c", &script]);
        assert_eq!(gatun_testkit::run(&mut command).unwrap(), format!("{line}\n"), "{to}");
    }

    /// Starts a program at the kernel's end that receives one datagram on port 2000.
    pub(crate) fn listen(&self, from: &str) -> Process {
        let mut command = self.peer.command("timeout");
        command.args(["10", "socat", "-u", from, "-"]).stdout(Stdio::piped());
        let process = Process::start(&mut command).unwrap();
        self.wait_for("ss -Hlnu sport = :2000", "2000");
        process
    }

    /// Waits until a program at the kernel's end prints a line.
    pub(crate) fn wait_for(&self, program: &str, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let said = self.peer.run(program).unwrap();
            if said.contains(text) {
                return;
            }
            assert!(Instant::now() < deadline, "no '{text}' from {program}: {said}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn ip(line: &str) {
    gatun_testkit::run(Command::new("ip").args(line.split_whitespace())).unwrap();
}

impl End {
    fn new(settings: &Settings) -> End {
        let ether = Ether::new(settings, &Limits::default(), [1, 2, 3, 4]).unwrap();
        End { ether, socket: open("us0"), tags: settings.ports[0].tags.clone(), began: Instant::now() }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// One turn of a worker: received frames, then due work.
    fn turn(&mut self) {
        let wait_ms = self.ether.due_ms().saturating_sub(self.now_ms()).min(20) as u16;
        let mut ready = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        poll(&mut ready, PollTimeout::from(wait_ms)).unwrap();
        let mut bytes = [0; 2048];
        while let Ok(len) = recv(self.socket.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
            self.receive(&bytes[..len]);
        }
        self.poll();
    }

    fn poll(&mut self) {
        let (now_ms, tags, socket) = (self.now_ms(), &self.tags, &self.socket);
        self.ether.poll(now_ms, &mut |_, frame, _| put_on_wire(socket, tags, frame));
    }

    fn receive(&mut self, from_wire: &[u8]) {
        let mut buffer = vec![0xa5; 4096];
        let len = from_wire.len() + 4 * self.tags.len();
        let (macs, rest) = from_wire.split_at(12);
        let frame = &mut buffer[HEADROOM..HEADROOM + len];
        frame[..12].copy_from_slice(macs);
        for (i, tag) in self.tags.iter().enumerate() {
            frame[12 + 4 * i..][..2].copy_from_slice(&tag.kind.to_be_bytes());
            frame[14 + 4 * i..][..2].copy_from_slice(&tag.vlan.to_be_bytes());
        }
        frame[12 + 4 * self.tags.len()..].copy_from_slice(rest);
        let mut packet = Packet::new(&mut buffer, HEADROOM, len).unwrap();
        match self.ether.receive(self.now_ms(), DEVICE, &mut packet) {
            Received::Packet => self.echo_back(&mut packet),
            Received::Reply(_) => put_on_wire(&self.socket, &self.tags, packet.bytes()),
            Received::Consumed(_) | Received::Foreign(_) => {}
            Received::Drop(why) => panic!("{why:?}: {from_wire:02x?}"),
        }
        assert!(self.ether.stats().add_up());
    }

    /// The engine: returns every UDP datagram to its sender.
    fn echo_back(&mut self, packet: &mut Packet<'_>) {
        let bytes = packet.bytes_mut();
        let (addresses, half, l4) = if bytes[0] >> 4 == 4 { (12..20, 4, 20) } else { (8..40, 16, 40) };
        bytes[addresses].rotate_left(half);
        bytes[l4..l4 + 4].rotate_left(2);
        self.transmit(packet);
    }

    /// Sends a packet as the engine would.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let mut buffer = vec![0xa5; HEADROOM + bytes.len()];
        buffer[HEADROOM..].copy_from_slice(bytes);
        self.transmit(&mut Packet::new(&mut buffer, HEADROOM, bytes.len()).unwrap());
    }

    fn transmit(&mut self, packet: &mut Packet<'_>) {
        match self.ether.transmit(self.now_ms(), packet) {
            Sent::Frame { .. } => put_on_wire(&self.socket, &self.tags, packet.bytes()),
            Sent::Held => {}
            Sent::Drop(why) => panic!("{why:?}"),
        }
    }
}

/// Removes the tags, which have to be those of the port.
fn put_on_wire(socket: &OwnedFd, tags: &[Tag], frame: &[u8]) {
    let (macs, rest) = frame.split_at(12);
    let (head, rest) = rest.split_at(4 * tags.len());
    let expected: Vec<u8> =
        tags.iter().flat_map(|t| [t.kind.to_be_bytes(), t.vlan.to_be_bytes()].concat()).collect();
    assert_eq!(head, expected);
    send(socket.as_raw_fd(), &[macs, rest].concat(), MsgFlags::empty()).unwrap();
}

/// Packet socket for every frame of a device.
fn open(device: &str) -> OwnedFd {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll).unwrap();
    let of_device = |i: &nix::ifaddrs::InterfaceAddress| i.interface_name == device;
    let link: LinkAddr = getifaddrs()
        .unwrap()
        .filter(of_device)
        .find_map(|i| i.address.and_then(|a| a.as_link_addr().copied()))
        .unwrap_or_else(|| panic!("no device {device}"));
    bind(socket.as_raw_fd(), &link).unwrap();
    socket
}
