//! The table of cases: results for hostile, odd and ordinary input. Each case is named after the
//! rule or the incident that it covers; the data is in the `*.txt` files next to this file, which
//! other tests use as well.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod messages;
mod semantics;
mod table;
