//! Common part of Ethernet ports of all backends.

pub(super) mod live;

use gatun_ether::Ether;
use gatun_io::Backend;
use gatun_io_ether::{EthernetHandover, Frames};
use std::io;

/// One for each worker.
pub(super) type Backends = Vec<Box<dyn Backend>>;

/// A backend for each worker, with what lets other manners take over; `devices` as [`gatun_io_ether::backends`] has them.
pub(super) fn backends<F: Frames + 'static>(
    workers: Vec<F>,
    devices: &[(&str, bool)],
    ethers: Vec<Ether>,
) -> io::Result<(Backends, Vec<EthernetHandover>)> {
    let backends = gatun_io_ether::backends(workers, devices, ethers)?;
    let both = backends.into_iter().map(|backend| {
        let handover = backend.handover();
        (Box::new(backend) as Box<dyn Backend>, handover)
    });
    Ok(both.unzip())
}
