//! What plans and tables cost in large clusters: the table that the bench of `skep-steering` prints,
//! kept as it is.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::results::{Figures, Machine, Tables};

/// Seconds of each row.
const SECONDS: u32 = 10;

/// Builds the bench, and runs it for so long.
pub(crate) fn run(is_quick: bool, machine: Machine) -> Result<Tables> {
    println!("skep-bench: Plans and tables");
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let seconds = if is_quick { 1 } else { SECONDS };
    let output = Command::new("cargo")
        .args(["bench", "--quiet", "--package", "skep-steering", "--bench", "tables", "--"])
        .arg(seconds.to_string())
        .current_dir(workspace)
        .output()
        .context("cargo")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the bench of skep-steering: {complaint}");
    let said = String::from_utf8_lossy(&output.stdout);
    let figures = Figures::parse(&said).with_context(|| format!("the bench said: {said}"))?;
    Ok(Tables { machine, figures })
}
