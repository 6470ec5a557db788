//! Standard error of an application, line by line.

use crate::limits::{STDERR_BYTES_MAX, STDERR_LINE_BYTES_MAX};

/// Assembles lines from pieces.
#[derive(Clone, Debug, Default)]
pub(crate) struct StderrLines {
    line: Vec<u8>,
    /// Bytes of all lines that were returned, and of the current one.
    kept_bytes: usize,
    dropped_bytes: u64,
}

impl StderrLines {
    /// Consumes bytes up to the end of a line: returns how many, and the line if it is not empty.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> (usize, Option<Vec<u8>>) {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let text = &bytes[..end.unwrap_or(bytes.len())];
        let room = (STDERR_LINE_BYTES_MAX - self.line.len())
            .min(STDERR_BYTES_MAX - self.kept_bytes)
            .min(text.len());
        self.line.extend_from_slice(&text[..room]);
        self.kept_bytes += room;
        self.dropped_bytes += (text.len() - room) as u64;
        match end {
            Some(end) => (end + 1, self.end_line()),
            None => (bytes.len(), None),
        }
    }

    /// The unterminated last line.
    pub(crate) fn end_line(&mut self) -> Option<Vec<u8>> {
        let mut line = std::mem::take(&mut self.line);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        (!line.is_empty()).then_some(line)
    }

    pub(crate) fn dropped_bytes(&self) -> u64 {
        self.dropped_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_same_in_pieces() {
        let mut lines = StderrLines::default();
        assert_eq!(lines.take(b"one\r\ntwo"), (5, Some(b"one".to_vec())));
        assert_eq!(lines.take(b"tw"), (2, None));
        assert_eq!(lines.take(b"o\n\n"), (2, Some(b"two".to_vec())));
        assert_eq!(lines.take(b"\n"), (1, None));
        assert_eq!(lines.take(b"end"), (3, None));
        assert_eq!(lines.end_line(), Some(b"end".to_vec()));
        assert_eq!(lines.end_line(), None);
    }

    #[test]
    fn long_lines_and_many_lines_are_cut_and_counted() {
        let mut lines = StderrLines::default();
        let long = vec![b'x'; STDERR_LINE_BYTES_MAX + 5];
        lines.take(&long);
        let (_, line) = lines.take(b"yyy\n");
        assert_eq!(line.map(|it| it.len()), Some(STDERR_LINE_BYTES_MAX));
        assert_eq!(lines.dropped_bytes(), 8);
        let mut kept = 0;
        for _ in 0..100_000 {
            kept += lines.take(b"0123456789\n").1.map_or(0, |line| line.len());
        }
        assert_eq!(kept, STDERR_BYTES_MAX - STDERR_LINE_BYTES_MAX);
        assert_eq!(lines.dropped_bytes(), 8 + 1_000_000 - kept as u64);
    }
}
