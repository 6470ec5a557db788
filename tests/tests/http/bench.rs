//! `skep bench` against Skep: each workload, what it detects, and what it refuses.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;
use skep_tests::{Finished, PATIENCE, Skep, poll_until, run_to_end};

/// A served folder with the files of a workload.
struct Bench {
    folder: tempfile::TempDir,
    skep: Skep,
}

/// Scales a workload down to few small files.
const SCALE: &str = "0.002";

impl Bench {
    fn of(workload: &str) -> Self {
        let folder = tempfile::TempDir::new().unwrap();
        // If started as root, a node serves as another user.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let root = folder.path().join("site");
        let site = root.to_str().unwrap();
        let ended = run_to_end(&["bench", "data", workload, site, "--scale", SCALE]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{workload}");
        let skep = Skep::serve(&root, &[]);
        Self { folder, skep }
    }

    fn url(&self) -> String {
        format!("http://{}", self.skep.address())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn run(workload: &str, url: &str, options: &str) -> Finished {
    let line = ["bench", "run", workload, url, "--scale", SCALE, "--warm-up", "0s"];
    run_to_end(&[&line[..], &options.split(' ').collect::<Vec<_>>()].concat())
}

fn json(ended: &Finished) -> Value {
    serde_json::from_str(&ended.stdout).unwrap()
}

/// Returns the file that a workload requests first.
fn smallest(root: &Path) -> PathBuf {
    let mut files: Vec<PathBuf> = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.retain(|file| file.extension().is_some_and(|it| it == "bin"));
    files.into_iter().min_by_key(|file| fs::metadata(file).unwrap().len()).unwrap()
}

#[test]
fn each_workload_gets_its_bodies_from_a_node() {
    for (workload, options) in [
        ("webbench", "--requests 300 --clients 8"),
        ("surge", "--requests 300 --clients 8 --processes 2"),
        ("world-cup", "--duration 300ms --rate 500 --clients 8"),
        ("elastic-ramp", "--duration 300ms --clients 6"),
        ("elastic-ramp-unfriendly", "--duration 300ms --clients 6"),
    ] {
        let bench = Bench::of(workload);
        let ended = run(workload, &bench.url(), &format!("{options} --json"));
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{workload}");
        let report = json(&ended);
        assert_eq!(report["failed"], 0, "{report}");
        let succeeded = report["succeeded"].as_u64().unwrap();
        // In a closed loop the machine decides how many there are.
        let expected = match workload {
            "webbench" | "surge" => 300..=300,
            "world-cup" => 100..=200,
            _ => 1..=u64::MAX,
        };
        assert!(expected.contains(&succeeded), "{report}");
        // HTTP/1.0: one connection per request.
        let connections = report["connections"].as_u64().unwrap();
        assert_eq!(workload == "surge", connections == succeeded, "{report}");
    }
}

#[test]
fn a_portal_is_the_page_itself_and_the_plot_and_table_are_there() {
    let bench = Bench::of("surge");
    let page = smallest(&bench.path("site"));
    let page = page.strip_prefix(bench.path("site")).unwrap();
    let (url, plot) = (format!("{}/{}", bench.url(), page.display()), bench.path("a.svg"));
    let options = format!("--requests 60 --same-bodies --plot {}", plot.display());
    let ended = run("portal", &url, &options);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.contains("requests     60, 0 failed"), "{}", ended.stdout);
    assert!(ended.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ended.stdout);
    assert!(fs::read_to_string(plot).unwrap().contains("portal: latency by percentile"));
}

#[test]
fn redirects_of_a_dispatcher_are_followed() {
    let bench = Bench::of("surge");
    let options = ["--dispatch", "redirect", "--nodes", "2", "--admin", "off"];
    let skep = Skep::up(&bench.path("site"), &options);
    let url = format!("http://{}", skep.address());
    let ended = run("surge", &url, "--requests 100 --clients 4 --http 1.1 --json");
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let report = json(&ended);
    assert_eq!(
        (&report["succeeded"], &report["redirects"]),
        (&100.into(), &100.into()),
        "{report}"
    );
}

#[test]
fn a_wrong_byte_is_noticed() {
    let bench = Bench::of("surge");
    let popular = bench.path("site/surge/000/0.bin");
    let mut bytes = fs::read(&popular).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&popular, bytes).unwrap();
    let ended = run("surge", &bench.url(), "--requests 200 --clients 4 --json");
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    assert!(ended.stderr.contains("bodies are not what they must be"), "{}", ended.stderr);
    let report = json(&ended);
    assert!(report["wrong_bodies"].as_u64().unwrap() > 10, "{report}");
    let last = fs::metadata(&popular).unwrap().len() - 1;
    let example = report["examples"][0].as_str().unwrap();
    assert!(example.ends_with(&format!("/0.bin: byte {last} of the body is wrong")), "{example}");
}

#[test]
fn what_makes_no_sense_is_refused_in_a_sentence() {
    let bench = Bench::of("surge");
    let (url, new) = (bench.url(), bench.path("new"));
    let new = new.to_str().unwrap();
    for (line, code, words) in [
        (vec!["run", "surge", "http://127.0.0.1:1"], 1, "the connection was refused"),
        (
            vec!["run", "world-cup", &url],
            1,
            "expected the files of `skep bench data world-cup DIR`",
        ),
        (
            vec!["run", "surge", &url, "--scale", SCALE, "--seed", "2"],
            1,
            "the same --scale and --seed",
        ),
        (vec!["run", "surge", "https://127.0.0.1"], 2, "https is not supported yet"),
        (vec!["run", "specweb", &url], 2, "data-intensive"),
        (vec!["run", "surge", &url, "--rate", "0"], 2, "expected a number above 0"),
        (
            vec!["run", "surge", &url, "--duration", "1s", "--warm-up", "1s"],
            1,
            "leave nothing of --duration",
        ),
        (vec!["data", "data-intensive", new, "--scale", "1000"], 1, "choose a smaller --scale"),
        (vec!["data", "surge", "/etc"], 1, "expected an empty folder"),
        (vec!["data", "portal", new], 1, "portal has no files"),
    ] {
        let ended = run_to_end(&[&["bench"], &line[..]].concat());
        assert_eq!(ended.code, Some(code), "{line:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(words), "{line:?}: {}", ended.stderr);
        assert!(!ended.stderr.contains("panicked"), "{line:?}");
    }
    assert!(!Path::new(new).exists());
}

#[test]
fn ctrl_c_ends_with_a_report_over_all_processes() {
    let bench = Bench::of("surge");
    let log = bench.path("access.log");
    let skep = Skep::serve(&bench.path("site"), &["--access-log", log.to_str().unwrap()]);
    let url = format!("http://{}", skep.address());
    let line = ["bench", "run", "surge", &url, "--scale", SCALE, "--warm-up", "0s", "--json"];
    let load = Skep::start(&[&line[..], &["--clients", "4", "--processes", "2"]].concat());
    poll_until(PATIENCE, "requests of the load", || {
        fs::read_to_string(&log).is_ok_and(|text| text.lines().count() > 100)
    });
    load.signal(Signal::INT);
    let ended = load.finish();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let report = json(&ended);
    assert_eq!((&report["is_stopped"], &report["failed"]), (&true.into(), &0.into()), "{report}");
    assert!(report["succeeded"].as_u64().unwrap() > 50, "{report}");
}
