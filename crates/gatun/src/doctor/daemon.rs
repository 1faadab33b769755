//! Checks of the running daemon: its answer, its log, collectors, sandbox and losses.

use super::Finding;
use gatun_api::client::{Client, Error};
use gatun_api::types::{
    Export, FastPath, FastPathState, Part, Sandbox, SandboxExtent, Status, Urgency, Worker,
};
use gatun_config::{Config, ExportTarget};
use gatun_daemon::tables::counted;
use std::fs;
use std::net::TcpStream;
use std::time::Duration;

const CHECK: &str = "daemon";
/// Time limit for a connection to a collector.
const PATIENCE: Duration = Duration::from_secs(2);

/// Findings about the daemon, and its process number if it runs.
pub(super) fn examine(client: &Client, config: Option<&Config>) -> (Vec<Finding>, Option<u32>) {
    let status: Status = match client.get("/v1/status") {
        Ok(status) => status,
        Err(error @ Error::Connect(..)) => {
            let fix = "systemctl start gatun, or gatun run FILE; pass --socket PATH if it listens elsewhere";
            return (vec![Finding::note(CHECK, error.to_string(), fix)], None);
        }
        Err(error) => return (vec![Finding::wrong(CHECK, error.to_string(), "see the daemon's log")], None),
    };
    let mut findings = vec![Finding::ok(CHECK, format!("runs, process {}", status.pid))];
    findings.extend(namespace(status.pid));
    if status.workers_silent > 0 {
        let what = format!("workers that do not answer: {} of {}", status.workers_silent, status.workers);
        findings.push(Finding::wrong(CHECK, what, "see the daemon's log; restart it, and report the defect"));
    } else if !status.packets_accounted {
        let what = "some packets are not accounted for";
        findings.push(Finding::wrong(CHECK, what, "report it, with `gatun show counters --zeros`"));
    }
    findings.extend(log(&status));
    findings.extend(network_helper(&status));
    findings.extend(fastpath(client));
    findings.push(sandbox(&status.sandbox));
    findings.push(super::system::pages(&status.pages));
    findings.extend(losses(client));
    findings.extend(collectors(client, config));
    (findings, Some(status.pid))
}

/// Finding about the network namespaces of this process and of the daemon.
fn namespace(pid: u32) -> Option<Finding> {
    const CHECK: &str = "namespace";
    let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/net"));
    // The daemon of another user, or in a container with its own process numbers, cannot be compared.
    let (daemon, own) = (of(&pid.to_string()).ok()?, of("self").ok()?);
    Some(match daemon == own {
        true => Finding::ok(CHECK, "this is the daemon's network namespace"),
        false => Finding::wrong(
            CHECK,
            "the daemon is in another network namespace: findings about interfaces, routes and rules do not apply to it",
            format!("nsenter --net=/proc/{pid}/ns/net gatun doctor"),
        ),
    })
}

/// Problems of the port log.
fn log(status: &Status) -> impl Iterator<Item = Finding> {
    let troubles = status.troubles.iter().filter(|trouble| trouble.part == Part::Log);
    troubles.map(|trouble| match trouble.urgency {
        Urgency::Bad | Urgency::Other => {
            let fix = "df -h DIRECTORY of [log]; make room, or set size_max or a shorter retention";
            Finding::wrong("log", trouble.what.clone(), fix)
        }
        Urgency::Warning => Finding::note(
            "log",
            trouble.what.clone(),
            "a faster disk, or `allocation = \"blocks\"` for fewer records; gatun log show has the time of the loss",
        ),
    })
}

/// Finding if the network helper, which restores routes, has ended.
fn network_helper(status: &Status) -> impl Iterator<Item = Finding> {
    let troubles = status.troubles.iter().filter(|trouble| trouble.part == Part::Network);
    troubles.map(|trouble| {
        Finding::wrong(CHECK, trouble.what.clone(), "systemctl restart gatun; sessions are restored")
    })
}

/// Findings about the kernel fast path of the daemon, if it is configured.
fn fastpath(client: &Client) -> Vec<Finding> {
    const CHECK: &str = "fastpath";
    let Ok(fastpath) = client.get::<FastPath>("/v1/fastpath") else { return Vec::new() };
    let interfaces = fastpath.xdp.iter().map(|interface| match &interface.why {
        None => Finding::ok(CHECK, format!("the kernel translates at {} by XDP", interface.name)),
        Some(why) if interface.attached => Finding::note(
            CHECK,
            format!(
                "XDP at {}: {why}; packets to it take the way through {}",
                interface.name, fastpath.device
            ),
            "change the interface, or remove it from `xdp` in [fastpath]",
        ),
        Some(why) => Finding::note(
            CHECK,
            format!("no XDP at {}: {why}; packets take the way through {}", interface.name, fastpath.device),
            "remove the cause, or remove the interface from `xdp` in [fastpath]",
        ),
    });
    let own = match (fastpath.state, &fastpath.error) {
        (FastPathState::Off | FastPathState::Other, _) => return Vec::new(),
        (FastPathState::On, Some(error)) => Finding::wrong(
            CHECK,
            format!("a part of the kernel fast path does not work: {error}"),
            "reload, or restart gatun; `gatun show fastpath` has the numbers",
        ),
        (FastPathState::On, None) => Finding::ok(
            CHECK,
            format!(
                "the kernel translates {} at {} ({})",
                counted(fastpath.sessions, "session"),
                fastpath.device,
                fastpath.hook
            ),
        ),
        (FastPathState::Unavailable, _) => Finding::wrong(
            CHECK,
            format!(
                "the kernel does not translate sessions, and Gatun translates all packets itself: {}",
                fastpath.why.clone().unwrap_or_default()
            ),
            "restart gatun after the cause is gone, or write `kernel = \"off\"` in [fastpath]",
        ),
    };
    let again = (fastpath.attached_again > 0).then(|| {
        Finding::note(
            CHECK,
            format!(
                "somebody has detached the program, and Gatun has attached it again {}",
                counted(fastpath.attached_again, "time")
            ),
            "`gatun run` logs the times; `bpftool net` shows other programs of the device",
        )
    });
    std::iter::once(own).chain(interfaces).chain(again).collect()
}

/// Findings about collectors.
fn collectors(client: &Client, config: Option<&Config>) -> Vec<Finding> {
    const CHECK: &str = "export";
    let exports: Vec<Export> = client.get("/v1/exports").unwrap_or_default();
    let one = |export: &Export| {
        let target = config.and_then(|config| config.exports.iter().find(|of| of.name == export.name));
        let target = target.map(|export| &export.target);
        let place = target.map(|target| format!(" at {target}")).unwrap_or_default();
        let name = &export.name;
        let has_tried = export.sent + export.lost + export.waiting + export.spooled_bytes > 0;
        if export.connected {
            return Finding::ok(CHECK, format!("collector '{name}'{place} accepts events"));
        }
        // The daemon has sent nothing, so only a connection from here can show it.
        let refused = match target {
            Some(ExportTarget::Tcp(address)) if !has_tried => {
                TcpStream::connect_timeout(address, PATIENCE).is_err()
            }
            Some(ExportTarget::Unix(path)) if !has_tried => !path.exists(),
            _ => has_tried,
        };
        if !refused {
            return Finding::ok(CHECK, format!("no events for collector '{name}'{place} yet"));
        }
        let what = format!(
            "collector '{name}'{place} is down: {} waiting, {} spooled, {} lost",
            counted(export.waiting, "event"),
            counted(export.spooled_bytes, "byte"),
            counted(export.lost, "event")
        );
        Finding::wrong(
            CHECK,
            what,
            "start it, or correct `to` in its [[export]]; `spool` stores events meanwhile",
        )
    };
    exports.iter().map(one).collect()
}

/// Finding about the sandbox.
fn sandbox(sandbox: &Sandbox) -> Finding {
    let missing = sandbox.missing.join("; ");
    match sandbox.state {
        SandboxExtent::Whole => Finding::ok(CHECK, "the sandbox is on".to_owned()),
        SandboxExtent::Partly | SandboxExtent::Other => Finding::note(
            CHECK,
            format!("the sandbox is incomplete on this kernel: {missing}"),
            "use Linux 6.12 for a complete sandbox; see docs/reference/kernels.md",
        ),
        SandboxExtent::Not => Finding::note(
            CHECK,
            format!("the daemon runs without a sandbox: {missing}"),
            "start it without --no-sandbox, on a kernel with seccomp and Landlock, in a container that allows both",
        ),
    }
}

/// Packets lost because the machine does not keep up.
fn losses(client: &Client) -> Vec<Finding> {
    let workers: Vec<Worker> = client.get("/v1/workers").unwrap_or_default();
    let mut findings = Vec::new();
    for worker in workers.iter().filter(|worker| worker.handed_lost > 0) {
        let what = format!(
            "worker {} lost {} handed over by other workers",
            worker.number,
            counted(worker.handed_lost, "packet")
        );
        findings.push(Finding::note(
            CHECK,
            what,
            "the worker is overloaded: configure more queues, or run fewer programs on its core",
        ));
    }
    findings
}
