//! Translators between the client and the server. Each is set up for one measurement and removed after it, so
//! that measurements of different translators alternate.

use super::measure::{Cell, Client, Measured};
use super::switch::{RunningSwitch, SwitchProgram};
use crate::middle::{Gatun, Place, Programs, SOCKET, wait_for};
use gatun_testkit::topology::{SERVER, SERVER4};
use gatun_testkit::{Error, Process, Topology, has_program, tayga};
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Rows that others are compared with. The kernel's IPv6 costs more than its IPv4, and a packet of NAT64 is
/// both.
pub(in crate::scenario) const PLAIN: &str = "kernel, untranslated";
pub(in crate::scenario) const PLAIN6: &str = "kernel, untranslated, IPv6";
pub(in crate::scenario) const MASQUERADE: &str = "NAT44: kernel, masquerade";
pub(in crate::scenario) const TAYGA: &str = "NAT64: tayga";

/// Address of the server that is not translated.
const SERVER6: &str = "2001:db8:2::2";

/// Gatun's TUN device.
const TUN_PORT: &str = r#"[[port]]
device = "nat64"
routes = ["2001:db8:64::/96", "192.0.2.0/28"]
"#;

/// Gatun on a TUN device, after its port.
const TUN: &str = r#"[[pool]]
prefixes = "192.0.2.1"
[[nat64]]
pool6 = "2001:db8:64::/96"
[[nat44]]
inside = "100.64.0.0/10"
"#;

const XDP: &str = r#"[[port]]
backend = "xdp"
device = "inside"
addresses = ["2001:db8:1::64/64", "100.64.0.64/24"]
[[port]]
backend = "xdp"
device = "outside"
addresses = ["198.51.100.64/24"]
[[pool]]
prefixes = "192.0.2.1"
[[nat64]]
pool6 = "2001:db8:64::/96"
[[nat44]]
inside = "100.64.0.0/10"
"#;

const NFT_MASQUERADE: &str = "add table ip peer; \
add chain ip peer post { type nat hook postrouting priority 100; }; \
add rule ip peer post ip saddr 100.64.0.0/10 oifname \"outside\" masquerade";

/// Time limit of a command of `--beside` to set up its translator.
const BESIDE_READY_MAX: Duration = Duration::from_secs(30);
/// Time limit for it to remove the translator.
const BESIDE_END_MAX: Duration = Duration::from_secs(10);

/// Translator of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::scenario) enum Kind {
    /// Forwarding by the kernel.
    Plain,
    /// The kernel's NAT44, by nftables.
    Masquerade,
    Tayga,
    /// Gatun on a TUN device.
    Tun {
        /// The configuration after the port.
        config: &'static str,
        udp_gro: bool,
        /// Value of `kernel` in `[fastpath]`; `None` if this Gatun has no such section.
        fast_path: Option<&'static str>,
    },
    /// Gatun on AF_XDP.
    Xdp,
    /// A P4 switch that Gatun controls.
    Switch {
        program: SwitchProgram,
        /// The configuration after the ports.
        config: &'static str,
    },
    /// A command that sets up a translator in the namespaces.
    Beside(PathBuf),
}

/// Hosts, programs and lengths of all measurements of a report.
pub(in crate::scenario) struct Lab<'a> {
    net: Topology,
    programs: &'a Programs,
    /// Length of a measurement.
    seconds: u32,
    /// Seconds before it that do not count.
    warm_up: u32,
    /// Trials of a search.
    trials: u32,
    bar: ProgressBar,
}

impl<'a> Lab<'a> {
    /// Makes the hosts, and a bar for this many measurements.
    pub(in crate::scenario) fn new(
        programs: &'a Programs,
        [seconds, warm_up, trials]: [u32; 3],
        measurements: usize,
    ) -> anyhow::Result<Lab<'a>> {
        let net = Topology::new()?;
        net.client.address("eth0", "100.64.0.2/24")?;
        net.translator.address("inside", "100.64.0.1/24")?;
        net.server.address("eth0", &format!("{SERVER6}/64"))?;
        net.translator.address("outside", "2001:db8:2::1/64")?;
        net.server.ip("-6 route add default via 2001:db8:2::1")?;
        let style = ProgressStyle::with_template("{msg:60} {wide_bar} {pos}/{len}")?;
        let bar = ProgressBar::new(measurements as u64).with_style(style);
        Ok(Lab { net, programs, seconds, warm_up, trials, bar })
    }

    /// The hosts.
    pub(in crate::scenario) fn net(&self) -> &Topology {
        &self.net
    }

    /// The programs.
    pub(in crate::scenario) fn programs(&self) -> &Programs {
        self.programs
    }

    /// Names the next measurement.
    pub(in crate::scenario) fn show(&self, title: String) {
        self.bar.set_message(title);
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A row of the tables.
#[derive(Clone, Debug)]
pub(in crate::scenario) struct Row {
    pub(in crate::scenario) name: String,
    pub(in crate::scenario) kind: Kind,
    /// Address that the client connects to; a command of `--beside` prints its own.
    target: &'static str,
}

impl Row {
    /// A row whose client connects to `target`.
    pub(in crate::scenario) fn new(name: &str, kind: Kind, target: &'static str) -> Row {
        Row { name: name.into(), kind, target }
    }

    /// All rows of this machine, in the order of the tables, and the reason for each that is missing.
    pub(in crate::scenario) fn all(
        programs: &Programs,
        beside: &[(String, PathBuf)],
    ) -> (Vec<Row>, Vec<String>) {
        let mut missing = Vec::new();
        let mut rows = vec![Row::new(PLAIN, Kind::Plain, SERVER4), Row::new(PLAIN6, Kind::Plain, SERVER6)];
        match has_program("nft") {
            true => rows.push(Row::new(MASQUERADE, Kind::Masquerade, SERVER4)),
            false => missing.push("kernel masquerading: nft is not installed (Debian: nftables)".into()),
        }
        match has_program("tayga") {
            true => rows.push(Row::new(TAYGA, Kind::Tayga, SERVER)),
            false => missing.push("tayga is not installed (Debian: tayga)".into()),
        }
        let mut gatun = |suffix: &str, kind: Kind| {
            for (service, target) in [("NAT64", SERVER), ("NAT44", SERVER4)] {
                rows.push(Row::new(&format!("{service}: Gatun, {suffix}"), kind.clone(), target));
            }
        };
        let fast_path = has_fast_path(programs);
        let off = fast_path.is_ok().then_some("off");
        gatun("TUN", Kind::Tun { config: TUN, udp_gro: false, fast_path: off });
        gatun("TUN, udp_gro", Kind::Tun { config: TUN, udp_gro: true, fast_path: off });
        match fast_path {
            Ok(()) => gatun("fast path", Kind::Tun { config: TUN, udp_gro: false, fast_path: Some("auto") }),
            Err(why) => missing.push(format!("the kernel fast path: {why}")),
        }
        gatun("AF_XDP", Kind::Xdp);
        rows.extend(beside.iter().map(|(name, script)| Row::new(name, Kind::Beside(script.clone()), "")));
        (rows, missing)
    }

    /// Returns true if only UDP differs from another row.
    pub(in crate::scenario) fn is_for_udp_only(&self) -> bool {
        matches!(self.kind, Kind::Tun { udp_gro: true, .. })
    }

    /// Sets up the translator. Returns it with the address that the client connects to.
    fn start(&self, net: &Topology, programs: &Programs) -> Result<(Running, String), Error> {
        if !matches!(self.kind, Kind::Xdp) {
            net.client.ip("route replace default via 100.64.0.1")?;
        }
        let target = match &self.kind {
            Kind::Tayga => tayga::SERVER,
            _ => self.target,
        };
        let running = match &self.kind {
            Kind::Plain => Running::Plain,
            Kind::Masquerade => {
                nft(net, NFT_MASQUERADE)?;
                Running::Masquerade
            }
            Kind::Tayga => Running::Tayga { _tayga: tayga::start(net)? },
            Kind::Tun { .. } => Running::Tun(start_tun(net, programs, &self.config())?),
            Kind::Xdp => Running::Xdp(start_xdp(net, programs)?),
            Kind::Switch { program, config } => {
                let running = RunningSwitch::start(net, programs, *program, config)?;
                route_ethernet(net)?;
                Running::Switch(running)
            }
            Kind::Beside(script) => {
                let (process, target) = start_beside(net, script, &programs.output)?;
                return Ok((Running::Beside(process), target));
            }
        };
        Ok((running, target.to_owned()))
    }

    /// Sets up the translator, measures a cell through it, and removes it. The client connects from inside,
    /// or to `outside` from the other side.
    pub(in crate::scenario) fn measure(
        &self,
        lab: &Lab<'_>,
        cell: Cell,
        outside: Option<&str>,
    ) -> Result<Measured, Error> {
        let Topology { client: inside_host, server: outside_host, .. } = &lab.net;
        let (running, target) = self.start(&lab.net, lab.programs)?;
        let (client, server, target) = match outside {
            None => (inside_host, outside_host, target.as_str()),
            Some(outside) => (outside_host, inside_host, outside),
        };
        let Lab { seconds, warm_up, trials, .. } = *lab;
        let measured = Client { client, server, target, seconds, warm_up, trials }.measure(cell);
        let used = running.has_used_fast_path(self);
        let stopped = running.stop(&lab.net);
        lab.bar.inc(1);
        let measured = measured?;
        used?;
        stopped?;
        // A search may find no rate without loss.
        match measured.gbit_s > 0.0 || cell.part.is_search() {
            true => Ok(measured),
            false => Err(Error("nothing arrived".into())),
        }
    }

    fn config(&self) -> String {
        let Kind::Tun { config, udp_gro, fast_path } = self.kind else { return XDP.into() };
        let udp_gro = if udp_gro { "udp_gro = true\n" } else { "" };
        let fast_path = fast_path.map(fast_path_section).unwrap_or_default();
        format!("{TUN_PORT}{udp_gro}{config}{fast_path}")
    }
}

/// A translator that is set up.
enum Running {
    Plain,
    Masquerade,
    Tayga { _tayga: Process },
    Tun(Gatun),
    Xdp(Gatun),
    Switch(RunningSwitch),
    Beside(Process),
}

impl Running {
    /// Checks that the kernel or the switch has translated packets, if it should.
    fn has_used_fast_path(&self, row: &Row) -> Result<(), Error> {
        if let Running::Switch(running) = self {
            return running.has_translated();
        }
        match row.kind {
            Kind::Tun { fast_path: Some("auto"), .. } => {}
            _ => return Ok(()),
        }
        let answer: serde_json::Value =
            gatun_api::client::Client::new(SOCKET).get("/v1/fastpath").map_err(|e| Error(e.to_string()))?;
        let instances = answer["instances"].as_array().map(Vec::as_slice).unwrap_or_default();
        let translated: u64 = instances.iter().filter_map(|of| of["translated"].as_u64()).sum();
        match translated {
            0 => Err(Error(format!("the kernel translated nothing: {answer}"))),
            _ => Ok(()),
        }
    }

    /// Removes the translator.
    fn stop(self, net: &Topology) -> Result<(), Error> {
        match self {
            Running::Plain => Ok(()),
            Running::Masquerade => nft(net, "delete table ip peer"),
            Running::Tayga { _tayga } => {
                drop(_tayga);
                net.translator.run("tayga --rmtun -c /run/tayga.conf").map(drop)
            }
            Running::Tun(gatun) => {
                net.translator.unsteer_private()?;
                gatun.stop().map(drop)
            }
            Running::Xdp(gatun) => {
                unroute_ethernet(net)?;
                gatun.stop().map(drop)
            }
            Running::Switch(running) => {
                unroute_ethernet(net)?;
                running.stop(net)
            }
            Running::Beside(mut process) => {
                process.signal(rustix::process::Signal::TERM)?;
                process.wait(BESIDE_END_MAX).map(drop)
            }
        }
    }
}

fn fast_path_section(kernel: &str) -> String {
    format!("[fastpath]\nkernel = \"{kernel}\"\n[api]\nlisten = \"unix:{SOCKET}\"\n")
}

/// The reason why Gatun has no fast path, if it has none.
pub(crate) fn has_fast_path(programs: &Programs) -> Result<(), String> {
    let file = programs.output.join("probe.toml");
    fs::write(&file, format!("{TUN_PORT}{TUN}{}", fast_path_section("auto"))).map_err(|e| e.to_string())?;
    let mut check = std::process::Command::new(&programs.gatun);
    match gatun_testkit::run(check.arg("check").arg(&file)) {
        Ok(_) => Ok(()),
        Err(Error(why)) if why.contains("fastpath") => Err("this Gatun has no section [fastpath]".into()),
        Err(Error(why)) => Err(why),
    }
}

fn nft(net: &Topology, rules: &str) -> Result<(), Error> {
    gatun_testkit::run(net.translator.command("nft").arg(rules)).map(drop)
}

fn start_tun(net: &Topology, programs: &Programs, config: &str) -> Result<Gatun, Error> {
    let gatun = Gatun::start(&net.translator, Place::Anywhere, programs, "gatun", config)?;
    net.translator.steer_private()?;
    Ok(gatun)
}

fn start_xdp(net: &Topology, programs: &Programs) -> Result<Gatun, Error> {
    let gatun = Gatun::start(&net.translator, Place::Anywhere, programs, "gatun", XDP)?;
    net.client.ip("route replace default via 100.64.0.64")?;
    route_ethernet(net)?;
    Ok(gatun)
}

/// Routes translated addresses to Gatun's own addresses at its interfaces.
pub(in crate::scenario) fn route_ethernet(net: &Topology) -> Result<(), Error> {
    net.client.ip("-6 route replace 2001:db8:64::/96 via 2001:db8:1::64")?;
    net.server.ip("route replace 192.0.2.0/24 via 198.51.100.64")
}

pub(in crate::scenario) fn unroute_ethernet(net: &Topology) -> Result<(), Error> {
    net.client.ip("-6 route del 2001:db8:64::/96")?;
    net.server.ip("route del 192.0.2.0/24")
}

/// Starts a command of `--beside` in the translator's namespace, and waits for its line `ready ADDRESS`.
fn start_beside(net: &Topology, script: &Path, output: &Path) -> Result<(Process, String), Error> {
    let failed = |e: std::io::Error| Error(format!("{}: {e}", output.display()));
    let (stdout, stderr) = (output.join("beside.out"), output.join("beside.log"));
    let mut command = net.translator.command(script);
    command.env("CLIENT", net.client.name()).env("SERVER", net.server.name());
    command.stdout(File::create(&stdout).map_err(failed)?).stderr(File::create(&stderr).map_err(failed)?);
    let mut process = Process::start(&mut command)?;
    wait_for(&mut process, &stdout, "ready ", 1, BESIDE_READY_MAX).map_err(|Error(why)| {
        Error(format!("{}: {why}{}", script.display(), fs::read_to_string(&stderr).unwrap_or_default()))
    })?;
    let said = fs::read_to_string(&stdout).map_err(failed)?;
    let target = said.lines().find_map(|line| line.strip_prefix("ready ")).unwrap_or_default();
    Ok((process, target.trim().to_owned()))
}
