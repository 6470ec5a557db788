//! A Rust file as seen by the rules: its text, and the same text with comments and the contents of literals
//! blanked, so that brackets and words can be counted without a parser.
//!
//! Invariant: `code` has the length and the line breaks of `text`; an offset denotes the same position in
//! both.

use std::ops::Range;

mod lexer;

/// One `.rs` file.
pub(crate) struct Source {
    /// Path relative to the root of the repo.
    pub(crate) path: String,
    /// The unmodified content.
    pub(crate) text: String,
    /// The same, with comments and the contents of literals blanked.
    pub(crate) code: String,
}

/// An attribute: `#[…]` or `#![…]`.
pub(crate) struct Attribute {
    /// From `#` to after `]`.
    pub(crate) range: Range<usize>,
    /// Whether it is `#![…]` and so applies to what encloses it.
    pub(crate) inner: bool,
}

/// A function with a body.
pub(crate) struct Function {
    /// Its name, without path or type.
    pub(crate) name: String,
    /// Line of the `fn`, from 1.
    pub(crate) line: usize,
    /// Lines from `fn` to the closing brace.
    pub(crate) lines: usize,
}

impl Source {
    /// Creates a source from its path and text.
    pub(crate) fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        let code = lexer::blank(&text);
        Self { path: path.into(), text, code }
    }

    /// The line of an offset, from 1.
    pub(crate) fn line_of(&self, offset: usize) -> usize {
        1 + self.code.as_bytes()[..offset].iter().filter(|&&byte| byte == b'\n').count()
    }

    /// Whether the file is marked as a table of cases, which is exempt from size limits.
    pub(crate) fn is_table(&self) -> bool {
        self.text
            .lines()
            .take_while(|line| line.starts_with("//!"))
            .any(|line| line.trim() == "//! tidy: table")
    }

    /// Offsets of `token` in code where it is not part of a longer word.
    pub(crate) fn find(&self, token: &str) -> Vec<usize> {
        let bytes = self.code.as_bytes();
        let word_at = |at: usize| bytes.get(at).is_some_and(|&byte| is_word(char::from(byte)));
        let is_whole = |start: usize| {
            let end = start + token.len();
            let longer_before = start > 0 && word_at(start - 1) && word_at(start);
            let longer_behind = word_at(end - 1) && word_at(end);
            !longer_before && !longer_behind
        };
        self.code.match_indices(token).map(|(at, _)| at).filter(|&at| is_whole(at)).collect()
    }

    /// All attributes, in order.
    pub(crate) fn attributes(&self) -> Vec<Attribute> {
        let bytes = self.code.as_bytes();
        let mut found = Vec::new();
        for (start, _) in self.code.match_indices('#') {
            let inner = bytes.get(start + 1) == Some(&b'!');
            let open = start + 1 + usize::from(inner);
            if bytes.get(open) == Some(&b'[') {
                let end = self.closing(open) + 1;
                found.push(Attribute { range: start..end.min(bytes.len()), inner });
            }
        }
        found
    }

    /// All functions with a body, including those inside macros and functions.
    pub(crate) fn functions(&self) -> Vec<Function> {
        self.find("fn").into_iter().filter_map(|start| self.function_at(start)).collect()
    }

    /// The range to which an attribute applies: the item or statement after an outer one, the enclosing block
    /// or file of an inner one.
    pub(crate) fn governed_by(&self, attribute: &Attribute) -> Range<usize> {
        if !attribute.inner {
            return attribute.range.start..self.item_end(attribute.range.end);
        }
        let open = self.enclosing_open(attribute.range.start);
        match open {
            Some(open) => open..self.closing(open),
            None => 0..self.code.len(),
        }
    }

    /// Ranges that are compiled for tests only.
    pub(crate) fn test_ranges(&self) -> Vec<Range<usize>> {
        let mut ranges = Vec::new();
        for attribute in self.attributes() {
            if is_test_only(&self.code[attribute.range.clone()]) {
                ranges.push(self.governed_by(&attribute));
            }
        }
        ranges
    }

    /// Offset of the bracket that closes the one at `open`; the end of the file if it is missing.
    pub(crate) fn closing(&self, open: usize) -> usize {
        let mut depth = 0usize;
        for (at, &byte) in self.code.as_bytes().iter().enumerate().skip(open) {
            match byte {
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' => depth = depth.saturating_sub(1),
                _ => continue,
            }
            if depth == 0 {
                return at;
            }
        }
        self.code.len()
    }

    fn function_at(&self, start: usize) -> Option<Function> {
        let after = start + "fn".len();
        let rest = self.code[after..].trim_start();
        let name: String = rest.chars().take_while(|&c| is_word(c)).collect();
        if name.is_empty() {
            return None;
        }
        let open = self.body_open(after)?;
        let (line, last) = (self.line_of(start), self.line_of(self.closing(open)));
        Some(Function { name, line, lines: last - line + 1 })
    }

    /// Offset of the `{` of a function's body; `None` for a declaration.
    fn body_open(&self, from: usize) -> Option<usize> {
        let bytes = self.code.as_bytes();
        let mut at = from;
        while at < bytes.len() {
            match bytes[at] {
                b'{' => return Some(at),
                b';' | b'}' => return None,
                b'(' | b'[' => at = self.closing(at) + 1,
                _ => at += 1,
            }
        }
        None
    }

    /// End of the item, statement, field or arm that starts after `from`.
    fn item_end(&self, from: usize) -> usize {
        let bytes = self.code.as_bytes();
        let shape = Shape::of(self.behind_attributes(from));
        let mut at = from;
        while at < bytes.len() {
            match bytes[at] {
                b';' => return at + 1,
                b',' if shape == Shape::Other => return at,
                b')' | b']' | b'}' => return at,
                b'{' if self.block_ends(at, shape) => return self.closing(at) + 1,
                b'(' | b'[' | b'{' => at = self.closing(at) + 1,
                _ => at += 1,
            }
        }
        at
    }

    /// Whether an item of the given shape ends with the block that opens at `open`; `match … {}.method()`
    /// continues.
    fn block_ends(&self, open: usize, shape: Shape) -> bool {
        let behind = self.code.get(self.closing(open) + 1..).unwrap_or_default().trim_start();
        match shape {
            Shape::Item => true,
            Shape::Statement => false,
            Shape::Other => ![".", "?", "else"].iter().any(|next| behind.starts_with(next)),
        }
    }

    /// The code after `from` and after any attributes there.
    fn behind_attributes(&self, from: usize) -> &str {
        let mut rest = self.code[from..].trim_start();
        while rest.starts_with("#[") {
            let open = self.code.len() - rest.len() + 1;
            rest = self.code.get(self.closing(open) + 1..).unwrap_or_default().trim_start();
        }
        rest
    }

    fn enclosing_open(&self, from: usize) -> Option<usize> {
        let mut depth = 0usize;
        for (at, &byte) in self.code.as_bytes()[..from].iter().enumerate().rev() {
            match byte {
                b')' | b']' | b'}' => depth += 1,
                b'(' | b'[' | b'{' if depth == 0 => return Some(at),
                b'(' | b'[' | b'{' => depth -= 1,
                _ => {}
            }
        }
        None
    }
}

/// How the end of an attribute's range is determined.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Ends with its block or with `;`: functions, modules, types.
    Item,
    /// Ends with `;` only: `let`, `const`.
    Statement,
    /// Ends with `;`, `,` or a block: expressions, fields, arms.
    Other,
}

impl Shape {
    fn of(code: &str) -> Self {
        const ITEMS: &[&str] = &[
            "pub", "fn", "async", "unsafe", "extern", "impl", "mod", "struct", "enum", "trait",
            "type", "use", "union",
        ];
        let mut words = code.split(|c: char| !is_word(c)).filter(|word| !word.is_empty());
        match (words.next().unwrap_or_default(), words.next().unwrap_or_default()) {
            ("const", "fn" | "unsafe" | "async") => Self::Item,
            ("let" | "const" | "static" | "return", _) => Self::Statement,
            (first, _) if ITEMS.contains(&first) => Self::Item,
            _ => Self::Other,
        }
    }
}

/// Whether an attribute excludes what follows from the shipped program.
fn is_test_only(attribute: &str) -> bool {
    let inside = attribute.trim_start_matches(['#', '!', '[']).trim_end_matches(']').trim();
    let is_cfg = inside.starts_with("cfg(") && !inside.contains("not(test)");
    let names_test = || inside.split(|c: char| !is_word(c)).any(|word| word == "test");
    inside == "test" || inside.ends_with("::test") || (is_cfg && names_test())
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests;
