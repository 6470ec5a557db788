//! Several processes on the loopback: dispatchers, nodes and their caches: `cargo test -p skep-tests --test
//! cluster`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod cache;
mod churn;
mod commands;
mod comparison;
mod compression;
mod elastic;
mod explain;
mod faults;
mod fills;
mod health;
mod large;
mod limits;
mod loads;
mod lost_parts;
mod memory;
mod parts;
mod pool_cache;
mod pool_loads;
mod pool_orders;
mod pool_refresh;
mod power;
mod purge;
mod routes;
mod slots;
mod slow;
mod soft_purge;
mod split;
mod status_pools;
mod thousand;
mod versions;
