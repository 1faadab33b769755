//! Both ends of a flow: transports, addresses and ports.

use std::net::{Ipv4Addr, Ipv6Addr};

pub(super) const TCP: usize = 0;
pub(super) const UDP: usize = 1;
pub(super) const ICMP: usize = 2;

/// Address and port inside; private IPv4 addresses are ::ffff:a.b.c.d. [`End4`] is the same outside.
pub(super) type End6 = (Ipv6Addr, u16);
pub(super) type End4 = (Ipv4Addr, u16);
