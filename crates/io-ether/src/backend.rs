//! The backend of one worker: its queue of every device, and a host's manners on each.

use crate::ahead::ask_for_rest;
use crate::{Frames, Outbox, Succession, partial};
use gatun_ether::{Ether, Heard, Received, Sent, Whose};
use gatun_io::{Backend, Handler, Mailbox, Named, Stats, Transmit, Waker};
use gatun_wire::{Checksum, Packet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The clock that workers of one process give their [`Ether`]s.
#[derive(Clone, Copy, Debug)]
struct Clock(Instant);

impl Clock {
    fn now_ms(self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// News of neighbours that wait for a worker at most.
const NEWS_MAX: usize = 256;

/// The backend of one worker.
pub struct EtherQueues<F> {
    name: String,
    frames: F,
    host: Host,
    /// By device.
    software: Vec<bool>,
    rx_packets: u64,
    rx_bytes: u64,
    checksums_finished: u64,
    /// News of neighbours for each worker.
    posts: Arc<[Mailbox<Heard>]>,
    worker: usize,
}

/// The manners, and the time that they are told.
struct Host {
    ether: Ether,
    succession: Succession,
    clock: Clock,
    now_ms: u64,
    /// Frames of its own: answers, questions, announcements.
    said: u64,
}

/// The backends of all workers. `devices` are the devices' names, and whether each is software, from which unfinished
/// checksums may come (see [`partial`]).
///
/// # Errors
/// Where the number of workers is not the same.
pub fn backends<F: Frames>(
    workers: Vec<F>,
    devices: &[(&str, bool)],
    ethers: Vec<Ether>,
) -> io::Result<Vec<EtherQueues<F>>> {
    if workers.len() != ethers.len() {
        return Err(io::Error::other("every worker needs its own manners"));
    }
    let names: Vec<&str> = devices.iter().map(|(name, _)| *name).collect();
    let posts: Arc<[Mailbox<Heard>]> = workers.iter().map(|_| Mailbox::new(NEWS_MAX)).collect();
    let clock = Clock(Instant::now());
    let backend = |(worker, (frames, ether)): (usize, (F, Ether))| EtherQueues {
        name: names.join(", "),
        frames,
        host: Host { ether, succession: Succession::default(), clock, now_ms: 0, said: 0 },
        software: devices.iter().map(|(_, software)| *software).collect(),
        rx_packets: 0,
        rx_bytes: 0,
        checksums_finished: 0,
        posts: Arc::clone(&posts),
        worker,
    };
    Ok(workers.into_iter().zip(ethers).enumerate().map(backend).collect())
}

impl Host {
    /// Sends what begins with its IP header, by `put`, which is given the device and the frame.
    #[inline]
    fn send(&mut self, packet: &mut Packet<'_>, put: impl FnOnce(usize, &Packet<'_>)) {
        if packet.offload.checksum != Checksum::Complete {
            packet.complete_checksum();
        }
        match self.ether.transmit(self.now_ms, packet) {
            Sent::Frame { device } => put(device.into(), packet),
            Sent::Held | Sent::Drop(_) => {}
        }
    }

    /// Does what is due.
    #[inline]
    fn poll(&mut self, out: &mut impl Outbox) {
        self.now_ms = self.clock.now_ms();
        if self.succession.waits() {
            self.succession.take_over(self.now_ms, &mut self.ether);
        }
        if let Some(devices) = out.take_returned() {
            for (device, mac) in devices {
                self.ether.set_mac(device as u8, mac);
            }
            // The switch or the hosts behind that link may be others than before.
            self.ether.announce(self.now_ms);
        }
        if self.ether.due_ms() <= self.now_ms {
            let said = &mut self.said;
            self.ether.poll(self.now_ms, &mut |device, frame, whose| match whose {
                Whose::Packet => out.send(device.into(), frame),
                Whose::Own => {
                    *said += 1;
                    out.say(device.into(), frame);
                }
            });
        }
    }
}

impl<F: Frames> EtherQueues<F> {
    /// To let other settings take over.
    pub fn succession(&self) -> Succession {
        self.host.succession.clone()
    }

    /// Tells other workers what was heard of neighbours here, and takes what they heard.
    fn exchange_news(&mut self) {
        if self.posts.len() < 2 {
            return;
        }
        while let Some(heard) = self.host.ether.heard() {
            for (_, post) in self.posts.iter().enumerate().filter(|(worker, _)| *worker != self.worker) {
                // Without room its worker is asleep, and will ask for itself.
                let _ = post.put(heard);
            }
        }
        let Some(own) = self.posts.get(self.worker) else { return };
        while let Some(heard) = own.next() {
            self.host.ether.hear(self.host.now_ms, heard);
        }
    }
}

/// The way out for a burst.
struct Way<'a, O> {
    out: &'a mut O,
    host: &'a mut Host,
}

impl<O: Outbox> Transmit for Way<'_, O> {
    #[inline]
    fn forward(&mut self, index: usize, packet: &mut Packet<'_>) {
        self.host.send(packet, |device, frame| self.out.forward(index, device, frame));
    }

    fn send(&mut self, packet: &mut Packet<'_>) {
        self.host.send(packet, |device, frame| self.out.send(device, frame.bytes()));
    }
}

impl<F: Frames> Transmit for EtherQueues<F> {
    fn forward(&mut self, _index: usize, packet: &mut Packet<'_>) {
        self.send(packet);
    }

    fn send(&mut self, packet: &mut Packet<'_>) {
        let out = self.frames.outbox();
        self.host.send(packet, |device, frame| out.send(device, frame.bytes()));
    }
}

impl<F: Frames> Backend for EtherQueues<F> {
    fn name(&self) -> &str {
        &self.name
    }

    fn receive(&mut self, handle: &mut Handler<'_>) -> io::Result<usize> {
        self.host.poll(self.frames.outbox());
        self.exchange_news();
        let EtherQueues { frames, host, software, rx_packets, rx_bytes, checksums_finished, .. } = self;
        let host = std::cell::RefCell::new(host);
        let admit = |device: usize, frame: &mut Packet<'_>, out: &mut F::Out| {
            let host: &mut Host = &mut host.borrow_mut();
            match host.ether.receive(host.now_ms, device as u8, frame) {
                Received::Packet => {
                    ask_for_rest(frame);
                    if software.get(device) == Some(&true) {
                        *checksums_finished += u64::from(partial::finish(frame));
                    }
                    *rx_packets += 1;
                    *rx_bytes += frame.len() as u64;
                    true
                }
                Received::Reply(_) => {
                    host.said += 1;
                    out.answer(device, frame);
                    false
                }
                Received::Taken(_) | Received::Foreign(_) | Received::Drop(_) => false,
            }
        };
        Ok(frames.receive(admit, |burst, out| {
            handle(burst, &mut Way { out, host: &mut host.borrow_mut() });
        }))
    }

    fn transmit(&mut self) -> &mut dyn Transmit {
        self
    }

    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()> {
        self.host.poll(self.frames.outbox());
        let due = match self.host.ether.due_ms() {
            u64::MAX => None,
            due_ms => Some(Duration::from_millis(due_ms.saturating_sub(self.host.now_ms).max(1))),
        };
        let timeout = match (timeout, due) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.frames.wait(waker, timeout)
    }

    fn stats(&self) -> Stats {
        let mut stats = self.frames.stats();
        stats.rx_packets = self.rx_packets;
        stats.rx_bytes = self.rx_bytes;
        let host = self.host.ether.stats();
        stats.tx_own = self.host.said.saturating_sub(stats.tx_own_refused);
        stats.tx_withheld = host.waiting + host.unsent.iter().sum::<u64>();
        let named = |(name, help, count)| Named { name, help, count };
        let of_devices = std::mem::take(&mut stats.named);
        stats.named = host.rows().map(named).collect();
        let help = "Checksums that the sender's kernel had left to a device were finished.";
        stats.named.push(named(("checksums_finished", help, self.checksums_finished)));
        let help =
            "Frames of the translator's own, as ARP and neighbour discovery are, that a device did not take.";
        stats.named.push(named(("own_refused", help, stats.tx_own_refused)));
        stats.named.extend(of_devices);
        stats
    }
}
