//! The cost of a packet in the packet programs: the table that `skep-bpf-bench` (`bpf/tests`) prints, kept
//! unchanged.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::results::Figures;

/// Runs the program, if it was built beside this one.
pub(super) fn measure() -> Result<Option<Figures>> {
    let program = std::env::current_exe()?.with_file_name("skep-bpf-bench");
    if !program.exists() {
        eprintln!(
            "skep-bench: SKIPPED: nanoseconds for each packet: {} is not there \
             (`cargo build --release --package skep-bpf-tests`)",
            program.display()
        );
        return Ok(None);
    }
    println!("skep-bench: Direct, nanoseconds for each packet");
    let output = Command::new(&program).output().context("skep-bpf-bench")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "skep-bpf-bench: {}: {complaint}", output.status);
    let said = String::from_utf8_lossy(&output.stdout);
    Figures::parse(&said).map(Some).with_context(|| format!("skep-bpf-bench said: {said}"))
}
