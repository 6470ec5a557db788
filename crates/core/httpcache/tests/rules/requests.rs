//! Requests against stored responses: reuse, failures of the origin, conditions and ranges.

use skep_http::limits::RESPONSE_HEAD;
use skep_http::{FieldSlots, RequestHead, parse_request};
use skep_httpcache::{
    CachePolicy, CachingRule, CookiePolicy, ExchangeTimes, FailureStatuses, Freshness,
    ObeyedDirectives, OnFailure, OriginFailure, RequestMeta, ResponseMeta, Reuse, StoredReply,
    may_forward, on_failure, reuse, store, stored_reply,
};

/// The result of `read` for a request with these fields.
fn with<R>(method: &str, fields: &str, read: impl Fn(&RequestHead<'_, '_>) -> R) -> R {
    let text = format!("{method} / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let mut slots = FieldSlots::new();
    read(&parse_request(&mut slots, text.as_bytes(), &RESPONSE_HEAD).unwrap())
}

/// A response received at second 1000 of the epoch.
fn stored(fields: &[(&str, &str)]) -> ResponseMeta {
    let times = ExchangeTimes { requested_unix_ms: 1_000_000, received_unix_ms: 1_000_000 };
    let lines = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    ResponseMeta::parse(200, lines, times)
}

fn obeying() -> CachePolicy {
    CachePolicy { obeyed: ObeyedDirectives::ALL, ..CachePolicy::safe() }
}

/// The verdict `resident_s` after the receipt of a response with this Cache-Control.
fn verdict(control: &str, request: &str, resident_s: u64, policy: &CachePolicy) -> Reuse {
    let freshness =
        Freshness::of(&stored(&[("Cache-Control", control), ("ETag", "\"a\"")]), policy);
    with("GET", request, |head| {
        reuse(&freshness, &RequestMeta::of(head, policy), resident_s * 1000, policy)
    })
}

#[test]
fn what_is_stored_is_sent_validated_or_passed_by() {
    use CachingRule as Rule;
    let policy = obeying();
    let rows = [
        // RFC 9111 4.2: fresh while the lifetime is greater than the age.
        ("max-age=10", "", 9, Reuse::Send(Rule::Fresh)),
        ("max-age=10", "", 10, Reuse::Validate(Rule::Stale)),
        ("max-age=10, no-cache", "", 0, Reuse::Validate(Rule::NoCache)),
        // RFC 5861 3.
        (
            "max-age=10, stale-while-revalidate=5",
            "",
            14,
            Reuse::SendAndValidate(Rule::WhileRevalidating),
        ),
        ("max-age=10, stale-while-revalidate=5", "", 15, Reuse::Validate(Rule::Stale)),
        ("max-age=10, stale-while-revalidate=5, no-cache", "", 1, Reuse::Validate(Rule::NoCache)),
        (
            "max-age=10, stale-while-revalidate=5, must-revalidate",
            "",
            11,
            Reuse::Validate(Rule::Stale),
        ),
        // RFC 9111 5.2.1.
        ("max-age=10", "no-cache", 1, Reuse::Validate(Rule::RequestNoCache)),
        ("max-age=10", "max-age=5", 5, Reuse::Send(Rule::Fresh)),
        ("max-age=10", "max-age=5", 6, Reuse::Validate(Rule::RequestMaxAge)),
        ("max-age=10", "max-age=5, max-stale", 6, Reuse::Send(Rule::Fresh)),
        ("max-age=10", "min-fresh=3", 7, Reuse::Send(Rule::Fresh)),
        ("max-age=10", "min-fresh=3", 8, Reuse::Validate(Rule::MinFresh)),
        ("max-age=10", "max-stale=5", 15, Reuse::Send(Rule::MaxStale)),
        ("max-age=10", "max-stale=5", 16, Reuse::Validate(Rule::Stale)),
        ("max-age=10", "max-stale", 999, Reuse::Send(Rule::MaxStale)),
        ("max-age=10, must-revalidate", "max-stale", 11, Reuse::Validate(Rule::Stale)),
        ("max-age=10, proxy-revalidate", "max-stale", 11, Reuse::Validate(Rule::Stale)),
        ("s-maxage=10", "max-stale", 11, Reuse::Validate(Rule::Stale)),
        ("max-age=10", "only-if-cached", 9, Reuse::Send(Rule::Fresh)),
        ("max-age=10", "only-if-cached", 10, Reuse::GatewayTimeout(Rule::OnlyIfCached)),
        ("max-age=10", "only-if-cached, max-stale", 11, Reuse::Send(Rule::MaxStale)),
    ];
    for (control, directive, resident_s, expected) in rows {
        let request = format!("Cache-Control: {directive}\r\n");
        let got = verdict(control, &request, resident_s, &policy);
        assert_eq!(got, expected, "{control}; {directive}; {resident_s} s");
    }
    let reload = "Cache-Control: no-cache, max-age=0, min-fresh=99\r\n";
    let got = verdict("max-age=10", reload, 1, &CachePolicy::safe());
    assert_eq!(got, Reuse::Send(CachingRule::Fresh), "a reload does not reach the origin");
    let got = verdict("max-age=10", "Pragma: no-cache\r\n", 1, &policy);
    assert_eq!(got, Reuse::Validate(CachingRule::RequestNoCache));
}

#[test]
fn methods_bodies_and_streams_pass_the_cache_by() {
    let policy = CachePolicy::safe();
    let freshness = Freshness::of(&stored(&[("Cache-Control", "max-age=10")]), &policy);
    let rows = [
        ("GET", "", true),
        ("HEAD", "", true),
        ("POST", "", false),
        ("OPTIONS", "", false),
        ("GET", "Content-Length: 1\r\n", false),
        ("GET", "Connection: upgrade\r\nUpgrade: websocket\r\n", false),
        ("GET", "Accept: text/html, Text/Event-Stream\r\n", false),
    ];
    for (method, fields, is_sent) in rows {
        let verdict = with(method, fields, |head| {
            reuse(&freshness, &RequestMeta::of(head, &policy), 0, &policy)
        });
        assert_eq!(matches!(verdict, Reuse::Send(_)), is_sent, "{method} {fields}");
        assert_eq!(matches!(verdict, Reuse::Bypass(_)), !is_sent, "{method} {fields}");
    }
}

#[test]
fn a_cookie_sees_only_what_the_application_shares_in_so_many_words() {
    let policy = CachePolicy {
        default_ms: 10_000,
        cookies_ignored: vec!["_ga".to_owned(), "_utm*".to_owned()],
        ..CachePolicy::safe()
    };
    let of = |control, cookie: &str, policy: &CachePolicy| {
        verdict(control, &format!("Cookie: {cookie}\r\n"), 1, policy)
    };
    assert_eq!(of("", "sid=1", &policy), Reuse::Bypass(CachingRule::Cookie));
    assert_eq!(of("max-age=10", "sid=1", &policy), Reuse::Send(CachingRule::Fresh));
    assert_eq!(of("", "_ga=1; _utmz=x;", &policy), Reuse::Send(CachingRule::Fresh));
    for counts in ["_gat=1", "_ga=1; sid=2", "nothing", "=x"] {
        assert_eq!(of("", counts, &policy), Reuse::Bypass(CachingRule::Cookie), "{counts}");
    }
    let ignore = CachePolicy { cookies: CookiePolicy::Ignore, ..policy };
    assert_eq!(of("", "sid=1", &ignore), Reuse::Send(CachingRule::Fresh));
}

#[test]
fn a_cookie_that_is_named_goes_past_the_cache_however_it_is_written() {
    let policy = CachePolicy {
        bypass_cookies: vec!["my_session".to_owned(), "wordpress_*".to_owned()],
        cookies_ignored: vec!["_ga*".to_owned(), "wordpress_test".to_owned()],
        ..CachePolicy::safe()
    };
    let bypasses = |cookies: &str, policy: &CachePolicy| {
        with("GET", cookies, |head| RequestMeta::of(head, policy).bypass.is_some())
    };
    for cookie in [
        "my_session=1",
        "a=b; my_session",
        "a=b;my_session=",
        "wordpress_logged_in_1=x",
        "wordpress_=",
        // Names that some application reads as one of them.
        "MY_SESSION=1",
        "my.session=1",
        "my_session[a]=1",
        "+my_session=1",
        "WordPress-x=1",
        "a=1, my_session=2",
        "a=1 my_session=2",
        "a=\"1; my_session=2\"",
        "my_session =1",
        "my%5fsession=1",
    ] {
        let line = format!("Cookie: {cookie}\r\n");
        assert!(bypasses(&line, &policy), "{cookie}");
        assert!(bypasses(&format!("Cookie: _ga=1\r\n{line}"), &policy), "{cookie}");
        assert!(!bypasses(&line, &CachePolicy::safe()), "{cookie}");
    }
    for cookie in
        ["", "a=b", "my_session2=1", "x_wordpress_=1", "_ga=my_session", "wordpress_test=1"]
    {
        assert!(!bypasses(&format!("Cookie: {cookie}\r\n"), &policy), "{cookie}");
    }
    assert!(!bypasses("X: my_session=1\r\n", &policy));
    let field = CachePolicy { bypass_fields: vec!["X-Own".to_owned()], ..policy.clone() };
    assert!(bypasses("x-own: 1\r\n", &field) && !bypasses("X-Own-2: 1\r\n", &field));
    // Any cookie except the ignored ones.
    let all = CachePolicy { bypass_cookies: vec!["*".to_owned()], ..policy.clone() };
    assert!(bypasses("Cookie: a=b\r\n", &all) && !bypasses("Cookie: _ga=1\r\n", &all));
    // The request neither uses a stored response, nor is its own response stored.
    let meta = stored(&[("Cache-Control", "public, max-age=10")]);
    with("GET", "Cookie: my_session=1\r\n", |head| {
        let request = RequestMeta::of(head, &policy);
        let verdict = reuse(&Freshness::of(&meta, &policy), &request, 0, &policy);
        assert!(matches!(verdict, Reuse::Bypass(_)), "{verdict:?}");
        assert_eq!(store(&request, &meta, &policy), Err(CachingRule::BypassCookie));
    });
}

#[test]
fn a_failure_of_the_origin_lets_stale_responses_through_where_they_say_so() {
    use CachingRule as Rule;
    use OriginFailure::{Disconnected, Status};
    let policy = CachePolicy { stale_on_disconnect_ms: 60_000, ..CachePolicy::safe() };
    let rows = [
        ("max-age=1, stale-if-error=9", Status(503), 5, OnFailure::SendStale(Rule::IfError)),
        ("max-age=1, stale-if-error=9", Status(501), 5, OnFailure::SendError(Rule::Stale)),
        ("max-age=1, stale-if-error=9", Disconnected, 5, OnFailure::SendStale(Rule::IfError)),
        ("max-age=1, stale-if-error=9", Status(503), 10, OnFailure::SendError(Rule::Stale)),
        ("max-age=1, stale-if-error=9", Disconnected, 10, OnFailure::SendStale(Rule::OnDisconnect)),
        ("max-age=1", Disconnected, 60, OnFailure::SendStale(Rule::OnDisconnect)),
        ("max-age=1", Disconnected, 61, OnFailure::SendError(Rule::Stale)),
        ("max-age=1", Status(503), 2, OnFailure::SendError(Rule::Stale)),
        // RFC 9111 5.2.2: an error response, never the stale one.
        ("max-age=1, must-revalidate", Disconnected, 2, OnFailure::SendError(Rule::MustRevalidate)),
        (
            "max-age=1, proxy-revalidate",
            Disconnected,
            2,
            OnFailure::SendError(Rule::ProxyRevalidate),
        ),
        ("s-maxage=1", Disconnected, 2, OnFailure::SendError(Rule::SMaxageRevalidate)),
        (
            "max-age=1, no-cache, stale-if-error=9",
            Status(503),
            0,
            OnFailure::SendError(Rule::NoCache),
        ),
        // Validated although it is fresh, because of the request.
        ("max-age=9", Status(502), 2, OnFailure::SendStale(Rule::Fresh)),
    ];
    for (control, failure, resident_s, expected) in rows {
        let freshness = Freshness::of(&stored(&[("Cache-Control", control)]), &policy);
        let got = on_failure(&freshness, failure, resident_s * 1000, &policy);
        assert_eq!(got, expected, "{control}; {failure:?}; {resident_s} s");
    }
    for (status, rfc, overload) in [
        (500, true, true),
        (501, false, true),
        (504, true, true),
        (429, false, true),
        (404, false, false),
    ] {
        assert_eq!(FailureStatuses::Rfc5861.has(status), rfc, "{status}");
        assert_eq!(FailureStatuses::Overload.has(status), overload, "{status}");
    }
}

#[test]
fn only_if_cached_is_not_forwarded() {
    let of = |method: &str, policy: &CachePolicy| {
        with(method, "Cache-Control: only-if-cached\r\n", |head| {
            may_forward(&RequestMeta::of(head, policy), policy)
        })
    };
    assert_eq!(of("GET", &CachePolicy::safe()), Err(CachingRule::OnlyIfCached));
    assert_eq!(of("POST", &CachePolicy::safe()), Ok(()));
    let none = ObeyedDirectives { only_if_cached: false, ..ObeyedDirectives::SAFE };
    assert_eq!(of("GET", &CachePolicy { obeyed: none, ..CachePolicy::safe() }), Ok(()));
}

#[test]
fn conditions_come_before_ranges_and_ranges_are_of_the_version_asked_for() {
    let date = "Thu, 01 Jan 1970 00:10:00 GMT";
    let meta = stored(&[
        ("ETag", "\"a\""),
        ("Last-Modified", date),
        ("Date", "Thu, 01 Jan 1970 00:16:40 GMT"),
    ]);
    let dated = stored(&[("Last-Modified", date), ("Date", date)]);
    let of = |method, fields: &str, meta: &ResponseMeta| {
        with(method, fields, |head| stored_reply(head, meta, 100, 4, 1_000))
    };
    let part = StoredReply::Parts(std::iter::once(0..10).collect());
    let range = "Range: bytes=0-9\r\n";
    let with_range = |field: &str| format!("{range}{field}\r\n");
    let rows = [
        ("GET", String::new(), StoredReply::Whole),
        ("GET", range.to_owned(), part.clone()),
        ("HEAD", range.to_owned(), StoredReply::Whole),
        ("GET", with_range("If-Range: \"a\""), part.clone()),
        ("GET", with_range("If-Range: \"b\""), StoredReply::Whole),
        ("GET", with_range("If-Range: W/\"a\""), StoredReply::Whole),
        ("GET", with_range(&format!("If-Range: {date}")), part),
        ("GET", "Range: bytes=100-\r\n".to_owned(), StoredReply::Unsatisfiable),
        ("GET", with_range("If-None-Match: \"a\""), StoredReply::NotModified),
        ("HEAD", "If-None-Match: W/\"a\"\r\n".to_owned(), StoredReply::NotModified),
        ("GET", format!("If-Modified-Since: {date}\r\n"), StoredReply::NotModified),
        (
            "GET",
            format!("If-None-Match: \"b\"\r\nIf-Modified-Since: {date}\r\n"),
            StoredReply::Whole,
        ),
        ("GET", "If-Match: \"b\"\r\n".to_owned(), StoredReply::PreconditionFailed),
    ];
    for (method, fields, expected) in rows {
        assert_eq!(of(method, &fields, &meta), expected, "{method} {fields}");
    }
    let weak_date = of("GET", &with_range(&format!("If-Range: {date}")), &dated);
    assert_eq!(weak_date, StoredReply::Whole, "it may change once more in this second");
    let gone = ResponseMeta { status: 404, ..meta };
    assert_eq!(of("GET", &with_range("If-None-Match: \"a\""), &gone), StoredReply::Whole);
}

#[test]
fn what_was_softly_purged_is_stale_from_then_on() {
    let of = |control: &str| {
        let times = ExchangeTimes { requested_unix_ms: 0, received_unix_ms: 0 };
        let fields = [("Cache-Control", control.as_bytes())];
        let fields = fields.into_iter().map(|(name, value)| (name.as_bytes(), value));
        let meta = ResponseMeta::parse(200, fields, times);
        // Expired at an age of 10 s.
        Freshness::of(&meta, &CachePolicy::safe()).expired_at(10_000)
    };
    let verdict = |control: &str, resident_ms: u64| {
        reuse(&of(control), &RequestMeta::PLAIN_GET, resident_ms, &CachePolicy::safe())
    };
    assert_eq!(verdict("max-age=60", 9_999), Reuse::Send(CachingRule::Fresh));
    assert_eq!(verdict("max-age=60", 10_000), Reuse::Validate(CachingRule::Purged));
    assert_eq!(verdict("max-age=60", 60_000), Reuse::Validate(CachingRule::Stale));
    assert_eq!(verdict("max-age=5", 5_000), Reuse::Validate(CachingRule::Stale), "it was already");
    let meanwhile = Reuse::SendAndValidate(CachingRule::WhileRevalidating);
    let control = "max-age=60, stale-while-revalidate=20";
    assert_eq!(verdict(control, 29_999), meanwhile);
    assert_eq!(verdict(control, 30_000), Reuse::Validate(CachingRule::Purged));
    let failure = |control: &str, resident_ms: u64| {
        on_failure(&of(control), OriginFailure::Disconnected, resident_ms, &CachePolicy::safe())
    };
    let control = "max-age=60, stale-if-error=20";
    assert_eq!(failure(control, 29_999), OnFailure::SendStale(CachingRule::IfError));
    assert!(matches!(failure(control, 30_000), OnFailure::SendError(_)));
    assert_eq!((of("max-age=60").ttl_s(10_000), of("max-age=60").ttl_s(12_000)), (0, -2));
    // A second purge does not extend it.
    assert!(!of("max-age=60").expired_at(20_000).is_fresh(10_000));
}
