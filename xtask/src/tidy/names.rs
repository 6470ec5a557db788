//! Names that were replaced by the field's own terms, and must not be used again.
//!
//! The table lists identifiers: in code, as a whole string (a label, a field), and in code spans of pages.
//! Comments and prose are left to reviewers.

use super::Finding;
use crate::repo::Page;
use crate::source::Source;

const PATH: &str = "xtask/src/tidy/names.rs";

/// A refused name.
struct Refused {
    names: &'static [&'static str],
    /// What to write instead.
    instead: &'static str,
    /// Files below these folders use it with another meaning.
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
    refused(&["Beat", "Beats", "DispatcherBeat", "NodeBeat", "SendBeat"], "Heartbeat"),
    refused(&["beat", "beats", "send_beat"], "heartbeat; of a Pulse: tick"),
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

/// Finds refused names in code and as whole strings, including tests.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let concerns = |row: &&Refused| !row.but_below.iter().any(|it| source.path.starts_with(it));
    for row in TABLE.iter().filter(concerns) {
        for name in row.names {
            let in_code = source.find(name).into_iter();
            for at in in_code.chain(as_string(source, name)) {
                findings.push(finding(&source.path, source.line_of(at), name, row));
            }
        }
    }
    findings
}

/// Finds refused names in code spans of a page.
pub(crate) fn check_page(page: &Page) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, text) in (1..).zip(page.text.lines()) {
        // Every second part is a code span.
        for span in text.split('`').skip(1).step_by(2) {
            let named = |row: &'static Refused| row.names.iter().map(move |name| (row, *name));
            let is_named = |(_, name): &(&Refused, &str)| *name == leading_word(span);
            let refused = TABLE.iter().flat_map(named).filter(is_named);
            findings.extend(refused.map(|(row, name)| finding(&page.path, line, name, row)));
        }
    }
    findings
}

fn finding(path: &str, line: usize, name: &str, row: &Refused) -> Finding {
    Finding::new(path, line, "name", format!("`{name}` is the old name: {}", row.instead))
}

/// Offsets of strings that consist of the name only; except in the table.
fn as_string(source: &Source, name: &str) -> Vec<usize> {
    if source.path == PATH {
        return Vec::new();
    }
    source.text.match_indices(&format!("\"{name}\"")).map(|(at, _)| at).collect()
}

/// The first name of a span, such as `a` of `a::b` and `a(b)`; a field's name with hyphens is one word.
fn leading_word(span: &str) -> &str {
    span.split(|c: char| !c.is_alphanumeric() && !"_-".contains(c)).next().unwrap_or_default()
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
        assert_eq!(lines(path, "const LABEL: &str = \"reign\";"), [1]);
        for text in
            ["struct Shelves;", "// Shelf", "const X: &str = \"a Shelf\";", "fn bookshelf() {}"]
        {
            assert!(lines(path, text).is_empty(), "{text}");
        }
    }

    #[test]
    fn old_names_are_found_in_code_spans_of_pages() {
        let lines = |text: &str| -> Vec<usize> {
            let page = Page { path: "docs/a.md".into(), text: text.into() };
            check_page(&page).into_iter().map(|finding| finding.line).collect()
        };
        assert_eq!(lines("a\nthe `Shelf`, and `Shelf::new`"), [2, 2]);
        assert!(lines("the shelf, a Shelf; `a` Shelf `b`, `Shelves`, `Shelf-Life: 3`").is_empty());
    }

    #[test]
    fn homonyms_stay_where_they_are() {
        assert!(lines("crates/role/console/src/guard.rs", "enum Stranger {}").is_empty());
    }
}
