//! Parsing and formatting of times, by RFC 3339 and in other forms.

use jiff::Timestamp;
use jiff::civil::Time;
use jiff::fmt::temporal::Pieces;
use jiff::tz::Offset;
use std::time::{SystemTime, UNIX_EPOCH};

/// A time and its precision: a second may be any of its milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First millisecond, counted from 1970 (UTC).
    pub from_ms: u64,
    /// Length in milliseconds, at least 1.
    pub precision_ms: u64,
}

impl Span {
    /// Last millisecond.
    pub fn last_ms(self) -> u64 {
        self.from_ms.saturating_add(self.precision_ms.max(1) - 1)
    }
}

/// Milliseconds since 1970 (UTC).
pub fn since_1970_ms(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Formats a time by RFC 3339, in UTC, with milliseconds. Times after 9999-12-30 become that day.
pub fn rfc3339(ms: u64) -> String {
    let time = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    format!("{:.3}", time.unwrap_or(Timestamp::MAX))
}

const FORMS: &str = "write it as 2026-01-31T13:05:59Z, with an offset (+01:00) if it is not UTC, as @SECONDS since 1970, \"now\", or \"2h ago\"";

/// Parses a time: RFC 3339, possibly without fraction, seconds or clock, `@` and seconds since 1970, `now`,
/// or a time ago (`90s ago`, `2h ago`, `3d ago`). Without an offset it is UTC.
///
/// # Errors
/// Returns the accepted forms if the text has none of them.
pub fn parse(text: &str, now_ms: u64) -> Result<Span, String> {
    let text = text.trim();
    let span = match text.strip_prefix('@') {
        Some(seconds) => parse_seconds(seconds),
        None if text == "now" => Some(Span { from_ms: now_ms, precision_ms: 1 }),
        None if text.ends_with("ago") => parse_ago(text, now_ms),
        None => parse_date(text),
    };
    span.ok_or_else(|| format!("\"{text}\" is not a time: {FORMS}"))
}

fn parse_seconds(text: &str) -> Option<Span> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if ![seconds, fraction].iter().all(|part| part.bytes().all(|c| c.is_ascii_digit())) {
        return None;
    }
    let precision_ms = if text.contains('.') { precision_of(fraction.len())? } else { 1000 };
    let ms: u64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    Some(Span { from_ms: seconds.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(ms)?, precision_ms })
}

/// Precision of a fraction of up to nine digits; digits below a millisecond are ignored.
fn precision_of(digits: usize) -> Option<u64> {
    (1..=9).contains(&digits).then(|| 10u64.pow(3u32.saturating_sub(digits as u32)))
}

fn parse_ago(text: &str, now_ms: u64) -> Option<Span> {
    let ago: jiff::Span = text.parse().ok()?;
    let now = Timestamp::from_millisecond(now_ms.try_into().ok()?).ok()?;
    // UTC days have 24 hours.
    let then = Offset::UTC.to_datetime(now).checked_add(ago).ok()?;
    let from_ms = Offset::UTC.to_timestamp(then).ok()?.as_millisecond();
    Some(Span { from_ms: from_ms.try_into().ok()?, precision_ms: 1 })
}

fn parse_date(text: &str) -> Option<Span> {
    let precision_ms = precision(text)?;
    let pieces = Pieces::parse(text).ok().filter(|pieces| pieces.time_zone_annotation().is_none())?;
    let time = pieces.date().to_datetime(pieces.time().unwrap_or(Time::midnight()));
    let offset = pieces.to_numeric_offset().unwrap_or(Offset::UTC);
    let from_ms = offset.to_timestamp(time).ok()?.as_millisecond();
    Some(Span { from_ms: from_ms.try_into().ok()?, precision_ms })
}

/// Precision of a date, from its length. Of the forms of ISO 8601 only those of RFC 3339 are accepted: the
/// others are more likely mistakes.
fn precision(text: &str) -> Option<u64> {
    const FORM: &[u8] = b"0000-00-00T00:00:00.000000000";
    const DATE: usize = "0000-00-00".len();
    let offset = text.get(DATE..)?.find(['Z', 'z', '+', '-']);
    let clock = text.as_bytes().get(..offset.map_or(text.len(), |at| DATE + at))?;
    let fits = clock.iter().zip(FORM).all(|(c, form)| match form {
        b'0' => c.is_ascii_digit(),
        b'T' => matches!(c, b'T' | b't' | b' '),
        form => c == form,
    });
    match clock.len() {
        _ if !fits => None,
        DATE => offset.is_none().then_some(86_400_000),
        16 => Some(60_000),
        19 => Some(1000),
        len => precision_of(len.checked_sub(20)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_the_calendar() {
        let at = |secs: u64, ms: u64| rfc3339(secs * 1000 + ms);
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_399, 7), "2000-02-28T23:59:59.007Z");
        assert_eq!(at(951_782_400, 0), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(951_868_800, 0), "2000-03-01T00:00:00.000Z");
        assert_eq!(at(1_735_689_599, 999), "2024-12-31T23:59:59.999Z");
        assert_eq!(at(4_107_542_400, 0), "2100-03-01T00:00:00.000Z");
        assert_eq!(at(253_402_207_200, 999), "9999-12-30T22:00:00.999Z");
        // A damaged record may have any time.
        assert_eq!(rfc3339(u64::MAX), "9999-12-30T22:00:00.999Z");
    }

    #[test]
    fn times_keep_their_written_precision() {
        let read = |text| parse(text, 1_735_689_600_000).map(|span| (span.from_ms, span.precision_ms));
        let newyear = 1_735_689_600_000;
        for (text, ms, precision) in [
            ("2025-01-01T00:00:00Z", newyear, 1000),
            ("2025-01-01 00:00:00", newyear, 1000),
            ("2025-01-01t00:00:00.25z", newyear + 250, 10),
            ("2025-01-01T00:00:00.123456Z", newyear + 123, 1),
            ("2025-01-01T01:30:00+01:30", newyear, 1000),
            ("2024-12-31T19:00-05:00", newyear, 60_000),
            ("2025-01-01", newyear, 86_400_000),
            ("@1735689600", newyear, 1000),
            ("@1735689600.5", newyear + 500, 100),
            ("now", newyear, 1),
            ("2h ago", newyear - 7_200_000, 1),
            ("90 s ago", newyear - 90_000, 1),
            ("90s ago", newyear - 90_000, 1),
            ("250ms ago", newyear - 250, 1),
            ("5min ago", newyear - 300_000, 1),
            ("5m ago", newyear - 300_000, 1),
            ("3d ago", newyear - 3 * 86_400_000, 1),
            ("1h 30m ago", newyear - 5_400_000, 1),
        ] {
            assert_eq!(read(text), Ok((ms, precision)), "{text}");
            assert_eq!(parse(&rfc3339(ms), 0).unwrap().from_ms, ms);
        }
        for wrong in [
            "",
            "2025",
            "2025-13-01",
            "2025-02-29",
            "2025-01-01T24:00:00Z",
            "2025-01-01T00:00:00+1:00",
            "@",
            "@x",
            "ago",
            "5 ago",
            "2025-1-1",
            "2025-01-01T00",
            "1960-01-01",
            "2025-01-01T00:00.5",
            "é ago",
            "9999999999999999999d ago",
            "60y ago",
            "20250101",
            "2025-01-01T0000",
            "2025-01-01T00:00:00,5",
            "2025-01-01T00:00:00.1234567890",
            "2025-01-01+01:00",
            "2025-01-01T00:00:00+01:00[Europe/Berlin]",
            "@1.",
            "@-1",
            "@1.0000000001",
        ] {
            assert!(read(wrong).unwrap_err().contains("write it as"), "{wrong}");
        }
    }
}
