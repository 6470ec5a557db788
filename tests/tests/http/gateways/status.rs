//! Status reports of pool servers: real Tomcat, real php-fpm, an application, and servers with useless
//! reports.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use serde_json::Value;
use skep_tests::app::{App, response};
use skep_tests::gateways::{
    JMX_USER, PhpFpm, PhpOptions, SECRET, STATUS_USER, Tomcat, secret_file_called,
};
use skep_tests::{FreePort, PATIENCE, RawClient, Site, Skep, poll_until, promtool};

use super::until_logged;

const TIMES: &str = "interval_ms = 100\ntimeout_ms = 100\n";

/// Returns the first server in `skep status --pools`.
fn server(skep: &Skep) -> Value {
    let shown = skep.command(&["status", "--pools", "--json"]);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    let nodes: Value = serde_json::from_str(&shown.stdout).unwrap();
    nodes[0]["pools"][0]["servers"][0].clone()
}

fn table(skep: &Skep) -> String {
    skep.command(&["status", "--pools"]).stdout
}

fn metrics(address: SocketAddr) -> String {
    RawClient::connect(address).get("/metrics").text()
}

/// Inserts `[pool.status]` after the pool's own lines, before its first server.
fn with_status(lines: &str, status: &str) -> String {
    lines.replacen("[[pool.server]]", &format!("[pool.status]\n{status}\n[[pool.server]]"), 1)
}

#[test]
fn a_tomcat_says_its_memory_threads_version_and_sessions() {
    let tomcat = Tomcat::start();
    let (folder, port) = (Site::guarded(), FreePort::claim());
    let of = |user: &str, more: &str| {
        let file = secret_file_called(&folder, "user", user);
        // A JVM that warms up on a busy machine may be late by a second.
        let status = format!(
            "agent = \"tomcat\"\ninterval_ms = \"2s\"\ntimeout_ms = \"2s\"\ncredentials_file = \"{}\"\n{more}",
            file.display()
        );
        with_status(&tomcat.lines("", SECRET), &status)
            + &format!("[metrics]\nlisten = \"{}\"\n", port.address())
    };
    let skep = Skep::node_of(&of(JMX_USER, "jmx = true"));
    // A client's session, created by the application.
    poll_until(PATIENCE, "the status has come", || server(&skep)["agent"]["version"].is_string());
    let agent = server(&skep)["agent"].clone();
    let version = agent["version"].as_str().unwrap();
    assert!(version.starts_with("Apache Tomcat/10."), "{agent}");
    let value = |name: &str| agent["values"][name].as_f64().unwrap_or(-1.0);
    assert!(value("memory_free_bytes") > 0.0, "{agent}");
    assert!(value("memory_total_bytes") >= value("memory_free_bytes"), "{agent}");
    assert!(value("memory_max_bytes") >= value("memory_total_bytes"), "{agent}");
    assert!(value("threads_busy") >= 1.0, "at least the one that answers: {agent}");
    assert!(value("threads_max") >= value("threads"), "{agent}");
    assert_eq!(agent["sessions"]["/manager"], 0, "{agent}");
    let text = metrics(port.address());
    let labels = "{pool=\"java\",server=\"s1\"";
    assert!(text.contains(&format!("skep_pool_server_agent_up{labels}}} 1\n")), "{text}");
    promtool::assert_clean(&text);
    let info = format!("skep_pool_server_agent_info{labels},version=\"{version}\"}} 1\n");
    assert!(text.contains(&info), "{text}");
    let threads = format!("skep_pool_server_agent_value{labels},name=\"threads_max\"}} 200\n");
    assert!(text.contains(&threads), "{text}");
    let shown = table(&skep);
    assert!(shown.contains(&format!("  s1 is {version}\n")), "{shown}");
    assert!(shown.contains("memory free "), "{shown}");
    // A user with read access gets memory and threads only.
    skep.reconfigure_of(&of(STATUS_USER, ""));
    assert_eq!(skep.command(&["reload"]).code, Some(0));
    let is_less = || {
        let agent = server(&skep)["agent"].clone();
        agent["values"]["threads_max"].is_number() && agent["version"].is_null()
    };
    poll_until(PATIENCE, "another user has asked", is_less);
    // Problems with the user are reported, and the server continues to serve.
    for (user, more, why) in [
        ("status:wrong", "", "status 401 for /manager/status: wrong credentials"),
        (STATUS_USER, "jmx = true", "status 403 for /manager/jmxproxy/: the user lacks the role"),
        (STATUS_USER, "path = \"/manager/nothing\"", "status 404"),
    ] {
        skep.reconfigure_of(&of(user, more));
        assert_eq!(skep.command(&["reload"]).code, Some(0));
        let said = || server(&skep)["agent"]["error"].as_str().is_some_and(|it| it.contains(why));
        poll_until(PATIENCE, why, said);
        assert_eq!(server(&skep)["state"], "up");
        skep.connect().get("/told").assert_status(200);
    }
}

#[test]
fn php_fpm_says_its_processes_and_queue() {
    let php = PhpFpm::start(PhpOptions::default());
    let skep = Skep::node_of(&with_status(
        &php.lines("", ""),
        &format!("agent = \"php-fpm\"\n{}", TIMES.replace("= 100", "= \"1s\"")),
    ));
    // All workers count as active at their start, and one that answers health checks does so occasionally.
    let mut agent = Value::Null;
    poll_until(PATIENCE, "all but one are idle", || {
        agent = server(&skep)["agent"].clone();
        agent["values"]["processes_idle"] == 2.0
    });
    assert_eq!(agent["error"], Value::Null);
    let value = |name: &str| agent["values"][name].as_f64();
    assert_eq!(value("processes"), Some(3.0), "{agent}");
    assert_eq!(value("processes_active"), Some(1.0), "{agent}");
    assert_eq!(value("listen_queue"), Some(0.0), "{agent}");
    for name in ["children_max_reached_total", "slow_requests_total", "requests_total"] {
        assert!(value(name).is_some(), "{name}: {agent}");
    }
    let shown = table(&skep);
    assert!(shown.contains("processes idle 2"), "{shown}");
}

/// A node with one HTTP server, which reports its status by `answer`.
fn of_app(app: &App, status: &str, more: &str) -> Skep {
    let settings = "[[pool]]\nname = \"app\"\nhealth.interval_ms = 100\nhealth.timeout_ms = 100\n";
    Skep::node_of(&format!(
        "pool = \"app\"\n{settings}[pool.status]\nagent = \"json\"\npath = \"/state\"\n{TIMES}{status}\n\
         [[pool.server]]\nname = \"s1\"\naddress = \"{}\"\n{more}",
        app.address()
    ))
}

#[test]
fn an_application_says_what_its_mapping_names_and_versions_that_differ_are_marked() {
    let says = |version: &'static str| {
        App::answering(move |request| match request.line() {
            "GET /state HTTP/1.1" => {
                assert_eq!(request.field("authorization"), Some("Basic YTpi"));
                let body =
                    format!("{{\"jobs\":{{\"waiting\":7}},\"ok\":true,\"v\":\"{version}\"}}");
                response(200, "Content-Type: application/json\r\n", body)
            }
            _ => response(200, "", "ok"),
        })
    };
    let (one, two) = (says("1.0"), says("1.1"));
    let folder = Site::guarded();
    let user = secret_file_called(&folder, "user", "a:b");
    let status = format!(
        "credentials_file = \"{}\"\nvalues = {{ queue = \"/jobs/waiting\", ok = \"/ok\", version = \"/v\" }}",
        user.display()
    );
    // The second server has its status at another address.
    let plain = App::answering(|_| response(200, "", "ok"));
    let more = format!(
        "[[pool.server]]\nname = \"s2\"\naddress = \"{}\"\nstatus_address = \"{}\"\n",
        plain.address(),
        two.address()
    );
    let skep = of_app(&one, &status, &more);
    let pool = || {
        let shown = skep.command(&["status", "--pools", "--json"]).stdout;
        serde_json::from_str::<Value>(&shown).unwrap()[0]["pools"][0].clone()
    };
    poll_until(PATIENCE, "both have said it", || pool()["versions_differ"] == true);
    let agent = pool()["servers"][0]["agent"].clone();
    assert_eq!(agent["values"]["queue"], 7.0);
    assert_eq!(agent["values"]["ok"], 1.0);
    let shown = table(&skep);
    assert!(shown.contains("  s1 is 1.0 (differs)\n"), "{shown}");
    assert!(shown.contains("  s2 is 1.1 (differs)\n"), "{shown}");
    assert!(shown.contains("queue 7"), "{shown}");
    // An added server is queried like the others, at the address in the command.
    let finished = skep.command(&[
        "pool",
        "add",
        "app",
        "s3",
        &says("1.1").address().to_string(),
        "--status-address",
        &one.address().to_string(),
    ]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let third = || pool()["servers"][2]["agent"]["version"] == "1.0";
    poll_until(PATIENCE, "the third has said it", third);
}

#[test]
fn a_server_that_says_nothing_of_use_serves_on() {
    let asked = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&asked);
    let app = App::start(move |conn| {
        while let Some(head) = conn.head() {
            if !head.starts_with("GET /state ") {
                conn.send(response(200, "", "ok"));
                continue;
            }
            match count.fetch_add(1, SeqCst) {
                // The last value is kept, with its age.
                0 => _ = conn.send(response(200, "", "{\"a\":1}")),
                1 => _ = conn.send(response(200, "", "{\"a\":\"text\"}")),
                2 => _ = conn.send(response(200, "", "<html>\x1b[31m")),
                3 => _ = conn.send(response(500, "", "{\"a\":1}")),
                4 => _ = conn.send("HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{"),
                5 => _ = conn.send("SSH-2.0-OpenSSH_9.2\r\n\r\n"),
                6 => {
                    conn.send("HTTP/1.1 200 OK\r\n\r\n\"");
                    while conn.send([b'x'; 65_536]) {}
                }
                7 => conn.wait_for_end(),
                _ => _ = conn.send(response(200, "", "{\"a\":2}")),
            }
            return;
        }
    });
    let skep = of_app(&app, "values = { a = \"/a\" }", "");
    let agent = || server(&skep)["agent"].clone();
    poll_until(PATIENCE, "it says it again", || agent()["values"]["a"] == 2.0);
    assert_eq!(agent()["error"], Value::Null);
    assert!(asked.load(SeqCst) >= 9);
    assert_eq!(server(&skep)["state"], "up");
    assert_eq!(server(&skep)["failures_total"], 0);
    assert_eq!(server(&skep)["requests_total"], 0, "questions count nowhere");
    skep.connect().get("/").assert_status(200);
    // Logged once per beginning of a failure, not per query.
    let log = skep.stderr_text();
    assert_eq!(log.matches("no status from server s1").count(), 1, "{log}");
    until_logged(&skep, "server s1 reports its status again");
}

#[test]
fn a_config_that_cannot_be_asked_is_refused() {
    let site = Site::new();
    let check = |pool: &str, status: &str| {
        let text = format!(
            "[[node]]\nname = \"n\"\naddress = \"127.0.0.1:80\"\n[[site]]\npool = \"p\"\n[[pool]]\n\
             name = \"p\"\n{pool}\n[pool.status]\n{status}\n"
        );
        site.write("skep.toml", text);
        let path = site.path("skep.toml");
        skep_tests::run_to_end(&["config", "check", path.to_str().unwrap()]).stderr
    };
    for (pool, status, expected) in [
        ("", "agent = \"json\"", "`path` in [pool.status]"),
        ("", "agent = \"php-fpm\"", "protocol = \"fastcgi\" in the pool"),
        ("", "agent = \"tomcat\"\nvalues = { a = \"/a\" }", "no `values`"),
        ("", "agent = \"json\"\npath = \"/a\"\njmx = true", "no `jmx`"),
        ("", "agent = \"json\"\npath = \"/a\"\nvalues = { a = \"a\" }", "begin with /"),
        ("", "agent = \"tomcat\"\ninterval_ms = 100\ntimeout_ms = 200", "at most interval_ms"),
        ("", "agent = \"jolokia\"", "tomcat"),
    ] {
        let said = check(pool, status);
        assert!(said.contains(expected), "{status}: {said}");
    }
}
