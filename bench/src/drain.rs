//! The client that never sleeps (`bench/limit/drain.c`), for measuring a server that always has work.
//!
//! wrk costs more per request than a fast server does. Such a server then sleeps between requests, is woken
//! for each, and finds one where a slower server finds ten: its CPU time per request rises, and differences
//! shrink or are reversed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::interrupt;

/// The compiled program.
pub(crate) struct Drain {
    program: PathBuf,
}

impl Drain {
    /// `programs` is the folder of the programs compiled from `bench/limit`.
    pub(crate) fn new(programs: &Path) -> Self {
        Self { program: programs.join("drain") }
    }

    /// Requests one path on all connections for some seconds; returns the number of answers. Any error of any
    /// connection is an error.
    pub(crate) fn run(&self, port: u16, path: &str, connections: u32, seconds: u32) -> Result<u64> {
        interrupt::check()?;
        let output = Command::new(&self.program)
            .args([port.to_string(), path.to_owned()])
            .args([connections.to_string(), seconds.to_string()])
            .output()?;
        interrupt::check()?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "drain: {complaint}");
        let said = String::from_utf8_lossy(&output.stdout);
        let count = said.split_whitespace().next().and_then(|word| word.parse().ok());
        count.filter(|&count| count > 0).context("drain got no answer")
    }
}
