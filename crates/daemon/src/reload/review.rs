//! Comparison of two configurations of a daemon: the engine's plan and everything else.

use crate::event_sinks::difference::SinkSettings;
use crate::fastpath;
use crate::offload_orders::{self, OffloadOrders};
use crate::{PortSettings, Settings};
use gatun_io_tun::{Prefix, TunConfig};
use gatun_nat::reconfigure::Difference;

/// Difference between two configurations.
pub(super) struct Review {
    /// Difference of the plans, with everything that needs a restart.
    pub(super) difference: Difference,
    /// Changes of the event sinks.
    pub(super) sink_changes: Vec<String>,
    /// Numbers of devices that get other addresses or routes.
    pub(super) rerouted: Vec<usize>,
    /// Changes of Ethernet ports.
    pub(super) ports: Vec<String>,
    /// Changes of the kernel fast path, and of P4 switches.
    pub(super) offload: Vec<String>,
}

impl Review {
    /// Compares settings. `orders` are those to the running fast path.
    pub(super) fn of(old: &Settings, new: &Settings, orders: &OffloadOrders) -> Review {
        let mut difference = Difference::between(&old.plan, &new.plan);
        difference.restarts.extend(outside_engine(old, new));
        let is_open = matches!(orders, OffloadOrders::Kernel(_));
        difference.restarts.extend(fastpath::differ(&old.fastpath, &new.fastpath, is_open));
        let opened = match orders {
            OffloadOrders::P4(orders) => Some(orders.opened()),
            _ => None,
        };
        difference.restarts.extend(offload_orders::restarts(opened, new.offload.as_ref()));
        let mut offload = fastpath::changes(&old.fastpath, &new.fastpath);
        offload.extend(offload_orders::changes(old.offload.as_ref(), new.offload.as_ref()));
        let sink_changes = SinkSettings::from(old).changes_to(&SinkSettings::from(new));
        difference.restarts.extend(sink_changes.restarts);
        let ports = PortSettings::changes(&old.ports, &new.ports);
        Review {
            difference,
            sink_changes: sink_changes.changes,
            rerouted: rerouted(old, new),
            ports,
            offload,
        }
    }

    /// Returns true if nothing would change, neither for packets nor for event sinks.
    pub(super) fn is_empty(&self) -> bool {
        self.difference.is_empty()
            && self.sink_changes.is_empty()
            && self.rerouted.is_empty()
            && self.ports.is_empty()
            && self.offload.is_empty()
    }

    /// Lists all changes, including event sinks and devices.
    pub(super) fn changes(&self, new: &Settings) -> Vec<String> {
        let devices = new.ports.devices();
        let rerouted = self.rerouted.iter().filter_map(|&number| devices.get(number));
        let of = |device: &TunConfig| format!("device {}: its addresses or routes", device.name);
        let told = self
            .difference
            .changes
            .iter()
            .chain(&self.sink_changes)
            .chain(&self.ports)
            .chain(&self.offload)
            .cloned();
        told.chain(rerouted.map(of)).collect()
    }
}

/// Numbers of devices that get other addresses or routes.
fn rerouted(old: &Settings, new: &Settings) -> Vec<usize> {
    let pairs = old.ports.devices().iter().zip(new.ports.devices()).enumerate();
    let differs = |(_, (a, b)): &(usize, (&TunConfig, &TunConfig))| {
        sorted(&a.routes) != sorted(&b.routes) || sorted(&a.addresses) != sorted(&b.addresses)
    };
    pairs.filter(differs).map(|(number, _)| number).collect()
}

fn sorted(prefixes: &[Prefix]) -> Vec<Prefix> {
    let mut sorted = prefixes.to_vec();
    sorted.sort_unstable();
    sorted
}

/// Lists differences outside the plan that need a restart.
fn outside_engine(old: &Settings, new: &Settings) -> Vec<String> {
    let mut restarts = Vec::new();
    if old.state != new.state {
        restarts.push("[state]: its directory".to_owned());
    }
    if old.cores != new.cores {
        restarts.push("[workers]: processors".to_owned());
    }
    restarts.extend(crate::health::differ(old, new));
    restarts.extend(crate::peer::restarts(old.peer.as_ref(), new.peer.as_ref()));
    restarts.extend(crate::cluster::restarts(old.cluster.as_ref(), new.cluster.as_ref()));
    restarts.extend(crate::control::differ(&old.control, &new.control));
    restarts.extend(PortSettings::differ(&old.ports, &new.ports));
    let (old, new) = (old.ports.devices(), new.ports.devices());
    for (a, b) in old.iter().zip(new) {
        let TunConfig { name, mode, queues, offload, udp_gro, up: _, mtu, addresses, routes, precede_routes } =
            b;
        if (&a.name, a.mode, a.queues, a.offload, a.udp_gro, a.mtu, a.precede_routes)
            != (name, *mode, *queues, *offload, *udp_gro, *mtu, *precede_routes)
        {
            restarts.push(format!(
                "port of device {}: its device, mode, queues, offload, udp_gro, precede_routes or MTU",
                a.name
            ));
        }
        let none = |config: &TunConfig| config.routes.is_empty() && config.addresses.is_empty();
        if old.iter().all(none) && !(addresses.is_empty() && routes.is_empty()) {
            restarts.push(format!(
                "device {name}: its first routes or addresses: Gatun dropped the right to set them at start-up"
            ));
        }
    }
    restarts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ControlSettings;
    use gatun_config::Api;
    use gatun_control::Facts;
    use gatun_nat::{EventKinds, Plan};

    fn settings(devices: Vec<TunConfig>) -> Settings {
        let control = ControlSettings { api: Api::default(), metrics: None, facts: Facts::default() };
        let (plan, ports, json_kinds) = (Plan::default(), PortSettings::Tun(devices), EventKinds::NONE);
        let state = gatun_config::StateDir::Off;
        let (json_destinations, exports) = (false, Vec::new());
        Settings {
            plan: plan.into(),
            events: None,
            json_kinds,
            json_destinations,
            exports,
            log: None,
            ports,
            cores: Vec::new(),
            control,
            state,
            fastpath: Default::default(),
            offload: None,
            announce: None,
            peer: None,
            cluster: None,
            costs: Default::default(),
            needs: Default::default(),
            mapping_files: Vec::new(),
        }
    }

    #[test]
    fn device_settings_need_a_restart_and_routes_do_not() {
        let route = Prefix { addr: "192.0.2.1".parse().unwrap(), len: 32 };
        let with = TunConfig { routes: vec![route], ..TunConfig::default() };
        let refused = |old: &TunConfig, new: &TunConfig| {
            outside_engine(&settings(vec![old.clone()]), &settings(vec![new.clone()]))
        };
        assert_eq!(refused(&with, &with), Vec::<String>::new());
        assert_eq!(refused(&with, &TunConfig::default()), Vec::<String>::new());
        assert!(refused(&TunConfig::default(), &with)[0].contains("dropped the right to set them"));
        for other in [
            TunConfig { name: "other".into(), ..with.clone() },
            TunConfig { queues: 7, ..with.clone() },
            TunConfig { mtu: Some(9000), ..with.clone() },
            TunConfig { offload: false, ..with.clone() },
            TunConfig { udp_gro: true, ..with.clone() },
            TunConfig { precede_routes: true, ..with.clone() },
        ] {
            assert_eq!(refused(&with, &other).len(), 1, "{other:?}");
        }
        assert_eq!(outside_engine(&settings(vec![with]), &settings(vec![])), ["the number of ports"]);
    }
}
