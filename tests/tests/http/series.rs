//! `skep status --series` and `--requests`: requests over time and in progress, in total and to servers of
//! pools.

use serde_json::Value;
use skep_tests::app::{App, response};
use skep_tests::{PATIENCE, Site, Skep, poll_until};

use super::pools::{Gate, pool_lines};

fn series(skep: &Skep, step: &str) -> Value {
    let shown = skep.command(&["status", "--series", step, "--json"]);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    serde_json::from_str(&shown.stdout).unwrap()
}

/// Returns the sum of a count over all completed steps.
fn sum(series: &Value, what: &str) -> u64 {
    let points = series["points"].as_array().unwrap().iter();
    points.map(|point| point[what].as_u64().unwrap()).sum()
}

#[test]
fn requests_are_counted_over_time_and_those_to_pools_beside_all() {
    let site = Site::new().with("a.txt", "aaa");
    let app = App::start(|conn| {
        while let Some(head) = conn.head() {
            if head.starts_with("GET /cut ") {
                return;
            }
            conn.send(response(200, "", "ok"));
        }
    });
    let pool = pool_lines("retries_max = 0", &[(app.address(), "")]);
    let skep =
        Skep::node_of(&format!("root = \"{}\"\npool = \"app\"\n{pool}", site.root().display()));
    let mut client = skep.connect();
    for _ in 0..5 {
        client.get("/a.txt").assert_status(200);
    }
    for _ in 0..3 {
        client.get("/page").assert_status(200);
    }
    skep.connect().get("/cut").assert_status(502);
    poll_until(PATIENCE, "all are in steps that are over", || {
        sum(&series(&skep, "10s"), "requests") == 9
    });
    let fine = series(&skep, "10s");
    let of = |what: &str| sum(&fine, what);
    assert_eq!((of("to_pools"), of("pool_failures"), of("responses_5xx")), (4, 1, 1), "{fine}");
    assert!(of("sent_bytes") > 0, "{fine}");
    assert_eq!((&fine["step_s"], &fine["kept_s"]), (&10.into(), &3_600.into()));
    let points = fine["points"].as_array().unwrap();
    assert!(points.iter().all(|it| it["at_unix_s"].as_u64().unwrap() % 10 == 0), "{fine}");
    // A reload that removes the server keeps the history.
    skep.reconfigure_of(&format!("root = \"{}\"", site.root().display()));
    assert_eq!(skep.command(&["reload"]).code, Some(0));
    assert_eq!(sum(&series(&skep, "10s"), "to_pools"), 4);
    assert_eq!(series(&skep, "1m")["kept_s"], 108_000, "30 hours");
    let table = skep.command(&["status", "--series", "10s"]).stdout;
    assert!(table.contains("TO POOLS"), "{table}");
    assert_eq!(skep.command(&["status", "--series", "2m"]).code, Some(2));
}

#[test]
fn requests_in_flight_are_listed_without_what_is_secret() {
    let gate = Gate::default();
    let shut = gate.clone();
    let app = App::answering(move |_| {
        shut.pass();
        response(200, "", "ok")
    });
    let skep =
        Skep::node_of(&format!("pool = \"app\"\n{}", pool_lines("", &[(app.address(), "")])));
    let requests = || -> Value {
        let shown = skep.command(&["status", "--requests", "--json"]);
        assert_eq!(shown.code, Some(0), "{}", shown.stderr);
        serde_json::from_str::<Value>(&shown.stdout).unwrap()["requests"].clone()
    };
    assert_eq!(requests().as_array().unwrap().len(), 0);
    let mut clients = [skep.connect(), skep.connect()];
    let long = "x".repeat(300);
    clients[0].ask("/buy;jsessionid=SECRET?card=SECRET");
    poll_until(PATIENCE, "the first is listed", || requests()[0].is_object());
    clients[1].send(format!("PATCH /{long} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"));
    poll_until(PATIENCE, "both are listed", || requests()[1].is_object());
    let listed = requests();
    let [first, second] = [&listed[0], &listed[1]];
    for (key, value) in [
        ("pool", "app".into()),
        ("service", Value::Null),
        ("at", "s1".into()),
        ("client", "127.0.0.1".into()),
        ("method", "GET".into()),
        ("path", "/buy".into()),
        ("is_tunnel", false.into()),
    ] {
        assert_eq!(first[key], value, "{key} of {first}");
    }
    assert_eq!(second["method"], "PATCH");
    assert_eq!(second["path"], format!("/{}", &long[..95]), "its beginning");
    assert!(first["age_ms"].as_u64() >= second["age_ms"].as_u64(), "the oldest first");
    let table = skep.command(&["status", "--requests"]).stdout;
    assert!(table.contains("/buy") && !table.contains("SECRET"), "{table}");
    gate.open();
    gate.open();
    clients.iter_mut().for_each(|client| _ = client.response().assert_status(200));
    poll_until(PATIENCE, "none is left", || requests().as_array().unwrap().is_empty());
}
