//! What of a foreign text may be drawn on a terminal: no commands to it, and nothing that hides or reorders what
//! is around it ("Trojan Source", CVE-2021-42574).

use std::fmt::Write as _;

/// Whether a character is drawn where it stands: no control, no mark of direction, nothing of no width but what
/// combines with the letter before it.
pub(crate) fn is_harmless(it: char) -> bool {
    // The tables of the standard library, which escape what is not printable. Behind a letter, since what combines
    // with one is escaped where it begins a text; the quotes are escaped for another reason.
    let behind_letter = String::from_iter(['a', it]);
    matches!(it, '"' | '\'' | '\\') || behind_letter.escape_debug().count() == 2
}

/// A text without what is not.
pub(crate) fn harmless_text(text: &str) -> String {
    text.chars().filter(|it| is_harmless(*it)).collect()
}

/// JSON with escapes for all that is not harmless, which stands in strings only.
pub(crate) fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for it in text.chars() {
        if it == '\n' || is_harmless(it) {
            out.push(it);
        } else {
            for unit in it.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_in_its_place_is_harmless() {
        for it in [
            'a',
            ' ',
            '"',
            '\'',
            '\\',
            '\u{e9}',
            '\u{301}',
            '\u{93f}',
            '\u{4e2d}',
            '\u{1f41d}',
            '\u{5d0}',
        ] {
            assert!(is_harmless(it), "{it:?}");
        }
        for it in [
            '\n',
            '\t',
            '\x1b',
            '\x7f',
            '\u{9b}',
            '\u{ad}',
            '\u{61c}',
            '\u{200b}',
            '\u{200d}',
            '\u{200f}',
            '\u{2028}',
            '\u{202e}',
            '\u{2066}',
            '\u{2069}',
            '\u{feff}',
            '\u{fff9}',
            '\u{e0041}',
            '\u{e000}',
        ] {
            assert!(!is_harmless(it), "{it:?}");
        }
    }

    #[test]
    fn json_stays_the_same_to_those_who_parse_it() {
        let text = "{\n  \"a\": \"\u{202e}x\u{9b}31m\u{e0041}\"\n}";
        assert_eq!(json(text), "{\n  \"a\": \"\\u202ex\\u009b31m\\udb40\\udc41\"\n}");
        assert_eq!(json("{\"a\":\"\u{e9}\"}"), "{\"a\":\"\u{e9}\"}");
    }
}
