//! File contents that reveal their origin: every 16 bytes contain the version and the offset, so that a reply
//! which mixes versions, skips or repeats bytes is detected.

/// Size of one mark in bytes.
const MARK_BYTES: usize = 16;

/// Returns `len` bytes of `version` (below 10,000).
pub fn version(version: u32, len: usize) -> Vec<u8> {
    assert!(version < 10_000, "four digits");
    let mut bytes = Vec::with_capacity(len + MARK_BYTES);
    let mut mark = format!("v{version:04}@000000000\n").into_bytes();
    debug_assert_eq!(mark.len(), MARK_BYTES);
    while bytes.len() < len {
        bytes.extend_from_slice(&mark);
        count_up(&mut mark[6..MARK_BYTES - 2]);
    }
    bytes.truncate(len);
    bytes
}

/// Increments a number in hexadecimal digits: formatting each number is slow in an unoptimised build.
fn count_up(digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        *digit = match *digit {
            b'9' => b'a',
            b'f' => b'0',
            other => other + 1,
        };
        if *digit != b'0' {
            return;
        }
    }
}

/// Returns the version of `bytes` (the start of a file, at least one mark long), or an error with the offset
/// of the first byte that differs.
pub fn version_of(bytes: &[u8]) -> Result<u32, String> {
    let digits = bytes.get(1..5).and_then(|digits| std::str::from_utf8(digits).ok());
    let number = digits.and_then(|digits| digits.parse().ok());
    let number = number.ok_or_else(|| format!("no mark in {:?}", excerpt(bytes, 0)))?;
    let whole = version(number, bytes.len());
    match first_difference(bytes, &whole) {
        None => Ok(number),
        Some(at) => Err(format!("version {number}, but {:?} at {at}", excerpt(bytes, at))),
    }
}

/// Asserts that two bodies are the same, without printing megabytes if they differ.
#[track_caller]
pub fn assert_same(found: &[u8], expected: &[u8]) {
    if let Some(at) = first_difference(found, expected) {
        panic!(
            "{} bytes instead of {}; from {at} on {:?} instead of {:?}",
            found.len(),
            expected.len(),
            excerpt(found, at),
            excerpt(expected, at)
        );
    }
}

/// Returns the first index at which they differ, which may be the end of the shorter one.
fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    if a == b {
        return None;
    }
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    Some(same)
}

fn excerpt(bytes: &[u8], at: usize) -> String {
    let end = bytes.len().min(at + 2 * MARK_BYTES);
    String::from_utf8_lossy(bytes.get(at..end).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_name_the_version_and_the_offset() {
        let bytes = version(42, 0x2010);
        assert_eq!(&bytes[..32], b"v0042@000000000\nv0042@000000010\n");
        assert_eq!(&bytes[0x1ff0..], b"v0042@000001ff0\nv0042@000002000\n");
    }

    #[test]
    fn a_version_is_known_from_any_length() {
        for len in [16, 17, 1000, 100_003] {
            assert_eq!(version_of(&version(42, len)), Ok(42));
        }
    }

    #[test]
    fn mixtures_gaps_and_rubbish_are_found() {
        let (a, b) = (version(1, 64), version(2, 64));
        let mixed = [&a[..32], &b[32..]].concat();
        assert!(version_of(&mixed).unwrap_err().contains("at 36"));
        let gap = [&a[..16], &a[32..]].concat();
        assert!(version_of(&gap).is_err());
        assert!(version_of(b"<html>").is_err() && version_of(b"").is_err());
    }
}
