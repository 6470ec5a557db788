//! HTTP dates: writes IMF-fixdate, parses all three forms (RFC 9110 5.6.7).
//!
//! `httpdate` writes dates. It is not used to parse them: it refuses leap seconds, times before
//! 1970 and wrong weekdays, which other implementations send, and resolves two-digit years only up
//! to 2069. Days are counted after Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms"
//! (2013): years begin in March, so that the leap day is the last.

use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

/// Length of an IMF-fixdate, in bytes.
pub const DATE_BYTES: usize = 29;

/// 9999-12-31 23:59:59: the last second with a four-digit year.
const UNIX_MAX: u64 = 253_402_300_799;
const DAY_SECONDS: u64 = 86_400;
/// Days from 0000-03-01 to 1970-01-01, and in 400 years.
const EPOCH_DAYS: u64 = 719_468;
const ERA_DAYS: u64 = 146_097;

const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// A point in time, in seconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HttpDate(pub u64);

impl HttpDate {
    /// `Sun, 06 Nov 1994 08:49:37 GMT`. A time after the year 9999 becomes the last second of that
    /// year.
    pub fn format(self) -> [u8; DATE_BYTES] {
        let time = UNIX_EPOCH + Duration::from_secs(self.0.min(UNIX_MAX));
        let mut out = [0; DATE_BYTES];
        let written = write!(out.as_mut_slice(), "{}", httpdate::HttpDate::from(time));
        debug_assert!(written.is_ok(), "an IMF-fixdate is longer than {DATE_BYTES} bytes");
        out
    }

    /// Parses any of the three forms; `None` if it is not a date. `now_unix` determines the century
    /// of two-digit years: the latest that is not more than 50 years ahead. Times before 1970
    /// become the epoch.
    pub fn parse(value: &[u8], now_unix: u64) -> Option<HttpDate> {
        match value.get(3)? {
            b',' => parse_imf(value),
            b' ' => parse_asctime(value),
            _ => parse_rfc850(value, now_unix),
        }
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
fn parse_imf(value: &[u8]) -> Option<HttpDate> {
    let value: &[u8; DATE_BYTES] = value.try_into().ok()?;
    weekday_of(&value[..3], 3)?;
    let marks = [value[4], value[7], value[11], value[16]];
    if marks != *b"    " || !value.ends_with(b" GMT") {
        return None;
    }
    unix_of(year_of(value)?, month_of(&value[8..11])?, number(&value[5..7])?, &value[17..25])
}

fn year_of(imf: &[u8; DATE_BYTES]) -> Option<u64> {
    Some(number(&imf[12..14])? * 100 + number(&imf[14..16])?)
}

/// `Sun Nov  6 08:49:37 1994`
fn parse_asctime(value: &[u8]) -> Option<HttpDate> {
    let value: &[u8; 24] = value.try_into().ok()?;
    weekday_of(&value[..3], 3)?;
    if [value[3], value[7], value[10], value[19]] != *b"    " {
        return None;
    }
    let day = match value[8] {
        b' ' => number(&[b'0', value[9]])?,
        _ => number(&value[8..10])?,
    };
    let year = number(&value[20..22])? * 100 + number(&value[22..24])?;
    unix_of(year, month_of(&value[4..7])?, day, &value[11..19])
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`
fn parse_rfc850(value: &[u8], now_unix: u64) -> Option<HttpDate> {
    let comma = value.iter().take(10).position(|b| *b == b',')?;
    weekday_of(&value[..comma], usize::MAX)?;
    let rest: &[u8; 23] = value[comma + 1..].try_into().ok()?;
    if [rest[0], rest[3], rest[7], rest[10]] != *b" -- " || !rest.ends_with(b" GMT") {
        return None;
    }
    let this_year = year_of(&HttpDate(now_unix).format())?;
    let mut year = this_year / 100 * 100 + number(&rest[8..10])?;
    if year > this_year + 50 {
        year -= 100;
    } else if year + 50 <= this_year {
        year += 100;
    }
    unix_of(year, month_of(&rest[4..7])?, number(&rest[1..3])?, &rest[11..19])
}

/// `clock` is `HH:MM:SS`; second 60 is a leap second.
fn unix_of(year: u64, month: u64, day: u64, clock: &[u8]) -> Option<HttpDate> {
    let (hour, minute, second) =
        (number(&clock[..2])?, number(&clock[3..5])?, number(&clock[6..8])?);
    let clock_ok = clock[2] == b':' && clock[5] == b':' && hour < 24 && minute < 60 && second <= 60;
    if !clock_ok || day == 0 || day > days_in(year, month) {
        return None;
    }
    let time = hour * 3600 + minute * 60 + second;
    let days = days_since_0000(year, month, day).checked_sub(EPOCH_DAYS);
    Some(HttpDate(days.map_or(0, |days| days * DAY_SECONDS + time)))
}

fn days_in(year: u64, month: u64) -> u64 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 => 28 + u64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 0000-03-01; January and February of year 0 count as that day.
fn days_since_0000(year: u64, month: u64, day: u64) -> u64 {
    let march_year = if month > 2 { Some(year) } else { year.checked_sub(1) };
    let Some(march_year) = march_year else { return 0 };
    let (era, year_of_era) = (march_year / 400, march_year % 400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    era * ERA_DAYS + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year
}

/// Two digits.
fn number(digits: &[u8]) -> Option<u64> {
    match digits {
        [tens @ b'0'..=b'9', ones @ b'0'..=b'9'] => {
            Some(u64::from(tens - b'0') * 10 + u64::from(ones - b'0'))
        }
        _ => None,
    }
}

fn month_of(name: &[u8]) -> Option<u64> {
    MONTHS.iter().position(|month| *month == name).map(|place| place as u64 + 1)
}

/// A weekday of which `name` is the whole or the first `len` letters; not checked against the date.
fn weekday_of(name: &[u8], len: usize) -> Option<usize> {
    WEEKDAYS.iter().position(|day| &day.as_bytes()[..len.min(day.len())] == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_795_000_000; // November 2026

    fn parsed(value: &str) -> Option<u64> {
        HttpDate::parse(value.as_bytes(), NOW).map(|date| date.0)
    }

    #[test]
    fn writes_imf_fixdate() {
        let written = |unix| String::from_utf8_lossy(&HttpDate(unix).format()).into_owned();
        assert_eq!(written(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(written(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(written(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(written(UNIX_MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(written(u64::MAX), written(UNIX_MAX));
    }

    #[test]
    fn reads_the_three_forms() {
        for form in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parsed(form), Some(784_111_777), "{form}");
        }
        assert_eq!(parsed("Sun Nov 16 08:49:37 1994"), Some(784_111_777 + 10 * DAY_SECONDS));
    }

    #[test]
    fn two_digit_years_are_at_most_fifty_years_ahead() {
        let of = |year: &str| parsed(&format!("Sunday, 06-Nov-{year} 00:00:00 GMT"));
        assert_eq!(of("76"), parsed("Sun, 06 Nov 2076 00:00:00 GMT"));
        assert_eq!(of("77"), parsed("Sun, 06 Nov 1977 00:00:00 GMT"));
        assert_eq!(of("26"), parsed("Sun, 06 Nov 2026 00:00:00 GMT"));
    }

    #[test]
    fn old_dates_become_the_epoch() {
        assert_eq!(parsed("Mon, 01 Jan 1900 00:00:00 GMT"), Some(0));
        assert_eq!(parsed("Sat, 01 Jan 0000 00:00:00 GMT"), Some(0));
    }

    #[test]
    fn refuses_what_is_no_date() {
        for bad in [
            "",
            "0",
            "1994",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "sun, 06 Nov 1994 08:49:37 GMT",
            "Son, 06 Nov 1994 08:49:37 GMT",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 29 Feb 1900 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:00 GMT",
            "Sun, 06 Nov 1994 08:00:61 GMT",
            "Sun, 06 Nov 1994 08-49-37 GMT",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sunday 06-Nov-94 08:49:37 GMT",
            "Sun Nov 6 08:49:37 1994",
            "Sun Nov  6 08:49:37 94",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
        ] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }
}
