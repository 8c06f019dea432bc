//! RFC 3339 moments with an offset, to milliseconds and back. Nothing else is taken: a time of day
//! without a zone has cost shops an hour of a sale.

use super::sale_file::cut;
use crate::ids::TimestampMs;
use alloc::format;
use alloc::string::String;

const DAY_MS: i64 = 86_400_000;

/// Reads `2026-12-04T20:00:00[.fff](Z|+01:00)`.
///
/// # Errors
/// One plain sentence.
pub fn parse_rfc3339(text: &str) -> Result<TimestampMs, String> {
    let refuse = |why: &str| format!("{:?} is no moment: {why}", cut(text));
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = bytes.get(from..to)?;
        digits
            .iter()
            .all(u8::is_ascii_digit)
            .then(|| digits.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0')))
    };
    let at = |index: usize, allowed: &[u8]| bytes.get(index).is_some_and(|b| allowed.contains(b));
    let shape = "it must look like 2026-12-04T20:00:00+01:00";
    let date = (number(0, 4), number(5, 7), number(8, 10));
    let time = (number(11, 13), number(14, 16), number(17, 19));
    let ((Some(year), Some(month), Some(day)), (Some(hour), Some(minute), Some(second))) =
        (date, time)
    else {
        return Err(refuse(shape));
    };
    let separators = at(4, b"-") && at(7, b"-") && at(10, b"Tt ") && at(13, b":") && at(16, b":");
    if !separators {
        return Err(refuse(shape));
    }
    if !(1..=12).contains(&month) || day < 1 || day > days_of_month(year, month) {
        return Err(refuse("there is no such day"));
    }
    if hour > 23 || minute > 59 || second > 59 {
        return Err(refuse("there is no such time of day"));
    }
    let (fraction_ms, rest) = take_fraction(&text[19..]).ok_or_else(|| refuse(shape))?;
    let offset_minutes = take_offset(rest)
        .ok_or_else(|| refuse("an offset is missing (Z, or +01:00), so it names no moment"))?;
    let days = days_from_civil(year, month, day);
    let of_day = ((hour * 60 + minute) * 60 + second) * 1000 + fraction_ms;
    let ms = days * DAY_MS + of_day - offset_minutes * 60_000;
    u64::try_from(ms).map(TimestampMs::new).map_err(|_| refuse("it is before 1970"))
}

/// Writes a moment in UTC with milliseconds.
pub fn format_rfc3339(at: TimestampMs) -> String {
    let ms = at.get().min(253_402_300_799_999) as i64;
    let (days, of_day) = (ms / DAY_MS, ms % DAY_MS);
    let (year, month, day) = civil_from_days(days);
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, milli) = (of_day / 1000 % 60, of_day % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// `.fff...` in ms (further digits are cut), and what is behind it.
fn take_fraction(text: &str) -> Option<(i64, &str)> {
    let Some(digits) = text.strip_prefix('.') else { return Some((0, text)) };
    let count = digits.bytes().take_while(u8::is_ascii_digit).count();
    if count == 0 {
        return None;
    }
    let (fraction, rest) = digits.split_at(count);
    let ms = fraction.bytes().chain([b'0'; 3]).take(3);
    Some((ms.fold(0, |value, digit| value * 10 + i64::from(digit - b'0')), rest))
}

/// Minutes east of UTC.
fn take_offset(text: &str) -> Option<i64> {
    if text == "Z" || text == "z" {
        return Some(0);
    }
    let bytes = text.as_bytes();
    let [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] = bytes else { return None };
    if ![h1, h2, m1, m2].into_iter().all(u8::is_ascii_digit) {
        return None;
    }
    let two = |tens: &u8, ones: &u8| i64::from(tens - b'0') * 10 + i64::from(ones - b'0');
    let (hours, minutes) = (two(h1, h2), two(m1, m2));
    if hours > 23 || minutes > 59 {
        return None;
    }
    let minutes = hours * 60 + minutes;
    Some(if *sign == b'-' { -minutes } else { minutes })
}

fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar; years begin in March so that the leap
/// day is the last day of a year.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The reverse of [`days_from_civil`].
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let leap = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_with_an_offset_are_read_and_others_refused() {
        let table = [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("1970-01-01T01:00:00+01:00", Some(0)),
            ("2026-12-04T20:00:00+01:00", Some(1_796_410_800_000)),
            ("2026-12-04T19:00:00.1234Z", Some(1_796_410_800_123)),
            ("2024-02-29T00:00:00Z", Some(1_709_164_800_000)),
            ("2023-02-29T00:00:00Z", None),
            ("2026-13-01T00:00:00Z", None),
            ("2026-12-04T24:00:00Z", None),
            ("2026-12-04T20:00:00", None),
            ("2026-12-04T20:00:00.Z", None),
            ("2026-12-04", None),
            ("20:00", None),
            ("2026-12-04T20:00:00+0100", None),
            ("1969-12-31T23:59:59Z", None),
            ("2026-12-04T20:00:00\u{fc}", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_rfc3339(text).ok().map(TimestampMs::get), expected, "{text}");
        }
    }

    #[test]
    fn writing_and_reading_agree() {
        for day in 0..60_000u64 {
            let at = TimestampMs::new(day * 86_400_000 + 12_345_678);
            assert_eq!(parse_rfc3339(&format_rfc3339(at)), Ok(at));
        }
    }
}
