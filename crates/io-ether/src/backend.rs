//! Backend of one worker: its queue of every device, and the host functions of each port.

use crate::prefetch::prefetch_headers;
use crate::switch_ports::{SwitchPort, SwitchPorts};
use crate::{EthernetHandover, FrameSink, Frames, partial};
use gatun_ether::{Ether, FrameOrigin, NeighbourUpdate, Received, Sent};
use gatun_io::{Backend, Handler, Mailbox, NamedCounter, Stats, Transmit, Waker};
use gatun_wire::{Checksum, Packet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Clock that workers of one process pass to their [`Ether`]s.
#[derive(Clone, Copy, Debug)]
struct Clock(Instant);

impl Clock {
    fn now_ms(self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Largest number of neighbour updates that wait for a worker.
const UPDATES_MAX: usize = 256;

/// Backend of one worker.
pub struct EtherQueues<F> {
    name: String,
    frames: F,
    host: Host,
    /// True for each device that is software.
    software: Vec<bool>,
    rx_packets: u64,
    rx_bytes: u64,
    checksums_finished: u64,
    /// Mailboxes for neighbour updates, one per worker.
    mailboxes: Arc<[Mailbox<NeighbourUpdate>]>,
    worker: usize,
}

/// Host functions and their clock.
struct Host {
    ether: Ether,
    handover: EthernetHandover,
    switch_ports: SwitchPorts,
    clock: Clock,
    now_ms: u64,
    /// Frames of its own: replies, solicitations, announcements.
    own_frames: u64,
}

/// Creates the backends of all workers. `devices` has the name of each device, and true if it is software,
/// which may deliver unfinished checksums (see [`partial`]). `switch_ports` are those of P4 switches behind
/// them, which the `Ether`s know as further devices.
///
/// # Errors
/// Returns an error if the number of workers and the number of `Ether`s differ.
pub fn backends<F: Frames>(
    workers: Vec<F>,
    devices: &[(&str, bool)],
    switch_ports: &[SwitchPort],
    ethers: Vec<Ether>,
) -> io::Result<Vec<EtherQueues<F>>> {
    if workers.len() != ethers.len() {
        return Err(io::Error::other("each worker needs its own `Ether`"));
    }
    let names: Vec<&str> = devices.iter().map(|(name, _)| *name).collect();
    let mailboxes: Arc<[Mailbox<NeighbourUpdate>]> =
        workers.iter().map(|_| Mailbox::new(UPDATES_MAX)).collect();
    let clock = Clock(Instant::now());
    let backend = |(worker, (frames, ether)): (usize, (F, Ether))| EtherQueues {
        name: names.join(", "),
        frames,
        host: Host {
            ether,
            handover: EthernetHandover::default(),
            switch_ports: SwitchPorts::new(switch_ports),
            clock,
            now_ms: 0,
            own_frames: 0,
        },
        software: devices.iter().map(|(_, software)| *software).collect(),
        rx_packets: 0,
        rx_bytes: 0,
        checksums_finished: 0,
        mailboxes: Arc::clone(&mailboxes),
        worker,
    };
    Ok(workers.into_iter().zip(ethers).enumerate().map(backend).collect())
}

impl Host {
    /// Adds the Ethernet header to an IP packet and passes the device and the frame to `put`.
    #[inline]
    fn send(&mut self, packet: &mut Packet<'_>, put: impl FnOnce(usize, &Packet<'_>)) {
        if packet.offload.checksum != Checksum::Complete {
            packet.complete_checksum();
        }
        match self.ether.transmit(self.now_ms, packet) {
            Sent::Frame { device } => {
                if let Some(device) = self.switch_ports.leave(device, packet) {
                    put(device.into(), packet);
                }
            }
            Sent::Held | Sent::Drop(_) => {}
        }
    }

    /// Does the work that is due. All frames of the burst before have been given to the devices.
    #[inline]
    fn poll(&mut self, out: &mut impl FrameSink) {
        self.now_ms = self.clock.now_ms();
        while let Some((device, echo)) = self.switch_ports.take_echo() {
            self.own_frames += 1;
            out.send_own(device.into(), &echo);
        }
        if self.handover.waits() {
            self.handover.take_over(self.now_ms, &mut self.ether);
        }
        if self.handover.neighbours().is_asked() {
            self.handover.neighbours().answer(self.now_ms, &mut self.ether);
        }
        if let Some(devices) = out.take_returned() {
            for (device, mac) in devices {
                let all = self.switch_ports.behind(device as u8);
                all.into_iter().for_each(|device| self.ether.set_mac(device, mac));
            }
            // The switch or the hosts on that link may have been replaced.
            self.ether.announce(self.now_ms);
        }
        if self.ether.due_ms() <= self.now_ms {
            let (own_frames, switch_ports) = (&mut self.own_frames, &mut self.switch_ports);
            self.ether.poll(self.now_ms, &mut |device, frame, whose| {
                let (device, frame) = switch_ports.leave_copy(device, frame);
                match whose {
                    FrameOrigin::Packet => out.send(device.into(), frame),
                    FrameOrigin::Own => {
                        *own_frames += 1;
                        out.send_own(device.into(), frame);
                    }
                }
            });
        }
    }
}

impl<F: Frames> EtherQueues<F> {
    /// Handover through which new settings take over.
    pub fn handover(&self) -> EthernetHandover {
        self.host.handover.clone()
    }

    /// Sends neighbour updates to the other workers and applies theirs.
    fn exchange_updates(&mut self) {
        if self.mailboxes.len() < 2 {
            return;
        }
        while let Some(update) = self.host.ether.next_update() {
            for (_, mailbox) in self.mailboxes.iter().enumerate().filter(|(worker, _)| *worker != self.worker)
            {
                // A full mailbox means that its worker sleeps. It will solicit the neighbour itself.
                let _ = mailbox.put(update);
            }
        }
        let Some(own) = self.mailboxes.get(self.worker) else { return };
        while let Some(update) = own.next() {
            self.host.ether.apply_update(self.host.now_ms, update);
        }
    }
}

/// Sending half for a burst.
struct BurstTransmit<'a, O> {
    out: &'a mut O,
    host: &'a mut Host,
}

impl<O: FrameSink> Transmit for BurstTransmit<'_, O> {
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
        self.exchange_updates();
        let EtherQueues { frames, host, software, rx_packets, rx_bytes, checksums_finished, .. } = self;
        let host = std::cell::RefCell::new(host);
        let admit = |device: usize, frame: &mut Packet<'_>, out: &mut F::Out| {
            let host: &mut Host = &mut host.borrow_mut();
            let Some(port) = host.switch_ports.enter(device as u8, frame) else { return false };
            match host.ether.receive(host.now_ms, port, frame) {
                Received::Packet => {
                    prefetch_headers(frame);
                    if software.get(device) == Some(&true) {
                        *checksums_finished += u64::from(partial::finish(frame));
                    }
                    *rx_packets += 1;
                    *rx_bytes += frame.len() as u64;
                    true
                }
                Received::Reply(_) => {
                    host.own_frames += 1;
                    if let Some(device) = host.switch_ports.leave(port, frame) {
                        out.answer(device.into(), frame);
                    }
                    false
                }
                Received::Consumed(_) | Received::Foreign(_) | Received::Drop(_) => false,
            }
        };
        Ok(frames.receive(admit, |burst, out| {
            handle(burst, &mut BurstTransmit { out, host: &mut host.borrow_mut() });
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
        stats.tx_own = self.host.own_frames.saturating_sub(stats.tx_own_refused);
        stats.tx_withheld = host.waiting + host.unsent.iter().sum::<u64>();
        let named = |(name, help, count)| NamedCounter { name, help, count };
        let of_devices = std::mem::take(&mut stats.named);
        stats.named = host.rows().map(named).collect();
        let help = "Checksums that the sender's kernel had left to a device and that Gatun completed.";
        stats.named.push(named(("checksums_finished", help, self.checksums_finished)));
        let help = "Frames of the translator itself (ARP, neighbour discovery) that a device did not accept.";
        stats.named.push(named(("own_refused", help, stats.tx_own_refused)));
        stats.named.extend(self.host.switch_ports.counters());
        stats.named.extend(of_devices);
        stats
    }
}
