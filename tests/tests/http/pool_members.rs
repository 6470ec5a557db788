//! `skep pool add` and `skep pool remove`: servers are added and removed while requests are in progress.

use std::net::SocketAddr;
use std::thread;

use skep_tests::app::{App, response};
use skep_tests::{Finished, FreePort, PATIENCE, Skep, poll_until};

use super::pools::{Gate, pool_lines};

fn named(name: &'static str) -> App {
    App::answering(move |_| response(200, "", name))
}

fn config(servers: &[(SocketAddr, &str)]) -> String {
    let settings = "policy = \"round-robin\"\nhealth.interval_ms = 100\nhealth.timeout_ms = 100";
    format!("pool = \"app\"\n{}", pool_lines(settings, servers))
}

fn done(skep: &Skep, arguments: &[&str]) -> String {
    let finished = skep.command(arguments);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    finished.stdout
}

fn add(skep: &Skep, name: &str, address: SocketAddr, more: &[&str]) -> Finished {
    skep.command(&[&["pool", "add", "app", name, &address.to_string()], more].concat())
}

/// Returns the node's status of a server; null if it has none of that name.
fn server(skep: &Skep, name: &str) -> serde_json::Value {
    let listed = done(skep, &["pool", "list", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let servers = listed[0]["servers"].as_array().unwrap();
    servers.iter().find(|it| it["name"] == name).cloned().unwrap_or_default()
}

/// Returns the names of the answering servers, sorted.
fn answers(skep: &Skep) -> Vec<String> {
    let mut answers: Vec<_> = (0..6).map(|_| skep.connect().get("/").text()).collect();
    answers.sort_unstable();
    answers.dedup();
    answers
}

#[test]
fn a_server_that_is_added_is_checked_first_and_stays_through_reloads() {
    let (one, two) = (named("one"), named("two"));
    let late = FreePort::claim();
    let skep = Skep::node_of(&config(&[(one.address(), "")]));
    let text = done(&skep, &["pool", "add", "app", "x1", &late.address().to_string()]);
    assert_eq!(text, "x1: joining, pool app\n");
    poll_until(PATIENCE, "nobody is there", || server(&skep, "x1")["state"] == "down");
    assert_eq!(answers(&skep), ["one"]);
    let more = ["--weight", "3", "--connections-max", "700", "--connections-scope", "node"];
    assert_eq!(add(&skep, "x2", two.address(), &more).code, Some(0));
    poll_until(PATIENCE, "the second is in", || answers(&skep) == ["one", "two"]);
    let added = server(&skep, "x2");
    for (key, value) in [
        ("source", "api".into()),
        ("weight", 3.into()),
        ("connections_max", 700.into()),
        ("slots", serde_json::Value::from(700)),
    ] {
        assert_eq!(added[key], value, "{key}");
    }
    // The file changes the pool, but does not contain this server.
    skep.reconfigure_of(&config(&[(one.address(), "weight = 2")]));
    done(&skep, &["reload"]);
    let after = server(&skep, "x2");
    assert_eq!((&after["state"], &after["weight"]), (&"up".into(), &3.into()));
    assert_eq!(after["slots"], 700);
    // Once the file contains the server, the file determines its settings.
    let filed = config(&[(one.address(), "weight = 2")])
        + &format!("[[pool.server]]\nname = \"x2\"\naddress = \"{}\"\n", two.address());
    skep.reconfigure_of(&filed);
    done(&skep, &["reload"]);
    let taken = server(&skep, "x2");
    assert_eq!((&taken["source"], &taken["weight"]), (&"config".into(), &1.into()));
    assert_eq!((&taken["state"], &taken["slots"]), (&"up".into(), &256.into()));
    skep.reconfigure_of(&config(&[(one.address(), "")]));
    done(&skep, &["reload"]);
    poll_until(PATIENCE, "it goes with the file", || server(&skep, "x2").is_null());
}

#[test]
fn a_server_that_is_removed_ends_its_requests_and_does_not_come_back() {
    let gate = Gate::default();
    let shut = gate.clone();
    let slow = App::answering(move |_| {
        shut.pass();
        response(200, "", "slow")
    });
    let one = named("one");
    let skep = Skep::node_of(&config(&[(slow.address(), "")]));
    poll_until(PATIENCE, "it is up", || server(&skep, "s1")["state"] == "up");
    let mut waits = skep.connect();
    waits.ask("/");
    poll_until(PATIENCE, "one is in work", || server(&skep, "s1")["connections"] == 1);
    skep.reconfigure_of(&config(&[(slow.address(), ""), (one.address(), "")]));
    done(&skep, &["reload"]);
    poll_until(PATIENCE, "the other one is up", || server(&skep, "s2")["state"] == "up");
    let text = done(&skep, &["pool", "remove", "app", "s1"]);
    assert_eq!(text, "s1: removing, 1 request in work, pool app\n");
    assert_eq!(answers(&skep), ["one"]);
    let again = skep.command(&["pool", "resume", "app", "s1"]);
    assert!(again.code == Some(1) && again.stderr.contains("removed"), "{}", again.stderr);
    // The file still contains it.
    done(&skep, &["reload"]);
    assert_eq!(server(&skep, "s1")["state"], "removing");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            // The command returns when the server's last request has ended.
            done(&skep, &["pool", "remove", "app", "s1", "--wait"])
        });
        assert_eq!(server(&skep, "s1")["connections"], 1);
        gate.open();
        assert_eq!(waiting.join().unwrap(), "s1: removed\n");
    });
    assert_eq!(waits.response().text(), "slow");
    done(&skep, &["reload"]);
    assert!(server(&skep, "s1").is_null());
    // A command can add it again.
    assert_eq!(add(&skep, "s1", slow.address(), &[]).code, Some(0));
    poll_until(PATIENCE, "it is back", || server(&skep, "s1")["state"] == "up");
}

#[test]
fn what_cannot_be_added_or_removed_is_said() {
    let (one, two) = (named("one"), named("two"));
    let skep = Skep::node_of(&config(&[(one.address(), "")]));
    let refused = |arguments: &[&str], said: &str| {
        let finished = skep.command(arguments);
        assert!(finished.code == Some(1), "{arguments:?}: {}", finished.stdout);
        assert!(finished.stderr.contains(said), "{arguments:?}: {}", finished.stderr);
    };
    let (first, second) = (one.address().to_string(), two.address().to_string());
    refused(&["pool", "add", "ap", "x", &second], "the pools: app");
    refused(&["pool", "add", "app", "s1", &second], "s1");
    refused(&["pool", "add", "app", "x", &first], "s1");
    refused(&["pool", "add", "app", "a b", &second], "a b");
    refused(&["pool", "add", "app", "x", "0.0.0.0:80"], "no address that can be connected to");
    refused(&["pool", "remove", "app", "s7"], "pool app has no server \"s7\"");
    refused(&["pool", "remove", "app", "s1"], "the last server of pool app");
    let usage = skep.command(&["pool", "add", "app", "x", "localhost:80"]);
    assert!(usage.code == Some(2), "{}", usage.stderr);
    assert!(usage.stderr.contains("an IP address and a port"), "{}", usage.stderr);
    assert_eq!(answers(&skep), ["one"]);
    // With another server it is no longer the last one, but then the other one is.
    assert_eq!(add(&skep, "x", two.address(), &[]).code, Some(0));
    done(&skep, &["pool", "remove", "app", "s1", "--wait"]);
    refused(&["pool", "remove", "app", "x"], "the last server of pool app");
    poll_until(PATIENCE, "the other one answers", || answers(&skep) == ["two"]);
    // A reload would mistake it for that of the file.
    refused(&["pool", "add", "app", "s1", "127.0.0.1:9"], "the config has a server \"s1\" at");
}

/// All nodes count the requests at an address; two pools with the same address are distinguished by their
/// order in the config.
#[test]
fn an_address_is_added_to_one_pool_only() {
    let (one, two) = (named("one"), named("two"));
    let other = pool_lines("", &[(one.address(), "")]).replace("\"app\"", "\"other\"");
    let skep = Skep::node_of(&(config(&[(one.address(), "")]) + &other));
    let address = two.address().to_string();
    assert_eq!(add(&skep, "x", two.address(), &[]).code, Some(0));
    let refused = skep.command(&["pool", "add", "other", "x", &address]);
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    assert!(refused.stderr.contains("pool app has a server at"), "{}", refused.stderr);
    done(&skep, &["pool", "remove", "app", "x", "--wait"]);
    done(&skep, &["pool", "add", "other", "x", &address]);
}

#[test]
fn an_ajp_server_of_another_machine_needs_a_secret() {
    let pool = "pool = \"java\"\n[[pool]]\nname = \"java\"\nprotocol = \"ajp\"\n[[pool.server]]\n\
                name = \"s1\"\naddress = \"127.0.0.1:9\"\n";
    let skep = Skep::node_of(pool);
    let refused = skep.command(&["pool", "add", "java", "s2", "192.0.2.1:8009"]);
    assert!(refused.code == Some(1), "{}", refused.stdout);
    assert!(refused.stderr.contains("set secret_file in [pool.ajp]"), "{}", refused.stderr);
}
