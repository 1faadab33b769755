//! Output of API answers as tables, CSV or JSON.

mod csv;
mod past;
mod rows;

pub(crate) use past::who_had;

use anyhow::Context as _;
use csv::Csv;
use gatun_api::schema::Schema;
use gatun_api::types::{HostPorts, Outcome, PortHolder};
use gatun_daemon::tables::{counted, table_of, table_of_fields};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, BufRead as _, BufReader, BufWriter, ErrorKind, Read, Write};

/// Error of an answer that ends too early.
pub(crate) const CONNECTION_LOST: &str = "lost the connection to the daemon";

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// Table
    Table,
    /// JSON of the API
    Json,
    /// JSON of the API, one object per line
    Ndjson,
    /// CSV with a header (RFC 4180)
    Csv,
}

/// API type that can be a table row.
pub(crate) trait Shown: Serialize + DeserializeOwned + Schema {
    /// Column names.
    const COLUMNS: &'static [&'static str];

    /// Cells of the row.
    fn cells(&self) -> Vec<String>;
}

/// Formats a single object; a table has a row for each field.
pub(crate) fn one<T: Shown>(thing: &T, output: Output) -> anyhow::Result<Vec<u8>> {
    match output {
        Output::Table => {
            let mut table = table_of_fields();
            for (name, cell) in T::COLUMNS.iter().zip(thing.cells()) {
                table.add_row([(*name).to_owned(), cell]);
            }
            Ok(format!("{table}\n").into_bytes())
        }
        Output::Csv => all(std::slice::from_ref(thing), output),
        _ => as_json(thing, output),
    }
}

/// Formats JSON, indented or on one line.
pub(crate) fn as_json<T: Serialize>(thing: &T, output: Output) -> anyhow::Result<Vec<u8>> {
    let mut text = match output {
        Output::Json => serde_json::to_vec_pretty(thing)?,
        _ => serde_json::to_vec(thing)?,
    };
    text.push(b'\n');
    Ok(text)
}

/// Formats a short list.
pub(crate) fn all<T: Shown>(items: &[T], output: Output) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    match output {
        Output::Table => writeln!(text, "{}", rows(items))?,
        Output::Json => return as_json(&items, output),
        Output::Ndjson => {
            items.iter().try_for_each(|item| as_json(item, output).map(|line| text.extend(line)))?
        }
        Output::Csv => {
            let mut csv = Csv::new::<T>();
            csv.header(&mut text)?;
            for item in items {
                csv.write(&mut text, &serde_json::to_value(item)?)?;
            }
        }
    }
    Ok(text)
}

fn rows<T: Shown>(items: &[T]) -> gatun_daemon::tables::Table {
    let mut table = table_of(T::COLUMNS);
    for item in items {
        table.add_row(item.cells());
    }
    table
}

/// Prints a streamed list up to a limit and returns whether it was complete.
pub(crate) fn list<T: Shown>(lines: impl Read, output: Output, limit: usize) -> anyhow::Result<bool> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let done = write_list::<T>(lines, output, limit, &mut out).and_then(|is_whole| {
        out.flush()?;
        Ok(is_whole)
    });
    match done {
        // A closed pipe (`| head`) is no error.
        Err(error)
            if error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe) =>
        {
            // Nothing may be written again on exit.
            drop(out.into_parts());
            Ok(true)
        }
        other => other,
    }
}

fn write_list<T: Shown>(
    mut lines: impl Read,
    output: Output,
    limit: usize,
    out: &mut impl Write,
) -> anyhow::Result<bool> {
    if output == Output::Ndjson && limit == usize::MAX {
        // Unchanged.
        let mut some = vec![0; 1 << 18];
        loop {
            match lines.read(&mut some).context(CONNECTION_LOST)? {
                0 => return Ok(true),
                n => out.write_all(&some[..n])?,
            }
        }
    }
    let mut reader = BufReader::with_capacity(1 << 18, lines);
    let (mut line, mut count, mut items) = (Vec::new(), 0usize, Vec::new());
    let mut csv = Csv::new::<T>();
    if output == Output::Csv {
        csv.header(out)?;
    }
    let is_whole = loop {
        line.clear();
        if reader.read_until(b'\n', &mut line).context(CONNECTION_LOST)? == 0 {
            break true;
        }
        if count == limit {
            break false;
        }
        match output {
            Output::Table => items.push(serde_json::from_slice::<T>(&line)?),
            Output::Ndjson => out.write_all(&line)?,
            Output::Json => {
                out.write_all(if count == 0 { b"[\n" } else { b",\n" })?;
                out.write_all(line.trim_ascii_end())?;
            }
            Output::Csv => csv.write(out, &serde_json::from_slice(&line)?)?,
        }
        count += 1;
    };
    match output {
        Output::Table => writeln!(out, "{}", rows(&items))?,
        Output::Json if count == 0 => out.write_all(b"[]\n")?,
        Output::Json => out.write_all(b"\n]\n")?,
        _ => {}
    }
    Ok(is_whole)
}

/// Text about the holder of a public port.
pub(crate) fn who(who: &PortHolder) -> anyhow::Result<String> {
    let (address, port) = (who.address, who.port);
    let mut text = String::new();
    if let Some(pool) = &who.pool {
        text += &format!("{address} is in pool {pool}\n");
    }
    for why in &who.unknown {
        text += &format!("UNKNOWN: {why}\n");
    }
    for holder in &who.planned {
        text += &past::planned(holder, address);
    }
    for block in &who.blocks {
        text += &format!(
            "ports {}-{} belong to subscriber {} ({})\n",
            block.first_port, block.last_port, block.subscriber, block.instance
        );
    }
    for binding in &who.bindings {
        let whose = if binding.shared { "is shared; one of its flows belongs to" } else { "is" };
        let kind = if binding.configured { ", static" } else { "" };
        text += &format!(
            "{} {address}:{port} {whose} {} port {} ({}){kind}\n",
            binding.protocol, binding.inside, binding.inside_port, binding.instance
        );
    }
    if who.outcome == Outcome::Nobody {
        text += &match who.pool {
            Some(_) => format!("port {port} is not in use\n"),
            None => format!("{address} is not in a pool, and no mapping covers it\n"),
        };
    }
    if !who.sessions.is_empty() {
        text += &format!("\n{}\n", rows(&who.sessions));
    }
    if who.more_sessions {
        text += &format!("... and more: gatun show sessions --outside {address} --outside-port {port}\n");
    }
    Ok(text)
}

/// Text about the public addresses and ports of an inside host.
pub(crate) fn host_ports(found: &HostPorts) -> anyhow::Result<String> {
    let mut text = String::new();
    if found.subscribers.is_empty() {
        text += &format!("{} has no sessions or bindings\n", found.address);
    }
    for subscriber in &found.subscribers {
        let seen =
            subscriber.address.map_or("no public address yet".to_owned(), |a| format!("public address {a}"));
        let sessions = counted(subscriber.sessions.into(), "session");
        text += &format!(
            "{} belongs to subscriber {} ({}), {seen}; {sessions}\n",
            found.address, subscriber.subscriber, subscriber.instance
        );
    }
    for block in &found.blocks {
        text += &format!("ports {}-{} of {}\n", block.first_port, block.last_port, block.address);
    }
    if !found.bindings.is_empty() {
        text += &format!("\n{}\n", rows(&found.bindings));
    }
    if found.more_bindings {
        text += &format!("... and more: gatun show bindings --inside {}\n", found.address);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_api::types::Session;

    const LINE: &str = r#"{"instance":"a,b","protocol":"tcp","inside":"2001:db8::1","inside_port":5000,"outside":"192.0.2.1","outside_port":40000,"remote":"198.51.100.7","remote_port":443,"state":"established","expires_ms":61000,"configured":false,"shared":false,"offloaded":false}"#;

    fn written(lines: &str, output: Output, limit: usize) -> (String, bool) {
        let mut out = Vec::new();
        let is_whole = write_list::<Session>(lines.as_bytes(), output, limit, &mut out).unwrap();
        (String::from_utf8(out).unwrap(), is_whole)
    }

    #[test]
    fn lists_are_written_in_each_format_up_to_the_limit() {
        let three = format!("{LINE}\n{LINE}\n{LINE}\n");
        assert_eq!(written(&three, Output::Ndjson, usize::MAX), (three.clone(), true));
        assert_eq!(written(&three, Output::Ndjson, 2), (format!("{LINE}\n{LINE}\n"), false));
        let (json, _) = written(&three, Output::Json, 3);
        assert_eq!(serde_json::from_str::<Vec<Session>>(&json).unwrap().len(), 3);
        assert_eq!(written("", Output::Json, 3), ("[]\n".into(), true));
        let (csv, is_whole) = written(&three, Output::Csv, 1);
        let header = "instance,protocol,inside,inside_port,outside,outside_port,remote,remote_port,state,expires_ms,configured,shared,offloaded";
        let row = "\"a,b\",tcp,2001:db8::1,5000,192.0.2.1,40000,198.51.100.7,443,established,61000,false,false,false";
        assert_eq!((csv.as_str(), is_whole), (format!("{header}\n{row}\n").as_str(), false));
        assert_eq!(written("", Output::Csv, 1).0, format!("{header}\n"));
        let (table, _) = written(&three, Output::Table, 3);
        assert!(table.contains("2001:db8::1 port 5000") || table.contains("[2001:db8::1]:5000"), "{table}");
    }
}
