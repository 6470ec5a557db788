//! Samples are read back as they were stored; limits are kept; damaged, locked and full files are errors.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use tempfile::TempDir;

use super::*;
use crate::schema::open_to_read;

const MIB: u64 = 1 << 20;

fn info(name: &str) -> RecordingInfo {
    RecordingInfo {
        name: name.to_owned(),
        authority: Some("10.0.0.1:80".to_owned()),
        is_node: true,
        begun_unix_ms: 1,
        interval_ms: 1000,
        samples_max: 1_000_000,
        size_bytes_max: 64 * MIB,
    }
}

fn sample(at_unix_ms: u64) -> RecordedSample {
    let node = NodeSample {
        requests: Some(at_unix_ms),
        load1: Some(0.25),
        requests_in_flight_mean: Some(2.0),
        ..NodeSample::default()
    };
    let disk = DiskUse { reads: Some(3), ..DiskUse::default() };
    let nic = NicUse { sent_bytes: Some(5), ..NicUse::default() };
    RecordedSample {
        at_unix_ms,
        interval_ms: 1000,
        node,
        disks: vec![("sda".to_owned(), disk), ("sdb".to_owned(), disk)],
        nics: vec![("eth0".to_owned(), nic)],
    }
}

fn samples(range: std::ops::Range<u64>) -> Vec<RecordedSample> {
    range.map(sample).collect()
}

fn rows(path: &Path) -> Vec<RecordedRow> {
    let mut rows = Vec::new();
    let connection = open_to_read(path, 0).unwrap();
    read_recorded(path, &connection, |row| {
        rows.push(row);
        Ok::<_, DatabaseError>(())
    })
    .unwrap();
    rows
}

fn stamps(path: &Path) -> Vec<u64> {
    rows(path).iter().map(|row| row.at_unix_ms).collect()
}

#[test]
fn what_was_stored_comes_back_with_the_sums_of_devices() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.db");
    let mut recording = Recording::open(&path, &info("n1"), 0).unwrap();
    recording.store(&samples(7..9), 0).unwrap();
    let rows = rows(&path);
    assert_eq!(rows.len(), 2);
    let (row, stored) = (&rows[0], sample(7));
    assert_eq!((row.name.as_str(), row.is_node, row.at_unix_ms), ("n1", true, 7));
    assert_eq!(row.authority.as_deref(), Some("10.0.0.1:80"));
    assert_eq!(row.node, stored.node);
    assert_eq!((row.disks.reads, row.disks.writes, row.nics.sent_bytes), (Some(6), None, Some(5)));
    recording.close();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no log is left");
}

#[test]
fn sums_that_overflow_hide_no_other_row() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.db");
    let mut recording = Recording::open(&path, &info("n1"), 0).unwrap();
    let mut damaged = sample(7);
    for (_, disk) in &mut damaged.disks {
        disk.reads = Some(i64::MAX as u64);
    }
    recording.store(&[damaged, sample(8)], 0).unwrap();
    let rows = rows(&path);
    assert_eq!((rows[0].disks.reads, rows[1].disks.reads), (Some(i64::MAX as u64), Some(6)));
}

#[test]
fn recorders_share_a_file_and_a_restart_goes_on() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.db");
    let mut one = Recording::open(&path, &info("n1"), 0).unwrap();
    let mut other = Recording::open(&path, &info("n2"), 0).unwrap();
    one.store(&samples(1..3), 0).unwrap();
    other.store(&samples(3..4), 0).unwrap();
    drop(one);
    let mut again = Recording::open(&path, &info("n1"), 0).unwrap();
    again.store(&samples(4..5), 0).unwrap();
    assert_eq!(stamps(&path), [1, 2, 3, 4]);
}

#[test]
fn samples_of_one_name_are_bounded_by_their_number_whatever_their_stamps() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.db");
    let mut other = Recording::open(&path, &info("n2"), 0).unwrap();
    other.store(&samples(0..3), 0).unwrap();
    let few = RecordingInfo { samples_max: 10, ..info("n1") };
    let mut recording = Recording::open(&path, &few, 0).unwrap();
    // The clock jumps far ahead, and back.
    recording.store(&[sample(u64::MAX), sample(1)], 0).unwrap();
    for at in (100..100 + 2 * TRIM_SAMPLES).step_by(8) {
        recording.store(&samples(at..at + 8), 0).unwrap();
    }
    let rows = rows(&path);
    let own = rows.iter().filter(|row| row.name == "n1").count() as u64;
    assert!((10..10 + TRIM_SAMPLES).contains(&own), "{own}");
    assert_eq!(rows.iter().filter(|row| row.name == "n2").count(), 3);
    let devices: i64 = open_to_read(&path, 0)
        .unwrap()
        .query_row("SELECT count(*) FROM disk_sample", [], |row| row.get(0))
        .unwrap();
    assert_eq!(unsigned(devices), 2 * rows.len() as u64, "no device without its sample");
}

#[test]
fn the_file_is_bounded_in_bytes_and_the_oldest_samples_go() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.db");
    let small = RecordingInfo { size_bytes_max: MIB, ..info("n1") };
    let mut recording = Recording::open(&path, &small, 0).unwrap();
    for at in (0..8_000).step_by(200) {
        recording.store(&samples(at..at + 200), 0).unwrap();
    }
    recording.close();
    let size = path.metadata().unwrap().len();
    assert!((MIB / 2..MIB + MIB / 4).contains(&size), "{size}");
    let stamps = stamps(&path);
    assert_eq!(stamps.last(), Some(&7_999));
    assert!(stamps[0] > 500 && stamps.is_sorted(), "{}", stamps[0]);
}

#[test]
fn what_others_have_in_the_file_is_never_deleted() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.db");
    let probe = open_to_write(&path, 0).unwrap();
    let insert = "INSERT INTO url (url) VALUES (hex(randomblob(1000000)))";
    probe.execute(insert, []).unwrap();
    let small = RecordingInfo { size_bytes_max: MIB, ..info("n1") };
    let mut recording = Recording::open(&path, &small, 0).unwrap();
    let error = recording.store(&samples(0..1), 0).unwrap_err();
    assert!(matches!(error, DatabaseError::TooLarge { .. }), "{error}");
    let urls: i64 = probe.query_row("SELECT count(*) FROM url", [], |row| row.get(0)).unwrap();
    assert_eq!(urls, 1);
}

#[test]
fn a_file_of_an_earlier_build_gets_the_tables_that_it_lacks() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.db");
    let probe = open_to_write(&path, 0).unwrap();
    probe
        .execute_batch(
            "DROP TABLE disk_sample; DROP TABLE nic_sample; DROP TABLE node_sample;
             DROP TABLE recording; PRAGMA user_version = 1; INSERT INTO url (url) VALUES ('a');",
        )
        .unwrap();
    assert_eq!(rows(&path), []);
    let mut recording = Recording::open(&path, &info("n1"), 0).unwrap();
    recording.store(&samples(0..1), 0).unwrap();
    assert_eq!(stamps(&path), [0]);
}

#[test]
fn locked_full_and_damaged_files_are_errors_of_their_own() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.db");
    let mut recording = Recording::open(&path, &info("n1"), 0).unwrap();
    recording.store(&samples(0..100), 0).unwrap();
    let other = open_to_write(&path, 0).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = recording.store(&samples(0..1), 0).unwrap_err();
    assert!(matches!(error, DatabaseError::Locked { .. }), "{error}");
    other.execute_batch("COMMIT").unwrap();
    drop(other);
    // Simulates a disk without room for more pages.
    let pages: i64 =
        recording.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    recording.connection.pragma_update(None, "max_page_count", pages).unwrap();
    let error = recording.store(&samples(0..10_000), 0).unwrap_err();
    assert!(matches!(error, DatabaseError::Full { .. }), "{error}");
    assert_eq!(stamps(&path).len(), 100);
    recording.close();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let length = path.metadata().unwrap().len();
    file.write_all_at(&vec![0xa5; (length - 100) as usize], 100).unwrap();
    let error = Recording::open(&path, &info("n1"), 0).map(drop).unwrap_err();
    assert!(matches!(error, DatabaseError::Corrupt { .. }), "{error}");
}

#[test]
fn a_file_that_was_moved_away_is_noticed() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.db");
    let recording = Recording::open(&path, &info("n1"), 0).unwrap();
    assert!(recording.is_in_place());
    std::fs::rename(&path, folder.path().join("b.db")).unwrap();
    assert!(!recording.is_in_place());
    std::fs::write(&path, "").unwrap();
    assert!(!recording.is_in_place());
}
