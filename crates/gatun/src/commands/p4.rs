//! `gatun p4`: a P4 switch in software.

use clap::Subcommand;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `gatun p4`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Command.
    #[command(subcommand)]
    command: P4Command,
}

#[derive(Debug, Subcommand)]
enum P4Command {
    /// Run a P4 program on DPDK's pipeline, for controllers that speak P4Runtime
    Switch(SwitchArgs),
}

const SWITCH_EXAMPLES: &str = "\
Examples:
  scripts/dpdk-headers                   fetch two headers of generated code
  gatun p4 switch p4/gatun.spec \\
    --port net_memif0,role=client,socket=/run/a \\
    --port net_af_packet0,iface=eth1

Ports are numbered from 1, in the order of --port. Port 0 is the controller's: give it a device if Gatun is \
the controller.
Whoever can connect to --listen controls the switch: use a loopback address, or --certificates.
SIGUSR1 prints the counters of the ports.
Needs root, a C compiler, and a gatun built with --features dpdk.
";

#[derive(Debug, clap::Args)]
#[command(after_help = SWITCH_EXAMPLES)]
struct SwitchArgs {
    /// Program as compiled by p4c-dpdk
    #[arg(value_name = "PROGRAM.spec")]
    program: PathBuf,
    /// Device of DPDK with its arguments: memif, af_packet, pcap, null, or a network card
    #[arg(long = "port", value_name = "DEVICE[,ARGUMENTS]", required = true)]
    ports: Vec<String>,
    /// Device to the controller's port in the daemon (`switch_port`); without it, its packets pass over
    /// P4Runtime
    #[arg(long, value_name = "DEVICE[,ARGUMENTS]")]
    controller_port: Option<String>,
    /// Address for controllers
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9559")]
    listen: SocketAddr,
    /// Directory with ca.pem, certificate.pem and key.pem: controllers need a certificate of this authority
    #[arg(long, value_name = "DIRECTORY")]
    certificates: Option<PathBuf>,
    /// Number of the switch in P4Runtime
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    device_id: u64,
    /// File with entries that the tables have before a controller comes
    #[arg(long, value_name = "FILE")]
    entries: Option<PathBuf>,
    /// Number of entries of a table
    #[arg(long = "size", value_name = "TABLE=ENTRIES")]
    sizes: Vec<String>,
    /// Directory of the headers that generated code needs
    #[arg(long, value_name = "DIRECTORY", default_value = "target/tools/dpdk-headers")]
    headers: PathBuf,
    /// Memory of packet buffers and of tables with masks
    #[arg(long, value_name = "MB", default_value_t = 1024)]
    memory: u32,
    /// Packet buffers
    #[arg(long, value_name = "COUNT", default_value_t = 16_384)]
    buffers: u32,
    /// Sleep between two polls while no packets come; 0: the switch uses its processor whole
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0)]
    idle_sleep: u32,
    /// Argument for DPDK's environment, such as -a ADDRESS
    #[arg(long = "eal", value_name = "ARGUMENT", allow_hyphen_values = true)]
    environment: Vec<String>,
}

pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let P4Command::Switch(args) = args.command;
    switch(&args)
}

#[cfg(not(feature = "dpdk"))]
fn switch(args: &SwitchArgs) -> anyhow::Result<ExitCode> {
    let _ = (&args.ports, args.listen, args.device_id, &args.entries, &args.sizes, &args.headers);
    let _ = (args.memory, args.buffers, args.idle_sleep, &args.environment);
    let _ = (&args.controller_port, &args.certificates);
    anyhow::bail!(
        "{}: this gatun was built without DPDK: install libdpdk-dev, and build it with --features dpdk",
        args.program.display()
    )
}

#[cfg(feature = "dpdk")]
use on_dpdk::switch;

#[cfg(feature = "dpdk")]
mod on_dpdk {
    use super::SwitchArgs;
    use anyhow::Context as _;
    use gatun_p4_server::{
        Device, Directory, Host, HostConfig, HostCounters, ServerCounters, ServerTls, serve,
    };
    use gatun_p4_switch::{EnvironmentConfig, ObjectConfig, PORTS_MAX, PortConfig};
    use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
    use std::net::SocketAddr;
    use std::path::Path;
    use std::process::ExitCode;
    use std::sync::{Mutex, PoisonError};
    use std::time::{Duration, Instant};

    /// Shortest time between two messages about refused controllers.
    const TOLD_EVERY: Duration = Duration::from_secs(1);
    /// Optimisation of programs by the C compiler. Tests start many switches, by a development build.
    const OPTIMISATION: u8 = if cfg!(debug_assertions) { 1 } else { 3 };
    /// Frames that wait for the server.
    const FRAMES: usize = 1024;

    pub(super) fn switch(args: &SwitchArgs) -> anyhow::Result<ExitCode> {
        let config = config(args)?;
        let security = args.certificates.as_deref().map(security).transpose()?;
        let listener = std::net::TcpListener::bind(args.listen)
            .with_context(|| format!("listening on {}", args.listen))?;
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGUSR1])?;
        let (sender, frames) = std::sync::mpsc::sync_channel(FRAMES);
        let (host, handle) = Host::start(&config, sender)?;
        let server = serve(listener, security, (args.device_id, Device::new(host)), frames)?;
        if args.entries.is_some() {
            println!("gatun: {} entries", handle.entries);
        }
        println!(
            "gatun: {} on {} port{}, P4Runtime{} on {}, device {}",
            args.program.display(),
            args.ports.len(),
            if args.ports.len() == 1 { "" } else { "s" },
            if args.certificates.is_some() { " over TLS" } else { "" },
            server.address(),
            args.device_id
        );
        for _ in signals.forever().take_while(|signal| *signal == SIGUSR1) {
            match handle.counters() {
                Some(ports) => report(&server.counters(), &ports),
                None => eprintln!("gatun: the switch is busy with requests, and has not counted: ask again"),
            }
        }
        let (counters, ports) = (server.counters(), handle.stop());
        drop(server);
        report(&counters, &ports);
        Ok(ExitCode::SUCCESS)
    }

    /// Reads the certificates. Refusals are told once a second.
    fn security(directory: &Path) -> anyhow::Result<ServerTls> {
        let last: Mutex<Option<Instant>> = Mutex::new(None);
        let report = move |remote: SocketAddr, why: &str| {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.is_none_or(|last| last.elapsed() >= TOLD_EVERY) {
                *last = Some(Instant::now());
                eprintln!("gatun: controller {remote}: {why}");
            }
        };
        ServerTls::new(Directory::new(directory), report)
            .map_err(|why| anyhow::anyhow!("--certificates: {why}"))
    }

    fn config(args: &SwitchArgs) -> anyhow::Result<HostConfig> {
        if args.ports.len() >= PORTS_MAX {
            anyhow::bail!("--port: a switch has at most {} ports", PORTS_MAX - 1);
        }
        let entries = args
            .entries
            .as_ref()
            .map(|path| std::fs::read_to_string(path).with_context(|| path.display().to_string()));
        let sizes = args.sizes.iter().map(|text| size(text)).collect::<anyhow::Result<_>>()?;
        Ok(HostConfig {
            environment: EnvironmentConfig { memory_mb: args.memory, arguments: args.environment.clone() },
            program: args.program.clone(),
            object: ObjectConfig {
                headers: args.headers.clone(),
                sizes,
                optimisation: OPTIMISATION,
                dpdk_code: false,
            },
            ports: args.ports.iter().map(|text| port(text)).collect(),
            controller_port: args.controller_port.as_deref().map(port).unwrap_or_default(),
            buffers: args.buffers,
            entries: entries.transpose()?,
            idle_sleep: Duration::from_micros(args.idle_sleep.into()),
        })
    }

    fn port(text: &str) -> PortConfig {
        let (device, arguments) = text.split_once(',').unwrap_or((text, ""));
        PortConfig { device: Some(device.to_owned()), arguments: arguments.to_owned() }
    }

    fn size(text: &str) -> anyhow::Result<(String, u32)> {
        let size =
            text.split_once('=').and_then(|(table, size)| Some((table.to_owned(), size.parse().ok()?)));
        size.ok_or_else(|| anyhow::anyhow!("--size {text}: write TABLE=ENTRIES"))
    }

    fn report(server: &ServerCounters, host: &HostCounters) {
        for (number, c) in host.ports.iter().enumerate() {
            println!(
                "port {number}: {} received, {} sent, {} truncated, {} runts, {} lost on the way in, {} on the way out, \
                 {} behind the program",
                c.received, c.sent, c.truncated, c.runts, c.lost_in, c.lost_out, c.queue_full
            );
        }
        println!("program: {} dropped, {} of them echoes of Gatun", host.dropped, host.echoes);
        println!(
            "controllers: {} accepted, {} refused, {} without a certificate, {} updates",
            server.connections, server.connections_refused, server.handshakes_failed, server.updates
        );
        println!(
            "packets: {} to controllers, {} lost, {} from controllers, {} refused",
            server.packets_in,
            server.packets_in_lost + host.controller_lost,
            server.packets_out,
            server.packets_out_refused
        );
    }
}
