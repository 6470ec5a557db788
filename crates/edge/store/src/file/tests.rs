//! Tests of the file with damage, other formats, and other processes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::fs;

use tempfile::TempDir;

use super::*;

/// Creates and closes a file with some entries; returns its directory and path.
fn written() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    let mut file = File::open(&path).unwrap();
    for at in 0..100 {
        file.put(&format!("kv/{at}"), &[at; 300], Expected::Absent).unwrap();
    }
    (dir, path)
}

#[test]
fn revisions_grow_with_every_write_and_guard_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut file = File::open(&dir.path().join("state")).unwrap();
    assert_eq!(file.get("a").unwrap(), Read { entry: None, as_of: 0 });
    assert_eq!(file.put("a", b"1", Expected::Absent).unwrap(), 1);
    assert_eq!(file.put("b", b"1", Expected::Any).unwrap(), 2);
    assert_eq!(file.put("a", b"2", Expected::Revision(1)).unwrap(), 3);
    let conflict = |result| match result {
        Err(StoreError::Conflict { found, .. }) => found,
        other => panic!("{other:?}"),
    };
    assert_eq!(conflict(file.put("a", b"3", Expected::Absent)), Some(3));
    assert_eq!(conflict(file.put("a", b"3", Expected::Revision(1))), Some(3));
    assert_eq!(conflict(file.put("c", b"3", Expected::Revision(1))), None);
    let entry = Some(StoredValue { value: b"2".to_vec(), revision: 3 });
    assert_eq!(file.get("a").unwrap(), Read { entry, as_of: 3 });
}

#[test]
fn what_was_written_is_there_after_opening_again() {
    let (_dir, path) = written();
    let mut file = File::open(&path).unwrap();
    assert_eq!(file.get("kv/7").unwrap().entry.unwrap().value, [7; 300]);
    assert_eq!(file.put("kv/7", b"", Expected::Any).unwrap(), 101);
}

#[test]
fn a_file_has_one_owner() {
    let (_dir, path) = written();
    let owner = File::open(&path).unwrap();
    assert!(matches!(File::open(&path), Err(StoreOpenError::InUse { .. })));
    drop(owner);
    assert!(File::open(&path).is_ok());
}

#[test]
fn another_format_is_left_alone_and_named() {
    let (_dir, path) = written();
    let database = Database::open(&path).unwrap();
    let writing = database.begin_write().unwrap();
    writing.open_table(META).unwrap().insert("format", FORMAT + 1).unwrap();
    writing.commit().unwrap();
    drop(database);
    let before = fs::read(&path).unwrap();
    let error = File::open(&path).err().unwrap();
    assert!(matches!(error, StoreOpenError::Version { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("format 2, this version reads format 1"), "{text}");
    assert!(text.contains(path.to_str().unwrap()), "{text}");
    let entries = |bytes: &[u8]| bytes.windows(300).filter(|at| *at == [7; 300]).count();
    assert_eq!(entries(&fs::read(&path).unwrap()), entries(&before));
}

#[test]
fn files_of_somebody_else_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    for bytes in [&b""[..], b"hello\n", &[0xff; 10_000], b"SQLite format 3\0 and so on", b"redb"] {
        fs::write(&path, bytes).unwrap();
        let error = File::open(&path).err().unwrap();
        assert!(matches!(error, StoreOpenError::Corrupt { .. }), "{error:?}");
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
    fs::remove_file(&path).unwrap();
    let theirs: TableDefinition<'_, &str, &str> = TableDefinition::new("theirs");
    let database = Database::create(&path).unwrap();
    let writing = database.begin_write().unwrap();
    writing.open_table(theirs).unwrap().insert("a", "b").unwrap();
    writing.commit().unwrap();
    drop(database);
    let error = File::open(&path).err().unwrap();
    assert!(matches!(error, StoreOpenError::Corrupt { .. }), "{error:?}");
}

#[test]
fn paths_that_cannot_be_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().join("missing/state"), dir.path().to_owned()] {
        let error = File::open(&path).err().unwrap();
        assert!(matches!(error, StoreOpenError::Io { .. }), "{error:?}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}

#[test]
fn a_damaged_file_is_an_error_or_harmless_but_never_a_panic_or_a_lie() {
    let (_dir, path) = written();
    let whole = fs::read(&path).unwrap();
    let mut random = skep_units::Rng::new(3);
    let (mut refused, mut harmless) = (0, 0);
    for round in 0..2_000 {
        let mut bytes = whole.clone();
        damage(&mut bytes, round, &mut random);
        fs::write(&path, &bytes).unwrap();
        match read_all(&path) {
            Ok(()) => harmless += 1,
            Err(error) => {
                assert!(
                    matches!(
                        error,
                        StoreOpenError::Corrupt { .. } | StoreOpenError::Version { .. }
                    ),
                    "{error:?}"
                );
                assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
                refused += 1;
            }
        }
    }
    eprintln!("damaged files: {refused} refused, {harmless} harmless");
    assert!(refused > 0);
}

/// Flips bytes in the pages in use, or truncates the file.
fn damage(bytes: &mut Vec<u8>, round: usize, random: &mut skep_units::Rng) {
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let mut below = |most: usize| (random.next_u64() % most as u64) as usize;
    if round.is_multiple_of(4) {
        let rest = below(bytes.len());
        bytes.truncate(rest);
        return;
    }
    // Every other round in the header, of which little is protected by checksums.
    let range = if round.is_multiple_of(2) { 512 } else { used };
    for _ in 0..1 + below(64) {
        let at = below(range);
        bytes[at] ^= 1 + below(255) as u8;
    }
}

/// Opens the file and reads what `written` wrote: the values are unchanged, or there is an error.
fn read_all(path: &Path) -> Result<(), StoreOpenError> {
    let mut file = File::open(path)?;
    for at in 0..100 {
        match file.get(&format!("kv/{at}")) {
            // A crash may leave the state before a commit.
            Ok(Read { entry, .. }) => {
                assert!(entry.is_none_or(|entry| entry.value == [at; 300]), "a lie");
            }
            Err(StoreError::File(error)) => return Err(error),
            Err(other) => panic!("{other}"),
        }
    }
    Ok(())
}
