//! What an entry of the settings table is, and the macro that makes entries.
//!
//! `table!` turns one list of entries into a struct with its defaults and a
//! [`Section`], so that no setting is named a second time anywhere.

use std::sync::LazyLock;

use serde::Serialize;

use crate::error::Fault;
use crate::kind::Kind;
use crate::raw::Raw;
use crate::schema::Config;
use crate::write::Writer;

/// Every table of the file, in the order of the reference.
pub fn tables() -> &'static [TableDoc] {
    static TABLES: LazyLock<Vec<TableDoc>> = LazyLock::new(|| {
        let mut tables = Vec::new();
        Config::describe(&mut tables);
        tables
    });
    &TABLES
}

/// Every setting, in the order of the reference.
pub fn settings() -> &'static [Setting] {
    static SETTINGS: LazyLock<Vec<Setting>> =
        LazyLock::new(|| tables().iter().flat_map(|table| table.settings.clone()).collect());
    &SETTINGS
}

/// The setting of this path, such as `limits.head_bytes_max`.
pub fn setting(path: &str) -> Option<&'static Setting> {
    settings().iter().find(|setting| setting.path == path)
}

/// One table of the file, as the reference describes it.
#[derive(Clone, Debug, Serialize)]
pub struct TableDoc {
    /// Its path, such as `service.health`; empty for the top of the file.
    pub path: &'static str,
    /// Whether there can be several, written `[[path]]`.
    pub rows: bool,
    /// What it is for, as Markdown in one paragraph.
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
    /// What it does, as Markdown in one paragraph.
    pub doc: String,
    /// Whether a reload (SIGHUP) changes it; else it needs a restart.
    pub reloadable: bool,
}

/// What the crate does with a table, or with the rows of one.
pub(crate) trait Section: Default {
    /// Path of the table, such as `service.health`.
    const PATH: &'static str;

    /// Adds this table and those inside it.
    fn describe(tables: &mut Vec<TableDoc>);

    /// Reads it; what is wrong goes to `faults` and has its default here.
    fn read(raw: &Raw, faults: &mut Vec<Fault>) -> Self;

    /// Writes it as TOML; `row` is whether it is one of several.
    fn write(&self, row: bool, out: &mut Writer);

    /// Adds the paths of changed settings that a reload does not change.
    /// `live` is whether rows may come and go by reload.
    fn restarts(&self, new: &Self, live: bool, paths: &mut Vec<&'static str>);
}

/// A table that there can be several of.
pub(crate) trait Row: Section {
    /// What tells it from the others.
    fn row_name(&self) -> &str;
}

/// The words of a doc comment, as one paragraph.
pub(crate) fn paragraph(doc: &str) -> String {
    doc.split_whitespace().collect::<Vec<_>>().join(" ")
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
                    $($field: $crate::table::entry!(default $($default)?),)*
                    $($($tfield: Default::default(),)*)?
                }
            }
        }

        impl $crate::table::Section for $name {
            const PATH: &'static str = $path;

            fn describe(tables: &mut Vec<$crate::table::TableDoc>) {
                let defaults = Self::default();
                tables.push($crate::table::TableDoc {
                    path: $path,
                    rows: false,
                    doc: $crate::table::paragraph(concat!($($doc, "\n"),+)),
                    settings: vec![$({
                        let required = $crate::table::entry!(required $($default)?);
                        let default = $crate::value::Field::write(&defaults.$field, $kind);
                        $crate::table::Setting {
                            path: $crate::table::entry!(path $path, $field),
                            kind: $kind,
                            default: default.filter(|_| !required),
                            required,
                            doc: $crate::table::paragraph(concat!($($sdoc, "\n"),+)),
                            reloadable: $crate::table::entry!(reload $reload),
                        }
                    }),*],
                });
                $($(<$ttype as $crate::table::Section>::describe(tables);)*)?
            }

            fn read(raw: &$crate::raw::Raw, faults: &mut Vec<$crate::error::Fault>) -> Self {
                let Some(mut reader) = $crate::read::Reader::open($path, raw, faults) else {
                    return Self::default();
                };
                let defaults = Self::default();
                let read = Self {
                    $($field: {
                        let path = $crate::table::entry!(path $path, $field);
                        let required = $crate::table::entry!(required $($default)?);
                        reader.setting(path, $kind, required, defaults.$field)
                    },)*
                    $($($tfield: reader.section(),)*)?
                };
                reader.close();
                read
            }

            fn write(&self, row: bool, out: &mut $crate::write::Writer) {
                use $crate::value::Field;
                let defaults = Self::default();
                out.table($path, row);
                $(
                    let (value, default) = (self.$field.write($kind), defaults.$field.write($kind));
                    let required = $crate::table::entry!(required $($default)?);
                    out.setting(stringify!($field), value, default.filter(|_| !required));
                )*
                $($($crate::table::Section::write(&self.$tfield, false, out);)*)?
            }

            fn restarts(&self, new: &Self, _live: bool, paths: &mut Vec<&'static str>) {
                $(if !$crate::table::entry!(reload $reload) && self.$field != new.$field {
                    paths.push($crate::table::entry!(path $path, $field));
                })*
                $($(
                    let live = $crate::table::entry!(reload $treload);
                    $crate::table::Section::restarts(&self.$tfield, &new.$tfield, live, paths);
                )*)?
            }
        }
    };
}

/// The parts of an entry that its tokens decide.
macro_rules! entry {
    (default) => {
        $crate::value::Required::unset()
    };
    (default $default:expr) => {
        $default
    };
    (required) => {
        true
    };
    (required $default:expr) => {
        false
    };
    (reload live) => {
        true
    };
    (reload restart) => {
        false
    };
    (path $path:literal, $field:ident) => {
        if $path.is_empty() { stringify!($field) } else { concat!($path, ".", stringify!($field)) }
    };
}

pub(crate) use {entry, table};
