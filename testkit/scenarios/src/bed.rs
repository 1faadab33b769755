//! The network of a scenario: a translator between two cables, with generator and reflector at the other
//! ends.
//!
//! ```text
//!   this process, in the sandbox's own namespace                        namespace "middle"
//!   generator and judge  g0, 2001:db8:1::2, 10.1.0.2      ---veth---    a0, 2001:db8:1::1, 10.1.0.1
//!   reflector            g1, 198.51.100.2, 2001:db8:2::2  ---veth---    b0, 198.51.100.1, 2001:db8:2::1
//! ```
//! The kernel's addresses are for next-hop resolution and for the kernel's own forwarding.

use crate::ports::{Pair, VETH_PORTS};
#[cfg(feature = "dpdk")]
use crate::processors::{all_processors, first_processor};
use gatun_testkit::{Error, Namespace, run};
use std::process::Command;

/// The inside end and the outside end of this process.
pub(crate) const ENDS: [&str; 2] = ["g0", "g1"];
/// The translator's two ends.
pub(crate) const MIDDLE: [&str; 2] = ["a0", "b0"];

/// The cable between two translators.
const BETWEEN: [&str; 2] = ["c0", "c1"];

/// Type of the two cables.
pub(crate) enum Link {
    /// veth interfaces of the kernel.
    Veth,
    /// Shared memory.
    #[cfg(feature = "dpdk")]
    Memif(crate::memif::Memif),
}

/// Two cables, and the namespace between them.
pub(crate) struct Bed {
    pub(crate) link: Link,
    pub(crate) middle: Namespace,
    /// Devices of the cable between two translators, if there is one.
    between: Option<[&'static str; 2]>,
    /// MAC addresses of the translator's ends.
    pub(crate) middle_macs: [[u8; 6]; 2],
}

/// Packets that each cable device dropped, by device.
pub(crate) type CableDrops = Vec<(String, u64)>;

impl Bed {
    /// Makes the cables; links carry packets of `mtu` bytes.
    pub(crate) fn new(mtu: usize) -> Result<Bed, Error> {
        let middle = Namespace::new("middle")?;
        for key in ["net.ipv6.conf.all.accept_dad", "net.ipv6.conf.default.accept_dad"] {
            run(Command::new("sysctl").args(["-qw", &format!("{key}=0")]))?;
        }
        let mut middle_macs = [[0; 6]; 2];
        for (i, (end, device)) in ENDS.into_iter().zip(MIDDLE).enumerate() {
            ip(&format!("link add {end} type veth peer name {device} netns middle"))?;
            ip(&format!("link set {end} mtu {mtu} up"))?;
            middle.ip(&format!("link set {device} mtu {mtu} up"))?;
            middle_macs[i] = mac_of(&middle, device)?;
        }
        for address in ["2001:db8:1::2/64 dev g0 nodad", "10.1.0.2/24 dev g0"] {
            ip(&format!("address add {address}"))?;
        }
        for address in ["2001:db8:2::2/64 dev g1 nodad", "198.51.100.2/24 dev g1"] {
            ip(&format!("address add {address}"))?;
        }
        for (device, address) in [
            ("a0", "2001:db8:1::1/64"),
            ("a0", "10.1.0.1/24"),
            ("b0", "2001:db8:2::1/64"),
            ("b0", "198.51.100.1/24"),
        ] {
            middle.address(device, address)?;
        }
        Ok(Bed { link: Link::Veth, between: None, middle, middle_macs })
    }

    /// Makes a veth cable between two translators in the middle. A memif is made by the translator that
    /// serves it.
    pub(crate) fn lay_between(&mut self, mtu: usize) -> Result<(), Error> {
        if !matches!(self.link, Link::Veth) {
            return Ok(());
        }
        let [c0, c1] = BETWEEN;
        self.middle.ip(&format!("link add {c0} type veth peer name {c1}"))?;
        for device in BETWEEN {
            self.middle.ip(&format!("link set {device} mtu {mtu} up"))?;
        }
        self.between = Some(BETWEEN);
        Ok(())
    }

    /// Uses shared memory instead of cables, for frames of up to `frame_max` bytes.
    #[cfg(feature = "dpdk")]
    pub(crate) fn of_memifs(frame_max: usize, reflector: crate::memif::Reflector) -> anyhow::Result<Bed> {
        let memif = crate::memif::Memif::open(frame_max, reflector)?;
        let middle = Namespace::new("middle")?;
        Ok(Bed { link: Link::Memif(memif), between: None, middle, middle_macs: crate::memif::MIDDLE_MACS })
    }

    /// Puts a P4 switch between the memifs: Gatun's ports are the switch's.
    #[cfg(feature = "dpdk")]
    pub(crate) fn insert_switch(&mut self) -> anyhow::Result<()> {
        self.memif_of_switch()?.switch = Some(all_processors());
        self.middle.ip("link set lo up")?;
        Ok(())
    }

    /// Puts a P4 switch between the memifs of further runs, or removes it. A switch runs on the first
    /// processor, where the generator goes before it: the last one is left to Gatun, as without a switch.
    #[cfg(feature = "dpdk")]
    pub(crate) fn set_switch(&mut self, has_switch: bool) -> anyhow::Result<()> {
        let memif = self.memif_of_switch()?;
        memif.share_first_processor();
        memif.switch = has_switch.then(|| first_processor().to_string());
        Ok(())
    }

    #[cfg(feature = "dpdk")]
    fn memif_of_switch(&mut self) -> anyhow::Result<&mut crate::memif::Memif> {
        match &mut self.link {
            Link::Veth => anyhow::bail!("a switch needs memifs: --over memif"),
            Link::Memif(memif) => Ok(memif),
        }
    }

    /// Gatun's configuration of its ports on this bed; the scenario's sections follow it.
    pub(crate) fn ports(&self) -> String {
        match &self.link {
            Link::Veth => VETH_PORTS.into(),
            #[cfg(feature = "dpdk")]
            Link::Memif(memif) => memif.ports(),
        }
    }

    /// Gatun's configuration for two instances in the middle.
    pub(crate) fn pair(&self) -> Pair {
        match &self.link {
            Link::Veth => {
                let device = |device: &str| format!("backend = \"xdp\"\ndevice = \"{device}\"");
                let [inside, outside] = MIDDLE.map(device);
                let [c0, c1] = BETWEEN.map(device);
                Pair { general: Default::default(), clat: [inside, c0], plat: [c1, outside] }
            }
            #[cfg(feature = "dpdk")]
            Link::Memif(memif) => memif.pair(),
        }
    }

    /// Packets in flight when no rate is given: enough to fill every queue that waits for the processor, and
    /// less than a queue holds.
    pub(crate) fn in_flight(&self) -> u64 {
        match &self.link {
            Link::Veth => 384,
            #[cfg(feature = "dpdk")]
            Link::Memif(_) => 1024,
        }
    }

    /// Configures the middle's kernel to forward the generator's packets, untranslated.
    pub(crate) fn route_by_kernel(&self) -> Result<(), Error> {
        self.middle.forward()?;
        for route in [
            "-6 route add 2001:db8:8000::/33 via 2001:db8:1::2",
            "-6 route add 2001:db8:64::/96 via 2001:db8:2::2",
            "route add 100.64.0.0/10 via 10.1.0.2",
            "route add 198.19.0.0/16 via 198.51.100.2",
        ] {
            self.middle.run(&format!("ip {route}"))?;
        }
        Ok(())
    }

    /// Packets that the cables' devices dropped so far, because a queue of the other end was full.
    pub(crate) fn drops(&self) -> Result<CableDrops, Error> {
        if !matches!(self.link, Link::Veth) {
            return Ok(CableDrops::new());
        }
        let ends = ENDS.map(|device| (device, link_statistics(Command::new("ip"), device)));
        let middle = MIDDLE.map(|device| (device, link_statistics(self.middle.command("ip"), device)));
        let between = self.between.into_iter().flatten();
        let between = between.map(|device| (device, link_statistics(self.middle.command("ip"), device)));
        let all = ends.into_iter().chain(middle).chain(between);
        all.map(|(device, text)| Ok((device.to_owned(), tx_dropped(&text?)?))).collect()
    }
}

fn ip(line: &str) -> Result<(), Error> {
    run(Command::new("ip").args(line.split_whitespace())).map(drop)
}

fn link_statistics(mut ip: Command, device: &str) -> Result<String, Error> {
    run(ip.args(["-j", "-s", "link", "show", "dev", device]))
}

fn tx_dropped(json: &str) -> Result<u64, Error> {
    let value: serde_json::Value =
        serde_json::from_str(json).map_err(|e| Error(format!("statistics of ip: {e}")))?;
    let dropped = value[0]["stats64"]["tx"]["dropped"].as_u64();
    dropped.ok_or_else(|| Error(format!("no tx.dropped in statistics of ip: {json}")))
}

fn mac_of(host: &Namespace, device: &str) -> Result<[u8; 6], Error> {
    let json = run(host.command("ip").args(["-j", "link", "show", "dev", device]))?;
    let value: serde_json::Value = serde_json::from_str(&json).map_err(|e| Error(e.to_string()))?;
    let text = value[0]["address"].as_str().unwrap_or_default();
    let bytes: Vec<u8> = text.split(':').filter_map(|part| u8::from_str_radix(part, 16).ok()).collect();
    bytes.try_into().map_err(|_| Error(format!("{device} has no MAC address: {text}")))
}
