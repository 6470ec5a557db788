//! The file of a run, its exports and its reports.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use serde_json::Value;
use skep_probe::{ExportFormat, ProbePlan, ProbeSample, export_samples, write_report};
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::server::Server;
use super::{outcome, plan, run, run_until};

/// An hour, the default of the command.
const STEP_MS: u64 = 3_600_000;

fn exported(path: &Path, format: ExportFormat) -> String {
    let mut out = Vec::new();
    export_samples(path, format, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// The message of a run that fails to begin.
fn refusal(plan: &ProbePlan) -> String {
    let result = run_until(plan, std::future::pending(), |_| panic!("it must not measure"));
    result.map(|_| ()).unwrap_err().to_string()
}

#[test]
fn the_file_has_what_was_measured_and_runs_add_to_it() {
    let (server, folder) = (Server::new(), TempDir::new().unwrap());
    let urls = [server.url("/size/7"), server.url("/status/500"), server.url("/to//size/9")];
    let first = plan(folder.path(), &urls);
    let mut samples = run(&first);
    samples.extend(run(&ProbePlan { label: "a,\"b\"".to_owned(), ..first.clone() }));
    let rows: Vec<Value> = exported(&first.out, ExportFormat::Json)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows.len(), 6);
    for (row, sample) in rows.iter().zip(&samples) {
        let mut expected = sample.to_json();
        expected["label"] = row["label"].clone();
        assert_eq!(*row, expected);
    }
    assert_eq!(
        (rows[0]["label"].as_str(), rows[5]["label"].as_str()),
        (Some("test"), Some("a,\"b\""))
    );
    let csv = exported(&first.out, ExportFormat::Csv);
    assert!(csv.starts_with("label,turn,at_unix_ms,since_begin_ms,url,lookup_us,"), "{csv}");
    assert_eq!((csv.matches("\r\n").count(), csv.matches("\"a,\"\"b\"\"\",0,").count()), (7, 3));
    let columns: Vec<usize> = csv.lines().take(4).map(|line| line.split(',').count()).collect();
    assert_eq!(columns, [columns[0]; 4], "{csv}");
}

#[test]
fn a_run_that_is_stopped_keeps_what_it_has_measured() {
    let (server, folder) = (Server::new(), TempDir::new().unwrap());
    let urls = [server.url("/size/7"), server.url("/silent")];
    let plan = ProbePlan { turns_max: None, ..plan(folder.path(), &urls) };
    let (stop, stopped) = oneshot::channel();
    let mut stop = Some(stop);
    let stopped = async { stopped.await.unwrap() };
    let (summary, samples) =
        run_until(&plan, stopped, |_| stop.take().unwrap().send(()).unwrap()).unwrap();
    assert_eq!((samples.len(), summary.urls.len()), (1, 1));
    assert_eq!(exported(&plan.out, ExportFormat::Json).lines().count(), 1);
}

#[test]
fn files_of_others_are_refused_and_left_alone() {
    let folder = TempDir::new().unwrap();
    let urls = ["http://127.0.0.1:1/".to_owned()];
    let plan =
        |name: &str| ProbePlan { out: folder.path().join(name), ..plan(folder.path(), &urls) };
    fs::write(
        folder.path().join("text"),
        "these are some notes of mine, and no database".repeat(30),
    )
    .unwrap();
    let other = Connection::open(folder.path().join("other")).unwrap();
    other.execute_batch("CREATE TABLE birds (name TEXT)").unwrap();
    drop(other);
    for (name, words) in [("text", "no database"), ("other", "another program")] {
        let before = fs::read(folder.path().join(name)).unwrap();
        let said = refusal(&plan(name));
        assert!(said.contains(name) && said.contains(words) && said.contains("expected"), "{said}");
        assert_eq!(fs::read(folder.path().join(name)).unwrap(), before, "{name}");
    }
    let said = refusal(&plan("no/such/folder.db"));
    assert!(said.contains("expected a folder that exists"), "{said}");
    let said = refusal(&ProbePlan { out: folder.path().to_owned(), ..plan("x") });
    assert!(said.contains("expected a folder that exists"), "{said}");
}

#[test]
fn a_file_of_a_later_build_is_refused() {
    let (server, folder) = (Server::new(), TempDir::new().unwrap());
    let plan = plan(folder.path(), &[server.url("/size/1")]);
    run(&plan);
    let file = Connection::open(&plan.out).unwrap();
    file.pragma_update(None, "user_version", 3).unwrap();
    drop(file);
    assert!(refusal(&plan).contains("version 2 or earlier, found 3"), "{}", refusal(&plan));
    let error = export_samples(&plan.out, ExportFormat::Csv, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("found 3"), "{error}");
}

#[test]
fn reports_need_samples() {
    let folder = TempDir::new().unwrap();
    let plan = plan(folder.path(), &["http://127.0.0.1:1/".to_owned()]);
    let report = |path: &Path| {
        write_report(&[path.to_owned()], &folder.path().join("report"), STEP_MS)
            .unwrap_err()
            .to_string()
    };
    assert!(report(&plan.out).contains("no such file"), "{}", report(&plan.out));
    fs::write(folder.path().join("empty"), "").unwrap();
    assert!(
        report(&folder.path().join("empty")).contains("expected samples of a probe, found none")
    );
    // Stopped before the first sample.
    run_until(&plan, std::future::ready(()), |_| {}).ok();
    let rows = Connection::open(&plan.out).unwrap();
    rows.execute("DELETE FROM sample", []).unwrap();
    drop(rows);
    assert!(
        report(&plan.out).contains("expected samples of a probe, found none"),
        "{}",
        report(&plan.out)
    );
    assert!(!folder.path().join("report").exists(), "nothing is written in vain");
}

#[test]
fn a_report_compares_labels_of_several_files() {
    let (server, folder) = (Server::new(), TempDir::new().unwrap());
    let urls = [server.url("/size/50"), server.url("/size/100000"), server.url("/closed")];
    let lard =
        ProbePlan { label: "lard".to_owned(), turns_max: Some(3), ..plan(folder.path(), &urls) };
    let robin = ProbePlan {
        label: "round-robin".to_owned(),
        out: folder.path().join("other.db"),
        ..lard.clone()
    };
    run(&lard);
    run(&robin);
    let files = [lard.out.clone(), robin.out];
    let out = folder.path().join("a/report");
    let report = write_report(&files, &out, STEP_MS).unwrap();
    assert_eq!(report.files, [out.join("report.md"), out.join("time-by-size.svg")]);
    assert!(report.notes[0].contains("no samples of recorders"), "{:?}", report.notes);
    let svg = fs::read_to_string(out.join("time-by-size.svg")).unwrap();
    assert!(svg.contains("lard") && svg.contains("round-robin"), "both have a line");
    let page = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(page.contains("9 samples, 3 failed") && page.contains("3 closed"), "{page}");
    assert!(
        page.contains("| lard | 100000 B |") && page.contains("| round-robin | 50 B |"),
        "{page}"
    );
    assert!(page.contains("first byte") && page.contains("skipped"), "{page}");
}

#[test]
fn hours_of_light_and_heavy_load_have_figures_of_their_own() {
    let (server, folder) = (Server::new(), TempDir::new().unwrap());
    let plan = ProbePlan {
        turns_max: Some(2),
        ..plan(folder.path(), &[server.url("/size/50"), server.url("/size/5000")])
    };
    run(&plan);
    let file = Connection::open(&plan.out).unwrap();
    file.execute_batch(
        "UPDATE sample SET at_unix_ms = turn * 3600000;
         INSERT INTO recording VALUES (1, 'a', NULL, 1, 0, 60000, '0');
         INSERT INTO node_sample
           (recording, at_unix_ms, interval_ms, requests_in_flight_mean, cache_hits, cache_lookups)
         VALUES (1, 1, 60000, 0.5, 8, 10), (1, 3600001, 60000, 7.5, 3, 10);",
    )
    .unwrap();
    drop(file);
    let report = write_report(&[plan.out], &folder.path().join("r"), STEP_MS).unwrap();
    assert_eq!(report.notes, [""; 0]);
    let names: Vec<_> = report.files.iter().filter_map(|it| it.file_name()?.to_str()).collect();
    let times = ["time-by-size.svg", "time-by-size-light.svg", "time-by-size-heavy.svg"];
    let nodes = ["hits-light.svg", "hits-heavy.svg", "load-light.svg", "load-heavy.svg"];
    assert_eq!(names, [&["report.md"][..], &times, &nodes].concat());
    let page = fs::read_to_string(folder.path().join("r/report.md")).unwrap();
    assert!(page.contains("| test | light | 80.00 | 0.50 |"), "{page}");
    assert!(page.contains("| test | heavy | 30.00 | 7.50 |"), "{page}");
    assert!(page.contains("| test | all | 55.00 | 4.00 |"), "{page}");
}

#[test]
fn a_file_that_another_process_has_locked_for_a_while_ends_no_run() {
    let (server, folder) = (Server::new(), TempDir::new().unwrap());
    let plan = ProbePlan { turns_max: Some(4), ..plan(folder.path(), &[server.url("/size/7")]) };
    let mut other = None;
    let (_, samples) = run_until(&plan, std::future::pending(), |sample| match sample.turn {
        0 => {
            let file = Connection::open(&plan.out).unwrap();
            file.execute_batch("BEGIN IMMEDIATE").unwrap();
            other = Some(file);
        }
        3 => other.take().unwrap().execute_batch("COMMIT").unwrap(),
        _ => {}
    })
    .unwrap();
    let rows: Vec<Value> = exported(&plan.out, ExportFormat::Json)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        rows.iter().filter_map(|row| row["turn"].as_u64()).collect::<Vec<_>>(),
        [0, 1, 2, 3]
    );
    assert_eq!(samples.len(), 4);
}

#[test]
fn a_run_that_ends_early_still_says_what_it_has_measured() {
    let (server, folder) = (Server::new(), TempDir::new().unwrap());
    let plan = ProbePlan { turns_max: None, ..plan(folder.path(), &[server.url("/size/7")]) };
    let spoil = |sample: &ProbeSample| {
        if sample.turn == 1 {
            Connection::open(&plan.out).unwrap().execute_batch("DROP TABLE sample").unwrap();
        }
    };
    let outcome = outcome(&plan, std::future::pending(), spoil).unwrap();
    assert_eq!((outcome.summary.urls[0].samples, outcome.samples_lost), (2, 1));
    let fault = outcome.fault.unwrap().to_string();
    assert!(fault.contains("samples.db") && fault.contains("no such table"), "{fault}");
}

/// It can be copied, and read on a read-only file system.
#[test]
fn a_run_that_has_ended_leaves_one_file() {
    let (server, folder) = (Server::new(), TempDir::new().unwrap());
    let plan = plan(folder.path(), &[server.url("/size/7")]);
    run(&plan);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let file = Connection::open(&plan.out).unwrap();
    let mode: String = file.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
    assert_eq!(mode, "delete");
}

#[test]
fn a_file_of_another_program_keeps_its_log() {
    let folder = TempDir::new().unwrap();
    let plan = plan(folder.path(), &["http://127.0.0.1:1/".to_owned()]);
    let other = Connection::open(&plan.out).unwrap();
    other.pragma_update(None, "journal_mode", "WAL").unwrap();
    other.execute_batch("CREATE TABLE birds (name TEXT)").unwrap();
    // The state of the file after its program was killed.
    let copy = folder.path().join("copy.db");
    for end in ["", "-wal"] {
        let name = |path: &Path| format!("{}{end}", path.display());
        fs::copy(name(&plan.out), name(&copy)).unwrap();
    }
    let files = || -> Vec<_> {
        let names = fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().path());
        let mut files: Vec<_> = names.filter(|it| it.to_str().unwrap().contains("copy")).collect();
        files.sort();
        files.into_iter().map(|it| (fs::read(&it).unwrap(), it)).collect()
    };
    let before = files();
    let copied = ProbePlan { out: copy.clone(), ..plan.clone() };
    assert!(refusal(&copied).contains("another program"), "{}", refusal(&copied));
    let error = export_samples(&copy, ExportFormat::Csv, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("another program"), "{error}");
    assert_eq!(files(), before);
}

#[test]
fn names_that_mean_something_to_sqlite_are_names_of_files() {
    let (server, folder) = (Server::new(), TempDir::new().unwrap());
    let mut plan = plan(folder.path(), &[server.url("/size/7")]);
    plan.out = ":memory:".into();
    assert!(refusal(&plan).contains("it would keep nothing"), "{}", refusal(&plan));
    // SQLite would open a database in memory.
    plan.out = "file:/no/such/folder/a.db?mode=memory".into();
    let said = refusal(&plan);
    assert!(said.contains("expected a folder"), "{said}");
    plan.out = folder.path().join("file:a.db?mode=memory");
    run(&plan);
    assert!(plan.out.exists());
}

#[test]
fn damaged_files_are_said_to_be_damaged() {
    let (server, folder) = (Server::new(), TempDir::new().unwrap());
    let plan = plan(folder.path(), &[server.url("/size/7")]);
    run(&plan);
    let whole = fs::read(&plan.out).unwrap();
    for length in [50, whole.len() / 2] {
        fs::write(&plan.out, &whole[..length]).unwrap();
        let error = export_samples(&plan.out, ExportFormat::Csv, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("the file is damaged"), "{length}: {error}");
    }
}

#[test]
fn a_report_says_what_its_times_leave_out_and_counts_no_file_twice() {
    let (server, folder) = (Server::new(), TempDir::new().unwrap());
    let plan = plan(folder.path(), &[server.url("/size/50")]);
    run(&plan);
    let file = Connection::open(&plan.out).unwrap();
    file.execute("UPDATE run SET turns_skipped = 5", []).unwrap();
    drop(file);
    let [link, empty] = ["link.db", "empty.db"].map(|name| folder.path().join(name));
    std::os::unix::fs::symlink(&plan.out, &link).unwrap();
    fs::write(&empty, "").unwrap();
    let out = folder.path().join("report");
    let report = write_report(&[plan.out.clone(), link, empty.clone()], &out, STEP_MS).unwrap();
    let notes = report.notes.join("\n");
    assert!(notes.contains("link.db: named twice, counted once"), "{notes}");
    assert!(notes.contains("empty.db: skipped, it has no samples"), "{notes}");
    let page = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(page.contains("1 sample, 0 failed, 5 turns skipped"), "{page}");
    assert!(page.contains("Failures and skipped turns have no times"), "{page}");
    assert!(write_report(&[empty], &out, STEP_MS).unwrap_err().to_string().contains("found none"));
}

#[test]
fn a_report_of_a_target_that_was_only_down_says_so() {
    let (server, folder) = (Server::new(), TempDir::new().unwrap());
    let plan = plan(folder.path(), &[server.url("/closed")]);
    run(&plan);
    let out = folder.path().join("report");
    let report = write_report(&[plan.out], &out, STEP_MS).unwrap();
    assert_eq!(report.files, [out.join("report.md")]);
    let page = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(page.contains("No response was whole and of success"), "{page}");
    assert!(page.contains("| 1 closed |"), "{page}");
}

#[test]
fn a_report_replaces_an_earlier_one_and_nothing_else() {
    let (server, folder) = (Server::new(), TempDir::new().unwrap());
    let plan = plan(folder.path(), &[server.url("/size/50")]);
    run(&plan);
    let out = folder.path().join("report");
    let files = [plan.out];
    write_report(&files, &out, STEP_MS).unwrap();
    // From a report with loads; the next one has none.
    fs::write(out.join("time-by-size-light.svg"), "an earlier figure").unwrap();
    fs::write(out.join("mine.svg"), "a drawing").unwrap();
    write_report(&files, &out, STEP_MS).unwrap();
    assert!(!out.join("time-by-size-light.svg").exists() && out.join("mine.svg").exists());
    fs::write(out.join("report.md"), "# My notes\n").unwrap();
    fs::write(out.join("time-by-size.svg"), "my drawing").unwrap();
    let error = write_report(&files, &out, STEP_MS).unwrap_err().to_string();
    assert!(error.contains("expected an earlier report"), "{error}");
    assert_eq!(fs::read_to_string(out.join("report.md")).unwrap(), "# My notes\n");
    assert_eq!(fs::read_to_string(out.join("time-by-size.svg")).unwrap(), "my drawing");
}
