//! Integers and addresses in frames.

use super::error::WireError;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Unread bytes of a frame.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(WireError::Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| WireError::Malformed("it ends too early"))
    }

    pub(super) fn u8(&mut self) -> Result<u8, WireError> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16, WireError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(super) fn ipv4(&mut self) -> Result<Ipv4Addr, WireError> {
        Ok(Ipv4Addr::from(self.array::<4>()?))
    }

    /// Reads an inside address, which may be written as IPv4.
    pub(super) fn inside(&mut self, is_ipv4: bool) -> Result<Ipv6Addr, WireError> {
        match is_ipv4 {
            true => Ok(self.ipv4()?.to_ipv6_mapped()),
            false => Ok(Ipv6Addr::from(self.array::<16>()?)),
        }
    }

    /// Reads a text of up to 255 bytes, for logs and terminals: control characters are replaced.
    pub(super) fn shown_text(&mut self) -> Result<String, WireError> {
        let len = self.u8()?;
        let text = str::from_utf8(self.take(len.into())?).map_err(|_| WireError::Malformed("not a text"))?;
        Ok(text.replace(char::is_control, "\u{fffd}"))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Appends an address, as IPv4 if it is a mapped one.
pub(super) fn put_inside(out: &mut Vec<u8>, address: Ipv6Addr) {
    match address.to_ipv4_mapped() {
        Some(address) => out.extend_from_slice(&address.octets()),
        None => out.extend_from_slice(&address.octets()),
    }
}

/// Appends a text, cut to 255 bytes at most.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    let mut len = text.len().min(u8::MAX.into());
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    out.push(len as u8);
    out.extend_from_slice(&text.as_bytes()[..len]);
}
