//! What the clients of the probe and of load tests share: where a redirect leads, the cause of a failed exchange, and
//! text of servers that is safe to print.

use std::error::Error;
use std::io::{self, ErrorKind};

use hyper::body::Incoming;
use hyper::header::LOCATION;
use hyper::{Response, StatusCode};

use crate::limits::FAILURE_CHARS_MAX;

/// Where a redirect leads; other responses, and redirects without a place, are for the reader.
pub fn redirect(response: &Response<Incoming>) -> Option<String> {
    let is_redirect = matches!(
        response.status(),
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    let location = response.headers().get(LOCATION).filter(|_| is_redirect)?;
    Some(escaped(location.as_bytes()))
}

/// A `Location` as a URL: what a URL cannot have is escaped, as other clients do.
fn escaped(location: &[u8]) -> String {
    let mut out = String::with_capacity(location.len());
    for byte in location {
        match byte {
            b'!'..=b'~' => out.push(char::from(*byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

/// The kind of the input/output error below `error`.
pub fn io_kind(error: &hyper::Error) -> Option<ErrorKind> {
    let mut below = error.source();
    while let Some(error) = below {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        below = error.source();
    }
    None
}

/// One line of a bounded length, of what is drawn where it stands: part of it may come from the server.
pub fn clean(text: &str) -> String {
    text.chars().filter(|it| is_drawn(*it)).take(FAILURE_CHARS_MAX).collect()
}

/// Whether a character neither commands a terminal nor hides or reorders what is around it.
pub(crate) fn is_drawn(it: char) -> bool {
    // The standard library escapes what is not printable; it escapes quotes for another reason, and
    // what combines with a letter only where there is none before it.
    matches!(it, '"' | '\'' | '\\') || String::from_iter(['a', it]).escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_servers_are_one_harmless_line() {
        assert_eq!(
            clean("a\x1b[31m \u{202e}b\u{200b}\n'\"c\u{e9}\u{301}"),
            "a[31m b'\"c\u{e9}\u{301}"
        );
        assert_eq!(clean(&"x".repeat(1_000)).len(), FAILURE_CHARS_MAX);
    }
}
