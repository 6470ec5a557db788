//! One request and its reply on a connection.
//!
//! ```text
//!   Header -+-> Stdout -> Padding -> Header          the head is read whole, the body passed on
//!   Header -+-> Stdout -> Padding -> Header          the head is buffered, the body passed through
//!           '-> End -> EndPadding -> Ending -> Ended
//! ```
//! The events depend only on the bytes, not on how they arrived.

use std::ops::Range;

use skep_http::gateway::{BodyMeter, GatewayHead, GatewayRequest, gather};
use skep_http::{BodyFraming, HeadLimits, Method};

use crate::head::HeadBuffer;
use crate::limits::{CONTENT_BYTES_MAX, RECORD_HEAD_BYTES};
use crate::record::{
    self, BEGIN_REQUEST, END_BYTES, END_REQUEST, FLAG_KEEP_CONN, REQUEST_ID, ROLE_RESPONDER,
    RecordHead, STDERR, STDIN, STDOUT, VERSION,
};
use crate::stderr::StderrLines;
use crate::{FcgiError, FcgiRefusal, FcgiRequestError, FcgiSettings, params};

/// The result of a call of [`FcgiExchange::receive`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FcgiReceived {
    /// Bytes of the input that were consumed; all of them if there is no event.
    pub consumed: usize,
    pub event: Option<FcgiEvent>,
}

/// An event of an application's reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FcgiEvent {
    /// The head; once, and before the body.
    Head(GatewayHead),
    /// Bytes of the body: a range of this call's input. Never empty.
    Body(Range<usize>),
    /// A line for the log, at any time, without its line end. It may contain any bytes: escape
    /// them. Never empty.
    Stderr(Vec<u8>),
    /// The reply is complete. Whether the connection may carry another request:
    /// [`FcgiExchange::is_reusable`].
    End {
        /// The application's exit status; php-fpm returns 0 even after a fatal error.
        app_status: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Header,
    Stdout {
        left: usize,
        padding: usize,
    },
    Stderr {
        left: usize,
        padding: usize,
    },
    Padding(usize),
    End {
        padding: usize,
    },
    EndPadding {
        app_status: u32,
        left: usize,
    },
    /// Everything was received, but not all events were returned.
    Ending {
        app_status: u32,
    },
    Ended,
    Failed(FcgiError),
}

/// One request and its reply.
#[derive(Clone, Debug)]
pub struct FcgiExchange {
    /// Bytes of the request body still to be sent.
    body_left: u64,
    /// Whether the application still waits for the body or its end.
    is_awaited: bool,
    keep_conn: bool,
    dropped_fields: usize,
    place: Place,
    /// The beginning of a header or of END_REQUEST.
    partial: Vec<u8>,
    head: HeadBuffer,
    /// Set once the head is complete.
    meter: Option<BodyMeter>,
    is_stdout_ended: bool,
    stderr: StderrLines,
    /// Whether the request is a HEAD.
    is_head: bool,
    limits: HeadLimits,
}

impl FcgiExchange {
    /// Appends the records of `request` to `out`, for a new or reusable connection: all records if
    /// it has no body.
    ///
    /// # Errors
    /// The request cannot be encoded; `out` is unchanged.
    pub fn start(
        out: &mut Vec<u8>,
        request: &GatewayRequest<'_>,
        settings: &FcgiSettings<'_>,
    ) -> Result<FcgiExchange, FcgiRequestError> {
        let body_left = match request.body {
            BodyFraming::None => 0,
            BodyFraming::Length(bytes) => bytes,
            BodyFraming::Chunked => return Err(FcgiRequestError::LengthUnknown),
        };
        let start = out.len();
        write_begin(out, settings.keep_conn);
        let dropped_fields = params::write(out, request, settings).inspect_err(|_| {
            out.truncate(start);
        })?;
        let exchange = FcgiExchange {
            body_left,
            dropped_fields,
            is_head: request.method == Method::Head,
            ..FcgiExchange::new(settings.keep_conn, settings.reply_head)
        };
        Ok(exchange.started(out))
    }

    /// Appends a GET of a path that the application itself answers, on a connection of its own:
    /// php-fpm's `ping.path` (the body is `pong`) and `pm.status_path`. Needs a free worker.
    ///
    /// # Errors
    /// [`FcgiRequestError::ParamLong`]; `out` is unchanged.
    pub fn probe(
        out: &mut Vec<u8>,
        path: &[u8],
        query: &[u8],
        limits: &HeadLimits,
    ) -> Result<FcgiExchange, FcgiRequestError> {
        let start = out.len();
        write_begin(out, false);
        params::write_probe(out, path, query).inspect_err(|_| out.truncate(start))?;
        Ok(FcgiExchange::new(false, *limits).started(out))
    }

    fn new(keep_conn: bool, limits: HeadLimits) -> FcgiExchange {
        FcgiExchange {
            body_left: 0,
            is_awaited: true,
            keep_conn,
            dropped_fields: 0,
            place: Place::Header,
            partial: Vec::new(),
            head: HeadBuffer::default(),
            meter: None,
            is_stdout_ended: false,
            stderr: StderrLines::default(),
            is_head: false,
            limits,
        }
    }

    /// An absent body is ended at once.
    fn started(mut self, out: &mut Vec<u8>) -> FcgiExchange {
        if self.body_left == 0 {
            out.extend_from_slice(&self.body_end());
        }
        self
    }

    /// The number of request fields that were dropped because of ambiguous names.
    pub fn dropped_fields(&self) -> usize {
        self.dropped_fields
    }

    /// Largest number of body bytes that the next record may carry.
    pub fn wanted(&self) -> usize {
        usize::try_from(self.body_left).unwrap_or(usize::MAX).min(CONTENT_BYTES_MAX)
    }

    /// Whether the application still waits for the body or its end.
    pub fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// The header to send before `bytes` bytes of the body.
    ///
    /// # Panics
    /// If `bytes` is 0 or more than [`FcgiExchange::wanted`].
    #[must_use]
    pub fn body_head(&mut self, bytes: usize) -> [u8; RECORD_HEAD_BYTES] {
        assert!(bytes > 0 && bytes <= self.wanted(), "more body than was announced");
        self.body_left -= bytes as u64;
        record::head(STDIN, bytes)
    }

    /// The record that ends the body. If a client breaks off, its body has no end: close the
    /// connection instead.
    ///
    /// # Panics
    /// If bytes are missing, or the body has ended.
    #[must_use]
    pub fn body_end(&mut self) -> [u8; RECORD_HEAD_BYTES] {
        assert!(
            self.is_awaited && self.body_left == 0,
            "an end before the body's, or a second one"
        );
        self.is_awaited = false;
        record::head(STDIN, 0)
    }

    /// Processes received bytes. Call again with the unconsumed bytes, even if there are none,
    /// until it returns no event. Receive also while sending the body: an application may answer
    /// early.
    ///
    /// # Errors
    /// The expected and the received data; close the connection. A body that was forwarded in part
    /// is incomplete, and must not be stored. The same error is returned from then on.
    pub fn receive(&mut self, input: &[u8]) -> Result<FcgiReceived, FcgiError> {
        let mut consumed = 0;
        while consumed < input.len()
            || matches!(self.place, Place::Ending { .. } | Place::Failed(_))
        {
            let event = match self.step(input, &mut consumed) {
                Ok(event) => event,
                Err(error) => {
                    self.place = Place::Failed(error);
                    return Err(error);
                }
            };
            if event.is_some() {
                return Ok(FcgiReceived { consumed, event });
            }
        }
        Ok(FcgiReceived { consumed, event: None })
    }

    /// The connection was closed: an error unless the reply is complete.
    ///
    /// # Errors
    /// [`FcgiError::Closed`], or the earlier error.
    pub fn close(&self) -> Result<(), FcgiError> {
        match self.place {
            Place::Ended => Ok(()),
            Place::Failed(error) => Err(error),
            _ => Err(FcgiError::Closed),
        }
    }

    /// The last line of STDERR of a failed reply, if it is unterminated.
    pub fn stderr_rest(&mut self) -> Option<Vec<u8>> {
        self.stderr.end_line()
    }

    /// Bytes of STDERR beyond the limits, for which there were no events.
    pub fn stderr_dropped_bytes(&self) -> u64 {
        self.stderr.dropped_bytes()
    }

    /// Whether the connection may carry another request. `unread_bytes`: bytes received on it that
    /// were not consumed by [`FcgiExchange::receive`]. The application must have been asked to keep
    /// it, and both sides must be in step.
    pub fn is_reusable(&self, unread_bytes: usize) -> bool {
        self.keep_conn && self.place == Place::Ended && unread_bytes == 0 && !self.is_awaited
    }

    fn step(&mut self, input: &[u8], consumed: &mut usize) -> Result<Option<FcgiEvent>, FcgiError> {
        let rest = &input[*consumed..];
        match self.place {
            Place::Header => {
                if let Some(head) = gather(&mut self.partial, rest, consumed) {
                    self.place = self.begin(RecordHead::read(head))?;
                }
                Ok(None)
            }
            Place::Stdout { left, padding } => {
                let from = *consumed;
                let content = &rest[..left.min(rest.len())];
                let (taken, passed, head) = self.stdout(content)?;
                *consumed += taken;
                self.place = match left - taken {
                    0 => behind(padding),
                    left => Place::Stdout { left, padding },
                };
                let body = (passed > 0).then_some(FcgiEvent::Body(from..from + passed));
                Ok(head.map(FcgiEvent::Head).or(body))
            }
            Place::Stderr { left, padding } => {
                let (taken, line) = self.stderr.take(&rest[..left.min(rest.len())]);
                *consumed += taken;
                self.place = match left - taken {
                    0 => behind(padding),
                    left => Place::Stderr { left, padding },
                };
                Ok(line.map(FcgiEvent::Stderr))
            }
            Place::Padding(left) => {
                let taken = left.min(rest.len());
                *consumed += taken;
                self.place = behind(left - taken);
                Ok(None)
            }
            Place::End { padding } => {
                if let Some(content) = gather(&mut self.partial, rest, consumed) {
                    let app_status = self.end(content)?;
                    self.place = behind_end(app_status, padding);
                }
                Ok(None)
            }
            Place::EndPadding { app_status, left } => {
                let taken = left.min(rest.len());
                *consumed += taken;
                self.place = behind_end(app_status, left - taken);
                Ok(None)
            }
            Place::Ending { app_status } => Ok(Some(match self.stderr.end_line() {
                Some(line) => FcgiEvent::Stderr(line),
                None => {
                    self.place = Place::Ended;
                    FcgiEvent::End { app_status }
                }
            })),
            Place::Ended => Err(FcgiError::BehindEnd),
            Place::Failed(error) => Err(error),
        }
    }

    /// The state for such a record, if it is allowed now.
    fn begin(&mut self, head: RecordHead) -> Result<Place, FcgiError> {
        let (left, padding) = (head.content_bytes, head.padding_bytes);
        match head.kind {
            _ if head.version != VERSION => Err(FcgiError::Version(head.version)),
            _ if head.request_id != REQUEST_ID => Err(FcgiError::RequestId(head.request_id)),
            STDOUT if self.is_stdout_ended => Err(FcgiError::StdoutEnded),
            STDOUT if left == 0 => {
                self.is_stdout_ended = true;
                Ok(behind(padding))
            }
            STDOUT => Ok(Place::Stdout { left, padding }),
            STDERR if left == 0 => Ok(behind(padding)),
            STDERR => Ok(Place::Stderr { left, padding }),
            END_REQUEST if left == END_BYTES => Ok(Place::End { padding }),
            END_REQUEST => Err(FcgiError::EndLength(left)),
            kind => Err(FcgiError::Type(kind)),
        }
    }

    /// Processes bytes of STDOUT: returns how many were consumed, how many of them are for the
    /// client, and the head, if it ends there.
    fn stdout(&mut self, content: &[u8]) -> Result<(usize, usize, Option<GatewayHead>), FcgiError> {
        match &mut self.meter {
            None => {
                let (taken, is_whole) = self.head.take(content, self.limits.head_bytes_max)?;
                if !is_whole {
                    return Ok((taken, 0, None));
                }
                let method = if self.is_head { Method::Head } else { Method::Get };
                let head = self.head.translate(method, &self.limits)?;
                self.head = HeadBuffer::default();
                self.meter = Some(BodyMeter::new(head.framing));
                Ok((taken, 0, Some(head)))
            }
            Some(BodyMeter::Nothing) => Ok((content.len(), 0, None)),
            Some(meter) => {
                let passed = meter.take(content.len()).map_err(|_| FcgiError::BodyLong)?;
                Ok((passed, passed, None))
            }
        }
    }

    fn end(&self, content: [u8; END_BYTES]) -> Result<u32, FcgiError> {
        let [a, b, c, d, protocol_status, ..] = content;
        let app_status = u32::from_be_bytes([a, b, c, d]);
        let refusal = match protocol_status {
            0 => None,
            1 => Some(FcgiRefusal::CantMultiplex),
            2 => Some(FcgiRefusal::Overloaded),
            3 => Some(FcgiRefusal::UnknownRole),
            other => Some(FcgiRefusal::Other(other)),
        };
        if let Some(refusal) = refusal {
            return Err(FcgiError::Refused(refusal));
        }
        match self.meter.map(|meter| meter.missing_bytes()) {
            None => Err(FcgiError::NoHead { app_status }),
            Some(0) => Ok(app_status),
            Some(missing_bytes) => Err(FcgiError::BodyShort { missing_bytes }),
        }
    }
}

fn behind(padding: usize) -> Place {
    if padding == 0 { Place::Header } else { Place::Padding(padding) }
}

fn behind_end(app_status: u32, left: usize) -> Place {
    match left {
        0 => Place::Ending { app_status },
        _ => Place::EndPadding { app_status, left },
    }
}

fn write_begin(out: &mut Vec<u8>, keep_conn: bool) {
    let flags = if keep_conn { FLAG_KEEP_CONN } else { 0 };
    out.extend_from_slice(&record::head(BEGIN_REQUEST, 8));
    out.extend_from_slice(&[0, ROLE_RESPONDER, flags, 0, 0, 0, 0, 0]);
}
