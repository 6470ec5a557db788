//! How each Rust type of a setting is read from the file and written to it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use skep_units::{ServerAddress, ServerAddressError, did_you_mean};

use crate::error::{ErrorKind, Fault};
use crate::form::{any_field_name, field_name, param_name, url_path};
use crate::kind::{DAY_MS, Form, Kind, ms};
use crate::limits::LIST_MAX;
use crate::number::{self, Unit};
use crate::raw::{Raw, RawEntry, RawValue, Span};
use crate::statuses::StatusPattern;
use crate::words::{
    AccessLogTarget, Attach, ConnectionsScope, ContentPlacement, DispatchMode, HandoffDecision,
    HandoffTransport, Level, LogFormat, ObeyedRequests, PoolProtocol, RequestCookies,
    ResponseCookies, SameSite, ScriptWord, StatusAgent, StickyBy, StorableStatuses, StoreKind,
    Symlinks, UnderscoreFields,
};

/// A value of [`Kind::StatusLifetimes`].
const STATUS_LIFETIME: Kind = ms(0..=DAY_MS);

/// A type that a setting can have. The tests of the settings table pin which [`Kind`]s each type
/// supports.
pub(crate) trait Field: Sized {
    /// Reads a value; `None` after at least one fault.
    fn read(raw: &Raw, at: &Entry, faults: &mut Vec<Fault>) -> Option<Self>;

    /// The value as TOML; `None` if it is not set.
    fn write(&self, kind: Kind) -> Option<String>;
}

/// A type that a setting without a default can have.
pub(crate) trait Required: Field {
    /// Its initial value.
    fn unset() -> Self;
}

/// The setting being read.
pub(crate) struct Entry {
    pub(crate) path: &'static str,
    pub(crate) kind: Kind,
}

impl Entry {
    fn fault(&self, kind: ErrorKind, raw: &Raw) -> Fault {
        let (span, expected) = (raw.span.clone(), self.kind.expected());
        Fault::new(kind, span, self.path, expected, raw.describe())
    }

    fn wrong(&self, raw: &Raw) -> Fault {
        self.fault(ErrorKind::WrongType, raw)
    }

    /// A string in the setting's form, normalized.
    fn text(&self, form: Form, raw: &Raw, faults: &mut Vec<Fault>) -> Option<String> {
        let RawValue::Text(text) = &raw.value else {
            let hint = matches!(raw.value, RawValue::Switch(_) | RawValue::Integer(_))
                .then(|| format!("strings stand in quotes: \"{}\"", raw.describe()));
            faults.push(self.wrong_text(form, raw).hint(hint));
            return None;
        };
        form.accept(text).map_err(|hint| faults.push(self.wrong_text(form, raw).hint(hint))).ok()
    }

    /// A fault in one string, which may be one of several.
    fn wrong_text(&self, form: Form, raw: &Raw) -> Fault {
        let (span, expected) = (raw.span.clone(), form.expected());
        Fault::new(ErrorKind::WrongType, span, self.path, expected, raw.describe())
    }

    /// One of the words of the setting.
    fn word<'a>(&self, raw: &'a Raw, faults: &mut Vec<Fault>) -> Option<&'a str> {
        let Kind::Word(known) = self.kind else { unreachable!("{} takes words", self.path) };
        let RawValue::Text(text) = &raw.value else {
            faults.push(self.wrong(raw));
            return None;
        };
        if known.contains(&text.as_str()) {
            return Some(text);
        }
        let hint = did_you_mean(text, known.iter().copied());
        faults.push(self.fault(ErrorKind::OutOfRange, raw).hint(hint));
        None
    }

    /// A whole number within the setting's limits.
    fn number(&self, raw: &Raw, faults: &mut Vec<Fault>) -> Option<u64> {
        let number = match (self.kind, &raw.value) {
            (_, RawValue::Integer(number)) => u64::try_from(*number).ok(),
            (Kind::Number { unit, .. }, RawValue::Text(text)) => match number::parse(unit, text) {
                Ok(number) => Some(number),
                Err(hint) => {
                    faults.push(self.wrong(raw).hint(hint));
                    return None;
                }
            },
            _ => {
                faults.push(self.wrong(raw));
                return None;
            }
        };
        let fits = |n: &u64| match self.kind {
            Kind::Number { min, max, .. } => (min..=max).contains(n),
            Kind::Status(known) => known.iter().any(|status| u64::from(*status) == *n),
            _ => unreachable!("{} takes numbers", self.path),
        };
        let number = number.filter(fits);
        if number.is_none() {
            faults.push(self.fault(ErrorKind::OutOfRange, raw));
        }
        number
    }

    fn address(&self, raw: &Raw, faults: &mut Vec<Fault>) -> Option<SocketAddr> {
        let RawValue::Text(text) = &raw.value else {
            faults.push(self.wrong(raw));
            return None;
        };
        let hint = || match text.strip_prefix("localhost").or_else(|| text.strip_prefix('*')) {
            Some(port) if text.starts_with('*') => {
                format!("write \"0.0.0.0{port}\" or \"[::]{port}\"")
            }
            Some(port) => format!("write \"127.0.0.1{port}\" or \"[::1]{port}\""),
            None if text.starts_with(':') => format!("write \"0.0.0.0{text}\" or \"[::]{text}\""),
            None => "an IP address and a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\"".into(),
        };
        text.parse().map_err(|_| faults.push(self.wrong(raw).hint(hint()))).ok()
    }

    /// One value or a list of values, each read by `read_one`, without duplicates.
    fn list<T: PartialEq>(
        &self,
        raw: &Raw,
        faults: &mut Vec<Fault>,
        read_one: impl Fn(&Raw, &mut Vec<Fault>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let raws = match &raw.value {
            RawValue::List(raws) => raws.as_slice(),
            RawValue::Text(_) => std::slice::from_ref(raw),
            _ => {
                faults.push(self.wrong(raw));
                return None;
            }
        };
        if raws.len() > LIST_MAX {
            faults.push(self.fault(ErrorKind::OutOfRange, raw).hint(format!("at most {LIST_MAX}")));
            return None;
        }
        let faults_before = faults.len();
        let mut values = Vec::new();
        for raw in raws {
            match read_one(raw, faults) {
                Some(value) if values.contains(&value) => faults.push(self.twice(raw)),
                Some(value) => values.push(value),
                None => {}
            }
        }
        (faults.len() == faults_before).then_some(values)
    }

    /// A program and its arguments, which may contain duplicates.
    fn arguments(&self, raw: &Raw, faults: &mut Vec<Fault>) -> Option<Vec<String>> {
        let RawValue::List(raws) = &raw.value else {
            let hint = "without a shell: each argument is a string of its own";
            faults.push(self.wrong(raw).hint(Some(hint.to_owned())));
            return None;
        };
        if raws.len() > LIST_MAX {
            faults.push(self.fault(ErrorKind::OutOfRange, raw).hint(format!("at most {LIST_MAX}")));
            return None;
        }
        raws.iter().map(|raw| self.text(Form::Prose, raw, faults)).collect()
    }

    fn twice(&self, raw: &Raw) -> Fault {
        let found = format!("{} twice", raw.describe());
        Fault::new(ErrorKind::Duplicate, raw.span.clone(), self.path, "each value once", found)
    }

    /// The entries of a table with arbitrary keys.
    fn entries<'a>(&self, raw: &'a Raw, faults: &mut Vec<Fault>) -> Option<&'a [RawEntry]> {
        match &raw.value {
            RawValue::Table(entries) if entries.len() <= LIST_MAX => Some(entries),
            RawValue::Table(_) => {
                faults.push(
                    self.fault(ErrorKind::OutOfRange, raw).hint(format!("at most {LIST_MAX}")),
                );
                None
            }
            _ => {
                faults.push(self.wrong(raw));
                None
            }
        }
    }

    fn wrong_key(&self, span: &Span, key: &str, expected: &str) -> Fault {
        let found = crate::raw::quote(key);
        Fault::new(ErrorKind::WrongType, span.clone(), self.path, expected, found)
    }
}

/// A TOML string.
fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

fn quoted_list<T: ToString>(values: &[T]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| quoted(&value.to_string())).collect();
    format!("[{}]", quoted.join(", "))
}

/// An inline TOML table of strings.
fn quoted_map<K: ToString>(entries: impl Iterator<Item = (K, String)>) -> String {
    let pairs: Vec<String> = entries
        .map(|(key, value)| {
            format!("{} = {}", toml_edit::Key::new(key.to_string()), quoted(&value))
        })
        .collect();
    if pairs.is_empty() { "{}".into() } else { format!("{{ {} }}", pairs.join(", ")) }
}

impl Field for bool {
    fn read(raw: &Raw, at: &Entry, faults: &mut Vec<Fault>) -> Option<Self> {
        match &raw.value {
            RawValue::Switch(on) => Some(*on),
            RawValue::Text(text) => {
                let hint = match text.to_ascii_lowercase().as_str() {
                    "true" | "yes" | "on" => Some("write true, without quotes".to_owned()),
                    "false" | "no" | "off" => Some("write false, without quotes".to_owned()),
                    _ => None,
                };
                faults.push(at.wrong(raw).hint(hint));
                None
            }
            _ => {
                faults.push(at.wrong(raw));
                None
            }
        }
    }

    fn write(&self, _kind: Kind) -> Option<String> {
        Some(self.to_string())
    }
}

macro_rules! number_fields {
    ($($type:ty),+) => {$(
        impl Field for $type {
            fn read(raw: &Raw, at: &Entry, faults: &mut Vec<Fault>) -> Option<Self> {
                let number = at.number(raw, faults)?;
                let fits = Self::try_from(number);
                fits.map_err(|_| faults.push(at.fault(ErrorKind::OutOfRange, raw))).ok()
            }

            fn write(&self, kind: Kind) -> Option<String> {
                Some(match kind {
                    Kind::Number { unit, .. } => number::format(unit, u64::from(*self)),
                    _ => self.to_string(),
                })
            }
        }
    )+};
}

number_fields!(u64, u32, u16);

macro_rules! word_fields {
    ($($type:ty),+) => {$(
        impl Field for $type {
            fn read(raw: &Raw, at: &Entry, faults: &mut Vec<Fault>) -> Option<Self> {
                at.word(raw, faults).and_then(Self::from_word)
            }

            fn write(&self, _kind: Kind) -> Option<String> {
                Some(quoted(self.word()))
            }
        }
    )+};
}

word_fields!(
    DispatchMode,
    HandoffDecision,
    HandoffTransport,
    StoreKind,
    Attach,
    ContentPlacement,
    PoolProtocol,
    SameSite,
    ConnectionsScope,
    StatusAgent,
    StickyBy,
    StorableStatuses,
    ResponseCookies,
    RequestCookies,
    ObeyedRequests,
    ScriptWord,
    Symlinks,
    UnderscoreFields,
    LogFormat,
    Level
);

impl Field for String {
    fn read(raw: &Raw, at: &Entry, faults: &mut Vec<Fault>) -> Option<Self> {
        match at.kind {
            Kind::Text(form) => at.text(form, raw, faults),
            _ => at.word(raw, faults).map(str::to_owned),
        }
    }

    fn write(&self, _kind: Kind) -> Option<String> {
        Some(quoted(self))
    }
}

impl Required for String {
    fn unset() -> Self {
        Self::new()
    }
}

impl Field for PathBuf {
    fn read(raw: &Raw, at: &Entry, faults: &mut Vec<Fault>) -> Option<Self> {
        at.text(Form::Path, raw, faults).map(Self::from)
    }

    fn write(&self, _kind: Kind) -> Option<String> {
        Some(quoted(&self.to_string_lossy()))
    }
}

impl Required for PathBuf {
    fn unset() -> Self {
        Self::new()
    }
}

/// `None` means not set; nothing is written for it.
macro_rules! optional_fields {
    ($($type:ty),+) => {$(
        impl Field for Option<$type> {
            fn read(raw: &Raw, at: &Entry, faults: &mut Vec<Fault>) -> Option<Self> {
                <$type>::read(raw, at, faults).map(Some)
            }

            fn write(&self, kind: Kind) -> Option<String> {
                self.as_ref().and_then(|value| value.write(kind))
            }
        }
    )+};
}

optional_fields!(bool, String, PathBuf, ServerAddress, u16, u64);

impl Field for SocketAddr {
    fn read(raw: &Raw, at: &Entry, faults: &mut Vec<Fault>) -> Option<Self> {
        at.address(raw, faults)
    }

    fn write(&self, _kind: Kind) -> Option<String> {
        Some(quoted(&self.to_string()))
    }
}

impl Required for SocketAddr {
    fn unset() -> Self {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    }
}

impl Field for ServerAddress {
    fn read(raw: &Raw, at: &Entry, faults: &mut Vec<Fault>) -> Option<Self> {
        match &raw.value {
            RawValue::Text(text) if text.starts_with("unix") || text.starts_with('/') => {
                let parsed = text.parse::<Self>();
                let hint = |error: ServerAddressError| match error {
                    ServerAddressError::Form => format!("write \"unix:{text}\" for a socket"),
                    error => error.to_string(),
                };
                parsed.map_err(|error| faults.push(at.wrong(raw).hint(hint(error)))).ok()
            }
            _ => at.address(raw, faults).map(Self::Tcp),
        }
    }

    fn write(&self, _kind: Kind) -> Option<String> {
        Some(quoted(&self.to_string()))
    }
}

impl Required for ServerAddress {
    fn unset() -> Self {
        SocketAddr::unset().into()
    }
}

/// `None` is written as `"off"` if the setting allows that; otherwise the setting is not set.
impl Field for Option<SocketAddr> {
    fn read(raw: &Raw, at: &Entry, faults: &mut Vec<Fault>) -> Option<Self> {
        match (&raw.value, at.kind) {
            (RawValue::Text(text), Kind::AddressOrOff) if text == "off" => Some(None),
            _ => at.address(raw, faults).map(Some),
        }
    }

    fn write(&self, kind: Kind) -> Option<String> {
        match self {
            None if kind == Kind::AddressOrOff => Some(quoted("off")),
            address => address.and_then(|address| address.write(kind)),
        }
    }
}

impl Field for Vec<SocketAddr> {
    fn read(raw: &Raw, at: &Entry, faults: &mut Vec<Fault>) -> Option<Self> {
        let addresses = at.list(raw, faults, |raw, faults| at.address(raw, faults))?;
        if addresses.is_empty() {
            faults.push(at.fault(ErrorKind::OutOfRange, raw));
            return None;
        }
        Some(addresses)
    }

    fn write(&self, _kind: Kind) -> Option<String> {
        Some(quoted_list(self))
    }
}

impl<T> Required for Vec<T>
where
    Self: Field,
{
    fn unset() -> Self {
        Self::new()
    }
}

impl Field for Vec<String> {
    fn read(raw: &Raw, at: &Entry, faults: &mut Vec<Fault>) -> Option<Self> {
        match at.kind {
            Kind::Texts(form) => at.list(raw, faults, |raw, faults| at.text(form, raw, faults)),
            Kind::Arguments => at.arguments(raw, faults),
            _ => unreachable!("{} takes strings", at.path),
        }
    }

    fn write(&self, _kind: Kind) -> Option<String> {
        Some(quoted_list(self))
    }
}

/// Header fields, in the order of the file.
impl Field for Vec<(String, String)> {
    fn read(raw: &Raw, at: &Entry, faults: &mut Vec<Fault>) -> Option<Self> {
        let faults_before = faults.len();
        let mut fields = Self::new();
        for RawEntry { key, key_span, raw } in at.entries(raw, faults)? {
            let of_field = "the name of a header field";
            let (checked, what, form) = match at.kind {
                Kind::Params => (param_name(key), "the name of a parameter", Form::FieldValue),
                Kind::PathMap => (url_path(key), "the path of a URL", Form::UrlPath),
                Kind::FieldPatterns => (any_field_name(key), of_field, Form::FieldPattern),
                _ => (field_name(key), of_field, Form::FieldValue),
            };
            if let Err(hint) = checked {
                faults.push(at.wrong_key(key_span, key, what).hint(hint));
            } else if fields.iter().any(|(name, _)| name.eq_ignore_ascii_case(key)) {
                let mut fault = at.wrong_key(key_span, key, "each name once");
                fault.kind = ErrorKind::Duplicate;
                faults.push(fault);
            } else if let Some(value) = at.text(form, raw, faults) {
                fields.push((key.clone(), value));
            }
        }
        (faults.len() == faults_before).then_some(fields)
    }

    fn write(&self, _kind: Kind) -> Option<String> {
        Some(quoted_map(self.iter().cloned()))
    }
}

/// Error pages by status.
impl Field for BTreeMap<u16, String> {
    fn read(raw: &Raw, at: &Entry, faults: &mut Vec<Fault>) -> Option<Self> {
        let faults_before = faults.len();
        let mut pages = Self::new();
        for RawEntry { key, key_span, raw } in at.entries(raw, faults)? {
            let status = (400..=599).find(|status: &u16| status.to_string() == *key);
            match (status, at.text(Form::UrlPath, raw, faults)) {
                (Some(status), Some(page)) => drop(pages.insert(status, page)),
                (None, _) => faults.push(at.wrong_key(key_span, key, "a status from 400 to 599")),
                _ => {}
            }
        }
        (faults.len() == faults_before).then_some(pages)
    }

    fn write(&self, _kind: Kind) -> Option<String> {
        Some(quoted_map(self.iter().map(|(status, page)| (status, page.clone()))))
    }
}

/// Durations by status.
impl Field for BTreeMap<StatusPattern, u64> {
    fn read(raw: &Raw, at: &Entry, faults: &mut Vec<Fault>) -> Option<Self> {
        let faults_before = faults.len();
        let lifetime = Entry { path: at.path, kind: STATUS_LIFETIME };
        let mut lifetimes = Self::new();
        for RawEntry { key, key_span, raw } in at.entries(raw, faults)? {
            match (key.parse(), lifetime.number(raw, faults)) {
                (Ok(status), Some(lifetime_ms)) => drop(lifetimes.insert(status, lifetime_ms)),
                (Err(()), _) => {
                    let expected = "a status such as 404, or a class such as 5xx; not 206, 304";
                    faults.push(at.wrong_key(key_span, key, expected));
                }
                _ => {}
            }
        }
        (faults.len() == faults_before).then_some(lifetimes)
    }

    fn write(&self, _kind: Kind) -> Option<String> {
        let lifetime = |(status, ms): (&StatusPattern, &u64)| {
            format!("{status} = {}", number::format(Unit::Milliseconds, *ms))
        };
        let pairs: Vec<_> = self.iter().map(lifetime).collect();
        Some(if pairs.is_empty() { "{}".into() } else { format!("{{ {} }}", pairs.join(", ")) })
    }
}

impl Field for AccessLogTarget {
    fn read(raw: &Raw, at: &Entry, faults: &mut Vec<Fault>) -> Option<Self> {
        Some(match at.text(Form::AccessLog, raw, faults)?.as_str() {
            "off" => Self::Off,
            "-" => Self::Stdout,
            path => Self::File(path.into()),
        })
    }

    fn write(&self, _kind: Kind) -> Option<String> {
        Some(match self {
            Self::Off => quoted("off"),
            Self::Stdout => quoted("-"),
            Self::File(path) => quoted(&path.to_string_lossy()),
        })
    }
}
