//! What one node and its origins answer, and the command line: `cargo test -p skep-tests --test http`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod cli;
mod cut_short;
mod faults;
mod files;
mod fixed_replies;
mod gateways;
mod http_strictness;
mod limits;
mod memory;
mod named_files;
mod origin_faults;
mod origin_targets;
mod origin_words;
mod origins;
mod pool_cache;
mod pool_cache_shared;
mod pool_faults;
mod pool_members;
mod pool_queue;
mod pool_test;
mod pools;
mod privileges;
mod ranges_conditions;
mod rewritten;
mod room;
mod route_conditions;
mod route_limits;
mod routes;
mod signals;
mod sites;
mod slow;
mod sticky;
mod telemetry;
mod underscores;
mod versions;
