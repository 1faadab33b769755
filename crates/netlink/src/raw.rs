//! Messages of netlink families that the libraries do not know.
//!
//! ```text
//!   message   nlmsghdr (16 bytes) | header of the family (4) | attributes
//! ```

use netlink_sys::{Socket, SocketAddr};
use std::io;

/// Bytes of a message before the header of its family.
const HEADER_LEN: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// An answer that is one message, and an acknowledgement behind it (`NLM_F_REQUEST | NLM_F_ACK`).
pub(crate) const ONE: u16 = 5;

/// Sends a request of a type with flags, and gives `each` the type, the family's header and the attributes of
/// every message of the answer. The flags have to ask for many messages, or for an acknowledgement.
pub(crate) fn request(
    protocol: isize,
    (kind, flags): (u16, u16),
    header: [u8; 4],
    attributes: &[u8],
    mut each: impl FnMut(u16, [u8; 4], &[u8]),
) -> io::Result<()> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let len = (HEADER_LEN + header.len() + attributes.len()) as u32;
    // Behind type and flags: sequence number and sender.
    let numbers = [1u32, 0].map(u32::to_ne_bytes).concat();
    let message = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &numbers].concat();
    socket.send(&[&message[..], &header, attributes].concat(), 0)?;
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        let mut rest = &datagram[..];
        while let Some((len, kind)) = length_and_type(rest) {
            let body = rest.get(HEADER_LEN..len).unwrap_or_default();
            match kind {
                NLMSG_DONE => return Ok(()),
                NLMSG_ERROR => {
                    let code = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                    return if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) };
                }
                _ => {
                    if let Some((header, attributes)) = body.split_first_chunk() {
                        each(kind, *header, attributes);
                    }
                }
            }
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        if datagram.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

fn length_and_type(bytes: &[u8]) -> Option<(usize, u16)> {
    let len = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    (len >= HEADER_LEN && len <= bytes.len()).then_some((len, kind))
}

/// An attribute with its number and value.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = [(value.len() as u16 + 4).to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Numbers and values of attributes.
pub(crate) fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        // The upper two bits are flags.
        let kind = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?) & 0x3fff;
        let value = rest.get(4..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The value of an attribute.
pub(crate) fn value(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(of, _)| *of == kind).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_behind_others_and_a_cut_one_is_none() {
        let all = [6, 0, 1, 0, 7, 7, 0, 0, 8, 0, 3, 0, 1, 2, 3, 4];
        assert_eq!(value(&all, 1), Some(&[7, 7][..]));
        assert_eq!(value(&all, 3), Some(&[1, 2, 3, 4][..]));
        assert_eq!(value(&all, 2), None);
        assert_eq!(value(&all[..14], 3), None);
        assert_eq!(value(&[0, 0, 9, 0], 3), None);
    }
}
