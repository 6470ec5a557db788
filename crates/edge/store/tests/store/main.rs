//! Tests of control state in a file and in etcd.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;
mod embedded;
mod etcd;
