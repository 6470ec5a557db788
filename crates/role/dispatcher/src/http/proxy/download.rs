//! From the node to the client: the response head, rebuilt; the body, decoded and framed anew.
//!
//! Bytes are read into the worker's buffer and copied once, into the client's output. The node is
//! read only when the client has taken all of that output, so a slow client makes us hold at most
//! one read.
//!
//! Invariant: only bytes that passed the parser and the body's decoder reach the client.

use skep_engine::ReplySink;
use skep_http::forward::{ForwardReply, write_response};
use skep_http::limits::{INTERIM_RESPONSES_MAX, NODE_RESPONSE_HEAD, RESPONSE_BODY};
use skep_http::{
    BodyDecoder, FieldSlots, HeadScanner, Method, ResponseFraming, ResponseHead, encode,
    parse_response,
};

use crate::http::proxy::fault::NodeFault;
use crate::http::proxy::in_flight::InFlight;

/// The request that the response answers.
pub(super) struct Asked<'b> {
    pub(super) method: Method<'b>,
    /// The protocols that the client may be switched to.
    pub(super) upgrade: Option<&'b [u8]>,
}

/// A response being passed to the client.
pub(super) struct Download {
    stage: Stage,
    scanner: HeadScanner,
    /// The beginning of an incomplete head.
    carry: Vec<u8>,
    interim_responses: usize,
    /// Scratch for the line before a chunk.
    chunk_line: Vec<u8>,
    /// The node keeps the connection open, and nothing followed the response.
    is_reusable: bool,
    /// How the body is delimited for the client.
    framing: ResponseFraming,
}

enum Stage {
    Head,
    Body(BodyDecoder),
    Complete,
    /// The node switched protocols; these bytes followed its head.
    Switched(Vec<u8>),
}

impl Download {
    pub(super) fn new() -> Self {
        Self {
            stage: Stage::Head,
            scanner: HeadScanner::response(),
            carry: Vec::new(),
            interim_responses: 0,
            chunk_line: Vec::new(),
            is_reusable: false,
            framing: ResponseFraming::None,
        }
    }

    /// Whether the response was read to its end.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.stage, Stage::Complete | Stage::Switched(_))
    }

    /// Whether its connection may carry another request.
    pub(super) fn is_reusable(&self) -> bool {
        self.is_reusable && matches!(self.stage, Stage::Complete)
    }

    /// After a switch of protocols: the bytes that followed the head.
    pub(super) fn into_switched(self) -> Option<Vec<u8>> {
        match self.stage {
            Stage::Switched(behind) => Some(behind),
            Stage::Head | Stage::Body(_) | Stage::Complete => None,
        }
    }

    /// The node sent `bytes`, at least one.
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        asked: &Asked<'_>,
        reply: &mut ReplySink<'_>,
        in_flight: &mut InFlight<'_>,
    ) -> Result<(), NodeFault> {
        if let Stage::Body(_) = self.stage {
            return self.body(bytes, reply, in_flight);
        }
        if self.carry.is_empty() {
            let consumed = self.heads(bytes, asked, reply, in_flight)?;
            self.carry.extend_from_slice(&bytes[consumed..]);
        } else {
            let mut carry = std::mem::take(&mut self.carry);
            carry.extend_from_slice(bytes);
            let consumed = self.heads(&carry, asked, reply, in_flight)?;
            carry.drain(..consumed);
            self.carry = carry;
        }
        Ok(())
    }

    /// The node closed its side.
    pub(super) fn end(&mut self, reply: &mut ReplySink<'_>) -> Result<(), NodeFault> {
        self.is_reusable = false;
        match &mut self.stage {
            Stage::Head => Err(NodeFault::Broken),
            Stage::Body(decoder) => {
                decoder.finish().map_err(|_| NodeFault::Broken)?;
                self.finish(reply);
                Ok(())
            }
            Stage::Complete | Stage::Switched(_) => Ok(()),
        }
    }

    /// Parses heads up to the final one, and the bytes after it. Returns the number of bytes
    /// consumed; the others are the beginning of a head.
    fn heads(
        &mut self,
        bytes: &[u8],
        asked: &Asked<'_>,
        reply: &mut ReplySink<'_>,
        in_flight: &mut InFlight<'_>,
    ) -> Result<usize, NodeFault> {
        let mut consumed = 0;
        loop {
            let rest = &bytes[consumed..];
            let Some(len) = self.scanner.scan(rest, &NODE_RESPONSE_HEAD)? else {
                return Ok(consumed);
            };
            self.scanner = HeadScanner::response();
            let (head_bytes, behind) = rest.split_at(len);
            let mut slots = FieldSlots::new();
            let head = parse_response(&mut slots, head_bytes, asked.method, &NODE_RESPONSE_HEAD)?;
            match head.status {
                101 => {
                    self.switch(&head, asked, reply)?;
                    self.stage = Stage::Switched(behind.to_vec());
                    return Ok(bytes.len());
                }
                // The engine says 100 itself; others are hints, and a client
                // of HTTP/1.0 must not get any (RFC 9110 15.2).
                100..200 => {
                    self.interim_responses += 1;
                    if self.interim_responses > INTERIM_RESPONSES_MAX {
                        return Err(NodeFault::Malformed("interim-responses"));
                    }
                    consumed += len;
                }
                _ => {
                    self.begin(&head, reply, in_flight)?;
                    self.body(behind, reply, in_flight)?;
                    return Ok(bytes.len());
                }
            }
        }
    }

    /// Passes the head of a final response on.
    fn begin(
        &mut self,
        head: &ResponseHead<'_, '_>,
        reply: &mut ReplySink<'_>,
        in_flight: &mut InFlight<'_>,
    ) -> Result<(), NodeFault> {
        let decoder = BodyDecoder::new(head.framing, &RESPONSE_BODY)?;
        let framing = write_head(head, reply, &in_flight.target().node_line);
        if framing == ResponseFraming::UntilClose {
            reply.end_by_close();
        }
        if let ResponseFraming::Length(bytes) = head.framing {
            in_flight.owe(bytes);
        }
        self.is_reusable = head.keep_alive;
        self.framing = framing;
        self.stage = Stage::Body(decoder);
        Ok(())
    }

    /// Passes the head of a 101 on, if the client asked for that upgrade (RFC 9110 7.8: a server
    /// switches only to an offered protocol).
    fn switch(
        &mut self,
        head: &ResponseHead<'_, '_>,
        asked: &Asked<'_>,
        reply: &mut ReplySink<'_>,
    ) -> Result<(), NodeFault> {
        let unasked = NodeFault::Malformed("unasked-switch");
        let (offered, chosen) = asked.upgrade.zip(head.upgrade).ok_or(unasked)?;
        let mut offers = offered.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        if !offers.any(|offer| offer.eq_ignore_ascii_case(chosen)) {
            return Err(unasked);
        }
        write_head(head, reply, b"");
        reply.write().close();
        Ok(())
    }

    fn body(
        &mut self,
        bytes: &[u8],
        reply: &mut ReplySink<'_>,
        in_flight: &mut InFlight<'_>,
    ) -> Result<(), NodeFault> {
        let Stage::Body(decoder) = &mut self.stage else { return Ok(()) };
        let mut at = 0;
        while at < bytes.len() && !decoder.is_done() {
            let decoded = decoder.decode(&bytes[at..])?;
            let data = &bytes[at..][decoded.data];
            at += decoded.consumed;
            if data.is_empty() {
                continue;
            }
            in_flight.receive(data.len() as u64);
            let mut out = reply.write();
            if self.framing == ResponseFraming::Chunked {
                self.chunk_line.clear();
                encode::write_chunk_head(&mut self.chunk_line, data.len());
                out.raw(&self.chunk_line);
                out.body_copy(data);
                out.raw(encode::CHUNK_END);
            } else {
                out.body_copy(data);
            }
        }
        if decoder.is_done() {
            // Bytes behind a response answer nothing that was asked: the next
            // client would get them (RFC 9112 9.2).
            self.is_reusable &= at == bytes.len();
            self.finish(reply);
        }
        Ok(())
    }

    fn finish(&mut self, reply: &mut ReplySink<'_>) {
        if self.framing == ResponseFraming::Chunked {
            reply.write().raw(encode::LAST_CHUNK);
        }
        self.stage = Stage::Complete;
    }
}

/// Appends the rebuilt head and returns how the body is framed for the client.
fn write_head(
    head: &ResponseHead<'_, '_>,
    reply: &mut ReplySink<'_>,
    node_line: &[u8],
) -> ResponseFraming {
    const NODE_FIELD: &str = "x-skep-node";
    // The node may have said it itself.
    let is_named = !node_line.is_empty() && head.fields.get(NODE_FIELD).is_some();
    let extra = if is_named { b"" } else { node_line };
    let version = reply.version();
    let date = reply.write().context().date();
    let mut framing = ResponseFraming::None;
    reply.write().foreign_head(head.status, |out, keep_alive| {
        let how = ForwardReply { version, keep_alive, date: &date, extra };
        framing = write_response(out, head, &how);
    });
    framing
}
