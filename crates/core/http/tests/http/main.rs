//! Tests of the codec: tables of cases, and properties.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod cases;
mod forward;
mod properties;
