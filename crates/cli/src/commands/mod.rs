//! One file per command; all but `config`, `policy list`, `policy show`, `policy advise`, `bench` and `probe` query running processes.

mod advise;
mod bench;
mod cache;
mod config;
mod node;
mod policy;
mod pool;
mod probe;
mod progress;
mod purge;
mod reload;
mod removal;
mod service;
mod status;
mod stop;

pub(crate) use bench::bench;
pub(crate) use cache::cache;
pub(crate) use config::config;
pub(crate) use node::node;
pub(crate) use policy::policy;
pub(crate) use pool::pool;
pub(crate) use probe::probe;
pub(crate) use purge::purge;
pub(crate) use reload::reload;
pub(crate) use service::service;
pub(crate) use status::status;

use std::io::Write;

use anyhow::Context;
use skep_console::ApiResponse;

use crate::show;

/// Poll interval of commands that wait, in milliseconds.
const WAIT_POLL_MS: u64 = 50;

/// Writes `text` to standard output.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write the answer")
}

/// Writes an API response verbatim. It may contain data from servers, so characters that are unsafe on a
/// terminal are escaped.
fn print_json(answer: &ApiResponse) -> anyhow::Result<()> {
    print(&format!("{}\n", show::json(answer.text().trim_end())))
}
