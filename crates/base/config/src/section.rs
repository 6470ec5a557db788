//! Definitions of a table of the file and of a setting, and the operations on them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::error::Fault;
use crate::kind::Kind;
use crate::raw::Raw;
use crate::write::Writer;

/// One table of the file, as described by the reference.
#[derive(Clone, Debug, Serialize)]
pub struct TableDoc {
    /// Its path, such as `service.health`; empty for the top of the file.
    pub path: &'static str,
    /// Whether it may occur several times, as `[[path]]`.
    pub rows: bool,
    /// Its purpose, as Markdown in one paragraph.
    pub doc: String,
    /// Its settings, without those of nested tables.
    pub settings: Vec<Setting>,
}

/// One setting: everything that the parser, the messages and the reference use.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// Its path in the file, such as `limits.head_bytes_max`.
    pub path: &'static str,
    /// Type, unit and limits.
    pub kind: Kind,
    /// The default as TOML; `None` if it is required or unset by default.
    pub default: Option<String>,
    /// Whether the setting is mandatory.
    pub required: bool,
    /// Its effect, as Markdown in one paragraph.
    pub doc: String,
    /// Whether a reload (SIGHUP) applies a change; otherwise it needs a restart.
    pub reloadable: bool,
}

/// The operations on a table, or on the rows of one. `path` is its position
/// in the file, such as `service.health`.
pub(crate) trait Section: Default {
    /// Last part of its path, such as `health`.
    const NAME: &'static str;

    /// Adds this table and those nested in it.
    fn describe(path: &'static str, tables: &mut Vec<TableDoc>);

    /// Reads the table; errors are added to `faults`, and an invalid setting gets its default.
    fn read(path: &'static str, raw: &Raw, faults: &mut Vec<Fault>) -> Self;

    /// Writes the table as TOML; `row` is whether it is one of several.
    fn write(&self, path: &'static str, row: bool, out: &mut Writer);

    /// Adds the paths of changed settings that a reload does not apply. `live` is whether a reload
    /// may add and remove rows.
    fn restarts(&self, new: &Self, path: &'static str, live: bool, paths: &mut Vec<&'static str>);
}

/// A table that may occur several times.
pub(crate) trait Row: Section {
    /// The name of the row, unique among the rows.
    fn row_name(&self) -> &str;
}

/// The path of `name` in the table at `parent`.
pub(crate) fn path_in(parent: &'static str, name: &'static str) -> &'static str {
    // One entry per path of the settings table, created once: messages and `Setting` refer to them.
    static PATHS: Mutex<BTreeMap<(&str, &str), &str>> = Mutex::new(BTreeMap::new());
    if parent.is_empty() {
        return name;
    }
    let mut paths = PATHS.lock().unwrap_or_else(PoisonError::into_inner);
    paths.entry((parent, name)).or_insert_with(|| format!("{parent}.{name}").leak())
}

/// The last key of a path, such as `listen` of `service.listen`.
pub(crate) fn last_part(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// The text of a doc comment, as one paragraph.
pub(crate) fn paragraph(doc: &str) -> String {
    doc.split_whitespace().collect::<Vec<_>>().join(" ")
}
