//! Records of port blocks and bindings, and their sort keys.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RecordKind {
    /// A subscriber was assigned a port block.
    BlockAssigned = 0,
    /// A subscriber released a port block.
    BlockReleased = 1,
    /// A binding was created.
    BindingCreated = 2,
    /// A binding was deleted.
    BindingDeleted = 3,
    /// A port block was restored from the previous daemon.
    BlockKept = 4,
    /// A binding was restored from the previous daemon.
    BindingKept = 5,
}

impl RecordKind {
    /// Returns the kind with this number.
    pub fn of(number: u8) -> Option<RecordKind> {
        use RecordKind::*;
        let all = [BlockAssigned, BlockReleased, BindingCreated, BindingDeleted, BlockKept, BindingKept];
        all.get(usize::from(number)).copied()
    }

    /// Name used in output.
    pub const fn name(self) -> &'static str {
        match self {
            RecordKind::BlockAssigned => "block_assigned",
            RecordKind::BlockReleased => "block_released",
            RecordKind::BindingCreated => "binding_created",
            RecordKind::BindingDeleted => "binding_deleted",
            RecordKind::BlockKept => "block_kept",
            RecordKind::BindingKept => "binding_kept",
        }
    }

    /// Returns true if the holding begins or continues with this record.
    pub const fn begins(self) -> bool {
        !matches!(self, RecordKind::BlockReleased | RecordKind::BindingDeleted)
    }

    /// Returns true if the holding was restored. If a daemon restores sessions, holdings without such a
    /// record ended with its predecessor.
    pub const fn goes_on(self) -> bool {
        matches!(self, RecordKind::BlockKept | RecordKind::BindingKept)
    }

    /// Returns true if the record concerns a block.
    pub const fn is_block(self) -> bool {
        matches!(self, RecordKind::BlockAssigned | RecordKind::BlockReleased | RecordKind::BlockKept)
    }
}

/// Record of a port block or binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Time, milliseconds since 1970 (UTC).
    pub at_ms: u64,
    /// Kind of event.
    pub kind: RecordKind,
    /// Transports, a bit each: TCP 1, UDP 2, ICMP 4.
    pub transports: u8,
    /// Number of the instance in the configuration of that time.
    pub instance: u8,
    /// Number of the pool in the configuration of that time.
    pub pool: u8,
    /// Public address.
    pub outside: Ipv4Addr,
    /// Public port, or first port of a block.
    pub first: u16,
    /// Last port of a block; the same port for a binding.
    pub last: u16,
    /// Inside address, or first address of the subscriber's prefix; IPv4 as ::ffff:a.b.c.d.
    pub inside: Ipv6Addr,
    /// Inside port of a binding.
    pub inside_port: u16,
}

/// Class of blocks with 2^16 ports or an irregular range, which are searched for every port of their address.
pub(crate) const IRREGULAR: u8 = 16;

/// Sort key in a segment. Records with the same size, address and ports are neighbours, so a port is found by
/// one exact look-up per size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Key {
    /// Block size, as a power of two; 0 is a single port.
    pub(crate) class: u8,
    pub(crate) address: u32,
    /// Number of the block among blocks of its size.
    pub(crate) slot: u16,
}

impl Key {
    /// Key of a port for one block size.
    pub(crate) fn for_port(class: u8, address: Ipv4Addr, port: u16) -> Key {
        let slot = port.checked_shr(class.into()).unwrap_or(0);
        Key { class, address: address.into(), slot }
    }
}

impl Record {
    pub(crate) fn key(&self) -> Key {
        let ports = u32::from(self.last).saturating_sub(u32::from(self.first)) + 1;
        let is_regular = ports.is_power_of_two() && u32::from(self.first).is_multiple_of(ports);
        let class = if is_regular { ports.ilog2() as u8 } else { IRREGULAR };
        Key::for_port(class, self.outside, self.first)
    }

    /// Returns true if the record covers this port of its address.
    pub fn has_port(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// Returns true if both records concern the same ports and kind, so that one may end the holding of the
    /// other.
    pub(crate) fn has_same_ports(&self, other: &Record) -> bool {
        self.outside == other.outside
            && (self.first, self.last, self.transports) == (other.first, other.last, other.transports)
            && self.kind.is_block() == other.kind.is_block()
    }

    /// Returns true if both records have the same holder.
    pub(crate) fn is_same_holder(&self, other: &Record) -> bool {
        (self.inside, self.inside_port) == (other.inside, other.inside_port)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn record(at_ms: u64, kind: RecordKind, outside: &str, ports: (u16, u16)) -> Record {
        Record {
            at_ms,
            kind,
            transports: 7,
            instance: 0,
            pool: 0,
            outside: outside.parse().unwrap(),
            first: ports.0,
            last: ports.1,
            inside: "2001:db8:1::".parse().unwrap(),
            inside_port: 0,
        }
    }

    #[test]
    fn a_port_is_found_under_the_key_of_each_block_size() {
        let address = "192.0.2.1";
        for (ports, class) in
            [((4096, 4351), 8), ((7, 7), 0), ((0, u16::MAX), IRREGULAR), ((100, 355), IRREGULAR)]
        {
            let r = record(0, RecordKind::BlockAssigned, address, ports);
            assert_eq!(r.key().class, class);
            for port in [ports.0, ports.1, ports.0.midpoint(ports.1)] {
                assert_eq!(Key::for_port(class, r.outside, port), r.key());
                assert!(r.has_port(port));
            }
        }
    }
}
