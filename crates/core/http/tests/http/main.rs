//! The codec by tables of cases and by properties.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod cases;
mod forward;
mod properties;
