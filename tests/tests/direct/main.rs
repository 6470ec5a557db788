//! Direct dispatch on machines of a test bed, as root: `cargo test -p skep-tests --test direct`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod cache;
mod changes;
mod etcd;
mod handoff;
mod large;
mod linger;
mod nodes;
mod partition;
mod paths;
mod privileges;
mod reconcile;
mod refusals;
mod second_chance;
mod services;
mod stall;
mod steal;
mod takeover;
mod units;
