//! What the log keeps of a port block or a binding, and where it stands among others.

use std::net::{Ipv4Addr, Ipv6Addr};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RecordKind {
    /// A subscriber got a block of ports.
    BlockAssigned = 0,
    /// A subscriber gave a block of ports back.
    BlockReleased = 1,
    /// An inside address and port got an outside address and port.
    BindingCreated = 2,
    /// An outside address and port went back to the pool.
    BindingDeleted = 3,
    /// A subscriber of the daemon before has its block still, as the next daemon begins.
    BlockKept = 4,
    /// An inside address and port have their outside ones still, as the next daemon begins.
    BindingKept = 5,
}

impl RecordKind {
    /// The kind of a number.
    pub fn of(number: u8) -> Option<RecordKind> {
        use RecordKind::*;
        let all = [BlockAssigned, BlockReleased, BindingCreated, BindingDeleted, BlockKept, BindingKept];
        all.get(usize::from(number)).copied()
    }

    /// The name used in output.
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

    /// Whether somebody has the ports from then on.
    pub const fn begins(self) -> bool {
        !matches!(self, RecordKind::BlockReleased | RecordKind::BindingDeleted)
    }

    /// Whether somebody had them already under the daemon before. What is not told of so, in a daemon that has the
    /// sessions of the one before, has ended with that one.
    pub const fn goes_on(self) -> bool {
        matches!(self, RecordKind::BlockKept | RecordKind::BindingKept)
    }

    /// Whether it is about a block.
    pub const fn is_block(self) -> bool {
        matches!(self, RecordKind::BlockAssigned | RecordKind::BlockReleased | RecordKind::BlockKept)
    }
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When, milliseconds since 1970 (UTC).
    pub at_ms: u64,
    /// What.
    pub kind: RecordKind,
    /// For which transports, a bit each: TCP 1, UDP 2, ICMP 4.
    pub transports: u8,
    /// Number of the instance, in the configuration in force.
    pub instance: u8,
    /// Number of the pool, in the configuration in force.
    pub pool: u8,
    /// The public address.
    pub outside: Ipv4Addr,
    /// The public port, or the first one of a block.
    pub first: u16,
    /// The last port of a block; of a binding, the port again.
    pub last: u16,
    /// The inside address, or the first one of the subscriber's prefix. IPv4 ones as ::ffff:a.b.c.d.
    pub inside: Ipv6Addr,
    /// The inside port of a binding.
    pub inside_port: u16,
}

/// Blocks of 2^16 ports or of another shape: looked at for every port of their address.
pub(crate) const IRREGULAR: u8 = 16;

/// Where a record stands in a sorted segment: records of the same size, address and ports are neighbours, so that a
/// port is found by one exact look-up for each size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Key {
    /// Ports of the block, as a power of two; 0 is a single port.
    pub(crate) class: u8,
    pub(crate) address: u32,
    /// Number of the block among those of its size.
    pub(crate) slot: u16,
}

impl Key {
    /// The key, of one size, under which a port would stand.
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

    /// Whether a port of its address is among its own.
    pub fn has_port(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// Whether both are about the same ports in the same right, so that one may begin what the other ends.
    pub(crate) fn is_same_place(&self, other: &Record) -> bool {
        self.outside == other.outside
            && (self.first, self.last, self.transports) == (other.first, other.last, other.transports)
            && self.kind.is_block() == other.kind.is_block()
    }

    /// Whether both are of the same holder.
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
    fn a_port_is_found_under_the_key_of_each_size() {
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
