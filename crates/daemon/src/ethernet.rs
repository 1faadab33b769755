//! Common part of Ethernet ports of all backends.

pub(super) mod live;

use gatun_ether::Ether;
use gatun_io::Backend;
use gatun_io_ether::{EthernetHandover, Frames, SwitchPort};
use std::io;

/// Backends, one for each worker.
pub(super) type Backends = Vec<Box<dyn Backend>>;

/// Creates a backend for each worker, and the handovers for new settings. `devices` and `switch_ports` as
/// for [`gatun_io_ether::backends`].
pub(super) fn backends<F: Frames + 'static>(
    workers: Vec<F>,
    devices: &[(&str, bool)],
    switch_ports: &[SwitchPort],
    ethers: Vec<Ether>,
) -> io::Result<(Backends, Vec<EthernetHandover>)> {
    let backends = gatun_io_ether::backends(workers, devices, switch_ports, ethers)?;
    let both = backends.into_iter().map(|backend| {
        let handover = backend.handover();
        (Box::new(backend) as Box<dyn Backend>, handover)
    });
    Ok(both.unzip())
}
