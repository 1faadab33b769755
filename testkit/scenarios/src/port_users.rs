//! Users of public ports over time, by the logs of all boxes: `gatun log show`.
//!
//! A log says when its box began and ended to keep a port for an inside host. Two boxes may keep a port for
//! the same host at one time, and never for different ones.

use crate::report::{Report, group};
use anyhow::{Context as _, ensure};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;

/// Line of `gatun log show`.
#[derive(Deserialize)]
struct Line {
    time: String,
    event: Option<String>,
    mark: Option<String>,
    #[serde(default)]
    protocols: Vec<String>,
    outside: Option<String>,
    outside_port: Option<u16>,
    outside_ports: Option<[u16; 2]>,
    inside: Option<String>,
    inside_port: Option<u16>,
}

impl Line {
    /// First and last public port.
    fn ports(&self) -> Option<[u16; 2]> {
        self.outside_ports.or(self.outside_port.map(|port| [port, port]))
    }
}

/// Time in which a box has kept a port, or a block of ports, for a user. Times are texts of RFC 3339 in UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Use {
    begin: String,
    /// `None` if it goes on.
    end: Option<String>,
    user: (String, Option<u16>),
    number: usize,
}

/// Time from which on a box that was killed translates nothing more, by its kernel neither. Without it, its
/// log only tells when its next process began, which may be after another box has assigned its ports.
#[derive(Clone, Debug)]
pub(crate) struct Silence {
    number: usize,
    /// RFC 3339, in UTC.
    from: String,
}

impl Silence {
    /// Silence of a box in some seconds from now: 0, or the lease of its kernel.
    pub(crate) fn in_seconds(number: usize, seconds: u64) -> anyhow::Result<Silence> {
        let when = format!("+{seconds} seconds");
        let mut date = Command::new("date");
        let text = gatun_testkit::run(date.args(["-u", "-d", &when, "+%Y-%m-%dT%H:%M:%S.%3NZ"]))?;
        Ok(Silence { number, from: text.trim().to_owned() })
    }
}

/// Protocol, public address and ports.
type Place = (String, String, [u16; 2]);

/// Ports and blocks that the logs of all boxes name, with the number of their users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PortUsers {
    ports: usize,
    users: usize,
}

/// Judges the users of all public ports. Each box has the directories of its log, the oldest first.
pub(crate) fn judge(report: &mut Report, gatun: &Path, logs: &[Vec<String>], silences: &[Silence]) {
    let users = check(gatun, logs, silences);
    let why = users.as_ref().err().map(|error| format!("{error:#}"));
    report.check(why.is_none(), "no public port had two users, at any time, by the logs of all boxes".into());
    report.notes.extend(why);
    if let Ok(PortUsers { ports, users }) = users {
        let (users, ports) = (group(users as u64), group(ports as u64));
        report.notes.push(format!("The logs have {users} users of {ports} public ports."));
    }
}

/// Reads the logs of all boxes, and checks that no port has two users at one time.
///
/// # Errors
/// A log cannot be read, has lost events, or a port has two users.
fn check(gatun: &Path, logs: &[Vec<String>], silences: &[Silence]) -> anyhow::Result<PortUsers> {
    let of_box = |directories: &Vec<String>| -> anyhow::Result<String> {
        directories.iter().map(|one| shown(gatun, one)).collect()
    };
    check_texts(&logs.iter().map(of_box).collect::<anyhow::Result<Vec<_>>>()?, silences)
}

/// Lines of a log.
fn shown(gatun: &Path, directory: &str) -> anyhow::Result<String> {
    let said = Command::new(gatun).args(["log", "show", "--store", directory]).output()?;
    ensure!(said.status.success(), "log in {directory}: {}", String::from_utf8_lossy(&said.stderr));
    Ok(String::from_utf8(said.stdout)?)
}

fn check_texts(texts: &[String], silences: &[Silence]) -> anyhow::Result<PortUsers> {
    let mut all: BTreeMap<Place, Vec<Use>> = BTreeMap::new();
    for (number, text) in texts.iter().enumerate() {
        let silences = silences.iter().filter(|silence| silence.number == number);
        let silences: Vec<&str> = silences.map(|silence| &*silence.from).collect();
        read((number, &silences), text, &mut all)
            .map_err(|why| match why.downcast_ref::<RecordError>().map(|one| lines_about(text, &one.place)) {
                Some(lines) => why.context(lines),
                None => why,
            })
            .with_context(|| format!("log of box {number}"))?;
    }
    let mut found = PortUsers { ports: all.len(), users: 0 };
    for (place, mut uses) in all {
        uses.sort_by(|a, b| a.begin.cmp(&b.begin));
        found.users += uses.len();
        // The use that ends last, of those before: `None` is later than all.
        let mut last: Option<Use> = None;
        for one in uses {
            if let Some(before) = &last {
                let goes_on = before.end.as_ref().is_none_or(|end| *end > one.begin);
                ensure!(
                    !goes_on || before.user == one.user,
                    "{place:?} has two users at one time: {before:?} at box {} and {one:?} at box {}",
                    before.number,
                    one.number
                );
            }
            let ends_later = |before: &Use| match (&before.end, &one.end) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(before), Some(end)) => before > end,
            };
            last = last.filter(ends_later).or(Some(one));
        }
    }
    Ok(found)
}

/// Port whose records contradict each other.
#[derive(Debug)]
struct RecordError {
    place: Place,
    what: &'static str,
}

impl std::fmt::Display for RecordError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {}", self.place, self.what)
    }
}

impl std::error::Error for RecordError {}

/// Records of a log about a port, and the marks between them.
fn lines_about(text: &str, (protocol, outside, ports): &Place) -> String {
    let is_about = |line: &&str| {
        serde_json::from_str::<Line>(line).is_ok_and(|line| {
            line.mark.is_some()
                || line.outside.as_ref() == Some(outside)
                    && line.ports().as_ref() == Some(ports)
                    && line.protocols.contains(protocol)
        })
    };
    text.lines().filter(is_about).collect::<Vec<_>>().join("\n")
}

/// Reads the log of a box with these times of silence.
fn read(
    (number, silences): (usize, &[&str]),
    text: &str,
    all: &mut BTreeMap<Place, Vec<Use>>,
) -> anyhow::Result<()> {
    let mut open: HashMap<Place, Use> = HashMap::new();
    let mut last = String::new();
    for line in text.lines() {
        let line: Line = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let before = std::mem::replace(&mut last, line.time.clone());
        match line.mark.as_deref() {
            // What continues is reported again.
            Some("start" | "stop") => {
                let is_between = |time: &&&str| *before <= ***time && ***time < *line.time;
                let end = silences.iter().rfind(is_between).map_or(line.time.clone(), |time| (*time).into());
                for (place, one) in open.drain() {
                    all.entry(place).or_default().push(Use { end: Some(end.clone()), ..one });
                }
            }
            Some("lost") => anyhow::bail!("events were lost before {}", line.time),
            Some("damaged") => anyhow::bail!("the log is damaged"),
            _ => {}
        }
        let ports = line.ports();
        let (Some(event), Some(outside), Some(inside)) = (line.event, line.outside, line.inside) else {
            continue;
        };
        let ports = ports.context("a record without ports")?;
        for protocol in line.protocols {
            let place = (protocol, outside.clone(), ports);
            let (begin, user) = (line.time.clone(), (inside.clone(), line.inside_port));
            match event.as_str() {
                "binding_created" | "binding_kept" | "block_assigned" | "block_kept" => {
                    let before = open.insert(place.clone(), Use { begin, end: None, user, number });
                    if before.is_some() {
                        return Err(RecordError { place, what: "begins twice" }.into());
                    }
                }
                "binding_deleted" | "block_released" => {
                    let Some(one) = open.remove(&place) else {
                        return Err(RecordError { place, what: "ends before it begins" }.into());
                    };
                    if one.user != user {
                        return Err(RecordError { place, what: "ends for another user" }.into());
                    }
                    all.entry(place).or_default().push(Use { end: Some(begin), ..one });
                }
                other => anyhow::bail!("unknown event {other}"),
            }
        }
    }
    open.into_iter().for_each(|(place, one)| all.entry(place).or_default().push(one));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(second: u8, event: &str, inside_port: u16) -> String {
        let line = format!(
            r#"{{"time":"2026-01-31T12:00:{second:02}.000Z","event":"{event}","protocols":["tcp"],
                "outside":"192.0.2.1","outside_port":7,"inside":"2001:db8::1","inside_port":{inside_port}}}"#
        );
        line.replace('\n', "")
    }

    fn mark(second: u8, mark: &str) -> String {
        format!(r#"{{"time":"2026-01-31T12:00:{second:02}.000Z","mark":"{mark}"}}"#)
    }

    fn of(logs: &[&[String]]) -> Result<PortUsers, String> {
        let texts: Vec<String> = logs.iter().map(|lines| lines.join("\n")).collect();
        check_texts(&texts, &[]).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_killed_box_is_silent_from_a_known_time_on() {
        let killed = [record(1, "binding_created", 5), mark(8, "start")].join("\n");
        let other = record(4, "binding_created", 6);
        let of = |second: u8| {
            let from = format!("2026-01-31T12:00:{second:02}.000Z");
            check_texts(&[killed.clone(), other.clone()], &[Silence { number: 0, from }])
        };
        assert_eq!(of(4).unwrap(), PortUsers { ports: 1, users: 2 });
        assert!(of(5).unwrap_err().to_string().contains("two users"));
        // It is another box's, or later than the next process.
        assert!(of(9).unwrap_err().to_string().contains("two users"));
        let of_other = Silence { number: 1, from: "2026-01-31T12:00:04.000Z".into() };
        assert!(check_texts(&[killed, other], &[of_other]).is_err());
    }

    #[test]
    fn a_port_with_two_users_at_one_time_is_found() {
        let first = [record(1, "binding_created", 5), record(4, "binding_deleted", 5)];
        let same = [record(2, "binding_kept", 5), record(3, "binding_deleted", 5)];
        let later = [record(4, "binding_created", 6)];
        let early = [record(3, "binding_created", 6)];
        assert_eq!(of(&[&first, &same, &later]), Ok(PortUsers { ports: 1, users: 3 }));
        assert!(of(&[&first, &same, &early]).unwrap_err().contains("two users"));
        // One that goes on, and one within another.
        assert!(of(&[&first[..1], &later]).unwrap_err().contains("two users"));
        let inner = [record(2, "binding_created", 6), record(3, "binding_deleted", 6)];
        assert!(of(&[&first, &inner]).unwrap_err().contains("two users"));
    }

    #[test]
    fn a_new_process_ends_what_it_does_not_keep() {
        let killed = [record(1, "binding_created", 5), mark(3, "start"), record(6, "binding_created", 6)];
        let other = [record(4, "binding_created", 7), record(5, "binding_deleted", 7)];
        assert_eq!(of(&[&killed, &other]), Ok(PortUsers { ports: 1, users: 3 }));
        assert!(of(&[&[mark(1, "lost")]]).unwrap_err().contains("lost"));
        assert!(of(&[&other[1..]]).unwrap_err().contains("before it begins"));
    }
}
