//! The P4 program against the engine. Frames open sessions in an engine, which become entries of the
//! switch. Both get every frame. The switch sends the bytes of the engine and its Ethernet host, or gives the
//! frame to the controller as it is, with a reason.
//!
//! ```text
//!             +--> Ether -> Nat -> Ether --> frame
//!    frame ---|                                == ?
//!             +--> switch: p4/gatun.spec --> frame, or controller
//! ```

mod entries;
mod histories;
mod host;
mod moves;
mod packets;
mod pair;
mod pending;
mod sessions;
mod siit;
mod vectors;
