//! Conditional requests (RFC 9110 13).
use crate::RequestHead;

/// What a representation is compared by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Validators<'a> {
    /// Entity tag with its quotes, `W/` in front when weak; empty: none.
    pub etag: &'a str,
    /// Last modification, in seconds since the Unix epoch.
    pub last_modified: Option<u64>,
}

/// Verdict on the conditions of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Go on with the method.
    Proceed,
    /// Answer 304.
    NotModified,
    /// Answer 412.
    Failed,
}

/// Evaluates If-Match, If-Unmodified-Since, If-None-Match and
/// If-Modified-Since in the order of RFC 9110 13.2.2; If-Range belongs to
/// [`crate::range::ranges`].
pub fn evaluate(
    head: &RequestHead<'_, '_>,
    current: &Validators<'_>,
    now_unix: u64,
) -> Precondition {
    let _ = (head, current, now_unix);
    unimplemented!("evaluate")
}
