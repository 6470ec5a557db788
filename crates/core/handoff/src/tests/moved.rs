//! Reports and queries to dispatchers.

use skep_units::Now;
use skep_wire::handoff::HandoffId;
use skep_wire::handoff::lccp::{Lccp, LccpCommand, MovedFlow, QueryKey};
use skep_wire::limits::MOVED_FLOWS_MAX;

use super::{message, socket};
use crate::limits::{LEARNED_MS, MOVED_MS_MAX, QUERIES_MAX, QUERY_MS};
use crate::{
    DispatcherQueries, MovedFlows, MovedReports, QueriesFull, QueryCounters, QueryOutcome,
};

fn flow(port: u16) -> MovedFlow {
    MovedFlow { socket: socket(port), node: 3, moves: 1 }
}

fn sizes(messages: &[Lccp]) -> Vec<usize> {
    let size = |message: &Lccp| match &message.command {
        LccpCommand::Moved(flows) => flows.len(),
        _ => 0,
    };
    messages.iter().map(size).collect()
}

fn taken(of: &Lccp) -> Lccp {
    message(of.id, LccpCommand::MovedTaken)
}

#[test]
fn flows_are_reported_together_and_soon() {
    let mut reports = MovedReports::new(1_000);
    assert_eq!(reports.next_due(), None);
    for port in 0..MOVED_FLOWS_MAX as u16 + 2 {
        reports.push(Now(10), flow(port));
    }
    let first = reports.due(Now(10));
    assert_eq!(sizes(&first), [MOVED_FLOWS_MAX], "a full report does not wait");
    assert_eq!(reports.next_due(), Some(Now(15)));
    let second = reports.due(Now(15));
    assert_eq!(sizes(&second), [2]);
    reports.heard(&taken(&first[0]));
    reports.heard(&taken(&first[0]));
    let other = HandoffId { incarnation: 999, ..second[0].id };
    reports.heard(&message(other, LccpCommand::MovedTaken));
    assert_eq!(reports.counters().learned, MOVED_FLOWS_MAX as u64);
    assert_eq!(sizes(&reports.due(Now(35))), [2], "again");
    reports.dispatcher_changed();
    assert_eq!(sizes(&reports.due(Now(36))), [2], "to the next dispatcher at once");
    reports.heard(&taken(&second[0]));
    assert_eq!(reports.next_due(), None);
}

#[test]
fn a_report_is_repeated_for_a_bounded_time() {
    let mut reports = MovedReports::new(1_000);
    reports.push(Now(0), flow(1));
    let mut sent = 0;
    while let Some(due) = reports.next_due() {
        sent += reports.due(due).len();
        assert!(due <= Now(MOVED_MS_MAX + 200));
    }
    assert!((10..20).contains(&sent), "{sent} times");
    assert_eq!(reports.counters().given_up, 1);
}

#[test]
fn a_query_is_repeated_and_then_given_up() {
    let mut queries = DispatcherQueries::new(1_000);
    let key = QueryKey::new(b"example.org", b"/a?b").unwrap();
    let (first, asked) = queries.ask(Now(0), socket(1), key.clone()).unwrap();
    let (second, _) = queries.ask(Now(0), socket(2), key.clone()).unwrap();
    let again = queries.tick(Now(5));
    assert_eq!(again.len(), 2);
    assert_eq!(again[0], QueryOutcome::Repeat(asked.clone()));
    let decided = message(asked.id, LccpCommand::Decision(socket(1), Some(7)));
    assert_eq!(queries.heard(&message(asked.id, LccpCommand::Decision(socket(2), Some(7)))), None);
    assert_eq!(queries.heard(&decided), Some((first, Some(7))));
    assert_eq!(queries.heard(&decided), None, "once");
    assert_eq!(queries.tick(Now(15)).len(), 1);
    assert_eq!(queries.tick(Now(QUERY_MS)), [QueryOutcome::Unanswered(second)]);
    assert_eq!(queries.next_due(), None);
    for _ in 0..QUERIES_MAX {
        queries.ask(Now(30), socket(1), key.clone()).unwrap();
    }
    assert_eq!(queries.ask(Now(30), socket(1), key), Err(QueriesFull));
    assert_eq!(queries.counters(), QueryCounters { answered: 1, unanswered: 1, full: 1 });
}

#[test]
fn a_report_that_comes_late_does_not_undo_a_later_move() {
    let mut flows = MovedFlows::default();
    let moved = |node: u16, moves: u8| MovedFlow { node, moves, ..flow(1) };
    assert_eq!(flows.take(Now(0), &[moved(3, 1), flow(2)]), [moved(3, 1), flow(2)]);
    assert_eq!(flows.take(Now(1), &[moved(1, 3)]), [moved(1, 3)]);
    assert_eq!(flows.take(Now(2), &[moved(3, 1), moved(2, 2)]), []);
    assert_eq!(flows.take(Now(3), &[moved(1, 3)]), [moved(1, 3)], "again, for another table");
    let later = Now(3 + LEARNED_MS);
    assert_eq!(flows.take(later, &[moved(3, 1)]), [moved(3, 1)], "of another connection");
}
