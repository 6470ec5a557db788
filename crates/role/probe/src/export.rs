//! Exports the samples of a file as rows of text.

use std::io::{self, Write};
use std::path::Path;

use serde_json::Value;

use crate::database::SampleReader;
use crate::sample::ProbeSample;
use skep_database::{ColumnValue, DatabaseError, DiskUse, NicUse, NodeSample, RecordedRow};

/// The format of exported samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// Comma-separated values with a header line (RFC 4180).
    Csv,
    /// One JSON object per line.
    Json,
}

/// Samples cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// An error of the output.
    #[error("cannot write the samples: {0}")]
    Output(#[from] io::Error),
}

/// Writes the samples of the file at `path` to `out`.
///
/// # Errors
/// The file has no samples or another format, or `out` fails.
pub fn export_samples(
    path: &Path,
    format: ExportFormat,
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    let mut rows = Rows { format, out, is_first: true };
    SampleReader::open(path)?.for_each(|label, sample| rows.write(&row(&label, &sample)))?;
    Ok(rows.out.flush()?)
}

/// The same for the samples of recorders, with the sums of their disks and network devices.
///
/// # Errors
/// The file has no samples or another format, or `out` fails.
pub fn export_recorded(
    path: &Path,
    format: ExportFormat,
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    let mut rows = Rows { format, out, is_first: true };
    SampleReader::open(path)?.for_each_recorded(|row| rows.write(&recorded_row(&row)))?;
    match rows.is_first {
        true => Err(DatabaseError::Empty { path: path.to_owned() }.into()),
        false => Ok(rows.out.flush()?),
    }
}

/// Writes rows to an output.
struct Rows<'a> {
    format: ExportFormat,
    out: &'a mut dyn Write,
    is_first: bool,
}

impl Rows<'_> {
    fn write(&mut self, row: &Value) -> Result<(), ExportError> {
        let is_first = std::mem::take(&mut self.is_first);
        match self.format {
            ExportFormat::Json => writeln!(self.out, "{row}")?,
            ExportFormat::Csv => {
                let columns = row.as_object().into_iter().flatten();
                if is_first {
                    let names: Vec<&str> = columns.clone().map(|(name, _)| name.as_str()).collect();
                    write!(self.out, "{}\r\n", names.join(","))?;
                }
                let fields: Vec<String> = columns.map(|(_, value)| field(value)).collect();
                write!(self.out, "{}\r\n", fields.join(","))?;
            }
        }
        Ok(())
    }
}

fn recorded_row(row: &RecordedRow) -> Value {
    let mut object = serde_json::json!({
        "name": row.name,
        "authority": row.authority,
        "is_node": row.is_node,
        "at_unix_ms": row.at_unix_ms,
        "interval_ms": row.interval_ms,
    });
    let mut add = |prefix: &str, columns: &[&str], values: Vec<ColumnValue>| {
        for (name, value) in columns.iter().zip(values) {
            object[format!("{prefix}{name}")] = match value {
                ColumnValue::Whole(number) => number.into(),
                ColumnValue::Real(number) => number.into(),
                ColumnValue::Missing => Value::Null,
            };
        }
    };
    add("", NodeSample::COLUMNS, row.node.values());
    add("disk_", DiskUse::COLUMNS, row.disks.values());
    add("network_", NicUse::COLUMNS, row.nics.values());
    object
}

fn row(label: &str, sample: &ProbeSample) -> Value {
    let mut row = serde_json::json!({ "label": label });
    if let (Value::Object(row), Value::Object(sample)) = (&mut row, sample.to_json()) {
        row.extend(sample);
    }
    row
}

/// A field of a row; a missing value is an empty field. A text that a spreadsheet would interpret
/// as a formula, which servers may send, is preceded by an apostrophe.
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
