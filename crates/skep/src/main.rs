//! The binary: runs the parsed command line on one composition root.
//!
//! `skep-cli` implements the commands for people. It leaves creating processes to this crate: [`serve`],
//! [`run`], [`netguard`] and [`power_runner`] determine the config, and [`compose`] makes a running process
//! from it. Exit codes: 0 done, 1 failed, 2 usage.

#![forbid(unsafe_code)]

mod cluster_cache;
mod command_slots;
mod compose;
mod control;
mod demotion;
mod direct;
mod failure;
mod handoff;
mod logging;
mod netguard;
mod netguard_handle;
mod power;
mod power_runner;
mod recording;
mod reporting;
mod roles;
mod run;
mod running;
mod seed;
mod serve;
mod settings;
mod stores;
mod supervisor;
mod trusted_config;

use std::process::ExitCode;

use mimalloc::MiMalloc;
use skep_cli::Job;

/// A slow request allocates its future, a few kilobytes; the C library's allocator consolidates and trims at
/// that size, this one does not.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    match skep_cli::run().and_then(|job| job.map_or(Ok(()), make)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            logging::last_words(format!("skep: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Creates a process, and runs it to its end.
fn make(job: Job) -> anyhow::Result<()> {
    match job {
        Job::Serve(args) => serve::serve(args),
        Job::Run(args) => run::run(&args),
        Job::Netguard(args) => netguard::run(&args),
        Job::Power(args) => power_runner::run(&args),
    }
}
