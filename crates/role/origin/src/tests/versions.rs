//! Ranges of objects that stay the same, change, or have no known ranges.

use skep_http::Validators;
use skep_httpcache::CachePolicy;

use super::rig::{
    Server, answer, fault, field, get, noise, ok, part, partial, patient, read, whole, with_origins,
};
use crate::{Ask, Condition, Fault, Revalidated};

const DATES: &str = "Date: Thu, 01 Jan 1970 00:01:00 GMT\r\n\
    Last-Modified: Thu, 01 Jan 1970 00:00:09 GMT\r\n";

/// The range that a request specifies, as indices.
fn asked(head: &str) -> Option<std::ops::Range<usize>> {
    let (first, last) = field(head, "range")?.strip_prefix("bytes=")?.split_once('-')?;
    Some(first.parse().unwrap()..last.parse::<usize>().map_or(usize::MAX, |last| last + 1))
}

/// Answers according to RFC 9110, for an object that is `new` from the request with the number
/// `change` on.
fn changing(old: &'static [u8], new: &'static [u8], change: usize) -> Server {
    let count = std::sync::atomic::AtomicUsize::new(0);
    Server::answering(move |head| {
        let number = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let (object, tag) = if number < change { (old, "\"1\"") } else { (new, "\"2\"") };
        let fields = format!("ETag: {tag}\r\n");
        match (asked(head), field(head, "if-range")) {
            (Some(range), pin) if pin.is_none_or(|pin| pin == tag) => {
                partial(&fields, object, range.start..range.end.min(object.len()))
            }
            _ => ok(&fields, object),
        }
    })
}

#[test]
fn parts_of_one_version_make_the_whole() {
    let object: &'static [u8] = noise(1_000).leak();
    let server = changing(object, b"", usize::MAX);
    let got = with_origins(&server.urls(), patient(), async |origins| {
        let mut first = origins.open(&part(0..400)).await.unwrap();
        assert_eq!((first.head.meta.status, first.head.total_bytes), (206, Some(1_000)));
        let mut all = read(&mut first.body).await.unwrap();
        for range in [400..800, 800..1_200] {
            let ask = Ask { condition: Condition::Pinned(first.head.validators()), ..part(range) };
            let mut next = origins.open(&ask).await.unwrap();
            assert_eq!(next.head.version(), first.head.version());
            assert_eq!(next.body.position(), all.len() as u64);
            all.extend(read(&mut next.body).await.unwrap());
        }
        all
    });
    assert_eq!(got, object);
    assert_eq!(server.connections(), 1);
    assert_eq!(field(&server.seen(), "if-range"), None);
    assert_eq!(field(&server.seen(), "if-range"), Some("\"1\""));
}

#[test]
fn an_object_that_changed_comes_whole_under_its_new_version() {
    let server = changing(b"old object", b"new one", 1);
    with_origins(&server.urls(), patient(), async |origins| {
        let mut first = origins.open(&part(0..4)).await.unwrap();
        assert_eq!(read(&mut first.body).await.unwrap(), b"old ");
        let pin = Condition::Pinned(first.head.validators());
        let mut next = origins.open(&Ask { condition: pin, ..part(4..8) }).await.unwrap();
        assert_eq!((next.head.meta.status, next.head.start, next.head.end), (200, 0, Some(7)));
        assert_ne!(next.head.version(), first.head.version());
        assert_eq!(read(&mut next.body).await.unwrap(), b"new one");
    });
}

#[test]
fn an_origin_that_ignores_conditions_shows_its_version_all_the_same() {
    let server = Server::keeping(partial("ETag: \"2\"\r\n", b"0123456789", 4..8));
    with_origins(&server.urls(), patient(), async |origins| {
        let pin = Validators { etag: "\"1\"", last_modified: None };
        let ask = Ask { condition: Condition::Pinned(pin), ..part(4..8) };
        let reply = origins.open(&ask).await.unwrap();
        assert_eq!(reply.head.version().as_deref(), Some(&b"tag \"2\""[..]));
    });
}

#[test]
fn an_origin_that_ignores_ranges_can_be_skipped_through() {
    let object = noise(300_000);
    let server = Server::keeping(ok("", &object));
    with_origins(&server.urls(), patient(), async move |origins| {
        let mut reply = origins.open(&part(200_000..250_000)).await.unwrap();
        assert_eq!((reply.head.meta.status, reply.head.start, reply.body.position()), (200, 0, 0));
        reply.body.skip_to(200_000).await.unwrap();
        assert_eq!(reply.body.left_bytes(), Some(100_000));
        assert_eq!(read(&mut reply.body).await.unwrap(), object[200_000..]);
        let mut reply = origins.open(&part(400_000..450_000)).await.unwrap();
        let error = reply.body.skip_to(400_000).await.unwrap_err();
        assert_eq!(error.fault, Fault::Short { at: 300_000, expected: Some(400_000) });
    });
    assert_eq!(server.connections(), 1);
}

#[test]
fn a_version_by_date_is_pinned_by_date() {
    let server = Server::answering(|head| {
        let (object, range) = (b"0123456789", asked(head).unwrap());
        // RFC 9110 15.3.7: fields that the client knows are omitted.
        let fields = if field(head, "if-range").is_some() { "" } else { DATES };
        partial(fields, object, range)
    });
    with_origins(&server.urls(), patient(), async |origins| {
        let mut first = origins.open(&part(0..5)).await.unwrap();
        assert_eq!(read(&mut first.body).await.unwrap(), b"01234");
        assert_eq!(first.head.version().as_deref(), Some(&b"date 9 10 "[..]));
        let pin = Condition::Pinned(first.head.validators());
        let next = origins.open(&Ask { condition: pin, ..part(5..10) }).await.unwrap();
        assert_eq!(next.head.version(), first.head.version());
    });
    server.seen();
    assert_eq!(field(&server.seen(), "if-range"), Some("Thu, 01 Jan 1970 00:00:09 GMT"));
}

#[test]
fn a_304_keeps_what_is_there_and_the_connection() {
    let server = Server::answering(|head| match field(head, "if-none-match") {
        // Its length is that of the object; no body follows (RFC 9110 8.6).
        Some("\"1\"") => b"HTTP/1.1 304 Same\r\nETag: \"1\"\r\nContent-Length: 6\r\n\
            Cache-Control: max-age=60\r\n\r\n"
            .to_vec(),
        _ => ok("ETag: \"1\"\r\nCache-Control: max-age=5\r\n", b"object"),
    });
    with_origins(&server.urls(), patient(), async |origins| {
        let mut first = origins.open(&whole("/")).await.unwrap();
        read(&mut first.body).await.unwrap();
        for _ in 0..2 {
            let unless = Condition::Unless(first.head.validators());
            let mut again = origins.open(&Ask { condition: unless, ..part(0..6) }).await.unwrap();
            assert_eq!(again.head.meta.status, 304);
            assert_eq!(read(&mut again.body).await.unwrap(), b"");
            let Revalidated::Kept(head) = first.head.revalidated(&again.head, &CachePolicy::safe())
            else {
                panic!("kept no more")
            };
            assert_eq!((head.meta.status, head.total_bytes), (200, Some(6)));
            assert_eq!(head.meta.directives.max_age_s, Some(60));
        }
    });
    assert_eq!(server.connections(), 1);
}

#[test]
fn an_empty_object_has_no_first_segment_and_is_there() {
    let server = Server::answering(|head| match asked(head) {
        Some(_) => answer("416 No range", "Content-Range: bytes */0\r\n", b"<html>"),
        None => ok("ETag: \"0\"\r\nContent-Type: text/plain\r\n", b""),
    });
    with_origins(&server.urls(), patient(), async |origins| {
        let mut reply = origins.open(&part(0..100)).await.unwrap();
        assert_eq!((reply.head.meta.status, reply.head.total_bytes), (200, Some(0)));
        let lines: Vec<_> = reply.head.field_lines().collect();
        assert!(lines.contains(&(b"Content-Type", b"text/plain")), "{lines:?}");
        assert_eq!(read(&mut reply.body).await.unwrap(), b"");
        let beyond = origins.open(&part(5..100)).await.unwrap();
        assert_eq!((beyond.head.meta.status, beyond.head.total_bytes), (416, Some(0)));
    });
}

#[test]
fn statuses_are_answers() {
    let server = Server::keeping(answer("404 Not here", "", b"no"));
    with_origins(&server.urls(), patient(), async |origins| {
        for ask in [whole("/"), part(0..100)] {
            assert_eq!(get(&origins, &ask).await.unwrap(), (404, b"no".to_vec()));
        }
    });
    let none = Server::keeping("HTTP/1.1 204 None\r\n\r\n");
    with_origins(&none.urls(), patient(), async |origins| {
        assert_eq!(get(&origins, &whole("/")).await.unwrap(), (204, Vec::new()));
    });
    let bad = Server::closing("HTTP/1.1 204 None\r\nContent-Length: 3\r\n\r\nabc");
    with_origins(&bad.urls(), patient(), async |origins| {
        assert_eq!(fault(&origins, &whole("/")).await, Fault::Malformed("body-forbidden"));
    });
}
