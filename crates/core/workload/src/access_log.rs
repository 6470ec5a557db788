//! A line of an access log in the combined format of Apache and nginx, or in the common one, which lacks the last two
//! fields: what was asked for, when, and with how many bytes it was answered.

use crate::limits::LOG_LINE_BYTES_MAX;

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedLine<'a> {
    /// The first field: an address or a name.
    pub client: &'a str,
    /// Seconds since 1970, UTC.
    pub unix_s: u64,
    pub method: &'a str,
    /// As it was logged: with the server's escapes of what is not printable.
    pub target: &'a str,
    pub status: u16,
    /// Of the body; 0 where the log has `-`.
    pub bytes: u64,
}

/// A line that is none of the combined format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogLineError {
    #[error("expected at most {LOG_LINE_BYTES_MAX} bytes")]
    TooLong,
    #[error("expected text")]
    NotText,
    #[error("expected a client, two fields, and a time in brackets")]
    NoTime,
    #[error("expected a time such as [10/Oct/2000:13:55:36 -0700]")]
    BadTime,
    #[error("expected a request in quotes, such as \"GET / HTTP/1.1\"")]
    NoRequest,
    #[error("expected a status of three digits behind the request")]
    BadStatus,
    #[error("expected a number of bytes, or -, behind the status")]
    BadBytes,
}

impl<'a> LoggedLine<'a> {
    /// Parses a line without its end.
    ///
    /// # Errors
    /// It says what was expected first that is not there.
    pub fn parse(line: &'a [u8]) -> Result<Self, LogLineError> {
        if line.len() > LOG_LINE_BYTES_MAX {
            return Err(LogLineError::TooLong);
        }
        let line = std::str::from_utf8(line).map_err(|_| LogLineError::NotText)?;
        let (before, rest) = line.split_once(" [").ok_or(LogLineError::NoTime)?;
        let client = before.split(' ').next().filter(|it| !it.is_empty());
        let (time, rest) = rest.split_once(']').ok_or(LogLineError::NoTime)?;
        let unix_s = parse_time(time).ok_or(LogLineError::BadTime)?;
        let (request, rest) =
            rest.strip_prefix(" \"").and_then(split_quote).ok_or(LogLineError::NoRequest)?;
        let (method, target) = parse_request(request).ok_or(LogLineError::NoRequest)?;
        let mut fields = rest.strip_prefix(' ').unwrap_or_default().split(' ');
        let status = fields.next().filter(|it| it.len() == 3).and_then(|it| it.parse().ok());
        let status = status.filter(|it| (100..600).contains(it)).ok_or(LogLineError::BadStatus)?;
        let bytes = match fields.next() {
            Some("-") => 0,
            Some(bytes) => bytes.parse().map_err(|_| LogLineError::BadBytes)?,
            None => return Err(LogLineError::BadBytes),
        };
        let client = client.ok_or(LogLineError::NoTime)?;
        Ok(Self { client, unix_s, method, target, status, bytes })
    }
}

/// What stands before a quote that no backslash precedes, and what is behind it.
fn split_quote(text: &str) -> Option<(&str, &str)> {
    let mut is_escaped = false;
    let end = text.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    })?;
    Some((&text[..end], &text[end + 1..]))
}

fn parse_request(request: &str) -> Option<(&str, &str)> {
    let (method, rest) = request.split_once(' ')?;
    let target = rest.rsplit_once(" HTTP/").map_or(rest, |(target, _)| target);
    let is_method = !method.is_empty() && method.bytes().all(|it| it.is_ascii_alphabetic());
    (is_method && !target.is_empty()).then_some((method, target))
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// `10/Oct/2000:13:55:36 -0700`.
fn parse_time(time: &str) -> Option<u64> {
    let (local, zone) = time.split_once(' ')?;
    let mut parts = local.split(['/', ':']);
    let day: i64 = parts.next()?.parse().ok()?;
    let month_name = parts.next()?;
    let month = MONTHS.iter().position(|it| *it == month_name)? as i64 + 1;
    let mut number = || parts.next()?.parse::<i64>().ok();
    let (year, hour, minute, second) = (number()?, number()?, number()?, number()?);
    // 60: a leap second.
    let is_time =
        (0..24).contains(&hour) && (0..60).contains(&minute) && (0..=60).contains(&second);
    let is_date = (1..=31).contains(&day) && (1970..10_000).contains(&year);
    if parts.next().is_some() || !is_time || !is_date {
        return None;
    }
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    u64::try_from(seconds - zone_s(zone)?).ok()
}

/// Seconds that a zone such as `-0700` is ahead of UTC.
fn zone_s(zone: &str) -> Option<i64> {
    let sign = match zone.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    let digits = zone.get(1..).filter(|it| it.len() == 4)?;
    let number: i64 = digits.parse().ok().filter(|it| *it >= 0)?;
    Some(sign * (number / 100 * 3_600 + number % 100 * 60))
}

/// Days of the Gregorian calendar (Hinnant, "chrono-compatible low-level date algorithms").
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    const LINE: &str = r#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326 "http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)""#;

    #[test]
    fn lines_of_servers_are_understood() {
        let line = LoggedLine::parse(LINE.as_bytes()).unwrap();
        let expected = LoggedLine {
            client: "127.0.0.1",
            unix_s: 971_211_336,
            method: "GET",
            target: "/apache_pb.gif",
            status: 200,
            bytes: 2_326,
        };
        assert_eq!(line, expected);
        for (line, target, status, bytes) in [
            (r#"::1 - - [29/Feb/2024:00:00:00 +0000] "GET /a b HTTP/1.1" 304 -"#, "/a b", 304, 0),
            (r#"h - - [01/Jan/1970:01:00:00 +0100] "GET /q\"x" 404 9 "-" "-""#, r#"/q\"x"#, 404, 9),
            (
                r#"h - a b [01/Jan/1970:00:00:00 +0000] "HEAD /\x22 HTTP/2.0" 200 0 "-""#,
                r"/\x22",
                200,
                0,
            ),
        ] {
            let line = LoggedLine::parse(line.as_bytes()).unwrap();
            assert_eq!((line.target, line.status, line.bytes), (target, status, bytes));
        }
        let leap = r#"::1 - - [29/Feb/2024:00:00:00 +0000] "GET / HTTP/1.1" 200 1"#;
        assert_eq!(LoggedLine::parse(leap.as_bytes()).unwrap().unix_s, 1_709_164_800);
    }

    #[test]
    fn what_is_no_line_says_what_was_expected() {
        let long = "x".repeat(LOG_LINE_BYTES_MAX + 1);
        for (line, error) in [
            ("", LogLineError::NoTime),
            (long.as_str(), LogLineError::TooLong),
            ("{\"time\":1}", LogLineError::NoTime),
            ("h - - [soon] \"GET / HTTP/1.1\" 200 1", LogLineError::BadTime),
            ("h - - [32/Jan/2000:00:00:00 +0000] \"GET / HTTP/1.1\" 200 1", LogLineError::BadTime),
            ("h - - [01/Jan/1970:00:00:00 +0100] \"GET / HTTP/1.1\" 200 1", LogLineError::BadTime),
            ("h - - [01/Jan/2000:00:00:00 +0000] GET / 200 1", LogLineError::NoRequest),
            ("h - - [01/Jan/2000:00:00:00 +0000] \"\\x16\\x03\" 400 0", LogLineError::NoRequest),
            ("h - - [01/Jan/2000:00:00:00 +0000] \"GET / HTTP/1.1\" 20 1", LogLineError::BadStatus),
            ("h - - [01/Jan/2000:00:00:00 +0000] \"GET / HTTP/1.1\" 200", LogLineError::BadBytes),
            ("h - - [01/Jan/2000:00:00:00 +0000] \"GET / HTTP/1.1\" 200 x", LogLineError::BadBytes),
        ] {
            assert_eq!(LoggedLine::parse(line.as_bytes()), Err(error), "{line:.80}");
        }
        assert_eq!(LoggedLine::parse(b"\xff"), Err(LogLineError::NotText));
    }

    proptest! {
        #[test]
        fn no_line_makes_the_parser_panic(at in 0..LINE.len(), bytes in prop::collection::vec(any::<u8>(), 0..8)) {
            let mut line = LINE.as_bytes().to_vec();
            line.splice(at..(at + bytes.len()).min(LINE.len()), bytes);
            let _ = LoggedLine::parse(&line);
        }
    }
}
