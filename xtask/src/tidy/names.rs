//! Names that were given up for the field's own, and must not come back.
//!
//! The table is of identifiers in code; comments and strings are a reader's to judge.

use super::Finding;
use crate::source::Source;

/// A name that is refused.
struct Refused {
    names: &'static [&'static str],
    /// What to write.
    instead: &'static str,
    /// Files below these mean something else by it.
    but_below: &'static [&'static str],
}

const fn refused(names: &'static [&'static str], instead: &'static str) -> Refused {
    Refused { names, instead, but_below: &[] }
}

const TABLE: &[Refused] = &[
    refused(&["Duty", "DutySettings", "duty_settings"], "Failover"),
    refused(&["OnReign", "on_reign", "reign", "abdicate"], "term: OnTerm, begin_term, step_down"),
    refused(&["StepBack", "SteppedBack", "step_back"], "StepDown, step_down"),
    refused(&["TableKeeper"], "TablePublisher"),
    refused(&["NodeWatch", "WatchSettings"], "FailureDetector"),
    refused(&["Hands"], "NetguardExecutor"),
    refused(&["Referee", "referee"], "LeaseObserver"),
    refused(&["Ear", "EarError"], "WitnessState, LoadReceiver"),
    Refused {
        names: &["Stranger"],
        instead: "AddressConflict",
        but_below: &["crates/role/console/"], // who has no token
    },
    refused(&["Roused", "rouse"], "ProvokedClients, provoke_rst"),
    refused(&["Cooperation", "Directing", "Ground"], "ClusterCache, DirectDispatch, Environment"),
    refused(&["Shelf", "shelf"], "OriginHeadCache"),
    refused(&["Flight", "Flown"], "SingleFlight, FlightState"),
    refused(&["Landed", "Landing", "Looked"], "HeadOutcome, HeadLookup"),
    refused(&["Others", "Desk", "PeerDesk"], "PeerClient, CoordinatorLinks, PeerServer"),
    refused(&["Ring"], "RendezvousHash"),
    refused(&["Standing"], "ReplicaStatus, OriginHealth"),
    refused(&["Spare", "set_spare", "is_spare", "spare_bytes"], "Redundant, redundant_bytes"),
    refused(&["fills_elsewhere", "ClusterPlaced"], "prefers_remote_fill, ClusterRemoteFill"),
    refused(&["Front", "Fronts"], "WorkerIndex"),
    refused(&["Whence", "Handed"], "ObjectSource, PeerHead"),
    refused(&["Beat", "Beats"], "Heartbeat"),
    refused(&["PowerState"], "LifecycleState"),
    refused(&["Keeper"], "TablePublisher"),
    Refused {
        names: &["Lane"],
        instead: "WorkerBalancer",
        but_below: &["fuzz/"], // one of the servers that are compared
    },
    refused(&["heir", "heirs"], "successor"),
    refused(&["last_copy", "last_copies"], "sole_replica"),
    refused(&["standing", "standings"], "health, ReplicaStatus"),
];

/// Finds refused names in code, tests too.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let concerns = |row: &&Refused| !row.but_below.iter().any(|it| source.path.starts_with(it));
    for row in TABLE.iter().filter(concerns) {
        for name in row.names {
            for at in source.find(name) {
                let what = format!("`{name}` is the old name: {}", row.instead);
                findings.push(Finding::new(&source.path, source.line_of(at), "name", what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Source::new(path, text)).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn old_names_are_found_as_whole_words_of_code() {
        let path = "crates/role/node/src/lib.rs";
        assert_eq!(lines(path, "\nstruct Shelf;"), [2]);
        assert_eq!(lines(path, "use super::Standing;"), [1]);
        for text in
            ["struct Shelves;", "// Shelf", "const X: &str = \"Shelf\";", "fn bookshelf() {}"]
        {
            assert!(lines(path, text).is_empty(), "{text}");
        }
    }

    #[test]
    fn homonyms_stay_where_they_are() {
        assert!(lines("crates/role/console/src/guard.rs", "enum Stranger {}").is_empty());
    }
}
