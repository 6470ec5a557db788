//! The part of a foreign text that may be drawn on a terminal: no control sequences, and nothing that hides
//! or reorders the text around it ("Trojan Source", CVE-2021-42574).

use std::fmt::Write as _;

/// Whether a character is drawn at its own position: no control character, no directional mark, and no
/// character of zero width other than combining marks.
pub(crate) fn is_harmless(it: char) -> bool {
    // The standard library escapes characters that are not printable. Tested after a letter, since combining
    // marks are escaped at the start of a text; quotes are escaped for another reason.
    let behind_letter = String::from_iter(['a', it]);
    matches!(it, '"' | '\'' | '\\') || behind_letter.escape_debug().count() == 2
}

/// The text without characters that are not harmless.
pub(crate) fn harmless_text(text: &str) -> String {
    text.chars().filter(|it| is_harmless(*it)).collect()
}

/// The JSON text with all characters escaped that are not harmless; they occur in strings only.
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
