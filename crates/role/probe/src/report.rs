//! `report.md` and its figures: response time by size for each label, over all times and over those of light
//! and of heavy load; hits and load of the nodes that answered each label, over those times.

mod figure;
mod page;
mod recorded;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::database::SampleReader;
use crate::sample::ProbeSample;
use crate::statistics::SampleTimes;
use crate::summary::ProbeSummary;
use skep_database::DatabaseError;

use figure::{Axis, Figure, Line};
use recorded::{Answered, NodeUse, Recorded};
use steps::Steps;

/// The report could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A file of samples cannot be read.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The report cannot be written.
    #[error("cannot write {}: {error}: expected a folder that can be written to", path.display())]
    Unwritable {
        /// The file, or the folder.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The folder contains a page that is not such a report.
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

/// The files written.
#[derive(Debug)]
pub struct ProbeReport {
    /// Files, the page first.
    pub files: Vec<PathBuf>,
    /// Figures and data that are missing, and why.
    pub notes: Vec<String>,
}

/// Names of nodes in a note, at most.
const NAMES_MAX: usize = 16;

/// Milliseconds of an hour, the unit of time on axes.
const HOUR_MS: f64 = 3_600_000.0;

/// The data of a report.
struct ReportInput {
    /// Files that are ignored, and why.
    notes: Vec<String>,
    labels: BTreeMap<String, Series>,
    /// Length of the steps into which time is divided, in milliseconds.
    step_ms: u64,
    steps: Steps,
    recorded: Recorded,
    answered: Answered,
}

/// The measurements under one label.
#[derive(Default)]
struct Series {
    summary: ProbeSummary,
    /// Total times of complete responses, by URL and step since 1970.
    totals: BTreeMap<(String, u64), SampleTimes>,
    /// Number of turns that were skipped.
    turns_skipped: u64,
    /// First and last time stamp.
    stamps_unix_ms: Option<(u64, u64)>,
}

/// A figure of the paper.
struct FigureSpec {
    file: &'static str,
    title: &'static str,
    content: Content,
    times: Times,
}

/// The contents of a figure.
#[derive(Clone, Copy)]
enum Content {
    /// Response time by size.
    Time,
    /// A value of the nodes, over time.
    Nodes { y_label: &'static str, value: fn(&NodeUse) -> Option<f64> },
}

/// The steps that count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Times {
    All,
    Light,
    Heavy,
}

const HITS: Content =
    Content::Nodes { y_label: "requests answered from memory, %", value: NodeUse::hit_percent };
const IN_FLIGHT: Content =
    Content::Nodes { y_label: "requests in flight, mean of a node", value: NodeUse::in_flight };

/// Figures 7 and 14, 8, 9, 10, 11, 12, 13 of the paper.
const FIGURES: [FigureSpec; 7] = [
    FigureSpec {
        file: "time-by-size.svg",
        title: "Response time by size",
        content: Content::Time,
        times: Times::All,
    },
    FigureSpec {
        file: "time-by-size-light.svg",
        title: "Response time by size, times of light load",
        content: Content::Time,
        times: Times::Light,
    },
    FigureSpec {
        file: "time-by-size-heavy.svg",
        title: "Response time by size, times of heavy load",
        content: Content::Time,
        times: Times::Heavy,
    },
    FigureSpec {
        file: "hits-light.svg",
        title: "Cache hits, times of light load",
        content: HITS,
        times: Times::Light,
    },
    FigureSpec {
        file: "hits-heavy.svg",
        title: "Cache hits, times of heavy load",
        content: HITS,
        times: Times::Heavy,
    },
    FigureSpec {
        file: "load-light.svg",
        title: "Load of nodes, times of light load",
        content: IN_FLIGHT,
        times: Times::Light,
    },
    FigureSpec {
        file: "load-heavy.svg",
        title: "Load of nodes, times of heavy load",
        content: IN_FLIGHT,
        times: Times::Heavy,
    },
];

/// Writes a report on all samples of `files` to the folder `out`. Times of light and heavy load are steps of
/// `step_ms`.
///
/// # Errors
/// A file cannot be read, none has samples, or the folder cannot be written to or contains another page.
pub fn write_report(
    files: &[PathBuf],
    out: &Path,
    step_ms: u64,
) -> Result<ProbeReport, ReportError> {
    let mut input = ReportInput::read(files, step_ms)?;
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
    if let Some(why) = input.steps.why_not_split() {
        report.notes.push(format!("figures of light and of heavy load: skipped, {why}"));
    }
    report.notes.extend(input.stranger_note());
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

/// Otherwise a figure of an earlier report would accompany a page that reports it as skipped.
fn remove_earlier(figure: &Path) -> Result<(), ReportError> {
    match std::fs::remove_file(figure) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unwritable(figure, error)),
        _ => Ok(()),
    }
}

impl ReportInput {
    fn read(files: &[PathBuf], step_ms: u64) -> Result<Self, ReportError> {
        assert!(step_ms > 0, "a step has a length");
        let mut input = Self {
            notes: Vec::new(),
            labels: BTreeMap::new(),
            step_ms,
            steps: Steps::default(),
            recorded: Recorded::default(),
            answered: Answered::default(),
        };
        let mut seen = BTreeSet::new();
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
        if input.labels.is_empty() {
            let path = files.first().cloned().unwrap_or_default();
            return Err(empty.unwrap_or(DatabaseError::Empty { path }).into());
        }
        input.steps = Steps::of(input.recorded.loads());
        Ok(input)
    }

    fn add_file(&mut self, path: &Path) -> Result<(), ReportError> {
        let (reader, step_ms) = (SampleReader::open(path)?, self.step_ms);
        let mut is_recorded = false;
        reader.for_each_recorded(|row| -> Result<(), ReportError> {
            is_recorded = true;
            self.recorded.add(row.at_unix_ms / step_ms, &row);
            Ok(())
        })?;
        let measured = reader.for_each(|label, sample| -> Result<(), ReportError> {
            let step = sample.at_unix_ms / step_ms;
            self.answered.add(step, &label, sample.node.as_deref());
            self.labels.entry(label).or_default().add(sample, step);
            Ok(())
        });
        match measured {
            // A file of recorders only.
            Err(ReportError::Database(DatabaseError::Empty { .. })) if is_recorded => {}
            result => result?,
        }
        for (label, turns) in reader.turns_skipped()? {
            if let Some(series) = self.labels.get_mut(&label) {
                series.turns_skipped += turns;
            }
        }
        Ok(())
    }

    /// Lists nodes that are in no figure.
    fn stranger_note(&self) -> Option<String> {
        let labels: Vec<String> = self.labels.keys().cloned().collect();
        let strangers = self.recorded.strangers(&labels, &self.answered);
        let names: Vec<&str> = strangers.into_iter().take(NAMES_MAX).collect();
        (!names.is_empty()).then(|| {
            format!(
                "recorded nodes that answered no probe, and count for no label: {} (service.node_header names nodes)",
                names.join(", ")
            )
        })
    }

    /// Writes a figure; `false`: it would be empty, and a note may state why.
    fn draw(
        &self,
        spec: &FigureSpec,
        path: &Path,
        notes: &mut Vec<String>,
    ) -> Result<bool, ReportError> {
        if spec.times != Times::All && !self.steps.is_split() {
            return Ok(false);
        }
        let figure = self.figure(spec);
        if figure.is_empty() {
            let times = if spec.times == Times::All { "" } else { " at these times" };
            let what = match spec.content {
                Content::Time => "whole response",
                Content::Nodes { .. } => "sample of a recorder of these labels",
            };
            notes.push(format!("{}: skipped, no {what}{times}", spec.file));
            return Ok(false);
        }
        let svg = figure.svg().map_err(|why| ReportError::Figure { path: path.to_owned(), why })?;
        std::fs::write(path, svg).map_err(|error| unwritable(path, error))?;
        Ok(true)
    }

    fn figure(&self, spec: &FigureSpec) -> Figure {
        let counts = |step: u64| self.counts(spec.times, step);
        let lines = self.labels.iter().enumerate().map(|(at, (label, series))| Line {
            name: label.clone(),
            number: at,
            points: match spec.content {
                Content::Time => {
                    let points = series.by_size(counts).into_iter();
                    points.map(|(size, mean, half)| (size as f64, mean, half)).collect()
                }
                Content::Nodes { value, .. } => self.over_time(label, counts, value),
            },
        });
        let step_hours = self.step_ms as f64 / HOUR_MS;
        let axis = match spec.content {
            Content::Time => Axis::Size,
            Content::Nodes { y_label, .. } => Axis::Hours { y_label, step_hours },
        };
        Figure { title: spec.title.to_owned(), axis, lines: lines.collect() }
    }

    fn counts(&self, times: Times, step: u64) -> bool {
        match times {
            Times::All => true,
            Times::Light => self.steps.is_light(step),
            Times::Heavy => self.steps.is_heavy(step),
        }
    }

    /// A value of the nodes of `label`, by hours since the first step.
    fn over_time(
        &self,
        label: &str,
        counts: impl Fn(u64) -> bool,
        value: fn(&NodeUse) -> Option<f64>,
    ) -> Vec<(f64, f64, f64)> {
        let first = self.steps.first().unwrap_or(0);
        let hours = |step: u64| step.saturating_sub(first) as f64 * self.step_ms as f64 / HOUR_MS;
        let by_step = self.recorded.of_label(label, &self.answered).into_iter();
        let counted = by_step.filter(|(step, _)| counts(*step));
        counted.filter_map(|(step, used)| Some((hours(step), value(&used)?, 0.0))).collect()
    }

    /// The combined use of the nodes of `label` at these times.
    fn used(&self, label: &str, times: Times) -> Option<NodeUse> {
        let mut sum: Option<NodeUse> = None;
        for (_, used) in self
            .recorded
            .of_label(label, &self.answered)
            .iter()
            .filter(|(step, _)| self.counts(times, **step))
        {
            sum.get_or_insert_default().add(used);
        }
        sum
    }
}

impl Series {
    fn add(&mut self, sample: ProbeSample, step: u64) {
        self.summary.add(&sample);
        let at_unix_ms = sample.at_unix_ms;
        let (first, last) = self.stamps_unix_ms.unwrap_or((at_unix_ms, at_unix_ms));
        self.stamps_unix_ms = Some((first.min(at_unix_ms), last.max(at_unix_ms)));
        if sample.failure.is_none() {
            let key = (sample.url, step);
            self.totals.entry(key).or_default().add(sample.total_us);
        }
    }

    /// Mean and half the width of its interval in milliseconds, by size: URLs of equal size are one point.
    fn by_size(&self, counts: impl Fn(u64) -> bool) -> Vec<(u64, f64, f64)> {
        let sizes: BTreeMap<&str, u64> = self
            .summary
            .urls
            .iter()
            .filter_map(|url| Some((url.url.as_str(), url.size_bytes()?)))
            .collect();
        let mut by_size: BTreeMap<u64, SampleTimes> = BTreeMap::new();
        for ((url, step), times) in &self.totals {
            if let Some(size) = sizes.get(url.as_str()).filter(|_| counts(*step)) {
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
