//! `report.md` and its figures: response time by size for each label, over all hours, and over those
//! of light and of heavy load.

mod figure;
mod hours;
mod page;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::database::{ProbeDatabaseError, SampleReader};
use crate::statistics::SampleTimes;
use crate::summary::ProbeSummary;

use figure::{Figure, Line};
use hours::Hours;

/// There is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A file of samples cannot be read.
    #[error(transparent)]
    Database(#[from] ProbeDatabaseError),
    /// The report cannot be written.
    #[error("cannot write {}: {error}: expected a folder that can be written to", path.display())]
    Unwritable {
        /// A file, or the folder.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// A figure cannot be drawn.
    #[error("cannot draw {}: {why}", path.display())]
    Figure {
        /// The figure.
        path: PathBuf,
        /// The error of the library.
        why: String,
    },
}

/// What was written.
#[derive(Debug)]
pub struct ProbeReport {
    /// Files, the page first.
    pub files: Vec<PathBuf>,
    /// What is not there, and why.
    pub notes: Vec<String>,
}

/// All that a report is made of.
#[derive(Default)]
struct Material {
    labels: BTreeMap<String, Series>,
    hours: Hours,
}

/// What was measured under one label.
#[derive(Default)]
struct Series {
    summary: ProbeSummary,
    /// Totals of whole responses, by URL and hour since 1970.
    totals: BTreeMap<(String, u64), SampleTimes>,
    /// First and last stamp.
    stamps_unix_ms: Option<(u64, u64)>,
}

/// A figure of the paper.
struct Wanted {
    file: &'static str,
    title: &'static str,
    /// Whether an hour counts.
    counts: fn(&Hours, u64) -> bool,
    /// Whether it needs loads.
    by_load: bool,
}

const FIGURES: [Wanted; 3] = [
    Wanted {
        file: "time-by-size.svg",
        title: "Response time by size",
        counts: |_, _| true,
        by_load: false,
    },
    Wanted {
        file: "time-by-size-light.svg",
        title: "Response time by size, hours of light load",
        counts: |hours, hour| hours.is_light(hour),
        by_load: true,
    },
    Wanted {
        file: "time-by-size-heavy.svg",
        title: "Response time by size, hours of heavy load",
        counts: |hours, hour| hours.is_heavy(hour),
        by_load: true,
    },
];

/// Writes a report about all samples of `files` to the folder `out`.
///
/// # Errors
/// A file cannot be read or has no samples, or the folder cannot be written to.
pub fn write_report(files: &[PathBuf], out: &Path) -> Result<ProbeReport, ReportError> {
    let material = Material::read(files)?;
    let unwritable = |path: &Path, error| ReportError::Unwritable { path: path.to_owned(), error };
    std::fs::create_dir_all(out).map_err(|error| unwritable(out, error))?;
    let mut report = ProbeReport { files: Vec::new(), notes: Vec::new() };
    let mut figures = Vec::new();
    for wanted in &FIGURES {
        if wanted.by_load && !material.hours.is_split() {
            continue;
        }
        let figure = material.figure(wanted);
        if figure.is_empty() {
            report
                .notes
                .push(format!("{}: skipped, no whole response in these hours", wanted.file));
            continue;
        }
        let path = out.join(wanted.file);
        let svg = figure.svg().map_err(|why| ReportError::Figure { path: path.clone(), why })?;
        std::fs::write(&path, svg).map_err(|error| unwritable(&path, error))?;
        report.files.push(path);
        figures.push((wanted.file, wanted.title));
    }
    if let Some(why) = material.hours.why_not_split() {
        report.notes.push(format!("figures of light and of heavy load: skipped, {why}"));
    }
    let path = out.join("report.md");
    let text = page::page(material, &figures, &report.notes);
    std::fs::write(&path, text).map_err(|error| unwritable(&path, error))?;
    report.files.insert(0, path);
    Ok(report)
}

impl Material {
    fn read(files: &[PathBuf]) -> Result<Self, ReportError> {
        let mut material = Self::default();
        for path in files {
            let reader = SampleReader::open(path)?;
            reader.for_each(|label, sample| -> Result<(), ReportError> {
                let series = material.labels.entry(label).or_default();
                series.summary.add(&sample);
                let (first, last) =
                    series.stamps_unix_ms.unwrap_or((sample.at_unix_ms, sample.at_unix_ms));
                series.stamps_unix_ms =
                    Some((first.min(sample.at_unix_ms), last.max(sample.at_unix_ms)));
                if sample.failure.is_none() {
                    let key = (sample.url, sample.at_unix_ms / hours::HOUR_MS);
                    series.totals.entry(key).or_default().add(sample.total_us);
                }
                Ok(())
            })?;
            for (hour, load) in reader.loads_by_hour()? {
                material.hours.add(hour, load);
            }
        }
        material.hours.split();
        Ok(material)
    }

    fn figure(&self, wanted: &Wanted) -> Figure {
        let lines = self.labels.iter().enumerate().map(|(at, (label, series))| Line {
            name: label.clone(),
            colour: at,
            points: series.by_size(|hour| (wanted.counts)(&self.hours, hour)),
        });
        Figure { title: wanted.title.to_owned(), lines: lines.collect() }
    }
}

impl Series {
    /// Mean and half the width of its interval in milliseconds, by size: URLs of one size are one point.
    fn by_size(&self, counts: impl Fn(u64) -> bool) -> Vec<(u64, f64, f64)> {
        let sizes: BTreeMap<&str, u64> = self
            .summary
            .urls
            .iter()
            .filter_map(|url| Some((url.url.as_str(), url.size_bytes()?)))
            .collect();
        let mut by_size: BTreeMap<u64, SampleTimes> = BTreeMap::new();
        for ((url, hour), times) in &self.totals {
            if let Some(size) = sizes.get(url.as_str()).filter(|_| counts(*hour)) {
                by_size.entry(*size).or_default().add_all(times);
            }
        }
        let point = |(size, times): (u64, SampleTimes)| {
            let half_us = times.half_interval_us().unwrap_or(0.0);
            Some((size, times.mean_us()? / 1e3, half_us / 1e3))
        };
        by_size.into_iter().filter_map(point).collect()
    }
}
