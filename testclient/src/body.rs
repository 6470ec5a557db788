//! Bodies of responses, decoded from bytes as they arrive.

use std::mem;

use crate::head::{Framing, Malformed};
use crate::limits::LINE_BYTES_MAX;

/// A body being received. Does no I/O: the caller passes the bytes it receives.
#[derive(Clone, Debug)]
pub struct BodyReader {
    state: State,
    /// The line between chunks that has begun.
    line: Vec<u8>,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// So many bytes, and no more.
    Length(usize),
    ChunkSize,
    /// So many bytes of a chunk.
    Chunk(usize),
    ChunkEnd,
    Trailers,
    /// Whatever comes before the end of the connection.
    Close,
    Done,
}

impl BodyReader {
    /// Of a body with this framing.
    pub fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::Length(0) => State::Done,
            Framing::Length(bytes) => State::Length(bytes),
            Framing::Chunked => State::ChunkSize,
            Framing::Close => State::Close,
        };
        Self { state, line: Vec::new() }
    }

    /// Reads what belongs to the body at the beginning of `bytes`, and appends it to `body`,
    /// chunks put together. Returns how many of `bytes` it took: not all if the body is done.
    pub fn read(&mut self, bytes: &[u8], body: &mut Vec<u8>) -> Result<usize, Malformed> {
        let mut rest = bytes;
        while !rest.is_empty() && !self.is_done() {
            rest = self.step(rest, body)?;
        }
        Ok(bytes.len() - rest.len())
    }

    /// Whether all of the body has come.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether the body is whole if the connection ends now.
    pub fn may_end_here(&self) -> bool {
        matches!(self.state, State::Done | State::Close)
    }

    /// Takes some of `bytes`, and returns the others.
    fn step<'b>(&mut self, bytes: &'b [u8], body: &mut Vec<u8>) -> Result<&'b [u8], Malformed> {
        let (State::Length(left) | State::Chunk(left)) = self.state else {
            if self.state == State::Close {
                body.extend_from_slice(bytes);
                return Ok(&[]);
            }
            return self.step_line(bytes);
        };
        let (now, later) = bytes.split_at(left.min(bytes.len()));
        body.extend_from_slice(now);
        let left = left - now.len();
        self.state = match self.state {
            State::Chunk(_) if left == 0 => State::ChunkEnd,
            State::Chunk(_) => State::Chunk(left),
            _ if left == 0 => State::Done,
            _ => State::Length(left),
        };
        Ok(later)
    }

    fn step_line<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], Malformed> {
        let (line, later) = self.take_line(bytes);
        let Some(line) = line else {
            let is_endless = self.line.len() > LINE_BYTES_MAX;
            return match is_endless {
                true => Err(Malformed::new("endless line", &self.line)),
                false => Ok(later),
            };
        };
        self.state = match self.state {
            State::ChunkSize => match parse_chunk_size(&line) {
                Some(0) => State::Trailers,
                Some(size) => State::Chunk(size),
                None => return Err(Malformed::new("chunk size", &line)),
            },
            State::ChunkEnd if line.is_empty() => State::ChunkSize,
            State::ChunkEnd => return Err(Malformed::new("chunk end", &line)),
            _ if line.is_empty() => State::Done,
            state => state,
        };
        Ok(later)
    }

    /// The line that has begun, without its CRLF, if its end is in `bytes`; and what follows it.
    fn take_line<'b>(&mut self, bytes: &'b [u8]) -> (Option<Vec<u8>>, &'b [u8]) {
        for (at, byte) in bytes.iter().enumerate() {
            self.line.push(*byte);
            if self.line.ends_with(b"\r\n") {
                self.line.truncate(self.line.len() - 2);
                return (Some(mem::take(&mut self.line)), &bytes[at + 1..]);
            }
        }
        (None, &[])
    }
}

/// A chunk's size line without its CRLF; extensions are allowed.
fn parse_chunk_size(line: &[u8]) -> Option<usize> {
    let line = str::from_utf8(line).ok()?;
    let digits = line.split(';').next()?;
    let only_hex = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    only_hex.then(|| usize::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body of a framing in `wire`, read in pieces of so many bytes: with how many it took.
    fn read(framing: Framing, wire: &[u8], piece_bytes: usize) -> (BodyReader, Vec<u8>, usize) {
        let (mut reader, mut body, mut taken) = (BodyReader::new(framing), Vec::new(), 0);
        for piece in wire.chunks(piece_bytes) {
            taken += reader.read(piece, &mut body).unwrap();
        }
        (reader, body, taken)
    }

    #[test]
    fn bodies_end_where_they_say_however_they_come() {
        let chunked = b"2;x=y\r\nde\r\n1\r\nf\r\n0\r\nT: 1\r\n\r\nnext";
        for piece_bytes in 1..=chunked.len() {
            let (reader, body, taken) = read(Framing::Chunked, chunked, piece_bytes);
            assert_eq!((body.as_slice(), taken), (&b"def"[..], chunked.len() - 4));
            assert!(reader.is_done());
            let (reader, body, taken) = read(Framing::Length(3), b"abcnext", piece_bytes);
            assert_eq!((body.as_slice(), taken), (&b"abc"[..], 3));
            assert!(reader.is_done());
            let (reader, body, _) = read(Framing::Close, b"ghi", piece_bytes);
            assert_eq!(body, b"ghi");
            assert!(!reader.is_done() && reader.may_end_here());
        }
        assert!(BodyReader::new(Framing::Length(0)).is_done());
    }

    #[test]
    fn a_body_cut_short_is_not_whole() {
        for (framing, whole) in
            [(Framing::Length(3), &b"abc"[..]), (Framing::Chunked, b"2\r\nde\r\n0\r\n\r\n")]
        {
            for end in 0..whole.len() {
                assert!(!read(framing, &whole[..end], 1).0.may_end_here(), "{end}");
            }
        }
    }

    #[test]
    fn chunks_that_are_none_are_errors() {
        let endless = [b"0\r\n".to_vec(), vec![b'a'; LINE_BYTES_MAX + 1]].concat();
        for wire in [&b"x\r\n"[..], b"\r\n", b"1\r\nab\r\n", b"1\r\na\n\r\n", &endless] {
            let mut reader = BodyReader::new(Framing::Chunked);
            assert!(reader.read(wire, &mut Vec::new()).is_err(), "{wire:?}");
        }
    }

    #[test]
    fn chunk_sizes() {
        assert_eq!(parse_chunk_size(b"1aF"), Some(0x1af));
        assert_eq!(parse_chunk_size(b"0;x=y"), Some(0));
        for bad in [&b""[..], b" 1", b"+1", b"0x1", b"1 "] {
            assert_eq!(parse_chunk_size(bad), None);
        }
    }
}
