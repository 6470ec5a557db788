//! Tests of the codec against bytes from the specification, against a small server of its own, and
//! against Tomcat.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod peer;
mod properties;
mod replies;
mod requests;
mod tomcat;
