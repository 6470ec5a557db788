//! What plans and tables cost in large clusters, and comparing the packet programs' maps: the tables
//! that the benches of `skep-steering` and `skep-datapath` print, kept as they are.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::results::{Figures, MachineDescription, Tables};

/// Seconds of each row.
const SECONDS: u32 = 10;

/// Measures plans and tables, each row for so long.
pub(crate) fn run(is_quick: bool, machine: MachineDescription) -> Result<Tables> {
    println!("skep-bench: Plans and tables");
    let seconds = if is_quick { 1 } else { SECONDS };
    let figures = figures(("skep-steering", "tables"), &[seconds.to_string()])?;
    Ok(Tables { machine, figures })
}

/// Measures the comparison of maps, as root.
pub(crate) fn compare(machine: MachineDescription) -> Result<Tables> {
    println!("skep-bench: Comparing maps");
    Ok(Tables { machine, figures: figures(("skep-datapath", "compare"), &[])? })
}

/// Builds a bench and runs it: the table that it prints.
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
