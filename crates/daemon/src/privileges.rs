//! Capabilities: those that opening devices needs until the devices are open, none after. The network helper keeps the right
//! to set routes, where there are any (docs/decisions/0011).
//!
//! Capabilities belong to threads: those that begin later have what the main thread has left.

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

/// Rights that opening ports needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    /// CAP_NET_ADMIN.
    Tun,
    /// Those of AF_XDP.
    #[cfg(feature = "xdp")]
    Xdp,
    /// All that there are, as a card's driver may need any.
    #[cfg(feature = "dpdk")]
    All,
}

/// A user to become.
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

    /// A name of /etc/passwd, or `UID:GID`.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        if let Some((uid, gid)) = name.split_once(':') {
            let parse = |s: &str| s.parse().map_err(|_| anyhow!("'{name}' is not UID:GID"));
            return Ok(User { uid: parse(uid)?, gid: parse(gid)? });
        }
        let passwd = std::fs::read_to_string("/etc/passwd").context("/etc/passwd cannot be read")?;
        find_user(&passwd, name).ok_or_else(|| {
            anyhow!("there is no user '{name}': create it (useradd --system {name}), or give UID:GID")
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

/// Capabilities of AF_XDP and of software drivers: attach a program, open sockets, load it, lock the packets' memory.
#[cfg(any(feature = "xdp", feature = "dpdk"))]
const XDP: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::IPC_LOCK);

/// Gives up everything but what opening devices needs, and becoming another user where `switch` is set.
pub(super) fn keep_for_start(switch: bool, rights: Rights) -> anyhow::Result<()> {
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
    if switch {
        wanted |= CapabilitySet::SETUID | CapabilitySet::SETGID;
    }
    let held = capabilities(None)?.permitted & wanted;
    set(held).context("capabilities cannot be given up")
}

/// Runs `spawn`, which starts a program, and lets that have the capabilities of the calling thread. Programs of root have
/// them anyway.
pub(crate) fn let_inherit<T>(spawn: impl FnOnce() -> T) -> T {
    let Ok(own) = capabilities(None) else { return spawn() };
    // Where the kernel refuses any of this, the program says what it lacks.
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

/// Becomes `user`, gives up every capability, and makes sure that none comes back.
pub(crate) fn drop_all(user: Option<&User>) -> anyhow::Result<()> {
    drop_to(user, CapabilitySet::empty())
}

/// The same, but for the right to set routes, in the calling thread.
pub(crate) fn keep_net_admin(user: Option<&User>) -> anyhow::Result<()> {
    keep(user, CapabilitySet::NET_ADMIN)
}

/// The same, but for the rights to use an interface through AF_XDP.
#[cfg(feature = "xdp")]
pub(crate) fn keep_for_xdp(user: Option<&User>) -> anyhow::Result<()> {
    keep(user, XDP)
}

/// Raises the limit of locked memory as far as this process may, so that memory of packets can be registered later
/// without a capability.
#[cfg(feature = "xdp")]
fn raise_locked_memory() {
    let unlimited = Rlimit { current: None, maximum: None };
    if setrlimit(Resource::Memlock, unlimited).is_err() {
        let maximum = getrlimit(Resource::Memlock).maximum;
        // Refused for nobody: it is the limit already.
        let _ = setrlimit(Resource::Memlock, Rlimit { current: maximum, maximum });
    }
}

/// Gives up every capability in the calling thread, but CAP_IPC_LOCK where memory of packets cannot be registered
/// without it.
#[cfg(feature = "xdp")]
pub(crate) fn keep_for_registration(user: Option<&User>) -> anyhow::Result<()> {
    match getrlimit(Resource::Memlock).current {
        None => drop_all(user),
        Some(_) => keep(user, CapabilitySet::IPC_LOCK),
    }
}

/// The same, but for the rights to open packet sockets and interfaces, and to have memory that stays.
#[cfg(feature = "dpdk")]
pub(crate) fn keep_for_packets(user: Option<&User>) -> anyhow::Result<()> {
    keep(user, XDP)
}

fn keep(user: Option<&User>, kept: CapabilitySet) -> anyhow::Result<()> {
    // Else becoming another user would take all of them.
    set_keep_capabilities(true).context("capabilities cannot be kept")?;
    drop_to(user, kept & capabilities(None)?.permitted)
}

fn drop_to(user: Option<&User>, held: CapabilitySet) -> anyhow::Result<()> {
    if let Some(user) = user {
        become_user(user).with_context(|| {
            format!("cannot become user {}; it needs CAP_SETUID and CAP_SETGID", user.uid)
        })?;
    }
    match clear_ambient_capability_set() {
        Ok(()) | Err(Errno::INVAL) => {} // INVAL: a kernel without ambient capabilities
        Err(e) => return Err(e).context("ambient capabilities cannot be given up"),
    }
    set(held).context("capabilities cannot be given up")?;
    set_no_new_privs(true).context("no_new_privs cannot be set")
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
    fn a_user_is_found_by_name_or_by_numbers() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\ngatun-x:x:1:1::/:\ngatun:x:997:996::/nonexistent:/bin/false\n";
        assert_eq!(find_user(passwd, "gatun"), Some(User { uid: 997, gid: 996 }));
        assert_eq!(find_user(passwd, "gat"), None);
        assert_eq!("12:34".parse::<User>().unwrap(), User { uid: 12, gid: 34 });
        assert!("12:x".parse::<User>().is_err());
    }
}
