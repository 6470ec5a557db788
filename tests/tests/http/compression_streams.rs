//! Compression of responses that are still being received.

use std::collections::BTreeSet;
use std::sync::Mutex;

use skep_tests::app::App;

use super::compression::{CODINGS, Node, assert_coding, text};
use super::pools::Gate;

#[test]
fn a_stream_is_compressed_and_not_held_back() {
    let gate = Gate::default();
    let shut = gate.clone();
    let app = App::start(move |conn| {
        while let Some(request) = conn.request() {
            let content_type = match request.line().contains("/events") {
                true => "text/event-stream",
                false => "text/plain",
            };
            conn.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n\
                 Transfer-Encoding: chunked\r\n\r\n6\r\nbegin\n\r\n"
            ));
            shut.pass();
            conn.send("4\r\nend\n\r\n0\r\n\r\n");
        }
    });
    let node = Node::with_app(&app, false, "private = true");
    let accept = |coding: &'static str| [("Accept-Encoding", coding)];
    let mut clients: Vec<_> = CODINGS
        .iter()
        .map(|coding| {
            let mut client = node.skep.connect();
            client.send_request("GET", "/stream", &accept(coding));
            assert_coding(&client.try_head().unwrap(), Some(coding));
            // A chunk is sent before the application continues.
            let begun = client.try_read_some().unwrap();
            assert!(!begun.is_empty() && !begun.starts_with(b"0\r\n"));
            client
        })
        .collect();
    let mut events = node.skep.connect();
    events.send_request("GET", "/events", &accept("gzip"));
    assert_coding(&events.try_head().unwrap(), None);
    assert_eq!(events.try_read_some().unwrap(), b"6\r\nbegin\n\r\n");
    // Those streams, the events, and the three of curl.
    (0..7).for_each(|_| gate.open());
    for client in &mut clients {
        assert!(client.try_read_some().is_ok());
    }
    for coding in CODINGS {
        assert_eq!(node.by_curl("/stream", coding), b"begin\nend\n");
    }
}

/// If the encoder buffered data, its client would wait for it, and the server would be considered stalled.
#[test]
fn a_slow_response_of_known_length_is_not_held_back_either() {
    let body = text(400);
    let (gate, sent) = (Gate::default(), body.clone());
    let shut = gate.clone();
    let app = App::start(move |conn| {
        while conn.request().is_some() {
            conn.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n",
                sent.len()
            ));
            conn.send(&sent[..100]);
            shut.pass();
            conn.send(&sent[100..]);
        }
    });
    let node = Node::with_app(&app, false, "private = true");
    for coding in CODINGS {
        let mut client = node.skep.connect();
        client.send_request("GET", "/", &[("Accept-Encoding", coding)]);
        assert_coding(&client.try_head().unwrap(), Some(coding));
        // Before the application continues.
        let begun = client.try_read_some().unwrap();
        assert!(!begun.is_empty() && !begun.starts_with(b"0\r\n"), "{coding}");
        gate.open();
        assert!(client.try_read_some().is_ok());
    }
    (0..CODINGS.len()).for_each(|_| gate.open());
    for coding in CODINGS {
        assert_eq!(node.by_curl("/", coding), body);
    }
}

#[test]
fn what_breaks_off_is_neither_kept_nor_looks_whole() {
    let cut = Mutex::new(BTreeSet::new());
    let app = App::start(move |conn| {
        while let Some(request) = conn.request() {
            let is_stored = request.line().contains("/stored");
            let rule = if is_stored { "max-age=60" } else { "private" };
            let body = text(3000);
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nCache-Control: {rule}\r\n\
                 Content-Length: {}\r\n\r\n",
                body.len()
            );
            conn.send(head);
            if cut.lock().unwrap().insert(is_stored) {
                conn.send(&body[..body.len() / 2]);
                return conn.close();
            }
            conn.send(body);
        }
    });
    let node = Node::with_app(&app, true, "private = true");
    let reply = |path: &str| {
        let mut client = node.skep.connect();
        client.send_request("GET", path, &[("Accept-Encoding", "br")]);
        client.try_response()
    };
    let begun = reply("/stored");
    assert!(begun.as_ref().is_err() || begun.as_ref().unwrap().status == 502, "{begun:?}");
    assert!(reply("/private").is_err(), "there is no last chunk");
    for path in ["/stored", "/private"] {
        assert!(node.by_curl(path, "br") == text(3000), "{path}");
        assert_coding(&node.get(path, "br"), Some("br"));
    }
}
