//! Cookies as all applications parse them (RFC 6265).
//!
//! Applications treat input that violates the grammar differently: Python and old servlet engines
//! also separate cookies at spaces and commas, a `;` in quotes may or may not separate, PHP reads
//! `a.b`, `a b` and `a[b` as `a_b` or `a`, ASP.NET reads `A` as `a`. A client that exploits such a
//! difference between the cache and the application could have its own page stored for others. So
//! any cookies that can be parsed in two ways are detected here, and nothing is stored or reused
//! for them. The same applies to several Cookie lines, which some applications join with a comma.

use skep_http::{Known, RequestHead};

/// A cookie's name and value. The value is empty if there is no `=`, as in most applications.
pub(crate) type Cookie<'b> = (&'b [u8], &'b [u8]);

/// All cookies of a request.
pub(crate) fn cookies<'b>(head: &RequestHead<'_, 'b>) -> impl Iterator<Item = Cookie<'b>> {
    head.fields.known_all(Known::Cookie).flat_map(cookies_of_line)
}

/// The cookies of one line.
pub(crate) fn cookies_of_line(line: &[u8]) -> impl Iterator<Item = Cookie<'_>> {
    let pairs = line.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    pairs.filter(|pair| !pair.is_empty()).map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=');
        at.map_or((pair, &b""[..]), |at| (&pair[..at], &pair[at + 1..]))
    })
}

/// Whether all applications find the same cookies named `names` in `head`.
pub(crate) fn are_read_alike(head: &RequestHead<'_, '_>, names: &[String]) -> bool {
    let is_like_one = |name: &[u8]| {
        let is_like = |known: &String| name != known.as_bytes() && may_be_read_as(name, known);
        names.iter().any(is_like)
    };
    head.fields.known_all(Known::Cookie).count() <= 1
        && cookies(head).all(|cookie| is_plain(cookie) && !is_like_one(cookie.0))
}

/// Whether a cookie conforms to the grammar (RFC 6265 4.1.1): no application parses it differently.
pub(crate) fn is_plain((name, value): Cookie<'_>) -> bool {
    let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    let is_octet = |byte: &u8| byte.is_ascii_graphic() && !b"\",;\\".contains(byte);
    // Some applications decode escapes in names.
    let is_of_name =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~[]:/".contains(byte);
    !name.is_empty() && name.iter().all(is_of_name) && inner.unwrap_or(value).iter().all(is_octet)
}

/// Whether some application reads `name` as `pattern`, in which a trailing `*` matches any suffix.
pub(crate) fn may_be_read_like(name: &[u8], pattern: &str) -> bool {
    let Some(begin) = pattern.strip_suffix('*') else { return may_be_read_as(name, pattern) };
    let name = without_space(name).iter().map(|it| folded(*it)).take(begin.len());
    name.eq(begin.bytes().map(folded))
}

/// Whether some application reads `name` as `known`.
fn may_be_read_as(name: &[u8], known: &str) -> bool {
    let name = without_space(name);
    let is_same = |name: &[u8]| name.iter().map(|it| folded(*it)).eq(known.bytes().map(folded));
    let array = name.iter().position(|byte| *byte == b'[').map(|at| &name[..at]);
    is_same(name) || array.is_some_and(is_same)
}

/// Old PHP decodes names, and strips leading spaces.
fn without_space(name: &[u8]) -> &[u8] {
    name.strip_prefix(b"+").unwrap_or(name)
}

fn folded(byte: u8) -> u8 {
    match byte {
        byte if byte.is_ascii_alphanumeric() => byte.to_ascii_lowercase(),
        _ => b'_',
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use skep_http::{FieldSlots, limits, parse_request};

    use super::*;

    fn are_alike(lines: &str) -> bool {
        let lines = lines.replace('|', "\r\nCookie: ");
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: {lines}\r\n\r\n");
        let mut slots = FieldSlots::new();
        let head = parse_request(&mut slots, text.as_bytes(), &limits::RESPONSE_HEAD).unwrap();
        are_read_alike(&head, &["my_lang".to_owned()])
    }

    #[test]
    fn what_applications_read_in_their_own_ways_is_recognised() {
        for line in [
            "my_lang=de",
            "a=1; my_lang=\"de\";b=%22x%22; c=a=b",
            "_ga=GA1.2.3; my_lang2=x; my-language=y; a[b]=c",
            "",
        ] {
            assert!(are_alike(line), "{line}");
        }
        for line in [
            "my_lang =evil",
            "my_lang=de; my_lang =evil",
            "_ga=1 my_lang=evil",
            "_ga=1, my_lang=evil",
            "a=\"x; my_lang=evil\"",
            "a=\"x\\\" my_lang=evil",
            "my.lang=evil",
            "my[lang=evil",
            "my_lang[x]=evil",
            "My_Lang=evil",
            "my%5flang=evil",
            "my_lang; a=b\\c",
            "=my_lang",
            "my_lang=de|x=1",
        ] {
            assert!(!are_alike(line), "{line}");
        }
    }
}
