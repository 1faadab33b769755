//! `gatun check`: the problems of a configuration file, or a summary of it.

mod advice;
mod blocks;

use super::volume::Volume;
use advice::{Advice, Uplink};
use blocks::ServedSubscribers;
use gatun_config::{
    Bytes, Config, Driver, Located, Network, PoolSize, Port, Report, Routes, Severity, Warnings,
    subscribers_that_fill,
};
use gatun_daemon::tables::{counted, group};
use gatun_daemon::{MemoryNeeds, PortSettings, SinkSettings};
use gatun_nat::memory::TableBytes;
use gatun_nat::reconfigure::{Difference, Refused};
use gatun_nat::workers::Shares;
use serde_json::json;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
On a terminal, errors are shown with the lines of the file; elsewhere, one per line:
file:line:column: error: ...

Examples:
  gatun check gatun.toml
  gatun check gatun.toml && systemctl restart gatun
  gatun check --json gatun.toml | jq '.problems[].line'
  gatun check --against running.toml gatun.toml

Exit status: 0 if the file can be used (with or without warnings), 1 if not.
";

/// Longest list of routes; the others are counted.
const ROUTES_SHOWN_MAX: usize = 6;

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Configuration file
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Compare with OLD: what changes, which sessions end, what needs a restart
    #[arg(long, value_name = "OLD", conflicts_with_all = ["json", "quiet"])]
    against: Option<PathBuf>,
    /// Print nothing if the file is correct
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
}

/// Checks the file.
///
/// # Errors
/// Returns an error if standard output cannot be written. An invalid file is an exit status, not an error.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let loaded = gatun_config::load_file(&args.file);
    let config = loaded.as_ref().ok().map(|(config, _)| config);
    let advice = config.map(|config| advice::of(config, Uplink::of_this_host().as_ref())).unwrap_or_default();
    // `run` refuses backends that this program was built without.
    let refusal = config.and_then(|config| super::run::ports(config).err()).map(|error| error.to_string());
    if args.json {
        let text = match &loaded {
            Ok((config, warnings)) => {
                json_of((warnings.iter(), &advice, refusal.as_deref()), &args.file, Some(config))
            }
            Err(report) => json_of((report.iter(), &advice, None), &args.file, None),
        };
        super::print_bytes(text.as_bytes())?;
        let is_usable = loaded.is_ok() && refusal.is_none();
        return Ok(if is_usable { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    match loaded {
        Ok((_, warnings)) if refusal.is_some() => {
            print_warnings(&warnings);
            eprintln!("{}: error: {}\n1 error", args.file.display(), refusal.unwrap_or_default());
            Ok(ExitCode::FAILURE)
        }
        Ok((config, warnings)) if args.against.is_some() => {
            print_warnings(&warnings);
            let old = load(&args.against.unwrap_or_default())?;
            super::print_bytes(difference(&old, &config).as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        Ok((config, warnings)) => {
            print_warnings(&warnings);
            if !args.quiet {
                let text = format!("{}: OK\n{}", args.file.display(), summary(&config));
                super::print_bytes(text.as_bytes())?;
            }
            for Advice { what, instead } in &advice {
                eprintln!("{}: warning: {what}\n    help: {instead}", args.file.display());
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(report) => {
            print_report(&report);
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Loads a configuration and prints its warnings and errors to standard error.
///
/// # Errors
/// Returns an error if the file is invalid; its problems have been printed.
pub(crate) fn load(file: &std::path::Path) -> anyhow::Result<Config> {
    match gatun_config::load_file(file) {
        Ok((config, warnings)) => {
            print_warnings(&warnings);
            Ok(config)
        }
        Err(report) => {
            print_report(&report);
            anyhow::bail!("{} cannot be used", file.display())
        }
    }
}

fn print_warnings(warnings: &Warnings) {
    match std::io::stderr().is_terminal() {
        true => eprint!("{}", warnings.pretty(super::colour::allowed())),
        false => eprint!("{warnings}"),
    }
}

fn print_report(report: &Report) {
    match std::io::stderr().is_terminal() {
        true => eprint!("{}", report.pretty(super::colour::allowed())),
        false => eprint!("{report}"),
    }
    let (n, s) = (report.errors(), if report.errors() == 1 { "" } else { "s" });
    eprintln!("{n} error{s}");
}

/// Effect of a reload on a daemon that runs with `old`.
fn difference(old: &Config, new: &Config) -> String {
    let mut difference = Difference::between(&old.plan, &new.plan);
    let heard = SinkSettings::from(old).changes_to(&SinkSettings::from(new));
    difference.changes.extend(heard.changes);
    difference.restarts.extend(heard.restarts);
    if old.plan.is_stateful() && old.workers() > 1 && old.workers() == new.workers() {
        // The daemon's key assigns subscribers to workers, so the number that move is not known here.
        let running = Shares::new(&old.plan, old.workers(), [0; 4]);
        let refused = running.ok().and_then(|running| Shares::after(&running.steering, &new.plan).err());
        if let Some(Refused::Restart(restarts)) = refused {
            difference.restarts.extend(restarts);
        }
    }
    let fixed = |config: &Config| config.ports.iter().map(Port::fixed).collect::<Vec<_>>();
    difference.changes.extend(gatun_daemon::fastpath_changes(&old.fastpath, &new.fastpath));
    difference.restarts.extend(gatun_daemon::fastpath_restarts(&old.fastpath, &new.fastpath));
    let offload = (old.offload.as_ref(), new.offload.as_ref());
    difference.changes.extend(gatun_daemon::offload_changes(offload.0, offload.1));
    difference.restarts.extend(gatun_daemon::offload_restarts(offload.0, offload.1));
    difference.restarts.extend(gatun_daemon::peer_restarts(old.peer.as_ref(), new.peer.as_ref()));
    let restarts = [
        ("[[port]]: settings other than routes, addresses, neighbours and answers", fixed(old) != fixed(new)),
        ("[workers]: processors", old.cores != new.cores),
        ("[dpdk]: environment", old.dpdk != new.dpdk),
    ];
    difference.restarts.extend(restarts.iter().filter(|(_, is)| *is).map(|(what, _)| (*what).to_owned()));
    if fixed(old) == fixed(new) && old.ports != new.ports {
        difference.changes.push("[[port]]: routes, addresses, neighbours or answers".to_owned());
    }
    if difference.is_empty() {
        return "no changes\n".to_owned();
    }
    let list = |title: &str, lines: &[String]| match lines {
        [] => String::new(),
        lines => format!("{title}\n  {}\n", lines.join("\n  ")),
    };
    list("changes:", &difference.changes)
        + &list("ends:", &difference.ends)
        + &list("needs a restart (a reload is refused):", &difference.restarts)
}

/// Summary of a configuration.
fn summary(config: &Config) -> String {
    let plan = &config.plan;
    let mut out = String::new();
    // Writing to a String does not fail.
    for port in &config.ports {
        out += &port_summary(config, port);
    }
    for pool in &plan.pools {
        let PoolSize { addresses, ports } = PoolSize::of(pool);
        let each = "for TCP, UDP and ICMP together";
        let _ = writeln!(
            out,
            "  pool    {}: {}, {} {each}",
            pool.name,
            counted(addresses, "address"),
            counted(ports, "port")
        );
        if let Some(served) = ServedSubscribers::by(pool) {
            let _ = writeln!(out, "          {}", served.in_words());
        }
    }
    for instance in &plan.nat64 {
        let prefixes = list(instance.pool6.iter());
        let pool = plan.pools.get(instance.pool).map_or("", |pool| &pool.name);
        let statics = counted(instance.static_bindings.len() as u64, "static binding");
        let _ = writeln!(out, "  nat64   {}: {prefixes} to pool {pool}, {statics}", instance.name);
    }
    for instance in &plan.nat44 {
        let inside = list(instance.inside.iter().map(|net| format!("{}/{}", net.addr, net.len)));
        let pool = plan.pools.get(instance.pool).map_or("", |pool| &pool.name);
        let statics = counted(instance.static_bindings.len() as u64, "static binding");
        let exempt = counted(instance.exempt.len() as u64, "exemption");
        let _ = writeln!(out, "  nat44   {}: {inside} to pool {pool}, {statics}, {exempt}", instance.name);
    }
    for instance in &plan.siit {
        let prefixes =
            if instance.pool6.is_empty() { "no prefix".into() } else { list(instance.pool6.iter()) };
        let mappings = counted(instance.eamt.len() as u64, "mapping");
        let _ = writeln!(out, "  siit    {}: {prefixes}, {mappings}", instance.name);
    }
    let own = |address: Option<String>| address.unwrap_or_else(|| "none".to_owned());
    let (own4, own6) = (own(plan.own4.map(|a| a.to_string())), own(plan.own6.map(|a| a.to_string())));
    let _ = writeln!(out, "  own     {own4}, {own6}");
    out += &limits(config);
    let _ = writeln!(out, "  workers {}\n  program {}", workers(config), program());
    let _ = write!(out, "{}{}", memory(config, &needs(config)), Volume::of(config).summary(config));
    out
}

/// Session limit, and the number of subscribers that exhaust it.
fn limits(config: &Config) -> String {
    let plan = config.plan_of_worker();
    if !plan.is_stateful() {
        return String::new();
    }
    let (limits, fill) = (&plan.limits, subscribers_that_fill(&plan.limits));
    let of64 = plan.nat64.iter().map(|nat| nat.subscriber_len);
    let mut lens: Vec<u8> = of64.chain(plan.nat44.iter().map(|nat| nat.subscriber_len)).collect();
    lens.sort_unstable();
    lens.dedup();
    let each = lens.iter().map(|len| format!("/{len}")).collect::<Vec<_>>().join(" or ");
    let worker = if config.workers() > 1 { " of a worker" } else { "" };
    let first = match fill > limits.subscribers_max.into() {
        true => format!("; subscribers_max, {}, is reached first", group(limits.subscribers_max.into())),
        false => String::new(),
    };
    let (sessions, few) = (counted(limits.sessions_max.into(), "session"), limits.sessions_reserved_below);
    let reserve = match limits.sessions_reserved {
        0 => "none reserved for subscribers with few".to_owned(),
        percent => format!("the last {percent} % for subscribers with fewer than {}", group(few.into())),
    };
    format!(
        "  limits  {sessions}{worker}, {reserve}\n          {} ({each} each) at their session limit fill the table{first}\n",
        counted(fill, "subscriber"),
    )
}

/// Summary of a port, in two lines.
fn port_summary(config: &Config, port: &Port) -> String {
    let Port { name, device, mtu, .. } = port;
    let Some(ethernet) = &port.ethernet else {
        let offload = match (port.offload, port.udp_gro) {
            (false, _) => ", without offload",
            (true, true) => ", UDP GRO",
            (true, false) => "",
        };
        let queues =
            port.queues.map_or_else(|| "one queue per processor".to_owned(), |n| counted(n.into(), "queue"));
        let routes = routes(config, &port.routes);
        return format!(
            "  port    {name}: TUN device {device}, MTU {mtu}, {queues}{offload}\n          routes: {routes}\n"
        );
    };
    let vlan = if ethernet.vlan.is_empty() {
        String::new()
    } else {
        format!(", VLAN {}", list(ethernet.vlan.iter()))
    };
    let addresses = match port.addresses.len() {
        0 => "no address".to_owned(),
        _ => list(port.addresses.iter().map(|(addr, len)| format!("{addr}/{len}"))),
    };
    let routes = ethernet.routes.iter().map(|route| match route.via {
        Some(via) => format!("{} via {via}", route.to),
        None => route.to.to_string(),
    });
    let routes = if ethernet.routes.is_empty() { "none".to_owned() } else { list(routes) };
    let queues = counted(port.queues.unwrap_or(1).into(), "queue");
    let (kind, through) = match ethernet.driver {
        Driver::Xdp(_) => ("interface", "AF_XDP"),
        Driver::Dpdk => ("device", "DPDK"),
    };
    format!(
        "  port    {name}: {kind} {device} through {through}, {queues}{vlan}, {addresses}\n          routes: {routes}\n"
    )
}

/// Number of workers and their processors.
fn workers(config: &Config) -> String {
    let workers = super::run::ports(config).map_or_else(|_| config.workers(), |ports| ports.workers());
    let is_dpdk = config.ports.iter().any(|port| backend(port) == "dpdk");
    let place = match (&config.cores[..], is_dpdk) {
        ([], true) => "on the processors of DPDK".to_owned(),
        ([], false) => "on processors that the kernel chooses".to_owned(),
        (cores, _) => format!("on processors {}", list(cores.iter())),
    };
    format!("{workers}, one for each queue, {place}")
}

/// Backend of a port, by its name in the configuration.
fn backend(port: &Port) -> &'static str {
    match port.ethernet.as_ref().map(|ethernet| ethernet.driver) {
        None => "tun",
        Some(Driver::Xdp(_)) => "xdp",
        Some(Driver::Dpdk) => "dpdk",
    }
}

/// Backends and whether this program was built with them.
const BACKENDS: [(&str, bool); 3] =
    [("tun", true), ("xdp", cfg!(feature = "xdp")), ("dpdk", cfg!(feature = "dpdk"))];

/// Version and backends of this program.
fn program() -> String {
    let of = |has| list(BACKENDS.iter().filter(|(_, built)| *built == has).map(|(name, _)| name));
    let without = of(false);
    let without = if without.is_empty() { String::new() } else { format!(", built without {without}") };
    format!("gatun {}, backends: {}{without}", env!("CARGO_PKG_VERSION"), of(true))
}

/// Memory of the daemon, by table of a worker.
fn memory(config: &Config, needs: &MemoryNeeds) -> String {
    let plan = config.plan_of_worker();
    let (none, limits) = (TableBytes::default(), &plan.limits);
    let tables = needs.tables.first().unwrap_or(&none);
    let count = |n: u32, what: &str| format!("{} {what}", group(n.into()));
    let mut lines = vec![
        (count(limits.sessions_max, "sessions"), tables.sessions()),
        (count(limits.subscribers_max, "subscribers"), tables.subscribers),
    ];
    let pools = plan.pools.iter().zip(&tables.pools);
    lines.extend(pools.map(|(pool, &bytes)| (format!("pool {}", pool.name), bytes)));
    lines.push((count(limits.syn_store_max, "held connection attempts"), tables.syns));
    lines.push((count(limits.path_mtus_max, "path MTUs"), tables.paths));
    lines.push(("ICMP error rates by source".to_owned(), tables.icmp_rates));
    lines.push((count(limits.fragment_entries_max, "fragmented packets"), tables.fragments));
    let events = &config.plan.events;
    lines.push((count(events.ring_len.saturating_add(events.state_ring_len), "events"), tables.events));
    if needs.tables.len() > 1 {
        lines.push(("all tables of a worker".to_owned(), tables.total()));
    }
    lines.push(("mappings of all workers".to_owned(), needs.mappings));
    lines.push(("packet buffers of all workers".to_owned(), needs.packets));
    lines.push((count(config.fastpath.sessions_max, "sessions in the kernel"), needs.fastpath_sessions));
    lines.push(("mappings in the kernel".to_owned(), needs.fastpath_mappings));
    lines.push(("manager of the sessions in the kernel".to_owned(), needs.fastpath_manager));
    lines.push(("members of the pair or the cluster".to_owned(), needs.peer));
    lines.push(("program".to_owned(), needs.program));
    let all = Bytes(needs.total());
    let mut out = match needs.tables.len() {
        0 | 1 => format!("  memory  {all}, allocated at start\n"),
        n => format!("  memory  {all}, allocated at start; each of {n} workers has:\n"),
    };
    for (what, bytes) in lines.into_iter().filter(|(_, bytes)| *bytes > 0) {
        // Writing to a String does not fail.
        let _ = writeln!(out, "          {what}: {}", Bytes(bytes));
    }
    let huge_pages = needs.huge_pages();
    if needs.wants_huge_pages() {
        let _ = writeln!(out, "          huge pages to set aside: sysctl -w vm.nr_hugepages={huge_pages}");
    }
    out
}

fn routes(config: &Config, routes: &Routes) -> String {
    let (kind, list) = match routes {
        Routes::Auto => ("auto: ", config.routes()),
        Routes::List(list) => ("", list.clone()),
    };
    let shown: Vec<String> = list.iter().take(ROUTES_SHOWN_MAX).map(Network::to_string).collect();
    match list.len() {
        0 => "none".to_owned(),
        n if n > ROUTES_SHOWN_MAX => {
            format!("{kind}{} and {} more", shown.join(", "), group((n - ROUTES_SHOWN_MAX) as u64))
        }
        _ => format!("{kind}{}", shown.join(", ")),
    }
}

fn list(items: impl Iterator<Item = impl ToString>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

/// Problems of the file, then those without a line.
fn json_of<'a>(
    (problems, advice, refusal): (impl Iterator<Item = Located<'a>>, &[Advice], Option<&str>),
    file: &std::path::Path,
    config: Option<&Config>,
) -> String {
    let of_whole = |severity: &str, message: &str, help: Option<&str>| {
        json!({
            "severity": severity, "file": file.display().to_string(), "line": 1, "column": 1,
            "message": message, "help": help,
        })
    };
    let advice = advice.iter().map(|Advice { what, instead }| of_whole("warning", what, Some(instead)));
    let refused = refusal.map(|why| of_whole("error", why, None));
    let ok = config.is_some() && refusal.is_none();
    let problems: Vec<_> = problems
        .map(|p| {
            let severity = match p.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            };
            json!({
                "severity": severity, "file": p.file, "line": p.line, "column": p.column,
                "message": p.what, "help": p.instead,
            })
        })
        .chain(advice)
        .chain(refused)
        .collect();
    let summary = config.map(|config| {
        let pools = config.plan.pools.iter().map(|p| {
            let size = PoolSize::of(p);
            let blocks = ServedSubscribers::by(p).map(|served| served.json());
            json!({ "name": p.name, "addresses": size.addresses, "ports": size.ports, "blocks": blocks })
        });
        let ports = config.ports.iter().map(|port| {
            json!({ "name": port.name, "device": port.device, "backend": backend(port), "queues": port.queues })
        });
        let (needs, volume) = (needs(config), Volume::of(config));
        json!({
            "nat64": config.plan.nat64.iter().map(|i| &i.name).collect::<Vec<_>>(),
            "nat44": config.plan.nat44.iter().map(|i| &i.name).collect::<Vec<_>>(),
            "siit": config.plan.siit.iter().map(|i| &i.name).collect::<Vec<_>>(),
            "mappings": config.plan.siit.iter().map(|i| i.eamt.len()).sum::<usize>(),
            "pools": pools.collect::<Vec<_>>(),
            "memory_bytes": needs.total(),
            "memory_by_table": json_of_memory(&needs),
            "huge_pages": needs.huge_pages(),
            "subscribers_that_fill_the_table": subscribers_that_fill(&config.plan_of_worker().limits),
            "ports": ports.collect::<Vec<_>>(),
            "workers": needs.tables.len(),
            "backends": BACKENDS.iter().filter(|(_, built)| *built).map(|(name, _)| name).collect::<Vec<_>>(),
            "log_bytes_a_day": volume.log,
            "events_bytes_a_day": volume.json,
            "export_bytes_a_day": exports_of(config, &volume),
        })
    });
    format!("{:#}\n", json!({ "ok": ok, "problems": problems, "summary": summary }))
}

/// Bytes per day, by the name of each collector.
fn exports_of(config: &Config, volume: &Volume) -> serde_json::Map<String, serde_json::Value> {
    let names = config.exports.iter().map(|export| export.name.clone());
    names.zip(volume.exports.iter().map(|bytes| (*bytes).into())).collect()
}

/// Memory by table of a worker; mappings, packets and program of all workers together.
fn json_of_memory(needs: &MemoryNeeds) -> serde_json::Value {
    let none = TableBytes::default();
    let t = needs.tables.first().unwrap_or(&none);
    json!({
        "workers": needs.tables.len(),
        "sessions": t.sessions(), "subscribers": t.subscribers, "pools": t.pools,
        "held_connection_attempts": t.syns, "paths": t.paths, "icmp_rates": t.icmp_rates, "fragments": t.fragments, "events": t.events,
        "mappings": needs.mappings, "packets": needs.packets, "program": needs.program,
    })
}

/// Memory of a daemon; without that of its ports if this program lacks their backend.
fn needs(config: &Config) -> MemoryNeeds {
    let ports = super::run::ports(config).unwrap_or(PortSettings::Tun(Vec::new()));
    super::run::needs(config, &ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_counts_subscribers_that_fill_the_session_table() {
        const TEXT: &str = "[[port]]\ndevice = \"x\"\nqueues = 1\n[[pool]]\nprefixes = \"192.0.2.1\"\n[[nat64]]\npool6 = \"2001:db8:64::/96\"\n\
            subscriber = \"/56\"\n[limits]\n";
        let said = |more: &str| {
            let (config, _) = gatun_config::load_str(&format!("{TEXT}{more}"), "t.toml").unwrap();
            (
                limits(&config),
                json_of(([].into_iter(), &[], None), std::path::Path::new("t.toml"), Some(&config)),
            )
        };
        let (text, json) = said("");
        let lines = "  limits  262,144 sessions, the last 25 % for subscribers with fewer than 64\n          \
                     1,036 subscribers (/56 each) at their session limit fill the table\n";
        assert_eq!(text, lines);
        assert!(json.contains("\"subscribers_that_fill_the_table\": 1036"), "{json}");
        let (text, _) = said("sessions_reserved = 0\n");
        assert!(text.contains("none reserved") && text.contains(" 16 subscribers "), "{text}");
        let (text, _) = said("subscribers_max = 1000\n");
        assert!(text.ends_with("fill the table; subscribers_max, 1,000, is reached first\n"), "{text}");
    }

    #[test]
    fn changes_that_need_a_restart_are_listed_separately() {
        const TEXT: &str = "[workers]\ncores = [1]\n[[port]]\nbackend = \"xdp\"\ndevice = \"eth0\"\n\
            addresses = [\"192.0.2.1/24\", \"2001:db8:1::1/64\"]\n[[siit]]\npool6 = \"2001:db8::/96\"\n";
        let load = |text: &str| gatun_config::load_str(text, "t.toml").map(|(config, _)| config).unwrap();
        let against = |from: &str, to: &str| difference(&load(TEXT), &load(&TEXT.replace(from, to)));
        assert_eq!(against("", ""), "no changes\n");
        let told = against("192.0.2.1/24", "192.0.2.2/24");
        assert_eq!(told, "changes:\n  [[port]]: routes, addresses, neighbours or answers\n");
        for (from, to, what) in [
            ("eth0", "eth1", "[[port]]: settings other than"),
            ("addresses", "mtu = 1400\naddresses", "[[port]]: settings other than"),
            ("cores = [1]", "cores = [2]", "[workers]: "),
        ] {
            let told = against(from, to);
            assert!(told.starts_with(&format!("needs a restart (a reload is refused):\n  {what}")), "{told}");
        }
    }
}
