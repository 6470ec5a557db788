//! Files of SQLite that probes and recorders write: one may have both.
//!
//! ```text
//!   schema.rs     open to write, open to read: whose file, which tables     probes have rows of their own (role/probe)
//!   recorded.rs   rows of recorders       columns.rs: what they are made of
//!   file.rs       below the tables: header, flags, errors of SQLite (error.rs)
//! ```
//!
//! Invariants: the file says whose it is (`application_id`) and which tables it has (`user_version`):
//! one of another program, or of a later build, is refused and never changed. Nothing in a file panics.

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
