//! Writes status lines, numbers and chunk framing; appends, never allocates beyond the output.

/// Ends a chunked body that has no trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
/// Ends the data of one chunk.
pub const CHUNK_END: &[u8] = b"\r\n";

/// `HTTP/1.1 200 OK\r\n`. For a code that is not registered: the line of its
/// class (RFC 9110 15), so pass such codes on with [`write_status_line`].
pub fn status_line(status: u16) -> &'static [u8] {
    let _ = status;
    unimplemented!("status_line")
}

/// Reason phrase; empty for a code that is not registered.
pub fn reason_phrase(status: u16) -> &'static str {
    let _ = status;
    unimplemented!("reason_phrase")
}

/// Appends the status line of any code from 100 to 999.
pub fn write_status_line(out: &mut Vec<u8>, status: u16) {
    let _ = (out, status);
    unimplemented!("write_status_line")
}

/// Appends `name: value\r\n`.
pub fn write_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    let _ = (out, name, value);
    unimplemented!("write_field")
}

/// Appends the line that begins a chunk of `len` bytes (not 0: that ends the
/// body); write [`CHUNK_END`] behind the data.
pub fn write_chunk_head(out: &mut Vec<u8>, len: usize) {
    let _ = (out, len);
    unimplemented!("write_chunk_head")
}

/// Appends a number in decimal.
pub fn write_u64(out: &mut Vec<u8>, number: u64) {
    let _ = (out, number);
    unimplemented!("write_u64")
}
