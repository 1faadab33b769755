//! Routes of the host, and those of the device.

use crate::harness::{CREATE, Daemon, SIIT, in_lab, network, ping};
use gatun_testkit::Topology;
use gatun_testkit::topology::SERVER;
use rustix::process::Signal;
use std::time::Duration;

/// IPv4 and IPv6 routes of the translator, sorted, one per line.
fn routes(net: &Topology) -> Vec<String> {
    let of = |family: &str| net.translator.run(&format!("ip {family} route")).unwrap();
    let mut lines: Vec<String> = (of("-4") + &of("-6")).lines().map(|line| line.trim().to_owned()).collect();
    lines.sort();
    lines
}

fn goes_to(net: &Topology, address: &str) -> String {
    let told = net.translator.run(&format!("ip route get {address}")).unwrap();
    told.split_whitespace().skip_while(|word| *word != "dev").nth(1).unwrap().to_owned()
}

/// Prefixes that are the translator's own links.
const TAKEN: &str = "routes = [\"2001:db8:64::/96\", \"198.51.100.0/24\", \"2001:db8:1::/64\"]\n";

#[test]
fn a_conflicting_host_route_is_kept_and_refuses_the_start() {
    in_lab("routes::a_conflicting_host_route_is_kept_and_refuses_the_start", || {
        let net = network();
        let before = routes(&net);
        let mapped = SIIT.replace("192.0.2.1\"", "10.64.0.0/30\"").replace("::2\" }", "::10/126\" }");
        for (config, named) in [
            (
                format!("{CREATE}{TAKEN}{SIIT}"),
                "198.51.100.0/24 dev outside proto kernel scope link src 198.51.100.1",
            ),
            (format!("{CREATE}{TAKEN}{SIIT}"), "2001:db8:1::/64 dev inside proto kernel metric 256"),
            (format!("{CREATE}{mapped}"), "10.64.0.0/30 dev small proto kernel scope link src 10.64.0.1"),
        ] {
            let ended = Daemon::spawn(&net, &config, &[]).wait();
            assert!(!ended.success);
            for part in [named, "precede_routes = true", "list other networks in `routes`"] {
                assert!(ended.stderr.contains(part), "'{part}' in {}", ended.stderr);
            }
            assert_eq!(routes(&net), before);
            assert!(net.translator.run("ip link show nat64").is_err(), "nothing was made");
        }
        // An unreachable route with a higher metric is accepted: it applies while Gatun does not run.
        net.translator.ip("route add blackhole 192.0.2.1/32 metric 4096").unwrap();
        let daemon = Daemon::start(&net, &format!("{CREATE}{SIIT}"));
        assert!(ping(&net.client, 1, SERVER, ""));
        daemon.stop(Signal::TERM);
        // A route with a lower metric is refused.
        net.translator.ip("route add blackhole 192.0.2.14/32").unwrap();
        let ended = Daemon::spawn(&net, &format!("{CREATE}{SIIT}"), &[]).wait();
        assert!(ended.stderr.contains("blackhole 192.0.2.14/32"), "{}", ended.stderr);
    });
}

#[test]
fn preceded_routes_apply_again_after_the_end_and_after_a_crash() {
    in_lab("routes::preceded_routes_apply_again_after_the_end_and_after_a_crash", || {
        let net = network();
        let before = routes(&net);
        let precede = format!("{CREATE}{TAKEN}precede_routes = true\n{SIIT}");
        for end in [Signal::TERM, Signal::KILL] {
            let mut daemon = Daemon::start(&net, &precede);
            for named in
                ["198.51.100.0/24 dev outside proto kernel", "2001:db8:1::/64 dev inside proto kernel"]
            {
                let said = daemon.stderr();
                assert!(
                    said.lines().any(|l| l.contains("takes precedence over") && l.contains(named)),
                    "{said}"
                );
            }
            assert_eq!(goes_to(&net, "198.51.100.2"), "nat64");
            assert_eq!(goes_to(&net, "2001:db8:1::2"), "nat64");
            let now = routes(&net);
            assert!(before.iter().all(|route| now.contains(route)), "{before:#?} in {now:#?}");
            // The same holds after the link was down.
            net.translator.ip("link set nat64 down").unwrap();
            net.translator.ip("link set nat64 up").unwrap();
            daemon.says("link is up again");
            assert_eq!(routes(&net), now);
            assert_eq!(goes_to(&net, "198.51.100.2"), "nat64");
            daemon.process.signal(end).unwrap();
            daemon.process.wait(Duration::from_secs(10)).unwrap();
            assert_eq!(routes(&net), before);
        }
        assert_eq!(goes_to(&net, "198.51.100.2"), "outside");
    });
}

#[test]
fn a_reload_keeps_and_reports_host_routes() {
    in_lab("routes::a_reload_keeps_and_reports_host_routes", || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}routes = [\"2001:db8:64::/96\"]\n{SIIT}"));
        let before = routes(&net);
        let more = "routes = [\"2001:db8:64::/96\", \"198.51.100.0/24\", \"203.0.113.128/25\"]\n";
        let said = daemon.reload(&format!("{CREATE}{more}{SIIT}"), "precede_routes");
        assert!(said.contains("198.51.100.0/24 dev outside proto kernel"), "{said}");
        assert_eq!(goes_to(&net, "198.51.100.2"), "outside");
        assert_eq!(goes_to(&net, "203.0.113.129"), "nat64");
        let now = routes(&net);
        assert!(before.iter().all(|route| now.contains(route)), "{before:#?} in {now:#?}");
        daemon.stop(Signal::TERM);
        // If the device's route precedes it, the route is named as well.
        let before = routes(&net);
        let precede = format!("{CREATE}precede_routes = true\n");
        let daemon = Daemon::start(&net, &format!("{precede}routes = [\"2001:db8:64::/96\"]\n{SIIT}"));
        let said = daemon
            .reload(&format!("{precede}{more}{SIIT}"), "takes precedence over these routes of the host");
        assert!(said.contains("198.51.100.0/24 dev outside proto kernel"), "{said}");
        assert_eq!(goes_to(&net, "198.51.100.2"), "nat64");
        daemon.reload(&format!("{precede}routes = [\"2001:db8:64::/96\"]\n{SIIT}"), "2 removed");
        assert_eq!(goes_to(&net, "198.51.100.2"), "outside");
        daemon.stop(Signal::TERM);
        assert_eq!(routes(&net), before);
    });
}

/// Waits until the routes are as `before`, and `count` lines about lost routes are logged. Returns these
/// lines.
fn repaired(net: &Topology, daemon: &Daemon, before: &[String], count: usize) -> Vec<String> {
    let lines = || -> Vec<String> {
        daemon.stderr().lines().filter(|line| line.contains("vanished")).map(str::to_owned).collect()
    };
    let is_back = || routes(net) == before && lines().len() >= count;
    gatun_testkit::wait_until("the routes", Duration::from_secs(20), is_back)
        .unwrap_or_else(|e| panic!("{e}: {before:#?}, now {:#?}; {}", routes(net), daemon.stderr()));
    lines()
}

#[test]
fn lost_routes_are_restored_and_logged_once() {
    in_lab("routes::lost_routes_are_restored_and_logged_once", || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}addresses = [\"2001:db8:9::1/64\"]\n{SIIT}"));
        let before = routes(&net);
        net.translator.ip("route del 192.0.2.1/32 dev nat64").unwrap();
        let said = repaired(&net, &daemon, &before, 1);
        assert!(said.len() == 1 && said[0].contains("restored: 1 route,"), "{said:?}");
        assert!(ping(&net.client, 1, SERVER, ""));
        // Removed repeatedly: restored each time.
        for count in [2, 3] {
            net.translator.ip("-6 route del 2001:db8:64::/96 dev nat64").unwrap();
            repaired(&net, &daemon, &before, count);
        }
        assert!(ping(&net.client, 1, SERVER, ""));
        // Below its minimum MTU the kernel disables IPv6, with its routes and addresses; it returns without
        // them.
        net.translator.ip("link set nat64 mtu 1000").unwrap();
        assert!(!ping(&net.client, 1, SERVER, "-W 1"));
        daemon.says("MTU is 1000, and the kernel has no IPv6 below 1280: vanished routes cannot be restored");
        net.translator.ip("link set nat64 mtu 1500").unwrap();
        let said = repaired(&net, &daemon, &before, 5);
        assert!(ping(&net.client, 1, SERVER, "") && ping(&net.client, 1, "2001:db8:9::1", ""));
        assert_eq!(said.iter().filter(|line| line.contains("cannot")).count(), 1, "{said:#?}");
        assert!(said.last().unwrap().contains("restored: 2 routes, 1 address"), "{said:#?}");
        assert_eq!(said.len(), 5, "{said:#?}");
        // A route set by somebody else in its place is kept.
        let at_once = "route del 192.0.2.14/32 dev nat64\nroute add 192.0.2.14/32 dev outside\n";
        std::fs::write("/run/at-once", at_once).unwrap();
        net.translator.ip("-batch /run/at-once").unwrap();
        daemon.says("left unchanged, because others have set them: 1 route");
        assert_eq!(goes_to(&net, "192.0.2.14"), "outside");
        daemon.stop(Signal::TERM);
    });
}
