//! Messages to the operator, on standard error.

use std::io::IsTerminal;

use skep_config::Level;
use tracing_subscriber::EnvFilter;

/// Starts to print messages of `level` and above. `SKEP_LOG`, in the syntax of
/// `tracing`'s filters, overrides it.
pub(crate) fn start(level: Level) {
    let filter =
        EnvFilter::try_from_env("SKEP_LOG").unwrap_or_else(|_| EnvFilter::new(level.word()));
    // A second start (tests) keeps the first.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .try_init();
}
