//! Progress bars on standard error, if that is a terminal.

use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use skep_advise::LogTrace;
use skep_load::{LoadPlan, LoadProgress};

use crate::{log_file, show};

/// A bar for bytes that are written.
pub(super) fn bytes_bar(bytes: u64) -> ProgressBar {
    styled(bytes, "{bar:40} {bytes} of {total_bytes}, {eta} left")
}

/// A bar for the time of a run, in milliseconds.
pub(super) fn run_bar(plan: &LoadPlan) -> ProgressBar {
    styled(plan.duration_ms, "{bar:40} {percent} % {msg}")
}

/// Updates the bar of a run.
pub(super) fn show_progress(bar: &ProgressBar, progress: LoadProgress) {
    bar.set_position(progress.elapsed_ms);
    bar.set_message(show::bench_progress(progress));
}

/// Reads an access log, with a bar for its bytes.
///
/// # Errors
/// The file does not exist, or is not a log.
pub(super) fn read_log(log: &Path) -> anyhow::Result<LogTrace> {
    let bar = styled(0, "reading {bar:40} {bytes} of {total_bytes}");
    let trace = log_file::read_log(log, |file, bytes| {
        bar.set_length(bytes);
        bar.wrap_read(file)
    })?;
    bar.finish_and_clear();
    Ok(trace)
}

/// A bar for steps of equal length; it shows the name of the current step.
pub(super) fn steps_bar() -> ProgressBar {
    styled(0, "{bar:40} {pos} of {len}, {eta} left, {msg}")
}

fn styled(length: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
