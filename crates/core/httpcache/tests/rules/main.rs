//! The rules against whole exchanges: the cases of the public suite http-tests/cache-tests that a
//! core can decide, and properties.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod model;
mod properties;
mod requests;
mod responses;
mod suite;
