//! Which responses of an origin may be stored, for how long, and under which version
//! (RFC 9111 3, 4.2, 4.3, 5.2; RFC 5861). Pure.
//!
//! Invariant: in doubt, a response is stored for a shorter time, or not at all.

use crate::head::Head;

/// Until when an answer may be used, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// Without revalidation. If not later than the response's receipt: revalidate each time.
    pub fresh_until_unix_ms: u64,
    /// While the origin is asked (stale-while-revalidate); not before
    /// `fresh_until_unix_ms`.
    pub usable_while_asking_until_unix_ms: u64,
    /// If the origin fails (stale-if-error); likewise.
    pub usable_on_error_until_unix_ms: u64,
}

/// Why a response may not be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unstorable {
    /// The origin forbids it: `no-store`.
    NoStore,
    /// It is for one client: `private`.
    Private,
    SetCookie,
    /// It depends on more than a request says: `Vary: *`.
    VaryAll,
    /// Its status is not one to be kept.
    Status,
    /// Its end is undefined, so it may be truncated.
    OpenEnded,
    /// Neither fresh nor possible to revalidate.
    Useless,
}

/// The result of a conditional request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revalidated {
    /// 304: the stored response stays, with this head.
    Kept(Box<Head>),
    /// The response replaces the stored one, whatever its status.
    Replaced,
    /// 304 for another version than the stored one, or for one that may no longer be stored:
    /// ask again without conditions (RFC 9111 4.3.4).
    AskAgain,
}

/// Bytes that name the version of an object: as long as they and its length are
/// equal, its bytes are. (Constant build tags, or origins that disagree, make one tag of
/// several lengths.) The strong entity tag; else last change and length, if the change
/// is older than the answer, for a date tells no two changes of one second
/// apart (RFC 9110 8.8.2.2). `None`: parts of two answers can't be joined.
pub fn version(head: &Head) -> Option<Vec<u8>> {
    let etag = head.etag.as_deref().unwrap_or("");
    if etag.starts_with('"') {
        return Some(format!("tag {etag}").into_bytes());
    }
    let (modified, bytes) = (head.last_modified?, head.total_bytes?);
    // A weak tag that differs says at least that much.
    (modified < head.made_unix_s()).then(|| format!("date {modified} {bytes} {etag}").into_bytes())
}

/// Whether storing a response is useful, and allowed.
///
/// # Errors
/// As of [`allowed`]; and [`Unstorable::Useless`].
pub fn storable(head: &Head) -> Result<(), Unstorable> {
    allowed(head)?;
    let is_fresh = freshness(head).fresh_until_unix_ms > head.received_unix_ms;
    if !is_fresh && head.etag.is_none() && head.last_modified.is_none() {
        return Err(Unstorable::Useless);
    }
    Ok(())
}

/// Whether a shared cache may keep the answer to a request without credentials
/// (RFC 9111 3). It may depend on request fields: see [`Head::vary`].
///
/// # Errors
/// Why it may not.
pub fn allowed(head: &Head) -> Result<(), Unstorable> {
    let control = &head.cache_control;
    if control.no_store {
        return Err(Unstorable::NoStore);
    }
    if control.private {
        return Err(Unstorable::Private);
    }
    // The RFC allows it (7.3 warns); no cache in wide use does it.
    if head.sets_cookie {
        return Err(Unstorable::SetCookie);
    }
    if head.vary.iter().any(|name| name == "*") {
        return Err(Unstorable::VaryAll);
    }
    if !is_status_storable(head) {
        return Err(Unstorable::Status);
    }
    if head.is_open_ended {
        return Err(Unstorable::OpenEnded);
    }
    Ok(())
}

/// Until when the response may be used (RFC 9111 4.2, RFC 5861). Without explicit lifetime it
/// is stale from the beginning: no heuristic is applied (RFC 9111 4.2.2).
pub fn freshness(head: &Head) -> Freshness {
    let control = &head.cache_control;
    let lifetime_ms = if control.no_cache { 0 } else { lifetime_s(head) * 1000 };
    let left_ms = lifetime_ms.saturating_sub(head.age_ms());
    // Already stale ones became so when they were that old.
    let overdue_ms = head.age_ms().saturating_sub(lifetime_ms);
    let fresh_until = head.received_unix_ms + left_ms;
    // RFC 9111 5.2.2.10 has s-maxage forbid staleness, too; an origin that
    // allows it beside s-maxage in so many words means what it says.
    let may_be_stale = !control.no_cache && !control.must_revalidate;
    let stale_until = |seconds: Option<u64>| {
        let grace_ms = seconds.filter(|_| may_be_stale).unwrap_or(0) * 1000;
        fresh_until + grace_ms.saturating_sub(overdue_ms)
    };
    Freshness {
        fresh_until_unix_ms: fresh_until,
        usable_while_asking_until_unix_ms: stale_until(control.stale_while_revalidate_s),
        usable_on_error_until_unix_ms: stale_until(control.stale_if_error_s),
    }
}

/// What to do with `answer`, to a request on condition that `kept` changed
/// (RFC 9111 4.3.3 and 4.3.4).
pub fn revalidate(kept: &Head, answer: &Head) -> Revalidated {
    if answer.status != 304 {
        return Revalidated::Replaced;
    }
    let differs = |ours: &Option<String>, theirs: &Option<String>| {
        theirs.as_deref().is_some_and(|theirs| {
            ours.as_deref().is_some_and(|ours| opaque(ours) != opaque(theirs))
        })
    };
    let date_differs = answer.etag.is_none()
        && answer.last_modified.is_some_and(|date| kept.last_modified != Some(date));
    if differs(&kept.etag, &answer.etag) || date_differs {
        return Revalidated::AskAgain;
    }
    let updated = updated(kept, answer);
    // An answer that is for one client, or for no cache, is not for all who ask.
    match allowed(&updated) {
        Ok(()) => Revalidated::Kept(Box::new(updated)),
        Err(_) => Revalidated::AskAgain,
    }
}

/// RFC 9111 4.2.1, for a shared cache.
fn lifetime_s(head: &Head) -> u64 {
    let control = &head.cache_control;
    if let Some(seconds) = control.s_maxage_s.or(control.max_age_s) {
        return seconds;
    }
    head.expires.map_or(0, |expires| expires.saturating_sub(head.made_unix_s()))
}

/// Statuses that may be stored without an explicit lifetime (RFC 9110 15.1).
fn is_status_heuristic(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Those, and redirections with an explicit lifetime.
fn is_status_storable(head: &Head) -> bool {
    is_status_heuristic(head.status) || (matches!(head.status, 302 | 307) && head.says_how_long())
}

/// A tag for the weak comparison (RFC 9110 8.8.3.2).
fn opaque(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag)
}

/// RFC 9111 3.2: the fields of a 304 replace the stored ones, except for those that describe
/// the stored body, its version above all.
fn updated(kept: &Head, answer: &Head) -> Head {
    let mut head = kept.clone();
    let says = |wanted: &str| answer.lines().any(|(name, _)| is_named(name, wanted));
    if says("cache-control") {
        head.cache_control = answer.cache_control;
    }
    if says("expires") {
        head.expires = answer.expires;
    }
    if says("vary") {
        head.vary.clone_from(&answer.vary);
    }
    head.sets_cookie = answer.sets_cookie;
    head.age_s = answer.age_s;
    head.date = answer.date;
    head.requested_unix_ms = answer.requested_unix_ms;
    head.received_unix_ms = answer.received_unix_ms;
    head.fields = updated_lines(kept, answer);
    head
}

/// Fields of `kept` whose names `answer` does not have, then those of `answer`.
fn updated_lines(kept: &Head, answer: &Head) -> Vec<u8> {
    let describes_body = |name: &[u8]| {
        const NAMES: [&str; 4] = ["content-type", "content-encoding", "etag", "last-modified"];
        NAMES.iter().any(|wanted| is_named(name, wanted))
    };
    let news: Vec<_> = answer.lines().filter(|(name, _)| !describes_body(name)).collect();
    let is_new = |name: &[u8]| news.iter().any(|(new, _)| new.eq_ignore_ascii_case(name));
    let stays = kept.lines().filter(|(name, _)| !is_new(name));
    stays.chain(news.iter().copied()).flat_map(|(_, line)| line).copied().collect()
}

fn is_named(name: &[u8], wanted: &str) -> bool {
    name.eq_ignore_ascii_case(wanted.as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use skep_http::limits::RESPONSE_HEAD;
    use skep_http::{FieldSlots, Method, parse_response};

    use super::*;
    use crate::request::Ask;

    /// An answer with these fields that came at second 1000 of the epoch.
    fn head(status: u16, fields: &str) -> Head {
        let text = format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\n{fields}\r\n");
        let mut slots = FieldSlots::new();
        let head =
            parse_response(&mut slots, text.as_bytes(), Method::Get, &RESPONSE_HEAD).unwrap();
        Head::new(&head, &Ask::default(), (1_000_000, 1_000_000)).unwrap()
    }

    /// A line with a date.
    fn at(name: &str, unix: u64) -> String {
        let date = skep_http::HttpDate(unix).format();
        format!("{name}: {}\r\n", String::from_utf8_lossy(&date))
    }

    fn control(directives: &str) -> Head {
        head(200, &format!("ETag: \"a\"\r\nCache-Control: {directives}\r\n"))
    }

    /// Seconds of freshness that are left when the answer comes.
    fn fresh_s(head: &Head) -> u64 {
        (freshness(head).fresh_until_unix_ms - 1_000_000) / 1000
    }

    #[test]
    fn lifetimes_are_taken_in_the_order_of_the_rfc() {
        assert_eq!(fresh_s(&control("max-age=60, s-maxage=90")), 90);
        assert_eq!(fresh_s(&control("max-age=60")), 60);
        assert_eq!(fresh_s(&control("max-age=60, no-cache")), 0);
        let expires = at("Expires", 1030) + &at("Date", 1000);
        assert_eq!(fresh_s(&head(200, &expires)), 30);
        let both = format!("{expires}Cache-Control: max-age=5\r\n");
        assert_eq!(fresh_s(&head(200, &both)), 5);
        assert_eq!(fresh_s(&head(200, "Expires: 0\r\n")), 0);
        assert_eq!(fresh_s(&head(200, &at("Last-Modified", 0))), 0, "nothing is guessed");
        assert_eq!(fresh_s(&head(200, "")), 0);
    }

    #[test]
    fn age_counts_from_where_the_answer_was_made() {
        let aged = |fields: &str| head(200, &format!("Cache-Control: max-age=60\r\n{fields}"));
        assert_eq!(fresh_s(&aged("Age: 20\r\n")), 40);
        assert_eq!(fresh_s(&aged(&at("Date", 990))), 50);
        assert_eq!(fresh_s(&aged(&(at("Date", 970) + "Age: 20\r\n"))), 30, "the larger counts");
        assert_eq!(fresh_s(&aged(&at("Date", 2000))), 60, "clocks may differ");
        let mut slow = aged("Age: 20\r\n");
        slow.requested_unix_ms -= 5_000;
        assert_eq!(fresh_s(&slow), 35, "the way counts");
        assert_eq!(fresh_s(&aged("Age: 99\r\n")), 0);
    }

    #[test]
    fn stale_answers_serve_only_where_the_origin_says_so() {
        let both = |directives: &str, age: &str| {
            let fields = format!("ETag: \"a\"\r\n{age}Cache-Control: {directives}\r\n");
            let f = freshness(&head(200, &fields));
            let after = |ms: u64| (ms - 1_000_000) / 1000;
            (after(f.usable_while_asking_until_unix_ms), after(f.usable_on_error_until_unix_ms))
        };
        let words = "max-age=10, stale-while-revalidate=5, stale-if-error=7";
        assert_eq!(both(words, ""), (15, 17));
        assert_eq!(both(words, "Age: 13\r\n"), (2, 4), "counted from the end of freshness");
        assert_eq!(both(&format!("{words}, must-revalidate"), ""), (10, 10));
        assert_eq!(both(&format!("{words}, no-cache"), ""), (0, 0));
        assert_eq!(both("max-age=10", ""), (10, 10));
    }

    #[test]
    fn what_may_not_be_kept_says_why() {
        let why = storable;
        assert_eq!(why(&control("max-age=1")), Ok(()));
        assert_eq!(why(&control("no-cache")), Ok(()));
        assert_eq!(why(&control("no-store")), Err(Unstorable::NoStore));
        assert_eq!(why(&control("private=\"x\"")), Err(Unstorable::Private));
        assert_eq!(why(&head(200, "")), Err(Unstorable::Useless));
        assert_eq!(why(&head(200, "ETag: W/\"a\"\r\n")), Ok(()));
        let fresh = "Cache-Control: max-age=9\r\n";
        let with = |status, fields: &str| why(&head(status, &format!("{fresh}{fields}")));
        assert_eq!(with(200, "Set-Cookie: a=b\r\n"), Err(Unstorable::SetCookie));
        assert_eq!(with(200, "Vary: a, *\r\n"), Err(Unstorable::VaryAll));
        assert_eq!(with(200, "Vary: Accept-Encoding\r\n"), Ok(()));
        assert_eq!((with(404, ""), with(302, "")), (Ok(()), Ok(())));
        assert_eq!(why(&head(302, "ETag: \"a\"\r\n")), Err(Unstorable::Status));
        assert_eq!(
            (with(500, ""), with(304, "")),
            (Err(Unstorable::Status), Err(Unstorable::Status))
        );
        let open = Head { is_open_ended: true, ..control("max-age=9") };
        assert_eq!(why(&open), Err(Unstorable::OpenEnded));
    }

    #[test]
    fn versions_differ_whenever_bytes_may() {
        let tag = |etag: &str| version(&head(200, &format!("ETag: {etag}\r\n")));
        assert_eq!(tag("\"a\"").as_deref(), Some(&b"tag \"a\""[..]));
        assert_eq!(tag("W/\"a\""), None);
        let dated = |modified, bytes| {
            let head = head(200, &at("Last-Modified", modified));
            version(&Head { total_bytes: bytes, ..head })
        };
        assert_eq!(dated(500, Some(7)).as_deref(), Some(&b"date 500 7 "[..]));
        assert_ne!(dated(500, Some(7)), dated(500, Some(8)));
        assert_ne!(dated(500, Some(7)), dated(501, Some(7)));
        assert_eq!(dated(500, None), None);
        assert_eq!(dated(1000, Some(7)), None, "it may change once more in this second");
    }

    #[test]
    fn a_304_renews_and_anything_else_replaces() {
        let kept = head(200, "ETag: \"a\"\r\nCache-Control: max-age=9\r\nX-A: 1\r\nX-B: 1\r\n");
        assert_eq!(revalidate(&kept, &head(200, "ETag: \"a\"\r\n")), Revalidated::Replaced);
        assert_eq!(revalidate(&kept, &head(404, "")), Revalidated::Replaced);
        assert_eq!(revalidate(&kept, &head(304, "ETag: \"b\"\r\n")), Revalidated::AskAgain);
        let mut answer = head(304, "ETag: W/\"a\"\r\nCache-Control: max-age=30\r\nx-a: 2\r\n");
        answer.received_unix_ms += 60_000;
        let Revalidated::Kept(renewed) = revalidate(&kept, &answer) else { panic!("not kept") };
        assert_eq!(renewed.cache_control.max_age_s, Some(30));
        assert_eq!(renewed.etag, kept.etag);
        assert_eq!(version(&renewed), version(&kept));
        assert_eq!(renewed.received_unix_ms, 1_060_000);
        let fields = String::from_utf8(renewed.fields).unwrap();
        assert_eq!(fields, "ETag: \"a\"\r\nX-B: 1\r\nCache-Control: max-age=30\r\nx-a: 2\r\n");
    }

    #[test]
    fn a_304_may_forbid_to_keep_what_is_kept() {
        let kept = head(200, "ETag: \"a\"\r\nCache-Control: max-age=9\r\n");
        let of = |fields: &str| revalidate(&kept, &head(304, fields));
        assert!(matches!(of("Cache-Control: no-cache\r\n"), Revalidated::Kept(_)));
        let vary = "Vary: *\r\n";
        let control = |directive| format!("Cache-Control: {directive}\r\n");
        for fields in ["Set-Cookie: a=b\r\n", vary, &control("no-store"), &control("private")] {
            assert_eq!(of(fields), Revalidated::AskAgain, "{fields}");
        }
    }

    #[test]
    fn a_304_by_date_must_be_of_the_same_date() {
        let kept = head(200, &at("Last-Modified", 5));
        let of = |fields: &str| revalidate(&kept, &head(304, fields));
        assert!(matches!(of(""), Revalidated::Kept(_)));
        assert!(matches!(of(&at("Last-Modified", 5)), Revalidated::Kept(_)));
        assert_eq!(of(&at("Last-Modified", 6)), Revalidated::AskAgain);
    }
}
