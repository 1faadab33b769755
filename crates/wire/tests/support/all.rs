//! Tests of `wire` that give each packet to another translator, too: the module `common` at the crate's root
//! is beside.rs.

#[path = "../wire/four_to_six.rs"]
mod four_to_six;
#[path = "../wire/icmp_errors.rs"]
mod icmp_errors;
#[path = "../wire/parse.rs"]
mod parse;
#[path = "../wire/properties.rs"]
mod properties;
#[path = "../wire/rfc3022.rs"]
mod rfc3022;
#[path = "../wire/six_to_four.rs"]
mod six_to_four;
#[path = "../wire/sizes.rs"]
mod sizes;
#[path = "../wire/super_packets.rs"]
mod super_packets;
#[path = "../wire/zero_checksum.rs"]
mod zero_checksum;
