//! The management API over its sockets.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod api;
mod common;
mod matrix;
