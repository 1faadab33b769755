//! Preview of the address and port of a new binding, without any change.

use super::{Holdings, Pool4State, PortRequest, Ports};
use core::net::Ipv4Addr;
use gatun_wire::DropReason;

pub use crate::tables::ports::holdings::PortSource;

/// Preview of the port for a new binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortPreview {
    /// The public address.
    pub address: Ipv4Addr,
    /// The port, if it can be known in advance.
    pub port: Option<u16>,
    /// First and last port of the block.
    pub block: Option<(u16, u16)>,
    /// Source of the port.
    pub source: PortSource,
    /// Number of free ports that the random choice is among; for new blocks, free blocks of the address.
    pub free: u32,
}

impl Pool4State {
    /// Previews [`allocate`](Self::allocate).
    ///
    /// # Errors
    ///
    /// Same as [`allocate`](Self::allocate).
    pub(crate) fn preview(
        &self,
        wanted: &PortRequest,
        holdings: &Holdings,
    ) -> Result<PortPreview, DropReason> {
        match &self.ports {
            Ports::Blocks(blocks) => {
                let (ix, source, block, free) = blocks.preview(wanted, holdings)?;
                Ok(PortPreview { address: self.address(ix), port: None, block, source, free })
            }
            Ports::Single(single) => {
                let (ix, free) = single.preview(&self.map, wanted, holdings.paired())?;
                let source = PortSource::Address;
                Ok(PortPreview { address: self.address(ix), port: None, block: None, source, free })
            }
        }
    }

    /// Returns whether [`claim_for`](Self::claim_for) would give a port.
    pub(crate) fn preview_claim(
        &self,
        (address, port): (Ipv4Addr, u16),
        wanted: &PortRequest,
        holdings: &Holdings,
    ) -> Option<PortPreview> {
        let ix = self.address_ix(address).filter(|&ix| !self.is_drained(ix))?;
        let free = match &self.ports {
            Ports::Blocks(blocks) => blocks.could_claim_for(ix, port, wanted, holdings),
            Ports::Single(single) => {
                let covered = self.map.layout(wanted.transport, ix).is_some_and(|l| l.has(port));
                covered && !single.has(wanted.transport, ix, port)
            }
        };
        let source = PortSource::HeldSyn;
        free.then_some(PortPreview { address, port: Some(port), block: None, source, free: 1 })
    }

    /// Returns the maximum number of blocks of a subscriber, and whether all protocols share them; `None`
    /// without blocks.
    pub(crate) fn blocks_each(&self) -> Option<(u32, bool)> {
        match &self.ports {
            Ports::Single(_) => None,
            Ports::Blocks(blocks) => Some(blocks.each()),
        }
    }
}
