//! The shared cache in front of pools: what is stored, for which clients, and what the application receives.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

use skep_tests::app::{App, AppRequest, response};
use skep_tests::{PATIENCE, RawClient, Response, Skep, poll_until};

use super::pools::{Gate, pool_lines};

/// A node whose site is the pool of `app`, cached with these settings.
pub(super) fn node(app: &App, cache: &str) -> Skep {
    let pool = pool_lines("", &[(app.address(), "")]);
    Skep::node_of(&format!("pool = \"app\"\n[site.cache]\nenabled = true\n{cache}\n{pool}"))
}

/// An application that answers by the path of the request and the number of requests for it; and the requests
/// it receives.
pub(super) fn app(
    answer: impl Fn(&AppRequest, usize) -> Vec<u8> + Send + Sync + 'static,
) -> (App, Received) {
    let (tell, told) = sync_channel(64);
    let counts = Mutex::new(BTreeMap::<String, usize>::new());
    let app = App::answering(move |received| {
        let line = received.line().to_owned();
        let count = {
            let mut counts = counts.lock().unwrap();
            let count = counts.entry(line).or_default();
            *count += 1;
            *count
        };
        // The test may have ended.
        let _ = tell.send(received.clone());
        answer(received, count)
    });
    (app, Received(told))
}

pub(super) struct Received(Receiver<AppRequest>);

impl Received {
    pub(super) fn next(&self) -> AppRequest {
        self.0.recv_timeout(PATIENCE).expect("the application got a request")
    }

    pub(super) fn try_next(&self) -> Option<AppRequest> {
        self.0.try_recv().ok()
    }

    pub(super) fn assert_none(&self) {
        let received = self.0.try_recv();
        assert!(received.is_err(), "the application was asked:\n{}", received.unwrap().head);
    }
}

/// Answers 200 with `fields`, and the number of requests in the body.
fn counting(fields: &'static str) -> (App, Received) {
    app(move |_, count| response(200, fields, format!("answer {count}")))
}

fn chunked(fields: &str, chunks: &[&[u8]]) -> Vec<u8> {
    let mut bytes =
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{fields}\r\n").into_bytes();
    for chunk in chunks {
        bytes.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

pub(super) fn assert_hit(reply: &Response, text: &str) {
    assert_eq!((reply.status, reply.text().as_str()), (200, text));
    assert!(reply.cache_status().starts_with("skep; hit"), "{}", reply.head_text());
}

#[test]
fn what_the_application_allows_is_stored_and_all_else_is_not() {
    let (app, received) = app(|request, count| {
        let fields = match request.line().split(' ').nth(1).unwrap() {
            "/max-age" => "Cache-Control: max-age=60\r\n",
            "/s-maxage" => "Cache-Control: s-maxage=60\r\n",
            "/targeted" => "CDN-Cache-Control: max-age=60\r\nCache-Control: no-store\r\n",
            "/expires" => "Expires: Fri, 01 Jan 2100 00:00:00 GMT\r\n",
            "/nothing" => "",
            "/no-store" => "Cache-Control: no-store, max-age=60\r\n",
            "/private" => "Cache-Control: private, max-age=60\r\n",
            "/cookie" => "Cache-Control: max-age=60\r\nSet-Cookie: a=b\r\n",
            "/vary-all" => "Cache-Control: max-age=60\r\nVary: *\r\n",
            "/vary-cookie" => "Cache-Control: max-age=60\r\nVary: Cookie\r\n",
            "/vary-client" => "Cache-Control: max-age=60\r\nVary: X-Forwarded-For\r\n",
            "/events" => "Cache-Control: max-age=60\r\nContent-Type: text/event-stream\r\n",
            path => panic!("{path}"),
        };
        response(200, fields, format!("answer {count}"))
    });
    let skep = node(&app, "");
    let mut client = skep.connect();
    for path in ["/max-age", "/s-maxage", "/targeted", "/expires"] {
        let first = client.get(path);
        assert_eq!(first.text(), "answer 1", "{path}");
        let status = first.cache_status();
        assert!(status.starts_with("skep; fwd=uri-miss; ttl="), "{path}: {status}");
        assert!(status.ends_with("; stored"), "{path}: {status}");
        assert_eq!(received.next().line(), format!("GET {path} HTTP/1.1"));
        assert_hit(&client.get(path), "answer 1");
        received.assert_none();
    }
    for (path, why) in [
        ("/nothing", "nothing-to-reuse"),
        ("/no-store", "no-store"),
        ("/private", "private"),
        ("/cookie", "set-cookie"),
        ("/vary-all", "vary-all"),
        ("/vary-cookie", "vary-refused"),
        ("/vary-client", "vary-refused"),
        ("/events", "event-stream"),
    ] {
        for count in 1..=2 {
            let reply = client.get(path);
            assert_eq!(reply.text(), format!("answer {count}"), "{path}");
            assert_eq!(reply.cache_status(), format!("skep; fwd=uri-miss; detail={why}"));
            received.next();
        }
    }
}

#[test]
fn without_the_setting_nothing_is_stored() {
    let (app, received) = counting("Cache-Control: max-age=60\r\n");
    let pool = pool_lines("", &[(app.address(), "")]);
    let skep = Skep::node_of(&format!("pool = \"app\"\n{pool}"));
    let mut client = skep.connect();
    for count in 1..=2 {
        let reply = client.get("/");
        assert_eq!(reply.text(), format!("answer {count}"));
        assert_eq!(reply.cache_status(), "skep; fwd=bypass");
        received.next();
    }
}

#[test]
fn requests_of_one_client_and_other_methods_go_past_the_cache() {
    let (app, received) = counting("Cache-Control: max-age=60\r\n");
    let skep = node(&app, "");
    let mut client = skep.connect();
    client.get("/");
    received.next();
    // The stored response was to a request without credentials.
    let credentials = [("Authorization", "Basic eA==")];
    let reply = client.request("GET", "/", &credentials);
    assert_eq!(reply.text(), "answer 2");
    assert_eq!(reply.cache_status(), "skep; fwd=bypass; detail=authorization");
    assert_eq!(received.next().field("authorization"), Some("Basic eA=="));
    assert_hit(&client.get("/"), "answer 1");
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PROPFIND"] {
        let reply = client.request(method, "/other", &[]);
        assert_eq!(reply.cache_status(), "skep; fwd=method", "{method}");
        received.next();
    }
    let events = [("Accept", "text/event-stream")];
    let streamed = client.request("GET", "/", &events);
    assert_eq!(streamed.cache_status(), "skep; fwd=bypass; detail=event-stream");
    received.next();
    client.send("GET / HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nab");
    assert_eq!(client.response().cache_status(), "skep; fwd=bypass; detail=request-body");
    assert_eq!(received.next().body, b"ab");
}

#[test]
fn credentials_are_answered_from_memory_where_the_response_says_so() {
    let (app, received) = counting("Cache-Control: public, max-age=60\r\n");
    let skep = node(&app, "");
    let mut client = skep.connect();
    let credentials = [("Authorization", "Basic eA==")];
    assert_eq!(client.request("GET", "/", &credentials).text(), "answer 1");
    received.next();
    assert_hit(&client.request("GET", "/", &credentials), "answer 1");
    assert_hit(&client.get("/"), "answer 1");
}

#[test]
fn a_stored_response_answers_conditions_ranges_and_head() {
    let (app, received) = counting(
        "Cache-Control: max-age=60\r\nETag: \"v\"\r\nContent-Type: text/plain\r\nX-App: 1\r\n\
         Surrogate-Key: t\r\nSkep-Cache-Control: max-age=60\r\n",
    );
    let skep = node(&app, "");
    let mut client = skep.connect();
    // Even the first client gets only the range.
    let part = client.request("GET", "/", &[("Range", "bytes=0-5")]);
    part.assert_status(206).assert_header("content-range", "bytes 0-5/8");
    assert_eq!(part.text(), "answer");
    let asked = received.next();
    assert_eq!((asked.field("range"), asked.field("if-none-match")), (None, None));
    let whole = client.get("/");
    whole.assert_header("x-app", "1").assert_header("etag", "\"v\"").assert_header("age", "0");
    assert_eq!((whole.header("surrogate-key"), whole.header("skep-cache-control")), (None, None));
    assert_hit(&whole, "answer 1");
    let last = client.request("GET", "/", &[("Range", "bytes=-1")]);
    assert_eq!((last.status, last.text().as_str()), (206, "1"));
    client.request("GET", "/", &[("Range", "bytes=9-")]).assert_status(416);
    let known = client.request("GET", "/", &[("If-None-Match", "\"v\"")]);
    known.assert_status(304).assert_header("etag", "\"v\"");
    client.request("GET", "/", &[("If-None-Match", "\"w\"")]).assert_status(200);
    client.request("GET", "/", &[("If-Match", "\"w\"")]).assert_status(412);
    client.send("HEAD / HTTP/1.1\r\nHost: test\r\n\r\n");
    let head = client.try_response_to("HEAD").unwrap();
    head.assert_status(200).assert_header("content-length", "8");
    assert!(head.cache_status().starts_with("skep; hit"), "{}", head.head_text());
    received.assert_none();
}

#[test]
fn a_range_without_meaning_is_stored_and_contradicts_no_part() {
    let (app, received) =
        counting("Cache-Control: max-age=60\r\nETag: \"v\"\r\nContent-Range: bytes 0-4/9\r\n");
    let skep = node(&app, "");
    let mut client = skep.connect();
    let ranges = |reply: &Response| {
        let lines = reply.head_text().to_ascii_lowercase();
        let lines = lines.lines().filter_map(|line| line.strip_prefix("content-range: "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    // RFC 9111, section 3.1: all fields are stored; RFC 9110, section 14.4: the field has no meaning in a
    // 200.
    for _ in 0..2 {
        let whole = client.get("/");
        assert_eq!((whole.status, whole.text().as_str()), (200, "answer 1"));
        assert_eq!(ranges(&whole), ["bytes 0-4/9"]);
    }
    let part = client.request("GET", "/", &[("Range", "bytes=0-5")]);
    assert_eq!((part.status, ranges(&part)), (206, vec!["bytes 0-5/8".to_owned()]));
    let beyond = client.request("GET", "/", &[("Range", "bytes=9-")]);
    assert_eq!((beyond.status, ranges(&beyond)), (416, vec!["bytes */8".to_owned()]));
    let unchanged = client.request("GET", "/", &[("If-None-Match", "\"v\"")]);
    assert_eq!((unchanged.status, ranges(&unchanged)), (304, vec![]));
    received.next();
    received.assert_none();
}

#[test]
fn head_is_forwarded_and_stores_nothing() {
    let (app, received) = counting("Cache-Control: max-age=60\r\n");
    let skep = node(&app, "");
    let mut client = skep.connect();
    for _ in 0..2 {
        client.send("HEAD / HTTP/1.1\r\nHost: test\r\n\r\n");
        let head = client.try_response_to("HEAD").unwrap();
        assert_eq!(head.cache_status(), "skep; fwd=uri-miss; detail=method");
        assert!(received.next().line().starts_with("HEAD "));
    }
    assert_eq!(client.get("/").text(), "answer 1");
}

#[test]
fn bodies_of_unknown_length_become_objects_of_known_length() {
    let (app, received) = app(|_, count| {
        let fields = "Cache-Control: max-age=60\r\nTrailer: X-End\r\n";
        chunked(fields, &[b"one ", b"two ", format!("{count}").as_bytes()])
    });
    let skep = node(&app, "");
    let mut client = skep.connect();
    let first = client.get("/short");
    assert_eq!(first.text(), "one two 1");
    first.assert_header("transfer-encoding", "chunked");
    received.next();
    let hit = client.get("/short");
    assert_hit(&hit, "one two 1");
    hit.assert_header("content-length", "9");
    let part = client.request("GET", "/short", &[("Range", "bytes=4-6")]);
    assert_eq!((part.status, part.text().as_str()), (206, "two"));
    received.assert_none();
}

#[test]
fn requests_with_other_fields_get_responses_of_their_own() {
    let (app, received) = app(|request, count| {
        let language = request.field("accept-language").unwrap_or("none");
        let fields = "Cache-Control: max-age=60\r\nVary: Accept-Language\r\n";
        response(200, fields, format!("{language} {count}"))
    });
    let skep = node(&app, "");
    let mut client = skep.connect();
    let ask = |client: &mut RawClient, language: &str| {
        client.request("GET", "/", &[("Accept-Language", language)])
    };
    assert_eq!(ask(&mut client, "de").text(), "de 1");
    received.next();
    let other = ask(&mut client, "en");
    assert_eq!(other.text(), "en 2");
    assert!(other.cache_status().starts_with("skep; fwd=vary-miss; "), "{}", other.head_text());
    received.next();
    assert_eq!(client.get("/").text(), "none 3");
    received.next();
    assert_hit(&ask(&mut client, "de"), "de 1");
    assert_hit(&ask(&mut client, "EN"), "en 2");
    assert_hit(&client.get("/"), "none 3");
    received.assert_none();
    // A field that is not forwarded to the application does not select a variant.
    let lies = [("Accept-Language", "fr"), ("Connection", "accept-language, keep-alive")];
    let lie = client.request("GET", "/", &lies);
    let told = (lie.text(), lie.cache_status());
    assert_eq!(told, ("none 4".into(), "skep; fwd=bypass; detail=connection"));
    received.next();
    assert_eq!(ask(&mut client, "fr").text(), "fr 5");
    received.next();
}

#[test]
fn what_is_stale_is_validated_and_renewed() {
    let (app, received) = app(|request, count| {
        let fields = "Cache-Control: no-cache\r\nETag: \"v\"\r\n";
        match request.field("if-none-match") {
            Some("\"v\"") if count < 4 => {
                response(304, &format!("{fields}X-Count: {count}\r\n"), "")
            }
            _ => response(200, fields, format!("answer {count}")),
        }
    });
    let skep = node(&app, "");
    let mut client = skep.connect();
    assert_eq!(client.get("/").text(), "answer 1");
    assert_eq!(received.next().field("if-none-match"), None);
    for count in ["2", "3"] {
        let renewed = client.get("/");
        assert_eq!(renewed.text(), "answer 1");
        assert!(
            renewed.cache_status().starts_with("skep; fwd=stale; fwd-status=304"),
            "{}",
            renewed.head_text()
        );
        renewed.assert_header("x-count", count);
        assert_eq!(received.next().field("if-none-match"), Some("\"v\""));
    }
    let replaced = client.get("/");
    assert_eq!(replaced.text(), "answer 4");
    assert!(replaced.cache_status().starts_with("skep; fwd=stale; ttl="));
    received.next();
    // A client's own condition is evaluated against the stored response once that is validated.
    let known = client.request("GET", "/", &[("If-None-Match", "\"v\""), ("Range", "bytes=0-1")]);
    known.assert_status(304);
    assert_eq!(received.next().field("range"), None);
}

/// Fields of a response that is stale from the start.
const STALE: &str = "Cache-Control: max-age=10, stale-while-revalidate=1000\r\nAge: 100\r\n";

#[test]
fn what_may_be_used_while_it_is_validated_is_refreshed_in_the_background() {
    let gate = Gate::default();
    let shut = gate.clone();
    let (app, received) = app(move |_, count| {
        if count == 2 {
            shut.pass();
        }
        let fields = if count == 1 { STALE } else { "Cache-Control: max-age=60\r\n" };
        response(200, fields, format!("answer {count}"))
    });
    let skep = node(&app, "");
    let mut client = skep.connect();
    assert_eq!(client.request("GET", "/", &[("X-Own", "1")]).text(), "answer 1");
    received.next();
    // One revalidation for all, in the background.
    for _ in 0..3 {
        let stale = client.request("GET", "/", &[("X-Own", "2")]);
        assert_hit(&stale, "answer 1");
        assert!(stale.cache_status().contains("ttl=-"), "{}", stale.head_text());
    }
    assert_eq!(received.next().field("x-own"), Some("2"));
    gate.open();
    poll_until(PATIENCE, "the refreshed one", || client.get("/").text() == "answer 2");
    received.assert_none();
}

#[test]
fn what_may_be_used_if_the_application_fails_is() {
    let (app, received) = app(|request, count| match count {
        1 => response(
            200,
            "Cache-Control: max-age=10, stale-if-error=1000\r\nAge: 100\r\n",
            "answer 1",
        ),
        _ if request.line().contains("must") => response(500, "", "no"),
        _ => response(503, "", "no"),
    });
    let skep = node(&app, "");
    let mut client = skep.connect();
    assert_eq!(client.get("/").text(), "answer 1");
    received.next();
    let stale = client.get("/");
    assert_eq!(stale.text(), "answer 1");
    let status = stale.cache_status().to_owned();
    assert!(status.starts_with("skep; fwd=stale; fwd-status=503; ttl=-"), "{status}");
    assert!(status.ends_with("detail=stale-if-error"), "{status}");
    received.next();
    // Further revalidations are suppressed for a moment.
    let again = client.get("/");
    assert_hit(&again, "answer 1");
    received.assert_none();
}

#[test]
fn a_new_response_that_breaks_off_leaves_the_stale_one() {
    let asked = AtomicUsize::new(0);
    let app = App::start(move |conn| {
        if conn.request().is_some() {
            let is_first = asked.fetch_add(1, Ordering::SeqCst) == 0;
            let fields = "Cache-Control: max-age=10, stale-if-error=1000\r\nAge: 100\r\n";
            let body = if is_first { "answer" } else { "ans" };
            conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n{fields}\r\n{body}"));
        }
    });
    let skep = node(&app, "");
    for round in 0..4 {
        let reply = skep.connect().get("/");
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (200, "answer"),
            "{round} {}",
            reply.head_text()
        );
    }
}

#[test]
fn nothing_stays_of_a_response_that_breaks_off() {
    let app = App::start(|conn| {
        if let Some(request) = conn.request() {
            let (path, fields) = (request.line().to_owned(), "Cache-Control: max-age=60\r\n");
            if path.contains("/chunked") {
                conn.send(format!(
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{fields}\r\n5\r\nhello\r\n5\r\nwo"
                ));
            } else if path.contains("/length") {
                conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n{fields}\r\nhello"));
            } else {
                conn.send(format!("HTTP/1.1 200 OK\r\n{fields}\r\nopen {}", conn.number));
            }
        }
    });
    let skep = node(&app, "");
    for _ in 0..2 {
        let reply = skep.connect().get("/length");
        reply.assert_status(502);
        assert_eq!(reply.cache_status(), "skep; fwd=miss; detail=no-answer");
        // A response whose storability is known only at its end is streamed: its client detects the
        // truncation.
        let mut client = skep.connect();
        client.ask("/chunked");
        assert!(client.try_response().is_err(), "it is cut short");
    }
    // Delimited only by the end of the connection: it may be incomplete, and is not stored.
    let first = skep.connect().get("/open");
    assert_eq!(first.cache_status(), "skep; fwd=uri-miss; detail=open-ended");
    assert_ne!(first.text(), skep.connect().get("/open").text());
}

#[test]
fn a_client_that_wants_what_is_stored_only_gets_that() {
    let (app, received) = counting("Cache-Control: max-age=60\r\n");
    let skep = node(&app, "");
    let mut client = skep.connect();
    let only = [("Cache-Control", "only-if-cached")];
    let none = client.request("GET", "/", &only);
    none.assert_status(504);
    assert_eq!(none.cache_status(), "skep; fwd=miss; detail=only-if-cached");
    received.assert_none();
    // A client's reload does not reach the application.
    client.request("GET", "/", &[("Cache-Control", "no-store")]).assert_status(200);
    received.next();
    assert_eq!(client.get("/").text(), "answer 2");
    received.next();
    assert_hit(&client.request("GET", "/", &[("Cache-Control", "no-cache")]), "answer 2");
    assert_hit(&client.request("GET", "/", &only), "answer 2");
    received.assert_none();
}

#[test]
fn keys_are_made_by_rule_and_what_is_in_no_key_does_not_reach_the_application() {
    let (app, received) =
        app(|_, count| response(200, "Cache-Control: max-age=60\r\n", format!("answer {count}")));
    let skep = node(
        &app,
        "query_ignored = ['utm_*']\nquery_sorted = true\nkey_cookies = ['lang']\n\
         key_fields = ['X-Device']",
    );
    let mut client = skep.connect();
    let mut get = |target: &str, fields: &[(&str, &str)]| client.request("GET", target, fields);
    assert_eq!(get("/?b=2&utm_source=x&a=1", &[]).text(), "answer 1");
    let asked = received.next();
    assert_eq!(asked.line(), "GET /?a=1&b=2 HTTP/1.1", "as it is stored");
    assert_hit(&get("/?a=1&utm_medium=y&b=2", &[]), "answer 1");
    for (count, fields) in
        [(2, ("Cookie", "lang=de")), (3, ("Cookie", "lang=en")), (4, ("X-Device", "tv"))]
    {
        let first = get("/?a=1&b=2", &[fields]);
        assert_eq!(first.text(), format!("answer {count}"), "{fields:?}");
        received.next();
        assert_hit(&get("/?a=1&b=2", &[fields]), &format!("answer {count}"));
    }
    client.send("GET /?a=1&b=2 HTTP/1.1\r\nHost: other.example\r\n\r\n");
    assert_eq!(client.response().text(), "answer 5");
    received.next();
    let mut get = |target: &str, fields: &[(&str, &str)]| client.request("GET", target, fields);
    let unkeyed = [
        ("X-Forwarded-Host", "evil.example"),
        ("X-Original-URL", "/admin"),
        ("X-HTTP-Method-Override", "DELETE"),
        ("X-Host", "evil.example"),
        ("X-Own", "kept"),
    ];
    assert_eq!(get("/other", &unkeyed).text(), "answer 1");
    let asked = received.next();
    assert_eq!(asked.field("x-own"), Some("kept"));
    assert_eq!(asked.field("x-forwarded-host"), Some("test"));
    for name in ["x-original-url", "x-http-method-override", "x-host"] {
        assert_eq!(asked.field(name), None, "{name}");
    }
}

#[test]
fn lifetimes_of_the_settings_are_for_pages_that_are_the_same_for_all() {
    let (app, received) = app(|request, count| {
        let status = if request.line().contains("/gone") { 404 } else { 200 };
        let fields = match request.line() {
            line if line.contains("/private") => "Cache-Control: private\r\n",
            line if line.contains("/cookie") => "Set-Cookie: a=b\r\n",
            _ => "",
        };
        response(status, fields, format!("answer {count}"))
    });
    let skep = node(&app, "fresh_ms = 60000\nnegative_ms = 60000\ncookies_ignored = ['_ga*']");
    let mut client = skep.connect();
    assert_eq!(client.get("/").text(), "answer 1");
    received.next();
    assert_hit(&client.get("/"), "answer 1");
    assert_hit(&client.request("GET", "/", &[("Cookie", "_ga=1; _ga_x=2")]), "answer 1");
    // With other cookies the page may differ.
    let own = client.request("GET", "/", &[("Cookie", "session=1")]);
    assert_eq!(
        (own.text().as_str(), own.cache_status()),
        ("answer 2", "skep; fwd=bypass; detail=cookie")
    );
    received.next();
    assert_hit(&client.get("/"), "answer 1");
    client.get("/gone").assert_status(404);
    received.next();
    let gone = client.get("/gone");
    assert!(gone.status == 404 && gone.cache_status().starts_with("skep; hit"));
    for path in ["/private", "/cookie"] {
        for count in 1..=2 {
            assert_eq!(client.get(path).text(), format!("answer {count}"), "{path}");
            received.next();
        }
    }
    // The response to a request with a cookie is not reused for others.
    let first = client.request("GET", "/new", &[("Cookie", "session=1")]);
    assert_eq!(first.cache_status(), "skep; fwd=uri-miss; detail=cookie");
    assert_eq!(client.get("/new").text(), "answer 2");
}

#[test]
fn a_client_may_ask_for_a_new_response_where_the_setting_says_so() {
    let (app, received) = counting("Cache-Control: max-age=60\r\nETag: \"v\"\r\n");
    let skep = node(&app, "obey = 'all'");
    let mut client = skep.connect();
    client.get("/");
    received.next();
    let reload = client.request("GET", "/", &[("Cache-Control", "no-cache")]);
    assert_eq!(reload.text(), "answer 2");
    assert!(reload.cache_status().starts_with("skep; fwd=request; "), "{}", reload.head_text());
    assert_eq!(received.next().field("if-none-match"), Some("\"v\""));
    assert_hit(&client.get("/"), "answer 2");
    assert_eq!(
        client.request("GET", "/", &[("Cache-Control", "min-fresh=100")]).text(),
        "answer 3"
    );
}
