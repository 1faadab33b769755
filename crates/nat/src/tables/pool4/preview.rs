//! Which address and ports a new binding would get, read and not taken.

use super::{Holdings, Pool4State, PortRequest, Ports};
use core::net::Ipv4Addr;
use gatun_wire::DropReason;

pub use crate::tables::ports::holdings::PortSource;

/// Which port a new binding would get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortOutlook {
    /// The public address.
    pub address: Ipv4Addr,
    /// The port, where it is known before.
    pub port: Option<u16>,
    /// First and last port of the block.
    pub block: Option<(u16, u16)>,
    /// Where the port comes from.
    pub source: PortSource,
    /// Free ports there, of which chance decides; of new blocks, free blocks of the address.
    pub free: u32,
}

impl Pool4State {
    /// What [`allocate`](Self::allocate) would give.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn preview(
        &self,
        wanted: &PortRequest,
        holdings: &Holdings,
    ) -> Result<PortOutlook, DropReason> {
        match &self.ports {
            Ports::Blocks(blocks) => {
                let (ix, source, block, free) = blocks.preview(wanted, holdings)?;
                Ok(PortOutlook { address: self.address(ix), port: None, block, source, free })
            }
            Ports::Single(single) => {
                let (ix, free) = single.preview(&self.map, wanted, holdings.paired())?;
                let source = PortSource::Address;
                Ok(PortOutlook { address: self.address(ix), port: None, block: None, source, free })
            }
        }
    }

    /// Whether [`claim_for`](Self::claim_for) would give a port.
    pub(crate) fn preview_claim(
        &self,
        (address, port): (Ipv4Addr, u16),
        wanted: &PortRequest,
        holdings: &Holdings,
    ) -> Option<PortOutlook> {
        let ix = self.address_ix(address).filter(|&ix| !self.is_drained(ix))?;
        let free = match &self.ports {
            Ports::Blocks(blocks) => blocks.could_claim_for(ix, port, wanted, holdings),
            Ports::Single(single) => {
                let covered = self.map.layout(wanted.transport, ix).is_some_and(|l| l.has(port));
                covered && !single.has(wanted.transport, ix, port)
            }
        };
        let source = PortSource::HeldSyn;
        free.then_some(PortOutlook { address, port: Some(port), block: None, source, free: 1 })
    }

    /// Blocks that a subscriber may have, and whether all protocols share them; `None` where there are none.
    pub(crate) fn blocks_each(&self) -> Option<(u32, bool)> {
        match &self.ports {
            Ports::Single(_) => None,
            Ports::Blocks(blocks) => Some(blocks.each()),
        }
    }
}
