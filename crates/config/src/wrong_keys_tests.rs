//! Test of every key with wrong values.

use crate::keys::{FILE_KEYS, Key, Kind};
use crate::{Severity, load_str};

/// A table in an otherwise valid file: its header, and the keys it needs.
struct Place {
    before: &'static str,
    keys: &'static [Key],
    header: &'static str,
    needed: Vec<String>,
}

const POOL_AND_NAT64: &str = "[[pool]]\nprefixes = [\"192.0.2.0/28\"]\n[[nat64]]\npool6 = \"64:ff9b::/96\"\n";

const BEFORE_AN_INSTANCE: &str = r#"[[port]]
name = "outside"
backend = "xdp"
device = "eth0"
[[port]]
name = "customer-a"
backend = "xdp"
device = "eth1"
[[pool]]
name = "res"
prefixes = ["192.0.2.0/28"]
"#;

const DPDK: &str = "[[siit]]\npool6 = \"2001:db8:77::/96\"\n[[port]]\nbackend = \"dpdk\"\ndevice = \"net_null0\"\naddresses = [\"198.51.100.1/24\"]\n";

/// All tables of the file, nested ones included.
fn places() -> Vec<Place> {
    let mut places = Vec::new();
    for section in FILE_KEYS {
        let (Kind::Table(keys) | Kind::Tables(keys)) = &section.kind else {
            panic!("{} is not a table", section.name)
        };
        let header = match section.kind {
            Kind::Tables(_) => format!("[[{}]]", section.name),
            _ => format!("[{}]", section.name),
        };
        let before = match section.name {
            "nat64" | "nat44" => BEFORE_AN_INSTANCE,
            "pool" => "[[nat64]]\npool6 = \"64:ff9b::/96\"\n",
            "siit" => "",
            "dpdk" => DPDK,
            _ => POOL_AND_NAT64,
        };
        let needed = match section.name {
            "pool" => vec!["prefixes = [\"198.51.100.0/28\"]".to_owned()],
            "siit" => vec!["pool6 = \"2001:db8:77::/96\"".to_owned()],
            _ => Vec::new(),
        };
        for inner in *keys {
            let (Kind::Table(inner_keys) | Kind::Tables(inner_keys)) = inner.kind else { continue };
            let outer_needed: String =
                keys.iter().filter(|k| k.required).map(|k| k.example_line() + "\n").collect();
            let bracket = |h: String| {
                if matches!(inner.kind, Kind::Tables(_)) { format!("[[{h}]]") } else { format!("[{h}]") }
            };
            let inner_header =
                format!("{header}\n{outer_needed}{}", bracket(format!("{}.{}", section.name, inner.name)));
            places.push(Place { before, keys: inner_keys, header: leak(inner_header), needed: Vec::new() });
        }
        places.push(Place { before, keys, header: leak(header), needed });
    }
    places
}

fn leak(s: String) -> &'static str {
    Box::leak(s.into_boxed_str())
}

/// The file with `line` in the place, and the number of that line.
fn file(place: &Place, key: &Key, line: &str) -> (String, usize) {
    let mut text = format!("{}{}\n", place.before, place.header);
    for other in place.keys.iter().filter(|k| k.required && k.name != key.name) {
        text.push_str(&other.example_line());
        text.push('\n');
    }
    for needed in place.needed.iter().filter(|n| !n.starts_with(&format!("{} ", key.name))) {
        text.push_str(needed);
        text.push('\n');
    }
    if key.name == "switch_port" {
        text.push_str("backend = \"dpdk\"\ndevice = \"net_null0\"\naddresses = [\"198.51.100.1/24\"]\n");
    }
    for (one, other) in [
        ("p4info", "program_file"),
        ("program_file", "p4info"),
        ("server_name", "certificates"),
        ("etcd_user", "etcd_password_file"),
    ] {
        if key.name == one {
            text.push_str(&format!("{other} = \"/etc/other\"\n"));
        }
    }
    if key.name == "etcd_directory" {
        text = text.replace("http://", "https://");
    }
    if key.name == "etcd_password_file" {
        text.push_str("etcd_user = \"gatun\"\n");
    }
    if key.name == "switch" {
        text.push_str("switch_port = 1\nbackend = \"dpdk\"\ndevice = \"net_null0\"\naddresses = [\"198.51.100.1/24\"]\n");
    }
    if ["vlan", "answers", "neighbours"].contains(&key.name) {
        text.push_str("backend = \"xdp\"\ndevice = \"eth0\"\naddresses = [\"198.51.100.1/24\"]\n");
    }
    let at = text.matches('\n').count() + 1;
    (text + line + "\n", at)
}

/// Values that no key accepts.
const NEVER_RIGHT: &[&str] = &[
    "1.5",
    "nan",
    "1979-05-27",
    "07:32:00",
    "-1",
    "99999999999999999999999999999999999999999999",
    "\"\"",
    "\"never right\"",
    "[1.5]",
    "[[]]",
    "[{}, 1]",
    "{ nonsense = 1 }",
    "\"\\u0000\"",
    "\"\u{1f980}\"",
];

/// Values that some keys accept and that must not cause a panic.
const SOMETIMES_RIGHT: &[&str] = &[
    "true",
    "false",
    "0",
    "1",
    "65536",
    "4294967295",
    "[]",
    "{}",
    "[{}]",
    "\"0\"",
    "\"::/0\"",
    "\"0.0.0.0/0\"",
    "\"::/96\"",
    "\"255.255.255.255\"",
    "\"0.0.0.0-255.255.255.255\"",
    "\"1-65535\"",
    "\"65535\"",
    "\"0s\"",
    "\"1ms\"",
    "\"49d\"",
    "\"4GiB\"",
    "\"[::]:0\"",
    "\"[ff02::1]:1\"",
    "\"0.0.0.0:0\"",
    "\"/dev/null\"",
    "\"/\"",
    "\"auto\"",
    "\"tcp\"",
    "\"127.0.0.1\"",
    "\"224.0.0.1\"",
    "\"fe80::1\"",
    "\"64:ff9b::/96\"",
];

#[test]
fn each_wrong_key_is_an_error_at_its_place() {
    let mut tried = 0;
    for place in places() {
        for key in place.keys {
            for value in NEVER_RIGHT {
                let file_name_is_free = key.name == "eam_file" && value.starts_with('"');
                let (text, at) = file(&place, key, &format!("{} = {value}", key.name));
                let report = match load_str(&text, "f.toml") {
                    Err(report) => report,
                    Ok(_) => panic!("accepted:\n{text}"),
                };
                let located = report.iter().any(|p| {
                    let of_the_value = p.line == at && p.column > key.name.len() + 3;
                    p.severity == Severity::Error
                        && of_the_value
                        && (p.instead.is_some() || file_name_is_free)
                });
                assert!(located, "no error in line {at} of\n{text}\nbut\n{report}");
                assert!(report.pretty(false).contains(&format!("f.toml:{at}:")), "{text}");
                tried += 1;
            }
        }
    }
    assert!(tried > 1_000, "{tried}");
}

#[test]
fn no_value_of_any_key_makes_the_program_panic() {
    for place in places() {
        for key in place.keys {
            for value in SOMETIMES_RIGHT {
                let (text, _) = file(&place, key, &format!("{} = {value}", key.name));
                match load_str(&text, "f.toml") {
                    Ok((config, warnings)) => {
                        drop((config.routes(), config.memory().total(), warnings.pretty(false)))
                    }
                    Err(report) => assert!(report.errors() > 0 && !report.pretty(false).is_empty()),
                }
            }
        }
    }
}

#[test]
fn a_misspelt_key_gets_its_name_as_suggestion() {
    for place in places() {
        for key in place.keys {
            let slip = format!("{}x", key.name);
            let (text, at) = file(&place, key, &format!("{slip} = {}", key.example));
            let report = load_str(&text, "f.toml").err().unwrap_or_else(|| panic!("accepted:\n{text}"));
            let answer = report
                .iter()
                .find(|p| p.line == at && p.column == 1)
                .map(|p| p.instead.unwrap_or("").to_owned());
            let near = answer.unwrap_or_default();
            assert!(near.starts_with("did you mean"), "{text}\n{report}");
        }
    }
}

#[test]
fn the_example_of_every_key_is_valid() {
    for place in places() {
        for key in place.keys.iter().filter(|key| key.name != "eam_file") {
            let (text, at) = file(&place, key, &key.example_line());
            if let Err(report) = load_str(&text, "f.toml") {
                assert!(report.iter().all(|p| p.line != at), "{text}\n{report}");
            }
        }
    }
}
