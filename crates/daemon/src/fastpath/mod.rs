//! Kernel fast path of the daemon: a program in the kernel translates established sessions, as the engines
//! have decided, and a thread manages them.
//!
//! ```text
//!   opening    at start: bpffs, program, table, while the process has the rights for them
//!   manager    what the manager's thread (`crate::offload`) does for the kernel: reloads, credits, stop
//!   target     the kernel's table as the manager's target
//!   attachment whether the program is still at its device
//!   overflow   whether the device drops packets while sessions move
//!   progress   how far the workers are, for sessions that move to the kernel
//!   stateless  stateless instances, and credits for them
//!   status     state for the API
//! ```

mod attachment;
mod manager;
mod opening;
mod overflow;
mod progress;
mod stateless;
mod status;
mod target;

pub(crate) use manager::{FastPathManager, FastPathOrders, manager_bytes};
pub(crate) use opening::{FastPathDirectory, OpenedFastPath, open, prepare};
pub(crate) use progress::Progress;

use gatun_config::FastPath as FastPathSettings;

/// Detaches the program from devices and removes the tables, without a daemon. Returns a line for each
/// device.
///
/// # Errors
/// Returns an error if a table cannot be removed.
pub fn detach(settings: &FastPathSettings, devices: &[String]) -> anyhow::Result<Vec<String>> {
    let one = |device: &String| {
        let pins = opening::pins(&settings.directory, device);
        let had = pins.is_dir();
        gatun_io_fastpath::detach(device, Some(&pins))
            .map_err(|error| anyhow::anyhow!("{device}: {error}"))?;
        Ok(match had {
            true => format!("{device}: the program is detached, and its tables are removed"),
            false => format!("{device}: there are no tables in {}", settings.directory.display()),
        })
    };
    devices.iter().map(one).collect()
}

/// Lists differences between two configurations that need a restart.
pub(crate) fn differ(old: &FastPathSettings, new: &FastPathSettings, is_open: bool) -> Vec<String> {
    let mut restarts = Vec::new();
    if new.kernel && !is_open {
        restarts
            .push("[fastpath] kernel: the program needs rights that Gatun dropped at start-up".to_owned());
    }
    let fixed = |settings: &FastPathSettings| {
        let FastPathSettings { directory, xdp, sessions_max, udp_packets, tcp_packets, .. } =
            settings.clone();
        (directory, xdp, sessions_max, udp_packets, tcp_packets)
    };
    if is_open && fixed(old) != fixed(new) {
        restarts.push("[fastpath]: xdp, directory, sessions_max, udp_packets or tcp_packets".to_owned());
    }
    restarts
}

/// Lists differences that a daemon with `old` cannot apply.
pub fn restarts(old: &FastPathSettings, new: &FastPathSettings) -> Vec<String> {
    differ(old, new, old.kernel)
}

/// Lists differences that a running daemon applies.
pub fn changes(old: &FastPathSettings, new: &FastPathSettings) -> Vec<String> {
    let mut changes = Vec::new();
    if old.kernel != new.kernel {
        changes.push(format!("[fastpath] kernel: {}", if new.kernel { "on" } else { "off" }));
    }
    let live = |settings: &FastPathSettings| {
        let FastPathSettings { lease_ms, keeps_at_stop, excluded, excluded_siit, .. } = settings.clone();
        (lease_ms, keeps_at_stop, excluded, excluded_siit)
    };
    if live(old) != live(new) {
        changes.push("[fastpath]: lease, on_stop or the instances in the kernel".to_owned());
    }
    changes
}
