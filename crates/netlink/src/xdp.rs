//! XDP abilities of an interface's driver: the generic netlink family `netdev` (Linux 6.3).

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};
use std::io;

const HEADER: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
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
    let mut socket = Socket::new(NETLINK_GENERIC)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let family = match ask(&socket, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, b"netdev\0") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        answer => answer?,
    };
    let Some(Ok(family)) = attribute(&family, CTRL_ATTR_FAMILY_ID).map(<[u8; 2]>::try_from) else {
        return Ok(None);
    };
    let (family, index) = (u16::from_ne_bytes(family), interface.to_ne_bytes());
    let answer = ask(&socket, family, NETDEV_CMD_DEV_GET, NETDEV_A_DEV_IFINDEX, &index)?;
    let Some(Ok(features)) = attribute(&answer, NETDEV_A_DEV_XDP_FEATURES).map(<[u8; 8]>::try_from) else {
        return Ok(None);
    };
    let has = |flag| u64::from_ne_bytes(features) & flag != 0;
    Ok(Some(XdpAbilities { redirects: has(REDIRECT), sends: has(NDO_XMIT) }))
}

/// Sends a command with one attribute. Returns the attributes of the answer.
fn ask(socket: &Socket, family: u16, command: u8, kind: u16, value: &[u8]) -> io::Result<Vec<u8>> {
    let mut message = vec![0; HEADER];
    message[4..6].copy_from_slice(&family.to_ne_bytes());
    message[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    // Version 1, and two spare bytes.
    message.extend([command, 1, 0, 0]);
    message.extend((value.len() as u16 + 4).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
    message.resize(message.len().next_multiple_of(4), 0);
    let len = message.len() as u32;
    message[..4].copy_from_slice(&len.to_ne_bytes());
    socket.send(&message, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let word = |at: usize| answer.get(at..at + 4).and_then(|word| <[u8; 4]>::try_from(word).ok());
    if answer.get(4..6).ok_or_else(short)? == NLMSG_ERROR.to_ne_bytes() {
        let error = i32::from_ne_bytes(word(HEADER).ok_or_else(short)?);
        return Err(io::Error::from_raw_os_error(-error));
    }
    Ok(answer.get(HEADER + 4..).ok_or_else(short)?.to_vec())
}

/// Value of an attribute.
fn attribute(mut rest: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?));
        let is = u16::from_ne_bytes(rest.get(2..4)?.try_into().ok()?);
        if is == kind {
            return rest.get(4..len);
        }
        rest = rest.get(len.max(4).next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_behind_others_and_a_cut_one_is_none() {
        let all = [6, 0, 1, 0, 7, 7, 0, 0, 8, 0, 3, 0, 1, 2, 3, 4];
        assert_eq!(attribute(&all, 1), Some(&[7, 7][..]));
        assert_eq!(attribute(&all, 3), Some(&[1, 2, 3, 4][..]));
        assert_eq!(attribute(&all, 2), None);
        assert_eq!(attribute(&all[..14], 3), None);
        assert_eq!(attribute(&[0, 0, 9, 0], 3), None);
    }

    #[test]
    fn the_loopback_interface_redirects_nothing() {
        // Linux 6.1 does not know.
        let abilities = xdp_abilities(1).unwrap();
        assert!(abilities.is_none_or(|one| !one.redirects && !one.sends), "{abilities:?}");
        assert!(xdp_abilities(u32::MAX >> 1).is_err() || abilities.is_none());
    }
}
