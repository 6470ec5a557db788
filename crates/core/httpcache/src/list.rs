//! Components of field values: list members, quoted strings, seconds, dates.

use skep_http::HttpDate;

use crate::limits::DELTA_SECONDS_MAX;

/// Longest text that is tried as a date with different capitalisation, in bytes: `Wednesday,
/// 06-Nov-94 ...`.
const DATE_BYTES_MAX: usize = 40;

/// The members of a list, trimmed, without empty ones; a comma in quotes does not end a member (RFC
/// 9110 5.6.1).
pub(crate) fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    all_members(value).filter(|member| !member.is_empty())
}

/// The same, with empty members.
pub(crate) fn all_members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    value
        .split(move |byte| {
            let ends = *byte == b',' && !is_quoted;
            if *byte == b'"' && !is_escaped {
                is_quoted = !is_quoted;
            }
            is_escaped = is_quoted && *byte == b'\\' && !is_escaped;
            ends
        })
        .map(<[u8]>::trim_ascii)
}

/// The name of a directive, and its value after `=`.
pub(crate) fn directive(member: &[u8]) -> (&[u8], Option<&[u8]>) {
    match member.iter().position(|byte| *byte == b'=') {
        Some(at) => (member[..at].trim_ascii(), Some(member[at + 1..].trim_ascii())),
        None => (member, None),
    }
}

/// The contents of a quoted string, with escapes unchanged; `None` if it is not quoted.
pub(crate) fn unquoted(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

/// Parses digits with or without quotes (RFC 9111 5.2 requires accepting both).
pub(crate) fn seconds(value: &[u8]) -> Option<u64> {
    delta_seconds(unquoted(value).unwrap_or(value))
}

/// `delta-seconds` (RFC 9111 1.2.2): a number that is too large becomes the maximum.
pub(crate) fn delta_seconds(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0u64, |number, digit| {
        number.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    });
    Some(number.min(DELTA_SECONDS_MAX))
}

/// Whether the text is a token (RFC 9110 5.6.2).
pub(crate) fn is_token(text: &[u8]) -> bool {
    let is_tchar = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !text.is_empty() && text.iter().all(is_tchar)
}

/// Seconds since the Unix epoch. Case-insensitive, as RFC 9111 4.2 requires of caches.
pub(crate) fn date(value: &[u8], now_unix_s: u64) -> Option<u64> {
    let parsed = HttpDate::parse(value, now_unix_s).or_else(|| {
        let is_short = value.len() <= DATE_BYTES_MAX;
        is_short.then(|| HttpDate::parse(&in_usual_case(value), now_unix_s))?
    });
    parsed.map(|date| date.0)
}

/// `THU, 18 AUG 2050 02:01:18 gmt` becomes `Thu, 18 Aug 2050 02:01:18 GMT`.
fn in_usual_case(value: &[u8]) -> Vec<u8> {
    let mut text = value.to_ascii_lowercase();
    for word in text.split_mut(|byte| !byte.is_ascii_alphabetic()) {
        if *word == *b"gmt" {
            word.make_ascii_uppercase();
        } else if let [first, ..] = word {
            first.make_ascii_uppercase();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_in_quotes_do_not_end_a_member() {
        let of = |value: &'static str| members(value.as_bytes()).collect::<Vec<_>>();
        assert_eq!(of("a, b=\"c, d\" ,,e"), [&b"a"[..], b"b=\"c, d\"", b"e"]);
        assert_eq!(of("x=\"a\\\", b\", c"), [&b"x=\"a\\\", b\""[..], b"c"]);
        assert_eq!(of("x=\"a, b"), [&b"x=\"a, b"[..]], "an open quote ends with the line");
        assert_eq!(of(""), Vec::<&[u8]>::new());
    }

    #[test]
    fn seconds_are_digits_and_have_a_largest() {
        for (text, expected) in [
            ("60", Some(60)),
            ("003600", Some(3600)),
            ("\"60\"", Some(60)),
            ("99999999999999999999", Some(DELTA_SECONDS_MAX)),
            ("2147483648", Some(DELTA_SECONDS_MAX)),
            ("'60'", None),
            ("60.0", None),
            ("-60", None),
            ("+60", None),
            ("6 0", None),
            ("\"60", None),
            ("", None),
        ] {
            assert_eq!(seconds(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn dates_are_read_in_any_case() {
        let of = |text: &str| date(text.as_bytes(), 1_795_000_000);
        let expected = of("Thu, 18 Aug 2050 02:01:18 GMT");
        assert!(expected.is_some());
        for text in [
            "THU, 18 Aug 2050 02:01:18 GMT",
            "Thu, 18 AUG 2050 02:01:18 GMT",
            "Thu, 18 Aug 2050 02:01:18 gMT",
            "thursday, 18-aug-50 02:01:18 gmt",
        ] {
            assert_eq!(of(text), expected, "{text}");
        }
        for text in ["0", "", "THU, 18 AUG 2050 02:01:18 UTC", "Thu, 18 Aug 50 02:01:18 GMT"] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
