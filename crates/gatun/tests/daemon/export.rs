//! Events to a collector that is away at first.

use crate::harness::{CREATE, Daemon, NAT64, in_lab, network, ping};
use gatun_lab::Process;
use gatun_lab::topology::SERVER;
use rustix::process::Signal;
use std::time::{Duration, Instant};

// proves: LOG-5, LOG-4
#[test]
fn a_collector_that_comes_later_gets_what_was_spooled_and_metrics_tell_of_it() {
    in_lab("export::a_collector_that_comes_later_gets_what_was_spooled_and_metrics_tell_of_it", || {
        let net = network();
        net.translator.ip("link set lo up").unwrap();
        let export = "[[export]]\nname = \"siem\"\nto = \"tcp:127.0.0.1:601\"\nformat = \"json\"\n\
                      kinds = [\"binding_created\"]\nspool = \"/run/gatun-spool-test\"\n";
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}{export}"));
        assert!(ping(&net.client, 2, SERVER, ""));
        let deadline = Instant::now() + Duration::from_secs(10);
        let metrics = || {
            let line = "curl -s --unix-socket /run/gatun/api.sock http://gatun/metrics";
            net.translator.run(line).unwrap()
        };
        let is_spooled = |metrics: &str| {
            metrics.contains("gatun_export_waiting_events{export=\"siem\"} 0\n")
                && !metrics.contains("gatun_export_spool_bytes{export=\"siem\"} 0\n")
        };
        while !is_spooled(&metrics()) {
            assert!(Instant::now() < deadline, "{}", metrics());
            std::thread::sleep(Duration::from_millis(20));
        }
        let got = "/run/gatun-export-test";
        let collector = ["-u", "TCP-LISTEN:601", &format!("CREATE:{got}")];
        let _collector = Process::start(net.translator.command("socat").args(collector)).unwrap();
        while !std::fs::read_to_string(got).unwrap_or_default().contains("\"event\":\"binding_created\"") {
            assert!(Instant::now() < deadline, "{}", daemon.stderr());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(metrics().contains("gatun_export_lost_events_total{export=\"siem\"} 0"), "{}", metrics());
        let ended = daemon.stop(Signal::TERM);
        let said = |what: &str| assert!(ended.stderr.contains(what), "{}", ended.stderr);
        said("export siem: tcp:127.0.0.1:601 is not there");
        said("events are spooled");
        said("export siem: tcp:127.0.0.1:601 is there again");
    });
}
