//! Raw samples, as stored in `bench/results/latest.json`, and their medians.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Everything measured so far.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) machine: MachineDescription,
    /// Tables of requests, by the key of the cell.
    pub(crate) cells: BTreeMap<String, Cell>,
    pub(crate) idle: Option<Idle>,
    pub(crate) bodies: Option<Bodies>,
    #[serde(default)]
    pub(crate) uploads: Option<Uploads>,
    #[serde(default)]
    pub(crate) collapse: Option<Collapse>,
    pub(crate) direct: Option<Direct>,
    #[serde(default)]
    pub(crate) tables: Option<Tables>,
    /// The cost of comparing the packet programs' maps with what was written.
    #[serde(default)]
    pub(crate) comparison: Option<Tables>,
}

/// The machine, and the software that ran on it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct MachineDescription {
    pub(crate) date: String,
    pub(crate) processor: String,
    pub(crate) mhz: String,
    pub(crate) cores: usize,
    pub(crate) is_virtual: bool,
    pub(crate) kernel: String,
    pub(crate) congestion: String,
    pub(crate) wrk: String,
}

/// One table: the servers under one load.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Cell {
    /// Date and processor.
    #[serde(alias = "date")]
    pub(crate) when: String,
    pub(crate) rounds: u32,
    pub(crate) seconds: u32,
    pub(crate) rows: Vec<Row>,
}

/// One server in one table.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) server: String,
    pub(crate) version: String,
    /// Why there are no samples, or fewer than expected.
    pub(crate) trouble: Option<String>,
    pub(crate) samples: Vec<Sample>,
}

/// One measurement.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// CPU time of the server per request, in microseconds.
    pub(crate) cpu_us: f64,
    /// The same with a client that never sleeps, if that was measured.
    pub(crate) busy_cpu_us: Option<f64>,
    pub(crate) requests_per_s: f64,
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

/// The table of idle connections.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Idle {
    /// Date and processor.
    #[serde(alias = "date")]
    pub(crate) when: String,
    pub(crate) rounds: u32,
    pub(crate) seconds: u32,
    pub(crate) connections: u32,
    pub(crate) rows: Vec<IdleRow>,
}

/// One server with and without idle connections.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct IdleRow {
    pub(crate) server: String,
    pub(crate) version: String,
    pub(crate) trouble: Option<String>,
    /// Resident bytes per idle connection, for each round.
    pub(crate) resident_bytes: Vec<f64>,
    /// Idle connections that the server closed prematurely, in all rounds.
    pub(crate) lost: u64,
    /// With active connections alone.
    pub(crate) alone: Vec<Sample>,
    /// With idle connections in addition.
    pub(crate) beside: Vec<Sample>,
}

/// The table of large uploads.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Uploads {
    /// Date and processor.
    #[serde(alias = "date")]
    pub(crate) when: String,
    pub(crate) rounds: u32,
    /// The size of one upload.
    pub(crate) bytes: u64,
    pub(crate) rows: Vec<UploadRow>,
}

/// One proxy under uploads.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct UploadRow {
    pub(crate) server: String,
    pub(crate) version: String,
    pub(crate) trouble: Option<String>,
    pub(crate) samples: Vec<UploadSample>,
}

/// One upload.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct UploadSample {
    pub(crate) cpu_us_per_mib: f64,
    pub(crate) mib_per_s: f64,
    /// Maximum growth of resident memory, in MiB.
    pub(crate) grown_mib: f64,
}

/// The table of clients that request one page at once.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Collapse {
    /// The machine, which may differ from that of other tables.
    pub(crate) machine: MachineDescription,
    pub(crate) rounds: u32,
    pub(crate) clients: u32,
    pub(crate) nodes: u32,
    /// The time that the page takes.
    pub(crate) computation_ms: u64,
    /// Why there are fewer samples than expected.
    pub(crate) trouble: Option<String>,
    pub(crate) rows: Vec<CollapseRow>,
}

/// One kind of page.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CollapseRow {
    pub(crate) page: String,
    pub(crate) samples: Vec<CollapseSample>,
}

/// One page, requested by all clients.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct CollapseSample {
    /// The number of requests that the application received.
    pub(crate) computations: u64,
    /// Time from the common request to the end of the page.
    pub(crate) p50_ms: f64,
    pub(crate) longest_ms: f64,
}

/// The table of ways to send a large body.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Bodies {
    /// Date and processor.
    #[serde(alias = "date")]
    pub(crate) when: String,
    pub(crate) rounds: u32,
    pub(crate) seconds: u32,
    /// Server CPU time per reply in microseconds, by way, then by client.
    pub(crate) ways: Vec<BodyWay>,
}

/// One way to send a body.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BodyWay {
    pub(crate) name: String,
    pub(crate) body_bytes: u64,
    /// In the order of `bodies::CLIENTS`; empty if it was not measured.
    pub(crate) cpu_us: Vec<Vec<f64>>,
}

/// Direct dispatch in a test bed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Direct {
    /// Date and processor.
    #[serde(alias = "date")]
    pub(crate) when: String,
    pub(crate) rounds: u32,
    pub(crate) seconds: u32,
    pub(crate) tables: Vec<DirectTable>,
    /// The cost of a packet in the programs, if it was measured.
    pub(crate) packets: Option<Figures>,
}

/// One load, through all servers in front of the nodes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DirectTable {
    pub(crate) key: String,
    pub(crate) rows: Vec<DirectRow>,
}

/// One way to the nodes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DirectRow {
    pub(crate) way: String,
    pub(crate) version: String,
    /// Why there are no samples, or fewer than expected.
    pub(crate) trouble: Option<String>,
    pub(crate) samples: Vec<Pair>,
}

/// Two measurements, one directly after the other.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Pair {
    /// Direct connections to the nodes.
    pub(crate) nodes: Flow,
    /// The same nodes, reached through the way.
    pub(crate) way: Flow,
}

/// One measurement in a test bed.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Flow {
    pub(crate) seconds: f64,
    pub(crate) requests: u64,
    /// Received by the client, including heads.
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
    /// CPU time of the bed: client, dispatcher, nodes and their kernels, in seconds.
    pub(crate) bed_cpu_s: f64,
    /// The part of it used by processes on the dispatcher's machine.
    pub(crate) dispatcher_cpu_s: f64,
    /// CPU time used by everything else on this machine, in percent of all cores.
    pub(crate) others_percent: f64,
}

/// Plans and tables of large clusters.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Tables {
    /// The machine, which may differ from that of other tables.
    pub(crate) machine: MachineDescription,
    pub(crate) figures: Figures,
}

/// A table that another program printed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// The headings of its columns.
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<FigureRow>,
}

/// One row of it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FigureRow {
    pub(crate) case: String,
    /// Values by column.
    #[serde(alias = "ns")]
    pub(crate) figures: Vec<f64>,
}

impl Results {
    /// Reads the results of earlier runs; empty if there is no file yet.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        match std::fs::read_to_string(path) {
            Ok(text) => serde_json::from_str(&text).with_context(|| path.display().to_string()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    /// Writes the file, creating its folder if necessary.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(path, text).with_context(|| path.display().to_string())
    }
}

impl MachineDescription {
    /// Date and processor: the tables of a page may come from several machines.
    pub(crate) fn when(&self) -> String {
        format!("{} on {}", self.date, self.processor)
    }
}

impl Cell {
    /// The row of a server, if it was measured.
    pub(crate) fn row(&self, server: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.server == server && !row.samples.is_empty())
    }
}

impl Row {
    /// Median CPU time per request, in microseconds.
    pub(crate) fn cpu_us(&self) -> f64 {
        median(self.samples.iter().map(|sample| sample.cpu_us))
    }

    /// The same with a client that never sleeps, if that was measured.
    pub(crate) fn busy_cpu_us(&self) -> Option<f64> {
        let samples = self.samples.iter().filter_map(|sample| sample.busy_cpu_us);
        (samples.clone().count() > 0).then(|| median(samples))
    }

    /// Median number of requests per second.
    pub(crate) fn requests_per_s(&self) -> f64 {
        median(self.samples.iter().map(|sample| sample.requests_per_s))
    }

    /// Errors in all rounds.
    pub(crate) fn errors(&self) -> u64 {
        self.samples.iter().map(|sample| sample.errors).sum()
    }

    /// Whether there were neither troubles nor errors.
    pub(crate) fn is_sound(&self) -> bool {
        self.trouble.is_none() && self.errors() == 0
    }
}

impl Uploads {
    /// The row of a server, if it was measured.
    pub(crate) fn row(&self, server: &str) -> Option<&UploadRow> {
        self.rows.iter().find(|row| row.server == server && !row.samples.is_empty())
    }
}

impl UploadRow {
    /// The median of a figure.
    pub(crate) fn median(&self, of: impl Fn(&UploadSample) -> f64) -> f64 {
        median(self.samples.iter().map(of))
    }
}

impl IdleRow {
    /// Errors in all rounds, including lost connections.
    pub(crate) fn errors(&self) -> u64 {
        let samples = self.alone.iter().chain(&self.beside);
        self.lost + samples.map(|sample| sample.errors).sum::<u64>()
    }

    /// Whether there were neither troubles nor errors.
    pub(crate) fn is_sound(&self) -> bool {
        self.trouble.is_none() && self.errors() == 0
    }
}

impl Figures {
    /// Parses a Markdown table whose first column names the case, and whose other columns are numbers.
    pub(crate) fn parse(said: &str) -> Option<Self> {
        let mut lines = said.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
        let columns = lines.next()?.split(" | ").skip(1).map(str::to_owned).collect();
        let row = |line: &str| {
            let (case, numbers) = line.split_once(" | ")?;
            let figures: Option<Vec<f64>> =
                numbers.split(" | ").map(|number| number.parse().ok()).collect();
            Some(FigureRow { case: case.to_owned(), figures: figures? })
        };
        let rows: Option<Vec<FigureRow>> = lines.map(row).collect();
        Some(Self { columns, rows: rows.filter(|rows| !rows.is_empty())? })
    }

    /// The number in the column with this name.
    pub(crate) fn figure(&self, row: &FigureRow, column: &str) -> Option<f64> {
        let at = self.columns.iter().position(|it| it == column)?;
        row.figures.get(at).copied()
    }
}

impl DirectTable {
    /// The row of a way, with or without samples.
    pub(crate) fn row_mut(&mut self, way: &str) -> Option<&mut DirectRow> {
        self.rows.iter_mut().find(|row| row.way == way)
    }

    /// The row of a way, if it was measured.
    pub(crate) fn row(&self, way: &str) -> Option<&DirectRow> {
        self.rows.iter().find(|row| row.way == way && !row.samples.is_empty())
    }

    /// All measurements with direct connections to the nodes.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Flow> + Clone {
        self.rows.iter().flat_map(|row| &row.samples).map(|pair| &pair.nodes)
    }
}

impl DirectRow {
    /// The measurements through the way.
    pub(crate) fn through(&self) -> impl Iterator<Item = &Flow> + Clone {
        self.samples.iter().map(|pair| &pair.way)
    }

    /// Median of a figure of the way compared with the measurement at the nodes directly before it.
    pub(crate) fn compared(&self, compare: impl Fn(&Flow, &Flow) -> f64) -> f64 {
        median(self.samples.iter().map(|pair| compare(&pair.way, &pair.nodes)))
    }

    /// Errors in all rounds, including those at the nodes.
    pub(crate) fn errors(&self) -> u64 {
        self.samples.iter().map(|pair| pair.way.errors + pair.nodes.errors).sum()
    }

    /// Whether there were neither troubles nor errors.
    pub(crate) fn is_sound(&self) -> bool {
        self.trouble.is_none() && self.errors() == 0
    }
}

impl Flow {
    pub(crate) fn requests_per_s(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// Received data, in Mbit/s.
    pub(crate) fn mbit_s(&self) -> f64 {
        self.bytes as f64 * 8.0 / 1e6 / self.seconds
    }

    /// CPU time of the bed per request, in microseconds.
    pub(crate) fn bed_us(&self) -> f64 {
        self.bed_cpu_s * 1e6 / self.requests as f64
    }

    /// CPU time of the bed per mebibyte, in microseconds.
    pub(crate) fn bed_us_per_mib(&self) -> f64 {
        self.bed_cpu_s * 1e6 * 1048576.0 / self.bytes as f64
    }

    /// CPU time of the dispatcher's processes per request, in microseconds.
    pub(crate) fn dispatcher_us(&self) -> f64 {
        self.dispatcher_cpu_s * 1e6 / self.requests as f64
    }
}

/// A quantile of values in ascending order; 0 if there are none.
pub(crate) fn quantile(sorted: &[f64], quantile: f64) -> f64 {
    let last = sorted.len().saturating_sub(1) as f64;
    sorted.get((last * quantile).round() as usize).copied().unwrap_or(0.0)
}

/// The median: the middle value, or the mean of the two middle values; 0 if there are none.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.len() % 2, sorted.get(middle), middle.checked_sub(1).and_then(|m| sorted.get(m)))
    {
        (1, Some(&value), _) => value,
        (0, Some(&upper), Some(&lower)) => f64::midpoint(lower, upper),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_printed_table_is_read() {
        let said =
            "| ns per packet | 2 nodes | 8 nodes |\n|---|---|---|\n| XDP, flow | 40 | 41 |\n";
        let figures = Figures::parse(said).unwrap();
        assert_eq!(figures.columns, ["2 nodes", "8 nodes"]);
        let row = &figures.rows[0];
        assert_eq!((row.case.as_str(), &row.figures[..]), ("XDP, flow", &[40.0, 41.0][..]));
        assert_eq!(figures.figure(row, "8 nodes"), Some(41.0));
        assert!(Figures::parse("no table").is_none());
    }

    #[test]
    fn medians_of_odd_even_and_no_values() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 3.0, 2.0].into_iter()), 2.5);
        assert_eq!(median(std::iter::empty()), 0.0);
    }
}
