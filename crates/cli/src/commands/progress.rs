//! Progress bars, on standard error if that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use skep_load::{LoadPlan, LoadProgress};

use crate::show;

/// A bar over bytes that are written.
pub(super) fn bytes_bar(bytes: u64) -> ProgressBar {
    styled(bytes, "{bar:40} {bytes} of {total_bytes}, {eta} left")
}

/// A bar over the time of a run, in milliseconds.
pub(super) fn run_bar(plan: &LoadPlan) -> ProgressBar {
    styled(plan.duration_ms, "{bar:40} {percent} % {msg}")
}

/// Moves the bar of a run.
pub(super) fn show_progress(bar: &ProgressBar, progress: LoadProgress) {
    bar.set_position(progress.elapsed_ms);
    bar.set_message(show::bench_progress(progress));
}

/// A bar over the bytes of a file that is read; it gets its length when that is open.
pub(super) fn reading_bar() -> ProgressBar {
    styled(0, "reading {bar:40} {bytes} of {total_bytes}")
}

/// A bar over steps of equal length, the current one of which it names.
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
