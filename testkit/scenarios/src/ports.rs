//! Gatun's configuration of its ports.

/// Two translators, one behind the other: configuration of the whole process, and of the devices of their ports, towards the
/// hosts first.
pub(crate) struct Pair {
    /// Of CLAT and PLAT.
    pub(crate) general: [String; 2],
    pub(crate) clat: [String; 2],
    pub(crate) plat: [String; 2],
}

/// Ports on the cables of the kernel.
pub(crate) const VETH_PORTS: &str = r#"[[port]]
name = "inside"
backend = "xdp"
device = "a0"
addresses = ["2001:db8:1::64/64", "10.1.0.64/24"]
routes = ["2001:db8:8000::/33 via 2001:db8:1::2", "100.64.0.0/10 via 10.1.0.2"]

[[port]]
name = "outside"
backend = "xdp"
device = "b0"
addresses = ["198.51.100.64/24", "2001:db8:2::64/64"]
routes = ["198.19.0.0/16 via 198.51.100.2"]
"#;
