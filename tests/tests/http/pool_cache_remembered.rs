//! A worker's memory of look-ups in the cache in front of pools: it answers like the cache.

use skep_tests::app::response;
use skep_tests::{RawClient, Response};

use super::pool_cache::{app, assert_hit, node};

/// Asserts that `again`, also from memory, is the same reply as `known`, except for its age.
fn assert_same(known: &Response, again: &Response) {
    let lasting = |reply: &Response| {
        let head = reply.head_text().to_ascii_lowercase();
        let is_lasting =
            |line: &&str| !line.starts_with("age:") && !line.starts_with("cache-status:");
        head.lines().filter(is_lasting).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!((lasting(known), &known.body), (lasting(again), &again.body));
    for reply in [known, again] {
        let status = reply.cache_status();
        assert!(status.starts_with("skep; hit; ttl=") && !status.contains("detail"), "{status}");
        assert!(reply.header("age").is_some(), "{}", reply.head_text());
    }
}

#[test]
fn a_look_up_that_is_remembered_answers_as_the_cache_does() {
    let (app, received) = app(|request, count| {
        let language = request.field("accept-language").unwrap_or("none");
        let fields = "Cache-Control: max-age=60\r\nVary: Accept-Language\r\nETag: \"v\"\r\n";
        response(200, fields, format!("{language} {count}"))
    });
    let skep = node(&app, "");
    let mut client = skep.connect();
    let ask = |client: &mut RawClient, language: &str, more: &[(&str, &str)]| {
        client.request("GET", "/a?b", &[&[("Accept-Language", language)], more].concat())
    };
    for (language, text) in [("de", "de 1"), ("en", "en 2")] {
        assert_eq!(ask(&mut client, language, &[]).text(), text);
        received.next();
        let second = ask(&mut client, language, &[]);
        assert_hit(&second, text);
        for _ in 0..2 {
            assert_same(&second, &ask(&mut client, language, &[]));
        }
    }
    for (field, status, text) in [
        (("Range", "bytes=3-"), 206, "1"),
        (("If-None-Match", "\"v\""), 304, ""),
        (("If-Match", "\"w\""), 412, "412 Precondition Failed\n"),
        (("Cookie", "a=b"), 200, "de 1"),
    ] {
        let reply = ask(&mut client, "de", &[field]);
        assert_eq!((reply.status, &reply.text()[..]), (status, text), "{field:?}");
    }
    client.send("HEAD /a?b HTTP/1.1\r\nHost: test\r\nAccept-Language: en\r\n\r\n");
    client.try_response_to("HEAD").unwrap().assert_status(200).assert_header("content-length", "4");
    received.assert_none();

    // Other keys and other fields are not confused with it.
    assert_eq!(ask(&mut client, "fr", &[]).text(), "fr 3");
    assert_eq!(client.request("GET", "/a?c", &[("Accept-Language", "de")]).text(), "de 1");
    let own = [("Authorization", "Basic YTpi")];
    assert_eq!(ask(&mut client, "de", &own).text(), "de 4");
    (0..3).for_each(|_| drop(received.next()));
    assert_hit(&ask(&mut client, "de", &[]), "de 1");
    received.assert_none();

    // An invalidation removes it from all memories.
    client.request("DELETE", "/a?b", &[]).assert_status(200);
    received.next();
    for text in ["de 5", "de 5", "de 5"] {
        assert_eq!(ask(&mut client, "de", &[]).text(), text);
    }
    received.next();
    received.assert_none();
}
