//! Peers: an echo server, and programs of other projects that take part in tests.

mod echo;
mod etcd;
mod iperf;
mod proxy;
pub mod tayga;
pub mod testpmd;

pub use echo::{ECHO_PORT, echo};
pub use etcd::{EtcdMembers, EtcdPlace, EtcdTls};
pub use iperf::Iperf;
pub use proxy::{Proxy, ProxyMode};
