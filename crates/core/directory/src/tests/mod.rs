//! Tests of the cluster cache: one file for each of its parts.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
