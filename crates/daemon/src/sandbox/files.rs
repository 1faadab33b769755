//! Files and ports, by Landlock (landlock(7)): what is not named here is refused with EACCES.

use super::Allowed;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd,
    Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};
use std::path::Path;

/// The newest form of rules that is known here. A kernel that knows less enforces less, and the log says so.
const FORM: ABI = ABI::V6;

/// What every daemon reads: how much memory there is (`daemon/memory.rs`), and how many processors.
const READ: [&str; 3] = ["/proc", "/sys/fs/cgroup", "/sys/devices/system/cpu"];

/// Restricts the calling thread, which may connect to whom it likes where `connects`, else to nobody. Gives how much of that is in
/// force.
pub(super) fn restrict(allowed: &Allowed, connects: bool) -> Result<RulesetStatus, RulesetError> {
    let ports = if connects { AccessNet::BindTcp.into() } else { AccessNet::from_all(FORM) };
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(FORM))?
        .handle_access(ports)?
        .scope(Scope::AbstractUnixSocket)?
        .create()?;
    // Nobody lists processes: names of files are not read there.
    let read = AccessFs::ReadFile.into();
    for path in READ {
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
        // From one of their directories to another.
        | AccessFs::Refer;
    for path in allowed.write.iter().chain(&allowed.usual) {
        rules = beneath(rules, path, write)?;
    }
    Ok(rules.restrict_self()?.ruleset)
}

/// Allows something with the files of a directory, where there is one.
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
