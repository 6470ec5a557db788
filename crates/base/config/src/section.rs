//! Definitions of a table of the file and of a setting, and the operations on them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::error::Fault;
use crate::kind::Kind;
use crate::raw::Raw;
use crate::write::Writer;

/// One table of the file, as the reference describes it.
#[derive(Clone, Debug, Serialize)]
pub struct TableDoc {
    /// Its path, such as `service.health`; empty for the top of the file.
    pub path: &'static str,
    /// Whether there can be several, written `[[path]]`.
    pub rows: bool,
    /// Its purpose, as Markdown in one paragraph.
    pub doc: String,
    /// Its settings, without those of tables inside it.
    pub settings: Vec<Setting>,
}

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
    /// Its effect, as Markdown in one paragraph.
    pub doc: String,
    /// Whether a reload (SIGHUP) changes it; else it needs a restart.
    pub reloadable: bool,
}

/// The operations on a table, or on the rows of one. `path` is its position
/// in the file, such as `service.health`.
pub(crate) trait Section: Default {
    /// Last part of its path, such as `health`.
    const NAME: &'static str;

    /// Adds this table and those inside it.
    fn describe(path: &'static str, tables: &mut Vec<TableDoc>);

    /// Reads it; faults are added to `faults`, and an invalid setting gets its default.
    fn read(path: &'static str, raw: &Raw, faults: &mut Vec<Fault>) -> Self;

    /// Writes it as TOML; `row` is whether it is one of several.
    fn write(&self, path: &'static str, row: bool, out: &mut Writer);

    /// Adds the paths of changed settings that a reload does not change.
    /// `live` is whether rows may come and go by reload.
    fn restarts(&self, new: &Self, path: &'static str, live: bool, paths: &mut Vec<&'static str>);
}

/// A table that there can be several of.
pub(crate) trait Row: Section {
    /// The name of the row, unique among the rows.
    fn row_name(&self) -> &str;
}

/// The path of `name` in the table at `parent`.
pub(crate) fn path_in(parent: &'static str, name: &'static str) -> &'static str {
    // As many as the settings table has, made once each: messages and `Setting` hold them.
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

/// The words of a doc comment, as one paragraph.
pub(crate) fn paragraph(doc: &str) -> String {
    doc.split_whitespace().collect::<Vec<_>>().join(" ")
}
