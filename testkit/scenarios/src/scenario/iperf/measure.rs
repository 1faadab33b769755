//! Measurements by iperf3: rate, loss, processor time, and the highest rate without loss.

use crate::processors::busy_s;
use gatun_testkit::{Error, Iperf, Topology};
use std::time::Duration;

/// Highest loss of an offered rate, per cent.
const LOST_MAX: f64 = 0.1;
/// Precision of the search for the highest rate.
const PRECISION: f64 = 0.04;
/// Length of a trial of the search, seconds, at most.
const TRIAL_S: u32 = 2;
/// Time of iperf3 beyond the measurement, at most.
const GRACE: Duration = Duration::from_secs(20);

/// Kind of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// TCP.
    Tcp,
    /// UDP, as fast as the sockets can.
    Udp,
    /// UDP, the highest offered rate with at most 0.1 % of loss.
    Offered,
}

impl Part {
    pub(crate) const ALL: [Part; 3] = [Part::Tcp, Part::Udp, Part::Offered];

    /// Name in the report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Part::Tcp => "TCP",
            Part::Udp => "UDP",
            Part::Offered => "UDP offered",
        }
    }
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) part: Part,
    pub(super) streams: u32,
    /// `upload` or `download`.
    pub(super) direction: &'static str,
}

/// Result of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    /// Rate at the receiver.
    pub(super) gbit_s: f64,
    /// Rate of the sender.
    pub(super) offered_gbit_s: f64,
    /// Lost datagrams; `None` for TCP.
    pub(super) lost_percent: Option<f64>,
    /// Time of all processors of the machine for a received Gbit, ms; `None` for a search.
    pub(super) processor_ms_per_gbit: Option<f64>,
}

/// iperf3 from the client to a target.
pub(super) struct Client<'a> {
    pub(super) net: &'a Topology,
    pub(super) target: &'a str,
    pub(super) seconds: u32,
    /// Trials of a search.
    pub(super) trials: u32,
}

impl Client<'_> {
    pub(super) fn measure(&self, cell: Cell) -> Result<Measured, Error> {
        match cell.part {
            Part::Tcp | Part::Udp => self.once(cell, self.seconds, None),
            Part::Offered => {
                let seconds = self.seconds.min(TRIAL_S);
                search(self.trials, |rate_gbit_s| self.once(cell, seconds, rate_gbit_s))
            }
        }
    }

    /// One run of iperf3. UDP is sent at a rate, or as fast as the sockets can.
    fn once(&self, cell: Cell, seconds: u32, rate_gbit_s: Option<f64>) -> Result<Measured, Error> {
        let datagrams = match (cell.part, rate_gbit_s) {
            (Part::Tcp, _) => String::new(),
            (_, None) => "-u -l 1400 -b 0".into(),
            // Shorter bursts than by default, which would overflow the receiver's socket.
            (_, Some(rate)) => {
                let bits = (rate * 1e9 / f64::from(cell.streams)) as u64;
                format!("-u -l 1400 -b {bits} --pacing-timer 100")
            }
        };
        let reverse = if cell.direction == "download" { "-R" } else { "" };
        let Client { net, target, .. } = self;
        let streams = cell.streams;
        let arguments =
            format!("-c {target} -t {seconds} -P {streams} --connect-timeout 3000 {datagrams} {reverse}");
        let max = Duration::from_secs(u64::from(seconds)) + GRACE;
        let before_s = busy_s();
        let iperf =
            Iperf { program: "iperf3", server: &net.server, client: &net.client, arguments: &arguments, max };
        let text = iperf.measure()?;
        let busy_s = busy_s().zip(before_s).map(|(after, before)| after - before);
        let failed =
            |why: &dyn std::fmt::Display| Error(format!("iperf3, {}, to {target}: {why}", cell.part.name()));
        let json: serde_json::Value = serde_json::from_str(&text).map_err(|e| failed(&e))?;
        read(&json, cell.part, busy_s).ok_or_else(|| failed(&json["error"]))
    }
}

/// Reads iperf3's report of a run that took `busy_s` of processor time.
fn read(json: &serde_json::Value, part: Part, busy_s: Option<f64>) -> Option<Measured> {
    let end = &json["end"];
    let sum = if part == Part::Tcp { &end["sum_received"] } else { &end["sum"] };
    let gbit_s = sum["bits_per_second"].as_f64()? / 1e9;
    let seconds = sum["seconds"].as_f64()?;
    let lost_percent = (part != Part::Tcp).then(|| sum["lost_percent"].as_f64()).flatten();
    // For UDP, iperf3 reports the rate of the sender, and the lost share.
    let received = gbit_s * (1.0 - lost_percent.unwrap_or(0.0) / 100.0);
    let gbit = received * seconds;
    let each = busy_s.filter(|_| gbit > 0.0).map(|busy_s| 1e3 * busy_s / gbit);
    Some(Measured { gbit_s: received, offered_gbit_s: gbit_s, lost_percent, processor_ms_per_gbit: each })
}

/// Searches the highest offered rate, Gbit/s, of which at most [`LOST_MAX`] is lost. A trial without a rate
/// sends as fast as it can.
fn search(
    trials: u32,
    mut trial: impl FnMut(Option<f64>) -> Result<Measured, Error>,
) -> Result<Measured, Error> {
    let is_good = |measured: &Measured| measured.lost_percent.is_none_or(|lost| lost <= LOST_MAX);
    let full = trial(None)?;
    let whole = |measured: Measured| Measured { processor_ms_per_gbit: None, ..measured };
    if is_good(&full) {
        return Ok(whole(full));
    }
    let (mut low, mut high) = (0.0, full.offered_gbit_s);
    // What arrived at full speed is a good guess.
    let mut rate = full.gbit_s.clamp(0.1 * high, 0.9 * high);
    let nothing =
        Measured { gbit_s: 0.0, offered_gbit_s: 0.0, lost_percent: Some(0.0), processor_ms_per_gbit: None };
    let mut best = nothing;
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
                gbit_s: received,
                offered_gbit_s: offered,
                lost_percent,
                processor_ms_per_gbit: Some(1.0),
            })
        }
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
            Ok(Measured {
                gbit_s: 0.9 * offered,
                offered_gbit_s: offered,
                lost_percent: Some(10.0),
                processor_ms_per_gbit: None,
            })
        };
        assert_eq!(search(5, lossy).unwrap().offered_gbit_s, 0.0);
    }

    #[test]
    fn the_report_of_iperf3_gives_rate_loss_and_processor_time() {
        let udp = serde_json::json!({ "end": { "sum": {
            "bits_per_second": 4e9, "seconds": 2.0, "lost_percent": 50.0 } } });
        let read_udp = read(&udp, Part::Udp, Some(1.0)).unwrap();
        assert_eq!((read_udp.gbit_s, read_udp.offered_gbit_s), (2.0, 4.0));
        assert_eq!(read_udp.processor_ms_per_gbit, Some(250.0));
        let tcp =
            serde_json::json!({ "end": { "sum_received": { "bits_per_second": 1e9, "seconds": 1.0 } } });
        assert_eq!(read(&tcp, Part::Tcp, None).unwrap().lost_percent, None);
        assert_eq!(read(&serde_json::json!({ "error": "busy" }), Part::Tcp, None), None);
    }
}
