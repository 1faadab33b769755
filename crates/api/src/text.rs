//! Numbers and nouns in texts for people.

/// A number with commas between thousands: 1,234,567.
pub fn group(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number and its noun: "1 session", "2,000 sessions".
pub fn counted(n: u64, one: &str) -> String {
    let (stem, ending) = match one {
        _ if n == 1 => (one, ""),
        _ if one.ends_with('s') => (one, "es"),
        _ => match one.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u'])) {
            Some(stem) => (stem, "ies"),
            None => (one, "s"),
        },
    };
    format!("{} {stem}{ending}", group(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        let cases = [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567")];
        for (n, expected) in cases {
            assert_eq!(group(n), expected);
        }
        assert_eq!(
            [0, 1, 2000].map(|n| counted(n, "session")),
            ["0 sessions", "1 session", "2,000 sessions"]
        );
        assert_eq!(
            ["address", "entry", "day"].map(|one| counted(2, one)),
            ["2 addresses", "2 entries", "2 days"]
        );
    }
}
