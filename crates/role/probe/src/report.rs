//! `report.md` and its figures: response time by size for each label, over all hours, and over those
//! of light and of heavy load.

mod figure;
mod hours;
mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::database::SampleReader;
use crate::sample::ProbeSample;
use crate::statistics::SampleTimes;
use crate::summary::ProbeSummary;
use skep_database::DatabaseError;

use figure::{Figure, Line};
use hours::Hours;

/// There is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A file of samples cannot be read.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The report cannot be written.
    #[error("cannot write {}: {error}: expected a folder that can be written to", path.display())]
    Unwritable {
        /// A file, or the folder.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The folder has a page of somebody else.
    #[error("{}: expected an earlier report, found another page: name another folder with --out", path.display())]
    Foreign {
        /// The page.
        path: PathBuf,
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
struct ReportInput {
    /// Files that do not count, and why.
    notes: Vec<String>,
    labels: BTreeMap<String, Series>,
    hours: Hours,
}

/// What was measured under one label.
#[derive(Default)]
struct Series {
    summary: ProbeSummary,
    /// Totals of whole responses, by URL and hour since 1970.
    totals: BTreeMap<(String, u64), SampleTimes>,
    /// Turns that did not take place.
    turns_skipped: u64,
    /// First and last stamp.
    stamps_unix_ms: Option<(u64, u64)>,
}

/// A figure of the paper.
struct FigureSpec {
    file: &'static str,
    title: &'static str,
    /// Whether an hour counts.
    counts: fn(&Hours, u64) -> bool,
    /// Whether it needs loads.
    by_load: bool,
}

const FIGURES: [FigureSpec; 3] = [
    FigureSpec {
        file: "time-by-size.svg",
        title: "Response time by size",
        counts: |_, _| true,
        by_load: false,
    },
    FigureSpec {
        file: "time-by-size-light.svg",
        title: "Response time by size, hours of light load",
        counts: |hours, hour| hours.is_light(hour),
        by_load: true,
    },
    FigureSpec {
        file: "time-by-size-heavy.svg",
        title: "Response time by size, hours of heavy load",
        counts: |hours, hour| hours.is_heavy(hour),
        by_load: true,
    },
];

/// Writes a report about all samples of `files` to the folder `out`.
///
/// # Errors
/// A file cannot be read, none has samples, or the folder cannot be written to or is somebody else's.
pub fn write_report(files: &[PathBuf], out: &Path) -> Result<ProbeReport, ReportError> {
    let mut input = ReportInput::read(files)?;
    let page = out.join("report.md");
    let is_earlier = check_earlier(&page)?;
    std::fs::create_dir_all(out).map_err(|error| unwritable(out, error))?;
    let mut report =
        ProbeReport { files: vec![page.clone()], notes: std::mem::take(&mut input.notes) };
    let mut figures = Vec::new();
    for spec in &FIGURES {
        let path = out.join(spec.file);
        if input.draw(spec, &path, &mut report.notes)? {
            report.files.push(path);
            figures.push((spec.file, spec.title));
        } else if is_earlier {
            remove_earlier(&path)?;
        }
    }
    if let Some(why) = input.hours.why_not_split() {
        report.notes.push(format!("figures of light and of heavy load: skipped, {why}"));
    }
    let text = page::page(input, &figures, &report.notes);
    std::fs::write(&page, text).map_err(|error| unwritable(&page, error))?;
    Ok(report)
}

fn unwritable(path: &Path, error: io::Error) -> ReportError {
    ReportError::Unwritable { path: path.to_owned(), error }
}

/// Whether there is an earlier report, which is replaced; another page is not.
fn check_earlier(page: &Path) -> Result<bool, ReportError> {
    match std::fs::read(page) {
        Ok(text) if text.starts_with(page::TITLE.as_bytes()) => Ok(true),
        Ok(_) => Err(ReportError::Foreign { path: page.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(unwritable(page, error)),
    }
}

/// A figure of an earlier report would stand beside a page that says it is skipped.
fn remove_earlier(figure: &Path) -> Result<(), ReportError> {
    match std::fs::remove_file(figure) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unwritable(figure, error)),
        _ => Ok(()),
    }
}

impl ReportInput {
    fn read(files: &[PathBuf]) -> Result<Self, ReportError> {
        let (mut input, mut seen) = (Self::default(), BTreeSet::new());
        let mut empty = None;
        for path in files {
            let file = path.metadata().ok().map(|it| (it.dev(), it.ino()));
            if file.is_some_and(|file| !seen.insert(file)) {
                input.notes.push(format!("{}: named twice, counted once", path.display()));
                continue;
            }
            match input.add_file(path) {
                Err(ReportError::Database(error @ DatabaseError::Empty { .. })) => {
                    input.notes.push(format!("{}: skipped, it has no samples", path.display()));
                    empty = Some(error);
                }
                result => result?,
            }
        }
        match empty.filter(|_| input.labels.is_empty()) {
            Some(error) => return Err(error.into()),
            None => input.hours.split(),
        }
        Ok(input)
    }

    fn add_file(&mut self, path: &Path) -> Result<(), ReportError> {
        let reader = SampleReader::open(path)?;
        reader.for_each(|label, sample| -> Result<(), ReportError> {
            self.labels.entry(label).or_default().add(sample);
            Ok(())
        })?;
        for (label, turns) in reader.turns_skipped()? {
            if let Some(series) = self.labels.get_mut(&label) {
                series.turns_skipped += turns;
            }
        }
        reader.for_each_recorded(|row| {
            if let Some(load) = row.node.load1.filter(|_| row.is_node) {
                self.hours.add(row.at_unix_ms / hours::HOUR_MS, load);
            }
            Ok(())
        })
    }

    /// Writes a figure; `false`: it would be empty, and a note may say why.
    fn draw(
        &self,
        spec: &FigureSpec,
        path: &Path,
        notes: &mut Vec<String>,
    ) -> Result<bool, ReportError> {
        if spec.by_load && !self.hours.is_split() {
            return Ok(false);
        }
        let figure = self.figure(spec);
        if figure.is_empty() {
            let hours = if spec.by_load { " in these hours" } else { "" };
            notes.push(format!("{}: skipped, no whole response{hours}", spec.file));
            return Ok(false);
        }
        let svg = figure.svg().map_err(|why| ReportError::Figure { path: path.to_owned(), why })?;
        std::fs::write(path, svg).map_err(|error| unwritable(path, error))?;
        Ok(true)
    }

    fn figure(&self, spec: &FigureSpec) -> Figure {
        let lines = self.labels.iter().enumerate().map(|(at, (label, series))| Line {
            name: label.clone(),
            number: at,
            points: series.by_size(|hour| (spec.counts)(&self.hours, hour)),
        });
        Figure { title: spec.title.to_owned(), lines: lines.collect() }
    }
}

impl Series {
    fn add(&mut self, sample: ProbeSample) {
        self.summary.add(&sample);
        let at_unix_ms = sample.at_unix_ms;
        let (first, last) = self.stamps_unix_ms.unwrap_or((at_unix_ms, at_unix_ms));
        self.stamps_unix_ms = Some((first.min(at_unix_ms), last.max(at_unix_ms)));
        if sample.failure.is_none() {
            let key = (sample.url, at_unix_ms / hours::HOUR_MS);
            self.totals.entry(key).or_default().add(sample.total_us);
        }
    }

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
