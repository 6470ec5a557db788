//! Receives a segment from another node.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use skep_serve::{Conn, TimeoutCause};
use skep_upstream::{ConnectionPool, PooledConn};
use skep_wire::cache::frame::FRAME_HEAD_BYTES;
use skep_wire::cache::peer::chunk_end;
use skep_wire::cache::{FrameError, FrameHead};
use skep_wire::limits::PEER_CHUNK_BYTES;

use super::error::PeerError;
use crate::limits::{PEER_CHUNK_MS, PEER_SOURCE_MS};
use crate::stream::counts::{StreamCount, StreamCounts};

/// Minimum size in bytes of the buffer of [`Fetching::next_chunk`]: a chunk, and the head of the next frame,
/// which is received with the same read.
pub const FETCH_BUFFER_BYTES: usize = PEER_CHUNK_BYTES as usize + FRAME_HEAD_BYTES;

/// A transfer in progress. If it is dropped before its end, the connection is closed.
pub struct Fetching {
    /// The pool to which the connection returns after the exchange.
    connections: Rc<ConnectionPool>,
    counts: Arc<StreamCounts>,
    /// `None` after the exchange is complete or has failed.
    lease: Option<PooledConn>,
    /// Bytes read with the reply.
    rest: Vec<u8>,
    rest_done: usize,
    /// The part of the next frame's head that has been read.
    head: [u8; FRAME_HEAD_BYTES],
    head_bytes: usize,
    left: Range<u32>,
}

impl Fetching {
    pub(super) fn new(
        connections: &Rc<ConnectionPool>,
        counts: &Arc<StreamCounts>,
        lease: PooledConn,
        rest: Vec<u8>,
        left: Range<u32>,
    ) -> Self {
        let (head, head_bytes) = ([0; FRAME_HEAD_BYTES], 0);
        Self {
            connections: Rc::clone(connections),
            counts: Arc::clone(counts),
            lease: Some(lease),
            rest,
            rest_done: 0,
            head,
            head_bytes,
            left,
        }
    }

    /// The offset of the next chunk in the segment.
    pub fn position(&self) -> u32 {
        self.left.start
    }

    /// Reads the next chunk to the start of `buffer`, and verifies it; returns its length in bytes, or 0
    /// after the last. Chunks end at multiples of [`PEER_CHUNK_BYTES`] in the segment, or at its end.
    ///
    /// # Errors
    /// Why the transfer failed; all earlier chunks are valid.
    ///
    /// # Panics
    /// If `buffer` is shorter than [`FETCH_BUFFER_BYTES`].
    pub async fn next_chunk(&mut self, buffer: &mut [u8]) -> Result<usize, PeerError> {
        assert!(buffer.len() >= FETCH_BUFFER_BYTES, "room for a chunk and a head");
        if self.left.is_empty() {
            return Ok(0);
        }
        let Some(lease) = self.lease.take() else { return Err(PeerError::Closed) };
        let chunk = self.read_chunk(&lease.conn, buffer).await;
        let bytes = chunk.map_err(|error| error.counted(&self.counts))?;
        self.counts.count(StreamCount::ChunksTaken);
        self.left.start += bytes as u32;
        if !self.left.is_empty() {
            self.lease = Some(lease);
        } else if self.rest_done == self.rest.len() {
            lease.give_back(&self.connections);
        }
        Ok(bytes)
    }

    async fn read_chunk(&mut self, conn: &Conn, buffer: &mut [u8]) -> Result<usize, PeerError> {
        let expected = chunk_end(self.left.start, self.left.end) - self.left.start;
        let head = self.read_head(conn, buffer).await?;
        if head.bytes != expected {
            return Err(FrameError::NotThatLong { bytes: head.bytes, expected }.into());
        }
        let bytes = expected as usize;
        let is_last = expected == self.left.end - self.left.start;
        let end = if is_last { bytes } else { bytes + FRAME_HEAD_BYTES };
        let read = self.read(conn, &mut buffer[..end], bytes).await?;
        head.verify(&buffer[..bytes])?;
        self.keep_head(&buffer[bytes..read]);
        Ok(bytes)
    }

    /// Reads the head of the next frame that is not empty.
    async fn read_head(&mut self, conn: &Conn, buffer: &mut [u8]) -> Result<FrameHead, PeerError> {
        let began_ms = conn.worker().now_ms();
        loop {
            conn.expire_after(PEER_CHUNK_MS, TimeoutCause::Response);
            let missing = FRAME_HEAD_BYTES - self.head_bytes;
            if missing > 0 {
                self.read(conn, &mut buffer[..missing], missing).await?;
                self.head[FRAME_HEAD_BYTES - missing..].copy_from_slice(&buffer[..missing]);
            }
            self.head_bytes = 0;
            let head = FrameHead::read(self.head);
            if head.bytes > 0 {
                return Ok(head);
            }
            head.verify(&[])?;
            if conn.worker().now_ms().saturating_sub(began_ms) > PEER_SOURCE_MS {
                return Err(PeerError::SourceLate);
            }
        }
    }

    /// Reads at least `least` bytes, and more if available.
    async fn read(
        &mut self,
        conn: &Conn,
        buffer: &mut [u8],
        least: usize,
    ) -> Result<usize, PeerError> {
        let kept = &self.rest[self.rest_done..];
        let mut have = kept.len().min(buffer.len());
        buffer[..have].copy_from_slice(&kept[..have]);
        self.rest_done += have;
        while have < least {
            have += match conn.recv(&mut buffer[have..]).await? {
                0 => return Err(PeerError::Closed),
                bytes => bytes,
            };
        }
        Ok(have)
    }

    fn keep_head(&mut self, bytes: &[u8]) {
        self.head[..bytes.len()].copy_from_slice(bytes);
        self.head_bytes = bytes.len();
    }
}
