//! The samples of a file as rows of text.

use std::io::{self, Write};
use std::path::Path;

use serde_json::Value;

use crate::database::SampleReader;
use crate::sample::ProbeSample;
use skep_database::DatabaseError;

/// How samples are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// Comma-separated values with a head (RFC 4180).
    Csv,
    /// An object a line.
    Json,
}

/// Samples cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The file.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The output.
    #[error("cannot write the samples: {0}")]
    Output(#[from] io::Error),
}

/// Writes the samples of the file at `path` to `out`.
///
/// # Errors
/// It has none or is something else, or `out` takes no more.
pub fn export_samples(
    path: &Path,
    format: ExportFormat,
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    let reader = SampleReader::open(path)?;
    let mut is_first = true;
    reader.for_each(|label, sample| -> Result<(), ExportError> {
        let row = row(&label, &sample);
        match format {
            ExportFormat::Json => writeln!(out, "{row}")?,
            ExportFormat::Csv => {
                let columns = row.as_object().into_iter().flatten();
                if std::mem::take(&mut is_first) {
                    let names: Vec<&str> = columns.clone().map(|(name, _)| name.as_str()).collect();
                    write!(out, "{}\r\n", names.join(","))?;
                }
                let fields: Vec<String> = columns.map(|(_, value)| field(value)).collect();
                write!(out, "{}\r\n", fields.join(","))?;
            }
        }
        Ok(())
    })?;
    Ok(out.flush()?)
}

fn row(label: &str, sample: &ProbeSample) -> Value {
    let mut row = serde_json::json!({ "label": label });
    if let (Value::Object(row), Value::Object(sample)) = (&mut row, sample.to_json()) {
        row.extend(sample);
    }
    row
}

/// A field of a row; nothing is an empty one. A text that a spreadsheet would take as a formula, as
/// servers may send, has an apostrophe before it.
fn field(value: &Value) -> String {
    let text = match value {
        Value::Null => return String::new(),
        Value::String(text) if text.starts_with(['=', '+', '-', '@', '\t', '\r']) => {
            format!("'{text}")
        }
        Value::String(text) => text.clone(),
        other => return other.to_string(),
    };
    match text.contains([',', '"', '\r', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        for (text, quoted) in [("a", "a"), ("a,b", "\"a,b\""), ("a\"b", "\"a\"\"b\""), ("", "")] {
            assert_eq!(field(&Value::from(text)), quoted);
        }
        assert_eq!((field(&Value::Null), field(&Value::from(7))), (String::new(), "7".to_owned()));
    }

    #[test]
    fn no_text_is_a_formula() {
        for (text, quoted) in [
            ("=HYPERLINK(\"x\",\"y\")", "\"'=HYPERLINK(\"\"x\"\",\"\"y\"\")\""),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@a", "'@a"),
            ("\tx", "'\tx"),
            ("\rx", "\"'\rx\""),
            ("a=b", "a=b"),
        ] {
            assert_eq!(field(&Value::from(text)), quoted);
        }
        assert_eq!(field(&Value::from(-7)), "-7");
    }
}
