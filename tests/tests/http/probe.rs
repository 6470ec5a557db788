//! `skep probe` against Skep: what it measures of a cluster, its output, and what it refuses.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use skep_tests::{PATIENCE, Site, Skep, holds_within, poll_until, run_to_end};

/// Sizes of the files of a site, as in the paper but fewer.
const SIZES: [usize; 3] = [50, 6_400, 1_000_000];

fn site() -> Site {
    SIZES
        .iter()
        .fold(Site::new(), |site, size| site.with(&format!("{size}.bin"), vec![b'x'; *size]))
}

/// A folder for the files of a probe, outside the site.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Parses the JSON lines of a run: its samples, and its summary at the end.
fn samples(stdout: &str) -> (Vec<Value>, Value) {
    let mut lines: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = lines.pop().unwrap();
    (lines, last["summary"].clone())
}

#[test]
fn redirects_of_a_dispatcher_are_measured_and_nodes_named() {
    let (site, folder) = (site(), Folder::new());
    let skep = Skep::up(site.root(), &["--dispatch", "redirect", "--nodes", "2", "--admin", "off"]);
    let urls: String =
        SIZES.iter().map(|size| format!("http://{}/{size}.bin\n", skep.address())).collect();
    fs::write(folder.path("list"), urls).unwrap();
    let (list, out) = (folder.path("list"), folder.path("a.db"));
    let run = run_to_end(&[
        "probe",
        "run",
        "--list",
        text(&list),
        "--out",
        text(&out),
        "--interval",
        "100ms",
        "--count",
        "2",
        "--label",
        "round-robin",
        "--json",
    ]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    let (samples, summary) = samples(&run.stdout);
    assert_eq!(samples.len(), 2 * SIZES.len());
    for (sample, size) in samples.iter().zip(SIZES.iter().cycle()) {
        assert_eq!(sample["failure"], Value::Null, "{sample}");
        assert_eq!((&sample["status"], &sample["redirects"]), (&200.into(), &1.into()), "{sample}");
        assert_eq!(sample["body_bytes"], *size, "{sample}");
        assert!(sample["redirect_us"].as_u64().unwrap() > 0, "{sample}");
        assert!(sample["node"].as_str().unwrap().starts_with("127.0.0.1:"), "{sample}");
    }
    assert_eq!(summary["urls"].as_array().unwrap().len(), SIZES.len());
    let report = folder.path("report");
    let written = run_to_end(&["probe", "report", text(&out), "--out", text(&report)]);
    assert_eq!((written.code, written.stderr.as_str()), (Some(0), ""));
    assert!(
        written.stdout.contains("skipped, the files have no samples of recorders"),
        "{}",
        written.stdout
    );
    let page = fs::read_to_string(report.join("report.md")).unwrap();
    assert!(page.contains("6 samples, 0 failed") && page.contains("| round-robin | 1000000 B |"));
    let csv = run_to_end(&["probe", "export", text(&out), "--csv"]);
    assert_eq!((csv.code, csv.stdout.lines().count()), (Some(0), 7));
}

#[test]
fn a_node_that_goes_is_a_row_and_ctrl_c_ends_with_a_summary() {
    let (site, folder) = (site(), Folder::new());
    let mut node = Skep::serve(site.root(), &[]);
    let (url, out) = (format!("http://{}/50.bin", node.address()), folder.path("a.db"));
    let probe = Skep::start(&["probe", "run", &url, "--out", text(&out), "--interval", "100ms"]);
    poll_until(PATIENCE, "a sample", || probe.stdout_text().contains(" 200 "));
    node.signal(Signal::TERM);
    node.wait_exit(PATIENCE);
    poll_until(PATIENCE, "a failure", || probe.stdout_text().contains(" refused "));
    probe.signal(Signal::INT);
    let ended = probe.finish();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(lines[0].starts_with("UTC") && lines[0].ends_with("URL (times in ms)"), "{lines:?}");
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:?}");
    let measured =
        lines.iter().filter(|line| line.contains(" 200 ") || line.contains(" refused ")).count();
    let last = lines.last().unwrap();
    assert!(last.starts_with(&format!("{measured} samples in ")), "{lines:?}");
    assert!(ended.stdout.contains("failed refused: http://127.0.0.1"), "{lines:?}");
}

#[test]
fn what_makes_no_sense_is_refused_in_a_sentence() {
    let folder = Folder::new();
    let path = |name: &str| text(&folder.path(name)).to_owned();
    fs::write(folder.path("comments"), "# none\n").unwrap();
    fs::write(folder.path("wrong"), "http://a/\nwww.example.org\n").unwrap();
    fs::write(folder.path("notes"), "no database ".repeat(100)).unwrap();
    fs::write(folder.path("empty.db"), "").unwrap();
    let (db, url) = (path("a.db"), "http://127.0.0.1:1/");
    for (line, code, words) in [
        (vec!["run"], 2, vec!["<URL>"]),
        (vec!["run", "gopher://a/"], 2, vec!["expected http://", "the scheme \"gopher\""]),
        (vec!["run", "--list", &path("none")], 1, vec!["cannot read the list", "none"]),
        (
            vec!["run", "--list", &path("comments"), "--out", &db],
            1,
            vec!["expected one URL a line"],
        ),
        (vec!["run", "--list", &path("wrong"), "--out", &db], 1, vec!["line 2", "no scheme"]),
        (vec!["run", url, "--out", &path("no/a.db")], 1, vec!["expected a folder that exists"]),
        (vec!["run", url, "--out", &path("notes")], 1, vec!["no database", "name another file"]),
        (vec!["run", url, "--ca", &path("notes"), "--out", &db], 1, vec!["PEM", "found none"]),
        (vec!["report", &db], 1, vec!["no such file", "skep probe run"]),
        (vec!["report", &path("empty.db")], 1, vec!["expected samples of a probe, found none"]),
        (vec!["export", &path("notes")], 1, vec!["expected samples of `skep probe run`"]),
    ] {
        let ended = run_to_end(&[&["probe"], &line[..]].concat());
        assert_eq!(ended.code, Some(code), "{line:?}: {}", ended.stderr);
        for word in words {
            assert!(ended.stderr.contains(word), "{line:?}: {word:?} in {}", ended.stderr);
        }
        assert!(!ended.stdout.contains("200") && !ended.stderr.contains("panicked"), "{line:?}");
    }
}

#[test]
fn https_needs_certificates_to_verify_by_and_http_does_not() {
    let (site, folder) = (site(), Folder::new());
    let node = Skep::serve(site.root(), &[]);
    fs::create_dir(folder.path("none")).unwrap();
    fs::write(folder.path("empty.pem"), "").unwrap();
    let probe = |url: &str| {
        let out = folder.path("a.db");
        let mut command = Command::new(Skep::binary());
        command.args(["probe", "run", url, "--count", "1", "--out", text(&out)]);
        // A machine without CA certificates.
        command
            .env("SSL_CERT_FILE", folder.path("empty.pem"))
            .env("SSL_CERT_DIR", folder.path("none"));
        Skep::start_command(&mut command).finish()
    };
    let refused = probe("https://127.0.0.1:1/");
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    assert!(
        refused.stderr.contains("install ca-certificates, or name yours"),
        "{}",
        refused.stderr
    );
    let measured = probe(&format!("http://{}/50.bin", node.address()));
    assert!(measured.code == Some(0) && measured.stdout.contains(" 200 "), "{measured:?}");
}

/// As behind `| less`, which does not read the output. The first signal ends the run in an orderly way, or
/// the second one at once.
#[test]
fn an_output_that_nobody_reads_keeps_no_process() {
    let (site, folder) = (site(), Folder::new());
    let skep = Skep::serve(site.root(), &[]);
    let url = format!("http://{}/50.bin", skep.address());
    fs::write(folder.path("list"), format!("{url}\n").repeat(2_000)).unwrap();
    let (list, out) = (folder.path("list"), folder.path("a.db"));
    let mut run = Command::new(Skep::binary())
        .args(["probe", "run", "--list", text(&list), "--out", text(&out), "--interval", "1s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _unread = run.stdout.take().unwrap();
    poll_until(PATIENCE, "samples are stored", || {
        let export = run_to_end(&["probe", "export", text(&out), "--csv"]);
        export.code == Some(0) && export.stdout.lines().count() > 500
    });
    for _ in 0..2 {
        let id = Pid::from_child(&run);
        kill_process(id, Signal::INT).unwrap();
        if holds_within(Duration::from_secs(10), || run.try_wait().unwrap().is_some()) {
            break;
        }
    }
    poll_until(PATIENCE, "it has ended", || run.try_wait().unwrap().is_some());
}
