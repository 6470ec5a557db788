//! The columns of recorders' tables, each named in one place only.

use rusqlite::Row;
use rusqlite::types::Value;

/// A value of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ColumnValue {
    Whole(u64),
    Real(f64),
    /// Unknown (SQL `NULL`).
    Missing,
}

impl ColumnValue {
    fn to_sql(self) -> Value {
        match self {
            Self::Whole(number) => Value::Integer(whole(number)),
            Self::Real(number) => Value::Real(number),
            Self::Missing => Value::Null,
        }
    }
}

/// A type that a column may have.
trait Column: Sized {
    const SQL: &str;
    fn value(self) -> ColumnValue;
    fn read(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Self>>;
}

impl Column for u64 {
    const SQL: &str = "INTEGER";

    fn value(self) -> ColumnValue {
        ColumnValue::Whole(self)
    }

    fn read(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Self>> {
        Ok(row.get::<_, Option<i64>>(at)?.map(unsigned))
    }
}

impl Column for f64 {
    const SQL: &str = "REAL";

    fn value(self) -> ColumnValue {
        ColumnValue::Real(self)
    }

    fn read(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Self>> {
        row.get(at)
    }
}

/// Defines a struct whose fields are columns, each of which may be unknown.
macro_rules! columns {
    ($(#[doc = $doc:literal])+ $row:ident { $($(#[doc = $fdoc:literal])* $field:ident: $type:ty,)+ }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct $row {
            $($(#[doc = $fdoc])* pub $field: Option<$type>,)+
        }

        impl $row {
            /// Names of the columns.
            pub const COLUMNS: &[&str] = &[$(stringify!($field),)+];

            /// The values, in the order of [`Self::COLUMNS`].
            pub fn values(&self) -> Vec<ColumnValue> {
                vec![$(self.$field.map_or(ColumnValue::Missing, Column::value),)+]
            }

            pub(crate) fn to_sql(self) -> Vec<Value> {
                self.values().into_iter().map(ColumnValue::to_sql).collect()
            }

            /// Reads the columns of a row, of which the first is at index `at`.
            pub(crate) fn read(row: &Row<'_>, at: usize) -> rusqlite::Result<Self> {
                let mut next = at..;
                Ok(Self { $($field: Column::read(row, next.next().unwrap_or(at))?,)+ })
            }

            fn definitions() -> String {
                [$(concat!(",\n    ", stringify!($field), " "), <$type as Column>::SQL,)+].concat()
            }
        }
    };
}

columns! {
    /// What a process and its machine did during one interval: sums of the interval, unless a name
    /// says otherwise (`_mean`, `_max`), or it is a state (memory, swap, load, threads).
    NodeSample {
        cpus: u64,
        cpu_user_ms: u64,
        cpu_nice_ms: u64,
        cpu_system_ms: u64,
        cpu_idle_ms: u64,
        cpu_iowait_ms: u64,
        cpu_irq_ms: u64,
        cpu_softirq_ms: u64,
        cpu_steal_ms: u64,
        memory_total_bytes: u64,
        memory_free_bytes: u64,
        memory_available_bytes: u64,
        swap_total_bytes: u64,
        swap_free_bytes: u64,
        swapped_in_bytes: u64,
        swapped_out_bytes: u64,
        load1: f64,
        load5: f64,
        load15: f64,
        tasks_runnable: u64,
        tasks: u64,
        process_cpu_ms: u64,
        process_threads: u64,
        process_memory_bytes: u64,
        connections_accepted: u64,
        connections_mean: f64,
        connections_max: u64,
        requests: u64,
        requests_in_flight_mean: f64,
        requests_in_flight_max: u64,
        bytes_outstanding_mean: f64,
        bytes_outstanding_max: u64,
        responses_5xx: u64,
        redirects: u64,
        received_bytes: u64,
        sent_bytes: u64,
        peer_sent_bytes: u64,
        cache_lookups: u64,
        cache_hits: u64,
        peer_hits: u64,
        peer_filled_bytes: u64,
        origin_filled_bytes: u64,
        cache_bytes: u64,
    }
}

columns! {
    /// What a disk did during one interval.
    DiskUse {
        reads: u64,
        writes: u64,
        /// In units of 512 bytes.
        sectors_read: u64,
        sectors_written: u64,
        busy_ms: u64,
    }
}

columns! {
    /// What a network device did during one interval.
    NicUse {
        received_bytes: u64,
        received_packets: u64,
        received_dropped: u64,
        sent_bytes: u64,
        sent_packets: u64,
        sent_dropped: u64,
    }
}

/// Returns the SQL that creates the tables of these columns.
pub(crate) fn tables() -> String {
    let of_device = |name: &str, columns: String| {
        format!(
            "CREATE TABLE {name} (\n    sample INTEGER NOT NULL REFERENCES node_sample,\n    \
             device TEXT NOT NULL{columns},\n    PRIMARY KEY (sample, device)\n) STRICT, WITHOUT ROWID;\n"
        )
    };
    format!(
        "CREATE TABLE node_sample (\n    id INTEGER PRIMARY KEY,\n    \
         recording INTEGER NOT NULL REFERENCES recording,\n    at_unix_ms INTEGER NOT NULL,\n    \
         interval_ms INTEGER NOT NULL{}\n) STRICT;\n\
         CREATE INDEX node_sample_recording ON node_sample (recording);\n{}{}",
        NodeSample::definitions(),
        of_device("disk_sample", DiskUse::definitions()),
        of_device("nic_sample", NicUse::definitions()),
    )
}

/// Converts to SQLite's signed integers; too large a number becomes `i64::MAX`.
pub fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts back what [`whole`] has made; a negative number, written by another program, becomes 0.
pub fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
