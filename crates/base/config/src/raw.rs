//! The first step: parses the file into [`Raw`] values with their positions in the file.
//!
//! The rest of the crate only uses this small tree, not the alternative forms of TOML: `[[node]]`
//! and `node = [{…}]` are the same list here.

use std::ops::Range;

use toml_edit::{Document, Item, Key, TableLike, TomlError, Value};

/// A range of bytes in the source text.
pub(crate) type Span = Range<usize>;

/// A value and its range of bytes.
pub(crate) struct Raw {
    pub(crate) span: Span,
    pub(crate) value: RawValue,
}

/// The TOML values that a setting can use.
pub(crate) enum RawValue {
    Switch(bool),
    Integer(i64),
    Text(String),
    /// A float or a date, as written: no setting accepts one.
    Other(String),
    List(Vec<Raw>),
    Table(Vec<RawEntry>),
}

/// One `key = value` of a table, or a nested table.
pub(crate) struct RawEntry {
    pub(crate) key: String,
    pub(crate) key_span: Span,
    pub(crate) raw: Raw,
}

impl Raw {
    /// Parses TOML. The parser stops at its first error.
    pub(crate) fn parse(text: &str) -> Result<Self, TomlError> {
        let document = Document::parse(text)?;
        Ok(table(document.as_table(), 0..0))
    }

    /// The entry of a table; also `None` if this is not a table.
    pub(crate) fn get(&self, key: &str) -> Option<&RawEntry> {
        match &self.value {
            RawValue::Table(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// The value in the wording of messages, bounded in length.
    pub(crate) fn describe(&self) -> String {
        match &self.value {
            RawValue::Switch(on) => on.to_string(),
            RawValue::Integer(number) => number.to_string(),
            RawValue::Text(text) => quote(text),
            RawValue::Other(written) => written.clone(),
            RawValue::List(_) => "a list".into(),
            RawValue::Table(_) => "a table".into(),
        }
    }
}

/// `text` in quotes, truncated to the length limit of a message, control characters
/// escaped: a config file must not control the terminal of its reader.
pub(crate) fn quote(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    let mut shown: String = text.chars().take(CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

fn table(table: &dyn TableLike, span: Span) -> Raw {
    let entries = table.iter().map(|(key, item)| {
        let key_span = table.key(key).and_then(Key::span).unwrap_or(0..0);
        let raw = item_at(item, &key_span);
        RawEntry { key: key.to_owned(), key_span, raw }
    });
    Raw { span, value: RawValue::Table(entries.collect()) }
}

/// `key_span` replaces the span of items without text of their own, such as the table
/// that a dotted key implies.
fn item_at(item: &Item, key_span: &Span) -> Raw {
    let span = item.span().unwrap_or_else(|| key_span.clone());
    match item {
        Item::None => Raw { span, value: RawValue::Other(String::new()) },
        Item::Value(value) => value_at(value, span),
        Item::Table(inner) => table(inner, span),
        Item::ArrayOfTables(rows) => {
            let rows =
                rows.iter().map(|row| table(row, row.span().unwrap_or_else(|| span.clone())));
            let value = RawValue::List(rows.collect());
            Raw { span, value }
        }
    }
}

fn value_at(value: &Value, span: Span) -> Raw {
    let value = match value {
        Value::Boolean(on) => RawValue::Switch(*on.value()),
        Value::Integer(number) => RawValue::Integer(*number.value()),
        Value::String(text) => RawValue::Text(text.value().clone()),
        Value::Float(number) => RawValue::Other(number.value().to_string()),
        Value::Datetime(date) => RawValue::Other(date.value().to_string()),
        Value::Array(values) => {
            let raws = values.iter().map(|v| value_at(v, v.span().unwrap_or_else(|| span.clone())));
            RawValue::List(raws.collect())
        }
        Value::InlineTable(inner) => return table(inner, span),
    };
    Raw { span, value }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
    use super::*;

    fn text_of<'a>(text: &'a str, path: &[&str]) -> &'a str {
        let mut raw = Raw::parse(text).unwrap();
        for key in path {
            let RawValue::Table(entries) = raw.value else { panic!("no table") };
            raw = entries.into_iter().find(|entry| entry.key == *key).unwrap().raw;
        }
        &text[raw.span]
    }

    #[test]
    fn values_and_tables_know_their_text() {
        let text = "a = 7\n[b]\nc = ['x', 'y']\n[d.e]\n";
        assert_eq!(text_of(text, &["a"]), "7");
        assert_eq!(text_of(text, &["b"]), "[b]");
        assert_eq!(text_of(text, &["b", "c"]), "['x', 'y']");
        assert_eq!(text_of(text, &["d", "e"]), "[d.e]");
    }

    #[test]
    fn implied_tables_stand_where_their_key_stands() {
        assert_eq!(text_of("limits.fields_max = 7\n", &["limits"]), "limits");
        assert_eq!(text_of("[a.b]\n", &["a"]), "a");
    }

    #[test]
    fn both_forms_of_rows_are_one_list() {
        for text in ["[[node]]\nname = 'a'\n[[node]]\n", "node = [{ name = 'a' }, {}]\n"] {
            let raw = Raw::parse(text).unwrap();
            let RawValue::List(rows) = &raw.get("node").unwrap().raw.value else { panic!() };
            assert_eq!(rows.len(), 2);
            assert!(rows[0].get("name").is_some());
        }
    }

    #[test]
    fn quotes_are_cut_and_harmless() {
        assert_eq!(quote("a\u{1b}[31m"), r#""a\u{1b}[31m""#);
        assert!(quote(&"x".repeat(1000)).chars().count() < 70);
    }
}
