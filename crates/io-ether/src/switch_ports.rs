//! Ports of a P4 switch behind one device: the port of the switch for its controller.
//!
//! ```text
//!   from the switch   reason (1) | 0 (1) | port (2) | Ethernet frame as it arrived
//!   to the switch     0 (2)            | port (2) | Ethernet frame, sent as it is
//! ```
//! `Ether` knows each port of the switch as a device of its own.

use gatun_io::NamedCounter;
use gatun_wire::Packet;

/// Length of the header before a frame.
const LEN: usize = 4;
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
const REASONS: [(&str, &str); 18] = [
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
];
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
    /// Frame with its header.
    buffer: Vec<u8>,
}

impl SwitchPorts {
    pub(crate) fn new(ports: &[SwitchPort]) -> SwitchPorts {
        SwitchPorts { ports: ports.to_vec(), ..SwitchPorts::default() }
    }

    /// Device of a received frame: of the switch's port if it is from a switch, whose header is removed.
    /// `None` if no port has its number.
    #[inline]
    pub(crate) fn enter(&mut self, device: u8, frame: &mut Packet<'_>) -> Option<u8> {
        if self.ports.is_empty() { Some(device) } else { self.enter_behind(device, frame) }
    }

    fn enter_behind(&mut self, device: u8, frame: &mut Packet<'_>) -> Option<u8> {
        if !self.ports.iter().any(|port| port.behind == device) {
            return Some(device);
        }
        let header = frame.bytes().first_chunk::<LEN>().copied();
        let found = header.and_then(|[reason, _, high, low]| {
            let number = u16::from_be_bytes([high, low]);
            let found = self.ports.iter().find(|port| port.behind == device && port.port == number)?;
            Some((reason, found.device))
        });
        let Some((reason, device)) = found else {
            self.unknown += 1;
            return None;
        };
        let reason = usize::from(reason);
        self.reasons[if reason < REASONS.len() { reason } else { 0 }] += 1;
        frame.shift_start(LEN as isize).ok()?;
        Some(device)
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
        let all = REASONS.into_iter().zip(self.reasons).chain([(UNKNOWN_PORT, self.unknown)]);
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
