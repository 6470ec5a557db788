//! Parses a line of an access log in any of the formats.

use super::line::{LogLineError, LoggedLine};
use super::{combined, json};
use crate::limits::{LOG_BODY_BYTES_MAX, LOG_LINE_BYTES_MAX};

impl<'a> LoggedLine<'a> {
    /// Parses a line without its end.
    ///
    /// # Errors
    /// The first element that was expected but not found.
    pub fn parse(line: &'a [u8]) -> Result<Self, LogLineError> {
        if line.len() > LOG_LINE_BYTES_MAX {
            return Err(LogLineError::TooLong);
        }
        let text = std::str::from_utf8(line).map_err(|_| LogLineError::NotText)?;
        let parsed = match text.starts_with('{') {
            true => json::parse(text)?,
            false => combined::parse(text)?,
        };
        match parsed.bytes > LOG_BODY_BYTES_MAX {
            true => Err(LogLineError::BadBytes),
            false => Ok(parsed),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    const LINE: &str = r#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326 "http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)""#;

    /// As written by Skep.
    const JSON: &str = r#"{"time":"2000-10-10T20:55:36.250Z","client":"127.0.0.1","method":"GET","target":"/a\"b","version":"HTTP/1.1","host":"h","status":200,"bytes_sent":2326,"referer":null,"user_agent":null,"node":null,"accepted_by":null,"cache":"hit","queue_us":0,"connect_us":0,"first_byte_us":10,"total_us":50900}"#;

    fn parse(line: &str) -> Result<LoggedLine<'_>, LogLineError> {
        LoggedLine::parse(line.as_bytes())
    }

    #[test]
    fn lines_of_servers_are_understood() {
        let expected = LoggedLine {
            client: "127.0.0.1".into(),
            unix_ms: 971_211_336_000,
            has_ms: false,
            took_ms: 0,
            method: "GET".into(),
            target: "/apache_pb.gif".into(),
            status: 200,
            bytes: 2_326,
        };
        assert_eq!(parse(LINE).unwrap(), expected);
        let json = LoggedLine {
            unix_ms: 971_211_336_250,
            has_ms: true,
            took_ms: 50,
            target: "/a\"b".into(),
            ..expected
        };
        assert_eq!(parse(JSON).unwrap(), json);
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
            let line = parse(line).unwrap();
            assert_eq!((&*line.target, line.status, line.bytes), (target, status, bytes));
        }
        let leap = r#"::1 - - [29/Feb/2024:00:00:00 +0000] "GET / HTTP/1.1" 200 1"#;
        assert_eq!(parse(leap).unwrap().unix_ms, 1_709_164_800_000);
    }

    #[test]
    fn what_is_no_line_says_what_was_expected() {
        let long = "x".repeat(LOG_LINE_BYTES_MAX + 1);
        let with = |from: &str, to: &str| JSON.replacen(from, to, 1);
        let much =
            format!("h - - [01/Jan/2000:00:00:00 +0000] \"GET / HTTP/1.1\" 200 {}", 1u64 << 41);
        for (line, error) in [
            ("", LogLineError::NoTime),
            (long.as_str(), LogLineError::TooLong),
            ("h - - [soon] \"GET / HTTP/1.1\" 200 1", LogLineError::BadTime),
            ("h - - [32/Jan/2000:00:00:00 +0000] \"GET / HTTP/1.1\" 200 1", LogLineError::BadTime),
            ("h - - [01/Jan/1970:00:00:00 +0100] \"GET / HTTP/1.1\" 200 1", LogLineError::BadTime),
            ("h - - [01/Jan/2000:00:00:00 +0000] GET / 200 1", LogLineError::NoRequest),
            ("h - - [01/Jan/2000:00:00:00 +0000] \"\\x16\\x03\" 400 0", LogLineError::NoRequest),
            ("h - - [01/Jan/2000:00:00:00 +0000] \"GET / HTTP/1.1\" 20 1", LogLineError::BadStatus),
            ("h - - [01/Jan/2000:00:00:00 +0000] \"GET / HTTP/1.1\" 200", LogLineError::BadBytes),
            ("h - - [01/Jan/2000:00:00:00 +0000] \"GET / HTTP/1.1\" 200 x", LogLineError::BadBytes),
            (much.as_str(), LogLineError::BadBytes),
            ("{\"time\":1}", LogLineError::BadJson),
            ("{", LogLineError::BadJson),
            (&with("\"target\"", "\"path\""), LogLineError::BadJson),
            (&with("2000-10-10T", "2000-13-10T"), LogLineError::BadTime),
            (&with("36.250Z", "36Z"), LogLineError::BadTime),
            (&with("\"status\":200", "\"status\":20"), LogLineError::BadStatus),
            (&with("\"bytes_sent\":2326", "\"bytes_sent\":-1"), LogLineError::BadJson),
        ] {
            assert_eq!(parse(line), Err(error), "{line:.80}");
        }
        assert_eq!(LoggedLine::parse(b"\xff"), Err(LogLineError::NotText));
    }

    proptest! {
        #[test]
        fn no_line_makes_the_parser_panic(
            is_json: bool,
            at in 0..LINE.len(),
            bytes in prop::collection::vec(any::<u8>(), 0..8),
        ) {
            let mut line = if is_json { JSON } else { LINE }.as_bytes().to_vec();
            line.splice(at..(at + bytes.len()).min(line.len()), bytes);
            let _ = LoggedLine::parse(&line);
        }
    }
}
