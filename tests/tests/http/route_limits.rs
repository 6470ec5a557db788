//! Limits and timeouts of a route that override those of its pool.

use std::sync::mpsc::sync_channel;

use skep_tests::app::{App, AppConn, response};
use skep_tests::{PATIENCE, Skep, poll_until};

use crate::pools::pool_lines;

/// A node with a route `/own/*` with the settings in `forward`, and a route `/other/*` to the same pool.
fn node(app: &App, forward: &str) -> Skep {
    let route = |path: &str| format!("[[site.route]]\npath = \"{path}\"\npool = \"app\"\n");
    Skep::node_of(&format!(
        "reply.status = 404\n{}{}[site.route.forward]\n{forward}\n{}",
        route("/other/*"),
        route("/own/*"),
        pool_lines("", &[(app.address(), "")]),
    ))
}

#[test]
fn bodies_over_the_routes_limit_get_413() {
    let app = App::answering(|got| response(200, "", got.body.len().to_string()));
    let skep = node(&app, "body_bytes_max = 10");
    let post = |path: &str, framing: &str, body: &str| {
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n{body}");
        skep.connect().send(head).response()
    };
    let (ten, eleven) = ("Content-Length: 10", "Content-Length: 11");
    let chunks = "Transfer-Encoding: chunked";
    assert_eq!(post("/own/x", ten, "0123456789").assert_status(200).text(), "10");
    assert_eq!(post("/other/x", eleven, "0123456789a").assert_status(200).text(), "11");
    post("/own/x", eleven, "0123456789a").assert_status(413);
    let in_chunks = |body: &str| format!("5\r\n01234\r\n{body}0\r\n\r\n");
    let whole = in_chunks("5\r\n01234\r\n");
    assert_eq!(post("/own/x", chunks, &whole).assert_status(200).text(), "10");
    post("/own/x", chunks, &in_chunks("6\r\n012345\r\n")).assert_status(413);
    // A client that expects 100-continue is refused before it sends the body.
    post("/own/x", &format!("{eleven}\r\nExpect: 100-continue"), "").assert_status(413);
}

#[test]
fn a_route_may_wait_less_for_a_response() {
    let (go, gone) = sync_channel::<()>(0);
    let gone = std::sync::Mutex::new(gone);
    let app = App::start(move |conn: &mut AppConn| {
        while let Some(got) = conn.request() {
            // Requests for `/own/` are never answered.
            let is_answered = got.line().starts_with("GET /other/")
                && gone.lock().unwrap().recv_timeout(PATIENCE).is_ok();
            if !is_answered || !conn.send(response(200, "", "at last")) {
                return conn.until(b"never").map_or((), drop);
            }
        }
    });
    let skep = node(&app, "response_timeout_ms = 100");
    let mut patient = skep.connect();
    patient.ask("/other/x");
    skep.connect().get("/own/x").assert_status(504);
    go.send(()).unwrap();
    assert_eq!(patient.response().assert_status(200).text(), "at last");
    let told = "no response in time: GET /own/x";
    poll_until(PATIENCE, "the log tells", || skep.stderr_text().contains(told));
}

#[test]
fn a_route_may_bear_less_silence_inside_a_response() {
    let app = App::start(|conn: &mut AppConn| {
        while conn.request().is_some() {
            conn.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf.");
            conn.until(b"never");
        }
    });
    let skep = node(&app, "stall_timeout_ms = 100");
    let (got, _) = skep.connect().ask("/own/x").read_to_end();
    assert!(got.ends_with(b"half."), "{}", String::from_utf8_lossy(&got));
    poll_until(PATIENCE, "the log tells", || skep.stderr_text().contains("GET /own/x"));
    assert!(!skep.stderr_text().contains("GET /other/x"));
}

#[test]
fn a_body_that_takes_longer_than_the_route_allows_gets_408() {
    let (tell, told) = sync_channel(8);
    let app = App::start(move |conn: &mut AppConn| {
        let Some(head) = conn.head() else { return };
        // A health check is a connection without a request.
        if head.starts_with("POST") {
            let path = head.split(' ').nth(1).unwrap().to_owned();
            let body = conn.until(b"0\r\n\r\n");
            conn.send(response(200, "", "all"));
            tell.send((path, body.is_some())).unwrap();
        }
    });
    let skep = node(&app, "upload_timeout_ms = 300\nrequest_buffering = false");
    let post = |path: &str| {
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        let mut client = skep.connect();
        client.send(head + "5\r\n01234\r\n");
        client
    };
    let mut slow = post("/other/x");
    let mut late = post("/own/x");
    late.response().assert_status(408);
    // The server notices by the end of its connection; no other request times out.
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), ("/own/x".to_owned(), false));
    assert_eq!(slow.send("0\r\n\r\n").response().assert_status(200).text(), "all");
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), ("/other/x".to_owned(), true));
    // A small body is received completely before a server gets the request: no slot is occupied.
    let mut small = skep.connect();
    small.send("POST /own/y HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n01234");
    small.response().assert_status(408);
    assert!(told.try_recv().is_err());
}
