//! `store = "embedded"` from outside: calls, crashes, failing disks.

use std::io::{Write, stderr};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use crate::common::{Twin, is_root, say, until};
use skep_store::{
    CONFIG_BYTES_MAX, Expected, KEY_BYTES_MAX, Leader, Store, StoreError, StoreSettings,
    VALUE_BYTES_MAX,
};

const CLOSING: Duration = Duration::from_secs(10);

fn open(file: &Path) -> Store {
    Store::open(&StoreSettings::Embedded { file: file.to_owned() }).unwrap()
}

#[test]
fn an_epoch_that_leaves_no_later_ones_is_damage_and_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("state"));
    store.record_epoch(u64::MAX).wait().unwrap();
    let damage = store.last_epoch().wait();
    assert!(matches!(damage, Err(StoreError::Foreign { .. })), "{damage:?}");
    store.record_epoch(9).wait().unwrap();
    assert_eq!(store.last_epoch().wait().unwrap(), 9);
}

#[test]
fn values_epoch_and_config_outlive_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state");
    let store = open(&file);
    assert_eq!(store.get("a/b").wait().unwrap(), None);
    let first = store.put("a/b", b"1", Expected::Absent).wait().unwrap();
    assert_eq!(store.last_epoch().wait().unwrap(), 0);
    assert_eq!(store.config().wait().unwrap(), None);
    let revision = store.publish_config("x = 1\n", Expected::Absent).wait().unwrap();
    assert!(revision > first);
    for epoch in [3, 9, 4] {
        store.record_epoch(epoch).wait().unwrap();
    }
    assert!(store.close(CLOSING));

    let store = open(&file);
    assert_eq!(store.get("a/b").wait().unwrap().unwrap().value, b"1");
    assert_eq!(store.last_epoch().wait().unwrap(), 9);
    assert_eq!(store.config().wait().unwrap(), Some(("x = 1\n".to_owned(), revision)));
    let again = store.put("a/b", b"2", Expected::Absent).wait();
    assert!(
        matches!(again, Err(StoreError::Conflict { found: Some(found), .. }) if found == first)
    );
}

#[test]
fn keys_and_values_have_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("state"));
    for key in ["", "a b", "ü", "a\0", &"k".repeat(KEY_BYTES_MAX + 1)] {
        let error = store.get(key).wait().unwrap_err();
        assert!(matches!(error, StoreError::Key { .. }), "{error}");
        assert!(matches!(store.watch(key, |_| ()), Err(StoreError::Key { .. })));
    }
    let most = vec![7; VALUE_BYTES_MAX];
    let key = "k".repeat(KEY_BYTES_MAX);
    store.put(&key, &most, Expected::Any).wait().unwrap();
    assert_eq!(store.get(&key).wait().unwrap().unwrap().value, most);
    let error = store.put("k", &[0; VALUE_BYTES_MAX + 1], Expected::Any).wait().unwrap_err();
    assert!(error.to_string().contains("at most 65536"), "{error}");
    let text = "#".repeat(CONFIG_BYTES_MAX + 1);
    let error = store.publish_config(&text, Expected::Any).wait().unwrap_err();
    assert!(matches!(error, StoreError::TooLarge { .. }), "{error}");
}

#[test]
fn watches_hear_of_changes_and_keep_the_last_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("state"));
    let (heard, hears) = mpsc::sync_channel(16);
    let watch = store.watch("k", move |seen| heard.send(seen.clone()).unwrap()).unwrap();
    let first = hears.recv().unwrap();
    assert!(first.is_current && first.entry.is_none());
    let revision = store.put("k", b"1", Expected::Any).wait().unwrap();
    let second = hears.recv().unwrap();
    assert_eq!(second.entry.as_ref().unwrap().revision, revision);
    assert_eq!(*watch.seen(), second);
    store.put("other", b"1", Expected::Any).wait().unwrap();
    store.put("k", b"2", Expected::Any).wait().unwrap();
    assert_eq!(hears.recv().unwrap().entry.unwrap().value, b"2");
    drop(watch);
    // The callback was dropped, and the sender with it.
    assert!(hears.recv().is_err());
}

#[test]
fn nobody_is_elected_and_the_file_is_healthy() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("state"));
    let (heard, hears) = mpsc::sync_channel(1);
    let campaign = store.campaign("d1", 5, move |view| heard.send(view.clone()).unwrap()).unwrap();
    assert_eq!(hears.recv().unwrap().leader, Leader::NoOpinion);
    assert_eq!(campaign.view().leader, Leader::NoOpinion);
    until("health", || (store.health().to_string() == "1 of 1 files answer").then_some(()));
}

#[test]
fn callers_never_wait_and_a_flood_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("state"));
    let flood: Vec<_> = (0..1_000).map(|_| store.put("k", &[1; 4096], Expected::Any)).collect();
    let outcomes: Vec<_> = flood.into_iter().map(skep_store::Pending::wait).collect();
    let refused = outcomes.iter().filter(|one| matches!(one, Err(StoreError::Busy))).count();
    let done: Vec<_> = outcomes.iter().filter_map(|one| one.as_ref().ok()).collect();
    eprintln!("of 1000 puts at once: {} done, {refused} refused", done.len());
    assert_eq!(done.len() + refused, 1_000);
    assert!(done.len() >= 64 && done.is_sorted(), "in order");
}

#[test]
fn the_file_is_free_for_the_next_once_closed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state");
    let store = open(&file);
    let watch = store.watch("k", |_| ()).unwrap();
    assert!(!store.clone().close(Duration::ZERO), "others are alive");
    let error = Store::open(&StoreSettings::Embedded { file: file.clone() }).err().unwrap();
    assert!(error.to_string().contains("another process has it open"), "{error}");
    drop(watch);
    assert!(store.close(CLOSING));
    open(&file);
}

#[test]
fn files_in_one_directory_are_made_at_the_same_time() {
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for number in 0..16 {
            let file = dir.path().join(format!("dispatcher-{number}"));
            scope.spawn(move || open(&file));
        }
    });
}

#[test]
fn what_was_confirmed_survives_kill_9_in_the_middle_of_writes() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state");
    let mut writes = 0;
    for round in 1..=20 {
        let mut twin = Twin::start(&[], "embedded::child", &format!("write {}", file.display()));
        // Killed while it opens the file, while it creates it, and while it writes.
        let mut confirmed = 0;
        for _ in 0..round / 2 * 7 {
            confirmed = twin.next().unwrap().parse().unwrap();
        }
        twin.process.kill();
        while let Some(line) = twin.next() {
            confirmed = line.parse().unwrap();
        }
        let store = open(&file);
        let found = store.get("count").wait().unwrap().map_or(0, |entry| {
            let text = String::from_utf8(entry.value[..20].to_vec()).unwrap();
            text.trim().parse().unwrap()
        });
        assert!(
            found == confirmed || found == confirmed + 1 || confirmed == 0,
            "{found} {confirmed}"
        );
        assert!(found >= writes, "{found} after {writes}");
        writes = found;
        assert!(store.close(CLOSING));
    }
    eprintln!("killed 20 times, the last time after {writes} writes");
    assert!(writes > 0);
}

#[test]
fn a_file_that_was_being_made_when_the_process_died_is_no_obstacle() {
    for _ in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state");
        let mut twin = Twin::start(&[], "embedded::child", &format!("write {}", file.display()));
        until("a file", || std::fs::read_dir(dir.path()).unwrap().next()).unwrap();
        twin.process.kill();
        let store = open(&file);
        store.put("k", b"1", Expected::Absent).wait().unwrap();
        assert!(store.close(CLOSING));
    }
}

#[test]
fn a_full_disk_is_an_error_that_passes() {
    if !is_root() {
        let _ = writeln!(
            stderr(),
            "SKIPPED: a_full_disk_is_an_error_that_passes needs root, to mount a disk"
        );
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let role = format!("fill {}", dir.path().display());
    let mut twin = Twin::start(&["unshare", "--mount"], "embedded::child", &role);
    assert_eq!(twin.next().as_deref(), Some("done"));
}

#[test]
fn a_disk_that_is_read_only_is_named() {
    if !is_root() {
        let _ = writeln!(
            stderr(),
            "SKIPPED: a_disk_that_is_read_only_is_named needs root, to mount a disk"
        );
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let role = format!("read-only {}", dir.path().display());
    let mut twin = Twin::start(&["unshare", "--mount"], "embedded::child", &role);
    assert_eq!(twin.next().as_deref(), Some("done"));
}

/// The role of this binary when another test has started it.
#[test]
#[ignore = "a role that other tests start"]
fn child() {
    let role = std::env::var(crate::common::ROLE).unwrap_or_default();
    match role.split_once(' ') {
        Some(("write", file)) => write_for_ever(Path::new(file)),
        Some(("fill", dir)) => fill(Path::new(dir)),
        Some(("read-only", dir)) => read_only(Path::new(dir)),
        _ => {}
    }
}

fn write_for_ever(file: &Path) {
    let store = open(file);
    let last = store.get("count").wait().unwrap();
    let last = last.map_or(0, |entry| {
        std::str::from_utf8(&entry.value[..20]).unwrap().trim().parse().unwrap()
    });
    for count in last + 1_u64.. {
        // Of varying length, so that pages are split and freed.
        let value = format!("{count:20}{}", "x".repeat(count as usize * 37 % 5_000));
        store.put("count", value.as_bytes(), Expected::Any).wait().unwrap();
        say(&count.to_string());
    }
}

fn mount(dir: &Path, options: &str) {
    let mut mount = std::process::Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", options, "skep-test"]).arg(dir);
    assert!(mount.status().unwrap().success());
}

/// Fills a small disk completely while a store is open.
fn fill(dir: &Path) {
    mount(dir, "size=4m");
    let (file, ballast) = (dir.join("state"), dir.join("ballast"));
    let store = open(&file);
    store.put("kept", b"1", Expected::Any).wait().unwrap();
    std::fs::write(&ballast, vec![1; 5 << 20]).expect_err("the disk is full");
    let error = until("a failed write", || {
        let key = format!("k{:?}", std::time::Instant::now()).replace([' ', '{', '}', ','], "");
        store.put(&key, &[1; VALUE_BYTES_MAX], Expected::Any).wait().err()
    });
    let text = error.to_string();
    assert!(text.contains("No space left") && text.contains(file.to_str().unwrap()), "{text}");
    std::fs::remove_file(&ballast).unwrap();
    store.put("after", b"2", Expected::Any).wait().unwrap();
    assert_eq!(store.get("kept").wait().unwrap().unwrap().value, b"1");
    assert!(store.close(CLOSING));

    // And a file that cannot even be created until there is room.
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&ballast, vec![1; 5 << 20]).expect_err("the disk is full");
    let store = open(&file);
    let error = store.put("early", b"3", Expected::Any).wait().err().unwrap();
    assert!(error.to_string().contains("No space left"), "{error}");
    std::fs::remove_file(&ballast).unwrap();
    store.put("early", b"3", Expected::Any).wait().unwrap();
    assert!(store.close(CLOSING), "what the attempts left behind is no obstacle");
    say("done");
}

fn read_only(dir: &Path) {
    let file = dir.join("state");
    mount(dir, "size=8m");
    assert!(open(&file).close(CLOSING));
    mount_again(dir, "remount,ro");
    for file in [file, dir.join("new")] {
        let error = Store::open(&StoreSettings::Embedded { file: file.clone() }).err().unwrap();
        let text = error.to_string();
        assert!(text.contains("Read-only") && text.contains(file.to_str().unwrap()), "{text}");
    }
    say("done");
}

fn mount_again(dir: &Path, options: &str) {
    let mut mount = std::process::Command::new("mount");
    assert!(mount.args(["-o", options]).arg(dir).status().unwrap().success());
}
