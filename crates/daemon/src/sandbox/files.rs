//! Files and ports, restricted by Landlock (landlock(7)): everything else is refused with EACCES.

use super::Allowed;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, LandlockStatus,
    PathBeneath, PathFd, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError,
    Scope,
};
use std::path::Path;

/// Newest ABI of rules that Gatun uses. An older kernel enforces less, and the log says so.
const FORM: ABI = ABI::V6;

/// Directories that every daemon reads: amount of memory (`daemon/memory.rs`), and number of processors.
const READ: [&str; 3] = ["/proc", "/sys/fs/cgroup", "/sys/devices/system/cpu"];

/// Parts that older kernels lack: the ABI that has it, the first kernel with it, and its name.
const PARTS: [(ABI, &str, &str); 4] = [
    (ABI::V3, "6.2", "truncating files"),
    (ABI::V4, "6.7", "TCP ports"),
    (ABI::V5, "6.10", "ioctl on device files"),
    (ABI::V6, "6.12", "abstract Unix sockets and signals"),
];

/// Lists the missing parts of the rules.
fn missing(status: LandlockStatus) -> Result<(), String> {
    let form = match status {
        LandlockStatus::NotImplemented => {
            return Err("no landlock (needs Linux 5.13)".into());
        }
        LandlockStatus::NotEnabled => {
            return Err("no landlock (name it in lsm= on the kernel's command line)".into());
        }
        LandlockStatus::Available { effective_abi, .. } => effective_abi,
    };
    let parts = PARTS.iter().filter(|(since, ..)| form < *since);
    let parts: Vec<String> =
        parts.map(|(_, kernel, what)| format!("{what} (needs Linux {kernel})")).collect();
    if parts.is_empty() { Ok(()) } else { Err(format!("landlock without {}", parts.join(", "))) }
}

/// Restricts the calling thread. It may connect over TCP only if `connects`, and read the files of [`READ`]
/// only if `reads_system`. The error names the missing part.
pub(super) fn restrict(allowed: &Allowed, (connects, reads_system): (bool, bool)) -> Result<(), String> {
    let system = if reads_system { &READ[..] } else { &[] };
    let status = enforce(allowed, connects, system).map_err(|why| format!("no landlock ({why})"))?;
    missing(status)
}

fn enforce(allowed: &Allowed, connects: bool, system: &[&str]) -> Result<LandlockStatus, RulesetError> {
    let ports = if connects { AccessNet::BindTcp.into() } else { AccessNet::from_all(FORM) };
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(FORM))?
        .handle_access(ports)?
        .scope(Scope::from_all(FORM))?
        .create()?;
    // Nobody lists processes, so directories are not readable.
    let read = AccessFs::ReadFile.into();
    for path in system {
        rules = beneath(rules, Path::new(path), read)?;
    }
    for path in &allowed.read {
        rules = beneath(rules, path, AccessFs::ReadFile | AccessFs::ReadDir)?;
    }
    let write = AccessFs::ReadFile
        | AccessFs::ReadDir
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::RemoveFile
        // Renames between allowed directories.
        | AccessFs::Refer;
    for path in allowed.write.iter().chain(&allowed.usual) {
        rules = beneath(rules, path, write)?;
    }
    Ok(rules.restrict_self()?.landlock)
}

/// Allows an access to files of a directory, if it exists.
fn beneath(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    match PathFd::new(path) {
        Ok(fd) => rules.add_rule(PathBeneath::new(fd, access)),
        Err(_) => Ok(rules),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_parts_are_named_with_the_kernel_that_has_them() {
        let of = |effective_abi| missing(LandlockStatus::Available { effective_abi, kernel_abi: None });
        assert_eq!(of(FORM), Ok(()));
        assert_eq!(
            of(ABI::V2).unwrap_err(),
            "landlock without truncating files (needs Linux 6.2), TCP ports (needs Linux 6.7), \
             ioctl on device files (needs Linux 6.10), abstract Unix sockets and signals (needs Linux 6.12)"
        );
        assert_eq!(
            of(ABI::V5).unwrap_err(),
            "landlock without abstract Unix sockets and signals (needs Linux 6.12)"
        );
        for status in [LandlockStatus::NotImplemented, LandlockStatus::NotEnabled] {
            assert!(missing(status).unwrap_err().starts_with("no landlock ("));
        }
    }
}
