//! The entries of the settings table: groups of settings, tables of them, and rows of
//! tables.

use crate::error::{ErrorKind, Fault};
use crate::limits::ROWS_MAX;
use crate::raw::{Raw, RawValue};
use crate::read::{Reader, wrong_table};
use crate::section::{Row, Section, Setting, TableDoc, paragraph};
use crate::write::Writer;

/// Settings and tables within one table of the file: all of its entries, or a group shared by
/// several tables.
pub(crate) trait Settings: Default {
    /// The purpose of the table, as Markdown.
    const DOC: &'static str;

    /// Adds the settings.
    fn settings(path: &'static str, settings: &mut Vec<Setting>);

    /// Adds the nested tables.
    fn tables(path: &'static str, tables: &mut Vec<TableDoc>);

    /// Reads the settings and nested tables from the table that `reader` has opened.
    fn read_from(reader: &mut Reader<'_>) -> Self;

    /// Writes the settings.
    fn write_settings(&self, out: &mut Writer);

    /// Writes the nested tables.
    fn write_tables(&self, path: &'static str, out: &mut Writer);

    /// As [`Section::restarts`].
    fn restarts_of(&self, new: &Self, path: &'static str, paths: &mut Vec<&'static str>);
}

/// Settings that form a table of their own.
pub(crate) trait Table: Settings {
    /// As [`Section::NAME`].
    const NAME: &'static str;
}

impl<T: Table> Section for T {
    const NAME: &'static str = <T as Table>::NAME;

    fn describe(path: &'static str, tables: &mut Vec<TableDoc>) {
        let mut settings = Vec::new();
        T::settings(path, &mut settings);
        tables.push(TableDoc { path, rows: false, doc: paragraph(T::DOC), settings });
        T::tables(path, tables);
    }

    fn read(path: &'static str, raw: &Raw, faults: &mut Vec<Fault>) -> Self {
        let Some(mut reader) = Reader::open(path, raw, faults) else { return Self::default() };
        let read = Self::read_from(&mut reader);
        reader.close();
        read
    }

    fn write(&self, path: &'static str, row: bool, out: &mut Writer) {
        out.table(path, row);
        self.write_settings(out);
        self.write_tables(path, out);
    }

    fn restarts(&self, new: &Self, path: &'static str, _live: bool, paths: &mut Vec<&'static str>) {
        self.restarts_of(new, path, paths);
    }
}

/// Rows of a table, `[[path]]`.
impl<T: Row> Section for Vec<T> {
    const NAME: &'static str = T::NAME;

    fn describe(path: &'static str, out: &mut Vec<TableDoc>) {
        let first = out.len();
        T::describe(path, out);
        out[first].rows = true;
    }

    fn read(path: &'static str, raw: &Raw, faults: &mut Vec<Fault>) -> Self {
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
        rows.iter().take(ROWS_MAX).map(|row| T::read(path, row, faults)).collect()
    }

    fn write(&self, path: &'static str, _row: bool, out: &mut Writer) {
        for row in self {
            row.write(path, true, out);
        }
    }

    fn restarts(&self, new: &Self, path: &'static str, live: bool, paths: &mut Vec<&'static str>) {
        let same = |old: &&T| new.iter().find(|row| row.row_name() == old.row_name());
        let mut paired = 0;
        for old in self {
            if let Some(new) = same(&old) {
                paired += 1;
                old.restarts(new, path, live, paths);
            }
        }
        if !live && (paired != self.len() || paired != new.len()) {
            paths.push(path);
        }
    }
}
