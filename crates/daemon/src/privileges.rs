//! What the process may do: CAP_NET_ADMIN until the devices are open (for AF_XDP some more), nothing after; but for the
//! thread that watches links, which may still set routes, where there are any to be set (docs/decisions/0011), or use an
//! interface again that has come back (docs/decisions/0063).
//!
//! Capabilities belong to threads: that thread is the only one to exist before the others' are given up.

use super::ports::Rights;
use anyhow::{Context as _, anyhow};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
    set_keep_capabilities, set_no_new_privs, set_thread_gid, set_thread_groups, set_thread_uid,
};
use std::str::FromStr;

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

/// What AF_XDP, and any driver of software, needs: to attach a program, for sockets, to load it, to lock the packets' memory.
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
        Rights::Xdp => XDP,
        #[cfg(feature = "dpdk")]
        Rights::All => return Ok(()),
    };
    if switch {
        wanted |= CapabilitySet::SETUID | CapabilitySet::SETGID;
    }
    let held = capabilities(None)?.permitted & wanted;
    set(held).context("capabilities cannot be given up")
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
