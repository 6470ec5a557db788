//! Blanks comments and the contents of literals.
//!
//! Handles everything that can hide a bracket: line and nested block comments, strings with escapes, raw
//! strings with any number of `#`, and chars as opposed to lifetimes. Nothing else of the language matters
//! here.

/// Returns `text` with a space for every byte of a comment or inside a literal. Line breaks, and so all line
/// numbers, are kept.
pub(super) fn blank(text: &str) -> String {
    let mut code = text.as_bytes().to_vec();
    let mut at = 0;
    while at < code.len() {
        let end = token_end(text.as_bytes(), at);
        if let Some(Hidden { from, to, next }) = end {
            code[from..to].iter_mut().filter(|byte| **byte != b'\n').for_each(|b| *b = b' ');
            at = next;
        } else {
            at += 1;
        }
    }
    String::from_utf8_lossy(&code).into_owned()
}

/// A range to blank, and the offset at which to continue.
struct Hidden {
    from: usize,
    to: usize,
    next: usize,
}

impl Hidden {
    /// The whole comment.
    fn comment(from: usize, to: usize) -> Self {
        Self { from, to, next: to }
    }

    /// The content between the quotes of a literal that ends before `to`.
    fn literal(from: usize, to: usize, closing: usize) -> Self {
        Self { from, to: to.saturating_sub(closing).max(from), next: to }
    }
}

/// The comment or literal that starts at `at`, if any.
fn token_end(text: &[u8], at: usize) -> Option<Hidden> {
    let rest = &text[at..];
    match rest {
        [b'/', b'/', ..] => {
            let length = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
            Some(Hidden::comment(at, at + length))
        }
        [b'/', b'*', ..] => Some(Hidden::comment(at, at + block_comment_length(rest))),
        [b'"', ..] => Some(Hidden::literal(at + 1, at + string_length(rest), 1)),
        [b'\'', ..] => char_length(rest).map(|length| Hidden::literal(at + 1, at + length, 1)),
        [b'r', ..] if !continues_word(text, at) => raw_string(rest)
            .map(|(open, length, close)| Hidden::literal(at + open, at + length, close)),
        _ => None,
    }
}

/// Whether the `r` at `at` is the end of a longer name. `br"…"` and `cr"…"` are also raw strings.
fn continues_word(text: &[u8], at: usize) -> bool {
    let is_word = |at: usize| text[at].is_ascii_alphanumeric() || text[at] == b'_';
    let is_prefixed = at > 0 && matches!(text[at - 1], b'b' | b'c');
    let before = at.checked_sub(if is_prefixed { 2 } else { 1 });
    before.is_some_and(is_word)
}

fn block_comment_length(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string_length(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Length of a char literal; `None` for a lifetime.
fn char_length(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        let close = rest.iter().skip(3).position(|&byte| byte == b'\'')?;
        return Some(close + 4);
    }
    let width = match rest.get(1)? {
        0x00..0x80 => 1,
        0x80..0xe0 => 2,
        0xe0..0xf0 => 3,
        _ => 4,
    };
    (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
}

/// Lengths of a raw string: its opening, the whole string, its closing.
fn raw_string(rest: &[u8]) -> Option<(usize, usize, usize)> {
    let hashes = rest[1..].iter().take_while(|&&byte| byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return None;
    }
    let open = hashes + 2;
    let closing: Vec<u8> = std::iter::once(b'"').chain(vec![b'#'; hashes]).collect();
    let inside = rest[open..].windows(closing.len()).position(|window| window == closing);
    let length = inside.map_or(rest.len(), |inside| open + inside + closing.len());
    Some((open, length, closing.len()))
}
