//! The program's place at the egress of a device.

use crate::error::FastPathError;
use crate::program::{self, NAME, in_words};
use aya::Ebpf;
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::tc::{self, NlOptions, SchedClassifierLink, TcAttachOptions, TcHandle};
use aya::programs::{LinkOrder, TcAttachType};
use std::path::Path;

/// Way to attach the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// A link of tcx (Linux 6.6). It is gone with its last file or pin.
    Tcx,
    /// A filter of the clsact qdisc. It stays until it is deleted.
    Clsact,
}

/// Name of the pinned link in the folder of pins.
const LINK: &str = "link";
/// Place of the filter. No other program may take it.
const PRIORITY: u16 = 0x6761;
const HANDLE: TcHandle = TcHandle::new(0, 1);

/// An attached program.
pub(crate) struct Attachment {
    pub(crate) hook: Hook,
    _ebpf: Ebpf,
    /// Of tcx without pins: the program is detached with it.
    _link: Option<FdLink>,
}

/// Attaches a loaded program, in place of one that a former process has attached. `hook`: the only way to be tried.
pub(crate) fn attach(
    mut ebpf: Ebpf,
    device: &str,
    hook: Option<Hook>,
    pins: Option<&Path>,
) -> Result<Attachment, FastPathError> {
    if hook != Some(Hook::Clsact) {
        match attach_tcx(&mut ebpf, device, pins) {
            Ok(link) => {
                delete_filter(device)?;
                return Ok(Attachment { hook: Hook::Tcx, _ebpf: ebpf, _link: link });
            }
            Err(error) if hook == Some(Hook::Tcx) => return Err(error),
            // Before Linux 6.6. If there is another reason, clsact fails as well, and its error is returned.
            Err(_) => {}
        }
    }
    attach_clsact(&mut ebpf, device)?;
    if let Some(pins) = pins {
        unpin(&pins.join(LINK))?;
    }
    Ok(Attachment { hook: Hook::Clsact, _ebpf: ebpf, _link: None })
}

fn attach_tcx(ebpf: &mut Ebpf, device: &str, pins: Option<&Path>) -> Result<Option<FdLink>, FastPathError> {
    let pin = pins.map(|pins| pins.join(LINK));
    if let Some(pin) = &pin
        && let Ok(former) = PinnedLink::from_pin(pin)
    {
        let link = SchedClassifierLink::try_from(FdLink::from(former)).map_err(|e| attach_error(&e))?;
        // A link whose device is gone cannot be updated.
        if let Ok(id) = program::program(ebpf)?.attach_to_link(link) {
            program::program(ebpf)?.take_link(id).map_err(|e| attach_error(&e))?;
            return Ok(None);
        }
        unpin(pin)?;
    }
    let program = program::program(ebpf)?;
    let options = TcAttachOptions::TcxOrder(LinkOrder::default());
    let id =
        program.attach_with_options(device, TcAttachType::Egress, options).map_err(|e| attach_error(&e))?;
    let link = program.take_link(id).map_err(|e| attach_error(&e))?;
    let link = FdLink::try_from(link).map_err(|e| attach_error(&e))?;
    let Some(pin) = pin else { return Ok(Some(link)) };
    link.pin(pin).map_err(|e| attach_error(&e))?;
    Ok(None)
}

fn attach_clsact(ebpf: &mut Ebpf, device: &str) -> Result<(), FastPathError> {
    // It exists already if another program uses it.
    let _ = tc::qdisc_add_clsact(device);
    delete_filter(device)?;
    let program = program::program(ebpf)?;
    let options = NlOptions { priority: PRIORITY, handle: HANDLE, classid: None };
    let attached =
        program.attach_with_options(device, TcAttachType::Egress, TcAttachOptions::Netlink(options));
    let id = attached.map_err(|e| attach_error(&e))?;
    let link = program.take_link(id).map_err(|e| attach_error(&e))?;
    // The filter stays when the process ends.
    std::mem::forget(link);
    Ok(())
}

/// Deletes Gatun's filter, if there is one.
fn delete_filter(device: &str) -> Result<(), FastPathError> {
    match tc::qdisc_detach_program(device, TcAttachType::Egress, NAME) {
        // No filter, or no clsact qdisc.
        Ok(()) | Err(_) => Ok(()),
    }
}

fn unpin(pin: &Path) -> Result<(), FastPathError> {
    match std::fs::remove_file(pin) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(FastPathError::Step { step: "removing a pin", error })
        }
        _ => Ok(()),
    }
}

/// Detaches the program from a device, and removes all pins.
///
/// # Errors
/// If a pin cannot be removed.
pub fn detach(device: &str, pins: Option<&Path>) -> Result<(), FastPathError> {
    if let Some(pins) = pins {
        for name in [LINK].into_iter().chain(crate::maps::NAMES) {
            unpin(&pins.join(name))?;
        }
        let _ = std::fs::remove_dir(pins);
    }
    delete_filter(device)
}

fn attach_error(error: &dyn std::error::Error) -> FastPathError {
    FastPathError::Attach(in_words(error))
}
