//! Times as people and RFC 3339 write them.

use std::time::{SystemTime, UNIX_EPOCH};

/// A time, and how fine it was given: a second may be any of its milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Milliseconds since 1970 (UTC).
    pub from_ms: u64,
    /// How long the span is, at least 1.
    pub precision_ms: u64,
}

impl Span {
    /// The last millisecond.
    pub fn last_ms(self) -> u64 {
        self.from_ms.saturating_add(self.precision_ms.max(1) - 1)
    }
}

/// Milliseconds since 1970 (UTC).
pub fn since_1970_ms(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// RFC 3339, in UTC, with milliseconds.
pub fn rfc3339(ms: u64) -> String {
    let (seconds, days) = (ms / 1000, ms / 86_400_000);
    let of_day = seconds % 86_400;
    let (year, month, day) = date_of(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000)
}

/// Year, month and day of a number of days since 1970-01-01, in the Gregorian calendar.
fn date_of(days: u64) -> (u64, u64, u64) {
    // Years begin on 1 March here, so that the leap day is a year's last; 400 of them are 146,097 days.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year_of_era + u64::from(month >= 10);
    (year, if month < 10 { month + 3 } else { month - 9 }, day)
}

/// Days since 1970-01-01; `None` where there is no such day.
fn days_of(year: u64, month: u64, day: u64) -> Option<u64> {
    let years = year.checked_sub(u64::from(month <= 2))?;
    let (era, of_era) = (years / 400, years % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day.checked_sub(1)?;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    days.checked_sub(719_468).filter(|days| date_of(*days) == (year, month, day))
}

const FORMS: &str = "write it as 2026-01-31T13:05:59Z, with an offset (+01:00) where it is not UTC, as @SECONDS since 1970, \"now\", or \"2h ago\"";

/// Reads a time: RFC 3339, with less of it where it is less fine, `@` and seconds since 1970, `now`, or a time ago
/// (`90s ago`, `2h ago`, `3d ago`). Without offset it is UTC.
///
/// # Errors
/// What to write instead.
pub fn parse(text: &str, now_ms: u64) -> Result<Span, String> {
    let text = text.trim();
    let span = match text.strip_prefix('@') {
        Some(seconds) => of_seconds(seconds),
        None if text == "now" => Some(Span { from_ms: now_ms, precision_ms: 1 }),
        None => match text.strip_suffix("ago") {
            Some(ago) => ago_ms(ago.trim())
                .and_then(|ms| now_ms.checked_sub(ms))
                .map(|from_ms| Span { from_ms, precision_ms: 1 }),
            None => of_date(text),
        },
    };
    span.ok_or_else(|| format!("\"{text}\" is not a time: {FORMS}"))
}

fn of_seconds(text: &str) -> Option<Span> {
    let (seconds, fraction) = text.split_once('.').map_or((text, None), |(s, f)| (s, Some(f)));
    let seconds: u64 = digits(seconds)?;
    let (ms, precision_ms) = fraction.map_or(Some((0, 1000)), fraction_ms)?;
    Some(Span { from_ms: seconds.checked_mul(1000)?.checked_add(ms)?, precision_ms })
}

fn ago_ms(text: &str) -> Option<u64> {
    let unit = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at_checked(unit)?;
    let factor = match unit.trim() {
        "ms" => 1,
        "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    digits::<u64>(number)?.checked_mul(factor)
}

fn digits<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|c| c.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Up to nanoseconds; what is finer than a millisecond is left out.
fn fraction_ms(text: &str) -> Option<(u64, u64)> {
    if text.is_empty() || text.len() > 9 {
        return None;
    }
    let ms: u64 = digits(&format!("{text:0<3}")[..3]).filter(|_| digits::<u64>(text).is_some())?;
    Some((ms, 10u64.pow(3u32.saturating_sub(text.len() as u32))))
}

fn of_date(text: &str) -> Option<Span> {
    let (date, time) = text.split_once(['T', 't', ' ']).map_or((text, None), |(d, t)| (d, Some(t)));
    let mut parts = date.split('-');
    let mut next = |len: usize| parts.next().filter(|part| part.len() == len).and_then(digits::<u64>);
    let (year, month, day) = (next(4)?, next(2)?, next(2)?);
    if parts.next().is_some() || !(1..=12).contains(&month) {
        return None;
    }
    let midnight = days_of(year, month, day)?.checked_mul(86_400_000)?;
    let Some(time) = time else { return Some(Span { from_ms: midnight, precision_ms: 86_400_000 }) };
    let (time, offset_ms) = split_offset(time)?;
    let (ms, precision_ms) = of_clock(time)?;
    let from_ms = i64::try_from(midnight + ms).ok()?.checked_sub(offset_ms)?;
    Some(Span { from_ms: from_ms.try_into().ok()?, precision_ms })
}

/// The clock's part, and how far its zone is ahead of UTC.
fn split_offset(time: &str) -> Option<(&str, i64)> {
    if let Some(time) = time.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let Some(at) = time.find(['+', '-']) else { return Some((time, 0)) };
    let (clock, zone) = time.split_at_checked(at)?;
    let (sign, zone) = zone.split_at_checked(1)?;
    let (hours, minutes) = zone.split_once(':')?;
    let two = |part: &str| digits::<i64>(part).filter(|_| part.len() == 2);
    let (hours, minutes) = (two(hours).filter(|h| *h < 24)?, two(minutes).filter(|m| *m < 60)?);
    let ms = (hours * 60 + minutes) * 60_000;
    Some((clock, if sign == "-" { -ms } else { ms }))
}

/// Milliseconds of the day, and how fine they are.
fn of_clock(time: &str) -> Option<(u64, u64)> {
    let (whole, fraction) = time.split_once('.').map_or((time, None), |(w, f)| (w, Some(f)));
    let mut parts = whole.split(':');
    let mut next = |max: u64| match parts.next() {
        None => Some(None),
        Some(part) => digits::<u64>(part).filter(|n| part.len() == 2 && *n <= max).map(Some),
    };
    let (hour, minute, second) = (next(23)??, next(59)??, next(60)?);
    if parts.next().is_some() {
        return None;
    }
    let minutes_ms = (hour * 60 + minute) * 60_000;
    let Some(second) = second else { return fraction.is_none().then_some((minutes_ms, 60_000)) };
    let (ms, precision_ms) = fraction.map_or(Some((0, 1000)), fraction_ms)?;
    Some((minutes_ms + second * 1000 + ms, precision_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |secs: u64, ms: u64| rfc3339(secs * 1000 + ms);
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_399, 7), "2000-02-28T23:59:59.007Z");
        assert_eq!(at(951_782_400, 0), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(951_868_800, 0), "2000-03-01T00:00:00.000Z");
        assert_eq!(at(1_735_689_599, 999), "2024-12-31T23:59:59.999Z");
        assert_eq!(at(4_107_542_400, 0), "2100-03-01T00:00:00.000Z");
        for day in (0..80_000).step_by(7) {
            let (year, month, of_month) = date_of(day);
            assert_eq!(days_of(year, month, of_month), Some(day));
        }
    }

    #[test]
    fn times_are_read_as_finely_as_they_are_written() {
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
        ] {
            assert!(read(wrong).unwrap_err().contains("write it as"), "{wrong}");
        }
    }
}
