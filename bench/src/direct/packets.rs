//! What a packet costs in the packet programs: the table that
//! `skep-bpf-bench` (`bpf/tests`) prints, kept as it is.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::results::{PacketCost, Packets};

/// Runs the program, if it was built beside this one.
pub(super) fn measure() -> Result<Option<Packets>> {
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
    parse(&said).map(Some).with_context(|| format!("skep-bpf-bench said: {said}"))
}

/// Reads a Markdown table whose first column says what and whose others are
/// numbers.
fn parse(said: &str) -> Option<Packets> {
    let mut lines = said.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let columns = lines.next()?.split(" | ").skip(1).map(str::to_owned).collect();
    let row = |line: &str| {
        let (case, numbers) = line.split_once(" | ")?;
        let ns: Option<Vec<f64>> = numbers.split(" | ").map(|ns| ns.parse().ok()).collect();
        Some(PacketCost { case: case.to_owned(), ns: ns? })
    };
    let rows: Option<Vec<PacketCost>> = lines.map(row).collect();
    Some(Packets { columns, rows: rows.filter(|rows| !rows.is_empty())? })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_table_is_read() {
        let said =
            "| ns per packet | 2 nodes | 8 nodes |\n|---|---|---|\n| XDP, flow | 40 | 41 |\n";
        let packets = parse(said).unwrap();
        assert_eq!(packets.columns, ["2 nodes", "8 nodes"]);
        assert_eq!(
            (packets.rows[0].case.as_str(), &packets.rows[0].ns[..]),
            ("XDP, flow", &[40.0, 41.0][..])
        );
        assert!(parse("no table").is_none());
    }
}
