//! A request to an origin, and its wire form.

use std::ops::Range;

use skep_http::encode::write_field;
use skep_http::forward::VIA_NAME;
use skep_http::limits::RESPONSE_HEAD;
use skep_http::{Host, Validators};
use skep_httpcache::{write_conditions, write_if_range};

use crate::error::Fault;
use crate::url::OriginUrl;

/// A GET.
#[derive(Clone, Debug, Default)]
pub struct Ask<'a> {
    /// Path and query, in the form of a request target; begins with a slash. The origin's base is
    /// prepended.
    pub path_and_query: &'a [u8],
    /// Field Host; `None`: the origin's own name.
    pub host: Option<&'a str>,
    /// Requested bytes; an end of `u64::MAX`: up to the end. `None`: the whole.
    pub range: Option<Range<u64>>,
    /// The condition of the request.
    pub condition: Condition<'a>,
}

/// The condition of a request (RFC 9110 13).
#[derive(Clone, Copy, Debug, Default)]
pub enum Condition<'a> {
    /// None.
    #[default]
    None,
    /// Request the range of this version only (If-Range): for another version the reply is the
    /// whole, with 200. Only a strong entity tag, or a date if there is no tag, can be sent;
    /// therefore always compare the version of the reply.
    Pinned(Validators<'a>),
    /// Respond only with 304 if the version is still current (If-None-Match or If-Modified-Since):
    /// revalidation. May be combined with a range.
    Unless(Validators<'a>),
}

/// Refuses an invalid target or host, which could inject header lines.
pub(crate) fn check(ask: &Ask<'_>) -> Result<(), Fault> {
    let is_target = |byte: &u8| byte.is_ascii_graphic() && !b"#\"<>".contains(byte);
    if ask.path_and_query.first() != Some(&b'/') || !ask.path_and_query.iter().all(is_target) {
        return Err(Fault::Ask("the path is no request target"));
    }
    if ask.path_and_query.len() > RESPONSE_HEAD.target_bytes_max {
        return Err(Fault::Ask("the path is too long"));
    }
    if ask.host.is_some_and(|host| Host::parse(host.as_bytes()).is_err()) {
        return Err(Fault::Ask("the host is no host"));
    }
    if ask.range.as_ref().is_some_and(Range::is_empty) {
        return Err(Fault::Ask("the range is empty"));
    }
    Ok(())
}

/// Appends the head of the request.
pub(crate) fn write(out: &mut Vec<u8>, url: &OriginUrl, ask: &Ask<'_>) {
    out.extend_from_slice(b"GET ");
    out.extend_from_slice(url.base().as_bytes());
    out.extend_from_slice(ask.path_and_query);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    write_field(out, "Host", ask.host.unwrap_or(url.authority()).as_bytes());
    // Ensures ranges of one coding and matching sizes: codings that clients accept are applied by
    // the node.
    write_field(out, "Accept-Encoding", b"identity");
    write_field(out, "Via", format!("1.1 {VIA_NAME}").as_bytes());
    if let Some(range) = &ask.range {
        write_field(out, "Range", range_value(range).as_bytes());
    }
    match &ask.condition {
        Condition::Pinned(version) if ask.range.is_some() => write_if_range(out, version),
        Condition::None | Condition::Pinned(_) => {}
        // Both are sent, for origins that support only one of them.
        Condition::Unless(version) => write_conditions(out, &[*version]),
    }
    out.extend_from_slice(b"\r\n");
}

fn range_value(range: &Range<u64>) -> String {
    match range.end {
        u64::MAX => format!("bytes={}-", range.start),
        end => format!("bytes={}-{}", range.start, end - 1),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    fn written(ask: &Ask<'_>) -> String {
        check(ask).unwrap();
        let mut out = Vec::new();
        write(&mut out, &OriginUrl::parse("http://o:81/b/").unwrap(), ask);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_request_says_what_is_wanted_and_no_more() {
        let plain = Ask { path_and_query: b"/a?b", ..Ask::default() };
        assert_eq!(
            written(&plain),
            "GET /b/a?b HTTP/1.1\r\nHost: o:81\r\nAccept-Encoding: identity\r\nVia: 1.1 skep\r\n\r\n"
        );
        let strong = Validators { etag: "\"x\"", last_modified: Some(0) };
        let pinned = Ask { range: Some(0..10), condition: Condition::Pinned(strong), ..plain };
        let text = written(&Ask { host: Some("site.example"), ..pinned });
        assert!(text.contains("Host: site.example\r\n"));
        assert!(text.contains("Range: bytes=0-9\r\nIf-Range: \"x\"\r\n"));
    }

    #[test]
    fn validators_go_where_they_are_strong_enough() {
        let ask = |condition| {
            let range = Some(5..u64::MAX);
            written(&Ask { path_and_query: b"/", host: None, range, condition })
        };
        let weak = Validators { etag: "W/\"x\"", last_modified: Some(0) };
        let dated = Validators { etag: "", last_modified: Some(0) };
        assert!(ask(Condition::None).contains("Range: bytes=5-\r\n"));
        assert!(!ask(Condition::Pinned(weak)).contains("If-Range"));
        let date = "Thu, 01 Jan 1970 00:00:00 GMT\r\n";
        assert!(ask(Condition::Pinned(dated)).contains(&format!("If-Range: {date}")));
        let unless = ask(Condition::Unless(weak));
        assert!(unless.contains("If-None-Match: W/\"x\"\r\n"));
        assert!(unless.contains(&format!("If-Modified-Since: {date}")));
    }

    #[test]
    fn what_would_end_the_line_is_not_sent() {
        for path in ["", "a", "/a b", "/a\r\nX: y", "/a#b", "/\u{e4}"] {
            let ask = Ask { path_and_query: path.as_bytes(), ..Ask::default() };
            assert!(check(&ask).is_err(), "{path}");
        }
        let ask = Ask { path_and_query: b"/", host: Some("a\r\nX: y"), ..Ask::default() };
        assert!(check(&ask).is_err());
        let ask = Ask { path_and_query: b"/", range: Some(3..3), ..Ask::default() };
        assert!(check(&ask).is_err());
    }
}
