//! SQLite files that probes and recorders write; one file may have samples of both.
//!
//! ```text
//!   schema.rs     open to write, open to read: whose file, which tables     probes have rows of their own (role/probe)
//!   recorded.rs   rows of recorders       columns.rs: what they are made of
//!   file.rs       below the tables: header, flags, errors of SQLite (error.rs)
//! ```
//!
//! Invariants: the file identifies its program (`application_id`) and its tables (`user_version`): a file of
//! another program, or of a later build, is refused and never changed. No content of a file causes a panic.

#![forbid(unsafe_code)]

mod columns;
mod error;
mod file;
mod limits;
mod recorded;
mod schema;

pub use columns::{ColumnValue, DiskUse, NicUse, NodeSample, unsigned, whole};
pub use error::DatabaseError;
pub use file::{error_code, fault};
pub use recorded::{RecordedRow, RecordedSample, Recording, RecordingInfo, read_recorded};
pub use rusqlite::Connection;
pub use schema::{open_to_read, open_to_write, set_damaged_aside};
