//! The cases of http-tests/cache-tests, by their ids: `required.txt` contains those that the suite
//! requires of shared caches, `optional.txt` the others. Some are generated here, one for each
//! status and field.
//!
//! ```text
//! # id
//! request line and fields => status and fields of the origin's response => outcome
//! ```
//!
//! Fields are separated by ` | `, dates are seconds from now with `@`, `GET /` is omitted. After
//! the outcome: `= 304` is the reply, `+ field` and `- field` are present and absent fields, `~`
//! waits three seconds. Of the 160 required cases, 2 are left to the layer that frames messages:
//! headers-store-Content-Length (a body longer than announced) and headers-store-Transfer-Encoding
//! (an unknown coding).

use skep_http::HttpDate;
use skep_httpcache::{
    CachePolicy, CachingRule, CookiePolicy, ExchangeTimes, HeuristicLifetime, ObeyedDirectives,
    RequestMeta, ResponseMeta, SetCookiePolicy, StoredReply, StoredStatuses, may_store,
};

use crate::model::{Model, Outcome};

const REQUIRED: &str = include_str!("required.txt");
const OPTIONAL: &str = include_str!("optional.txt");

const STATUSES: [u16; 18] =
    [200, 203, 204, 299, 301, 302, 303, 307, 308, 400, 404, 410, 499, 500, 502, 503, 504, 599];

/// Cases of `optional.txt` that fail, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("method-POST", "responses to POST are not stored (RFC 9111 3: optional, as 9110 9.3.3 says)"),
    ("vary-normalise-lang-order", "applications choose by the order of languages"),
    ("vary-normalise-lang-select", "only an application knows which language it would choose"),
    ("conditional-lm-fresh-no-lm", "without Last-Modified a date has nothing to be compared with"),
    ("partial-store-partial-reuse-partial", "parts are stored by segments, not as ranges"),
    ("partial-store-partial-reuse-partial-byterange", "likewise"),
    ("partial-store-partial-reuse-partial-absent", "likewise"),
    ("partial-store-partial-reuse-partial-suffix", "likewise"),
    ("pragma-request-no-cache", "with all directives obeyed Pragma is one of them (RFC 9111 5.4)"),
    ("ccreq-no-store", "no-store of a request forbids storing, not reading (RFC 9111 5.2.1.5)"),
];

/// The policy that the suite expects of a cache with all features enabled.
fn policy() -> CachePolicy {
    CachePolicy {
        statuses: StoredStatuses::Any,
        set_cookie: SetCookiePolicy::Always,
        cookies: CookiePolicy::Ignore,
        heuristic: Some(HeuristicLifetime::default()),
        stale_on_disconnect_ms: 3_600_000,
        obeyed: ObeyedDirectives::ALL,
        ..CachePolicy::safe()
    }
}

#[test]
fn the_required_cases_pass() {
    let (count, failed) = run(REQUIRED, &policy());
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(count, 112);
}

#[test]
fn the_optional_cases_pass_but_for_the_exceptions() {
    let (count, failed) = run(OPTIONAL, &policy());
    let is_known = |id: &str| EXCEPTIONS.iter().any(|(known, _)| *known == id);
    let unknown: Vec<_> = failed.iter().filter(|(id, _)| !is_known(id)).collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
    let passing: Vec<_> =
        EXCEPTIONS.iter().filter(|(id, _)| !failed.iter().any(|f| f.0 == *id)).collect();
    assert!(passing.is_empty(), "no exceptions any more: {passing:?}");
    assert!(count > EXCEPTIONS.len());
}

#[test]
fn the_required_cases_pass_with_the_safe_policy() {
    // Except for statuses and Set-Cookie, below. The suite counts a case only if those that it
    // depends on pass, too, so this is stricter.
    let (_, failed) = run(REQUIRED, &CachePolicy::safe());
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn status_stale_and_fresh() {
    for status in STATUSES {
        let stale = format!(
            "# status-{status}-stale\n=> {status} | Expires: @-5000 | Last-Modified: @-100000 | \
             Date: @0 => any ~\n=> {status} => forwarded\n"
        );
        let fresh = format!(
            "# status-{status}-fresh\n=> {status} | Cache-Control: max-age=100000 | Date: @0 => any \
             ~\n=> {status} => hit\n"
        );
        for policy in [policy(), CachePolicy::safe()] {
            assert_eq!(run(&stale, &policy).1, []);
            let is_stored = policy.statuses.has(status);
            assert_eq!(run(&fresh, &policy).1.is_empty(), is_stored, "{status}");
        }
    }
    let refused: Vec<_> =
        STATUSES.into_iter().filter(|status| !StoredStatuses::Usual.has(*status)).collect();
    assert_eq!(refused, [400, 499, 500, 502, 503, 504, 599]);
}

#[test]
fn headers_store() {
    let stored = [
        "Test-Header",
        "X-Test-Header",
        "Content-Foo",
        "X-Content-Foo",
        "Content-Encoding",
        "Content-Location",
        "Content-MD5",
        "Content-Range",
        "Content-Security-Policy",
        "Content-Type",
        "Clear-Site-Data",
        "Public-Key-Pins",
        "Set-Cookie",
        "Set-Cookie2",
        "X-Frame-Options",
        "X-XSS-Protection",
    ];
    let dropped = [
        "Connection",
        "Keep-Alive",
        "Proxy-Authenticate",
        "Proxy-Authentication-Info",
        "Proxy-Authorization",
        "Proxy-Connection",
        "TE",
        "Upgrade",
    ];
    let special = [
        ("ETag", "\"abcdef\""),
        ("Expires", "Fri, 01 Jan 2038 01:01:01 GMT"),
        ("Cache-Control", "max-age=3600"),
    ];
    let kept = stored.iter().map(|name| (*name, "abcdef", '+'));
    let kept = kept.chain(special.iter().map(|(name, value)| (*name, *value, '+')));
    let dropped = dropped.iter().map(|name| (*name, "close", '-'));
    for (name, value, sign) in kept.chain(dropped) {
        let wanted = if sign == '+' { format!("{name}: {value}") } else { name.to_owned() };
        let case = format!(
            "# headers-store-{name}\n=> 200 | Date: @0 | Cache-Control: max-age=3600 | {name}: \
             {value} => any ~\n=> 200 => hit {sign} {wanted}\n"
        );
        assert_eq!(run(&case, &policy()).1, []);
        let is_cookie = name == "Set-Cookie";
        assert_eq!(run(&case, &CachePolicy::safe()).1.is_empty(), !is_cookie, "{name}");
    }
}

#[test]
fn interim_not_cached() {
    let fields = [(&b"cache-control"[..], &b"max-age=60"[..])].into_iter();
    let interim = ResponseMeta::parse(103, fields, ExchangeTimes::default());
    let verdict = may_store(&RequestMeta::PLAIN_GET, &interim, &policy());
    assert_eq!(verdict, Err(CachingRule::Status));
}

/// The number of cases, and the failed ones with the step and its outcome.
fn run(cases: &str, policy: &CachePolicy) -> (usize, Vec<(String, String)>) {
    let mut failed = Vec::new();
    let cases: Vec<_> = cases.split("# ").filter(|case| !case.is_empty()).collect();
    for case in &cases {
        let (id, steps) = case.split_once('\n').unwrap();
        let mut model = Model::new(policy.clone());
        for step in steps.lines() {
            if let Err(got) = run_step(&mut model, step) {
                failed.push((id.to_owned(), format!("{step}: {got}")));
                break;
            }
        }
    }
    (cases.len(), failed)
}

fn run_step(model: &mut Model, step: &str) -> Result<(), String> {
    let mut parts = step.split("=>").map(str::trim);
    let (request, response, expected) =
        (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
    let now_unix_s = model.now_unix_ms / 1000;
    let request = request_text(request, now_unix_s);
    let response = (response != "disconnect").then(|| response_text(response, now_unix_s));
    let outcome = model.exchange(&request, response.as_deref());
    let passes = expected.ends_with('~');
    check(expected.trim_end_matches('~').trim(), &outcome, &model.reply, now_unix_s)?;
    model.now_unix_ms += if passes { 3_000 } else { 10 };
    Ok(())
}

fn check(expected: &str, outcome: &Outcome, reply: &str, now_unix_s: u64) -> Result<(), String> {
    let mut words = expected.split(" + ");
    let first = words.next().unwrap_or_default();
    let mut absent = expected.split(" - ").skip(1);
    let kind = first.split(" - ").next().unwrap_or_default();
    let (kind, status) = kind.split_once(" = ").unwrap_or((kind, ""));
    let is_kind = match (kind, outcome) {
        ("any", _) => true,
        ("hit", Outcome::Hit(hit)) => match status {
            "304" => *hit == StoredReply::NotModified,
            "206" => matches!(hit, StoredReply::Parts(_)),
            _ => *hit == StoredReply::Whole,
        },
        ("forwarded", Outcome::Forwarded)
        | ("validated", Outcome::Validated)
        | ("stale", Outcome::Stale)
        | ("error", Outcome::Error)
        | ("timeout", Outcome::Timeout) => true,
        _ => false,
    };
    let has = |name: &str| {
        reply
            .lines()
            .any(|line| line.to_lowercase().starts_with(&format!("{}:", name.to_lowercase())))
    };
    let is_there = |wanted: &str| match wanted.split_once(" > ") {
        Some((name, least)) => reply.lines().any(|line| {
            line.strip_prefix(&format!("{name}: "))
                .is_some_and(|value| value.parse::<u64>().unwrap() > least.parse::<u64>().unwrap())
        }),
        // A Date in the past is that of the previous exchange.
        None if wanted.starts_with("Date: @") => {
            !reply.contains(&field("Date: @0", now_unix_s)) && has("Date")
        }
        // The length is that of the body, which no field changes.
        None if wanted.starts_with("Content-Length") => !has("Content-Length"),
        None => reply.lines().any(|line| line.eq_ignore_ascii_case(wanted)),
    };
    let mut present = words.map(|word| word.split(" - ").next().unwrap_or_default());
    let is_right = is_kind && present.all(is_there) && !absent.any(has);
    if is_right { Ok(()) } else { Err(format!("{outcome:?}, {reply:?}")) }
}

fn request_text(text: &str, now_unix_s: u64) -> String {
    let mut parts = text.split(" | ").filter(|part| !part.is_empty()).peekable();
    let line = parts.next_if(|part| part.contains(" /")).unwrap_or("GET /").to_owned();
    let fields = parts.map(|part| field(part, now_unix_s) + "\r\n");
    format!("{line} HTTP/1.1\r\nHost: a.example\r\n{}\r\n", fields.collect::<String>())
}

fn response_text(text: &str, now_unix_s: u64) -> String {
    let (status, fields) = text.split_once(" | ").unwrap_or((text, ""));
    let fields = fields.split(" | ").filter(|part| !part.is_empty());
    let fields: String = fields.map(|part| field(part, now_unix_s) + "\r\n").collect();
    let has_length = fields.contains("Content-Length") || status == "204";
    let length = if has_length { "" } else { "Content-Length: 11\r\n" };
    format!("HTTP/1.1 {status} x\r\n{length}{fields}\r\n")
}

/// A field with its date inserted.
fn field(text: &str, now_unix_s: u64) -> String {
    let Some((name, offset)) = text.split_once(": @") else { return text.to_owned() };
    let unix_s = now_unix_s.saturating_add_signed(offset.parse().unwrap());
    format!("{name}: {}", String::from_utf8_lossy(&HttpDate(unix_s).format()))
}
