//! Metrics of handoffs.

use std::sync::Arc;

use skep_console::HandoffCount;
use skep_distributor::{HandoffCounters, MoveStep};
use skep_peer::{Counts, PacketRefusal};
use skep_telemetry::Registry;
use skep_wire::handoff::lccp::RefuseCause;
use skep_wire::seal::OpenError;

/// A sample's outcome and its number.
type Outcome = (&'static str, u64);

pub(crate) fn register_handoffs(registry: &Registry, counters: &Arc<HandoffCounters>) {
    let help = "Connections that this node wanted to move to another one, by outcome.";
    register(registry, "skep_handoffs_total", help, counters, donated);
    let help = "Connections that other nodes offered to this one, by outcome.";
    register(registry, "skep_handoffs_received_total", help, counters, received);
    let help = "Moved connections whose new node was told to the active dispatcher, by outcome.";
    register(registry, "skep_handoff_flows_told_total", help, counters, told);
    let own = Arc::clone(counters);
    let help = "Authenticated handoff messages that were malformed.";
    let read = move || own.malformed_messages() as f64;
    registry.register("skep_handoff_messages_malformed_total", &[], help, Box::new(read));
    let own = Arc::clone(counters);
    let help = "Offers, GOs and ABORTs that were sent again because no answer came in time.";
    let read = move || own.counts().donor.repeated as f64;
    registry.register("skep_handoff_messages_repeated_total", &[], help, Box::new(read));
    register_times(registry, counters);
}

fn register_times(registry: &Registry, counters: &HandoffCounters) {
    let times = counters.times();
    let help = "From the order to freeze a connection until its new node was told to go on.";
    let freeze = Arc::clone(&times.freeze);
    registry.register_histogram("skep_handoff_freeze_seconds", &[], help, freeze);
    let help = "From the decision to move a connection until its new node said that it serves.";
    let whole = Arc::clone(&times.whole);
    registry.register_histogram("skep_handoff_move_seconds", &[], help, whole);
    let help = "Steps of moves, of those that this node wanted and of those offered to it.";
    for step in MoveStep::ALL {
        let (labels, times) = ([("step", step.name())], Arc::clone(times.step(step)));
        registry.register_histogram("skep_handoff_step_seconds", &labels, help, times);
    }
}

/// Datagrams of other nodes, or of anybody, that were refused.
pub(crate) fn register_datagrams(registry: &Registry, counts: &Arc<Counts>) {
    let counts = Arc::clone(counts);
    let help = "Datagrams about handoffs refused, by reason.";
    let sample =
        |(reason, count): Outcome| (vec![("reason".to_owned(), reason.to_owned())], count as f64);
    let read = move || {
        let seals = OpenError::ALL.iter().map(|&why| (why.name(), counts.refused(why)));
        let packets = PacketRefusal::ALL.iter().map(|&why| (why.name(), counts.dropped(why)));
        seals.chain(packets).map(sample).collect()
    };
    registry.register_samples("skep_handoff_datagrams_refused_total", help, Box::new(read));
}

fn register(
    registry: &Registry,
    name: &str,
    help: &str,
    counters: &Arc<HandoffCounters>,
    read: fn(&HandoffCounters) -> Vec<Outcome>,
) {
    let own = Arc::clone(counters);
    let sample = |(outcome, count): Outcome| {
        (vec![("outcome".to_owned(), outcome.to_owned())], count as f64)
    };
    let samples = move || read(&own).into_iter().map(sample).collect();
    registry.register_samples(name, help, Box::new(samples));
}

/// What operators are shown: outcomes that at least one connection had.
pub(crate) fn shown(counters: &HandoffCounters) -> [Vec<HandoffCount>; 2] {
    let shown = |outcomes: Vec<Outcome>| {
        let met = outcomes.into_iter().filter(|(_, connections)| *connections > 0);
        let count = |(outcome, connections): Outcome| HandoffCount {
            outcome: outcome.to_owned(),
            connections,
        };
        met.map(count).collect()
    };
    [shown(donated(counters)), shown(received(counters))]
}

fn donated(counters: &HandoffCounters) -> Vec<Outcome> {
    let donor = counters.counts().donor;
    let mut outcomes = vec![
        ("moved", donor.moved),
        ("closed", donor.closed),
        ("too_many", donor.full),
        ("not_frozen", donor.not_frozen),
        ("unsuitable", donor.unsuitable),
        ("silent", donor.silent),
        ("gone", donor.gone),
        ("not_redirected", donor.not_redirected),
    ];
    outcomes.extend(refused(&donor.refused));
    outcomes
}

fn received(counters: &HandoffCounters) -> Vec<Outcome> {
    let receiver = counters.counts().receiver;
    let mut outcomes = vec![
        ("served", receiver.served),
        ("aborted", receiver.aborted),
        ("undecided", receiver.undecided),
        ("not_started", receiver.not_started),
        ("unknown", receiver.gone),
    ];
    outcomes.extend(refused(&receiver.refused));
    outcomes
}

fn told(counters: &HandoffCounters) -> Vec<Outcome> {
    let moved = counters.counts().moved;
    vec![("learned", moved.learned), ("given_up", moved.given_up)]
}

/// Of a donor and of a receiver the same causes.
fn refused(counts: &[u64; RefuseCause::ALL.len()]) -> impl Iterator<Item = Outcome> + '_ {
    RefuseCause::ALL.iter().zip(counts).map(|(cause, count)| (refusal_name(*cause), *count))
}

fn refusal_name(cause: RefuseCause) -> &'static str {
    match cause {
        RefuseCause::Full => "refused_full",
        RefuseCause::NotServing => "refused_not_serving",
        RefuseCause::Busy => "refused_busy",
        RefuseCause::Netguard => "refused_netguard",
        RefuseCause::Restore => "refused_restore",
        RefuseCause::Late => "refused_late",
        RefuseCause::Malformed => "refused_malformed",
    }
}
