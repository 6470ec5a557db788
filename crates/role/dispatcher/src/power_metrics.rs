//! Metrics of the commands that switch machines.

use std::sync::Arc;

use skep_cluster::elasticity::PowerCommand;
use skep_telemetry::Registry;

use crate::power::{CommandOutcome, NodePowers};

/// Registers the metrics of `powers`. Call it once.
pub fn register_powers(registry: &Registry, powers: &Arc<NodePowers>) {
    let powers = Arc::clone(powers);
    let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let read = move || {
        let sample = |((command, outcome), count): ((PowerCommand, CommandOutcome), u64)| {
            (vec![label("command", command.word()), label("outcome", outcome.word())], count as f64)
        };
        powers.counts().into_iter().map(sample).collect()
    };
    let help =
        "Commands that switch machines of nodes, by outcome: done, failed, timed_out, or not_run.";
    registry.register_samples("skep_power_commands_total", help, Box::new(read));
}
