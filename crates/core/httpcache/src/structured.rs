//! Structured fields (RFC 9651): dictionaries, and lists of strings. As strict as the RFC: any
//! error invalidates the whole field.

use crate::limits::STRUCTURED_MEMBERS_MAX;

/// A value, with the types that caching uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Integer(i64),
    Boolean(bool),
    Text(String),
    /// Any other type.
    Other,
}

/// Parses a dictionary from the field's lines; a repeated key overrides its earlier value. `None`:
/// invalid.
pub(crate) fn dictionary<'v>(lines: impl Iterator<Item = &'v [u8]>) -> Option<Vec<(String, Item)>> {
    let text = joined(lines);
    let mut parser = Parser { rest: text.trim_ascii() };
    let mut found: Vec<(String, Item)> = Vec::new();
    while !parser.rest.is_empty() {
        let key = parser.key()?;
        let item = if parser.eat(b'=') { parser.member()? } else { Item::Boolean(true) };
        parser.parameters()?;
        found.retain(|(earlier, _)| *earlier != key);
        found.push((key, item));
        parser.next_member(found.len())?;
    }
    Some(found)
}

/// The strings of a list; members of other types are skipped. `None`: invalid.
pub(crate) fn texts<'v>(lines: impl Iterator<Item = &'v [u8]>) -> Option<Vec<String>> {
    let text = joined(lines);
    let mut parser = Parser { rest: text.trim_ascii() };
    let (mut found, mut count) = (Vec::new(), 0);
    while !parser.rest.is_empty() {
        let item = parser.member()?;
        parser.parameters()?;
        if let Item::Text(text) = item {
            found.push(text);
        }
        count += 1;
        parser.next_member(count)?;
    }
    Some(found)
}

/// RFC 9651 4.2: several lines are one value, joined with commas.
fn joined<'v>(lines: impl Iterator<Item = &'v [u8]>) -> Vec<u8> {
    lines.collect::<Vec<_>>().join(&b", "[..])
}

struct Parser<'v> {
    rest: &'v [u8],
}

impl Parser<'_> {
    fn eat(&mut self, byte: u8) -> bool {
        let rest = self.rest.strip_prefix(&[byte]);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Consumes bytes that satisfy a condition.
    fn take_while(&mut self, is_it: impl Fn(u8) -> bool) -> &[u8] {
        let len = self.rest.iter().position(|byte| !is_it(*byte)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        taken
    }

    /// Consumes the comma after a member; a trailing comma is an error.
    fn next_member(&mut self, count: usize) -> Option<()> {
        let is_ows = |byte| matches!(byte, b' ' | b'\t');
        self.take_while(is_ows);
        if self.rest.is_empty() {
            return Some(());
        }
        let is_next = self.eat(b',') && count < STRUCTURED_MEMBERS_MAX;
        self.take_while(is_ows);
        (is_next && !self.rest.is_empty()).then_some(())
    }

    fn key(&mut self) -> Option<String> {
        let is_first = |byte: u8| byte.is_ascii_lowercase() || byte == b'*';
        if !self.rest.first().copied().is_some_and(is_first) {
            return None;
        }
        let key = self.take_while(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte)
        });
        Some(String::from_utf8_lossy(key).into_owned())
    }

    fn parameters(&mut self) -> Option<()> {
        while self.eat(b';') {
            self.take_while(|byte| byte == b' ');
            self.key()?;
            if self.eat(b'=') {
                self.item()?;
            }
        }
        Some(())
    }

    /// Parses an item or an inner list.
    fn member(&mut self) -> Option<Item> {
        if !self.eat(b'(') {
            return self.item();
        }
        loop {
            self.take_while(|byte| byte == b' ');
            if self.eat(b')') {
                return Some(Item::Other);
            }
            self.item()?;
            self.parameters()?;
            if !matches!(self.rest.first(), Some(b' ' | b')')) {
                return None;
            }
        }
    }

    fn item(&mut self) -> Option<Item> {
        match *self.rest.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.text().map(Item::Text),
            b'?' => self.boolean(),
            b':' => {
                self.delimited(b':', |byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte))
            }
            b'@' => {
                self.eat(b'@');
                matches!(self.number()?, Item::Integer(_)).then_some(Item::Other)
            }
            b'%' => {
                self.eat(b'%');
                self.delimited(b'"', |byte| matches!(byte, 0x20..=0x7e) && byte != b'"')
            }
            byte if byte.is_ascii_alphabetic() || byte == b'*' => {
                self.take_while(|byte| {
                    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
                });
                Some(Item::Other)
            }
            _ => None,
        }
    }

    /// Parses an integer of at most 15 digits, or a decimal of at most 12 and 3.
    fn number(&mut self) -> Option<Item> {
        let is_negative = self.eat(b'-');
        let digits = self.take_while(|byte| byte.is_ascii_digit());
        let len = digits.len();
        let number = digits.iter().take(15).fold(0, |n, digit| n * 10 + i64::from(digit - b'0'));
        if self.eat(b'.') {
            let fraction = self.take_while(|byte| byte.is_ascii_digit()).len();
            return ((1..=12).contains(&len) && (1..=3).contains(&fraction)).then_some(Item::Other);
        }
        let number = if is_negative { -number } else { number };
        (1..=15).contains(&len).then_some(Item::Integer(number))
    }

    fn text(&mut self) -> Option<String> {
        self.eat(b'"');
        let mut text = String::new();
        loop {
            let (byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            match *byte {
                b'"' => return Some(text),
                b'\\' => {
                    let (escaped, rest) = self.rest.split_first()?;
                    self.rest = rest;
                    matches!(*escaped, b'"' | b'\\').then(|| text.push(char::from(*escaped)))?;
                }
                byte @ 0x20..=0x7e => text.push(char::from(byte)),
                _ => return None,
            }
        }
    }

    fn boolean(&mut self) -> Option<Item> {
        self.eat(b'?');
        match (self.eat(b'1'), self.eat(b'0')) {
            (true, _) => Some(Item::Boolean(true)),
            (_, true) => Some(Item::Boolean(false)),
            _ => None,
        }
    }

    /// Parses bytes that satisfy a condition, between two marks.
    fn delimited(&mut self, mark: u8, is_it: impl Fn(u8) -> bool) -> Option<Item> {
        let begins = self.eat(mark);
        self.take_while(is_it);
        (begins && self.eat(mark)).then_some(Item::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Vec<(String, Item)>> {
        dictionary([line.as_bytes()].into_iter())
    }

    #[test]
    fn dictionaries_are_read_with_their_types() {
        let text = "a=1, b , c=\"x\\\"y\", d=?0;p=1;q, e=tok/en:1, f=1.5, g=(1 \"a\";x  b);y, h=:aGk=:, \
            i=@12, j=%\"h%c3%bc\", a=-7";
        let expected = [
            ("b", Item::Boolean(true)),
            ("c", Item::Text("x\"y".into())),
            ("d", Item::Boolean(false)),
            ("e", Item::Other),
            ("f", Item::Other),
            ("g", Item::Other),
            ("h", Item::Other),
            ("i", Item::Other),
            ("j", Item::Other),
            ("a", Item::Integer(-7)),
        ];
        let expected: Vec<_> = expected.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        assert_eq!(read(text), Some(expected), "the last of two counts");
        assert_eq!(read(""), Some(Vec::new()));
        assert_eq!(read("  "), Some(Vec::new()));
        let lines = [&b"a=1"[..], b"b=2"].into_iter();
        assert_eq!(dictionary(lines).map(|found| found.len()), Some(2));
    }

    #[test]
    fn one_error_makes_all_of_it_invalid() {
        for text in [
            "a=1,",
            ",a",
            "a=1,,b",
            "a =1",
            "a= 1",
            "A=1",
            "a=1 b",
            "&&&&&",
            "a=1, &&&&&",
            "a=",
            "a=\"x",
            "a=\"\\x\"",
            "a=1234567890123456",
            "a=1.",
            "a=1.2345",
            "a=-",
            "a=?2",
            "a=:x",
            "a=(1",
            "a=(1\"x\")",
            "a;",
            "a;=1",
            "a=\u{e4}",
            "a=@1.5",
            "a=%x",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn lists_of_strings_leave_other_members_out() {
        let of = |line: &str| texts([line.as_bytes()].into_iter());
        let two = Some(vec!["a".to_owned(), "b c".to_owned()]);
        assert_eq!(of("\"a\", tok;x, \"b c\";y=1"), two);
        assert_eq!(of("\"a\", \"b"), None);
    }
}
