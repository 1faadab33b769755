//! Measurements by iperf3: rate, loss, processor time, and the highest rate without loss.

use crate::processors::{busy_s, machine_processors};
use gatun_testkit::{Error, Iperf, Namespace};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Highest loss of an offered rate, per cent.
const LOST_MAX: f64 = 0.1;
/// Precision of the search for the highest rate.
const PRECISION: f64 = 0.04;
/// Rate of [`Part::Paced`].
const PACED_GBIT_S: f64 = 4.0;
/// Congestion control of TCP, Debian's default. A host may have BBR, which paces each stream by its own
/// model of the path.
pub(super) const CONGESTION_CONTROL: &str = "cubic";
/// Payload of a datagram, bytes.
const DATAGRAM: u32 = 1400;
/// Length of a trial of the search, seconds, at most.
const TRIAL_S: u32 = 2;
/// Time of iperf3 beyond the measurement, at most.
const GRACE: Duration = Duration::from_secs(20);

/// Kind of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// TCP, as fast as the sockets can.
    Tcp,
    /// TCP at 4 Gbit/s, all streams together: what a Gbit costs, whichever end is the slower one.
    Paced,
    /// UDP, as fast as the sockets can.
    Udp,
    /// UDP, the highest offered rate with at most 0.1 % of loss.
    Offered,
    /// The same without the receiver's socket: what the network carries, however the receiver is scheduled.
    Carried,
}

impl Part {
    pub(crate) const ALL: [Part; 5] = [Part::Tcp, Part::Paced, Part::Udp, Part::Offered, Part::Carried];

    pub(super) fn is_tcp(self) -> bool {
        matches!(self, Part::Tcp | Part::Paced)
    }

    /// Returns true for a search of the highest rate.
    pub(super) fn is_search(self) -> bool {
        matches!(self, Part::Offered | Part::Carried)
    }

    /// Name in the report.
    pub(in crate::scenario) fn name(self) -> &'static str {
        match self {
            Part::Tcp => "TCP",
            Part::Paced => "TCP at 4 Gbit/s",
            Part::Udp => "UDP",
            Part::Offered => "UDP offered",
            Part::Carried => "UDP carried",
        }
    }
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scenario) struct Cell {
    pub(in crate::scenario) part: Part,
    pub(in crate::scenario) streams: u32,
    /// `upload` or `download`.
    pub(in crate::scenario) direction: &'static str,
}

/// Result of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::scenario) struct Measured {
    /// Rate at the receiver.
    pub(in crate::scenario) gbit_s: f64,
    /// Rate of the sender.
    pub(in crate::scenario) offered_gbit_s: f64,
    /// Lost datagrams; `None` for TCP.
    pub(in crate::scenario) lost_percent: Option<f64>,
    /// Those of them that the receiver's socket dropped, because its buffer was full, in per cent of the sent
    /// ones; `None` for TCP.
    #[serde(default)]
    pub(in crate::scenario) lost_at_socket_percent: Option<f64>,
    /// Time of all processors of the machine for a received Gbit, ms; `None` for a search.
    pub(in crate::scenario) processor_ms_per_gbit: Option<f64>,
    /// Share of the time in which the processors were busy, 0 to 1, with the warm-up; `None` for a search.
    pub(in crate::scenario) busy_share: Option<f64>,
    /// Bytes of a packet that the receiver's devices got, on average: super-packets of up to 64 KB. `None`
    /// for a search.
    #[serde(default)]
    pub(in crate::scenario) bytes_per_packet: Option<f64>,
}

impl Measured {
    /// The sender's rate is that of the receiver; nothing else is known.
    pub(in crate::scenario) fn of_rate(gbit_s: f64) -> Measured {
        Measured {
            gbit_s,
            offered_gbit_s: gbit_s,
            lost_percent: None,
            lost_at_socket_percent: None,
            processor_ms_per_gbit: None,
            busy_share: None,
            bytes_per_packet: None,
        }
    }

    /// Lost datagrams that are not the receiver's socket's.
    pub(super) fn lost_before_socket_percent(&self) -> Option<f64> {
        Some((self.lost_percent? - self.lost_at_socket_percent?).max(0.0))
    }
}

/// iperf3 between two hosts, one of which opens the connections.
pub(in crate::scenario) struct Client<'a> {
    /// Host that opens the connections.
    pub(in crate::scenario) client: &'a Namespace,
    pub(in crate::scenario) server: &'a Namespace,
    /// Address of the server, as the client sees it.
    pub(in crate::scenario) target: &'a str,
    pub(in crate::scenario) seconds: u32,
    /// Seconds before the measurement that do not count.
    pub(in crate::scenario) warm_up: u32,
    /// Trials of a search.
    pub(in crate::scenario) trials: u32,
}

impl Client<'_> {
    pub(in crate::scenario) fn measure(&self, cell: Cell) -> Result<Measured, Error> {
        let trial_s = self.seconds.min(TRIAL_S);
        match cell.part {
            Part::Tcp | Part::Udp => self.once(cell, self.seconds, None),
            Part::Paced => self.once(cell, self.seconds, Some(PACED_GBIT_S)),
            Part::Offered => search(self.trials, |rate_gbit_s| self.once(cell, trial_s, rate_gbit_s)),
            Part::Carried => search(self.trials, |rate_gbit_s| {
                let measured = self.once(cell, trial_s, rate_gbit_s)?;
                Ok(Measured { lost_percent: measured.lost_before_socket_percent(), ..measured })
            }),
        }
    }

    /// One run of iperf3, at a rate, or as fast as the sockets can.
    fn once(&self, cell: Cell, seconds: u32, rate_gbit_s: Option<f64>) -> Result<Measured, Error> {
        let bits = rate_gbit_s.map(|rate| (rate * 1e9 / f64::from(cell.streams)) as u64);
        let kind = match (cell.part.is_tcp(), bits) {
            (true, None) => format!("-C {CONGESTION_CONTROL}"),
            // Paced by the kernel: iperf3 keeps a processor busy while it waits.
            (true, Some(bits)) => format!("-C {CONGESTION_CONTROL} --fq-rate {bits}"),
            (false, None) => format!("-u -l {DATAGRAM} -b 0"),
            // Shorter bursts than by default, which would overflow the receiver's socket.
            (false, Some(bits)) => format!("-u -l {DATAGRAM} -b {bits} --pacing-timer 100"),
        };
        let reverse = if cell.direction == "download" { "-R" } else { "" };
        let Client { server, client, target, warm_up, .. } = *self;
        let streams = cell.streams;
        let arguments = format!(
            "-c {target} -t {seconds} -O {warm_up} -P {streams} --connect-timeout 3000 {kind} {reverse}"
        );
        let max = Duration::from_secs(u64::from(warm_up + seconds)) + GRACE;
        let receiver = if cell.direction == "download" { client } else { server };
        let before = (received(receiver)?, dropped_at_sockets(receiver)?);
        let (before_s, begin) = (busy_s(), Instant::now());
        let text = Iperf { program: "iperf3", server, client, arguments: &arguments, max }.measure()?;
        let busy_s = busy_s().zip(before_s).map(|(after, before)| after - before);
        let available_s = begin.elapsed().as_secs_f64() * machine_processors() as f64;
        let after = (received(receiver)?, dropped_at_sockets(receiver)?);
        let [bytes, packets] = [0, 1].map(|n| after.0[n].saturating_sub(before.0[n]) as f64);
        let dropped = after.1.saturating_sub(before.1) as f64;
        let failed =
            |why: &dyn std::fmt::Display| Error(format!("iperf3, {}, to {target}: {why}", cell.part.name()));
        let json: serde_json::Value = serde_json::from_str(&text).map_err(|e| failed(&e))?;
        let counted = f64::from(seconds) / f64::from(warm_up + seconds);
        let measured = read(&json, cell.part, busy_s.map(|busy_s| busy_s * counted));
        let measured = measured.ok_or_else(|| failed(&json["error"]))?;
        let control = &json["end"]["sender_tcp_congestion"];
        if cell.part.is_tcp() && control != CONGESTION_CONTROL {
            return Err(failed(&format!("the congestion control was {control}")));
        }
        Ok(Measured {
            busy_share: busy_s.map(|busy_s| busy_s / available_s),
            bytes_per_packet: Some(bytes / packets.max(1.0)),
            lost_at_socket_percent: (!cell.part.is_tcp())
                .then(|| 100.0 * dropped * f64::from(DATAGRAM) / sent_bytes(&json).max(1.0)),
            ..measured
        })
    }
}

/// Bytes of the sender.
fn sent_bytes(json: &serde_json::Value) -> f64 {
    json["end"]["sum_sent"]["bytes"].as_f64().unwrap_or_default()
}

/// Reads iperf3's report of a run that took `busy_s` of processor time.
///
/// iperf3 3.12 counts datagrams that were lost during the warm-up among the lost ones, but does not count the
/// bytes of the warm-up. So the loss is computed from the bytes of both ends.
fn read(json: &serde_json::Value, part: Part, busy_s: Option<f64>) -> Option<Measured> {
    let (sent, received) = (&json["end"]["sum_sent"], &json["end"]["sum_received"]);
    let rate = |sum: &serde_json::Value| sum["bits_per_second"].as_f64().map(|rate| rate / 1e9);
    let bytes = |sum: &serde_json::Value| sum["bytes"].as_f64();
    let (gbit_s, offered_gbit_s) = (rate(received)?, rate(sent)?);
    let lost_percent = match part {
        Part::Tcp | Part::Paced => None,
        Part::Udp | Part::Offered | Part::Carried => {
            Some(100.0 * (1.0 - bytes(received)? / bytes(sent)?.max(1.0)).max(0.0))
        }
    };
    let gbit = 8e-9 * bytes(received)?;
    let processor_ms_per_gbit = busy_s.filter(|_| gbit > 0.0).map(|busy_s| 1e3 * busy_s / gbit);
    Some(Measured { offered_gbit_s, lost_percent, processor_ms_per_gbit, ..Measured::of_rate(gbit_s) })
}

/// Bytes and packets that the devices of a host have received.
fn received(host: &Namespace) -> Result<[u64; 2], Error> {
    let text = host.run("cat /proc/net/dev")?;
    let mut sum = [0; 2];
    for (_, counters) in
        text.lines().filter_map(|line| line.split_once(':')).filter(|(name, _)| name.trim() != "lo")
    {
        for (sum, counter) in sum.iter_mut().zip(counters.split_whitespace()) {
            *sum += counter.parse::<u64>().map_err(|e| Error(format!("/proc/net/dev: {counter}: {e}")))?;
        }
    }
    Ok(sum)
}

/// Datagrams that sockets of a host have dropped because their buffers were full.
fn dropped_at_sockets(host: &Namespace) -> Result<u64, Error> {
    let text = host.run("cat /proc/net/snmp /proc/net/snmp6")?;
    socket_drops(&text).ok_or_else(|| Error("/proc/net/snmp has no RcvbufErrors of UDP".into()))
}

/// `RcvbufErrors` of UDP: a column of `snmp` for IPv4, a line of `snmp6` for IPv6.
fn socket_drops(text: &str) -> Option<u64> {
    let mut of_ipv4 = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (names, values) = (of_ipv4.next()?, of_ipv4.next()?);
    let column = names.split_whitespace().position(|name| name == "RcvbufErrors")?;
    let of_ipv4: u64 = values.split_whitespace().nth(column)?.parse().ok()?;
    let of_ipv6 = text.lines().find_map(|line| line.strip_prefix("Udp6RcvbufErrors"));
    // A host without IPv6 has no such line.
    Some(of_ipv4 + of_ipv6.map_or(Some(0), |value| value.trim().parse().ok())?)
}

/// Searches the highest offered rate, Gbit/s, of which at most [`LOST_MAX`] is lost. A trial without a rate
/// sends as fast as it can.
fn search(
    trials: u32,
    mut trial: impl FnMut(Option<f64>) -> Result<Measured, Error>,
) -> Result<Measured, Error> {
    let is_good = |measured: &Measured| measured.lost_percent.is_none_or(|lost| lost <= LOST_MAX);
    let full = trial(None)?;
    let whole = |measured: Measured| Measured {
        lost_at_socket_percent: None,
        processor_ms_per_gbit: None,
        busy_share: None,
        bytes_per_packet: None,
        ..measured
    };
    if is_good(&full) {
        return Ok(whole(full));
    }
    let (mut low, mut high) = (0.0, full.offered_gbit_s);
    // What arrived at full speed is a good guess.
    let mut rate = full.gbit_s.clamp(0.1 * high, 0.9 * high);
    let mut best = Measured { lost_percent: Some(0.0), ..Measured::of_rate(0.0) };
    for _ in 0..trials {
        let measured = trial(Some(rate))?;
        // A sender that does not reach the rate says nothing about it.
        let is_sent = measured.offered_gbit_s > 0.95 * rate;
        if is_good(&measured) && measured.offered_gbit_s > best.offered_gbit_s {
            best = whole(measured);
        }
        match is_good(&measured) && is_sent {
            true => low = rate,
            false => high = rate,
        }
        if high - low < PRECISION * high {
            break;
        }
        rate = (low + high) / 2.0;
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path that carries this much, with a sender that reaches `sender`.
    fn path(capacity: f64, sender: f64) -> impl FnMut(Option<f64>) -> Result<Measured, Error> {
        move |rate| {
            let offered = rate.unwrap_or(f64::MAX).min(sender);
            let received = offered.min(capacity);
            let lost_percent = Some(100.0 * (offered - received) / offered);
            Ok(Measured {
                offered_gbit_s: offered,
                lost_percent,
                processor_ms_per_gbit: Some(1.0),
                busy_share: Some(0.5),
                ..Measured::of_rate(received)
            })
        }
    }

    #[test]
    fn datagrams_that_were_lost_during_the_warm_up_do_not_count() {
        // 2 s after a warm-up of 1 s, by iperf3 3.12: more lost than sent.
        let json = serde_json::json!({"end": {
            "sum": {"bits_per_second": 1.23e9, "lost_percent": 124.4, "seconds": 2.0},
            "sum_sent": {"bytes": 308_980_000u64, "bits_per_second": 1.23e9},
            "sum_received": {"bytes": 60_188_800u64, "bits_per_second": 0.24e9, "lost_percent": 124.4},
        }});
        let measured = read(&json, Part::Udp, Some(2.0)).unwrap();
        assert_eq!((measured.gbit_s, measured.offered_gbit_s), (0.24, 1.23));
        assert!((80.5..80.6).contains(&measured.lost_percent.unwrap()), "{measured:?}");
        assert_eq!(measured.processor_ms_per_gbit.map(f64::round), Some(4154.0));
    }

    #[test]
    fn drops_at_sockets_are_those_of_both_families() {
        let ipv4 = "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\n\
            Udp: 10 0 7 9 7 1\nUdpLite: InDatagrams RcvbufErrors\nUdpLite: 1 5\n";
        assert_eq!(socket_drops(ipv4), Some(7));
        let both =
            format!("{ipv4}Udp6InErrors                    \t4\nUdp6RcvbufErrors                \t3\n");
        assert_eq!(socket_drops(&both), Some(10));
        assert_eq!(socket_drops("Tcp: RcvbufErrors\nTcp: 1\n"), None);
    }

    #[test]
    fn the_search_finds_the_capacity_of_a_path() {
        let found = search(12, path(2.0, 10.0)).unwrap();
        assert!((1.9..=2.003).contains(&found.offered_gbit_s), "{found:?}");
        assert_eq!(found.processor_ms_per_gbit, None);
    }

    #[test]
    fn a_sender_that_loses_nothing_at_full_speed_is_the_answer() {
        let mut trials = 0;
        let mut path = path(20.0, 10.0);
        let found = search(12, |rate| {
            trials += 1;
            path(rate)
        });
        assert_eq!((found.unwrap().offered_gbit_s, trials), (10.0, 1));
    }

    #[test]
    fn a_path_that_always_loses_has_no_rate() {
        let lossy = |rate: Option<f64>| {
            let offered = rate.unwrap_or(5.0);
            let lost_percent = Some(10.0);
            Ok(Measured { offered_gbit_s: offered, lost_percent, ..Measured::of_rate(0.9 * offered) })
        };
        assert_eq!(search(5, lossy).unwrap().offered_gbit_s, 0.0);
    }

    #[test]
    fn the_report_of_iperf3_gives_rate_loss_and_processor_time() {
        let end = |sent_bytes: u64| {
            serde_json::json!({ "end": {
                "sum_sent": { "bits_per_second": 4e9, "bytes": sent_bytes },
                "sum_received": { "bits_per_second": 2e9, "bytes": 500_000_000u64 },
            } })
        };
        let read_udp = read(&end(1_000_000_000), Part::Udp, Some(1.0)).unwrap();
        assert_eq!((read_udp.gbit_s, read_udp.offered_gbit_s), (2.0, 4.0));
        assert_eq!((read_udp.lost_percent, read_udp.processor_ms_per_gbit), (Some(50.0), Some(250.0)));
        let tcp = end(500_000_000);
        assert_eq!(read(&tcp, Part::Tcp, None).unwrap().lost_percent, None);
        assert_eq!(read(&serde_json::json!({ "error": "busy" }), Part::Tcp, None), None);
    }
}
