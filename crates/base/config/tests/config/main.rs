//! The settings table from the user's perspective.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod change;
mod errors;
mod files;
mod hostile;
mod pools;
mod routes;
mod settings;
