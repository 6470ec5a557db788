//! Black-box tests: real processes, real sockets.
//!
//! The tests stand in `tests/tests/`, one file per behaviour; this library is
//! what they are written with. It knows what users see and nothing of Skep's
//! insides:
//!
//! - [`Skep`]: a running process that dies with its test.
//! - [`RawClient`]: sends exactly these bytes, reads answers without leniency.
//! - [`SourceAddress`]: a client address of its own.
//! - [`Steady`]: a client that reads at a steady rate, slowly.
//! - [`Site`]: a folder of files; [`content`] tells versions of a file apart.
//! - [`Load`]: many requests at once, every body verified.
//! - [`Crowd`]: the right to thousands of connections.
//! - [`cache::CacheCluster`]: nodes that share their memories, on the loopback.
//! - [`fake::FakeNode`]: a node that has the key and does as the test likes.
//! - [`heartbeat_nodes::HeartbeatNodes`]: a thousand nodes of which there are only heartbeats.
//! - [`freezer::Freezer`]: single threads of a process that stand still.
//! - [`gateways`]: php-fpm and Tomcat, as Debian has them.
//! - [`flood`]: millions of requests for objects that are one byte string.
//! - [`app::App`]: a server of an application that nodes pass requests to.
//! - [`origin::Origin`]: a web server that nodes get their bytes from.
//! - [`liar::Liar`]: a web server that writes any bytes at any pace.
//! - [`direct::DirectCluster`]: dispatchers and nodes on the machines of a test bed.
//! - [`systemd::SystemdMachine`]: a machine of a test bed that runs the units of `packaging/`.
//! - [`poll_until`]: waits for a condition, never for a time.
//!
//! Invariants: each test owns its folder and its ports, so tests run in any
//! order and at once. Whatever a test waits for has a deadline, far above what it
//! takes: it turns a hang into a message and is no claim about speed.
//!
//! The binary is `$SKEP_BIN`, else `skep` in the folder that cargo built the test
//! in. Cargo doesn't build it for these tests: `cargo build -p skep` first.

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
