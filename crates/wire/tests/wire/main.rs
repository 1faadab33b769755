//! The crate from outside, in one program: a test program each would be linked ten times.

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
mod zero_checksum;
