//! Numbers and nouns in texts: thousands have commas, and a noun agrees with its number.

use core::fmt;

/// A number with commas between thousands: 1,234,567.
#[derive(Clone, Copy, Debug)]
pub struct Grouped(u64);

/// A number and its noun: "1 session", "2,000 sessions".
#[derive(Clone, Copy, Debug)]
pub struct Counted<'n>(u64, &'n str);

/// Writes a number with commas between thousands.
pub const fn group(n: u64) -> Grouped {
    Grouped(n)
}

/// Writes a number and a noun, which is given in the singular.
pub const fn counted(n: u64, one: &str) -> Counted<'_> {
    Counted(n, one)
}

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut unit = 1;
        while self.0 / unit >= 1000 {
            unit *= 1000;
        }
        write!(f, "{}", self.0 / unit)?;
        while unit > 1 {
            unit /= 1000;
            write!(f, ",{:03}", self.0 / unit % 1000)?;
        }
        Ok(())
    }
}

impl fmt::Display for Counted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Counted(n, one) = self;
        let (stem, ending) = match one {
            _ if n == 1 => (one, ""),
            _ if one.ends_with('s') => (one, "es"),
            _ => match one.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u'])) {
                Some(stem) => (stem, "ies"),
                None => (one, "s"),
            },
        };
        write!(f, "{} {stem}{ending}", Grouped(n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString as _;

    #[test]
    fn thousands_have_commas() {
        let cases = [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
            (20_000_030, "20,000,030"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ];
        for (n, expected) in cases {
            assert_eq!(group(n).to_string(), expected);
        }
    }

    #[test]
    fn a_noun_agrees_with_its_number() {
        for (n, one, expected) in [
            (0, "session", "0 sessions"),
            (1, "session", "1 session"),
            (2000, "session", "2,000 sessions"),
            (2, "address", "2 addresses"),
            (2, "entry", "2 entries"),
            (2, "day", "2 days"),
        ] {
            assert_eq!(counted(n, one).to_string(), expected);
        }
    }
}
