//! ARP (RFC 826), for IPv4 on Ethernet.
//!
//! ```text
//!   0 hardware 1 | 2 protocol 0x0800 | 4 lengths 6, 4 | 6 operation
//!   8 sender MAC | 14 sender address | 18 target MAC | 24 target address | 28
//! ```

use crate::address::is_host4;
use crate::bytes::{array, mac, put, v4};
use crate::{Dropped, Mac};
use core::net::Ipv4Addr;

/// Message length in bytes.
pub(crate) const LEN: usize = 28;
/// Ethernet, IPv4, and the lengths of their addresses.
const HEAD: [u8; 6] = [0, 1, 8, 0, 6, 4];
const OPERATION: usize = 6;
const REQUEST: u16 = 1;
const REPLY: u16 = 2;

/// Parsed ARP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) is_request: bool,
    pub(crate) sender_mac: Mac,
    /// Unspecified in a probe (RFC 5227 2.1.1).
    pub(crate) sender: Ipv4Addr,
    pub(crate) target: Ipv4Addr,
}

impl Message {
    /// Reads the bytes after the Ethernet header: the message, possibly with padding.
    pub(crate) fn read(bytes: &[u8]) -> Result<Message, Dropped> {
        let read = || {
            let head: [u8; 6] = array(bytes, 0)?;
            let operation = u16::from_be_bytes(array(bytes, OPERATION)?);
            let message = Message {
                is_request: operation == REQUEST,
                sender_mac: mac(bytes, 8)?,
                sender: v4(bytes, 14)?,
                target: v4(bytes, 24)?,
            };
            (head == HEAD && (REQUEST..=REPLY).contains(&operation)).then_some(message)
        };
        let message = read().ok_or(Dropped::ArpMalformed)?;
        // RFC 1812 3.3.2: a sender MAC of several devices is not accepted.
        if !message.sender_mac.is_unicast() || !(message.is_probe() || is_host4(message.sender)) {
            return Err(Dropped::ArpAddress);
        }
        Ok(message)
    }

    /// Returns true for a probe: the sender checks if the target address is free (RFC 5227 2.1.1).
    pub(crate) fn is_probe(&self) -> bool {
        self.is_request && self.sender.is_unspecified()
    }
}

/// Turns the request into its reply, in place (RFC 826, "Packet Reception").
pub(crate) fn write_reply(bytes: &mut [u8], to: &Message, our_mac: Mac) {
    put(bytes, OPERATION, &REPLY.to_be_bytes());
    put(bytes, 8, &our_mac.0);
    put(bytes, 14, &to.target.octets());
    put(bytes, 18, &to.sender_mac.0);
    put(bytes, 24, &to.sender.octets());
}

/// ARP request from `sender`. With an unspecified sender it is a probe (RFC 5227 2.1.1), with the target as
/// sender an announcement (RFC 5227 2.3).
pub(crate) fn request(our_mac: Mac, sender: Ipv4Addr, target: Ipv4Addr) -> [u8; LEN] {
    let mut message = [0; LEN];
    put(&mut message, 0, &HEAD);
    put(&mut message, OPERATION, &REQUEST.to_be_bytes());
    put(&mut message, 8, &our_mac.0);
    put(&mut message, 14, &sender.octets());
    // The target's MAC is zero: the request asks for it.
    put(&mut message, 24, &target.octets());
    message
}
