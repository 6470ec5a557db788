//! The table of cases: what hostile, odd and ordinary bytes lead to. Each case
//! is named by the rule or the incident it comes from; the data are in the
//! `*.txt` beside this file, for other tests to use as well.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod messages;
mod semantics;
mod table;
