//! CSV (RFC 4180): a header, and a line for each entry. The columns come from the type, so that an empty
//! list has the same header, and each line as many values as the header has names.

use gatun_api::schema::Schema;
use serde_json::Value;
use std::io::{self, Write};

/// Fields of an object in a list that are written, as `NAME=VALUE`.
const PAIRS: [(&str, &str); 2] = [("name", "value"), ("part", "urgency")];

/// CSV writer.
pub(super) struct Csv {
    /// Paths of fields. A nested field has the name `field.field`.
    columns: Vec<Vec<&'static str>>,
    line: String,
}

impl Csv {
    pub(super) fn new<T: Schema>() -> Csv {
        Csv { columns: gatun_api::types::columns::<T>(), line: String::new() }
    }

    pub(super) fn header(&self, out: &mut impl Write) -> io::Result<()> {
        let names: Vec<String> = self.columns.iter().map(|path| path.join(".")).collect();
        writeln!(out, "{}", names.join(","))
    }

    pub(super) fn write(&mut self, out: &mut impl Write, item: &Value) -> io::Result<()> {
        self.line.clear();
        for path in &self.columns {
            let value = path.iter().try_fold(item, |value, field| value.get(field));
            self.line.push_str(&escaped(value.unwrap_or(&Value::Null)));
            self.line.push(',');
        }
        self.line.pop();
        writeln!(out, "{}", self.line)
    }
}

/// Text of a value. A list is one value: words with blanks between them, or sentences with semicolons.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(text).collect();
            let separator = if items.iter().any(|item| item.contains(' ')) { "; " } else { " " };
            items.join(separator)
        }
        Value::Object(fields) => {
            let pair = PAIRS.iter().find_map(|(name, value)| Some((fields.get(*name)?, fields.get(*value)?)));
            pair.map_or_else(|| value.to_string(), |(name, value)| format!("{}={}", text(name), text(value)))
        }
        value => value.to_string(),
    }
}

fn escaped(value: &Value) -> String {
    let text = text(value);
    match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_api::types::{Block, Export, Status, Subscriber, Worker};
    use serde_json::json;

    fn header<T: Schema>() -> String {
        let mut out = Vec::new();
        Csv::new::<T>().header(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn line<T: Schema>(item: &Value) -> String {
        let mut out = Vec::new();
        Csv::new::<T>().write(&mut out, item).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn nested_fields_have_a_column_each_named_by_their_path() {
        let wanted = "instance,subscriber,address,sessions,tcp_ports,udp_ports,icmp_ids,blocks,refused_sessions,\
            refused_rate,refused_ports,refused_blocks,outbound.packets,outbound.bytes,inbound.packets,inbound.bytes\n";
        assert_eq!(header::<Subscriber>(), wanted);
        assert_eq!(header::<Export>(), "name,connected,sent,lost,waiting,spooled_bytes\n");
        let got = line::<Subscriber>(
            &json!({ "instance": "a,\"b\"", "address": null, "outbound": { "bytes": 2, "packets": 1 } }),
        );
        assert_eq!(got, "\"a,\"\"b\"\"\",,,,,,,,,,,,1,2,,\n");
    }

    #[test]
    fn a_list_is_one_value_and_a_counter_in_it_its_name_and_count() {
        let block = line::<Block>(&json!({ "pool": "p", "protocols": ["tcp", "udp"], "instance": "i" }));
        assert_eq!(block, "p,,,,tcp udp,i,\n");
        let counter =
            |name: &str, value: u64| json!({ "name": name, "value": value, "help": "A sentence of it." });
        let counters =
            json!({ "number": 3, "device_counters": [counter("tx_full", 1), counter("rx_error", 20)] });
        let worker = line::<Worker>(&counters);
        assert!(worker.starts_with("3,") && worker.ends_with(",tx_full=1 rx_error=20\n"), "{worker}");
        let status = line::<Status>(&json!({
            "sandbox": { "state": "partly", "missing": ["no signals", "no sockets"] },
            "troubles": [{ "urgency": "bad", "part": "log", "what": "It is full, and old." }],
        }));
        assert!(
            status.contains(",partly,no signals; no sockets,") && status.ends_with(",log=bad\n"),
            "{status}"
        );
    }
}
