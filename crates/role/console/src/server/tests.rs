//! Slow clients. Each test enables one limit only and disables the others, so that only this one
//! can end a connection.
#![allow(clippy::unwrap_used, reason = "tests")]

use axum::body::Bytes;
use axum::routing::post;
use tokio::io::{AsyncReadExt, DuplexStream, duplex};
use tokio::task::LocalSet;

use super::*;

const PIPE_BYTES: usize = 1024;
const ENDLESS: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(20);

/// A connection to a server whose only route returns the body.
fn connect(patience: Patience) -> DuplexStream {
    let router = Router::new().route("/", post(|body: Bytes| async { body }));
    let (ours, theirs) = duplex(PIPE_BYTES);
    let (theirs, request_count) = (TokioIo::new(theirs), RequestCount::nowhere());
    let served = connection(theirs, Caller::Local { uid: None }, router, patience, request_count);
    tokio::task::spawn_local(served);
    ours
}

#[tokio::test]
async fn silence_half_a_head_and_rest_come_to_an_end() {
    LocalSet::new().run_until(silence()).await;
}

async fn silence() {
    for bytes in ["", "POST / HT", "POST / HTTP/1.1\r\nHost: a\r\n"] {
        let mut stream = connect(Patience { head: SHORT, connection: ENDLESS });
        stream.write_all(bytes.as_bytes()).await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        assert!(!reply.contains("200"), "{reply}");
    }
    let mut stream = connect(Patience { head: SHORT, connection: ENDLESS });
    stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
}

#[tokio::test]
async fn a_reply_that_nobody_takes_ends_with_its_connection() {
    LocalSet::new().run_until(untaken()).await;
}

async fn untaken() {
    let mut stream = connect(Patience { head: ENDLESS, connection: SHORT });
    let body = "x".repeat(8 * PIPE_BYTES);
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
    // Nothing is read, so the pipe stays full until the server closes it.
    let all = head + &body + &"x".repeat(64 * PIPE_BYTES);
    assert!(stream.write_all(all.as_bytes()).await.is_err());
}
