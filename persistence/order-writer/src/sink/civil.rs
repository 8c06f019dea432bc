//! Microseconds since 1970 as `YYYY-MM-DD hh:mm:ss.ffffff`, UTC, for dialects whose driver takes
//! moments as text.

const DAY_US: i64 = 86_400_000_000;
/// The last microsecond of the year 9999: stands for the end of time.
pub const END_US: i64 = 253_402_300_799_999_999;

/// The text of a moment from 1970 on; the end of time is the last microsecond of 9999.
pub fn text(us: i64) -> String {
    let us = us.clamp(0, END_US);
    let (days, rest) = (us / DAY_US, us % DAY_US);
    let (year, month, day) = date(days);
    let (seconds, micros) = (rest / 1_000_000, rest % 1_000_000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{micros:06}")
}

/// Back from the difference to 1970 that the database computed.
pub const fn from_text_us(us: i64) -> i64 {
    if us == END_US { i64::MAX } else { us }
}

/// The civil date of a day counted from 1970-01-01, by eras of 400 years that begin in March.
fn date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_the_calendar_has_them() {
        let cases = [
            (0, "1970-01-01 00:00:00.000000"),
            (951_827_696_000_001, "2000-02-29 12:34:56.000001"),
            (1_709_251_199_999_999, "2024-02-29 23:59:59.999999"),
            (1_709_251_200_000_000, "2024-03-01 00:00:00.000000"),
            (4_107_542_400_000_000, "2100-03-01 00:00:00.000000"),
            (i64::MAX, "9999-12-31 23:59:59.999999"),
        ];
        for (us, expected) in cases {
            assert_eq!(text(us), expected);
        }
        assert_eq!(from_text_us(END_US), i64::MAX);
    }
}
