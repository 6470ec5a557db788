//! Character classes and name comparison, for the whole codec.

/// Byte of a token (RFC 9110 5.6.2).
pub(crate) const TOKEN: u8 = 1 << 0;
/// Byte allowed in a request target: RFC 3986, and what browsers send unencoded nevertheless (`[ ]
/// ^ { | } \` and the grave accent); never `#`.
pub(crate) const TARGET: u8 = 1 << 1;
/// Byte of a registered name, an IPv4 address or a port.
pub(crate) const HOST: u8 = 1 << 2;
/// Byte of an entity tag between its quotes (RFC 9110 8.8.3).
pub(crate) const ETAG: u8 = 1 << 3;
/// Byte of a field value: HTAB, SP, VCHAR, obs-text (RFC 9110 5.5).
pub(crate) const VALUE: u8 = 1 << 4;
/// Byte that represents itself in a normalised path: not a control character, not `%`, not a
/// backslash, and not a slash, which depends on its context.
pub(crate) const PATH: u8 = 1 << 5;
/// Byte allowed unencoded in the path of a target (RFC 3986 3.3), or a slash.
pub(crate) const PCHAR: u8 = 1 << 6;

/// Whether `byte` is in `class`.
#[inline]
pub(crate) fn is(byte: u8, class: u8) -> bool {
    CLASSES[byte as usize] & class != 0
}

/// Whether every byte is in `class`; one lookup per byte, no branches.
#[inline]
pub(crate) fn all(bytes: &[u8], class: u8) -> bool {
    bytes.iter().fold(class, |acc, b| acc & CLASSES[*b as usize]) != 0
}

/// Whether `token` equals `lower`, ignoring case. `lower` consists of lower-case
/// letters and `-`, and `token` has no control characters: OR with 0x20 is exact.
#[inline(always)]
pub(crate) fn eq_lower<const N: usize>(token: &[u8], lower: &[u8; N]) -> bool {
    let Ok(token) = <&[u8; N]>::try_from(token) else { return false };
    // Most names of the same length differ in the first byte.
    if N > 0 && token[0] | 0x20 != lower[0] {
        return false;
    }
    let mut differs = 0;
    let mut i = 0;
    while i < N {
        differs |= (token[i] | 0x20) ^ lower[i];
        i += 1;
    }
    differs == 0
}

/// Strips leading and trailing spaces and tabs (OWS, RFC 9110 5.6.3).
#[inline]
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The members of a list without quoted strings, trimmed, without empty ones (RFC 9110 5.6.1.2).
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|b| *b == b',').map(trim).filter(|member| !member.is_empty())
}

static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut i = 0;
    while i < 256 {
        classes[i] = class_of(i as u8);
        i += 1;
    }
    classes
};

const fn class_of(b: u8) -> u8 {
    let alnum = b.is_ascii_alphanumeric();
    let token = alnum
        || matches!(b, b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.')
        || matches!(b, b'^' | b'_' | b'`' | b'|' | b'~');
    let target = b.is_ascii_graphic() && !matches!(b, b'#' | b'"' | b'<' | b'>');
    let host = alnum || matches!(b, b'-' | b'.' | b'_');
    let etag = b == 0x21 || (b >= 0x23 && b != 0x7f);
    let value = b == b'\t' || (b >= 0x20 && b != 0x7f);
    let path = b >= 0x20 && !matches!(b, 0x7f | b'%' | b'\\' | b'/');
    let pchar = alnum
        || matches!(b, b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')')
        || matches!(b, b'*' | b'+' | b',' | b';' | b'=' | b':' | b'@' | b'/');
    flag(token, TOKEN)
        | flag(target, TARGET)
        | flag(host, HOST)
        | flag(etag, ETAG)
        | flag(value, VALUE)
        | flag(path, PATH)
        | flag(pchar, PCHAR)
}

const fn flag(set: bool, class: u8) -> u8 {
    if set { class } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_compare_without_case_and_only_with_their_like() {
        assert!(eq_lower(b"Content-LENGTH", b"content-length"));
        assert!(!eq_lower(b"Content_Length", b"content-length"));
        assert!(!eq_lower(b"Content-Lengt", b"content-length"));
        for b in 0x20..=0xff_u8 {
            let same = eq_lower(&[b], b"k");
            assert_eq!(same, b == b'k' || b == b'K', "{b:#x}");
            assert_eq!(eq_lower(&[b], b"-"), b == b'-', "{b:#x}");
        }
    }

    #[test]
    fn lists_drop_blanks_and_empty_members() {
        let members: Vec<&[u8]> = list(b" ,a\t, ,b c,").collect();
        assert_eq!(members, [&b"a"[..], b"b c"]);
    }

    #[test]
    fn classes_follow_the_grammar() {
        assert!(all(b"!#$%&'*+-.^_`|~09azAZ", TOKEN));
        assert!(b"\"(),/:;<=>?@[\\]{} \x7f\x80".iter().all(|b| !is(*b, TOKEN)));
        assert!(b" #\"<>\x00\x7f\x80\xff".iter().all(|b| !is(*b, TARGET)));
        assert!(!is(b'"', ETAG) && !is(b' ', ETAG) && is(0x80, ETAG));
        assert!(is(b'\t', VALUE) && is(0xff, VALUE) && !is(0, VALUE) && !is(b'\r', VALUE));
    }
}
