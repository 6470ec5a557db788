//! The settings table and what is made of it: parser, messages, reference.
//!
//! `schema.rs` defines every setting once: name, type, unit, limits, default,
//! doc, reloadable or not. From those entries come the typed [`Config`], the
//! parser with its messages, [`Config::to_toml`], [`settings_help`] and
//! [`reference_markdown`].
//!
//! ```text
//! text --raw.rs--> Raw (spans kept) --value.rs--> typed --check.rs--> Config
//!                     every fault on the way --error.rs--> ConfigErrors
//! ```
//!
//! Invariants: a `Config` that [`Config::parse`] returned has nothing wrong in
//! it that the file alone can tell (whether a root exists, its role finds
//! out). No input panics. This crate opens no file and no socket.

#![forbid(unsafe_code)]

pub mod limits;
mod schema;
mod table;
mod value;
mod words;

pub use schema::{
    Admin, Cache, Config, Dispatcher, Health, Limits, Log, Machine, Metrics, Node, Redirect,
    Service, Site, Timeouts,
};
pub use table::{Form, Kind, Setting, Unit};
pub use words::{AccessLog, Dispatch, Level, LogFormat, POLICY_NAMES, Symlinks};
