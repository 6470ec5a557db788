//! The binary: command line and one composition root.
//!
//! [`cli`] says what can be typed, `commands/` does it, [`compose`] is where a
//! config becomes a running process. Exit codes: 0 done, 1 failed, 2 usage.

#![forbid(unsafe_code)]

mod cli;
mod cluster_cache;
mod commands;
mod compose;
mod control;
mod demotion;
mod direct;
mod guardian;
mod load;
mod logging;
mod purge;
mod reporting;
mod running;
mod settings;
mod show;
mod signals;
mod stores;
mod top;
mod up;

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

/// A request that takes time allocates its future, a few kilobytes; the C
/// library's allocator consolidates and trims at that size, this one does not.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match commands::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("skep: {error:#}");
            ExitCode::FAILURE
        }
    }
}
