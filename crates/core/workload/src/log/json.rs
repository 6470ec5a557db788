//! Skep's own access log with `log.format = "json"`: one object per line.

use std::borrow::Cow;

use serde::Deserialize;

use super::line::{LogLineError, LoggedLine, is_status};
use super::time;

/// The fields that are used.
#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    time: Cow<'a, str>,
    #[serde(borrow)]
    client: Cow<'a, str>,
    /// `null` for a request without a valid head.
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    target: Option<Cow<'a, str>>,
    status: u16,
    bytes_sent: u64,
    #[serde(default)]
    total_us: u64,
}

/// Parses a line.
pub(super) fn parse(line: &str) -> Result<LoggedLine<'_>, LogLineError> {
    let fields: Fields<'_> = serde_json::from_str(line).map_err(|_| LogLineError::BadJson)?;
    if !is_status(fields.status) {
        return Err(LogLineError::BadStatus);
    }
    Ok(LoggedLine {
        client: fields.client,
        unix_ms: time::of_json(&fields.time).ok_or(LogLineError::BadTime)?,
        has_ms: true,
        took_ms: fields.total_us / 1_000,
        method: fields.method.ok_or(LogLineError::BadJson)?,
        target: fields.target.ok_or(LogLineError::BadJson)?,
        status: fields.status,
        bytes: fields.bytes_sent,
    })
}
