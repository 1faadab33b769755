//! Keys of ports, workers and DPDK.

use super::forms::{ADDRESS, ARGUMENT, DEVICE, NAME, NEIGHBOUR, ROUTE};
use super::kind::{Key, Kind, key};
use super::words::{BACKEND, HUGE_PAGES, MODE, words};

/// `[[port]]`
pub(crate) const PORT: &[Key] = &[
    key("name", NAME, "\"wan\"", "Name of the port.").default("the device's name"),
    key("backend", Kind::Words(|| words(BACKEND)), "\"tun\"", "Source of packets: a TUN device of the Linux kernel (`tun`), a network interface through AF_XDP (`xdp`, see docs/how-to/xdp.md), or a DPDK device (`dpdk`, see docs/how-to/dpdk.md). All ports have the same backend.").default("\"tun\""),
    key("device", DEVICE, "\"gatun0\"", "Name of the device, at most 15 bytes. `xdp`: the interface. `dpdk`: the bus address of a card, or the name of a driver with a number and arguments, for example `net_memif0,role=client,socket=/run/memif.sock`. Several ports on one device need different `vlan`.").default("\"gatun0\", \"gatun1\", ...; none for `xdp` and `dpdk`"),
    key("mode", Kind::Words(|| words(MODE)), "\"create\"", "`tun`: `create` makes the device and removes it at the end. `attach` uses an existing persistent device (`ip tuntap add mode tun ...`); this needs no privilege if the device belongs to the user (`user NAME`), is up, and has the MTU, the addresses and the routes already. `xdp`: `native` runs the XDP program in the driver, `skb` in the kernel before its network stack, `auto` in the driver if it supports XDP.").default("\"create\"; \"auto\" for `xdp`"),
    key("queues", Kind::Integer { min: 1, max: 256 }, "2", "Queues of the device, each served by one worker. With `[[nat64]]` or `[[nat44]]`, each worker has its own public addresses, at least one of each pool, and packets go to the worker that has their session. `xdp`: must be the number of queues of the interface. `dpdk`: at most the number of queues of the device.").default("one per processor; one with stateful instances, and for `xdp` and `dpdk`"),
    key("addresses", Kind::List(&ADDRESS), "[\"192.0.2.1/24\", \"2001:db8::1/64\"]", "`tun`: addresses of the host on the device. They do not belong to the translator: see `own4` and `own6`. `xdp`, `dpdk`: addresses of the translator on the link, which answer ARP, neighbour discovery and pings. The kernel keeps its own addresses.").default("[]"),
    key("routes", Kind::AutoOr(&ROUTE), "\"auto\"", "`tun`: routes to the device. `\"auto\"` adds routes to each `pool6`, each prefix of a `pool`, the IPv4 side of each mapping and the own addresses, with adjacent prefixes joined. A list adds the routes in it. `false` adds none. `xdp`, `dpdk`: routes of the translator, for example `\"0.0.0.0/0 via 198.51.100.1\"`. A prefix without `via` is on the link.").default("\"auto\"; none for `xdp` and `dpdk`"),
    key("precede_routes", Kind::Flag, "true", "`tun`, `mode = \"create\"`: gives the routes of the device precedence over routes of the host to the same network, for example to a LAN whose whole prefix is a pool. `false`: `gatun run` refuses to start and names the host's route; a reload keeps that route. `true`: packets go to the device, and the log names the host's route. It stays in the table and is used again once the device is gone. Gatun removes the device at its end. After a stateful translator was killed, the device stays until the next start or `ip link delete`.").default("false"),
    key("mtu", Kind::Integer { min: 1280, max: 65_535 }, "1500", "`tun`: MTU of the device, bytes. `xdp`: largest IP packet that is sent. `dpdk`: the same, and the MTU that the device is set to, if it supports that.").default("the larger of `mtu4` and `mtu6`; the device's for `xdp` and `dpdk`"),
    key("offload", Kind::Flag, "true", "`tun`: passes segments of up to 64 KB as one packet (TSO, USO). `false` is many times slower; use it for debugging only.").default("true"),
    key("udp_gro", Kind::Flag, "false", "`tun`: gives consecutive UDP datagrams of one flow to the kernel together (generic receive offload), which doubles the packets per second of one flow at best. Needs Linux 6.2. Each datagram leaves the host unchanged, except with kernels that damage datagrams when they segment them: `gatun doctor` reports those of Linux 7.0 to 7.1.4. See decisions/0013-udp-together.md for datagrams that are not joined.").default("false"),
    key("vlan", Kind::List(&Kind::Integer { min: 1, max: 4094 }), "7", "`xdp`, `dpdk`: VLAN of the port's frames (802.1Q), or two VLANs, the outer one (802.1ad) first.").default("none"),
    key("switch_port", Kind::Integer { min: 0, max: 511 }, "1", "`dpdk`: number of a port of the P4 switch that the device is connected to, by the switch's port for its controller. The switch runs Gatun's program (`p4/`), and sends each packet with a header that names reason and port. Several ports on the device need different `switch_port` or `vlan`. A change needs a restart.").default("none"),
    key("switch", NAME, "\"edge\"", "`dpdk`: name of the switch of `switch_port`, in `switches` of `[[offload]]`. A change needs a restart.").default("the only switch"),
    key("neighbours", Kind::List(&NEIGHBOUR), "[\"198.51.100.1 at 02:00:00:00:00:01\"]", "`xdp`, `dpdk`: static neighbours, next hops included. Gatun sends no ARP or neighbour discovery for them and ignores what they announce. Use it on links where neighbours do not answer or are not trusted.").default("[]"),
    key("answers", Kind::AutoOr(&ADDRESS), "\"auto\"", "`xdp`, `dpdk`: further addresses that ARP and neighbour discovery answer for. `\"auto\"`: addresses of pools, prefixes, mappings and own addresses that lie in a network of `addresses`, because no router has a route to them.").default("\"auto\""),
];

/// `[workers]`
pub(crate) const WORKERS: &[Key] = &[
    key("cores", Kind::List(&Kind::Integer { min: 0, max: 1023 }), "[2, 3]", "CPU numbers of the workers, one for each. Each worker is pinned to its CPU; other threads of the daemon run on other CPUs, if there are any. A change needs a restart.").default("`dpdk`: the last CPUs that the process may use; otherwise the kernel chooses"),
];

/// `[dpdk]`
pub(crate) const DPDK: &[Key] = &[
    key("huge_pages", Kind::Words(|| words(HUGE_PAGES)), "\"always\"", "Use of huge pages for packet buffers: `auto` (if enough are free), `always` (otherwise `gatun run` fails), or `never`. Without huge pages packets take more CPU time, and network cards may not work.").default("\"auto\""),
    key("eal", Kind::List(&ARGUMENT), "[\"--log-level=pmd:debug\"]", "Further arguments for DPDK's environment (EAL), appended to Gatun's own.").default("[]"),
];
