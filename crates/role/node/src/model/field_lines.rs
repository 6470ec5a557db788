//! Fields of replies as complete lines, `Name: value\r
//! ` each, from parsed heads and from the config.

use std::borrow::Cow;

/// Type of the parts of a body without Content-Type (RFC 9110 8.3).
const UNKNOWN_TYPE: &str = "application/octet-stream";

/// The value of Content-Type in `lines`.
pub(crate) fn content_type_of(lines: &[u8]) -> Cow<'static, str> {
    let value = each(lines).find(|line| is_type(name_of(line))).map(value_of);
    value.map_or(Cow::Borrowed(UNKNOWN_TYPE), |value| {
        Cow::Owned(String::from_utf8_lossy(value).into_owned())
    })
}

/// `lines` without those for whose names `is_left_out` returns true.
pub(crate) fn without_lines(lines: &[u8], is_left_out: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let kept = each(lines).filter(|line| !is_left_out(name_of(line)));
    kept.flatten().copied().collect()
}

/// Whether `name` is Content-Type.
pub(crate) fn is_type(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"content-type")
}

fn each(lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    lines.split_inclusive(|byte| *byte == b'\n')
}

fn name_of(line: &[u8]) -> &[u8] {
    line.split(|byte| *byte == b':').next().unwrap_or(line)
}

fn value_of(line: &[u8]) -> &[u8] {
    line.get(name_of(line).len() + 1..).unwrap_or_default().trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &[u8] = b"X-A: 1\r\ncontent-TYPE:  a/b; c=d \r\nX-B: Content-Type: x\r\n";

    #[test]
    fn the_type_is_found_wherever_it_stands() {
        assert_eq!(content_type_of(LINES), "a/b; c=d");
        assert_eq!(content_type_of(b"X-B: Content-Type: x\r\n"), UNKNOWN_TYPE);
        assert_eq!(content_type_of(b""), UNKNOWN_TYPE);
    }

    #[test]
    fn lines_go_by_their_names() {
        assert_eq!(without_lines(LINES, is_type), b"X-A: 1\r\nX-B: Content-Type: x\r\n");
        assert_eq!(without_lines(LINES, |name| name.starts_with(b"X-")), &LINES[8..34]);
    }
}
