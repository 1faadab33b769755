//! End of a certificate (RFC 5280 4.1.2.5). rustls checks it, and does not tell it.

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// Version, in a certificate of version 3.
const VERSION: u8 = 0xa0;

/// Returns the end of a certificate in DER, in seconds since 1970.
pub(super) fn not_after(certificate: &[u8]) -> Option<i64> {
    let (tag, certificate, _) = element(certificate)?;
    let (inner, signed, _) = element(certificate)?;
    if (tag, inner) != (SEQUENCE, SEQUENCE) {
        return None;
    }
    let mut rest = signed;
    if element(rest)?.0 == VERSION {
        rest = element(rest)?.2;
    }
    // Serial number, algorithm, issuer.
    for _ in 0..3 {
        rest = element(rest)?.2;
    }
    let (_, validity, _) = element(rest)?;
    let (_, _, after_begin) = element(validity)?;
    let (kind, end, _) = element(after_begin)?;
    let (year, rest) = match kind {
        // Two digits stand for the years 1950 to 2049.
        UTC_TIME => {
            let (year, rest) = number(end, 2)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => number(end, 4)?,
        _ => return None,
    };
    let (month, rest) = number(rest, 2)?;
    let (day, rest) = number(rest, 2)?;
    let (hour, rest) = number(rest, 2)?;
    let (minute, rest) = number(rest, 2)?;
    let (second, rest) = number(rest, 2)?;
    let is_date = rest == b"Z" && (1..=12).contains(&month) && (1..=31).contains(&day);
    is_date.then(|| days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Splits the first element off: its tag, its contents, and what follows.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (len, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (len.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(len)?;
    Some((tag, contents, rest))
}

/// Reads a number of some digits.
fn number(bytes: &[u8], digits: usize) -> Option<(i64, &[u8])> {
    let (digits, rest) = bytes.split_at_checked(digits)?;
    let digit = |number: i64, byte: &u8| Some(number * 10 + i64::from((*byte as char).to_digit(10)?));
    Some((digits.iter().try_fold(0, digit)?, rest))
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. Years begin in March, so that the leap day is
/// the last one.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    // The lengths of the months from March on: 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 31.
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 719_469
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    #[test]
    fn the_end_of_a_certificate_is_read_in_both_forms() {
        let key = KeyPair::generate().unwrap();
        for (date, seconds) in [
            ((1970, 1, 1), 0),
            ((2024, 2, 29), 1_709_164_800),
            ((2049, 12, 31), 2_524_521_600),
            ((2050, 1, 1), 2_524_608_000),
            ((2100, 3, 1), 4_107_542_400),
        ] {
            let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
            params.not_after = date_time_ymd(date.0, date.1, date.2);
            let certificate = params.self_signed(&key).unwrap();
            assert_eq!(not_after(certificate.der()), Some(seconds), "{date:?}");
            // A certificate that ends anywhere is no certificate.
            for len in 0..certificate.der().len() {
                assert_eq!(not_after(&certificate.der()[..len]), None);
            }
        }
    }
}
