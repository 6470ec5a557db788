//! The values that a setting accepts: type, unit and limits, and the wording shared by messages and
//! the reference.

use std::ops::RangeInclusive;

use serde::Serialize;
use skep_units::GIB;

use crate::number::{self, Unit};

/// Type, unit and limits of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Kind {
    /// `true` or `false`.
    Switch,
    /// A whole number within limits.
    Number {
        /// The unit.
        unit: Unit,
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// One of a few HTTP statuses.
    Status(&'static [u16]),
    /// One of a few words.
    Word(&'static [&'static str]),
    /// A string of a certain form.
    Text(Form),
    /// One string or a list of strings of a certain form.
    Texts(Form),
    /// A list: the path of a program, and its arguments.
    Arguments,
    /// `"IP:PORT"`.
    Address,
    /// `"IP:PORT"` or `"off"`.
    AddressOrOff,
    /// One `"IP:PORT"` or a list of them, at least one.
    Addresses,
    /// `"IP:PORT"` or `"unix:/PATH"`.
    ServerAddress,
    /// A table: name of a header field = its value.
    Headers,
    /// A table: name of a header field = its exact value, a prefix and `*`, or `*`.
    FieldPatterns,
    /// A table: name of a parameter = its value.
    Params,
    /// A table: prefix of a URL path = its replacement.
    PathMap,
    /// A table: HTTP status (4xx or 5xx) = URL path of the page.
    ErrorPages,
    /// A table: HTTP status or class of statuses = duration, at most one day.
    StatusLifetimes,
}

/// The syntax of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Form {
    /// Letters, digits, `.`, `_`, `-`.
    Name,
    /// Path of a file or folder.
    Path,
    /// Name of a file, without a folder.
    FileName,
    /// Path of a URL: begins with `/`.
    UrlPath,
    /// Path of a URL; a `*` at its end stands for any rest.
    UrlPattern,
    /// Path of a URL in which each `*` stands for any characters.
    RoutePattern,
    /// URL or path of a URL; a `*` at its end stands for the matched rest.
    UrlTarget,
    /// `HOST`, `HOST:PORT` or `IP:PORT`.
    Authority,
    /// Host name, `*.` and a host name, or `*`.
    HostPattern,
    /// Value of a header field.
    FieldValue,
    /// Value of a header field; a `*` at its end stands for any rest.
    FieldPattern,
    /// Any text.
    Prose,
    /// `"off"`, `"-"` (standard output) or a path.
    AccessLog,
    /// `IP` or `IP/BITS`.
    Network,
    /// `http://HOST[:PORT][/BASE]`.
    OriginUrl,
    /// A request method.
    Method,
    /// Name of a header field.
    FieldName,
    /// Name of a cookie or query parameter; a `*` at its end stands for any rest.
    NamePattern,
    /// A content coding.
    ContentCoding,
    /// A media type in lower case, without parameters, in which each `*` stands for any characters.
    MediaType,
}

pub(crate) const MINUTE_MS: u64 = 60_000;
pub(crate) const HOUR_MS: u64 = 60 * MINUTE_MS;
pub(crate) const DAY_MS: u64 = 24 * HOUR_MS;
pub(crate) const TIB: u64 = 1024 * GIB;

/// A count within `limits`.
pub(crate) const fn count(limits: RangeInclusive<u64>) -> Kind {
    number(Unit::Count, limits)
}

/// A size in bytes within `limits`.
pub(crate) const fn bytes(limits: RangeInclusive<u64>) -> Kind {
    number(Unit::Bytes, limits)
}

/// A duration in milliseconds within `limits`.
pub(crate) const fn ms(limits: RangeInclusive<u64>) -> Kind {
    number(Unit::Milliseconds, limits)
}

/// A number of `unit` within `limits`.
pub(crate) const fn number(unit: Unit, limits: RangeInclusive<u64>) -> Kind {
    Kind::Number { unit, min: *limits.start(), max: *limits.end() }
}

/// One of `known`.
pub(crate) const fn word(known: &'static [&'static str]) -> Kind {
    Kind::Word(known)
}

impl Kind {
    /// The accepted values, as worded in messages and the reference.
    pub fn expected(self) -> String {
        match self {
            Self::Switch => "true or false".into(),
            Self::Number { unit, min, max } => expected_number(unit, min, max),
            Self::Status(known) => alternatives(known, |status| status.to_string()),
            Self::Word(known) => alternatives(known, |word| format!("\"{word}\"")),
            Self::Text(form) => form.expected().into(),
            Self::Texts(form) => format!("{}, or a list of them", form.expected()),
            Self::Arguments => "a list: the path of a program, and its arguments".into(),
            Self::Address => "an address \"IP:PORT\"".into(),
            Self::AddressOrOff => "an address \"IP:PORT\", or \"off\"".into(),
            Self::Addresses => "an address \"IP:PORT\", or a list of them".into(),
            Self::ServerAddress => "an address \"IP:PORT\" or \"unix:/PATH\"".into(),
            Self::Params => "a table of parameters, NAME = \"value\"".into(),
            Self::PathMap => "a table of paths, \"/beginning\" = \"/what takes its place\"".into(),
            Self::Headers => "a table of header fields, name = \"value\"".into(),
            Self::FieldPatterns => {
                "a table of header fields, name = \"value\", \"beginning*\" or \"*\"".into()
            }
            Self::ErrorPages => "a table of pages, \"status\" = \"/path\"".into(),
            Self::StatusLifetimes => {
                "a table of durations, such as { 404 = \"5s\", 5xx = \"1s\" }".into()
            }
        }
    }
}

fn expected_number(unit: Unit, min: u64, max: u64) -> String {
    let (noun, form) = match unit {
        Unit::Count => ("a whole number", ""),
        Unit::Bytes => ("a size", ", in bytes or such as \"16KiB\""),
        Unit::BytesPerSecond => ("a rate", ", in bytes a second or such as \"16KiB\""),
        Unit::Milliseconds => ("a duration", ", in milliseconds or such as \"10s\""),
        Unit::Seconds => ("a number of seconds", ""),
        Unit::Percent => ("a percentage", ""),
        Unit::Status => ("an HTTP status", ""),
    };
    let (min, max) = (number::plain(unit, min), number::plain(unit, max));
    format!("{noun} from {min} to {max}{form}")
}

/// `a, b or c`.
fn alternatives<T>(known: &[T], show: impl Fn(&T) -> String) -> String {
    let mut shown: Vec<String> = known.iter().map(show).collect();
    match shown.pop() {
        Some(last) if shown.is_empty() => last,
        Some(last) => format!("{} or {last}", shown.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_say_what_they_expect() {
        let size = bytes(1024..=65_536);
        assert_eq!(size.expected(), "a size from 1KiB to 64KiB, in bytes or such as \"16KiB\"");
        assert_eq!(count(1..=128).expected(), "a whole number from 1 to 128");
        assert_eq!(word(&["a", "b", "c"]).expected(), "\"a\", \"b\" or \"c\"");
        assert_eq!(Kind::Status(&[302, 307]).expected(), "302 or 307");
    }
}
