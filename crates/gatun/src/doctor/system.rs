//! Devices, memory and limits that the daemon needs.

use super::Finding;
use gatun_api::types::TablePages;
use gatun_config::{Bytes, Config, Driver, Memory};
use gatun_daemon::LARGE;
use gatun_daemon::tables::{counted, group};
use std::fs;
use std::path::Path;

/// Open files of a daemon: API connections, queues, rings and logs.
const FILES: u64 = 256;
/// Open files of each queue.
const FILES_OF_QUEUE: u64 = 4;

pub(super) fn examine(config: Option<&Config>, pid: Option<u32>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let has = |of: fn(&Driver) -> bool| {
        config.is_some_and(|c| c.ports.iter().filter_map(|p| p.ethernet.as_ref()).any(|e| of(&e.driver)))
    };
    let has_tun = config.is_none_or(|c| c.ports.iter().any(|port| port.ethernet.is_none()));
    if has_tun {
        findings.push(match Path::new("/dev/net/tun").exists() {
            true => Finding::ok("tun", "/dev/net/tun exists"),
            false => Finding::wrong(
                "tun",
                "/dev/net/tun does not exist",
                "modprobe tun; in a container: --device /dev/net/tun",
            ),
        });
    }
    findings.extend(files(config, pid));
    if has(|driver| matches!(driver, Driver::Xdp(_))) {
        findings.extend(locked_memory(pid));
    }
    #[cfg(feature = "dpdk")]
    if has(|driver| *driver == Driver::Dpdk) {
        findings.push(match gatun_io_dpdk::supported() {
            Ok(()) => Finding::ok("processor", "it has the instructions that DPDK needs"),
            Err(error) => {
                Finding::wrong("processor", error.to_string(), "use another backend or another processor")
            }
        });
    }
    findings.extend(huge_pages(config, has(|driver| *driver == Driver::Dpdk)));
    findings
}

/// Soft limit of the daemon, or of this process if none runs; `None` is unlimited.
fn limit(pid: Option<u32>, name: &str) -> Option<Option<u64>> {
    let process = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let text = fs::read_to_string(format!("/proc/{process}/limits")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let soft = line.split_whitespace().next()?;
    Some(soft.parse().ok())
}

fn files(config: Option<&Config>, pid: Option<u32>) -> Option<Finding> {
    const CHECK: &str = "files";
    let queues: u64 = config.map_or(1, |c| {
        let each = c.ports.iter().map(|port| port.queues.map_or_else(processors, u64::from));
        each.sum()
    });
    let wanted = FILES + FILES_OF_QUEUE * queues;
    let whose = if pid.is_some() { "the daemon" } else { "a daemon started here" };
    Some(match limit(pid, "Max open files")? {
        Some(max) if max < wanted => Finding::wrong(
            CHECK,
            format!("{whose} may open {}; it may need {}", counted(max, "file"), group(wanted)),
            format!("LimitNOFILE={} in its unit, or ulimit -n {0}", wanted.next_power_of_two()),
        ),
        _ => Finding::ok(CHECK, format!("{whose} may open the {} that it may need", counted(wanted, "file"))),
    })
}

fn processors() -> u64 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u64)
}

fn locked_memory(pid: Option<u32>) -> Option<Finding> {
    const CHECK: &str = "locked memory";
    const WANTED: u64 = 64 << 20;
    Some(match limit(pid, "Max locked memory")? {
        Some(max) if max < WANTED => Finding::note(
            CHECK,
            format!(
                "only {} may be locked; AF_XDP locks its packet memory on older kernels",
                counted(max, "byte")
            ),
            "LimitMEMLOCK=infinity in its unit, or CAP_IPC_LOCK",
        ),
        _ => Finding::ok(CHECK, "packet memory may be locked"),
    })
}

/// Finding about the page sizes of a running daemon's tables.
pub(super) fn pages(pages: &TablePages) -> Finding {
    const CHECK: &str = "pages";
    let huge = pages.set_aside_bytes + pages.transparent_bytes;
    let what = format!(
        "the daemon has {} on huge pages set aside, {} on transparent huge pages, {} on small pages",
        Bytes(pages.set_aside_bytes),
        Bytes(pages.transparent_bytes),
        Bytes(pages.small_bytes)
    );
    match pages.small_bytes > LARGE && pages.small_bytes > huge {
        true => Finding::note(
            CHECK,
            format!("{what}: look-ups on small pages take several times as long"),
            "sysctl -w vm.nr_hugepages=N before a restart, with N from gatun check",
        ),
        false => Finding::ok(CHECK, what),
    }
}

fn huge_pages(config: Option<&Config>, is_dpdk: bool) -> Vec<Finding> {
    const CHECK: &str = "huge pages";
    let mut findings = Vec::new();
    if is_dpdk && free_huge_pages() == Some(0) {
        findings.push(Finding::note(
            CHECK,
            "no huge page is free; DPDK is slower without them",
            "sysctl -w vm.nr_hugepages=512",
        ));
    }
    let large = config.is_some_and(|c| Memory::of(&c.plan).total() > LARGE);
    let transparent = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if transparent.contains("[never]") && large {
        findings.push(Finding::note(
            CHECK,
            "transparent huge pages are off: look-ups in large tables take twice as long",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ));
    } else if findings.is_empty() {
        findings.push(Finding::ok(CHECK, "available for large tables, or not needed"));
    }
    findings
}

fn free_huge_pages() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    text.lines().find_map(|line| line.strip_prefix("HugePages_Free:"))?.trim().parse().ok()
}
