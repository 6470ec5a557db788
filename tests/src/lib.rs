//! Black-box tests: real processes, real sockets.
//!
//! The tests are in `tests/tests/`, one file per behaviour; this library is their toolkit. It uses only what
//! users can observe, no internals of Skep:
//!
//! - [`Skep`]: a running process that is killed with its test.
//! - [`RawClient`]: sends exact bytes, and parses answers strictly.
//! - [`SourceAddress`]: a unique client address.
//! - [`Steady`]: a client that reads slowly at a steady rate.
//! - [`Site`]: a folder of files; [`content`] tells versions of a file apart.
//! - [`Load`]: many concurrent requests, with every body verified.
//! - [`Crowd`]: permission for thousands of connections.
//! - [`cache::CacheCluster`]: nodes that share their caches, on the loopback.
//! - [`fake::FakeNode`]: a node that has the key and follows a test's script.
//! - [`heartbeat_nodes::HeartbeatNodes`]: a thousand simulated nodes that only send heartbeats.
//! - [`freezer::Freezer`]: freezes single threads of a process.
//! - [`gateways`]: php-fpm and Tomcat from Debian packages.
//! - [`flood`]: millions of requests for objects with the same few bytes.
//! - [`app::App`]: an application server to which nodes forward requests.
//! - [`origin::Origin`]: a web server from which nodes fetch.
//! - [`liar::Liar`]: a web server that writes any bytes at any pace.
//! - [`direct::DirectCluster`]: dispatchers and nodes on the machines of a test bed.
//! - [`systemd::SystemdMachine`]: a machine of a test bed that runs the units of `packaging/`.
//! - [`poll_until`]: waits for a condition, never for a fixed time.
//!
//! Invariants: each test owns its folder and its ports, so tests run in any order and concurrently. Every
//! wait has a deadline, far above the expected time: it turns a hang into a message, and is no requirement of
//! speed.
//!
//! The binary is `$SKEP_BIN`, or else `skep` in the folder into which cargo built the test. Cargo does not
//! build it for these tests: run `cargo build -p skep` first.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test harness fails by panicking")]

mod acceptor;
pub mod app;
pub mod cache;
pub mod direct;
pub mod fake;
pub mod flood;
pub mod freezer;
pub mod gateways;
mod heartbeat_gaps;
pub mod heartbeat_nodes;
pub mod liar;
mod load;
mod loads;
mod memory_group;
mod node;
mod node_folder;
pub mod origin;
mod port;
pub mod privileges;
mod process;
pub mod promtool;
pub mod rewrite;
mod seen;
mod sent_again;
mod site;
pub mod sought;
mod source;
mod steady;
pub mod systemd;
mod turn;
mod unread;
mod wait;

pub use load::{Load, LoadReport, RunningLoad};
pub use memory_group::MemoryGroup;
pub use port::FreePort;
pub use process::{Finished, Skep, run_to_end};
pub use site::{NOBODY, Site, server};
pub use skep_testclient::{ClientError, RawClient, Response, content};
pub use source::SourceAddress;
pub use steady::Steady;
pub use unread::UnreadLog;
pub use wait::{Crowd, End, PATIENCE, holds_within, poll_until, skip};
