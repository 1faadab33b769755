//! `iperf`: iperf3 between two of the kernel's own stacks, through Gatun on a TUN device and on AF_XDP,
//! tayga, the kernel's masquerading, and forwarding without translation.

use super::Wishes;
use crate::middle::{Gatun, Place};
use crate::report::{Report, Table, Throughput};
use gatun_testkit::topology::{SERVER, SERVER4};
use gatun_testkit::{Error, Iperf, Topology, has_program, tayga};
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

const ABOUT: &str = "iperf3 between a client and a server, each a network namespace with the kernel's own stack, through different \
translators. All share the processors of this machine. Upload is from the client, which is inside. UDP is sent as fast as the sockets can; \
the figures are what arrived, and what was lost.";

/// Port on a TUN device. The first line must begin the port, because `udp_gro` is inserted after it.
const TUN: &str = r#"[[port]]
device = "nat64"
routes = ["2001:db8:64::/96", "192.0.2.0/28"]
[[pool]]
prefixes = "192.0.2.1"
[[nat64]]
pool6 = "2001:db8:64::/96"
[[nat44]]
inside = "100.64.0.0/10"
"#;

const XDP: &str = r#"[[port]]
backend = "xdp"
device = "inside"
addresses = ["2001:db8:1::64/64", "100.64.0.64/24"]
[[port]]
backend = "xdp"
device = "outside"
addresses = ["198.51.100.64/24"]
[[pool]]
prefixes = "192.0.2.1"
[[nat64]]
pool6 = "2001:db8:64::/96"
[[nat44]]
inside = "100.64.0.0/10"
"#;

const MASQUERADE: &str = "add table ip peer; \
add chain ip peer post { type nat hook postrouting priority 100; }; \
add rule ip peer post ip saddr 100.64.0.0/10 oifname \"outside\" masquerade";

struct IperfRuns {
    net: Topology,
    seconds: u32,
    streams: Vec<u32>,
    /// Protocol, streams and direction of each run.
    combinations: Vec<(&'static str, u32, &'static str)>,
    results: Vec<Throughput>,
    /// Runs of iperf3 that failed.
    failures: Vec<String>,
    bar: ProgressBar,
}

pub(crate) fn run(wishes: &Wishes) -> anyhow::Result<Report> {
    anyhow::ensure!(has_program("iperf3"), "iperf3 is not installed (Debian: iperf3)");
    let mut report = Report::new("iperf", ABOUT);
    let net = network()?;
    let style = ProgressStyle::with_template("{msg:44} {wide_bar} {pos}/{len}")?;
    let all_streams = if wishes.brief { vec![1] } else { vec![1, 10, 20, 50] };
    let streams = wishes.streams.clone().unwrap_or(all_streams);
    let combinations: Vec<(&'static str, u32, &'static str)> = match wishes.brief {
        true => vec![("TCP", 1, "upload")],
        false => combinations(&streams),
    };
    let paths = if wishes.brief { 4 } else { 7 };
    let datagrams = combinations.iter().filter(|(protocol, ..)| *protocol == "UDP").count();
    let bar = ProgressBar::new((paths * combinations.len() + 2 * datagrams) as u64).with_style(style);
    let seconds = wishes.length(2.0).as_secs().max(1) as u32;
    let mut iperf =
        IperfRuns { net, seconds, streams, combinations, results: Vec::new(), failures: Vec::new(), bar };
    if wishes.brief {
        report.not_run.push("everything but Gatun, with one stream: brief run".into());
    } else {
        iperf.others(&mut report)?;
    }
    iperf.gatun_tun(wishes)?;
    iperf.gatun_xdp(wishes)?;
    iperf.bar.finish_and_clear();

    for protocol in ["TCP", "UDP"] {
        report.tables.push(iperf.table(protocol));
    }
    let all = iperf.failures.is_empty() && iperf.results.iter().all(|result| result.gbit_s > 0.0);
    report.check(all, "every run of iperf3 transferred data".into());
    report.not_run.append(&mut iperf.failures);
    report.notes.push("UDP has 1400 bytes of payload; lost packets in per cent in brackets.".into());
    report
        .notes
        .push("tayga is stateless, with one fixed address for the client: less work than NAT64.".into());
    report.throughput = iperf.results;
    Ok(report)
}

fn network() -> Result<Topology, Error> {
    let net = Topology::new()?;
    net.client.address("eth0", "100.64.0.2/24")?;
    net.translator.address("inside", "100.64.0.1/24")?;
    Ok(net)
}

/// Each number of streams, in each direction.
fn combinations(streams: &[u32]) -> Vec<(&'static str, u32, &'static str)> {
    let ways = ["TCP", "UDP"].into_iter().flat_map(|protocol| streams.iter().map(move |n| (protocol, *n)));
    ways.flat_map(|(protocol, n)| ["upload", "download"].map(|direction| (protocol, n, direction))).collect()
}

impl IperfRuns {
    fn others(&mut self, report: &mut Report) -> Result<(), Error> {
        self.kernel("kernel, untranslated")?;
        match has_program("nft") {
            true => self.masquerade("NAT44: kernel, masquerade")?,
            false => {
                report.not_run.push("kernel masquerading: nft is not installed (Debian: nftables)".into());
            }
        }
        match has_program("tayga") {
            true => self.tayga("NAT64: tayga")?,
            false => report.not_run.push("tayga is not installed (Debian: tayga)".into()),
        }
        Ok(())
    }

    fn kernel(&mut self, path: &'static str) -> Result<(), Error> {
        self.net.client.ip("route replace default via 100.64.0.1")?;
        self.measure(path, SERVER4)
    }

    fn masquerade(&mut self, path: &'static str) -> Result<(), Error> {
        let nft = |rules: &str| gatun_testkit::run(self.net.translator.command("nft").arg(rules)).map(drop);
        nft(MASQUERADE)?;
        self.net.client.ip("route replace default via 100.64.0.1")?;
        self.measure(path, SERVER4)?;
        gatun_testkit::run(self.net.translator.command("nft").arg("delete table ip peer")).map(drop)
    }

    fn tayga(&mut self, path: &'static str) -> Result<(), Error> {
        let _tayga = tayga::start(&self.net)?;
        self.measure(path, tayga::SERVER)
    }

    fn gatun_tun(&mut self, wishes: &Wishes) -> Result<(), Error> {
        self.through_tun(wishes, TUN, ["NAT64: Gatun, TUN", "NAT44: Gatun, TUN"])?;
        let all = std::mem::take(&mut self.combinations);
        self.combinations = all.iter().copied().filter(|(protocol, ..)| *protocol == "UDP").collect();
        let config = TUN.replacen('\n', "\nudp_gro = true\n", 1);
        self.through_tun(wishes, &config, ["NAT64: Gatun, TUN, udp_gro", "NAT44: Gatun, TUN, udp_gro"])?;
        self.combinations = all;
        Ok(())
    }

    fn through_tun(&mut self, wishes: &Wishes, config: &str, paths: [&'static str; 2]) -> Result<(), Error> {
        let gatun = Gatun::start(&self.net.translator, Place::Anywhere, &wishes.programs, "gatun", config)?;
        let host = &self.net.translator;
        // Packets from private addresses go to the device; packets from the device follow the main table.
        host.ip("rule add priority 100 iif nat64 lookup main")?;
        host.ip("rule add priority 101 from 100.64.0.0/10 lookup 4464")?;
        host.ip("route add default dev nat64 table 4464")?;
        self.net.client.ip("route replace default via 100.64.0.1")?;
        self.measure(paths[0], SERVER)?;
        self.measure(paths[1], SERVER4)?;
        // The kernel removes the device's own routes with it.
        for priority in [100, 101] {
            self.net.translator.ip(&format!("rule del priority {priority}"))?;
        }
        gatun.stop().map(drop)
    }

    fn gatun_xdp(&mut self, wishes: &Wishes) -> Result<(), Error> {
        let gatun = Gatun::start(&self.net.translator, Place::Anywhere, &wishes.programs, "gatun", XDP)?;
        self.net.client.ip("route replace default via 100.64.0.64")?;
        self.net.client.ip("-6 route replace 2001:db8:64::/96 via 2001:db8:1::64")?;
        self.net.server.ip("route replace 192.0.2.0/24 via 198.51.100.64")?;
        self.measure("NAT64: Gatun, AF_XDP", SERVER)?;
        self.measure("NAT44: Gatun, AF_XDP", SERVER4)?;
        gatun.stop().map(drop)
    }

    /// Measures all combinations on one path.
    fn measure(&mut self, path: &'static str, target: &str) -> Result<(), Error> {
        for (protocol, streams, direction) in self.combinations.clone() {
            self.bar.set_message(format!("{path}, {protocol}, {streams}, {direction}"));
            match self.iperf(target, protocol, streams, direction) {
                Ok((gbit_s, lost_percent)) => {
                    let result = Throughput { path, protocol, streams, direction, gbit_s, lost_percent };
                    self.results.push(result);
                }
                Err(why) => {
                    self.failures.push(format!("{path}, {streams} streams, {direction}: {why}"));
                }
            }
            self.bar.inc(1);
        }
        Ok(())
    }

    fn iperf(
        &self,
        target: &str,
        protocol: &str,
        streams: u32,
        direction: &str,
    ) -> Result<(f64, Option<f64>), Error> {
        let datagrams = if protocol == "UDP" { "-u -b 0 -l 1400" } else { "" };
        let reverse = if direction == "download" { "-R" } else { "" };
        let text = Iperf {
            program: "iperf3",
            server: &self.net.server,
            client: &self.net.client,
            arguments: &format!(
                "-c {target} -t {} -P {streams} --connect-timeout 3000 {datagrams} {reverse}",
                self.seconds
            ),
            max: Duration::from_secs(u64::from(self.seconds) + 20),
        }
        .measure()?;
        let failed = |why: &dyn std::fmt::Display| Error(format!("iperf3, {protocol}, to {target}: {why}"));
        let json: serde_json::Value = serde_json::from_str(&text).map_err(|e| failed(&e))?;
        let end = &json["end"];
        let sum = if protocol == "TCP" { &end["sum_received"] } else { &end["sum"] };
        let bits = sum["bits_per_second"].as_f64().ok_or_else(|| failed(&json["error"]))?;
        let lost = (protocol == "UDP").then(|| sum["lost_percent"].as_f64()).flatten();
        // For UDP, iperf3 reports the rate of the sender, and the lost share.
        Ok((bits / 1e9 * (1.0 - lost.unwrap_or(0.0) / 100.0), lost))
    }

    fn table(&self, protocol: &str) -> Table {
        let mut header = vec!["Gbit/s".to_owned()];
        for streams in &self.streams {
            header.extend(["up", "down"].map(|direction| format!("{streams} {direction}")));
        }
        let mut paths: Vec<&str> = Vec::new();
        for result in self.results.iter().filter(|result| result.protocol == protocol) {
            if !paths.contains(&result.path) {
                paths.push(result.path);
            }
        }
        let cell = |path: &str, streams: u32, direction: &str| {
            let mut all = self.results.iter().filter(|r| (r.path, r.protocol) == (path, protocol));
            match all.find(|r| (r.streams, r.direction) == (streams, direction)) {
                Some(Throughput { gbit_s, lost_percent: Some(lost), .. }) => {
                    format!("{gbit_s:.2} ({lost:.0})")
                }
                Some(Throughput { gbit_s, .. }) => format!("{gbit_s:.2}"),
                None => "-".into(),
            }
        };
        let row = |path: &&str| {
            let pairs =
                self.streams.iter().flat_map(|n| ["upload", "download"].map(|direction| (*n, direction)));
            let cells = pairs.map(|(streams, direction)| cell(path, streams, direction));
            std::iter::once((*path).to_owned()).chain(cells).collect()
        };
        Table {
            title: format!("{protocol}, Gbit/s at the receiver"),
            header,
            rows: paths.iter().map(row).collect(),
        }
    }
}
