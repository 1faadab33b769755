//! Measurements that outlive a run: a long benchmark can be interrupted, and goes on in the next run.
//!
//! Each line of the file is a JSON object: the begin of a part, or a measurement. All parts have the same
//! conditions, so that their measurements can be in one table.

use super::super::iperf::measure::Measured;
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Conditions of a measurement: lengths, machine and program.
pub(super) type Conditions = BTreeMap<String, String>;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Part {
        conditions: Conditions,
        load_average: String,
    },
    Measurement {
        run: u32,
        title: String,
        #[serde(flatten)]
        measured: Measured,
    },
}

/// Measurements of this run and, if there is a file, of earlier ones.
#[derive(Debug, Default)]
pub(super) struct Measurements {
    file: Option<(PathBuf, File)>,
    measured: BTreeMap<(u32, String), Measured>,
    /// Load average at the begin of each part.
    parts: Vec<String>,
}

impl Measurements {
    /// Reads a file, if it exists, and begins a part of it.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or written, or has measurements under other conditions.
    pub(super) fn open(
        path: &Path,
        conditions: Conditions,
        load_average: &str,
    ) -> anyhow::Result<Measurements> {
        let name = || path.display().to_string();
        let mut kept = Measurements::default();
        let text = if path.exists() { fs::read_to_string(path).with_context(name)? } else { String::new() };
        for line in text.lines() {
            kept.read(line, &conditions).with_context(name)?;
        }
        let file = File::options().create(true).append(true).open(path).with_context(name)?;
        kept.file = Some((path.to_owned(), file));
        kept.write(&Line::Part { conditions, load_average: load_average.to_owned() })?;
        kept.parts.push(load_average.to_owned());
        Ok(kept)
    }

    fn read(&mut self, line: &str, wanted: &Conditions) -> anyhow::Result<()> {
        match serde_json::from_str(line)? {
            Line::Part { conditions, load_average } => {
                let other = wanted.iter().find(|(name, value)| conditions.get(*name) != Some(value));
                if let Some((name, value)) = other {
                    let earlier = conditions.get(name).map_or("unknown", String::as_str);
                    anyhow::bail!(
                        "measured with another {name}: {earlier}, now {value}. Name a new file to begin again"
                    );
                }
                self.parts.push(load_average);
            }
            Line::Measurement { run, title, measured } => {
                self.measured.insert((run, title), measured);
            }
        }
        Ok(())
    }

    /// A measurement of this run or of an earlier one.
    pub(super) fn get(&self, run: u32, title: &str) -> Option<Measured> {
        self.measured.get(&(run, title.to_owned())).copied()
    }

    pub(super) fn add(&mut self, run: u32, title: String, measured: Measured) -> anyhow::Result<()> {
        self.write(&Line::Measurement { run, title: title.clone(), measured })?;
        self.measured.insert((run, title), measured);
        Ok(())
    }

    /// Load averages at the begin of each part; empty without a file.
    pub(super) fn parts(&self) -> &[String] {
        &self.parts
    }

    /// Writes a line at once, so that a killed run leaves whole lines.
    fn write(&mut self, line: &Line) -> anyhow::Result<()> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        let text = serde_json::to_string(line)? + "\n";
        file.write_all(text.as_bytes()).with_context(|| path.display().to_string())
    }
}

/// Digest of a program's file, for the comparison of conditions.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub(super) fn digest(program: &Path) -> anyhow::Result<String> {
    let bytes = fs::read(program).with_context(|| program.display().to_string())?;
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    Ok(format!("{:016x}", hasher.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(gbit_s: f64) -> Measured {
        Measured { processor_ms_per_gbit: Some(1.5), busy_share: Some(0.5), ..Measured::of_rate(gbit_s) }
    }

    fn conditions(seconds: u32) -> Conditions {
        Conditions::from([("length".to_owned(), format!("{seconds} s"))])
    }

    /// A file that is removed with the test.
    struct TestFile(PathBuf);

    impl TestFile {
        fn new(name: &str) -> TestFile {
            let file = format!("gatun-kept-{name}-{}.jsonl", std::process::id());
            TestFile(std::env::temp_dir().join(file))
        }
    }

    impl Drop for TestFile {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_run_goes_on_with_the_measurements_of_earlier_ones() {
        let path = TestFile::new("go-on");
        let mut first = Measurements::open(&path.0, conditions(10), "0.10").unwrap();
        first.add(1, "TUN".into(), measured(2.0)).unwrap();
        drop(first);
        let mut second = Measurements::open(&path.0, conditions(10), "0.20").unwrap();
        assert_eq!(second.get(1, "TUN"), Some(measured(2.0)));
        assert_eq!((second.get(2, "TUN"), second.get(1, "tayga")), (None, None));
        second.add(2, "TUN".into(), measured(3.0)).unwrap();
        let third = Measurements::open(&path.0, conditions(10), "0.30").unwrap();
        assert_eq!([1, 2].map(|run| third.get(run, "TUN")), [2.0, 3.0].map(|rate| Some(measured(rate))));
        assert_eq!(third.parts(), ["0.10", "0.20", "0.30"]);
    }

    #[test]
    fn measurements_under_other_conditions_are_refused() {
        let path = TestFile::new("other");
        drop(Measurements::open(&path.0, conditions(10), "0.10").unwrap());
        let error = format!("{:#}", Measurements::open(&path.0, conditions(180), "0.10").unwrap_err());
        assert!(error.contains("another length: 10 s, now 180 s"), "{error}");
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let path = TestFile::new("damaged");
        fs::write(&path.0, "{\"measurement\":{\"run\":1").unwrap();
        assert!(Measurements::open(&path.0, conditions(10), "0.10").is_err());
    }

    #[test]
    fn without_a_file_measurements_stay_in_the_run() {
        let mut kept = Measurements::default();
        kept.add(1, "TUN".into(), measured(2.0)).unwrap();
        assert_eq!(kept.get(1, "TUN"), Some(measured(2.0)));
        assert!(kept.parts().is_empty());
    }
}
