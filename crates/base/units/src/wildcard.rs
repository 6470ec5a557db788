//! Patterns in which `*` stands for any bytes.

/// Whether `text` is what `pattern` says: each `*` in it stands for any bytes, also none.
/// Costs at most as many comparisons as both lengths multiplied.
///
/// A pattern that matches another pattern as a text matches all that the other matches.
pub fn matches_wildcard(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    // The last `*` so far, and where what follows it is tried.
    let mut retry: Option<(usize, usize)> = None;
    while read < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                retry = Some((at + 1, read));
                at += 1;
            }
            Some(byte) if *byte == text[read] => {
                at += 1;
                read += 1;
            }
            // The earlier `*` need not take more: whatever they left, the last one can take.
            _ => match &mut retry {
                Some((behind, from)) => {
                    *from += 1;
                    (at, read) = (*behind, *from);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
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
