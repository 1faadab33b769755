//! The kernel's support of the fast path.

use super::Finding;
use gatun_config::Config;
use std::fs;
use std::path::Path;

const CHECK: &str = "fastpath";
const INSTEAD: &str = "Gatun translates all packets itself";

/// Findings for a configuration with `[fastpath]`.
pub(super) fn examine(config: &Config) -> Vec<Finding> {
    if !config.fastpath.kernel {
        return Vec::new();
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut findings = vec![of_kernel(release.trim())];
    findings.extend(btf(Path::new("/sys/kernel/btf/vmlinux")));
    findings.extend(lockdown(&fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default()));
    findings.extend(bpffs(&fs::read_to_string("/proc/filesystems").unwrap_or_default()));
    findings
}

/// Version of a kernel, such as `6.1.0-25-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Oldest kernel with which the program was tested, and the first one with tcx.
const OLDEST: (u32, u32) = (6, 1);
const TCX: (u32, u32) = (6, 6);

fn of_kernel(release: &str) -> Finding {
    match version(release) {
        Some(version) if version < OLDEST => Finding::note(
            CHECK,
            format!("Linux {release} may refuse the program; then {INSTEAD}"),
            "use Linux 6.1 or later",
        ),
        Some(version) if version < TCX => Finding::ok(
            CHECK,
            format!("Linux {release} has no tcx: the program is a filter of a clsact qdisc"),
        ),
        _ => Finding::ok(CHECK, format!("Linux {release} has tcx")),
    }
}

fn btf(file: &Path) -> Option<Finding> {
    (!file.exists()).then(|| {
        Finding::note(
            CHECK,
            format!("the kernel has no BTF ({}): it may refuse the program; then {INSTEAD}", file.display()),
            "use a kernel with CONFIG_DEBUG_INFO_BTF=y, or mount /sys",
        )
    })
}

fn lockdown(text: &str) -> Option<Finding> {
    text.contains("[confidentiality]").then(|| {
        Finding::wrong(
            CHECK,
            format!("the kernel is locked down (confidentiality), which forbids the program: {INSTEAD}"),
            "boot with lockdown=integrity, or write `kernel = \"off\"` in [fastpath]",
        )
    })
}

fn bpffs(filesystems: &str) -> Option<Finding> {
    let has = filesystems.lines().any(|line| line.split_whitespace().last() == Some("bpf"));
    (!has).then(|| {
        Finding::wrong(
            CHECK,
            format!("the kernel has no bpf file system, so it has no BPF: {INSTEAD}"),
            "use a kernel with CONFIG_BPF_SYSCALL=y and CONFIG_NET_CLS_BPF=y",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    #[test]
    fn what_a_kernel_lacks_is_named() {
        assert!(of_kernel("6.18.44-fc").what.contains("has tcx"));
        assert!(of_kernel("6.1.0-25-amd64").what.contains("clsact"));
        assert_eq!(of_kernel("5.10.0").state, State::Note);
        assert!(lockdown("none [integrity] confidentiality").is_none());
        assert_eq!(lockdown("none integrity [confidentiality]").unwrap().state, State::Wrong);
        assert!(bpffs("nodev\tsysfs\nnodev\tbpf\n").is_none() && bpffs("nodev\tsysfs\n").is_some());
        assert!(btf(Path::new("/nonexistent")).is_some());
    }
}
