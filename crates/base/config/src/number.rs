//! Units of numbers, and sizes and durations in their written form: `"16KiB"`, `"250ms"`.

use serde::Serialize;

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// A count of the items that the setting's name states.
    Count,
    /// Bytes; also written `"16KiB"`, `"256MiB"`, `"1GiB"`.
    Bytes,
    /// Bytes per second; also written `"1KiB"`.
    BytesPerSecond,
    /// Milliseconds; also written `"250ms"`, `"10s"`, `"5m"`, `"1h"`.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Percent.
    Percent,
    /// The status of an HTTP response.
    Status,
}

/// Suffixes, largest first, so that formatting finds the shortest number.
const BYTES: &[(&str, u64)] =
    &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const MILLISECONDS: &[(&str, u64)] = &[("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Parses a size in bytes: digits, or digits and one of B, KiB, MiB, GiB, TiB. The error is a
/// suggested correction, if one can be guessed.
///
/// For command lines; files go through the settings table.
pub fn parse_size(text: &str) -> Result<u64, Option<String>> {
    text.parse().or_else(|_| parse(Unit::Bytes, text))
}

/// Parses a duration in milliseconds: digits, or digits and one of ms, s, m, h. The error is as for
/// [`parse_size`].
pub fn parse_duration_ms(text: &str) -> Result<u64, Option<String>> {
    text.parse().or_else(|_| parse(Unit::Milliseconds, text))
}

/// Parses `text`, digits and a suffix, as a number in `unit`. The error is a hint.
pub(crate) fn parse(unit: Unit, text: &str) -> Result<u64, Option<String>> {
    let digits_len = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, suffix) = text.split_at(digits_len);
    let Ok(number) = digits.parse::<u64>() else { return Err(None) };
    if suffix.is_empty() {
        return Err(Some(format!("a number stands without quotes: {digits}")));
    }
    let known = suffixes(unit).iter().find(|(name, _)| *name == suffix);
    match known.map(|(_, factor)| number.checked_mul(*factor)) {
        Some(Some(product)) => Ok(product),
        Some(None) => Err(None),
        None => Err(meant(unit, suffix).map(|right| format!("write \"{number}{right}\""))),
    }
}

/// `number` in the largest unit that divides it, for messages.
pub(crate) fn plain(unit: Unit, number: u64) -> String {
    format(unit, number).replace('"', "")
}

/// `number` in the largest unit that divides it, as TOML.
pub(crate) fn format(unit: Unit, number: u64) -> String {
    let fits = |(_, factor): &&(&str, u64)| number != 0 && number.is_multiple_of(*factor);
    match suffixes(unit).iter().find(fits) {
        Some((suffix, factor)) if *factor > 1 || unit == Unit::Milliseconds => {
            format!("\"{}{suffix}\"", number / factor)
        }
        _ => number.to_string(),
    }
}

fn suffixes(unit: Unit) -> &'static [(&'static str, u64)] {
    match unit {
        Unit::Bytes | Unit::BytesPerSecond => BYTES,
        Unit::Milliseconds => MILLISECONDS,
        Unit::Count | Unit::Seconds | Unit::Percent | Unit::Status => &[],
    }
}

/// The suffix intended by an invalid one: `k`, `kb`, `K`, `sec`, …
fn meant(unit: Unit, suffix: &str) -> Option<&'static str> {
    let lower = suffix.trim().to_ascii_lowercase();
    match (unit, lower.as_str()) {
        (Unit::Milliseconds, "ms" | "msec" | "millis" | "milliseconds") => Some("ms"),
        (Unit::Milliseconds, "s" | "sec" | "secs" | "second" | "seconds") => Some("s"),
        (Unit::Milliseconds, "m" | "min" | "mins" | "minute" | "minutes") => Some("m"),
        (Unit::Milliseconds, "h" | "hr" | "hour" | "hours") => Some("h"),
        (Unit::Bytes | Unit::BytesPerSecond, size) => match size {
            "b" | "byte" | "bytes" => Some("B"),
            "k" | "kb" | "kib" => Some("KiB"),
            "m" | "mb" | "mib" => Some("MiB"),
            "g" | "gb" | "gib" => Some("GiB"),
            "t" | "tb" | "tib" => Some("TiB"),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_read() {
        assert_eq!(parse_size("16KiB"), Ok(16 * 1024));
        assert_eq!(parse_size("256MiB"), Ok(256 << 20));
        assert_eq!(parse_size("1GiB"), Ok(1 << 30));
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_duration_ms("250ms"), Ok(250));
        assert_eq!(parse_duration_ms("10s"), Ok(10_000));
        assert_eq!(parse_duration_ms("5m"), Ok(300_000));
    }

    #[test]
    fn wrong_suffixes_are_refused_with_the_right_one() {
        assert_eq!(parse_size("16K"), Err(Some("write \"16KiB\"".into())));
        assert_eq!(parse_size("16 MiB"), Err(Some("write \"16MiB\"".into())));
        assert_eq!(parse_duration_ms("5min"), Err(Some("write \"5m\"".into())));
        for text in ["", "KiB", "-1KiB", "1.5GiB", "99999999999999999999", "16777216TiB", "日"] {
            assert_eq!(parse_size(text), Err(None), "{text}");
        }
    }

    #[test]
    fn what_is_written_reads_the_same() {
        for unit in [Unit::Bytes, Unit::Milliseconds] {
            for number in [0, 1, 999, 1000, 1024, 1536, 60_000, 90_000, 3_600_000, 1 << 30] {
                let text = format(unit, number);
                let read = match text.strip_prefix('"') {
                    Some(quoted) => parse(unit, quoted.trim_end_matches('"')),
                    None => text.parse().map_err(|_| None),
                };
                assert_eq!(read, Ok(number), "{text}");
            }
        }
        assert_eq!(format(Unit::Bytes, 16 * 1024), "\"16KiB\"");
        assert_eq!(format(Unit::Milliseconds, 1500), "\"1500ms\"");
        assert_eq!(format(Unit::Count, 1024), "1024");
    }
}
