//! The recorder in real processes: a shared file of a cluster and a probe, and files that cannot be written.

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::slow::value;
use rustix::process::Signal;
use serde_json::Value;
use skep_tests::{FreePort, PATIENCE, Site, Skep, poll_until, run_to_end, skip};

/// Makes a folder that any user may write to: processes started by root serve as another user.
fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::TempDir::new().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    folder
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Returns the recorders' samples in a file; none if it does not exist yet.
fn recorded(path: &Path) -> Vec<Value> {
    let export = run_to_end(&["probe", "export", text(path), "--recorded", "--json"]);
    export.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A node that records to `file` ten times per second.
struct Node {
    skep: Skep,
    metrics: FreePort,
}

impl Node {
    fn start(site: &Site, file: &Path) -> Self {
        let metrics = FreePort::claim();
        let skep = Skep::node_of(&format!(
            "root = \"{}\"\n[recorder]\nfile = \"{}\"\ninterval_ms = 100\n[metrics]\nlisten = \"{}\"",
            site.root().display(),
            file.display(),
            metrics.address()
        ));
        Self { skep, metrics }
    }

    fn metric(&self, name: &str) -> f64 {
        value(&self.metrics, name)
    }

    fn stored(&self) -> f64 {
        self.metric("skep_recorder_samples_total{fate=\"stored\"}")
    }

    fn faults(&self, kind: &str) -> f64 {
        self.metric(&format!("skep_recorder_faults_total{{kind=\"{kind}\"}}"))
    }

    fn answers(&self) {
        assert_eq!(self.skep.connect().get("/a").assert_status(200).text(), "a");
    }
}

#[test]
fn a_cluster_and_a_probe_write_one_file_and_a_report_draws_it() {
    let (site, folder) = (Site::new().with("50.bin", "x".repeat(50)), open_folder());
    let (file, report) = (folder.path().join("all.db"), folder.path().join("report"));
    let mut skep = Skep::up(
        site.root(),
        &[
            "--dispatch",
            "redirect",
            "--nodes",
            "2",
            "--node-header",
            "--admin",
            "off",
            "--record",
            text(&file),
            "--record-interval",
            "100ms",
        ],
    );
    let url = format!("http://{}/50.bin", skep.address());
    let line = ["probe", "run", &url, "--out", text(&file), "--interval", "100ms", "--count", "6"];
    let run = run_to_end(&[&line[..], &["--json", "--label", "robin"]].concat());
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    // The node's own name, not the address of the redirect.
    assert!(run.stdout.contains("\"node\":\"node-1\""), "{}", run.stdout);
    skep.signal(Signal::INT);
    skep.wait_exit(PATIENCE);
    let samples = recorded(&file);
    for (name, is_node) in [("node-1", true), ("node-2", true), ("dispatcher", false)] {
        let of = |it: &&Value| it["name"] == name && it["is_node"] == is_node;
        let own: Vec<&Value> = samples.iter().filter(of).collect();
        let requests: u64 = own.iter().filter_map(|it| it["requests"].as_u64()).sum();
        assert!(requests >= 3, "{name}: {requests} of {} samples", own.len());
        assert!(own.iter().all(|it| it["memory_total_bytes"].as_u64() > Some(0)), "{own:?}");
        assert!(own.iter().all(|it| it["process_threads"].as_u64() > Some(0)), "{own:?}");
    }
    let line = ["probe", "report", text(&file), "--out", text(&report), "--step", "200ms"];
    let written = run_to_end(&line);
    assert_eq!((written.code, written.stderr.as_str()), (Some(0), ""));
    let page = fs::read_to_string(report.join("report.md")).unwrap();
    assert!(page.contains("| robin | all |"), "{page}");
    let csv = run_to_end(&["probe", "export", text(&file), "--recorded", "--csv"]);
    assert!(csv.stdout.starts_with("name,authority,is_node,at_unix_ms,interval_ms,cpus,"));
    assert_eq!(csv.stdout.lines().count(), samples.len() + 1);
}

#[test]
fn a_history_survives_a_restart_and_a_damaged_file_stops_nothing() {
    let (site, folder) = (Site::new().with("a", "a"), open_folder());
    let file = folder.path().join("a.db");
    let begin = || {
        let node = Node::start(&site, &file);
        poll_until(PATIENCE, "a sample is stored", || node.stored() > 0.0);
        node
    };
    let mut node = begin();
    node.skep.signal(Signal::TERM);
    node.skep.wait_exit(PATIENCE);
    let before = recorded(&file).len();
    let mut node = begin();
    node.skep.signal(Signal::TERM);
    node.skep.wait_exit(PATIENCE);
    assert!(recorded(&file).len() > before && before > 0);
    let length = file.metadata().unwrap().len();
    let damaged = fs::OpenOptions::new().write(true).open(&file).unwrap();
    damaged.write_all_at(&vec![0xa5; (length - 100) as usize], 100).unwrap();
    let node = begin();
    assert_eq!(node.faults("damaged"), 1.0);
    node.answers();
    assert!(node.skep.stderr_text().contains("a new file begins"), "{}", node.skep.stderr_text());
    assert_eq!(folder.path().join("a.db.damaged").metadata().unwrap().len(), length);
}

#[test]
fn a_file_of_somebody_else_is_left_alone_and_stops_nothing() {
    let (site, folder) = (Site::new().with("a", "a"), open_folder());
    let file = folder.path().join("notes");
    fs::write(&file, "no database ".repeat(100)).unwrap();
    let node = Node::start(&site, &file);
    poll_until(PATIENCE, "attempts are counted", || node.faults("foreign") > 1.0);
    node.answers();
    let said = node.skep.stderr_text();
    assert_eq!(said.matches("found a file that is no database").count(), 1, "{said}");
    assert_eq!(fs::read(&file).unwrap(), "no database ".repeat(100).as_bytes());
}

/// A disk of 16 KiB, which is enlarged later.
#[test]
fn a_full_disk_stops_nothing_and_samples_wait_for_room() {
    let (site, folder) = (Site::new().with("a", "a"), open_folder());
    let mount = |options: &str| {
        let options = ["-t", "tmpfs", "-o", options, "skep-test"];
        let done = Command::new("mount").args(options).arg(folder.path()).status();
        done.is_ok_and(|status| status.success())
    };
    if !mount("size=16k,mode=777") {
        return skip("mounting a small file system needs root");
    }
    let unmount = Unmount(folder.path().to_owned());
    let file = folder.path().join("a.db");
    let node = Node::start(&site, &file);
    poll_until(PATIENCE, "samples wait", || node.metric("skep_recorder_samples_waiting") > 1.0);
    assert!(node.faults("full") + node.faults("other") > 1.0);
    node.answers();
    assert!(mount("remount,size=4m,mode=777"), "a mounted file system can be made larger");
    poll_until(PATIENCE, "they are stored", || node.stored() > 1.0);
    assert_eq!(node.metric("skep_recorder_samples_total{fate=\"dropped\"}"), 0.0);
    drop(node);
    drop(unmount);
}

struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
