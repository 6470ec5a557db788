//! One request and its reply on a connection.
//!
//! ```text
//!   Header -> Type -+-> Packet (SEND_HEADERS, GET_BODY_CHUNK, END_RESPONSE) -> Header
//!                   |                                             '-> Ended
//!                   '-> ChunkLength (SEND_BODY_CHUNK) -> Data -> Padding -> Header
//! ```
//! The bytes of a chunk are passed through as they arrive; every other packet is parsed when it is
//! complete. The events depend only on the bytes, not on how they arrived.

use std::ops::Range;

use skep_http::gateway::{BodyMeter, GatewayHead, GatewayRequest, gather};
use skep_http::{HeadLimits, Method};

use crate::codes::{
    CPONG_REPLY, END_RESPONSE, FROM_SERVER, GET_BODY_CHUNK, SEND_BODY_CHUNK, SEND_HEADERS,
};
use crate::limits::{BODY_HEAD_BYTES, PACKET_BYTES_DEFAULT, PACKET_BYTES_MAX, PACKET_HEAD_BYTES};
use crate::upload::Upload;
use crate::{AjpError, AjpRequestError, AjpSettings, reply, request};

/// The result of a call of [`AjpExchange::receive`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AjpReceived {
    /// Bytes of the input that were consumed; all of them if there is no event.
    pub consumed: usize,
    pub event: Option<AjpEvent>,
}

/// An event of a server's reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AjpEvent {
    /// The head; once, before all events below except `Wants`.
    Head(GatewayHead),
    /// Bytes of the body: a range of this call's input. Never empty.
    Body(Range<usize>),
    /// Everything received so far must be sent to the client now.
    Flush,
    /// The server waits for the next part of the body, at most this many bytes. 0: everything was
    /// sent; answer with [`AjpExchange::body_end`].
    Wants(usize),
    /// The reply is complete. Whether the connection may carry another request:
    /// [`AjpExchange::is_reusable`].
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the header of a packet.
    Header,
    /// At the type of a packet with this payload length.
    Type(usize),
    /// At the length of a chunk in a packet with this payload length.
    ChunkLength(usize),
    /// Inside a chunk, with this many bytes left before the padding.
    Data {
        left: usize,
        padding: usize,
    },
    Padding,
    /// In the rest of a packet, with this length excluding the type.
    Packet {
        packet: Packet,
        bytes: usize,
    },
    Ended {
        reuse: bool,
    },
    Failed(AjpError),
}

/// The packets that are parsed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packet {
    Head,
    Ask,
    End,
}

/// One request and its reply.
#[derive(Clone, Debug)]
pub struct AjpExchange {
    upload: Upload,
    place: Place,
    /// Bytes that did not arrive in one input: the beginning of a header or packet.
    partial: Vec<u8>,
    meter: Option<BodyMeter>,
    /// Whether the request is a HEAD.
    is_head: bool,
    packet_bytes_max: usize,
    limits: HeadLimits,
}

impl AjpExchange {
    /// Appends the packet of `request` to `out`, for a new or reusable connection.
    ///
    /// # Errors
    /// The request does not fit into a packet; `out` is unchanged.
    ///
    /// # Panics
    /// If the packet size is invalid.
    pub fn start(
        out: &mut Vec<u8>,
        request: &GatewayRequest<'_>,
        settings: &AjpSettings<'_>,
    ) -> Result<AjpExchange, AjpRequestError> {
        let packet_bytes_max = settings.packet_bytes_max;
        let sizes = PACKET_BYTES_DEFAULT..=PACKET_BYTES_MAX;
        assert!(sizes.contains(&packet_bytes_max), "a packet size that servers have");
        request::write(out, request, settings)?;
        Ok(AjpExchange {
            upload: Upload::new(request.body, packet_bytes_max),
            place: Place::Header,
            partial: Vec::new(),
            meter: None,
            is_head: request.method == Method::Head,
            packet_bytes_max,
            limits: settings.reply_head,
        })
    }

    /// Largest number of body bytes that may be sent now, in one packet: 0 while the server is not
    /// waiting for data. Directly after the start it waits for the first packet, if the request has
    /// a Content-Length.
    pub fn wanted(&self) -> usize {
        self.upload.wanted()
    }

    /// Whether the server waits for a packet of the body, or for its end if everything was sent.
    pub fn is_awaited(&self) -> bool {
        self.upload.is_awaited()
    }

    /// The header to send before `bytes` bytes of the body. After that, the server waits for no
    /// more until it asks.
    ///
    /// # Panics
    /// If `bytes` is 0 or more than [`AjpExchange::wanted`].
    #[must_use]
    pub fn body_head(&mut self, bytes: usize) -> [u8; BODY_HEAD_BYTES] {
        self.upload.head(bytes)
    }

    /// The packet that ends the body. If a client breaks off, its body has no end: close the
    /// connection instead (CVE-2008-5519).
    ///
    /// # Panics
    /// If the server did not ask, or bytes of a known length are missing.
    #[must_use]
    pub fn body_end(&mut self) -> [u8; BODY_HEAD_BYTES] {
        self.upload.end()
    }

    /// Processes received bytes. Call again with the unconsumed bytes as long as there are events.
    ///
    /// # Errors
    /// The expected and the received data; close the connection. A body that was forwarded in part
    /// is incomplete, and must not be stored. The same error is returned from then on.
    pub fn receive(&mut self, input: &[u8]) -> Result<AjpReceived, AjpError> {
        let mut consumed = 0;
        while consumed < input.len() {
            let event = match self.step(input, &mut consumed) {
                Ok(event) => event,
                Err(error) => {
                    self.place = Place::Failed(error);
                    return Err(error);
                }
            };
            if event.is_some() {
                return Ok(AjpReceived { consumed, event });
            }
        }
        match self.place {
            Place::Failed(error) => Err(error),
            _ => Ok(AjpReceived { consumed, event: None }),
        }
    }

    /// The connection was closed: an error unless the reply is complete.
    ///
    /// # Errors
    /// [`AjpError::Closed`], or the earlier error.
    pub fn close(&self) -> Result<(), AjpError> {
        match self.place {
            Place::Ended { .. } => Ok(()),
            Place::Failed(error) => Err(error),
            _ => Err(AjpError::Closed),
        }
    }

    /// Whether the connection may carry another request. `unread_bytes`: bytes received on it that
    /// were not consumed by [`AjpExchange::receive`]. The server must keep it, and both sides must
    /// be in step.
    pub fn is_reusable(&self, unread_bytes: usize) -> bool {
        matches!(self.place, Place::Ended { reuse: true })
            && unread_bytes == 0
            && !self.upload.is_awaited()
    }

    fn step(&mut self, input: &[u8], consumed: &mut usize) -> Result<Option<AjpEvent>, AjpError> {
        let rest = &input[*consumed..];
        match self.place {
            Place::Header => {
                let Some([a, b, high, low]) = gather(&mut self.partial, rest, consumed) else {
                    return Ok(None);
                };
                if [a, b] != FROM_SERVER {
                    return Err(AjpError::Magic(a, b));
                }
                self.place = self.header(usize::from(u16::from_be_bytes([high, low])))?;
                Ok(None)
            }
            Place::Type(payload_bytes) => {
                let Some([kind]) = gather(&mut self.partial, rest, consumed) else {
                    return Ok(None);
                };
                self.place = self.begin(kind, payload_bytes)?;
                Ok(None)
            }
            Place::ChunkLength(payload_bytes) => {
                let Some(length) = gather(&mut self.partial, rest, consumed) else {
                    return Ok(None);
                };
                self.begin_chunk(payload_bytes, usize::from(u16::from_be_bytes(length)))
            }
            Place::Data { left, padding } => {
                let from = *consumed;
                let (taken, passed) = self.pass_on(left.min(rest.len()))?;
                *consumed += taken;
                self.place = behind_data(left - taken, padding);
                Ok((passed > 0).then_some(AjpEvent::Body(from..from + passed)))
            }
            Place::Padding => {
                *consumed += 1;
                self.place = Place::Header;
                Ok(None)
            }
            Place::Packet { packet, bytes } => {
                let missing = bytes - self.partial.len();
                *consumed += missing.min(rest.len());
                match rest.get(..missing) {
                    None => {
                        self.partial.extend_from_slice(rest);
                        Ok(None)
                    }
                    // Usually the packet arrives as a whole, and nothing is copied.
                    Some(whole) if self.partial.is_empty() => self.packet(packet, whole),
                    Some(last) => {
                        let mut whole = std::mem::take(&mut self.partial);
                        whole.extend_from_slice(last);
                        self.packet(packet, &whole)
                    }
                }
            }
            Place::Ended { .. } => Err(AjpError::BehindEnd),
            Place::Failed(error) => Err(error),
        }
    }

    fn header(&self, payload_bytes: usize) -> Result<Place, AjpError> {
        let (bytes, bytes_max) = (payload_bytes + PACKET_HEAD_BYTES, self.packet_bytes_max);
        match payload_bytes {
            0 => Err(AjpError::PacketLength { packet: "a packet", expected: 1, found: 0 }),
            _ if bytes > bytes_max => Err(AjpError::PacketLong { bytes, bytes_max }),
            _ => Ok(Place::Type(payload_bytes)),
        }
    }

    /// The state for such a packet, if it is allowed now, and has a valid length.
    fn begin(&self, kind: u8, payload_bytes: usize) -> Result<Place, AjpError> {
        let unexpected = |expected, found| Err(AjpError::Unexpected { expected, found });
        let bytes = payload_bytes - 1;
        let fixed = |name, packet, expected| match payload_bytes == expected {
            true => Ok(Place::Packet { packet, bytes }),
            false => Err(AjpError::PacketLength { packet: name, expected, found: payload_bytes }),
        };
        match (kind, self.meter) {
            (SEND_HEADERS, None) if bytes == 0 => Err(AjpError::HeadCut("a status")),
            (SEND_HEADERS, None) => Ok(Place::Packet { packet: Packet::Head, bytes }),
            (SEND_HEADERS, Some(_)) => unexpected("the body or its end", "a second SEND_HEADERS"),
            (SEND_BODY_CHUNK, _) => Ok(Place::ChunkLength(payload_bytes)),
            (GET_BODY_CHUNK, _) => fixed("GET_BODY_CHUNK", Packet::Ask, 3),
            (END_RESPONSE, Some(_)) => fixed("END_RESPONSE", Packet::End, 2),
            (END_RESPONSE, None) => unexpected("SEND_HEADERS", "END_RESPONSE"),
            (CPONG_REPLY, _) => unexpected("a reply", "CPONG"),
            _ => Err(AjpError::Type(kind)),
        }
    }

    fn begin_chunk(
        &mut self,
        payload_bytes: usize,
        chunk_bytes: usize,
    ) -> Result<Option<AjpEvent>, AjpError> {
        // Preceded by type and length; followed by one byte, which some servers omit.
        let padding = payload_bytes.checked_sub(3 + chunk_bytes).filter(|padding| *padding <= 1);
        let Some(padding) = padding else {
            return Err(AjpError::ChunkLength { packet_bytes: payload_bytes, chunk_bytes });
        };
        if chunk_bytes > 0 && self.meter.is_none() {
            return Err(AjpError::Unexpected {
                expected: "SEND_HEADERS",
                found: "SEND_BODY_CHUNK",
            });
        }
        self.place = behind_data(chunk_bytes, padding);
        // Before the head there is nothing to flush.
        Ok((chunk_bytes == 0 && self.meter.is_some()).then_some(AjpEvent::Flush))
    }

    /// For `bytes` body bytes: how many are consumed, and how many are for the client.
    fn pass_on(&mut self, bytes: usize) -> Result<(usize, usize), AjpError> {
        match &mut self.meter {
            None | Some(BodyMeter::Nothing) => Ok((bytes, 0)),
            Some(meter) => {
                let passed = meter.take(bytes).map_err(|_| AjpError::BodyLong)?;
                Ok((passed, passed))
            }
        }
    }

    /// Processes a complete packet, without its type.
    fn packet(&mut self, packet: Packet, rest: &[u8]) -> Result<Option<AjpEvent>, AjpError> {
        self.place = Place::Header;
        match (packet, rest) {
            (Packet::Ask, [high, low]) => {
                let wanted = self.upload.ask(usize::from(u16::from_be_bytes([*high, *low])))?;
                Ok(Some(AjpEvent::Wants(wanted)))
            }
            (Packet::End, [reuse]) => {
                let missing_bytes = self.meter.map_or(0, |meter| meter.missing_bytes());
                if missing_bytes > 0 {
                    return Err(AjpError::BodyShort { missing_bytes });
                }
                self.place = Place::Ended { reuse: *reuse == 1 };
                Ok(Some(AjpEvent::End))
            }
            (Packet::Head, _) => {
                let method = if self.is_head { Method::Head } else { Method::Get };
                let head = reply::read_head(rest, method, &self.limits)?;
                self.meter = Some(BodyMeter::new(head.framing));
                Ok(Some(AjpEvent::Head(head)))
            }
            (Packet::Ask | Packet::End, _) => unreachable!("their lengths were compared"),
        }
    }
}

fn behind_data(left: usize, padding: usize) -> Place {
    match (left, padding) {
        (0, 0) => Place::Header,
        (0, _) => Place::Padding,
        _ => Place::Data { left, padding },
    }
}
