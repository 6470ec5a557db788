//! The command line: the output of `skep serve`, and its error messages.

use std::fs;

use skep_tests::{Finished, PATIENCE, Site, Skep, poll_until, run_to_end};

fn site() -> Site {
    Site::new().with("a.txt", "aaa")
}

/// Asserts an error for humans: an exit code, a reason, no internals.
#[track_caller]
fn assert_refused(finished: &Finished, code: i32, mentions: &[&str]) {
    let stderr = &finished.stderr;
    assert_eq!(finished.code, Some(code), "{stderr}");
    for text in mentions {
        assert!(stderr.contains(text), "{text:?} in:\n{stderr}");
    }
    assert!(!stderr.contains("panicked"), "{stderr}");
    assert!(finished.stdout.is_empty(), "{}", finished.stdout);
}

#[test]
fn the_ready_line_is_as_documented_and_alone() {
    let site = site();
    let root = site.root().to_str().unwrap();
    let skep = Skep::serve(site.root(), &[]);
    let expected = format!("skep: serving {root} on http://{}\n", skep.address());
    assert_eq!(skep.stdout_text(), expected);
    assert_ne!(skep.address().port(), 0);
    skep.connect().get("/a.txt").assert_status(200);
}

#[test]
fn ipv6_addresses_stand_in_brackets() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return skep_tests::skip("this machine has no IPv6");
    }
    let site = site();
    let skep = Skep::serve(site.root(), &["--listen", "[::1]:0"]);
    assert!(skep.stdout_text().contains(" on http://[::1]:"), "{}", skep.stdout_text());
    skep.connect().get("/a.txt").assert_status(200);
}

#[test]
fn help_and_version_are_answers_not_errors() {
    let help = run_to_end(&["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    for word in ["serve", "up", "run", "status", "config"] {
        assert!(help.stdout.contains(word), "{word} in:\n{}", help.stdout);
    }
    let help = run_to_end(&["serve", "--help"]);
    assert_eq!(help.code, Some(0));
    for option in ["--listen", "--cache-size", "--threads", "--access-log"] {
        assert!(help.stdout.contains(option), "{option} in:\n{}", help.stdout);
    }
    let version = run_to_end(&["--version"]);
    assert_eq!(version.code, Some(0));
    assert!(version.stdout.starts_with("skep "), "{}", version.stdout);
}

#[test]
fn wrong_usage_is_code_2_and_names_the_word() {
    let site = site();
    let root = site.root().to_str().unwrap();
    assert_refused(&run_to_end(&["sevre"]), 2, &["sevre"]);
    assert_refused(&run_to_end(&["serve"]), 2, &["DIR"]);
    assert_refused(&run_to_end(&["serve", root, "--lisen", "x"]), 2, &["--lisen"]);
    assert_refused(&run_to_end(&["serve", root, "--listen", "nonsense"]), 2, &["nonsense"]);
    assert_refused(&run_to_end(&["serve", root, "--listen", "127.0.0.1:99999"]), 2, &["99999"]);
    assert_refused(&run_to_end(&["serve", root, "--cache-size", "many"]), 2, &["many"]);
    assert_refused(&run_to_end(&["serve", root, "--cache-size", "12XB"]), 2, &["12XB"]);
    assert_refused(&run_to_end(&["serve", root, "--threads", "-1"]), 2, &["-1"]);
    assert_refused(&run_to_end(&["serve", root, "--threads", "x"]), 2, &["x"]);
}

#[test]
fn what_an_option_may_not_be_is_said_by_its_name() {
    let site = site();
    let root = site.root().to_str().unwrap();
    for (option, value, bound) in
        [("--cache-size", "1KiB", "1MiB"), ("--threads", "5000", "1024"), ("--spa", "x", "/")]
    {
        let finished = run_to_end(&["serve", root, option, value]);
        assert_refused(&finished, 1, &[option, value, bound]);
        assert!(!finished.stderr.contains("built in code"), "{}", finished.stderr);
    }
    let finished = run_to_end(&["up", root, "--threads", "5000"]);
    assert_refused(&finished, 1, &["--threads", "5000", "1024"]);
    assert!(!finished.stderr.contains("built in code"), "{}", finished.stderr);
}

#[test]
fn no_command_shows_the_help() {
    let finished = run_to_end(&[]);
    assert_eq!(finished.code, Some(2));
    assert!(finished.stderr.contains("serve") || finished.stdout.contains("serve"));
}

#[test]
fn threads_are_as_many_as_asked() {
    let site = site();
    for threads in ["1", "3"] {
        let skep = Skep::serve(site.root(), &["--threads", threads]);
        for _ in 0..20 {
            skep.connect().get("/a.txt").assert_status(200);
        }
    }
}

#[test]
fn the_access_log_has_a_combined_line_for_each_request() {
    let (site, logs) = (site(), Site::new());
    let path = logs.path("access.log");
    let skep = Skep::serve(site.root(), &["--access-log", path.to_str().unwrap()]);
    let mut client = skep.connect();
    let fields = [("Referer", "http://from/"), ("User-Agent", "probe/1 \"x\"\\")];
    client.request("GET", "/a.txt?q=1", &fields).assert_status(200);
    client.request("HEAD", "/none", &[]).assert_status(404);
    client.send("nonsense\r\n\r\n").response().assert_status(400);
    let lines = || -> Vec<String> {
        let text = fs::read_to_string(&path).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    poll_until(PATIENCE, "two lines", || lines().len() >= 2);
    let lines = lines();
    let (before, after) = lines[0].split_once('[').unwrap();
    assert_eq!(before, "127.0.0.1 - - ");
    let (date, after) = after.split_once("] ").unwrap();
    assert!(date.len() == 26 && date.ends_with(" +0000"), "{date}");
    assert_eq!(after, r#""GET /a.txt?q=1 HTTP/1.1" 200 3 "http://from/" "probe/1 \x22x\x22\x5C""#);
    assert!(lines[1].contains(r#""HEAD /none HTTP/1.1" 404 0 "-" "-""#), "{}", lines[1]);
}

#[test]
fn the_last_lines_of_the_log_are_there_after_the_end() {
    const REQUESTS: usize = 500;
    let (site, logs) = (site(), Site::new());
    let path = logs.path("access.log");
    let mut skep = Skep::serve(site.root(), &["--access-log", path.to_str().unwrap()]);
    let mut client = skep.connect();
    for _ in 0..REQUESTS {
        client.get("/a.txt").assert_status(200);
    }
    skep.signal(rustix::process::Signal::TERM);
    skep.wait_exit(PATIENCE);
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), REQUESTS);
}

#[test]
fn an_access_log_that_cannot_be_opened_is_named() {
    let site = site();
    let root = site.root().to_str().unwrap();
    let arguments = ["serve", root, "--listen", "127.0.0.1:0", "--access-log", "/nonexistent/log"];
    assert_refused(&run_to_end(&arguments), 1, &["/nonexistent/log"]);
}

#[test]
fn a_good_config_is_said_to_be_good() {
    let folder = Site::new().with(
        "skep.toml",
        "[[node]]\nname = \"n1\"\naddress = \"127.0.0.1:8081\"\n[[site]]\npool = \"app\"\n\
         [[pool]]\nname = \"app\"\n",
    );
    let path = folder.path("skep.toml");
    let finished = run_to_end(&["config", "check", path.to_str().unwrap()]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let expected = format!("{}: ok (0 services, 1 node, 1 site, 1 pool)\n", path.display());
    assert_eq!(finished.stdout, expected);
}

#[test]
fn a_bad_config_is_refused_with_line_column_and_hint() {
    let folder = Site::new().with(
        "skep.toml",
        "[[node]]\nname = \"n1\"\nadress = \"127.0.0.1:8081\"\n[[site]]\nroot = \"/srv\"\n",
    );
    let path = folder.path("skep.toml");
    let path = path.to_str().unwrap();
    let finished = run_to_end(&["config", "check", path]);
    assert_refused(&finished, 1, &[&format!("{path}:3:1"), "adress", "address"]);
    let missing = folder.path("none.toml");
    let missing = missing.to_str().unwrap();
    assert_refused(&run_to_end(&["config", "check", missing]), 1, &[missing]);
    assert_refused(&run_to_end(&["run", "--config", path]), 1, &[path]);
}
