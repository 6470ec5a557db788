//! The field Cache-Control of a response (RFC 9111 5.2.2, RFC 5861).
//!
//! Lenient in syntax, for nothing is gained by refusing a page for its caching, and strict
//! in meaning: in doubt, a response counts as less cacheable.

use crate::limits::DELTA_SECONDS_MAX;

/// Directives that a shared cache obeys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheControl {
    /// Seconds of freshness; 0 if it can't be read or is given twice.
    pub max_age_s: Option<u64>,
    /// Seconds of freshness for shared caches; likewise.
    pub s_maxage_s: Option<u64>,
    /// Seconds after freshness in which it may be used while it is fetched anew (RFC 5861 3).
    pub stale_while_revalidate_s: Option<u64>,
    /// Seconds after freshness in which it may be used if the origin fails (RFC 5861 4).
    pub stale_if_error_s: Option<u64>,
    /// Not to be stored.
    pub no_store: bool,
    /// Not to be used without revalidation; also where only some fields are meant.
    pub no_cache: bool,
    /// Not for shared caches; also where only some fields are meant.
    pub private: bool,
    /// For shared caches.
    pub public: bool,
    /// Never to be used stale; proxy-revalidate, too.
    pub must_revalidate: bool,
}

impl CacheControl {
    /// Reads the values of all lines of the field.
    pub(crate) fn parse<'v>(lines: impl Iterator<Item = &'v [u8]>) -> Self {
        let mut control = Self::default();
        for directive in lines.flat_map(split) {
            control.add(directive);
        }
        control
    }

    fn add(&mut self, directive: &[u8]) {
        let equals = directive.iter().position(|byte| *byte == b'=');
        let (name, value) = match equals {
            Some(at) => (&directive[..at], Some(&directive[at + 1..])),
            None => (directive, None),
        };
        let name = name.trim_ascii().to_ascii_lowercase();
        match name.as_slice() {
            b"max-age" => add_seconds(&mut self.max_age_s, value),
            b"s-maxage" => add_seconds(&mut self.s_maxage_s, value),
            b"stale-while-revalidate" => add_seconds(&mut self.stale_while_revalidate_s, value),
            b"stale-if-error" => add_seconds(&mut self.stale_if_error_s, value),
            b"no-store" => self.no_store = true,
            b"no-cache" => self.no_cache = true,
            b"private" => self.private = true,
            b"public" => self.public = true,
            b"must-revalidate" | b"proxy-revalidate" => self.must_revalidate = true,
            _ => {}
        }
    }
}

/// RFC 9111 4.2.1: where lifetimes conflict or are invalid, it counts as stale.
fn add_seconds(place: &mut Option<u64>, value: Option<&[u8]>) {
    let seconds = value.and_then(seconds).unwrap_or(0);
    *place = match *place {
        Some(earlier) if earlier != seconds => Some(0),
        _ => Some(seconds),
    };
}

/// Digits, in quotes or without (RFC 9111 5.2 asks to take both).
fn seconds(value: &[u8]) -> Option<u64> {
    let value = value.trim_ascii();
    let unquoted = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    delta_seconds(unquoted.unwrap_or(value))
}

/// `delta-seconds` (RFC 9111 1.2.2): too large a number is the largest.
pub(crate) fn delta_seconds(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0u64, |number, digit| {
        number.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    });
    Some(number.min(DELTA_SECONDS_MAX))
}

/// Members of a list, trimmed; a comma in quotes does not end one.
fn split(value: &[u8]) -> impl Iterator<Item = &[u8]> {
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
        .filter(|member| !member.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lines: &[&str]) -> CacheControl {
        CacheControl::parse(lines.iter().map(|line| line.as_bytes()))
    }

    #[test]
    fn directives_are_read_from_all_lines_in_any_case() {
        let control = parse(&["Public, MAX-AGE=60 , s-maxage=\"70\"", "stale-while-revalidate=5"]);
        assert!(control.public && !control.private && !control.no_store);
        assert_eq!((control.max_age_s, control.s_maxage_s), (Some(60), Some(70)));
        assert_eq!(control.stale_while_revalidate_s, Some(5));
        let control = parse(&["no-store,no-cache,private,proxy-revalidate,stale-if-error=9"]);
        assert!(control.no_store && control.no_cache && control.private && control.must_revalidate);
        assert_eq!(control.stale_if_error_s, Some(9));
    }

    #[test]
    fn what_is_doubtful_is_less_cacheable() {
        for text in ["max-age", "max-age=", "max-age=-1", "max-age=1.5", "max-age=1, max-age=2"] {
            assert_eq!(parse(&[text]).max_age_s, Some(0), "{text}");
        }
        assert_eq!(parse(&["max-age=5, max-age=5"]).max_age_s, Some(5));
        assert_eq!(parse(&["max-age=99999999999999999999"]).max_age_s, Some(DELTA_SECONDS_MAX));
        assert!(parse(&["no-cache=\"a, max-age=5\""]).no_cache);
        assert_eq!(parse(&["x=\"a\\\", max-age=5\", max-age=7"]).max_age_s, Some(7));
        assert_eq!(parse(&["", ",,", "="]), CacheControl::default());
    }
}
