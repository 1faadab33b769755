//! Reload of a running daemon with Ethernet ports.

use crate::harness::{Daemon, counter, ping};
use crate::xdp::{CONFIG, in_xdp_lab, xdp_network};
use gatun_testkit::Process;
use gatun_testkit::topology::{FAR, SERVER};
use rustix::process::Signal;
use std::process::Stdio;
use std::time::Duration;

const POOL: &str = "prefixes = [\"192.0.2.1\", \"198.51.100.65\"]";

#[test]
fn pools_prefixes_addresses_and_routes_change_under_traffic() {
    in_xdp_lab("live_ports::pools_prefixes_addresses_and_routes_change_under_traffic", || {
        let net = xdp_network();
        // The kernel has an address that the pool uses first.
        net.translator.address("outside", "198.51.100.65/32").unwrap();
        net.client.ip("route add 2001:db8:65::/96 via 2001:db8:1::64").unwrap();
        let daemon = Daemon::start(&net, CONFIG);
        assert!(ping(&net.client, 1, SERVER, "") && ping(&net.client, 1, FAR, ""));
        // A ping every five milliseconds, during the whole test.
        let mut command = net.client.command("ping");
        command.args(["-q", "-i", "0.005", "-c", "1000", "-W", "2", SERVER]).stdout(Stdio::piped());
        let steady = Process::start(&mut command).unwrap();

        // Add a public address, which ARP announces, a prefix, and an address of a port.
        let [second, own] = ["2001:db8:65::c633:6402", "198.51.100.70"];
        assert!(!ping(&net.client, 1, second, "-W 1") && !ping(&net.server, 1, own, "-W 1"));
        let more = CONFIG
            .replace(POOL, "prefixes = [\"192.0.2.1\", \"198.51.100.65\", \"198.51.100.66\"]")
            .replace("pool6 = \"2001:db8:64::/96\"", "pool6 = [\"2001:db8:64::/96\", \"2001:db8:65::/96\"]")
            .replace("[\"198.51.100.64/24\"]", "[\"198.51.100.64/24\", \"198.51.100.70/24\"]");
        let said = daemon.reload(&more, "reload: done; ended: ");
        assert!(
            said.contains("port outside: its addresses\n") && said.contains("done; ended: 0 sessions"),
            "{said}"
        );
        assert!(ping(&net.client, 1, second, ""), "{}", daemon.stderr());
        assert!(ping(&net.server, 1, own, ""));

        // Keep only the new address: other sessions start again there, and the kernel answers for its own
        // again.
        assert!(!ping(&net.server, 1, "198.51.100.65", "-W 1"));
        let fewer = CONFIG.replace(POOL, "prefixes = [\"198.51.100.66\"]");
        daemon.reload(&fewer, "reload: done; ended: ");
        assert!(ping(&net.client, 1, SERVER, "") && ping(&net.client, 1, "198.51.100.2", ""));
        let neighbours = net.server.run("ip neigh show 198.51.100.66").unwrap();
        assert!(neighbours.contains("lladdr"), "{neighbours}");
        // Its neighbour entry still had the translator's MAC address.
        net.server.ip("neigh flush dev eth0").unwrap();
        assert!(ping(&net.server, 1, "198.51.100.65", ""), "the kernel's");
        assert!(!ping(&net.client, 1, second, "-W 1") && !ping(&net.server, 1, own, "-W 1"));

        // Remove and add a route.
        let route = "routes = [\"203.0.113.0/24 via 10.64.1.2\"]\n";
        net.router.ip("route add 198.51.100.66 via 10.64.1.64").unwrap();
        assert!(ping(&net.client, 1, FAR, ""));
        let said = daemon.reload(&fewer.replace(route, ""), "reload: done; ended: ");
        assert!(said.contains("port small: its routes"), "{said}");
        assert!(!ping(&net.client, 1, FAR, "-W 1"));
        let said = daemon.reload(&fewer, "reload: done; ended: ");
        assert!(said.contains("port small: its routes"), "{said}");
        assert!(ping(&net.client, 1, FAR, ""), "{}", daemon.stderr());

        let said = daemon.reload(&fewer.replace(route, "mtu = 1400\n"), "nothing has changed");
        assert!(said.contains("needs a restart: ports with backend \"xdp\": "), "{said}");
        assert!(ping(&net.client, 1, SERVER, ""));

        let (status, output) = steady.output(Duration::from_secs(20)).unwrap();
        assert!(status.success() && output.contains(" 0% packet loss"), "{output}\n{}", daemon.stderr());
        let ended = daemon.stop(Signal::TERM);
        assert_eq!(counter(&ended.stdout, "unrouted"), 1, "{}", ended.stdout);
    });
}
