//! Integration tests in one program, so that the crate is linked once.

mod common;

mod four_to_six;
mod icmp_errors;
mod own_icmp;
mod parse;
mod properties;
mod rfc3022;
mod six_to_four;
mod sizes;
mod super_packets;
mod vxlan;
mod vxlan_kernel;
mod zero_checksum;
