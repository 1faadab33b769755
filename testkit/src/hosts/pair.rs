//! Network of boxes that can take each other's place, with BIRD on them and on two routers: two boxes of a
//! pair, or more nodes of a cluster.
//!
//! ```text
//!               /--- a ---\               client   2001:db8:1::2, IPv6 only
//!   client --- inside      outside --- server      198.51.100.2, IPv4 only
//!               \--- b ---/               inside, outside: routers, which learn by BGP which box to use
//!                                         a, b: Gatun and BIRD, with a link between them (10.0.9.0/30)
//! ```
//! More than two boxes are connected by a switch: box n has 10.0.9.n/24 there, and 10.0.8.n is behind it,
//! for tunnels between the boxes. The boxes announce the kernel's tables 186 (own) and 187 (backup) of
//! `[announce]`, the backup's routes with a longer path. They learn the networks behind the routers, by BGP,
//! into the main table ([`TRACKED`]). BFD finds a dead neighbour after 150 ms.

use super::{Namespace, Process, wait_until};
use crate::Error;
use std::fs;
use std::time::Duration;

/// Address of the client.
pub const CLIENT: &str = "2001:db8:1::2";
/// Address of the server.
pub const SERVER4: &str = "198.51.100.2";
/// The server as the client sees it.
pub const SERVER: &str = "2001:db8:64::198.51.100.2";
/// Networks of client and server, which the boxes learn from the routers.
pub const TRACKED: [&str; 2] = ["2001:db8:1::/64", "198.51.100.0/24"];
/// Addresses of the boxes on the link between them.
pub const BOXES: [&str; 2] = ["10.0.9.1", "10.0.9.2"];
/// Time limit for BIRD to learn a route.
const LEARN_MAX: Duration = Duration::from_secs(20);

/// Ways of packets between a box and the routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the box to the routers.
    ToRouters,
    /// From the routers to the box.
    FromRouters,
}

/// The hosts of the network.
pub struct PairNetwork {
    /// Has only IPv6.
    pub client: Namespace,
    /// Router of the client.
    pub inside: Namespace,
    /// The boxes.
    pub boxes: Vec<Namespace>,
    /// Router of the server.
    pub outside: Namespace,
    /// Has only IPv4.
    pub server: Namespace,
    /// Switch between more than two boxes.
    _switch: Option<Namespace>,
    _birds: Vec<Process>,
}

/// Protocols of every BIRD here.
const COMMON: &str = "\
protocol device { scan time 1; }
protocol bfd { interface \"*\" { interval 50 ms; multiplier 3; }; }
template bgp neighbour {
    bfd on;
    connect retry time 1; connect delay time 1; error wait time 1, 2;
}
";

impl PairNetwork {
    /// Makes the network of a pair.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses any of it, or BIRD does not start.
    pub fn new() -> Result<PairNetwork, Error> {
        PairNetwork::with_boxes(2)
    }

    /// Makes the hosts, links, addresses and static routes, and starts BIRD on routers and boxes, of which
    /// there are two to seven.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses any of it, or BIRD does not start.
    pub fn with_boxes(count: u8) -> Result<PairNetwork, Error> {
        let [client, inside, outside, server] = ["client", "inside", "outside", "server"].map(Namespace::new);
        let (client, inside, outside, server) = (client?, inside?, outside?, server?);
        let name = |n: u8| format!("box-{}", char::from(b'a' + n));
        let boxes = (0..count).map(|n| Namespace::new(&name(n))).collect::<Result<Vec<_>, _>>()?;
        client.connect("eth0", &inside, "clients")?;
        server.connect("eth0", &outside, "servers")?;
        client.address("eth0", &format!("{CLIENT}/64"))?;
        inside.address("clients", "2001:db8:1::1/64")?;
        client.ip("-6 route add default via 2001:db8:1::1")?;
        server.address("eth0", &format!("{SERVER4}/24"))?;
        outside.address("servers", "198.51.100.1/24")?;
        server.ip("route add default via 198.51.100.1")?;
        let switch = connect(&boxes)?;
        for host in [&inside, &outside].into_iter().chain(&boxes) {
            host.forward()?;
            // Packets of a session may use different boxes in both directions.
            host.sysctl("net.ipv4.conf.all.rp_filter", "0")?;
            host.sysctl("net.ipv4.conf.default.rp_filter", "0")?;
        }
        for (number, one) in boxes.iter().enumerate() {
            let (n, name) = (number + 1, one.name());
            one.connect("inside", &inside, name)?;
            one.connect("outside", &outside, name)?;
            inside.address(name, &format!("2001:db8:{n}0::1/64"))?;
            one.address("inside", &format!("2001:db8:{n}0::2/64"))?;
            outside.address(name, &format!("10.0.{n}.1/30"))?;
            one.address("outside", &format!("10.0.{n}.2/30"))?;
        }
        let mut birds = vec![
            bird(&inside, &router("ipv6", count, |n| format!("2001:db8:{n}0::"), 64_498))?,
            bird(&outside, &router("ipv4", count, |n| format!("10.0.{n}."), 64_497))?,
        ];
        for (one, n) in boxes.iter().zip(1..) {
            birds.push(bird(one, &announcer(n))?);
        }
        Ok(PairNetwork { client, inside, boxes, outside, server, _switch: switch, _birds: birds })
    }

    /// Returns the number of the box that a router uses for a destination, from 0 on.
    pub fn used(&self, router: &Namespace, destination: &str) -> Option<usize> {
        let route = router.run(&format!("ip route get {destination}")).ok()?;
        self.boxes.iter().position(|one| route.contains(&format!("dev {} ", one.name())))
    }

    /// Waits until both routers use a box for the client's packets and for answers to a public address.
    ///
    /// # Errors
    /// Returns an error if they do not within 20 seconds.
    pub fn wait_until_used(&self, number: usize, public: &str) -> Result<(), Error> {
        let both = || [self.used(&self.inside, SERVER), self.used(&self.outside, public)];
        wait_until(&format!("both routers use box {number}"), LEARN_MAX, || both() == [Some(number); 2])
    }

    /// Sets all links of a box to the routers down or up.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses it.
    pub fn cut(&self, number: usize, is_up: bool) -> Result<(), Error> {
        self.cut_inside(number, is_up)?;
        self.cut_outside(number, is_up)
    }

    /// Sets the link of a box to the client's router down or up.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses it.
    pub fn cut_inside(&self, number: usize, is_up: bool) -> Result<(), Error> {
        // At the router, so that the box keeps its addresses.
        let name = self.boxes[number].name();
        self.inside.ip(&format!("link set {name} {}", if is_up { "up" } else { "down" }))?;
        if is_up {
            let n = number + 1;
            // The kernel has removed it with the link.
            self.inside.address(name, &format!("2001:db8:{n}0::1/64"))?;
        }
        Ok(())
    }

    /// Sets the link of a box to the server's router down or up.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses it.
    pub fn cut_outside(&self, number: usize, is_up: bool) -> Result<(), Error> {
        let name = self.boxes[number].name();
        self.outside.ip(&format!("link set {name} {}", if is_up { "up" } else { "down" }))?;
        Ok(())
    }

    /// Loses all packets of a way between a box and the routers, or no longer. The links keep their carrier,
    /// so only BFD notices it.
    ///
    /// # Errors
    /// Returns an error if nft is missing, or the kernel refuses it.
    pub fn lose(&self, number: usize, way: Way, is_lost: bool) -> Result<(), Error> {
        let name = self.boxes[number].name();
        let receivers = match way {
            Way::ToRouters => vec![(&self.inside, name), (&self.outside, name)],
            Way::FromRouters => ["inside", "outside"].map(|device| (&self.boxes[number], device)).to_vec(),
        };
        for (host, device) in receivers {
            let table = format!("netdev lost-{device}");
            let rules = match is_lost {
                true => format!(
                    "add table {table} {{ chain in {{ type filter hook ingress device \"{device}\" priority 0; policy drop; }}; }}"
                ),
                false => format!("delete table {table}"),
            };
            crate::run(host.command("nft").arg(rules))?;
        }
        Ok(())
    }
}

/// Connects the boxes: two of them by a link, more by a switch, which is returned.
fn connect(boxes: &[Namespace]) -> Result<Option<Namespace>, Error> {
    if let [first, second] = boxes {
        first.connect("peer", second, "peer")?;
        for (one, address) in boxes.iter().zip(BOXES) {
            one.address("peer", &format!("{address}/30"))?;
        }
        return Ok(None);
    }
    let switch = Namespace::new("switch")?;
    switch.ip("link add bridge type bridge")?;
    switch.ip("link set bridge up")?;
    for (one, n) in boxes.iter().zip(1..) {
        one.connect("peer", &switch, one.name())?;
        switch.ip(&format!("link set {} master bridge", one.name()))?;
        one.address("peer", &format!("10.0.9.{n}/24"))?;
        for other in (1..=boxes.len()).filter(|other| *other != n) {
            one.ip(&format!("route add 10.0.8.{other}/32 via 10.0.9.{other}"))?;
        }
    }
    Ok(Some(switch))
}

/// Settings of a router's BIRD, with the boxes as neighbours: `network` of a box with 1 and 2 behind it.
fn router(family: &str, count: u8, network: impl Fn(u8) -> String, number: u32) -> String {
    let neighbour = |n: u8| {
        let (name, network) = (char::from(b'a' + n - 1), network(n));
        format!(
            "protocol bgp box_{name} from neighbour {{ local {network}1 as {number}; neighbor {network}2 as 64496; {family} {{ import all; export where proto = \"clients\"; next hop self; }}; }}\n"
        )
    };
    let neighbours: String = (1..=count).map(neighbour).collect();
    format!(
        "router id 10.0.0.{};\n{COMMON}protocol direct clients {{ {family}; interface \"clients\", \"servers\"; }}\nprotocol kernel {{ {family} {{ import none; export where source = RTS_BGP; }}; }}\n{neighbours}",
        number - 64_490
    )
}

/// Settings of a box's BIRD, as in docs/how-to/announce.md.
fn announcer(n: u32) -> String {
    let mut text = format!("router id 10.0.0.{n};\n{COMMON}");
    for (family, v) in [("ipv4", 4), ("ipv6", 6)] {
        text += &format!(
            "{family} table own{v}_table; {family} table backup{v}_table; {family} table gatun{v};\n\
             protocol kernel main{v} {{ {family} {{ table gatun{v}; import none; export where source = RTS_BGP; }}; }}\n"
        );
        for (role, table, preference) in [("own", 186, 200), ("backup", 187, 100)] {
            text += &format!(
                "protocol kernel {role}{v} {{ kernel table {table}; learn; scan time 1; {family} {{ table {role}{v}_table; import filter {{ preference = {preference}; accept; }}; export none; }}; }}\n\
                 protocol pipe {{ table gatun{v}; peer table {role}{v}_table; import all; export none; }}\n"
            );
        }
    }
    text += "filter announced {\n    if proto = \"backup4\" || proto = \"backup6\" then { bgp_path.prepend(64496); bgp_path.prepend(64496); }\n    accept;\n}\n";
    for (name, family, v, local, other, number) in [
        ("outer", "ipv4", 4, format!("10.0.{n}.2"), format!("10.0.{n}.1"), 64_497),
        ("inner", "ipv6", 6, format!("2001:db8:{n}0::2"), format!("2001:db8:{n}0::1"), 64_498),
    ] {
        text += &format!(
            "protocol bgp {name} from neighbour {{ local {local} as 64496; neighbor {other} as {number}; {family} {{ table gatun{v}; import all; export filter announced; next hop self; }}; }}\n"
        );
    }
    text
}

fn bird(host: &Namespace, settings: &str) -> Result<Process, Error> {
    let wrong = |error: std::io::Error| Error(format!("cannot write BIRD's settings: {error}"));
    // The sandbox has its own /run.
    fs::create_dir_all("/run/bird").map_err(wrong)?;
    let [file, control, pid] = ["conf", "ctl", "pid"].map(|end| format!("/run/bird/{}.{end}", host.name()));
    fs::write(&file, settings).map_err(wrong)?;
    Process::start(host.command("bird").args(["-f", "-c", &file, "-s", &control, "-P", &pid]))
}
