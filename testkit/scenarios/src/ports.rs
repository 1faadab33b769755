//! Gatun's configuration of its ports.

/// Configuration of two translators in series: general sections of each process, and the devices of its
/// ports, the port towards the hosts first.
pub(crate) struct Pair {
    /// General sections of CLAT and PLAT.
    pub(crate) general: [String; 2],
    pub(crate) clat: [String; 2],
    pub(crate) plat: [String; 2],
}

/// Ports on veth cables.
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
