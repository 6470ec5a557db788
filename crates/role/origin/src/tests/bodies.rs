//! Bodies: complete, or an error that identifies the defect.

use std::io::Write as _;

use super::rig::{
    Server, expire_all, fault, get, hash, noise, ok, part, partial, patient, read, whole,
    with_origins,
};
use crate::{Fault, OriginLimits};

const MEGABYTES_10: usize = 10 * 1024 * 1024;

#[test]
fn ten_megabytes_come_intact_in_every_framing() {
    let object = noise(MEGABYTES_10);
    let expected = hash(&object);
    let server = Server::new(move |number, mut wire| {
        wire.request();
        match number {
            0 => wire.send(ok("", &object)),
            1 => {
                wire.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
                // Sizes from 1 byte to 100 KB, so that chunk lines are split anywhere.
                let mut rest = &object[..];
                let mut size = 1;
                while !rest.is_empty() {
                    let (chunk, behind) = rest.split_at(size.min(rest.len()));
                    let mut framed = Vec::new();
                    write!(framed, "{:x};x=y\r\n", chunk.len()).unwrap();
                    framed.extend_from_slice(chunk);
                    framed.extend_from_slice(b"\r\n");
                    wire.send(framed);
                    (rest, size) = (behind, size * 7 % 100_003);
                }
                wire.send("0\r\nX-Sum: 1\r\n\r\n")
            }
            _ => {
                wire.send("HTTP/1.0 200 OK\r\n\r\n");
                wire.send(&object)
            }
        };
    });
    with_origins(&server.urls(), patient(), async move |origins| {
        for (end, is_open_ended) in
            [(Some(MEGABYTES_10 as u64), false), (None, false), (None, true)]
        {
            let mut reply = origins.open(&whole("/")).await.unwrap();
            assert_eq!((reply.head.end, reply.head.meta.is_open_ended), (end, is_open_ended));
            assert_eq!((reply.head.total_bytes, reply.body.left_bytes()), (end, end));
            let all = read(&mut reply.body).await.unwrap();
            assert_eq!((all.len(), hash(&all)), (MEGABYTES_10, expected));
            assert_eq!(reply.body.position(), MEGABYTES_10 as u64);
        }
    });
}

#[test]
fn chunks_of_unknown_length_keep_the_connection() {
    let server = Server::keeping(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    );
    with_origins(&server.urls(), patient(), async |origins| {
        for _ in 0..3 {
            assert_eq!(get(&origins, &whole("/")).await.unwrap().1, b"abc");
        }
    });
    assert_eq!(server.connections(), 1);
}

/// The fault of reading `reply`, after which the connection is closed.
fn closing_fault(reply: impl Into<Vec<u8>>, is_ranged: bool) -> Fault {
    let server = Server::closing(reply);
    let ask = if is_ranged { part(0..10) } else { whole("/") };
    with_origins(&server.urls(), patient(), async move |origins| fault(&origins, &ask).await)
}

#[test]
fn a_body_that_ends_early_is_short() {
    let short = |at, expected| Fault::Short { at, expected };
    let length = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc";
    assert_eq!(closing_fault(length, false), short(3, Some(10)));
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc";
    assert_eq!(closing_fault(chunked, false), short(3, None));
    let unended = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
    assert_eq!(closing_fault(unended, false), short(3, None));
    let range = "HTTP/1.1 206 Part\r\nContent-Range: bytes 0-9/20\r\n";
    let open = format!("{range}\r\nabc");
    assert_eq!(closing_fault(open, true), short(3, Some(10)));
    let chunks = format!("{range}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    assert_eq!(closing_fault(chunks, true), short(3, Some(10)), "whole chunks, half a range");
}

#[test]
fn a_body_that_is_longer_than_announced_is_not_taken() {
    let long = |expected| Fault::Long { expected };
    let length = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef";
    assert_eq!(closing_fault(length, false), long(3));
    assert_eq!(closing_fault("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\na", false), long(0));
    let range = "HTTP/1.1 206 Part\r\nContent-Range: bytes 0-2/20\r\n";
    assert_eq!(closing_fault(format!("{range}\r\nabcdef"), true), long(3));
    let chunks = format!("{range}Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n");
    assert_eq!(closing_fault(chunks, true), long(3));
}

#[test]
fn lengths_and_ranges_that_contradict_each_other_are_refused() {
    for fields in [
        "Content-Range: bytes 0-9/20\r\nContent-Length: 5\r\n",
        "Content-Range: bytes 5-14/20\r\nContent-Length: 10\r\n",
        "Content-Range: bytes 0-19/20\r\nContent-Length: 20\r\n",
        "Content-Range: bytes 0-9/5\r\nContent-Length: 10\r\n",
        "Content-Type: multipart/byteranges; boundary=x\r\nContent-Length: 10\r\n",
    ] {
        let found = closing_fault(format!("HTTP/1.1 206 Part\r\n{fields}\r\n0123456789"), true);
        assert!(matches!(found, Fault::Range(_)), "{fields}: {found:?}");
    }
    let unasked = partial("", b"0123456789", 0..5);
    assert!(matches!(closing_fault(unasked, false), Fault::Range(_)));
}

#[test]
fn chunks_that_are_none_are_refused() {
    for (chunks, reason) in [
        ("x\r\n", "chunk-size"),
        ("3\r\nabcd\r\n", "chunk-end"),
        ("3\nabc\r\n", "chunk-size"),
        ("11111111111111111\r\n", "chunk-size"),
        ("3\r\nabc\r\n0\r\nbad trailer\r\n\r\n", "trailer-field"),
    ] {
        let reply = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
        assert_eq!(closing_fault(reply, false), Fault::Malformed(reason), "{chunks}");
    }
}

#[test]
fn a_body_that_trickles_is_given_up_where_it_is_waited_for() {
    let server = Server::new(|_, mut wire| {
        wire.request();
        wire.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
        // Frequent enough not to stall.
        while wire.send("x") {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    });
    let limits = OriginLimits { progress_timeout_ms: 100, ..patient() };
    with_origins(&server.urls(), limits, async |origins| {
        let mut body = origins.open(&whole("/")).await.unwrap().body;
        body.hurry();
        let error = read(&mut body).await.unwrap_err();
        assert!(matches!(error.fault, Fault::Stalled { .. }), "{error}");
    });
}

#[test]
fn a_body_that_stalls_is_given_up_and_what_came_is_right() {
    let server = Server::new(|_, mut wire| {
        wire.request();
        wire.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
        wire.hold();
    });
    let limits = OriginLimits { progress_timeout_ms: 1, ..patient() };
    with_origins(&server.urls(), limits, async |origins| {
        let mut body = origins.open(&whole("/")).await.unwrap().body;
        let mut buffer = [0; 100];
        assert_eq!(body.next(&mut buffer).await, Ok(3));
        assert_eq!(&buffer[..3], b"abc");
        for _ in 0..2 {
            let error = body.next(&mut buffer).await.unwrap_err();
            assert_eq!(error.fault, Fault::Stalled { at: 3 }, "and stays so");
        }
        assert_eq!((body.position(), body.left_bytes()), (3, Some(7)));
    });
}

#[test]
fn a_slow_reader_is_no_stall() {
    let (go, gone) = std::sync::mpsc::sync_channel::<()>(1);
    let gone = std::sync::Mutex::new(gone);
    let server = Server::new(move |_, mut wire| {
        wire.request();
        wire.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc");
        gone.lock().unwrap().recv().unwrap();
        wire.send("def");
        wire.hold();
    });
    with_origins(&server.urls(), patient(), async move |origins| {
        let mut body = origins.open(&whole("/")).await.unwrap().body;
        let mut buffer = [0; 100];
        assert_eq!(body.next(&mut buffer).await, Ok(3));
        // Its deadline passes while nothing is read.
        expire_all(&origins);
        go.send(()).unwrap();
        assert_eq!(read(&mut body).await.unwrap(), b"def");
    });
}
