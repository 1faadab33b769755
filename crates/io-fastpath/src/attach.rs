//! The program's place at the egress of a device.

use crate::config::{FastPathConfig, Hook};
use crate::error::{FastPathError, step};
use crate::pins::unpin;
use crate::program::{self, NAME, in_words};
use crate::xdp::{self, XdpInterface};
use aya::Ebpf;
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::tc::{self, NlOptions, SchedClassifierLink, TcAttachOptions, TcHandle};
use aya::programs::{LinkOrder, TcAttachType};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// Name of the pinned link in the folder of pins.
const LINK: &str = "link";
/// Priority of the filter. No other program uses it, so a filter there is one of another version of Gatun.
const PRIORITY: u16 = 0x6761;
const HANDLE: TcHandle = TcHandle::new(0, 1);

/// The program at the egress of a device. Dropping it detaches the program only if it is attached by tcx
/// without pins.
pub struct Attachment {
    hook: Hook,
    /// The only way to try.
    wanted: Option<Hook>,
    device: String,
    pins: Option<PathBuf>,
    ebpf: Ebpf,
    /// Link of tcx without pins. Dropping it detaches the program.
    link: Option<FdLink>,
    xdp: Vec<XdpInterface>,
    /// Shows a second process that this one uses the device.
    _lock: UnixDatagram,
}

impl Attachment {
    /// Attaches a loaded program, in place of one that a former process has attached.
    pub(crate) fn new(
        ebpf: Ebpf,
        lock: UnixDatagram,
        config: &FastPathConfig,
    ) -> Result<Attachment, FastPathError> {
        let mut attachment = Attachment {
            hook: Hook::Tcx,
            wanted: config.hook,
            device: config.device.clone(),
            pins: config.pins.clone(),
            ebpf,
            link: None,
            xdp: Vec::new(),
            _lock: lock,
        };
        attachment.attach_again()?;
        attachment.xdp =
            xdp::attach(&mut attachment.ebpf, &config.device, &config.xdp, config.pins.as_deref());
        Ok(attachment)
    }

    /// Way in which the program is attached.
    pub fn hook(&self) -> Hook {
        self.hook
    }

    /// The network interfaces at which the program was to be, in the order of the configuration.
    pub fn xdp(&self) -> &[XdpInterface] {
        &self.xdp
    }

    /// Attaches the program to the device of the same name that has come back.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses.
    pub fn attach_again(&mut self) -> Result<(), FastPathError> {
        if self.wanted != Some(Hook::Clsact) {
            match self.attach_tcx() {
                Ok(link) => {
                    (self.link, self.hook) = (link, Hook::Tcx);
                    delete_filter(&self.device);
                    return Ok(());
                }
                Err(error) if self.wanted == Some(Hook::Tcx) => return Err(error),
                // Before Linux 6.6. If there is another reason, clsact fails as well, and its error is
                // returned.
                Err(_) => {}
            }
        }
        self.attach_clsact()?;
        (self.link, self.hook) = (None, Hook::Clsact);
        match &self.pins {
            Some(pins) => unpin(&pins.join(LINK)),
            None => Ok(()),
        }
    }

    fn attach_tcx(&mut self) -> Result<Option<FdLink>, FastPathError> {
        let pin = self.pins.as_ref().map(|pins| pins.join(LINK));
        let program = program::program(&mut self.ebpf)?;
        if let Some(pin) = &pin
            && let Ok(former) = PinnedLink::from_pin(pin)
        {
            let link = SchedClassifierLink::try_from(FdLink::from(former)).map_err(|e| attach_error(&e))?;
            // A link whose device is gone cannot be updated.
            if let Ok(id) = program.attach_to_link(link) {
                program.take_link(id).map_err(|e| attach_error(&e))?;
                return Ok(None);
            }
            unpin(pin)?;
        }
        let options = TcAttachOptions::TcxOrder(LinkOrder::default());
        let attached = program.attach_with_options(&self.device, TcAttachType::Egress, options);
        let link =
            program.take_link(attached.map_err(|e| attach_error(&e))?).map_err(|e| attach_error(&e))?;
        let link = FdLink::try_from(link).map_err(|e| attach_error(&e))?;
        let Some(pin) = pin else { return Ok(Some(link)) };
        link.pin(pin).map_err(|e| attach_error(&e))?;
        Ok(None)
    }

    fn attach_clsact(&mut self) -> Result<(), FastPathError> {
        let program = program::program(&mut self.ebpf)?;
        let (device, egress) = (&self.device, TcAttachType::Egress);
        let former = SchedClassifierLink::attached(device, egress, PRIORITY, HANDLE, None);
        let former = former.map_err(step("finding the device"))?;
        // Replaces a former filter in one step, so that no packet misses both. The kernel refuses this if
        // there is none.
        let replaced = program.attach_to_link(former);
        let id = replaced.or_else(|_| {
            // It exists already if another program uses it.
            let _ = tc::qdisc_add_clsact(device);
            let options = NlOptions { priority: PRIORITY, handle: HANDLE, classid: None };
            program.attach_with_options(device, egress, TcAttachOptions::Netlink(options))
        });
        let link = program.take_link(id.map_err(|e| attach_error(&e))?).map_err(|e| attach_error(&e))?;
        // The filter stays when the process ends.
        std::mem::forget(link);
        Ok(())
    }

    /// Detaches the program and removes everything.
    ///
    /// # Errors
    /// Returns an error if a pin cannot be removed.
    pub fn detach(self) -> Result<(), FastPathError> {
        detach(&self.device, self.pins.as_deref())
    }
}

/// Deletes Gatun's filter, if there is one.
fn delete_filter(device: &str) {
    // It fails if there is no filter, no clsact qdisc or no device.
    let _ = tc::qdisc_detach_program(device, TcAttachType::Egress, NAME);
}

/// Detaches the program from a device and from network interfaces, and removes all pins.
///
/// # Errors
/// Returns an error if a pin cannot be removed.
pub fn detach(device: &str, pins: Option<&Path>) -> Result<(), FastPathError> {
    if let Some(pins) = pins {
        xdp::unpin_all_but(pins, &[])?;
        for name in [LINK].into_iter().chain(crate::maps::NAMES) {
            unpin(&pins.join(name))?;
        }
        let _ = std::fs::remove_dir(pins);
    }
    delete_filter(device);
    Ok(())
}

fn attach_error(error: &dyn std::error::Error) -> FastPathError {
    FastPathError::Attach(in_words(error))
}
