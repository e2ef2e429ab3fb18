//! RFC 3339 in UTC, to the nanosecond, to and from nanoseconds since the epoch.
//!
//! It must never accept what two readers could understand differently: no lower-case letters, no offsets, no
//! leap seconds, no dates that the calendar does not have, no more than nine fractional digits.

const NS_PER_SECOND: i128 = 1_000_000_000;
const SECONDS_PER_DAY: i64 = 86_400;
/// The length of what [`format`] writes.
pub const FORMATTED_LEN: usize = 30;

/// `YYYY-MM-DDTHH:MM:SS[.f{1,9}]Z`. Times that 64 bits of nanoseconds cannot hold are clamped, so that a year
/// 9999 is merely far away and never wraps into the window.
#[inline]
pub fn parse(text: &[u8]) -> Option<i64> {
    let seconds = parse_seconds(text.first_chunk::<19>()?)?;
    let nanoseconds = match text.get(19..)? {
        b"Z" => 0,
        [b'.', digits @ .., b'Z'] if (1..=9).contains(&digits.len()) => {
            let mut fraction = 0u32;
            for digit in digits {
                fraction = fraction * 10 + decimal(*digit)?;
            }
            for _ in digits.len()..9 {
                fraction *= 10;
            }
            fraction
        }
        _ => return None,
    };
    let exact = i128::from(seconds) * NS_PER_SECOND + i128::from(nanoseconds);
    Some(exact.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)
}

#[inline]
fn parse_seconds(text: &[u8; 19]) -> Option<i64> {
    if [text[4], text[7], text[10], text[13], text[16]] != *b"--T::" {
        return None;
    }
    let year = pair(text[0], text[1])? * 100 + pair(text[2], text[3])?;
    let month = pair(text[5], text[6])?;
    let day = pair(text[8], text[9])?;
    let hour = pair(text[11], text[12])?;
    let minute = pair(text[14], text[15])?;
    let second = pair(text[17], text[18])?;
    if year == 0 || hour > 23 || minute > 59 || second > 59 || day == 0 || day > days_in(year, month) {
        return None;
    }
    let days = days_from_epoch(i64::from(year), i64::from(month), i64::from(day));
    Some(days * SECONDS_PER_DAY + i64::from(hour * 3600 + minute * 60 + second))
}

#[inline]
fn decimal(byte: u8) -> Option<u32> {
    let digit = byte.wrapping_sub(b'0');
    (digit < 10).then_some(u32::from(digit))
}

#[inline]
fn pair(tens: u8, ones: u8) -> Option<u32> {
    Some(decimal(tens)? * 10 + decimal(ones)?)
}

#[inline]
fn days_in(year: u32, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        1..=12 => 31,
        _ => 0,
    }
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar; years start in March, so that the leap day is last.
#[inline]
fn days_from_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Nine fractional digits and `Z`.
pub fn format(unix_ns: i64) -> [u8; FORMATTED_LEN] {
    let seconds = unix_ns.div_euclid(NS_PER_SECOND as i64);
    let nanoseconds = unix_ns.rem_euclid(NS_PER_SECOND as i64);
    let days = seconds.div_euclid(SECONDS_PER_DAY) + 719_468;
    let of_day = seconds.rem_euclid(SECONDS_PER_DAY);
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096).div_euclid(365);
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);

    let mut text = *b"0000-00-00T00:00:00.000000000Z";
    put_decimal(&mut text[0..4], year);
    put_decimal(&mut text[5..7], month);
    put_decimal(&mut text[8..10], day);
    put_decimal(&mut text[11..13], of_day / 3600);
    put_decimal(&mut text[14..16], of_day / 60 % 60);
    put_decimal(&mut text[17..19], of_day % 60);
    put_decimal(&mut text[20..29], nanoseconds);
    text
}

fn put_decimal(digits: &mut [u8], mut number: i64) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        for unix_ns in [0, 1, -1, 1_790_000_000_123_456_789, 951_782_400_000_000_000, i64::MAX, i64::MIN] {
            assert_eq!(parse(&format(unix_ns)), Some(unix_ns), "{unix_ns}");
        }
    }

    #[test]
    fn every_day_of_four_centuries_comes_back() {
        let mut day = -100_000i64;
        while day < 106_000 {
            let unix_ns = day * SECONDS_PER_DAY * 1_000_000_000 + 999_999_999;
            assert_eq!(parse(&format(unix_ns)), Some(unix_ns));
            day += 1;
        }
    }

    #[test]
    fn knows_dates() {
        assert_eq!(&format(1_785_326_400_000_000_001), b"2026-07-29T12:00:00.000000001Z");
        assert_eq!(parse(b"1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(parse(b"2000-02-29T00:00:00.5Z"), Some(951_782_400_500_000_000));
    }

    #[test]
    fn refuses_what_others_might_read_differently() {
        for text in [
            "",
            "2026-07-29T12:00:00",
            "2026-07-29T12:00:00z",
            "2026-07-29t12:00:00Z",
            "2026-07-29 12:00:00Z",
            "2026-07-29T12:00:00.Z",
            "2026-07-29T12:00:00.1234567890Z",
            "2026-07-29T12:00:00.123456789012Z",
            "2026-07-29T12:00:00+00:00",
            "2026-07-29T12:00:60Z",
            "2026-07-29T24:00:00Z",
            "2026-07-29T12:60:00Z",
            "2026-02-29T12:00:00Z",
            "1900-02-29T12:00:00Z",
            "2026-13-01T12:00:00Z",
            "2026-00-01T12:00:00Z",
            "2026-01-00T12:00:00Z",
            "2026-04-31T12:00:00Z",
            "0000-01-01T00:00:00Z",
            "2026-07-29T12:00:00.1 Z",
            "2026-07-29T12:00:00Z ",
            "+026-07-29T12:00:00Z",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn far_years_are_clamped() {
        assert_eq!(parse(b"9999-12-31T23:59:59.999999999Z"), Some(i64::MAX));
        assert_eq!(parse(b"0001-01-01T00:00:00Z"), Some(i64::MIN));
    }
}
