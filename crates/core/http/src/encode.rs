//! Writes status lines, fields, numbers and chunk framing. Appends to the
//! caller's buffer and allocates nothing beyond it.

use std::io::Write;
use std::net::IpAddr;

/// Ends the data of a chunk.
pub const CHUNK_END: &[u8] = b"\r\n";
/// The interim reply that asks a client for its body.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

macro_rules! statuses {
    ($($code:literal $reason:literal)*) => {
        /// `HTTP/1.1 200 OK\r\n`. For an unregistered code: the line of its class (RFC 9110 15), or
        /// of 500; use [`write_status_line`] to keep the code.
        pub fn status_line(status: u16) -> &'static [u8] {
            match status {
                $($code => concat!("HTTP/1.1 ", $code, " ", $reason, "\r\n").as_bytes(),)*
                100..=499 => status_line(status / 100 * 100),
                _ => status_line(500),
            }
        }

        /// Reason phrase; empty for a code that is not registered.
        pub fn reason_phrase(status: u16) -> &'static str {
            match status {
                $($code => $reason,)*
                _ => "",
            }
        }
    };
}

// The IANA registry of status codes.
statuses! {
    100 "Continue" 101 "Switching Protocols" 102 "Processing" 103 "Early Hints"
    200 "OK" 201 "Created" 202 "Accepted" 203 "Non-Authoritative Information" 204 "No Content"
    205 "Reset Content" 206 "Partial Content" 207 "Multi-Status" 208 "Already Reported"
    226 "IM Used"
    300 "Multiple Choices" 301 "Moved Permanently" 302 "Found" 303 "See Other"
    304 "Not Modified" 305 "Use Proxy" 307 "Temporary Redirect" 308 "Permanent Redirect"
    400 "Bad Request" 401 "Unauthorized" 402 "Payment Required" 403 "Forbidden" 404 "Not Found"
    405 "Method Not Allowed" 406 "Not Acceptable" 407 "Proxy Authentication Required"
    408 "Request Timeout" 409 "Conflict" 410 "Gone" 411 "Length Required"
    412 "Precondition Failed" 413 "Content Too Large" 414 "URI Too Long"
    415 "Unsupported Media Type" 416 "Range Not Satisfiable" 417 "Expectation Failed"
    421 "Misdirected Request" 422 "Unprocessable Content" 423 "Locked" 424 "Failed Dependency"
    425 "Too Early" 426 "Upgrade Required" 428 "Precondition Required" 429 "Too Many Requests"
    431 "Request Header Fields Too Large" 451 "Unavailable For Legal Reasons"
    500 "Internal Server Error" 501 "Not Implemented" 502 "Bad Gateway"
    503 "Service Unavailable" 504 "Gateway Timeout" 505 "HTTP Version Not Supported"
    506 "Variant Also Negotiates" 507 "Insufficient Storage" 508 "Loop Detected"
    510 "Not Extended" 511 "Network Authentication Required"
}

/// Appends the status line of any code from 100 to 999.
pub fn write_status_line(out: &mut Vec<u8>, status: u16) {
    debug_assert!((100..1000).contains(&status), "a status has three digits");
    out.extend_from_slice(b"HTTP/1.1 ");
    write_u64(out, u64::from(status));
    out.push(b' ');
    out.extend_from_slice(reason_phrase(status).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends `name: value\r\n`. Name and value must come from a parsed head or from this process:
/// they are not checked again.
pub fn write_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    debug_assert!(!value.contains(&b'\n') && !value.contains(&b'\r'), "a field is one line");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends `name: number\r\n`.
pub fn write_field_u64(out: &mut Vec<u8>, name: &str, number: u64) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    write_u64(out, number);
    out.extend_from_slice(b"\r\n");
}

/// Appends the line that begins a chunk of `len_bytes` (not 0, which would end the body); write
/// [`CHUNK_END`] after the data.
pub fn write_chunk_head(out: &mut Vec<u8>, len_bytes: usize) {
    debug_assert!(len_bytes > 0, "an empty chunk ends the body");
    let digits_count = (usize::BITS - len_bytes.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits_count).rev() {
        let digit = (len_bytes >> (4 * place)) & 0xf;
        out.push(b"0123456789abcdef"[digit]);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a number in decimal.
pub fn write_u64(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    let mut left = number;
    loop {
        start -= 1;
        digits[start] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// Appends an address as text. IPv4 is formatted by hand, since the standard library's formatter
/// costs a forwarded request more than its parser does.
pub fn write_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            for (at, octet) in address.octets().into_iter().enumerate() {
                if at > 0 {
                    out.push(b'.');
                }
                write_octet(out, octet);
            }
        }
        // Writing to a Vec cannot fail.
        IpAddr::V6(address) => drop(write!(out, "{address}")),
    }
}

fn write_octet(out: &mut Vec<u8>, octet: u8) {
    if octet >= 100 {
        out.push(b'0' + octet / 100);
    }
    if octet >= 10 {
        out.push(b'0' + octet / 10 % 10);
    }
    out.push(b'0' + octet % 10);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out);
        out
    }

    #[test]
    fn status_lines_are_whole_lines() {
        assert_eq!(status_line(200), b"HTTP/1.1 200 OK\r\n");
        assert_eq!(status_line(299), status_line(200));
        assert_eq!(status_line(799), status_line(500));
        assert_eq!(status_line(0), status_line(500));
        for status in 100..600 {
            let line = status_line(status);
            assert!(line.starts_with(b"HTTP/1.1 ") && line.ends_with(b"\r\n"));
            if !reason_phrase(status).is_empty() {
                assert_eq!(written(|out| write_status_line(out, status)), line);
            }
        }
        assert_eq!(written(|out| write_status_line(out, 599)), b"HTTP/1.1 599 \r\n");
    }

    #[test]
    fn numbers_are_written_as_the_library_does() {
        for number in [0, 1, 9, 10, 99, 100, 12345, u64::MAX - 1, u64::MAX] {
            assert_eq!(written(|out| write_u64(out, number)), number.to_string().as_bytes());
        }
        for octet in 0..=255 {
            let address = std::net::Ipv4Addr::new(127, octet, 0, octet);
            let text = written(|out| write_address(out, address.into()));
            assert_eq!(text, address.to_string().as_bytes());
        }
        for len in [1, 15, 16, 255, 256, 4096, usize::MAX] {
            let expected = format!("{len:x}\r\n");
            assert_eq!(written(|out| write_chunk_head(out, len)), expected.as_bytes());
        }
    }
}
