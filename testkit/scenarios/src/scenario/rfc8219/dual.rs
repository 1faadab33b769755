//! Dual translation (RFC 8219 5.2): 464XLAT (RFC 6877), with Gatun as CLAT and as PLAT in series.
//!
//! ```text
//!   IPv4, 100.64.0.0/10            IPv6, 2001:db8:46::/106 to 2001:db8:64::/96           IPv4
//!   generator  g0 === a0  CLAT: SIIT  c0 ======= c1  PLAT: NAT64  b0 === g1  reflector
//! ```
//! With veth, both translators share the last processor. With memif, each has a processor of its own if
//! there are three.

use super::{FrameSizeResult, TRIALS_BRIEF, TRIALS_MAX, search};
use crate::bed::Bed;
use crate::ends::{Load, Until};
use crate::ports::Pair;
use crate::report::{Report, Table, group};
use crate::run::Middle;
use crate::scenario::{Over, RunOptions, carrier};
use gatun_testkit::traffic::{Family, Sizes, Traffic};
use std::time::Duration;

/// IPv6 prefix of the hosts behind the CLAT: the last 22 bits are those of 100.64.0.0/10.
const HOSTS: &str = "2001:db8:46::/106";

fn clat(pair: &Pair, mtu: usize) -> String {
    let [hosts, provider] = &pair.clat;
    format!(
        r#"[api]
listen = "unix:/run/gatun-lab-clat.sock"
[state]
directory = "off"
{general}
[[port]]
name = "hosts"
{hosts}
addresses = ["10.1.0.64/24"]
routes = ["100.64.0.0/10 via 10.1.0.2"]
[[port]]
name = "provider"
{provider}
addresses = ["2001:db8:3::c/64"]
routes = ["2001:db8:64::/96 via 2001:db8:3::d"]
answers = ["{HOSTS}"]
[translator]
own4 = "192.0.2.14"
own6 = "2001:db8:46:ffff::1"
mtu4 = {mtu}
mtu6 = {mtu}
[[siit]]
pool6 = "2001:db8:64::/96"
eam = [{{ v4 = "100.64.0.0/10", v6 = "{HOSTS}" }}]
"#,
        general = pair.general[0]
    )
}

/// Returns the PLAT's configuration. For the PLAT a host is a subscriber, because one CLAT has all hosts
/// behind it.
fn plat(pair: &Pair, traffic: &Traffic, mtu: usize) -> String {
    let [clat, internet] = &pair.plat;
    let flows = u64::from(traffic.flows());
    let addresses = (2 * flows).div_ceil(64_512).next_power_of_two();
    format!(
        r#"[api]
listen = "unix:{socket}"
[state]
directory = "off"
{general}
[[port]]
name = "clat"
{clat}
addresses = ["2001:db8:3::d/64"]
routes = ["{HOSTS} via 2001:db8:3::c"]
[[port]]
name = "internet"
{internet}
addresses = ["198.51.100.64/24"]
routes = ["198.19.0.0/16 via 198.51.100.2"]
[[pool]]
prefixes = "198.18.0.0/{len}"
[[nat64]]
pool6 = "2001:db8:64::/96"
subscriber = "/128"
[limits]
sessions_max = {sessions}
sessions_reserved = 0
subscribers_max = {subscribers}
[translator]
mtu4 = {mtu}
mtu6 = {mtu}
"#,
        general = pair.general[1],
        socket = crate::middle::SOCKET,
        len = 32 - addresses.ilog2(),
        sessions = flows.max(1024),
        subscribers = traffic.spec().subscribers.max(1024),
    )
}

/// Measures throughput without loss, latency and new connections a second for each size, with IPv4 at both
/// ends.
pub(super) fn run(
    bed: &mut Bed,
    options: &RunOptions,
    frames: &[usize],
    length: Duration,
    report: &mut Report,
) -> anyhow::Result<()> {
    let largest = frames.iter().copied().max().unwrap_or(0).max(1518);
    // IPv6 packets are 20 bytes longer.
    let mtu = largest - gatun_testkit::traffic::LAYER_2 + 20;
    bed.lay_between(mtu)?;
    let pair = bed.pair();
    let shares_processor = pair.general[0] == pair.general[1];
    let mut all = Vec::new();
    for &frame in frames {
        let sizes = Some(Sizes::Fixed(frame));
        let options = RunOptions { family: Family::V4, sizes, ..options.clone() };
        let traffic = options.traffic(super::SUBSCRIBERS, 16, Sizes::Fixed(frame));
        let (clat, plat) = (clat(&pair, mtu), plat(&pair, &traffic, mtu));
        let flows = traffic.flows().into();
        let mut run = carrier::begin(bed, &options, Middle::Pair([&clat, &plat]), &traffic)?;
        let build_up = carrier::build_up(&mut run, Load::InFlight(bed.in_flight()), flows);
        let trials = if options.brief { TRIALS_BRIEF } else { TRIALS_MAX };
        let found = search(&mut run, bed.in_flight(), length, trials);
        if found.is_none() {
            run.stage("frame loss", Load::Rate(1000.0), Until::Elapsed(length / 2));
        }
        report.account(&run.finish()?.0);
        let (rate, latency) = found.unwrap_or((0.0, None));
        let connections = build_up.rx as f64 / build_up.seconds;
        all.push(FrameSizeResult { frame, throughput: 2.0 * rate, latency, connections, loss: Vec::new() });
    }
    let Table { header, rows, .. } = super::throughput_table(&all);
    report.tables.push(Table { title: "Dual translation: 464XLAT, both ends IPv4".into(), header, rows });
    let best = all.first().map_or(0, |found| found.throughput.round() as u64);
    report.notes.push(format!(
        "Dual translation: a round trip passes four translations, two in each of two processes, {}; {} packets a \
         second are {} translations.",
        if shares_processor { "which share a processor" } else { "each on its own processor" },
        group(best),
        group(2 * best)
    ));
    if options.over == Over::Memif && shares_processor {
        report.notes.push(
            "Two translators that poll without a pause on one processor alternate in time slices of some milliseconds: \
             these determine the rate and the delays of dual translation here."
                .into(),
        );
    }
    Ok(())
}
