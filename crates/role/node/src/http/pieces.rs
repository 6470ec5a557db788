//! Copies of small pieces of an object, for clients that are not sent whole segments.

use std::fs::File;
use std::future::poll_fn;
use std::ops::Range;

use skep_engine::ReplySink;
use skep_origin::Body;
use skep_segments::{Buffer, FetchError, Segment};
use skep_units::SEGMENT_BYTES;

use crate::backend::files::file::read_version;
use crate::disk::{DiskError, FileStamp, Wait};

/// Appends a copy of the first available bytes of `wanted`, once there are any; returns their
/// number.
pub(super) async fn copy(
    reply: &mut ReplySink<'_>,
    segment: &Segment,
    wanted: Range<u64>,
) -> Result<u64, FetchError> {
    let base = wanted.start / SEGMENT_BYTES * SEGMENT_BYTES;
    let (at, end) = ((wanted.start - base) as u32, (wanted.end - base) as u32);
    let more = poll_fn(|cx| segment.poll_more(cx, at)).await;
    more?;
    let mut buffer = Buffer::take();
    let bytes = &mut buffer.bytes()[..(end - at) as usize];
    let copied = segment.read(at, bytes).map_err(|_| FetchError::NoMemory)?;
    reply.write().body_copy(&bytes[..copied]);
    Ok(copied as u64)
}

/// Appends up to `bytes` bytes of a body; returns the number appended.
pub(super) async fn pass_some(reply: &mut ReplySink<'_>, body: &mut Body, bytes: u64) -> u64 {
    let mut buffer = Buffer::take();
    let mut left = bytes;
    while left > 0 {
        let room = buffer.bytes().len().min(left as usize);
        let Ok(read @ 1..) = body.next(&mut buffer.bytes()[..room]).await else { break };
        reply.write().body_copy(&buffer.bytes()[..read]);
        left -= read as u64;
    }
    bytes - left
}

pub(super) fn read_piece(
    file: &File,
    stamp: FileStamp,
    at: u64,
    bytes: usize,
    wait: Wait,
) -> Result<Vec<u8>, DiskError> {
    let mut piece = vec![0; bytes];
    read_version(file, stamp, at, &mut piece, wait)?;
    Ok(piece)
}
