//! What an entry of the settings table is, and the macro that makes entries.

use std::ops::RangeInclusive;

use serde::Serialize;

/// One setting: all that the parser, the messages and the reference know.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// Where it stands in the file, such as `limits.head_bytes_max`.
    pub path: &'static str,
    /// Type, unit and limits.
    pub kind: Kind,
    /// The default as TOML; `None` when it is required or unset by default.
    pub default: Option<String>,
    /// Whether a file without it is refused.
    pub required: bool,
    /// What it does, as Markdown in one paragraph.
    pub doc: String,
    /// Whether a reload (SIGHUP) changes it; else it needs a restart.
    pub reloadable: bool,
}

/// Type, unit and limits of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Kind {
    /// `true` or `false`.
    Switch,
    /// A whole number within limits.
    Number {
        /// What it counts.
        unit: Unit,
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// An HTTP status out of a few.
    Status(&'static [u16]),
    /// One word out of a few.
    Word {
        /// The words.
        known: &'static [&'static str],
        /// Words that only a later version knows.
        later: &'static [&'static str],
    },
    /// A string of some form.
    Text(Form),
    /// One string or a list of strings of some form.
    Texts(Form),
    /// `"IP:PORT"`.
    Address,
    /// `"IP:PORT"` or `"off"`.
    AddressOrOff,
    /// One `"IP:PORT"` or a list of them, at least one.
    Addresses,
    /// A table: name of a header field = its value.
    Headers,
    /// A table: HTTP status (4xx or 5xx) = URL path of the page.
    ErrorPages,
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Things; the setting's name says which.
    Count,
    /// Bytes; also written `"16KiB"`, `"256MiB"`, `"1GiB"`.
    Bytes,
    /// Bytes a second; also written `"1KiB"`.
    BytesPerSecond,
    /// Milliseconds; also written `"250ms"`, `"10s"`, `"5m"`, `"1h"`.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Hundredths.
    Percent,
}

/// What a string must look like.
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
    /// URL or path of a URL; a `*` at its end stands for the matched rest.
    UrlTarget,
    /// `HOST`, `HOST:PORT` or `IP:PORT`.
    Authority,
    /// Host name, `*.` and a host name, or `*`.
    HostPattern,
    /// Value of a header field.
    FieldValue,
    /// `"off"`, `"-"` (standard output) or a path.
    AccessLog,
}

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
    Kind::Word { known, later: &[] }
}

/// Makes the struct of one table of the file and all that is derived from it.
///
/// An entry reads `name: type = default => kind, live|restart;`. Without a
/// default the setting is required. Tables inside this one follow in
/// `tables { field: Type, live|restart; }`, where the word tells whether a
/// reload may add and remove rows.
macro_rules! table {
    (
        $(#[doc = $doc:literal])+
        $name:ident at $path:literal {
            $($(#[doc = $sdoc:literal])+
            $field:ident : $type:ty $(= $default:expr)? => $kind:expr, $reload:ident;)*
        }
        $(tables {
            $($(#[doc = $tdoc:literal])+ $tfield:ident : $ttype:ty, $treload:ident;)*
        })?
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq, ::serde::Serialize)]
        pub struct $name {
            $($(#[doc = $sdoc])+ pub $field: $type,)*
            $($($(#[doc = $tdoc])+ pub $tfield: $ttype,)*)?
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($field: $crate::table::default_or_unset!($($default)?),)*
                    $($($tfield: Default::default(),)*)?
                }
            }
        }
    };
}

/// The default of an entry, or what a required setting is until it is set.
macro_rules! default_or_unset {
    () => {
        $crate::value::Field::unset()
    };
    ($default:expr) => {
        $default
    };
}

pub(crate) use {default_or_unset, table};
