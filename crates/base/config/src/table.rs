//! The macro that generates entries of the settings table.
//!
//! `table!` generates a struct with its defaults and its [`Settings`](crate::settings::Settings)
//! from one list of entries, so that each setting is named only once.

/// Generates the struct of one table of the file and everything derived from it.
///
/// An entry has the form `name: type = default => kind, live|restart;`. Without a default, the
/// setting is required. Settings shared by several tables are generated without `at` and included
/// in each of them by `shared { field: Type, }`. Nested tables follow in `tables { field: Type,
/// live|restart; }`, where the word states whether a reload may add and remove rows.
macro_rules! table {
    (
        $(#[doc = $doc:literal])+
        $name:ident $(at $at:literal)? {
            $($(#[doc = $sdoc:literal])+
            $field:ident : $type:ty $(= $default:expr)? => $kind:expr, $reload:ident;)*
        }
        $(shared { $($(#[doc = $cdoc:literal])+ $cfield:ident : $ctype:ty,)* })?
        $(tables {
            $($(#[doc = $tdoc:literal])+ $tfield:ident : $ttype:ty, $treload:ident;)*
        })?
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq, ::serde::Serialize)]
        pub struct $name {
            $($(#[doc = $sdoc])+ pub $field: $type,)*
            $($($(#[doc = $cdoc])+ #[serde(flatten)] pub $cfield: $ctype,)*)?
            $($($(#[doc = $tdoc])+ pub $tfield: $ttype,)*)?
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($field: $crate::table::entry!(default $($default)?),)*
                    $($($cfield: Default::default(),)*)?
                    $($($tfield: Default::default(),)*)?
                }
            }
        }

        $(impl $crate::settings::Table for $name {
            const NAME: &'static str = $at;
        })?

        #[allow(unused_imports, unused_variables, reason = "some have no settings, some no tables")]
        impl $crate::settings::Settings for $name {
            const DOC: &'static str = concat!($($doc, "\n"),+);

            fn settings(path: &'static str, settings: &mut Vec<$crate::section::Setting>) {
                let defaults = Self::default();
                $({
                    let required = $crate::table::entry!(required $($default)?);
                    let default = $crate::value::Field::write(&defaults.$field, $kind);
                    settings.push($crate::section::Setting {
                        path: $crate::section::path_in(path, stringify!($field)),
                        kind: $kind,
                        default: default.filter(|_| !required),
                        required,
                        doc: $crate::section::paragraph(concat!($($sdoc, "\n"),+)),
                        reloadable: $crate::table::entry!(reload $reload),
                    });
                })*
                $($(<$ctype as $crate::settings::Settings>::settings(path, settings);)*)?
            }

            fn tables(path: &'static str, tables: &mut Vec<$crate::section::TableDoc>) {
                use $crate::section::{Section, path_in};
                use $crate::settings::Settings;
                $($(<$ctype as Settings>::tables(path, tables);)*)?
                $($(
                    <$ttype as Section>::describe(path_in(path, <$ttype as Section>::NAME), tables);
                )*)?
            }

            fn read_from(reader: &mut $crate::read::Reader<'_>) -> Self {
                let defaults = Self::default();
                Self {
                    $($field: {
                        let required = $crate::table::entry!(required $($default)?);
                        reader.setting(stringify!($field), $kind, required, defaults.$field)
                    },)*
                    $($($cfield: $crate::settings::Settings::read_from(reader),)*)?
                    $($($tfield: reader.section(),)*)?
                }
            }

            fn write_settings(&self, out: &mut $crate::write::Writer) {
                use $crate::value::Field;
                let defaults = Self::default();
                $(
                    let (value, default) = (self.$field.write($kind), defaults.$field.write($kind));
                    let required = $crate::table::entry!(required $($default)?);
                    out.setting(stringify!($field), value, default.filter(|_| !required));
                )*
                $($($crate::settings::Settings::write_settings(&self.$cfield, out);)*)?
            }

            fn write_tables(&self, path: &'static str, out: &mut $crate::write::Writer) {
                use $crate::section::{Section, path_in};
                use $crate::settings::Settings;
                $($(Settings::write_tables(&self.$cfield, path, out);)*)?
                $($({
                    let path = path_in(path, <$ttype as Section>::NAME);
                    Section::write(&self.$tfield, path, false, out);
                })*)?
            }

            fn restarts_of(&self, new: &Self, path: &'static str, paths: &mut Vec<&'static str>) {
                use $crate::section::{Section, path_in};
                use $crate::settings::Settings;
                $(if !$crate::table::entry!(reload $reload) && self.$field != new.$field {
                    paths.push(path_in(path, stringify!($field)));
                })*
                $($(Settings::restarts_of(&self.$cfield, &new.$cfield, path, paths);)*)?
                $($({
                    let path = path_in(path, <$ttype as Section>::NAME);
                    let live = $crate::table::entry!(reload $treload);
                    Section::restarts(&self.$tfield, &new.$tfield, path, live, paths);
                })*)?
            }
        }
    };
}

/// The parts of an entry that depend on its tokens.
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
}

pub(crate) use {entry, table};
