//! `gatun run`: runs the translator.

use super::selectors;
use super::volume::Volume;
use crate::doctor::{self, Finding, State};
use anyhow::anyhow;
use gatun_api::types::{self, ConfigProblem};
use gatun_config::{Config, DeviceMode, Driver, Located, Network, Port, Routes, Severity, StateDir};
use gatun_control::{Facts, PlannedHolders};
use gatun_daemon::log_queries::planned_holders;
use gatun_daemon::{
    ClusterSettings, ControlSettings, Costs, HostCheck, MemoryNeeds, PortSettings, Read, Settings, Setup,
    Source, User,
};
use gatun_io_tun::{Mode, Prefix, TunConfig};
use gatun_nat::workers::Shares;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

const SIGNALS: &str = "\
Signals:
  SIGTERM, SIGINT    stop and print the final counters
  SIGUSR1            print the counters, with drop reasons
  SIGHUP             reload the configuration

A reload checks the whole file. If the file has an error or needs a restart, nothing \
changes and the log says why. Otherwise the log lists the changes and the sessions \
they end: those on public addresses and ports that left their pool. All others go on. \
Routes and addresses of the device are updated. `gatun check --against OLD NEW` \
previews a reload.

If nobody reads standard output, a stop takes up to two more seconds, and the final \
counters are one line on standard error.

Exit status:
  0  after a signal
  1  start failed, a device was lost, or the final counters could not be printed

The kernel removes the device's routes when gatun stops or when its link is set down. \
Gatun logs that and restores its routes when the link is up again.

Sessions are kept in memory that outlives the process ([state] in the configuration): \
the next process restores them, even after a crash. A clean stop removes a device that \
gatun created; after a crash it stays for the next process.

Rights at start:
  TUN device   CAP_NET_ADMIN; none for a persistent device of the user
               (ip tuntap add dev NAME mode tun user USER)
  AF_XDP       also CAP_NET_RAW, CAP_BPF, and CAP_IPC_LOCK or a sufficient limit
               of locked memory
  [fastpath]   also CAP_BPF and CAP_PERFMON
  DPDK         root (docs/how-to/dpdk.md)

Gatun drops them after start-up, except in the network helper, a separate process that \
restores routes and interfaces. With routes = false and no addresses, the helper drops \
CAP_NET_ADMIN too.

Sandbox: after start-up Gatun restricts itself with Landlock and seccomp, as far as the \
kernel supports them. It then reads the directories of its configuration, writes those \
that the configuration names, and starts no other program.
";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = SIGNALS)]
pub(crate) struct Args {
    /// Configuration file
    #[arg(value_name = "FILE", required_unless_present = "config")]
    file: Option<PathBuf>,
    /// Configuration file, as a flag
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
    /// Switch to this user after opening the devices: NAME or UID:GID
    #[arg(long, value_name = "USER")]
    user: Option<User>,
    /// Discard the sessions of the previous process
    #[arg(long)]
    forget: bool,
    /// Name of this node of a cluster: one of [[cluster.nodes]]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Disable the sandbox (debugging only)
    #[arg(long)]
    no_sandbox: bool,
}

/// # Errors
/// Returns an error if the configuration is invalid, or if the daemon cannot start.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let file = args.file.or(args.config).ok_or_else(|| anyhow!("no configuration file given"))?;
    let (mut config, warnings) = gatun_config::load_file(&file).map_err(|report| anyhow!("{report}"))?;
    eprint!("{warnings}");
    let look = look(&mut config);
    let name = file.display().to_string();
    let first = settings(config, &name, args.node.as_deref())?;
    let (user, forget, sandboxed, path) = (args.user, args.forget, !args.no_sandbox, file.clone());
    let node = args.node;
    let read = Box::new(move |source: Source<'_>| read(source, (&path, &name), node.as_deref()));
    gatun_daemon::run(Setup { settings: first, file, read, user, forget, sandboxed, look, started })
}

/// Problems found by the quick checks of `gatun doctor`.
fn look(config: &mut Config) -> HostCheck {
    let config = without_mappings(config);
    let line = |finding: Finding| {
        let fix = finding.fix.map(|fix| format!("; fix: {fix}")).unwrap_or_default();
        format!("doctor: {}: {}{fix}", finding.check, finding.what)
    };
    Box::new(move || {
        let findings = doctor::quick(&config, true).into_iter();
        findings.filter(|finding| finding.state == State::Wrong).map(line).collect()
    })
}

/// Copies a configuration without its mappings and text, which may be large.
fn without_mappings(config: &mut Config) -> Config {
    let eamts: Vec<_> = config.plan.siit.iter_mut().map(|siit| std::mem::take(&mut siit.eamt)).collect();
    let text = std::mem::take(&mut config.text);
    let copy = config.clone();
    config.text = text;
    for (siit, eamt) in config.plan.siit.iter_mut().zip(eamts) {
        siit.eamt = eamt;
    }
    copy
}

/// Reads the configuration again, or a new text for the same file.
fn read(source: Source<'_>, (file, name): (&Path, &str), node: Option<&str>) -> Read {
    let loaded = match source {
        Source::File => gatun_config::load_file(file),
        Source::Text(text) => gatun_config::load_str(text, name),
        Source::WithMappings(text, file, mappings) => {
            gatun_config::load_str_with(text, name, (file, mappings))
        }
    };
    match loaded {
        Ok((config, warnings)) => {
            let mut problems: Vec<ConfigProblem> = warnings.iter().map(problem).collect();
            let settings = settings(config, name, node).map_err(|error| problems.push(outside(name, &error)));
            Read { settings: settings.ok(), problems }
        }
        Err(report) => Read { settings: None, problems: report.iter().map(problem).collect() },
    }
}

fn problem(located: Located<'_>) -> ConfigProblem {
    ConfigProblem {
        severity: match located.severity {
            Severity::Error => types::Severity::Error,
            Severity::Warning => types::Severity::Warning,
        },
        file: located.file.to_owned(),
        line: located.line as u64,
        column: located.column as u64,
        message: located.what.to_owned(),
        help: located.instead.map(str::to_owned),
    }
}

/// Problem that is not tied to a line: a feature that this program was built without.
fn outside(name: &str, error: &anyhow::Error) -> ConfigProblem {
    ConfigProblem {
        severity: types::Severity::Error,
        file: name.to_owned(),
        line: 1,
        column: 1,
        message: error.to_string(),
        help: None,
    }
}

/// Settings of the daemon. `node` is the name of this node of a cluster.
fn settings(mut config: Config, file: &str, node: Option<&str>) -> anyhow::Result<Settings> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    config.choose_node(node, &host).map_err(anyhow::Error::msg)?;
    let ports = ports(&config)?;
    let facts = facts(&config, file, &ports);
    let needs = needs(&config, &ports);
    let costs = costs(&config, &needs);
    let plan = Arc::new(config.plan);
    let facts = Facts { planned: planned_holders(Arc::clone(&plan)), ..facts };
    let control = ControlSettings { api: config.api, metrics: config.metrics, facts };
    let Config { cores, events, json_kinds, json_destinations, exports, log, state, .. } = config;
    let (fastpath, offload, mapping_files) = (config.fastpath, config.offload, config.mapping_files);
    Ok(Settings {
        plan,
        events,
        json_kinds,
        json_destinations,
        exports,
        log,
        ports,
        cores,
        control,
        state,
        fastpath,
        offload,
        announce: config.announce,
        peer: config.peer,
        cluster: config.cluster.map(ClusterSettings::new).transpose().map_err(anyhow::Error::msg)?,
        costs,
        needs,
        mapping_files,
    })
}

/// Memory of a daemon with this configuration.
pub(super) fn needs(config: &Config, ports: &PortSettings) -> MemoryNeeds {
    let (plan, workers) = (&config.plan, ports.workers());
    let keeps = config.state != StateDir::Off;
    let shares = match plan.is_stateful() && (workers > 1 || plan.shards.is_some()) {
        true => Shares::new(plan, workers, [0; 4]).ok(),
        false => None,
    };
    let needs = match &shares {
        Some(shares) => MemoryNeeds::of(&shares.plans.iter().collect::<Vec<_>>(), ports, keeps),
        None => MemoryNeeds::of(&vec![plan; workers], ports, keeps),
    };
    needs
        .with_fastpath(&config.fastpath, &config.plan)
        .with_boxes(config.peer.is_some(), config.cluster.as_ref())
}

/// Memory and log volume at full tables.
fn costs(config: &Config, needs: &MemoryNeeds) -> Costs {
    let volume = Volume::of(config);
    Costs {
        memory_bytes: needs.total(),
        log_bytes_a_day: volume.log.unwrap_or(0),
        events_bytes_a_day: volume.json.unwrap_or(0),
    }
}

/// Facts about a configuration for the API.
fn facts(config: &Config, file: &str, opened: &PortSettings) -> Facts {
    let port = |(number, port): (usize, &Port)| {
        let queues = match opened {
            PortSettings::Tun(devices) => devices.get(number).map_or(1, |device| device.queues),
            #[cfg(feature = "xdp")]
            PortSettings::Xdp(_) => port.queues.map_or(1, usize::from),
            #[cfg(feature = "dpdk")]
            PortSettings::Dpdk(_) => port.queues.map_or(1, usize::from),
        };
        let backend = match port.ethernet.as_ref().map(|ethernet| ethernet.driver) {
            None => "tun",
            Some(Driver::Xdp(_)) => "xdp",
            Some(Driver::Dpdk) => "dpdk",
        };
        types::Port {
            name: port.name.clone(),
            backend: backend.to_owned(),
            device: port.device.clone(),
            queues: u32::try_from(queues).unwrap_or(u32::MAX),
            mtu: port.ethernet.is_none().then_some(port.mtu),
            addresses: port.addresses.iter().map(|(address, len)| format!("{address}/{len}")).collect(),
        }
    };
    let max = |limit: u32| if config.plan.is_stateful() { limit.into() } else { 0 };
    Facts {
        config: types::Config {
            file: file.to_owned(),
            revision: config.revision.clone(),
            text: config.text.clone(),
            unconfirmed: None,
        },
        unconfirmed: None,
        ports: config.ports.iter().enumerate().map(port).collect(),
        selectors: selectors::of(config),
        pages: types::TablePages::default(),
        sessions_max: max(config.plan.limits.sessions_max),
        subscribers_max: max(config.plan.limits.subscribers_max),
        planned: PlannedHolders::default(),
    }
}

pub(super) fn ports(config: &Config) -> anyhow::Result<PortSettings> {
    let driver = config.ports.iter().find_map(|port| port.ethernet.as_ref()).map(|ethernet| ethernet.driver);
    match driver {
        None => Ok(PortSettings::Tun(devices(config))),
        #[cfg(feature = "xdp")]
        Some(Driver::Xdp(_)) => Ok(PortSettings::Xdp(gatun_daemon::XdpPorts::of(config))),
        #[cfg(feature = "dpdk")]
        Some(Driver::Dpdk) => Ok(PortSettings::Dpdk(gatun_daemon::DpdkPorts::of(config))),
        #[cfg(not(feature = "xdp"))]
        Some(Driver::Xdp(_)) => {
            Err(anyhow!("this gatun was built without the xdp backend: build it with --features xdp"))
        }
        #[cfg(not(feature = "dpdk"))]
        Some(Driver::Dpdk) => Err(anyhow!(
            "this gatun was built without the dpdk backend: install libdpdk-dev, and build it with --features dpdk"
        )),
    }
}

/// TUN devices of a configuration, each with one queue per worker.
fn devices(config: &Config) -> Vec<TunConfig> {
    config.ports.iter().map(|port| device(config, port)).collect()
}

fn device(config: &Config, port: &Port) -> TunConfig {
    let queues = match config.plan.is_stateful() {
        // Several workers need a public address each and hand packets over, so they are opt-in.
        true => config.workers(),
        false => port.queues.map_or_else(|| unsaid_queues(config), usize::from),
    };
    let routes = match &port.routes {
        Routes::Auto => config.routes().into_iter().map(prefix).collect(),
        Routes::List(networks) => networks.iter().copied().map(prefix).collect(),
    };
    TunConfig {
        name: port.device.clone(),
        mode: match port.mode {
            DeviceMode::Create => Mode::Create,
            DeviceMode::Attach => Mode::Attach,
        },
        queues: queues.max(1),
        offload: port.offload,
        udp_gro: port.udp_gro,
        up: true,
        mtu: Some(port.mtu),
        addresses: port.addresses.iter().map(|&(addr, len)| Prefix { addr, len }).collect(),
        routes,
        precede_routes: port.precede_routes,
    }
}

/// Default number of queues: one per processor, of the configured ones if there is one port.
fn unsaid_queues(config: &Config) -> usize {
    match (&config.cores[..], &config.ports[..]) {
        ([_, ..], [_]) => config.cores.len(),
        _ => std::thread::available_parallelism().map_or(1, usize::from),
    }
}

fn prefix(network: Network) -> Prefix {
    match network {
        Network::V4(net) => Prefix { addr: IpAddr::V4(net.addr), len: net.len },
        Network::V6(net) => Prefix { addr: IpAddr::V6(net.addr), len: net.len },
    }
}
