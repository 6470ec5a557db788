//! Code shared by the clients of the probe and of load tests: the target of a redirect, the cause of a failed
//! exchange, and text of servers that is safe to print.

use std::error::Error;
use std::io::{self, ErrorKind};

use hyper::body::Incoming;
use hyper::header::LOCATION;
use hyper::{Response, StatusCode};

use crate::limits::FAILURE_CHARS_MAX;

/// The target of a redirect; `None` for other responses, and for redirects without a target.
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

/// A `Location` as a URL: characters that a URL cannot contain are escaped, as by other clients.
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

/// The kind of the I/O error that caused `error`.
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

/// The printable characters of `text` as one line of bounded length: part of it may come from the server.
pub fn clean(text: &str) -> String {
    text.chars().filter(|it| is_drawn(*it)).take(FAILURE_CHARS_MAX).collect()
}

/// Whether a character is printable: it neither controls a terminal nor hides or reorders adjacent text.
pub(crate) fn is_drawn(it: char) -> bool {
    // The standard library escapes unprintable characters; it also escapes quotes, for another reason, and
    // combining characters only if no letter precedes them.
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
