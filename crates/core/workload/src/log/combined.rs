//! The combined format of Apache and nginx, and the common one.

use super::line::{LogLineError, LoggedLine, is_status};
use super::time;

/// Parses a line; anything after the byte count is ignored.
pub(super) fn parse(line: &str) -> Result<LoggedLine<'_>, LogLineError> {
    let (before, rest) = line.split_once(" [").ok_or(LogLineError::NoTime)?;
    let client = before.split(' ').next().filter(|it| !it.is_empty());
    let client = client.ok_or(LogLineError::NoTime)?;
    let (time, rest) = rest.split_once(']').ok_or(LogLineError::NoTime)?;
    let unix_ms = time::of_common(time).ok_or(LogLineError::BadTime)?;
    let (request, rest) =
        rest.strip_prefix(" \"").and_then(split_quote).ok_or(LogLineError::NoRequest)?;
    let (method, target) = parse_request(request).ok_or(LogLineError::NoRequest)?;
    let mut fields = rest.strip_prefix(' ').unwrap_or_default().split(' ');
    let status = fields.next().filter(|it| it.len() == 3).and_then(|it| it.parse().ok());
    let status = status.filter(|it| is_status(*it)).ok_or(LogLineError::BadStatus)?;
    let bytes = match fields.next() {
        Some("-") => 0,
        Some(bytes) => bytes.parse().map_err(|_| LogLineError::BadBytes)?,
        None => return Err(LogLineError::BadBytes),
    };
    Ok(LoggedLine {
        client: client.into(),
        unix_ms,
        has_ms: false,
        took_ms: 0,
        method: method.into(),
        target: target.into(),
        status,
        bytes,
    })
}

/// Splits at the first quote that is not escaped by a backslash.
fn split_quote(text: &str) -> Option<(&str, &str)> {
    let mut is_escaped = false;
    let end = text.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    })?;
    Some((&text[..end], &text[end + 1..]))
}

fn parse_request(request: &str) -> Option<(&str, &str)> {
    let (method, rest) = request.split_once(' ')?;
    let target = rest.rsplit_once(" HTTP/").map_or(rest, |(target, _)| target);
    let is_method = !method.is_empty() && method.bytes().all(|it| it.is_ascii_alphabetic());
    (is_method && !target.is_empty()).then_some((method, target))
}
