//! The network of the demo and of most tests.
//!
//! ```text
//!   client --- translator --- server        client      2001:db8:1::2, IPv6 only
//!                    \        /             translator  2001:db8:1::1, 198.51.100.1, and the device "nat64"
//!                     router                server      198.51.100.2 and 203.0.113.2, IPv4 only
//!                  MTU 1400 to the router
//! ```
//! 198.51.100.2 is one link away; 203.0.113.2 is behind the router and the small link.

use crate::{Error, Namespace};

/// The client's address.
pub const CLIENT: &str = "2001:db8:1::2";
/// The public address that the client is translated to.
pub const PUBLIC: &str = "192.0.2.1";
/// The server as the client sees it.
pub const SERVER: &str = "2001:db8:64::c633:6402";
/// The server's own address.
pub const SERVER4: &str = "198.51.100.2";
/// The server behind the small link, as the client sees it.
pub const FAR: &str = "2001:db8:64::cb00:7102";
/// MTU of the small link, bytes.
pub const SMALL_MTU: u32 = 1400;

/// The hosts of the network.
#[derive(Debug)]
pub struct Topology {
    /// Has only IPv6.
    pub client: Namespace,
    /// Forwards; a test starts the translator here.
    pub translator: Namespace,
    /// Router between the translator and the far address of the server.
    pub router: Namespace,
    /// Has only IPv4.
    pub server: Namespace,
}

impl Topology {
    /// Makes the hosts, links, addresses and routes; nothing translates yet.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses any of it.
    pub fn new() -> Result<Self, Error> {
        let [client, translator, router, server] =
            ["client", "translator", "router", "server"].map(Namespace::new);
        let t = Topology { client: client?, translator: translator?, router: router?, server: server? };
        t.client.connect("eth0", &t.translator, "inside")?;
        t.server.connect("eth0", &t.translator, "outside")?;
        t.router.connect("near", &t.translator, "small")?;
        t.router.connect("far", &t.server, "eth1")?;
        t.translator.forward()?;
        t.router.forward()?;
        t.set_addresses()?;
        t.set_routes()?;
        Ok(t)
    }

    fn set_addresses(&self) -> Result<(), Error> {
        self.client.address("eth0", &format!("{CLIENT}/64"))?;
        self.translator.address("inside", "2001:db8:1::1/64")?;
        self.translator.address("outside", "198.51.100.1/24")?;
        self.server.address("eth0", "198.51.100.2/24")?;
        self.translator.address("small", "10.64.0.1/30")?;
        self.router.address("near", "10.64.0.2/30")?;
        self.router.address("far", "203.0.113.1/24")?;
        self.server.address("eth1", "203.0.113.2/24")
    }

    fn set_routes(&self) -> Result<(), Error> {
        self.client.ip("-6 route add default via 2001:db8:1::1")?;
        self.translator.ip("route add 203.0.113.0/24 via 10.64.0.2")?;
        self.translator.ip(&format!("link set small mtu {SMALL_MTU}"))?;
        self.router.ip(&format!("link set near mtu {SMALL_MTU}"))?;
        self.router.ip("route add default via 10.64.0.1")?;
        self.server.ip("route add default via 198.51.100.1")?;
        // Replies to packets from the router go back through it.
        self.server.ip("route add default via 203.0.113.1 table 100")?;
        self.server.ip("rule add from 203.0.113.2 lookup 100")
    }

    /// Adds a link in the translator between a P4 switch, at "cpu1", and its controller, at "cpu0".
    /// Its frames have a header of twelve bytes more.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses it.
    pub fn connect_switch(&self) -> Result<(), Error> {
        self.translator.ip("link set lo up")?;
        // DPDK's packet sockets have a group number of process and interface, which must not meet another
        // one's.
        self.translator.ip("link add cpu0 index 32768 type veth peer name cpu1 index 16384")?;
        for device in ["cpu0", "cpu1"] {
            self.translator.sysctl(&format!("net.ipv6.conf.{device}.disable_ipv6"), "1")?;
            self.translator.run(&format!("ethtool -K {device} tso off gso off gro off"))?;
            self.translator.ip(&format!("link set {device} mtu 1600 up"))?;
        }
        Ok(())
    }

    /// Turns checksum and segmentation offload of client and server on or off, if `ethtool` is installed.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses it.
    pub fn set_offloads(&self, on: bool) -> Result<(), Error> {
        if !crate::has_program("ethtool") {
            return Ok(());
        }
        let state = if on { "on" } else { "off" };
        for host in [&self.client, &self.server] {
            host.run(&format!("ethtool -K eth0 tx {state} tso {state} gso {state} gro {state}"))?;
        }
        Ok(())
    }
}
