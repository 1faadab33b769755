//! Ports of a P4 switch behind one device: the port of the switch for its controller.
//!
//! ```text
//!   from the switch   reason (1) | 0 (1) | port (2) | Ethernet frame as it arrived
//!                     18 (1)     | 0 (1) | port (2) | number (8) | Ethernet frame of a pending session
//!   to the switch     0 (2)            | port (2) | Ethernet frame, sent as it is
//!                     1 (2)            | 0 (2)    | number (8) | 0 (4): echo
//! ```
//! `Ether` knows each port of the switch as a device of its own.
//!
//! A pending session's packet has a number: its place in the switch, and its value there. The number is
//! returned behind all packets of its burst ([`SwitchPorts::take_echo`]). The switch translates the session
//! when the echo of its latest packet has come back: what the engine made of earlier packets is before it.

use gatun_io::{BURST_MAX, NamedCounter};
use gatun_wire::Packet;

/// Length of the header before a frame.
const LEN: usize = 4;
/// Length of the header before a frame of a pending session.
const PENDING_LEN: usize = LEN + 8;
/// Reason of such a frame.
const PENDING: usize = 18;
/// Length of an echo, which is that of the shortest frames.
const ECHO_LEN: usize = 16;
/// Most echoes that wait: one for each packet of a burst.
const ECHOES_MAX: usize = BURST_MAX;
/// Position of the port in both headers.
const PORT: usize = 2;

/// A port of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchPort {
    /// Number as a device, which no other device has.
    pub device: u8,
    /// Device that is connected to the switch.
    pub behind: u8,
    /// Number in the switch.
    pub port: u16,
}

/// Reasons why a switch sends a frame to the translator: name and help of the counter, by number.
const REASONS: [(&str, &str); 19] = [
    ("switch_other", "Frames from the switch for a reason that has no name."),
    ("switch_no_entry", "Frames from the switch: no entry has their addresses and ports."),
    ("switch_tcp_flags", "Frames from the switch: a SYN, FIN or RST."),
    ("switch_fragment", "Frames from the switch: a fragment."),
    ("switch_extension_header", "Frames from the switch: an IPv6 extension header."),
    ("switch_options", "Frames from the switch: IPv4 options."),
    ("switch_icmp", "Frames from the switch: an ICMP message that is no echo."),
    ("switch_hop_limit", "Frames from the switch: the TTL or hop limit expires."),
    ("switch_too_large", "Frames from the switch: larger than the next link."),
    ("switch_no_checksum", "Frames from the switch: UDP without a checksum."),
    ("switch_malformed", "Frames from the switch: the header is malformed."),
    ("switch_no_next_hop", "Frames from the switch: it does not know the MAC of the next hop."),
    ("switch_arp", "Frames from the switch: ARP."),
    ("switch_neighbour_discovery", "Frames from the switch: neighbour discovery."),
    ("switch_group", "Frames from the switch: to a group."),
    ("switch_protocol", "Frames from the switch: another protocol."),
    ("switch_requested", "Frames from the switch: the entry says so."),
    ("switch_truncated", "Frames from the switch: shorter than their header says."),
    ("switch_pending", "Frames from the switch: the session has not moved to the switch yet."),
];
const ECHOES: (&str, &str) = (
    "switch_echoes",
    "Echoes to the switch: numbers of frames whose session has not moved to the switch yet.",
);
const UNKNOWN_PORT: (&str, &str) = (
    "switch_unknown_port",
    "Frames from the switch, dropped: no port of the configuration has their number.",
);

/// Returns the name of a reason why a switch sends a frame to the translator.
pub fn switch_reason(number: usize) -> &'static str {
    let (name, _) = REASONS.get(number).unwrap_or(&REASONS[0]);
    name.strip_prefix("switch_").unwrap_or(name)
}

/// Ports of switches, and counters of their frames.
#[derive(Debug, Default)]
pub(crate) struct SwitchPorts {
    ports: Vec<SwitchPort>,
    reasons: [u64; REASONS.len()],
    unknown: u64,
    /// Echoes that wait for the end of the burst.
    waiting: Vec<Echo>,
    echoes: u64,
    /// Frame with its header.
    buffer: Vec<u8>,
}

/// Number of a pending session's frame, to be returned.
#[derive(Clone, Copy, Debug)]
struct Echo {
    /// Device that is connected to the switch.
    behind: u8,
    place: [u8; 4],
    value: [u8; 4],
}

impl SwitchPorts {
    pub(crate) fn new(ports: &[SwitchPort]) -> SwitchPorts {
        let waiting = Vec::with_capacity(if ports.is_empty() { 0 } else { ECHOES_MAX });
        SwitchPorts { ports: ports.to_vec(), waiting, ..SwitchPorts::default() }
    }

    /// Device of a received frame: of the switch's port if it is from a switch, whose header is removed.
    /// `None` if no port has its number.
    #[inline]
    pub(crate) fn enter(&mut self, device: u8, frame: &mut Packet<'_>) -> Option<u8> {
        if self.ports.is_empty() { Some(device) } else { self.enter_behind(device, frame) }
    }

    fn enter_behind(&mut self, behind: u8, frame: &mut Packet<'_>) -> Option<u8> {
        if !self.ports.iter().any(|port| port.behind == behind) {
            return Some(behind);
        }
        let header = frame.bytes().first_chunk::<LEN>().copied();
        let found = header.and_then(|[reason, _, high, low]| {
            let number = u16::from_be_bytes([high, low]);
            let found = self.ports.iter().find(|port| port.behind == behind && port.port == number)?;
            Some((reason, found.device))
        });
        let Some((reason, device)) = found else {
            self.unknown += 1;
            return None;
        };
        let reason = usize::from(reason);
        let mut len = LEN;
        if reason == PENDING {
            let Some(number) = frame.bytes().get(LEN..).and_then(|bytes| bytes.first_chunk()) else {
                self.unknown += 1;
                return None;
            };
            self.wait_with(behind, *number);
            len = PENDING_LEN;
        }
        self.reasons[if reason < REASONS.len() { reason } else { 0 }] += 1;
        frame.shift_start(len as isize).ok()?;
        Some(device)
    }

    /// Keeps the number of a frame until the burst has been sent. A later number of the place replaces it.
    fn wait_with(&mut self, behind: u8, number: [u8; 8]) {
        let [place @ .., a, b, c, d] = number;
        let value = [a, b, c, d];
        let is_same = |echo: &&mut Echo| echo.behind == behind && echo.place == place;
        if let Some(echo) = self.waiting.iter_mut().rev().find(is_same) {
            echo.value = value;
        } else if self.waiting.len() < ECHOES_MAX {
            // A lost echo only delays the session: its next frame has another number.
            self.waiting.push(Echo { behind, place, value });
        }
    }

    /// Takes an echo, and the device that sends it. All frames of earlier bursts must have been given to the
    /// devices.
    #[inline]
    pub(crate) fn take_echo(&mut self) -> Option<(u8, [u8; ECHO_LEN])> {
        let Echo { behind, place, value } = self.waiting.pop()?;
        self.echoes += 1;
        let mut frame = [0; ECHO_LEN];
        frame[1] = 1;
        frame[LEN..][..4].copy_from_slice(&place);
        frame[LEN + 4..][..4].copy_from_slice(&value);
        Some((behind, frame))
    }

    /// Device that sends a frame: the one behind which the switch is, if it leaves by a port of a switch. The
    /// frame gets its header. `None` if there is no room for it.
    #[inline]
    pub(crate) fn leave(&self, device: u8, frame: &mut Packet<'_>) -> Option<u8> {
        if self.ports.is_empty() {
            return Some(device);
        }
        let Some(port) = self.ports.iter().find(|port| port.device == device) else { return Some(device) };
        frame.shift_start(-(LEN as isize)).ok()?;
        *frame.bytes_mut().first_chunk_mut::<LEN>()? = header(port);
        Some(port.behind)
    }

    /// As [`leave`](Self::leave), for a copy of a frame.
    pub(crate) fn leave_copy<'a>(&'a mut self, device: u8, frame: &'a [u8]) -> (u8, &'a [u8]) {
        let Some(port) = self.ports.iter().find(|port| port.device == device) else { return (device, frame) };
        self.buffer.clear();
        self.buffer.extend(header(port));
        self.buffer.extend(frame);
        (port.behind, &self.buffer)
    }

    /// Devices that have the MAC of a device: itself, or the ports of the switch behind it.
    pub(crate) fn behind(&self, device: u8) -> Vec<u8> {
        let ports: Vec<u8> =
            self.ports.iter().filter(|port| port.behind == device).map(|port| port.device).collect();
        if ports.is_empty() { vec![device] } else { ports }
    }

    /// Counters, if there is a switch.
    pub(crate) fn counters(&self) -> impl Iterator<Item = NamedCounter> {
        let counter =
            |((name, help), count): ((&'static str, &'static str), u64)| NamedCounter { name, help, count };
        let all = REASONS
            .into_iter()
            .zip(self.reasons)
            .chain([(ECHOES, self.echoes), (UNKNOWN_PORT, self.unknown)]);
        all.filter(|_| !self.ports.is_empty()).map(counter)
    }
}

fn header(port: &SwitchPort) -> [u8; LEN] {
    let mut header = [0; LEN];
    header[PORT..].copy_from_slice(&port.port.to_be_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: [SwitchPort; 2] =
        [SwitchPort { device: 128, behind: 1, port: 3 }, SwitchPort { device: 129, behind: 1, port: 0x104 }];

    fn packet(bytes: &[u8], buffer: &mut [u8; 64]) -> usize {
        buffer[16..16 + bytes.len()].copy_from_slice(bytes);
        bytes.len()
    }

    #[test]
    fn a_frame_goes_back_through_the_port_of_the_switch_that_it_came_from() {
        let mut ports = SwitchPorts::new(&PORTS);
        let mut buffer = [0xa5; 64];
        let len = packet(&[1, 0, 1, 4, 10, 11, 12], &mut buffer);
        let mut frame = Packet::new(&mut buffer, 16, len).unwrap();
        let device = ports.enter(1, &mut frame).unwrap();
        assert_eq!((device, frame.bytes()), (129, &[10, 11, 12][..]));
        assert_eq!(ports.leave(device, &mut frame), Some(1));
        assert_eq!(frame.bytes(), [0, 0, 1, 4, 10, 11, 12]);
        assert_eq!(ports.leave_copy(128, &[7]), (1, &[0, 0, 0, 3, 7][..]));
        let counted = |name: &str| ports.counters().find(|counter| counter.name == name).unwrap().count;
        assert_eq!((counted("switch_no_entry"), counted("switch_unknown_port")), (1, 0));
    }

    #[test]
    fn the_number_of_a_pending_sessions_frame_is_removed_and_returned_to_its_switch() {
        let mut ports = SwitchPorts::new(&[PORTS[0], SwitchPort { device: 130, behind: 2, port: 3 }]);
        let mut buffer = [0xa5; 64];
        // Two frames of a place, one of another switch's same place, one that ends in its number.
        for (behind, value, payload) in [(1, 5, 2), (2, 7, 1), (1, 6, 1), (1, 9, 0)] {
            let header = [18, 0, 0, 3, 0, 1, 2, 3, 9, 0, 0, value];
            let bytes = [&header[..], &[10, 11][..payload]].concat();
            let cut = bytes.len() - usize::from(payload == 0);
            let len = packet(&bytes[..cut], &mut buffer);
            let mut frame = Packet::new(&mut buffer, 16, len).unwrap();
            let device = if behind == 1 { 128 } else { 130 };
            assert_eq!(ports.enter(behind, &mut frame), Some(device).filter(|_| payload > 0));
            if payload > 0 {
                assert_eq!(frame.bytes(), &[10, 11][..payload]);
                assert_eq!(ports.leave(device, &mut frame), Some(behind));
                assert_eq!(frame.bytes()[..4], [0, 0, 0, 3]);
            }
        }
        let counted = |ports: &SwitchPorts, name: &str| {
            ports.counters().find(|counter| counter.name == name).unwrap().count
        };
        let counts = ["switch_pending", "switch_echoes", "switch_unknown_port"];
        assert_eq!(counts.map(|name| counted(&ports, name)), [3, 0, 1]);
        let mut echoes: Vec<_> = std::iter::from_fn(|| ports.take_echo()).collect();
        echoes.sort_unstable();
        let echo = |value| [0, 1, 0, 0, 0, 1, 2, 3, 9, 0, 0, value, 0, 0, 0, 0];
        assert_eq!(echoes, [(1, echo(6)), (2, echo(7))]);
        assert_eq!(counts.map(|name| counted(&ports, name)), [3, 2, 1]);
    }

    #[test]
    fn echoes_that_wait_are_bounded() {
        let mut ports = SwitchPorts::new(&PORTS);
        let capacity = ports.waiting.capacity();
        for place in 0..2 * ECHOES_MAX as u64 {
            ports.wait_with(1, (place << 32 | 1).to_be_bytes());
        }
        assert_eq!((ports.waiting.len(), ports.waiting.capacity()), (ECHOES_MAX, capacity));
    }

    #[test]
    fn frames_of_other_devices_stay_as_they_are_and_unknown_ports_are_counted() {
        let mut ports = SwitchPorts::new(&PORTS);
        let mut buffer = [0xa5; 64];
        let len = packet(&[1, 0, 0, 9, 10], &mut buffer);
        let mut frame = Packet::new(&mut buffer, 16, len).unwrap();
        assert_eq!(ports.enter(0, &mut frame), Some(0));
        assert_eq!((ports.leave(0, &mut frame), frame.len()), (Some(0), 5));
        assert_eq!(ports.enter(1, &mut frame), None);
        let len = packet(&[1, 0, 0], &mut buffer);
        let mut frame = Packet::new(&mut buffer, 16, len).unwrap();
        assert_eq!(ports.enter(1, &mut frame), None);
        assert_eq!(ports.counters().last().unwrap().count, 2);
        assert_eq!((ports.behind(0), ports.behind(1)), (vec![0], vec![128, 129]));
        assert_eq!(SwitchPorts::default().counters().count(), 0);
    }
}
