//! Settings of ports on DPDK devices.

use super::hosts::{self, Hosts};
use gatun_config::{Config, Device, Port};
use gatun_ether::Mac;
use gatun_io_dpdk::{DeviceConfig, DpdkConfig, EalConfig, HugePages, Opened};

/// Requested configuration.
#[derive(Clone, PartialEq, Eq)]
pub struct DpdkPorts {
    pub(crate) config: DpdkConfig,
    pub(crate) hosts: Hosts,
}

impl DpdkPorts {
    /// Settings from a configuration with DPDK ports.
    pub fn of(config: &Config) -> DpdkPorts {
        let mtu = |device: &str| {
            let ports = config.ports.iter().filter(|port| port.device == device);
            let mtus = ports.filter_map(|port| port.ethernet.as_ref().and_then(|ethernet| ethernet.mtu));
            mtus.max().map(|mtu| u16::try_from(mtu).unwrap_or(u16::MAX))
        };
        let devices = config.devices();
        let devices = devices.iter().map(|name| DeviceConfig { device: (*name).to_owned(), mtu: mtu(name) });
        let eal = EalConfig {
            huge_pages: match config.dpdk.huge_pages {
                gatun_config::HugePages::Auto => HugePages::Auto,
                gatun_config::HugePages::Always => HugePages::Always,
                gatun_config::HugePages::Never => HugePages::Never,
            },
            cores: config.cores.clone(),
            arguments: config.dpdk.eal.clone(),
        };
        let queues = config.ports.first().and_then(|port| port.queues).unwrap_or(1);
        DpdkPorts { config: DpdkConfig { devices: devices.collect(), queues, eal }, hosts: Hosts::of(config) }
    }

    pub(crate) fn device(&self, opened: &[Opened], port: &Port) -> Device {
        let number = self.config.devices.iter().position(|device| device.device == port.device).unwrap_or(0);
        let (mac, mtu) = opened.get(number).map_or(([0; 6], 1500), |opened| (opened.mac, opened.mtu));
        Device { number: number as u8, mac: Mac(mac), mtu: mtu.into() }
    }

    /// Returns true if a device is a network card, whose driver may need any right when it starts.
    pub(crate) fn has_cards(&self) -> bool {
        self.config.devices.iter().any(DeviceConfig::is_card)
    }
}

/// Lists differences that need a restart.
pub(crate) fn differ(old: &DpdkPorts, new: &DpdkPorts) -> Vec<String> {
    let differ = old.config != new.config || hosts::needs_restart(&old.hosts, &new.hosts);
    let what = "[dpdk], or ports with backend \"dpdk\": their number, devices, queues, VLANs or MTUs";
    if differ { vec![what.to_owned()] } else { Vec::new() }
}
