//! A long configuration is applied under traffic. `scripts/bench-reload` prints the duration.

use crate::harness::{Daemon, in_lab, network, ping};
use gatun_api::client::Client;
use gatun_api::paths::with_query;
use gatun_api::types::{Config, ConfigApplied, ConfigPlan, ConfigText, MapsEdit, StaticMap};
use gatun_testkit::topology::SERVER;
use gatun_testkit::{Process, wait_until};
use rustix::process::Signal;
use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

const MAPPINGS: u32 = 100_000;

/// Sends numbered datagrams, one per millisecond, until it is killed.
const SEND: &str = "
import socket, sys, time
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
n, begin = 0, time.monotonic()
while True:
    s.sendto(str(n).encode(), (sys.argv[1], 7777)); n += 1
    time.sleep(max(0, begin + n / 1000 - time.monotonic()))
";

/// Prints the number of received datagrams, the number missing in between, and the longest gap in ms.
const RECEIVE: &str = "
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 7777))
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
got, first, top, longest, last = 0, None, 0, 0.0, None
while True:
    n, now = int(s.recv(100)), time.monotonic()
    got, first, top = got + 1, n if first is None else first, max(top, n)
    longest, last = max(longest, now - (last or now)), now
    if got % 100 == 0:
        with open('/run/got', 'w') as f: f.write(f'{got} {top - first + 1 - got} {longest * 1000:.1f}')
";

fn config(first: u32) -> String {
    let mut text = "[[port]]\ndevice = \"nat64\"\nroutes = [\"192.0.2.0/24\", \"2001:db8:64::/96\"]\n[translator]\n\
                    own4 = \"192.0.2.14\"\nown6 = \"2001:db8:ffff::1\"\n[[siit]]\npool6 = \"2001:db8:64::/96\"\neam = [\n    \
                    { v4 = \"192.0.2.1\", v6 = \"2001:db8:1::2\" },\n"
        .to_owned();
    for n in first..first + MAPPINGS {
        let v4 = Ipv4Addr::from(0x0a00_0000 + n);
        writeln!(text, "    {{ v4 = \"{v4}\", v6 = \"2001:db8:2::{:x}:{:x}\" }},", n >> 16, n & 0xffff)
            .unwrap();
    }
    text + "]\n"
}

/// Number of received datagrams, number of missing ones, and the longest gap in ms.
fn got() -> Option<(u64, i64, f64)> {
    let text = fs::read_to_string("/run/got").ok()?;
    let mut fields = text.split(' ');
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[test]
fn a_hundred_thousand_lines_are_applied_without_packet_loss() {
    in_lab("long::a_hundred_thousand_lines_are_applied_without_packet_loss", || {
        let net = network();
        let daemon = Daemon::start(&net, &config(0));
        assert!(ping(&net.client, 2, SERVER, ""));
        let client = Client::new("/run/gatun/api.sock");
        let _receiver = Process::start(net.server.command("python3").args(["-c", RECEIVE])).unwrap();
        let _sender = Process::start(net.client.command("python3").args(["-c", SEND, SERVER])).unwrap();
        let later = |n: u64| {
            let from = got().map_or(0, |(got, ..)| got);
            wait_until("datagrams", Duration::from_secs(30), || {
                got().is_some_and(|(got, ..)| got >= from + n)
            })
            .unwrap();
        };
        later(300);
        // Replace half of the mappings.
        let body = serde_json::to_vec(&ConfigText { text: config(MAPPINGS / 2) }).unwrap();
        let begin = Instant::now();
        let plan: ConfigPlan = client.ask("POST", "/v1/config/plan", &body).unwrap();
        let planned = begin.elapsed();
        assert!(plan.applicable && !plan.changes.is_empty(), "{:?}", plan.changes);
        let begin = Instant::now();
        let target = with_query("/v1/config/apply", &[("revision", plan.running)]);
        let done: ConfigApplied = client.ask("POST", &target, &body).unwrap();
        let applied = begin.elapsed();
        assert_eq!(done.revision, plan.revision);
        // Add one line in the middle.
        let one = StaticMap {
            instance: None,
            protocol: None,
            inside: "2001:db8:1::99".into(),
            outside: "192.0.2.9".into(),
        };
        let begin = Instant::now();
        let edit = MapsEdit { add: Some(vec![one]), remove: None };
        let _: ConfigApplied = client.ask("PATCH", "/v1/maps", &serde_json::to_vec(&edit).unwrap()).unwrap();
        let added = begin.elapsed();
        // Restore the first file by SIGHUP.
        let begin = Instant::now();
        daemon.reload(&config(0), "reload: done");
        let reloaded = begin.elapsed();
        later(300);
        let (got, missing, longest) = got().unwrap();
        assert_eq!(missing, 0, "{got} came");
        assert_eq!(client.get::<Config>("/v1/config").unwrap().text, config(0));
        println!(
            "{MAPPINGS} lines: planned in {planned:.0?}, applied in {applied:.0?}, one more in {added:.0?}, by SIGHUP in \
             {reloaded:.0?}; of {got} datagrams none was lost, the longest time without one was {longest} ms"
        );
        daemon.stop(Signal::TERM);
    });
}
