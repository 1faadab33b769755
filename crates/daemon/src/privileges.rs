//! Capabilities. The daemon keeps those that devices need until the devices are open, and none after. The
//! network helper keeps the right to set routes, if there are any (docs/decisions/0011).
//!
//! Capabilities belong to threads. A new thread gets those that the main thread still has.

use anyhow::{Context as _, anyhow};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
#[cfg(feature = "xdp")]
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
    set_thread_gid, set_thread_groups, set_thread_uid,
};
use std::str::FromStr;

/// Rights needed to open ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    /// CAP_NET_ADMIN.
    Tun,
    /// Capabilities of AF_XDP.
    #[cfg(feature = "xdp")]
    Xdp,
    /// All capabilities, because a card's driver may need any.
    #[cfg(feature = "dpdk")]
    All,
}

/// User to switch to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    uid: u32,
    gid: u32,
}

impl User {
    pub(super) fn new(uid: u32, gid: u32) -> User {
        User { uid, gid }
    }

    pub(super) fn uid(&self) -> u32 {
        self.uid
    }

    pub(super) fn gid(&self) -> u32 {
        self.gid
    }
}

impl FromStr for User {
    type Err = anyhow::Error;

    /// Parses a name of /etc/passwd, or `UID:GID`.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        if let Some((uid, gid)) = name.split_once(':') {
            let parse =
                |s: &str| s.parse().map_err(|_| anyhow!("invalid user '{name}': expected a name or UID:GID"));
            return Ok(User { uid: parse(uid)?, gid: parse(gid)? });
        }
        let passwd = std::fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
        find_user(&passwd, name).ok_or_else(|| {
            anyhow!("unknown user '{name}': create it (useradd --system {name}), or give UID:GID")
        })
    }
}

fn find_user(passwd: &str, name: &str) -> Option<User> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next() != Some(name) {
            return None;
        }
        Some(User { uid: fields.nth(1)?.parse().ok()?, gid: fields.next()?.parse().ok()? })
    })
}

/// Capabilities of the kernel fast path: attaching a program, loading it, and its use of kernel memory.
const FASTPATH: CapabilitySet =
    CapabilitySet::NET_ADMIN.union(CapabilitySet::BPF).union(CapabilitySet::PERFMON);

/// Names of the capabilities that the kernel fast path needs, for help texts.
pub fn capabilities_of_fastpath() -> impl Iterator<Item = String> {
    FASTPATH.iter_names().map(|(name, _)| format!("CAP_{name}"))
}

/// Capabilities of AF_XDP and of software drivers: attaching a program, opening sockets, loading a program,
/// locking packet memory.
#[cfg(any(feature = "xdp", feature = "dpdk"))]
const XDP: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::IPC_LOCK);

/// Names of the capabilities that a daemon with interfaces through AF_XDP uses, for help texts.
#[cfg(any(feature = "xdp", feature = "dpdk"))]
pub fn capabilities_of_xdp() -> impl Iterator<Item = String> {
    XDP.iter_names().map(|(name, _)| format!("CAP_{name}"))
}

/// Drops all capabilities except those needed to open devices, to switch users if `switch` is set, and to
/// load the program of the kernel fast path if `fastpath` is set.
pub(super) fn keep_for_start(switch: bool, rights: Rights, fastpath: bool) -> anyhow::Result<()> {
    let mut wanted = match rights {
        Rights::Tun => CapabilitySet::NET_ADMIN,
        #[cfg(feature = "xdp")]
        Rights::Xdp => {
            raise_locked_memory();
            XDP
        }
        #[cfg(feature = "dpdk")]
        Rights::All => return Ok(()),
    };
    if fastpath {
        wanted |= FASTPATH;
    }
    if fastpath && switch {
        // Root creates the tables in a directory of the later user.
        wanted |= CapabilitySet::CHOWN | CapabilitySet::DAC_OVERRIDE;
    }
    if switch {
        wanted |= CapabilitySet::SETUID | CapabilitySet::SETGID;
    }
    let held = capabilities(None)?.permitted & wanted;
    set(held).context("cannot drop capabilities")
}

/// Runs `spawn`, which starts a program that gets the capabilities of the calling thread. Programs of root
/// get them anyway.
pub(crate) fn let_inherit<T>(spawn: impl FnOnce() -> T) -> T {
    let Ok(own) = capabilities(None) else { return spawn() };
    // If the kernel refuses, the program reports what it lacks.
    if set_capabilities(None, CapabilitySets { inheritable: own.permitted, ..own }).is_ok() {
        for capability in own.permitted.iter() {
            let _ = configure_capability_in_ambient_set(capability, true);
        }
    }
    let result = spawn();
    let _ = clear_ambient_capability_set();
    let _ = set_capabilities(None, own);
    result
}

/// Switches to `user`, drops all capabilities, and prevents them from returning.
pub(crate) fn drop_all(user: Option<&User>) -> anyhow::Result<()> {
    drop_to(user, CapabilitySet::empty())
}

/// Like [`drop_all`], but keeps the right to set routes, in the calling thread.
pub(crate) fn keep_net_admin(user: Option<&User>) -> anyhow::Result<()> {
    keep(user, CapabilitySet::NET_ADMIN)
}

/// Like [`drop_all`], but keeps the rights to use an interface through AF_XDP.
#[cfg(feature = "xdp")]
pub(crate) fn keep_for_xdp(user: Option<&User>) -> anyhow::Result<()> {
    keep(user, XDP)
}

/// Raises the limit of locked memory as far as this process may, so that packet memory can be registered
/// later without a capability.
#[cfg(feature = "xdp")]
fn raise_locked_memory() {
    let unlimited = Rlimit { current: None, maximum: None };
    if setrlimit(Resource::Memlock, unlimited).is_err() {
        let maximum = getrlimit(Resource::Memlock).maximum;
        // The kernel never refuses to raise the limit up to its maximum.
        let _ = setrlimit(Resource::Memlock, Rlimit { current: maximum, maximum });
    }
}

/// Drops all capabilities in the calling thread, except CAP_IPC_LOCK if packet memory cannot be registered
/// without it.
#[cfg(feature = "xdp")]
pub(crate) fn keep_for_registration(user: Option<&User>) -> anyhow::Result<()> {
    match getrlimit(Resource::Memlock).current {
        None => drop_all(user),
        Some(_) => keep(user, CapabilitySet::IPC_LOCK),
    }
}

/// Like [`drop_all`], but keeps the rights to open packet sockets and interfaces, and to lock memory.
#[cfg(feature = "dpdk")]
pub(crate) fn keep_for_packets(user: Option<&User>) -> anyhow::Result<()> {
    keep(user, XDP)
}

fn keep(user: Option<&User>, kept: CapabilitySet) -> anyhow::Result<()> {
    // Switching to another user would drop all capabilities.
    set_keep_capabilities(true).context("cannot keep capabilities")?;
    drop_to(user, kept & capabilities(None)?.permitted)
}

fn drop_to(user: Option<&User>, held: CapabilitySet) -> anyhow::Result<()> {
    if let Some(user) = user {
        become_user(user).with_context(|| {
            format!("cannot switch to user {}; this needs CAP_SETUID and CAP_SETGID", user.uid)
        })?;
    }
    match clear_ambient_capability_set() {
        Ok(()) | Err(Errno::INVAL) => {} // INVAL: a kernel without ambient capabilities
        Err(e) => return Err(e).context("cannot drop ambient capabilities"),
    }
    set(held).context("cannot drop capabilities")?;
    set_no_new_privs(true).context("cannot set no_new_privs")
}

fn become_user(user: &User) -> Result<(), Errno> {
    let gid = Gid::from_raw(user.gid);
    set_thread_groups(&[gid])?;
    set_thread_gid(gid)?;
    set_thread_uid(Uid::from_raw(user.uid))
}

fn set(held: CapabilitySet) -> Result<(), Errno> {
    let sets = CapabilitySets { effective: held, permitted: held, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_parsed_by_name_and_by_numbers() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\ngatun-x:x:1:1::/:\ngatun:x:997:996::/nonexistent:/bin/false\n";
        assert_eq!(find_user(passwd, "gatun"), Some(User { uid: 997, gid: 996 }));
        assert_eq!(find_user(passwd, "gat"), None);
        assert_eq!("12:34".parse::<User>().unwrap(), User { uid: 12, gid: 34 });
        assert!("12:x".parse::<User>().is_err());
    }
}
