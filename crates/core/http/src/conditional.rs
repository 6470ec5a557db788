//! Conditional requests: entity tags, dates, and their order of precedence
//! (RFC 9110 8.8.3, 13).

use crate::fields::KnownSet;
use crate::{HttpDate, Known, Method, RequestHead, bytes};

/// The validators of a representation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Validators<'a> {
    /// Entity tag with its quotes, prefixed with `W/` if weak; empty for none.
    pub etag: &'a str,
    /// Last-Modified, in seconds since the Unix epoch.
    pub last_modified: Option<u64>,
}

/// Verdict on the conditions of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// The conditions hold: perform the method.
    Proceed,
    /// Answer 304.
    NotModified,
    /// Answer 412.
    Failed,
}

/// Evaluates If-Match, If-Unmodified-Since, If-None-Match and If-Modified-Since in the order of RFC
/// 9110 13.2.2, for an existing representation. If-Range, the fifth condition, is evaluated by
/// [`crate::range::ranges`].
#[inline]
pub fn evaluate(
    head: &RequestHead<'_, '_>,
    current: &Validators<'_>,
    now_unix: u64,
) -> Precondition {
    const CONDITIONS: KnownSet = KnownSet::of(&[
        Known::IfMatch,
        Known::IfNoneMatch,
        Known::IfModifiedSince,
        Known::IfUnmodifiedSince,
    ]);
    if !head.fields.any(CONDITIONS) || matches!(head.method, Method::Options | Method::Trace) {
        return Precondition::Proceed;
    }
    evaluate_present(head, current, now_unix)
}

fn evaluate_present(
    head: &RequestHead<'_, '_>,
    current: &Validators<'_>,
    now_unix: u64,
) -> Precondition {
    let reads = matches!(head.method, Method::Get | Method::Head);
    let unmet = |reads| if reads { Precondition::NotModified } else { Precondition::Failed };
    // Steps 1 and 2.
    if head.fields.known(Known::IfMatch).is_some() {
        if !matches_any(head, Known::IfMatch, |tag| strong_match(tag, current.etag)) {
            return Precondition::Failed;
        }
    } else if let Some(date) = date_of(head, Known::IfUnmodifiedSince, now_unix)
        && current.last_modified.is_some_and(|modified| modified > date)
    {
        return Precondition::Failed;
    }
    // Steps 3 and 4.
    if head.fields.known(Known::IfNoneMatch).is_some() {
        if matches_any(head, Known::IfNoneMatch, |tag| weak_match(tag, current.etag)) {
            return unmet(reads);
        }
    } else if reads
        && let Some(date) = date_of(head, Known::IfModifiedSince, now_unix)
        && current.last_modified.is_some_and(|modified| modified <= date)
    {
        return Precondition::NotModified;
    }
    Precondition::Proceed
}

/// Whether If-Match, If-None-Match or If-Range lists this tag: the client has this representation,
/// or a part of it.
#[inline]
pub fn names_tag(head: &RequestHead<'_, '_>, tag: &str) -> bool {
    const FIELDS: [Known; 3] = [Known::IfMatch, Known::IfNoneMatch, Known::IfRange];
    const SET: KnownSet = KnownSet::of(&FIELDS);
    let names = |value: &[u8]| Tags(value).any(|it| weak_match(it, tag));
    head.fields.any(SET) && FIELDS.iter().any(|field| head.fields.known_all(*field).any(names))
}

/// Both tags are strong and equal (RFC 9110 8.8.3.2).
pub(crate) fn strong_match(tag: &[u8], current: &str) -> bool {
    tag == current.as_bytes() && tag.starts_with(b"\"")
}

/// The tags are equal except for `W/` (RFC 9110 8.8.3.2).
fn weak_match(tag: &[u8], current: &str) -> bool {
    fn opaque(tag: &[u8]) -> &[u8] {
        tag.strip_prefix(b"W/").unwrap_or(tag)
    }
    !current.is_empty() && opaque(tag) == opaque(current.as_bytes())
}

/// Whether the field is `*` or lists a tag that `is_match`. Anything that is not an entity tag ends
/// the list of its line: nothing after it matches.
fn matches_any(head: &RequestHead<'_, '_>, field: Known, is_match: impl Fn(&[u8]) -> bool) -> bool {
    let any = |value: &[u8]| value == b"*" || Tags(value).any(&is_match);
    head.fields.known_all(field).any(any)
}

/// The date of a condition; a repeated or malformed field is ignored (RFC 9110 13.1.3 and 13.1.4).
fn date_of(head: &RequestHead<'_, '_>, field: Known, now_unix: u64) -> Option<u64> {
    let value = head.fields.known(field).filter(|_| !head.fields.is_repeated(field))?;
    HttpDate::parse(value, now_unix).map(|date| date.0)
}

/// The entity tags of a list.
struct Tags<'b>(&'b [u8]);

impl<'b> Iterator for Tags<'b> {
    type Item = &'b [u8];

    fn next(&mut self) -> Option<&'b [u8]> {
        while let [b' ' | b'\t' | b',', rest @ ..] = self.0 {
            self.0 = rest;
        }
        let weak = if self.0.starts_with(b"W/") { 2 } else { 0 };
        let quoted = self.0[weak..].strip_prefix(b"\"").unwrap_or_default();
        let len = quoted.iter().position(|b| !bytes::is(*b, bytes::ETAG))?;
        if quoted[len] != b'"' {
            self.0 = &[];
            return None;
        }
        let (tag, rest) = self.0.split_at(weak + 1 + len + 1);
        // A comma or the end must follow; otherwise this was not a tag.
        let rest = bytes::trim(rest);
        let ends = rest.is_empty() || rest.starts_with(b",");
        self.0 = if ends { rest } else { &[] };
        ends.then_some(tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(list: &str) -> Vec<&str> {
        Tags(list.as_bytes()).filter_map(|tag| std::str::from_utf8(tag).ok()).collect()
    }

    #[test]
    fn lists_of_tags_are_taken_apart() {
        assert_eq!(tags(r#""a""#), [r#""a""#]);
        assert_eq!(tags(r#" "a" , W/"b,c",, """#), [r#""a""#, r#"W/"b,c""#, r#""""#]);
        for bad in ["a", "\"a", "W/a", "w/\"a\"", "\"a\"b", "\"a b\"", "", ",", "*"] {
            assert_eq!(tags(bad), Vec::<&str>::new(), "{bad}");
        }
        assert_eq!(tags(r#""a", b, "c""#), [r#""a""#]);
    }

    #[test]
    fn comparison_follows_the_table_of_the_rfc() {
        // RFC 9110 8.8.3.2, table 3.
        for (a, b, strong, weak) in [
            ("W/\"1\"", "W/\"1\"", false, true),
            ("W/\"1\"", "W/\"2\"", false, false),
            ("W/\"1\"", "\"1\"", false, true),
            ("\"1\"", "\"1\"", true, true),
        ] {
            assert_eq!(strong_match(a.as_bytes(), b), strong, "{a} {b}");
            assert_eq!(weak_match(a.as_bytes(), b), weak, "{a} {b}");
        }
    }
}
