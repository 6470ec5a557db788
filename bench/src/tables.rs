//! The cost of plans and tables in large clusters, and of comparing the packet programs' maps: the tables
//! that the benchmarks of `skep-steering` and `skep-datapath` print, kept unchanged.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::results::{Figures, MachineDescription, Tables};

/// Seconds per row.
const SECONDS: u32 = 10;

/// Measures plans and tables.
pub(crate) fn run(is_quick: bool, machine: MachineDescription) -> Result<Tables> {
    println!("skep-bench: Plans and tables");
    let seconds = if is_quick { 1 } else { SECONDS };
    let figures = figures(("skep-steering", "tables"), &[seconds.to_string()])?;
    Ok(Tables { machine, figures })
}

/// Measures the comparison of maps; requires root.
pub(crate) fn compare(machine: MachineDescription) -> Result<Tables> {
    println!("skep-bench: Comparing maps");
    Ok(Tables { machine, figures: figures(("skep-datapath", "compare"), &[])? })
}

/// Builds and runs a benchmark; returns the table that it prints.
fn figures((package, bench): (&str, &str), arguments: &[String]) -> Result<Figures> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new("cargo")
        .args(["bench", "--quiet", "--package", package, "--bench", bench, "--"])
        .args(arguments)
        .current_dir(workspace)
        .output()
        .context("cargo")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the bench of {package}: {complaint}");
    let said = String::from_utf8_lossy(&output.stdout);
    Figures::parse(&said).with_context(|| format!("the bench said: {said}"))
}
