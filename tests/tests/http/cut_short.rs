//! Replies that end with the connection, as those of unknown length to HTTP/1.0 clients do: if truncated for
//! any reason, they end with a reset, never with an orderly close that would make a part look complete (RFC
//! 9112, section 8).

use std::io::ErrorKind;

use rustix::process::Signal;
use skep_tests::cache::CacheCluster;
use skep_tests::origin::{Answer, Origin, Then};
use skep_tests::{ClientError, PATIENCE, RawClient, Site, Skep, poll_until};

const CHUNK: &str = "5\r\nhello\r\n";
const CUT: Result<(), ClientError> = Err(ClientError::Failed(ErrorKind::ConnectionReset));

/// A body of unknown length: these bytes, then `then`.
fn unknown(body: &[u8], then: Then) -> Answer {
    let head = "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nTransfer-Encoding: chunked\r\n\r\n";
    Answer { head: head.into(), body: body.to_vec(), then, ..Answer::default() }
}

/// Sends the request of an HTTP/1.0 client, and reads the head.
fn ask(mut client: RawClient) -> RawClient {
    client.send("GET /a HTTP/1.0\r\nHost: test\r\n\r\n");
    let head = client.try_head().unwrap();
    head.assert_status(200);
    assert_eq!((head.header("content-length"), head.header("transfer-encoding")), (None, None));
    client
}

#[test]
fn what_is_whole_ends_well() {
    let origin = Origin::start(|_| unknown(b"5\r\nhello\r\n0\r\n\r\n", Then::Next));
    let skep = origin.node("");
    assert_eq!(ask(skep.connect()).read_to_end(), (b"hello".to_vec(), Ok(())));
}

#[test]
fn an_origin_that_breaks_off() {
    let origin = Origin::start(|_| unknown(CHUNK.as_bytes(), Then::Close));
    let skep = origin.node("");
    assert_eq!(ask(skep.connect()).read_to_end().1, CUT);
}

#[test]
fn an_origin_that_stalls() {
    let origin = Origin::start(|_| unknown(CHUNK.as_bytes(), Then::Hang));
    let skep = origin.node("[site.fetch]\nstall_timeout_ms = \"300ms\"\n");
    assert_eq!(ask(skep.connect()).read_to_end(), (b"hello".to_vec(), CUT));
}

#[test]
fn an_origin_that_breaks_off_behind_a_dispatcher() {
    let origin = Origin::start(|_| unknown(CHUNK.as_bytes(), Then::Close));
    let cluster = CacheCluster::start_of(1, 1, Site::new(), &origin.line(), "");
    cluster.wait_up();
    for server in ["node-1", "dispatcher-1"] {
        let client = RawClient::connect(cluster.outer(server));
        assert_eq!(ask(client).read_to_end().1, CUT, "{server}");
    }
}

#[test]
fn a_client_that_is_cut_off() {
    let mut body = format!("{:x}\r\n", 64 << 20).into_bytes();
    body.resize(body.len() + (64 << 20), b'x');
    body.extend(b"\r\n0\r\n\r\n");
    let origin = Origin::start(move |_| unknown(&body, Then::Next));
    let settings = "[timeouts]\nwrite_stall_ms = \"300ms\"\nsend_average_ms = \"300ms\"\n";
    let skep = origin.node(settings);
    let mut client = ask(skep.connect());
    poll_until(PATIENCE, "it is cut off", || skep.connections() == 0);
    let (received, ended) = client.read_to_end();
    assert!(received.len() < 64 << 20);
    assert_eq!(ended, CUT);
}

/// A node that ends in the middle: killed, or stopped after its drain timeout.
#[test]
fn a_process_that_ends() {
    let ends: [fn(Skep); 2] = [drop, |skep| {
        skep.signal(Signal::TERM);
        skep.finish();
    }];
    for end in ends {
        let origin = Origin::start(|_| unknown(CHUNK.as_bytes(), Then::Hang));
        let settings =
            "[timeouts]\ndrain_ms = \"300ms\"\n[site.fetch]\nstall_timeout_ms = \"1h\"\n";
        let skep = origin.node(settings);
        let mut client = ask(skep.connect());
        assert_eq!(client.try_read_some().unwrap(), b"hello");
        end(skep);
        assert_eq!(client.read_to_end(), (Vec::new(), CUT));
    }
}
