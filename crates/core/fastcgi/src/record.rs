//! Records (FastCGI 1.0, 3.3 and 8).

use crate::limits::{CONTENT_BYTES_MAX, RECORD_HEAD_BYTES};

pub(crate) const VERSION: u8 = 1;
/// The id of every request: a connection carries one at a time, since php-fpm does not multiplex.
pub(crate) const REQUEST_ID: u16 = 1;

pub(crate) const BEGIN_REQUEST: u8 = 1;
pub(crate) const END_REQUEST: u8 = 3;
pub(crate) const PARAMS: u8 = 4;
pub(crate) const STDIN: u8 = 5;
pub(crate) const STDOUT: u8 = 6;
pub(crate) const STDERR: u8 = 7;

pub(crate) const ROLE_RESPONDER: u8 = 1;
pub(crate) const FLAG_KEEP_CONN: u8 = 1;

/// Length of the content of END_REQUEST.
pub(crate) const END_BYTES: usize = 8;

/// The header of a sent record, without padding, which no receiver needs.
pub(crate) fn head(kind: u8, content_bytes: usize) -> [u8; RECORD_HEAD_BYTES] {
    debug_assert!(content_bytes <= CONTENT_BYTES_MAX, "records are bounded");
    let ([a, b], [c, d]) = (REQUEST_ID.to_be_bytes(), (content_bytes as u16).to_be_bytes());
    [VERSION, kind, a, b, c, d, 0, 0]
}

/// The header of a received record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHead {
    pub(crate) version: u8,
    pub(crate) kind: u8,
    pub(crate) request_id: u16,
    pub(crate) content_bytes: usize,
    pub(crate) padding_bytes: usize,
}

impl RecordHead {
    pub(crate) fn read(bytes: [u8; RECORD_HEAD_BYTES]) -> RecordHead {
        let [version, kind, a, b, c, d, padding, _] = bytes;
        RecordHead {
            version,
            kind,
            request_id: u16::from_be_bytes([a, b]),
            content_bytes: usize::from(u16::from_be_bytes([c, d])),
            padding_bytes: usize::from(padding),
        }
    }
}

/// Writes name-value pairs into records without splitting pairs: php-fpm parses each record by
/// itself.
#[derive(Debug)]
pub(crate) struct ParamsWriter<'o> {
    out: &'o mut Vec<u8>,
    /// Offset of the header of the current record.
    start: usize,
}

/// The pair does not fit into a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairLong {
    pub(crate) bytes: usize,
}

impl<'o> ParamsWriter<'o> {
    pub(crate) fn new(out: &'o mut Vec<u8>) -> ParamsWriter<'o> {
        let start = out.len();
        out.extend_from_slice(&head(PARAMS, 0));
        ParamsWriter { out, start }
    }

    /// Writes a pair; the value is passed in parts.
    pub(crate) fn pair(&mut self, name: &[u8], value: &[&[u8]]) -> Result<(), PairLong> {
        let value_bytes = value.iter().map(|part| part.len()).sum();
        let bytes = length_bytes(name.len()) + length_bytes(value_bytes) + name.len() + value_bytes;
        if bytes > CONTENT_BYTES_MAX {
            return Err(PairLong { bytes });
        }
        if self.content_bytes() + bytes > CONTENT_BYTES_MAX {
            self.end_record();
            self.start = self.out.len();
            self.out.extend_from_slice(&head(PARAMS, 0));
        }
        write_length(self.out, name.len());
        write_length(self.out, value_bytes);
        self.out.extend_from_slice(name);
        value.iter().for_each(|part| self.out.extend_from_slice(part));
        Ok(())
    }

    /// Ends the stream.
    pub(crate) fn end(mut self) {
        self.end_record();
        self.out.extend_from_slice(&head(PARAMS, 0));
    }

    fn content_bytes(&self) -> usize {
        self.out.len() - self.start - RECORD_HEAD_BYTES
    }

    fn end_record(&mut self) {
        let head = head(PARAMS, self.content_bytes());
        self.out[self.start..][..RECORD_HEAD_BYTES].copy_from_slice(&head);
    }
}

/// One byte, or four with the top bit set (3.4).
fn length_bytes(length: usize) -> usize {
    if length < 0x80 { 1 } else { 4 }
}

fn write_length(out: &mut Vec<u8>, length: usize) {
    match length_bytes(length) {
        1 => out.push(length as u8),
        _ => out.extend_from_slice(&(length as u32 | 1 << 31).to_be_bytes()),
    }
}
