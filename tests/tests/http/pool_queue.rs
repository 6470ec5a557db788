//! The queue of a pool: which requests wait for a server, for how long, and that others do not wait for them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use skep_tests::app::{App, response};
use skep_tests::{PATIENCE, Skep, poll_until};

use crate::pools::{Gate, pool_lines};

/// A server that answers with `name`; requests for `/slow` pass the first gate, and health checks, for
/// `/health`, the second.
fn server(name: &'static str, slow: &Gate, health: Option<&Gate>) -> App {
    let (slow, health) = (slow.clone(), health.cloned());
    App::answering(move |request| {
        if request.line().starts_with("GET /slow ") {
            slow.pass();
        } else if let Some(health) = health.as_ref().filter(|_| request.line().contains("/health"))
        {
            health.pass();
        }
        response(200, "", name)
    })
}

fn node(settings: &str, servers: [(&App, &str); 2]) -> Skep {
    let servers = servers.map(|(app, lines)| (app.address(), lines));
    Skep::node_of(&format!("pool = \"app\"\n{}", pool_lines(settings, &servers)))
}

/// Waits until both servers answer.
fn wait_up(skep: &Skep) {
    let mut seen = [false; 2];
    poll_until(PATIENCE, "both servers are up", || {
        let server = skep.connect().get("/").text();
        seen[usize::from(server == "s2")] |= server.starts_with('s');
        seen == [true; 2]
    });
}

fn waiting(skep: &Skep) -> u64 {
    let listed = skep.command(&["pool", "list", "--json"]).stdout;
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    listed[0]["queued_requests"].as_u64().expect("a number")
}

/// Whether the server with a limit of one request has one.
fn is_full(skep: &Skep) -> bool {
    skep.command(&["pool", "list"]).stdout.contains("1/1 ")
}

#[test]
fn who_waits_for_the_server_of_a_session_holds_up_nobody_else() {
    let gate = Gate::default();
    let (one, two) = (server("s1", &gate, None), server("s2", &gate, None));
    let settings = "policy = \"round-robin\"\nsticky.by = \"route\"\nqueue_max = 1\n\
                    queue_timeout_ms = \"1m\"";
    let skep = node(settings, [(&one, ""), (&two, "connections_max = 1")]);
    wait_up(&skep);
    let of_two = [("Cookie", "JSESSIONID=1.s2")];
    let (mut occupant, mut waiter) = (skep.connect(), skep.connect());
    occupant.send_request("GET", "/slow", &of_two);
    poll_until(PATIENCE, "the second server is full", || is_full(&skep));
    waiter.send_request("GET", "/", &of_two);
    poll_until(PATIENCE, "it waits", || waiting(&skep) == 1);
    for _ in 0..10 {
        assert_eq!(skep.connect().get("/").assert_status(200).text(), "s1");
    }
    gate.open();
    assert_eq!([occupant.response().text(), waiter.response().text()], ["s2", "s2"]);
}

#[test]
fn a_session_waits_for_the_first_check_of_its_server() {
    let (gate, health) = (Gate::default(), Gate::default());
    let (one, two) = (server("s1", &gate, None), server("s2", &gate, Some(&health)));
    let settings = "sticky.by = \"route\"\nhealth.path = \"/health\"\n\
                    health.interval_ms = \"1m\"\nhealth.timeout_ms = \"1m\"";
    let skep = node(settings, [(&one, ""), (&two, "")]);
    assert_eq!(skep.connect().get("/").assert_status(200).text(), "s1");
    let mut client = skep.connect();
    client.send_request("GET", "/", &[("Cookie", "JSESSIONID=1.s2")]);
    poll_until(PATIENCE, "it waits", || waiting(&skep) == 1);
    health.open();
    assert_eq!(client.response().assert_status(200).text(), "s2");
}

#[test]
fn a_session_by_hash_waits_for_its_server() {
    let gate = Gate::default();
    let (one, two) = (server("s1", &gate, None), server("s2", &gate, None));
    let settings = "sticky.by = \"cookie-hash\"\nsticky.cookie = \"u\"\nqueue_timeout_ms = \"1m\"";
    let skep = node(settings, [(&one, ""), (&two, "connections_max = 1")]);
    let cookie = |user: usize| format!("u={user}");
    let mut of_two = None;
    poll_until(PATIENCE, "some user is at the second server", || {
        of_two = (0..50).find(|user| {
            let reply = skep.connect().request("GET", "/", &[("Cookie", &*cookie(*user))]);
            reply.text() == "s2"
        });
        of_two.is_some()
    });
    let cookie = cookie(of_two.expect("found"));
    let fields = [("Cookie", &*cookie)];
    let (mut occupant, mut waiter) = (skep.connect(), skep.connect());
    occupant.send_request("GET", "/slow", &fields);
    poll_until(PATIENCE, "the second server is full", || is_full(&skep));
    waiter.send_request("GET", "/", &fields);
    poll_until(PATIENCE, "it waits", || waiting(&skep) == 1);
    gate.open();
    assert_eq!([occupant.response().text(), waiter.response().text()], ["s2", "s2"]);
}

#[test]
fn a_server_of_another_name_has_the_requests_that_are_in_work_there() {
    let gate = Gate::default();
    let app = server("app", &gate, None);
    let lines = |name: &str| {
        let pool =
            pool_lines("queue_timeout_ms = \"1m\"", &[(app.address(), "connections_max = 1")]);
        format!("pool = \"app\"\n{}", pool.replace("\"s1\"", &format!("\"{name}\"")))
    };
    let skep = Skep::node_of(&lines("old"));
    skep.connect().get("/").assert_status(200);
    let (mut first, mut second) = (skep.connect(), skep.connect());
    first.send_request("GET", "/slow", &[]);
    poll_until(PATIENCE, "it is in work", || is_full(&skep));
    skep.reconfigure_of(&lines("new"));
    assert_eq!(skep.command(&["reload"]).code, Some(0));
    second.send_request("GET", "/", &[]);
    poll_until(PATIENCE, "it waits", || waiting(&skep) == 1);
    gate.open();
    for mut client in [first, second] {
        assert_eq!(client.response().assert_status(200).text(), "app");
    }
}

#[test]
fn at_the_limit_of_servers_nobody_is_refused_who_may_wait() {
    const CLIENTS: usize = 16;
    const REQUESTS: usize = 400;
    let gate = Gate::default();
    let app = server("app", &gate, None);
    let pool = pool_lines("queue_timeout_ms = \"1m\"", &[(app.address(), "connections_max = 2")]);
    let skep = Skep::node_of(&format!("pool = \"app\"\n{pool}"));
    skep.connect().get("/").assert_status(200);
    let refused = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = skep.connect();
                for _ in 0..REQUESTS {
                    let status = client.get("/").status;
                    refused.fetch_add(usize::from(status != 200), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(refused.into_inner(), 0, "of {}", CLIENTS * REQUESTS);
}
