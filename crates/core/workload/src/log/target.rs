//! The target of a logged request, in a form that can be requested again.

/// Path and query of a logged target: the server's escapes are undone, and characters not allowed
/// in URLs are percent-encoded. `None` if it contains no path, like `*` and the authority of a
/// CONNECT.
pub(super) fn path_of(target: &str) -> Option<Box<str>> {
    let target = without_authority(target);
    if !target.starts_with('/') {
        return None;
    }
    let mut path = String::with_capacity(target.len());
    let (bytes, mut at) = (target.as_bytes(), 0);
    while let Some(&byte) = bytes.get(at) {
        let (byte, length) = unescaped(&bytes[at..]).unwrap_or((byte, 1));
        at += length;
        match is_of_urls(byte) {
            true => path.push(char::from(byte)),
            false => path.push_str(&format!("%{byte:02X}")),
        }
    }
    Some(path.into())
}

/// The part after the authority of a target in absolute form.
fn without_authority(target: &str) -> &str {
    let rest = target.strip_prefix("http://").or_else(|| target.strip_prefix("https://"));
    match rest {
        Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    }
}

/// The byte that an escape represents, and its length: `\xHH` of nginx, Apache and Skep; others of
/// Apache.
fn unescaped(bytes: &[u8]) -> Option<(u8, usize)> {
    let hex = |at: usize| char::from(*bytes.get(at)?).to_digit(16);
    match bytes {
        [b'\\', b'x', ..] => Some(((hex(2)? * 16 + hex(3)?) as u8, 4)),
        [b'\\', it @ (b'"' | b'\\'), ..] => Some((*it, 2)),
        [b'\\', b'n', ..] => Some((b'\n', 2)),
        [b'\\', b't', ..] => Some((b'\t', 2)),
        [b'\\', b'r', ..] => Some((b'\r', 2)),
        _ => None,
    }
}

/// RFC 3986, except for the fragment, plus the brackets that browsers leave unencoded.
fn is_of_urls(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:/?[]@!$&'()*+,;=%".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_can_be_asked_for_again() {
        for (target, path) in [
            ("/a/b.c?d=%20e", Some("/a/b.c?d=%20e")),
            ("/a b", Some("/a%20b")),
            (r"/\x22\xC3\xA4", Some("/%22%C3%A4")),
            (r#"/\"\\"#, Some("/%22%5C")),
            (r"/\xZ1\", Some("/%5CxZ1%5C")),
            ("/ä", Some("/%C3%A4")),
            ("//host/x", Some("//host/x")),
            ("http://host/x", Some("/x")),
            ("http://host", Some("/")),
            ("*", None),
            ("host:443", None),
            ("", None),
        ] {
            assert_eq!(path_of(target).as_deref(), path, "{target}");
        }
    }
}
