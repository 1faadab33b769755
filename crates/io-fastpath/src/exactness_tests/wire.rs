//! Tests of `wire`, with the program beside each translation of a packet (`beside_wire.rs`).

#[path = "../../../wire/tests/wire/four_to_six.rs"]
mod four_to_six;
#[path = "../../../wire/tests/wire/icmp_errors.rs"]
mod icmp_errors;
#[path = "../../../wire/tests/wire/parse.rs"]
mod parse;
#[path = "../../../wire/tests/wire/properties.rs"]
mod properties;
#[path = "../../../wire/tests/wire/rfc3022.rs"]
mod rfc3022;
#[path = "../../../wire/tests/wire/six_to_four.rs"]
mod six_to_four;
#[path = "../../../wire/tests/wire/sizes.rs"]
mod sizes;
#[path = "../../../wire/tests/wire/super_packets.rs"]
mod super_packets;
#[path = "../../../wire/tests/wire/zero_checksum.rs"]
mod zero_checksum;
