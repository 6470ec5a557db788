//! `skep bench replay` and `skep policy advise`: an access log replayed against a node, and in the simulator.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::Value;
use skep_tests::{Finished, Skep, run_to_end};

/// A folder with a log and a site.
struct Logged {
    folder: tempfile::TempDir,
}

impl Logged {
    fn new(log: &str) -> Self {
        let folder = tempfile::TempDir::new().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        fs::create_dir(folder.path().join("site")).unwrap();
        fs::write(folder.path().join("access.log"), log).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn replay(&self, url: &str, options: &str) -> Finished {
        let log = self.path("access.log");
        let line = ["bench", "replay", log.to_str().unwrap(), "--url", url];
        run_to_end(&[&line[..], &options.split_whitespace().collect::<Vec<_>>()].concat())
    }

    fn advise(&self, options: &str) -> Finished {
        let log = self.path("access.log");
        let line = ["policy", "advise", log.to_str().unwrap()];
        run_to_end(&[&line[..], &options.split_whitespace().collect::<Vec<_>>()].concat())
    }
}

fn json(ended: &Finished) -> Value {
    serde_json::from_str(&ended.stdout).unwrap()
}

fn line(second: u32, request: &str, answer: &str) -> String {
    let (minute, second) = (second / 60, second % 60);
    format!(
        "10.0.0.1 - - [10/Oct/2000:13:{minute:02}:{second:02} +0000] \"{request} HTTP/1.1\" {answer} \"-\" \"-\"\n"
    )
}

#[test]
fn a_log_is_asked_again_with_answers_like_its_own() {
    let log = [
        line(0, "GET /a.bin", "200 5000"),
        line(0, "HEAD /a.bin", "200 -"),
        line(1, "GET /a.bin", "206 1000"),
        line(1, "GET /a.bin", "304 -"),
        line(2, "GET /gone", "404 162"),
        line(2, "GET //a.bin", "404 162"),
        line(2, "GET /new", "200 10"),
        line(3, "POST /a.bin", "200 1"),
        line(3, "GET /\\xC3\\xA4 b", "200 7"),
        "no line of a log\n".to_owned(),
    ];
    let logged = Logged::new(&log.concat());
    fs::write(logged.path("site/a.bin"), [b'x'; 5_000]).unwrap();
    fs::write(logged.path("site/\u{e4} b"), "7 bytes").unwrap();
    let skep = Skep::serve(&logged.path("site"), &["--access-log", "-"]);
    let url = format!("http://{}", skep.address());
    let ended = logged.replay(&url, "--speed 100 --json");
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let report = json(&ended);
    // The file /new does not exist.
    assert_eq!((&report["succeeded"], &report["failed"]), (&7.into(), &1.into()), "{report}");
    assert_eq!(report["failures"]["status"], 1, "{report}");
    assert!(report["bytes"].as_u64().unwrap() >= 5_000 + 1_000 + 7, "{report}");
    let of_log = &report["log"];
    let left_out = (&of_log["malformed"], &of_log["other_methods"], &of_log["requests"]);
    assert_eq!(left_out, (&1.into(), &1.into(), &8.into()), "{report}");
    assert_eq!(of_log["malformed_first"][0]["line"], 10, "{report}");

    let plot = logged.path("a.svg");
    let options = format!("--speed 1000 --processes 2 --plot {}", plot.display());
    let ended = logged.replay(&url, &options);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    for words in
        ["access.log at http://", "1000 times as fast as logged", "requests     8, 1 failed"]
    {
        assert!(ended.stdout.contains(words), "{words}: {}", ended.stdout);
    }
    assert!(fs::read_to_string(plot).unwrap().contains("access.log: latency by percentile"));
}

#[test]
fn what_cannot_be_replayed_is_refused_with_the_reason() {
    let logged = Logged::new(&line(0, "GET /", "200 1"));
    let folder = logged.folder.path().to_str().unwrap();
    let url = "http://127.0.0.1:1";
    for (args, words) in [
        (vec!["bench", "replay", folder, "--url", url], "expected an access log, found a folder"),
        (vec!["bench", "replay", "/no/log", "--url", url], "cannot read /no/log"),
        (vec!["bench", "replay", "/dev/null", "--url", url], "found no line"),
        (vec!["policy", "advise", "/dev/null"], "found no line"),
        (vec!["policy", "advise", folder], "found a folder"),
    ] {
        let ended = run_to_end(&args);
        assert_eq!(ended.code, Some(1), "{args:?}");
        assert!(ended.stderr.contains(words), "{args:?}: {}", ended.stderr);
    }
    let ended = logged.replay(url, "");
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("refused"), "{}", ended.stderr);
    let years = line(0, "GET /", "200 1") + &line(0, "GET /", "200 1").replace("2000", "2001");
    fs::write(logged.path("access.log"), years).unwrap();
    let ended = logged.replay(url, "");
    assert!(ended.stderr.contains("say --speed"), "{}", ended.stderr);
}

/// Sixty objects of 1 MB, requested in random order, ten times per second.
fn larger_than_a_memory() -> String {
    let mut state = 1_u64;
    let mut log = String::new();
    for number in 0..2_000_u32 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let request = format!("GET /{}", (state >> 33) % 60);
        let _ = write!(log, "{}", line(number / 10, &request, "200 1000000"));
    }
    log
}

#[test]
fn a_site_is_advised_the_policy_that_keeps_it_in_memory() {
    let logged = Logged::new(&larger_than_a_memory());
    let svg = logged.path("a.svg");
    let policies = "round-robin,maglev-url,lard,random,power-of-two";
    let options = format!("--nodes 4 --memory 20MiB --policies {policies} --repetitions 3");
    let ended = logged.advise(&format!("{options} --json --svg {}", svg.display()));
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let advice = json(&ended);
    let chosen = advice["recommended"].as_str().unwrap();
    assert!(["maglev-url", "lard"].contains(&chosen), "{advice}");
    assert_eq!((&advice["is_change"], &advice["current"]), (&true.into(), &"round-robin".into()));
    assert!(fs::read_to_string(svg).unwrap().contains(&format!("choose {chosen}")));
    assert_eq!(advice["policies"].as_array().unwrap().len(), 5);

    let ended = logged.advise(&options);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.contains(&format!("\nChoose {chosen}: ")), "{}", ended.stdout);
    assert!(ended.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ended.stdout);

    let config = logged.path("skep.toml");
    fs::write(
        &config,
        "[[dispatcher]]\nname = \"d\"\n[[node]]\nname = \"a\"\naddress = \"127.0.0.1:1\"\nweight = 3\n\
         [[node]]\nname = \"b\"\naddress = \"127.0.0.1:2\"\n[cache]\nsize_bytes_max = \"20MiB\"\n\
         [[service]]\nname = \"web\"\nlisten = [\"127.0.0.1:3\"]\ndispatch = \"redirect\"\npolicy = \"random\"\n\
         [[site]]\nroot = \"site\"\n",
    )
    .unwrap();
    let options = format!("--config {} --repetitions 2 --json", config.display());
    let ended = logged.advise(&options);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let advice = json(&ended);
    let (cluster, nodes) = (&advice["cluster"], &advice["cluster"]["nodes"]);
    assert_eq!((&cluster["dispatch"], &advice["current"]), (&"redirect".into(), &"random".into()));
    assert_eq!((&nodes[0]["weight"], &nodes[1]["weight"]), (&3.into(), &1.into()));
    assert_eq!(nodes[0]["memory_bytes"], 20 << 20);
    let ended = logged.advise(&format!("{options} --service shop"));
    assert!(ended.stderr.contains("no service shop; known: web"), "{}", ended.stderr);
}
