//! The second step: converts [`Raw`] to typed values, one table at a time.

use skep_units::nearest;

use crate::error::{ErrorKind, Fault};
use crate::kind::Kind;
use crate::raw::{Raw, RawEntry, RawValue};
use crate::section::{Section, last_part, path_in};
use crate::value::{Entry, Field};

/// Reads the settings of one table and detects unknown keys.
pub(crate) struct Reader<'a> {
    path: &'static str,
    raw: &'a Raw,
    entries: &'a [RawEntry],
    /// Paths of the settings that were read.
    known: Vec<&'static str>,
    faults: &'a mut Vec<Fault>,
}

impl<'a> Reader<'a> {
    /// Opens the table at `path`; `None`, with a fault, if `raw` is not a table.
    pub(crate) fn open(
        path: &'static str,
        raw: &'a Raw,
        faults: &'a mut Vec<Fault>,
    ) -> Option<Self> {
        let RawValue::Table(entries) = &raw.value else {
            let fault = wrong_table(path, raw, format!("the table [{path}]"));
            faults.push(fault.hint(format!("write [{path}]")));
            return None;
        };
        Some(Self { path, raw, entries, known: Vec::new(), faults })
    }

    /// Returns the value of a setting, or `default` if it is absent or invalid.
    pub(crate) fn setting<T: Field>(
        &mut self,
        name: &'static str,
        kind: Kind,
        required: bool,
        default: T,
    ) -> T {
        let path = path_in(self.path, name);
        self.known.push(path);
        let Some(entry) = self.raw.get(name) else {
            if required {
                self.faults.push(missing(path, kind, self.raw));
            }
            return default;
        };
        T::read(&entry.raw, &Entry { path, kind }, self.faults).unwrap_or(default)
    }

    /// Returns the table or rows nested in this table, or the default if absent.
    pub(crate) fn section<S: Section>(&mut self) -> S {
        let path = path_in(self.path, S::NAME);
        self.known.push(path);
        match self.raw.get(S::NAME) {
            Some(entry) => S::read(path, &entry.raw, self.faults),
            None => S::default(),
        }
    }

    /// Finishes the table: keys that were not read are faults.
    pub(crate) fn close(self) {
        for entry in self.entries {
            if !self.known.iter().any(|path| last_part(path) == entry.key) {
                self.faults.push(unknown_key(self.path, &self.known, entry));
            }
        }
    }
}

/// A fault: a table or rows were expected, but something else was found.
pub(crate) fn wrong_table(path: &str, raw: &Raw, expected: String) -> Fault {
    let found = match &raw.value {
        RawValue::List(_) => format!("[[{path}]]"),
        RawValue::Table(_) => format!("[{path}]"),
        _ => raw.describe(),
    };
    Fault::new(ErrorKind::WrongType, raw.span.clone(), path, expected, found)
}

fn missing(path: &str, kind: Kind, table: &Raw) -> Fault {
    Fault::new(ErrorKind::Missing, table.span.clone(), path, kind.expected(), "nothing")
        .hint(format!("add a line `{} = …`", last_part(path)))
}

fn unknown_key(path: &str, known: &[&'static str], entry: &RawEntry) -> Fault {
    let key = entry.key.as_str();
    let setting = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    let what = match &entry.raw.value {
        RawValue::Table(_) => "table",
        RawValue::List(rows) if rows.iter().any(|r| matches!(r.value, RawValue::Table(_))) => {
            "table"
        }
        _ => "setting",
    };
    let expected = match path {
        "" => format!("a supported {what}"),
        _ => format!("a {what} of [{path}]"),
    };
    let found = format!("the unknown {what} `{}`", key.escape_debug());
    let span = entry.key_span.clone();
    let mut fault = Fault::new(ErrorKind::UnknownKey, span, &setting, expected, found);
    let keys = || known.iter().map(|path| last_part(path));
    match nearest(key, keys()) {
        Some(near) => {
            fault.meant = known.iter().copied().find(|path| last_part(path) == near);
            fault.hint(format!("did you mean `{near}`?"))
        }
        None if known.is_empty() => fault.hint("known here: nothing".to_owned()),
        None => fault.hint(format!("known here: {}", keys().collect::<Vec<_>>().join(", "))),
    }
}
