//! The macro that makes entries of the settings table.
//!
//! `table!` turns one list of entries into a struct with its defaults and a
//! [`Section`](crate::section::Section), so that no setting is named a second time anywhere.

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

        impl $crate::section::Section for $name {
            const PATH: &'static str = $path;

            fn describe(tables: &mut Vec<$crate::section::TableDoc>) {
                let defaults = Self::default();
                tables.push($crate::section::TableDoc {
                    path: $path,
                    rows: false,
                    doc: $crate::section::paragraph(concat!($($doc, "\n"),+)),
                    settings: vec![$({
                        let required = $crate::table::entry!(required $($default)?);
                        let default = $crate::value::Field::write(&defaults.$field, $kind);
                        $crate::section::Setting {
                            path: $crate::table::entry!(path $path, $field),
                            kind: $kind,
                            default: default.filter(|_| !required),
                            required,
                            doc: $crate::section::paragraph(concat!($($sdoc, "\n"),+)),
                            reloadable: $crate::table::entry!(reload $reload),
                        }
                    }),*],
                });
                $($(<$ttype as $crate::section::Section>::describe(tables);)*)?
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
                $($($crate::section::Section::write(&self.$tfield, false, out);)*)?
            }

            fn restarts(&self, new: &Self, _live: bool, paths: &mut Vec<&'static str>) {
                $(if !$crate::table::entry!(reload $reload) && self.$field != new.$field {
                    paths.push($crate::table::entry!(path $path, $field));
                })*
                $($(
                    let live = $crate::table::entry!(reload $treload);
                    $crate::section::Section::restarts(&self.$tfield, &new.$tfield, live, paths);
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
