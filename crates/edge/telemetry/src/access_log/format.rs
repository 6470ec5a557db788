//! Formats records as text. Quotes, backslashes and all bytes other than printable ASCII are escaped: no
//! client can begin a line of its own or send control sequences to a terminal.

use std::time::{Duration, UNIX_EPOCH};

use super::{CacheResult, Format, LogRecord};

/// Turns records into lines; keeps the text of the current second.
#[derive(Debug)]
pub(super) struct Formatter {
    format: Format,
    second: u64,
    /// `[10/Oct/2000:13:55:36 +0000]` or `2000-10-10T13:55:36` of `second`.
    stamp: String,
}

impl Formatter {
    pub(super) fn new(format: Format) -> Self {
        let mut new = Self { format, second: 0, stamp: String::new() };
        new.set_second(0);
        new
    }

    /// Appends one line for `record`, with its line end.
    pub(super) fn line(&mut self, record: &LogRecord<'_>, out: &mut Vec<u8>) {
        let second = record.unix_ms / 1000;
        if second != self.second {
            self.set_second(second);
        }
        match self.format {
            Format::Combined => combined(record, &self.stamp, out),
            Format::Json => json(record, &self.stamp, out),
        }
        out.push(b'\n');
    }

    fn set_second(&mut self, second: u64) {
        self.second = second;
        self.stamp = stamp(self.format, second);
    }
}

fn combined(record: &LogRecord<'_>, stamp: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(record.client.to_string().as_bytes());
    out.extend_from_slice(b" - - ");
    out.extend_from_slice(stamp.as_bytes());
    out.extend_from_slice(b" \"");
    escape(record.method, out);
    out.push(b' ');
    escape(record.target, out);
    out.extend_from_slice(if record.version10 { b" HTTP/1.0\" " } else { b" HTTP/1.1\" " });
    put_number(record.status.into(), out);
    out.push(b' ');
    put_number(record.bytes_sent, out);
    for field in [record.referer, record.user_agent] {
        out.extend_from_slice(b" \"");
        escape(if field.is_empty() { b"-" } else { field }, out);
        out.push(b'"');
    }
}

/// As nginx's `escape=default`: `"`, `\` and everything but printable ASCII as `\xHH`.
fn escape(field: &[u8], out: &mut Vec<u8>) {
    for &byte in field {
        match byte {
            b'"' | b'\\' | 0..=0x1f | 0x7f.. => put_hex(byte, out),
            _ => out.push(byte),
        }
    }
}

fn put_hex(byte: u8, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
    out.extend_from_slice(&[b'\\', b'x', high, low]);
}

fn put_number(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn json(record: &LogRecord<'_>, stamp: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"time\":\"");
    out.extend_from_slice(stamp.as_bytes());
    out.push(b'.');
    let ms = record.unix_ms % 1000;
    out.extend([100, 10, 1].map(|unit| b'0' + (ms / unit % 10) as u8));
    out.extend_from_slice(b"Z\",\"client\":\"");
    out.extend_from_slice(record.client.to_string().as_bytes());
    out.push(b'"');
    json_text("method", record.method, out);
    json_text("target", record.target, out);
    let version: &[u8] = if record.version10 { b"HTTP/1.0" } else { b"HTTP/1.1" };
    json_text("version", version, out);
    json_text("host", record.host, out);
    json_number("status", record.status.into(), out);
    json_number("bytes_sent", record.bytes_sent, out);
    json_text("referer", record.referer, out);
    json_text("user_agent", record.user_agent, out);
    json_text("node", record.node.unwrap_or_default().as_bytes(), out);
    json_text("accepted_by", record.accepted_by.unwrap_or_default().as_bytes(), out);
    json_text("cache", cache_word(record.cache), out);
    json_number("queue_us", record.queue_us, out);
    json_number("connect_us", record.connect_us, out);
    json_number("first_byte_us", record.first_byte_us, out);
    json_number("total_us", record.total_us, out);
    out.push(b'}');
}

fn json_key(key: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
}

fn json_number(key: &str, number: u64, out: &mut Vec<u8>) {
    json_key(key, out);
    put_number(number, out);
}

/// Writes a JSON string (RFC 8259 section 7), or `null` if it is empty. Bytes that aren't UTF-8 appear as the
/// text `\xHH`.
fn json_text(key: &str, text: &[u8], out: &mut Vec<u8>) {
    json_key(key, out);
    if text.is_empty() {
        out.extend_from_slice(b"null");
        return;
    }
    out.push(b'"');
    for chunk in text.utf8_chunks() {
        chunk.valid().chars().for_each(|c| json_char(c, out));
        for &byte in chunk.invalid() {
            out.push(b'\\');
            put_hex(byte, out);
        }
    }
    out.push(b'"');
}

fn json_char(c: char, out: &mut Vec<u8>) {
    match c {
        '"' | '\\' => out.extend_from_slice(&[b'\\', c as u8]),
        // C1 controls too: some terminals interpret them.
        c if c.is_control() => {
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(format!("{:02x}", c as u32).as_bytes());
        }
        c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

fn cache_word(cache: CacheResult) -> &'static [u8] {
    match cache {
        CacheResult::None => b"",
        CacheResult::Hit => b"hit",
        CacheResult::Miss => b"miss",
        CacheResult::Fill => b"fill",
        CacheResult::Revalidated => b"revalidated",
        CacheResult::Stream => b"stream",
        CacheResult::Peer => b"peer",
    }
}

/// A second as formatted in lines; times after the year 9999 are clamped.
fn stamp(format: Format, second: u64) -> String {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    const UNIX_MAX: u64 = 253_402_300_799;
    // `Tue, 10 Oct 2000 13:55:36 GMT`
    let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second.min(UNIX_MAX)));
    let (day, month, year, clock) = (&date[5..7], &date[8..11], &date[12..16], &date[17..25]);
    match format {
        Format::Combined => format!("[{day}/{month}/{year}:{clock} +0000]"),
        Format::Json => {
            let month = MONTHS.find(month).map_or(0, |at| at / 3 + 1);
            format!("{year}-{month:02}-{day}T{clock}")
        }
    }
}
