//! The target for the caching rules, and its seeds: the fields of a request, an empty line, and the status
//! and fields of its response.

use skep_http::{Host, Method};
use skep_httpcache::{
    CachePolicy, CacheStatus, CachingRule, ExchangeTimes, FieldLine, Freshness, KeyRules,
    RequestDirectives, RequestMeta, ResponseMeta, Reuse, StatusLifetimes, StoredStatuses,
    TargetUri, Validated, invalidated, may_store, reuse, store, tags, updated, validated,
};

const CASES: [&str; 2] = [
    include_str!("../../crates/core/httpcache/tests/rules/required.txt"),
    include_str!("../../crates/core/httpcache/tests/rules/optional.txt"),
];

const TIMES: ExchangeTimes =
    ExchangeTimes { requested_unix_ms: 1_795_000_000_000, received_unix_ms: 1_795_000_000_500 };

/// Accepts any fields, including those that no parser of heads lets through.
pub fn caching(data: &[u8]) {
    let at = data.windows(2).position(|pair| pair == b"\n\n").unwrap_or(data.len());
    let (request_text, rest) = data.split_at(at);
    let rest = rest.get(2..).unwrap_or_default();
    let (status, response_text) = rest.split_at_checked(3).unwrap_or((b"200", rest));
    let status = str::from_utf8(status).ok().and_then(|text| text.parse().ok()).unwrap_or(200);
    let policies = [
        CachePolicy::safe(),
        CachePolicy {
            statuses: StoredStatuses::Any,
            honours_field_names: false,
            default_ms: 1_000,
            default_without_validator: true,
            heuristic: Some(Default::default()),
            stale_while_ms: u64::MAX,
            stale_error_ms: u64::MAX,
            by_status: StatusLifetimes::new(vec![(503, 1_000)], vec![(4, u64::MAX)]),
            stale_on_disconnect_ms: u64::MAX,
            obeyed: skep_httpcache::ObeyedDirectives::ALL,
            ..CachePolicy::safe()
        },
    ];
    let meta = ResponseMeta::parse(status, lines(response_text), TIMES);
    for policy in &policies {
        check_stored(request_text, &meta, policy);
        check_updated(&meta, response_text, policy);
    }
    check_keys(request_text, &meta);
    check_paths(request_text, response_text, status);
}

/// A stored response may be stored, and only ages.
fn check_stored(request_text: &[u8], meta: &ResponseMeta, policy: &CachePolicy) {
    let of = |wanted: &'static [u8]| {
        lines(request_text).filter(move |(name, _)| name.eq_ignore_ascii_case(wanted))
    };
    let control = of(b"cache-control").map(|(_, value)| value);
    let directives = RequestDirectives::parse(control, of(b"pragma").map(|(_, value)| value));
    let has_authorization = of(b"authorization").next().is_some();
    let request = RequestMeta { directives, has_authorization, ..RequestMeta::PLAIN_GET };
    let freshness = Freshness::of(meta, policy);
    if let Ok(stored) = store(&request, meta, policy) {
        assert_eq!(stored, freshness);
        assert!(may_store(&request, meta, policy).is_ok());
        let known = &meta.directives;
        assert!(!known.no_store || known.must_understand);
        assert!(!meta.sets_cookie && !meta.vary.is_all() && meta.status >= 200);
        assert!(
            !has_authorization
                || known.public
                || known.must_revalidate
                || known.s_maxage_s.is_some()
        );
    }
    let (mut age_ms, mut was_fresh) = (0, true);
    for resident_ms in [0, 999, 1_000, 3_600_000, u64::MAX / 2, u64::MAX] {
        assert!(freshness.age_ms(resident_ms) >= age_ms.max(resident_ms));
        age_ms = freshness.age_ms(resident_ms);
        assert!(was_fresh || !freshness.is_fresh(resident_ms));
        was_fresh = freshness.is_fresh(resident_ms);
        assert_eq!(was_fresh, freshness.ttl_s(resident_ms) > 0 || freshness.lifetime_ms > age_ms);
        let verdict = reuse(&freshness, &request, resident_ms, policy);
        let is_without_asking = matches!(verdict, Reuse::Send(_) | Reuse::SendAndValidate(_));
        let must_ask = freshness.stale_forbidden == Some(CachingRule::NoCache);
        assert!(!(must_ask && is_without_asking), "no-cache is used without validation");
        assert!(was_fresh || verdict != Reuse::Send(CachingRule::Fresh));
    }
}

/// Applying the same 304 again changes nothing, and the result can be parsed again with the same meaning.
fn check_updated(meta: &ResponseMeta, text: &[u8], policy: &CachePolicy) {
    let answer = ResponseMeta { status: 304, ..meta.clone() };
    assert_eq!(validated(&[meta], &answer), Validated::Fresh(vec![0]));
    let request = &RequestMeta::PLAIN_GET;
    let once = updated((meta, lines(text)), (&answer, lines(text)), request, policy);
    assert_eq!(once.is_ok(), may_store(request, &with_status(meta, &once), policy).is_ok());
    let Ok((meta, kept)) = once else { return };
    let twice = updated((&meta, lines(&kept)), (&answer, lines(text)), request, policy);
    let (_, again) = twice.expect("it could be stored before");
    let sorted = |text: &[u8]| {
        let mut lines: Vec<_> = lines(text).map(|(n, v)| (n.to_vec(), v.to_vec())).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&kept), sorted(&again));
}

fn with_status(
    meta: &ResponseMeta,
    updated: &Result<(ResponseMeta, Vec<u8>), CachingRule>,
) -> ResponseMeta {
    updated.as_ref().map_or_else(|_| meta.clone(), |(meta, _)| meta.clone())
}

/// A request matches itself; one that lacks a relevant field does not match.
fn check_keys(request_text: &[u8], meta: &ResponseMeta) {
    let key = meta.vary.secondary_key(lines(request_text));
    assert_eq!(key, meta.vary.secondary_key(lines(request_text)));
    assert!(!meta.vary.is_all() || key.is_none());
    let none = meta.vary.secondary_key(std::iter::empty());
    let sends = |(name, _): FieldLine<'_>| {
        meta.vary.names().iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
    };
    if let (Some(key), Some(none)) = (key, none) {
        assert_eq!(key == none, !lines(request_text).any(sends));
    }
    let rules = KeyRules {
        query_ignored: vec!["utm_*".to_owned(), "a".to_owned()],
        query_sorted: true,
        ..KeyRules::default()
    };
    let target = rules.target(request_text);
    assert_eq!(rules.target(&target), target, "the target of a target is another");
}

/// Only paths are invalidated, and a key cannot inject a status line.
fn check_paths(request_text: &[u8], response_text: &[u8], status: u16) {
    let target = TargetUri {
        scheme: "http",
        authority: Host::parse(b"a.example").expect("a host"),
        path_and_query: b"/b/c?d",
    };
    for path in invalidated(Method::Post, status, &target, lines(response_text)) {
        assert!(path.starts_with(b"/") && path.iter().all(u8::is_ascii_graphic));
        let segments = path.split(|byte| *byte == b'?').next().unwrap_or_default();
        let mut segments = segments.split(|byte| *byte == b'/');
        assert!(!segments.any(|segment| matches!(segment, b"." | b"..")));
    }
    assert!(tags(lines(response_text)).all(|tag| !tag.contains('\n')));
    let key = String::from_utf8_lossy(request_text);
    let line = CacheStatus { key: Some(key.as_bytes()), ..CacheStatus::default() }.line();
    assert!(line.iter().filter(|byte| **byte < b' ').count() == 2 && line.ends_with(b"\r\n"));
}

/// The lines `Name: value` of a text.
fn lines(text: &[u8]) -> impl Iterator<Item = FieldLine<'_>> + Clone {
    text.split(|byte| *byte == b'\n').filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b':')?;
        Some((line[..at].trim_ascii(), line[at + 1..].trim_ascii()))
    })
}

/// The exchanges of the test cases.
pub(crate) fn exchanges() -> Vec<Vec<u8>> {
    let steps = CASES.iter().flat_map(|cases| cases.lines()).filter(|line| !line.starts_with('#'));
    let seed = |step: &str| {
        let (request, rest) = step.split_once("=>")?;
        let (response, _) = rest.split_once("=>")?;
        let text = [request.trim(), "\n\n", response.trim()].concat();
        let text = text.replace(" | ", "\n").replace("@0", "Wed, 18 Nov 2026 10:16:43 GMT");
        Some(text.into_bytes())
    };
    steps.filter_map(seed).collect()
}
