//! Signals: draining, reloading, reopening the log.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

use rustix::process::Signal;
use skep_tests::content::{self, assert_same};
use skep_tests::{
    ClientError, Finished, FreePort, Load, PATIENCE, RawClient, Site, Skep, SourceAddress,
    UnreadLog, poll_until,
};

const MIB: usize = 1024 * 1024;
const LARGE: usize = 64 * MIB;

fn site() -> Site {
    Site::new().with("a.txt", "aaa").with_large("large", LARGE)
}

const SERVE: [&str; 3] = ["serve", "--listen", "127.0.0.1:0"];

/// Returns the command `skep serve` with this log; the folder must be appended.
fn serve(log: &UnreadLog) -> Command {
    let mut command = Command::new("sh");
    command.args(log.arguments()).arg(Skep::binary()).args(SERVE);
    command
}

fn is_refused(skep: &Skep) -> bool {
    matches!(RawClient::try_connect(skep.address()), Err(ClientError::Connect(_)))
}

#[test]
fn term_and_int_end_an_idle_server_with_code_0_and_free_the_port() {
    for signal in [Signal::TERM, Signal::INT] {
        let (site, port) = (site(), FreePort::claim());
        let mut skep = Skep::serve(site.root(), &["--listen", &port.address().to_string()]);
        let mut idle = skep.connect();
        idle.get("/a.txt").assert_status(200);
        skep.signal(signal);
        idle.assert_closed();
        assert_eq!(skep.wait_exit(PATIENCE).code(), Some(0), "{signal:?}");
        assert!(!skep.stderr_text().contains("panicked"), "{}", skep.stderr_text());
        TcpListener::bind(skep.address()).expect("the port is free");
    }
}

/// sd_notify(3), as required by `Type=notify` and `WatchdogSec=` of the unit.
#[test]
fn a_supervisor_learns_that_it_is_ready_well_and_stopping() {
    let (site, folder) = (site(), tempfile::tempdir().unwrap());
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    // Like systemd's: accessible to a process that has switched to its serving user.
    for (path, mode) in [(folder.path(), 0o755), (&*path, 0o777)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut command = Command::new(Skep::binary());
    command.args(["serve", "--listen", "127.0.0.1:0"]).arg(site.root());
    let mut skep = Skep::serve_command(command.env("NOTIFY_SOCKET", &path));
    let told = || {
        let mut bytes = [0; 64];
        let count = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..count]).trim_end().to_owned()
    };
    // The watchdog may have sent messages before the process was ready.
    while told() != "READY=1" {}
    assert_eq!([told(), told()], ["WATCHDOG=1", "WATCHDOG=1"]);
    skep.signal(Signal::TERM);
    while told() != "STOPPING=1" {}
    assert_eq!(skep.wait_exit(PATIENCE).code(), Some(0), "{}", skep.stderr_text());
}

#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    let (site, mut log) = (site(), UnreadLog::new());
    let mut skep = Skep::serve_command(serve(&log).arg(site.root()));
    log.fill();
    // Each of these writes to the log.
    skep.signal(Signal::HUP);
    skep.connect().get("/a.txt").assert_status(200);
    skep.signal(Signal::TERM);
    assert_eq!(skep.wait_exit(PATIENCE).code(), Some(0));
}

#[test]
fn a_failure_ends_a_process_whose_log_nobody_reads() {
    let (site, mut log) = (site(), UnreadLog::new());
    log.fill();
    let mut skep = Skep::start_command(serve(&log).arg(site.path("nowhere")));
    assert_eq!(skep.wait_exit(PATIENCE).code(), Some(1));
    // With a thread that writes messages, and a standard output that fails for the ready line.
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" > /dev/full", "sh"]).args(log.arguments());
    command.arg(Skep::binary()).args(SERVE).arg(site.root());
    let mut skep = Skep::start_command(&mut command);
    assert_eq!(skep.wait_exit(PATIENCE).code(), Some(1));
}

#[test]
fn signals_count_from_the_ready_line_on() {
    let site = site();
    for _ in 0..20 {
        let mut skep = Skep::serve(site.root(), &[]);
        skep.signal(Signal::HUP);
        skep.signal(Signal::TERM);
        let ended = skep.wait_exit(PATIENCE);
        assert_eq!(ended.code(), Some(0), "{ended}: {}", skep.stderr_text());
    }
}

#[test]
fn term_lets_replies_under_way_end_and_takes_no_new_ones() {
    let site = site();
    let mut skep = Skep::serve(site.root(), &["--cache-size", "8MiB"]);
    let mut client = skep.connect();
    client.ask("/large");
    client.try_head().unwrap().assert_status(200);
    skep.signal(Signal::TERM);
    poll_until(PATIENCE, "new clients are refused", || is_refused(&skep));
    assert!(!skep.has_exited(), "it left with a reply under way");
    let mut received = Vec::new();
    while received.len() < LARGE {
        let piece = client.try_read_some().unwrap();
        assert!(!piece.is_empty(), "cut off after {} bytes", received.len());
        received.extend(piece);
    }
    assert_same(&received, &content::version(1, LARGE));
    client.assert_closed();
    assert_eq!(skep.wait_exit(PATIENCE).code(), Some(0));
}

#[test]
fn term_waits_for_a_stalled_client_no_longer_than_configured() {
    let site = site();
    let mut skep = Skep::node(site.root(), "[timeouts]\ndrain_ms = \"300ms\"");
    let mut client = skep.connect();
    client.ask("/large");
    client.try_head().unwrap().assert_status(200);
    skep.signal(Signal::TERM);
    assert!(skep.wait_exit(PATIENCE).code().is_some(), "ended by itself, not by a signal");
}

#[test]
fn what_a_drain_waits_for_is_said() {
    let site = site();
    let skep = Skep::node(site.root(), "[timeouts]\ndrain_ms = \"2500ms\"");
    let source = SourceAddress::new();
    let mut clients = [source.connect(skep.address()), source.connect(skep.address())];
    for client in &mut clients {
        client.ask("/large");
        client.try_head().unwrap().assert_status(200);
    }
    let address = source.address();
    skep.signal(Signal::TERM);
    let waiting = format!("2 connections with a request in work: 2 of {address}; at most");
    poll_until(PATIENCE, "it says what it waits for", || skep.stderr_text().contains(&waiting));
    let Finished { code, stderr, .. } = skep.finish();
    assert!(code.is_some());
    let end = format!("drain time is over: 2 connections with a request in work: 2 of {address}");
    assert!(stderr.contains(&end), "{stderr}");
}

#[test]
fn term_under_load_cuts_no_reply() {
    const MIDDLING: usize = 2 * MIB;
    let site = site().with_large("middling", MIDDLING);
    let mut skep = Skep::serve(site.root(), &[]);
    let load = Load::on(skep.address())
        .get("/a.txt", "aaa")
        .get("/middling", content::version(1, MIDDLING))
        .threads(4)
        .start();
    load.wait_for_more(50);
    skep.signal(Signal::TERM);
    assert_eq!(skep.wait_exit(PATIENCE).code(), Some(0));
    let report = load.stop();
    // A request sent while an idle connection is being closed was never accepted; a reply that has begun must
    // be complete.
    for word in ["closed within the response", "wrong body", "malformed", "timeout"] {
        assert!(!report.failed.contains_key(word), "{report}");
    }
}

#[test]
fn hup_reopens_the_log_and_disturbs_nobody() {
    let (site, logs) = (site(), Site::new());
    let (path, rotated) = (logs.path("access.log"), logs.path("access.log.1"));
    let skep = Skep::serve(site.root(), &["--access-log", path.to_str().unwrap()]);
    let mut client = skep.connect();
    client.get("/a.txt?before").assert_status(200);
    let holds = |path, text| fs::read_to_string(path).unwrap_or_default().contains(text);
    poll_until(PATIENCE, "the line is there", || holds(&path, "/a.txt?before"));
    fs::rename(&path, &rotated).unwrap();
    skep.signal(Signal::HUP);
    poll_until(PATIENCE, "the new file is there", || path.exists());
    client.get("/a.txt?after").assert_status(200);
    poll_until(PATIENCE, "the line is in the new file", || holds(&path, "/a.txt?after"));
    assert!(!holds(&rotated, "/a.txt?after"));
}

fn header(value: &str) -> String {
    format!("headers = {{ \"X-Version\" = \"{value}\" }}")
}

fn shown(skep: &Skep) -> String {
    skep.connect().get("/a.txt").header("x-version").unwrap_or_default().to_owned()
}

#[test]
fn hup_puts_a_new_config_in_force() {
    let site = site();
    let skep = Skep::node(site.root(), &header("one"));
    let mut kept = skep.connect();
    kept.get("/a.txt").assert_header("x-version", "one");
    skep.reconfigure(site.root(), &header("two"));
    assert_eq!(shown(&skep), "one", "not before the signal");
    skep.signal(Signal::HUP);
    poll_until(PATIENCE, "the new config is in force", || shown(&skep) == "two");
    kept.get("/a.txt").assert_header("x-version", "two");
}

#[test]
fn a_hundred_reloads_under_load_fail_nothing() {
    let site = site();
    let skep = Skep::node(site.root(), &header("0"));
    let load = Load::on(skep.address()).get("/a.txt", "aaa");
    let kept = load.clone().threads(2).start();
    let fresh = load.threads(2).without_keep_alive().start();
    for n in 1..=100 {
        let version = n.to_string();
        skep.reconfigure(site.root(), &header(&version));
        skep.signal(Signal::HUP);
        poll_until(PATIENCE, "the new config is in force", || shown(&skep) == version);
        kept.wait_for_more(10);
        fresh.wait_for_more(10);
    }
    kept.stop().assert_clean();
    fresh.stop().assert_clean();
}

#[test]
fn reloads_leak_nothing() {
    let site = site();
    let skep = Skep::node(site.root(), &header("0"));
    let reload = |version: &str| {
        skep.reconfigure(site.root(), &header(version));
        skep.signal(Signal::HUP);
        poll_until(PATIENCE, "the new config is in force", || shown(&skep) == version);
    };
    (0..100).for_each(|n| reload(&n.to_string()));
    let fds = skep.open_fds();
    // A leak grows in each period; allocator pools grow in one.
    let grown = (1..=3u64).map(|period| {
        let before = skep.rss_bytes();
        (0..100).for_each(|n| reload(&(period * 100 + n).to_string()));
        skep.rss_bytes().saturating_sub(before)
    });
    let least = grown.min().unwrap_or(0);
    assert!(least < MIB as u64, "each 100 reloads left {least} bytes or more");
    poll_until(PATIENCE, "all descriptors are closed", || skep.open_fds() <= fds + 2);
}

#[test]
fn a_bad_config_is_refused_whole_and_the_old_one_stays() {
    let site = site();
    let skep = Skep::node(site.root(), &header("one"));
    let load = Load::on(skep.address()).get("/a.txt", "aaa").start();
    let bad = [
        ("not toml [", "skep.toml:1:"),
        ("cluster = 5", "skep.toml:1:"),
        ("clustr = \"x\"", "cluster"),
    ];
    for (text, expected) in bad {
        let heard = skep.stderr_text().len();
        skep.reconfigure_raw(text);
        skep.signal(Signal::HUP);
        poll_until(PATIENCE, &format!("a message about {text:?}"), || {
            skep.stderr_text()[heard..].contains(expected)
        });
        assert_eq!(shown(&skep), "one");
    }
    // One valid setting beside an invalid one: none of it is applied.
    skep.reconfigure(site.root(), &format!("{}\nunknown_key = 1", header("two")));
    let heard = skep.stderr_text().len();
    skep.signal(Signal::HUP);
    poll_until(PATIENCE, "a message about unknown_key", || {
        skep.stderr_text()[heard..].contains("unknown_key")
    });
    assert_eq!(shown(&skep), "one");
    skep.reconfigure(site.root(), &header("three"));
    skep.signal(Signal::HUP);
    poll_until(PATIENCE, "the repaired config is in force", || shown(&skep) == "three");
    load.stop().assert_clean();
}

#[test]
fn a_config_that_is_gone_is_refused_too() {
    let site = site();
    let skep = Skep::node(site.root(), &header("one"));
    skep.reconfigure(&site.path("no-such-root"), &header("two"));
    let heard = skep.stderr_text().len();
    skep.signal(Signal::HUP);
    poll_until(PATIENCE, "a message about the root", || {
        skep.stderr_text()[heard..].contains("no-such-root")
    });
    assert_eq!(shown(&skep), "one");
}

#[test]
fn kill_9_and_a_new_start_need_no_repair() {
    let (site, port) = (site(), FreePort::claim());
    let address = port.address().to_string();
    let mut skep = Skep::serve(site.root(), &["--listen", &address]);
    for _ in 0..3 {
        let mut client = skep.connect();
        client.get("/a.txt").assert_status(200);
        skep.signal(Signal::KILL);
        skep.wait_exit(PATIENCE);
        skep = Skep::serve(site.root(), &["--listen", &address]);
    }
    skep.connect().get("/a.txt").assert_status(200);
}
