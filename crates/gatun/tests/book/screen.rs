//! Comparison of the screen with a document.

/// True if the output `came` matches the expected text `told`. In `told`, `...` matches any text in a line,
/// and any number of lines if it is alone on its line. Times, random ports and column widths are ignored.
pub(crate) fn is_as_told(told: &str, came: &str) -> bool {
    let lines =
        |text: &str| -> Vec<String> { text.lines().map(normal).filter(|line| !line.is_empty()).collect() };
    lines_match(&lines(told), &lines(came))
}

fn lines_match(told: &[String], came: &[String]) -> bool {
    match told.split_first() {
        None => came.is_empty(),
        Some((first, rest)) if first == "..." => (0..=came.len()).any(|i| lines_match(rest, &came[i..])),
        Some((first, rest)) => came
            .split_first()
            .is_some_and(|(line, others)| line_matches(first, line) && lines_match(rest, others)),
    }
}

fn line_matches(told: &str, came: &str) -> bool {
    // The first of four dots ends a word.
    let told = told.replace("....", ".\u{2026}").replace("...", "\u{2026}");
    let mut parts = told.split('\u{2026}');
    let Some(mut rest) = parts.next().and_then(|first| came.strip_prefix(first)) else { return false };
    let parts: Vec<_> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Line without the parts that differ from run to run.
fn normal(line: &str) -> String {
    let line = line.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
    let mut shown = String::new();
    // Rules of a table are as long as its columns are wide.
    for c in line.chars().filter(|c| *c != '\u{1b}') {
        if !(matches!(c, '─' | '═') && shown.ends_with(c)) {
            shown.push(c);
        }
    }
    for unit in ["ms", "us", "s"] {
        shown = without_number(&shown, unit);
    }
    shown
}

/// Replaces `12.5 ms` by `<n> ms`, also at the end of another word: `time=12.5 ms`.
fn without_number(line: &str, unit: &str) -> String {
    let words: Vec<_> = line.split(' ').collect();
    let is_number = |word: &str| {
        let digits = word.trim_start_matches(|c: char| !c.is_ascii_digit());
        !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == '.')
    };
    let named: Vec<_> = (0..words.len())
        .map(|i| {
            let word = words[i];
            let next = words.get(i + 1).map(|next| next.trim_end_matches([',', ')', ';']));
            match next == Some(unit) && is_number(word) {
                true => format!("{}<n>", &word[..word.find(|c: char| c.is_ascii_digit()).unwrap_or(0)]),
                false => word.to_owned(),
            }
        })
        .collect();
    named.join(" ")
}

/// Word without a time of day, or without a port of 1024 or higher after an address.
fn word(word: &str) -> String {
    let is_time = |text: &str| {
        let form: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        form.starts_with("0000-00-00T00:00:00")
    };
    if let Some(at) = (0..word.len()).find(|at| word.is_char_boundary(*at) && is_time(&word[*at..])) {
        let end = word[at..].find('Z').map_or(word.len(), |end| at + end + 1);
        return format!("{}<time>{}", &word[..at], &word[end..]);
    }
    let Some((before, after)) = word.rsplit_once(':') else { return word.to_owned() };
    let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let is_address =
        before.ends_with(']') || (before.contains('.') && before.ends_with(|c: char| c.is_ascii_digit()));
    let port: Option<u16> = after[..digits].parse().ok();
    match port {
        Some(1024..) if is_address => format!("{before}:<port>{}", &after[digits..]),
        _ => word.to_owned(),
    }
}

#[test]
fn only_times_ports_and_widths_are_ignored() {
    for (told, came) in [
        ("a  b", "a b\n"),
        ("192.0.2.1:4711 is", "192.0.2.1:50000 is"),
        ("[2001:db8::1]:4711,", "[2001:db8::1]:50000,"),
        ("from 2026-01-02T03:04:05Z on", "from 2027-11-12T13:14:15.016Z on"),
        ("icmp_seq=1 ttl=61 time=0.59 ms", "icmp_seq=1 ttl=61 time=10 ms"),
        ("│ a   │\n├──┤", "│ a │\n├──────┤"),
        ("a ... c", "a b c"),
        ("at 192.0.2.... now", "at 192.0.2.17 now"),
        ("...\nlast", "one\ntwo\nlast"),
        ("one\n...", "one"),
    ] {
        assert!(is_as_told(told, came), "{told:?} {came:?}");
    }
    for (told, came) in [
        ("a b", "a c"),
        ("a", "a\nb"),
        ("192.0.2.1:80", "192.0.2.1:8"),
        ("192.0.2.1:4711", "192.0.2.2:4711"),
        ("at 192.0.2.... now", "at 192.0.3.17 now"),
        ("ttl=61", "ttl=60"),
        ("3 packets", "4 packets"),
        ("a ... c", "a b"),
        ("...\nlast", "last\none"),
        ("2001:db8::1111", "2001:db8::2222"),
    ] {
        assert!(!is_as_told(told, came), "{told:?} {came:?}");
    }
}
