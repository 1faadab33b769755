//! Devices of DPDK ports without a link, as their driver reports it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Names of the devices. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct DownDevices(Arc<Mutex<BTreeSet<String>>>);

impl DownDevices {
    /// Sets if a device has a link.
    #[cfg_attr(not(feature = "dpdk"), allow(dead_code))]
    pub(crate) fn set(&self, device: &str, is_up: bool) {
        let mut down = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match is_up {
            true => down.remove(device),
            false => down.insert(device.to_owned()),
        };
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
