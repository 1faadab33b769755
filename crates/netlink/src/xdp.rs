//! XDP abilities of an interface's driver: the generic netlink family `netdev` (Linux 6.3).

use crate::raw::{self, attribute, value};
use netlink_sys::protocols::NETLINK_GENERIC;
use std::io;

const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const REDIRECT: u64 = 1 << 1;
const NDO_XMIT: u64 = 1 << 2;

/// Abilities of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpAbilities {
    /// It sends frames on that a program at it redirects. Otherwise it drops them.
    pub redirects: bool,
    /// It sends frames that a program at another interface redirects to it, with its present settings.
    /// Otherwise the kernel drops them.
    pub sends: bool,
}

/// Returns the abilities of the interface with this number. `None` before Linux 6.3.
///
/// # Errors
/// Returns an error if the kernel does not answer, or there is no such interface.
pub fn xdp_abilities(interface: u32) -> io::Result<Option<XdpAbilities>> {
    let name = attribute(CTRL_ATTR_FAMILY_NAME, b"netdev\0");
    let family = match ask((GENL_ID_CTRL, CTRL_CMD_GETFAMILY), &name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        answer => answer?,
    };
    let Some(Ok(family)) = value(&family, CTRL_ATTR_FAMILY_ID).map(<[u8; 2]>::try_from) else {
        return Ok(None);
    };
    let index = attribute(NETDEV_A_DEV_IFINDEX, &interface.to_ne_bytes());
    let answer = ask((u16::from_ne_bytes(family), NETDEV_CMD_DEV_GET), &index)?;
    let Some(Ok(features)) = value(&answer, NETDEV_A_DEV_XDP_FEATURES).map(<[u8; 8]>::try_from) else {
        return Ok(None);
    };
    let has = |flag| u64::from_ne_bytes(features) & flag != 0;
    Ok(Some(XdpAbilities { redirects: has(REDIRECT), sends: has(NDO_XMIT) }))
}

/// Sends a command of a family with an attribute. Returns the attributes of the answer.
fn ask((family, command): (u16, u8), attribute: &[u8]) -> io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    // Version 1, and two spare bytes.
    let header = [command, 1, 0, 0];
    raw::request(NETLINK_GENERIC, (family, raw::ONE), header, attribute, |_, _, attributes| {
        answer.extend_from_slice(attributes);
    })?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_redirects_nothing() {
        // Linux 6.1 does not know.
        let abilities = xdp_abilities(1).unwrap();
        assert!(abilities.is_none_or(|one| !one.redirects && !one.sends), "{abilities:?}");
        assert!(xdp_abilities(u32::MAX >> 1).is_err() || abilities.is_none());
    }
}
