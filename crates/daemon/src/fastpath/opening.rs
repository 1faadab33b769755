//! Start-up of the kernel fast path: its directory, its program and its table, while the process still has
//! the rights for them.

use super::super::net_helper::{ProgramHelper, for_programs};
use super::super::privileges::User;
use super::super::sandbox::Sandbox;
use super::super::state::chown_to;
use super::super::{Event, Settings};
use super::stateless;
use crate::killed::once_released;
use gatun_config::FastPath as FastPathSettings;
use gatun_io_fastpath::{
    Adoption, Attachment, FastPath, FastPathConfig, FastPathError, Hook, IdentRange, Instance, KernelTime,
    Table, WORKERS_MAX, XdpInterface, mount_bpffs,
};
use gatun_nat::Plan;
use gatun_netlink::DroppedByDevice;
use gatun_wire::text::counted;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::Duration;

/// Longest time that a killed process may take to release the directory.
const LET_GO_MAX: Duration = Duration::from_millis(1_000);

/// Longest time that a session stays pending: the queue of a device is read in far less.
const PENDING_MAX: Duration = Duration::from_millis(250);

/// Kernel fast path as the start-up found it.
pub(crate) enum OpenedFastPath {
    /// Not configured.
    Off,
    /// Configured, but this machine does not support it.
    Unavailable(String),
    /// Program and table.
    On(Box<OpenTable>),
}

/// Table of an attached program.
pub(crate) struct OpenTable {
    pub(super) table: Table,
    pub(super) attachment: Attachment,
    pub(super) lock: File,
    pub(super) device: String,
    /// Counter of the device. `None` if it cannot be read.
    pub(super) dropped: Option<DroppedByDevice>,
    pub(super) pins: Option<PathBuf>,
    /// Sessions of the previous process.
    pub(super) adopted: u32,
    /// Process that attaches the program again. `None` if it could not start.
    pub(super) helper: Option<ProgramHelper>,
    /// Lines for the log.
    pub(super) notes: Vec<String>,
}

/// State of the directory of the kernel's tables.
pub(crate) enum FastPathDirectory {
    /// No fast path is configured.
    Unwanted,
    /// It can be used, by this process alone as long as the file is open.
    Ready(File),
    /// It cannot be used, with the reason.
    Unusable(String),
}

impl OpenedFastPath {
    /// Lines for the log.
    pub(crate) fn notes(&self) -> Vec<String> {
        match self {
            OpenedFastPath::Off => Vec::new(),
            OpenedFastPath::Unavailable(why) => {
                vec![format!("kernel fast path: not available, Gatun translates all packets itself: {why}")]
            }
            OpenedFastPath::On(open) => open.notes.clone(),
        }
    }
}

impl OpenedFastPath {
    /// Starts the process that attaches the program again, while this one has the rights that it keeps.
    /// If it cannot start, the log says so.
    pub(crate) fn start_helper(&mut self, (user, sandbox): (Option<User>, &Sandbox), events: &Sender<Event>) {
        let OpenedFastPath::On(open) = self else { return };
        let Attachment { programs, places, .. } = &open.attachment;
        match for_programs(programs, places, (user, sandbox), events) {
            Ok((helper, said)) => {
                open.helper = Some(helper);
                open.notes.push(said);
            }
            Err(error) => open.notes.push(format!(
                "kernel fast path: {error:#}: a program that somebody detaches is not attached again"
            )),
        }
    }
}

/// Creates the directory, and mounts a bpffs there if there is none.
pub(crate) fn prepare(settings: &FastPathSettings) -> FastPathDirectory {
    if !settings.kernel {
        return FastPathDirectory::Unwanted;
    }
    let directory = &settings.directory;
    let prepared = mount_bpffs(directory).map_err(|error| error.to_string());
    let locked = prepared.and_then(|()| lock(directory));
    match locked {
        Ok(lock) => FastPathDirectory::Ready(lock),
        Err(why) => {
            FastPathDirectory::Unusable(format!("[fastpath] directory {}: {why}", directory.display()))
        }
    }
}

/// Locks the directory.
fn lock(directory: &Path) -> Result<File, String> {
    let open = File::open(directory).map_err(|error| format!("cannot open it: {error}"))?;
    let is_taken = |error: &Errno| *error == Errno::WOULDBLOCK;
    let lock = || flock(&open, FlockOperation::NonBlockingLockExclusive);
    match once_released(LET_GO_MAX, is_taken, lock) {
        Ok(()) => Ok(open),
        Err(Errno::WOULDBLOCK) => {
            Err("another daemon uses it: write another `directory` in [fastpath]".to_owned())
        }
        Err(error) => Err(format!("cannot lock it: {error}")),
    }
}

/// Opens the fast path of a device. `fits`: the instances and pools of the previous process were the same, so
/// its sessions in the kernel may stay. `keeps`: sessions outlive the process.
pub(crate) fn open(
    settings: &Settings,
    device: Option<&String>,
    directory: FastPathDirectory,
    (keeps, fits): (bool, bool),
    user: Option<&User>,
    notes: &mut Vec<String>,
) -> OpenedFastPath {
    notes
        .extend(device.into_iter().flat_map(|device| remove_elsewhere(&settings.fastpath.directory, device)));
    let why = match (directory, device) {
        (FastPathDirectory::Unwanted, device) => {
            remove_left(&settings.fastpath.directory, device.map(String::as_str));
            return OpenedFastPath::Off;
        }
        (FastPathDirectory::Unusable(why), _) => why,
        (FastPathDirectory::Ready(_), None) => "there is no TUN device".to_owned(),
        (FastPathDirectory::Ready(lock), Some(device)) => {
            match open_table(settings, (device, lock), (keeps, fits), user) {
                Ok(open) => return OpenedFastPath::On(Box::new(open)),
                Err(error) => {
                    // A program of the previous process would translate until its lease expires. But its
                    // ports are the engines' from now on.
                    if !matches!(error, FastPathError::SecondInstance(_)) {
                        remove_left(&settings.fastpath.directory, Some(device));
                    }
                    advice(&error)
                }
            }
        }
    };
    OpenedFastPath::Unavailable(why)
}

/// Checks that the program and this process have the same clock.
fn check_clock(offsets: &str) -> Result<(), FastPathError> {
    let monotonic = offsets.lines().find_map(|line| line.trim_start().strip_prefix("monotonic"));
    match monotonic.is_some_and(|offset| offset.split_whitespace().any(|number| number != "0")) {
        false => Ok(()),
        true => Err(FastPathError::Attach(
            "a time namespace has set this process's clock apart from the kernel's".to_owned(),
        )),
    }
}

/// Detaches the program of a previous process that had a fast path.
fn remove_left(directory: &Path, device: Option<&str>) {
    let Some(device) = device else { return };
    // A filter has no pin: its tables may be in another directory.
    let pins = Some(pins(directory, device)).filter(|pins| pins.is_dir());
    // If it fails, the program stops translating when its lease has run out.
    let _ = gatun_io_fastpath::detach(device, pins.as_deref());
}

/// Detaches programs of ended processes at the device whose tables are in other directories. Returns lines
/// for the log.
fn remove_elsewhere(directory: &Path, device: &str) -> Vec<String> {
    let elsewhere = gatun_io_fastpath::pins_elsewhere(device, &pins(directory, device));
    let ended = elsewhere.iter().filter_map(|pins| {
        // A daemon that runs has locked its directory: the device is one of its own network namespace.
        let directory = pins.parent()?;
        let _lock = lock(directory).ok()?;
        let place = directory.display();
        Some(match gatun_io_fastpath::detach(device, Some(pins)) {
            Ok(()) => format!(
                "kernel fast path: detached the program of an earlier process, whose tables were in {place}"
            ),
            Err(error) => format!(
                "kernel fast path: the program of an earlier process, whose tables are in {place}, may \
                 translate until its lease expires: {error}"
            ),
        })
    });
    ended.collect()
}

/// Folder of the pins of a device.
pub(super) fn pins(directory: &Path, device: &str) -> PathBuf {
    directory.join(device)
}

fn open_table(
    settings: &Settings,
    (device, lock): (&str, File),
    (keeps, fits): (bool, bool),
    user: Option<&User>,
) -> Result<OpenTable, FastPathError> {
    check_clock(&std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default())?;
    let workers = settings.ports.workers();
    if workers > WORKERS_MAX {
        return Err(FastPathError::Attach(format!("{workers} queues; at most {WORKERS_MAX} are supported")));
    }
    if !keeps {
        // Its sessions have ended with its process, and their ports are free.
        remove_left(&settings.fastpath.directory, Some(device));
    }
    let pins = keeps.then(|| pins(&settings.fastpath.directory, device));
    let mut seed = [0; 8];
    let _ = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty());
    let config = FastPathConfig {
        device: device.to_owned(),
        pins: pins.clone(),
        capacity: settings.fastpath.sessions_max,
        hosts: hosts(&settings.plan),
        hook: None,
        xdp: settings.fastpath.xdp.clone(),
        idents: IdentRange::beside(workers as u16),
        pending_max: PENDING_MAX,
        seed: u64::from_ne_bytes(seed),
    };
    let FastPath { mut table, adoption, attachment } = FastPath::open(&config)?;
    if let (Some(pins), Some(user)) = (&pins, user) {
        // Without this, the daemon cannot remove the pins at its end; `gatun fastpath detach` can.
        let _ = chown_to(&settings.fastpath.directory, user).and_then(|()| chown_to(pins, user));
    }
    let mut notes = Vec::new();
    let adopted = match adoption {
        Adoption::Fresh => 0,
        Adoption::Adopted(0) => 0,
        Adoption::Adopted(count) if fits => {
            let sessions = counted(count.into(), "session");
            notes.push(format!("kernel fast path: {sessions} of the previous process stay in the kernel"));
            count
        }
        Adoption::Adopted(count) => {
            remove_all(&mut table);
            let sessions = counted(count.into(), "session");
            notes.push(format!(
                "kernel fast path: {sessions} of the previous process removed, because instances, pools or workers have changed"
            ));
            0
        }
        Adoption::Replaced(why) => {
            notes.push(format!("kernel fast path: the tables of the previous process are replaced: {why}"));
            0
        }
    };
    set_instances(&table, &settings.plan)?;
    stateless::set(&mut table, &settings.plan, &settings.fastpath.excluded_siit)?;
    let hook = hook_name(attachment.places.hook);
    let room = counted(table.capacity().into(), "session");
    notes.push(format!("kernel fast path: attached to {device} by {hook}, with room for {room}"));
    notes.extend(attachment.places.xdp.iter().map(xdp_note));
    let dropped = dropped_by(device, &mut notes);
    let device = device.to_owned();
    Ok(OpenTable { table, attachment, lock, device, dropped, pins, adopted, helper: None, notes })
}

/// Counter of what the device drops. Without it, `notes` get a line.
fn dropped_by(device: &str, notes: &mut Vec<String>) -> Option<DroppedByDevice> {
    DroppedByDevice::of(device)
        .inspect_err(|error| {
            notes.push(format!(
                "kernel fast path: cannot read what {device} drops: {error}; a flow that is faster than a \
                 worker stays with it for {} ms",
                PENDING_MAX.as_millis()
            ));
        })
        .ok()
}

/// Mapped hosts that the kernel has room for: up to twice as many as there are now.
fn hosts(plan: &Plan) -> u32 {
    const AT_MOST: usize = 1 << 22;
    let at_least = if plan.siit.is_empty() { 1 } else { 1024 };
    let mappings: usize = plan.siit.iter().map(|siit| siit.eamt.len()).sum();
    mappings.next_power_of_two().clamp(at_least, AT_MOST) as u32
}

/// Line for the log about a network interface.
fn xdp_note(interface: &XdpInterface) -> String {
    let name = &interface.name;
    match interface.refusal() {
        None => match &interface.limit {
            None => format!("kernel fast path: attached to {name} by XDP"),
            Some(why) => format!("kernel fast path: attached to {name} by XDP, but {why}"),
        },
        Some(why) => format!("kernel fast path: no XDP at {name}: {why}; the device's program translates"),
    }
}

/// Removes every session.
pub(super) fn remove_all(table: &mut Table) {
    table.control().set_lease(KernelTime(0));
    let all: Vec<_> = table.iter().map(|(id, _)| id).collect();
    table.remove(&all, &mut Vec::new());
}

/// Sets what the program needs to know about the instances of a plan.
pub(super) fn set_instances(table: &Table, plan: &Plan) -> Result<(), FastPathError> {
    let of64 = plan.nat64.iter().map(|nat64| Instance::nat64(&nat64.settings));
    let all = of64.chain(plan.nat44.iter().map(|nat44| Instance::nat44(nat44.mtu)));
    (0..=u8::MAX).zip(all).try_for_each(|(number, instance)| table.set_instance(number, instance))
}

pub(super) fn hook_name(hook: Hook) -> &'static str {
    match hook {
        Hook::Tcx => "tcx",
        Hook::Clsact => "clsact",
    }
}

/// Text of an error, with what to do.
fn advice(error: &FastPathError) -> String {
    let instead = match error {
        FastPathError::SecondInstance(_) => "stop the other one, or write `kernel = \"off\"` in [fastpath]",
        FastPathError::Program(_) => {
            "a kernel of Linux 6.1 or later, built with BPF and BTF, accepts it; lockdown may forbid it; `gatun doctor` has details"
        }
        FastPathError::Attach(_) | FastPathError::Step { .. } | FastPathError::Map { .. } => {
            "`gatun doctor` lists what the kernel lacks"
        }
    };
    format!("{error}: {instead}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_apart_from_the_kernels_is_refused() {
        assert!(check_clock("").is_ok(), "a kernel without time namespaces");
        assert!(check_clock("monotonic           0         0\nboottime            0         0\n").is_ok());
        assert!(check_clock("monotonic           0         0\nboottime         5000         0\n").is_ok());
        assert!(check_clock("monotonic      100000         0\nboottime            0         0\n").is_err());
        assert!(check_clock("monotonic           0        -1\nboottime            0         0\n").is_err());
    }
}
