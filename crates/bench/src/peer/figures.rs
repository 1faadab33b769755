//! Least, median and most of the figures of several runs.

use crate::measure::median;
use serde_json::{Map, Value, json};

/// Goals for the medians at the default load: figures, and their greatest values.
const GOALS: [(&str, f64); 6] = [
    ("sync.seconds", 5.0),
    ("sync.packet_cost_percent", 3.0),
    ("sync.bytes_per_session", 60.0),
    ("steady.owner_percent", 10.0),
    ("steady.backup_percent", 10.0),
    ("steady.bytes_per_session", 60.0),
];

fn goal(name: &str) -> Option<f64> {
    GOALS.iter().find(|(of, _)| *of == name).map(|(_, goal)| *goal)
}

/// Figures of several runs. Each has the form of the results of one run.
pub(super) struct RunFigures {
    least: Value,
    median: Value,
    most: Value,
}

impl RunFigures {
    pub(super) fn of(runs: &[Value]) -> RunFigures {
        let runs: Vec<&Value> = runs.iter().collect();
        RunFigures {
            least: each(&runs, &|all| all.into_iter().fold(f64::INFINITY, f64::min)),
            median: each(&runs, &median),
            most: each(&runs, &|all| all.into_iter().fold(f64::NEG_INFINITY, f64::max)),
        }
    }

    /// Names of the figures whose medians miss their goals.
    fn missed(&self) -> Vec<String> {
        let all = lines(&self.median).into_iter();
        all.filter(|(name, median)| goal(name).is_some_and(|goal| *median > goal))
            .map(|(name, _)| name)
            .collect()
    }

    /// One object with the medians, and with the least and the most figures. `has_goals` is false for another
    /// load than the default one.
    pub(super) fn json(self, (workers, has_goals): (u64, bool), runs: u64, cpu: &str) -> Value {
        let mut all = json!({ "workers": workers, "runs": runs, "cpu": cpu });
        if has_goals {
            all["missed_goals"] = json!(self.missed());
        }
        if let (Value::Object(all), Value::Object(medians)) = (&mut all, self.median) {
            all.extend(medians);
            all.insert("least".to_owned(), self.least);
            all.insert("most".to_owned(), self.most);
        }
        all
    }

    pub(super) fn print(&self, has_goals: bool, runs: u64) {
        let [least, median, most] = [&self.least, &self.median, &self.most].map(lines);
        let title = if has_goals { "goal" } else { "" };
        println!(
            "{:<36} {:>14} {:>14} {:>14} {title:>8}",
            format!("figure, runs: {runs}"),
            "least",
            "median",
            "most"
        );
        for (((name, least), (_, median)), (_, most)) in least.iter().zip(median).zip(most) {
            let goal = goal(name).filter(|_| has_goals).map(|goal| format!("{goal}")).unwrap_or_default();
            println!("{name:<36} {least:>14} {median:>14} {most:>14} {goal:>8}");
        }
        if has_goals {
            let missed = self.missed();
            let missed = if missed.is_empty() { "none".to_owned() } else { missed.join(", ") };
            println!("goals that the medians miss: {missed}");
        }
    }
}

/// Applies a function to the numbers that several values of one form have in each place.
fn each(values: &[&Value], of: &dyn Fn(Vec<f64>) -> f64) -> Value {
    match values.first() {
        Some(Value::Object(first)) => {
            let member = |name| values.iter().filter_map(|value| value.get(name)).collect::<Vec<_>>();
            let members = first.keys().map(|name| (name.clone(), each(&member(name), of)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        Some(Value::Array(first)) => {
            let member = |n| values.iter().filter_map(|value| value.get(n)).collect::<Vec<_>>();
            Value::Array((0..first.len()).map(|n| each(&member(n), of)).collect())
        }
        Some(first @ Value::Number(_)) => {
            let number = of(values.iter().filter_map(|value| value.as_f64()).collect());
            // Whole numbers stay whole, except the median of an even number of runs: it is one of them, too.
            if first.is_u64() { json!(number as u64) } else { json!(number) }
        }
        Some(other) => (*other).clone(),
        None => Value::Null,
    }
}

/// Names and numbers, in their order.
fn lines(value: &Value) -> Vec<(String, f64)> {
    let under = |name: &str, value: &Value| -> Vec<(String, f64)> {
        let named = |(rest, number): (String, f64)| match rest.is_empty() {
            true => (name.to_owned(), number),
            false => (format!("{name}.{rest}"), number),
        };
        lines(value).into_iter().map(named).collect()
    };
    match value {
        Value::Object(members) => members.iter().flat_map(|(name, value)| under(name, value)).collect(),
        Value::Array(members) => {
            members.iter().enumerate().flat_map(|(n, value)| under(&n.to_string(), value)).collect()
        }
        _ => value.as_f64().map(|number| (String::new(), number)).into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_compared_with_their_goals() {
        let run =
            |seconds: f64, bytes: f64| json!({ "sync": { "seconds": seconds, "bytes_per_session": bytes } });
        let missed = |runs: &[Value]| RunFigures::of(runs).missed();
        assert_eq!(missed(&[run(4.0, 35.0), run(4.9, 35.0), run(9.0, 61.0)]), [""; 0]);
        assert_eq!(
            missed(&[run(4.0, 35.0), run(5.1, 61.0), run(9.0, 61.0)]),
            ["sync.bytes_per_session", "sync.seconds"]
        );
    }

    #[test]
    fn each_figure_is_summarized_in_its_place() {
        let run = |seconds: f64, packets: u64| {
            let takeover = json!([{ "packets": packets, "first_ns": null }]);
            json!({ "sync": { "seconds": seconds }, "takeover": takeover })
        };
        let summary = RunFigures::of(&[run(3.0, 7), run(1.0, 9), run(2.5, 8)]);
        assert_eq!(lines(&summary.least), [("sync.seconds".into(), 1.0), ("takeover.0.packets".into(), 7.0)]);
        assert_eq!(lines(&summary.most), [("sync.seconds".into(), 3.0), ("takeover.0.packets".into(), 9.0)]);
        let all = summary.json((1, true), 3, "x");
        assert_eq!(all["missed_goals"], json!([]));
        assert_eq!((&all["sync"]["seconds"], &all["takeover"][0]["packets"]), (&json!(2.5), &json!(8)));
        assert_eq!((&all["runs"], &all["most"]["sync"]["seconds"]), (&json!(3), &json!(3.0)));
    }
}
