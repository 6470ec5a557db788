//! Tags by which objects are purged: Surrogate-Key (separated by spaces), Cache-Tag (separated by
//! commas), and Cache-Groups (a structured list of strings, RFC 9875 2).

use std::borrow::Cow;

use crate::response::FieldLine;
use crate::structured::texts;

/// The tags of a response. Values that are not UTF-8 are ignored.
pub fn tags<'f>(fields: impl Iterator<Item = FieldLine<'f>>) -> impl Iterator<Item = Cow<'f, str>> {
    fields.flat_map(|(name, value)| {
        let separator = match name {
            _ if name.eq_ignore_ascii_case(b"surrogate-key") => Some(' '),
            _ if name.eq_ignore_ascii_case(b"cache-tag") => Some(','),
            _ => None,
        };
        let of_text = str::from_utf8(value).ok().zip(separator).map(|(text, separator)| {
            text.split(separator).map(str::trim).filter(|tag| !tag.is_empty()).map(Cow::Borrowed)
        });
        // Each line by itself: a string cannot span lines.
        let groups = name.eq_ignore_ascii_case(b"cache-groups").then(|| texts([value].into_iter()));
        let groups = groups.flatten().into_iter().flatten();
        of_text.into_iter().flatten().chain(groups.map(Cow::Owned))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_from_all_three_fields() {
        let fields = [
            ("Surrogate-Key", "a  b"),
            ("cache-tag", "c d , e,,"),
            ("X-Other", "f"),
            ("CACHE-TAG", "a"),
            ("Surrogate-Key", ""),
            ("Cache-Groups", "\"g h\", \"i\\\"\";x, tok"),
            ("Cache-Groups", "\"j"),
        ];
        let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        assert_eq!(tags(fields).collect::<Vec<_>>(), ["a", "b", "c d", "e", "a", "g h", "i\""]);
    }
}
