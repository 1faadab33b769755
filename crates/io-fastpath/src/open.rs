//! Loads the program, takes over the maps of a former process, and attaches it.

use crate::attach::{Attachment, detach};
use crate::config::FastPathConfig;
use crate::control::Control;
use crate::counters::processors;
use crate::entries::{entries_of, homes_of};
use crate::error::{FastPathError, step};
use crate::layout::{IDENTS, LAYOUT};
use crate::maps::{Maps, has_pins};
use crate::program;
use crate::sys;
use crate::table::Table;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

/// Result of taking over the maps of a former process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// There was nothing.
    Fresh,
    /// Number of sessions taken over. They are translated as long as the lease lasts.
    Adopted(u32),
    /// The former maps had another layout or size and were removed; the text gives the reason.
    Replaced(String),
}

/// Fast path of a device.
pub struct FastPath {
    /// The sessions.
    pub table: Table,
    /// Result of taking over the maps of a former process.
    pub adoption: Adoption,
    /// The attached program, for the process that keeps the capabilities.
    pub attachment: Attachment,
}

impl FastPath {
    /// Loads and attaches the program. The lease is left as it is: zero at first.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses, or another Gatun runs on the device.
    pub fn open(config: &FastPathConfig) -> Result<FastPath, FastPathError> {
        let lock = lock(&config.device)?;
        create_pins(config)?;
        let has_pins = config.pins.as_deref().is_some_and(has_pins);
        let ((mut ebpf, mut table, is_fresh), replaced) = match load(config) {
            // Whatever the reason: new maps may do, and cannot do worse.
            Err(error) if has_pins => {
                // Packets go to the engine from here on: the maps of the new program are empty.
                detach(&config.device, config.pins.as_deref())?;
                create_pins(config)?;
                (load(config)?, Some(error.to_string()))
            }
            loaded => (loaded?, None),
        };
        let adoption = match replaced {
            Some(why) => Adoption::Replaced(why),
            None if is_fresh => Adoption::Fresh,
            None => Adoption::Adopted(table.adopt()),
        };
        let attachment = Attachment::new(&mut ebpf, lock, config)?;
        Ok(FastPath { table, adoption, attachment })
    }
}

fn create_pins(config: &FastPathConfig) -> Result<(), FastPathError> {
    let created = config.pins.as_ref().map_or(Ok(()), std::fs::create_dir_all);
    created.map_err(step("creating the folder of pins"))
}

/// Loads the program. True: its maps are new.
fn load(config: &FastPathConfig) -> Result<(aya::Ebpf, Table, bool), FastPathError> {
    let mut ebpf = program::create_maps(config.capacity, config.hosts, &[], config.pins.as_deref())?;
    let maps = Maps::from_files(program::files(&ebpf)?)?;
    let (is, wanted) = (maps.entries()?, entries_of(config.capacity));
    if is != wanted {
        let why = format!("{is} entries instead of {wanted} for {} sessions", config.capacity);
        return Err(FastPathError::Map { name: "entries", why });
    }
    let (table, is_fresh) = table(maps, config)?;
    program::load_device(&mut ebpf)?;
    Ok((ebpf, table, is_fresh))
}

/// Table of these maps, which are prepared if they are new.
pub(crate) fn table(maps: Maps, config: &FastPathConfig) -> Result<(Table, bool), FastPathError> {
    let control = Control::new(&maps.control).map_err(step("mapping the control words"))?;
    let layout = control.layout();
    if layout != LAYOUT && layout != 0 {
        let why = format!("layout {layout} instead of {LAYOUT}");
        return Err(FastPathError::Map { name: "control", why });
    }
    if layout == 0 {
        set_idents(&maps, config.seed)?;
        let secret = std::array::from_fn(|n| split_mix(config.seed, u64::from(IDENTS) + n as u64));
        control.set_hash(secret, homes_of(config.capacity));
    }
    let (is, wanted) = (control.hash().1, homes_of(config.capacity));
    if is != wanted {
        let why = format!("{is} homes instead of {wanted} for {} sessions", config.capacity);
        return Err(FastPathError::Map { name: "control", why });
    }
    control.set(config.idents, config.pending_max);
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible");
    let possible = possible.map_err(step("reading the number of processors"))?;
    let unreadable = || FastPathError::Program(format!("possible processors {possible:?}"));
    let processors = processors(&possible).ok_or_else(unreadable)?;
    Ok((Table::new(maps, control, config.capacity, processors)?, layout == 0))
}

/// Lets each counter of identifications begin at random.
fn set_idents(maps: &Maps, seed: u64) -> Result<(), FastPathError> {
    let keys: Vec<u32> = (0..IDENTS).collect();
    let values: Vec<u32> = keys.iter().map(|key| split_mix(seed, u64::from(*key)) as u32).collect();
    sys::update_batch(&maps.idents, &keys, &values).map_err(step("setting identifications"))
}

/// SplitMix64: number `n` of a sequence.
fn split_mix(seed: u64, n: u64) -> u64 {
    let z = seed.wrapping_add((n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn lock(device: &str) -> Result<UnixDatagram, FastPathError> {
    let bound = SocketAddr::from_abstract_name(format!("gatun/fastpath/{device}"))
        .and_then(|address| UnixDatagram::bind_addr(&address));
    bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => FastPathError::SecondInstance(device.to_owned()),
        _ => FastPathError::Step { step: "locking the device's name", error },
    })
}

/// Mounts a bpffs at a folder, which is created, unless there is one.
///
/// # Errors
/// Returns an error if the kernel refuses.
pub fn mount_bpffs(at: &Path) -> Result<(), FastPathError> {
    const BPF_FS_MAGIC: i64 = 0xcafe_4a11;
    std::fs::create_dir_all(at).map_err(step("creating the folder of the bpffs"))?;
    let is = rustix::fs::statfs(at).map_err(|e| step("reading the bpffs")(e.into()))?;
    if is.f_type as i64 & 0xffff_ffff == BPF_FS_MAGIC {
        return Ok(());
    }
    let mounted = rustix::mount::mount("bpf", at, "bpf", rustix::mount::MountFlags::empty(), c"mode=0700");
    mounted.map_err(|e| step("mounting a bpffs")(e.into()))
}
