//! Devices of the scenario: the generator's, and the reflector's unless that is another program.

use crate::bed::{Bed, ENDS, Link};
use gatun_io::{BURST_MAX, Stats};
use gatun_io_ether::{FrameSink as _, Frames as _};
use gatun_io_xdp::{Mode, Owner, PortConfig, Ports, PrefixRule, Watch, Xdp, XdpConfig};
use gatun_testkit::traffic::{Devices, Family, POOL6, Received, SERVERS, SERVERS_LEN};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Devices at both ends of the bed.
pub(crate) enum Wire {
    /// veth interfaces, through AF_XDP.
    Veth(Box<Veth>),
    /// Shared memory, through DPDK.
    #[cfg(feature = "dpdk")]
    Memif(Box<crate::memif::GeneratorDevices>),
}

pub(crate) struct Veth {
    inside: Ports,
    outside: Ports,
    _watches: [Watch; 2],
    /// Sleep while there is nothing to do; without it, the generator polls.
    pause: Option<Duration>,
}

fn entries(family: Family) -> [Vec<PrefixRule>; 2] {
    match family {
        // Packets as IPv6 hosts receive them, and as they arrive outside, translated or not.
        Family::V6 => [
            vec![PrefixRule::To6(Ipv6Addr::new(0x2001, 0xdb8, 0x8000, 0, 0, 0, 0, 0), 33)],
            vec![PrefixRule::To4(SERVERS, SERVERS_LEN), PrefixRule::To6(POOL6, 96)],
        ],
        Family::V4 => [
            vec![PrefixRule::To4(Ipv4Addr::new(100, 64, 0, 0), 10)],
            vec![PrefixRule::To4(SERVERS, SERVERS_LEN)],
        ],
    }
}

fn open(interface: &str, entries: &[PrefixRule]) -> anyhow::Result<(Ports, Watch, [u8; 6])> {
    let config = XdpConfig {
        ports: vec![PortConfig { interface: interface.into(), mode: Mode::Auto }],
        queues: 1,
        entries: entries.iter().map(|entry| (*entry, Owner::Gatun)).collect(),
    };
    let mut xdp = Xdp::open(&config)?;
    let ports = xdp.workers.pop().ok_or_else(|| anyhow::anyhow!("{interface} has no worker"))?;
    Ok((ports, xdp.watch, xdp.opened[0].interface.mac))
}

impl Wire {
    /// Opens the devices of a bed; also returns the MAC address of the generator's.
    /// On veth, a generator with a pause sleeps for that time when it has nothing to do, and polls otherwise.
    pub(crate) fn open(
        bed: &Bed,
        family: Family,
        pause: Option<Duration>,
    ) -> anyhow::Result<(Wire, [u8; 6])> {
        match &bed.link {
            Link::Veth => {
                let [inside_entries, outside_entries] = entries(family);
                let (inside, inside_watch, mac) = open(ENDS[0], &inside_entries)?;
                let (outside, outside_watch, _) = open(ENDS[1], &outside_entries)?;
                let veth = Veth { inside, outside, _watches: [inside_watch, outside_watch], pause };
                Ok((Wire::Veth(Box::new(veth)), mac))
            }
            #[cfg(feature = "dpdk")]
            Link::Memif(memif) => Ok((Wire::Memif(Box::new(memif.lend())), crate::memif::END_MACS[0])),
        }
    }

    /// Counters of the generator's device, and of the reflector's unless that is another program.
    pub(crate) fn stats(&self) -> [Stats; 2] {
        match self {
            Wire::Veth(veth) => [veth.inside.stats(), veth.outside.stats()],
            #[cfg(feature = "dpdk")]
            Wire::Memif(memif) => memif.stats(),
        }
    }
}

impl Devices for Wire {
    fn send(&mut self, frame: &[u8]) {
        match self {
            Wire::Veth(veth) => veth.inside.outbox().send(0, frame),
            #[cfg(feature = "dpdk")]
            Wire::Memif(memif) => memif.send(frame),
        }
    }

    fn receive(
        &mut self,
        mut outside: impl FnMut(&mut [u8]) -> bool,
        mut inside: impl FnMut(&[u8]),
    ) -> Received {
        match self {
            Wire::Veth(veth) => {
                let turned = veth.outside.receive(
                    |_, frame, out| {
                        if outside(frame.bytes_mut()) {
                            out.relay(0, frame);
                        }
                        false
                    },
                    |_, _| (),
                );
                let judge = |_: usize, frame: &mut gatun_wire::Packet<'_>, _: &mut _| {
                    inside(frame.bytes());
                    false
                };
                let returned = veth.inside.receive(judge, |_, _| ());
                Received { inside: returned, is_full: turned.max(returned) >= BURST_MAX }
            }
            #[cfg(feature = "dpdk")]
            Wire::Memif(memif) => memif.receive(outside, inside),
        }
    }

    fn give_way(&self) {
        match self {
            Wire::Veth(veth) => match veth.pause {
                Some(pause) => std::thread::sleep(pause),
                None => std::thread::yield_now(),
            },
            #[cfg(feature = "dpdk")]
            Wire::Memif(memif) => memif.give_way(),
        }
    }

    fn takes_turns(&self) -> bool {
        match self {
            Wire::Veth(_) => false,
            #[cfg(feature = "dpdk")]
            Wire::Memif(memif) => memif.takes_turns(),
        }
    }

    fn refused(&self) -> u64 {
        match self {
            Wire::Veth(veth) => veth.inside.stats().tx_errors.iter().sum(),
            #[cfg(feature = "dpdk")]
            Wire::Memif(memif) => memif.refused(),
        }
    }
}
