//! Protocol P4Runtime 1.4: messages, client and server stubs.
//!
//! The definitions in `proto/` follow the specification
//! (<https://p4.org/p4-spec/p4runtime/main/P4Runtime-Spec.html>): names and numbers are the standard's, so
//! that any controller and any switch understand each other. The modules have the names of the packages.
//!
//! ```
//! use gatun_p4runtime::p4::v1::{CapabilitiesRequest, p4_runtime_client::P4RuntimeClient};
//! # async fn version() -> Result<String, Box<dyn std::error::Error>> {
//! let mut client = P4RuntimeClient::connect("http://192.0.2.1:9559").await?;
//! let answer = client.capabilities(CapabilitiesRequest {}).await?;
//! # Ok(answer.into_inner().p4runtime_api_version)
//! # }
//! ```
#![forbid(unsafe_code)]

mod text;

pub use generated::{google, p4};
pub use text::{TextError, p4info_from_text};

/// All definitions, as an encoded `google.protobuf.FileDescriptorSet`.
pub const DEFINITIONS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/definitions.bin"));

// Generated code has no comments where the definitions have none.
#[allow(missing_docs, unreachable_pub, clippy::all, rustdoc::all)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/p4runtime.rs"));
}
