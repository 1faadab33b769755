//! Kernel fast path of the boxes.

use anyhow::{Context as _, ensure};
use gatun_api::client::Client;
use gatun_api::types::FastPath;
use gatun_testkit::wait_until;
use std::time::Duration;

/// Time limit of the kernel to get all sessions.
const SETTLED_MAX: Duration = Duration::from_secs(30);

/// Time for which the kernel of a box translates without its daemon, seconds.
pub(super) const LEASE_S: u64 = 10;

/// Section of a box. The kernel gets each session at once, so that it has all of them at a fault.
pub(super) fn section(number: usize) -> String {
    format!(
        "[fastpath]\nkernel = \"auto\"\nlease = \"{LEASE_S}s\"\nudp_packets = 1\ntcp_packets = 0\ndirectory = \"/run/fastpath-{number}\"\n"
    )
}

fn state(socket: &str) -> anyhow::Result<FastPath> {
    Client::new(socket).get("/v1/fastpath").map_err(|error| anyhow::anyhow!("/v1/fastpath: {error}"))
}

fn translated(state: &FastPath) -> u64 {
    state.instances.iter().map(|instance| instance.translated).sum()
}

/// Waits until the kernel of a box has this many sessions, and translates packets.
pub(super) fn wait_until_used(socket: &str, sessions: u64) -> anyhow::Result<()> {
    let before = state(socket)?;
    let why = before.why.clone().unwrap_or_default();
    ensure!(before.why.is_none(), "the kernel fast path is not available here: {why}");
    let is_used =
        || state(socket).is_ok_and(|now| now.sessions >= sessions && translated(&now) > translated(&before));
    wait_until(&format!("the kernel has {sessions} sessions, and translates"), SETTLED_MAX, is_used)
        .with_context(|| format!("{:?}", state(socket).map(|now| (now.sessions, translated(&now)))))
}
