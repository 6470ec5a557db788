//! Metrics of handoffs.

use std::sync::Arc;

use skep_peer::{Counts, PacketRefusal};
use skep_telemetry::Registry;
use skep_wire::handoff::lccp::RefuseCause;
use skep_wire::seal::OpenError;

use crate::{HandoffCounters, MoveStep};

/// An outcome, and the number of connections or queries with it.
pub type HandoffOutcome = (&'static str, u64);

/// Registers metrics of this process's mover.
pub fn register_handoffs(registry: &Registry, counters: &Arc<HandoffCounters>) {
    let help = "Connections that this node tried to hand off, by outcome.";
    register(registry, "skep_handoffs_total", help, counters, donated);
    let help = "Connections that other nodes offered to this one, by outcome.";
    register(registry, "skep_handoffs_received_total", help, counters, received);
    let help = "Moved connections reported to the active dispatcher, by outcome.";
    register(registry, "skep_handoff_flows_reported_total", help, counters, reported);
    let help = "Queries to the active dispatcher, by outcome.";
    register(registry, "skep_handoff_queries_total", help, counters, queries);
    let own = Arc::clone(counters);
    let help = "Malformed handoff messages with a valid seal.";
    let read = move || own.malformed_messages() as f64;
    registry.register("skep_handoff_messages_malformed_total", &[], help, Box::new(read));
    let own = Arc::clone(counters);
    let help = "Offers, GOs and ABORTs repeated after a timeout.";
    let read = move || own.counts().donor.repeated as f64;
    registry.register("skep_handoff_messages_repeated_total", &[], help, Box::new(read));
    register_times(registry, counters);
}

fn register_times(registry: &Registry, counters: &HandoffCounters) {
    let times = counters.times();
    let help = "Time from the order to freeze a connection to the GO for its receiver.";
    let freeze = Arc::clone(&times.freeze);
    registry.register_histogram("skep_handoff_freeze_seconds", &[], help, freeze);
    let help = "Time from the decision to move a connection to the DONE of its receiver.";
    let whole = Arc::clone(&times.whole);
    registry.register_histogram("skep_handoff_move_seconds", &[], help, whole);
    let help = "Duration of each step of a handoff, at the donor or at the receiver.";
    for step in MoveStep::ALL {
        let (labels, times) = ([("step", step.name())], Arc::clone(times.step(step)));
        registry.register_histogram("skep_handoff_step_seconds", &labels, help, times);
    }
}

/// Registers the refused datagrams.
pub fn register_handoff_datagrams(registry: &Registry, counts: &Arc<Counts>) {
    let counts = Arc::clone(counts);
    let help = "Refused datagrams of handoffs, by reason.";
    let sample = |(reason, count): HandoffOutcome| {
        (vec![("reason".to_owned(), reason.to_owned())], count as f64)
    };
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
    read: fn(&HandoffCounters) -> Vec<HandoffOutcome>,
) {
    let own = Arc::clone(counters);
    let sample = |(outcome, count): HandoffOutcome| {
        (vec![("outcome".to_owned(), outcome.to_owned())], count as f64)
    };
    let samples = move || read(&own).into_iter().map(sample).collect();
    registry.register_samples(name, help, Box::new(samples));
}

/// The outcomes of connections: of those to other nodes, and of those from other nodes. Only outcomes that at
/// least one connection had.
pub fn handoff_outcomes(counters: &HandoffCounters) -> [Vec<HandoffOutcome>; 2] {
    [donated(counters), received(counters)].map(|mut outcomes| {
        outcomes.retain(|(_, connections)| *connections > 0);
        outcomes
    })
}

fn donated(counters: &HandoffCounters) -> Vec<HandoffOutcome> {
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

fn received(counters: &HandoffCounters) -> Vec<HandoffOutcome> {
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

fn reported(counters: &HandoffCounters) -> Vec<HandoffOutcome> {
    let moved = counters.counts().moved;
    vec![("learned", moved.learned), ("given_up", moved.given_up)]
}

fn queries(counters: &HandoffCounters) -> Vec<HandoffOutcome> {
    let queries = counters.counts().queries;
    vec![
        ("answered", queries.answered),
        ("unanswered", queries.unanswered),
        ("too_many", queries.full),
    ]
}

/// Donor and receiver have the same causes.
fn refused(counts: &[u64; RefuseCause::ALL.len()]) -> impl Iterator<Item = HandoffOutcome> + '_ {
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
