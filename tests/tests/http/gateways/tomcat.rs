//! A node in front of Tomcat, over AJP.

use std::net::SocketAddr;

use skep_tests::gateways::{SECRET, Tomcat};
use skep_tests::{FreePort, PATIENCE, RawClient, Skep, poll_until};

use super::{
    assert_is_cached, assert_sends_named_files, body_of, cached, crc32, in_chunks, pool_list,
    until_logged,
};

/// One instance for all cases: it takes seconds to start.
#[test]
fn tomcat_answers_behind_a_node() {
    let mut tomcat = Tomcat::start();
    // A JVM that warms up on a busy machine may be late by a second.
    let health = "health.interval_ms = 100\nhealth.timeout_ms = 100\nhealth.fall = 20";
    let pool = format!("response_timeout_ms = \"2s\"\n{health}");
    let ping = "[pool.ajp]\nping_idle_ms = 0\nping_timeout_ms = 500\n";
    let lines = tomcat.lines(&pool, SECRET).replacen("[pool.ajp]\n", ping, 1);
    let metrics = FreePort::claim();
    let of_metrics = format!("[metrics]\nlisten = \"{}\"\n", metrics.address());
    let skep = Skep::node_of(&format!("hosts = [\"shop.example\", \"*\"]\n{lines}{of_metrics}"));
    a_servlet_is_told_what_it_needs(&skep);
    assert_is_cached(&Skep::node_of(&cached(&lines)), "/told", "query=a=1&do=told");
    an_operator_may_test_it(&skep);
    assert_sends_named_files(&lines, "/file?");
    a_server_that_drains_is_told_so(&tomcat);
    bodies_arrive_whole(&skep);
    replies_arrive_whole(&skep);
    a_client_may_leave_inside_its_body(&skep);
    a_head_that_does_not_fit_is_late_and_no_sign_of_a_server_that_is_down(&skep, &tomcat);
    a_wrong_secret_is_named(&tomcat);
    a_server_that_is_stopped_gets_nothing_until_it_goes_on(&skep, &tomcat, metrics.address());
    a_server_that_is_killed_cuts_its_reply(&skep, &mut tomcat, metrics.address());
}

fn an_operator_may_test_it(skep: &Skep) {
    let path = ["--path", "/told?a=b", "--host", "shop.example:8080"];
    let tested = skep.command(&[&["pool", "test", "java", "s1"][..], &path].concat());
    assert_eq!(tested.code, Some(0), "{}", tested.stderr);
    for line in ["status 200", "query=a=b", "server=shop.example 8080"] {
        assert!(tested.stdout.contains(line), "{line} is missing in {}", tested.stdout);
    }
    let checks = skep.command(&["pool", "test", "java", "s1", "--health"]);
    assert_eq!((checks.code, checks.stdout.lines().last()), (Some(0), Some("check: good")));
}

fn a_servlet_is_told_what_it_needs(skep: &Skep) {
    let mut client = skep.connect();
    let head = "GET /told?a=b%20c HTTP/1.1\r\nHost: shop.example:8080\r\nCookie: a=1\r\n\
                X-Forwarded-For: 6.6.6.6\r\nProxy: http://evil/\r\nX-Twice: 1\r\nX-Twice: 2\r\n\r\n";
    let reply = client.send(head).response();
    let told = reply.assert_status(200).text();
    for line in [
        "method=GET",
        "uri=/told",
        "query=a=b%20c",
        "server=shop.example 8080",
        "local=127.0.0.1",
        "secure=false",
        "field host=shop.example:8080",
        "field cookie=a=1",
        "field x-forwarded-for=127.0.0.1",
        "field x-twice=1",
        "field x-twice=2",
        "field via=1.1 skep",
    ] {
        assert!(told.lines().any(|it| it == line), "{line} is missing in\n{told}");
    }
    assert!(told.contains("client=127.0.0.1 ") && !told.contains("6.6.6.6"), "{told}");
    assert!(!told.contains("field proxy"), "{told}");
    for method in ["POST", "PUT", "DELETE", "PATCH", "PROPFIND", "M-SEARCH"] {
        client.request(method, "/told", &[]).assert_status(200).assert_header("x-method", method);
    }
}

fn bodies_arrive_whole(skep: &Skep) {
    let mut client = skep.connect();
    for bytes in [0, 1, 8185, 8186, 8187, 3_000_000] {
        let body = body_of(bytes);
        let target = "POST /body?read=9999999 HTTP/1.1\r\nHost: a\r\n";
        let known = format!("{target}Content-Length: {bytes}\r\n\r\n");
        let reply = client.send([known.as_bytes(), &body].concat()).response();
        assert_eq!(reply.text(), format!("{bytes} {}", crc32(&body)));
        let chunked = format!("{target}Transfer-Encoding: chunked\r\n\r\n");
        let reply = client.send([chunked.as_bytes(), &in_chunks(&body, 9_000)].concat()).response();
        assert_eq!(reply.text(), format!("{bytes} {}", crc32(&body)));
    }
    // A servlet that reads the body of a GET gets an empty one.
    assert_eq!(client.get("/body?read=10").text(), "0 0");
    // A servlet that reads only a part answers; the rest is not parsed as the next request.
    let body = [b"\x12\x34\x00\x02".as_slice(), &body_of(600)].concat().repeat(100);
    let head = "POST /body?read=10 HTTP/1.1\r\nHost: a\r\n";
    let head = format!("{head}Content-Length: {}\r\n\r\n", body.len());
    client.send([head.as_bytes(), &body].concat()).response().assert_status(200);
    skep.connect().get("/told").assert_status(200);
}

fn replies_arrive_whole(skep: &Skep) {
    let mut client = skep.connect();
    let large = client.get("/big?bytes=20000000");
    assert_eq!(large.body.len(), 20_000_000);
    client.get("/big?bytes=1000&length=1").assert_header("content-length", "1000");
    client.send("HEAD /big?bytes=1000&length=1 HTTP/1.1\r\nHost: a\r\n\r\n");
    client.try_response_to("HEAD").unwrap().assert_header("content-length", "1000");
    client.get("/no/such").assert_status(404);
    client.get("/fail").assert_status(500);
    assert_eq!(client.get("/flush").text(), "ab");
    let reply = client.get("/head?bytes=10");
    reply.assert_status(418);
    assert_eq!(reply.header_all("set-cookie").collect::<Vec<_>>(), ["a=1", "b=2"]);
    // A head of a request that does not fit into a packet.
    let long = "x".repeat(9_000);
    client.request("GET", "/told", &[("X-Long", &long)]).assert_status(431);
}

fn a_client_may_leave_inside_its_body(skep: &Skep) {
    for _ in 0..3 {
        let mut client = skep.connect();
        client.send("POST /body?read=9999 HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\nabc");
        drop(client);
    }
    let mut client = skep.connect();
    assert_eq!(client.get("/body?read=10").text(), "0 0");
}

/// Tomcat logs it and never answers.
fn a_head_that_does_not_fit_is_late_and_no_sign_of_a_server_that_is_down(
    skep: &Skep,
    tomcat: &Tomcat,
) {
    let mut clients: Vec<_> = (0..4).map(|_| skep.connect()).collect();
    clients.iter_mut().for_each(|client| {
        client.ask("/head?bytes=9000");
    });
    for client in &mut clients {
        client.response().assert_status(504);
    }
    until_logged(skep, "no response in time: GET /head");
    assert!(tomcat.log().contains("does not fit in an AJP packet"), "{}", tomcat.log());
    skep.connect().get("/told").assert_status(200);
    assert!(pool_list(skep).contains(" up"), "{}", pool_list(skep));
}

fn a_wrong_secret_is_named(tomcat: &Tomcat) {
    let health = "health.interval_ms = 100\nhealth.timeout_ms = 100";
    let skep = Skep::node_of(&tomcat.lines(health, "another one"));
    poll_until(PATIENCE, "it is down", || pool_list(&skep).contains("the secret is wrong"));
    skep.connect().get("/told").assert_status(503);
    until_logged(&skep, "the secret is wrong or missing");
    assert!(!skep.stderr_text().contains("another one"), "{}", skep.stderr_text());
    // Tomcat's page for 403 does not contain the reason.
    for of_request in ["--path=/told", "--health"] {
        let tested = skep.command(&["pool", "test", "java", "s1", of_request]);
        assert_eq!(tested.code, Some(1), "{}", tested.stdout);
        assert!(tested.stderr.contains("the secret is wrong or missing"), "{}", tested.stderr);
    }
}

/// As interpreted by Tomcat's `LoadBalancerDrainingValve`.
fn a_server_that_drains_is_told_so(tomcat: &Tomcat) {
    let skep = Skep::node_of(&tomcat.lines("sticky.by = \"cookie\"", SECRET));
    let mut client = skep.connect();
    let reply = client.get("/told");
    assert!(reply.assert_status(200).text().contains("activation=null\n"), "{}", reply.text());
    let session = reply.header("set-cookie").and_then(|it| it.split(';').next());
    let session = [("Cookie", session.expect("the cookie of the session"))];
    for (command, activation) in [("drain", "DIS"), ("resume", "null")] {
        let finished = skep.command(&["pool", command, "java", "s1"]);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        for method in ["GET", "POST"] {
            let told = client.request(method, "/told", &session).assert_status(200).text();
            let line = format!("activation={activation}");
            assert!(told.lines().any(|it| it == line), "{command}: {told}");
        }
    }
}

/// Returns the value of a metric of the server.
fn metric(metrics: SocketAddr, name: &str, labels: &str) -> u64 {
    let page = RawClient::connect(metrics).get("/metrics").text();
    let line = format!("skep_pool_server_{name}{{pool=\"java\",server=\"s1\"{labels}}} ");
    let value = page.lines().find_map(|it| it.strip_prefix(&line).map(str::to_owned));
    value.unwrap_or_else(|| panic!("{line} in {page}")).parse().unwrap()
}

fn a_server_that_is_stopped_gets_nothing_until_it_goes_on(
    skep: &Skep,
    tomcat: &Tomcat,
    metrics: SocketAddr,
) {
    let mut client = skep.connect();
    let post = "POST /body?read=9 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
    client.send(post).response().assert_status(200);
    let answered = metric(metrics, "pings_total", "") - metric(metrics, "pings_failed_total", "");
    assert!(answered > 20, "kept connections were asked: {answered}");
    tomcat.stop();
    client.send(post).response().assert_status(503);
    until_logged(skep, "no answer to CPING in time: POST /body");
    assert_eq!(metric(metrics, "failures_total", ",cause=\"no_pong\""), 1);
    poll_until(PATIENCE, "it is down", || pool_list(skep).contains("timed out"));
    tomcat.resume();
    poll_until(PATIENCE, "it is up", || !pool_list(skep).contains("down"));
    client.send(post).response().assert_status(200);
}

fn a_server_that_is_killed_cuts_its_reply(skep: &Skep, tomcat: &mut Tomcat, metrics: SocketAddr) {
    let mut client = skep.connect();
    client.ask("/hang");
    client.try_head().unwrap().assert_status(200);
    tomcat.kill();
    let (body, _) = client.read_to_end();
    assert!(body.len() < 1000, "a part: {}", body.len());
    // The log contains at most one failure of a server per second; the metrics count all.
    let counted =
        "skep_pool_server_failures_total{pool=\"java\",server=\"s1\",cause=\"cut_short\"} 1";
    poll_until(PATIENCE, counted, || {
        let page = RawClient::connect(metrics).get("/metrics").text();
        page.lines().any(|line| line == counted)
    });
    poll_until(PATIENCE, "it is down", || pool_list(skep).contains("refused"));
    skep.connect().get("/told").assert_status(503);
}
