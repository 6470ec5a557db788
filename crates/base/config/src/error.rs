//! Faults of a file, and the error messages that report them.
//!
//! Inside the crate a [`Fault`] refers to a range of bytes; at the end, all faults
//! become [`ConfigErrors`] with line, column and excerpt.

use std::fmt;

use serde::Serialize;

use crate::limits::{ERRORS_MAX, EXCERPT_CHARS_MAX};
use crate::raw::Span;

/// All faults of a file; the whole file is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigErrors {
    /// In the order of the file; at least one, at most
    /// [`ERRORS_MAX`](crate::limits::ERRORS_MAX).
    pub errors: Vec<ConfigError>,
    /// Errors beyond that number.
    pub omitted: usize,
}

/// One fault. `Display` writes several lines for a terminal, without a trailing newline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigError {
    /// The kind of fault.
    pub kind: ErrorKind,
    /// Name of the file, as passed by the caller.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The setting or table, such as `limits.head_bytes_max`; empty for the
    /// file as a whole.
    pub setting: String,
    /// The expected value.
    pub expected: String,
    /// The value found in the file.
    pub found: String,
    /// A suggested correction, if one can be guessed.
    pub hint: Option<String>,
    /// The line of the file, truncated to a readable length.
    pub excerpt: String,
    /// Characters of `excerpt` before the fault.
    pub caret_at: usize,
    /// Characters of `excerpt` covered by the fault, at least 1.
    pub caret_len: usize,
}

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// Not TOML.
    Syntax,
    /// No setting or table has this name.
    UnknownKey,
    /// A value of another type or form.
    WrongType,
    /// A value of the right type beyond its limits.
    OutOfRange,
    /// A required setting or table is missing.
    Missing,
    /// A name or address that is already used.
    Duplicate,
    /// Two settings that exclude each other.
    Contradiction,
}

impl std::error::Error for ConfigErrors {}
impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.errors.iter().enumerate() {
            let gap = if i == 0 { "" } else { "\n\n" };
            write!(f, "{gap}{error}")?;
        }
        match self.omitted {
            0 => Ok(()),
            1 => write!(f, "\n\nand 1 more error"),
            more => write!(f, "\n\nand {more} more errors"),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file, self.line, self.column)?;
        if !self.setting.is_empty() {
            write!(f, "{}: ", self.setting)?;
        }
        writeln!(f, "expected {}, found {}", self.expected, self.found)?;
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        let (indent, carets) = (" ".repeat(self.caret_at), "^".repeat(self.caret_len));
        writeln!(f, " {margin} |")?;
        writeln!(f, " {number} | {}", self.excerpt)?;
        write!(f, " {margin} | {indent}{carets}")?;
        match &self.hint {
            Some(hint) => write!(f, "\n {margin} = hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// A fault and its range of bytes.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: ErrorKind,
    pub(crate) span: Span,
    pub(crate) setting: String,
    pub(crate) expected: String,
    pub(crate) found: String,
    pub(crate) hint: Option<String>,
    /// The setting or table that was probably meant by an unknown key, if known: its value is then
    /// not the one in the file.
    pub(crate) meant: Option<&'static str>,
}

impl Fault {
    /// A fault without a hint.
    pub(crate) fn new(
        kind: ErrorKind,
        span: Span,
        setting: &str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        let (expected, found) = (expected.into(), found.into());
        Self { kind, span, setting: setting.into(), expected, found, hint: None, meant: None }
    }

    /// Returns the fault with a suggested correction.
    pub(crate) fn hint(mut self, hint: impl Into<Option<String>>) -> Self {
        self.hint = hint.into();
        self
    }
}

impl ConfigErrors {
    /// Creates the errors from `faults`, which must not be empty.
    pub(crate) fn new(file: &str, text: &str, mut faults: Vec<Fault>) -> Self {
        assert!(!faults.is_empty(), "a file without faults is not refused");
        faults.sort_by_key(|fault| fault.span.start);
        let omitted = faults.len().saturating_sub(ERRORS_MAX);
        faults.truncate(ERRORS_MAX);
        let errors = faults.into_iter().map(|fault| error(file, text, fault)).collect();
        Self { errors, omitted }
    }
}

fn error(file: &str, text: &str, fault: Fault) -> ConfigError {
    let place = Excerpt::of(text, &fault.span);
    ConfigError {
        kind: fault.kind,
        file: file.into(),
        line: place.line,
        column: place.column,
        setting: fault.setting,
        expected: fault.expected,
        found: fault.found,
        hint: fault.hint,
        excerpt: place.excerpt,
        caret_at: place.caret_at,
        caret_len: place.caret_len,
    }
}

/// The line and column of a range of bytes, and the excerpt around it.
struct Excerpt {
    line: usize,
    column: usize,
    excerpt: String,
    caret_at: usize,
    caret_len: usize,
}

impl Excerpt {
    /// Characters kept before the fault if its line must be truncated.
    const LEAD_CHARS: usize = 30;

    fn of(text: &str, span: &Span) -> Self {
        let start = floor_char(text, span.start);
        let end = floor_char(text, span.end).max(start);
        let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |newline| start + newline);
        let line = text[..start].matches('\n').count() + 1;
        let before = text[line_start..start].chars().count();
        let marked = text[start..end.min(line_end)].trim_end().chars().count();

        let cut = before.saturating_sub(Self::LEAD_CHARS);
        let whole = text[line_start..line_end].trim_end();
        let cut = if whole.chars().count() <= EXCERPT_CHARS_MAX { 0 } else { cut };
        let excerpt = whole.chars().skip(cut).take(EXCERPT_CHARS_MAX);
        let excerpt: String = excerpt.map(|c| if c.is_control() { ' ' } else { c }).collect();
        let caret_at = before - cut;
        let room = excerpt.chars().count().saturating_sub(caret_at);
        let caret_len = marked.min(room).max(1);
        Self { line, column: before + 1, excerpt, caret_at, caret_len }
    }
}

/// The start of the character that contains `at`, or the end of the text.
fn floor_char(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, span: Span) -> String {
        let fault = Fault::new(ErrorKind::WrongType, span, "a.b", "X", "Y").hint("do Z".to_owned());
        ConfigErrors::new("f.toml", text, vec![fault]).to_string()
    }

    #[test]
    fn an_error_shows_place_excerpt_caret_and_hint() {
        let expected =
            "f.toml:2:5: a.b: expected X, found Y\n   |\n 2 | b = 77\n   |     ^^\n   = hint: do Z";
        assert_eq!(shown("[a]\nb = 77\n", 8..10), expected);
    }

    #[test]
    fn columns_count_characters_and_any_span_is_safe() {
        let text = "é = \u{1b}\t'日本'\r\n";
        for start in 0..text.len() + 3 {
            for end in start..text.len() + 3 {
                let all = shown(text, start..end);
                assert!(!all.contains('\u{1b}') && !all.contains('\t') && !all.contains('\r'));
            }
        }
        assert!(shown("é = 1", 5..6).starts_with("f.toml:1:5:"));
    }

    #[test]
    fn long_lines_are_cut_around_the_fault() {
        let text = format!("{}!{}", "a".repeat(5000), "b".repeat(5000));
        let all = shown(&text, 5000..5001);
        assert!(all.contains("1:5001") && all.contains('!'));
        assert!(all.lines().all(|line| line.chars().count() <= EXCERPT_CHARS_MAX + 20));
    }

    #[test]
    fn errors_are_bounded_and_in_the_order_of_the_file() {
        let fault = |at| Fault::new(ErrorKind::Syntax, at..at + 1, "", "X", "Y");
        let errors = ConfigErrors::new("f", &"x".repeat(99), (0..25).rev().map(fault).collect());
        assert_eq!((errors.errors.len(), errors.omitted), (ERRORS_MAX, 5));
        assert!(errors.errors.is_sorted_by_key(|error| error.column));
        assert!(errors.to_string().ends_with("and 5 more errors"));
    }
}
