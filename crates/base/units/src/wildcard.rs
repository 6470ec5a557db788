//! Patterns in which `*` matches any bytes.

/// Whether `text` matches `pattern`: each `*` in it matches any bytes, or none. The parts before
/// the first `*` and after the last one are compared directly; parts in between are searched for,
/// with at most as many comparisons as the product of both lengths.
///
/// A pattern that matches another pattern as a text matches everything that the other matches.
pub fn matches_wildcard(pattern: &[u8], text: &[u8]) -> bool {
    let is_wild = |byte: &u8| *byte == b'*';
    let Some(first) = pattern.iter().position(is_wild) else { return pattern == text };
    let last = pattern.iter().rposition(is_wild).unwrap_or(first);
    let (head, tail) = (&pattern[..first], &pattern[last + 1..]);
    let Some(mut rest) = text.strip_prefix(head).and_then(|rest| rest.strip_suffix(tail)) else {
        return false;
    };
    // The earliest match of each piece leaves the most for the following ones.
    for piece in pattern[first..last].split(is_wild).filter(|piece| !piece.is_empty()) {
        let Some(at) = rest.windows(piece.len()).position(|it| it == piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_stands_for_any_bytes() {
        for (pattern, matched, others) in [
            ("/a", &["/a"][..], &["/", "/a/", "/ab", ""][..]),
            ("/a/*", &["/a/", "/a/b", "/a/b/c"], &["/a", "/ab", "/b/a/"]),
            ("*.php", &[".php", "/x.php", "/a.php/b.php"], &["/x.php5", "/x.ph", "php"]),
            ("/a*b*c", &["/abc", "/axxbxbxc", "/abcbc"], &["/ac", "/abcd", "/acb"]),
            ("*", &["", "/"], &[]),
            ("", &[""], &["/"]),
        ] {
            for text in matched {
                assert!(matches_wildcard(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
            }
            for text in others {
                assert!(!matches_wildcard(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
            }
        }
    }

    #[test]
    fn a_pattern_matches_a_narrower_one() {
        for (wide, narrow, is_wider) in [
            ("/a/*", "/a/b/*", true),
            ("/a/*", "/a/*", true),
            ("*.php", "/a/*.php", true),
            ("/a/b/*", "/a/*", false),
            ("/a/*.php", "*.php", false),
        ] {
            let found = matches_wildcard(wide.as_bytes(), narrow.as_bytes());
            assert_eq!(found, is_wider, "{wide} {narrow}");
        }
    }
}
