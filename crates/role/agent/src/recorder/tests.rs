//! A recorder that runs: samples at its interval, and one at its end.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::atomic::{AtomicU64, Ordering};

use skep_database::{DatabaseError, RecordedRow, open_to_read, read_recorded};

use super::*;

struct Figures(Arc<AtomicU64>);

impl ServerFigures for Figures {
    fn counters(&mut self) -> ServerCounters {
        let requests = self.0.load(Ordering::Relaxed);
        ServerCounters { requests, ..ServerCounters::default() }
    }

    fn gauges(&mut self) -> ServerGauges {
        ServerGauges { requests_in_flight: 3, ..ServerGauges::default() }
    }

    fn cache(&mut self) -> Option<CacheBytes> {
        None
    }
}

#[test]
fn a_recorder_stores_at_its_interval_and_at_its_end() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("a.db");
    let config =
        RecorderConfig { file: Some(path.clone()), interval_ms: 100, ..RecorderConfig::default() };
    let requests = Arc::new(AtomicU64::new(5));
    let parts = RecorderParts {
        name: "n1".to_owned(),
        authority: None,
        is_node: true,
        figures: Box::new(Figures(Arc::clone(&requests))),
    };
    let recorder = Recorder::start(&config, parts).unwrap().unwrap();
    while recorder.counts().stored() == 0 {
        std::thread::yield_now();
    }
    requests.store(12, Ordering::Relaxed);
    recorder.end();
    let mut rows: Vec<RecordedRow> = Vec::new();
    let connection = open_to_read(&path, 0).unwrap();
    read_recorded(&path, &connection, |row| {
        rows.push(row);
        Ok::<_, DatabaseError>(())
    })
    .unwrap();
    assert!(rows.len() >= 2 && rows[0].interval_ms >= 100, "{rows:?}");
    let counted: u64 = rows.iter().filter_map(|row| row.node.requests).sum();
    assert!(counted == 7 || counted == 12, "all since it began to look: {rows:?}");
    assert_eq!(rows[0].node.requests_in_flight_max, Some(3));
}

#[test]
fn without_a_file_nothing_is_recorded() {
    let figures = Box::new(Figures(Arc::default()));
    let parts = RecorderParts { name: String::new(), authority: None, is_node: false, figures };
    assert!(Recorder::start(&RecorderConfig::default(), parts).unwrap().is_none());
}
