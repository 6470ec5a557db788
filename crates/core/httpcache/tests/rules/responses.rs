//! Single responses: lifetimes, ages, storability, versions, and renewal by a 304.

use skep_http::{HttpDate, Method};
use skep_httpcache::{
    CachePolicy, CachingRule, CookiePolicy, ExchangeTimes, FieldLine, Freshness, HeadUpdate,
    HeuristicLifetime, RequestDirectives, RequestMeta, ResponseMeta, Reuse, SetCookiePolicy,
    StatusLifetimes, StoredStatuses, Validated, head_update, may_combine, may_store, reuse, store,
    updated, validated, write_conditions, write_if_range,
};

/// Field lines of a head.
fn lines(fields: &str) -> impl Iterator<Item = FieldLine<'_>> + Clone {
    fields.split("\r\n").filter(|line| !line.is_empty()).map(|line| {
        let (name, value) = line.split_once(':').unwrap();
        (name.as_bytes(), value.trim().as_bytes())
    })
}

/// A response with these fields, received at second 1000 of the epoch.
fn meta(status: u16, fields: &str) -> ResponseMeta {
    let times = ExchangeTimes { requested_unix_ms: 1_000_000, received_unix_ms: 1_000_000 };
    ResponseMeta::parse(status, lines(fields), times)
}

/// A field line with a date.
fn at(name: &str, unix: u64) -> String {
    format!("{name}: {}\r\n", String::from_utf8_lossy(&HttpDate(unix).format()))
}

fn control(directives: &str) -> ResponseMeta {
    meta(200, &format!("ETag: \"a\"\r\nCache-Control: {directives}\r\n"))
}

fn fresh(meta: &ResponseMeta) -> Freshness {
    Freshness::of(meta, &CachePolicy::safe())
}

/// Seconds of freshness left at receipt.
fn fresh_s(meta: &ResponseMeta) -> u64 {
    fresh(meta).fresh_until_ms() / 1000
}

fn why(meta: &ResponseMeta) -> Result<(), CachingRule> {
    store(&RequestMeta::PLAIN_GET, meta, &CachePolicy::safe()).map(drop)
}

#[test]
fn lifetimes_are_taken_in_the_order_of_the_rfc() {
    assert_eq!(fresh_s(&control("max-age=60, s-maxage=90")), 90);
    assert_eq!(fresh_s(&control("max-age=60")), 60);
    assert_eq!(fresh_s(&control("max-age=60, no-cache")), 0);
    let expires = at("Expires", 1030) + &at("Date", 1000);
    assert_eq!(fresh_s(&meta(200, &expires)), 30);
    let both = format!("{expires}Cache-Control: max-age=5\r\n");
    assert_eq!(fresh_s(&meta(200, &both)), 5);
    let targeted = format!("{both}CDN-Cache-Control: max-age=7\r\n");
    assert_eq!(fresh_s(&meta(200, &targeted)), 7);
    let ours = format!("{targeted}Skep-Cache-Control: max-age=8\r\n");
    assert_eq!(
        (fresh_s(&meta(200, &ours)), fresh(&meta(200, &ours)).source),
        (8, CachingRule::Targeted)
    );
    let foo = format!("{expires}CDN-Cache-Control: foo\r\n");
    assert_eq!(fresh_s(&meta(200, &foo)), 0, "it decides alone (RFC 9213 2.1)");
    assert_eq!(fresh_s(&meta(200, "Expires: 0\r\n")), 0);
    assert_eq!(fresh_s(&meta(200, &at("Last-Modified", 0))), 0, "nothing is guessed");
    assert_eq!(fresh_s(&meta(200, "")), 0);
}

#[test]
fn age_counts_from_where_the_answer_was_made() {
    let aged = |fields: &str| meta(200, &format!("Cache-Control: max-age=60\r\n{fields}"));
    assert_eq!(fresh_s(&aged("Age: 20\r\n")), 40);
    assert_eq!(fresh_s(&aged(&at("Date", 990))), 50);
    assert_eq!(fresh_s(&aged(&(at("Date", 970) + "Age: 20\r\n"))), 30, "the larger counts");
    assert_eq!(fresh_s(&aged(&at("Date", 2000))), 60, "clocks may differ");
    let mut slow = aged("Age: 20\r\n");
    slow.times.requested_unix_ms -= 5_000;
    assert_eq!(fresh_s(&slow), 35, "the way counts");
    assert_eq!(fresh_s(&aged("Age: 99\r\n")), 0);
}

#[test]
fn stale_answers_serve_only_where_the_origin_says_so() {
    let both = |directives: &str, age: &str| {
        let fields = format!("ETag: \"a\"\r\n{age}Cache-Control: {directives}\r\n");
        let fresh = fresh(&meta(200, &fields));
        (fresh.while_revalidating_until_ms() / 1000, fresh.if_error_until_ms() / 1000)
    };
    let words = "max-age=10, stale-while-revalidate=5, stale-if-error=7";
    assert_eq!(both(words, ""), (15, 17));
    assert_eq!(both(words, "Age: 13\r\n"), (2, 4), "counted from the end of freshness");
    assert_eq!(both(&format!("{words}, must-revalidate"), ""), (10, 10));
    assert_eq!(both(&format!("{words}, proxy-revalidate"), ""), (10, 10));
    assert_eq!(both(&format!("{words}, no-cache"), ""), (0, 0));
    assert_eq!(both(&format!("{words}, s-maxage=10"), ""), (15, 17), "it says it in so many words");
    assert_eq!(both("max-age=10", ""), (10, 10));
    let policy = CachePolicy { stale_on_disconnect_ms: 60_000, ..CachePolicy::safe() };
    let on_disconnect = |words| Freshness::of(&control(words), &policy).on_disconnect_ms;
    assert_eq!((on_disconnect("max-age=1"), on_disconnect("max-age=1, s-maxage=1")), (60_000, 0));
}

#[test]
fn lifetimes_of_the_settings_are_for_what_gives_none() {
    let policy = CachePolicy { default_ms: 5_000, negative_ms: 3_000, ..CachePolicy::safe() };
    let of = |status, fields: &str, policy: &CachePolicy| {
        let fresh = Freshness::of(&meta(status, fields), policy);
        (fresh.fresh_until_ms(), fresh.source)
    };
    let tag = "ETag: \"a\"\r\n";
    assert_eq!(of(200, tag, &policy), (5_000, CachingRule::DefaultLifetime));
    let old = format!("{tag}{}Age: 2\r\n", at("Date", 500));
    assert_eq!(of(200, &old, &policy).0, 3_000, "from its receipt, less what caches had it for");
    assert_eq!(of(200, "", &policy), (0, CachingRule::NoLifetime), "it may be anything");
    assert_eq!(of(404, "", &policy), (3_000, CachingRule::NegativeLifetime));
    assert_eq!(of(302, tag, &policy).0, 0);
    assert_eq!(of(200, &format!("{tag}Cache-Control: no-cache\r\n"), &policy).0, 0);
    assert_eq!(of(200, &format!("{tag}Cache-Control: max-age=1\r\n"), &policy).0, 1_000);
    assert_eq!(of(200, &format!("{tag}Expires: 0\r\n"), &policy), (0, CachingRule::Expires));
    let all = CachePolicy { default_without_validator: true, ..policy };
    assert_eq!(of(200, "", &all).0, 5_000);
    let guess = CachePolicy { heuristic: Some(HeuristicLifetime::default()), ..all };
    let changed = at("Date", 1000) + &at("Last-Modified", 900);
    assert_eq!(of(200, &changed, &guess), (10_000, CachingRule::Heuristic));
    let capped =
        CachePolicy { heuristic: Some(HeuristicLifetime { percent: 10, ms_max: 4_000 }), ..guess };
    assert_eq!(of(200, &changed, &capped).0, 4_000);
}

#[test]
fn the_settings_allow_staleness_where_the_response_is_silent() {
    let policy = CachePolicy {
        default_ms: 4_000,
        stale_while_ms: 20_000,
        stale_error_ms: 30_000,
        ..CachePolicy::safe()
    };
    let of = |meta: &ResponseMeta| {
        let fresh = Freshness::of(meta, &policy);
        (
            fresh.while_revalidating_ms / 1000,
            fresh.if_error_ms / 1000,
            fresh.on_disconnect_ms / 1000,
        )
    };
    for (control, expected) in [
        ("max-age=10", (20, 30, 30)),
        ("", (20, 30, 30)),
        ("max-age=10, stale-while-revalidate=5", (5, 30, 30)),
        ("max-age=10, stale-while-revalidate=0, stale-if-error=0", (0, 0, 0)),
        ("max-age=10, stale-if-error=7", (20, 7, 7)),
        ("max-age=10, must-revalidate", (0, 0, 0)),
        ("max-age=10, proxy-revalidate", (0, 0, 0)),
        ("max-age=10, no-cache", (0, 0, 0)),
        // It forbids staleness unless a directive allows it explicitly (RFC 9111 5.2.2.10).
        ("s-maxage=10", (0, 0, 0)),
        ("s-maxage=10, stale-if-error=7", (0, 7, 7)),
        // A response that was never fresh is used only if its validation fails.
        ("max-age=0", (0, 30, 30)),
    ] {
        assert_eq!(of(&control_or_none(control)), expected, "{control}");
    }
    // Nor are such responses stored by the settings.
    assert_eq!(of(&meta(200, "Cache-Control: max-age=0\r\n")), (0, 0, 0));
    let nothing = CachePolicy { default_ms: 0, ..policy };
    let why = store(&RequestMeta::PLAIN_GET, &meta(200, ""), &nothing).map(drop);
    assert_eq!(why, Err(CachingRule::NothingToReuse));
}

/// A response with these directives, or with a tag if there are none.
fn control_or_none(directives: &str) -> ResponseMeta {
    if directives.is_empty() { meta(200, "ETag: \"a\"\r\n") } else { control(directives) }
}

#[test]
fn lifetimes_by_status_are_for_what_gives_none() {
    let by_status = StatusLifetimes::new(
        vec![(404, 5_000), (503, 1_000), (410, 0), (302, 2_000), (206, 9_000)],
        vec![(4, 3_000), (5, 3_000), (2, 6_000)],
    );
    let policy = CachePolicy { by_status, negative_ms: 7_000, ..CachePolicy::safe() };
    let stored = |status, fields: &str, policy: &CachePolicy| {
        let meta = meta(status, fields);
        store(&RequestMeta::PLAIN_GET, &meta, policy).map(|fresh| fresh.fresh_until_ms())
    };
    for (status, fields, expected) in [
        (404, "", Ok(5_000)),
        (405, "", Ok(3_000)),
        (200, "", Ok(6_000)),
        (200, "Cache-Control: max-age=1\r\n", Ok(1_000)),
        (404, "Cache-Control: max-age=1\r\n", Ok(1_000)),
        (404, "Cache-Control: no-store\r\n", Err(CachingRule::NoStore)),
        (404, "Cache-Control: private\r\n", Err(CachingRule::Private)),
        (404, "Set-Cookie: a=b\r\n", Err(CachingRule::SetCookie)),
        (404, "Expires: 0\r\n", Err(CachingRule::NothingToReuse)),
        (404, "CDN-Cache-Control: no-store\r\n", Err(CachingRule::NoStore)),
        // Zero means not stored, whatever the class has.
        (410, "", Err(CachingRule::NothingToReuse)),
        // Listed explicitly: also statuses that are not stored otherwise, or have no heuristic
        // lifetime (RFC 9110 15.1).
        (503, "", Ok(1_000)),
        (503, "Cache-Control: max-age=9\r\n", Ok(9_000)),
        (302, "", Ok(2_000)),
        // A class covers only statuses that are stored anyway: odd requests provoke 400 and 431.
        (400, "", Err(CachingRule::Status)),
        (431, "", Err(CachingRule::Status)),
        (500, "", Err(CachingRule::Status)),
        (206, "", Err(CachingRule::Status)),
        (304, "", Err(CachingRule::Status)),
    ] {
        assert_eq!(stored(status, fields, &policy), expected, "{status} {fields}");
    }
    let any = CachePolicy { statuses: StoredStatuses::Any, ..policy.clone() };
    assert_eq!(stored(500, "", &any), Ok(3_000));
    // The configured lifetime of a status takes precedence over a heuristic one.
    let guess = CachePolicy { heuristic: Some(HeuristicLifetime::default()), ..policy.clone() };
    assert_eq!(stored(404, &at("Last-Modified", 0), &guess), Ok(5_000));
    // Responses to requests with credentials or a cookie are never stored by the settings alone.
    for (request, why) in [
        (
            RequestMeta { has_authorization: true, ..RequestMeta::PLAIN_GET },
            CachingRule::Authorization,
        ),
        (RequestMeta { has_cookie: true, ..RequestMeta::PLAIN_GET }, CachingRule::Cookie),
    ] {
        let missing = meta(404, "");
        assert_eq!(store(&request, &missing, &policy), Err(why));
        let verdict = reuse(&Freshness::of(&missing, &policy), &request, 0, &policy);
        assert_eq!(verdict, Reuse::Bypass(why));
    }
    let request = RequestMeta { has_authorization: true, ..RequestMeta::PLAIN_GET };
    let public = meta(404, "Cache-Control: public\r\n");
    assert_eq!(store(&request, &public, &policy), Err(CachingRule::Authorization));
    let lasting = meta(404, "Cache-Control: public, max-age=9\r\n");
    assert!(store(&request, &lasting, &policy).is_ok());
}

#[test]
fn what_may_not_be_kept_says_why() {
    assert_eq!(why(&control("max-age=1")), Ok(()));
    assert_eq!(why(&control("no-cache")), Ok(()));
    assert_eq!(why(&control("no-store")), Err(CachingRule::NoStore));
    assert_eq!(why(&control("private")), Err(CachingRule::Private));
    assert_eq!(why(&meta(200, "")), Err(CachingRule::NothingToReuse));
    assert_eq!(why(&meta(200, "ETag: W/\"a\"\r\n")), Ok(()));
    let fresh = "Cache-Control: max-age=9\r\n";
    let with = |status, fields: &str| why(&meta(status, &format!("{fresh}{fields}")));
    assert_eq!(with(200, "Set-Cookie: a=b\r\n"), Err(CachingRule::SetCookie));
    assert_eq!(with(200, "Vary: a, *\r\n"), Err(CachingRule::VaryAll));
    assert_eq!(with(200, "Vary: Accept-Encoding\r\n"), Ok(()));
    assert_eq!(with(200, "Vary: a, User-Agent\r\n"), Err(CachingRule::VaryRefused));
    assert_eq!(with(200, "Content-Type: Text/Event-Stream; x\r\n"), Err(CachingRule::EventStream));
    assert_eq!((with(404, ""), with(302, "")), (Ok(()), Ok(())));
    assert_eq!(why(&meta(302, "ETag: \"a\"\r\n")), Err(CachingRule::StatusNotHeuristic));
    assert_eq!(
        (with(500, ""), with(304, "")),
        (Err(CachingRule::Status), Err(CachingRule::Status))
    );
    let open = ResponseMeta { is_open_ended: true, ..control("max-age=9") };
    assert_eq!(why(&open), Err(CachingRule::OpenEnded));
    let stale_only = meta(200, "Cache-Control: max-age=0, stale-while-revalidate=9\r\n");
    assert_eq!(why(&stale_only), Ok(()), "useful while it is fetched anew");
}

#[test]
fn must_understand_wins_over_no_store_where_the_status_is_known() {
    let words = "Cache-Control: max-age=9, no-store, must-understand\r\n";
    assert_eq!(why(&meta(200, words)), Ok(()));
    let any = CachePolicy { statuses: StoredStatuses::Any, ..CachePolicy::safe() };
    let of = |status| may_store(&RequestMeta::PLAIN_GET, &meta(status, words), &any);
    assert_eq!(of(599), Err(CachingRule::MustUnderstand));
    assert_eq!(of(404), Ok(()));
    assert_eq!(why(&control("max-age=9, must-understand, private")), Err(CachingRule::Private));
}

#[test]
fn fields_that_directives_name_are_left_out_or_mean_all_of_it() {
    let (names, whole) =
        (CachePolicy::safe(), CachePolicy { honours_field_names: false, ..CachePolicy::safe() });
    let private = control("max-age=9, private=\"x-a\"");
    let of = |policy| store(&RequestMeta::PLAIN_GET, &private, policy).map(drop);
    assert_eq!((of(&names), of(&whole)), (Ok(()), Err(CachingRule::Private)));
    let no_cache = control("max-age=9, no-cache=\"x-a\"");
    let until = |policy| Freshness::of(&no_cache, policy).fresh_until_ms();
    assert_eq!((until(&names), until(&whole)), (9_000, 0));
    for meta in [&private, &no_cache] {
        assert!(!skep_httpcache::is_stored_field(b"X-A", meta, &names));
        assert!(skep_httpcache::is_stored_field(b"X-B", meta, &names));
    }
}

#[test]
fn what_a_request_says_counts_too() {
    let policy = CachePolicy::safe();
    let of =
        |request: RequestMeta<'_>, meta: &ResponseMeta| store(&request, meta, &policy).map(drop);
    let plain = RequestMeta::PLAIN_GET;
    let (fresh, public) = (control("max-age=9"), control("max-age=9, public"));
    let secret = RequestMeta { has_authorization: true, ..plain };
    assert_eq!(of(secret, &fresh), Err(CachingRule::Authorization));
    for words in ["public, max-age=9", "must-revalidate, max-age=9", "s-maxage=9"] {
        assert_eq!(of(secret, &control(words)), Ok(()), "{words}");
    }
    assert_eq!(
        of(secret, &control("max-age=9, proxy-revalidate")),
        Err(CachingRule::Authorization)
    );
    assert_eq!(of(RequestMeta { method: Method::Head, ..plain }, &fresh), Err(CachingRule::Method));
    assert_eq!(of(RequestMeta { method: Method::Post, ..plain }, &fresh), Err(CachingRule::Method));
    assert_eq!(of(RequestMeta { has_body: true, ..plain }, &fresh), Err(CachingRule::RequestBody));
    let directives = RequestDirectives { no_store: true, ..RequestDirectives::default() };
    assert_eq!(of(RequestMeta { directives, ..plain }, &fresh), Err(CachingRule::RequestNoStore));
    let cookie = RequestMeta { has_cookie: true, ..plain };
    assert_eq!(of(cookie, &fresh), Ok(()), "it has a lifetime of its own");
    assert_eq!(of(cookie, &meta(200, "ETag: \"a\"\r\n")), Err(CachingRule::Cookie));
    let ignore = CachePolicy { cookies: CookiePolicy::Ignore, ..policy.clone() };
    assert!(store(&cookie, &meta(200, "ETag: \"a\"\r\n"), &ignore).is_ok());
    let sets = |words: &str| meta(200, &format!("Set-Cookie: a\r\nCache-Control: {words}\r\n"));
    let shared = CachePolicy { set_cookie: SetCookiePolicy::Shared, ..policy.clone() };
    assert_eq!(store(&plain, &sets("max-age=9"), &shared), Err(CachingRule::SetCookie));
    assert!(store(&plain, &sets("max-age=9, public"), &shared).is_ok());
    assert_eq!(of(plain, &public), Ok(()));
}

#[test]
fn versions_differ_whenever_bytes_may() {
    let tag = |etag: &str| meta(200, &format!("ETag: {etag}\r\n")).version(None);
    assert_eq!(tag("\"a\"").as_deref(), Some(&b"tag \"a\""[..]));
    assert_eq!(tag("W/\"a\""), None);
    let dated = |modified, bytes| meta(200, &at("Last-Modified", modified)).version(bytes);
    assert_eq!(dated(500, Some(7)).as_deref(), Some(&b"date 500 7 "[..]));
    assert_ne!(dated(500, Some(7)), dated(500, Some(8)));
    assert_ne!(dated(500, Some(7)), dated(501, Some(7)));
    assert_eq!(dated(500, None), None);
    assert_eq!(dated(1000, Some(7)), None, "it may change once more in this second");
    assert!(may_combine(&control(""), &control("max-age=1")));
    let weak = meta(206, "ETag: W/\"a\"\r\n");
    assert!(!may_combine(&weak, &weak));
}

/// The lines of `kept` after a 304, or why it is no longer stored.
fn renewed(kept: &str, news: &str) -> Result<(ResponseMeta, String), CachingRule> {
    let (old, mut new) = (meta(200, kept), meta(304, news));
    new.times.received_unix_ms += 60_000;
    let updated = updated(
        (&old, lines(kept)),
        (&new, lines(news)),
        &RequestMeta::PLAIN_GET,
        &CachePolicy::safe(),
    );
    updated.map(|(meta, text)| (meta, String::from_utf8(text).unwrap()))
}

#[test]
fn a_304_renews_every_field_but_those_of_the_body() {
    let kept = "ETag: \"a\"\r\nCache-Control: max-age=9\r\nX-A: 1\r\nX-B: 1\r\n\
        Content-Encoding: br\r\nContent-Type: a/a\r\n";
    let news = "ETag: W/\"a\"\r\nCache-Control: max-age=30\r\nx-a: 2\r\nContent-Encoding: x\r\n\
        Content-Type: b/b\r\nContent-Length: 5\r\nContent-Range: x\r\nLast-Modified: x\r\n";
    let (meta, text) = renewed(kept, news).unwrap();
    assert_eq!(meta.directives.max_age_s, Some(30));
    assert_eq!((meta.etag.as_deref(), meta.status), (Some("\"a\""), 200));
    assert_eq!(meta.times.received_unix_ms, 1_060_000);
    let expected = "ETag: \"a\"\r\nX-B: 1\r\nContent-Encoding: br\r\n\
        Cache-Control: max-age=30\r\nx-a: 2\r\nContent-Type: b/b\r\n";
    assert_eq!(text, expected);
}

#[test]
fn a_304_may_forbid_to_keep_what_is_kept() {
    let of = |news: &str| renewed("ETag: \"a\"\r\nCache-Control: max-age=9\r\n", news).map(drop);
    assert_eq!(of("Cache-Control: no-cache\r\n"), Ok(()));
    for (news, why) in [
        ("Set-Cookie: a=b\r\n", CachingRule::SetCookie),
        ("Vary: *\r\n", CachingRule::VaryAll),
        ("Cache-Control: no-store\r\n", CachingRule::NoStore),
        ("CDN-Cache-Control: private\r\n", CachingRule::Private),
    ] {
        assert_eq!(of(news), Err(why), "{news}");
    }
}

#[test]
fn a_304_renews_what_it_names_and_anything_else_replaces() {
    let a = meta(200, &("ETag: \"a\"\r\n".to_owned() + &at("Date", 900)));
    let later = meta(200, &("ETag: W/\"a\"\r\n".to_owned() + &at("Date", 950)));
    let b = meta(200, "ETag: \"b\"\r\n");
    let stored = [&a, &later, &b];
    let of = |status, fields: &str| validated(&stored, &meta(status, fields));
    assert_eq!(of(200, "ETag: \"a\"\r\n"), Validated::Replaced);
    assert_eq!(of(404, ""), Validated::Replaced);
    assert_eq!(of(304, "ETag: \"a\"\r\n"), Validated::Fresh(vec![0, 1]), "all of a strong one");
    assert_eq!(of(304, "ETag: W/\"a\"\r\n"), Validated::Fresh(vec![1]), "the latest of a weak one");
    assert_eq!(of(304, "ETag: \"c\"\r\n"), Validated::AskAgain);
    assert_eq!(of(304, ""), Validated::AskAgain, "which of them?");
    assert_eq!(validated(&[&a], &meta(304, "")), Validated::Fresh(vec![0]));
}

#[test]
fn a_304_by_date_must_be_of_the_same_date() {
    let kept = meta(200, &at("Last-Modified", 5));
    let of = |fields: &str| validated(&[&kept], &meta(304, fields));
    assert_eq!(of(""), Validated::Fresh(vec![0]));
    assert_eq!(of(&at("Last-Modified", 5)), Validated::Fresh(vec![0]));
    assert_eq!(of(&at("Last-Modified", 6)), Validated::AskAgain);
}

#[test]
fn conditions_name_all_tags_and_one_date() {
    let written = |stored: &[&ResponseMeta]| {
        let validators: Vec<_> = stored.iter().map(|meta| meta.validators()).collect();
        let mut out = Vec::new();
        write_conditions(&mut out, &validators);
        String::from_utf8(out).unwrap()
    };
    let (a, dated) = (control(""), meta(200, &at("Last-Modified", 0)));
    let both = meta(200, &("ETag: W/\"b\"\r\n".to_owned() + &at("Last-Modified", 0)));
    let date = "If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n";
    assert_eq!(written(&[&a]), "If-None-Match: \"a\"\r\n");
    assert_eq!(written(&[&both]), format!("If-None-Match: W/\"b\"\r\n{date}"));
    assert_eq!(written(&[&dated]), date);
    assert_eq!(written(&[&a, &both, &dated]), "If-None-Match: \"a\", W/\"b\"\r\n");
    assert_eq!(written(&[]), "");
    let mut out = Vec::new();
    write_if_range(&mut out, &both.validators());
    assert!(out.is_empty(), "no weak tag, and no date beside one");
    write_if_range(&mut out, &a.validators());
    assert_eq!(out, b"If-Range: \"a\"\r\n");
}

#[test]
fn the_answer_to_a_head_updates_the_same_version_only() {
    let stored = meta(200, &("ETag: \"a\"\r\n".to_owned() + &at("Last-Modified", 5)));
    let of = |fields: &str, bytes| head_update(&stored, 9, &meta(200, fields), bytes);
    assert_eq!(of("ETag: \"a\"\r\n", Some(9)), HeadUpdate::Update);
    assert_eq!(of("", None), HeadUpdate::Update);
    assert_eq!(of("ETag: \"b\"\r\n", Some(9)), HeadUpdate::Invalidate);
    assert_eq!(of(&at("Last-Modified", 6), None), HeadUpdate::Invalidate);
    assert_eq!(of("", Some(8)), HeadUpdate::Invalidate);
    assert_eq!(head_update(&stored, 9, &meta(404, ""), None), HeadUpdate::Nothing);
}
