//! Time from a new connection until a second box has its session.

use super::goals::Series;
use crate::report::Table;
use anyhow::Context as _;
use gatun_testkit::PairNetwork;
use gatun_testkit::pair::SERVER4;

/// Connections, one after the other.
const COUNT: usize = 500;
const COUNT_BRIEF: usize = 20;

/// Lag of the sessions of a run: median and 99th percentile, ms.
pub(super) struct Lag {
    lag_ms: [f64; 2],
    /// Time of an answer of the API, which is a part of it.
    answer_ms: [f64; 2],
}

fn quantiles(mut times: Vec<f64>) -> Option<[f64; 2]> {
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times.get((times.len() * percent).div_ceil(100).checked_sub(1)?).copied();
    Some([at(50)?, at(99)?])
}

impl Lag {
    /// Opens connections from addresses of the client in turn. Asks all boxes by their APIs again and again
    /// until two of them have the session of a connection. The time of an answer is part of the lag.
    pub(super) fn measure(
        net: &PairNetwork,
        sockets: &[String],
        hosts: &[String],
        is_brief: bool,
    ) -> anyhow::Result<Lag> {
        let count = if is_brief { COUNT_BRIEF } else { COUNT }.to_string();
        let (sockets, hosts) = (sockets.join(","), hosts.join(","));
        let arguments = [super::probe::SERVER, super::probe::PORT, &count, &sockets, &hosts, SERVER4];
        let said = gatun_testkit::run(&mut net.client.python(include_str!("probe/lag.py"), &arguments))?;
        let [lags, answers]: [Vec<f64>; 2] = serde_json::from_str(&said).with_context(|| said)?;
        let (lag_ms, answer_ms) = (quantiles(lags), quantiles(answers));
        let (lag_ms, answer_ms) = lag_ms.zip(answer_ms).context("no lag was measured")?;
        Ok(Lag { lag_ms, answer_ms })
    }
}

/// Table of the lags of all runs.
pub(super) fn table(lags: &[Lag]) -> Table {
    let row = |name: &str, of: fn(&Lag) -> [f64; 2]| {
        let shown = |n: usize| Series::new(lags.iter().map(|lag| of(lag)[n])).shown(1);
        vec![name.to_owned(), shown(0), shown(1)]
    };
    Table {
        title: "Time from a client's new connection until a second box has its session".into(),
        header: ["", "p50, ms", "p99, ms"].map(Into::into).to_vec(),
        rows: vec![
            row("with the answers of both boxes", |lag| lag.lag_ms),
            row("an answer of a box", |lag| lag.answer_ms),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_of_the_list() {
        let times: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(quantiles(times), Some([100.0, 198.0]));
        assert_eq!(quantiles(vec![3.0]), Some([3.0, 3.0]));
        assert_eq!(quantiles(vec![]), None);
    }
}
