//! Peers: programs of other projects that take part in tests.

mod iperf;
pub mod tayga;
pub mod testpmd;

pub use iperf::Iperf;
