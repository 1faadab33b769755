//! The scenarios.

pub(crate) mod carrier;
pub(crate) mod desk;
pub(crate) mod ladder;
pub(crate) mod rfc8219;

use crate::middle::Programs;
use crate::report::Report;
use gatun_traffic::{Family, Protocols, Sizes, Spec, Traffic};
use std::time::Duration;

/// What the command line asks for; each scenario has its own defaults.
#[derive(Clone, Debug)]
pub(crate) struct Wishes {
    pub(crate) programs: Programs,
    /// How long the main stage takes.
    pub(crate) seconds: Option<f64>,
    pub(crate) subscribers: Option<u32>,
    pub(crate) flows: Option<u32>,
    pub(crate) sizes: Option<Sizes>,
    pub(crate) family: Family,
    /// Packets a second; as many as pass without loss where there is none.
    pub(crate) rate: Option<f64>,
    /// Sessions that are ended a second.
    pub(crate) kills: Option<f64>,
    /// To see that it works, not what it does.
    pub(crate) brief: bool,
    /// Parallel streams of iperf3.
    pub(crate) streams: Option<Vec<u32>>,
}

impl Wishes {
    /// How long the main stage takes.
    fn length(&self, default_s: f64) -> Duration {
        let default_s = if self.brief { 1.0 } else { default_s };
        Duration::from_secs_f64(self.seconds.unwrap_or(default_s).max(0.2))
    }

    fn traffic(&self, subscribers: u32, flows: u32, sizes: Sizes) -> Traffic {
        let subscribers = if self.brief { subscribers.min(128) } else { subscribers };
        Traffic::new(Spec {
            family: self.family,
            subscribers: self.subscribers.unwrap_or(subscribers),
            flows_per_subscriber: self.flows.unwrap_or(flows),
            protocols: Protocols::Mixed,
            sizes: self.sizes.unwrap_or(sizes),
            seed: 0x6174_756e,
        })
    }
}

/// A scenario: its name, and what runs it.
pub(crate) type Scenario = (&'static str, fn(&Wishes) -> anyhow::Result<Report>);

/// All of them.
pub(crate) const ALL: [Scenario; 4] =
    [("desk", desk::run), ("carrier", carrier::run), ("ladder", ladder::run), ("rfc8219", rfc8219::run)];

/// MTU of the cables for frames of this size: what comes back as IPv6 may be 20 bytes longer than what went as IPv4.
fn mtu_for(traffic: &Traffic) -> anyhow::Result<usize> {
    let needed = traffic.packet_len_max() + 20;
    let mtu = needed.max(1500);
    anyhow::ensure!(
        mtu <= gatun_io_xdp::MTU_MAX as usize,
        "frames of {} bytes do not fit AF_XDP's buffers: at most {} bytes here",
        needed + gatun_traffic::LAYER_2 - 20,
        gatun_io_xdp::MTU_MAX as usize + gatun_traffic::LAYER_2 - 20,
    );
    Ok(mtu)
}
