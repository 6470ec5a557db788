//! Cache rules of routes in front of pools: each route of a node has different ones.

use skep_tests::app::{App, AppRequest, response};
use skep_tests::{FreePort, PATIENCE, RawClient, Response, Skep, poll_until};

use super::pool_cache::{Received, app, assert_hit};
use super::pools::{Gate, pool_lines};
use super::slow::value;

/// A node whose routes have these paths and cache settings, and whose site has the settings in `others`.
fn node(app: &App, routes: &[(&str, &str)], others: &str) -> Skep {
    let mut lines = format!("pool = \"app\"\n[site.cache]\nenabled = true\n{others}\n");
    for (path, cache) in routes {
        lines += &format!(
            "[[site.route]]\npath = \"{path}\"\npool = \"app\"\n\
             [site.route.cache]\nenabled = true\n{cache}\n"
        );
    }
    Skep::node_of(&(lines + &pool_lines("", &[(app.address(), "")])))
}

fn path_of(request: &AppRequest) -> &str {
    request.line().split(' ').nth(1).unwrap()
}

/// Fields of a response that is already stale when it arrives.
fn stale(control: &str) -> String {
    format!("Cache-Control: max-age=10{control}\r\nAge: 100\r\n")
}

struct Rig {
    app: App,
    received: Received,
}

impl Rig {
    /// Answers with the number of requests for the path, and with status and fields by its last segment.
    fn new() -> Self {
        let (app, received) = app(|request, count| {
            let (status, fields) = match path_of(request).rsplit('/').next().unwrap() {
                "stale" => (200, stale("")),
                "must-revalidate" => (200, stale(", must-revalidate")),
                "s-maxage" => {
                    (200, "Cache-Control: s-maxage=10\r\nAge: 100\r\nETag: \"a\"\r\n".into())
                }
                "says-0" => (200, stale(", stale-while-revalidate=0, stale-if-error=0")),
                "fails" if count > 1 => (503, String::new()),
                "fails" => (200, stale("")),
                "fails-forbidden" if count > 1 => (503, String::new()),
                "fails-forbidden" => (200, stale(", proxy-revalidate")),
                "private-404" => (404, "Cache-Control: private\r\n".into()),
                "cookie-404" => (404, "Set-Cookie: a=b\r\n".into()),
                "own-404" => (404, "Cache-Control: max-age=77\r\n".into()),
                "nothing" => (200, String::new()),
                status if status.parse::<u16>().is_ok() => (status.parse().unwrap(), String::new()),
                _ => (200, "Cache-Control: max-age=60\r\n".into()),
            };
            response(status, &fields, format!("answer {count}"))
        });
        Self { app, received }
    }

    /// Returns the second of two replies, and how many requests the application received for them.
    fn twice(&self, client: &mut RawClient, path: &str) -> (Response, usize) {
        client.get(path);
        let second = client.get(path);
        let asked = std::iter::from_fn(|| self.received.try_next());
        // Meanwhile, another page may have been revalidated.
        let asked = asked.filter(|it| path_of(it) == path).count();
        (second, asked)
    }
}

#[test]
fn requests_with_a_cookie_or_field_that_is_named_go_past_the_cache() {
    let Rig { app, received } = Rig::new();
    let rules = "bypass_cookies = [\"session\", \"wordpress_*\"]\n\
                 cookies_ignored = [\"wordpress_test\"]\n\
                 bypass_fields = [\"X-HTTP-Method-Override\"]";
    let skep = node(&app, &[], rules);
    let mut client = skep.connect();
    assert_eq!(client.get("/a").text(), "answer 1");
    received.next();
    assert_hit(&client.get("/a"), "answer 1");
    let mut count = 1;
    for cookie in ["session=1", "a=b; wordpress_logged_in=x", "Session=2", "a=1, session=3"] {
        count += 1;
        let own = client.request("GET", "/a", &[("Cookie", cookie)]);
        assert_eq!(own.text(), format!("answer {count}"), "neither looked up …");
        assert_eq!(own.cache_status(), "skep; fwd=bypass; detail=bypass-cookie");
        assert_eq!(received.next().field("cookie"), Some(cookie));
        assert_hit(&client.get("/a"), "answer 1");
    }
    let field = [("X-HTTP-Method-Override", "DELETE")];
    let own = client.request("GET", "/a", &field);
    assert_eq!(own.cache_status(), "skep; fwd=bypass; detail=bypass-field");
    assert_eq!(received.next().field("x-http-method-override"), Some("DELETE"));
    for cookie in ["sessions=1", "wordpress_test=1", "a=session"] {
        assert_hit(&client.request("GET", "/a", &[("Cookie", cookie)]), "answer 1");
    }
    // … nor stored.
    let first = client.request("GET", "/b", &[("Cookie", "session=1")]);
    assert_eq!(first.text(), "answer 1");
    assert_eq!(client.get("/b").text(), "answer 2");
    (0..2).for_each(|_| _ = received.next());
    let explained = skep.command(&[
        "cache",
        "explain",
        &format!("http://{}/a", skep.address()),
        "--header",
        "Cookie: session=1",
    ]);
    assert!(
        explained.stdout.contains("(bypass-cookie)"),
        "{}{}",
        explained.stdout,
        explained.stderr
    );
    received.assert_none();
}

#[test]
fn the_settings_allow_staleness_where_the_response_is_silent() {
    let rig = Rig::new();
    let skep = node(
        &rig.app,
        &[("/while/*", "stale_while_ms = \"1h\""), ("/error/*", "stale_error_ms = \"1h\"")],
        "",
    );
    let mut client = skep.connect();
    assert_eq!(client.get("/while/stale").text(), "answer 1");
    let used = client.get("/while/stale");
    assert_hit(&used, "answer 1");
    assert!(used.cache_status().contains("; ttl=-9"), "{}", used.head_text());
    poll_until(PATIENCE, "it is refreshed meanwhile", || {
        // Each request triggers another revalidation.
        client.get("/while/stale").text() != "answer 1"
    });
    while rig.received.try_next().is_some() {}
    // Directives of the response take precedence, as does whatever forbids reuse.
    for path in ["/while/says-0", "/while/must-revalidate", "/while/s-maxage", "/stale"] {
        assert_eq!(rig.twice(&mut client, path).1, 2, "{path}");
    }
    // A response that was never fresh is not stored only because of the settings.
    let (reply, asked) = rig.twice(&mut client, "/while/nothing");
    assert_eq!((asked, reply.cache_status()), (2, "skep; fwd=uri-miss; detail=nothing-to-reuse"));

    let (stale, asked) = rig.twice(&mut client, "/error/fails");
    assert_eq!((stale.status, stale.text(), asked), (200, "answer 1".into(), 2));
    let status = stale.cache_status();
    assert!(status.starts_with("skep; fwd=stale; fwd-status=503; ttl=-9"), "{status}");
    assert!(status.ends_with("; detail=stale-if-error"), "{status}");
    for path in ["/error/fails-forbidden", "/fails"] {
        assert_eq!(rig.twice(&mut client, path).0.status, 503, "{path}");
    }
}

#[test]
fn statuses_have_lifetimes_where_the_response_is_silent() {
    let rig = Rig::new();
    let lifetimes =
        "status_lifetimes_ms = { 404 = \"30s\", 503 = \"10s\", 4xx = \"5s\", 3xx = \"9s\" }";
    let skep = node(&rig.app, &[("/cached/*", lifetimes)], "");
    let mut client = skep.connect();
    for (path, status, ttl_s) in
        [("404", 404, 30), ("410", 410, 5), ("503", 503, 10), ("302", 302, 9), ("own-404", 404, 77)]
    {
        let (hit, asked) = rig.twice(&mut client, &format!("/cached/{path}"));
        assert_eq!((hit.status, asked), (status, 1), "{path}");
        let told = hit.cache_status();
        let is_so = |ttl_s: u64| told == format!("skep; hit; ttl={ttl_s}");
        assert!((ttl_s - 5..=ttl_s).any(is_so), "{path}: {told}");
    }
    for (path, why) in [
        // Of a class, only those that an unusual request cannot provoke.
        ("400", "status"),
        ("431", "status"),
        ("500", "status"),
        ("private-404", "private"),
        ("cookie-404", "set-cookie"),
    ] {
        let (reply, asked) = rig.twice(&mut client, &format!("/cached/{path}"));
        assert_eq!(
            (asked, reply.cache_status()),
            (2, &*format!("skep; fwd=uri-miss; detail={why}"))
        );
    }
    assert_eq!(rig.twice(&mut client, "/404").1, 2, "another route's");
    // Never a response to a request with credentials or cookies, and none is reused for such a request.
    for (fields, why) in
        [([("Authorization", "Basic eA==")], "authorization"), ([("Cookie", "a=b")], "cookie")]
    {
        let path = format!("/cached/{why}/404");
        let own = client.request("GET", &path, &fields);
        assert_eq!(own.cache_status(), format!("skep; fwd=uri-miss; detail={why}"));
        assert_eq!(rig.twice(&mut client, &path).0.text(), "answer 2");
        assert_eq!(client.request("GET", &path, &fields).text(), "answer 3");
    }
}

#[test]
fn what_is_in_no_key_reaches_no_application_unless_a_route_says_so() {
    let Rig { app, received } = Rig::new();
    let skep = node(
        &app,
        &[
            ("/key/*", "key_fields = [\"X-Host\"]\nshow_key = true"),
            ("/list/*", "request_fields = [\"Accept*\", \"X-Own\", \"X-Original-URL\"]"),
        ],
        "",
    );
    let mut client = skep.connect();
    let fields = [
        ("X-Host", "evil"),
        ("X-Original-URL", "/evil"),
        ("X-Rewrite-URL", "/evil"),
        ("X-HTTP-Method-Override", "DELETE"),
        ("X-Forwarded-Host", "evil"),
        ("X-Forwarded-Prefix", "/evil"),
        ("X-Forwarded", "evil"),
        ("Forwarded", "host=evil"),
        ("X-Middleware-Prefetch", "1"),
        ("X-Scheme", "evil"),
        ("User-Agent", "a"),
        ("X-Own", "b"),
        ("Accept-Language", "de"),
        ("Authorization", "c"),
    ];
    for (path, passed) in [
        ("/a", &["User-Agent", "X-Own", "Accept-Language", "Authorization"][..]),
        ("/key/a", &["X-Host", "User-Agent", "X-Own", "Accept-Language", "Authorization"]),
        ("/list/a", &["X-Own", "Accept-Language", "Authorization"]),
    ] {
        client.request("GET", path, &fields).assert_status(200);
        let asked = received.next();
        for (name, value) in fields {
            // A node's own value of a field is not the client's.
            let is_there = asked.field(&name.to_ascii_lowercase()) == Some(value);
            assert_eq!(is_there, passed.contains(&name), "{path} {name}:\n{}", asked.head);
        }
    }
    // A field that is part of the key selects a separate response.
    client.request("GET", "/key/b", &[("X-Host", "one")]);
    let other = client.request("GET", "/key/b", &[("X-Host", "two")]);
    assert_eq!(other.text(), "answer 2");
    let told = "key=\"http://test/key/b field x-host=two\"";
    assert!(other.cache_status().contains(told), "{}", other.head_text());
    let again = client.request("GET", "/key/b", &[("X-Host", "two")]);
    assert_hit(&again, "answer 2");
    assert!(again.cache_status().ends_with(told), "{}", again.head_text());
    assert!(!client.get("/c").cache_status().contains("key="));
}

#[test]
fn clients_are_told_how_the_cache_answered() {
    let gate = Gate::default();
    let shut = gate.clone();
    let (app, received) = app(move |request, count| {
        if count == 1 && path_of(request) == "/private" {
            shut.pass();
        }
        let fields = match path_of(request) {
            "/private" => "Cache-Control: private\r\n",
            _ => "Cache-Control: max-age=60\r\nETag: \"v\"\r\n",
        };
        response(200, fields, format!("answer {count}"))
    });
    // With one thread, each request is waiting before the next one is read.
    let metrics = FreePort::claim();
    let more = format!("[machine]\nthreads = 1\n[metrics]\nlisten = \"{}\"", metrics.address());
    let skep = node(&app, &[], &more);
    let mut client = skep.connect();
    // RFC 9211, section 2.3: the application's status, if the client receives a different one.
    let part = client.request("GET", "/part", &[("Range", "bytes=0-5")]);
    part.assert_status(206);
    let told = part.cache_status();
    assert!(told.starts_with("skep; fwd=uri-miss; fwd-status=200; ttl="), "{told}");
    assert!(told.ends_with("; stored"), "{told}");
    let known = client.request("GET", "/known", &[("If-None-Match", "\"v\"")]);
    known.assert_status(304);
    let told = known.cache_status();
    assert!(told.starts_with("skep; fwd=uri-miss; fwd-status=200; ttl="), "{told}");
    let part = client.request("GET", "/part", &[("Range", "bytes=0-5")]);
    let told = part.assert_status(206).cache_status();
    assert!(told.starts_with("skep; hit; ttl=") && !told.contains("status"), "{told}");
    (0..2).for_each(|_| _ = received.next());

    // Section 2.6: a request that waited, and was forwarded in the end.
    let mut leader = skep.connect();
    leader.ask("/private");
    received.next();
    let mut other = skep.connect();
    other.ask("/private");
    let in_flight = || value(&metrics, "skep_requests_in_flight");
    poll_until(PATIENCE, "the other one waits", || in_flight() == 2.0);
    gate.open();
    assert_eq!(leader.response().cache_status(), "skep; fwd=uri-miss; detail=private");
    let told = other.response();
    assert_eq!(told.cache_status(), "skep; fwd=uri-miss; collapsed=?0; detail=private");
    // Marked as private: no request waits any more.
    assert_eq!(client.get("/private").cache_status(), "skep; fwd=uri-miss; detail=private");
}
