//! The second step: [`Raw`] to typed values, one table at a time.

use skep_units::nearest;

use crate::error::{ErrorKind, Fault};
use crate::kind::Kind;
use crate::limits::ROWS_MAX;
use crate::raw::{Raw, RawEntry, RawValue};
use crate::table::{Row, Section, TableDoc, settings, tables};
use crate::value::{Entry, Field};

/// Reads the settings of one table and notices what is left over.
pub(crate) struct Reader<'a> {
    path: &'static str,
    raw: &'a Raw,
    entries: &'a [RawEntry],
    known: Vec<&'static str>,
    faults: &'a mut Vec<Fault>,
}

impl<'a> Reader<'a> {
    /// A reader of the table at `path`; `None` when `raw` is no table, which
    /// then is a fault.
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

    /// The value of a setting, or `default` when it is absent or at fault.
    pub(crate) fn setting<T: Field>(
        &mut self,
        path: &'static str,
        kind: Kind,
        required: bool,
        default: T,
    ) -> T {
        let key = last_part(path);
        self.known.push(key);
        let Some(entry) = self.raw.get(key) else {
            if required {
                self.faults.push(missing(path, kind, self.raw));
            }
            return default;
        };
        T::read(&entry.raw, &Entry { path, kind }, self.faults).unwrap_or(default)
    }

    /// The table or rows inside this one, or its default when absent.
    pub(crate) fn section<S: Section>(&mut self) -> S {
        let key = last_part(S::PATH);
        self.known.push(key);
        match self.raw.get(key) {
            Some(entry) => S::read(&entry.raw, self.faults),
            None => S::default(),
        }
    }

    /// Ends the table: keys that nobody asked for are faults.
    pub(crate) fn close(self) {
        for entry in self.entries {
            if !self.known.contains(&entry.key.as_str()) {
                self.faults.push(unknown_key(self.path, &self.known, entry));
            }
        }
    }
}

/// Rows of a table, `[[path]]`.
impl<T: Row> Section for Vec<T> {
    const PATH: &'static str = T::PATH;

    fn describe(out: &mut Vec<TableDoc>) {
        let first = out.len();
        T::describe(out);
        out[first].rows = true;
    }

    fn read(raw: &Raw, faults: &mut Vec<Fault>) -> Self {
        let path = T::PATH;
        let RawValue::List(rows) = &raw.value else {
            let fault = wrong_table(path, raw, format!("rows of [[{path}]]"));
            faults.push(fault.hint(format!("write [[{path}]]")));
            return Self::new();
        };
        if rows.len() > ROWS_MAX {
            let expected = format!("at most {ROWS_MAX} rows");
            let found = rows.len().to_string();
            faults.push(Fault::new(ErrorKind::OutOfRange, raw.span.clone(), path, expected, found));
        }
        rows.iter().take(ROWS_MAX).map(|row| T::read(row, faults)).collect()
    }

    fn write(&self, _row: bool, out: &mut crate::write::Writer) {
        for row in self {
            row.write(true, out);
        }
    }

    fn restarts(&self, new: &Self, live: bool, paths: &mut Vec<&'static str>) {
        let same = |old: &&T| new.iter().find(|row| row.row_name() == old.row_name());
        let mut paired = 0;
        for old in self {
            if let Some(new) = same(&old) {
                paired += 1;
                old.restarts(new, live, paths);
            }
        }
        if !live && (paired != self.len() || paired != new.len()) {
            paths.push(T::PATH);
        }
    }
}

fn last_part(path: &'static str) -> &'static str {
    path.rsplit('.').next().unwrap_or(path)
}

fn wrong_table(path: &str, raw: &Raw, expected: String) -> Fault {
    let found = match &raw.value {
        RawValue::List(_) => format!("[[{path}]]"),
        RawValue::Table(_) => format!("[{path}]"),
        _ => raw.describe(),
    };
    Fault::new(ErrorKind::WrongType, raw.span.clone(), path, expected, found)
}

fn missing(path: &str, kind: Kind, table: &Raw) -> Fault {
    Fault::new(ErrorKind::Missing, table.span.clone(), path, kind.expected(), "nothing")
        .hint(format!("add a line `{} = …`", path.rsplit('.').next().unwrap_or(path)))
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
        "" => format!("a {what} that Skep knows"),
        _ => format!("a {what} of [{path}]"),
    };
    let found = format!("the unknown {what} `{}`", key.escape_debug());
    let span = entry.key_span.clone();
    let mut fault = Fault::new(ErrorKind::UnknownKey, span, &setting, expected, found);
    let (hint, meant) = guess(path, known, key);
    fault.hint = Some(hint);
    fault.meant = meant;
    fault
}

/// What an unknown key was meant to be, as a hint and as a path.
fn guess(path: &str, known: &[&'static str], key: &str) -> (String, Option<&'static str>) {
    let all_paths = || settings().iter().map(|s| s.path).chain(tables().iter().map(|t| t.path));
    if let Some(near) = nearest(key, known.iter().copied()) {
        let full = if path.is_empty() { near.to_owned() } else { format!("{path}.{near}") };
        return (format!("did you mean `{near}`?"), all_paths().find(|path| *path == full));
    }
    if let Some(elsewhere) = all_paths().find(|path| last_part(path) == key) {
        let table = elsewhere.rsplit_once('.').map_or("", |(table, _)| table);
        let place =
            if table.is_empty() { "the top of the file".into() } else { format!("[{table}]") };
        return (format!("`{key}` belongs in {place}"), Some(elsewhere));
    }
    let known = if known.is_empty() { "nothing".into() } else { known.join(", ") };
    (format!("known here: {known}"), None)
}
