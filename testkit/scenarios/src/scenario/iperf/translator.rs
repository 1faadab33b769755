//! Translators between the client and the server. Each is set up for one measurement and removed after it, so
//! that measurements of different translators alternate.

use crate::middle::{Gatun, Place, Programs, SOCKET, wait_for};
use gatun_testkit::topology::{SERVER, SERVER4};
use gatun_testkit::{Error, Process, Topology, has_program, tayga};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Rows that others are compared with.
pub(in crate::scenario) const PLAIN: &str = "kernel, untranslated";
pub(in crate::scenario) const MASQUERADE: &str = "NAT44: kernel, masquerade";
pub(in crate::scenario) const TAYGA: &str = "NAT64: tayga";

/// Gatun on a TUN device. The first line must begin the port, because `udp_gro` is inserted after it.
const TUN: &str = r#"[[port]]
device = "nat64"
routes = ["2001:db8:64::/96", "192.0.2.0/28"]
[[pool]]
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
        /// The configuration; its first line begins the port.
        config: &'static str,
        udp_gro: bool,
        /// Value of `kernel` in `[fastpath]`; `None` if this Gatun has no such section.
        fast_path: Option<&'static str>,
    },
    /// Gatun on AF_XDP.
    Xdp,
    /// A command that sets up a translator in the namespaces.
    Beside(PathBuf),
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
        let mut rows = vec![Row::new(PLAIN, Kind::Plain, SERVER4)];
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
    pub(in crate::scenario) fn start(
        &self,
        net: &Topology,
        programs: &Programs,
    ) -> Result<(Running, String), Error> {
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
            Kind::Beside(script) => {
                let (process, target) = start_beside(net, script, &programs.output)?;
                return Ok((Running::Beside(process), target));
            }
        };
        Ok((running, target.to_owned()))
    }

    fn config(&self) -> String {
        let Kind::Tun { config, udp_gro, fast_path } = self.kind else { return XDP.into() };
        let config = if udp_gro { config.replacen('\n', "\nudp_gro = true\n", 1) } else { config.into() };
        fast_path.map_or(config.clone(), |kernel| config + &fast_path_section(kernel))
    }
}

/// A translator that is set up.
pub(in crate::scenario) enum Running {
    Plain,
    Masquerade,
    Tayga { _tayga: Process },
    Tun(Gatun),
    Xdp(Gatun),
    Beside(Process),
}

impl Running {
    /// Checks that the kernel has translated packets, if this is Gatun with its fast path.
    pub(in crate::scenario) fn has_used_fast_path(&self, row: &Row) -> Result<(), Error> {
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
    pub(in crate::scenario) fn stop(self, net: &Topology) -> Result<(), Error> {
        match self {
            Running::Plain => Ok(()),
            Running::Masquerade => nft(net, "delete table ip peer"),
            Running::Tayga { _tayga } => {
                drop(_tayga);
                net.translator.run("tayga --rmtun -c /run/tayga.conf").map(drop)
            }
            Running::Tun(gatun) => {
                // The kernel removes the device's own routes with it.
                for priority in [100, 101] {
                    net.translator.ip(&format!("rule del priority {priority}"))?;
                }
                gatun.stop().map(drop)
            }
            Running::Xdp(gatun) => {
                net.client.ip("-6 route del 2001:db8:64::/96")?;
                net.server.ip("route del 192.0.2.0/24")?;
                gatun.stop().map(drop)
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
    fs::write(&file, format!("{TUN}{}", fast_path_section("auto"))).map_err(|e| e.to_string())?;
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
    // Packets from private addresses go to the device; packets from the device follow the main table.
    net.translator.ip("rule add priority 100 iif nat64 lookup main")?;
    net.translator.ip("rule add priority 101 from 100.64.0.0/10 lookup 4464")?;
    net.translator.ip("route add default dev nat64 table 4464")?;
    Ok(gatun)
}

fn start_xdp(net: &Topology, programs: &Programs) -> Result<Gatun, Error> {
    let gatun = Gatun::start(&net.translator, Place::Anywhere, programs, "gatun", XDP)?;
    net.client.ip("route replace default via 100.64.0.64")?;
    net.client.ip("-6 route replace 2001:db8:64::/96 via 2001:db8:1::64")?;
    net.server.ip("route replace 192.0.2.0/24 via 198.51.100.64")?;
    Ok(gatun)
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
