//! Finds the end of a message head in a buffer that grows.
//!
//! Checks the byte-level rules: every line ends with CRLF, no control characters,
//! the limits on head and request line, and a token byte first (after at
//! most one empty line). An accepted head contains nothing
//! that two parsers could split into different lines.
//!
//! Invariants:
//! - The verdict depends only on the bytes, not on how they arrived: the first invalid byte
//!   decides, and [`fault_at`] finds it from the preceding bytes alone.
//! - Work is linear in the bytes, even if a client sends them one by one: scanned bytes are never
//!   scanned again, except for at most 31 bytes that complete a last block.

use crate::bytes::{self, TOKEN};
use crate::limits::METHOD_BYTES_MAX;
use crate::{HeadLimits, Reject};

/// Finds the end of a head. Keep one per message, and pass it the same growing buffer until it
/// returns a result.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadScanner {
    /// Scanned bytes, none of which ends the head.
    seen: usize,
    /// Whether the request line is known to be within its limit.
    line_measured: bool,
    response: bool,
}

impl HeadScanner {
    /// A scanner for a response head: no empty line before it, no limit on its first line except
    /// that of the head. The default one is for a request.
    pub fn response() -> HeadScanner {
        HeadScanner { response: true, line_measured: true, ..HeadScanner::default() }
    }

    /// Scans `buf`, all bytes since the start of the message. `Some(len)`: the complete head is
    /// `buf[..len]`, including CRLFCRLF.
    ///
    /// # Errors
    /// The reason why no continuation of these bytes can be accepted, as soon
    /// as that is certain.
    #[inline]
    pub fn scan(&mut self, buf: &[u8], limits: &HeadLimits) -> Result<Option<usize>, Reject> {
        debug_assert!(buf.len() >= self.seen, "the buffer shrank while a head was scanned");
        let window = &buf[..buf.len().min(limits.head_bytes_max)];
        if !self.line_measured && window.len() > line_bytes_max(limits) {
            self.measure_line(window, limits)?;
        }
        let end = self.advance(window)?;
        if end.is_none() && window.len() == limits.head_bytes_max {
            return Err(Reject::HEAD_TOO_LARGE);
        }
        Ok(end)
    }

    /// Refuses a request line over its limit, unless an earlier byte is at fault.
    #[cold]
    fn measure_line(&mut self, window: &[u8], limits: &HeadLimits) -> Result<(), Reject> {
        let start = if window[0] == b'\r' { 2 } else { 0 };
        let end_max = start + line_bytes_max(limits);
        let line = &window[start..window.len().min(end_max)];
        if memchr::memchr(b'\n', line).is_some() {
            self.line_measured = true;
        } else if window.len() > end_max {
            self.advance(&window[..end_max])?;
            let method_ends = line[..METHOD_BYTES_MAX + 1].contains(&b' ');
            let too_long =
                if method_ends { Reject::TARGET_TOO_LONG } else { Reject::METHOD_TOO_LONG };
            return Err(too_long);
        }
        Ok(())
    }

    /// Continues to the end of the head or of the window.
    #[inline]
    fn advance(&mut self, window: &[u8]) -> Result<Option<usize>, Reject> {
        let mut at = self.seen;
        if at < START {
            let start_end = window.len().min(START);
            self.step(window, at, start_end)?;
            at = start_end;
        }
        while let Some(block) = window[at.saturating_sub(LOOK_BACK)..].first_chunk() {
            if !is_plain(block) {
                break;
            }
            at += BLOCK;
        }
        let end = self.finish(window, at)?;
        self.seen = window.len();
        Ok(end)
    }

    /// Checks the rest after the plain blocks: less than a block, or one with the end (or a fault)
    /// in it. One more block, over the last bytes, avoids the slow steps in the usual cases: a head
    /// that ends with the bytes, and an incomplete one.
    #[inline]
    fn finish(&self, window: &[u8], at: usize) -> Result<Option<usize>, Reject> {
        const EMPTY_LINE: &[u8] = b"\r\n";
        let left = window.len() - at;
        if left <= BLOCK + EMPTY_LINE.len()
            && window.ends_with(b"\r\n\r\n")
            && window[..window.len() - EMPTY_LINE.len()].last_chunk().is_some_and(is_plain)
        {
            return Ok(Some(window.len()));
        }
        if left < BLOCK && window.last_chunk().is_some_and(is_plain) {
            return Ok(None);
        }
        self.step(window, at, window.len())
    }

    /// Byte by byte from `from` to `to`: the end of the head, or the fault.
    #[inline]
    fn step(&self, window: &[u8], from: usize, to: usize) -> Result<Option<usize>, Reject> {
        for at in from..to {
            if let Some(reject) = fault_at(window, at, self.response) {
                return Err(reject);
            }
            if window[at] == b'\n' && at >= 3 && window[at - 2] == b'\n' {
                return Ok(Some(at + 1));
            }
        }
        Ok(None)
    }
}

/// Bytes at the start of a message with rules of their own: an empty line, and the first byte after
/// it.
const START: usize = 3;
/// Bytes before a block that its verdict needs: CR LF CR before an LF, the
/// second of which is implied.
const LOOK_BACK: usize = 2;
/// Bytes checked at once: two 16-byte vectors, available on every x86-64.
const BLOCK: usize = 32;

/// Longest request line with its CRLF: `method SP target SP HTTP/1.1 CR LF`.
fn line_bytes_max(limits: &HeadLimits) -> usize {
    METHOD_BYTES_MAX + limits.target_bytes_max + "  HTTP/1.1\r\n".len()
}

/// Whether the last [`BLOCK`] bytes contain neither a fault nor the end of the head. Written
/// without branches, so that the compiler vectorises it.
#[inline(always)]
fn is_plain(bytes: &[u8; BLOCK + LOOK_BACK]) -> bool {
    let mut found = [0u8; BLOCK];
    for i in 0..BLOCK {
        let (two_back, back, byte) = (bytes[i], bytes[i + 1], bytes[i + 2]);
        let line_end = u8::from(byte == b'\n');
        let broken_end = line_end ^ u8::from(back == b'\r');
        let head_end = line_end & u8::from(two_back == b'\n');
        let line_char = u8::from(byte == b'\t') | u8::from(byte == b'\r') | line_end;
        let control = (u8::from(byte < 0x20) & (line_char ^ 1)) | u8::from(byte == 0x7f);
        found[i] = broken_end | head_end | control;
    }
    found.iter().fold(0, |acc, f| acc | f) == 0
}

/// The fault of the byte `at`, given those before it. Defines the rules; [`is_plain`] is the fast
/// equivalent.
fn fault_at(bytes: &[u8], at: usize, response: bool) -> Option<Reject> {
    let byte = bytes[at];
    if at == 0 {
        let begins = bytes::is(byte, TOKEN) || (byte == b'\r' && !response);
        return if begins { None } else { Some(Reject::FIRST_BYTE) };
    }
    let after_cr = bytes[at - 1] == b'\r';
    if after_cr != (byte == b'\n') {
        return Some(if after_cr { Reject::BARE_CR } else { Reject::BARE_LF });
    }
    if at == 2 && bytes[0] == b'\r' && !bytes::is(byte, TOKEN) {
        return Some(if byte == b'\r' { Reject::EMPTY_LINES } else { Reject::FIRST_BYTE });
    }
    let control = (byte < 0x20 && !matches!(byte, b'\t' | b'\r' | b'\n')) || byte == 0x7f;
    control.then_some(Reject::CONTROL_BYTE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition: each byte on its own.
    fn by_definition(bytes: &[u8], response: bool) -> Result<Option<usize>, Reject> {
        let scanner = HeadScanner { response, ..HeadScanner::default() };
        scanner.step(bytes, 0, bytes.len())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 5000, ..ProptestConfig::default() })]

        #[test]
        fn blocks_agree_with_the_definition(
            mut bytes in proptest::collection::vec(0x20..0x7f_u8, 0..120),
            odd in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            ends in proptest::collection::vec((any::<prop::sample::Index>(), 0..3_usize), 0..4),
            response: bool,
        ) {
            for (at, which) in ends {
                let text = [&b"\r\n"[..], b"\r\n\r\n", b"\t"][which];
                let at = at.index(bytes.len() + 1);
                bytes.splice(at..at, text.iter().copied());
            }
            for (at, byte) in odd {
                let at = at.index(bytes.len() + 1);
                bytes.insert(at, byte);
            }
            let mut scanner = HeadScanner { response, ..HeadScanner::default() };
            let fast = scanner.scan(&bytes, &HeadLimits::default());
            prop_assert_eq!(fast, by_definition(&bytes, response));
        }
    }
}
