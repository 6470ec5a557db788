//! Tests of the codec against bytes from the specification, against a small application of its own,
//! and against php-fpm.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod peer;
mod php;
mod properties;
mod replies;
mod requests;
