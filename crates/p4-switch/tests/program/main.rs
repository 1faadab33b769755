//! The P4 program against the engine. Frames open sessions in an engine, which become entries of the
//! switch. Both get every frame. The switch sends the bytes of the engine and its Ethernet host, or gives the
//! frame to the controller as it is, with a reason.
//!
//! ```text
//!             +--> Ether -> Nat -> Ether --> frame
//!    frame ---|                                == ?
//!             +--> switch: p4/gatun.spec --> frame, or controller
//! ```

mod beside;
mod beside_nat;
mod beside_wire;
#[path = "../../../wire/tests/support/beside.rs"]
mod common;
mod controller;
mod counts;
mod entries;
mod histories;
mod host;
mod moves;
#[path = "../../../nat/tests/support/nat44.rs"]
mod nat44;
#[path = "../../../nat/tests/support/nat64.rs"]
mod nat64;
mod packets;
mod pair;
mod pending;
mod sessions;
mod siit;
mod vectors;
#[path = "../../../wire/tests/support/all.rs"]
mod wire;
