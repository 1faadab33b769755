//! Check of the texts that Gatun prints: no value in Rust's `Debug` form, nouns that agree with their
//! numbers, and thousands with commas.

/// Traces of `Debug`.
const DEBUG: [&str; 7] = ["Some(", "None)", "Ok(", "Err(", "Ipv4Addr", "Ipv6Addr", "\\u{"];

/// Words with a number behind them that names something and counts nothing.
const NAMES: [&str; 22] = [
    "AS",
    "RFC",
    "Linux",
    "MTU",
    "core",
    "cpu",
    "gid",
    "line",
    "mapping",
    "number",
    "pid",
    "port",
    "process",
    "processor",
    "processors",
    "queue",
    "revision",
    "segment",
    "socket",
    "uid",
    "version",
    "worker",
];

/// Words that end in s and are no plural of what is counted.
const NO_PLURALS: [&str; 14] = [
    "address", "as", "belongs", "does", "ends", "exists", "gets", "has", "is", "its", "needs", "process",
    "this", "was",
];

/// Returns the first line of a text for people that is not written for people, and the reason.
pub fn unreadable(text: &str) -> Option<String> {
    text.lines().find_map(|line| Some(format!("{}: {line}", fault(line)?)))
}

fn fault(line: &str) -> Option<String> {
    if DEBUG.iter().any(|trace| line.contains(trace))
        || line.match_indices(" { ").any(|(at, _)| is_struct(&line[..at]))
    {
        return Some("a value as Rust's Debug writes it".to_owned());
    }
    // Two blanks are the border of a column.
    line.split("  ").find_map(fault_of_numbers)
}

fn fault_of_numbers(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.iter().enumerate().find_map(|(at, word)| {
        let before = at.checked_sub(1).map_or("", |before| words[before]);
        let number = word.trim_start_matches(['(', '"', '\'']);
        if !number.chars().all(|c| c.is_ascii_digit())
            || NAMES.contains(&before.trim_start_matches(['(', '"', '\'']))
        {
            return None;
        }
        let next = words.get(at + 1).copied().unwrap_or_default();
        let is_of_a_sum = before == "of" && at >= 2 && words[at - 2].ends_with(|c: char| c.is_ascii_digit());
        match number.len() {
            1 if number == "1" && is_plural(next) => Some(format!("a plural after 1, '1 {next}'")),
            4.. if is_plural(next) || is_of_a_sum => {
                Some(format!("no comma between thousands, '{number} {next}'"))
            }
            _ => None,
        }
    })
}

/// Returns true if a text ends in the name of a type.
fn is_struct(text: &str) -> bool {
    let word = text.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    word.starts_with(|c: char| c.is_ascii_uppercase()) && word.chars().any(|c| c.is_ascii_lowercase())
}

fn is_plural(word: &str) -> bool {
    let word = word.trim_end_matches(|c: char| c.is_ascii_punctuation());
    word.len() > 2
        && word.ends_with('s')
        && !NO_PLURALS.contains(&word)
        && word.chars().all(|c| c.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_wrong_plurals_and_bare_thousands_are_found() {
        for line in [
            "own address: Some(192.0.2.1)",
            "pool6: Net6 { address: 64:ff9b::, len: 96 }",
            "device nat64: 1 routes added, 2 removed",
            "ended: 2 sessions (1 bindings)",
            "\"1 records are lost\"",
            "40 of 4096 ports",
            "serves 8 of 1008",
            "252 blocks of 1024 ports: serves 252",
            "65535 workers, at most 256",
            "packets of up to 1520 bytes",
        ] {
            assert!(unreadable(&format!("fine\n{line}\n")).is_some(), "{line}");
        }
    }

    #[test]
    fn names_verbs_and_addresses_are_no_faults() {
        for line in [
            "gatun: worker 1 has no address; port 1 is busy, queue 1 receives on eth0",
            "uid 1000 clears sessions, process 4711 ends, RFC 6146 requires this",
            "1 session, 1 binding, 1 address; 1,000 sessions of 1,024",
            "192.0.2.1 has 198.51.100.2:5000 since 2026-01-02T03:04:05Z",
            "mtu4 = 1500 and sessions_max = 262144",
            "1 of 3 workers does not answer",
            "sessions 1   bindings 1   subscribers 4000  files",
            "up 1 s, 20 ms; 12 of 5002x",
            "{ \"a\": 1 }",
        ] {
            assert_eq!(unreadable(line), None, "{line}");
        }
    }
}
