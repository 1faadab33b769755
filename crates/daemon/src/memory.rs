//! Whether there is memory for the tables, before anything is set up.
//!
//! Tables are mapped at start and touched as they fill: the kernel would give them all the same, and end the process
//! on the busiest day.

use gatun_config::{Bytes, Memory};
use gatun_nat::Plan;
use std::fs;

/// # Errors
/// Where all tables full need more than the machine, or the control group, has to give.
pub(super) fn check(plans: &[&Plan]) -> anyhow::Result<()> {
    let workers = plans.len();
    let shared = workers > 1 && plans.iter().any(|plan| plan.is_stateful());
    let exchange = if shared { gatun_worker::exchange::memory_bytes(workers) } else { 0 };
    let needed = Memory::of_workers(plans).saturating_add(exchange as u64);
    match available() {
        Some(available) if needed > available => anyhow::bail!(
            "the tables of {workers} worker{} need {} when they are full, and {} can be had: lower the \
             [limits], above all sessions_max, or the pools' sizes; `gatun check` shows what each table needs",
            if workers == 1 { "" } else { "s" },
            Bytes(needed),
            Bytes(available),
        ),
        _ => Ok(()),
    }
}

/// As [`check`], of what other tables need more than those that there are, all workers together.
///
/// # Errors
/// As [`check`].
pub(super) fn check_more(old: &[&Plan], new: &[&Plan]) -> Result<(), String> {
    let more = Memory::of_workers(new).saturating_sub(Memory::of_workers(old));
    match available() {
        Some(available) if more > available => Err(format!(
            "the tables need {} more when they are full, and {} can be had",
            Bytes(more),
            Bytes(available)
        )),
        _ => Ok(()),
    }
}

/// Bytes that this process can get; `None` where the system does not say.
fn available() -> Option<u64> {
    let of_machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| mem_available(&text));
    let of_group = group_limit();
    of_machine.into_iter().chain(of_group).min()
}

fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// What is left of the control group's limit (version 2), if it has one.
fn group_limit() -> Option<u64> {
    let path = fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = path.lines().find_map(|line| line.strip_prefix("0::"))?.trim_end();
    let read = |file: &str| fs::read_to_string(format!("/sys/fs/cgroup{group}/{file}")).ok();
    let max: u64 = read("memory.max")?.trim().parse().ok()?;
    let used: u64 = read("memory.current")?.trim().parse().ok()?;
    Some(max.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_read_and_compared() {
        let text = "MemTotal:       24000000 kB\nMemFree: 1 kB\nMemAvailable:    2048 kB\n";
        assert_eq!(mem_available(text), Some(2 << 20));
        assert_eq!(mem_available("MemFree: 1 kB\n"), None);
        assert!(available().is_some_and(|bytes| bytes > 1 << 20));
    }
}
