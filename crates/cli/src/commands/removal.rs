//! Waits until a removal is complete.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::bail;
use skep_console::NodeState;

use super::WAIT_POLL_MS;
use crate::show;

/// Time within which an expired removal is completed, in milliseconds: groups are checked several times a
/// second.
const REMOVAL_MS: u64 = 5_000;

/// Polls `read` until nothing is left; requests in progress may take `timeout_ms`.
pub(super) fn wait_for_removal<T>(
    name: &str,
    timeout_ms: u64,
    read: impl Fn() -> anyhow::Result<Vec<T>>,
    state: impl Fn(&T) -> NodeState,
) -> anyhow::Result<Vec<T>> {
    let patience = Duration::from_millis(timeout_ms.saturating_add(REMOVAL_MS));
    let started = Instant::now();
    loop {
        let left = read()?;
        match left.first().map(&state) {
            None => return Ok(left),
            // It was added again under that name.
            Some(state) if state != NodeState::Removing => {
                bail!("{name} is {}, no longer removed", state.word())
            }
            Some(_) if started.elapsed() >= patience => {
                bail!("{name} is still there after {}", show::duration(timeout_ms))
            }
            Some(_) => sleep(Duration::from_millis(WAIT_POLL_MS)),
        }
    }
}
