//! Every file begins with its module documentation.

use super::Finding;
use crate::source::Source;

/// Finds a file that does not begin with `//!` and a sentence.
pub(crate) fn check(source: &Source) -> Option<Finding> {
    let first = source.text.lines().next().unwrap_or_default();
    let sentence = first.strip_prefix("//!").unwrap_or_default().trim();
    sentence.is_empty().then(|| {
        let what = "begin the file with `//! …`: what it owns and what it never does";
        Finding::new(&source.path, 1, "module-doc", what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_must_be_a_sentence() {
        for (text, ok) in [
            ("//! Sockets.\n", true),
            ("//! Sockets.\r\nuse x;", true),
            ("", false),
            ("//!\n//! Sockets.\n", false),
            ("\n//! Sockets.\n", false),
            ("#![forbid(unsafe_code)]\n//! Sockets.\n", false),
            ("/// Sockets.\n", false),
        ] {
            let source = Source::new("crates/x/src/lib.rs", text);
            assert_eq!(check(&source).is_none(), ok, "{text:?}");
        }
    }
}
